"""Rows of the streams and the verdict, from statuses by hand."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.viewers.live.summary import SPARK, Summary

S = 1_000_000_000
NOW_NS = 1_000 * S
"""CLOCK_MONOTONIC."""
GB = 10**9


def stream(samples: int | None = None, age_s: float | None = 0.1, **more: Any) -> dict[str, Any]:
    """A stream of a status at `NOW_NS`; its newest sample is so old."""
    values = {"rate_hz": 10.0, "bytes_per_s": 10_000, "expected_hz": 10.0}
    newest_ns = None if age_s is None else NOW_NS - round(age_s * S)
    return {
        **values,
        "last_ns": newest_ns,
        "slow": False,
        "samples": samples,
        "samples_ns": newest_ns if samples else None,
        "bytes": None if samples is None else samples * 1000,
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
        "played": False,
        "simulated": False,
        "required": True,
        "fault": None,
        "starts": 1,
        "ring_held_bytes": 10,
        "ring_size_bytes": 100,
    }
    sensor |= {key: more.pop(key) for key in ("played", "simulated") if key in more}
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


def note(status: Mapping[str, Any] | None, seen_ns: int | None = None) -> dict[str, Any]:
    """The note of a summary that has seen the session or its absence before."""
    summary, observed = Summary(), {} if seen_ns is None else {"cam": seen_ns}
    summary._session = (status or {}).get("session") and "tour"
    return summary.note(status, observed, NOW_NS, "the daemon does not answer")


def at(seconds: float, status: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any], int]:
    """Arguments of `note`: this status so many seconds after `NOW_NS`."""
    return status, {}, NOW_NS + round(seconds * S)


def test_without_a_daemon_the_verdict_tells_why() -> None:
    found = note(None)
    assert found["verdict"] == {
        "word": "OFFLINE",
        "level": "bad",
        "why": "the daemon does not answer",
    }
    assert found["streams"] == {} and found["status"] is None


def test_an_idle_rig_has_rates_and_is_ready() -> None:
    found = note(status({"cam": stream()}))
    row = found["streams"]["cam"]
    assert (row["rate_hz"], row["mb_s"], row["age_s"]) == (10.0, 0.01, 0.1)
    assert (row["level"], row["word"], row["ring"]) == ("good", "ok", None)
    assert (found["verdict"]["word"], found["verdict"]["level"]) == ("READY", "good")


def test_what_the_taps_gave_is_newer_than_the_last_report() -> None:
    found = note(status({"cam": stream(age_s=0.4)}), NOW_NS - S // 20)
    assert found["streams"]["cam"]["age_s"] == 0.05


def test_a_recording_has_the_rates_of_the_session_and_fills_the_ring() -> None:
    found = note(status({"cam": stream(30, rate_hz=9.8)}, session=True))
    row = found["streams"]["cam"]
    assert row["rate_hz"] == 9.8 and row["ring"] == 0.1 and row["age_s"] == 0.1
    assert row["mb_s"] == pytest.approx(0.01)
    verdict = found["verdict"]["word"]
    assert (verdict, found["session"], found["elapsed_s"]) == ("RECORDING", "tour", 3.0)
    assert found["disk_hours"] == 2.0
    assert found["status"].keys().isdisjoint({"events", "config", "taps"})
    assert found["streams"].keys() == {"cam"}


@pytest.mark.parametrize("behind_s", [0.0, 0.5])
def test_a_stream_is_good_while_fresh_samples_come_and_not_for_a_second_more(
    behind_s: float,
) -> None:
    """Statuses come four times a second, and drivers report as often; a camera has its delay."""
    summary, words = Summary(), {}
    last_s = 6.0  # the plug is pulled
    for tick in range(40):
        now_s = tick / 4
        reported_s = min(now_s - behind_s - 0.2, last_s)
        newest_s = int(max(0.0, reported_s) * 10) / 10  # at the driver's last report
        values = stream(round(newest_s * 10), last_ns=NOW_NS + round(newest_s * S))
        words[now_s] = summary.note(*at(now_s, status({"cam": values}, session=True)))
    rows = {now_s: found["streams"]["cam"] for now_s, found in words.items() if now_s >= 1}
    assert {row["word"] for now_s, row in rows.items() if now_s <= last_s + behind_s} == {"ok"}
    dead = {now_s: row for now_s, row in rows.items() if now_s >= last_s + behind_s + 0.95}
    assert {row["word"] for row in dead.values()} == {"late", "silent"}
    assert not any(row["fresh"] for row in dead.values())
    first = words[last_s + behind_s + 1]["verdict"]
    assert (first["word"], first["level"]) == ("LATE", "warn")
    ages = [row["age_s"] for row in dead.values()]
    assert all(b - a == pytest.approx(0.25, abs=0.02) for a, b in itertools.pairwise(ages))


def test_stamps_ahead_of_time_are_as_old_as_their_arrival() -> None:
    """A source that plays fast stamps its samples in the future; so does one whose clock steps."""
    summary = Summary()
    values = stream(50, last_ns=NOW_NS + 3600 * S, samples_ns=None)
    ages = [
        summary.note(*at(s, status({"cam": values}, session=True)))["streams"]["cam"]["age_s"]
        for s in (0.0, 0.5, 4.0)
    ]
    assert ages == [0.0, 0.5, 4.0]


def test_a_sparkline_has_a_minute() -> None:
    summary = Summary()
    for tick in range(200):
        found = summary.note(*at(tick / 2, status({"cam": stream()})))
    assert found["streams"]["cam"]["spark"] == [10.0] * SPARK


@given(st.lists(st.floats(0.0, 0.6), min_size=20, max_size=20))
def test_the_rate_of_a_second_does_not_depend_on_when_samples_are_counted(
    delays_s: list[float],
) -> None:
    """100 Hz are 100 Hz, whenever the writer counted what it had, and the status came."""
    summary, counted_s = Summary(), 0.0
    for tick, delay_s in enumerate(delays_s):
        counted_s = max(counted_s, tick + 1.0 - delay_s)
        samples = round(counted_s * 100)
        newest_ns = NOW_NS + samples * S // 100
        stamps = dict.fromkeys(("samples_ns", "last_ns"), newest_ns)
        values = stream(samples, expected_hz=100.0, rate_hz=162.0, **stamps)
        found = summary.note(*at(tick + 1.0, status({"cam": values}, session=True)))
    row = found["streams"]["cam"]
    assert row["spark"] == pytest.approx([100.0] * 19, abs=0.1)
    assert row["rate_hz"] == pytest.approx(100.0, abs=0.1)


def test_a_stream_that_pauses_has_the_rate_that_was_counted() -> None:
    summary, rates = Summary(), []
    for tick in range(12):
        samples = min(tick, 6) * 25
        stamps = dict.fromkeys(("samples_ns", "last_ns"), NOW_NS + samples * S // 100)
        values = stream(samples, expected_hz=100.0, rate_hz=float(tick), **stamps)
        found = summary.note(*at(tick / 4, status({"cam": values}, session=True)))
        rates.append(found["streams"]["cam"]["rate_hz"])
    assert rates == [0.0, *[100.0] * 10, 11.0]


def test_the_rate_of_a_second_without_samples_is_0_but_of_slow_streams() -> None:
    def spark(expected_hz: float, newest_s: list[float]) -> list[float]:
        summary = Summary()
        for tick, s in enumerate(newest_s):
            stamps = dict.fromkeys(("samples_ns", "last_ns"), NOW_NS + round(s * S))
            values = stream(round(s * expected_hz), expected_hz=expected_hz, **stamps)
            found = summary.note(*at(tick, status({"cam": values}, session=True)))
        return list(found["streams"]["cam"]["spark"])

    assert spark(10.0, [1, 2, 3, 3, 3, 3.4, 4.4]) == [10, 10, 0, 0, 10, 10]
    assert spark(10.0, [1, 2, 2, 2, 2, 2, 7]) == [10, 0, 0, 0, 0, 10], "the writer catches up"
    assert spark(0.5, [2, 2, 4, 4, 6, 6]) == [0.5, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("values", "state", "level", "word"),
    [
        (stream(), "lost", "bad", "lost"),
        (stream(), "restarting", "bad", "restarting"),
        (stream(age_s=5.0), "armed", "bad", "silent"),
        (stream(frozen=True), "armed", "bad", "frozen"),
        (stream(slow=True), "armed", "bad", "slow"),
        (stream(age_s=1.0), "armed", "warn", "late"),
        (stream(), "starting", "warn", "starting"),
        (stream(), "ended", "warn", "ended"),
    ],
)
def test_what_is_wrong_with_a_stream_becomes_the_verdict(
    values: dict[str, Any], state: str, level: str, word: str
) -> None:
    summary = Summary()
    fresh = stream(age_s=values["last_ns"] and (NOW_NS - values["last_ns"]) / S)
    summary.note(status({"cam": fresh}), {}, values["last_ns"])
    found = summary.note(status({"cam": values}, state=state), {}, NOW_NS)
    row = found["streams"]["cam"]
    assert (row["level"], row["word"]) == (level, word)
    assert (found["verdict"]["level"], found["verdict"]["word"]) == (level, word.upper())
    assert "cam" in found["verdict"]["why"]


@pytest.mark.parametrize(
    ("values", "more", "level", "word"),
    [
        (stream(), {}, "good", "ok"),
        (stream(), {"simulated": True, "played": True}, "good", "simulated"),
        (stream(age_s=None), {"simulated": True, "played": True}, "idle", "idle"),
        (stream(age_s=None), {"played": True}, "idle", "idle"),
        (stream(age_s=None), {}, "idle", "idle"),
        (stream(age_s=60.0), {"played": True}, "idle", "idle"),
        (stream(age_s=60.0, expected_hz=None), {}, "idle", "idle"),
        (stream(age_s=1.0, expected_hz=None), {}, "good", "ok"),
        (stream(age_s=60.0, ended="eof", samples=9), {"session": True}, "warn", "ended"),
    ],
)
def test_only_what_gives_fresh_samples_is_ok(
    values: dict[str, Any], more: dict[str, Any], level: str, word: str
) -> None:
    row = note(status({"cam": values}, **more))["streams"]["cam"]
    assert (row["level"], row["word"]) == (level, word)
    assert row["fresh"] == (level == "good")


def test_a_sensor_that_has_declared_no_stream_says_so() -> None:
    found = note(status({}))
    assert found["streams"]["cam"]["word"] == "undeclared"
    assert (found["verdict"]["level"], found["verdict"]["word"]) == ("warn", "UNDECLARED")


def test_losses_of_parts_and_a_running_outage_are_shown() -> None:
    holes = {"network": {"samples": 22, "parts": 90}}
    row = note(status({"cam": stream(5, incomplete=holes)}, session=True))["streams"]["cam"]
    assert (row["level"], row["word"], row["incomplete"]) == ("warn", "incomplete", holes)
    outage = {"cause": "device", "since_ns": 1, "estimated": 40}
    row = note(status({"cam": stream(5, outage=outage)}, session=True))["streams"]["cam"]
    assert (row["level"], row["word"], row["outage"]) == ("bad", "outage", outage)


def test_a_driver_that_starts_again_in_a_session_is_bad() -> None:
    for samples, level in ((5, "bad"), (0, "warn")):
        recording = status({"cam": stream(samples)}, session=True, state="starting")
        row = note(recording)["streams"]["cam"]
        assert (row["level"], row["word"]) == (level, "starting")


def test_a_driver_that_was_back_before_the_next_status_is_bad_for_a_while() -> None:
    summary = Summary()
    recording = status({"cam": stream(5)}, session=True)
    words = []
    for now_s, starts in ((1.0, 1), (2.0, 2), (4.9, 2), (5.1, 2)):
        recording["sensors"]["cam"]["starts"] = starts
        recording["sensors"]["cam"]["streams"] = {"cam": stream(5, age_s=-now_s)}
        row = summary.note(*at(now_s, recording))["streams"]["cam"]
        words.append((row["level"], row["word"]))
    assert words == [("good", "ok"), ("bad", "restarted"), ("bad", "restarted"), ("good", "ok")]


def test_a_drivers_first_start_is_no_fault() -> None:
    summary = Summary()
    rig = status({"cam": stream()}, state="starting")
    rig["sensors"]["cam"]["starts"] = 0
    summary.note(*at(0.0, rig))
    rig = status({"cam": stream(age_s=0.0)})
    assert summary.note(*at(0.1, rig))["streams"]["cam"]["word"] == "ok"


def test_a_stream_that_gives_nothing_in_a_session_is_silent() -> None:
    values = stream(0, age_s=None, rate_hz=0.0)
    assert note(status({"cam": values}, session=True))["streams"]["cam"]["word"] == "silent"


def test_losses_are_bad_while_they_grow_and_a_warning_afterwards() -> None:
    summary = Summary()

    def verdict(now_s: float, lost: dict[str, int], unknown: int = 0) -> tuple[str, str]:
        values = stream(50, age_s=-now_s, lost=lost, unknown_losses=unknown)
        found = summary.note(*at(now_s, status({"cam": values}, session=True)))
        return found["verdict"]["word"], found["verdict"]["level"]

    assert verdict(1.0, {}) == ("RECORDING", "good")
    assert verdict(2.0, {"refused": 3}) == ("LOSS", "bad")
    assert verdict(3.9, {"refused": 3}) == ("LOSS", "warn")
    assert verdict(5.0, {"refused": 3}, 1) == ("LOSS", "bad")


def test_faults_of_the_daemon_come_first() -> None:
    fault = {"about": "cam", "kind": "lost", "message": "the device is gone"}
    found = note(status({"cam": stream()}, state="lost", faults=[fault]))
    assert found["verdict"] == {"word": "FAULT", "level": "bad", "why": "cam: the device is gone"}


@pytest.mark.parametrize(
    ("left_s", "word", "level"),
    [(7200, "READY", "good"), (None, "READY", "good"), (3000, "DISK", "warn"), (60, "DISK", "bad")],
)
def test_a_disk_that_is_full_soon_is_the_verdict(left_s: int | None, word: str, level: str) -> None:
    disk = {"root": "r", "free_bytes": GB, "floor_bytes": GB, "seconds_left": left_s}
    found = note(status({"cam": stream()}, disk=disk))
    assert (found["verdict"]["word"], found["verdict"]["level"]) == (word, level)


def test_the_worst_stream_comes_first_and_a_sensor_without_streams_has_a_row() -> None:
    one = status({"cam": stream()})
    one["sensors"]["imu"] = {**one["sensors"]["cam"], "state": "absent", "streams": {}}
    found = note(one)
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
