"""A satellite receiver's line: a serial port or a TCP connection, with arrival times."""

from __future__ import annotations

import contextlib
import select
import socket
import termios
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

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
