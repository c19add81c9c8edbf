"""A `recorder run` in processes of its own, which can be killed."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

PROJECT = Path(__file__).resolve().parents[1]
PATIENCE_S = 120.0


class Recording:
    """A `recorder run` whose processes can be killed.

    Args:
        config: its sessions lie in ``sessions`` beside it.
        name: of the session.
        seconds: its duration.
        stream: the load is on when this stream is on disk.
        before: words of another command that runs it.
    """

    def __init__(
        self, config: Path, name: str, seconds: float, stream: str, before: Sequence[str] = ()
    ) -> None:
        self.path = config.parent / "sessions" / name
        self._stream = stream
        command = [*before, sys.executable, "-m", "recorder", "run", str(config), "--name", name]
        self.process = subprocess.Popen(
            [*command, "--duration", str(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
        )

    def wait_for_samples(self) -> None:
        """Wait until the load is on.

        Raises:
            AssertionError: it ended before, with what it said.
        """
        while not (self.path / self._stream / "ts").exists():
            if self.process.poll() is not None:
                code, stderr = self.finish()
                raise AssertionError(f"ended with {code} before there were samples: {stderr}")
            time.sleep(0.02)

    def kill_at_random(
        self, seed: int, is_victim: Callable[[str], bool], kills: int, within_s: float = 0.6
    ) -> int:
        """Kill so many victims at seeded times once samples are on disk; returns how many."""
        rng = random.Random(seed)
        done = 0
        self.wait_for_samples()
        for _ in range(kills):
            time.sleep(rng.uniform(0.05, within_s))
            victims = [p for p in self.children() if is_victim(_command_line(p))]
            if victims:
                victim = rng.choice(sorted(victims, key=_command_line))
                with contextlib.suppress(psutil.NoSuchProcess):  # ended by itself just now
                    victim.send_signal(signal.SIGKILL)
                    done += 1
        return done

    def kill_all(self, seed: int, within_s: float) -> None:
        """Kill every process of it, in seeded order, at a seeded time."""
        rng = random.Random(seed)
        self.wait_for_samples()
        time.sleep(rng.uniform(0.0, within_s))
        processes = [*self.children(), psutil.Process(self.process.pid)]
        rng.shuffle(processes)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)

    def kill_supervisor(self, seed: int, within_s: float) -> None:
        """Kill the command itself; its children die with it."""
        self.wait_for_samples()
        time.sleep(random.Random(seed).uniform(0.0, within_s))
        children = self.children()
        self.process.kill()
        _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        assert not alive

    def children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def finish(self) -> tuple[int, str]:
        """Wait for its end: exit code and stderr."""
        _, stderr = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, stderr


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""
