"""Error messages of a CAN interface: the classes of linux/can/error.h, and the state of the bus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from drivers.can.frames import ERROR, ID_MASK

TX_TIMEOUT: Final = 0x001
LOST_ARBITRATION: Final = 0x002
CONTROLLER: Final = 0x004
PROTOCOL: Final = 0x008
TRANSCEIVER: Final = 0x010
NO_ACK: Final = 0x020
BUS_OFF: Final = 0x040
BUS_ERROR: Final = 0x080
RESTARTED: Final = 0x100
COUNTERS: Final = 0x200
ALL_CLASSES: Final = ID_MASK

RX_OVERFLOW, TX_OVERFLOW = 0x01, 0x02
WARNING, ERROR_PASSIVE, ERROR_ACTIVE = 0x0C, 0x30, 0x40
OVERRUN_DATA: Final = bytes((0, RX_OVERFLOW)).ljust(8, b"\0")
"""Bytes of a message of the class `CONTROLLER`: the controller lost received frames."""
OVERLOAD_DATA: Final = bytes((0, 0, 0x20)).ljust(8, b"\0")
"""Bytes of a message of the class `PROTOCOL`: an overload frame (CAN_ERR_PROT_OVERLOAD)."""

_NAMES: Final[Mapping[int, str]] = {
    TX_TIMEOUT: "tx_timeouts",
    LOST_ARBITRATION: "lost_arbitrations",
    PROTOCOL: "protocol_errors",
    TRANSCEIVER: "transceiver_errors",
    NO_ACK: "frames_without_ack",
    BUS_OFF: "bus_offs",
    BUS_ERROR: "bus_errors",
    RESTARTED: "restarts",
}
_CONTROLLER_NAMES: Final[Mapping[int, str]] = {
    RX_OVERFLOW: "rx_overflows",
    TX_OVERFLOW: "tx_overflows",
    WARNING: "warnings",
    ERROR_PASSIVE: "error_passives",
}
_PROTOCOL_NAMES: Final[Mapping[int, str]] = {
    0x01: "bit_errors",
    0x02: "form_errors",
    0x04: "stuff_errors",
    0x08: "bit0_errors",
    0x10: "bit1_errors",
    0x20: "overloads",
}


class BusErrors:
    """Counts of error messages, and the state of the bus.

    ::

        errors = BusErrors()
        overflowed = errors.feed(frame_id, data)     # of a frame with the flag ERROR
        values = errors.take_changed_state()              # None, or the values of a lasting state
        values = errors.report()                     # None, or the counts since the last report

    Attributes:
        state: ``error-active``, ``error-warning``, ``error-passive`` or ``bus-off``; None before
            the first message that shows it.
        tx_errors, rx_errors: the controller's error counters where it reports them, else None.
    """

    def __init__(self) -> None:
        self.state: str | None = None
        self.tx_errors: int | None = None
        self.rx_errors: int | None = None
        self._counts: Counter[str] = Counter()
        self._told: str | None = None

    def feed(self, frame_id: int, data: bytes) -> bool:
        """Process an error message.

        Args:
            frame_id: its identifier; messages without the flag `ERROR` are ignored.
            data: its bytes, 8 of an interface of Linux; fewer count as zeros.

        Returns:
            True if the controller has lost frames that it received.
        """
        if not frame_id & ERROR:
            return False
        data = data.ljust(8, b"\0")
        self._counts["error_frames"] += 1
        for bit, name in _NAMES.items():
            self._counts[name] += bool(frame_id & bit)
        status = data[1] if frame_id & CONTROLLER else 0
        for bit, name in _CONTROLLER_NAMES.items():
            self._counts[name] += bool(status & bit)
        if frame_id & PROTOCOL:
            for bit, name in _PROTOCOL_NAMES.items():
                self._counts[name] += bool(data[2] & bit)
        # Drivers of Linux before 6.0 report the counters without this class.
        if frame_id & COUNTERS or (frame_id & CONTROLLER and data[6:8] != b"\0\0"):
            self.tx_errors, self.rx_errors = data[6], data[7]
        self._follow(frame_id, status)
        return bool(status & RX_OVERFLOW)

    def _follow(self, frame_id: int, status: int) -> None:
        if frame_id & BUS_OFF:
            self.state = "bus-off"
        elif status & ERROR_PASSIVE:
            self.state = "error-passive"
        elif status & WARNING:
            self.state = "error-warning"
        elif status & ERROR_ACTIVE or frame_id & RESTARTED:
            self.state = "error-active"

    def take_changed_state(self) -> dict[str, Any] | None:
        """Return the state of the bus if it has changed since the last call."""
        if self.state == self._told:
            return None
        self._told = self.state
        values: dict[str, Any] = {"bus": self.state}
        if self.tx_errors is not None:
            values |= {"tx_errors": self.tx_errors, "rx_errors": self.rx_errors}
        return values

    def report(self) -> dict[str, Any] | None:
        """Return the counts that are not zero since the last report; None without messages."""
        counts, self._counts = self._counts, Counter()
        return {name: count for name, count in counts.items() if count} or None
