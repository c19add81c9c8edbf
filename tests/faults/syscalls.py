"""The system calls that change files below a folder, each of which a test may fail or hold up.

Beneath the real `PosixDisk`: what is tested is what records, down to the descriptor.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ON_DESCRIPTORS = ("writev", "pwrite", "write", "fdatasync", "fsync", "ftruncate")
ON_PATHS = ("mkdir", "rename", "replace", "open")
_CHANGING = os.O_CREAT | os.O_WRONLY | os.O_RDWR

Hook = Callable[[str, str], None]
"""Called with the call's name and the path before each call; raises or waits."""


class Syscalls:
    """Puts itself under `os` for one test.

    Attributes:
        hook: asked before every call that changes something below the root.
        calls: how many there were.
        retried: calls on a descriptor on which one had failed before.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hook: Hook = lambda name, path: None
        self.calls = 0
        self.retried: list[str] = []
        self._root = str(root)
        self._failed: set[int] = set()
        for name in ON_DESCRIPTORS:
            monkeypatch.setattr(os, name, self._on_descriptor(name, getattr(os, name)))
        for name in ON_PATHS:
            monkeypatch.setattr(os, name, self._on_path(name, getattr(os, name)))
        real_close = os.close

        def close(fd: int) -> None:
            self._failed.discard(fd)
            real_close(fd)

        monkeypatch.setattr(os, "close", close)

    def reset(self) -> None:
        """Count from 0 again, with a disk that works."""
        self.hook = lambda name, path: None
        self.calls = 0
        self.retried.clear()

    def _on_descriptor(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *args: Any) -> Any:
            path = str(Path(f"/proc/self/fd/{fd}").readlink())
            if not path.startswith(self._root):
                return real(fd, *args)
            if fd in self._failed:
                self.retried.append(f"{name} {path}")
            try:
                self._ask(name, path)
            except OSError:
                self._failed.add(fd)
                raise
            if name in ("fsync", "fdatasync"):
                return None  # the machine's own disk is not what is tested
            return real(fd, *args)

        return call

    def _on_path(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **more: Any) -> Any:
            text = os.fsdecode(path) if not isinstance(path, int) else ""
            changes = name != "open" or bool(args and args[0] & _CHANGING)
            if text.startswith(self._root) and changes:
                self._ask(name, text)
            return real(path, *args, **more)

        return call

    def _ask(self, name: str, path: str) -> None:
        self.calls += 1
        self.hook(name, path)


class Fails:
    """A hook: the call number `at` fails, and perhaps whatever comes after it.

    Attributes:
        failed: whether it has come to that.
    """

    def __init__(self, at: int, code: int, then: str) -> None:
        self._left = at
        self._code = code
        self._then = then
        self.failed = False

    def __call__(self, name: str, path: str) -> None:
        self._left -= 1
        if self._left == -1 or (self._left < 0 and self._goes_on(name)):
            self.failed = True
            raise OSError(self._code, os.strerror(self._code), path)

    def _goes_on(self, name: str) -> bool:
        match self._then:
            case "gone":  # unplugged, or read-only
                return True
            case "full":  # what needs no space still works
                return name in ("writev", "write", "mkdir")
            case _:
                return False


FAULTS = {
    "one EIO": (errno.EIO, "once"),
    "unplugged": (errno.EIO, "gone"),
    "read-only": (errno.EROFS, "gone"),
    "one ENOSPC": (errno.ENOSPC, "once"),
    "full": (errno.ENOSPC, "full"),
}
"""What may befall a disk: error, and how it goes on."""
