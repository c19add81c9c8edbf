"""Peak signal-to-noise ratios (PSNR) of JPEG pictures, and the quality for a PSNR."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from recorder.codecs.jpeg import encode_jpeg

Pictures = npt.NDArray[np.uint8]
"""u1 [n, height, width, 3]."""
_LOWEST, _HIGHEST = 1, 100


def jpeg_psnr_db(pictures: Pictures, quality: int) -> float:
    """Return the median PSNR of the recorder's JPEGs of a quality, dB."""
    return statistics.median(
        psnr_db(picture, decode_jpeg(encode_jpeg(picture, quality))) for picture in pictures
    )


def video_psnr_db(path: Path, pictures: Pictures) -> float:
    """Return the median PSNR of a video's pictures, which repeat the given ones in order, dB.

    Raises:
        ValueError: the video does not hold as many pictures.
    """
    video = cv2.VideoCapture(str(path))
    found = []
    for picture in pictures:
        good, image = video.read()
        if not good:
            break
        found.append(psnr_db(picture, image))
    video.release()
    if len(found) != len(pictures):
        raise ValueError(f"{path}: {len(found)} pictures of {len(pictures)}")
    return statistics.median(found)


def equal_quality(pictures: Pictures, psnr_db: float) -> int:
    """Return the lowest quality at which our JPEGs have at least a PSNR; 100 if none has."""
    low, high = _LOWEST, _HIGHEST
    while low < high:
        middle = (low + high) // 2
        if jpeg_psnr_db(pictures, middle) >= psnr_db:
            high = middle
        else:
            low = middle + 1
    return low


def psnr_db(original: npt.NDArray[Any], image: npt.NDArray[Any]) -> float:
    """Return 10 log10(255^2 / mean squared error) over all pixels and colours."""
    return float(cv2.PSNR(np.ascontiguousarray(original), np.ascontiguousarray(image)))


def decode_jpeg(data: memoryview | None) -> npt.NDArray[Any]:
    """Decode a JPEG to BGR."""
    image: npt.NDArray[Any] | None = cv2.imdecode(
        np.frombuffer(data or b"", np.uint8), cv2.IMREAD_COLOR
    )
    if image is None:
        raise ValueError("OpenCV does not decode its own JPEG")
    return image
