"""Memory that begins at a page, for input and output without a copy."""

from __future__ import annotations

import numpy as np

BLOCK = 4096
"""Alignment of offsets, sizes and addresses for direct I/O."""


def aligned_buffer(size: int) -> memoryview:
    """A buffer of that many bytes, not cleared, that begins at a page.

    It is allocated by malloc, which reuses freed memory; mapped pages would not be reused.
    """
    memory = np.empty(size + BLOCK - 1, np.uint8)
    first = -memory.ctypes.data % BLOCK
    return memory.data[first : first + size]
