"""Faults of a simulated camera: of its lens, its exposure, and its readout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.world.faults import Fault, active_at
from drivers.world.noise import normal, uniform

Image = npt.NDArray[np.uint8]

_GRID: Final = 12  # values along a side from which patches of dirt are made
_OPAQUE: Final = 0.9
_DIRT: Final = np.array((45, 60, 75), np.float32)  # blue, green, red


class CameraFaults:
    """The faults of one camera's pictures.

    >>> faults = CameraFaults((Fault("blur", 10.0, 12.0, 3.0),), 0, (640, 480), 30.0)
    >>> image = faults.picture(301, draw)            # of draw(301), blurred

    Args:
        faults: of the kinds ``blur`` (standard deviation in pixels), ``gain`` (factor),
            ``flicker`` (largest change of the brightness of single pictures), ``frozen``, ``torn``
            (share of the rows, from below, that show the picture before), ``dirt`` (share of the
            picture) and ``noise`` (standard deviation in levels).
        seed: of their random numbers.
        size: width and height in pixels.
        fps: pictures per second.
    """

    def __init__(
        self, faults: Sequence[Fault], seed: int, size: tuple[int, int], fps: float
    ) -> None:
        self._faults, self._seed, self._size, self._fps = faults, seed, size, fps
        self._dirt: dict[tuple[int, float], npt.NDArray[np.float32]] = {}

    def shown(self, index: int) -> int:
        """Return the number of the picture that the camera shows as picture `index`."""
        frozen = (f for f in active_at(self._faults, index / self._fps) if f.kind == "frozen")
        first = (math.ceil(fault.from_s * self._fps) for fault in frozen)
        return min([index, *first])

    def picture(self, index: int, draw: Callable[[int], Image]) -> Image:
        """Return picture `index` with the faults at its time.

        Args:
            index: its number.
            draw: returns a picture without faults, u1 [height, width, 3], as a new array.
        """
        image = draw(index)
        faults = active_at(self._faults, index / self._fps)
        for fault in faults:
            if fault.kind == "torn" and index:
                top = round(len(image) * (1.0 - fault.size))
                image[top:] = draw(index - 1)[top:]
        for fault in faults:
            image = self._change(image, fault, index)
        return image

    def _change(self, image: Image, fault: Fault, index: int) -> Image:
        import cv2

        made: Any = image
        if fault.kind == "blur" and fault.size:
            made = cv2.GaussianBlur(image, (0, 0), fault.size)
        elif fault.kind == "gain":
            made = cv2.convertScaleAbs(image, alpha=fault.size)
        elif fault.kind == "flicker":
            drawn = float(uniform(self._seed + fault.number, "flicker", index, 1)[0])
            made = cv2.convertScaleAbs(image, alpha=1.0 + fault.size * (2.0 * drawn - 1.0))
        elif fault.kind == "dirt":
            cover = self._cover(fault)
            made = (image * (1.0 - cover) + _DIRT * cover).astype(np.uint8)
        elif fault.kind == "noise":
            pixels = normal(self._seed + fault.number, "grain", index, image[..., 0].size)
            grain = np.rint(pixels * fault.size).reshape(*image.shape[:2], 1)
            made = np.clip(image + grain, 0, 255).astype(np.uint8)
        return np.asarray(made, np.uint8)

    def _cover(self, fault: Fault) -> npt.NDArray[np.float32]:
        """Return how much the dirt covers of each pixel, f4 [height, width, 1], 0 to 1."""
        import cv2

        key = fault.number, fault.size
        if key not in self._dirt:
            grid = normal(self._seed, "dirt", fault.number, _GRID * _GRID).astype(np.float32)
            square = grid.reshape(_GRID, _GRID)
            smooth = cv2.resize(square, self._size, interpolation=cv2.INTER_CUBIC)
            covered = smooth > np.quantile(smooth, 1.0 - fault.size)
            opaque = np.where(covered, np.float32(_OPAQUE), np.float32(0))
            self._dirt[key] = opaque[..., None]
        return self._dirt[key]
