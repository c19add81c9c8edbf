"""Epochs and losses of the samples after the last commit, derived from their numbers.

Recovery keeps these samples.  The dead writer had not committed the restarts of drivers and the
causes of losses; the sample numbers show the restarts and the missing samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recorder.session.journal.state import JournalState

UNREPORTED = "untold"
"""Cause of a counted loss if the writer died before it recorded the driver's cause."""


def take_tail(
    journal: JournalState,
    name: str,
    seq: Sequence[int],
    first_sample: int,
    reported: Iterable[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Add the numbers of samples after the last commit to a stream's position.

    Args:
        journal: the journal's state, in which the stream's position, epochs and ends are updated.
        name: name of the stream.
        seq: numbers of the samples after the last commit.
        first_sample: index of the first of these samples.
        reported: ``lost`` events of the stream that were written after the last commit.

    Returns:
        Cause and numbers of the losses without an event, for `make_event`.
    """
    position = journal.positions.setdefault(name, {})
    epoch, next_seq = int(position.get("epoch", 0)), int(position.get("seq", 0))
    past = list(position.get("past", ()))
    spans = [
        (e.get("epoch"), e["first_seq"], e["last_seq"])
        for e in reported
        if isinstance(e.get("first_seq"), int) and isinstance(e.get("last_seq"), int)
    ]
    # An epoch's record may be on the disk although no commit followed it.
    recorded = {
        sample: number
        for number, sample in journal.epochs.get(name, ())
        if number != epoch and number not in past
    }
    losses: list[dict[str, Any]] = []
    for index, number in enumerate(seq, start=first_sample):
        if not epoch or number < next_seq or index in recorded:
            if epoch:
                past.append(epoch)
                if position.get("ended") is None:
                    journal.ends.setdefault(name, {})[epoch] = (None, "gone")
                    losses.append({"cause": "driver", "epoch": epoch, "first_seq": next_seq})
            epoch, next_seq = recorded.get(index, epoch + 1), 0
            position["ended"] = None
            journal.epochs.setdefault(name, []).append((epoch, index))
        if number > next_seq and not any(
            e == epoch and first <= next_seq and number - 1 <= last for e, first, last in spans
        ):
            gap = {"first_seq": next_seq, "last_seq": number - 1, "count": number - next_seq}
            losses.append({"cause": UNREPORTED, "epoch": epoch, **gap})
        next_seq = number + 1
    position |= {"epoch": epoch, "seq": next_seq, "past": past}
    return losses


def damaged_losses(
    epochs: Sequence[tuple[int, int]], committed: int, kept: int
) -> list[dict[str, Any]]:
    """Return the missing committed samples as one counted loss per epoch.

    Args:
        epochs: the stream's epochs as (epoch, index of its first sample), in order.
        committed: number of committed samples.
        kept: number of remaining samples.
    """
    losses = []
    stops = [*(index for _, index in epochs[1:]), committed]
    for (epoch, start), stop in zip(epochs, stops, strict=True):
        if (gone := stop - max(start, kept)) > 0:
            losses.append({"epoch": epoch, "count": gone})
    return losses
