"""Depth pictures: the nearest point of each pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.perception.geometry import Floats


def depth_picture(places: Floats, depth_m: Floats, size: tuple[int, int]) -> npt.NDArray[np.uint16]:
    """Return the nearest point of each pixel, u2 [height, width], in 1/256 m; 0: no point.

    Args:
        places: f8 [n, 2], within the picture.
        depth_m: f8 [n], along the axis.
        size: width and height.
    """
    width, height = size
    order = np.argsort(-depth_m, kind="stable")
    column, row = np.rint(places[order]).astype(np.intp).T
    picture = np.zeros((height, width), np.uint16)
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    picture[row[inside], column[inside]] = quantize_distances(depth_m[order])[inside]
    return picture


def quantize_distances(metres: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Convert distances to u2 in 1/256 m, at most 255.996 m; 0 stays 0."""
    return np.asarray(np.clip(np.rint(metres * 256.0), 0, 65_535).astype(np.uint16))
