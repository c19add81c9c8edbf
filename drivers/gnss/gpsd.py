"""Reports of gpsd, which reads a receiver for all programs of a machine: gpsd_json(5)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from drivers.gnss.epochs import Epochs, Row
from drivers.gnss.fixes import (
    AUTONOMOUS,
    DIFFERENTIAL,
    ESTIMATED,
    FIX_2D,
    FIX_3D,
    NO_VECTOR,
    NONE,
    RTK_FIXED,
    RTK_FLOAT,
    Part,
    read_number,
)
from drivers.gnss.packets import FrameParser
from drivers.kit.satellite_navigation import SECOND_NS, convert_utc_to_gps

_TPV: Final = frozenset(
    ("lat", "lon", "altHAE", "speed", "track", "climb", "velN", "velE", "velD", "epx", "epy", "epv")
)


class GpsdReception:
    """Converter of gpsd's lines to rows, with the interface of `Reception`.

    gpsd sends the reports of all its receivers to everyone.

    Args:
        device: whose reports are used; None: of the first one that reports a position.
        others: devices of other receivers; None: all but `device`, whatever is reported.

    Attributes:
        device: whose reports are used; None before the first one, or if the reports name none.
        others: devices that reported a position beside this one.
        reports: of this device.
    """

    protocol = "gpsd"

    def __init__(
        self, device: str | None = None, others: frozenset[str] | None = frozenset()
    ) -> None:
        self.epochs = Epochs()
        self.parser = FrameParser()
        self.device = device
        self.others = others or frozenset()
        self.reports = 0
        self._is_fixed = others is None
        self._beside: set[str] = set()  # since the last position of the device
        self._rest = b""
        self._lines = 0
        self._satellites = 0  # as last reported

    def feed(self, data: bytes) -> Iterator[Row]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-65536:]
        for line in lines:
            self._lines += 1
            try:
                report = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(report, dict) and (row := self._take(report)) is not None:
                yield row

    def _take(self, report: dict[str, Any]) -> Row | None:
        device, part = report.get("device"), gpsd_part(report)
        device = device if isinstance(device, str) else None
        if device is not None and part is not None:
            # A receiver that is plugged in again may get another name.
            is_new = not self._is_fixed and not self.reports and device not in self.others
            if self.device is None or is_new:
                self.device = device
            if device == self.device:
                self.others |= self._beside
                self._beside.clear()
            else:
                self._beside.add(device)
                self.epochs.senders[device] += 1
        if device is not None and self.device is not None and device != self.device:
            return None
        self.reports += report.get("class") in ("TPV", "SKY")
        if (used := gpsd_satellites(report)) is not None:
            self._satellites = used
        if part is None:
            return None
        part.values["sats"], part.sender = self._satellites, device or ""
        return self.epochs.add(part)

    def choose(self) -> Iterator[Row]:
        return iter(())

    @property
    def has_input(self) -> bool:
        return self._lines > 0

    @property
    def summary(self) -> str:
        others = ", ".join(sorted(device for device in self.epochs.senders if device))
        return f"{self._lines} lines of gpsd" + (f", positions of {others}" if others else "")


def gpsd_part(m: dict[str, Any]) -> Part | None:
    """Return a ``TPV`` report (gpsd_json(5)) as an epoch of its own; None for other reports."""
    if m.get("class") != "TPV":
        return None
    if "time" not in m:
        return Part("TPV", values={"pos": NO_VECTOR})
    try:
        stamp = datetime.fromisoformat(str(m["time"]))
        stamp = stamp if stamp.tzinfo is not None else stamp.replace(tzinfo=UTC)
        whole = round(stamp.replace(microsecond=0).timestamp())
        utc_ns = whole * SECOND_NS + stamp.microsecond * 1000
        mode = int(m.get("mode", 0))
        number = {key: _finite(value) for key, value in m.items() if key in _TPV}
    except (ValueError, TypeError, RecursionError, OverflowError, OSError):
        return None
    nan = math.nan
    speed, course = number.get("speed", nan), math.radians(number.get("track", nan))
    north, east = speed * math.cos(course), speed * math.sin(course)
    deviations = [number.get(key, nan) for key in ("epy", "epx", "epv")]
    leaps = m.get("leapseconds")
    leaps = leaps if isinstance(leaps, int) and 0 <= leaps < 100 else None
    height = number.get("altHAE", nan) if mode == FIX_3D else nan
    if "velN" in number and "velE" in number:
        north, east, number["climb"] = number["velN"], number["velE"], -number.get("velD", nan)
    status = {2: DIFFERENTIAL, 3: RTK_FIXED, 4: RTK_FLOAT, 5: ESTIMATED}
    known = m["status"] if isinstance(m.get("status"), int) else 1
    fixed = mode in (FIX_2D, FIX_3D)
    return Part(
        "TPV",
        gps_ns=convert_utc_to_gps(utc_ns, leaps),
        leaps=leaps,
        last=True,
        values={
            "pos": (number.get("lat", nan), number.get("lon", nan), height) if fixed else NO_VECTOR,
            "vel": (north, east, -number.get("climb", nan)) if fixed else NO_VECTOR,
            "fix": mode if fixed else NONE,
            "cov": np.diag([deviation * deviation for deviation in deviations]),
            "utc": utc_ns,
            "quality": status.get(known if isinstance(known, int) else 1, AUTONOMOUS)
            if fixed
            else 0,
        },
    )


def _finite(value: Any) -> float:
    number = read_number(value)
    return number if math.isfinite(number) else math.nan


def gpsd_satellites(m: dict[str, Any]) -> int | None:
    """Return the satellites in use of a ``SKY`` report of gpsd; None for other reports."""
    if m.get("class") != "SKY":
        return None
    used = m.get("uSat")
    return used if type(used) is int and used >= 0 else None
