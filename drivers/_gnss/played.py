"""The gnss driver's sources without a device: logs of a receiver's bytes, the simulated one."""

from __future__ import annotations

from collections import deque
from typing import BinaryIO

import numpy as np

from drivers._kit.driver import EndOfSource, Item, Lost, Sample, SensorConfig, State
from drivers._protocols.gnss_fixes import Row, gnss_spec
from drivers._protocols.gnss_reception import Reception, rate_of
from drivers.sim.gnss import simulated_receiver
from recorder.contract.errors import SourceError

_CHUNK = 1 << 16
_SCAN_BYTES = 4 << 20
_SCAN_ROWS = 20
_SIM_EPOCHS = 50
_LONGEST_NS = 60_000_000_000
"""What is missing for longer may be between two logs: it is estimated, not counted."""


class LogSource:
    """A log of a receiver's bytes, read in chunks."""

    def __init__(self, sensor: SensorConfig) -> None:
        self._sensor = sensor
        self._where = f"{sensor.name}: {sensor.scheme}:{sensor.path}"
        self._items: deque[Item] = deque()
        self._last_ns: int | None = None
        self._unordered = 0
        self._damage = 0
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
        """Read until the first rows, which say the rate."""
        self._reception = Reception(self._sensor.options["protocol"])
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
            raise SourceError(f"{self._where}: no position: {self._reception.seen}{why}")
        rate_hz = self._sensor.options["rate"] or rate_of(rows) or 1.0
        self._period_ns = 1e9 / rate_hz
        about = {"protocol": self._reception.protocol}
        self.spec = gnss_spec(self._sensor.name, rate_hz, True, about)
        for row in rows:
            self._place(row)

    def _read_chunk(self) -> list[Row]:
        try:
            chunk = self._file.read(_CHUNK)
        except OSError as error:
            raise SourceError(f"{self._where}: {error.strerror or error}") from None
        if chunk:
            return list(self._reception.feed(chunk))
        self._is_over = True
        return list(self._reception.finish())

    def _place(self, row: Row) -> None:
        """Take a row; times that do not increase are of a log that was put together."""
        last = self._last_ns
        if last is not None:
            if row.gps_ns <= last:
                self._unordered += 1
                return
            self._report(row.gps_ns)
            missing = round((row.gps_ns - last) / self._period_ns) - 1
            if missing > 0:
                damage = row.damage - self._damage
                counted = missing if row.gps_ns - last <= _LONGEST_NS else None
                self._items.append(
                    Lost(
                        self._sensor.name, row.gps_ns, "corrupt" if damage else "device", counted,
                        missing if counted is None else None, {"skipped_bytes": damage},
                    )
                )  # fmt: skip
            self._damage = row.damage
        self._last_ns = row.gps_ns
        stamps = np.array([row.gps_ns], np.int64)
        self._items.append(Sample(self._sensor.name, stamps, row.data, stamps))

    def _report(self, t_ns: int) -> None:
        """Say how many positions before this time were left out."""
        if self._unordered:
            values = {"epochs_repeated_or_late": self._unordered}
            self._items.append(State(self._sensor.name, t_ns, values))
            self._unordered = 0

    def read(self) -> Item:
        while not self._items:
            if self._is_over:
                self._report(self._last_ns or 0)
                break
            for row in self._read_chunk():
                self._place(row)
        if not self._items:
            raise EndOfSource
        return self._items.popleft()

    def close(self) -> None:
        self._file.close()


class SimSource:
    """The simulated receiver."""

    def __init__(self, sensor: SensorConfig) -> None:
        options = sensor.options
        self._receiver = simulated_receiver(sensor.name, options)
        about = {name: options[name] for name in ("scene", "seed")} | {"simulated": True}
        self.spec = gnss_spec(sensor.name, self._receiver.rate_hz, False, about)
        self._next = 0
        self._items: deque[Item] = deque()

    def read(self) -> Item:
        if not self._items:
            times, data = self._receiver.epochs(self._next, _SIM_EPOCHS)
            self._next += _SIM_EPOCHS
            for k in range(_SIM_EPOCHS):
                part = {name: values[k : k + 1] for name, values in data.items()}
                stamps = times[k : k + 1]
                self._items.append(Sample(self.spec.name, stamps, part, stamps))
        return self._items.popleft()

    def close(self) -> None:
        pass
