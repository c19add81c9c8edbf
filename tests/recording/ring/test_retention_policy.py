"""Which parts an event needs, when it is over, and what of a ring goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recorder.common.errors import SessionError
from recorder.recording.ring.event_window import (
    MOST,
    PartFacts,
    StreamFacts,
    needs_following,
    read_facts,
    shortfalls,
)
from recorder.recording.ring.retention_policy import (
    SLACK_NS,
    TRIGGER_NS,
    Part,
    droppable,
    is_over,
    split_due,
    touches,
)
from recorder.session.event_clips import KeptEvent, Shortfall
from recorder.session.events import make_event
from tests.session.build import START_NS, Builder, imu_session, imu_spec

S = 1_000_000_000
EVENT = KeptEvent("e", "e", None, 100 * S, 90 * S, 110 * S, "open")


def part(name: str, start_s: float, end_s: float | None, **more: Any) -> Part:
    end_ns = None if end_s is None else round(end_s * S)
    return Part(Path(name), round(start_s * S), end_ns, **more)


def test_samples_that_are_late_count() -> None:
    slack_s = SLACK_NS / S
    assert touches(part("a", 0, 90 - slack_s), EVENT)
    assert not touches(part("a", 0, 89.9 - slack_s), EVENT)
    assert touches(part("a", 110 + slack_s, 200), EVENT)
    assert not touches(part("a", 110.1 + slack_s, 200), EVENT)
    assert touches(part("a", 0, None), EVENT)


def test_an_event_is_over_when_its_parts_are_on_disk() -> None:
    late_ns = 110 * S + SLACK_NS + 1
    assert is_over(EVENT, [part("a", 0, 100), part("b", 100, 120)], late_ns)
    assert not is_over(EVENT, [part("a", 0, 100), part("b", 100, 120)], late_ns - 1)
    assert not is_over(EVENT, [part("a", 0, 100), part("b", 100, None)], late_ns)
    assert not is_over(EVENT, [part("a", 0, 100, volatile=True), part("b", 100, 120)], late_ns)
    assert is_over(EVENT, [part("z", 0, 50, volatile=True)], late_ns)


def test_when_the_open_part_ends() -> None:
    late_ns = 110 * S + SLACK_NS + 1
    live = part("a", 95, None)
    assert split_due([EVENT], live, late_ns) and not split_due([EVENT], live, late_ns - 1)
    other = KeptEvent("f", "f", None, 115 * S, 105 * S, 120 * S, "open")
    assert not split_due([EVENT, other], live, late_ns)
    assert not split_due([], live, late_ns)
    in_ram = part("a", 95, None, volatile=True)
    assert split_due([EVENT], in_ram, 100 * S) and not split_due([], in_ram, 100 * S)


def test_what_of_a_ring_goes() -> None:
    ring = [part(f"p{k}", 10 * k, 10 * k + 10, bytes=100, of_ring=True) for k in range(10)]
    plain = part("plain", 0, 10, bytes=1000)
    kept = part("kept", 0, 10, bytes=1000, of_ring=True, kept=True)
    live = part("live", 100, None, bytes=100, of_ring=True)
    parts = [*ring, plain, kept, live]

    def gone(now_s: float, **more: Any) -> list[str]:
        given: dict[str, Any] = {"seconds": 30.0, "most_bytes": 10_000.0, **more}
        return [p.path.name for p in droppable(parts, (), round(now_s * S), **given)]

    extra_s = (SLACK_NS + TRIGGER_NS) / S
    # The part that ended 30 s and what triggers and late samples need before now is the first.
    assert gone(10 + 30 + extra_s) == []
    assert gone(10.1 + 30 + extra_s) == ["p0"]
    assert gone(100, most_bytes=850.0)[-1] == "p5"  # of 1100; the age takes p0 to p5
    assert gone(10, most_bytes=850.0) == ["p0", "p1", "p2"]
    assert gone(10, most_bytes=800.0) == ["p0", "p1", "p2"]
    assert gone(10, missing_bytes=150.0) == ["p0", "p1"]
    assert gone(10, missing_bytes=1e9) == [f"p{k}" for k in range(10)]  # never the open one
    early = KeptEvent("e", "e", None, 5 * S, 5 * S, 6 * S, "open")
    found = droppable(parts, [early], 0, seconds=30.0, most_bytes=0.0)
    assert [p.path.name for p in found] == [f"p{k}" for k in range(1, 10)]


def facts(name: str, start_s: float, end_s: float, **more: Any) -> PartFacts:
    return PartFacts(name, round(start_s * S), round(end_s * S), **more)


def missing(*parts: PartFacts, **more: Any) -> list[tuple[float, float, str | None, str]]:
    found = shortfalls(EVENT, parts, **more)
    return [(s.from_ns / S, s.until_ns / S, s.stream, s.cause) for s in found]


def test_what_is_missing_at_the_ends() -> None:
    assert missing() == [(90, 110, None, "ring")]
    assert missing(otherwise="stop") == [(90, 110, None, "stop")]
    assert missing(facts("a", 80, 120)) == []
    assert missing(facts("a", 95, 120)) == [(90, 95, None, "start")]
    assert missing(facts("b", 95, 120, previous="a")) == [(90, 95, None, "ring")]
    assert missing(facts("b", 95, 120, previous="a"), gone="power") == [(90, 95, None, "power")]
    assert missing(facts("a", 80, 105)) == [(105, 110, None, "stop")]
    assert missing(facts("a", 80, 105, ending="power")) == [(105, 110, None, "power")]
    assert missing(facts("a", 80, 120), damaged=[(100 * S, 101 * S)]) == [
        (100, 101, None, "damaged")
    ]


def test_what_is_missing_between_parts() -> None:
    a, b = facts("a", 80, 100, ending="ring"), facts("b", 101, 120, previous="a")
    assert missing(a, b) == []
    assert missing(a, facts("c", 105, 120, previous="b")) == [(100, 105, None, "ring")]
    assert missing(facts("a", 80, 100), facts("b", 104, 120)) == [(100, 104, None, "stop")]


def test_what_is_missing_of_a_stream() -> None:
    def streams(*losses: tuple[int | None, int | None, str], last_s: float = 119) -> Any:
        return {"imu": StreamFacts(round(last_s * S), losses)}

    lost = (100 * S, 101 * S, "lost")
    assert missing(facts("a", 80, 120, streams=streams(lost))) == [(100, 101, "imu", "lost")]
    point = (100 * S, 100 * S, "lost")
    assert missing(facts("a", 80, 120, streams=streams(point))) == [
        (100, 100 + 1e-9, "imu", "lost")
    ]
    # The end of a part that was killed.
    torn = facts("a", 80, 120, ending="power", streams=streams(last_s=108))
    assert missing(torn) == [(108, 110, "imu", "power")]
    # A loss that a part reports without a sample before it began behind the last one of another.
    first = facts("a", 80, 95, ending="ring", streams=streams(last_s=92))
    second = facts("b", 95, 105, ending="ring", previous="a", streams={"imu": StreamFacts()})
    third = facts("c", 105, 120, previous="b", streams=streams((None, 106 * S, "lost")))
    assert missing(first, second, third) == [(92, 106, "imu", "lost")]


def test_losses_that_are_too_many_to_list_are_one_shortfall() -> None:
    losses = tuple(
        (80 * S + k * S // 50, 80 * S + k * S // 50 + 1, "lost") for k in range(MOST + 500)
    )
    found = missing(facts("a", 80, 120, streams={"imu": StreamFacts(119 * S, losses)}))
    assert found[-1:] == [(100, 110, "imu", "lost")]
    assert len(found) == MOST - 500 + 1


def test_the_part_after_may_know_of_a_loss() -> None:
    def last(last_s: float | None, ending: str = "ring") -> PartFacts:
        last_ns = None if last_s is None else round(last_s * S)
        return facts("a", 80, 115, ending=ending, streams={"imu": StreamFacts(last_ns)})

    assert needs_following(EVENT, last(109)) and needs_following(EVENT, last(None))
    assert not needs_following(EVENT, last(110)) and not needs_following(EVENT, last(109, "stop"))


@pytest.mark.parametrize("cause", ["absent", "device", "buffer"])
def test_the_facts_of_a_session(tmp_path: Path, cause: str) -> None:
    builder = Builder(tmp_path / "s")
    made = builder.add(imu_spec(), seq=[*range(10), *range(15, 100)])
    builder.add(imu_spec("silent"), count=0)
    builder.lose("imu", 10, 14, cause)
    builder.events.append(make_event("end", START_NS + S, cause="split"))
    found = read_facts(builder.close())
    assert (found.name, found.start_ns, found.ending) == ("s", START_NS, "ring")
    assert found.streams["silent"] == StreamFacts()
    shown = "lost" if cause == "buffer" else "sensor"
    losses = ((int(made.t_ns[9]), int(made.t_ns[10]), shown),)
    assert found.streams["imu"] == StreamFacts(int(made.t_ns[-1]), losses)


def test_a_stream_without_a_sample_is_known(tmp_path: Path) -> None:
    path = imu_session(tmp_path / "s").close()
    values = json.loads((path / "_recorder/session.json").read_bytes())
    values["streams"]["silent"] = imu_spec("silent").to_wire()
    (path / "_recorder/session.json").write_text(json.dumps(values))
    assert read_facts(path).streams.keys() == {"imu", "silent"}


def test_an_open_session_has_no_facts(tmp_path: Path) -> None:
    builder = imu_session(tmp_path / "s")
    with pytest.raises(SessionError, match="is not closed"):
        read_facts(builder.close("recording"))


def test_a_shortfall_of_everything_is_of_no_stream() -> None:
    assert shortfalls(EVENT, ()) == (Shortfall(90 * S, 110 * S, None, "ring"),)
