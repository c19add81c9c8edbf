"""A `recorder serve` in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from recorder.bus.control.client import Client, DaemonError
from tests.support.waiting import PATIENCE_S, wait_until


class Served:
    """A daemon; `start` it as often as it was killed.

    Args:
        folder: the config, the socket, the log and, below ``sessions``, what is recorded.
        config: text of the config file.
    """

    def __init__(self, folder: Path, config: str) -> None:
        self.folder = folder
        self.root = folder / "sessions"
        self.socket = folder / "c.sock"
        self.config = folder / "rig.yaml"
        self.config.write_text(config)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "recorder", "serve", str(self.config)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--socket", str(self.socket)],
                stderr=log,
                env={**os.environ, "STATE_DIRECTORY": str(self.folder / "state")},
            )
        wait_until("the daemon serves", self._answers)

    def _answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log
        try:
            return bool(self.status()["ready"])
        except DaemonError:
            return False

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def status(self) -> Mapping[str, Any]:
        with Client(self.socket) as client:
            return client.status().status

    def request(self, op: str, **values: Any) -> Mapping[str, Any]:
        with Client(self.socket) as client:
            return client.request(op, **values).values

    def samples(self, stream: str) -> int:
        """Samples in the part that is open."""
        status = self.status()
        if status["session"] is None:
            return 0
        sensor = stream.partition("_")[0]
        return int(status["sensors"][sensor]["streams"].get(stream, {}).get("samples") or 0)

    def kill(self) -> None:
        """SIGKILL the daemon alone; its children have to end by themselves."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        assert children
        self.process.kill()
        self.process.wait()
        _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        assert not alive

    def terminate(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
