"""Work after a session's end: labels of simulated sensors (docs/labels.md) and checksums."""

from __future__ import annotations

import contextlib
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from recorder.cli.output import note
from recorder.common.errors import RecorderError

if TYPE_CHECKING:
    from recorder.recording.foreground import Outcome

_LAST = "_pose/meta.json"
"""The file that is written last."""
_NO_LABELS = "the simulation's labels could not be written"
_SOON_S = 1.0
"""Duration of a wait after which a note is printed, in seconds."""


def run_separately(module: str, *arguments: str) -> bool:
    """Run a module in a separate process, which Ctrl-C does not reach; return True on success."""
    with SeparateProcess(module, *arguments) as process:
        return process.succeeds()


def write_labels(session: Path) -> None:
    """Write the simulated world's ground truth into a session."""
    if not run_separately("drivers.sim", "annotate", str(session)):
        note(f"{session}: {_NO_LABELS}")


def complete_played(command: str, outcome: Outcome, stopped: bool, rest: str) -> int:
    """Complete a session of played sources, and tell how it ended; return the exit code.

    Args:
        command: such as ``import``, for the notes.
        outcome: how the session ended.
        stopped: somebody has stopped it.
        rest: what a session that was stopped has only a part of.
    """
    if outcome.sealed is None:
        with Completion(outcome.session, simulated=False) as completion:
            completion.finish()
    if why := outcome.sealed or outcome.full:
        note(f"recorder {command}: {why}")
    if stopped:
        note(f"recorder {command}: stopped; the session holds a part of {rest}")
    return outcome.exit_code or int(stopped)


class SeparateProcess:
    """A module that runs in a separate process, which Ctrl-C does not reach.

    Args:
        module: name of the module.
        arguments: arguments of its command line.
        stdin: the module waits for `go`.
    """

    def __init__(self, module: str, *arguments: str, stdin: bool = False) -> None:
        from recorder.common.module_launcher import module_command

        self._process = subprocess.Popen(
            module_command(module, *arguments),
            stdin=subprocess.PIPE if stdin else None,
            stdout=subprocess.DEVNULL,
            process_group=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the process if it still runs, as after an interrupt."""
        if self._process.poll() is None:
            self._process.kill()
        with self._process:
            pass

    def go(self) -> None:
        """Let the process complete its work."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has failed; `succeeds` reports that
            self._process.stdin.write(b"g")
            self._process.stdin.flush()

    def succeeds(self, text: str = "") -> bool:
        """Wait for the end of the process; return True if it succeeded.

        Args:
            text: a note for a wait of over a second; empty: no note.
        """
        try:
            return self._process.wait(_SOON_S if text else None) == 0
        except subprocess.TimeoutExpired:
            note(text)
        return self._process.wait() == 0


class Completion:
    """Completion of a closed session of the foreground: the simulation's labels and the checksums.

    Both processes start at once, and run while the drivers end::

        with Completion(session, simulated=True) as completion:
            supervisor.shutdown()
            completion.finish()              # nothing writes into the session any more
    """

    def __init__(self, session: Path, *, simulated: bool) -> None:
        self._session = session
        with ExitStack() as stack:
            self._truth = None
            if simulated:
                self._truth = stack.enter_context(
                    SeparateProcess("drivers.sim", "annotate", str(session))
                )
            checksums = SeparateProcess(
                "recorder.session.checksums", str(session), "--wait", stdin=True
            )
            self._checksums = stack.enter_context(checksums)
            self._processes = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    def finish(self) -> None:
        """Wait until the session is complete."""
        name = self._session.name
        if self._truth and not self._truth.succeeds(f"writing the simulation's labels of {name}"):
            note(f"{self._session}: {_NO_LABELS}")
        self._checksums.go()
        if not self._checksums.succeeds(f"writing the checksums of {name}"):
            note(f"{self._session}: its checksums could not be written")


def write_missing_labels(session: Path) -> None:
    """Write the labels of a recovered session, or of one whose recorder was killed too early."""
    from recorder.session.layout import CLEAN, RECOVERED
    from recorder.session.reader import read_header

    if (session / _LAST).exists():
        return
    try:
        header = read_header(session) or {}
    except RecorderError as error:
        note(str(error))
        return
    sensors = (header.get("sensors") or {}).values()
    simulated = any(sensor.get("source") == "sim" for sensor in sensors)
    if simulated and header.get("state") in (CLEAN, RECOVERED):
        write_labels(session)


def complete_session(session: Path) -> None:
    """Write the labels and checksums that a closed session lacks after an interrupted `run`."""
    from recorder.session.checksums import CHECKSUMS
    from recorder.session.layout import LOCK, PRIVATE, private
    from recorder.session.lock import lock_is_held

    if not (session / PRIVATE).is_dir() or lock_is_held(private(session, LOCK)):
        return
    if private(session, CHECKSUMS).exists():
        return
    write_missing_labels(session)
    if not run_separately("recorder.session.checksums", str(session)):
        note(f"{session}: its checksums could not be written")
