"""The daemon's small pure parts: names of parts, rates, the desired state, priorities."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import from_regex, integers, sets

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.names import check_name
from recorder.config.settings import ProcessSettings, SensorEntry
from recorder.recording.daemon.status import render_line
from recorder.recording.sessions.desired_state import DesiredStateFile
from recorder.recording.sessions.session_plan import (
    Planner,
    free_name,
    is_taken,
    next_part,
    part_name,
)
from recorder.recording.sessions.state_machine import DesiredState
from recorder.recording.supervisor.background_process import apply
from recorder.recording.supervisor.children import Child, Event
from recorder.recording.supervisor.process_table import DRIVER_RESTART, PROCESSES, WRITER_RESTART
from recorder.recording.supervisor.progress import STALLED_S, Progress, RateWatch
from recorder.recording.supervisor.sensors import Sensor
from recorder.session.events import format_event_line, make_event
from tests.config.configs import load
from tests.recording.daemon.fakes import CONFIG

S = 1_000_000_000
MOST_DEATHS = int(DRIVER_RESTART.most)
ACCOUNT = {"lost": {}, "unknown_losses": 0, "ended": None, "bytes": 0}
NAMES = from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", fullmatch=True)


@given(NAMES, integers(1, 1500))
def test_a_part_has_a_name_that_a_session_may_have(name: str, number: int) -> None:
    assert check_name(part_name(name, number)) == part_name(name, number)


@given(NAMES, sets(integers(1, 40), max_size=8), integers(0, 20))
def test_the_next_part_is_new_and_later(name: str, there: set[int], after: int) -> None:
    taken = {name, "other_p900"} | {part_name(name, n) for n in there}
    number = next_part(name, taken, after)
    assert number > max(there | {after})
    assert part_name(name, number) not in taken


def test_a_name_with_parts_is_taken() -> None:
    taken = {"a", "b_p001", "c_2", "d_p1", "e_p001x"}
    assert [is_taken(n, taken) for n in "abcde"] == [True, True, False, False, False]
    assert free_name("a", taken) == "a_2"
    assert free_name("b", {*taken, "b_2_p003"}) == "b_3"
    assert free_name("f", taken) == "f"


def spec(rate_hz: float | None = 100.0, name: str = "imu") -> StreamSpec:
    return StreamSpec(name, (ChannelSpec("acc", "raw", "f4", (3,)),), rate_hz=rate_hz)


def test_floors_come_from_the_config_or_half_of_what_is_expected() -> None:
    sensor = Sensor(SensorEntry("imu", "xsens", "sim", "", {}, min_rate=95.0))
    assert sensor.floor_hz(spec()) == 95.0
    assert sensor.floor_hz(spec(name="imu_extra")) == 50.0
    assert Sensor(SensorEntry("imu", "xsens", "sim", "", {})).floor_hz(spec(None)) is None
    off = Sensor(SensorEntry("imu", "xsens", "sim", "", {}, min_rate=0.0))
    assert off.floor_hz(spec()) is None


def test_a_slow_stream_is_told_once_within_seconds_and_again_when_it_recovers() -> None:
    watch, floors = RateWatch(), {"imu": 95.0}
    now_ns, count, reported = 0, 0, []
    for step in range(200):  # 50 s: 20 s of 100 Hz, 10 s of 80 Hz, 20 s of 100 Hz
        hz = 80 if 80 <= step < 120 else 100
        now_ns, count = now_ns + S // 4, count + hz // 4
        for change in watch.update(now_ns, {"imu": count}, floors):
            reported.append((now_ns / 1e9, change.broken))
    (began_s, began), (ended_s, ended) = reported
    assert (began, ended) == (True, False)
    assert 20 < began_s < 24 and 33 < ended_s < 37
    assert watch.broken == []


def test_a_stream_about_its_floor_is_told_of_once() -> None:
    watch, floors = RateWatch(), {"imu": 95.0}
    now_ns, count, reported = 0, 0, []
    for step in range(400):  # 1 s of 80 Hz, 3 s of 100 Hz, and so on
        hz = 100 if step // 4 % 4 else 80
        now_ns, count = now_ns + S // 4, count + hz // 4
        reported += watch.update(now_ns, {"imu": count}, floors)
    assert [change.broken for change in reported] == [True]


def test_a_silent_stream_is_below_every_floor_and_an_exact_one_is_not() -> None:
    watch = RateWatch()
    floors = {"silent": 0.5, "exact": 10.0}
    for step in range(80):
        watch.update(step * S // 4, {"exact": step * 10 // 4}, floors)
    assert watch.broken == ["silent"]
    watch.update(80 * S // 4, {"exact": 0}, floors)  # a new part counts anew
    assert watch.broken == ["silent"]
    watch.update(81 * S // 4, {}, {})
    assert watch.broken == []


def test_a_driver_that_keeps_dying_is_given_up_and_one_that_lives_is_not() -> None:
    sensor = Sensor(SensorEntry("imu", "xsens", "sim", "", {}))
    waits = []
    now_ns = 0
    for _ in range(MOST_DEATHS):
        sensor.started_ns = now_ns
        now_ns += S
        waits.append(sensor.schedule_restart(now_ns))
    assert waits[:6] == [0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    assert waits[-1] is None and sensor.given_up
    sensor = Sensor(SensorEntry("imu", "xsens", "sim", "", {}))
    for _ in range(10 * MOST_DEATHS):
        sensor.started_ns = now_ns
        now_ns += round(DRIVER_RESTART.within_s * S) // (MOST_DEATHS - 2)
        sensor.restart_at_ns = None
        assert sensor.schedule_restart(now_ns) is not None


def test_a_writer_is_restarted_at_once_four_times_and_then_after_pauses() -> None:
    pauses = [WRITER_RESTART.pause_s(deaths) for deaths in range(12)]
    assert pauses == [0.0] * 5 + [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 10.0]


def test_the_document_has_the_table_of_processes() -> None:
    document = (Path(__file__).parents[3] / "docs/daemon.md").read_text("utf-8")
    for spec in PROCESSES:
        words = " ".join([spec.module, *spec.arguments])
        assert f"| {spec.name} | `{words}` | {spec.runs} |" in document


def test_the_desired_state_outlives_the_daemon_and_knows_the_boot(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert DesiredStateFile(folder, "boot-1").read() == (DesiredState(), False)
    desired = DesiredState(True, "drive", True, {"driver": "ada"}, "user", 2, "/r/drive_p002")
    DesiredStateFile(folder, "boot-1").write(desired)
    assert DesiredStateFile(folder, "boot-1").read() == (desired, True)
    assert DesiredStateFile(folder, "boot-2").read() == (desired, False)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1}'])
def test_a_damaged_desired_state_is_none_and_out_of_the_way(tmp_path: Path, damage: bytes) -> None:
    file = DesiredStateFile(tmp_path, "boot")
    file.write(DesiredState(True, "drive"))
    file.path.write_bytes(damage)
    assert file.read() == (DesiredState(), False)
    assert file.read() == (DesiredState(), False)
    assert [path.name for path in tmp_path.iterdir()] == ["wish.damaged"]


@pytest.mark.parametrize(
    "change",
    [
        *({"wanted": 1}, {"part": "2"}, {"name": 5}, {"metadata": []}, {"session": {}}),
        *({"name": "../a"}, {"part": -1}, {"metadata": {"a": "\x00"}}, {"exact": 1}, {"by": None}),
    ],
)
def test_a_desired_state_of_another_form_is_none(tmp_path: Path, change: dict[str, Any]) -> None:
    """Also one that leaves the root, or breaks files."""
    file = DesiredStateFile(tmp_path, "boot")
    file.write(DesiredState(True, "drive"))
    file.path.write_text(json.dumps(json.loads(file.path.read_text()) | change))
    assert file.read()[0] == DesiredState()


def test_priorities_reach_the_kernel() -> None:
    cpu = min(os.sched_getaffinity(0))
    asked = ProcessSettings(cpus=(cpu,), nice=7, policy="batch", io_class="idle")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert apply(asked, process.pid) == []
        assert os.sched_getaffinity(process.pid) == {cpu}
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 7
        assert os.sched_getscheduler(process.pid) == os.SCHED_BATCH
        much = ProcessSettings(cpus=(100_000,), policy="fifo", priority=1000)
        refused = apply(much, process.pid)
        process.kill()
    assert [text.partition(" (")[0] for text in refused] == ["cpus 100000", "scheduling fifo 1000"]
    assert apply(asked, process.pid) == []  # it is gone: nothing to complain of


def test_what_a_child_prints_besides_reports_is_no_report() -> None:
    lines = ["1", "null", "[]", "{}", '{"event": 5}', "hello", "[" * 100_000, '{"event": "a"}']
    code = "import sys; sys.stdout.buffer.write(b'\\xff\\xe9\\n'); sys.stdout.buffer.flush();"
    code += f"print({chr(10).join(lines)!r})"
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    child = Child("x", [sys.executable, "-c", code], events, lambda: None)
    child.process.wait(60.0)
    child.end(0.0)
    reports = []
    while not events.empty():
        reports.append(events.get()[1])
    printed = [report["line"] for report in reports if report["event"] == "printed"]
    assert printed[:7] == ["\ufffd\ufffd", *lines[:6]] and printed[7].startswith("[[[")
    others = [report for report in reports if report["event"] != "printed"]
    assert others == [{"event": "a"}, {"event": "exit", "code": 0, "last": ""}]


def watch_progress() -> tuple[Progress, list[tuple[str, str, str, dict[str, Any]]]]:
    """A progress, and what it reports: kind, stream, cause and the rest."""
    reported: list[tuple[str, str, str, dict[str, Any]]] = []

    def report(level: str, kind: str, stream: str = "", cause: str = "", **more: Any) -> None:
        reported.append((kind, stream, cause, more))

    return Progress(lambda *_, **__: None, report, lambda *_, **__: None), reported


def test_a_disk_that_stalls_is_told_of_once_each_time() -> None:
    progress, reported = watch_progress()
    progress._on_commits(STALLED_S)
    assert reported == []
    for uncommitted_s in (0.0, STALLED_S + 0.001, 60.0, STALLED_S, 0.0, 5.5, 0.0):
        progress._on_commits(uncommitted_s)
    stalled = "disk: nothing was committed for {} s, though samples wait"
    restored = ("disk: commits again", "restored")
    assert [
        (format_event_line(make_event(kind, 0, stream, cause, **more)), cause)
        for kind, stream, cause, more in reported
    ] == [(stalled.format(5), "stalled"), restored, (stalled.format(6), "stalled"), restored]


def test_the_status_line_names_faults_only_where_there_are_some() -> None:
    faults: list[dict[str, str]] = []
    status = {"state": "recording", "session": {"name": "drive"}, "faults": faults}
    assert render_line(status) == "recording drive"
    assert render_line(status | {"state": "idle", "session": None}) == "idle"
    faults.append({"about": "lidar", "kind": "absent", "message": "no answer"})
    assert render_line(status) == "recording drive; 1 fault: lidar absent"
    faults.append({"about": "disk", "kind": "stalled", "message": "nothing committed"})
    assert render_line(status) == "recording drive; 2 faults: lidar absent, disk stalled"


def test_a_low_rate_says_whether_the_config_or_the_stream_sets_the_minimum() -> None:
    sensor = Sensor(SensorEntry("imu", "xsens", "sim", "", {}, min_rate=95.0))
    sensor.specs = {name: spec(name=name) for name in ("imu", "imu_extra")}
    progress, reported = watch_progress()
    for step in range(14):  # 10 Hz
        counts = dict.fromkeys(sensor.specs, ACCOUNT | {"samples": step * 10 // 4})
        progress.update(step * S // 4, [sensor], counts, 0.0)
    found = {name: (more["floor_hz"], more["agreed"]) for _, name, _, more in reported}
    assert found == {"imu": (95.0, True), "imu_extra": (50.0, False)}
    assert {more["expected_hz"] for *_, more in reported} == {100.0}


def test_what_a_stream_was_in_one_session_is_forgotten_in_the_next() -> None:
    sensor = Sensor(SensorEntry("imu", "xsens", "sim", "", {}, min_rate=95.0))
    sensor.specs = {"imu": spec()}
    progress, reported = watch_progress()

    def update(hz: int, begin_s: int = 0, before: int = 0) -> None:
        """Ten seconds of a rate, after so many samples."""
        for step in range(40):
            counts = {"imu": ACCOUNT | {"samples": before + step * hz // 4}}
            progress.update(begin_s * S + step * S // 4, [sensor], counts, 0.0)

    update(10)
    assert [each[1:3] for each in reported] == [("imu", "low")]
    assert progress.rates.broken == ["imu"]
    progress.reset()
    assert progress.rates.broken == [] and progress.rates.rate("imu") is None
    # The next session begins a minute later, with as many samples as the last one ended with.
    update(100, 60, before=100)
    assert len(reported) == 1
    # At full pace, the clock says nothing of the rate of the samples.
    sensor.entry = SensorEntry("imu", "xsens", "file", "", {}, min_rate=95.0, pace="max")
    reported.clear()
    progress.reset()
    update(10)
    assert reported == [] and progress.rates.rate("imu") == pytest.approx(10, abs=1)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("record_format: {streams: [lidar]}\n", ["lidar"]),
        ("record_format: {enabled: true, streams: []}\n", []),
        ("record_format: {enabled: false, streams: [lidar]}\n", None),
    ],
)
def test_session_vrs_is_asked_for_where_the_config_has_it(
    tmp_path: Path, section: str, expected: list[str] | None
) -> None:
    planner = Planner(load(tmp_path, CONFIG + section), lambda: 0)
    _, plan = planner.plan(DesiredState())
    assert plan.record_format == expected


def test_a_device_that_is_read_before_its_streams_are_declared_is_counted() -> None:
    sensor = Sensor(SensorEntry("imu", "xsens", "serial", "/dev/x", {}))
    progress = Progress(*[lambda *_, **__: None] * 3)
    for second in range(4):
        given = {"imu": (100 * second, 1000 * second, None)}
        report = {"event": "stats", "held": 0, "buffer": 0, "given": given}
        sensor.take(report, second * S)
        progress.update_idle(sensor)
    assert progress.rates.rate("imu") == pytest.approx(100.0)
