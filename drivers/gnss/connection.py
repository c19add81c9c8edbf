"""A satellite receiver's line: a serial port or a TCP connection, with arrival times; its pulses.

The kernel stamps pulses per second (Documentation/driver-api/pps.rst):
``/sys/class/pps/pps0/assert`` has the CLOCK_REALTIME of the latest pulse and its number:
``1700000000.000012345#42``.
"""

from __future__ import annotations

import contextlib
import select
import socket
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from drivers.kit.satellite_navigation import SECOND_NS, convert_gps_to_utc
from recorder.common.errors import DeviceError

_CHUNK: Final = 65536
_CONNECT_S: Final = 3.0


class Line(Protocol):
    """Interface of `SerialLine` and `TcpLine`.

    Attributes:
        byte_ns: time of a byte on the line; 0 where that is not known.
    """

    byte_ns: float

    def receive(self, timeout_s: float) -> tuple[bytes, int]:
        """Return bytes and the CLOCK_MONOTONIC of their arrival; no bytes after the timeout.

        Raises:
            DeviceError: the line is lost.
        """
        ...

    def close(self) -> None:
        """Release the line; may be called twice."""
        ...


class SerialLine:
    """A serial port.

    Args:
        path: of the port.
        where: sensor and source, for messages.
        baudrate: of the port; USB receivers ignore it.
        now_ns: CLOCK_MONOTONIC.

    Raises:
        DeviceError: the port does not exist, is in use, or may not be opened by this user.
    """

    def __init__(
        self,
        path: str,
        where: str,
        baudrate: int,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        import serial  # here, so that `schema` does not wait for it

        self._where, self._now_ns = where, now_ns
        self._errors: Any = (serial.SerialException, OSError, termios.error)
        self.byte_ns = 0.0 if "ACM" in path else 10e9 / baudrate
        try:
            self._port = serial.Serial(path, baudrate, timeout=0, exclusive=True)
        except (*self._errors, ValueError) as error:
            raise DeviceError(f"{where}: {getattr(error, 'strerror', None) or error}") from None
        with contextlib.suppress(*self._errors, ValueError):
            self._port.set_low_latency_mode(True)

    def receive(self, timeout_s: float) -> tuple[bytes, int]:
        try:
            ready, _, _ = select.select([self._port], [], [], timeout_s)
            data = self._port.read(_CHUNK) if ready else b""
        except self._errors as error:
            reason = getattr(error, "strerror", None) or error
            raise DeviceError(f"{self._where}: {reason}") from None
        if ready and not data:
            raise DeviceError(f"{self._where}: the other side closed the port")
        return data, self._now_ns()

    def close(self) -> None:
        with contextlib.suppress(*self._errors):
            self._port.close()


class TcpLine:
    """A connection to a receiver, a serial server, or gpsd.

    Args:
        address: ``HOST:PORT``.
        where: sensor and source, for messages.
        greeting: bytes to send first.
        now_ns: CLOCK_MONOTONIC.

    Raises:
        DeviceError: the address does not answer.
    """

    def __init__(
        self,
        address: str,
        where: str,
        greeting: bytes = b"",
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._where, self._now_ns = where, now_ns
        self.byte_ns = 0.0
        host, _, port = address.rpartition(":")
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S)
            self._socket.sendall(greeting)
        except (OSError, ValueError, OverflowError) as error:
            raise DeviceError(f"{where}: {getattr(error, 'strerror', None) or error}") from None

    def receive(self, timeout_s: float) -> tuple[bytes, int]:
        self._socket.settimeout(max(timeout_s, 0.001))
        try:
            data = self._socket.recv(_CHUNK)
        except TimeoutError:
            return b"", self._now_ns()
        except OSError as error:
            raise DeviceError(f"{self._where}: {error.strerror or error}") from None
        if not data:
            raise DeviceError(f"{self._where}: the other side closed the connection")
        return data, self._now_ns()

    def close(self) -> None:
        self._socket.close()


_EVERY_NS = 10 * SECOND_NS
_FRESH_NS = 2 * SECOND_NS
_NEAR_NS = SECOND_NS // 2


class PulsePerSecond:
    """The pulses of a receiver.

    Args:
        device: ``/dev/pps0``, or its folder in ``/sys/class/pps``.
        realtime_ns, monotonic_ns: injectable clocks.
        classes: where the kernel shows the devices.
    """

    def __init__(
        self,
        device: str,
        realtime_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        classes: Path = Path("/sys/class/pps"),
    ) -> None:
        self._path = classes / Path(device).name / "assert"
        self._device = device
        self._realtime_ns, self._monotonic_ns = realtime_ns, monotonic_ns
        self._told_ns: int | None = None

    def latest(self) -> tuple[int, int] | None:
        """Return the latest pulse's CLOCK_REALTIME in ns and number; None without a fresh one."""
        try:
            stamp, _, number = self._path.read_text().strip().partition("#")
            seconds, _, rest = stamp.partition(".")
            t_ns = int(seconds) * SECOND_NS + int(rest.ljust(9, "0")[:9])
            found = t_ns, int(number)
        except (OSError, ValueError):
            return None
        return found if 0 <= self._realtime_ns() - t_ns <= _FRESH_NS else None

    def host_ns(self, gps_ns: int) -> int | None:
        """Convert a GPS time to CLOCK_MONOTONIC in ns by the latest pulse; None without one.

        The pulse marks a whole second.  Which one it is follows from the host's clock, which must
        be right within half a second.
        """
        pulse = self.latest()
        if pulse is None:
            return None
        realtime_ns, monotonic_ns = self._realtime_ns(), self._monotonic_ns()
        second_ns = (pulse[0] + _NEAR_NS) // SECOND_NS * SECOND_NS
        ahead_ns = convert_gps_to_utc(gps_ns) - second_ns
        if abs(ahead_ns) > 2 * _FRESH_NS:
            return None
        return monotonic_ns - (realtime_ns - pulse[0]) + ahead_ns

    def report(self) -> dict[str, Any] | None:
        """Return the host's clock against the pulse, every ten seconds; None in between.

        ``offset_ns`` is the host's clock at the pulse minus the whole second that it marks;
        ``pulse`` is its number, None without a fresh one.
        """
        now_ns = self._monotonic_ns()
        if self._told_ns is not None and now_ns - self._told_ns < _EVERY_NS:
            return None
        self._told_ns = now_ns
        pulse = self.latest()
        if pulse is None:
            return {"device": self._device, "pulse": None}
        t_ns, number = pulse
        offset_ns = (t_ns + _NEAR_NS) % SECOND_NS - _NEAR_NS
        found = {"device": self._device, "pulse": number, "realtime_ns": t_ns}
        return {**found, "offset_ns": offset_ns}
