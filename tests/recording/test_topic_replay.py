"""A recorded session replayed as topics: the messages of its bag, in time, with a clock."""

from __future__ import annotations

import struct
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from recorder.common.errors import DeviceError, UsageError
from recorder.recording.topic_replay import Parts, TopicPublisher, TopicReplay
from recorder.session.reader import Session
from tests.manual_clock import ManualClock
from tests.recording.topic_sessions import CHATS, LATCHED, STRING_HASH, drive, read_bag

BEGIN_NS = 10**12


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drive(tmp_path_factory.mktemp("root") / "rig")


class FakeSink:
    """Takes what is published, and says when."""

    def __init__(self, clock: ManualClock, stop_after: int = 0) -> None:
        self.clock = clock
        self.stop = threading.Event()
        self.stop_after = stop_after
        self.sent: list[tuple[int, int, bytes]] = []

    def send(self, place: int, parts: Parts) -> None:
        self.sent.append((self.clock.monotonic_ns(), place, b"".join(map(bytes, parts))))
        if len(self.sent) == self.stop_after:
            self.stop.set()

    def of(self, replay: TopicReplay, name: str) -> list[tuple[int, bytes]]:
        names = [topic.name for topic in replay.topics]
        return [(at, data) for at, place, data in self.sent if names[place] == name]


def play(path: Path, speed: float = 1.0, **options: int) -> tuple[TopicReplay, FakeSink]:
    clock = ManualClock(monotonic_ns=BEGIN_NS)
    sink = FakeSink(clock, options.get("stop_after", 0))
    with Session(path, virtual=True) as session:
        replay = TopicReplay(session, speed=speed)
        replay.run(sink, clock, sink.stop, loop=bool(options.get("loop")))
    return replay, sink


def clock_ns(data: bytes) -> int:
    seconds, nanoseconds = struct.unpack("<4xiI", data)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


@pytest.mark.parametrize("speed", [0.1, 1.0, 10.0])
def test_the_messages_of_the_bag_are_published_in_time(
    session: Path, tmp_path: Path, speed: float
) -> None:
    bag = read_bag(session, tmp_path)
    replay, sink = play(session, speed)
    assert {"/camera/image/compressed", "/imu/data", "/chat", LATCHED} <= bag.keys()
    first_ns = min(t_ns for messages in bag.values() for t_ns, _ in messages)
    names = {topic.name for topic in replay.topics}
    assert names >= bag.keys()
    for name in names - {"/clock"}:
        found, expected = sink.of(replay, name), bag.get(name, [])
        assert [data for _, data in found] == [data for _, data in expected]
        due = [BEGIN_NS + round((t_ns - first_ns) / speed) for t_ns, _ in expected]
        assert all(abs(at - t) <= 1000 for (at, _), t in zip(found, due, strict=True))
    ticks = [(at, clock_ns(data)) for at, data in sink.of(replay, "/clock")]
    assert ticks[0] == (BEGIN_NS, first_ns)
    assert {b[1] - a[1] for a, b in pairwise(ticks)} == {round(10_000_000 * speed)}


def test_no_message_is_ahead_of_the_clock_by_more_than_a_tick(session: Path) -> None:
    replay, sink = play(session)
    names = [topic.name for topic in replay.topics]
    now_ns, stamps = 0, 0
    for _, place, data in sink.sent:
        if names[place] == "/clock":
            assert clock_ns(data) > now_ns
            now_ns = clock_ns(data)
        elif names[place] == "/imu/data":
            stamps += 1
            assert 0 <= clock_ns(b"\0\0\0\0" + data[4:12]) - now_ns < 10_000_000
    assert stamps == 60


def test_topics_have_the_policies_and_types_of_the_bag(session: Path) -> None:
    with Session(session, virtual=True) as opened:
        replay = TopicReplay(opened)
    topics = {topic.name: topic for topic in replay.topics}
    assert topics["/chat"].type_hash == STRING_HASH
    assert topics[LATCHED].is_latched and topics[LATCHED].depth == 1
    assert topics["/tf_static"].is_latched, "though the recording does not say so"
    assert not topics["/chat"].is_latched and topics["/chat"].is_reliable
    assert topics["/chat"].depth == 100, "for subscribers that are late"
    assert topics["/clock"].type_name == "rosgraph_msgs/msg/Clock"
    assert topics["/imu/data"].definition.startswith("std_msgs/Header header\n")
    assert "/status" not in topics
    assert any("/status in json, not in cdr" in line for line in replay.notes)


def test_a_recorded_clock_is_the_only_one(tmp_path: Path) -> None:
    path = drive(tmp_path / "rig", clock=True)
    replay, sink = play(path)
    assert [topic.name for topic in replay.topics].count("/clock") == 1
    assert [data[8:19] for _, data in sink.of(replay, "/clock")] == [b"not a clock"]


def test_a_replay_ends_when_it_is_told_to_and_starts_again_in_a_loop(session: Path) -> None:
    replay, sink = play(session, stop_after=500, loop=1)
    assert len(sink.sent) == 500
    chats = [data for _, data in sink.of(replay, "/chat")]
    assert len(chats) > CHATS and chats[:CHATS] == chats[CHATS : 2 * CHATS]
    assert [at for at, _, _ in sink.sent] == sorted(at for at, _, _ in sink.sent)


@pytest.mark.parametrize(
    ("target", "awaited", "message"),
    [
        ("tcp:7", (), "--to: 'tcp:7' is not ros2:DOMAIN or zenoh:"),
        ("ros2:0#/imu", (), "is not ros2:DOMAIN"),
        ("ros2:0", ("/nothing",), "--await: no topic /nothing; topics: /"),
    ],
)
def test_a_wrong_target_is_named(
    session: Path, target: str, awaited: tuple[str, ...], message: str
) -> None:
    with Session(session, virtual=True) as opened:
        replay = TopicReplay(opened)
    with pytest.raises(UsageError, match=message):
        TopicPublisher(target, replay.topics, awaited, threading.Event())


def test_the_reason_of_the_process_that_publishes_is_passed_on() -> None:
    with pytest.raises(DeviceError, match=r"--to: zenoh:tcp/1\.2\.3\.4:1: needs a domain"):
        TopicPublisher("zenoh:tcp/1.2.3.4:1", [], (), threading.Event())
