"""Files that are written past the cache hold what was appended, whatever the disk does."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recorder.archives.edgefirst import direct
from recorder.archives.edgefirst.direct import BLOCK, DirectFile

REAL_PWRITE = os.pwrite


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few blocks are gathered, so that there are many writes."""
    monkeypatch.setattr(direct, "GATHER_BYTES", 4 * BLOCK)


def parts_of(seed: int, count: int = 40) -> list[bytes]:
    rng = np.random.default_rng(seed)
    sizes = rng.choice([0, 1, 30, 512, BLOCK, BLOCK + 1, 4 * BLOCK, 50_000], count)
    return [rng.bytes(int(size)) for size in sizes]


@pytest.mark.parametrize("past_cache", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_it_holds_what_was_appended(tmp_path: Path, past_cache: bool, seed: int) -> None:
    parts = parts_of(seed)
    with DirectFile(tmp_path / "a", direct=past_cache) as file:
        for first, second in zip(parts[::2], parts[1::2], strict=True):
            file.append(first, second)
        assert file.length == sum(map(len, parts))
        file.finish()
    assert (tmp_path / "a").read_bytes() == b"".join(parts)


def test_others_append_between(tmp_path: Path) -> None:
    parts, copied = parts_of(5), parts_of(6)
    with DirectFile(tmp_path / "a") as file:
        for part, other in zip(parts, copied, strict=True):
            file.append(part)
            os.write(file.begin_copy(), other)
            file.end_copy()
        file.append(b"end")
        file.finish()
        assert file.length == sum(map(len, parts + copied)) + 3
    expected = b"".join(a + b for a, b in zip(parts, copied, strict=True)) + b"end"
    assert (tmp_path / "a").read_bytes() == expected


def halved(fd: int, data: memoryview, offset: int) -> int:
    return REAL_PWRITE(fd, data[: max(1, len(data) // 2)], offset)


def refused_once(failing: list[int]) -> Callable[[int, memoryview, int], int]:
    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        past_cache = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT
        if past_cache and failing and failing.pop():
            raise OSError(errno.EINVAL, "Invalid argument")
        return REAL_PWRITE(fd, data, offset)

    return pwrite


@pytest.mark.parametrize("pwrite", [halved, refused_once([1]), refused_once([1, 0, 1])])
def test_partial_and_refused_writes_are_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pwrite: object
) -> None:
    parts = parts_of(7)
    monkeypatch.setattr(os, "pwrite", pwrite)
    with DirectFile(tmp_path / "a") as file:
        file.append(*parts)
        file.finish()
    assert (tmp_path / "a").read_bytes() == b"".join(parts)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _data: memoryview, _offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with DirectFile(tmp_path / "a") as file, pytest.raises(OSError, match="No space left"):
        file.append(bytes(4 * BLOCK))
        file.finish()


def test_a_file_that_is_there_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        DirectFile(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"old"
