"""An emulated AWR1843 or AWR1642 behind a DCA1000EVM.

The radar's command line is on a pseudo-terminal, the capture card on two UDP sockets of
127.0.0.2.  The radar generates the configured frames from the simulated world (``sim:``), or from a
recording (``file:``; zeros after its end) if the shapes match.  The card cuts the frames into
packets and sends each packet after the last chirp that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.emulator import EmulatedSource, Emulator, SerialPort
from drivers.kit.emulator_faults import PACKET_KINDS, Fault, PacketFaults
from drivers.mmwave import packets
from drivers.mmwave.chirp import ChirpConfig
from drivers.mmwave.emulator_card import CARD, HOST, CaptureCard
from drivers.mmwave.emulator_firmware import DemoFirmware
from drivers.mmwave.model import SIM_CHIRP, make_radar
from drivers.mmwave.options import radar_setup
from drivers.mmwave.packets import HEADER_BYTES
from drivers.mmwave.raw_capture import CapturedFrame, CaptureFiles
from recorder.common.errors import ConfigError, SourceError, UsageError
from recorder.config.settings import SensorEntry

Frame = npt.NDArray[np.int16]

_DEVICES: Final = ("AWR1642", "AWR1843", "AWR1843L", "AWR1843AOP")
_GRAIN_NS: Final = 2_000_000  # shortest interval between sends; each sends all due packets
_POLL_NS: Final = 5_000_000  # interval of reading requests


class MmwaveEmulator(Emulator):
    """A radar and its capture card; packet faults are counted in packets, stalls in frames.

    ``corrupt`` damages the header of a packet, because other damage could not be detected.  A radar
    that ``stall``s makes no frames until the time is over or it is reset; it has no clock to jump.

    Raises:
        ConfigError: the sensor's device is of another family.
        UsageError: an unsupported fault.
    """

    def __init__(self, sensor: SensorEntry, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        super().__init__(sensor, faults, seed)
        usual = SIM_CHIRP if sensor.scheme == "sim" else None
        self._setup = radar_setup(sensor.name, sensor.scheme, sensor.options, usual)
        self._chirp = self._setup.chirp
        if self._chirp.device not in _DEVICES:
            known = ", ".join(_DEVICES)
            raise ConfigError(
                f"{self._chirp.device} is not emulated; the emulated devices are {known}",
                key=f"{sensor.name}.radar.device",
            )
        if any(fault.kind == "clock_jump" for fault in faults):
            raise UsageError(f"{sensor.name}: a radar has no clock that could jump")
        self._firmware = DemoFirmware(self._chirp.device)
        self._header_faults = _HeaderFaults(self._packet_faults)
        self._device_faults = [f for f in faults if f.kind not in PACKET_KINDS]
        self._recording: _Recording | None = None
        self._frame: Callable[[int], Frame] = self._silence
        self._made_for: tuple[ChirpConfig, str] | None = None
        self._chirping: ChirpConfig | None = None  # while the sensor runs
        self._world_ns: int | None = None  # start of frame 0
        self._first_ns: int | None = None  # time of the first sent packet
        self._index = 0
        self._ready: Frame | None = None  # frame `_index`
        self._beyond = False  # frames after a recording's end were sent
        self._silent_until_ns = 0
        self._stalled = False
        self._back_ns: int | None = None  # end of a power cut or an unplugging
        self._card = CaptureCard(sensor.name)
        self._port = SerialPort(sensor.name, "cli")

    def start(self) -> EmulatedSource:
        if self.sensor.scheme == "file":
            self._recording = _Recording(self.sensor, self._chirp)
        # Slow work is done before a host waits for it.
        cfg = self._setup.cfg
        self._made_for = self._chirp, "qqii" if cfg is None else cfg.iq_order
        self._frame = self._source(*self._made_for)
        self._ready = self._frame(0)
        self._card.open()
        link = self._port.plug_in()
        self._firmware.power_on(0)
        chirp = asdict(self._chirp)
        del chirp["transmitters"]  # xwr uses all
        if cfg is not None:
            chirp = {"device": self._chirp.device}
        options: dict[str, Any] = {
            "iq_order": self._made_for[1],
            "radar": chirp | {"port": str(link)},
            "capture": {
                "sys_ip": HOST,
                "fpga_ip": CARD,
                "data_port": self._card.data_port,
                "config_port": self._card.config_port,
            },
        }
        if cfg is not None:
            options["cfg"] = self.sensor.options["cfg"]
        return EmulatedSource(f"dca1000://{CARD}", options)

    def step(self, now_ns: int) -> int:
        self._break_down(now_ns)
        if self._back_ns is not None:
            if now_ns < self._back_ns:
                return min(self._back_ns, now_ns + _POLL_NS)
            self._come_back(now_ns)
        for code in self._card.answer(now_ns):
            if code == packets.RESET_AR_DEVICE:
                if self._stalled:
                    self._recover(now_ns)
                self._silent_until_ns = 0
                self._firmware.power_on(now_ns)
        self._serve_serial(now_ns)
        self._follow_sensor(now_ns)
        return min(self._send(now_ns), now_ns + _POLL_NS)

    def stop(self) -> None:
        self._port.remove()
        self._card.close()
        if self._recording is not None:
            self._recording.close()

    # Faults of the device

    def _break_down(self, now_ns: int) -> None:
        """Begin the faults that are due."""
        if self._first_ns is None:
            return
        for fault in list(self._device_faults):
            begin_ns = self._first_ns + round(fault.at_s * 1e9)
            if now_ns < begin_ns:
                continue
            self._device_faults.remove(fault)
            end_ns = begin_ns + round(fault.duration_s * 1e9)
            if fault.kind == "stall":
                self._silent_until_ns = end_ns
                continue
            self.injected[fault.kind] += 1
            self._firmware.power_off()
            self._follow_sensor(now_ns)
            self._card.power_off()
            if fault.kind == "unplug":
                self._port.pull()
                self._card.close()
            self._back_ns = end_ns

    def _come_back(self, now_ns: int) -> None:
        self._back_ns = None
        if self._port.ends is None:
            self._card.open()
            self._port.plug_in()
        self._card.discard()
        self._firmware.power_on(now_ns)

    # The radar

    def _serve_serial(self, now_ns: int) -> None:
        received = self._port.read()
        if now_ns >= self._silent_until_ns:  # else it hangs
            self._port.write(self._firmware.step(received, now_ns))

    def _follow_sensor(self, now_ns: int) -> None:
        """Begin or end chirping, as commanded to the firmware."""
        if not self._firmware.running:
            self._chirping = None
            return
        if self._chirping is not None or (reported := self._firmware.chirp()) is None:
            return
        if reported != self._made_for:
            self._made_for, self._ready = reported, None
            self._frame = self._source(*reported)
        self._chirping = reported[0]
        if self._world_ns is None:
            self._world_ns = now_ns
        self._skip_to(now_ns)

    def _recover(self, now_ns: int) -> None:
        """Continue after a hang or a reset of the radar."""
        self._stalled = False
        before = self._index
        self._skip_to(now_ns)
        self.injected["stall"] += self._index - before

    def _skip_to(self, now_ns: int) -> None:
        """Continue with the first frame that begins now or later: the world does not wait."""
        period_ns = self._period_ns()
        gone_ns = now_ns - (self._world_ns or 0)
        index = max(self._index, -(-gone_ns // period_ns))
        if index != self._index:
            self._index = index
            if self._recording is None:  # a recording's frames are never skipped
                self._ready = None

    def _period_ns(self) -> int:
        return round((self._chirping or self._chirp).frame_period * 1e6)

    def _source(self, chirp: ChirpConfig, iq_order: str) -> Callable[[int], Frame]:
        if self._recording is not None:
            return self._recording.frame if chirp.shape == self._chirp.shape else self._silence
        if self.sensor.scheme != "sim":
            return self._silence
        return make_radar(self.sensor.name, self.sensor.options, chirp, iq_order).frame

    def _silence(self, _: int) -> Frame:
        chirp = self._made_for[0] if self._made_for is not None else self._chirp
        return np.zeros(chirp.shape, "<i2")

    def _send(self, now_ns: int) -> int:
        """Make the frame that begins and send the due packets; return the next due time."""
        begin_ns = self._begin(now_ns)
        due_ns = self._card.next_ns()
        while due_ns is not None and due_ns <= now_ns:
            packet = self._card.pop()
            if self._first_ns is None:
                self._first_ns = due_ns
            for sent in self._header_faults.apply((due_ns - self._first_ns) / 1e9, packet):
                self._card.send(sent)
            due_ns = self._card.next_ns()
        if self._recording is not None and self._recording.ended and self._beyond:
            self.finished = due_ns is None
        if due_ns is None:
            due_ns = begin_ns
        return now_ns + _POLL_NS if due_ns is None else max(due_ns, now_ns + _GRAIN_NS)

    def _begin(self, now_ns: int) -> int | None:
        """Pass the frame that has begun to the card; return the next begin, None: unknown."""
        chirp, world_ns = self._chirping, self._world_ns
        if chirp is None or world_ns is None:
            return None
        if now_ns < self._silent_until_ns:
            self._stalled = True
            return self._silent_until_ns
        if self._stalled:
            self._recover(self._silent_until_ns)
        begin_ns = world_ns + self._index * self._period_ns()
        if self._card.busy:
            return begin_ns
        if self._ready is None:
            self._ready = self._frame(self._index)  # made before it begins
        if now_ns < begin_ns:
            return begin_ns
        self.late_ns = now_ns - begin_ns
        self._beyond = self._recording is not None and self._recording.ended
        self._card.push(self._ready, begin_ns, round(chirp.frame_time * 1e6))
        self._ready = None
        self._index += 1
        return None


class _HeaderFaults:
    """`PacketFaults` whose damage is to a packet's header, where it can be detected."""

    def __init__(self, faults: PacketFaults) -> None:
        self._faults = faults
        self._held: dict[bytes, bytes] = {}

    def apply(self, t_s: float, packet: bytes) -> list[bytes]:
        """Apply the faults; see `PacketFaults.apply`."""
        head, payload = packet[:HEADER_BYTES], packet[HEADER_BYTES:]
        before = self._faults.injected["reorder"]
        heads = self._faults.apply(t_s, head)
        if self._faults.injected["reorder"] > before:
            self._held[head] = payload
        return [one + self._held.pop(one, payload) for one in heads]


class _Recording:
    """The frames of raw captures, in order; zeros after the last.

    Attributes:
        ended: a frame after the end was requested.
    """

    def __init__(self, sensor: SensorEntry, chirp: ChirpConfig) -> None:
        where = f"{sensor.name}: file:{sensor.address}"
        if not Path(sensor.address).exists():
            raise SourceError(f"{where}: no such file")
        self._capture = CaptureFiles(Path(sensor.address), chirp, where)
        self._zeros = np.zeros(chirp.shape, "<i2")
        self.ended = False

    def frame(self, _: int) -> Frame:
        """Return the next frame, whatever its number."""
        while not self.ended:
            item = self._capture.read()
            if item is None:
                self.ended = True
            elif isinstance(item, CapturedFrame):
                return item.data
        return self._zeros

    def close(self) -> None:
        self._capture.close()
