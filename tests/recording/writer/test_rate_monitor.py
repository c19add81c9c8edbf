"""Streams below their floor, silent or never begun: intervals of loss, in the stream's own time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.files import PosixDisk
from recorder.recording.writer.rate_monitor import RateMonitor, RateShortfall
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.layout import SessionPlan
from recorder.session.reader import Session
from recorder.session.summary import summarize
from tests.manual_clock import ManualClock

S = 1_000_000_000


def feed(watch: RateMonitor, times_s: list[float]) -> list[tuple[str, float, float, int]]:
    found: list[RateShortfall] = []
    for t_s in times_s:
        found += watch.count_samples(round(t_s * S), round(t_s * S), 1)
    return shown(found)


def shown(found: list[RateShortfall]) -> list[tuple[str, float, float, int]]:
    return [(s.cause, round(s.since_ns / S, 2), round(s.until_ns / S, 2), s.given) for s in found]


def every(step_s: float, since_s: float, until_s: float) -> list[float]:
    return [float(t) for t in np.arange(since_s, until_s, step_s)]


def test_a_stream_that_keeps_its_floor_is_told_nothing_of() -> None:
    watch = RateMonitor(50.0, 0)
    assert feed(watch, every(0.02, 0.02, 60.0)) == []
    assert watch.finish(60 * S) == []


def test_silence_is_an_interval_from_sample_to_sample() -> None:
    watch = RateMonitor(50.0, 0)
    assert feed(watch, every(0.01, 0.01, 4.0)) == []
    assert feed(watch, [9.0]) == [("silent", 3.99, 9.0, 0)]
    assert feed(watch, every(0.01, 9.01, 12.0)) == []
    assert shown(watch.finish(20 * S)) == [("silent", 11.99, 20.0, 0)]


def test_a_stream_that_begins_late_or_never_was_silent_from_the_start() -> None:
    assert feed(RateMonitor(50.0, 0), [5.0]) == [("silent", 0.0, 5.0, 0)]
    assert shown(RateMonitor(50.0, 0).finish(5 * S)) == [("silent", 0.0, 5.0, 0)]
    assert RateMonitor(50.0, 0).finish(1 * S) == []


def test_a_slow_stream_is_one_interval() -> None:
    watch = RateMonitor(50.0, 0)
    assert feed(watch, every(0.1, 0.1, 12.05)) == []
    ((cause, since_s, until_s, given),) = feed(watch, every(0.01, 12.05, 20.0))
    assert (cause, since_s) == ("rate", 0.0) and 11.9 < until_s < 15.2 and given >= 119
    assert watch.finish(20 * S) == []
    watch = RateMonitor(50.0, 0)
    feed(watch, every(0.1, 0.1, 5.0))
    ((cause, since_s, until_s, given),) = shown(watch.finish(5 * S))
    assert (cause, since_s, until_s, given) == ("rate", 0.0, 5.0, 49)


def test_a_loss_that_is_told_by_itself_is_no_slowness() -> None:
    watch = RateMonitor(50.0, 0)
    feed(watch, every(0.01, 0.01, 2.0))
    assert watch.count_loss(8 * S, None) == []
    assert feed(watch, every(0.01, 8.0, 12.0)) == []
    assert watch.count_loss(13 * S, 700) == []
    assert feed(watch, every(0.01, 13.0, 16.0)) == [] and watch.finish(16 * S) == []


def test_samples_that_were_counted_as_lost_are_no_silence() -> None:
    watch = RateMonitor(50.0, 0)
    for k in range(400):
        assert watch.count_loss(round((k + 1) * 0.01 * S), 1) == []
    assert watch.finish(4 * S) == []
    watch = RateMonitor(50.0, 0)
    # One counted sample does not hide the silence before it.
    assert watch.count_loss(4 * S, 1) == []
    assert shown(watch.finish(4 * S)) == [("rate", 0.0, 4.0, 1)]


@given(st.lists(st.floats(0.0, 0.39), min_size=1, max_size=300))
def test_a_stream_above_its_floor_is_never_slow(jitter: list[float]) -> None:
    """Ten a second with any jitter, where five are asked for."""
    watch = RateMonitor(5.0, 0)
    times = [k * 0.1 + j for k, j in enumerate(jitter)]
    assert feed(watch, sorted(times)) == []
    assert watch.finish(round(max(times) * S)) == []


RAW = (ChannelSpec("value", "raw", "u4", (1,)),)


class Recording:
    """One session with the streams of a made-up device."""

    def __init__(self, root: Path, *, rate_hz: float | None = 100.0, **header: Any) -> None:
        sporadic = bool(header.pop("sporadic", False))
        self.clock = ManualClock(10**12)
        sensors = {"cam": {"driver": "d", "source": "s", "streams": ["cam"], **header}}
        plan = SessionPlan(str(root), "s", False, "version: 1\n", sensors=sensors)
        plan.duration_s = header.pop("duration_s", None)
        self.writer = SessionWriter.create(PosixDisk(), plan, self.clock)
        self.writer.declare(StreamSpec("cam", RAW, rate_hz=rate_hz, sporadic=sporadic), "cam")
        self.start_ns = self.clock.monotonic_ns()
        self.number = self.seq = 0

    def give(self, since_s: float, until_s: float, rate_hz: float = 100.0) -> None:
        count = round((until_s - since_s) * rate_hz)
        times = self.start_ns + round(since_s * S) + np.arange(1, count + 1) * round(S / rate_hz)
        frames = [np.arange(count, dtype="<u4").tobytes()]
        for at in range(0, count, 10):
            part = times[at : at + 10]
            data = [frames[0][at * 4 : at * 4 + 40]]
            self._append(Message(Kind.DATA, count=len(part), t_mono_ns=part, frames=data))

    def _append(self, message: Message) -> None:
        message.stream, message.epoch = "cam", 1
        message.number, message.seq = self.number, self.seq
        self.number, self.seq = self.number + 1, message.next_seq
        self.writer.append(message)

    def end(self, reason: str, at_s: float) -> list[tuple[str, float, int | None]]:
        """The session's end: (cause, duration, estimate) of each interval."""
        self.end_stream(reason, at_s)
        return self.close()

    def end_stream(self, reason: str, at_s: float) -> None:
        self.clock.advance(at_s)
        self._append(Message(Kind.END, values={"reason": reason}))

    def close(self) -> list[tuple[str, float, int | None]]:
        self.writer.close("clean")
        reported = self.writer.positions()["cam"]["unknown_losses"]
        with Session(self.writer.path) as session:
            intervals = summarize(session)["streams"]["cam"]["lost_intervals"]
        assert reported == len(intervals), "what is told decides upon the exit code"
        return [(i["cause"], i["duration_ns"] / S, i["estimate"]) for i in intervals]


LIVE = {"live": True, "min_rate": None}
PLAYED = {"live": False, "min_rate": None}


@pytest.mark.parametrize(
    ("header", "reason", "silent"),
    [(LIVE, "stopped", True), (PLAYED, "stopped", False), (PLAYED, "eof", False)],
)
def test_who_falls_silent_before_the_end(
    tmp_path: Path, header: dict[str, Any], reason: str, silent: bool
) -> None:
    """A played source that is stopped was not asked for more; a device should have given it."""
    recording = Recording(tmp_path, **header)
    recording.give(0.0, 4.0)
    expected = [("silent", 6.0, 600)] if silent else []
    assert recording.end(reason, 10.0) == expected


@pytest.mark.parametrize(
    ("header", "expected"), [(LIVE, [("changed", 6.0, 599)]), (PLAYED, [])], ids=["live", "played"]
)
def test_a_device_that_has_changed_loses_the_rest_of_the_session(
    tmp_path: Path, header: dict[str, Any], expected: list[Any]
) -> None:
    """Its next streams are in the next part; what a played source had is counted by the kit."""
    recording = Recording(tmp_path, **header)
    recording.give(0.0, 4.0)
    recording.end_stream("changed", 4.0)
    recording.clock.advance(6.0)
    recording.writer.lose_tail("cam")  # as for each stream that has not ended normally
    assert recording.close() == expected


def test_a_played_source_that_has_come_to_the_duration_should_have_filled_it(
    tmp_path: Path,
) -> None:
    recording = Recording(tmp_path, **PLAYED)
    recording.writer._values["duration_s"] = 10.0
    recording.give(0.0, 4.0)
    assert recording.end("duration", 0.5) == [("silent", 6.0, 600)]


@pytest.mark.parametrize(
    ("stopped_s", "expected"), [(40.0, [("late", 6.0, 600)]), (6.0, []), (10.5, [])]
)
def test_a_played_source_that_is_slower_than_time_lacks_the_rest(
    tmp_path: Path, stopped_s: float, expected: list[tuple[str, float, int]]
) -> None:
    """It is stopped long after the duration; before that, no more was asked for."""
    recording = Recording(tmp_path, **PLAYED)
    recording.writer._values["duration_s"] = 10.0
    recording.give(0.0, 4.0 if expected or stopped_s < 10 else 9.0)
    assert recording.end("stopped", stopped_s) == expected


@pytest.mark.parametrize(
    ("min_rate", "rate_hz", "causes"),
    [(95.0, 80.0, ["rate"]), (None, 80.0, []), (None, 40.0, ["rate"]), (0, 40.0, [])],
)
def test_the_floor_is_the_configs_or_half_of_what_is_expected(
    tmp_path: Path, min_rate: float | None, rate_hz: float, causes: list[str]
) -> None:
    recording = Recording(tmp_path, live=True, min_rate=min_rate)
    recording.give(0.0, 10.0, rate_hz)
    reported = recording.end("stopped", 10.0)
    assert [cause for cause, _, _ in reported] == causes
    if causes:
        (_, duration_s, estimate) = reported[0]
        assert duration_s == pytest.approx(10.0, abs=0.3)
        assert estimate == pytest.approx((100 - rate_hz) * 10, abs=60)


@pytest.mark.parametrize("rate_hz", [100.0, None, 0.1])
@pytest.mark.parametrize("reason", ["stopped", "duration", "eof"])
def test_a_stream_that_never_starts(tmp_path: Path, rate_hz: float | None, reason: str) -> None:
    recording = Recording(tmp_path, rate_hz=rate_hz, **LIVE)
    reported = recording.end(reason, 2.0)
    lost = reason != "eof" and rate_hz != 0.1  # a sample in ten seconds need not have come
    estimate = 200 if rate_hz else None
    assert reported == ([("silent", 2.0, estimate)] if lost else [])


@pytest.mark.parametrize("reason", ["stopped", "duration"])
def test_a_sporadic_stream_that_never_starts_is_not_silent(tmp_path: Path, reason: str) -> None:
    assert Recording(tmp_path, rate_hz=None, **LIVE, sporadic=True).end(reason, 60.0) == []


def test_a_session_of_an_earlier_version_has_no_floors(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    recording.give(0.0, 4.0)
    assert recording.end("stopped", 10.0) == []
    header = json.loads((recording.writer.path / "_recorder/session.json").read_text())
    assert header["sensors"]["cam"]["streams"] == ["cam"]
