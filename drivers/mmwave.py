"""Radar driver: raw captures of TI mmWave devices, and a simulated one.

One stream with the sensor's name: ``iq`` (i2 [chirps, tx, rx, values], as it comes from the
DCA1000: two lanes interleaved) and ``valid`` (u1, 1 where nothing of the frame is missing), with
``radar.json`` beside them.  The recorder never reorders IQ; ``iq_order`` only says what the order
is, so a wrong setting can be put right later in ``radar.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from drivers._kit.driver import Driver, EndOfSource, Item, Lost, Sample, SensorConfig
from drivers._kit.runner import main
from drivers._protocols.chirp import DEVICES, IQ_ORDERS, ChirpConfig
from drivers.sim.later import LaterData
from drivers.sim.radar import SimulatedRadar
from drivers.sim.seeds import noise_seed
from drivers.sim.world import SCENE_OPTION, World
from drivers.sim.world.mounts import MOUNT_OPTION, RADAR, mount_of
from recorder.contract.errors import ConfigError, SourceError
from recorder.contract.options import Option
from recorder.contract.streams import ChannelSpec, StreamSpec

Frame = npt.NDArray[np.int16]

SIM_CHIRP = ChirpConfig(
    device="AWR1843",
    frequency=77.0,
    idle_time=6.0,
    adc_start_time=5.7,
    ramp_end_time=34.0,
    freq_slope=30.0,
    adc_samples=256,
    sample_rate=10_000,
    frame_length=64,
    frame_period=50.0,
)
"""What ``sim:`` takes where ``radar`` names nothing else: 15.7 MB/s, 50 m, +-8 m/s."""

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
    """Plays a raw capture of a DCA1000, or simulates one.

    Frame k of a file is stamped k * frame_period, that of the simulation by the end of its chirps,
    which is the frame's time later.  A file's last frame that is not whole is counted as one
    lost sample; it is not recorded, since its missing values would be made up.

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
    }

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._simulated: SimulatedRadar | None = None
        self._capture: CaptureFiles | None = None
        self._index = 0
        self._chirp = SIM_CHIRP

    @property
    def origin_ns(self) -> int | None:
        """Simulated: the start of the world, where the first frame begins."""
        return 0 if self.sensor.scheme == "sim" else None

    def open(self) -> Sequence[StreamSpec]:
        """Open the source.

        Raises:
            ConfigError: the chirp configuration lacks a key, or cannot be.
            SourceError: there is no such file, or not one whole frame in it.
        """
        options = self.sensor.options
        self._chirp = chirp = self._chirp_config(options["radar"])
        self._index = 0
        if self.sensor.scheme == "sim":
            self._simulated = SimulatedRadar(
                chirp,
                options["iq_order"],
                noise_seed(options["seed"], self.sensor.name, "radar"),
                World(options["scene"], options["seed"]),
                mount_of(self.sensor.name, options["mount"], RADAR),
                options["noise"],
            )
        else:
            self._capture = CaptureFiles(self.sensor, chirp)
        return [self._spec(chirp)]

    def read(self) -> Item:
        """The next frame, or the loss of one that is not whole.

        Raises:
            EndOfSource: the last frame was given.
            SourceError: the file cannot be read any further.
        """
        index, name = self._index, self.sensor.name
        self._index += 1
        if self._simulated is not None:
            t_ns = self._simulated.end_ns(index)
            later = LaterData(partial(_simulated, self._simulated, index))
            return Sample(name, np.array([t_ns], np.int64), later)
        if self._capture is None:
            raise SourceError(f"{name}: read before open")
        frame = self._capture.read()
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
        self._capture = self._simulated = None

    def _chirp_config(self, radar: Mapping[str, Any]) -> ChirpConfig:
        values = {key: value for key, value in radar.items() if key != "port"}
        key = f"{self.sensor.name}.radar"
        if missing := [name for name, value in values.items() if value is None]:
            if self.sensor.scheme != "sim":
                raise ConfigError(
                    f"missing: {', '.join(missing)}; a raw capture does not tell its own layout",
                    key=key,
                )
            values |= {name: getattr(SIM_CHIRP, name) for name in missing}
        chirp = ChirpConfig(**values)
        if chirp.adc_samples % 2:
            raise ConfigError(
                f"{chirp.adc_samples} is odd; a chirp is captured over two lanes",
                key=f"{key}.adc_samples",
            )
        return chirp

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


def _data(frame: Frame) -> dict[str, npt.NDArray[Any]]:
    return {"iq": frame[None], "valid": np.ones(1, np.uint8)}


def _simulated(radar: SimulatedRadar, index: int) -> dict[str, npt.NDArray[Any]]:
    return _data(radar.frame(index))


class Truncated:
    """Takes the place of a frame of which a file holds only the beginning."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.bytes = size


class CaptureFiles:
    """The frames of a raw capture, read one by one; memory does not grow with the file.

    >>> capture = CaptureFiles(sensor, chirp)
    >>> frame = capture.read()           # int16 chirp.shape, until EndOfSource
    >>> capture.close()

    Args:
        sensor: whose address is a file, or a folder of ``.bin`` files taken in the order of the
            numbers in their names (``2.bin`` before ``10.bin``).
        chirp: fixes a frame's shape.

    Raises:
        SourceError: there is no such file, or not one whole frame in any.
    """

    def __init__(self, sensor: SensorConfig, chirp: ChirpConfig) -> None:
        self._where = f"{sensor.name}: file:{sensor.address}"
        self._chirp = chirp
        self._file: FileIO | None = None
        path = sensor.path
        self._paths = [path]
        if path.is_dir():
            found = sorted(path.glob("*.bin"), key=_number_order)
            if not found:
                raise SourceError(f"{self._where}: no .bin file in this folder")
            self._paths = found
        sizes = [p.stat().st_size for p in self._paths]
        if max(sizes) < chirp.frame_bytes:
            shape = " x ".join(map(str, chirp.shape))
            raise SourceError(
                f"{self._where}: {max(sizes)} bytes, but a frame of {shape} int16 has "
                f"{chirp.frame_bytes}"
            )
        self._paths.reverse()
        self._open_next()

    def read(self) -> Frame | Truncated:
        """The next frame, newly read: int16 [chirps, tx, rx, values], little endian.

        Raises:
            EndOfSource: there is no more.
            SourceError: the operating system refuses.
        """
        while True:
            if self._file is None:
                raise EndOfSource
            frame = np.empty(self._chirp.shape, "<i2")  # the kit keeps it: never one twice
            view = frame.reshape(-1).view(np.uint8).data
            got = 0
            try:
                while got < len(view) and (count := self._file.readinto(view[got:])):
                    got += count
            except OSError as error:
                raise SourceError(f"{self._where}: {error.strerror}") from None
            if got == len(view):
                return frame
            path = self._paths.pop()
            self._open_next()
            if got:
                return Truncated(path, got)

    def _open_next(self) -> None:
        self.close()
        if self._paths:
            try:
                self._file = self._paths[-1].open("rb", buffering=0)
            except OSError as error:
                raise SourceError(f"{self._where}: {error.strerror}") from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file = None


def _number_order(path: Path) -> list[tuple[bool, int | str]]:
    parts = re.split(r"(\d+)", path.name)
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in parts if part]


if __name__ == "__main__":
    main(MmwaveDriver)
