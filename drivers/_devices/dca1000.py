"""A TI mmWave radar with a DCA1000EVM capture card: set up, started, received from, stopped.

The card's commands and the radar's (which parameters make which lines of its command line)
are xwr's.  Ours is how answers are waited for, since xwr waits up to ten seconds for each, in a
busy loop, and takes any datagram for the answer; and the way of the data, since xwr drops late
packets and counts none.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import serial

from drivers._devices.udp import Batch, UdpReceiver, cap_warning
from drivers._protocols.chirp import ChirpConfig
from drivers._protocols.dca1000 import PACKET_BYTES, SYSTEM_ALIVENESS, SYSTEM_ERROR, Answer
from recorder.contract.errors import ConfigError, DeviceError, ProtocolError, SourceError

SETUP_S: Final = 5.0
"""How long radar and card together may take to be set up."""

_PROMPT: Final = b"mmwDemo:/>"
_BOOT_S: Final = 2.0  # from the reset to the first prompt
_NUDGE_S: Final = 0.5  # without a prompt: an empty line may bring one
_QUIET_S: Final = 0.05  # after which no more of an answer comes
_PING_S: Final = 0.1  # the card hears nothing for a moment after it was configured
_ANSWER_LIMIT: Final = 65_536  # bytes without a prompt: not a radar
_BATCH: Final = 512
_GATHER_S: Final = 0.01  # 600 packets at the card's highest rate; a socket has room for thousands
_ROW_BYTES: Final = 1536  # of a packet's place; a multiple of a cache line

_FLAGS: Final = (
    "no LVDS data", "no header", "EEPROM failed", "SD card detected", "SD card removed",
    "SD card full", "mode not configured", "DDR memory full", "recording completed",
    "LVDS buffer full", "playback completed", "playback out of sequence",
)  # fmt: skip
_RADAR_KEYS: Final = (
    "frequency", "idle_time", "adc_start_time", "ramp_end_time", "tx_start_time", "freq_slope",
    "adc_samples", "sample_rate", "frame_length", "frame_period",
)  # fmt: skip


class CardReceiver(UdpReceiver):
    """Receives a capture card's packets, some hundred at a time.

    What costs is the call, not the packet, so it lets packets gather for 10 ms where fewer came
    than it can take.  The kernel's stamps say when each came.

    Args:
        address, port: see `UdpReceiver`; as are the attributes.
        buffer_bytes: see there.
        force: see there.
    """

    def __init__(self, address: str, port: int, buffer_bytes: int, *, force: bool = True) -> None:
        super().__init__(
            address, port, buffer_bytes, 0.2, packet_bytes=_ROW_BYTES, batch=_BATCH, force=force
        )
        self._gather = False

    def receive(self, timeout_s: float | None = None) -> Batch:
        """See `UdpReceiver.receive`."""
        if self._gather:
            time.sleep(_GATHER_S)
        batch = super().receive(timeout_s)
        self._gather = 0 < len(batch) < _BATCH
        return batch


class RadarCapture:
    """A radar that measures from here on, and the packets of it.

    >>> capture = RadarCapture("radar: dca1000:", chirp, port, card)
    >>> batch = capture.receive(0.2)     # packets, none where nothing came
    >>> capture.close()                  # stops card and radar

    Args:
        where: what messages begin with.
        chirp: what the radar is to do.
        port: its serial port; None: looked for among the USB ports.
        card: ``sys_ip``, ``fpga_ip``, ``config_port``, ``data_port``, ``timeout``,
            ``socket_buffer``, ``delay``, as in red-rover's configs.

    Attributes:
        warnings: what the radar, the card or the kernel said about the configuration.
        version: of the card's logic.

    Raises:
        DeviceError: card or radar do not answer, or refuse.
        ConfigError: xwr knows that the radar cannot do that.
        SourceError: xwr is not installed.
    """

    def __init__(
        self, where: str, chirp: ChirpConfig, port: str | None, card: Mapping[str, Any]
    ) -> None:
        self._where = where
        self.warnings: list[str] = []
        self.version = ""
        self._closers: list[Callable[[], None]] = []
        try:
            import xwr  # noqa: F401  takes a second or so, which is not the devices'
        except ImportError as error:
            raise SourceError(f"{where}: needs xwr, which cannot be imported: {error}") from None
        self._deadline = time.monotonic() + SETUP_S
        try:
            self._receiver = self._receive_from(card)
            self._card: Any = self._connect(card)
            self._start(chirp, port, card)
        except BaseException:
            self.close()
            raise

    def receive(self, timeout_s: float) -> Batch:
        """Packets as they came; empty where none came for `timeout_s`."""
        return self._receiver.receive(timeout_s)

    @property
    def overflow(self) -> int:
        """Packets so far that the kernel threw away, the socket's buffer being full."""
        return self._receiver.overflow

    def notices(self) -> list[str]:
        """What the card said on its own since the last call."""
        said: list[str] = []
        self._card.config_socket.settimeout(0)
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            while len(said) < 16:
                with contextlib.suppress(ProtocolError):
                    answer = Answer.parse(self._card.config_socket.recv(2048))
                    if answer.code == SYSTEM_ERROR:
                        said.append(_flags(answer.status))
        return said

    def close(self) -> None:
        """Stop what runs, as far as it answers, and let go of sockets and port."""
        while self._closers:
            with contextlib.suppress(Exception):
                self._closers.pop()()

    def _receive_from(self, card: Mapping[str, Any]) -> CardReceiver:
        try:
            receiver = CardReceiver(card["sys_ip"], card["data_port"], card["socket_buffer"])
        except DeviceError as error:
            raise DeviceError(
                f"{self._where}: {error}; the network interface of the capture card needs the "
                f"address sys_ip, {card['sys_ip']}"
            ) from None
        self._closers.append(receiver.close)
        if warning := cap_warning(receiver, self._where):
            self.warnings.append(warning)
        return receiver

    # The card

    def _connect(self, card: Mapping[str, Any]) -> Any:
        from xwr.capture import DCA1000EVM

        where = f"{card['sys_ip']}:{card['config_port']}"
        logging.getLogger("xwr/DCA1000EVM").disabled = True  # its complaints are raised, too
        try:
            # xwr binds a data socket of its own; any port does, it is closed at once.
            made = DCA1000EVM(
                sys_ip=card["sys_ip"],
                fpga_ip=card["fpga_ip"],
                data_port=0,
                config_port=card["config_port"],
                timeout=card["timeout"],
            )
        except OSError as error:
            raise DeviceError(f"{self._where}: UDP {where}: {error.strerror}") from None
        made.data_socket.close()
        self._closers.append(made.config_socket.close)
        made._config_request = partial(self._ask, made, card["timeout"])
        return made

    def _ask(self, card: Any, timeout_s: float, request: Any, desc: str | None = None) -> Any:
        """Stands in for xwr's function of that name: send a request, wait for its own answer.

        Raises:
            TimeoutError: no answer; where the card was asked whether it is alive, soon.
            DeviceError: it refuses.
        """
        from xwr.capture.types import Response

        code = request.cmd.value
        deadline = min(time.monotonic() + timeout_s, self._deadline)
        if code == SYSTEM_ALIVENESS:
            deadline = min(deadline, time.monotonic() + _PING_S)
        wire = card.config_socket
        try:
            wire.sendto(request.to_bytes(), (card.fpga_ip, card.config_port))
            while (left := deadline - time.monotonic()) > 0:
                wire.settimeout(left)
                with contextlib.suppress(ProtocolError, ConnectionRefusedError):
                    answer = Answer.parse(wire.recv(2048))
                    if answer.code == code:
                        break
            else:
                raise TimeoutError
        except TimeoutError:
            raise TimeoutError(
                f"the capture card does not answer at {card.fpga_ip}:{card.config_port}"
            ) from None
        if desc is not None and answer.status:
            raise DeviceError(f"the capture card refuses: {desc} (status {answer.status})")
        return Response(cmd=answer.code, status=answer.status)

    def _start(self, chirp: ChirpConfig, port: str | None, card: Mapping[str, Any]) -> None:
        """The order is xwr's: the card records from the radar's first chirp on."""
        try:
            self._await_card(card["timeout"])
            major, minor, _ = self._card.read_fpga_version()
            self.version = f"{major}.{minor}"
            self._card.stop()
            self._card.setup(delay=card["delay"])
            radar = self._open_radar(chirp.device, port)
            radar.port.reset_input_buffer()
            self._card.reset_ar_device()
            self._await_boot(radar)
            while len(self._receiver.receive(0.0)):  # of a capture before this one
                pass
            self._card.start()
            self._closers += [self._card.reset_ar_device, self._card.stop, self._hurry]
            radar.setup(**{key: getattr(chirp, key) for key in _RADAR_KEYS})
            radar.start()
        except (DeviceError, TimeoutError, OSError) as error:
            # pyserial's errors are OSErrors, too, some without a strerror.
            reason = getattr(error, "strerror", None) or str(error)
            raise DeviceError(_after(self._where, reason)) from None
        except AssertionError:
            raise ConfigError(
                f"xwr does not set a {chirp.device} to {chirp.frequency:g} GHz with "
                f"{card['delay']:g} us between packets",
                key=f"{self._where.partition(':')[0]}.radar",
            ) from None

    def _await_card(self, timeout_s: float) -> None:
        """Ask until it answers: it may be busy, and no datagram is sure to arrive."""
        end = min(time.monotonic() + timeout_s, self._deadline)
        while True:
            try:
                self._card.system_aliveness()
                return
            except TimeoutError:
                if time.monotonic() > end:
                    raise

    def _hurry(self) -> None:
        """Closing waits for no device that is gone."""
        self._deadline = time.monotonic() + 1.0

    # The radar

    def _open_radar(self, device: str, port: str | None) -> Any:
        from xwr import radar

        family = getattr(radar, device)
        log = logging.getLogger(f"xwr/{device}")
        log.handlers, log.propagate = [_Collector(self.warnings)], False
        try:
            made = family(port=port, name=device)
        except radar.XWRError as error:
            raise DeviceError(f"no radar is found among the serial ports: {error}") from None
        self._closers.append(made.port.close)
        made._wait_for_response = partial(self._answer, made)
        return _Refusals(made, radar.XWRError)

    def _answer(self, radar: Any, timeout: float = 10.0) -> bytearray:
        """Stands in for xwr's function of that name: all up to the prompt.

        Raises:
            TimeoutError: there is none in time.
            DeviceError: endless talk without one.
        """
        deadline = min(time.monotonic() + timeout, self._deadline)
        said = bytearray()
        while not said.endswith(_PROMPT):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the radar does not answer at {radar.port.port}")
            if len(said) > _ANSWER_LIMIT:
                raise DeviceError(f"what is at {radar.port.port} is not a radar's command line")
            radar.port.timeout = left
            said += radar.port.read(max(1, radar.port.in_waiting))
        return said

    def _await_boot(self, radar: Any) -> None:
        """Wait for the first prompt after the reset, and until nothing comes any more."""
        wire = radar.port
        end = min(time.monotonic() + _BOOT_S, self._deadline)
        said = b""
        nudge = time.monotonic() + _NUDGE_S
        while not said.endswith(_PROMPT):
            if time.monotonic() > end:
                raise TimeoutError(f"the radar shows no prompt at {wire.port} after its reset")
            if time.monotonic() > nudge:
                wire.write(b"\n")
                nudge += _NUDGE_S
            wire.timeout = _QUIET_S
            said = (said + wire.read(max(1, wire.in_waiting)))[-_ANSWER_LIMIT:]
        wire.timeout = _QUIET_S
        while time.monotonic() < end and wire.read(4096):
            pass


class _Refusals:
    """A radar of xwr's whose refusals are device errors that name the command."""

    def __init__(self, radar: Any, error: type[Exception]) -> None:
        self._radar, self._error = radar, error
        self.port: serial.Serial = radar.port
        self._command = ""
        send = radar.send

        def remember(cmd: str, timeout: float = 10.0) -> None:
            if "\n" not in cmd:
                self._command = cmd
            send(cmd, timeout=timeout)

        radar.send = remember

    def setup(self, **chirp: Any) -> None:
        self._do(partial(self._radar.setup, **chirp))

    def start(self) -> None:
        self._do(self._radar.start)

    def _do(self, action: Callable[[], None]) -> None:
        try:
            action()
        except self._error as error:
            said = " ".join(str(error).split())
            raise DeviceError(f"the radar refuses {self._command!r}: {said}") from None


class _Collector(logging.Handler):
    """Keeps what xwr warns of."""

    def __init__(self, into: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._into = into

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        # Each start stops a sensor that does not run; a pty has no low latency.
        if record.levelno == logging.WARNING and not text.startswith(("Ignored", "Low latency")):
            self._into.append(text)


def _flags(status: int) -> str:
    names = [name for bit, name in enumerate(_FLAGS) if status >> bit & 1]
    return ", ".join(names) or f"status {status:#x}"


def _after(where: str, reason: str) -> str:
    return reason if reason.startswith(where) else f"{where}: {reason}"


assert PACKET_BYTES <= _ROW_BYTES
