"""Base class of the rig load's drivers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from benchmarks.frames import RigSensor, load_frames
from drivers.kit.driver import Driver, Sample, SensorConfig
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option, check_options


class PlayerDriver(Driver):
    """Player of a sensor's frames from memory, in a loop, at the sensor's rate.

    >>> driver = RadarPlayer(SensorConfig("radar", "file", "/tmp/frames", {}))
    >>> (spec,) = driver.open()          # all frames are in memory from here on
    >>> sample = driver.read()
    """

    schemes: ClassVar[Mapping[str, str]] = {"file": "folder of the frames that were made"}

    rig: ClassVar[RigSensor]
    batch: ClassVar[int] = 1
    options: ClassVar = {"fps": Option("float", None, "samples a second; the rig's where not set")}

    def open(self) -> Sequence[StreamSpec]:
        self.frames = self.load()
        count = min(map(len, self.frames.values()))
        self.count = count - count % self.batch  # so that no batch reaches beyond the end
        self._index = 0
        self.rate_hz = float(self.sensor.options["fps"] or self.rig.rate_hz)
        return [self.spec()]

    def read(self) -> Sample:
        numbers = range(self._index, self._index + self.batch)
        t_ns = np.array([round(k * 1e9 / self.rate_hz) for k in numbers], np.int64)
        sample = self.sample(self._index % self.count, t_ns)
        self._index += self.batch
        return sample

    def close(self) -> None:
        self.frames = {}

    def load(self) -> dict[str, npt.NDArray[Any]]:
        """Return the frames by channel, [n, ...] each."""
        return load_frames(self.sensor.path, self.rig.name)

    @abstractmethod
    def spec(self) -> StreamSpec:
        """Return the stream, as the sensor's own driver declares it."""

    @abstractmethod
    def sample(self, at: int, t_ns: npt.NDArray[np.int64]) -> Sample:
        """Return the batch that begins at frame `at`, as the sensor's own driver returns it."""


def make_player(frames: Path, name: str) -> PlayerDriver:
    """Make the player of a sensor's frames, in this process."""
    module = import_module(f"benchmarks.rig_drivers.{name}")
    kind: type[PlayerDriver] = getattr(module, f"{name.capitalize()}Player")
    return kind(SensorConfig(name, "file", str(frames), check_options(kind.options, {})))
