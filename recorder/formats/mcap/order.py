"""Corrections of a file's log times; needs no package of MCAP."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LogOrder:
    """Corrections of a file's log times, so that messages can be put in order.

    Attributes:
        starts_ns: by block, its earliest corrected log time.
        shifts: by channel, places (`place_of`) and what is added to log times from there on.
    """

    starts_ns: Sequence[int]
    shifts: Mapping[int, tuple[Sequence[int], Sequence[int]]] = field(default_factory=dict)

    def shift_ns(self, channel: int, block: int, offset: int) -> int:
        """Return what is to be added to the log time of a message."""
        if (found := self.shifts.get(channel)) is None:
            return 0
        places, shifts = found
        at = bisect_right(places, place_of(block, offset))
        return shifts[at - 1] if at else 0


def place_of(block: int, offset: int) -> int:
    """Return the place of a message in its file; a block has at most 1 GiB of records."""
    return block << 31 | offset
