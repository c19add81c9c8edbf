"""Follower of a daemon's recordings that marks the moments at which triggers fire.

::

    watching = TriggerFollower(config.triggers, connect, report)
    while True:
        watching.turn(time.monotonic())
        time.sleep(TURN_S)

The parts of a recording are followed in order, each to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from recorder.bus.control.client import Client, DaemonError
from recorder.bus.control.requests import MOST_TEXT, Mark
from recorder.common.errors import SessionError
from recorder.config.settings import TriggerSettings
from recorder.recording.triggers.evaluation import Evaluation, Fired
from recorder.session import layout

TURN_S = 0.2
_ASK_S = 1.0
_STALLED_S = 10.0
"""Time without a commit after which a session that is no longer recorded is abandoned, s."""


class TriggerFollower:
    """Follower of a daemon's recordings; see the module's example.

    Args:
        triggers: the triggers to evaluate.
        connect: opens a connection to the daemon; raises DaemonError if it cannot be reached.
        report: takes one line for users.
    """

    def __init__(
        self,
        triggers: Sequence[TriggerSettings],
        connect: Callable[[], Client],
        report: Callable[[str], object],
    ) -> None:
        self._triggers = triggers
        self._connect, self._report = connect, report
        self._client: Client | None = None
        self._session: Path | None = None
        self._recorded: Path | None = None
        self._evaluation: Evaluation | None = None
        self._reported: set[str] = set()
        self._ask_at_s = self._moved_at_s = 0.0
        self._done: Path | None = None
        self._commits = -1

    def turn(self, now_s: float) -> None:
        """Evaluate what was committed since the last turn.

        Args:
            now_s: CLOCK_MONOTONIC, s.
        """
        if now_s >= self._ask_at_s:
            self._ask_at_s = now_s + _ASK_S
            self._ask()
        if self._session is None:
            if self._recorded is None or self._recorded == self._done:
                return
            self._follow(self._recorded, None, now_s)
        assert self._session is not None and self._evaluation is not None
        try:
            for fired in self._evaluation.read():
                self._mark(fired)
        except SessionError as error:
            self._report(f"{error}; its triggers are not evaluated any more")
            self._leave()
            return
        for name, problem in self._evaluation.problems.items():
            if (line := f"{name}: {problem}; it is left out") not in self._reported:
                self._reported.add(line)
                self._report(line)
        if self._evaluation.commits != self._commits:
            self._commits, self._moved_at_s = self._evaluation.commits, now_s
        following = self._evaluation.next
        if self._evaluation.closed and following is not None:
            if layout.private(following, layout.JOURNAL).exists():
                self._follow(following, self._evaluation, now_s)
        elif self._evaluation.closed or (
            self._recorded != self._session and now_s - self._moved_at_s >= _STALLED_S
        ):
            self._leave()

    def _follow(self, session: Path, earlier: Evaluation | None, now_s: float) -> None:
        self._evaluation = Evaluation(session, self._triggers, earlier)
        self._session, self._moved_at_s, self._commits = session, now_s, -1

    def _leave(self) -> None:
        self._done, self._session, self._evaluation = self._session, None, None

    def _ask(self) -> None:
        """Ask the daemon for the open session; change nothing if it does not answer."""
        try:
            self._client = self._client or self._connect()
            session = self._client.status().values["status"]["session"]
        except DaemonError:
            self._disconnect()
        else:
            self._recorded = None if session is None else Path(session["path"])

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def _mark(self, fired: Fired) -> None:
        """Send a mark with the moment and the values to the daemon."""
        values = ", ".join(
            f"{name} {'missing' if value is None else format(float(value), '.6g')}"
            for name, value in fired.values.items()
        )
        text = f"trigger {fired.trigger}: {values}"[:MOST_TEXT]
        try:
            self._client = self._client or self._connect()
            keep = (fired.before, fired.after) if fired.before + fired.after > 0 else None
            mark = Mark(text, keep=keep, t_ns=fired.t_ns, trigger=fired.trigger)
            self._client.send(mark)
        except DaemonError as error:
            self._report(f"not marked: {text}: {error}")
            self._disconnect()
