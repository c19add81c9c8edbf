"""Radar of the rig load: raw IQ, 786,432 bytes a frame, at 20 Hz."""

from __future__ import annotations

import json
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from benchmarks.frames import SENSORS
from benchmarks.rig_drivers._player import PlayerDriver
from drivers.kit.driver import Sample
from drivers.kit.runner import main
from drivers.mmwave.driver import SIM_CHIRP
from recorder.codecs.streams import ChannelSpec, StreamSpec


class RadarPlayer(PlayerDriver):
    """Player of frames i2 [64, 3, 4, 512]."""

    rig: ClassVar = SENSORS["radar"]

    def spec(self) -> StreamSpec:
        return StreamSpec(
            self.sensor.name,
            (
                ChannelSpec("iq", "raw", "i2", SIM_CHIRP.shape, "raw ADC samples"),
                ChannelSpec("valid", "raw", "u1", (), "1 where nothing of the frame is missing"),
            ),
            rate_hz=self.rate_hz,
            bytes_per_sample=SIM_CHIRP.frame_bytes + 1,
            files={"radar.json": json.dumps(SIM_CHIRP.intrinsics("qqii"))},
        )

    def sample(self, at: int, t_ns: npt.NDArray[np.int64]) -> Sample:
        data = {"iq": self.frames["iq"][at : at + 1], "valid": np.ones(1, "u1")}
        return Sample(self.sensor.name, t_ns, data)


if __name__ == "__main__":
    main(RadarPlayer)
