"""The gnss driver's sources for devices: a serial port, a TCP connection, gpsd."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

import numpy as np

from drivers.gnss.connection import Line, PulsePerSecond, SerialLine, TcpLine
from drivers.gnss.epochs import Row
from drivers.gnss.fixes import gnss_spec
from drivers.gnss.gpsd import GpsdReception
from drivers.gnss.stream import (
    UNPLACED,
    Cadence,
    EpochReports,
    PlaceTrack,
    Reception,
    estimate_rate,
)
from drivers.kit.driver import Item, Lost, Sample, SensorConfig, State
from drivers.kit.serial_time import ByteArrivals, MinDelayClock
from recorder.common.errors import DeviceError

BAUDRATES = (38_400, 115_200, 9_600, 460_800)
"""Baud rates of u-blox and Septentrio receivers: factory settings and usual ones."""
_OPEN_S = 4.5
_TRY_S = 1.1
_WAIT_S = 0.1
_ENOUGH, _SOON_S = 5, 2.0
"""Number of epochs that determine the rate; after this time, two suffice."""
_WATCH = b'?WATCH={"enable":true,"json":true};\n'
_STEP_NS = 1_000_000_000
"""Largest deviation of a receiver's time; a larger one means that its clock was set."""

_Arrived = tuple[Row, int]
"""An epoch, and the time at which its first byte was on the line."""


class DeviceSource:
    """Source of a live receiver.

    Args:
        sensor: its address is the port, or HOST:PORT.
        baudrate: at which the receiver was found before, if any.
        before: the reception of gpsd before, if any: the same receiver is recorded again.

    Attributes:
        spec: the stream's declaration.
        baudrate: at which the receiver was found; 0 without a serial port.
        gpsd: reception of gpsd; None of other sources.

    Raises:
        DeviceError: the receiver does not answer, or sends no position.
    """

    def __init__(
        self, sensor: SensorConfig, baudrate: int | None = None, before: GpsdReception | None = None
    ) -> None:
        self._sensor, self._options = sensor, sensor.options
        self._where = f"{sensor.name}: {sensor.scheme}:{sensor.address}"
        self._rows: deque[_Arrived] = deque()
        self._items: deque[Item] = deque()
        self._host = MinDelayClock()
        self._last: tuple[int, int] | None = None  # GPS time and arrival of the latest epoch
        self._repeated = 0
        self._damage = 0
        self._untimed = 0
        self._timeout_ns = round(self._options["timeout_s"] * 1e9)
        self._latency_ns = round(self._options["latency_ms"] * 1e6)
        self._pps = PulsePerSecond(self._options["pps"]) if self._options["pps"] else None
        self.baudrate = 0
        self.gpsd = before
        self._open(baudrate)

    def _open(self, before: int | None) -> None:
        deadline_s = time.monotonic() + _OPEN_S
        if self._sensor.scheme == "serial":
            given = self._options["baudrate"]
            rates = [given] if given else list(dict.fromkeys([before or BAUDRATES[0], *BAUDRATES]))
        else:
            rates = [0]
        for number, rate in enumerate(rates):
            self._line = self._connect(rate)
            self.baudrate = rate
            until_s = deadline_s if number == len(rates) - 1 else time.monotonic() + _TRY_S
            try:
                if self._listen(until_s, deadline_s):
                    return
            except BaseException:
                self.close()
                raise
            self.close()
        summary = self._reception.summary
        raise DeviceError(f"{self._where}: no position within {_OPEN_S:g} s, but {summary}")

    def _connect(self, rate: int) -> Line:
        self._last_ns = time.monotonic_ns()
        self._reception: Reception | GpsdReception
        if self._sensor.scheme == "gpsd":
            self._reception = self._new_gpsd()
            return TcpLine(self._sensor.address, self._where, _WATCH)
        self._reception = Reception(self._options["protocol"], self._options["talker"])
        self._bytes = ByteArrivals(10e9 / rate if rate else 0.0)
        if self._sensor.scheme == "tcp":
            return TcpLine(self._sensor.address, self._where)
        return SerialLine(self._sensor.address, self._where, rate)

    def _new_gpsd(self) -> GpsdReception:
        if given := self._options["device"]:
            return GpsdReception(given, None)
        if self.gpsd is None:
            return GpsdReception()
        return GpsdReception(self.gpsd.device, self.gpsd.others)

    def _listen(self, until_s: float, deadline_s: float) -> bool:
        """Wait for the first epochs; return whether the receiver sends any."""
        rows: deque[_Arrived] = deque()
        soon_s = time.monotonic() + _SOON_S
        while time.monotonic() < (deadline_s if rows or self._reception.has_input else until_s):
            rows += self._receive()
            if len(rows) >= _ENOUGH or (len(rows) >= 2 and time.monotonic() > soon_s):
                break
        rows += self._more(self._reception.choose())
        if not rows:
            return False
        first = [row for row, _ in rows]
        track = PlaceTrack.of(first)
        own = [(row, at_ns) for row, at_ns in rows if not track.is_of_another(row)]
        rate_hz = self._options["rate"] or estimate_rate([row for row, _ in own]) or 1.0
        self._track = PlaceTrack.of(first)
        self._cadence = Cadence(rate_hz, fixed=bool(self._options["rate"]))
        about = {"protocol": self._reception.protocol, "baudrate": self.baudrate or None}
        if isinstance(self._reception, GpsdReception):
            self.gpsd = self._reception
            about["device"] = self.gpsd.device
        self.spec = gnss_spec(self._sensor.name, rate_hz, False, about)
        for row, arrival_ns in own:  # the least delayed one gives all of them their times
            self._host.observe(row.gps_ns, arrival_ns)
        self._rows = rows
        self._reports = EpochReports(self._reception.epochs, self._track)
        state = State(self._sensor.name, time.monotonic_ns(), about, lasting=True)
        self._items.append(state)
        return True

    def _receive(self) -> list[_Arrived]:
        data, arrival_ns = self._line.receive(_WAIT_S)
        if data and isinstance(self._reception, Reception):
            self._last_ns = arrival_ns
            self._bytes.chunk(len(data), arrival_ns)
        self._arrival_ns = arrival_ns
        if isinstance(self._reception, Reception):
            return self._more(self._reception.feed(data))
        reports = self._reception.reports
        rows = self._more(self._reception.feed(data))
        if self._reception.reports > reports:  # reports of other receivers do not count
            self._last_ns = arrival_ns
        return rows

    def _more(self, rows: Iterable[Row]) -> list[_Arrived]:
        return [(row, self._arrival_of(row)) for row in rows]

    def _arrival_of(self, row: Row) -> int:
        if row.first is None or not isinstance(self._reception, Reception):
            return self._arrival_ns
        return self._bytes.start_ns(row.first.offset, row.first.size)

    def read(self) -> Item | None:
        if self._items:
            return self._items.popleft()
        if not self._rows:
            self._rows += self._receive()
        if self._rows:
            self._place(*self._rows.popleft())
            return self._items.popleft() if self._items else None
        if time.monotonic_ns() - self._last_ns > self._timeout_ns:
            raise DeviceError(f"{self._where}: sends nothing for {self._timeout_ns / 1e9:g} s")
        self._watch_time()
        if self._pps is not None and (pulse := self._pps.report()) is not None:
            return State(self._sensor.name, time.monotonic_ns(), {"pps": pulse})
        return None

    def _place(self, row: Row, arrival_ns: int) -> None:
        """Queue a row's sample, after the states and losses before it."""
        name = self._sensor.name
        is_of_another = self._track.is_of_another(row)
        since, values = self._reports.take(row)
        if since.unplaced:
            reason = {"reason": UNPLACED}
            self._items.append(Lost(name, arrival_ns, "time", since.unplaced, detail=reason))
        if since.repeated:
            self._repeated += since.repeated
            values["epochs_repeated_or_late"] = self._repeated
        if values:  # a second sender may be known before any session
            lasting = bool(values.keys() & {"positions_by_sender", "second_receiver"})
            self._items.append(State(name, arrival_ns, values, lasting=lasting))
        if is_of_another:
            return
        if self._last is not None:
            last_ns, last_arrival_ns = self._last
            advance_ns = row.gps_ns - last_ns
            if -_STEP_NS < advance_ns <= 0:
                self._repeated += 1
                late = {"epochs_repeated_or_late": self._repeated}
                self._items.append(State(name, arrival_ns, late))
                return
            # Messages that are held up on the way come late, but never early.
            early_ns = advance_ns - (arrival_ns - last_arrival_ns)
            if advance_ns < 0 or early_ns > _STEP_NS + self._cadence.period_ns:
                self._host.restart()
                self._items.append(State(name, arrival_ns, {"device_clock_step_ns": early_ns}))
            elif missing := self._cadence.missing(advance_ns, since):
                damage = row.damage - self._damage
                cause = "corrupt" if damage else "device"
                detail = {"skipped_bytes": damage}
                self._items.append(Lost(name, arrival_ns, cause, missing, detail=detail))
            self._damage = row.damage
        self._last = row.gps_ns, arrival_ns
        t_ns = None if self._pps is None else self._pps.host_ns(row.gps_ns)
        estimated_ns = self._host.host_ns(row.gps_ns, arrival_ns) - self._latency_ns
        stamps = np.array([estimated_ns if t_ns is None else t_ns], np.int64)
        device = np.array([row.gps_ns], np.int64)
        self._items.append(Sample(name, stamps, row.data, device))

    def _watch_time(self) -> None:
        """Report once that the receiver does not know the time, so its epochs are left out."""
        if self._reception.epochs.untimed and not self._untimed:
            self._untimed = self._reception.epochs.untimed
            values = {"time": "unknown: positions are left out"}
            self._items.append(State(self._sensor.name, time.monotonic_ns(), values))

    def close(self) -> None:
        self._line.close()
