"""Logs: for people, for programs, for journald, and in the session."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from recorder.recording.logs import Log, under_journald
from tests.manual_clock import ManualClock


@pytest.fixture
def session(tmp_path: Path) -> Path:
    (tmp_path / "a" / "_recorder").mkdir(parents=True)
    return tmp_path / "a"


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_text_is_the_message_alone() -> None:
    stream = io.StringIO()
    Log(stream, form="text", clock=ManualClock()).say("imu: absent", "warning")
    assert stream.getvalue() == "imu: absent\n"


def test_json_lines() -> None:
    stream = io.StringIO()
    log = Log(stream, form="json", clock=ManualClock(realtime_ns=1_700_000_000_123_456_789))
    log.say("a\nb", "error", sensor="imu")
    assert json.loads(stream.getvalue()) == {
        "t": "2023-11-14T22:13:20.123456Z",
        "level": "error",
        "message": "a\nb",
        "sensor": "imu",
    }
    assert stream.getvalue().count("\n") == 1


def test_journald_gets_the_priority_and_one_line() -> None:
    stream = io.StringIO()
    log = Log(stream, form="text", clock=ManualClock(), journald=True)
    for level in ("error", "warning", "info"):
        log.say("a\nb", level)
    assert stream.getvalue() == "<3>a b\n<4>a b\n<6>a b\n"


def test_whether_a_stream_is_journalds(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as file:
        there = os.fstat(file.fileno())
        named = {"JOURNAL_STREAM": f"{there.st_dev}:{there.st_ino}"}
        assert under_journald(file, named) and not under_journald(file, {})
    assert not under_journald(io.StringIO(), named)


def test_passwords_are_masked(session: Path) -> None:
    stream = io.StringIO()
    with Log(stream, form="json", clock=ManualClock()) as log:
        log.follow(session)
        log.say("rtsp://me:secret@10.0.0.1/x does not answer")
    assert "secret" not in stream.getvalue()
    assert "secret" not in (session / "_recorder" / "recorder.log").read_text()


def test_a_session_holds_what_was_said_during_it(session: Path) -> None:
    log = Log(io.StringIO(), form="text", clock=ManualClock())
    log.say("before")
    log.follow(session)
    log.say("during", "warning", pid=7)
    log.follow(None)
    log.say("after")
    (entry,) = entries(session / "_recorder" / "recorder.log")
    assert (entry["message"], entry["level"], entry["pid"]) == ("during", "warning", 7)
    assert (session / "_recorder" / "recorder.log").stat().st_mode & 0o777 == 0o640


def test_a_long_log_is_rotated(session: Path) -> None:
    with Log(io.StringIO(), form="text", clock=ManualClock(), most_bytes=1000) as log:
        log.follow(session)
        for number in range(100):
            log.say(f"line {number}")
    names = sorted(path.name for path in (session / "_recorder").iterdir())
    assert names == ["recorder.log", "recorder.log.1", "recorder.log.2", "recorder.log.3"]
    kept = [
        entry["message"]
        for name in ["recorder.log.3", "recorder.log.2", "recorder.log.1", "recorder.log"]
        for entry in entries(session / "_recorder" / name)
    ]
    assert kept == [f"line {n}" for n in range(100 - len(kept), 100)] and len(kept) > 20


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    stream = io.StringIO()
    with Log(stream, form="text", clock=ManualClock()) as log:
        log.follow(tmp_path / "gone")
        log.say("still here")
        stream.close()
        log.say("and here")


def test_threads_do_not_mix_lines(session: Path) -> None:
    with Log(io.StringIO(), form="json", clock=ManualClock()) as log:
        log.follow(session)

        def talk(n: int) -> None:
            for _ in range(50):
                log.say("x" * 200, n=n)

        threads = [threading.Thread(target=talk, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(entries(session / "_recorder" / "recorder.log")) == 200


def test_a_line_is_written_by_one_thread_at_a_time(session: Path) -> None:
    """Whoever writes holds the log's lock, to the stream as to the session's file."""
    held: list[bool] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            held.append(log._lock.locked())
            return super().write(text)

    log = Log(Stream(), form="text", clock=ManualClock())
    log.say("a")
    log.follow(session)
    log.say("b")
    log.close()
    assert held == [True, True] and not log._lock.locked()
