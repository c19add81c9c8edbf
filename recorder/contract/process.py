"""What every process of the recorder does at its start."""

from __future__ import annotations

import ctypes
import gc
import os
import signal

_PR_SET_PDEATHSIG = 1  # prctl(2)
_GC_THRESHOLDS = 5000, 20, 50


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; at once where it has already.

    Args:
        parent: process id of the parent as it was when this process was started.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def settle() -> None:
    """Exempt all objects loaded so far from garbage collection, and run it less often.

    Collections over modules that never change took a twentieth of a small driver's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
