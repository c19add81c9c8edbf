"""What processes print: one line at a time, cleaned, bounded, and logged with its level."""

from __future__ import annotations

import io
import json
import queue
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import binary, integers, lists

from recorder.recording.logs import Log
from recorder.recording.supervisor.child_output import (
    BURST,
    LAST,
    LONGEST,
    PER_S,
    ChildOutput,
    clean,
)
from recorder.recording.supervisor.children import Child, Event
from recorder.recording.supervisor.progress import LossWatch
from tests.manual_clock import ManualClock
from tests.recording.daemon.fakes import Vehicle

S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[1;31mred\x1b[0m\x07 \x00text", "red text"),
        ("\x1b]0;title\x07in a\ttab", "in a tab"),
        ("\x9b31m\u202eback\u2028line", "31mback line"),
        ('  File "x.py", line 1', '  File "x.py", line 1'),
        ("x" * (LONGEST + 1), "x" * LONGEST + " ..."),
    ],
)
def test_a_line_can_be_shown(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(lists(binary(max_size=200), max_size=20), integers(0, 3))
def test_no_bytes_reach_a_log_that_a_terminal_would_obey(chunks: list[bytes], step: int) -> None:
    printed = ChildOutput()
    lines = [line for n, chunk in enumerate(chunks) for line in printed.feed(chunk, n * step)]
    for line in lines + printed.tick(1000.0) + printed.end(failed=True):
        assert line.isprintable() and 0 < len(line) <= LONGEST + 4


def test_however_bytes_arrive_the_lines_are_the_same() -> None:
    text = b"one\ntwo\r\n\n10%\r100%\r\nlast \xe2\x82\xac"
    whole, single = ChildOutput(), ChildOutput()
    expected = whole.feed(text, 0.0) + whole.end(failed=True)
    assert expected == ["one", "two", "10%", "100%", "last \N{EURO SIGN}"]
    parts = [line for i in range(len(text)) for line in single.feed(text[i : i + 1], 0.0)]
    assert parts + single.end(failed=True) == expected
    assert single.last == expected[-1]


def test_passwords_are_masked_before_anybody_has_the_line() -> None:
    assert ChildOutput().feed(b"rtsp://me:secret@10.0.0.1/x refused\n", 0.0) == [
        "rtsp://me:***@10.0.0.1/x refused"
    ]


def test_a_flood_is_counted_and_its_end_is_kept() -> None:
    printed, passed, sent = ChildOutput(), list[str](), 0
    for step in range(3000):  # 30 s
        chunk = b"".join(b"line %d\n" % n for n in range(sent, sent + 20))
        sent += 20
        passed += printed.feed(chunk, step / 100) + printed.tick(step / 100)
    passed += printed.feed(b"Traceback\n  File x\nValueError: broken\n", 30.0)
    assert len(passed) <= BURST + 30 * PER_S + 2
    ended = printed.end(failed=True)
    assert len(ended) <= LAST + 1
    whole = passed + ended
    assert whole[-3:] == ["Traceback", "  File x", "ValueError: broken"]
    left_out = sum(int(line.split()[0]) for line in whole if line.endswith("left out"))
    assert left_out + sum(not line.endswith("left out") for line in whole) == sent + 3


def test_what_was_left_out_is_told_when_it_is_quiet_again() -> None:
    printed = ChildOutput()
    passed = printed.feed(b"x\n" * (BURST + 5), 0.0)
    assert passed == ["x"] * BURST
    assert printed.tick(1.0) == []
    assert printed.tick(20.0) == ["5 more lines left out"] and printed.tick(40.0) == []
    assert printed.feed(b"y\n", 41.0) == ["y"] and printed.end(failed=True) == []
    printed.feed(b"x\n" * BURST, 41.0)
    assert printed.feed(b"x\n" * 5, 41.0) == []
    assert printed.end(failed=False)[0].endswith("more lines left out")


def test_a_line_without_an_end_takes_no_memory() -> None:
    printed = ChildOutput()
    tracemalloc.start()
    try:
        for _ in range(100):
            assert printed.feed(b"x" * 65536, 0.0) == []
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    assert printed.end(failed=True) == ["x" * LONGEST + " ..."]


def reported(code: str) -> tuple[list[dict[str, Any]], Child]:
    """What a child that runs this code reports, from its start to its end."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    child = Child("x", [sys.executable, "-c", code], events, lambda: None)
    reports: list[dict[str, Any]] = []
    while not reports or reports[-1]["event"] != "exit":
        reports.append(events.get(timeout=60.0)[1])
    child.end(0.0)
    return reports, child


def test_a_driver_that_floods_its_stderr_is_not_held_up_and_its_traceback_is_there() -> None:
    code = (
        "import sys\n"
        "for n in range(60_000): sys.stderr.write(f'warning {n}\\n')\n"
        "raise ValueError('the lens cap is on')\n"
    )
    reports, _ = reported(code)
    lines = [report["line"] for report in reports if report["event"] == "printed"]
    assert BURST < len(lines) < 1000
    assert lines[-1] == "ValueError: the lens cap is on"
    assert any(line.startswith("Traceback") for line in lines[-LAST:])
    assert reports[-1] == {"event": "exit", "code": 1, "last": lines[-1]}


def test_the_end_of_a_driver_is_seen_although_its_own_child_holds_the_pipes() -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, file=sys.stderr)\n"
    )
    reports, child = reported(code)
    assert [report["event"] for report in reports] == ["printed", "exit"]
    assert not child._thread.is_alive()
    subprocess.run(["kill", reports[0]["line"]], check=True)


def test_it_is_logged_with_the_name_of_the_sensor(recording: Vehicle) -> None:
    recording.children["cam"].report("printed", line="no frame for 2 s")
    recording.children[""].report("printed", line="ValueError: x")
    recording.run(0.5)
    assert recording.lines.levels["cam: no frame for 2 s"] == "info"
    assert recording.lines.levels["writer: ValueError: x"] == "warning"
    recording.children["cam"].report("printed", line="cam: dark")  # it named itself
    recording.run(0.2)
    assert "cam: dark" in recording.lines and "cam: cam: dark" not in recording.lines
    recording.children["cam"].report("printed", line="the last word")
    recording.running.supervisor.shutdown()
    assert "cam: the last word" in recording.lines


def test_a_driver_that_dies_says_why(recording: Vehicle) -> None:
    recording.children["cam"].alive = False
    recording.children["cam"].report("exit", code=1, last="ValueError: the lens cap is on")
    recording.run(0.3)
    (line,) = [line for line in recording.lines if "lens cap" in line]
    assert line.startswith("cam: driver ended with code 1: ValueError: the lens cap is on; start")


def test_faults_are_errors_and_what_is_absent_is_a_warning(recording: Vehicle) -> None:
    levels = recording.lines.levels
    recording.children["lidar"].report("device", state="lost", message="lidar: unplugged")
    recording.children["cam"].report("fault", message="cam: its file is damaged", exit_code=1)
    recording.run(0.3)
    recording.children["lidar"].report("device", state="present", message="lidar: there again")
    recording.children["cam"].die()
    recording.children[""].die()
    recording.run(0.3)
    assert levels["lidar: unplugged"] == "warning"
    assert levels["lidar: there again"] == "info"
    assert levels["cam: its file is damaged"] == "error"
    (ended,) = [
        line for line in recording.lines if line.startswith("cam: driver ended with code -9")
    ]
    assert levels[ended] == "error"
    assert levels["writer ended with code -9; starting another"] == "error"
    assert levels[f"recording {recording.writer.session}"] == "info"


def test_losses_and_slow_streams_are_warnings_and_a_stalled_disk_an_error(
    recording: Vehicle,
) -> None:
    recording.writer.frozen["cam"] = recording.writer.streams()["cam"] | {"lost": {"refused": 7}}
    recording.writer.uncommitted_s = 6.0
    recording.run(6.0)
    levels = recording.lines.levels
    assert levels["cam: lost 7 samples (refused)"] == "warning"
    assert levels["disk: nothing was committed for 6 s, though samples wait"] == "error"
    (slow,) = [line for line in recording.lines if "is below" in line]
    assert levels[slow] == "warning"


def test_losses_are_told_once_and_what_goes_on_now_and_then() -> None:
    watch, now_ns = LossWatch(), 0

    def update(**lost: int) -> list[tuple[str, str]]:
        intervals = lost.pop("intervals", 0)
        return watch.update(now_ns, {"imu": {"lost": lost, "unknown_losses": intervals}})

    assert update() == []
    assert update(refused=1) == [("imu", "lost 1 sample (refused)")]
    assert update(refused=9) == []
    now_ns += 10 * S - 1
    assert update(refused=9) == []
    now_ns += 1
    assert update(refused=9, device=2, intervals=1) == [
        ("imu", "lost 8 samples (refused), 2 samples (device), 1 interval of unknown count")
    ]
    now_ns += 10 * S
    assert update(refused=9, device=2, intervals=1) == []
    assert update(refused=3) == [("imu", "lost 3 samples (refused)")]  # a new part
    watch.reset()
    assert update(refused=3) == [("imu", "lost 3 samples (refused)")]


def test_incomplete_samples_are_told_apart_from_losses() -> None:
    watch = LossWatch()
    holes = {"network": {"samples": 1, "parts": 16}}
    account: dict[str, Any] = {"lost": {}, "unknown_losses": 0, "incomplete": holes}
    assert watch.update(0, {"lidar": account}) == [("lidar", "1 incomplete sample (network)")]
    assert watch.update(10 * S, {"lidar": account}) == []
    holes |= {"network": {"samples": 4, "parts": 64}, "corrupt": {"samples": 2, "parts": 2}}
    account["lost"] = {"network": 5}
    text = "lost 5 samples (network), 3 incomplete samples (network), "
    assert watch.update(20 * S, {"lidar": account}) == [
        ("lidar", text + "2 incomplete samples (corrupt)")
    ]


def test_under_journald_json_has_its_priority_too() -> None:
    stream = io.StringIO()
    log = Log(stream, form="json", clock=ManualClock(), journald=True)
    for level in ("error", "warning", "info"):
        log.say("a\nb", level)
    lines = stream.getvalue().splitlines()
    assert [line[:3] for line in lines] == ["<3>", "<4>", "<6>"]
    assert [json.loads(line[3:])["level"] for line in lines] == ["error", "warning", "info"]


def test_an_interrupt_of_the_terminal_is_the_supervisor_s_alone() -> None:
    reports, _ = reported("import os; print(os.getpgrp() == os.getpid(), file=os.sys.stderr)")
    assert reports[0]["line"] == "True"


def test_a_child_that_cannot_be_watched_is_not_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []

    def no_descriptor(pid: int) -> int:
        started.append(pid)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("os.pidfd_open", no_descriptor)
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(OSError, match="Too many"):
        Child("x", command, queue.SimpleQueue(), lambda: None)
    assert not Path(f"/proc/{started[0]}").exists()
