"""What a process that does nothing but pack asks of its libraries."""

from __future__ import annotations

import ctypes
import functools

import cv2

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT_BYTES = 64 << 20
_LARGEST_BYTES = 32 << 20  # beyond this, an array's memory goes back at once


def tune_for_packing() -> None:
    """Keep freed memory, and have OpenCV work in the thread that calls it.

    Its own threads wait by spinning for work that the packer's have.
    """
    _keep_freed_memory()
    cv2.setNumThreads(1)


@functools.cache
def _keep_freed_memory() -> None:
    """Have the C library keep up to 64 MiB of freed memory, rather than hand it back each time.

    Whoever makes a few arrays of some 100 kB for every frame else has the kernel map and clear
    their pages anew for every frame, which may cost more than the work itself.  Without an effect
    where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
