"""Playing sessions that are being recorded, and what crashes leave."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from recorder.bus.wire import check_data
from recorder.common.errors import SessionError
from recorder.session.reader import Session
from tests.crash.campaign import scratch
from tests.crash.model import Model
from tests.crash.scenario import SESSION, record, small_videos
from tests.recording.writer.test_commit import Recording
from tests.viewers.live.playing import Stage, closing, times

SEEDS = range(2)
STATES = 12


@pytest.fixture(autouse=True)
def _closing() -> Iterator[None]:
    yield from closing()


def grow(recording: Recording, *names: str, messages: int) -> int:
    """Record on; the stamp of the newest sample, epoch ns."""
    for _ in range(messages):
        for name in names:
            recording.append(name)
    recording.writer.commit()
    with Session(recording.path) as session:
        return max(int(session.streams[name].t_ns[-1]) for name in names)


def test_a_session_that_is_being_recorded_goes_on(tmp_path: Path) -> None:
    recording = Recording(tmp_path, ["a", "b"])
    end_ns = grow(recording, "a", "b", messages=20)
    stage = Stage(recording.path, "a", "b")
    at = stage.do(stage.player.play)
    assert at.recording and at.end_ns == end_ns

    at = stage.advance(3.0)
    assert at.playing and not at.ended and at.t_ns == end_ns, "it waits for more at the end"
    assert max(stage.screen.shown().values()) == end_ns

    end_ns = grow(recording, "a", "b", messages=20)
    at = stage.advance(3.0)
    assert (at.playing, at.t_ns, at.end_ns) == (True, end_ns, end_ns)
    with Session(recording.path) as session:
        for name in ("a", "b"):
            stamps = [t for m in stage.screen.got if m.stream == name for t in times(m)]
            stored = session.streams[name].t_ns.tolist()
            assert stamps == stored[stored.index(stamps[0]) :]

    recording.writer.close("clean")
    at = stage.advance(3.0)
    assert at.ended and not at.playing and not at.recording


def test_a_seek_reaches_what_was_recorded_since(tmp_path: Path) -> None:
    recording = Recording(tmp_path, ["a"])
    grow(recording, "a", messages=3)
    stage = Stage(recording.path, "a")
    end_ns = grow(recording, "a", messages=10)
    stage.clock.advance(1.5)
    stage.player.work()  # it looks at the session once a second
    assert stage.do(stage.player.seek, end_ns).t_ns == end_ns
    assert stage.screen.shown()["a"] == end_ns
    recording.writer.close("clean")


def test_a_stream_that_comes_late_is_declared(tmp_path: Path) -> None:
    recording = Recording(tmp_path, ["a", "b"])
    grow(recording, "a", messages=3)
    stage = Stage(recording.path, "a", "b")
    assert set(stage.screen.specs) == {"a"}
    end_ns = grow(recording, "b", messages=3)
    stage.clock.advance(1.5)
    stage.player.work()
    assert set(stage.screen.specs) == {"a", "b"}
    stage.do(stage.player.seek, end_ns)
    assert stage.screen.shown()["b"] == end_ns
    recording.writer.close("clean")


def test_a_session_that_is_deleted_meanwhile_is_played_as_far_as_it_is_open(tmp_path: Path) -> None:
    recording = Recording(tmp_path, ["a"])
    grow(recording, "a", messages=10)
    stage = Stage(recording.path, "a")
    stage.do(stage.player.seek, 0)
    recording.writer.close("clean")
    shutil.rmtree(recording.path)
    stage.do(stage.player.play)
    at = stage.advance(5.0)
    assert at.ended and not at.recording
    assert "no such session folder" in stage.player.problems["session"]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_crash_leaves_is_played_as_far_as_it_goes(seed: int) -> None:
    """Writers that are killed, and power cuts, at moments that are drawn."""
    random, played = Random(seed), 0
    with scratch() as folder, small_videos():
        recording = record(folder / "live", seed)
        moments = sorted(random.sample(range(len(recording.ops)), STATES))
        kernel, done = Model(recording.base), 0
        for moment in moments:
            for op in recording.ops[done:moment]:
                kernel.apply(op)
            done = moment
            power = random.random() < 0.5
            tree = kernel.power_cut(Random(moment)) if power else kernel.visible()
            left = folder / f"left-{moment}"
            tree.write(left)
            played += play_all(left / SESSION)
    assert played > 0


def play_all(path: Path) -> int:
    """Play whatever can be read; how many samples were shown."""
    try:
        stage = Stage(path)
    except SessionError:
        return 0
    stage.look(*stage.player.specs)
    stage.do(stage.player.seek, stage.player.position.start_ns)
    stage.screen.got.clear()
    stage.do(stage.player.set_speed, float("inf"))
    stage.do(stage.player.play)
    assert stage.player.position.ended
    count = 0
    with Session(path, partial=True) as session:
        for name, spec in stage.player.specs.items():
            mine = [m for m in stage.screen.got if m.stream == name]
            stamps = [t for m in mine for t in times(m)]
            stored = session.streams[name].t_ns
            assert stamps == stored.tolist() or name in stage.player.problems
            assert bool((np.diff(stored) > 0).all())
            for message in mine:
                check_data(message, spec)
            count += len(stamps)
    stage.player.close()
    return count
