"""The answers of an MTi: its states and commands, without a port and without a clock of its own.

Source: Xsens' "MT Low Level Communication Protocol Documentation" (MT0101P).  After power-up or
Reset the device sends WakeUp and waits half a second.  WakeUpAck takes it to config state; without
WakeUpAck it measures with its stored configuration.  GoToConfig is accepted in every state; in
measurement state, Reset is the only other accepted command.  A new baud rate takes effect at the
next start.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from drivers.xsens.commands import (
    BAUDRATES,
    BITS_PER_BYTE,
    WAKE_UP_NS,
    Mid,
    Output,
    Outputs,
    baudrate_code,
    bytes_per_second,
    decode_outputs,
    encode_outputs,
)
from drivers.xsens.device_types import MODELS, Model
from drivers.xsens.packets import XbusMessage, XbusParser, encode_message
from recorder.common.errors import ProtocolError

BOOT_NS = 100_000_000
"""Time from power-up or Reset to WakeUp."""

_INVALID_MESSAGE, _INVALID_BAUDRATE, _INVALID_PARAMETER, _OVERFLOW = 0x04, 0x20, 0x21, 0x29


class MtiState(enum.Enum):
    """An MTi's state."""

    BOOTING = enum.auto()
    WAKING = enum.auto()
    CONFIG = enum.auto()
    MEASURING = enum.auto()


class MtiDevice:
    """The communicating part of a device.

    Usage::

        device = MtiDevice(115200, outputs, taken_outputs)
        reply = device.receive(request_bytes, now_ns) + device.tick(now_ns)

    Args:
        baudrate: its configured baud rate.
        outputs: the stored output configuration.
        take: returns the accepted outputs of a new configuration; None: rejected.
        model: type of the device.

    Attributes:
        state: see `MtiState`; a new device measures.
        outputs: the output configuration.
        started_ns: time of the last power-up or reset; None: long ago.
        starts: number of power-ups and resets.
    """

    def __init__(
        self,
        baudrate: int,
        outputs: Outputs,
        take: Callable[[Sequence[Output]], Outputs | None],
        model: Model = MODELS["MTi-300"],
    ) -> None:
        self._model = model
        self.state = MtiState.MEASURING
        self.baudrate = self._next_baudrate = baudrate
        self.outputs = outputs
        self.started_ns: int | None = None
        self.starts = 0
        self._take = take
        self._parser = XbusParser()
        self._until_ns = 0

    def power_on(self, now_ns: int) -> None:
        """Switch the power on, for the first time or again."""
        self.state, self.baudrate = MtiState.BOOTING, self._next_baudrate
        self.started_ns, self._until_ns = now_ns, now_ns + BOOT_NS
        self.starts += 1
        self._parser = XbusParser()

    def due_ns(self) -> int | None:
        """Return when `tick` has work to do; None: not before a command."""
        return self._until_ns if self.state in (MtiState.BOOTING, MtiState.WAKING) else None

    def tick(self, now_ns: int) -> bytes:
        """Return the unsolicited messages, without measurements."""
        if self.state is MtiState.BOOTING and now_ns >= self._until_ns:
            self.state, self._until_ns = MtiState.WAKING, self._until_ns + WAKE_UP_NS
            return encode_message(Mid.WAKE_UP, b"")
        if self.state is MtiState.WAKING and now_ns >= self._until_ns:
            return self._measure()
        return b""

    def receive(self, data: bytes, now_ns: int) -> bytes:
        """Process bytes from the host; return the answer."""
        if self.state is MtiState.BOOTING:
            return b""
        return b"".join(self._answer(m, now_ns) for m in self._parser.feed(data))

    def _answer(self, message: XbusMessage, now_ns: int) -> bytes:
        if message.mid == Mid.GOTO_CONFIG:
            self.state = MtiState.CONFIG
            return _ack(message)
        if message.mid == Mid.WAKE_UP_ACK:
            if self.state is MtiState.WAKING:
                self.state = MtiState.CONFIG
            return b""
        if message.mid == Mid.RESET:
            self.power_on(now_ns)
            return _ack(message)
        if self.state is not MtiState.CONFIG:
            return _error(_INVALID_MESSAGE)
        match message.mid:
            case Mid.REQ_DID:
                return _ack(message, self._model.device_id)
            case Mid.REQ_PRODUCT_CODE:
                return _ack(message, self._model.product.encode().ljust(20))
            case Mid.REQ_HARDWARE_VERSION:
                return _ack(message, self._model.hardware)
            case Mid.REQ_FW_REV:
                return _ack(message, self._model.firmware)
            case Mid.SET_BAUDRATE:
                return self._set_baudrate(message)
            case Mid.SET_OUTPUT_CONFIGURATION:
                return self._configure(message)
            case Mid.GOTO_MEASUREMENT:
                return _ack(message) + self._measure()
        return _error(_INVALID_MESSAGE)

    def _set_baudrate(self, message: XbusMessage) -> bytes:
        if not message.data:
            return _ack(message, bytes([baudrate_code(self.baudrate)]))
        if len(message.data) != 1 or message.data[0] not in BAUDRATES:
            return _error(_INVALID_BAUDRATE)
        self._next_baudrate = BAUDRATES[message.data[0]]
        return _ack(message)

    def _configure(self, message: XbusMessage) -> bytes:
        if message.data:
            try:
                taken = self._take(decode_outputs(message.data))
            except ProtocolError:
                taken = None
            if taken is None:
                return _error(_INVALID_PARAMETER)
            self.outputs = taken
        return _ack(message, encode_outputs(self.outputs))

    def _measure(self) -> bytes:
        """Enter measurement state, unless the line cannot carry the configured outputs."""
        if bytes_per_second(self.outputs) > self.baudrate / BITS_PER_BYTE:
            self.state = MtiState.CONFIG
            return _error(_OVERFLOW)
        self.state = MtiState.MEASURING
        return b""


def _ack(message: XbusMessage, data: bytes = b"") -> bytes:
    return encode_message(message.mid + 1, data)


def _error(code: int) -> bytes:
    return encode_message(Mid.ERROR, bytes([code]))
