"""A recorded session replayed onto a tap."""

from __future__ import annotations

import lzma
import threading
from pathlib import Path

import numpy as np
import pytest

from recorder.bus.wire import Kind, Message, check_data, decode, encode
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import SessionError
from recorder.session.reader import Session
from recorder.session.replay import Replay
from tests.manual_clock import ManualClock
from tests.session.build import Builder, build_session, full_session, imu_spec, raw_camera_spec
from tests.session.test_session_playback import stored


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return full_session(tmp_path_factory.mktemp("root") / "rig", 0.6)


class FakeTap:
    """Takes what is published through the wire format, and says when."""

    def __init__(self, clock: ManualClock, unwanted: str = "") -> None:
        self.clock = clock
        self.unwanted = unwanted
        self.declared: dict[str, StreamSpec] = {}
        self.got: list[tuple[int, Message]] = []
        self.stop = threading.Event()

    def declare(self, spec: StreamSpec) -> None:
        self.declared[spec.name] = spec

    def wanted(self, stream: str) -> bool:
        return stream != self.unwanted

    def publish(self, message: Message) -> None:
        frames = [bytes(frame) for frame in encode(message)]
        self.got.append((self.clock.monotonic_ns(), decode(frames)))


def test_raw_pictures_are_replayed(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    put = builder.add(raw_camera_spec(), 0.2)
    clock = ManualClock(monotonic_ns=10**12)
    tap = FakeTap(clock)
    with Session(builder.close()) as session:
        Replay(session).run(tap, clock, threading.Event())
    assert tap.declared["camera"].channels == put.spec.channels
    frames = [bytes(frame) for _, message in tap.got for frame in message.frames]
    assert frames == [value.tobytes() for value in put.data["image.srggb10"]]


@pytest.mark.parametrize("speed", [0.5, 1.0, 8.0])
def test_replay_keeps_pace_and_payload(built: Builder, speed: float) -> None:
    clock = ManualClock(monotonic_ns=10**12)
    tap = FakeTap(clock)
    with Session(built.path) as session:
        sent = Replay(session, speed=speed).run(tap, clock, threading.Event())
    assert sent == {name: len(made.t_ns) for name, made in built.streams.items()}
    origin = min(int(s.t_ns[0]) for s in built.streams.values())
    for name, made in built.streams.items():
        spec = tap.declared[name]
        mine = [(at, m) for at, m in tap.got if m.stream == name]
        assert [m.number for _, m in mine] == list(range(len(mine)))
        for at, message in mine:
            assert message.kind is Kind.DATA
            check_data(message, spec)
            assert isinstance(message.t_mono_ns, np.ndarray)
            due = 10**12 + round((int(message.t_mono_ns[-1]) - 10**12) / speed)
            assert abs(at - due) <= 1000, "published when its time has come"
        times = np.concatenate([np.asarray(m.t_mono_ns) for _, m in mine])
        np.testing.assert_array_equal(times, made.t_ns - origin + 10**12)
        for i, channel in enumerate(spec.channels):
            whole = b"".join(
                lzma.decompress(m.frames[i]) if channel.format == "lzma" else m.frames[i]
                for _, m in mine
            )
            assert whole == stored(built.path, name, channel.name)


def test_replay_of_some_streams_skips_what_nobody_wants(built: Builder) -> None:
    clock = ManualClock()
    tap = FakeTap(clock, unwanted="radar")
    with Session(built.path) as session:
        sent = Replay(session, ["imu", "radar"]).run(tap, clock, threading.Event())
    assert sent == {"imu": 60, "radar": 12}
    assert {m.stream for _, m in tap.got} == {"imu"}
    assert set(tap.declared) == {"imu", "radar"}


class Stopping(FakeTap):
    """Ends a replay after so many messages."""

    stop_after = 20

    def publish(self, message: Message) -> None:
        super().publish(message)
        if len(self.got) == self.stop_after:
            self.stop.set()


def test_replay_ends_when_it_is_told_to(built: Builder) -> None:
    clock = ManualClock()
    tap = Stopping(clock)
    with Session(built.path) as session:
        sent = Replay(session).run(tap, clock, tap.stop, loop=True)
    assert len(tap.got) == 20
    assert sum(sent.values()) == sum(m.count or 0 for _, m in tap.got)


def test_replay_in_a_loop_goes_on_in_time(built: Builder) -> None:
    clock = ManualClock()
    tap = Stopping(clock)
    tap.stop_after = 150
    with Session(built.path) as session:
        Replay(session, ["imu"]).run(tap, clock, tap.stop, loop=True)
    times = np.concatenate([np.asarray(m.t_mono_ns) for _, m in tap.got])
    steps = np.diff(times)
    assert len(tap.got) == len(times) == 150 and steps.min() > 0
    assert steps.max() < 25_000_000, "a lap follows the one before by about a sample"


def test_replay_tells_losses(tmp_path: Path) -> None:
    builder = build_session(tmp_path / "rig", imu_spec(), seq=[0, 1, 5, 6])
    clock = ManualClock()
    tap = FakeTap(clock)
    with Session(builder.path) as session:
        Replay(session).run(tap, clock, threading.Event())
    lost = [m for _, m in tap.got if m.kind is Kind.LOST]
    assert [(m.count, m.values) for m in lost] == [(3, {"cause": "recorded"})]


def test_replay_of_nothing(tmp_path: Path) -> None:
    builder = build_session(tmp_path / "rig", imu_spec(), count=0)
    with Session(builder.path) as session:
        with pytest.raises(SessionError, match="has no sample to replay"):
            Replay(session)
        with pytest.raises(SessionError, match="no stream 'x'"):
            Replay(session, ["x"])
