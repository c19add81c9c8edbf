"""Settings of libraries for a process that only packs archives."""

from __future__ import annotations

import ctypes
import functools

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # parameters of mallopt(3)
_KEPT_BYTES = 8 << 20
_LARGEST_BYTES = 32 << 20  # memory of larger arrays is returned to the kernel at once


def tune_for_packing() -> None:
    """Tune memory, and make OpenCV work in the calling thread.

    OpenCV's own threads would spin while they wait, and take processor time from the packer.
    """
    import cv2  # some archives need no pictures

    tune_memory()
    cv2.setNumThreads(1)


@functools.cache
def tune_memory() -> None:
    """Make the C library keep up to 8 MiB of freed memory, in one heap for all threads.

    Threads that have a heap keep it: to be called before others start.

    Otherwise a packer that makes arrays of some 100 kB for every frame causes the kernel to map
    and clear their pages for every frame, which may cost more than the work itself.  A heap for
    each thread would keep what the others could use.  Without effect if the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
        mallopt(_ARENA_MAX, 1)
