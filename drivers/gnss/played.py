"""Source that plays logs of a receiver's bytes."""

from __future__ import annotations

from collections import deque
from typing import BinaryIO

import numpy as np

from drivers.gnss.epochs import Row, Unrecorded
from drivers.gnss.fixes import gnss_spec
from drivers.gnss.stream import (
    UNPLACED,
    Cadence,
    EpochReports,
    PlaceTrack,
    Reception,
    estimate_rate,
)
from drivers.kit.driver import EndOfSource, Item, Lost, Sample, SensorConfig, State
from drivers.kit.satellite_navigation import DAY_NS, SECOND_NS
from recorder.common.errors import SourceError

_CHUNK = 1 << 16
_SCAN_BYTES = 4 << 20
_SCAN_ROWS = 20
_LONGEST_NS = 60_000_000_000
"""A longer gap may be between two logs: its epochs are estimated, not counted."""
_SURE_EPOCHS = 20
"""Number of consecutive earlier epochs that show that the clock was set back."""


class LogSource:
    """A log of a receiver's bytes, read in chunks."""

    def __init__(self, sensor: SensorConfig) -> None:
        self._sensor = sensor
        self._where = f"{sensor.name}: {sensor.scheme}:{sensor.path}"
        self._items: deque[Item] = deque()
        self._last: Row | None = None
        self._t_ns = 0  # of the last row; GPS time, unless the receiver's clock was set
        self._early: list[Row] = []  # earlier than the last one, by more than a second
        self._unordered = 0
        self._damage = 0
        self._since = Unrecorded()  # epochs without a row since the last row
        self._is_over = False
        try:
            self._file: BinaryIO = sensor.path.open("rb", buffering=0)
        except OSError as error:
            raise SourceError(f"{self._where}: {error.strerror or error}") from None
        try:
            self._begin()
        except BaseException:
            self._file.close()
            raise

    def _begin(self) -> None:
        """Read the first rows, which determine the rate."""
        options = self._sensor.options
        self._reception = Reception(options["protocol"], options["talker"])
        rows: deque[Row] = deque()
        while len(rows) < _SCAN_ROWS and not self._is_over:
            rows += self._read_chunk()
            if not rows and self._file.tell() >= _SCAN_BYTES:
                rows += self._reception.choose()
                if not rows:
                    break
        if not rows:
            untimed = self._reception.epochs.untimed
            why = f"; {untimed} positions without a time" if untimed else ""
            raise SourceError(f"{self._where}: no position: {self._reception.summary}{why}")
        own = PlaceTrack.of(rows)
        rate_hz = (
            options["rate"] or estimate_rate([r for r in rows if not own.is_of_another(r)]) or 1.0
        )
        self._track = PlaceTrack.of(rows)
        self._reports = EpochReports(self._reception.epochs, self._track)
        self._cadence = Cadence(rate_hz, fixed=bool(options["rate"]))
        about = {"protocol": self._reception.protocol}
        self.spec = gnss_spec(self._sensor.name, rate_hz, True, about)
        for row in rows:
            self._take(row)

    def _read_chunk(self) -> list[Row]:
        try:
            chunk = self._file.read(_CHUNK)
        except OSError as error:
            raise SourceError(f"{self._where}: {error.strerror or error}") from None
        if chunk:
            return list(self._reception.feed(chunk))
        self._is_over = True
        return list(self._reception.finish())

    def _take(self, row: Row | None) -> None:
        """Report the epochs without a row, then place the row; None at the end."""
        name = self._sensor.name
        is_of_another = row is not None and self._track.is_of_another(row)
        since, values = self._reports.take(row)
        t_ns = self._t_ns if self._last is not None or row is None else row.gps_ns
        if values:
            self._items.append(State(name, t_ns, values))
        if since.unplaced:
            detail = {"reason": UNPLACED}
            self._items.append(Lost(name, t_ns, "time", since.unplaced, detail=detail))
        self._unordered += since.repeated
        self._since = self._since.with_more(since)
        if row is not None and not is_of_another:
            self._place(row)

    def _place(self, row: Row) -> None:
        """Place a row, unless it is out of order: its time does not increase."""
        last = self._last
        if last is None:
            self._record(row, row.gps_ns)
            return
        advance_ns = row.gps_ns - last.gps_ns
        if abs(advance_ns) > DAY_NS:  # the date before was wrong, or this one is
            self._leave_out()
            self._step(row)
        elif advance_ns > 0:
            self._leave_out()
            self._report(self._t_ns + advance_ns)
            self._count_missing(row, advance_ns)
            self._record(row, self._t_ns + advance_ns)
        elif advance_ns > -SECOND_NS:
            self._unordered += 1
        else:
            if self._early and row.gps_ns <= self._early[-1].gps_ns:
                self._leave_out()
            self._early.append(row)
            if len(self._early) == _SURE_EPOCHS:
                early, self._early = self._early, []
                self._step(early[0])
                for each in early[1:]:
                    self._place(each)

    def _leave_out(self) -> None:
        self._unordered += len(self._early)
        self._early = []

    def _step(self, row: Row) -> None:
        """Continue the timeline after the receiver's clock was set or another log begins."""
        assert self._last is not None
        t_ns = self._t_ns + round(self._cadence.period_ns)
        self._report(t_ns)
        step_ns = row.gps_ns - self._last.gps_ns - round(self._cadence.period_ns)
        self._items.append(State(self._sensor.name, t_ns, {"device_clock_step_ns": step_ns}))
        self._damage = row.damage
        self._record(row, t_ns)

    def _count_missing(self, row: Row, advance_ns: int) -> None:
        if missing := self._cadence.missing(advance_ns, self._since):
            damage = row.damage - self._damage
            counted = missing if advance_ns <= _LONGEST_NS else None
            self._items.append(
                Lost(
                    self._sensor.name, self._t_ns + advance_ns,
                    "corrupt" if damage else "device", counted,
                    missing if counted is None else None, {"skipped_bytes": damage},
                )
            )  # fmt: skip
        self._damage = row.damage

    def _record(self, row: Row, t_ns: int) -> None:
        self._last, self._t_ns, self._since = row, t_ns, Unrecorded()
        stamps, device = np.array([t_ns], np.int64), np.array([row.gps_ns], np.int64)
        self._items.append(Sample(self._sensor.name, stamps, row.data, device))

    def _report(self, t_ns: int) -> None:
        """Report how many positions before this time were left out."""
        if self._unordered:
            values = {"epochs_repeated_or_late": self._unordered}
            self._items.append(State(self._sensor.name, t_ns, values))
            self._unordered = 0

    def read(self) -> Item:
        while not self._items:
            if self._is_over:
                self._take(None)
                self._leave_out()
                self._report(self._t_ns)
                break
            for row in self._read_chunk():
                self._take(row)
        if not self._items:
            raise EndOfSource
        return self._items.popleft()

    def close(self) -> None:
        self._file.close()
