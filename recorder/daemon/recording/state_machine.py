"""The state machine of the daemon's sessions: pure, it only decides.

States: ``idle``, ``starting``, ``recording``, ``stopping``, ``fault``.  What happens comes in as a
method call with the time, what is to be done goes out as a list of effects, in order; the caller
reports the outcome of an effect by another call::

    effects = machine.start("drive", {})     # RefusedError: where that cannot be
    for effect in effects:
        match effect:
            case Save(desired): ...                     # durable before the next effect
            case Begin(request): ...                 # then machine.began or machine.not_begun

In ``fault`` a recording is wanted and cannot be made.  Its start is retried, with back-off, until
it succeeds and lasts, or a user stops it.  A sensor that is missing is no fault of this machine:
the others record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from recorder.contract.errors import RecorderError

RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
LASTING_S = 120.0
"""A recording that ends by itself sooner lets the pause grow, as a start that fails does."""
SPLIT_RETRY_S = 30.0
SPLIT_PAUSE_S = 5.0
"""Shortest time from part to part, for cameras that change their picture repeatedly."""


class State(StrEnum):
    """The state of the daemon."""

    IDLE = "idle"
    STARTING = "starting"
    RECORDING = "recording"
    STOPPING = "stopping"
    FAULT = "fault"


class RefusedError(RecorderError):
    """What was asked for cannot be done in this state; nothing was changed."""


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The recording that is wanted; stored durably.

    Attributes:
        wanted: a recording is wanted, until a user stops it.
        name: the recording's name, without a part's number; None: not chosen yet.
        exact: a user gave this name.
        metadata: that a user gave for it.
        by: ``user`` or ``autostart``.
        part: number of its latest part that was begun, from 1; 0: none yet.
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
    """Make the desired state durable."""

    desired: DesiredState


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin part `desired.part` + 1; answer with `began` or `not_begun`."""

    desired: DesiredState


@dataclass(frozen=True, slots=True)
class Split:
    """Go on in part `desired.part` + 1; answer with `split_done` or `split_failed`."""

    desired: DesiredState
    why: str


@dataclass(frozen=True, slots=True)
class End:
    """End the session; answer with `ended`."""


@dataclass(frozen=True, slots=True)
class Closed:
    """A session is closed, or left for recovery where not `whole`: its archives are due."""

    session: str
    whole: bool


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing is recorded any more: the daemon may end."""


Effect = Save | Begin | Split | End | Closed | Leave


class Machine:
    """Decides; see the module's example.

    Attributes:
        state: the current state.
        desired: what is wanted.
        session: folder of the open session; None if none is.
        reason: why it is in `fault`, also while it is tried again; None elsewhere.
        splitting: a new part is being begun.
        leaving: the daemon is on its way out.
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
        self._end_due = False  # stop or leave, while a begin or a split is under way
        self._awaited = False  # a request waits for the first part

    def boot(self, desired: DesiredState, *, same_boot: bool, autostart: bool) -> list[Effect]:
        """The daemon has started, with the desired state that it found.

        A recording that was wanted continues in a new part after a crash or a restart, and after a
        reboot where `autostart` is set.  What a user stopped stays stopped until the next boot.
        """
        # One that was asked for and died before it could say that it began: its name is not new.
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
        """A user wants a recording.

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
        """A user wants no recording any more.

        Raises:
            RefusedError: nothing is being recorded, and nothing is to be.
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
        """The session asked for is open.

        Args:
            now_ns: CLOCK_MONOTONIC.
            session: its folder.
            name: the recording's name, from which parts get theirs.
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
        """The session asked for could not be begun.

        A request for the first part fails, and the start is not retried.  The start of a recording
        that was under way, or that starts by itself, is retried.
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
        """The session has ended: on request, or by itself.

        Args:
            now_ns: CLOCK_MONOTONIC.
            whole: it was closed; else recovery closes it.
            why: why it ended by itself (a full or failed disk, a writer that does not come up).
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
        """It is time for a new part; nothing where one is on its way, or failed lately."""
        busy = self.state is not State.RECORDING or self.splitting or self._end_due
        if busy or now_ns < self.split_not_before_ns:
            return []
        self.splitting = True
        return [Split(self.desired, why)]

    def split_done(self, now_ns: int, session: str) -> list[Effect]:
        """The new part is open, the one before it closed."""
        if not self.splitting or self.session is None:
            raise RuntimeError("no split was asked for")
        effects: list[Effect] = [Closed(self.session, True)]
        self.session, self.splitting = session, False
        self.split_not_before_ns = now_ns + round(SPLIT_PAUSE_S * 1e9)
        self._next_part(session, self.desired.name)
        effects.append(Save(self.desired))
        return effects + (self._end() if self._end_due else [])

    def split_failed(self, now_ns: int) -> list[Effect]:
        """The part before continues; the split is retried later."""
        if not self.splitting:
            return []
        self.splitting = False
        self.split_not_before_ns = now_ns + round(SPLIT_RETRY_S * 1e9)
        return self._end() if self._end_due else []

    def tick(self, now_ns: int) -> list[Effect]:
        """Time passes: what was not possible is tried again."""
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
