"""Corrections of a file's log times, without the package ``mcap``."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LogOrder:
    """Corrections of a file's log times, so that messages can be put in order.

    Attributes:
        starts_ns: earliest corrected log time by block.
        shifts: by channel, places (`pack_place`) and the correction of log times from each on.
    """

    starts_ns: Sequence[int]
    shifts: Mapping[int, tuple[Sequence[int], Sequence[int]]] = field(default_factory=dict)

    def shift_ns(self, channel: int, block: int, offset: int) -> int:
        """Return the correction of a message's log time."""
        if (found := self.shifts.get(channel)) is None:
            return 0
        places, shifts = found
        at = bisect_right(places, pack_place(block, offset))
        return shifts[at - 1] if at else 0


def pack_place(block: int, offset: int) -> int:
    """Return the place of a message in its file; a block has at most 1 GiB of records."""
    return block << 31 | offset
