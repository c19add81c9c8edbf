"""A daemon that is not spared: kills, splits, a full disk, clock steps, starts and stops.

::

    result = Soak(folder, seed=1).run(seconds=120)
    result.wrong
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from recorder.bus.control.client import Client, DaemonError
from tests.soak.accounts import Balance, balance
from tests.soak.memory import Memory, Sample, judge
from tests.support.waiting import wait_until

CONFIG = """\
version: 1
session: {root: sessions, name: soak, autostart: false, split: {minutes: 0.1}}
sensors:
  fast: {driver: tests.soak.counter, source: "count:", rate: 2000, batch: 20}
  wide: {driver: tests.soak.counter, source: "count:", rate: 20, size: 200000}
  slow: {driver: tests.soak.counter, source: "count:", rate: 0.7, required: false}
storage: {min_free_gb: 0.01, buffer_mb: BUFFER, sync_interval_ms: 100}
retention: {gb: GIGABYTES}
"""
BUFFER_MB = 32.0
STREAMS = ("fast", "wide", "slow")
_PROJECT = Path(__file__).resolve().parents[2]


@dataclass
class Result:
    """How a soak ended.

    Attributes:
        done: what was done to the daemon, by kind.
        balance: the accounts of what it recorded.
        memory: of its processes.
    """

    done: Counter[str] = field(default_factory=Counter)
    balance: Balance = field(default_factory=Balance)
    memory: Memory = field(default_factory=Memory)

    @property
    def wrong(self) -> list[str]:
        """All that failed, in sentences; empty where nothing did."""
        return self.balance.wrong + self.memory.wrong


class Soak:
    """See the module.

    Args:
        folder: for everything.
        seed: of what is done, and when.
        keep_gb: the retention; a soak of hours must not fill the disk.
    """

    def __init__(self, folder: Path, seed: int, keep_gb: float = 20.0) -> None:
        self.folder = folder
        self.root = folder / "sessions"
        self._random = random.Random(seed)
        self._world = folder / "world.json"
        self._socket = folder / "c.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._step_s = 0.0
        self._memory: list[Sample] = []
        self.result = Result()
        text = CONFIG.replace("GIGABYTES", str(keep_gb)).replace("BUFFER", str(BUFFER_MB))
        (folder / "rig.yaml").write_text(text)
        self._set_world(None)

    def run(self, seconds: float) -> Result:
        """Soak for so long, then look at everything that was recorded."""
        begin = time.monotonic()
        self._serve()
        try:
            self._ask("start")
            actions = [
                (self._kill, 5),
                (self._step_clock, 2),
                (self._fill_disk, 1),
                (self._stop_and_start, 2),
                (self._mark, 3),
                (self._wait, 6),
            ]
            choices, weights = zip(*actions, strict=True)
            first = [partial(self._kill, "writer"), *choices]  # each, however slow the machine
            for action in self._random.sample(first, len(first)):
                action()
                self._measure(time.monotonic() - begin)
            while time.monotonic() - begin < seconds:
                self._random.choices(choices, weights)[0]()
                self._measure(time.monotonic() - begin)
                time.sleep(self._random.uniform(0.3, 2.0))
            self._set_world(None)
            self._until_recording()
            self._ask("stop")
            self._until("all are closed or recovered", self._all_whole)
        finally:
            self._end()
        self.result.balance = balance(self._sessions(), STREAMS)
        holds_mb = {"writer": BUFFER_MB, **dict.fromkeys(STREAMS, BUFFER_MB)}
        self.result.memory = judge(self._memory, seconds, holds_mb)
        return self.result

    # What is done to it

    def _kill(self, role: str | None = None) -> None:
        if role is not None:
            self._until(f"a {role}", lambda: role in self._processes())
        roles = self._processes()
        role = role or self._random.choice(sorted(roles))
        if role == "daemon" and self._random.random() < 0.5:
            role = "writer"
        if role in roles:
            self._count(f"killed {role}")
            with_daemon = role == "daemon"
            os.kill(roles[role].pid, signal.SIGKILL)
            if with_daemon:
                assert self._process is not None
                self._process.wait()
                self._serve()

    def _step_clock(self) -> None:
        self._count("stepped the clock")
        self._step_s += self._random.choice([-3600.0, -2.5, 0.5, 86400.0])
        self._set_world(None)

    def _fill_disk(self) -> None:
        self._count("filled the disk")
        self._set_world(1_000_000)
        time.sleep(1.5)
        self._set_world(None)
        self._until_recording()

    def _stop_and_start(self) -> None:
        self._count("stopped and started")
        self._until_recording()
        self._ask("stop")
        self._ask("start")

    def _mark(self) -> None:
        self._count("marked")
        with Client(self._socket) as client:
            try:
                client.mark("soak")
            except DaemonError as error:
                assert error.reply is not None, error  # between two sessions there is none to mark

    def _wait(self) -> None:
        time.sleep(self._random.uniform(1.0, 4.0))

    def _count(self, what: str) -> None:
        self.result.done[what] += 1

    # The daemon

    def _set_world(self, free_bytes: int | None) -> None:
        text = json.dumps({"step_s": self._step_s, "free_bytes": free_bytes})
        new = self._world.with_suffix(".new")
        new.write_text(text)
        new.replace(self._world)

    def _serve(self) -> None:
        command = [sys.executable, "-m", "tests.soak.daemon", str(self.folder / "rig.yaml")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--socket", str(self._socket)],
                stderr=log,
                cwd=_PROJECT,
                env={
                    **os.environ,
                    "STATE_DIRECTORY": str(self.folder / "state"),
                    "RECORDER_SOAK": str(self._world),
                },
            )
        self._until("serving", lambda: self._status()["ready"])

    def _status(self) -> dict[str, Any]:
        with Client(self._socket) as client:
            return dict(client.status().status)

    def _ask(self, verb: str) -> None:
        """Start or stop; where something was killed meanwhile, once more."""
        state = {"start": "recording", "stop": "idle"}[verb]

        def asked() -> bool:
            with Client(self._socket) as client:
                if client.status().state == state:
                    return True
                return client.request(verb).state == state

        self._until(f"{verb} has happened", asked)

    def _until_recording(self) -> None:
        def recording() -> bool:
            if self._status()["state"] == "recording":
                return True
            if self._status()["state"] in ("idle", "fault"):
                with Client(self._socket) as client:
                    client.start()
            return False

        self._until("recording", recording)

    def _until(self, what: str, ready: Any) -> None:
        def answered() -> bool:
            try:
                return bool(ready())
            except DaemonError:
                assert self._process is not None and self._process.poll() is None, self._log()
                return False

        wait_until(lambda: f"{what}\n{self._log()}", answered)

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def _processes(self) -> dict[str, psutil.Process]:
        assert self._process is not None
        daemon = psutil.Process(self._process.pid)
        found = {"daemon": daemon}
        for child in daemon.children():
            try:
                command = child.cmdline()
            except psutil.Error:
                continue
            if "tests.soak.writer" in command:
                found["writer"] = child
            elif "tests.soak.counter" in command:
                found[f"driver-{len(found)}"] = child
        return found

    def _measure(self, at_s: float) -> None:
        try:
            sensors = {s["pid"]: name for name, s in self._status()["sensors"].items()}
        except DaemonError:  # it was killed just now
            return
        for role, process in self._processes().items():
            name = sensors.get(process.pid, role)
            try:
                memory = process.memory_info().rss
                age_s = time.time() - process.create_time()
            except psutil.Error:
                continue
            if not name.startswith("driver-"):  # one that the daemon does not know of any more
                self._memory.append(Sample(at_s, name, age_s, memory / 1e6))

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(90)

    def _all_whole(self) -> bool:
        headers = [path / "_recorder/session.json" for path in self._sessions()]
        states = {json.loads(header.read_bytes())["state"] for header in headers}
        return states <= {"clean", "recovered"}

    def _sessions(self) -> list[Path]:
        found = [p.parents[1] for p in self.root.glob("*/_recorder/session.json")]
        return sorted(found, key=lambda path: path.stat().st_ino)
