"""Setup of a recorder process at its start."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import signal
import sys
import threading
import traceback
from types import TracebackType
from typing import Any

_PR_SET_PDEATHSIG = 1  # prctl(2)
_GC_THRESHOLDS = 5000, 20, 50
_SOFTWARE = 70  # EX_SOFTWARE of sysexits.h
_NO_THREAD = (
    b"can't start new thread: no memory is left, or too many threads or processes run; "
    b"this process ends\n"
)


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; die now if the parent is dead.

    Args:
        parent: process id of the parent as it was when this process was started.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def freeze_gc() -> None:
    """Exempt all objects loaded so far from garbage collection, and collect less often.

    Collections over modules that never change took a twentieth of a small driver's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def start_thread(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        OSError: EAGAIN, as for a process that cannot be started: no memory is left, or too many
            run.
    """
    try:
        thread.start()
    except RuntimeError as error:
        if not _is_shortage(error):
            raise
        raise OSError(errno.EAGAIN, f"thread {thread.name}: {error}") from None


def end_where_threads_cannot_begin() -> None:
    """End this process with a message if a thread gets no memory to begin.

    Without this, Python only reports the error to `sys.unraisablehook`, and `Thread.start` waits
    for the thread forever.
    """
    sys.unraisablehook = _end_if_of_a_thread


def end_visibly() -> None:
    """End this process if a thread cannot be started, or if the main thread fails.

    This is for processes that are restarted when they end. Without it, other threads keep the
    process alive, and a thread pool keeps work that no thread does. `Thread.start` itself is
    replaced, so that this holds for the threads of libraries, too.
    """
    end_where_threads_cannot_begin()
    sys.excepthook = _end_with_main_thread
    start = threading.Thread.start

    def start_or_end(thread: threading.Thread) -> None:
        try:
            start(thread)
        except RuntimeError as error:
            if not _is_shortage(error):
                raise
            _end_without_thread()

    threading.Thread.start = start_or_end  # type: ignore[method-assign,assignment]


def _is_shortage(error: RuntimeError) -> bool:
    """Return whether a thread could not be started; CPython has no specific error for that."""
    return "can't start new thread" in str(error)


def _end_if_of_a_thread(error: Any) -> None:
    if "thread started by" in (error.err_msg or ""):
        _end_without_thread()
    sys.__unraisablehook__(error)


def _end_without_thread() -> None:
    os.write(2, _NO_THREAD)  # no memory may be left for more than that
    os._exit(_SOFTWARE)


def _end_with_main_thread(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    traceback.print_exception(kind, error, trace)
    sys.stderr.flush()
    os._exit(1)
