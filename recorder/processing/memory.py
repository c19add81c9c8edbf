"""Memory that is freed stays with the process, for what needs as much right after."""

from __future__ import annotations

import ctypes
import functools

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT_BYTES = 64 << 20
_LARGEST_BYTES = 32 << 20  # beyond this, an array's memory goes back at once


@functools.cache
def keep_freed_memory() -> None:
    """Have the C library keep up to 64 MiB of freed memory, rather than hand it back each time.

    Whoever makes a few arrays of some 100 kB for every frame else has the kernel map and clear
    their pages anew for every frame, which may cost more than the work itself.  Without an effect
    where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
