"""Blob channels for tests: folders of ``npz`` or ``jpg`` files as roverd writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt


def write_blobs(
    folder: Path,
    name: str,
    format_: str,
    samples: Sequence[npt.NDArray[Any] | bytes],
    *,
    description: str = "",
    compress: bool = False,
) -> dict[str, Any]:
    """Write a channel, and return its entry for ``meta.json``.

    Args:
        folder: the sensor's folder.
        name: the channel's name.
        format_: ``npz`` or ``jpg``.
        samples: arrays, all alike (``jpg``: RGB), or JPEGs as bytes.
        description: one line for ``meta.json``.
        compress: deflate the arrays.
    """
    path = folder / name
    path.mkdir()
    for index, sample in enumerate(samples):
        file = path / f"{index:06d}.{format_}"
        if isinstance(sample, bytes):
            file.write_bytes(sample)
        elif format_ == "jpg":
            image = np.ascontiguousarray(sample[..., ::-1])
            cv2.imwrite(str(file), image, [cv2.IMWRITE_JPEG_QUALITY, 100])
        else:
            (np.savez_compressed if compress else np.savez)(file, data=sample)
    first = samples[0]
    value: Any = first
    if isinstance(first, bytes):
        flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
        value = cv2.imdecode(np.frombuffer(first, np.uint8), flags)
    entry = {"format": format_, "type": value.dtype.str[1:], "shape": list(value.shape)}
    return entry | {"desc": description}
