"""Bags of SQLite: tables as rosbag2 writes them, whole, compressed, truncated and damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
import zstandard

from recorder.common.errors import FormatError
from recorder.formats.bags.bag import Bag
from recorder.formats.mcap import McapMessage

_START_NS = 1_700_000_000_000_000_000
_TABLES = """
CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,
    serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL);
CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL,
    data BLOB NOT NULL);
CREATE INDEX timestamp_idx ON messages (timestamp ASC);
"""  # rosbag2_storage_sqlite3, Humble
TOPICS = ("/chat", "/other")


def write_db3(
    path: Path, count: int, *, first: int = 0, pack: Callable[[bytes], bytes] = bytes
) -> list[tuple[str, int, bytes]]:
    """Write messages 10 ms apart on two topics; return topic, log time and content of each."""
    sent = []
    with sqlite3.connect(path) as database:
        database.executescript(_TABLES)
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


def write_metadata(folder: Path, *names: str, mode: str = "") -> None:
    information = {
        "storage_identifier": "sqlite3",
        "relative_file_paths": list(names),
        "compression_mode": mode,
        "compression_format": "zstd" if mode else "",
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
    packed.write_bytes(zstandard.ZstdCompressor().compress((tmp_path / "drive_0.db3").read_bytes()))
    (tmp_path / "drive_0.db3").unlink()
    write_metadata(tmp_path, packed.name, mode="FILE")
    assert contents(read(tmp_path)[1]) == sent
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(FormatError, match=r"drive_0\.db3\.zstd"):
        read(tmp_path)


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


def test_messages_of_a_damaged_page_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "drive_0.db3"
    sent = write_db3(path, 2000)
    raw = bytearray(path.read_bytes())
    at = raw.index((1000).to_bytes(4, "little") * 40) // 4096 * 4096
    raw[at : at + 4096] = b"\xff" * 4096
    path.write_bytes(raw)
    bag, messages = read(path)
    missing = len(sent) - len(messages)
    assert set(contents(messages)) < set(sent)
    assert 0 < missing < 100
    assert [cut.reason for cut in bag.cuts] == [f"{missing} messages cannot be read"]


def test_what_a_killed_recorder_left_in_the_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "drive_0.db3"
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.executescript(_TABLES)
    database.execute("INSERT INTO topics VALUES (1, '/chat', 'std_msgs/msg/String', 'cdr', '')")
    database.execute("INSERT INTO messages VALUES (NULL, 1, ?, x'00010000')", [_START_NS])
    database.commit()
    copy = tmp_path / "killed"
    copy.mkdir()
    for each in (path, Path(f"{path}-wal")):
        (copy / each.name).write_bytes(each.read_bytes())
    database.close()
    assert contents(read(copy)[1]) == [("/chat", _START_NS, b"\0\1\0\0")]


@pytest.mark.parametrize("content", [b"SQLite format 3\0", b"SQLite format 3\0" + bytes(5000)])
def test_a_database_that_is_no_bag_is_one_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "drive_0.db3"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="not a ROS 2 bag of SQLite"):
        read(path)
