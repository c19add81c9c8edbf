"""A TI mmWave radar with a DCA1000EVM capture card: setup, start, reception, stop.

The commands of the card and of the radar (the mapping from parameters to lines of the radar's
command line) are xwr's.  This module replaces how answers are awaited: xwr waits up to ten seconds
for each answer in a busy loop, and accepts any datagram as the answer.  It also replaces the
reception of data: xwr drops late packets and does not count losses.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from drivers.kit.udp_socket import Batch, UdpReceiver, make_cap_warning
from drivers.mmwave.chirp import DEVICES, ChirpConfig
from drivers.mmwave.packets import PACKET_BYTES, SYSTEM_ALIVENESS, SYSTEM_ERROR, Answer
from drivers.mmwave.ti_cfg import CfgFile
from recorder.common.errors import ConfigError, DeviceError, ProtocolError, SourceError

SETUP_S: Final = 3.0
"""Longest setup of radar and card together, besides the radar's boot."""

_PROMPT: Final = b"mmwDemo:/>"
BOOT_S: Final = 2.0
"""Usual longest time from the reset to the first prompt."""
_NUDGE_S: Final = 0.5  # without a prompt for this time, an empty line may trigger one
_QUIET_S: Final = 0.05  # silence that ends an answer
_PING_S: Final = 0.1  # the card ignores commands for a moment after its configuration
_ANSWER_LIMIT: Final = 65_536  # more bytes without a prompt: not a radar
_BATCH: Final = 512
_GATHER_S: Final = 0.01  # 600 packets at the card's highest rate; a socket holds thousands
_ROW_BYTES: Final = 1536  # row length per packet; a multiple of a cache line

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
    """Receiver of a capture card's packets, several hundred per call.

    The cost is per call, not per packet, so the receiver waits 10 ms for more packets where fewer
    than a full batch have arrived.  The kernel's stamps hold each packet's arrival.

    Args:
        address, port: see `UdpReceiver`, as for the attributes.
        buffer_bytes: see there.
        force: see there.
    """

    def __init__(self, address: str, port: int, buffer_bytes: int, *, force: bool = True) -> None:
        super().__init__(
            address, port, buffer_bytes, 0.2, packet_bytes=_ROW_BYTES, batch=_BATCH, force=force
        )
        self._gather = False

    def receive(self, timeout_s: float | None = None) -> Batch:
        """Receive packets; see `UdpReceiver.receive`."""
        if self._gather:
            time.sleep(_GATHER_S)
        batch = super().receive(timeout_s)
        self._gather = 0 < len(batch) < _BATCH
        return batch


class RadarCapture:
    """Control of a radar with its capture card: start, reception of packets, stop.

    >>> capture = RadarCapture("radar: dca1000:", chirp, port, card)
    >>> batch = capture.receive(0.2)     # packets; empty without data
    >>> capture.close()                  # stops card and radar

    Args:
        where: prefix of messages.
        chirp: the radar's chirp configuration.
        port: its serial port; None: search the USB ports.
        card: ``sys_ip``, ``fpga_ip``, ``config_port``, ``data_port``, ``timeout``,
            ``socket_buffer``, ``delay``, as in red-rover's configs.
        boot_s: longest time from the radar's reset to its first prompt.
        cfg: TI's file that configures the radar; None: xwr does.

    Attributes:
        warnings: warnings of the radar, the card or the kernel about the configuration.
        version: of the card's logic.

    Raises:
        DeviceError: the card or the radar does not answer, or rejects a command.
        ConfigError: xwr rejects the configuration as impossible for the radar.
        SourceError: xwr is not installed.
    """

    def __init__(
        self,
        where: str,
        chirp: ChirpConfig,
        port: str | None,
        card: Mapping[str, Any],
        boot_s: float = BOOT_S,
        cfg: CfgFile | None = None,
    ) -> None:
        self._where, self._boot_s, self._cfg = where, boot_s, cfg
        self.warnings: list[str] = []
        self.version = ""
        self._closers: list[Callable[[], None]] = []
        try:
            import xwr  # noqa: F401  takes about a second, not counted in the devices' time
        except ImportError as error:
            raise SourceError(f"{where}: needs xwr, which cannot be imported: {error}") from None
        self._deadline = time.monotonic() + SETUP_S + boot_s
        try:
            self._receiver = self._receive_from(card)
            self._card: Any = self._connect(card)
            self._start(chirp, port, card)
        except BaseException:
            self.close()
            raise

    def receive(self, timeout_s: float) -> Batch:
        """Return packets in the order of arrival; empty if none arrived within `timeout_s`."""
        return self._receiver.receive(timeout_s)

    @property
    def overflow(self) -> int:
        """Packets that the kernel has dropped because the socket's buffer was full."""
        return self._receiver.overflow

    def notices(self) -> list[str]:
        """Return the card's unsolicited messages since the last call."""
        found: list[str] = []
        self._card.config_socket.settimeout(0)
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            while len(found) < 16:
                with contextlib.suppress(ProtocolError):
                    answer = Answer.parse(self._card.config_socket.recv(2048))
                    if answer.code == SYSTEM_ERROR:
                        found.append(_flags(answer.status))
        return found

    def close(self) -> None:
        """Stop card and radar as far as they answer, and release the sockets and the port."""
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
        if warning := make_cap_warning(receiver, self._where):
            self.warnings.append(warning)
        return receiver

    # The card

    def _connect(self, card: Mapping[str, Any]) -> Any:
        from xwr.capture import DCA1000EVM

        where = f"{card['sys_ip']}:{card['config_port']}"
        logging.getLogger("xwr/DCA1000EVM").disabled = True  # its messages are also raised
        try:
            # xwr binds a data socket of its own; any port will do, because it is closed at once.
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
        """Replace xwr's function of this name: send a request and wait for its own answer.

        Raises:
            TimeoutError: no answer; raised early for a request for the card's aliveness.
            DeviceError: the card rejects the request.
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
            raise DeviceError(f"the capture card rejects: {desc} (status {answer.status})")
        return Response(cmd=answer.code, status=answer.status)

    def _start(self, chirp: ChirpConfig, port: str | None, card: Mapping[str, Any]) -> None:
        """Start card and radar in xwr's order: the card records from the radar's first chirp on."""
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
            while len(self._receiver.receive(0.0)):  # packets of an earlier capture
                pass
            self._card.start()
            self._closers += [self._card.reset_ar_device, self._card.stop, self._hurry]
            with _convert_rejections(radar):
                if self._cfg is not None:
                    for line in (*self._cfg.commands, self._cfg.start):
                        radar.send(line)
                else:
                    radar.setup(**{key: getattr(chirp, key) for key in _RADAR_KEYS})
                    radar.start()
        except (DeviceError, TimeoutError, OSError) as error:
            # pyserial's errors are OSErrors too, some without a strerror.
            reason = getattr(error, "strerror", None) or str(error)
            raise DeviceError(_prefix(self._where, reason)) from None
        except AssertionError:
            raise ConfigError(
                f"xwr cannot set a {chirp.device} to {chirp.frequency:g} GHz with "
                f"{card['delay']:g} us between packets",
                key=f"{self._where.partition(':')[0]}.radar",
            ) from None

    def _await_card(self, timeout_s: float) -> None:
        """Repeat the request until the card answers: it may be busy, and datagrams can be lost."""
        end = min(time.monotonic() + timeout_s, self._deadline)
        while True:
            try:
                self._card.system_aliveness()
                return
            except TimeoutError:
                if time.monotonic() > end:
                    raise

    def _hurry(self) -> None:
        """Limit the time that closing waits for a lost device."""
        self._deadline = time.monotonic() + 1.0

    # The radar

    def _open_radar(self, device: str, port: str | None) -> Any:
        from xwr import radar

        family = getattr(radar, DEVICES[device].family or device)
        log = logging.getLogger(f"xwr/{device}")
        log.handlers, log.propagate = [_Collector(self.warnings)], False
        try:
            made = family(port=port, name=device)
        except radar.XWRError as error:
            raise DeviceError(f"no radar found among the serial ports: {error}") from None
        self._closers.append(made.port.close)
        made._wait_for_response = partial(self._answer, made)
        return made

    def _answer(self, radar: Any, timeout: float = 10.0) -> bytearray:
        """Replace xwr's function of this name: read up to and including the prompt.

        Raises:
            TimeoutError: no prompt in time.
            DeviceError: too many bytes without a prompt.
        """
        deadline = min(time.monotonic() + timeout, self._deadline)
        received = bytearray()
        while not received.endswith(_PROMPT):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the radar does not answer at {radar.port.port}")
            if len(received) > _ANSWER_LIMIT:
                raise DeviceError(f"the device at {radar.port.port} has no radar's command line")
            radar.port.timeout = left
            received += radar.port.read(max(1, radar.port.in_waiting))
        return received

    def _await_boot(self, radar: Any) -> None:
        """Wait for the first prompt after the reset, and then for silence."""
        wire = radar.port
        end = min(time.monotonic() + self._boot_s, self._deadline)
        received = b""
        nudge = time.monotonic() + _NUDGE_S
        while not received.endswith(_PROMPT):
            if time.monotonic() > end:
                raise TimeoutError(
                    f"the radar shows no prompt at {wire.port} within "
                    f"{self._boot_s:g} s after its reset (boot_s)"
                )
            if time.monotonic() > nudge:
                wire.write(b"\n")
                nudge += _NUDGE_S
            wire.timeout = _QUIET_S
            received = (received + wire.read(max(1, wire.in_waiting)))[-_ANSWER_LIMIT:]
        wire.timeout = _QUIET_S
        while time.monotonic() < end and wire.read(4096):
            pass


@contextlib.contextmanager
def _convert_rejections(radar: Any) -> Iterator[None]:
    """Convert xwr's error for a rejected command to a DeviceError that names the command."""
    from xwr.radar import XWRError

    command, send = "", radar.send

    def remember(cmd: str, timeout: float = 10.0) -> None:
        nonlocal command
        command = command if "\n" in cmd else cmd
        send(cmd, timeout=timeout)

    radar.send = remember
    try:
        yield
    except XWRError as error:
        reason = " ".join(str(error).split())
        raise DeviceError(f"the radar rejects {command!r}: {reason}") from None
    finally:
        radar.send = send


class _Collector(logging.Handler):
    """Logging handler that collects xwr's warnings."""

    def __init__(self, into: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._into = into

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        # Each start also stops a sensor that is not running; a pty has no low latency.
        if record.levelno == logging.WARNING and not text.startswith(("Ignored", "Low latency")):
            self._into.append(text)


def _flags(status: int) -> str:
    names = [name for bit, name in enumerate(_FLAGS) if status >> bit & 1]
    return ", ".join(names) or f"status {status:#x}"


def _prefix(where: str, reason: str) -> str:
    return reason if reason.startswith(where) else f"{where}: {reason}"


assert PACKET_BYTES <= _ROW_BYTES
