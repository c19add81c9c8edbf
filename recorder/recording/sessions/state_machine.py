"""State machine of the daemon's sessions, without I/O.

The states are ``idle``, ``starting``, ``recording``, ``stopping`` and ``fault``.  Events come in as
method calls with the time.  Each call returns the effects to carry out, in order.  The caller
reports the outcome of an effect by another call::

    effects = machine.start("drive", {})     # raises RefusedError if that is not possible
    for effect in effects:
        match effect:
            case Save(desired): ...                     # durable before the next effect
            case Begin(request): ...                 # then machine.began or machine.not_begun

In ``fault`` a recording is wanted but cannot be made.  Its start is retried, with back-off, until
it succeeds and lasts, or a user stops it.  A missing sensor is no fault of this machine: the other
sensors record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from recorder.common.errors import RecorderError

RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
LASTING_S = 120.0
"""Duration below which a recording that ends by itself counts as a failed start, s."""
SPLIT_RETRY_S = 30.0
SPLIT_PAUSE_S = 5.0
"""Shortest time between splits, for cameras that repeatedly change their picture, s."""


class State(StrEnum):
    """State of the daemon."""

    IDLE = "idle"
    STARTING = "starting"
    RECORDING = "recording"
    STOPPING = "stopping"
    FAULT = "fault"


class RefusedError(RecorderError):
    """Error for a request that is not possible in this state; nothing has changed."""


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The wanted recording, stored durably.

    Attributes:
        wanted: whether a recording is wanted, until a user stops it.
        name: name of the recording, without a part's number; None: not chosen yet.
        exact: whether a user gave this name.
        metadata: the user's metadata.
        by: ``user`` or ``autostart``.
        part: number of the latest part that was begun, from 1; 0 before the first.
        session: folder of that part.
    """

    wanted: bool = False
    name: str | None = None
    exact: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    by: str = "user"
    part: int = 0
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Save:
    """Effect: save the desired state durably."""

    desired: DesiredState


@dataclass(frozen=True, slots=True)
class Begin:
    """Effect: begin part `desired.part` + 1; call `began` or `not_begun` with the outcome."""

    desired: DesiredState


@dataclass(frozen=True, slots=True)
class Split:
    """Effect: split to part `desired.part` + 1; then call `split_done` or `split_failed`."""

    desired: DesiredState
    why: str


@dataclass(frozen=True, slots=True)
class End:
    """Effect: end the session; then call `ended`."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Effect: handle a closed session, or one left for recovery if not `whole`."""

    session: str
    whole: bool


@dataclass(frozen=True, slots=True)
class Leave:
    """Effect: end the daemon, since recording has ended."""


Effect = Save | Begin | Split | End | Closed | Leave


class Machine:
    """State machine of the sessions; see the module's example.

    Attributes:
        state: the current state.
        desired: the desired state.
        session: folder of the open session; None without one.
        reason: reason of `fault`, also during a retry; None in other states.
        splitting: whether a new part is being created.
        leaving: whether the daemon is ending.
        retry_at_ns: CLOCK_MONOTONIC of the next retry in `fault`; None without one.
        split_not_before_ns: CLOCK_MONOTONIC before which no split begins.
    """

    def __init__(self) -> None:
        self.state = State.IDLE
        self.desired = DesiredState()
        self.session: str | None = None
        self.reason: str | None = None
        self.splitting = False
        self.leaving = False
        self.retry_at_ns: int | None = None
        self.split_not_before_ns = 0
        self._failures = 0
        self._began_ns = 0
        self._end_due = False  # stop or leave was called during a begin or a split
        self._awaited = False  # a request waits for the first part

    def boot(self, desired: DesiredState, *, same_boot: bool, autostart: bool) -> list[Effect]:
        """Take the stored desired state at the start of the daemon.

        A wanted recording continues in a new part after a crash or a restart, and after a reboot if
        `autostart` is set.  A recording that a user stopped stays stopped until the next boot.
        """
        # The daemon may have died before the first part was confirmed: its name may exist already.
        self.desired = replace(desired, exact=desired.exact and desired.part > 0)
        if desired.wanted and (same_boot or autostart):
            return self._try()
        if autostart and not same_boot:
            self.desired = DesiredState(wanted=True, by="autostart")
            return [Save(self.desired), *self._try()]
        if not desired.wanted:
            return []
        self.desired = replace(desired, wanted=False)
        return [Save(self.desired)]

    def start(
        self, name: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> list[Effect]:
        """Begin a recording at a user's request.

        Raises:
            RefusedError: a recording is open, or the daemon is ending.
        """
        if self.leaving:
            raise RefusedError("the daemon is ending")
        if self.state is State.STARTING:
            raise RefusedError("a recording is being started already")
        if self.state is State.RECORDING:
            raise RefusedError(f"{self.session}: is being recorded already")
        if self.state is State.STOPPING:
            raise RefusedError(f"{self.session}: is still being closed")
        self.desired = DesiredState(True, name, name is not None, dict(metadata or {}))
        self._failures, self.reason = 0, None
        self._awaited = True
        return [Save(self.desired), *self._try()]

    def stop(self) -> list[Effect]:
        """End the recording at a user's request.

        Raises:
            RefusedError: no recording is open or wanted.
        """
        if self.state is State.IDLE:
            raise RefusedError("nothing is being recorded")
        effects: list[Effect] = []
        if self.desired.wanted:
            self.desired = replace(self.desired, wanted=False)
            effects.append(Save(self.desired))
        return effects + self._end()

    def leave(self) -> list[Effect]:
        """End the daemon; the desired state stays."""
        if self.leaving:
            return []
        self.leaving = True
        if self.state is State.IDLE:
            return [Leave()]
        return self._end()

    def began(self, now_ns: int, session: str, name: str) -> list[Effect]:
        """Take the success of `Begin`: the session is open.

        Args:
            now_ns: CLOCK_MONOTONIC.
            session: folder of the session.
            name: name of the recording, from which the parts' names are made.
        """
        self._expect(State.STARTING)
        self.state, self.session, self.reason = State.RECORDING, session, None
        self.retry_at_ns = None
        self._awaited = False
        self._began_ns = now_ns
        self.split_not_before_ns = now_ns
        self._next_part(session, name)
        effects: list[Effect] = [Save(self.desired)]
        return effects + (self._end() if self._end_due else [])

    def not_begun(self, now_ns: int, why: str) -> list[Effect]:
        """Take the failure of `Begin`.

        A user's request for the first part fails and is not retried.  The start of a recording that
        was in progress, or that starts automatically, is retried.
        """
        self._expect(State.STARTING)
        if self.leaving:
            self._rest()
            return [Leave()]
        if not self.desired.wanted:
            self._rest()
            return []
        if self._awaited:
            self._awaited = False
            self._rest()
            self.desired = replace(self.desired, wanted=False)
            return [Save(self.desired)]
        self._fail(now_ns, why)
        return []

    def ended(self, now_ns: int, *, whole: bool = True, why: str | None = None) -> list[Effect]:
        """Take the end of the session, on request or by itself.

        Args:
            now_ns: CLOCK_MONOTONIC.
            whole: whether it was closed; otherwise recovery closes it.
            why: why it ended by itself (a full or failed disk, a writer that does not start).
        """
        if self.session is None:
            raise RuntimeError(f"no session to end in {self.state}")
        effects: list[Effect] = [Closed(self.session, whole)]
        self.session = None
        self.splitting = False
        reported = self.state is State.STOPPING or self._end_due
        self._end_due = False
        if self.leaving:
            self._rest()
            return [*effects, Leave()]
        if reported or not self.desired.wanted:
            self._rest()
            return effects
        if now_ns - self._began_ns >= LASTING_S * 1e9:
            self._failures = 0
        self._fail(now_ns, why or "the session ended by itself")
        return effects

    def split(self, now_ns: int, why: str) -> list[Effect]:
        """Begin a new part, unless a split is in progress or one failed recently."""
        busy = self.state is not State.RECORDING or self.splitting or self._end_due
        if busy or now_ns < self.split_not_before_ns:
            return []
        self.splitting = True
        return [Split(self.desired, why)]

    def split_done(self, now_ns: int, session: str) -> list[Effect]:
        """Take the success of `Split`: the new part is open, and the previous one closed."""
        if not self.splitting or self.session is None:
            raise RuntimeError("no split was asked for")
        effects: list[Effect] = [Closed(self.session, True)]
        self.session, self.splitting = session, False
        self.split_not_before_ns = now_ns + round(SPLIT_PAUSE_S * 1e9)
        self._next_part(session, self.desired.name)
        effects.append(Save(self.desired))
        return effects + (self._end() if self._end_due else [])

    def split_failed(self, now_ns: int) -> list[Effect]:
        """Take the failure of `Split`: the current part continues; the split is retried later."""
        if not self.splitting:
            return []
        self.splitting = False
        self.split_not_before_ns = now_ns + round(SPLIT_RETRY_S * 1e9)
        return self._end() if self._end_due else []

    def tick(self, now_ns: int) -> list[Effect]:
        """Retry a failed start if its retry is due."""
        due = self.retry_at_ns is not None and now_ns >= self.retry_at_ns
        return self._try() if self.state is State.FAULT and due else []

    def _try(self) -> list[Effect]:
        self.state, self.retry_at_ns = State.STARTING, None
        self._end_due = False
        return [Begin(self.desired)]

    def _rest(self) -> None:
        self.state, self.reason, self.retry_at_ns = State.IDLE, None, None
        self._end_due = False

    def _fail(self, now_ns: int, why: str) -> None:
        wait_s = RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._failures += 1
        self.state, self.reason = State.FAULT, why
        self.retry_at_ns = now_ns + round(wait_s * 1e9)

    def _end(self) -> list[Effect]:
        match self.state:
            case State.RECORDING if not self.splitting:
                self.state, self._end_due = State.STOPPING, False
                return [End()]
            case State.RECORDING | State.STARTING:
                self._end_due = True
            case State.FAULT:
                self._rest()
                return [Leave()] if self.leaving else []
        return []

    def _next_part(self, session: str, name: str | None) -> None:
        self.desired = replace(self.desired, name=name, part=self.desired.part + 1, session=session)

    def _expect(self, state: State) -> None:
        if self.state is not state:
            raise RuntimeError(f"{self.state} where only {state} can be")
