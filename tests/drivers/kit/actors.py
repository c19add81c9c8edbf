"""What a simulated process is made of: threads that take turns, a connection, files."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recorder.bus.wire import Message, decode, encode
from recorder.common.files import AppendFile, PosixDisk

UP_MARK = 32
"""Messages that a peer's own ZeroMQ holds."""


class Killed(BaseException):
    """The simulated process has died."""


class Actor:
    """A thread that runs only when the scheduler says so."""

    def __init__(self, name: str, target: Callable[[], None], group: str) -> None:
        self.name = name
        self.group = group
        self.done = False
        self.killed = False
        self.error: BaseException | None = None
        self.ready: Callable[[], bool] = lambda: True
        self.deadline_ns: int | None = None
        self.go = threading.Semaphore(0)
        self.back = threading.Semaphore(0)
        self._target = target
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.go.acquire()
        current.actor = self
        try:
            if not self.killed:
                self._target()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  the scheduler raises it on
            self.error = error
        self.done = True
        self.back.release()

    def resume(self) -> None:
        """Run until it waits or ends; called by the scheduler."""
        self.go.release()
        self.back.acquire()

    def wait(self, ready: Callable[[], bool], deadline_ns: int | None) -> None:
        """Called by the actor itself."""
        self.ready, self.deadline_ns = ready, deadline_ns
        self.back.release()
        self.go.acquire()
        if self.killed:
            raise Killed


current = threading.local()


class Pipe:
    """One peer's connection, from its DEALER to whichever writer is bound."""

    def __init__(self) -> None:
        self.queue: deque[list[bytes]] = deque()  # in the peer's ZeroMQ
        self.wire: deque[list[bytes]] = deque()  # in the kernel: vanishes with either end
        self.down: deque[list[bytes]] = deque()
        self.inbox: deque[list[bytes]] = deque()
        self.identity = b""  # of this connection; empty while there is none
        self.open = True

    def send(self, message: Message) -> bool:
        if len(self.queue) >= UP_MARK:
            return False
        self.queue.append([bytes(frame) for frame in encode(message)])
        return True

    def receive(self) -> Message | None:
        return decode(self.inbox.popleft()) if self.inbox else None


class SimFile:
    """An `AppendFile` whose fdatasync is a place to die at."""

    def __init__(self, file: AppendFile, pause: Callable[[], None]) -> None:
        self._file = file
        self._pause = pause

    def sync(self) -> None:
        self._pause()
        self._file.sync()
        self._pause()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("path", "dirty", "length"):
            setattr(self._file, name, value)
        else:
            super().__setattr__(name, value)


class SimDisk(PosixDisk):
    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause
        self.files: list[Any] = []
        self._scratches: list[Any] = []

    def scratch(self, path: Path) -> Any:
        self._scratches.append(super().scratch(path))
        return self._scratches[-1]

    def create(self, path: Path) -> AppendFile:
        return self._track(super().create(path))

    def rename(self, source: Path, target: Path) -> None:
        self._pause()
        super().rename(source, target)
        self._pause()

    def reopen(self, path: Path, length: int) -> AppendFile:
        return self._track(super().reopen(path, length))

    def _track(self, file: AppendFile) -> AppendFile:
        self.files.append(file)
        return SimFile(file, self._pause)

    def drop(self) -> None:
        """Close without flushing, as the kernel does for the dead."""
        for file in self.files:
            for fd in (file._fd, file._patch_fd):
                if fd >= 0:
                    os.close(fd)
            file._fd = file._patch_fd = -1
        self.files.clear()
        for scratch in self._scratches:
            with contextlib.suppress(OSError):  # closed by the session that was closed
                scratch.close()
        self._scratches.clear()
