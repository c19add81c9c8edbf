"""The writer as its supervisor sees it: requests and replies, and restarts of its process.

A writer may die before it answers.  The next writer gets the command again, except ``start``: that
command fails, because its effect is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from recorder.bus.messages import (
    Command,
    Ending,
    Refusal,
    Reply,
    Split,
    Start,
    Status,
    Stop,
    read_reply,
)
from recorder.bus.wire import Kind, Message
from recorder.common.clock import Clock
from recorder.common.errors import ProtocolError, RecorderError, StorageError, UsageError
from recorder.recording.logs import ERROR, LogLine
from recorder.recording.supervisor.children import Child
from recorder.recording.supervisor.process_table import WRITER_RESTART

_OF_STREAM = ("samples", "bytes", "lost", "unknown_losses", "incomplete", "ended")


class Line(Protocol):
    """Message connection to the writer, such as a `DriverSocket`."""

    def send(self, message: Message) -> bool:
        """Send a message; return False if sending would block."""

    def receive(self) -> Message | None:
        """Return the next message; None without one."""

    def wait(self, seconds: float) -> None:
        """Wait until a message can be received, or the time is over."""

    def close(self) -> None:
        """Close the connection."""


class WriterRequest:
    """A command to the writer.

    Attributes:
        asked_ns: CLOCK_MONOTONIC of the request.
        answer: the writer's reply; None before.
        error: why there is no reply; None if there is one, or it may still arrive.
        place: position among the completed requests, in the order of completion; 0 before.
    """

    def __init__(self, number: int, command: Command, asked_ns: int, patience_s: float):
        self.number = number
        self.command = command
        self.asked_ns = asked_ns
        self.deadline_ns = asked_ns + round(patience_s * 1e9)
        self.answer: Reply | None = None
        self.error: RecorderError | None = None
        self.place = 0
        self.writer: object | None = None  # the writer that received it

    @property
    def done(self) -> bool:
        return self.answer is not None or self.error is not None

    @property
    def problem(self) -> RecorderError | None:
        """Why the command failed: no reply, or a refusal; None otherwise."""
        if not isinstance(self.answer, Refusal):
            return self.error
        kind = UsageError if self.answer.exit_code == UsageError.exit_code else StorageError
        return kind(self.answer.error)

    @property
    def session(self) -> str | None:
        """Folder of the session that is open after the command; None without one."""
        return self.answer.session if isinstance(self.answer, Status) else None

    @property
    def ending(self) -> Ending:
        """Ending of the session from the reply; a refusal counts as a failed disk.

        Raises:
            RecorderError: there is no reply.
        """
        if self.error is not None:
            raise self.error
        if isinstance(self.answer, Refusal):
            return Ending(None, sealed=self.answer.error)
        return self.answer if isinstance(self.answer, Ending) else Ending(None)


class WriterClient:
    """Open requests to the writer.

    Args:
        line: connection to the writer.
        clock: injectable.
    """

    def __init__(self, line: Line, clock: Clock) -> None:
        self._line = line
        self._clock = clock
        self._open: dict[int, WriterRequest] = {}
        self._number = self._done = 0

    def ask(self, command: Command, patience_s: float) -> WriterRequest:
        """Queue a command; `pump` sends it and takes the answer."""
        self._number += 1
        question = WriterRequest(self._number, command, self._clock.monotonic_ns(), patience_s)
        self._open[question.number] = question
        return question

    def pump(self, writer: object | None, live: Callable[[], list[str]]) -> bool:
        """Take replies, send commands, and abandon requests after their time limit.

        Args:
            writer: the writer's current process, or None.
            live: returns the names of the sensors whose drivers take part, for commands that wait
                for them.

        Returns:
            Whether the writer has sent a message.
        """
        heard = False
        while (message := self._line.receive()) is not None:
            heard = True
            if message.kind is Kind.STATUS and (asked := self._open.get(message.number)):
                self._take(message, asked)
                self._place(asked)
        now_ns = self._clock.monotonic_ns()
        for question in list(self._open.values()):
            if question.writer is not writer and writer is not None:
                self._send(question, writer, live)
            if not question.done and now_ns > question.deadline_ns:
                question.error = StorageError(f"the writer does not answer ({question.command.op})")
            if question.done:
                self._place(question)
                del self._open[question.number]
        return heard

    def _place(self, question: WriterRequest) -> None:
        if question.done and not question.place:
            self._done += 1
            question.place = self._done

    def _take(self, message: Message, question: WriterRequest) -> None:
        try:
            answer = read_reply(message)
        except ProtocolError as error:
            question.error = error
            return
        if isinstance(question.command, Stop) and isinstance(answer, Status):
            question.writer = None  # this writer had no session; the next one resumes it
            return
        question.answer = answer

    def _send(self, question: WriterRequest, writer: object, live: Callable[[], list[str]]) -> None:
        if question.writer is not None and isinstance(question.command, Start):
            op = question.command.op
            question.error = StorageError(f"the writer ended before it answered ({op})")
            return
        command = question.command
        if isinstance(command, Split | Stop):
            command = replace(command, live=live())
        if self._line.send(command.message(question.number)):
            question.writer = writer


def account(stream: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the writer's account of a stream that status shows."""
    return {key: stream.get(key) for key in _OF_STREAM}


class WriterProcess:
    """Restart logic of the writer; `start` starts the first, `handle_exit` takes the exit of each.

    Args:
        clock: injectable.
        say: logs one line for users.
        spawn: starts a writer; raises OSError if that is not possible now.

    Attributes:
        child: the latest writer; None before the first.
        restarts: number of writers started after the first.
        failed: why no further writer is started; None while restarts continue.
    """

    def __init__(self, clock: Clock, say: LogLine, spawn: Callable[[], Child]) -> None:
        self.child: Child | None = None
        self.restarts = 0
        self.failed: str | None = None
        self._clock = clock
        self._say = say
        self._spawn = spawn
        self._starts = 0
        self._start_at_ns: int | None = None

    @property
    def running(self) -> Child | None:
        """The running writer; None without one."""
        return self.child if self.child is not None and self.child.alive else None

    def start(self) -> None:
        """Start a writer."""
        self._start_at_ns = None
        self._starts += 1
        try:
            self.child = self._spawn()
        except OSError as error:  # no memory, too many processes
            self.handle_exit(error.strerror)

    def start_due(self, now_ns: int) -> None:
        """Start the next writer if its pause is over."""
        if self._start_at_ns is not None and now_ns >= self._start_at_ns:
            self.start()

    def reset_starts(self) -> None:
        """Reset the count of starts, since the writer has answered."""
        self._starts = 0

    def retry(self) -> None:
        """Start a writer again after `failed`."""
        self.failed, self._starts = None, 0
        if self.running is None:
            self.start()

    def handle_exit(self, code: int | str | None) -> None:
        """Schedule another writer after the exit of one, unless too many have ended."""
        ended = f"writer ended with code {code}"
        if self._starts >= WRITER_RESTART.most:
            self.failed = f"{ended}, {WRITER_RESTART.most} times without an answer"
            self._say(self.failed, ERROR)
            return
        self._say(f"{ended}; starting another", ERROR)
        self.restarts += 1
        pause_ns = round(WRITER_RESTART.pause_s(self._starts) * 1e9)
        self._start_at_ns = self._clock.monotonic_ns() + pause_ns
