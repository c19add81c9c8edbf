"""Whether the accounts of a soak's sessions balance."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recorder.session.layout import private
from recorder.session.validation import validate
from tests.support.events import events


@dataclass
class Balance:
    """What was found over all sessions.

    Attributes:
        wrong: sentences; empty where everything balances.
        samples: stored.
        counted: lost and counted, by cause.
        intervals: of loss that nobody could count.
        seams: where a stream went on from one part to the next, without a number missing.
        states: sessions by how they ended.
    """

    wrong: list[str] = field(default_factory=list)
    samples: int = 0
    counted: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    intervals: int = 0
    seams: int = 0
    states: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def balance(sessions: Iterable[Path], streams: Iterable[str]) -> Balance:
    """Hold every session against its format, and every number against the accounts.

    Args:
        sessions: folders, oldest first.
        streams: of `tests.soak.counter`.
    """
    found = Balance()
    last: dict[tuple[str, int], tuple[str, int]] = {}  # by stream and life: session, last accounted
    for session in sessions:
        description = json.loads(private(session, "session.json").read_bytes())
        found.states[description["state"]] += 1
        report = validate(session, deep=True)
        found.wrong += [f"{session.name}: {p.message}" for p in report.problems]
        for stream in streams:
            if (session / stream).is_dir():
                _stream(found, session, description, stream, last)
    return found


def _stream(
    found: Balance,
    session: Path,
    description: dict[str, Any],
    stream: str,
    last: dict[tuple[str, int], tuple[str, int]],
) -> None:
    lives = np.fromfile(session / stream / "life", "<u8")
    numbers = np.fromfile(session / stream / "number", "<u8").astype(np.int64)
    seq = np.fromfile(session / stream / "seq", "<u8").astype(np.int64)
    ts = np.fromfile(session / stream / "ts", "<f8")
    found.samples += len(numbers)
    lost = events(session, type="lost", stream=stream)
    for event in lost:
        if event["count"] is None:
            found.intervals += 1
        else:
            found.counted[event["cause"]] += event["count"]
    if not (np.diff(ts) > 0).all():
        found.wrong.append(f"{session.name}/{stream}: ts goes back")
    missing = 0
    for life in dict.fromkeys(lives.tolist()):
        mine = lives == life
        steps = np.diff(numbers[mine])
        if not (steps > 0).all():
            found.wrong.append(f"{session.name}/{stream}: a number twice, or out of order")
        if not np.array_equal(steps, np.diff(seq[mine])):
            found.wrong.append(f"{session.name}/{stream}: seq and numbers have different gaps")
        missing += int((steps - 1).sum())
        first, end = int(numbers[mine][0]), int(numbers[mine][-1])
        before = last.get((stream, life))
        if before is not None and before[0] == description["previous"]:
            refused = _counted_beside(lost, int(seq[mine][0]))
            if first != before[1] + 1 + refused:
                found.wrong.append(
                    f"{before[0]} -> {session.name}/{stream}: {before[1]} is followed by {first}"
                )
            found.seams += 1
        behind = _counted_behind(lost, int(seq[mine][-1]), description["epochs"][stream])
        last[stream, life] = session.name, end + behind
    counted = sum(e["count"] for e in lost if e["count"] is not None)
    if missing > counted:
        found.wrong.append(
            f"{session.name}/{stream}: {missing} numbers are missing, {counted} were counted"
        )


def _counted_behind(lost: list[dict[str, Any]], last_seq: int, epochs: list[dict[str, Any]]) -> int:
    """Samples that were lost behind the last of a part, by its last driver."""
    behind = (e for e in lost if e["count"] is not None and e["first_seq"] > last_seq)
    return sum(e["count"] for e in behind if e["epoch"] == epochs[-1]["epoch"])


def _counted_beside(lost: list[dict[str, Any]], first_seq: int) -> int:
    """Samples that were lost before the first of a part."""
    before = (e for e in lost if e["count"] is not None and e["last_seq"] < first_seq)
    return sum(e["count"] for e in before)
