"""Faults of a simulated camera: of its lens, its exposure, and its readout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.world.faults import Fault, active_at
from drivers.world.noise import bits, normal, uniform

Image = npt.NDArray[np.uint8]

_GRID: Final = 12  # values along a side from which patches of dirt are made
_OPAQUE: Final = np.float32(0.9)
_SPARE: Final = 1 << 16  # largest shift of a picture's cut of the noise
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
        self._dirt: dict[Fault, npt.NDArray[np.bool_]] = {}
        self._grain: dict[Fault, npt.NDArray[np.int16]] = {}

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
            image[cover] = image[cover] * (1.0 - _OPAQUE) + _DIRT * _OPAQUE
        elif fault.kind == "noise":
            grain = self._cut_grain(fault, index, image.shape[:2])
            made = cv2.add(image, cv2.merge([grain] * 3), dtype=cv2.CV_8U)
        return np.asarray(made, np.uint8)

    def _cut_grain(self, fault: Fault, index: int, shape: tuple[int, ...]) -> npt.NDArray[np.int16]:
        """Return what noise adds to a picture's pixels: each picture's is a cut of one array."""
        seed, count = self._seed + fault.number, math.prod(shape)
        if fault not in self._grain:
            drawn = np.rint(fault.size * normal(seed, "grain", 0, count + _SPARE))
            self._grain[fault] = drawn.astype(np.int16)
        begin = int(bits(seed, "graincut", index, 1)[0]) % _SPARE
        return self._grain[fault][begin : begin + count].reshape(shape)

    def _cover(self, fault: Fault) -> npt.NDArray[np.bool_]:
        """Return which pixels dirt covers, bool [height, width]."""
        import cv2

        if fault not in self._dirt:
            grid = normal(self._seed, "dirt", fault.number, _GRID * _GRID).astype(np.float32)
            square = grid.reshape(_GRID, _GRID)
            smooth = cv2.resize(square, self._size, interpolation=cv2.INTER_CUBIC)
            self._dirt[fault] = smooth > np.quantile(smooth, 1.0 - fault.size)
        return self._dirt[fault]
