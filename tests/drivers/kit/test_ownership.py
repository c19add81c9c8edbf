"""Each attribute of an open session has one thread that writes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recorder.recording.writer.active_session import ActiveSession, CommitTimes, Credit
from recorder.recording.writer.pending_split import PendingSplit
from tests.drivers.kit.ownership import FIXED, attributes, owners
from tests.drivers.kit.sim_driver import CAMERA, IMU
from tests.drivers.kit.simulation import Plane
from tests.drivers.kit.test_dataplane import assert_nothing_lost, begin
from tests.drivers.kit.test_split import together

UNSHARED = {
    *("PendingSplit.current", "PendingSplit.peer"),
    *("PendingSplit.request", "PendingSplit.asked_ns"),
}
"""Set once, in the constructor, by the thread that reads them."""


def recorded(plane: Plane) -> Plane:
    """A recording in two parts."""
    begin(plane, ("cam", (CAMERA,)), ("imu", (IMU,)))
    accounts = []
    for part in range(2):
        for _ in range(20):
            for _ in range(2):
                plane.drivers["cam"].data(CAMERA, [1000])
                plane.drivers["imu"].data(IMU, [1])
            plane.run(lambda: not plane.held(plane.drivers["cam"]), 10.0, "durable")
        accounts.append(plane.stop_session() if part else plane.split_session())
    assert_nothing_lost(plane, together(*accounts))
    return plane


def test_the_table_has_every_attribute(make_plane: Callable[..., Plane]) -> None:
    plane = recorded(make_plane(1))
    made, table = plane.ownership.made, owners()
    for kind in (ActiveSession, CommitTimes, Credit, PendingSplit):
        names = attributes(made[kind])
        assert names and names - UNSHARED == {
            name for name in table if name.startswith(f"{kind.__name__}.")
        }


def test_every_thread_writes_what_it_owns(make_plane: Callable[..., Plane]) -> None:
    """So that the check is known to see all threads; wrong writes end their thread anyway."""
    plane = recorded(make_plane(2))
    table = owners()
    assert plane.ownership.written == {name: {table[name]} for name in plane.ownership.written}
    assert {thread for threads in plane.ownership.written.values() for thread in threads} == {
        owner for owner in table.values() if owner != FIXED
    }


@pytest.mark.parametrize("thread", ["append", "sync", "close", "make", "link cam"])
@pytest.mark.parametrize("what", ["attribute", "dict", "set", "fixed"])
def test_a_thread_that_writes_what_it_does_not_own_fails(
    make_plane: Callable[..., Plane], thread: str, what: str
) -> None:
    plane = make_plane(3)
    begin(plane, ("cam", (CAMERA,)))
    assert plane.service is not None
    session = plane.service._sessions.active
    assert session is not None

    def write() -> None:
        match what:
            case "attribute":
                session.finishing = None
            case "dict":
                session.last_ns["cam"] = 0
            case "set":
                session.due.add("cam")
            case "fixed":
                session.inbox = session.inbox

    actor = plane.spawn(thread, write, "test")
    with pytest.raises(AssertionError, match=f"the thread {thread} has written it"):
        plane.run(lambda: actor.done, 1.0, "it is written")
