"""A session in the foreground, controlled as a daemon's is."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recorder.bus.control.client import Client, DaemonError, Reply
from recorder.bus.control.requests import OPS
from recorder.bus.control.server import Call
from recorder.common.errors import RecorderError
from recorder.recording.foreground import Outcome
from recorder.recording.foreground_control import ForegroundControl
from recorder.recording.supervisor.process_table import LIVE
from recorder.recording.supervisor.sensors import Status
from recorder.recording.supervisor.sidecar_process import SidecarProcess
from tests.recording.daemon.fakes import FakeChild, vehicle
from tests.recording.daemon.test_foreground import Bench, do_nothing


class Controlled(Bench):
    """A foreground recording with control, and a live process that is made up."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.viewers: list[FakeChild] = []
        say = self.vehicle.lines.say
        live = SidecarProcess(LIVE, {}, self.vehicle.clock, say, spawn=self._view)
        self.socket = self.foreground.run_folder / "control.sock"
        self.control = ForegroundControl(
            self.foreground, self.plan, self.vehicle.clock, live, self.socket
        )

    def _view(self, *args: Any, **more: Any) -> Any:
        self.viewers.append(FakeChild(*args, **more))
        return self.viewers[-1]

    def send(self, op: str, **values: Any) -> list[dict[str, Any]]:
        """A request; its reply comes into the list."""
        replies: list[dict[str, Any]] = []
        self.control._take(Call(OPS[op](**values), replies.append))
        return replies

    def record(self, *then: Callable[[], Any]) -> Outcome:
        """Record; one of `then` a second."""
        due = list(then)

        def watch(status: Status) -> None:
            if due and status.elapsed_s > len(then) - len(due) + 1:
                due.pop(0)()

        self.begin()
        outcome = self.foreground.record(watch)
        self.control.closed(outcome)
        return outcome


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Controlled]:
    made = Controlled(tmp_path)
    with made.foreground, made.control:
        yield made


def test_a_viewer_marks_and_stops_the_session(bench: Controlled) -> None:
    replies: dict[str, list[dict[str, Any]]] = {"before": bench.send("mark", text="early")}

    def ask(name: str, op: str, **values: Any) -> Callable[[], None]:
        return lambda: replies.update({name: bench.send(op, **values)})

    outcome = bench.record(
        ask("status", "status"),
        ask("mark", "mark", text="pothole"),
        ask("start", "start"),
        ask("keep", "keep"),
        ask("stop", "stop"),
    )
    assert outcome.why == "stop" and outcome.exit_code == 0
    events = bench.writer.events["drive"]
    assert [e["text"] for e in events if e["kind"] == "mark"] == ["pothole"]
    assert [e["cause"] for e in events if e["kind"] == "end"] == ["stop"]
    session = str(bench.vehicle.root / "drive")
    (before,), (status,) = replies["before"], replies["status"]
    assert (before["ok"], before["state"]) == (False, "starting")
    assert before["error"] == "nothing is being recorded"
    assert (status["ok"], status["state"]) == (True, "recording")
    (mark,) = replies["mark"]
    assert mark["ok"] and mark["session"] == session
    for refused in ("start", "keep"):
        (reply,) = replies[refused]
        assert (reply["ok"], reply["state"], reply["exit_code"]) == (False, "recording", 1)
        assert f"takes no {refused}" in reply["error"] and "recorder serve" in reply["error"]
    (stop,) = replies["stop"]
    assert (stop["ok"], stop["state"], stop["session"]) == (True, "idle", session)
    assert stop["closed"]["session"] == session and stop["closed"]["whole"]
    assert stop["closed"]["streams"]["cam"]["samples"] > 100
    assert stop["status"]["last"] == stop["closed"] and stop["status"]["session"] is None


def test_the_status_has_the_shape_of_a_daemons(bench: Controlled, tmp_path: Path) -> None:
    replies: list[dict[str, Any]] = []
    bench.record(
        lambda: replies.extend([bench.control.status()]),
        lambda: bench.viewers[0].report("listening", url="http://127.0.0.1:1/"),
        lambda: replies.extend([bench.control.status()]),
        bench.foreground.stop,
    )
    first, second = json.loads(json.dumps(replies))
    (tmp_path / "daemon").mkdir()
    with vehicle(tmp_path / "daemon") as rig:
        rig.daemon()
        theirs = rig.ask("start")["status"]
    assert shape(first, 2) == shape(theirs | {"live": first["live"]}, 2)
    assert first["healthy"] and first["session"]["elapsed_s"] == pytest.approx(1.0, abs=0.6)
    assert first["live"]["url"] is None
    assert second["live"]["url"] == "http://127.0.0.1:1/" and second["live"]["pid"] is not None
    assert second["disk"]["root"] == str(bench.vehicle.root)
    assert second["wish"] == {"wanted": True, "by": "user", "name": "drive", "part": 1}


def shape(value: Any, depth: int) -> Any:
    if not isinstance(value, dict) or depth == 0:
        return None
    return {key: shape(inner, depth - 1) for key, inner in value.items()}


def test_over_the_socket(bench: Controlled) -> None:
    got: list[Reply | str] = []

    def client() -> None:
        with Client(bench.socket) as control:
            got.append(control.status())
            try:
                control.start()
            except DaemonError as error:
                got.append(str(error))
            got.append(control.stop())

    asking = threading.Thread(target=client)
    bench.record(asking.start)  # a stop before that would end the run without a session
    asking.join(60.0)
    status, refused, stopped = got
    assert isinstance(status, Reply) and status.state == "recording"
    assert isinstance(refused, str) and "takes no start" in refused
    assert isinstance(stopped, Reply) and stopped.state == "idle"


def test_a_stop_before_the_session_ends_the_run_and_is_refused(tmp_path: Path) -> None:
    bench = Controlled(tmp_path)
    bench.deeds["cam"] = do_nothing
    with bench.foreground, bench.control:
        replies = bench.send("stop")
        with pytest.raises(RecorderError, match="stopped before the recording began"):
            bench.foreground.arm()
        assert bench.viewers[0].alive and bench.socket.exists()
    (reply,) = replies
    assert (reply["ok"], reply["error"]) == (False, "the run is ending")
    assert not bench.socket.exists()
    assert not any(viewer.alive for viewer in bench.viewers)


def test_a_viewer_that_dies_does_not_end_the_session(bench: Controlled) -> None:
    outcome = bench.record(
        lambda: bench.viewers[0].die(-9), lambda: None, lambda: None, bench.foreground.stop
    )
    assert outcome.exit_code == 0 and outcome.faults == [] and len(bench.viewers) == 2
