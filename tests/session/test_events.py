"""Events: few lines, and none of what they count is forgotten."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.files import PosixDisk
from recorder.session.events import MERGE_NS, EventLog, make_event

MS = 1_000_000


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def key(event: dict[str, Any]) -> tuple[Any, ...]:
    """What makes two events one: besides, nobody can add a number to an unknown one."""
    return (
        event["type"],
        event["stream"],
        event["cause"],
        event.get("epoch"),
        event["count"] is None,
    )


@st.composite
def happenings(draw: st.DrawFn) -> list[dict[str, Any]]:
    now = 10**18
    events = []
    for _ in range(draw(st.integers(0, 40))):
        now += draw(st.sampled_from([0, 1, 30 * MS, 500 * MS, 999 * MS, 1000 * MS, 3000 * MS]))
        count = draw(st.none() | st.integers(1, 1000))
        events.append(
            make_event(
                draw(st.sampled_from(["lost", "fault"])),
                now,
                draw(st.sampled_from(["imu", "lidar"])),
                draw(st.sampled_from(["refused", "device"])),
                count=count,
                estimate=draw(st.integers(0, 5)) if count is None else None,
                epoch=draw(st.sampled_from([1, 2])),
                first_seq=5,
                last_seq=None if count is None else 4 + count,
            )
        )
    return events


def written(
    path: Path, events: list[dict[str, Any]], late_ns: int, restarts: bool
) -> list[dict[str, Any]]:
    """Log events as a writer does, `late_ns` after they happened; perhaps across writers."""
    log = EventLog(PosixDisk().create(path))
    for event in events:
        log.add(dict(event))
        log.write_due(event["t_ns"] + late_ns)
        if restarts:
            pending = json.loads(json.dumps(log.pending))  # as a commit record has them
            log.file.close()
            log = EventLog(PosixDisk().reopen(path, path.stat().st_size), pending)
    log.write_due()
    assert not log.pending
    log.file.close()
    return lines(path)


@given(happenings(), st.booleans())
def test_at_most_one_line_per_stream_cause_and_second(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]], restarts: bool
) -> None:
    found = written(tmp_path_factory.mktemp("e") / "events.jsonl", events, 0, restarts)
    last: dict[tuple[Any, ...], int] = {}
    for event in found:
        before = last.get(key(event))
        assert before is None or event["t_ns"] - before >= MERGE_NS
        last[key(event)] = event["t_ns"]


@given(happenings(), st.sampled_from([0, 300 * MS, 5000 * MS, -2000 * MS]), st.booleans())
def test_totals_are_conserved(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[dict[str, Any]],
    late_ns: int,
    restarts: bool,
) -> None:
    found = written(tmp_path_factory.mktemp("e") / "events.jsonl", events, late_ns, restarts)

    def totals(of: list[dict[str, Any]]) -> list[Counter[tuple[Any, ...]]]:
        counts: Counter[tuple[Any, ...]] = Counter()
        happened: Counter[tuple[Any, ...]] = Counter()
        estimates: Counter[tuple[Any, ...]] = Counter()
        for event in of:
            counts[key(event)] += event["count"] or 0
            happened[key(event)] += event.get("merged", 1)
            estimates[key(event)] += event.get("estimate") or 0
        return [counts, happened, estimates]

    assert totals(found) == totals(events)


def test_a_merged_event_spans_what_it_was_made_of(tmp_path: Path) -> None:
    log = EventLog(PosixDisk().create(tmp_path / "events"))
    for t_ms, first, count in ((0, 10, 2), (300, 20, 5), (900, 40, 1), (1000, 50, 1)):
        known = {"first_seq": first, "last_seq": first + count - 1, "count": count}
        log.add(make_event("lost", t_ms * MS, "imu", "refused", duration_ns=MS) | known)
    log.write_due()
    log.file.close()
    first_line, second_line = lines(tmp_path / "events")
    assert (first_line["first_seq"], first_line["last_seq"], first_line["count"]) == (10, 40, 8)
    assert first_line["t_ns"] == 0 and first_line["duration_ns"] == 901 * MS
    assert first_line["merged"] == 3 and "merged" not in second_line
    assert second_line["count"] == 1


def test_known_and_unknown_losses_stay_apart(tmp_path: Path) -> None:
    log = EventLog(PosixDisk().create(tmp_path / "events"))
    log.add(make_event("lost", 0, "imu", "device", count=None, estimate=7))
    log.add(make_event("lost", 1, "imu", "device", count=3))
    log.add(make_event("lost", 2, "imu", "device", count=None, estimate=1))
    log.write_due()
    log.file.close()
    assert [(e["count"], e.get("estimate")) for e in lines(tmp_path / "events")] == [
        (None, 8),
        (3, None),
    ]


def test_every_event_has_every_key_of_the_format() -> None:
    event = make_event("mark", 5, text="hello")
    assert set(event) == {
        *("t_ns", "type", "stream", "cause", "first_seq", "last_seq", "count", "duration_ns"),
        "text",
    }
    assert (event["stream"], event["cause"]) == (None, None)


def test_events_wait_a_second_for_their_like(tmp_path: Path) -> None:
    log = EventLog(PosixDisk().create(tmp_path / "events"))
    log.add(make_event("lost", 1000 * MS, "imu", "refused", count=1))
    log.write_due(1999 * MS)
    assert len(log.pending) == 1 and log.file.length == 0
    log.write_due(2000 * MS)
    assert not log.pending and log.file.length > 0
    log.file.close()
