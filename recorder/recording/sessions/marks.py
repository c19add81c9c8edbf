"""Pending marks, each answered when the writer has put it into the session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recorder.bus.control.requests import Mark
from recorder.bus.control.server import Call
from recorder.bus.messages import PutEvent
from recorder.common.errors import RecorderError, StorageError, UsageError
from recorder.recording.sessions.state_machine import RefusedError
from recorder.recording.supervisor.supervisor import Supervisor
from recorder.recording.supervisor.writer_client import WriterRequest

_AHEAD_NS = 1_000_000_000


def moment_ns(request: Mark, now_ns: int) -> int:
    """Return the moment of a mark, epoch ns, at most `now_ns`.

    Raises:
        UsageError: the mark has no text, or is in the future.
    """
    if request.text is None:
        raise UsageError("a mark needs a text")
    if request.t_ns is None:
        return now_ns - round((request.age_s or 0.0) * 1e9)
    if request.t_ns > now_ns + _AHEAD_NS:
        raise UsageError("mark: t_ns is in the future")
    return min(request.t_ns, now_ns)


class Marks:
    """Queue of marks for the open session.

    Args:
        supervisor: supervisor of the writer.
        answer: receives a call whose mark is in the session, and the session's folder.
        refuse: receives a call whose mark may be missing, and the reason.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        answer: Callable[[Call, str], Any],
        refuse: Callable[[Call, RecorderError], Any],
    ) -> None:
        self._supervisor = supervisor
        self._answer = answer
        self._refuse = refuse
        self._open: list[tuple[Call, WriterRequest]] = []

    def give_up(self) -> list[Call]:
        """Abandon all pending marks; return their unanswered calls."""
        calls = [call for call, _ in self._open]
        self._open.clear()
        return calls

    def put(self, call: Call, request: Mark, session: str | None, now_ns: int) -> None:
        """Ask the writer to put a mark into the session.

        Args:
            call, request: the call and its request.
            session: folder of the open session.
            now_ns: the time, epoch ns on the session's clock.

        Raises:
            UsageError: the mark has no text, or is in the future.
            RefusedError: no session is open.
        """
        if session is None:
            raise RefusedError("nothing is being recorded")
        t_ns = moment_ns(request, now_ns)
        # Events of one cause within a second are merged, so the text is the cause of a mark.
        event: dict[str, Any] = {"kind": "mark", "cause": request.text, "text": request.text}
        if t_ns < now_ns:
            event["age_ns"] = now_ns - t_ns
        if request.trigger is not None:
            event["trigger"] = request.trigger
        if request.keep is not None:
            event["keep_s"] = list(request.keep)
        self._open.append((call, self._supervisor.ask(PutEvent(event))))

    def follow(self) -> None:
        """Answer the calls whose marks the writer has handled."""
        for call, question in [item for item in self._open if item[1].done]:
            self._open.remove((call, question))
            if (error := question.problem) is not None:
                self._refuse(call, StorageError(f"the mark may not be in the session: {error}"))
            elif question.session is None:
                self._refuse(call, RefusedError("the session ended before the mark was in it"))
            else:
                if isinstance(put := question.command, PutEvent):
                    self._supervisor.show(**put.event)
                self._answer(call, question.session)
