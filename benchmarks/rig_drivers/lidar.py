"""The rig load's lidar: sweeps of 128x1024 at 10 Hz, as ouster-sdk decodes them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from benchmarks.frames import BEAMS, COLUMNS, LIDAR_JSON
from benchmarks.rig_drivers._player import PlayerDriver, one, rig
from drivers._kit.driver import Sample
from drivers._kit.runner import main
from drivers._protocols.ouster_frames import channel_arrays, channel_specs
from drivers.ouster import OusterDriver
from recorder.contract.streams import StreamSpec

_FIELDS = {"RANGE": ("u4", ()), "REFLECTIVITY": ("u1", ()), "NEAR_IR": ("u2", ())}


class LidarPlayer(PlayerDriver):
    """Lays out the fields and splits ranges as the driver `ouster` does: that is recording."""

    rig: ClassVar = rig("lidar")
    options: ClassVar = PlayerDriver.options | {"packing": OusterDriver.options["packing"]}

    def spec(self) -> StreamSpec:
        return StreamSpec(
            self.sensor.name,
            channel_specs(_FIELDS, BEAMS, COLUMNS, "lzmaf"),
            rate_hz=self.rate_hz,
            device_clock=True,
            bytes_per_sample=round(BEAMS * COLUMNS * 2.3),
            settings={"xz_worth": self.sensor.options["packing"]},
            files={LIDAR_JSON: (Path(self.sensor.path) / LIDAR_JSON).read_text()},
        )

    def sample(self, at: int, t_ns: npt.NDArray[np.int64]) -> Sample:
        fields = {name: self.frames[name][at] for name in _FIELDS}
        data = channel_arrays(fields.__getitem__, _FIELDS, (BEAMS, COLUMNS))
        data["t_col"] = one(self.frames, "t_col", at)
        return Sample(self.sensor.name, t_ns, data, t_ns.copy())


if __name__ == "__main__":
    main(LidarPlayer)
