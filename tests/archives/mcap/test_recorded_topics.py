"""Topics from a bag to a session to an archive, as the package ``mcap`` and rosbags read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.reader import make_reader
from rosbags.rosbag2 import Reader

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.common.clock import SystemClock
from recorder.formats.recorded_topic import RecordedTopic, topic_spec
from recorder.formats.ros2.definitions import definition
from recorder.recording.foreground import Foreground
from recorder.recording.sessions.session_plan import plan_session
from recorder.recording.supervisor.driver_registry import load
from recorder.session.part import Moment, Part
from recorder.session.reader import Session
from recorder.session.summary import summarize
from recorder.session.validation import validate
from tests.drivers.kit.recorded_drives import MS
from tests.drivers.topics.test_played import chat, odometry
from tests.formats.bags.kit import START_NS, Sent, cdr, write_mcap, write_sqlite
from tests.formats.ros2.kit import STORE
from tests.recording.daemon.fakes import Said
from tests.session.build import Builder


@dataclass
class Read:
    """A message of an archive."""

    topic: str
    log_ns: int
    published_ns: int
    sequence: int
    data: bytes
    type_name: str
    schema_encoding: str
    schema: bytes
    encoding: str


def record(bag: Path, root: Path, *, sensors: str = "") -> Path:
    """Record all topics of a bag with the times of the bag; return the session."""
    config = root.parent / "config.yaml"
    source = f'"bag:{bag}"'
    config.write_text(
        "version: 1\nsensors:\n"
        + (sensors or f"  ros: {{driver: topics, source: {source}, pace: max}}\n")
    )
    loaded = load(config)
    plan = plan_session(loaded, "drive", exact_name=True)
    plan.root, plan.source_start_ns = str(root), START_NS
    with Foreground(loaded, SystemClock(), Said().say) as foreground:
        foreground.arm()
        foreground.start(plan)
        outcome = foreground.record(lambda _: None)
    assert outcome.exit_code == 0, outcome.faults
    return outcome.session


def read(path: Path) -> list[Read]:
    (file,) = [path] if path.is_file() else path.glob("*.mcap")
    with file.open("rb") as stream:
        return [
            Read(
                channel.topic, message.log_time, message.publish_time, message.sequence,
                message.data, schema.name if schema else "", schema.encoding if schema else "",
                schema.data if schema else b"", channel.message_encoding,
            )
            for schema, channel, message in make_reader(stream).iter_messages()
        ]  # fmt: skip


def pack(session: Path, profile: str = "ros2", **options: Any) -> tuple[Path, Sequence[str]]:
    request = ArchiveRequest("mcap", {"profile": profile} | options)
    (result,) = finalize(session, [request], out=session.parent.parent / profile)
    (path,) = result.files
    return path, result.notes


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Sent]]:
    """A session of a bag with topics of all encodings and sizes, and what the bag holds."""
    folder = tmp_path_factory.mktemp("topics")
    sent = [each for k in range(60) for each in (chat(k), odometry(k))]
    sent += [cdr("/rosout", "std_msgs/msg/String", START_NS + 5 * MS + 1, data="an error")]
    big, text, at_ns = bytes(range(256)) * 10_000, b"\2\0\0\0hi", START_NS + 40 * MS
    sent += [Sent("/big", "a/msg/B", "cdr", big, at_ns + 2, b"uint8[] data")]
    sent += [Sent("/status", "S", "json", b'{"ok": 1}', at_ns + 4, b'{"type": "object"}')]
    sent += [Sent("/old", "std_msgs/String", "ros1", text, at_ns + 5, b"string data")]
    sent.sort(key=lambda each: each.log_ns)
    write_mcap(folder / "bag.mcap", sent)
    return record(folder / "bag.mcap", folder / "sessions"), sent


@pytest.fixture(scope="module")
def bag(drive: tuple[Path, list[Sent]]) -> tuple[Path, Sequence[str]]:
    """The session's archive in the profile of ROS 2, and its notes."""
    return pack(drive[0])


def test_the_session_is_whole_and_says_what_it_holds(drive: tuple[Path, list[Sent]]) -> None:
    session, sent = drive
    report = validate(session, deep=True)
    assert not report.problems, report.problems
    with Session(session) as opened:
        streams = summarize(opened)["streams"]
        counts = {each.topic: sum(s.topic == each.topic for s in sent) for each in sent}
        assert {s["topic"]: s["samples"] for s in streams.values()} == counts
        assert streams["ros_tf"]["type"] == "tf2_msgs/msg/TFMessage"
        tf = opened.streams["ros_tf"]
        assert np.array_equal(tf.times(), [s.log_ns for s in sent if s.topic == "/tf"])


def test_messages_come_back_bit_for_bit(
    drive: tuple[Path, list[Sent]], bag: tuple[Path, Sequence[str]]
) -> None:
    _, sent = drive
    path, notes = bag
    found = [each for each in read(path) if not each.topic.startswith("/recorder/")]
    wanted = [each for each in sent if each.encoding == "cdr"]
    numbers = {id(each): number for number, each in enumerate(sent)}
    assert found == [
        Read(
            each.topic, each.log_ns, each.log_ns + 7, numbers[id(each)], each.data,
            each.schema, "ros2msg", each.schema_data, "cdr",
        )
        for each in wanted
    ]  # fmt: skip
    left_out = [note for note in notes if "left out: messages" in note]
    assert left_out == [
        "ros_old: left out: messages of /old in ros1, not in cdr",
        "ros_status: left out: messages of /status in json, not in cdr",
    ]


def test_topics_of_the_recorder_make_way_for_recorded_ones(
    bag: tuple[Path, Sequence[str]],
) -> None:
    path, notes = bag
    with Reader(path) as reader:
        topics = reader.topics
    assert topics["/rosout"].msgtype == "std_msgs/msg/String"
    assert topics["/recorder/rosout"].msgtype == "rcl_interfaces/msg/Log"
    assert "/rosout: is packed as /recorder/rosout: ros_rosout has the recorded one" in notes
    assert not any("not in the calibration" in note for note in notes)


def test_rosbags_reads_the_same_messages(
    drive: tuple[Path, list[Sent]], bag: tuple[Path, Sequence[str]]
) -> None:
    path, _ = bag
    with Reader(path) as reader:
        chosen = [each for each in reader.connections if each.topic in ("/chat", "/tf")]
        found = [
            (connection.topic, t_ns, STORE.deserialize_cdr(data, connection.msgtype))
            for connection, t_ns, data in reader.messages(chosen)
        ]
    wanted = [each for each in drive[1] if each.topic in ("/chat", "/tf")]
    assert [(topic, t_ns) for topic, t_ns, _ in found] == [(s.topic, s.log_ns) for s in wanted]
    for (_, _, message), each in zip(found, wanted, strict=True):
        assert bytes(STORE.serialize_cdr(message, each.schema)) == each.data


def test_the_profile_foxglove_has_messages_of_all_encodings(drive: tuple[Path, list[Sent]]) -> None:
    session, sent = drive
    path, notes = pack(session, "foxglove")
    found = [each for each in read(path) if each.topic in {s.topic for s in sent}]
    assert [(each.topic, each.data, each.encoding) for each in found] == [
        (each.topic, each.data, each.encoding) for each in sent
    ]
    assert {each.topic: each.schema_encoding for each in found}["/old"] == "ros1msg"
    assert not any("left out: messages" in note for note in notes)


def test_a_range_is_exact(drive: tuple[Path, list[Sent]]) -> None:
    request = ArchiveRequest("mcap", {"profile": "ros2"})
    session, _ = drive
    out = session.parent.parent / "range"
    part = Part(Moment.parse("0.1"), Moment.parse("0.2"))
    (result,) = finalize(session, [request], out=out, part=part)
    found = [each for each in read(result.files[0]) if each.topic == "/chat"]
    assert [each.log_ns for each in found] == [START_NS + k * 10 * MS for k in range(10, 20)]


def test_topics_of_several_bags(tmp_path: Path) -> None:
    """Two sensors may record the same topic; a bag may have no definitions."""
    same = write_mcap(tmp_path / "bag.mcap", [chat(k) for k in range(3)])
    known = [replace(chat(k), topic="/known") for k in range(3)]
    own = Sent("/own", "mine/msg/Type", "cdr", b"\0\1\0\0" + bytes(4), START_NS + 50 * MS)
    bare = write_sqlite(tmp_path / "bag.db3", [*known, own])
    sensors = "".join(
        f'  {name}: {{driver: topics, source: "bag:{bag}", pace: max}}\n'
        for name, bag in {"a": same, "b": same, "c": same, "d": bare}.items()
    )
    path, notes = pack(record(same, tmp_path / "sessions", sensors=sensors))
    messages = read(path)
    topics = [each.topic for each in messages]
    assert {"/chat", "/recorder/b_chat/chat", "/recorder/c_chat/chat"} <= set(topics)
    assert topics.count("/chat") == 3
    assert sum("is packed as" in note for note in notes) == 2
    found = {each.topic: each for each in messages}
    assert found["/known"].schema == definition("std_msgs/msg/String")
    assert (found["/own"].type_name, found["/own"].schema) == ("mine/msg/Type", b"")
    assert [each.data for each in messages if each.topic in ("/known", "/own")] == [
        each.data for each in (*known, own)
    ]


def test_messages_that_come_close_together_are_all_packed(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    topic = RecordedTopic("/chat", "S", "json")
    spec = topic_spec("ros_chat", topic, bytes_per_sample=20, finite=False, settings={})
    sent = [bytes([k]) * (k % 5) for k in range(30)]
    data: dict[str, Any] = {
        "message": sent,
        "number": np.arange(7, 37, dtype=np.uint64),
        "publisher": np.ones(30, np.uint16),
        "t_source": np.arange(100, 130, dtype=np.uint64),
    }
    builder.add(replace(spec, rate_hz=1000.0), count=30, data=data)
    (result,) = finalize(builder.close(), [ArchiveRequest("mcap", {})])
    packed = [each for each in read(result.files[0]) if each.topic == "/chat"]
    assert [each.data for each in packed] == sent
    assert [each.sequence for each in packed] == list(range(7, 37))
    assert [each.published_ns for each in packed] == list(range(100, 130))
