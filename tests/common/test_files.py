"""Append-only files, and the small operations around them."""

from __future__ import annotations

import errno
import os
import platform
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common import files as disk
from recorder.common import syscalls
from recorder.common.files import GATHER_BYTES, PosixDisk, find_numbered_files

REAL_WRITEV = os.writev


@given(
    st.lists(
        st.binary(max_size=50)
        | st.binary(max_size=50).map(bytearray)
        | st.lists(st.integers(0, 9), max_size=9).map(lambda v: np.array(v, "<u4").data),
        max_size=30,
    ),
    st.lists(st.integers(1, 40), min_size=1, max_size=10),
)
def test_partial_writes_lose_and_repeat_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    chunks: list[bytes | bytearray | memoryview],
    portions: list[int],
) -> None:
    path = tmp_path_factory.mktemp("d") / "file"
    calls = 0

    def short(fd: int, buffers: Sequence[Any]) -> int:
        nonlocal calls
        calls += 1
        whole = b"".join(bytes(memoryview(b).cast("B")) for b in buffers)
        return os.write(fd, whole[: portions[calls % len(portions)]])

    expected = b"".join(bytes(memoryview(chunk).cast("B")) for chunk in chunks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "writev", short)
        file = PosixDisk().create(path)
        for i, chunk in enumerate(chunks):
            file.append(chunk)
            if i % 5 == 4:
                file.flush()
                assert path.stat().st_size == file.length
        assert file.length == len(expected)
        file.close()
    assert path.read_bytes() == expected


def test_small_writes_are_gathered_and_large_ones_go_out_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counted(fd: int, buffers: Sequence[Any]) -> int:
        calls.append(len(buffers))
        assert len(buffers) <= 1024, "IOV_MAX"
        return REAL_WRITEV(fd, buffers)

    monkeypatch.setattr(os, "writev", counted)
    file = PosixDisk().create(tmp_path / "file")
    for _ in range(100):
        file.append(b"x" * 10)
    file.append(b"")
    assert calls == []
    file.flush()
    assert calls == [100]
    file.append(bytes(GATHER_BYTES))
    assert calls == [100, 1]
    for _ in range(5000):
        file.append(b"y")
    file.close()
    assert (tmp_path / "file").stat().st_size == 1000 + GATHER_BYTES + 5000


def test_patches_stay_within_what_is_flushed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = PosixDisk().create(path)
    file.append(b"0123456789")
    with pytest.raises(ValueError, match="beyond what is flushed"):
        file.patch(0, b"a")
    file.flush()
    file.append(b"tail")
    for offset, data in ((8, b"abc"), (10, b"a"), (100, b"a")):
        with pytest.raises(ValueError, match=f"patch at {offset}"):
            file.patch(offset, data)
    file.patch(8, b"ab")
    file.patch(0, b"")
    file.patch(1, b"X")
    file.append(b"more")  # the patch has not moved the end
    file.close()
    assert path.read_bytes() == b"0X234567abtailmore"


def test_dirty_says_whether_a_sync_is_due(tmp_path: Path) -> None:
    file = PosixDisk().create(tmp_path / "file")
    found = [file.dirty]
    file.append(b"")
    found.append(file.dirty)
    file.append(b"abc")
    found.append(file.dirty)
    file.flush()
    file.dirty = False
    file.sync()
    found.append(file.dirty)
    file.patch(0, b"A")
    found.append(file.dirty)
    file.close()
    assert found == [False, False, True, False, True]


def test_a_new_file_replaces_none(tmp_path: Path) -> None:
    disk = PosixDisk()
    disk.create(tmp_path / "file").close()
    with pytest.raises(FileExistsError):
        disk.create(tmp_path / "file")
    mode = stat.S_IMODE((tmp_path / "file").stat().st_mode)
    assert not mode & 0o027  # nobody outside reads, no group writes


@pytest.mark.parametrize("length", [0, 3, 10])
def test_reopened_files_are_cut_and_go_on_there(tmp_path: Path, length: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    file = PosixDisk().reopen(path, length)
    assert file.length == length
    file.append(b"new")
    file.patch(0, b"") if length else None
    file.close()
    assert path.read_bytes() == b"0123456789"[:length] + b"new"


def test_a_file_shorter_than_committed_is_not_made_longer(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"012")
    open_fds = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(ValueError, match="has 3 bytes where 4 were committed"):
        PosixDisk().reopen(path, 4)
    assert path.read_bytes() == b"012"
    assert len(os.listdir("/proc/self/fd")) == open_fds  # noqa: PTH208
    with pytest.raises(FileNotFoundError):
        PosixDisk().reopen(tmp_path / "none", 0)


def test_what_a_full_disk_took_is_not_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a part went through, the error comes; nothing is repeated on closing."""
    path = tmp_path / "file"
    file = PosixDisk().create(path)
    answers: list[int | OSError] = [4, OSError(errno.ENOSPC, "No space left on device")]

    def full(fd: int, buffers: Sequence[Any]) -> int:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return os.write(fd, b"".join(bytes(b) for b in buffers)[:answer])

    monkeypatch.setattr(os, "writev", full)
    file.append(b"012")
    file.append(b"345")
    with pytest.raises(OSError, match="No space left"):
        file.flush()
    assert path.read_bytes() == b"0123"
    monkeypatch.setattr(os, "writev", REAL_WRITEV)
    with pytest.raises(OSError):  # once failed, never tried again
        file.sync()
    file.close()
    assert path.read_bytes() == b"0123"


def test_closing_flushes_and_lets_go_of_every_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    file = PosixDisk().create(tmp_path / "file")
    file.append(b"abc")
    file.flush()
    file.patch(0, b"x")
    file.append(b"d")
    file.close()
    assert (tmp_path / "file").read_bytes() == b"xbcd"
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_small_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = PosixDisk()
    disk.write_file(tmp_path / "s.json", b"old")

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError):
            disk.write_file(tmp_path / "s.json", b"newer and longer")
    assert (tmp_path / "s.json").read_bytes() == b"old"
    disk.write_file(tmp_path / "s.json", b"new")
    assert (tmp_path / "s.json").read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]


def test_renaming_never_replaces(tmp_path: Path) -> None:
    disk = PosixDisk()
    disk.make_folder(tmp_path / "a")
    disk.make_folder(tmp_path / "b")
    with pytest.raises(FileExistsError):
        disk.rename(tmp_path / "a", tmp_path / "b")
    disk.rename(tmp_path / "a", tmp_path / "c")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "c"]
    with pytest.raises(FileExistsError):
        disk.make_folder(tmp_path / "b")


def test_syncing_several_files_syncs_each_and_tells_of_the_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = PosixDisk()
    files = [disk.create(tmp_path / str(i)) for i in range(5)]
    synced: list[str] = []

    def sync(fd: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{fd}")).name  # noqa: PTH115
        synced.append(name)
        if name == "2":
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", sync)
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync_files(files)
    assert sorted(synced) == ["0", "1", "2", "3", "4"]
    disk.sync_files([])
    disk.sync_files(files[:1])
    for file in files:
        file.close()


def test_the_kernel_is_told_early_of_what_there_is_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte once, in order, of large files only; where the C library can."""
    if platform.libc_ver()[0] == "glibc":
        assert syscalls._sync_file_range is not None
    reported: list[tuple[int, int, int]] = []

    def begin(fd: int, offset: int, size: int, flags: int) -> int:
        reported.append((offset, size, flags))
        return 0

    monkeypatch.setattr(syscalls, "_sync_file_range", begin)
    (tmp_path / "old").write_bytes(b"0123")
    for file, first in (
        (PosixDisk().create(tmp_path / "file"), 0),
        (PosixDisk().reopen(tmp_path / "old", 3), 3),
    ):
        reported.clear()
        part = bytes(disk.WRITEBACK_BYTES // 2)
        for _ in range(5):
            file.append(part)
            file.flush()
        assert [offset for offset, _, _ in reported] == [first, first + 2 * len(part)]
        assert [size for _, size, _ in reported] == [2 * len(part)] * 2
        assert {flags for _, _, flags in reported} == {2}, "SYNC_FILE_RANGE_WRITE"
        file.close()


def test_a_small_file_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(b"old")

    def full(fd: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            PosixDisk().write_file(path, b"new")
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"old"


@pytest.mark.parametrize("pattern", ["img_%04d.jpg", "%d", "%%d_%02d%%.png", "a.b(%03d)+.jpg"])
def test_a_pattern_stands_for_the_names_that_printf_makes(tmp_path: Path, pattern: str) -> None:
    numbers = [0, 7, 41, 999, 12345]
    for number in numbers:
        (tmp_path / (pattern % number)).touch()
    for other in ("img_7.jpg", "img_00041.jpg", "img_-001.jpg", "img_0007.jpg.part", "x7", "07"):
        (tmp_path / other).touch()
    found = find_numbered_files(tmp_path / pattern)
    assert [number for number, _ in found] == numbers
    assert [path.name for _, path in found] == [pattern % number for number in numbers]


@pytest.mark.parametrize(
    "pattern", ["img.jpg", "%d_%d.jpg", "%s_%d", "100%_%d", "%5d", "%-4d", "%%", "none_%d.jpg"]
)
def test_what_is_no_pattern_stands_for_nothing(tmp_path: Path, pattern: str) -> None:
    for name in ("img.jpg", "1_2.jpg", "a_1", "100%_1", "    1", "1", "%"):
        (tmp_path / name).touch()
    assert find_numbered_files(tmp_path / pattern) == []
    assert find_numbered_files(tmp_path / "no_folder" / "%d") == []
