"""Queue of the work after recordings: one process at a time, at idle priority.

The sessions' folders show which steps are due (`recorder.recording.postprocessing.steps`), so the
queue survives the daemon::

    queue = Finalizing(root, clock, say, available)
    while recording:
        queue.turn(live=session)
    queue.stop()
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from recorder.archives.base import available
from recorder.common.clock import Clock
from recorder.common.errors import RecorderError
from recorder.config.loading import Config
from recorder.recording.logs import ERROR, WARNING, LogLine
from recorder.recording.postprocessing.steps import RECOVER, Due, Step, find_due, record_result
from recorder.recording.root_lock import RootLock
from recorder.recording.supervisor.process_table import background_command
from recorder.session.discovery import describe_outside_link, find_sessions
from recorder.session.layout import private
from recorder.session.lock import record_seal

SCAN_S = 60.0
RETRY_S = (60.0, 600.0)
HUNG_S = 1800.0
"""Time without use of the processor after which a process hangs and is ended, s."""
_END_S = 10.0
_LOOKS = 3
_LOOK_S = 10.0
_LONGEST = 500


class Chore:
    """Process of a step, with background priority."""

    def __init__(self, command: Sequence[str]) -> None:
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed in `end`
        self._process = subprocess.Popen(
            background_command(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
        )

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        return self._process.poll()

    def problem(self) -> str:
        """Return the last line of its standard error."""
        code = self._process.returncode
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - 4096))
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:_LONGEST] if lines else f"ended with code {code}"

    def used_s(self) -> float:
        """Return the processor time used so far, in seconds."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            return 0.0
        ticks = stat.rpartition(")")[2].split()[11:15]  # proc(5): user, system, children
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End the process, in bounded time."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._said.close()


class Finalizing:
    """Queue of the work after recordings; see the module's example.

    Args:
        root: folder of sessions.
        clock: injectable.
        say: logs one line for users.
        available: archives that this installation can pack.
        spawn: starts a process; injectable.
        redact: the config whose programs redact the pictures of archives.  The programs in a
            session's own config are never run: a user who can write a session could run any
            program.

    Attributes:
        current: session and step of the running process; None without one.
        finished: count of completed steps.
    """

    def __init__(
        self,
        root: Path,
        clock: Clock,
        say: LogLine,
        available: frozenset[str],
        spawn: Callable[[Sequence[str]], Chore] = Chore,
        redact: Path | None = None,
    ) -> None:
        self._root = root
        self._clock = clock
        self._say = say
        self._available = available
        self._spawn, self._redact = spawn, redact
        self._done: set[Path] = set()  # these have no step left
        self._unseen: deque[Path] = deque()
        self._due: dict[Path, Due] = {}
        self._not_before: dict[Path, int] = {}
        self._tries: dict[Path, int] = {}
        self._sealed: dict[Path, str] = {}
        self._process: Chore | None = None
        self.current: tuple[Path, Step] | None = None
        self._scan_at_ns = self._look_at_ns = self._used_at_ns = 0
        self._used_s = 0.0
        self.finished = 0

    def is_unfinished(self, session: Path) -> bool:
        """Return whether a session has, or may have, steps left that must precede its deletion."""
        due = find_due(session, self._available)
        return due is None or not due.deletable

    def hurry(self) -> None:
        """Search for closed sessions at the next turn."""
        self._scan_at_ns = 0

    def note_seal(self, session: Path, reason: str) -> None:
        """Remember a session's disk failure for its recovery; the disk may not have stored it."""
        self._sealed[session] = reason

    def look_again(self, session: Path) -> None:
        """Check again which steps a session needs; callable from any thread."""
        self._done.discard(session)
        self._scan_at_ns = 0

    @property
    def idle(self) -> bool:
        """Whether every session was checked and no step is due."""
        waiting = any(due.steps for due in self._due.values())
        return self._process is None and not self._unseen and not waiting

    def status(self) -> dict[str, Any]:
        """Return the queue's state as JSON values.

        Returns:
            ``{current: {session, step} | None, queue: [session], failed: {session: {step: why}}}``,
            with the sessions' names.
        """
        current = None
        if self.current is not None:
            session, step = self.current
            current = {"session": session.name, "step": step.name}
        known = self._due.items()
        return {
            "current": current,
            "queue": [path.name for path, due in known if due.steps],
            "failed": {path.name: dict(due.failed) for path, due in known if due.failed},
        }

    def scan(self) -> None:
        """Find the sessions below the root; `turn` checks a few of them at a time."""
        self._scan_at_ns = self._clock.monotonic_ns() + round(SCAN_S * 1e9)
        try:
            sessions = find_sessions(self._root)
        except RecorderError:
            return
        for path in self._due.keys() - set(sessions):  # deleted meanwhile
            del self._due[path]
        self._done.intersection_update(sessions)
        self._unseen = deque(path for path in sessions if path not in self._done)

    def turn(self, live: str | None) -> None:
        """Check the running process, or start the next one; never wait.

        Args:
            live: folder of the session being recorded; None without one.
        """
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._scan_at_ns:
            self.scan()
        for _ in range(min(_LOOKS, len(self._unseen))):  # a root may contain thousands of sessions
            path = self._unseen.popleft()
            if (elsewhere := describe_outside_link(path)) is not None:
                self._done.add(path)
                self._say(f"{elsewhere}; left alone", WARNING)
            elif str(path) != live and private(path).is_dir():
                self._look(path)
        if self._process is not None:
            code = self._process.poll()
            if code is not None:
                self._over(code)
            elif self._hangs(now_ns):
                self._over(None)
            else:
                return
        for path, due in self._due.items():
            if due.steps and str(path) != live and now_ns >= self._not_before.get(path, 0):
                self._begin(path, due.steps[0])
                return

    def stop(self) -> None:
        """End the running process; the next daemon repeats its step."""
        if self._process is not None:
            self._process.end()
            self._process = self.current = None

    def _look(self, path: Path) -> None:
        due = find_due(path, self._available)
        if due is None:
            self._due.pop(path, None)
        elif due.unfinished:
            self._due[path] = due
        else:
            self._due.pop(path, None)
            self._done.add(path)

    def _begin(self, path: Path, step: Step) -> None:
        if step.name == RECOVER and path in self._sealed:
            record_seal(path, self._sealed[path])
        try:
            self._process = self._spawn(step.command(path, self._redact))
        except OSError as error:  # no memory, too many processes
            self._say(f"{path.name}: {step.name} cannot be begun: {error.strerror}", ERROR)
            self._wait(path)
            return
        self.current = path, step
        self._used_s, self._used_at_ns, self._look_at_ns = 0.0, self._clock.monotonic_ns(), 0

    def _hangs(self, now_ns: int) -> bool:
        assert self._process is not None
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + round(_LOOK_S * 1e9)
            used_s = self._process.used_s()
            if used_s != self._used_s:
                self._used_s, self._used_at_ns = used_s, now_ns
        return now_ns - self._used_at_ns > HUNG_S * 1e9

    def _over(self, code: int | None) -> None:
        """Record the end of the process by its exit code; None: it hangs, and is ended here."""
        assert self._process is not None and self.current is not None
        path, step = self.current
        error: str | None = None
        if code is None:
            error = f"did nothing for {HUNG_S:g} s"
        elif code != 0 and not (step.name == RECOVER and code == 3):
            error = self._process.problem()
        self._process.end()
        self._process = self.current = None
        if not path.exists():  # deleted meanwhile: retention waits for no report
            self._due.pop(path, None)
            return
        try:
            record_result(path, step, error)
        except OSError as failure:
            why = f"cannot record the result: {failure.strerror}"
            self._say(f"{path}: {step.name}: {why}", ERROR)
            self._wait(path)
            return
        if error is None:
            if step.name == RECOVER:
                self._sealed.pop(path, None)
            self.finished += len(step.parts)
            self._tries.pop(path, None)
            self._say(f"{path.name}: {step.name} done")
        else:
            self._say(f"{path.name}: {step.name} failed: {error}", ERROR)
            self._wait(path)
        if path.exists():
            self._look(path)

    def _wait(self, path: Path) -> None:
        tries = self._tries[path] = self._tries.get(path, 0) + 1
        wait_s = RETRY_S[min(tries - 1, len(RETRY_S) - 1)]
        self._not_before[path] = self._clock.monotonic_ns() + round(wait_s * 1e9)


_POLL_S = 0.1


def finalize_pending(
    config: Config,
    clock: Clock,
    say: LogLine,
    stop: threading.Event,
    spawn: Callable[[Sequence[str]], Chore] = Chore,
) -> dict[str, Any]:
    """Run all due steps of the sessions below the config's root; see `steps`.

    Args:
        config: the config with the root.
        clock: injectable.
        say: logs one line for users.
        stop: ends the work early; the interrupted step is repeated the next time.
        spawn: starts a process; injectable.

    Returns:
        ``{"finished": steps done, "failed": {session: {step: why}}, "queue": [session]}``.

    Raises:
        UsageError: a daemon holds the root and does this work itself.
    """
    root = config.session.root
    lock = RootLock(root)
    lock.take()
    redact = config.path if config.redact else None
    queue = Finalizing(root, clock, say, frozenset(available()), spawn, redact)
    try:
        queue.scan()
        while True:
            queue.turn(None)
            if stop.is_set() or queue.idle:
                break
            clock.wait(stop, _POLL_S)
    finally:
        queue.stop()
        lock.release()
    status = queue.status()
    return {"finished": queue.finished, "failed": status["failed"], "queue": status["queue"]}
