"""Memory that a process frees and needs again at once: pictures, sweeps, frames of archives."""

from __future__ import annotations

import ctypes
import functools
from typing import Final

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # parameters of mallopt(3)
_LARGEST_BYTES: Final = 32 << 20  # memory of larger arrays is returned to the kernel at once


@functools.cache
def keep_freed_memory(kept_bytes: int) -> None:
    """Make the C library keep so much freed memory, in one heap for all threads.

    Call it before other threads start: threads that have a heap keep it.

    Otherwise a process that makes arrays of some 100 kB for every frame causes the kernel to map
    and clear their pages for every frame, which may cost more than the work itself.  A heap for
    each thread would keep memory that the other threads could use.  The call has no effect if the C
    library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, kept_bytes)
        mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
        mallopt(_ARENA_MAX, 1)


def release_memory() -> None:
    """Return freed memory to the kernel, also between memory in use.

    It has no effect if the C library is not glibc.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
