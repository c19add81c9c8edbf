"""The player of a recorded session: what is shown follows from the position alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recorder.bus.wire import Kind, check_data
from recorder.common.errors import SessionError, UsageError
from recorder.session.playback import Chunk, read_chunk
from recorder.session.reader import Session
from recorder.session.stream import Stream
from recorder.viewers.live.player import Player, Position
from tests.session.build import (
    START_NS,
    Builder,
    camera_spec,
    full_session,
    imu_session,
    imu_spec,
    lidar_spec,
    radar_spec,
)
from tests.viewers.live.playing import Stage, closing, times

STREAMS = ("camera", "imu", "lidar", "lidar_imu", "radar")


@pytest.fixture(autouse=True)
def _closing() -> Iterator[None]:
    yield from closing()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return full_session(tmp_path_factory.mktemp("root") / "rig", 2.0)


def newest(builder: Builder, stream: str, t_ns: int) -> int | None:
    """Stamp of a stream's newest sample at or before a time, by its stored stamps."""
    stamps = builder.streams[stream].t_ns
    before = stamps[stamps <= t_ns]
    return int(before[-1]) if len(before) else None


def assert_shows(stage: Stage, builder: Builder, *streams: str) -> None:
    position = stage.player.position
    shown = stage.screen.shown()
    for stream in streams:
        expected = newest(builder, stream, position.t_ns)
        assert expected is None or shown[stream] == expected, stream


def test_it_plays_everything_in_order_and_in_time(built: Builder) -> None:
    stage = Stage(built.path, *STREAMS)
    begin = stage.player.position
    assert not begin.playing and begin.start_ns == START_NS
    stage.do(stage.player.play)
    began_ns = stage.clock.monotonic_ns()
    for _ in range(150):
        at = stage.advance(0.01)
        for message in stage.screen.got:
            check_data(message, stage.screen.specs[message.stream])
        if at.playing:
            assert at.t_ns - begin.t_ns == stage.clock.monotonic_ns() - began_ns
            late_ns = at.t_ns - max(stage.screen.shown().values())
            assert 0 <= late_ns < 15_000_000
    stage.advance(1.0)
    assert stage.player.position.ended and not stage.player.position.playing
    for name, made in built.streams.items():
        mine = [m for m in stage.screen.got if m.stream == name]
        stamps = [t for message in mine for t in times(message)]
        assert stamps == sorted(set(stamps)), "no sample twice, none out of order"
        assert stamps == [t for t in made.t_ns.tolist() if t >= stamps[0]]
        seqs = [m.seq + k for m in mine for k in range(m.count or 0)]
        assert seqs == list(range(seqs[0], len(made.t_ns)))
    assert stage.player.dropped == 0


def test_frames_are_the_stored_ones(built: Builder) -> None:
    stage = Stage(built.path, "camera", "lidar", "radar", "imu")
    stage.do(stage.player.seek, START_NS + 700_000_000)
    with Session(built.path) as session:
        last = {m.stream: m for m in stage.screen.got}
        for name, message in last.items():
            stream = session.streams[name]
            index = stream.t_ns.tolist().index(times(message)[-1])
            first = index + 1 - (message.count or 0)
            channels = stage.screen.specs[name].channels
            for channel, frame in zip(channels, message.frames, strict=True):
                stored = map(stream.channels[channel.name].encoded, range(first, index + 1))
                assert bytes(frame) == b"".join(stored)
    assert len(last) == 4


def test_small_samples_come_with_those_that_a_plot_shows_besides(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "rig", seq=[*range(500), *range(510, 2500)])
    builder.close()
    stamps = builder.streams["imu"].t_ns.tolist()
    stage = Stage(builder.path, "imu")

    def shown_after(index: int) -> list[int]:
        stage.screen.got.clear()
        stage.do(stage.player.seek, stamps[index])
        return [t for message in stage.screen.got for t in times(message)]

    assert shown_after(2000) == stamps[1000:2001], "ten seconds"
    assert shown_after(2100) == stamps[2001:2101], "what was not shown yet"
    assert shown_after(600) == stamps[500:601], "from the gap on"
    assert shown_after(20) == stamps[:21]
    assert shown_after(20) == []


def test_a_stream_that_has_no_sample_yet_is_blank(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(camera_spec(), 3.0)
    builder.add(radar_spec(), 1.0, offset_ns=2_000_000_000)
    builder.close()
    stage = Stage(builder.path, "camera", "radar")
    assert stage.player.blank == {"radar"} and stage.screen.forgotten == []
    stage.do(stage.player.seek, START_NS + 2_500_000_000)
    assert stage.player.blank == set()
    stage.do(stage.player.seek, START_NS + 500_000_000)
    assert stage.player.blank == {"radar"} and stage.screen.forgotten == ["radar"]
    stage.look("camera")
    assert stage.player.blank == set()


def test_a_step_by_a_stream_that_is_not_there(built: Builder) -> None:
    stage = Stage(built.path)
    future = stage.player.step("gnss")
    stage.player.work()
    with pytest.raises(SessionError, match="no stream 'gnss'"):
        future.result(timeout=0)


def test_only_watched_streams_are_read(built: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def spy(stream: Stream, *values: Any) -> Chunk:
        read.append(stream.name)
        return read_chunk(stream, *values)

    monkeypatch.setattr("recorder.viewers.live.cursor.read_chunk", spy)
    stage = Stage(built.path, "imu")
    stage.do(stage.player.play)
    stage.advance(0.3)
    stage.look("camera")
    stage.advance(0.3)
    stage.look()
    at = len(read)
    before = stage.player.position.t_ns
    assert stage.advance(0.3).t_ns - before == 300_000_000, "the time passes without a viewer"
    assert len(read) == at and set(read) == {"imu", "camera"}


@pytest.mark.parametrize("speed", [0.0, 0.09, 16.1, -1.0, math.nan, -math.inf])
def test_speeds_that_do_not_exist(built: Builder, speed: float) -> None:
    with pytest.raises(UsageError, match=r"needs 0\.1 to 16, or infinity"):
        Stage(built.path).player.set_speed(speed)


def test_the_maximum_speed_leaves_nothing_out(built: Builder) -> None:
    stage = Stage(built.path, *STREAMS)
    stage.do(stage.player.seek, START_NS)
    stage.do(stage.player.set_speed, math.inf)
    before = stage.clock.monotonic_ns()
    stage.screen.got.clear()
    stage.do(stage.player.play)
    assert stage.player.position.ended and stage.clock.monotonic_ns() == before
    for name, made in built.streams.items():
        stamps = [t for m in stage.screen.got if m.stream == name for t in times(m)]
        assert stamps == made.t_ns.tolist()


def test_what_comes_late_is_left_out_and_the_time_goes_on(built: Builder) -> None:
    stage = Stage(built.path, "camera", "imu")
    stage.do(stage.player.play)
    began = stage.player.position.t_ns
    stage.advance(0.2)
    stage.clock.advance(1.0)  # the machine was busy
    at = stage.advance(0.02)
    assert at.t_ns - began == 1_220_000_000
    assert stage.player.dropped >= 25
    frames = [times(m)[0] for m in stage.screen.got if m.stream == "camera"]
    assert frames == sorted(frames)
    imu = [t for m in stage.screen.got if m.stream == "imu" for t in times(m)]
    assert np.diff(imu).max() < 11_000_000, "small samples are caught up"


def test_play_at_the_end_begins_again(built: Builder) -> None:
    stage = Stage(built.path, "camera")
    jumps = stage.do(stage.player.seek, 2**62).jumps
    at = stage.do(stage.player.play)
    assert at.playing and at.t_ns == START_NS and at.jumps == jumps + 1


def test_a_session_with_uncompressed_declarations(built: Builder) -> None:
    stage = Stage(built.path, "radar")
    assert stage.screen.specs["radar"].channel("valid").format == "raw"
    stage.do(stage.player.seek, START_NS + 10**9)
    valid = stage.screen.got[-1].frames[1]
    index = int(stage.screen.got[-1].seq)
    assert bytes(valid) == built.streams["radar"].data["valid"][index].tobytes()


def test_viewers_are_told_of_changes(built: Builder) -> None:
    stage = Stage(built.path)
    told: list[Position] = []
    stage.player.on_change.append(lambda: told.append(stage.player.position))
    stage.do(stage.player.play)
    stage.advance(10.0)
    assert [p.playing for p in told] == [True, False]
    assert told[-1].ended


def test_a_command_that_is_cancelled_is_not_obeyed(built: Builder) -> None:
    stage = Stage(built.path)
    assert stage.player.play().cancel()
    stage.player.work()
    assert not stage.player.position.playing


def test_a_player_that_has_ended_obeys_no_more(built: Builder) -> None:
    stage = Stage(built.path)
    stage.player.start(stage.screen)
    assert stage.player.seek(START_NS + 5).result(timeout=30).t_ns == START_NS + 5
    stage.player.close()
    with pytest.raises(SessionError, match="the player has ended"):
        stage.player.play().result(timeout=0)


def test_a_disk_that_fails_is_named(built: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(stream: Stream, *values: Any) -> Chunk:
        if stream.name == "radar":
            raise OSError(5, "Input/output error")
        return read_chunk(stream, *values)

    monkeypatch.setattr("recorder.viewers.live.cursor.read_chunk", fail)
    stage = Stage(built.path, "radar", "imu")
    told: list[Mapping[str, str]] = []
    stage.player.on_change.append(lambda: told.append(stage.player.problems))
    stage.do(stage.player.play)
    stage.advance(3.0)
    assert {m.stream for m in stage.screen.got} == {"imu"}
    assert "Input/output error" in told[-1]["radar"]


# The model: whatever is asked, what is shown follows from the position.

OPS = st.one_of(
    st.tuples(st.just("play")),
    st.tuples(st.just("pause")),
    st.tuples(st.just("speed"), st.sampled_from([0.1, 0.7, 1.0, 3.0, 16.0])),
    st.tuples(st.just("seek"), st.integers(-(10**8), 2_200_000_000)),
    st.tuples(st.just("step"), st.sampled_from(STREAMS), st.sampled_from([-2, -1, 1, 5])),
    st.tuples(st.just("wait"), st.floats(0.0, 0.5)),
    st.tuples(st.just("stall"), st.floats(0.0, 0.5)),
    st.tuples(st.just("look"), st.sets(st.sampled_from(STREAMS))),
)


EVERY = ("look", set(STREAMS))
SEEKS = [("seek", t_ns) for t_ns in (1_500_000_000, 300_000_000, 999_999_999, -START_NS, 2**62)]
STEPS = [("step", "lidar", by) for by in (1, 1, -1, 3, -100, 100)]
SPEEDS = [
    (*op, ("wait", 0.1 / op[0][1])) for op in ((("speed", v),) for v in (0.1, 0.5, 4.0, 16.0))
]


@example([EVERY, *SEEKS, ("seek", 500_000_000), *STEPS, ("wait", 1.0), *SEEKS[4:], ("play",)])
@example([("seek", 800_000_000), EVERY, ("play",), ("wait", 0.5), ("step", "camera", 1)])
@example([EVERY, ("play",), *(op for ops in SPEEDS for op in ops), ("pause",)])
@given(st.lists(OPS, max_size=25))
def test_any_sequence_of_commands(built: Builder, ops: list[tuple[Any, ...]]) -> None:
    stage = Stage(built.path)
    start = stage.player.position
    t_ns, playing, speed = start.t_ns, False, 1.0
    watched: set[str] = set()

    def pass_time(seconds: float) -> None:
        nonlocal t_ns, playing
        if playing:
            t_ns = min(t_ns + round(round(seconds * 1e9) * speed), start.end_ns)
            playing = t_ns < start.end_ns

    for name, *values in ops:
        match name:
            case "play":
                if t_ns >= start.end_ns:
                    t_ns = start.start_ns
                playing = True
                stage.do(stage.player.play)
            case "pause":
                playing = False
                stage.do(stage.player.pause)
            case "speed":
                speed = values[0]
                stage.do(stage.player.set_speed, speed)
            case "seek":
                t_ns = min(max(START_NS + values[0], start.start_ns), start.end_ns)
                stage.do(stage.player.seek, START_NS + values[0])
                playing = playing and t_ns < start.end_ns
            case "step":
                stamps = built.streams[values[0]].t_ns
                here = int(np.searchsorted(stamps, t_ns, side="right")) - 1
                t_ns = int(stamps[min(max(here + values[1], 0), len(stamps) - 1)])
                playing = False
                stage.do(stage.player.step, *values)
            case "wait":
                pass_time(values[0])
                stage.advance(values[0])
            case "stall":
                pass_time(values[0])
                stage.clock.advance(values[0])
                stage.player.work()
            case "look":
                watched = values[0]
                stage.look(*watched)
        at = stage.player.position
        assert (at.playing, at.speed) == (playing, speed)
        assert at.ended == (at.t_ns >= start.end_ns and not playing)
        assert abs(at.t_ns - t_ns) <= 100, "rounded once a speed"
        t_ns = at.t_ns
        shown = stage.screen.shown()
        for stream in watched:
            stamps = built.streams[stream].t_ns
            # While the time passes, samples of the last tick may wait for each other.
            oldest = newest(built, stream, t_ns - (round(8e6 * speed) if playing else 0))
            now = newest(built, stream, t_ns)
            assert now is None or (oldest or 0) <= shown[stream] <= now
    for message in stage.screen.got:
        made = built.streams[message.stream]
        index = made.t_ns.tolist().index(times(message)[0])
        assert message.kind is Kind.DATA
        assert message.seq == made.seq[index]
        assert times(message) == made.t_ns[index : index + (message.count or 0)].tolist()
    stage.player.close()


# Sessions that are not whole


def test_a_plain_trace(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "rig", 1.0, plain=True)
    stage = Stage(builder.path, *STREAMS)
    at = stage.do(stage.player.seek, START_NS + 600_000_000)
    for stream in STREAMS:
        shown = stage.screen.shown()[stream]
        assert abs(shown - (newest(builder, stream, at.t_ns) or 0)) < 500  # ts resolves 238 ns
    assert at.start_ns == pytest.approx(int(builder.streams["imu"].t_ns[0]), abs=500)


def test_truncated_channels_are_named_and_the_rest_is_played(tmp_path: Path) -> None:
    builder = full_session(tmp_path / "rig", 1.0)
    video = builder.path / "camera" / "video.avi"
    video.write_bytes(video.read_bytes()[: video.stat().st_size * 4 // 5])
    (builder.path / "lidar" / "meta.json").write_text("{")
    (builder.path / "radar" / "iq").unlink()
    stage = Stage(builder.path, *STREAMS)
    assert set(stage.player.specs) == {"camera", "imu", "lidar_imu"}
    problems = stage.player.problems
    assert set(problems) == {"camera", "lidar", "radar"}
    assert problems["camera"].startswith("video.avi holds ")
    assert problems["camera"].endswith(" of 30 samples")
    assert "iq: no such file" in problems["radar"]
    stage.do(stage.player.seek, 2**62)
    last = [m for m in stage.screen.got if m.stream == "camera"][-1]
    assert last.seq < 20 and last.frames[0] in video.read_bytes()


def test_a_sample_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(lidar_spec(), 1.0)
    builder.add(imu_spec(), 1.0)
    builder.close()
    index = builder.path / "lidar" / "rng_i"
    ends = np.fromfile(index, "<u8")
    ends[5] = ends[-1] * 2
    ends.tofile(index)
    stage = Stage(builder.path, "lidar", "imu")
    stage.do(stage.player.play)
    stage.advance(2.0)
    assert stage.screen.shown()["imu"] == builder.streams["imu"].t_ns[-1]
    if "lidar" in stage.player.specs:
        seqs = [m.seq for m in stage.screen.got if m.stream == "lidar"]
        assert 0 < len(seqs) < 10 and seqs == sorted(seqs)
    assert "rng" in stage.player.problems["lidar"]


@pytest.mark.parametrize("state", ["recording", "sealed", "recovered"])
def test_a_session_that_was_not_closed(tmp_path: Path, state: str) -> None:
    builder = Builder(tmp_path / "rig")
    builder.add(camera_spec(), 1.0)
    builder.add(radar_spec(), 1.0)
    path = builder.close(state)
    if state == "recording":
        for name in ("ts", "iq"):
            file = path / "radar" / name
            file.write_bytes(file.read_bytes()[:-3])
    stage = Stage(path, "camera", "radar")
    at = stage.do(stage.player.seek, 2**62)
    assert at.ended and not at.recording
    radar = stage.screen.shown()["radar"]
    assert radar == builder.streams["radar"].t_ns[-2 if state == "recording" else -1]


def test_a_session_without_a_sample(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "rig", count=0)
    builder.close()
    with pytest.raises(SessionError, match="has no sample to play"):
        Player(builder.path)
    with pytest.raises(SessionError, match="no such session folder"):
        Player(tmp_path / "nothing")
