"""Work of a store that a background thread does."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from math import inf

_MOST_BYTES = 8 << 20


class Behind:
    """A thread that runs calls in order, with a bounded queue.

    Args:
        name: of the thread.
        most_calls: that may wait; by default any number.
    """

    def __init__(self, name: str, most_calls: float = inf) -> None:
        self._most_calls = most_calls
        self._changed = threading.Condition()
        self._todo: deque[tuple[int, Callable[..., object], tuple[object, ...]]] = deque()
        self._bytes = 0
        self._busy = self._ended = False
        self._error: OSError | None = None
        # A daemon: an unfinished store must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, size: int, call: Callable[..., object], *arguments: object) -> None:
        """Queue a call for `size` bytes; raises an earlier error."""
        with self._changed:
            if self._is_full():
                self._changed.wait_for(lambda: not self._is_full())
            self._raise()
            self._todo.append((size, call, arguments))
            self._bytes += size
            if len(self._todo) == 1:
                self._changed.notify_all()

    def _is_full(self) -> bool:
        return self._bytes > _MOST_BYTES or len(self._todo) > self._most_calls

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Wait for all calls; raises an earlier error."""
        with self._changed:
            self._changed.wait_for(lambda: not self._todo and not self._busy)
            self._raise()

    def end(self) -> None:
        """Finish all calls and stop; raises an earlier error."""
        self._stop()
        self._raise()

    def abandon(self) -> None:
        """Stop without the remaining calls."""
        with self._changed:
            self._todo.clear()
        self._stop()

    def _stop(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._todo or self._ended)
                if not self._todo:
                    return
                size, call, arguments = self._todo.popleft()
                self._busy = True
            error = None
            try:
                call(*arguments)
            except OSError as caught:
                error = caught
            with self._changed:
                self._bytes -= size
                self._busy = False
                if error is not None:  # the calls after it are dropped
                    self._error = self._error or error
                    self._bytes = 0
                    self._todo.clear()
                self._changed.notify_all()
