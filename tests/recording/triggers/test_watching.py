"""What is asked of the daemon where a trigger fires."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from recorder.bus.control.client import Client
from recorder.bus.control.requests import Mark, make_request
from recorder.bus.control.server import Call
from recorder.recording.sessions.marks import Marks
from recorder.recording.supervisor.supervisor import Supervisor
from recorder.recording.triggers.evaluation import Fired
from recorder.recording.triggers.watching import TriggerFollower

S = 1_000_000_000


class Daemon:
    """Takes what a client sends."""

    def __init__(self) -> None:
        self.sent: list[Mark] = []

    def send(self, request: Mark) -> None:
        self.sent.append(request)


@pytest.mark.parametrize("window", [(30.0, 15.0), (0.0, 0.0)])
def test_the_moment_and_the_window_are_those_of_the_trigger(window: tuple[float, float]) -> None:
    daemon = Daemon()
    watching = TriggerFollower((), lambda: cast(Client, daemon), print)
    watching._mark(Fired("brake", 123 * S, *window, {"imu.acc[0]": -4.5}))
    keep = window if any(window) else None
    assert daemon.sent == [
        Mark("trigger brake: imu.acc[0] -4.5", keep=keep, t_ns=123 * S, trigger="brake")
    ]


def test_a_condition_of_many_values_still_makes_a_mark() -> None:
    """The daemon takes no mark of more characters: the event would be lost."""
    daemon = Daemon()
    watching = TriggerFollower((), lambda: cast(Client, daemon), print)
    watching._mark(Fired("all", S, 1.0, 1.0, {f"imu_{n}.state.value": -4.56789 for n in range(99)}))
    (mark,) = daemon.sent
    assert make_request(mark.op, mark.values) == mark


def test_a_mark_has_its_moment(tmp_path: Path) -> None:
    asked: list[Any] = []

    class Asked:
        def ask(self, command: Any) -> None:
            asked.append(command)

    marks = Marks(cast(Supervisor, Asked()), print, print)
    request = Mark("hit", t_ns=100 * S, keep=(1.0, 2.0), trigger="brake")
    marks.put(Call(request, print), request, str(tmp_path), 103 * S)
    (command,) = asked
    assert command.event["age_ns"] == 3 * S
    assert command.event["keep_s"] == [1.0, 2.0] and command.event["trigger"] == "brake"
