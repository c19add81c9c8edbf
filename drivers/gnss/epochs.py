"""One row for each epoch of a receiver, joined from its messages.  No I/O and no clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from drivers.gnss.fixes import AUTONOMOUS, CHANNELS, DEAD_RECKONING, FIX_2D, NO_VECTOR, NONE, Part
from drivers.gnss.packets import Frame
from drivers.kit.satellite_navigation import (
    DAY_NS,
    WEEK_NS,
    convert_gps_to_utc,
    convert_utc_to_gps,
    wrap_to_cycle,
)

_LATEST_NS: Final = 1 << 62  # in 2126; epoch ns of it are an int64


class Unrecorded(NamedTuple):
    """Epochs that gave no row, counted from the beginning.

    Attributes:
        unplaced: for a time that has a row already.
        repeated: the same epoch once more, of a protocol with exact times.
        untimed: without a time of GPS or UTC.
    """

    unplaced: int = 0
    repeated: int = 0
    untimed: int = 0

    def since(self, before: Unrecorded) -> Unrecorded:
        """Return the counts since other, earlier counts."""
        return Unrecorded(*(now - then for now, then in zip(self, before, strict=True)))

    def with_more(self, more: Unrecorded) -> Unrecorded:
        """Return the sums with other counts."""
        return Unrecorded(*map(sum, zip(self, more, strict=True)))


@dataclass(frozen=True, slots=True)
class Row:
    """An epoch.

    Attributes:
        gps_ns: its GPS time, ns since 1980.
        data: arrays [1, ...] by channel.
        first: the frame that it began with; None for gpsd.
        unrecorded: epochs before it.
    """

    gps_ns: int
    data: Mapping[str, npt.NDArray[Any]]
    first: Frame | None
    unrecorded: Unrecorded

    @property
    def damage(self) -> int:
        """Bytes of the stream before it that belong to no frame."""
        return 0 if self.first is None else self.first.skipped


class Epochs:
    """Joiner of the parts of epochs.

    Usage::

        epochs = Epochs()
        for frame in frames:
            if (part := decode(frame)) is not None and (row := epochs.add(part, frame)):
                ...

    An epoch ends with its last message: one marked as last, or the last of the kinds that the
    epoch before had.  Else it is over when the next one begins.  The first message of a kind counts
    for a time; a further one is counted.

    Attributes:
        unplaced, repeated: see `Unrecorded`, before the epoch that is under way.
        untimed: see `Unrecorded`.
        senders: messages with a position by talker, also those that gave no row.
    """

    def __init__(self) -> None:
        self.unplaced = self.repeated = self.untimed = 0
        self.senders: Counter[str] = Counter()
        self._parts: dict[str, Part] = {}
        self._time: tuple[int | None, int | None] | None = None
        self._is_over = False  # the epoch of this time has its row
        self._first: Frame | None = None
        self._usual: frozenset[str] = frozenset()
        self._moved: Counter[str] = Counter()  # further messages for the time, by kind
        self._again: Counter[str] = Counter()
        self._untimed_kind = ""
        self._date_ns: int | None = None  # GPS time of the latest epoch
        self._leaps: int | None = None

    @property
    def unrecorded(self) -> Unrecorded:
        """Counts of the epochs that gave no row so far."""
        unplaced = self.unplaced + max(self._moved.values(), default=0)
        repeated = self.repeated + max(self._again.values(), default=0)
        return Unrecorded(unplaced, repeated, self.untimed)

    def add(self, part: Part, frame: Frame | None = None) -> Row | None:
        """Add the next part; return the row that is complete with it or before it."""
        if part.place is not None:
            self.senders[part.sender] += 1
        if part.timeless:
            if self._is_over or not self._parts:
                return None
        elif part.shared == (None, None) and part.gps_ns is None:
            self._count_untimed(part)
            return None
        row, time = None, part.shared
        if part.timeless:
            time = self._time or time
        elif time == (None, None):
            time = (part.gps_ns, None)
        if time != self._time:
            row = self.flush()
            self._begin(time, frame)
        elif (taken := self._parts.get(part.kind)) is not None and not part.timeless:
            self._count_further(part, taken)
            return None
        self._parts[part.kind] = part
        if self._is_over:  # the epoch has more messages than the one before
            self._usual = frozenset()
        elif row is None and (part.last or self._usual == self._parts.keys()):
            self._is_over = True
            row = self._make_row()
        return row

    def flush(self) -> Row | None:
        """End the epoch that is under way; return its row, None without one."""
        if self._is_over or not self._parts:
            return None
        self._usual = frozenset(self._parts)
        self._is_over = True
        return self._make_row()

    def _begin(self, time: tuple[int | None, int | None], frame: Frame | None) -> None:
        self.unplaced, self.repeated, _ = self.unrecorded
        self._moved.clear()
        self._again.clear()
        self._parts, self._time, self._is_over, self._first = {}, time, False, frame

    def _count_untimed(self, part: Part) -> None:
        """Count an epoch of several messages once, by the kind that came first."""
        if part.place is not None:
            self._untimed_kind = self._untimed_kind or part.kind
            self.untimed += part.kind == self._untimed_kind

    def _count_further(self, part: Part, taken: Part) -> None:
        place = part.place
        if part.sender == taken.sender and place is not None and taken.place is not None:
            # NMEA's times may have too few digits for the rate: an equal one may be another epoch.
            is_exact = part.day_ns is None
            same = is_exact and np.array_equal(place, taken.place, equal_nan=True)
            (self._again if same else self._moved)[part.kind] += 1

    def _make_row(self) -> Row | None:
        parts = list(self._parts.values())
        values: dict[str, Any] = {}
        for part in parts:
            values.update(part.values)
            self._leaps = part.leaps if part.leaps is not None else self._leaps
        gps_ns = next((part.gps_ns for part in parts if part.gps_ns is not None), None)
        if "pos" not in values and "pos_of_rmc" not in values and "fix" not in values:
            return None
        if gps_ns is None:
            gps_ns = self._date(parts)
        if gps_ns is None or not 0 < gps_ns < _LATEST_NS:
            self.untimed += 1
            return None
        self._date_ns = gps_ns
        data = _arrays(values, gps_ns, self._leaps)
        before = Unrecorded(self.unplaced, self.repeated, self.untimed)
        return Row(gps_ns, data, self._first, before)

    def _date(self, parts: list[Part]) -> int | None:
        """Return the GPS time in ns by the date of the epoch before; None if it is unknown."""
        if self._date_ns is None:
            return None
        for part in parts:
            if part.week_ns is not None:
                return self._date_ns + wrap_to_cycle(part.week_ns - self._date_ns, WEEK_NS)
            if part.day_ns is not None:
                utc_ns = convert_gps_to_utc(self._date_ns, self._leaps)
                utc_ns += wrap_to_cycle(part.day_ns - utc_ns, DAY_NS)
                return convert_utc_to_gps(utc_ns, self._leaps)
        return None


def _arrays(
    values: Mapping[str, Any], gps_ns: int, leaps: int | None
) -> dict[str, npt.NDArray[Any]]:
    pos = values.get("pos", values.get("pos_of_rmc", NO_VECTOR))
    if not math.isnan(pos[0]):
        pos = values.get("pos_exact", pos)
    if not (abs(pos[0]) <= 90 and abs(pos[1]) <= 180):  # nowhere on Earth, or NaN
        pos = NO_VECTOR
    unknown = np.full((3, 3), math.nan)
    fix = values.get("fix", values.get("fix_of_gga", FIX_2D if "pos_of_rmc" in values else NONE))
    if (stated := values.get("fix_of_gga", values.get("fix_of_rmc"))) in (NONE, DEAD_RECKONING):
        fix = stated
    row = {
        "pos": pos,
        "vel": values.get("vel", NO_VECTOR),
        "fix": fix,
        "cov": values.get("cov", values.get("accuracy", unknown)),
        "sats": min(255, values.get("sats", 0)),
        "utc": values.get("utc", convert_gps_to_utc(gps_ns, leaps)),
        "quality": values.get("quality", 0 if np.isnan(pos[0]) else AUTONOMOUS),
    }
    with np.errstate(over="ignore"):
        return {c.name: np.array([row[c.name]], c.np_dtype) for c in CHANNELS}
