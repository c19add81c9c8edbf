"""The rig load's camera: 1080p at 30 Hz; the kit encodes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from benchmarks.frames import HEIGHT, WIDTH
from benchmarks.rig_drivers._player import PlayerDriver, one, rig
from drivers._kit.driver import Sample
from drivers._kit.runner import main
from recorder.contract.config.options import Option
from recorder.contract.streams import ChannelSpec, StreamSpec


class CameraPlayer(PlayerDriver):
    """Pictures u1 [1080, 1920, 3], BGR."""

    rig: ClassVar = rig("camera")
    options: ClassVar = {
        "quality": Option("int", 90, "quality of the JPEGs", minimum=1, maximum=100)
    }

    def spec(self) -> StreamSpec:
        return StreamSpec(
            self.sensor.name,
            (ChannelSpec("video.avi", "mjpg", "u1", (HEIGHT, WIDTH, 3), "camera image"),),
            rate_hz=self.rig.rate_hz,
            bytes_per_sample=int(WIDTH * HEIGHT * 0.35),
            settings={"jpeg_quality": self.sensor.options["quality"]},
        )

    def sample(self, at: int, t_ns: npt.NDArray[np.int64]) -> Sample:
        return Sample(self.sensor.name, t_ns, {"video.avi": one(self.frames, "image", at)})


if __name__ == "__main__":
    main(CameraPlayer)
