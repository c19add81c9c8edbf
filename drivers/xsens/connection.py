"""An Xsens MTi at a serial port: opening, commands, and reception with arrival times.

Usage::

    mti = Mti("/dev/ttyUSB0", "imu: serial:/dev/ttyUSB0")
    try:
        mti.find(USUAL_BAUDRATES)                  # takes the device to config state
        outputs = mti.configure(make_outputs(100, ["euler_angles"]))
        mti.measure()
        while True:
            for message, began_ns in mti.receive(0.1):
                ...
    finally:
        mti.close()

All methods raise `DeviceError` when the device or its port is lost.  No method blocks longer than
its timeout; `find` takes at most `OPEN_S` in all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from drivers.kit.serial_time import ByteArrivals
from drivers.xsens.commands import (
    BITS_PER_BYTE,
    Identity,
    Mid,
    Outputs,
    are_same_outputs,
    decode_outputs,
    device_id,
    encode_outputs,
    error_text,
    firmware_revision,
    product_code,
)
from drivers.xsens.packets import XbusMessage, XbusParser, encode_message
from recorder.common.errors import DeviceError, ProtocolError

OPEN_S: Final = 3.5
"""Longest search for the baud rate."""

_ANSWER_S = 0.25  # an answer follows the messages that are already in transit
_ATTEMPTS = 2
_CHUNK = 4096
_NO_LINE = frozenset({"cdc_acm", "xsens_mt"})  # drivers of USB devices: no time per byte

Received = tuple[XbusMessage, int]

read_bytes = os.read


class RefusedError(DeviceError):
    """The device answered a command with an Error message."""


class Mti:
    """An open device at a serial port.

    Args:
        path: of the port.
        where: sensor and source, for messages.
        low_latency: request that the port does not buffer bytes.
        now_ns: the clock of arrivals; CLOCK_MONOTONIC.

    Attributes:
        baudrate: the device's baud rate, as found.
        low_latency: whether the port accepted the request; else see `latency_reason`.

    Raises:
        DeviceError: the port does not exist, is in use, or may not be opened by this user.
    """

    def __init__(
        self,
        path: str,
        where: str,
        low_latency: bool = True,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        import serial  # here, so that `schema` does not wait for it

        self._where = where
        self._now_ns = now_ns
        self._serial_error: Any = serial.SerialException
        self.baudrate = 0
        self._has_line = _has_line(path)
        self._waiting: list[Received] = []
        self._late = False  # an answer to a command may still come
        try:
            self._port = serial.Serial(path, 115_200, timeout=0, write_timeout=1, exclusive=True)
        except (serial.SerialException, OSError, ValueError, termios.error) as error:
            raise DeviceError(f"{where}: {_reason(error)}") from None
        self.low_latency, self.latency_reason = low_latency, ""
        if low_latency:
            try:
                self._port.set_low_latency_mode(True)
            except (ValueError, OSError) as error:
                self.low_latency, self.latency_reason = False, str(error)
        self._poll = select.poll()
        self._poll.register(self._port.fileno(), select.POLLIN)
        self._begin(115_200)

    def close(self) -> None:
        """Release the port; may be called twice."""
        with contextlib.suppress(OSError, termios.error):
            self._port.close()

    @property
    def bad_checksums(self) -> int:
        """Number of invalid messages since `find`: a message's start without a valid checksum."""
        return self._parser.bad_checksums

    # --- bytes --------------------------------------------------------------------------------

    def receive(self, timeout_s: float) -> list[Received]:
        """Return messages, each with the time by which its first byte was on the line.

        Returns as soon as there are bytes, after `timeout_s` (0 is allowed) at the latest; the list
        is empty without a complete message.

        Raises:
            DeviceError: the port is lost.
        """
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            return waiting
        try:
            if not self._poll.poll(timeout_s * 1000):
                return []
            data = read_bytes(self._port.fileno(), _CHUNK)
        except BlockingIOError:
            return []
        except (OSError, self._serial_error) as error:
            raise DeviceError(f"{self._where}: {_reason(error)}") from None
        t_ns = self._now_ns()
        if not data:
            raise DeviceError(f"{self._where}: the other side closed the port")
        self._arrivals.chunk(len(data), t_ns)
        return [
            (message, self._arrivals.start_ns(message.offset, message.size))
            for message in self._parser.feed(data)
        ]

    def send(self, mid: int, data: bytes = b"") -> None:
        """Send a message; DeviceError if the port accepts no bytes."""
        try:
            self._port.write(encode_message(mid, data))
        except (OSError, self._serial_error, termios.error) as error:
            raise DeviceError(f"{self._where}: {_reason(error)}") from None

    def _begin(self, baudrate: int) -> None:
        """Set the baud rate and discard all bytes received before."""
        try:
            self._port.baudrate = baudrate
            self._port.reset_input_buffer()
        except (OSError, ValueError, self._serial_error, termios.error) as error:
            raise DeviceError(f"{self._where}: {baudrate} baud: {_reason(error)}") from None
        self.baudrate = baudrate
        self._parser = XbusParser()
        self._arrivals = ByteArrivals(1e9 * BITS_PER_BYTE / baudrate if self._has_line else 0.0)

    # --- commands -----------------------------------------------------------------------------

    def request(self, mid: Mid, data: bytes = b"") -> bytes:
        """Send a command and return the data of its acknowledgement.

        Measurements that arrive before the acknowledgement are dropped; `receive` returns later
        measurements.  If a command before, other than GOTO_CONFIG, had no answer in time, the
        device is taken to config state first.

        Raises:
            RefusedError: the device rejects the command.
            DeviceError: the device does not answer.
        """
        if self._late:  # it would be taken for the answer to this one: Xbus does not number them
            self._late = False
            self._request(Mid.GOTO_CONFIG, b"")  # the device answers in order
        return self._request(mid, data)

    def _request(self, mid: Mid, data: bytes) -> bytes:
        for _ in range(_ATTEMPTS):
            if (answer := self._try(mid, data, _ANSWER_S)) is not None:
                return answer
        raise DeviceError(f"{self._where}: no answer to {mid.name}")

    def _try(self, mid: Mid, data: bytes, timeout_s: float) -> bytes | None:
        self._waiting.clear()
        self.send(mid, data)
        until_ns = self._now_ns() + round(timeout_s * 1e9)
        while (left_ns := until_ns - self._now_ns()) > 0:
            received = self.receive(left_ns / 1e9)
            for k, (message, _) in enumerate(received):
                if message.mid == mid + 1:
                    self._waiting = received[k + 1 :]
                    return message.data
                if message.mid == Mid.ERROR and mid != Mid.GOTO_CONFIG:  # which no device rejects
                    text = error_text(message.data)
                    raise RefusedError(f"{self._where}: {mid.name} is rejected: {text}")
                if message.mid == Mid.WAKE_UP:  # just started; the device waits half a second
                    self.send(Mid.WAKE_UP_ACK)
        self._late |= mid != Mid.GOTO_CONFIG  # whose acknowledgement no other command waits for
        return None

    def find(self, baudrates: Sequence[int]) -> None:
        """Search for the device at these rates, in order, and take it to config state.

        Raises:
            DeviceError: the device answers at none of them.
        """
        share_s = min(2 * _ANSWER_S, OPEN_S / len(baudrates))
        for baudrate in baudrates:
            self._begin(baudrate)
            for _ in range(_ATTEMPTS):
                if self._try(Mid.GOTO_CONFIG, b"", share_s / _ATTEMPTS) is not None:
                    return
        tried = ", ".join(map(str, baudrates))
        raise DeviceError(f"{self._where}: no MTi answers at {tried} baud")

    def identify(self) -> Identity:
        """Read the device's identity (config state).

        Raises:
            DeviceError: no answer, or a malformed answer.
        """
        try:
            return Identity(
                device_id(self.request(Mid.REQ_DID)),
                self._product(),
                firmware_revision(self.request(Mid.REQ_FW_REV)),
            )
        except ProtocolError as error:
            raise DeviceError(f"{self._where}: {error}") from None

    def _product(self) -> str:
        """Return the product code, which some devices do not have."""
        with contextlib.suppress(RefusedError):
            return product_code(self.request(Mid.REQ_PRODUCT_CODE))
        return ""

    def outputs(self) -> Outputs:
        """Return the output configuration (config state); DeviceError for a malformed answer."""
        return self._outputs(b"")

    def configure(self, wanted: Outputs) -> Outputs:
        """Set these outputs; return the device's outputs, which may have another rate.

        The configuration is only sent if it differs from the present one: the device stores it in
        memory that wears out.

        Raises:
            RefusedError: the device does not support an output.
        """
        found = self.outputs()
        return found if are_same_outputs(found, wanted) else self._outputs(encode_outputs(wanted))

    def _outputs(self, data: bytes) -> Outputs:
        answer = self.request(Mid.SET_OUTPUT_CONFIGURATION, data)
        if data and not answer:  # old firmware acknowledges without the resulting configuration
            answer = self.request(Mid.SET_OUTPUT_CONFIGURATION)
        try:
            return decode_outputs(answer)
        except ProtocolError as error:
            raise DeviceError(f"{self._where}: {error}") from None

    def measure(self) -> None:
        """Take the device to measurement state; `receive` returns its messages from now on."""
        self.request(Mid.GOTO_MEASUREMENT)

    @property
    def bytes_per_second(self) -> float:
        """Capacity of the serial line; infinite for a USB device."""
        return self.baudrate / BITS_PER_BYTE if self._has_line else float("inf")


def _has_line(path: str) -> bool:
    """Return whether bytes take time on a line; a USB device has no line."""
    name = Path(os.path.realpath(path)).name
    driver = Path("/sys/class/tty", name, "device/driver")
    return not (name.startswith("ttyACM") or Path(os.path.realpath(driver)).name in _NO_LINE)


def _reason(error: Exception) -> str:
    """Return an error's text without pyserial's wrapping."""
    number = getattr(error, "errno", None)
    if number is None and error.args and isinstance(error.args[0], int):
        number = error.args[0]  # termios.error
    match number:
        case errno.EACCES | errno.EPERM:
            return f"{os.strerror(number)} (is the user in the group dialout?)"
        case errno.EAGAIN | errno.EBUSY:
            return "another program uses the port"
        case int():
            return os.strerror(number)
    return str(error)
