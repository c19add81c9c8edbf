"""Conversion of a receiver's bytes to rows: the common part of devices and logs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from drivers.gnss.epochs import Epochs, Row, Unrecorded
from drivers.gnss.fixes import Part, make_decoder
from drivers.gnss.packets import NMEA, PROTOCOLS, SBF, UBX, Frame, FrameParser

_FASTEST: Final = 1000.0  # m/s
_NEAR_M: Final = 1000.0  # a receiver's position may leap so far
_DEGREE_M: Final = 111_000.0
_SURE: Final = 2
"""Number of quick returns to a place that cannot be errors of one receiver."""
_SHORTLY: Final = 3  # rows
_AWAY: Final = 20
"""Number of positions at another place alone after which the receiver is there."""


class PlaceTrack:
    """Track of the first receiver's place, which detects a second receiver on the line.

    Two receivers with one talker whose epochs differ in time look like one that is faster.  If they
    are far apart, the positions go there and back at a speed that no vehicle has.

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


POSITIONS = {UBX: ("01 07",), SBF: ("4007",), NMEA: ("GGA", "GNS", "RMC")}
"""By protocol, in order of preference: the messages with a position."""
_JITTER_NS = 1_000_000


class Reception:
    """Converter of a receiver's bytes to rows.

    Args:
        protocol: ``ubx``, ``nmea``, ``sbf``; ``auto``: the best one that comes.
        talker: of the sentences of NMEA that are used (``GN``); None: of all.

    Attributes:
        parser: counts bytes and bad frames.
        epochs: counts epochs that give no row.
        protocol: that is in use; None while it is not known.
    """

    def __init__(self, protocol: str = "auto", talker: str | None = None) -> None:
        self._talker = talker
        self.parser = FrameParser()
        self.epochs = Epochs()
        self.protocol: str | None = None
        self._decode: Callable[[Frame], Part | None] | None = None
        self._seen: dict[str, int] = {}
        self._waiting: list[Frame] = []
        if protocol != "auto":
            self._use(protocol)

    def feed(self, data: bytes) -> Iterator[Row]:
        """Yield the epochs that the bytes complete."""
        for frame in self.parser.feed(data):
            yield from self._process(frame)

    def finish(self) -> Iterator[Row]:
        """End the stream; yield the remaining rows."""
        for frame in self.parser.finish():
            yield from self._process(frame)
        if self._decode is None:
            yield from self.choose()
        if (row := self.epochs.flush()) is not None:
            yield row

    def choose(self) -> Iterator[Row]:
        """Choose the protocol by the frames so far; yield its rows."""
        best = next((name for name in POSITIONS if self._seen.get(name)), None)
        if self._decode is None and best is not None:
            self._use(best)
            waiting, self._waiting = self._waiting, []
            for frame in waiting:
                yield from self._take(frame)

    @property
    def has_input(self) -> bool:
        """True if any frame has arrived."""
        return any(self._all.values())

    @property
    def summary(self) -> str:
        """Counts of the frames by protocol, for people."""
        found = [f"{count} {name.upper()}" for name, count in self._all.items() if count]
        return ", ".join(found) or "nothing that a receiver sends"

    @property
    def _all(self) -> dict[str, int]:
        return {name: self._seen.get(f"any {name}", 0) for name in PROTOCOLS}

    def _use(self, protocol: str) -> None:
        self.protocol, self._decode = protocol, make_decoder(protocol)

    def _process(self, frame: Frame) -> Iterator[Row]:
        self._seen[f"any {frame.protocol}"] = self._seen.get(f"any {frame.protocol}", 0) + 1
        if self._decode is None:
            self._waiting.append(frame)
            if frame.name in POSITIONS[frame.protocol]:
                self._seen[frame.name] = self._seen.get(frame.name, 0) + 1
                count = max(self._seen.get(name, 0) for name in POSITIONS[frame.protocol])
                self._seen[frame.protocol] = count
                # One whole epoch has passed: protocols that are not here do not come.
                if count > 2 or frame.protocol == UBX:
                    yield from self.choose()
        else:
            yield from self._take(frame)

    def _take(self, frame: Frame) -> Iterator[Row]:
        if self._talker is not None and frame.talker not in ("", self._talker):
            self.epochs.senders[frame.talker] += frame.name in POSITIONS[NMEA]
            return
        part = None if self._decode is None else self._decode(frame)
        if part is not None and (row := self.epochs.add(part, frame)) is not None:
            yield row


def estimate_rate(rows: Sequence[Row]) -> float | None:
    """Return the rate in Hz by the first rows, of which some may be missing; None below two.

    The times of some receivers have too few digits for their rate: 0.0, 0.2, 0.5, 0.7 of 4 Hz.
    Two steps together have less of this error than one.
    """
    times = [row.gps_ns for row in rows]
    pairs = list(zip(times, times[2:], strict=False)) or [
        (a, 2 * b - a) for a, b in pairwise(times)
    ]
    steps = Counter(round((b - a) / _JITTER_NS) for a, b in pairs if b > a)
    usual = min(steps, key=lambda step: (-steps[step], step), default=None)
    return None if usual is None else 2e9 / (max(usual, 1) * _JITTER_NS)


class Cadence:
    """Counter of the epochs that are missing between two.

    Args:
        rate_hz: of the first epochs.
        fixed: it is the rate; else two shorter steps in succession show a higher one.

    Attributes:
        period_ns: between two epochs.
    """

    def __init__(self, rate_hz: float, *, fixed: bool) -> None:
        self.period_ns = 1e9 / rate_hz
        self._fixed = fixed
        self._before_ns = math.inf

    def missing(self, step_ns: int, explained: Unrecorded) -> int:
        """Return the number of epochs that are missing in a step from one to the next.

        Args:
            step_ns: between the two.
            explained: epochs between them that came, but gave no row: they are not missing.
        """
        if not self._fixed:
            self.period_ns = min(self.period_ns, max(step_ns, self._before_ns))
            self._before_ns = step_ns
        came = explained.unplaced + explained.untimed
        return max(0, round(step_ns / self.period_ns) - 1 - came)


UNPLACED: Final = (
    "a further position for a time that has one: two receivers on one line, epochs more often than "
    "the digits of their times show, or messages that are sent twice"
)
"""Reason of the loss of an epoch for a time that has a row already."""


class EpochReports:
    """Reports about epochs without a row, and about several senders.

    Args:
        epochs: of the reception.
        track: of the first receiver's place.
    """

    def __init__(self, epochs: Epochs, track: PlaceTrack) -> None:
        self._epochs, self._track = epochs, track
        self._before = Unrecorded()
        self._senders = self._others = 0
        self._reported: tuple[int, int] = 0, 0

    def take(self, row: Row | None) -> tuple[Unrecorded, dict[str, Any]]:
        """Return the epochs without a row since the last row, and values of a state.

        Args:
            row: the next one; None at the end of the source.
        """
        now = self._epochs.unrecorded if row is None else row.unrecorded
        since, self._before = now.since(self._before), now
        values: dict[str, Any] = {}
        if since.untimed:
            values["epochs_without_time"] = since.untimed
        senders, track = self._epochs.senders, self._track
        counts = senders.total(), track.others
        is_end = row is None and counts != self._reported
        if len(senders) > 1 and (len(senders) > self._senders or is_end):
            values["positions_by_sender"] = dict(senders)
        if track.others and (not self._others or is_end):
            about = {"positions": track.others, "distance_m": round(track.distance_m)}
            values["second_receiver"] = about
        if values or is_end:
            self._senders, self._others, self._reported = len(senders), track.others, counts
        return since, values
