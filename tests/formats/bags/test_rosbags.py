"""Bags of SQLite that rosbags writes, with each compression: as rosbags reads them itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rosbags.rosbag2 import Reader, Writer

from recorder.formats.bags.bag import Bag
from tests.formats.bags.kit import START_NS, STORE, compressed, imu, jpeg

MODES = ("none", "file", "message")


def write(path: Path, mode: str) -> None:
    writer: Any = Writer(path)
    kinds = type(writer).CompressionMode
    if mode != "none":
        writer.set_compression(kinds[mode.upper()], type(writer).CompressionFormat.ZSTD)
    sent = [imu("/imu", START_NS + at, (at, 0, 9), (0, 0, 0)) for at in range(700)]
    sent += [compressed("/front", jpeg(at), START_NS + 10 * at + 5) for at in range(60)]
    with writer:
        topics: dict[str, Any] = {}
        for each in sorted(sent, key=lambda each: each.log_ns):
            if each.topic not in topics:
                topics[each.topic] = writer.add_connection(each.topic, each.schema, typestore=STORE)
            writer.write(topics[each.topic], each.log_ns, each.data)


@pytest.mark.parametrize("with_metadata", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_messages_are_those_that_rosbags_reads(
    tmp_path: Path, mode: str, with_metadata: bool
) -> None:
    write(tmp_path / "drive", mode)
    with Reader(tmp_path / "drive") as reader:
        wanted = [(c.topic, c.msgtype, t_ns, bytes(d)) for c, t_ns, d in reader.messages()]
    if not with_metadata:
        (tmp_path / "drive" / "metadata.yaml").unlink()
    with Bag(tmp_path / "drive") as bag:
        found = [
            (m.topic, bag.topics[m.topic].schema_name, m.log_ns, m.data)
            for m in bag.messages(bag.topics)
        ]
        assert bag.cuts == [] and bag.conflicts == []
        topic = bag.topics["/imu"]
    assert sorted(found) == sorted(wanted) and len(found) == 760
    assert (topic.schema_encoding, topic.count) == ("ros2msg", 700)
    assert topic.schema_data.decode() == STORE.generate_msgdef(topic.schema_name, ros_version=2)[0]
