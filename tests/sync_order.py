"""Whether everything is durable before it gets the name by which it is found.

Beneath every publisher alike: renames are watched where Python hands them to the kernel, and each
must find what it moves synced as it stands.

::

    order = SyncOrder(tmp_path, monkeypatch)
    publish()
    order.check()
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recorder.session import layout

_AT_FDCWD = -100
_NOREPLACE = 1


class SyncOrder:
    """Watches one test's syncs and renames below a folder.

    A file is known by its inode, and is synced as long as its size and its time of change are
    those that it had when it was synced.  So is a folder, whose time of change is that of its
    entries.

    Attributes:
        renamed: paths that something came to, in order.
        faults: what was not synced when it was moved, each as a sentence.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.renamed: list[Path] = []
        self.faults: list[str] = []
        self._root = root
        self._synced: dict[tuple[int, int], tuple[int, int]] = {}
        self._due: dict[Path, Path] = {}  # folders to be synced, and for which entry
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._syncing(getattr(os, name)))
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, self._renaming(getattr(os, name)))
        monkeypatch.setattr(os, "mkdir", self._making(os.mkdir))
        monkeypatch.setattr(ctypes, "CDLL", self._loading(ctypes.CDLL))

    def check(self, *, entries: bool = True) -> None:
        """Fail where something came to its name unsynced.

        Args:
            entries: whether the names must be durable, too.
        """
        assert self.renamed, "nothing was renamed: what is tested here?"
        due = {new for folder, new in self._due.items() if folder.exists()}
        unsynced = [f"{new}: its folder was not synced" for new in due]
        faults = self.faults + (unsynced if entries else [])
        assert not faults, "\n".join(faults)

    def is_synced(self, path: Path) -> bool:
        """Whether a file is durable as it stands."""
        stat = path.stat()
        return self._synced.get((stat.st_dev, stat.st_ino)) == (stat.st_size, stat.st_mtime_ns)

    def _syncing(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(fd: int) -> None:
            stat = os.fstat(fd)  # as it is before: what comes during the call may not be in it
            real(fd)
            self._note(Path(f"/proc/self/fd/{fd}").readlink(), stat)

        return call

    def _note(self, path: Path, stat: os.stat_result) -> None:
        self._synced[stat.st_dev, stat.st_ino] = stat.st_size, stat.st_mtime_ns
        self._due.pop(path, None)

    def _renaming(self, real: Callable[..., None]) -> Callable[..., None]:
        def call(source: Any, target: Any, **more: Any) -> None:
            if self._is_ours(source):
                self._look_at(Path(source), Path(target))
            real(source, target, **more)
            if self._is_ours(source):
                self._moved(Path(source), Path(target))

        return call

    def _making(self, real: Callable[..., None]) -> Callable[..., None]:
        def call(path: Any, *args: Any, **more: Any) -> None:
            real(path, *args, **more)
            if self._is_ours(path):
                self._due[Path(path).parent] = Path(path)

        return call

    def _is_ours(self, path: Any) -> bool:
        return Path(path).is_relative_to(self._root)

    def _look_at(self, source: Path, target: Path) -> None:
        for path in _tree(source):
            if path.name in layout.TAILS:
                continue  # they hold what may be lost
            stat = path.lstat()
            if not (any(path.iterdir()) if path.is_dir() else stat.st_size):
                continue  # there is nothing in it
            known = self._synced.get((stat.st_dev, stat.st_ino))
            what = path.relative_to(self._root)
            if known is None:
                self.faults.append(f"{what}: never synced before {source.name} became {target}")
            elif known != (stat.st_size, stat.st_mtime_ns):
                self.faults.append(f"{what}: changed since its sync, and became part of {target}")

    def _moved(self, source: Path, target: Path) -> None:
        self.renamed.append(target)
        for path in (source, target):
            self._due[path.parent] = target

    def _loading(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def load(*args: Any, **more: Any) -> Any:
            return _Library(real(*args, **more), self)

        return load

    def moving(self, real: Callable[..., int], *args: Any) -> int:
        """``renameat2``, which never replaces a file, or lets two change places."""
        assert args[0] == args[2] == _AT_FDCWD
        one, other = Path(os.fsdecode(args[1])), Path(os.fsdecode(args[3]))
        self._look_at(one, other)
        if args[4] != _NOREPLACE:
            self._look_at(other, one)
        result = real(*args)
        if result == 0:
            self._moved(one, other)
        return result

    def syncing_all(self, real: Callable[..., int], *args: Any) -> int:
        """``syncfs``."""
        stats = [(path, path.lstat()) for path in _tree(self._root)]
        result = real(*args)
        for path, stat in stats:
            self._note(path, stat)
        return result


class _Library:
    """A C library whose calls that matter here are watched."""

    def __init__(self, real: Any, order: SyncOrder) -> None:
        self._real, self._order = real, order

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._real, name)
        watched = {"renameat2": self._order.moving, "syncfs": self._order.syncing_all}
        if name not in watched:
            return function
        return lambda *args: watched[name](function, *args)


def _tree(path: Path) -> Iterator[Path]:
    yield path
    if path.is_dir() and not path.is_symlink():
        yield from path.rglob("*")
