"""The sequence of a vehicle's signatures, in which a deleted session leaves a gap."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from recorder.integrity.proof import SHOWN, Proof
from recorder.integrity.vehicle_key import Signed


def check_rows(folder: Proof, sessions: Sequence[Proof], *, whole: bool = True) -> None:
    """Check the signatures of several sessions together, one sequence for each key.

    Args:
        folder: receives proven facts and faults.
        sessions: proofs of all sessions.
        whole: a session that is missing is a fault; False: sessions may be elsewhere.
    """
    damaged = {Path(each.path).name for each in sessions if each.faults and not each.signatures}
    rows: dict[str, dict[int, tuple[Signed, Path | str]]] = {}
    for session in sessions:
        for signed in session.signatures:
            row = rows.setdefault(signed.fingerprint, {})
            number = int(signed.values.get("counter", 0))
            if number in row and row[number][0].digest != signed.digest:
                text = f"and {session.path} both have signature {number} of one key"
                folder.faults.append(f"{row[number][1]} {text}: the key's counter was set back")
            elif number in row:
                text = "is a copy of"
                folder.faults.append(f"{session.path}: {text} {row[number][1]}")
            row.setdefault(number, (signed, session.path))
    for key, row in rows.items():
        _check_row(folder, key, row, damaged, whole)


def _check_row(
    folder: Proof, key: str, row: dict[int, tuple[Signed, Path | str]], damaged: set[str],
    whole: bool,
) -> None:  # fmt: skip
    key = key[:SHOWN]
    numbers = sorted(row)
    last = row[numbers[-1]][0]
    deleted = [(int(a), int(b)) for a, b in last.values.get("deleted") or ()]
    faults, gone, missing = len(folder.faults), 0, 0
    number = numbers[-1]
    # From the last signature down, every number is a session here, a stated deletion, or missing.
    while number >= 1:
        if number in row:
            number -= 1
            continue
        found = next((r for r in deleted if r[0] <= number <= r[1]), None)
        if found is not None:
            below = max((n for n in numbers if n < number), default=0)
            stop = max(found[0] - 1, below)
            gone += number - stop
            number = stop
            continue
        after = row.get(number + 1)
        previous = (after[0].values.get("previous") or {}) if after else {}
        name = previous.get("session")
        if name in damaged:  # its own proof has the fault
            folder.unproven.append(f"signature {number}: cannot be read in {name}")
            missing += 1
        else:
            who = f"of the session {name} " if name else ""
            text = f"signature {number} {who}is missing: it was deleted, or is elsewhere"
            found_in = folder.faults if whole else folder.unproven
            found_in.append(f"{folder.path}: {text} (key {key})")
            missing += 1
        number -= 1
    for low, high in pairwise(numbers):
        signed, path = row[high]
        previous = signed.values.get("previous") or {}
        if high == low + 1 and previous.get("digest") != row[low][0].digest:
            text = f"signature {high} does not follow signature {low} of {row[low][1]}"
            folder.faults.append(f"{path}: {text}")
    if len(folder.faults) == faults and not missing:
        text = f"signatures 1 to {numbers[-1]} of the key {key} follow each other"
        text += f"; {gone} of them are of sessions that the recorder deleted" if gone else ""
        folder.proven.append(text)
    ends = f"nothing here proves that signature {numbers[-1]} is the last one of the key {key}"
    folder.unproven.append(f"{ends}; `recorder keys show` on the vehicle shows it")
