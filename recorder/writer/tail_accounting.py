"""What samples beyond the last commit say of epochs and losses.

Recovery under the same boot keeps them, but what the writer knew of them died with it: where a
driver had started anew, and why numbers are missing.  Both show in the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recorder.session.journal_state import JournalState

UNREPORTED = "untold"
"""Cause of a loss that the driver counted, but the writer died before it wrote down why."""


def take_tail(
    journal: JournalState,
    name: str,
    seq: Sequence[int],
    first_sample: int,
    reported: Iterable[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Take the numbers of samples beyond the last commit into a stream's position.

    Args:
        journal: its position, epochs and ends of the stream are carried on.
        name: the stream.
        seq: numbers of those samples.
        first_sample: index of the first of them.
        reported: ``lost`` events of the stream that were written after the last commit.

    Returns:
        Cause and numbers of the losses that no event tells of, for `make_event`.
    """
    position = journal.positions.setdefault(name, {})
    epoch, next_seq = int(position.get("epoch", 0)), int(position.get("seq", 0))
    past = list(position.get("past", ()))
    spans = [
        (e.get("epoch"), e["first_seq"], e["last_seq"])
        for e in reported
        if isinstance(e.get("first_seq"), int) and isinstance(e.get("last_seq"), int)
    ]
    # An epoch's record may have reached the disk, though no commit followed it.
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
    """Committed samples that are gone, as one counted loss per epoch.

    Args:
        epochs: the stream's, (epoch, index of its first sample), in order.
        committed: samples that were committed.
        kept: how many of them remain.
    """
    losses = []
    stops = [*(index for _, index in epochs[1:]), committed]
    for (epoch, start), stop in zip(epochs, stops, strict=True):
        if (gone := stop - max(start, kept)) > 0:
            losses.append({"epoch": epoch, "count": gone})
    return losses
