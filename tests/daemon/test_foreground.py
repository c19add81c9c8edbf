"""One session in the foreground, with writer and drivers that are made up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recorder.contract.errors import DeviceError, RecorderError, SourceError, StorageError
from recorder.daemon.foreground import Foreground
from recorder.daemon.processes.children import Child
from recorder.daemon.processes.sensors import Status
from recorder.daemon.processes.supervisor import WRITER
from recorder.session.layout import SessionPlan
from tests.daemon.fakes import CONFIG, FakeChild, FakeWriter, Vehicle


class Bench:
    """A foreground recording; drivers arm themselves unless `arms` says no."""

    def __init__(self, folder: Path, text: str = CONFIG) -> None:
        self.vehicle = Vehicle(folder, text)
        self.writer: FakeWriter = self.vehicle.writer
        self.children = self.vehicle.children
        self.arms: dict[str, bool] = {}
        self.foreground = Foreground(
            self.vehicle.config,
            self.vehicle.clock,
            self.vehicle.lines.append,
            line=self.writer,
            spawn=self._spawn,
        )
        self.plan = SessionPlan(str(self.vehicle.root), "drive", False, "version: 1")

    def _spawn(self, name: str, *args: Any, **more: Any) -> Child:
        child = self.children[name] = FakeChild(name, *args, **more)
        if name != WRITER and self.arms.get(name, True):
            child.arm()
        return child  # type: ignore[return-value]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    with made.foreground:
        yield made


def test_a_device_that_is_absent_is_a_fault_and_the_others_record(bench: Bench) -> None:
    bench.arms = {"cam": False}

    def spawn(name: str, *args: Any, **more: Any) -> Child:
        child = bench._spawn(name, *args, **more)
        if name == "cam":
            bench.children["cam"].report("device", state="absent", message="cam: not there")
        return child

    bench.foreground._spawn = spawn
    bench.foreground.arm()
    bench.foreground.start(bench.plan)

    def watch(status: Status) -> None:
        if status.elapsed_s > 3:
            bench.foreground.stop()

    outcome = bench.foreground.record(watch)
    assert outcome.faults == ["cam: not there"] and outcome.exit_code == 3
    (event,) = bench.writer.events["drive"][:1]
    assert (event["kind"], event["stream"], event["cause"]) == ("device", "cam", "absent")


def test_a_duration_is_over_although_a_device_is_away(bench: Bench) -> None:
    bench.foreground.arm()
    bench.foreground.start(bench.plan)
    bench.children["cam"].report("device", state="lost", message="cam: unplugged")
    ended = bench.writer.streams()["lidar"] | {"ended": "duration"}
    seen: list[float] = []

    def watch(status: Status) -> None:
        seen.append(status.elapsed_s)
        if status.elapsed_s > 5:
            bench.writer.frozen["lidar"] = ended

    bench.foreground.record(watch, duration_s=5.0)
    assert 6 < seen[-1] < 8


@pytest.mark.parametrize(
    ("reports", "error"),
    [
        ([("fault", {"message": "no such file", "exit_code": 2})], SourceError),
        ([("fault", {"message": "no such device", "exit_code": 1})], DeviceError),
        ([], SourceError),
    ],
)
def test_a_source_that_does_not_open_ends_the_run_before_it_begins(
    bench: Bench, reports: list[tuple[str, dict[str, Any]]], error: type[RecorderError]
) -> None:
    def spawn(name: str, *args: Any, **more: Any) -> Child:
        bench.arms = {"cam": False}
        child = bench._spawn(name, *args, **more)
        if name == "cam":
            for event, values in reports:
                bench.children[name].report(event, **values)
            bench.children[name].die(reports[0][1]["exit_code"] if reports else 70)
        return child

    bench.foreground._spawn = spawn
    with pytest.raises(error, match=reports[0][1]["message"] if reports else "code 70"):
        bench.foreground.arm()


def test_a_writer_that_dies_while_the_session_closes_is_followed_by_one_that_closes_it(
    bench: Bench,
) -> None:
    bench.foreground.arm()
    bench.foreground.start(bench.plan)
    bench.foreground.stop()
    send, asked = bench.writer.send, 0

    def mute_once(message: Any) -> bool:
        nonlocal asked
        if message.values["op"] != "stop":
            return send(message)
        asked += 1
        if asked == 1:
            bench.children[WRITER].die()
            return True
        return send(message)

    bench.writer.send = mute_once  # type: ignore[method-assign]
    outcome = bench.foreground.record(lambda status: None)
    assert asked == 2 and outcome.exit_code == 0
    assert "--resume" in bench.children[WRITER].command


def test_a_writer_that_never_comes_up_ends_the_run(bench: Bench) -> None:
    bench.foreground.arm()
    bench.writer.mute = True

    def spawn(name: str, *args: Any, **more: Any) -> Child:
        child = bench._spawn(name, *args, **more)
        bench.children[name].die(1)
        return child

    bench.foreground._spawn = spawn
    bench.children[WRITER].die()
    bench.foreground.turn(0.1)
    with pytest.raises(StorageError, match="times without an answer"):
        bench.foreground._wait_for(bench.foreground.ask(op="status", patience_s=1e6))


def test_a_sealed_session_is_the_outcome(bench: Bench) -> None:
    bench.foreground.arm()
    bench.foreground.start(bench.plan)

    def watch(status: Status) -> None:
        if bench.writer.session is not None and status.elapsed_s > 1:
            bench.writer.end_by_itself(sealed="an I/O error")

    outcome = bench.foreground.record(watch)
    assert (outcome.sealed, outcome.exit_code) == ("an I/O error", 1)


def test_a_low_rate_is_an_event_and_no_loss(bench: Bench) -> None:
    bench.foreground.arm()
    bench.foreground.start(bench.plan)
    bench.writer.rates["cam"] = 20.0

    def watch(status: Status) -> None:
        if status.elapsed_s > 6:
            bench.foreground.stop()

    outcome = bench.foreground.record(watch)
    assert outcome.exit_code == 0
    assert [e["cause"] for e in bench.writer.events["drive"] if e["kind"] == "rate"] == ["low"]
