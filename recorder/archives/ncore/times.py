"""Time conversion: nanoseconds in the interface, microseconds in the stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from recorder.archives import ArchiveError

NS_PER_US = 1000
TimesUs = npt.NDArray[np.uint64]


class Interval(Struct, frozen=True, rename={"start_us": "start", "stop_us": "stop"}):
    """A sequence's half-open interval of whole microseconds."""

    start_us: int
    stop_us: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_us < self.stop_us:
            raise ArchiveError(f"a sequence from {self.start_us} us to {self.stop_us} us is empty")

    @classmethod
    def of_ns(cls, start_ns: int, stop_ns: int) -> Interval:
        """The shortest interval that contains every time of [start_ns, stop_ns), rounded down."""
        return cls(start_ns // NS_PER_US, -(-stop_ns // NS_PER_US))

    @property
    def start_ns(self) -> int:
        """The first time of the sequence, at which a trajectory begins."""
        return self.start_us * NS_PER_US

    @property
    def last_ns(self) -> int:
        """The last time of the sequence, at which a trajectory ends."""
        return (self.stop_us - 1) * NS_PER_US

    def holds(self, t_us: int) -> bool:
        """Whether a time is inside the interval."""
        return self.start_us <= t_us < self.stop_us

    def __str__(self) -> str:
        return f"[{self.start_us}, {self.stop_us}) us"


def to_us(t_ns: npt.NDArray[Any]) -> TimesUs:
    """Whole microseconds, rounded down, of non-negative int64 nanoseconds."""
    return t_ns.view(np.uint64) // np.uint64(NS_PER_US)
