"""Lidar of the rig load: sweeps of 128x1024 at 10 Hz, as ouster-sdk decodes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from benchmarks.frames import BEAMS, COLUMNS, LIDAR_JSON, SENSORS
from benchmarks.rig_drivers._player import PlayerDriver
from drivers.kit.driver import Sample
from drivers.kit.runner import main
from drivers.ouster.driver import OusterDriver
from drivers.ouster.frames import channel_arrays, channel_specs
from drivers.ouster.packing import choose_packing
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option

FIELDS = {"RANGE": ("u4", ()), "REFLECTIVITY": ("u1", ()), "NEAR_IR": ("u2", ())}
_SECOND = {"RANGE2": ("u4", ()), "REFLECTIVITY2": ("u1", ())}


class LidarPlayer(PlayerDriver):
    """Player that arranges fields and splits ranges as the driver `ouster` does."""

    rig: ClassVar = SENSORS["lidar"]
    options: ClassVar = PlayerDriver.options | {
        "packing": OusterDriver.options["packing"],
        "dense": Option("bool", False, "sweeps of twice the columns, with two returns"),
    }

    def open(self) -> Sequence[StreamSpec]:
        self._fields, self._columns = FIELDS, COLUMNS
        if self.sensor.options["dense"]:
            self._fields, self._columns = FIELDS | _SECOND, 2 * COLUMNS
        return super().open()

    def load(self) -> dict[str, npt.NDArray[Any]]:
        frames = super().load()
        return make_dense(frames) if self.sensor.options["dense"] else frames

    def spec(self) -> StreamSpec:
        channels = channel_specs(self._fields, BEAMS, self._columns, "lzmaf")
        packing = choose_packing(self.sensor.options["packing"], channels, self.rate_hz)
        size = round(BEAMS * self._columns * 2.3 * len(self._fields) / len(FIELDS))
        return StreamSpec(
            self.sensor.name,
            channels,
            rate_hz=self.rate_hz,
            device_clock=True,
            bytes_per_sample=packing.bytes_per_sample or size,
            settings=packing.settings,
            files={LIDAR_JSON: (Path(self.sensor.path) / LIDAR_JSON).read_text()},
        )

    def sample(self, at: int, t_ns: npt.NDArray[np.int64]) -> Sample:
        fields = {name: self.frames[name][at] for name in self._fields}
        data = channel_arrays(fields.__getitem__, self._fields, (BEAMS, self._columns))
        data["t_col"] = self.frames["t_col"][at : at + 1]
        return Sample(self.sensor.name, t_ns, data, t_ns.copy())


def make_dense(frames: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Make sweeps of twice the columns with two returns, from the given sweeps.

    The columns of a sweep and of the next one take turns, so that neighbours differ as neighbours
    of a sensor do; the second return is the first one of the next sweep.
    """
    dense = {name: _interleave(values) for name, values in frames.items()}
    for name in _SECOND:
        dense[name] = np.roll(dense[name.removesuffix("2")], -1, axis=0)
    return dense


def _interleave(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    both = np.stack([values, np.roll(values, -1, axis=0)], axis=-1)
    return both.reshape(*values.shape[:-1], 2 * values.shape[-1])


if __name__ == "__main__":
    main(LidarPlayer)
