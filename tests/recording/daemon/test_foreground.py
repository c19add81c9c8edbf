"""One session in the foreground, with writer and drivers that are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import force_setattr

from recorder.bus.messages import AskStatus
from recorder.common.errors import ConfigFaultsError, RecorderError, StorageError
from recorder.recording.foreground import Foreground, Outcome
from recorder.recording.supervisor.sensors import Status
from recorder.recording.supervisor.supervisor import WRITER
from recorder.session.layout import SessionPlan
from tests.recording.daemon.fakes import CONFIG, FakeChild, FakeWriter, Vehicle


class Bench:
    """A foreground recording.

    Attributes:
        deeds: by name, what a process does at its start; drivers arm themselves otherwise.
        elapsed_s: of the last status.
    """

    def __init__(self, folder: Path, text: str = CONFIG) -> None:
        self.vehicle = Vehicle(folder, text)
        self.writer: FakeWriter = self.vehicle.writer
        self.children = self.vehicle.children
        self.deeds = self.vehicle.deeds
        self.elapsed_s = 0.0
        self.foreground = Foreground(
            self.vehicle.config,
            self.vehicle.clock,
            self.vehicle.lines.say,
            line=self.writer,
            spawn=self.vehicle._spawn,
        )
        self.plan = SessionPlan(str(self.vehicle.root), "drive", False, "version: 1")

    @property
    def now_s(self) -> float:
        return self.vehicle.clock.monotonic_ns() / 1e9

    def begin(self) -> None:
        self.foreground.arm()
        self.foreground.start(self.plan)

    def run(self, after_s: float, then: Callable[[], object], **how: float) -> Outcome:
        """Record; `then` is called at each status of a later time."""

        def watch(status: Status) -> None:
            self.elapsed_s = status.elapsed_s
            if status.elapsed_s > after_s:
                then()

        return self.foreground.record(watch, **how)

    def end_lidar(self) -> None:
        """The lidar has given all of the duration."""
        self.writer.frozen["lidar"] = self.writer.streams()["lidar"] | {"ended": "duration"}


def do_nothing(child: FakeChild) -> None:
    """Be a process that hangs from its start."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    with made.foreground:
        yield made


def test_a_device_that_is_absent_is_a_fault_and_the_others_record(bench: Bench) -> None:
    bench.deeds["cam"] = lambda child: child.report(
        "device", state="absent", message="cam: not there"
    )
    bench.begin()
    outcome = bench.run(3, bench.foreground.stop)
    assert outcome.faults == ["cam: not there"] and outcome.exit_code == 3
    (event,) = bench.writer.events["drive"][:1]
    assert (event["kind"], event["stream"], event["cause"]) == ("device", "cam", "absent")


def test_a_duration_is_over_although_a_device_is_away(bench: Bench) -> None:
    bench.begin()
    bench.children["cam"].report("device", state="lost", message="cam: unplugged")
    bench.run(5, bench.end_lidar, duration_s=5.0)
    assert 6 < bench.elapsed_s < 8


def test_a_fault_before_the_writers_answer_is_one_of_the_session(bench: Bench) -> None:
    """A source that plays as fast as it can fails before the supervisor knows of the session."""
    bench.foreground.arm()
    bench.writer.late = True
    question = bench.foreground.begin(bench.plan)
    bench.children["lidar"].report("fault", message="lidar: another shape came", exit_code=3)
    bench.foreground.turn(0.0)
    assert bench.foreground.session is None
    bench.writer.late = False
    bench.foreground._wait_for(question)
    assert bench.run(3, bench.foreground.stop).faults == ["lidar: another shape came"]


def fail(bench: Bench, **faults: tuple[dict[str, Any] | None, int]) -> None:
    """Have drivers end while they open their source: by sensor, what they report, their code."""

    def end(child: FakeChild) -> None:
        report, code = faults[child.name]
        if report is not None:
            child.report("fault", **report)
        child.die(code)

    bench.deeds.update(dict.fromkeys(faults, end))


def test_what_the_config_has_wrong_ends_the_run_with_all_that_is_wrong(bench: Bench) -> None:
    file = bench.vehicle.config.path
    rate = {"message": "lidar.rate: is odd", "exit_code": 2, "key": "lidar.rate"}
    fail(bench, cam=({"message": "cam: no such file: x", "exit_code": 2}, 2), lidar=(rate, 2))
    with pytest.raises(ConfigFaultsError) as caught:
        bench.foreground.arm()
    assert str(caught.value).splitlines() == [
        f"{file}:9: sensors.cam.source: no such file: x",
        f"{file}:10: sensors.lidar.rate: is odd",
    ]
    assert caught.value.exit_code == 2


def test_a_hanging_driver_does_not_hide_what_the_config_has_wrong(bench: Bench) -> None:
    fail(bench, cam=({"message": "cam: no such file: x", "exit_code": 2}, 2))
    bench.deeds["lidar"] = do_nothing
    began_s = bench.now_s
    with pytest.raises(ConfigFaultsError, match="no such file: x"):
        bench.foreground.arm()
    assert bench.now_s - began_s < 7


@pytest.mark.parametrize(
    ("report", "code", "said"),
    [
        ({"message": "cam: no answer", "exit_code": 1}, 1, "cam: no answer"),
        (None, 70, "cam: driver ended with code 70"),
    ],
)
def test_a_driver_that_fails_in_open_does_not_stop_the_others(
    bench: Bench, report: dict[str, Any] | None, code: int, said: str
) -> None:
    fail(bench, cam=(report, code))
    bench.begin()
    bench.writer.rates = {"lidar": 10.0}
    outcome = bench.run(5, bench.end_lidar, duration_s=5.0)
    assert outcome.faults[0] == said and outcome.exit_code == 3
    assert 50 <= outcome.streams["lidar"]["samples"] < 70
    (event,) = bench.writer.events["drive"][:1]
    assert (event["kind"], event["stream"], event["cause"]) == ("fault", "cam", "driver")
    assert event["detail"] == said


def test_a_driver_that_hangs_in_open_does_not_stop_the_others(bench: Bench) -> None:
    bench.deeds["cam"] = do_nothing
    began_s = bench.now_s
    bench.begin()
    assert 29 < bench.now_s - began_s < 32
    bench.writer.rates = {"lidar": 10.0}
    outcome = bench.run(5, bench.end_lidar, duration_s=5.0)
    assert outcome.faults == ["cam: did not open within 30 s"] and outcome.exit_code == 3
    assert 6 < bench.elapsed_s < 7, "the duration is kept"


def test_where_no_driver_comes_up_nothing_is_recorded(bench: Bench) -> None:
    fail(bench, cam=(None, 70), lidar=({"message": "lidar: is odd", "exit_code": 1}, 1))
    with pytest.raises(RecorderError, match=r"recorded: cam: .*; lidar: is odd") as caught:
        bench.foreground.arm()
    assert caught.value.exit_code == 1 and bench.writer.commands == []


def test_a_writer_that_dies_while_the_session_closes_is_followed_by_one_that_closes_it(
    bench: Bench,
) -> None:
    bench.begin()
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
    bench.deeds[WRITER] = lambda child: child.die(1)
    bench.children[WRITER].die()
    bench.foreground.turn(0.1)
    with pytest.raises(StorageError, match="times without an answer"):
        bench.foreground._wait_for(bench.foreground.ask(AskStatus(), patience_s=1e6))


def test_a_sealed_session_is_the_outcome(bench: Bench) -> None:
    bench.begin()

    def seal() -> None:
        if bench.writer.session is not None:
            bench.writer.end_by_itself(sealed="an I/O error")

    outcome = bench.run(1, seal)
    assert (outcome.sealed, outcome.exit_code) == ("an I/O error", 1)


def test_a_low_rate_is_an_event_and_no_loss(bench: Bench) -> None:
    bench.begin()
    bench.writer.rates["cam"] = 20.0
    outcome = bench.run(6, bench.foreground.stop)
    assert outcome.exit_code == 0
    assert [e["cause"] for e in bench.writer.events["drive"] if e["kind"] == "rate"] == ["low"]


@pytest.mark.parametrize("stalled", [True, False])
def test_a_duration_is_kept_although_a_driver_hangs_or_is_hopelessly_slow(
    bench: Bench, stalled: bool
) -> None:
    bench.begin()
    if stalled:
        bench.children["cam"].report("stall", stalled=True, hung_in="")
    else:
        force_setattr(bench.foreground.sensors["cam"].entry, "live", False)
    status = bench.writer.status
    began_ns = bench.vehicle.clock.monotonic_ns()

    def slow() -> dict[str, Any]:
        """What is played comes at a twentieth of its pace."""
        reported = status()
        if "streams" in reported:
            played_ns = (bench.vehicle.clock.monotonic_ns() - began_ns) // 20
            reported["streams"]["cam"]["last_ns"] = began_ns + played_ns
            reported["start_mono_ns"] = began_ns
        return reported

    bench.writer.status = slow  # type: ignore[method-assign]
    outcome = bench.run(5, bench.end_lidar, duration_s=5.0)
    assert (6 < bench.elapsed_s < 7) if stalled else (10 < bench.elapsed_s < 13)
    assert (outcome.faults == ["cam: its driver hangs: it returns no data"]) is stalled


def test_the_end_of_the_sources_is_seen_as_soon_as_their_drivers_report_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session closes without a wait for the next regular status."""
    monkeypatch.setattr("recorder.recording.foreground._STATUS_S", 5.0)
    clock = bench.vehicle.clock
    bench.begin()
    reported_ns: list[int] = []

    def end_all(now_ns: int) -> None:
        """In the middle between two statuses."""
        if reported_ns or now_ns - bench.writer.start_mono_ns < 1.1e9:
            return
        reported_ns.append(now_ns)
        for name, stream in bench.writer.streams().items():
            bench.writer.frozen[name] = stream | {"ended": "eof"}
            bench.children[name].report("ended")

    bench.foreground.on_turn.append(end_all)
    bench.foreground.record(lambda status: None, duration_s=60.0)
    assert [command["op"] for command in bench.writer.commands].count("stop") == 1
    turns = (clock.monotonic_ns() - reported_ns[0]) / 100e6
    assert turns <= 6, "report, status, end, and the answer to the stop"


def test_a_start_of_over_a_second_names_what_it_waits_for_once(bench: Bench) -> None:
    bench.deeds["lidar"] = do_nothing
    began_ns = bench.vehicle.clock.monotonic_ns()

    def arm_late(now_ns: int) -> None:
        if now_ns - began_ns > 3e9:
            bench.children["lidar"].arm()

    bench.foreground.on_turn.append(arm_late)
    bench.foreground.arm()
    said = [text for text in bench.vehicle.lines if "waiting" in text]
    assert said == ["waiting for lidar to open"]
