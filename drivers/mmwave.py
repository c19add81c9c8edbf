"""Radar driver: TI mmWave devices behind a DCA1000EVM, raw captures of them, and simulated ones.

One stream with the sensor's name: ``iq`` (i2 [chirps, tx, rx, values], as it comes from the
DCA1000: two lanes interleaved) and ``valid`` (u1, 1 where nothing of the frame is missing), with
``radar.json`` beside them.  The recorder never reorders IQ; ``iq_order`` only says what the order
is, so a wrong setting can be put right later in ``radar.json``.
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
from drivers._kit.driver import Driver, EndOfSource, Item, Lost, Sample, SensorConfig, State
from drivers._kit.runner import main
from drivers._protocols.chirp import DEVICES, IQ_ORDERS, ChirpConfig, chirp_config
from drivers._protocols.dca1000_frames import (
    AssembledFrame,
    FrameAssembler,
    FrameClock,
    MissedFrames,
)
from drivers._protocols.raw_capture import CaptureFiles, Truncated
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

_TELL_NS = 1_000_000_000  # counts of packets are told at most so often

_CHIRP_OPTIONS = {
    "device": Option("str", None, "TI's name of the device", choices=tuple(DEVICES)),
    "frequency": Option("float", None, "start of the ramp, GHz", minimum=57, maximum=81),
    "idle_time": Option("float", None, "ramp's end to next ramp, us", minimum=0, maximum=5300),
    "adc_start_time": Option(
        "float", None, "ramp's start to first sample, us", minimum=0, maximum=4096
    ),
    "ramp_end_time": Option("float", None, "length of the ramp, us", minimum=0.1, maximum=5300),
    "tx_start_time": Option(
        "float", 1.0, "ramp's start to transmitter's, us", minimum=-4096, maximum=4096
    ),
    "freq_slope": Option("float", None, "MHz/us", minimum=0.01, maximum=1000),
    "adc_samples": Option("int", None, "samples per chirp, even", minimum=2, maximum=4096),
    "sample_rate": Option("int", None, "ksps", minimum=100, maximum=50_000),
    "frame_length": Option(
        "int", None, "chirps per frame of each transmitter", minimum=1, maximum=4096
    ),
    "frame_period": Option("float", None, "frame to frame, ms", minimum=1, maximum=60_000),
    "port": Option("str", None, "serial control port of the device; found by itself if absent"),
}
_CAPTURE_OPTIONS = {
    "sys_ip": Option("str", "192.168.33.30", "this machine's address, as the card is set to"),
    "fpga_ip": Option("str", "192.168.33.180", "the capture card's address"),
    "data_port": Option("int", 4098, "UDP port of the data", minimum=1, maximum=65535),
    "config_port": Option("int", 4096, "UDP port of the commands", minimum=1, maximum=65535),
    "timeout": Option("float", 1.0, "for an answer or data, s", minimum=0.01, maximum=60),
    "socket_buffer": Option(
        "int", 6_291_456, "receive buffer, bytes", minimum=65_536, maximum=2**31 - 1
    ),
    "delay": Option("float", 5.0, "between packets of the card, us", minimum=0, maximum=524),
}


class MmwaveDriver(Driver):
    """Records a radar, plays a raw capture of one, or simulates one.

    A device's frame is stamped with the arrival of its last packet (see `AssembledFrame`), frame k
    of a file with k * frame_period, that of the simulation by the end of its chirps, which is the
    frame's time later.  A device's frame of which packets are lost has zeros there, ``valid`` 0,
    and a state record that says how many; frames of which nothing came are counted as lost.  A
    file's last frame that is not whole is counted as one lost sample; it is not recorded, since its
    missing values would be made up.

    >>> driver = MmwaveDriver(sensor)
    >>> (spec,) = driver.open()
    >>> sample = driver.read()
    >>> sample.data["iq"]                # int16 [1, chirps, tx, rx, values], little endian
    >>> driver.close()
    """

    options: ClassVar = {
        "iq_order": Option(
            "str",
            "qqii",
            "order of I and Q in a capture: qqii as red-rover's and xwr's setting of the radar "
            "makes it (I in the upper half of a word), iiqq as mmWave Studio's",
            choices=IQ_ORDERS,
        ),
        "radar": Option("map", None, "the chirp configuration", keys=_CHIRP_OPTIONS),
        "capture": Option("map", None, "the capture card", keys=_CAPTURE_OPTIONS),
        "seed": Option("int", 0, "sim: of the world and the noise", minimum=0),
        "scene": SCENE_OPTION,
        "noise": Option(
            "float", 1.0, "sim: scale of the thermal noise; 0: none", minimum=0, maximum=1000
        ),
        "mount": MOUNT_OPTION,
    }
    schemes: ClassVar = {
        "sim": "a drive past houses, vehicles, people and poles",
        "file": "raw IQ as a DCA1000 writes it: frames of int16 back to back, in one file or in "
        "the numbered .bin files of a folder; needs the chirp configuration",
        "dca1000": "a radar behind a DCA1000EVM; //ADDRESS is the card's, else capture.fpga_ip; "
        "needs the chirp configuration",
    }
    live_schemes: ClassVar = frozenset({"dca1000"})

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._simulated: SimulatedFrames | None = None
        self._capture: CaptureFiles | None = None
        self._live: LiveFrames | None = None
        self._index = 0
        self._chirp = SIM_CHIRP

    @property
    def origin_ns(self) -> int | None:
        """Simulated: the start of the world, where the first frame begins."""
        return 0 if self.sensor.scheme == "sim" else None

    def open(self) -> Sequence[StreamSpec]:
        """Open the source; a device is reset, set up, and measures when this returns.

        Raises:
            ConfigError: the chirp configuration lacks a key, or cannot be.
            SourceError: there is no such file, or not one whole frame in it.
            DeviceError: radar or capture card do not answer.
        """
        sensor, options = self.sensor, self.sensor.options
        usual = SIM_CHIRP if sensor.scheme == "sim" else None
        self._chirp = chirp = chirp_config(options["radar"], f"{sensor.name}.radar", usual)
        self._index = 0
        if sensor.scheme == "sim":
            order = options["iq_order"]
            self._simulated = SimulatedFrames(simulated_radar(sensor.name, options, chirp, order))
        elif sensor.scheme == "file":
            where = f"{sensor.name}: file:{sensor.address}"
            self._capture = CaptureFiles(sensor.path, chirp, where)
        else:
            self._live = LiveFrames(sensor, chirp)
        return [self._spec(chirp)]

    def read(self) -> Item | None:
        """The next frame, or the loss of one that is not whole; a device: None after 0.2 s.

        Raises:
            EndOfSource: the last frame was given.
            SourceError: the file cannot be read any further.
            DeviceError: the device is silent, or something else sends to its port.
        """
        if self._live is not None:
            return self._live.read()
        index, name = self._index, self.sensor.name
        self._index += 1
        if self._simulated is not None:
            t_ns = self._simulated.radar.end_ns(index)
            later = DeferredData(partial(self._simulated.data, index))
            return Sample(name, np.array([t_ns], np.int64), later)
        if self._capture is None:
            raise SourceError(f"{name}: read before open")
        frame = self._capture.read()
        if frame is None:
            raise EndOfSource
        t_ns = round(index * self._chirp.frame_period * 1e6)
        if isinstance(frame, Truncated):
            detail = {
                "file": frame.path.name,
                "bytes": frame.bytes,
                "frame_bytes": self._chirp.frame_bytes,
            }
            return Lost(name, t_ns, "truncated", 1, detail=detail)
        return Sample(name, np.array([t_ns], np.int64), _data(frame))

    def close(self) -> None:
        if self._capture is not None:
            self._capture.close()
        if self._live is not None:
            self._live.close()
        self._capture = self._simulated = self._live = None

    def _spec(self, chirp: ChirpConfig) -> StreamSpec:
        options = self.sensor.options
        order = options["iq_order"]
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
            files={"radar.json": json.dumps(chirp.intrinsics(order), indent=4) + "\n"},
            settings={
                "iq_order": order,
                "radar": asdict(chirp) | {"port": options["radar"]["port"]},
                "capture": dict(options["capture"]),
            },
        )


def _data(frame: Frame, valid: bool = True) -> dict[str, npt.NDArray[Any]]:
    return {"iq": frame[None], "valid": np.full(1, valid, np.uint8)}


class SimulatedFrames:
    """Frames of a simulated radar by way of the packets of a simulated capture card.

    Args:
        radar: makes the frames.
    """

    def __init__(self, radar: SimulatedRadar) -> None:
        self.radar = radar
        self._size = radar.chirp.frame_bytes
        self._packets = FramePackets(radar.frame, self._size)

    def data(self, index: int) -> dict[str, npt.NDArray[Any]]:
        """Data of frame `index`."""
        packets = self._packets.holding(index)
        sizes = np.full(len(packets), packets.shape[1], np.int64)
        assembler = FrameAssembler(self._size, first=index)
        frames = assembler.take(packets, sizes, np.zeros(len(packets), np.int64))
        frame = (frames or assembler.flush())[0]
        if not isinstance(frame, AssembledFrame):
            raise AssertionError(f"frame {index} did not come back from its own packets")
        return _data(_shaped(frame, self.radar.chirp), not frame.bytes_missing)


class LiveFrames:
    """What a device sends, as items for the kit.

    Args:
        sensor: whose address is that of the capture card, ``//ADDRESS`` or nothing.
        chirp: what the radar is set to.

    Raises:
        ConfigError: radar or xwr cannot do it.
        DeviceError: radar or card do not answer.
    """

    def __init__(self, sensor: SensorConfig, chirp: ChirpConfig) -> None:
        options, self._name = sensor.options, sensor.name
        if chirp.antennas.complex_samples and options["iq_order"] != "qqii":
            raise ConfigError(
                f"{options['iq_order']!r}; xwr sets a radar to qqii", key=f"{sensor.name}.iq_order"
            )
        address = sensor.address.strip("/")
        card = {**options["capture"], **({"fpga_ip": address} if address else {})}
        self._where = f"{sensor.name}: dca1000://{card['fpga_ip']}"
        self._chirp = chirp
        self._capture = RadarCapture(self._where, chirp, options["radar"]["port"], card)
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
        if self._capture.warnings:
            opened["warnings"] = list(self._capture.warnings)
        self._items.append(State(self._name, self._heard_ns, opened, lasting=True))

    def read(self) -> Item | None:
        """The next item; None after 0.2 s without any.

        Raises:
            DeviceError: nothing came for `capture.timeout`, or what came is no capture.
        """
        if not self._items:
            if self._failure is not None:
                raise self._failure
            self._receive()
        return self._items.popleft() if self._items else None

    def close(self) -> None:
        """Stop radar and card."""
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
        """Give what is there; the kit closes, and opens again, which resets the radar."""
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
                missing = {"frame": frame.index, "bytes_missing": frame.bytes_missing, **packets}
                self._items.append(State(self._name, t_ns, missing))

    def _tell(self, now_ns: int) -> None:
        """What was counted since the last time, and what the card said on its own."""
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
