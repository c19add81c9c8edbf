"""The number in a simulated picture, read back from its strip of blocks."""

from __future__ import annotations

import numpy as np

from drivers.camera.model import Image, strip_block_px

_BITS = 32


def read_frame_number(image: Image) -> int:
    """The number (modulo 2^32) of a picture, uint8 [height, width, 3]."""
    block = strip_block_px(image.shape[1])
    strip = image[:block, : _BITS * block].mean(axis=(0, 2))
    levels = strip.reshape(_BITS, block).mean(axis=1)
    return int(sum(1 << bit for bit in np.flatnonzero(levels > 128).tolist()))
