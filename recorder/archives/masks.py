"""Reads masks: PNGs of a camera's size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from recorder.contract.errors import FormatError

Mask = npt.NDArray[Any]


def read_mask(path: Path, size: tuple[int, int]) -> Mask:
    """A PNG's non-zero pixels, bool [height, width]; FormatError for a missing or wrong image."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
    mask = decode_mask(data)
    if mask is None:
        raise FormatError(f"{path}: is not an image")
    if mask.shape[::-1] != size:
        wanted = "x".join(map(str, size))
        raise FormatError(f"{path}: has {mask.shape[1]}x{mask.shape[0]} pixels, not {wanted}")
    return mask


def decode_mask(data: bytes) -> Mask | None:
    """An image's non-zero pixels, bool [height, width]; None where the data are no image."""
    grey = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE) if data else None
    return None if grey is None else np.asarray(grey != 0)
