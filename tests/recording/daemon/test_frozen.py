"""A camera that repeats one picture: an event of each session, a fault of status and page."""

from __future__ import annotations

import time
from typing import Any

from recorder.session.events import make_event
from recorder.session.incidents import classify_events
from recorder.viewers.live.summary import Summary
from tests.recording.daemon.fakes import FakeWriter, Vehicle

FROZEN = {"kind": "fault", "stream": "cam", "cause": "frozen", "detail": "cam: frozen: for 8 s"}
MOVES = {"kind": "device", "stream": "cam", "cause": "moves", "detail": "cam: its samples differ"}


def recorded(writer: FakeWriter, session: str) -> list[tuple[str, str]]:
    """Types and causes of the camera's events in a session."""
    events = writer.events.get(session, [])
    return [(e["kind"], e["cause"]) for e in events if e["stream"] == "cam"]


def word_of(status: dict[str, Any]) -> str:
    page = Summary().note(status, {"cam": time.monotonic_ns()}, time.monotonic_ns())
    return str(page["streams"]["cam"]["word"])


def test_a_frozen_camera_is_a_fault_until_it_moves(rig: Vehicle) -> None:
    rig.run(1)
    assert not rig.running.status()["sensors"]["cam"]["streams"]["cam"]["frozen"]
    rig.children["cam"].report("event", **FROZEN)
    rig.run(0.5)
    status = rig.running.status()
    assert status["sensors"]["cam"]["streams"]["cam"]["frozen"] and not status["healthy"]
    assert {"about": "cam", "kind": "frozen", "message": FROZEN["detail"]} in status["faults"]
    assert word_of(status) == "frozen"
    for name in ("one", "two"):  # it froze before: each session has the fault
        rig.ask("start", name=name)
        rig.run(1)
        assert recorded(rig.writer, name) == [("fault", "frozen")]
        assert FROZEN["detail"] in rig.running.status()["session"]["faults"]
        if name == "one":
            rig.ask("stop")
    rig.children["cam"].report("event", **MOVES)
    rig.run(0.5)
    status = rig.running.status()
    assert not status["sensors"]["cam"]["streams"]["cam"]["frozen"]
    assert status["healthy"] and word_of(status) != "frozen"
    assert recorded(rig.writer, "two") == [("fault", "frozen"), ("device", "moves")]


def test_a_driver_that_is_restarted_is_not_frozen(rig: Vehicle) -> None:
    rig.run(1)
    rig.children["cam"].report("event", **FROZEN)
    rig.run(0.5)
    rig.children["cam"].die()
    rig.run(2)
    assert not rig.running.status()["sensors"]["cam"]["streams"]["cam"]["frozen"]


def test_the_event_is_a_fault_of_the_session() -> None:
    events = [
        make_event("fault", 1, "cam", "frozen", detail="cam: frozen: for 8 s"),
        make_event("device", 2, "cam", "moves", detail="cam: its samples differ"),
    ]
    (fault,) = classify_events(events, {})["faults"]
    assert (fault["type"], fault["stream"], fault["cause"]) == ("fault", "cam", "frozen")
