"""Threads that cannot be started, in any process of a recording.

As ``sitecustomize`` in a folder of PYTHONPATH, this module is imported by every Python process.
The environment names the thread (the begin of its name) whose start fails, how, and a file that
exists once it has failed: it fails once.
"""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable
from typing import Any

THREAD, HOW, MARK = "FAILING_THREAD", "FAILING_HOW", "FAILING_MARK"
ERROR, MUTE = "error", "mute"
"""No thread is made (CPython's ``thread_PyThread_start_new_thread``); or one is, and gets no memory
for its first line, which CPython reports as unraisable."""


def _no_memory() -> None:
    raise MemoryError


def _start(function: Callable[..., Any], arguments: tuple[Any, ...], *more: Any) -> int:
    name = getattr(getattr(function, "__self__", None), "name", "")  # of Thread._bootstrap
    if name.startswith(os.environ[THREAD]) and not os.path.exists(os.environ[MARK]):  # noqa: PTH110
        open(os.environ[MARK], "x").close()  # noqa: PTH123
        if os.environ[HOW] == ERROR:
            raise RuntimeError("can't start new thread")
        return _thread.start_new_thread(_no_memory, ())
    return _thread.start_new_thread(function, arguments, *more)


if THREAD in os.environ:
    threading._start_new_thread = _start  # type: ignore[attr-defined]
