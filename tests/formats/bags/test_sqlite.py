"""Bags of SQLite: tables as rosbag2 writes them, whole, compressed, truncated and damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
import zstandard

from recorder.common.errors import FormatError
from recorder.formats.bags import sqlite
from recorder.formats.bags.bag import Bag
from recorder.formats.mcap import McapMessage
from tests.campaigns import seeded
from tests.formats.bags.kit import SQLITE_TABLES

_START_NS = 1_700_000_000_000_000_000
TOPICS = ("/chat", "/other")


def write_db3(
    path: Path, count: int, *, first: int = 0, pack: Callable[[bytes], bytes] = bytes
) -> list[tuple[str, int, bytes]]:
    """Write messages 10 ms apart on two topics; return topic, log time and content of each."""
    sent = []
    with sqlite3.connect(path) as database:
        database.executescript(SQLITE_TABLES)
        for number, name in enumerate(TOPICS, 1):
            row = (number, name, "std_msgs/msg/String", "cdr", "")
            database.execute("INSERT INTO topics VALUES (?, ?, ?, ?, ?)", row)
        for k in range(first, first + count):
            topic, log_ns = k % 3 // 2, _START_NS + k * 10_000_000
            data = b"\0\1\0\0" + k.to_bytes(4, "little") * 40
            message = (topic + 1, log_ns, pack(data))
            database.execute("INSERT INTO messages VALUES (NULL, ?, ?, ?)", message)
            sent.append((TOPICS[topic], log_ns, data))
    database.close()
    return sent


def read(path: Path, topics: tuple[str, ...] = TOPICS) -> tuple[Bag, list[McapMessage]]:
    with Bag(path) as bag:
        return bag, list(bag.messages(topics))


def contents(messages: list[McapMessage]) -> list[tuple[str, int, bytes]]:
    return [(each.topic, each.log_ns, each.data) for each in messages]


def write_metadata(folder: Path, *names: str, mode: str = "", topics: Sequence[Any] = ()) -> None:
    information = {
        "storage_identifier": "sqlite3",
        "relative_file_paths": list(names),
        "compression_mode": mode,
        "compression_format": "zstd" if mode else "",
        "topics_with_message_count": list(topics),
    }
    text = yaml.safe_dump({"rosbag2_bagfile_information": information})
    (folder / "metadata.yaml").write_text(text)


def test_all_messages_come_in_order_with_their_topics(tmp_path: Path) -> None:
    sent = write_db3(tmp_path / "drive_0.db3", 700)
    bag, messages = read(tmp_path / "drive_0.db3")
    assert contents(messages) == sent
    assert {name: topic.count for name, topic in bag.topics.items()} == {
        "/chat": 467,
        "/other": 233,
    }
    assert bag.topics["/chat"].schema_name == "std_msgs/msg/String"
    assert (bag.start_ns, bag.end_ns, bag.cuts) == (sent[0][1], sent[-1][1], [])
    _, chat = read(tmp_path / "drive_0.db3", ("/chat",))
    assert contents(chat) == [each for each in sent if each[0] == "/chat"]


@pytest.mark.parametrize("with_metadata", [True, False])
def test_a_split_bag_is_one_recording(tmp_path: Path, with_metadata: bool) -> None:
    sent = write_db3(tmp_path / "drive_9.db3", 300)
    sent += write_db3(tmp_path / "drive_10.db3", 300, first=300)
    if with_metadata:
        write_metadata(tmp_path, "drive_9.db3", "drive_10.db3")
    assert contents(read(tmp_path)[1]) == sent


def test_parts_with_names_of_lyrical_continue_each_other(tmp_path: Path) -> None:
    sent = write_db3(tmp_path / "0_drive_2026_05_30-10_00_00.db3", 5)
    sent += write_db3(tmp_path / "1_drive_2026_05_30-10_00_01.db3", 5, first=5)
    assert contents(read(tmp_path)[1]) == sent


@pytest.mark.parametrize("with_metadata", [True, False])
def test_messages_may_be_compressed_one_by_one(tmp_path: Path, with_metadata: bool) -> None:
    sent = write_db3(tmp_path / "drive_0.db3", 9, pack=zstandard.ZstdCompressor().compress)
    if with_metadata:
        write_metadata(tmp_path, "drive_0.db3", mode="MESSAGE")
    assert contents(read(tmp_path)[1]) == sent


def test_a_file_may_be_compressed_as_a_whole(tmp_path: Path) -> None:
    sent = write_db3(tmp_path / "drive_0.db3", 9)
    packed = tmp_path / "drive_0.db3.zstd"
    whole = (tmp_path / "drive_0.db3").read_bytes()
    parts = (whole[:5000], whole[5000:])  # frames, as pzstd makes several
    packed.write_bytes(b"".join(zstandard.ZstdCompressor().compress(part) for part in parts))
    (tmp_path / "drive_0.db3").unlink()
    write_metadata(tmp_path, packed.name, mode="FILE")
    assert contents(read(tmp_path)[1]) == sent


@pytest.mark.parametrize("end", [b"", b"\xff" * 300_000])
def test_of_a_compressed_file_what_decompresses_is_read(tmp_path: Path, end: bytes) -> None:
    sent = write_db3(tmp_path / "drive_0.db3", 5000)
    whole = (tmp_path / "drive_0.db3").read_bytes()
    for part in (0.5, 0.9):
        packed = zstandard.ZstdCompressor().compress(whole)
        path = tmp_path / "cut.db3.zstd"
        path.write_bytes(packed[: int(len(packed) * part)] + end)
        bag, messages = read(path)
        assert contents(messages) == sent[: len(messages)] and messages
        (cut,) = bag.cuts
        assert ("cannot be decompressed" if end else "are not whole") in cut.reason
        assert "tmp" not in cut.reason  # where the decompressed copy was


def test_messages_that_the_metadata_lists_and_no_file_has_are_counted(tmp_path: Path) -> None:
    write_db3(tmp_path / "drive_0.db3", 9)
    topics = [
        {"topic_metadata": {"name": name}, "message_count": count}
        for name, count in (("/chat", 6), ("/other", 8), ("/gone", 2))
    ]
    write_metadata(tmp_path, "drive_0.db3", topics=[*topics, {"message_count": 3}, "no topic"])
    assert read(tmp_path)[0].conflicts == [
        "/other: 3 of 8 messages that metadata.yaml lists can be read",
        "/gone: 0 of 2 messages that metadata.yaml lists can be read",
    ]


def test_a_truncated_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "drive_0.db3"
    sent = write_db3(path, 2000)
    whole = path.read_bytes()
    for part in (0.3, 0.5, 0.9):
        path.write_bytes(whole[: int(len(whole) * part)])
        bag, messages = read(path)
        assert contents(messages) == sent[: len(messages)]
        assert 0 < len(messages) < len(sent)
        assert "shorter than its header says" in bag.cuts[0].reason
        assert bag.end_ns == messages[-1].log_ns


@pytest.mark.parametrize("fill", [b"\xff", b"\0"])
@pytest.mark.parametrize("damaged", [(1000,), (1,), (1999,), (1, 700, 1024, 1999)])
def test_messages_of_damaged_pages_are_counted(
    tmp_path: Path, damaged: tuple[int, ...], fill: bytes
) -> None:
    path = tmp_path / "drive_0.db3"
    sent = write_db3(path, 2000)
    raw = bytearray(path.read_bytes())
    for number in damaged:
        at = raw.index(number.to_bytes(4, "little") * 40) // 4096 * 4096
        raw[at : at + 4096] = fill * 4096
    path.write_bytes(raw)
    bag, messages = read(path)
    missing = len(sent) - len(messages)
    assert set(contents(messages)) < set(sent)
    assert 0 < missing < 50 * len(damaged)
    assert [cut.reason for cut in bag.cuts] == [f"{missing} messages cannot be read"]
    assert sum(topic.count for topic in bag.topics.values()) == len(messages)


@seeded(2, weight=20, least=40)
def test_mutated_files_give_whole_messages_or_one_error(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "drive_0.db3"
    path.unlink(missing_ok=True)  # of another seed
    write_db3(path, 60)
    whole = path.read_bytes()
    rng, outcomes = np.random.default_rng(seed), set()
    for _ in range(150):
        raw = bytearray(whole)
        for at in rng.integers(0, len(raw), rng.integers(1, 9)):
            raw[at] = rng.integers(256)
        path.write_bytes(raw[: rng.integers(100, len(raw) + 1)] if rng.random() < 0.2 else raw)
        try:
            bag, messages = read(path)
        except FormatError as error:
            outcomes.add("error")
            assert str(path) in str(error) and "\n" not in str(error)
        else:
            outcomes.add("cut" if bag.cuts else "read")
            assert all(type(each.data) is bytes and each.log_ns >= 0 for each in messages)
    assert outcomes == {"error", "cut", "read"}


@pytest.mark.parametrize("is_writable", [True, False])
def test_what_a_killed_recorder_left_in_the_log_is_read(
    tmp_path: Path, is_writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "drive_0.db3"
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.executescript(SQLITE_TABLES)
    database.execute("INSERT INTO topics VALUES (1, '/chat', 'std_msgs/msg/String', 'cdr', '')")
    database.execute("INSERT INTO messages VALUES (NULL, 1, ?, x'00010000')", [_START_NS])
    database.commit()
    copy = tmp_path / "killed"
    copy.mkdir()
    for each in (path, Path(f"{path}-wal")):
        (copy / each.name).write_bytes(each.read_bytes())
    database.close()
    if not is_writable:
        # As on a read-only medium, where SQLite can make no file beside it.
        def connect(path: Path, *modes: str) -> sqlite3.Connection:
            if path.parent == copy:
                raise FormatError(f"{path}: unable to open database file")
            return _connect(path, *modes)

        _connect = sqlite._connect
        monkeypatch.setattr(sqlite, "_connect", connect)
    assert contents(read(copy)[1]) == [("/chat", _START_NS, b"\0\1\0\0")]
    assert (copy / "drive_0.db3-wal").stat().st_size  # nothing is written back


@pytest.mark.parametrize("content", [b"", b"nothing", b"\x89MCAP"])
def test_a_file_that_is_no_database_is_one_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "drive_0.db3"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"drive_0\.db3: byte 0: not an SQLite file"):
        read(path)


@pytest.mark.parametrize("content", [b"SQLite format 3\0", b"SQLite format 3\0" + bytes(5000)])
def test_a_database_that_is_no_bag_is_one_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "drive_0.db3"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="not a ROS 2 bag of SQLite"):
        read(path)
