"""The live process: a child that may die at any time, and nothing depends on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psutil
import pytest

from recorder.config.settings import plain_settings
from recorder.recording import preflight
from recorder.recording.daemon.daemon import Sidecars
from recorder.recording.supervisor import sidecar_process
from recorder.recording.supervisor.process_table import LIVE, VIEW_RESTART, ProcessSpec
from recorder.recording.supervisor.sidecar_process import SidecarProcess, live_request
from tests.config.configs import load
from tests.manual_clock import ManualClock
from tests.recording.daemon.fakes import CONFIG, FakeChild, Said, vehicle
from tests.support.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parents[3]
URL = "http://127.0.0.1:1/"


class Bench:
    """A live process on a made-up clock, whose children are made up unless a module is named."""

    def __init__(self) -> None:
        self.clock = ManualClock(monotonic_ns=10**12)
        self.said = Said()
        self.children: list[FakeChild] = []

    def fake(self) -> SidecarProcess:
        return SidecarProcess(LIVE, {}, self.clock, self.said.say, spawn=self._spawn)

    def real(self, **request: Any) -> SidecarProcess:
        request = {"socket": "/run/c.sock"} | request
        spec = ProcessSpec("live", "tests.recording.daemon.live_child", restart=VIEW_RESTART)
        return SidecarProcess(spec, request, self.clock, self.said.say)

    def _spawn(self, *args: Any, **more: Any) -> Any:
        self.children.append(FakeChild(*args, **more))
        return self.children[-1]

    def until(self, live: SidecarProcess, ready: Callable[[], Any]) -> None:
        def turned() -> Any:
            live.turn(self.clock.monotonic_ns())
            return ready()

        wait_until("the live process", turned)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for the stand-in
    yield Bench()


def test_it_gets_its_request_gives_way_and_names_its_address(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sidecar_process, "_END_S", PATIENCE_S
    )  # it gives way to all that runs beside
    with bench.real(lines=["not a GET /?token=s3cret"]) as live:
        assert live.status() == {"url": None, "pid": None, "restarts": 0, "fault": None}
        bench.until(live, lambda: live.url)
        assert live.child is not None and live.status()["pid"] == live.child.process.pid
        assert live.status() == live.status() | {"url": URL, "restarts": 0, "fault": None}
        process = live.child.process
    assert process.returncode == 0
    facts, request, *more = [line for line in bench.said if URL not in line]
    assert len(bench.said) == 4 and more == ["live: a line without an end"]
    assert json.loads(facts.removeprefix("live: ")) == {
        "nice": 19,
        "oom": 500,
        "policy": os.SCHED_BATCH,
        "socket": "/run/c.sock",
    }
    assert request == "live: not a GET /?token=***"


def test_one_that_ignores_sigterm_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar_process, "_END_S", 0.05)
    with bench.real(stubborn=True) as live:
        bench.until(live, lambda: live.url)
        assert live.child is not None
        process = live.child.process
    assert process.returncode == -9


def test_its_last_words_are_its_fault_and_it_is_started_again(bench: Bench) -> None:
    with bench.real(code=2, lines=["port 8377 is taken"]) as live:
        bench.until(live, lambda: live.fault)
        assert live.fault == "ended with code 2: port 8377 is taken"
        bench.clock.advance(VIEW_RESTART.backoff_s[0])
        bench.until(live, lambda: live.restarts == 1)
        bench.until(live, lambda: live.status()["pid"] is None)
    # Said once, although it has happened twice.
    assert bench.said.count("live: port 8377 is taken") == 1
    (line,) = [line for line in bench.said if "ended" in line]
    assert bench.said.levels[line] == "warning"


def test_pauses_grow_and_a_steady_life_ends_that(bench: Bench) -> None:
    live = bench.fake()
    pauses = []
    for _ in range(len(VIEW_RESTART.backoff_s) + 2):
        live.turn(bench.clock.monotonic_ns())
        bench.children[-1].die(1)
        began_ns, starts = bench.clock.monotonic_ns(), len(bench.children)
        while len(bench.children) == starts:
            live.turn(bench.clock.monotonic_ns())
            bench.clock.advance(0.05)
        pauses.append((bench.clock.monotonic_ns() - began_ns) / 1e9)
    assert pauses == pytest.approx(
        [*VIEW_RESTART.backoff_s, VIEW_RESTART.backoff_s[-1], VIEW_RESTART.backoff_s[-1]], abs=0.2
    )
    bench.clock.advance(100.0)
    bench.children[-1].die(1)
    live.turn(bench.clock.monotonic_ns())
    bench.clock.advance(VIEW_RESTART.backoff_s[0])
    starts = len(bench.children)
    live.turn(bench.clock.monotonic_ns())
    assert len(bench.children) == starts + 1 == live.restarts + 1


def test_no_process_to_be_had_is_a_death_like_any_other(bench: Bench) -> None:
    def spawn(*_: Any, **__: Any) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    live = SidecarProcess(LIVE, {}, bench.clock, bench.said.say, spawn=spawn)
    live.turn(bench.clock.monotonic_ns())
    assert live.fault == "cannot be started: Resource temporarily unavailable"
    live.close()


def test_without_the_extra_that_is_said_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "LIVE_MODULES", ("json", "no_such_web_server"))
    live = bench.fake()
    for _ in range(100):
        live.turn(bench.clock.monotonic_ns())
        bench.clock.advance(10.0)
    assert bench.children == [] and len(bench.said) == 1
    assert "no_such_web_server" in bench.said[0] and "needs the extra live" in bench.said[0]
    assert live.fault is not None and live.status()["restarts"] == 0
    live.close()


def test_a_dead_viewer_is_no_fault_of_the_recording(tmp_path: Path) -> None:
    bench = Bench()
    with vehicle(tmp_path) as rig:
        daemon = rig.daemon()
        live = bench.fake()
        with Sidecars(daemon, NoLog(), NoClocks(), live):  # type: ignore[arg-type]
            rig.run(1)
            bench.children[0].report("listening", url=URL)
            rig.run(1)
            assert rig.ask("status")["status"]["live"]["url"] == URL
            bench.children[0].die(-9)
            rig.run(0.1)
            status = rig.ask("start")["status"]
            assert status["live"]["fault"] == "ended with code -9"
            assert status["healthy"] and status["state"] == "recording"
        assert not bench.children[-1].alive


def test_without_the_section_there_is_none(tmp_path: Path) -> None:
    with vehicle(tmp_path) as rig:
        rig.daemon()
        assert rig.ask("status")["status"]["live"] is None


def test_what_it_has_to_know(tmp_path: Path) -> None:
    (tmp_path / "calibration.yaml").write_text("sensors: {}\n")
    text = CONFIG + "live: {port: 1, token: s3cret-s3cret-s3cret}\ncalibration: calibration.yaml\n"
    config = load(tmp_path, text)
    assert config.live is not None
    request = live_request(config, config.live, tmp_path / "c.sock")
    assert json.loads(json.dumps(request)) == {
        "socket": str(tmp_path / "c.sock"),
        "live": json.loads(json.dumps(plain_settings(config.live))),
        "root": str(tmp_path / "sessions"),
        "calibration": str(tmp_path / "calibration.yaml"),
    }
    assert request["live"]["token"] == "s3cret-s3cret-s3cret"
    assert live_request(config, config.live, tmp_path, tmp_path)["root"] == str(tmp_path)


class NoLog:
    """A log that follows no session."""

    def follow(self, session: Path | None) -> None:
        pass


class NoClocks:
    """No record of the clocks."""

    last = None

    def tick(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_background_process_dies_with_its_parent() -> None:
    code = (
        "import os, signal, subprocess\n"
        "from recorder.recording.supervisor.process_table import background_command\n"
        "words, pipe = background_command(['tests.recording.daemon.live_child']), subprocess.PIPE\n"
        "child = subprocess.Popen(words, stdin=pipe, stdout=pipe)\n"
        'child.stdin.write(b\'{"socket": "x"}\')\n'
        "child.stdin.close()\n"
        "assert child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "input()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=PIPE, stdout=PIPE
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.communicate(b"\n")
        assert parent.wait(60) == -signal.SIGKILL
    child.wait(60)
