"""Sessions with every kind of fault, recorded by a real daemon that is not spared.

The daemon's writer is the soak's, whose disk and calendar clock a test disturbs through a file
(`tests.soak.writer`).  Drivers and processes are stopped and killed by signals.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.drivers.xsens.xsens_logs import log
from tests.recording.daemon.served import Served
from tests.support.waiting import wait_until
from tests.viewers.report.index_rig import HOSTILE

WIDE_HZ, WIDE_BYTES = 20, 200_000
NOW = "fail-now"
"""The devices fail when this file, beside the config, is not empty any more."""
CONFIG = f"""
version: 1
session: {{root: sessions, metadata: {{vehicle: {json.dumps(HOSTILE)}}}}}
sensors:
  good: {{driver: tests.soak.counter, source: "count:", rate: 100, batch: 2}}
  wide: {{driver: tests.soak.counter, source: "count:", rate: {WIDE_HZ}, size: {WIDE_BYTES}}}
  missing: {{driver: xsens, source: "serial:/dev/recorder/no-such-imu"}}
  hung: {{driver: tests.browser.failing_driver, source: "live:", fault: hangs, when: {NOW}}}
  shaky: {{driver: tests.browser.failing_driver, source: "live:", fault: jumps, when: {NOW}}}
  wireless: {{driver: tests.browser.failing_driver, source: "live:", fault: loses, when: {NOW},
    maker: {json.dumps(HOSTILE)}}}
  worn: {{driver: xsens, source: "file:worn.bin", rate: 100}}
storage: {{min_free_gb: 0.01, buffer_mb: 4, sync_interval_ms: 50}}
record_format: {{enabled: true, streams: []}}
report: true
"""
FAULTS, KILLED = "faults", "killed"


class Faulty(Served):
    """A daemon whose sessions have every kind of fault::

        faulty = Faulty(folder)
        faulty.record()
        faulty.root / "faults", faulty.root / "killed"

    Attributes:
        world: the file that says what the writer's disk and calendar clock are like.
    """

    def __init__(self, folder: Path) -> None:
        messages = log(400)
        damaged = bytearray(messages[30])
        damaged[11] ^= 1  # its checksum does not match any more
        (folder / "worn.bin").write_bytes(b"".join([*messages[:30], damaged, *messages[31:]]))
        (folder / NOW).touch()
        super().__init__(folder, CONFIG)
        self.world = folder / "world.json"

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.soak.daemon", str(self.config)]
        environment = {"STATE_DIRECTORY": str(self.folder / "state"), "RECORDER_SOAK": self.world}
        self._set_world()
        with (self.folder / "log").open("ab") as said:
            self.process = subprocess.Popen(
                [*command, "--socket", str(self.socket)],
                stderr=said,
                env={**os.environ, **{key: str(value) for key, value in environment.items()}},
            )
        wait_until("the daemon serves", self._answers)

    def record(self) -> None:
        """Record both sessions; the daemon makes the report of the first."""
        try:
            self.start()
            self.request("start", name=FAULTS, meta={"notes": HOSTILE})
            self._until_samples("good", 20)
            for stream in ("hung", "shaky", "wireless"):
                self._until_samples(stream, 2)
            (self.folder / NOW).write_text("now")
            self.request("mark", text=HOSTILE)
            self._until_samples("good", 60)
            self._refuse()
            self._kill_driver()
            self._kill_writer()
            self._until_event(lambda e: (e["type"], e["cause"]) == ("fault", "hung"))
            self._set_world(step_s=2.5)
            self._until_event(lambda e: (e["type"], e["cause"]) == ("clock", "step"))
            self._set_world(step_s=2.5, free_bytes=1_000_000)
            wait_until("the disk's floor ends the session", lambda: self._state() != "recording")
            self.request("stop")
            self._set_world(step_s=2.5)
            wait_until("the daemon's report", (self.root / FAULTS / "report.html").is_file)
            wait_until("the daemon's index", (self.root / "index.html").is_file)
            self.request("start", name=KILLED)
            self._until_samples("good", 20)
            self.kill()
        finally:
            self.close()

    def _refuse(self) -> None:
        """Stop the writer until a full ring has refused samples.

        As often as that takes: the status may tell of a ring that was full before the stop.
        """

        def refused() -> bool:
            writer = self._child("tests.soak.writer")
            writer.suspend()
            try:
                wait_until("a full ring", self._ring_is_full)
                time.sleep(4 / WIDE_HZ)
            finally:
                writer.resume()
            wait_until("room in the ring", lambda: not self._ring_is_full())
            return bool(self._lost("wide").get("refused"))

        wait_until("refused samples are counted", refused)

    def _ring_is_full(self) -> bool:
        wide = self.status()["sensors"]["wide"]
        return bool(wide["ring_size_bytes"] - wide["ring_held_bytes"] < WIDE_BYTES)

    def _kill_driver(self) -> None:
        before = self._pid("good")
        os.kill(before, signal.SIGKILL)
        wait_until("another driver", lambda: self._pid("good") not in (None, before))
        self._until_samples("good", self.samples("good") + 20)

    def _kill_writer(self) -> None:
        self._child("tests.soak.writer").kill()
        self._until_event(lambda e: (e["type"], e["cause"]) == ("writer", "restarted"))

    def _set_world(self, **values: Any) -> None:
        new = self.world.with_suffix(".new")
        new.write_text(json.dumps({"step_s": 0.0, "free_bytes": None} | values))
        new.replace(self.world)

    def _child(self, module: str) -> psutil.Process:
        assert self.process is not None
        found = [c for c in psutil.Process(self.process.pid).children() if module in c.cmdline()]
        (child,) = found
        return child

    def _state(self) -> str:
        return str(self.status()["state"])

    def _pid(self, sensor: str) -> Any:
        return self.status()["sensors"][sensor]["pid"]

    def _lost(self, sensor: str) -> dict[str, int]:
        return dict(self.status()["sensors"][sensor]["streams"][sensor]["lost"])

    def _until_samples(self, stream: str, count: int) -> None:
        wait_until(f"{count} samples of {stream}", lambda: self.samples(stream) >= count)

    def _until_event(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        path = self.root / FAULTS / "_recorder" / "events.jsonl"

        def seen() -> bool:
            whole = path.read_bytes().rpartition(b"\n")[0].splitlines()
            return any(map(wanted, map(json.loads, whole)))

        wait_until("the event", seen)
