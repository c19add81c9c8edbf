"""Rows of the streams and the verdict, from statuses by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from recorder.live.summary import SPARK, Observed, Summary

NOW_NS = 1_750_000_000_000_000_000
GB = 10**9


def stream(samples: int | None = None, **more: Any) -> dict[str, Any]:
    values = {"rate_hz": 10.0, "bytes_per_s": 10_000, "age_s": 0.5, "expected_hz": 10.0}
    size = None if samples is None else samples * 1000
    return {
        **values,
        "slow": False,
        "samples": samples,
        "bytes": size,
        "lost": {},
        "unknown_losses": 0,
        "ended": None,
        **more,
    }


def status(
    streams: Mapping[str, Any], session: bool = False, state: str = "armed", **more: Any
) -> dict[str, Any]:
    sensor = {
        "state": state,
        "driver": "camera",
        "required": True,
        "fault": None,
        "starts": 1,
        "ring_held_bytes": 10,
        "ring_size_bytes": 100,
    }
    total = sum(s["bytes"] or 0 for s in streams.values())
    opened = {"name": "tour", "elapsed_s": 3.0, "bytes": total}
    return {
        "state": "recording" if session else "idle",
        "ready": True,
        "faults": [],
        "session": opened if session else None,
        "sensors": {"cam": {**sensor, "streams": dict(streams)}},
        "disk": {"root": "r", "free_bytes": 100 * GB, "floor_bytes": GB, "seconds_left": 7200},
        "events": [{"number": 1}],
        "config": "/rig.yaml",
        **more,
    }


def note(status: Mapping[str, Any] | None, seen: Observed | None = None) -> dict[str, Any]:
    observed = {} if seen is None else {"cam": seen}
    return Summary().note(status, observed, 100.0, NOW_NS, "the daemon does not answer")


def seen(age_s: float = 0.1, **more: Any) -> Observed:
    return Observed(NOW_NS - round(age_s * 1e9), **more)


SILENT: dict[str, Any] = {"rate_hz": 0.0, "bytes_per_s": 0, "age_s": 5.0}


def test_without_a_daemon_the_verdict_tells_why() -> None:
    found = note(None)
    assert found["verdict"] == {
        "word": "OFFLINE",
        "level": "bad",
        "why": "the daemon does not answer",
    }
    assert found["streams"] == {} and found["status"] is None


def test_an_idle_rig_has_rates_and_is_ready() -> None:
    found = note(status({"cam": stream()}), seen())
    row = found["streams"]["cam"]
    assert (row["rate_hz"], row["mb_s"], row["age_s"]) == (10.0, 0.01, 0.1)
    assert (row["level"], row["word"], row["ring"]) == ("good", "ok", None)
    assert (found["verdict"]["word"], found["verdict"]["level"]) == ("READY", "good")


def test_a_recording_has_the_rates_of_the_session_and_fills_the_ring() -> None:
    summary = Summary()
    for tick in range(10):
        recording = status({"cam": stream(tick * 5, rate_hz=9.8)}, session=True)
        found = summary.note(recording, {}, 100.0 + tick / 2, NOW_NS)
    row = found["streams"]["cam"]
    assert row["rate_hz"] == 9.8 and row["ring"] == 0.1 and row["age_s"] == 0.5
    assert row["mb_s"] == pytest.approx(0.01)
    assert row["spark"][-1] == pytest.approx(10.0)
    assert (found["verdict"]["word"], found["session"], found["elapsed_s"]) == (
        "RECORDING",
        "tour",
        3.0,
    )
    assert found["disk_hours"] == 2.0
    assert found["status"].keys().isdisjoint({"events", "config", "taps"})
    assert found["streams"].keys() == {"cam"}


def test_the_age_grows_while_no_sample_is_added() -> None:
    summary = Summary()
    recording = status({"cam": stream(50, age_s=None)}, session=True)
    for tick in range(5):
        found = summary.note(recording, {}, 100.0 + tick, NOW_NS)
    assert found["streams"]["cam"]["age_s"] == 4.0
    assert found["streams"]["cam"]["spark"][-1] == 0.0


def test_a_sparkline_has_a_minute() -> None:
    summary = Summary()
    for tick in range(200):
        found = summary.note(status({"cam": stream()}), {"cam": seen()}, tick / 2 + 1, NOW_NS)
    assert found["streams"]["cam"]["spark"] == [10.0] * SPARK


@pytest.mark.parametrize(
    ("values", "state", "observed", "level", "word"),
    [
        (stream(), "lost", seen(), "bad", "lost"),
        (stream(), "restarting", seen(), "bad", "restarting"),
        (stream(**SILENT), "armed", Observed(), "bad", "silent"),
        (stream(), "armed", seen(frozen=True), "bad", "frozen"),
        (stream(slow=True), "armed", seen(), "bad", "slow"),
        (stream(), "starting", seen(), "warn", "starting"),
        (stream(), "ended", seen(), "warn", "ended"),
    ],
)
def test_what_is_wrong_with_a_stream_becomes_the_verdict(
    values: dict[str, Any], state: str, observed: Observed, level: str, word: str
) -> None:
    summary = Summary()
    summary.note(status({"cam": stream()}), {}, 1.0, 0)
    found = summary.note(status({"cam": values}, state=state), {"cam": observed}, 2.0, NOW_NS)
    row = found["streams"]["cam"]
    assert (row["level"], row["word"]) == (level, word)
    assert (found["verdict"]["level"], found["verdict"]["word"]) == (level, word.upper())
    assert "cam" in found["verdict"]["why"]


def test_a_driver_that_starts_again_in_a_session_is_bad() -> None:
    for samples, level in ((5, "bad"), (0, "warn")):
        recording = status({"cam": stream(samples)}, session=True, state="starting")
        row = note(recording, seen())["streams"]["cam"]
        assert (row["level"], row["word"]) == (level, "starting")


def test_a_driver_that_was_back_before_the_next_status_is_bad_for_a_while() -> None:
    summary = Summary()
    recording = status({"cam": stream(5)}, session=True)
    words = []
    for now_s, starts in ((1.0, 1), (2.0, 2), (4.9, 2), (5.1, 2)):
        recording["sensors"]["cam"]["starts"] = starts
        row = summary.note(recording, {"cam": seen()}, now_s, NOW_NS)["streams"]["cam"]
        words.append((row["level"], row["word"]))
    assert words == [("good", "ok"), ("bad", "restarted"), ("bad", "restarted"), ("good", "ok")]


def test_a_drivers_first_start_is_no_fault() -> None:
    summary = Summary()
    rig = status({"cam": stream()}, state="starting")
    rig["sensors"]["cam"]["starts"] = 0
    summary.note(rig, {}, 1.0, NOW_NS)
    rig = status({"cam": stream()})
    assert summary.note(rig, {"cam": seen()}, 2.0, NOW_NS)["streams"]["cam"]["word"] == "ok"


def test_a_played_source_that_waits_for_a_session_is_not_silent() -> None:
    summary = Summary()
    found = summary.note(status({"cam": stream(**{**SILENT, "age_s": None})}), {}, 1.0, NOW_NS)
    assert found["streams"]["cam"]["word"] == "ok"
    recording = status({"cam": stream(3)}, session=True)
    summary.note(recording, {"cam": seen()}, 2.0, NOW_NS)
    later_ns = NOW_NS + 60 * 10**9
    idle = status({"cam": stream(**SILENT)})
    summary.note(idle, {"cam": seen()}, 61.0, later_ns)
    found = summary.note(idle, {"cam": seen()}, 65.0, later_ns + 4 * 10**9)
    assert found["streams"]["cam"]["word"] == "ok"


def test_a_stream_that_gives_nothing_in_a_session_is_silent() -> None:
    values = stream(0, **{**SILENT, "age_s": None})
    assert note(status({"cam": values}, session=True))["streams"]["cam"]["word"] == "silent"


def test_losses_are_bad_while_they_grow_and_a_warning_afterwards() -> None:
    summary = Summary()

    def verdict(now_s: float, lost: dict[str, int], unknown: int = 0) -> tuple[str, str]:
        values = stream(50, lost=lost, unknown_losses=unknown)
        found = summary.note(status({"cam": values}, session=True), {}, now_s, NOW_NS)
        return found["verdict"]["word"], found["verdict"]["level"]

    assert verdict(1.0, {}) == ("RECORDING", "good")
    assert verdict(2.0, {"refused": 3}) == ("LOSS", "bad")
    assert verdict(20.0, {"refused": 3}) == ("LOSS", "warn")
    assert verdict(21.0, {"refused": 3}, 1) == ("LOSS", "bad")


def test_faults_of_the_daemon_come_first() -> None:
    fault = {"about": "cam", "kind": "lost", "message": "the device is gone"}
    found = note(status({"cam": stream()}, state="lost", faults=[fault]), seen())
    assert found["verdict"] == {"word": "FAULT", "level": "bad", "why": "cam: the device is gone"}


@pytest.mark.parametrize(
    ("left_s", "word", "level"),
    [(7200, "READY", "good"), (None, "READY", "good"), (3000, "DISK", "warn"), (60, "DISK", "bad")],
)
def test_a_disk_that_is_full_soon_is_the_verdict(left_s: int | None, word: str, level: str) -> None:
    disk = {"root": "r", "free_bytes": GB, "floor_bytes": GB, "seconds_left": left_s}
    found = note(status({"cam": stream()}, disk=disk), seen())
    assert (found["verdict"]["word"], found["verdict"]["level"]) == (word, level)


def test_the_worst_stream_comes_first_and_a_sensor_without_streams_has_a_row() -> None:
    one = status({"cam": stream()})
    one["sensors"]["imu"] = {**one["sensors"]["cam"], "state": "absent", "streams": {}}
    found = note(one, seen())
    assert list(found["streams"]) == ["imu", "cam"]
    assert found["streams"]["imu"]["word"] == "absent"
    assert found["streams"]["imu"]["rate_hz"] == 0.0


def test_streams_are_ordered_by_their_level() -> None:
    streams = {
        "good": stream(5),
        "warn": stream(5, lost={"buffer": 1}),
        "bad": stream(5, slow=True),
        "fine": stream(5),
    }
    rows = note(status(streams, session=True))["streams"]
    assert [(name, row["level"]) for name, row in rows.items()] == [
        ("bad", "bad"),
        ("warn", "warn"),
        ("good", "good"),
        ("fine", "good"),
    ]


def test_a_clock_that_is_not_synchronized_is_told() -> None:
    assert note(status({}))["clock"] is None
    assert note(status({}, clock={"synchronized": True}))["clock"]["level"] == "good"
    assert note(status({}, clock={"synchronized": False}))["clock"]["level"] == "warn"


def test_a_start_that_would_be_refused_is_the_verdict_of_an_idle_recorder() -> None:
    why = "/data has 6.00 GB free; a recording begins with 6.40 GB"
    refused = note(status({"cam": stream()}, start_refused=why))
    assert refused["verdict"] == {"word": "NO START", "level": "bad", "why": why}
    assert refused["status"]["start_refused"] == why  # by which the page greys START
    assert note(status({"cam": stream()}, start_refused=None))["verdict"]["word"] == "READY"
