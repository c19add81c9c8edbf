"""The daemon's state machine against a model world, without processes."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from hypothesis.strategies import booleans, sampled_from

from recorder.recording.sessions.state_machine import (
    RETRY_S,
    Begin,
    Closed,
    DesiredState,
    Effect,
    End,
    Leave,
    Machine,
    RefusedError,
    Save,
    Split,
    State,
)

S = 1_000_000_000


def kinds(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def at(machine: Machine) -> State:
    return machine.state


def recording(machine: Machine | None = None) -> Machine:
    machine = machine or Machine()
    machine.start("drive", {"driver": "ada"})
    machine.began(0, "/r/drive", "drive")
    return machine


def test_only_a_recording_that_lasts_ends_the_growth_of_the_pauses() -> None:
    machine, now_ns, pauses = recording(), 0, []
    for lasted_s in (1, 1, 1, 1, 200, 1):
        now_ns += lasted_s * S
        machine.ended(now_ns, why="full")
        assert machine.retry_at_ns is not None
        pauses.append((machine.retry_at_ns - now_ns) / S)
        now_ns = machine.retry_at_ns
        machine.tick(now_ns)
        machine.began(now_ns, "/r/drive_p002", "drive")
    assert pauses == [*RETRY_S[:4], RETRY_S[0], RETRY_S[1]]


def test_a_recording_from_start_to_stop() -> None:
    machine = Machine()
    save, begin = machine.start("drive", {"driver": "ada"})
    assert save == Save(DesiredState(True, "drive", True, {"driver": "ada"}))
    assert isinstance(begin, Begin) and begin.desired.part == 0
    assert at(machine) is State.STARTING
    (save,) = machine.began(5, "/r/drive", "drive")
    assert isinstance(save, Save) and (save.desired.part, save.desired.session) == (1, "/r/drive")
    assert at(machine) is State.RECORDING
    save, end = machine.stop()
    assert isinstance(save, Save) and not save.desired.wanted
    assert end == End()
    assert at(machine) is State.STOPPING
    assert machine.ended(9) == [Closed("/r/drive", True)]
    assert (machine.state, machine.session) == (State.IDLE, None)


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    machine = Machine()
    with pytest.raises(RefusedError, match="nothing is being recorded"):
        machine.stop()
    machine = recording()
    desired = machine.desired
    with pytest.raises(RefusedError, match="/r/drive: is being recorded already"):
        machine.start("other")
    assert (machine.state, machine.desired) == (State.RECORDING, desired)
    machine.stop()
    with pytest.raises(RefusedError, match="still being closed"):
        machine.start()
    machine.ended(0)
    machine.leave()
    with pytest.raises(RefusedError, match="ending"):
        machine.start()


def test_a_session_that_ends_by_itself_is_followed_by_the_next_part() -> None:
    machine = recording()
    assert machine.ended(0, why="its disk is full") == [Closed("/r/drive", True)]
    assert (machine.state, machine.reason) == (State.FAULT, "its disk is full")
    now_ns = 0
    for wait_s in (*RETRY_S, RETRY_S[-1]):
        assert machine.tick(now_ns + round(wait_s * S) - 1) == []
        now_ns += round(wait_s * S)
        (begin,) = machine.tick(now_ns)
        assert isinstance(begin, Begin) and begin.desired.part == 1
        assert machine.not_begun(now_ns, "still full") == []
        assert at(machine) is State.FAULT
    machine.tick(now_ns + 100 * S)
    machine.began(now_ns, "/r/drive_p002", "drive")
    assert (machine.desired.part, machine.reason) == (2, None)
    now_ns += 120 * S
    machine.ended(now_ns, why="full")
    assert machine.retry_at_ns == now_ns + S  # a recording that lasted ends the back-off


def test_a_split_goes_on_in_the_next_part() -> None:
    machine = recording()
    (split,) = machine.split(1, "30 min")
    assert isinstance(split, Split) and split.desired.part == 1
    assert machine.split(2, "30 min") == []
    assert at(machine) is State.RECORDING
    closed, save = machine.split_done(3, "/r/drive_p002")
    assert closed == Closed("/r/drive", True)
    assert isinstance(save, Save) and save.desired.part == 2
    assert machine.split(4, "changed") == []  # not from frame to frame
    assert kinds(machine.split(10 * S, "changed")) == ["Split"]
    assert machine.split_failed(10 * S) == []
    assert machine.split(39 * S, "changed") == []
    assert kinds(machine.split(41 * S, "changed")) == ["Split"]


def test_a_stop_waits_for_a_split() -> None:
    machine = recording()
    machine.split(1, "30 min")
    assert kinds(machine.stop()) == ["Save"]
    assert kinds(machine.split_done(3, "/r/drive_p002")) == ["Closed", "Save", "End"]
    machine = recording()
    machine.split(1, "30 min")
    machine.leave()
    assert kinds(machine.split_failed(3)) == ["End"]


@pytest.mark.parametrize(
    ("desired", "same_boot", "autostart", "begins"),
    [
        (DesiredState(), False, False, False),
        (DesiredState(), False, True, True),  # the first boot
        (DesiredState(True, "a", part=1), True, False, True),  # a crash, or the watchdog
        (DesiredState(True, "a", part=1), True, True, True),
        (DesiredState(True, "a", part=1), False, True, True),  # a reboot
        (DesiredState(True, "a", part=1), False, False, False),
        (DesiredState(False, "a", part=1), True, True, False),  # a user stopped it
        (DesiredState(False, "a", part=1), False, True, True),  # the next day
        (DesiredState(False, "a", part=1), True, False, False),
    ],
)
def test_what_is_recorded_after_the_daemons_start(
    desired: DesiredState, same_boot: bool, autostart: bool, begins: bool
) -> None:
    machine = Machine()
    effects = machine.boot(desired, same_boot=same_boot, autostart=autostart)
    assert ("Begin" in kinds(effects)) is begins
    assert machine.desired.wanted is begins
    if begins and desired.wanted:
        assert machine.desired.part == desired.part  # it goes on with the next part
    if desired.wanted and not begins:
        assert kinds(effects) == ["Save"]  # or the next crash would record


def test_autostart_is_tried_until_it_can_be() -> None:
    machine = Machine()
    machine.boot(DesiredState(), same_boot=False, autostart=True)
    assert machine.not_begun(0, "not mounted") == []
    assert (machine.state, machine.reason) == (State.FAULT, "not mounted")
    assert kinds(machine.tick(S)) == ["Begin"]


class World(RuleBasedStateMachine):
    """Carries effects out as they come, late and in any order that can be; keeps accounts.

    What must hold: the file says what the machine wants; there is one session at most, and each
    one opened is closed exactly once; a desired state is acted on, and nothing else is.
    """

    @initialize(same_boot=booleans(), autostart=booleans(), wanted=booleans())
    def boot(self, same_boot: bool, autostart: bool, wanted: bool) -> None:
        self.now_ns = 0
        self.machine = Machine()
        self.file = DesiredState(wanted, "old", part=3 if wanted else 0)
        self.open: str | None = None
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.begin: Begin | None = None
        self.splitting = False
        self.ending = False
        self.left = False
        self.user_stopped = False
        self.do(self.machine.boot(self.file, same_boot=same_boot, autostart=autostart))

    def do(self, effects: list[Effect]) -> None:
        assert not (self.left and effects)
        for effect in effects:
            match effect:
                case Save(desired):
                    self.file = desired
                case Begin():
                    assert self.begin is None and self.open is None
                    assert effect.desired.wanted and self.file == effect.desired
                    self.begin = effect
                case Split():
                    assert self.open is not None and not self.splitting and not self.ending
                    self.splitting = True
                case End():
                    assert self.open is not None and not self.splitting and not self.ending
                    self.ending = True
                case Closed(session):
                    self.closed.append(session)
                case Leave():
                    assert self.open is None
                    self.left = True

    def new_session(self) -> str:
        self.opened.append(f"/r/{len(self.opened)}")
        self.open = self.opened[-1]
        return self.open

    @precondition(lambda self: not self.left)
    @rule()
    def start(self) -> None:
        state, desired = self.machine.state, self.machine.desired
        try:
            self.do(self.machine.start("drive"))
        except RefusedError:
            assert (self.machine.state, self.machine.desired) == (state, desired)
            assert self.machine.leaving or state not in (State.IDLE, State.FAULT)
        else:
            assert state in (State.IDLE, State.FAULT)
            self.user_stopped = False

    @precondition(lambda self: not self.left)
    @rule()
    def stop(self) -> None:
        state = self.machine.state
        try:
            self.do(self.machine.stop())
        except RefusedError:
            assert state is State.IDLE
        else:
            self.user_stopped = True
            assert not self.file.wanted

    @precondition(lambda self: not self.left)
    @rule()
    def leave(self) -> None:
        wanted = self.machine.desired.wanted
        self.do(self.machine.leave())
        assert self.machine.desired.wanted is wanted

    @precondition(lambda self: self.begin is not None)
    @rule(works=booleans())
    def begin_done(self, works: bool) -> None:
        assert self.begin is not None
        part, self.begin = self.begin.desired.part, None
        if works:
            self.do(self.machine.began(self.now_ns, self.new_session(), "drive"))
            assert self.machine.desired.part == part + 1
        else:
            self.do(self.machine.not_begun(self.now_ns, "no"))

    @precondition(lambda self: self.open is not None and not self.splitting)
    @rule()
    def split_due(self) -> None:
        self.do(self.machine.split(self.now_ns, "30 min"))

    @precondition(lambda self: self.splitting)
    @rule(works=booleans())
    def split_done(self, works: bool) -> None:
        self.splitting = False
        if works:
            self.do(self.machine.split_done(self.now_ns, self.new_session()))
        else:
            self.do(self.machine.split_failed(self.now_ns))

    @precondition(lambda self: self.open is not None)
    @rule(whole=booleans(), asked=booleans())
    def ends(self, whole: bool, asked: bool) -> None:
        if asked and not self.ending:
            return
        self.open, self.ending, self.splitting = None, False, False
        why = None if asked else "the disk is full"
        self.do(self.machine.ended(self.now_ns, whole=whole, why=why))

    @rule(seconds=sampled_from([0.1, 1.0, 10.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_ns += round(seconds * S)
        self.do(self.machine.tick(self.now_ns))

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "machine"):
            return
        machine = self.machine
        assert machine.session == self.open
        assert self.file == machine.desired
        assert self.closed == self.opened[: len(self.closed)]
        assert len(self.opened) - len(self.closed) == (self.open is not None)
        assert (machine.state is State.STARTING) == (self.begin is not None)
        assert (machine.state in (State.RECORDING, State.STOPPING)) == (self.open is not None)
        assert (machine.state is State.STOPPING) == self.ending
        if machine.reason is not None:
            assert machine.state in (State.FAULT, State.STARTING)
        if machine.state is State.FAULT:
            assert (
                machine.reason is not None
                and machine.desired.wanted
                and machine.retry_at_ns is not None
            )
        if machine.state is State.IDLE and not machine.leaving:
            assert not machine.desired.wanted
        if self.open is not None and not machine.desired.wanted:
            assert self.ending or self.splitting, "what nobody wants is ended at once"
        if self.user_stopped and not machine.leaving:
            assert not machine.desired.wanted


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=40, stateful_step_count=40)
