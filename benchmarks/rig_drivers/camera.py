"""Camera of the rig load: 1080p at 30 Hz; the kit encodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import cv2
import numpy as np
import numpy.typing as npt

from benchmarks.frames import HEIGHT, SENSORS, WIDTH
from benchmarks.rig_drivers._player import PlayerDriver
from drivers.kit.driver import Sample
from drivers.kit.runner import main
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.options import Option

_LARGE = 6


class CameraPlayer(PlayerDriver):
    """Player of pictures u1 [1080, 1920, 3], BGR."""

    rig: ClassVar = SENSORS["camera"]
    options: ClassVar = PlayerDriver.options | {
        "quality": Option("int", 90, "quality of the JPEGs", minimum=1, maximum=100),
        "scale": Option("int", 1, "times as many rows and columns; 2 makes 4K", minimum=1),
    }

    def open(self) -> Sequence[StreamSpec]:
        self._scale = self.sensor.options["scale"]
        specs = super().open()
        if self._scale > 1:  # few: a picture of 4K takes 25 MB
            size = (self._scale * WIDTH, self._scale * HEIGHT)
            few = [cv2.resize(image, size) for image in self.frames["image"][:_LARGE]]
            self.frames = {"image": np.stack(few)}
            self.count = _LARGE
        return specs

    def spec(self) -> StreamSpec:
        shape = (self._scale * HEIGHT, self._scale * WIDTH, 3)
        return StreamSpec(
            self.sensor.name,
            (ChannelSpec("video.avi", "mjpg", "u1", shape, "camera image"),),
            rate_hz=self.rate_hz,
            bytes_per_sample=int(shape[0] * shape[1] * 0.35),
            settings={"jpeg_quality": self.sensor.options["quality"]},
        )

    def sample(self, at: int, t_ns: npt.NDArray[np.int64]) -> Sample:
        return Sample(self.sensor.name, t_ns, {"video.avi": self.frames["image"][at : at + 1]})


if __name__ == "__main__":
    main(CameraPlayer)
