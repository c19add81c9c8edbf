"""The simulated camera as a source: the parser for real cameras parses its bytes."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

from drivers.camera.model import SIM_CAMERA_OPTIONS, SIM_FPS, SIM_SIZE, make_camera
from drivers.camera.model_output import (
    SimulatedVideo,
    choose_raw_format,
    make_pictures,
    make_raw_pictures,
)
from drivers.camera.pictures import choose_size
from drivers.camera.stream import CHANNEL, RAW_OPTIONS, VIDEO, CameraSource
from drivers.kit.driver import Sample
from drivers.kit.sample_batches import DeferredData
from drivers.world import world_settings
from recorder.codecs.raw_pixels import Levels
from recorder.codecs.streams import StreamSpec


class SimulatedSource(CameraSource):
    """Endless source of drawn pictures of the simulated world."""

    options: ClassVar = {**RAW_OPTIONS, **SIM_CAMERA_OPTIONS}
    refused: ClassVar = {
        "controls": "only a v4l2: camera has controls",
        "latency_ms": "only a live camera has latency",
    }
    copies = copies_sizes = True

    def open(self) -> StreamSpec:
        size = choose_size(self.config, SIM_SIZE) or SIM_SIZE
        self._fps = self.config["fps"] or SIM_FPS
        self._camera = make_camera(self.name, self.config, size, self._fps)
        self._index = 0
        self._coded = SimulatedVideo(self.name, self._camera, 0) if self.copying else None
        settings: dict[str, Any] = world_settings(self.config)
        settings |= self.known_times()
        self._raw = choose_raw_format(self.name, self.config["pixel_format"], size[0])
        if self._raw is not None:
            settings["pixel_format"] = self._raw.name
        pixels = None if self._raw is None else self._raw.pixels
        return self.spec(size, self._fps, settings, pixels=pixels)

    def read(self) -> Sample:
        index = self._index
        self._index += 1
        t_ns = np.array([round(index * 1e9 / self._fps)], np.int64)
        if self._coded is not None:
            return Sample(self.name, t_ns, {VIDEO: [self._coded.unit()]})
        if self._raw is not None:
            levels = Levels.from_settings(self._raw.pixels, self.config)
            raw = partial(make_raw_pictures, self._camera, index, self._raw, levels)
            return Sample(self.name, t_ns, DeferredData(raw))
        make = partial(make_pictures, self._camera, index, self.config["quality"], CHANNEL)
        return Sample(self.name, t_ns, DeferredData(make))

    def close(self) -> None:
        self._coded = None
