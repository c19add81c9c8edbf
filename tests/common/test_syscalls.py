"""Linux calls that the standard library lacks."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
from pathlib import Path

import pytest

from recorder.common import syscalls


def test_a_refused_io_priority_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProcessLookupError):
        syscalls.set_io_priority(2**22 + 1, "idle", 0)
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    with pytest.raises(OSError, match="not known for pdp11"):
        syscalls.set_io_priority(0, "idle", 0)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    syscalls.be_idle()  # the niceness has to do


def test_a_file_system_is_synced_where_the_c_library_can_and_where_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syscalls.sync_file_system(tmp_path)
    with pytest.raises(FileNotFoundError):
        syscalls.sync_file_system(tmp_path / "none")
    synced: list[bool] = []
    monkeypatch.setattr(os, "sync", lambda: synced.append(True))
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    syscalls.sync_file_system(tmp_path)
    assert synced == [True]


def test_a_failed_sync_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def syncfs(self, fd: int) -> int:
            ctypes.set_errno(errno.EIO)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Library())
    with pytest.raises(OSError, match="Input/output error") as caught:
        syscalls.sync_file_system(tmp_path)
    assert caught.value.filename == str(tmp_path)


def test_pages_that_were_read_are_resident(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(2 * mmap.PAGESIZE))
    with (tmp_path / "file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        assert mapped[0] == 0
        view = (ctypes.c_ubyte * len(mapped)).from_buffer(mapped)
        assert syscalls.is_resident(ctypes.addressof(view), len(mapped))
        del view
    assert syscalls.is_resident(1, mmap.PAGESIZE), "not an address of a page: not known"
