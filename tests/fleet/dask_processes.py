"""A Dask scheduler and its workers, in processes of their own, as `dask scheduler` starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.fleet.servers import free_ports
from tests.support.waiting import wait_until

_SETTINGS = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "10",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "10s",
    "OPENBLAS_NUM_THREADS": "1",
}


class DaskProcesses:
    """Real processes, which can be killed.

    Args:
        folder: for logs and scratch.
        environment: of the workers: the keys of the store.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._environment = {**os.environ, **_SETTINGS, **environment}
        (self._port,) = free_ports(1)
        self.address = f"dask://127.0.0.1:{self._port}"
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_scheduler(self) -> None:
        self.scheduler = self._run(
            "dask_scheduler", "--host", "127.0.0.1", "--port", str(self._port), "--no-dashboard"
        )
        wait_until("the scheduler", lambda: f"127.0.0.1:{self._port}" in self.log)

    def start_worker(self) -> None:
        number = len(self.workers)
        self.workers.append(
            self._run(
                *("dask_worker", f"tcp://127.0.0.1:{self._port}", "--nthreads", "1", "--no-nanny"),
                *("--no-dashboard", "--local-directory", str(self.folder / f"scratch-{number}")),
                *("--name", f"worker-{number}"),
            )
        )

    def _run(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", *arguments],
                stdout=log, stderr=log, env=self._environment, cwd=self.folder,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def kill_worker(self, number: int) -> None:
        """The worker of that number, if it lives; another takes its place."""
        process = self.workers[number]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.start_worker()

    def kill_scheduler(self) -> None:
        assert self.scheduler is not None
        self.scheduler.send_signal(signal.SIGKILL)
        self.scheduler.wait()

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            if process is not None:
                process.kill()
                process.wait()
