"""Bags: folders as rosbag2 writes them, whole and not."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from mcap.writer import CompressionType, IndexType, Writer

from recorder.common.errors import FormatError
from recorder.formats.bags.bag import Bag
from recorder.formats.bags.contents import choose_topic, origin_ns
from recorder.formats.bags.messages import Kind, decode_json_imu
from recorder.formats.bags.timing import Stamping, read_stamp
from recorder.formats.mcap.reader import McapReader
from tests.formats.bags.kit import (
    SECOND,
    START_NS,
    Sent,
    cdr,
    compressed,
    imu,
    jpeg,
    write_bag,
    write_mcap,
)
from tests.support.changes import flip

PARTS = [[imu("/imu", START_NS + n * SECOND, (n, 0, 0), (0, 0, 0))] for n in range(12)]


def logs(path: Path) -> list[int]:
    with Bag(path) as bag:
        return [message.log_ns - START_NS for message in bag.messages(["/imu"])]


def test_the_files_of_a_bag_are_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    folder = write_bag(tmp_path / "bag", PARTS[::-1])
    assert logs(folder) == [n * SECOND for n in range(12)]
    with Bag(folder) as bag:
        assert bag.topics["/imu"].count == 12 and bag.profile == "ros2"
        assert (bag.start_ns, bag.end_ns) == (START_NS, START_NS + 11 * SECOND)
        assert bag.duration_s == 11.0


def test_a_bag_without_metadata_is_all_its_files(tmp_path: Path) -> None:
    folder = write_bag(tmp_path / "bag", PARTS)
    (folder / "metadata.yaml").unlink()
    assert logs(folder) == [n * SECOND for n in range(12)]


def test_early_versions_named_the_folder_too(tmp_path: Path) -> None:
    folder = write_bag(tmp_path / "bag", PARTS[:2], relative_file_paths=["bag/bag_0.mcap"])
    assert logs(folder) == [0]


def test_messages_may_be_compressed_one_by_one(tmp_path: Path) -> None:
    (first,) = PARTS[0]
    compressor, later = zstandard.ZstdCompressor(), first.log_ns + 1
    data = compressor.compress(first.data)
    sent = Sent(first.topic, first.schema, "cdr", data, first.log_ns)
    how: dict[str, Any] = {"compression_format": "zstd", "compression_mode": "MESSAGE"}
    with Bag(write_bag(tmp_path / "a", [[sent]], **how)) as bag:
        assert [message.data for message in bag.messages(["/imu"])] == [first.data]
    # One that cannot be decompressed, or grows too far, has a fault and hides no other.
    bomb = Sent(first.topic, first.schema, "cdr", compressor.compress(bytes(200 << 20)), later)
    with Bag(
        write_bag(tmp_path / "b", [[first, bomb, replace(sent, log_ns=later + 1)]], **how)
    ) as bag:
        damaged, grown, whole = bag.messages(["/imu"])
    assert damaged.fault.startswith("cannot be decompressed") and not damaged.data
    assert "a message of 209715200 bytes, stored in" in grown.fault and not grown.data
    assert (whole.data, whole.fault) == (first.data, "")
    with pytest.raises(FormatError, match="cannot be decompressed"):
        damaged.read_data()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"storage_identifier": "other"}, "'other', not 'mcap' or 'sqlite3': `ros2 bag convert`"),
        ({"relative_file_paths": ["other.mcap"]}, "lists 'other.mcap', which is not in the folder"),
        ({"relative_file_paths": ["../../bag_0.mcap"]}, None),
        ({"relative_file_paths": []}, "lists no file"),
        ({"relative_file_paths": 5}, "is not the metadata of a ROS 2 bag"),
        (
            {"compression_mode": "FILE", "compression_format": "lz4"},
            "files are compressed as 'lz4'",
        ),
        ({"compression_mode": "message", "compression_format": "lz4"}, "as 'lz4', which is not"),
    ],
)
def test_metadata_that_cannot_be_followed(
    tmp_path: Path, changes: dict[str, Any], text: str | None
) -> None:
    folder = write_bag(tmp_path / "bag", PARTS[:1], **changes)
    if text is None:  # names lead nowhere out of the folder
        assert logs(folder) == [0]
        return
    with pytest.raises(FormatError) as caught:
        Bag(folder)
    assert text in str(caught.value) and str(folder) in str(caught.value)


@pytest.mark.parametrize("storage", ["", None])
def test_a_storage_without_a_name_is_that_of_the_files(tmp_path: Path, storage: str | None) -> None:
    """``ros2 bag reindex`` of Humble leaves the name empty."""
    folder = write_bag(tmp_path / "bag", PARTS[:2], storage_identifier=storage)
    assert logs(folder) == [0, *(n * SECOND for n in range(1, len(PARTS[1]) + 1))]
    for number in range(2):
        (folder / f"bag_{number}.mcap").write_bytes(b"another")
    with pytest.raises(FormatError, match=r"not 'mcap' or 'sqlite3': `ros2 bag convert`"):
        Bag(folder)


@pytest.mark.parametrize(
    "content", [b"", b"a: [", b"- 1", b"rosbag2_bagfile_information: 3", b"\0"]
)
def test_what_is_no_metadata_is_an_error(tmp_path: Path, content: bytes) -> None:
    folder = write_bag(tmp_path / "bag", PARTS[:1])
    (folder / "metadata.yaml").write_bytes(content)
    with pytest.raises(FormatError, match="is not the metadata of a ROS 2 bag"):
        Bag(folder)


def test_a_folder_without_recordings_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not a ROS 2 bag"):
        Bag(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"nothing", "bag_1.mcap: byte 0: not an MCAP file"),
        (b"", "bag_1.mcap: byte 0: not an MCAP file"),
        (None, "bag_1.mcap: cannot be read: No such file or directory"),
    ],
)
def test_a_file_of_a_bag_that_cannot_be_read_is_named_and_hides_no_other(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    folder = write_bag(tmp_path / "bag", PARTS[:3])
    if content is None:
        (folder / "bag_1.mcap").unlink()
    else:
        (folder / "bag_1.mcap").write_bytes(content)
    assert logs(folder) == [0, 2 * SECOND]
    with Bag(folder) as bag:
        assert [(cut.time_ns, cut.reason) for cut in bag.cuts] == [(START_NS, reason)]
        assert bag.topics["/imu"].count == 2
    for number in (0, 2):
        (folder / f"bag_{number}.mcap").write_bytes(b"nothing")
    with pytest.raises(FormatError, match=r"bag_0\.mcap: byte 0: not an MCAP file"):
        Bag(folder)


def test_the_last_file_of_a_killed_recorder_is_named(tmp_path: Path) -> None:
    folder = write_bag(tmp_path / "bag", PARTS[:1])
    sent = [part[0] for part in PARTS[1:]]
    write_mcap(folder / "bag_1.mcap", sent, chunk_size=700, finish=False)
    (folder / "metadata.yaml").unlink()
    assert logs(folder)[:3] == [0, SECOND, 2 * SECOND]
    with Bag(folder) as bag:
        (cut,) = bag.cuts
        assert cut.reason.startswith("bag_1.mcap: ") and cut.time_ns == bag.end_ns


def test_topics_of_two_types_are_reported(tmp_path: Path) -> None:
    other = cdr("/imu", "std_msgs/msg/String", START_NS + SECOND, data="x")
    folder = write_bag(tmp_path / "bag", [PARTS[0], [other], PARTS[2]])
    with Bag(folder) as bag:
        assert len(bag.conflicts) == 1 and "/imu: 1 messages of 'std_msgs" in bag.conflicts[0]
        assert len(list(bag.messages(["/imu"]))) == bag.topics["/imu"].count == 2


def test_the_beginning_is_the_earliest_stamp_whatever_is_played(tmp_path: Path) -> None:
    late = START_NS + 60 * SECOND
    sent = [
        compressed("/c", jpeg(0), START_NS + 5, START_NS - SECOND),
        imu("/imu", START_NS + 6, (0, 0, 0), (0, 0, 0), stamp_ns=START_NS - 2 * SECOND),
        compressed("/tai", jpeg(0), START_NS + 7, START_NS - 37 * SECOND),
        compressed("/late", jpeg(0), late, late - 9 * SECOND),
    ]
    with Bag(write_mcap(tmp_path / "a.mcap", sent)) as bag:
        assert origin_ns(bag) == START_NS - 2 * SECOND
    damaged = Sent("/imu", sent[1].schema, "cdr", b"", START_NS + 6)
    with Bag(write_mcap(tmp_path / "b.mcap", [sent[0], damaged, sent[3]])) as bag:
        assert origin_ns(bag) == START_NS - SECOND
    with Bag(write_mcap(tmp_path / "c.mcap", [])) as bag, pytest.raises(FormatError):
        origin_ns(bag)


def test_the_beginning_is_found_before_damage(tmp_path: Path) -> None:
    """A topic that comes late, or never, is not sought beyond the damage."""
    sent = [compressed("/c", jpeg(k), START_NS + k * SECOND, START_NS - 5) for k in range(5)]
    sent.append(imu("/late", START_NS + 5 * SECOND, (0, 0, 0), (0, 0, 0)))
    path = write_mcap(tmp_path / "a.mcap", sent, compression=CompressionType.NONE, chunk_size=700)
    flip(path, path.read_bytes().index(jpeg(3)) + 30)
    with Bag(path) as bag:
        assert origin_ns(bag) == START_NS - 5


@pytest.mark.parametrize("indexed", [True, False])
def test_a_damaged_chunk_hides_no_other(tmp_path: Path, indexed: bool) -> None:
    """Its messages are counted by the indexes behind it; without indexes they are not known."""
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        index = IndexType.ALL if indexed else IndexType.ALL & ~IndexType.MESSAGE
        writer = Writer(file, chunk_size=700, compression=CompressionType.NONE, index_types=index)
        writer.start("ros2")
        schema = writer.register_schema("x", "x", b"")
        channels = [writer.register_channel(topic, "x", schema) for topic in ("/a", "/b", "/c")]
        for number in range(40):  # 7 messages a chunk; /c has none in the damaged one
            channel = channels[2 if number > 30 else number % 2]
            writer.add_message(channel, START_NS + number, bytes([number]) * 80, START_NS)
        writer.finish()  # type: ignore[no-untyped-call]
    flip(path, path.read_bytes().index(bytes([9]) * 80) + 40)
    with Bag(path) as bag:
        found = list(bag.messages(["/a", "/b", "/c"]))
    faults = {message.topic: message for message in found if message.fault}
    assert all("a chunk with a wrong CRC" in each.fault for each in faults.values())
    lost = [6, 7, 8, 9, 10, 11, 12]
    assert [m.log_ns - START_NS for m in found if not m.fault] == [
        number for number in range(40) if number not in lost
    ]
    times = [message.log_ns for message in found]
    assert times == sorted(times)
    counts = {topic: message.count for topic, message in faults.items()}
    if indexed:
        assert counts == {"/a": 4, "/b": 3}
        assert (faults["/a"].log_ns, faults["/b"].log_ns) == (START_NS + 6, START_NS + 7)
    else:
        assert counts == {"/a": None, "/b": None, "/c": None}


@pytest.mark.parametrize("log_ns", [1 << 63, (1 << 64) - 8])
def test_log_times_beyond_64_bits_with_a_sign_are_an_error(tmp_path: Path, log_ns: int) -> None:
    sent = [imu("/imu", START_NS, (0, 0, 0), (0, 0, 0)), Sent("/x", "x", "json", b"{}", log_ns)]
    path = write_mcap(tmp_path / "a.mcap", sent)
    with pytest.raises(FormatError, match=rf"a\.mcap: a log time of {log_ns} ns.* 2262"):
        Bag(path)


def test_stamps_beyond_64_bits_with_a_sign_count_as_missing() -> None:
    stamping = Stamping(of_header=True)
    assert stamping.t_ns(START_NS - 1, START_NS) == START_NS - 1
    inertial = decode_json_imu(
        json.dumps(
            {"timestamp": {"sec": 10**12, "nsec": 5}, "acc": [0, 0, 0], "avel": [0, 0, 0]}
        ).encode()
    )
    assert read_stamp(inertial) == 0
    assert stamping.t_ns(read_stamp(inertial), START_NS) == START_NS


def test_a_topic_without_messages_is_not_chosen(tmp_path: Path) -> None:
    with Bag(write_mcap(tmp_path / "a.mcap", PARTS[0])) as bag:
        assert choose_topic(bag, Kind.IMU, "", "x")[0] == "/imu"
        assert choose_topic(bag, Kind.IMU, "imu", "x")[0] == "/imu"


def test_a_recording_begins_at_0_only_if_it_goes_on_there(tmp_path: Path) -> None:
    zero = imu("/imu", 0, (0, 0, 0), (0, 0, 0), None, 0)
    with Bag(write_mcap(tmp_path / "a.mcap", [zero, *PARTS[0]])) as bag:
        assert (bag.start_ns, bag.end_ns) == (START_NS, START_NS)
        assert [bag.is_timed(message) for message in bag.messages(["/imu"])] == [False, True]
    soon = imu("/imu", SECOND, (0, 0, 0), (0, 0, 0))
    with Bag(write_mcap(tmp_path / "b.mcap", [zero, soon])) as bag:
        assert (bag.start_ns, bag.end_ns) == (0, SECOND)
        assert all(bag.is_timed(message) for message in bag.messages(["/imu"]))
    with Bag(write_mcap(tmp_path / "c.mcap", [zero])) as bag:
        assert (bag.start_ns, bag.end_ns) == (0, 0)


def test_a_step_of_the_clock_needs_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks after the step have earlier log times, and are not opened before their turn."""
    monkeypatch.setattr("recorder.formats.mcap.OPEN_BYTES", 1000)
    times = [START_NS + n * SECOND // 100 for n in range(100)]
    times[50:] = [t_ns - 3600 * SECOND for t_ns in times[50:]]
    sent = [imu("/imu", t_ns, (n, 0, 0), (0, 0, 0)) for n, t_ns in enumerate(times)]
    for name, parts in (("a", [sent]), ("b", [sent[:30], sent[30:70], sent[70:]])):
        with Bag(write_bag(tmp_path / name, parts, chunk_size=700)) as bag:
            assert [step.step_ns for step in bag.steps] == [-3600 * SECOND]
            messages = list(bag.messages(["/imu"]))
            assert [message.log_ns for message in messages] == times
            assert [m.time_ns - START_NS for m in messages] == [
                n * SECOND // 100 for n in range(100)
            ]


def test_log_times_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Whatever the order of the entries in the message indexes: of a writer, it may be by time."""
    sent = [imu("/imu", START_NS + n, (0, 0, 0), (0, 0, 0)) for n in (0, 2, 1, 3)]
    path = write_mcap(tmp_path / "a.mcap", sent, compression=CompressionType.NONE)
    with McapReader(path) as mcap:
        ((_, entries),) = mcap.log_times()
    ((offsets, times),) = entries.values()
    assert (times - START_NS).tolist() == [0, 2, 1, 3]
    rows = [struct.pack("<QQ", int(t), int(o)) for o, t in zip(offsets, times, strict=True)]
    content = path.read_bytes()
    assert content.count(b"".join(rows)) == 1
    path.write_bytes(content.replace(b"".join(rows), b"".join(sorted(rows))))
    with McapReader(path) as mcap:
        ((_, entries),) = mcap.log_times()
    ((offsets, times),) = entries.values()
    assert (times - START_NS).tolist() == [0, 2, 1, 3] and (np.diff(offsets) > 0).all()
