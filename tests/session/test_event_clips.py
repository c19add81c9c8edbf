"""Events as sessions and roots have them: written, read, merged, damaged, killed halfway."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from recorder.common.files import PosixDisk
from recorder.recording.postprocessing.retention import is_kept, keep
from recorder.session.event_clips import (
    KeptEvent,
    Shortfall,
    State,
    read_events,
    read_index,
    write_events,
)
from tests.session.build import START_NS, build_session, imu_spec

SECOND = 1_000_000_000


def event(id_: str, at_s: float, state: State = "kept", *parts: str, **more: object) -> KeptEvent:
    t_ns = START_NS + round(at_s * SECOND)
    made = KeptEvent(id_, f"text of {id_}", None, t_ns, t_ns - SECOND, t_ns + SECOND, state, parts)
    return msgspec.structs.replace(made, **more)


def missing(at_s: float, cause: str, stream: str | None = None) -> Shortfall:
    return Shortfall(
        START_NS + round(at_s * SECOND), START_NS + round(at_s * SECOND) + 1, stream, cause
    )


CLAIM = msgspec.json.encode({"events": [event("x", 1.0)]})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        build_session(tmp_path / name, imu_spec(), seconds=0.2)
    return tmp_path


def test_events_are_read_as_they_were_written_by_time(root: Path) -> None:
    later, earlier = (
        event("z", 2.0, "short", "a", shortfalls=(missing(1, "lost", "imu"),)),
        event("y", 1),
    )
    write_events(PosixDisk(), root / "a", [later, earlier])
    assert read_events(root / "a") == [earlier, later]
    assert is_kept(root / "a") and not is_kept(root / "b")
    assert read_events(root / "b") == []
    keep(root / "a", release=True)
    assert read_events(root / "a") == []


def test_a_session_that_a_person_keeps_has_no_events(root: Path) -> None:
    keep(root / "a")
    assert read_events(root / "a") == []
    (root / "b/_recorder/keep").touch()
    assert read_events(root / "b") == []


def test_the_index_has_each_event_once(root: Path) -> None:
    disk = PosixDisk()
    both = event("both", 1.0, "kept", "a", "b")
    write_events(disk, root / "a", [both, event("first", 0.5)])
    write_events(disk, root / "b", [both, event("last", 3.0)])
    assert [e.id for e in read_index(root)] == ["first", "both", "last"]
    assert read_index(root)[1] == both


def test_an_event_that_a_kill_left_open_in_one_session_has_the_newer_state(root: Path) -> None:
    disk = PosixDisk()
    for first, second in (("a", "b"), ("b", "a")):
        short = event("e", 1.0, "short", "a", "b", shortfalls=(missing(1, "ring"),))
        write_events(disk, root / first, [event("e", 1.0, "open", "a")])
        write_events(disk, root / second, [short])
        (found,) = read_index(root)
        assert (found.state, set(found.parts)) == ("short", {"a", "b"})
        assert found.shortfalls == short.shortfalls


def test_shortfalls_of_two_sessions_add_up_and_make_an_event_short(root: Path) -> None:
    one, other = missing(1, "lost", "imu"), missing(2, "seam")
    write_events(PosixDisk(), root / "a", [event("e", 1.0, "kept", "a")])
    write_events(PosixDisk(), root / "b", [event("e", 1.0, "short", "b", shortfalls=(one, other))])
    (found,) = read_index(root)
    assert (found.state, found.shortfalls) == ("short", (one, other))


def test_an_event_of_which_nothing_is_stored_is_in_the_index(root: Path) -> None:
    (root / ".recorder").mkdir()
    lost = event("lost", 1.0, "short", shortfalls=(missing(1, "ring"),))
    path = root / ".recorder/events.jsonl"
    path.write_bytes(msgspec.json.encode(lost) + b"\n" + b'{"id": "half')
    assert read_index(root) == [lost]
    path.write_bytes(b'{"id": 3}\n')
    with pytest.raises(Exception, match=r"events\.jsonl:1: is no event: Expected `str`"):
        read_index(root)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "truncated"),
        (b'{"kept": true, "events": [1]}', "Expected `object`"),
        (b'{"events": [{"id": "x"}]}', "missing required field"),
        (CLAIM.replace(b"text of", b"\xff"), "utf-8"),
        (CLAIM.replace(b'"kept"', b'"lost"'), "Invalid enum"),
        (CLAIM.replace(b'"t_ns":1', b'"t_ns":2'), "outside its window"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_and_costs_no_other_session(
    root: Path, data: bytes, reason: str
) -> None:
    write_events(PosixDisk(), root / "b", [event("good", 1.0)])
    (root / "a/_recorder/keep").write_bytes(data)
    problems: list[str] = []
    assert [e.id for e in read_index(root, problems.append)] == ["good"]
    (problem,) = problems
    assert "a/_recorder/keep: is no list of events: " in problem and reason in problem, problem
