"""Detection of a second receiver on a line by its distance from the first one.

Two receivers with one talker whose epochs differ in time look like one that is faster.  If they are
far apart, the positions go there and back at a speed that no vehicle has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from drivers.gnss.epochs import Row

_FASTEST: Final = 1000.0  # m/s
_NEAR_M: Final = 1000.0  # a receiver's position may leap so far
_DEGREE_M: Final = 111_000.0
_SURE: Final = 2
"""Number of quick returns to a place that cannot be errors of one receiver."""
_SHORTLY: Final = 3  # rows
_AWAY: Final = 20
"""Number of positions at another place alone after which the receiver is there."""


class PlaceTrack:
    """Track of the first receiver's place.

    ::

        track = PlaceTrack.of(first_rows)
        for row in rows:
            if not track.is_of_another(row):
                ...

    Attributes:
        is_sure: there is a second receiver.
        others: number of rows of the second receiver.
        distance_m: to its place.
    """

    def __init__(self, *, is_sure: bool = False) -> None:
        self.is_sure = is_sure
        self.others = 0
        self.distance_m = 0.0
        self._last: Row | None = None
        self._other: Row | None = None  # the latest one at another place
        self._stayed = self._away = self._returns = 0

    @classmethod
    def of(cls, rows: Sequence[Row]) -> PlaceTrack:
        """Return a track for rows that knows from the first row on whether two receivers send."""
        scout = cls()
        for row in rows:
            scout.is_of_another(row)
        return cls(is_sure=scout.is_sure)

    def is_of_another(self, row: Row) -> bool:
        """Return whether a row is the second receiver's; rows without a place are the first's."""
        if math.isnan(row.data["pos"][0, 0]):
            return False
        if self._last is None:
            self._last = row
        elif self._away >= _AWAY:
            self._last, self._other, self.is_sure = row, None, False
            self._stayed = self._away = self._returns = 0
        elif _reaches(row, self._last):
            self._returns += self._away > 0
            self._last, self._away, self._stayed = row, 0, self._stayed + 1
        else:
            is_return = self._other is not None and _reaches(row, self._other)
            self._returns = self._returns + (not self._away) if is_return else 0
            self._other, self._stayed, self._away = row, 0, self._away + 1
        if max(self._stayed, self._away) > _SHORTLY:
            self._returns = 0
            self._other = self._other if self._away else None
        self.is_sure |= self._returns >= _SURE
        if not (self.is_sure and self._away):
            return False
        self.others += 1
        self.distance_m = _distance_m(row, self._last)
        return True


def _reaches(row: Row, before: Row) -> bool:
    """Return whether one receiver may have moved from one place to the other."""
    seconds = abs(row.gps_ns - before.gps_ns) / 1e9
    return _distance_m(row, before) <= _FASTEST * seconds + _NEAR_M


def _distance_m(a: Row, b: Row) -> float:
    """Return the approximate distance over ground in m."""
    (north, east), (south, west) = a.data["pos"][0, :2], b.data["pos"][0, :2]
    turn = (east - west + 180) % 360 - 180
    return _DEGREE_M * math.hypot(north - south, turn * math.cos(math.radians(float(north))))
