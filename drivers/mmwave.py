"""Radar driver: TI mmWave devices behind a DCA1000EVM, raw captures and simulated radars.

The driver has one stream with the sensor's name.  Its channels are ``iq`` (i2 [chirps, tx, rx,
values], in the DCA1000's order: two interleaved lanes) and ``valid`` (u1, 1 where the frame is
complete); ``radar.json`` is stored beside them.  The recorder never reorders IQ; ``iq_order`` only
names the order, so a wrong setting can be corrected later in ``radar.json``.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from drivers._devices.dca1000 import RadarCapture
from drivers._kit.driver import (
    Driver,
    EndOfSource,
    Item,
    Lost,
    Sample,
    SensorConfig,
    State,
    incomplete,
)
from drivers._kit.runner import main
from drivers._protocols.chirp import IQ_ORDERS, ChirpConfig
from drivers._protocols.chirp_limits import check_chirp
from drivers._protocols.dca1000_frames import (
    AssembledFrame,
    FrameAssembler,
    FrameClock,
    MissedFrames,
)
from drivers._protocols.radar_options import (
    CAPTURE_OPTIONS,
    CHIRP_OPTIONS,
    RadarSetup,
    radar_setup,
)
from drivers._protocols.raw_capture import CapturedFrame, CaptureFiles, LostFrames
from drivers.sim.dca1000_packets import FramePackets
from drivers.sim.deferred_data import DeferredData
from drivers.sim.radar import SIM_CHIRP, SimulatedRadar, simulated_radar
from drivers.sim.world import SCENE_OPTION
from drivers.sim.world.mounts import MOUNT_OPTION
from recorder.contract.config.options import Option
from recorder.contract.errors import ConfigError, DeviceError, ProtocolError, SourceError
from recorder.contract.streams import ChannelSpec, StreamSpec

__all__ = ["SIM_CHIRP", "MmwaveDriver"]

Frame = npt.NDArray[np.int16]

_TELL_NS = 1_000_000_000  # shortest interval between two reports of packet counts


class MmwaveDriver(Driver):
    """Records a radar, plays a raw capture, or simulates a radar.

    The stamp of a device's frame is the arrival of its last packet (see `AssembledFrame`).  The
    stamp of frame k of a file is k * frame_period.  The stamp of a simulated frame is the end of
    its chirps, so it is later by the duration of the chirps.  Where a device's frame lacks packets,
    the missing values are zero, ``valid`` is 0, and a state record holds the number of missing
    packets and bytes.  Frames without any packet are counted as lost.  An incomplete last frame of
    a file is counted as one lost sample and is not recorded, because its missing values would be
    invented.  Files of packets with their headers are read as packets from the network are.

    >>> driver = MmwaveDriver(sensor)
    >>> (spec,) = driver.open()
    >>> sample = driver.read()
    >>> sample.data["iq"]                # int16 [1, chirps, tx, rx, values], little endian
    >>> driver.close()
    """

    options: ClassVar = {
        "iq_order": Option(
            "str",
            None,
            "order of I and Q in a capture: qqii (default) is the order of red-rover's and xwr's "
            "radar settings (I in the upper half of a word), iiqq the order of mmWave Studio; "
            "with cfg, the file's order is the default",
            choices=IQ_ORDERS,
        ),
        "radar": Option("map", None, "the chirp configuration", keys=CHIRP_OPTIONS),
        "cfg": Option(
            "path",
            None,
            "TI's .cfg file, which defines chirps and frame instead of radar; a device is "
            "configured by its lines",
        ),
        "capture": Option("map", None, "the capture card", keys=CAPTURE_OPTIONS),
        "boot_s": Option(
            "float",
            2.0,
            "longest wait for the radar's prompt after its reset, s",
            minimum=0.1,
            maximum=30,
        ),
        "seed": Option("int", 0, "sim: seed of the world and the noise", minimum=0),
        "scene": SCENE_OPTION,
        "noise": Option(
            "float", 1.0, "sim: scale of the thermal noise; 0: no noise", minimum=0, maximum=1000
        ),
        "phase_error_deg": Option(
            "float",
            0.0,
            "sim: standard deviation of the antennas' phase errors, deg; 0: calibrated antennas",
            minimum=0,
            maximum=180,
        ),
        "mount": MOUNT_OPTION,
    }
    schemes: ClassVar = {
        "sim": "a drive past houses, vehicles, people and poles",
        "file": "raw IQ as written by a DCA1000: consecutive frames of int16, or its packets with "
        "their headers, in one file or in the numbered .bin files of a folder; needs the chirp "
        "configuration",
        "dca1000": "a radar behind a DCA1000EVM; //ADDRESS is the card's address (default: "
        "capture.fpga_ip); needs the chirp configuration",
    }
    live_schemes: ClassVar = frozenset({"dca1000"})

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._simulated: SimulatedFrames | None = None
        self._recorded: RecordedFrames | None = None
        self._live: LiveFrames | None = None
        self._index = 0
        self._chirp = SIM_CHIRP
        self._setup = RadarSetup(SIM_CHIRP, "qqii")

    @property
    def origin_ns(self) -> int | None:
        """Start of the first simulated frame; None for other sources."""
        return 0 if self.sensor.scheme == "sim" else None

    def open(self) -> Sequence[StreamSpec]:
        """Open the source.  A device is reset, configured and started.

        Raises:
            ConfigError: the chirp configuration lacks a key or is impossible.
            SourceError: the file does not exist or holds no complete frame.
            DeviceError: the radar or the capture card does not answer.
        """
        sensor, options = self.sensor, self.sensor.options
        usual = SIM_CHIRP if sensor.scheme == "sim" else None
        self._setup = setup = radar_setup(sensor.name, sensor.scheme, options, usual)
        self._chirp = chirp = setup.chirp
        key = f"{sensor.name}.{'radar' if setup.cfg is None else 'cfg'}"
        card = options["capture"] if sensor.scheme == "dca1000" else None
        self.warnings = check_chirp(chirp, key, card, captured=sensor.scheme == "file")
        self.warnings += setup.cfg.warnings if setup.cfg is not None else ()
        if sensor.scheme == "file":
            self._recorded = RecordedFrames(sensor, chirp)
            self.warnings += self._recorded.warnings
        for warning in self.warnings:
            print(f"{sensor.name}: {warning}", file=sys.stderr, flush=True)
        self._index = 0
        if sensor.scheme == "sim":
            order = setup.iq_order
            self._simulated = SimulatedFrames(simulated_radar(sensor.name, options, chirp, order))
        elif sensor.scheme != "file":
            self._live = LiveFrames(sensor, setup, self.warnings)
        return [self._spec(chirp)]

    def read(self) -> Item | None:
        """Return the next frame or the loss of an incomplete one; None after 0.2 s without data.

        Raises:
            EndOfSource: the last frame was already returned.
            SourceError: the rest of the file cannot be read.
            DeviceError: the device is silent, or another sender uses its port.
        """
        if self._live is not None:
            return self._live.read()
        name = self.sensor.name
        if self._simulated is not None:
            index = self._index
            self._index += 1
            t_ns = self._simulated.radar.end_ns(index)
            later = DeferredData(partial(self._simulated.data, index))
            return Sample(name, np.array([t_ns], np.int64), later)
        if self._recorded is None:
            raise SourceError(f"{name}: read before open")
        return self._recorded.read()

    def close(self) -> None:
        if self._recorded is not None:
            self._recorded.close()
        if self._live is not None:
            self._live.close()
        self._recorded = self._simulated = self._live = None

    def _spec(self, chirp: ChirpConfig) -> StreamSpec:
        options = self.sensor.options
        order, cfg = self._setup.iq_order, self._setup.cfg
        calibration = cfg.calibration if cfg is not None else None
        if self.sensor.scheme == "sim":
            known = not options["phase_error_deg"]
            calibration = chirp.antennas.ideal_calibration() if known else None
        layout = f"order {order}" if chirp.antennas.complex_samples else "real"
        return StreamSpec(
            self.sensor.name,
            (
                ChannelSpec("iq", "raw", "i2", chirp.shape, f"raw ADC samples, {layout}"),
                ChannelSpec("valid", "raw", "u1", (), "1 where nothing of the frame is missing"),
            ),
            rate_hz=chirp.rate_hz,
            bytes_per_sample=chirp.frame_bytes + 1,
            finite=self.sensor.scheme == "file",
            description=f"radar {chirp.device}",
            files={"radar.json": json.dumps(chirp.intrinsics(order, calibration), indent=4) + "\n"},
            settings={
                "iq_order": order,
                "radar": asdict(chirp) | {"port": options["radar"]["port"]},
                "capture": dict(options["capture"]),
                **({"cfg": [*cfg.commands, cfg.start]} if cfg is not None else {}),
                **({"warnings": self.warnings} if self.warnings else {}),
            },
        )


def _data(frame: Frame, valid: bool = True) -> dict[str, npt.NDArray[Any]]:
    return {"iq": frame[None], "valid": np.full(1, valid, np.uint8)}


def _incomplete(name: str, t_ns: int, frame: AssembledFrame | CapturedFrame) -> State:
    """Return the report of a frame that lacks packets."""
    values = {
        "frame": frame.index,
        "bytes_missing": frame.bytes_missing,
        "packets_lost": frame.packets_lost,
        "packets_corrupt": frame.packets_corrupt,
    }
    cause = "corrupt" if frame.packets_corrupt > frame.packets_lost else "network"
    parts = frame.packets_lost + frame.packets_corrupt
    return State(name, t_ns, values | incomplete(cause, parts))


class RecordedFrames:
    """Converts the frames of capture files to items for the kit.

    Args:
        sensor: its address is a file or a folder.
        chirp: defines a frame's shape and the period.

    Attributes:
        warnings: what is not played.

    Raises:
        SourceError: there is no complete frame, or the frames cannot be found.
    """

    def __init__(self, sensor: SensorConfig, chirp: ChirpConfig) -> None:
        self._name, self._period_ms = sensor.name, chirp.frame_period
        where = f"{sensor.name}: file:{sensor.address}"
        self._capture = CaptureFiles(sensor.path, chirp, where)
        self.warnings = self._capture.warnings
        self._items: deque[Item] = deque()
        self._last_ns = 0
        self._ended = False

    def read(self) -> Item:
        """Return the next item.

        Raises:
            EndOfSource: the last item was already returned.
            SourceError: the rest of the files cannot be read.
        """
        while not self._items and not self._ended:
            self._take(self._capture.read())
        if not self._items:
            raise EndOfSource
        return self._items.popleft()

    def _take(self, item: CapturedFrame | LostFrames | None) -> None:
        if item is None:
            self._ended = True
            if counts := self._capture.counts:
                self._items.append(State(self._name, self._last_ns, dict(counts)))
            return
        t_ns = self._last_ns = round(item.index * self._period_ms * 1e6)
        if isinstance(item, LostFrames):
            lost = Lost(self._name, t_ns, item.cause, item.count, detail=item.detail)
            self._items.append(lost)
            return
        data = _data(item.data, not item.bytes_missing)
        self._items.append(Sample(self._name, np.array([t_ns], np.int64), data))
        if item.bytes_missing:
            self._items.append(_incomplete(self._name, t_ns, item))

    def close(self) -> None:
        """Close the files."""
        self._capture.close()


class SimulatedFrames:
    """Converts a simulated radar's frames to packets of a simulated capture card and back.

    Args:
        radar: generates the frames.
    """

    def __init__(self, radar: SimulatedRadar) -> None:
        self.radar = radar
        self._size = radar.chirp.frame_bytes
        self._packets = FramePackets(radar.frame, self._size)

    def data(self, index: int) -> dict[str, npt.NDArray[Any]]:
        """Return the data of frame `index`."""
        packets = self._packets.holding(index)
        sizes = np.full(len(packets), packets.shape[1], np.int64)
        assembler = FrameAssembler(self._size, first=index)
        frames = assembler.take(packets, sizes, np.zeros(len(packets), np.int64))
        frame = (frames or assembler.flush())[0]
        if not isinstance(frame, AssembledFrame):
            raise AssertionError(f"frame {index} was not assembled from its own packets")
        return _data(_shaped(frame, self.radar.chirp), not frame.bytes_missing)


class LiveFrames:
    """Converts a device's packets to items for the kit.

    Args:
        sensor: its address is the capture card's, ``//ADDRESS``, or empty.
        setup: how the radar is configured.
        warnings: about the configuration; those of radar, card and kernel are added.

    Raises:
        ConfigError: the radar or xwr does not support the configuration.
        DeviceError: the radar or the card does not answer.
    """

    def __init__(self, sensor: SensorConfig, setup: RadarSetup, warnings: list[str]) -> None:
        options, self._name, chirp = sensor.options, sensor.name, setup.chirp
        if setup.cfg is None and chirp.antennas.complex_samples and setup.iq_order != "qqii":
            raise ConfigError(
                f"{setup.iq_order!r}; xwr sets a radar to qqii", key=f"{sensor.name}.iq_order"
            )
        address = sensor.address.strip("/")
        card = {**options["capture"], **({"fpga_ip": address} if address else {})}
        self._where = f"{sensor.name}: dca1000://{card['fpga_ip']}"
        self._chirp = chirp
        self._capture = RadarCapture(
            self._where, chirp, options["radar"]["port"], card, options["boot_s"], setup.cfg
        )
        warnings += self._capture.warnings
        for warning in self._capture.warnings:
            print(f"{self._name}: {warning}", file=sys.stderr, flush=True)
        period_ns = round(chirp.frame_period * 1e6)
        self._patience_ns = max(round(card["timeout"] * 1e9), 3 * period_ns)
        self._assembler = FrameAssembler(chirp.frame_bytes)
        self._clock = FrameClock(period_ns)
        self._items: deque[Item] = deque()
        self._failure: DeviceError | None = None
        self._heard_ns = self._reported_ns = time.monotonic_ns()
        self._last_ns = 0
        self._reported: dict[str, int] = {}
        opened: dict[str, Any] = {"capture": "started", "fpga_version": self._capture.version}
        if warnings:
            opened["warnings"] = list(warnings)
        self._items.append(State(self._name, self._heard_ns, opened, lasting=True))

    def read(self) -> Item | None:
        """Return the next item; None after 0.2 s without one.

        Raises:
            DeviceError: no data for `capture.timeout`, or the data are not a capture.
        """
        if not self._items:
            if self._failure is not None:
                raise self._failure
            self._receive()
        return self._items.popleft() if self._items else None

    def close(self) -> None:
        """Stop the radar and the card."""
        self._capture.close()

    def _receive(self) -> None:
        batch = self._capture.receive(0.2)
        now_ns = time.monotonic_ns()
        if len(batch):
            self._heard_ns = now_ns
            try:
                self._take(self._assembler.take(batch.data, batch.sizes, batch.t_ns))
            except ProtocolError as error:
                self._fail(now_ns, str(error))
        elif now_ns - self._heard_ns > self._patience_ns:
            self._fail(now_ns, f"no data for {self._patience_ns / 1e9:.1f} s")
        if now_ns - self._reported_ns > _TELL_NS:
            self._tell(now_ns)

    def _fail(self, now_ns: int, reason: str) -> None:
        """Flush the assembler, then fail: the kit reopens the device, which resets the radar."""
        self._take(self._assembler.flush())
        self._tell(now_ns)
        self._failure = DeviceError(f"{self._where}: {reason}")

    def _take(self, frames: Sequence[AssembledFrame | MissedFrames]) -> None:
        for frame in frames:
            packets = {
                "packets_lost": frame.packets_lost,
                "packets_corrupt": frame.packets_corrupt,
            }
            if isinstance(frame, MissedFrames):
                detail = {"first_frame": frame.index, **packets}
                lost = Lost(self._name, frame.t_ns, "network", frame.count, detail=detail)
                self._items.append(lost)
                continue
            t_ns = self._last_ns = max(frame.t_ns, self._last_ns + 1)
            if left_out := self._clock.see(frame.index, frame.t_ns):
                self._items.append(Lost(self._name, t_ns, "device", left_out))
            data = _data(_shaped(frame, self._chirp), not frame.bytes_missing)
            self._items.append(Sample(self._name, np.array([t_ns], np.int64), data))
            if frame.bytes_missing:
                self._items.append(_incomplete(self._name, t_ns, frame))

    def _tell(self, now_ns: int) -> None:
        """Report the changes of the counts and the card's unsolicited messages."""
        self._reported_ns = now_ns
        assembler = self._assembler
        counts = {
            "packets_duplicate": assembler.duplicates,
            "packets_reordered": assembler.reordered,
            "packets_late": assembler.late,
            "packets_damaged": assembler.corrupt,
            "socket_overflow": self._capture.overflow,
        }
        values: dict[str, Any] = {
            key: count - self._reported.get(key, 0)
            for key, count in counts.items()
            if count != self._reported.get(key, 0)
        }
        self._reported = counts
        if notices := self._capture.notices():
            values["capture_card"] = notices
        if values:
            self._items.append(State(self._name, now_ns, values))


def _shaped(frame: AssembledFrame, chirp: ChirpConfig) -> Frame:
    return frame.data.view("<i2").reshape(chirp.shape)


if __name__ == "__main__":
    main(MmwaveDriver)
