"""Files that are written past the cache hold what was appended, whatever the disk does."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.archives.edgefirst import direct
from recorder.archives.edgefirst.direct import DirectFile, joined
from recorder.formats.buffers import BLOCK, aligned_buffer

REAL_PWRITEV = os.pwritev
Views = Sequence[memoryview]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few blocks are gathered, so that there are many writes."""
    monkeypatch.setattr(direct, "GATHER_BYTES", 4 * BLOCK)
    monkeypatch.setattr(direct, "LARGE", BLOCK)


def parts_of(seed: int, count: int = 40) -> list[bytes | memoryview]:
    """Parts of all sizes; every other one, and what pads to it, can be written from its place."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([0, 1, 30, 512, BLOCK, BLOCK + 1, 4 * BLOCK, 50_000], count)
    parts: list[bytes | memoryview] = []
    for size in sizes:
        if rng.integers(2):
            parts.append(bytes(-sum(map(len, parts)) % BLOCK))
            parts.append(joined(rng.bytes(int(size))))
        else:
            parts.append(rng.bytes(int(size)))
    return parts


@pytest.mark.parametrize("past_cache", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_it_holds_what_was_appended(tmp_path: Path, past_cache: bool, seed: int) -> None:
    parts = parts_of(seed)
    with DirectFile(tmp_path / "a", direct=past_cache) as file:
        for first in range(0, len(parts), 2):
            file.append(*parts[first : first + 2])
        assert file.length == sum(map(len, parts))
        file.finish()
    assert (tmp_path / "a").read_bytes() == b"".join(parts)


# One run of a test: what is appended, of which size, and whether it is a block's start.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["bytes", "aligned", "padded", "askew", "copied"]),
        st.integers(0, 6 * BLOCK) | st.sampled_from([BLOCK, 2 * BLOCK, 4 * BLOCK, 16 * BLOCK]),
    ),
    max_size=25,
)


@given(steps=STEPS, past_cache=st.booleans())
def test_whatever_is_appended_stands_there(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], past_cache: bool
) -> None:
    path = tmp_path_factory.mktemp("direct") / "a"
    rng = np.random.default_rng(len(steps))
    known = bytearray()
    with DirectFile(path, direct=past_cache) as file:
        for kind, size in steps:
            data = rng.bytes(size)
            if kind == "padded":
                padding = bytes(-file.length % BLOCK)
                file.append(padding, joined(data))
                known += padding
            elif kind == "copied":
                fd = file.begin_copy()
                assert path.read_bytes() == known
                os.write(fd, data)
                file.end_copy()
            else:
                placed: dict[str, bytes | memoryview] = {
                    "bytes": data,
                    "aligned": joined(data),
                    "askew": joined(b"x", data)[1:],
                }
                file.append(placed[kind])
            known += data
            assert file.length == len(known)
        file.finish()
    assert path.read_bytes() == known


def test_large_data_are_written_from_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[tuple[int, int]] = []

    def noted(fd: int, views: Views, offset: int) -> int:
        places.extend((np.frombuffer(view, np.uint8).ctypes.data, len(view)) for view in views)
        return REAL_PWRITEV(fd, views, offset)

    monkeypatch.setattr(os, "pwritev", noted)
    data = joined(os.urandom(3 * BLOCK + 5))
    shared = np.frombuffer(data, np.uint8)
    with DirectFile(tmp_path / "a") as file:
        file.append(bytes(BLOCK), data, bytes(BLOCK - 5), data, b"no block begins here", data)
        file.finish()
    assert places.count((shared.ctypes.data, 3 * BLOCK)) == 2
    assert all(address % BLOCK == 0 for address, _ in places)
    expected = bytes(BLOCK) + data + bytes(BLOCK - 5) + data + b"no block begins here" + data
    assert (tmp_path / "a").read_bytes() == expected


def test_data_stay_until_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody else knows any more is not overwritten by what is made next."""
    begun, go_on = threading.Event(), threading.Event()

    def waiting(fd: int, views: Views, offset: int) -> int:
        begun.set()
        assert go_on.wait(60)
        return REAL_PWRITEV(fd, views, offset)

    monkeypatch.setattr(os, "pwritev", waiting)
    with DirectFile(tmp_path / "a") as file:
        file.append(joined(b"1" * 4 * BLOCK))
        assert begun.wait(60)
        for _ in range(20):
            joined(b"2" * 4 * BLOCK)
        go_on.set()
        file.finish()
    assert (tmp_path / "a").read_bytes() == b"1" * 4 * BLOCK


@pytest.mark.parametrize("size", [0, 1, BLOCK, 1_000_003])
def test_buffers_begin_at_a_page(size: int) -> None:
    buffer = aligned_buffer(size)
    assert (len(buffer), buffer.format, buffer.readonly) == (size, "B", False)
    assert np.frombuffer(buffer, np.uint8).ctypes.data % BLOCK == 0 or not size


def halved(fd: int, views: Views, offset: int) -> int:
    whole = sum(map(len, views))
    return os.pwrite(fd, b"".join(views)[: max(1, whole // 2)], offset)


def blockwise(fd: int, views: Views, offset: int) -> int:
    return REAL_PWRITEV(fd, [views[0][:BLOCK]], offset)


def refused_once(failing: list[int]) -> Callable[[int, Views, int], int]:
    def pwritev(fd: int, views: Views, offset: int) -> int:
        past_cache = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT
        if past_cache and failing and failing.pop():
            raise OSError(errno.EINVAL, "Invalid argument")
        return REAL_PWRITEV(fd, views, offset)

    return pwritev


@pytest.mark.parametrize(
    "pwritev",
    [halved, blockwise, refused_once([1]), refused_once([1, 0, 1]), refused_once([1] * 99)],
)
def test_partial_and_refused_writes_are_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pwritev: object
) -> None:
    parts = parts_of(7)
    monkeypatch.setattr(os, "pwritev", pwritev)
    with DirectFile(tmp_path / "a") as file:
        file.append(*parts)
        file.finish()
    assert (tmp_path / "a").read_bytes() == b"".join(parts)


@pytest.mark.parametrize("room", [0, BLOCK, 5 * BLOCK, 9 * BLOCK])
def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """It becomes full in the midst of a write: that one is short, and the next one fails."""

    def filling(fd: int, views: Views, offset: int) -> int:
        left = room - offset
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return REAL_PWRITEV(fd, [views[0][:left]], offset)

    monkeypatch.setattr(os, "pwritev", filling)
    data = joined(os.urandom(10 * BLOCK))
    with DirectFile(tmp_path / "a") as file, pytest.raises(OSError, match="No space left"):
        file.append(bytes(BLOCK), data, data)
        file.finish()
    assert (tmp_path / "a").read_bytes() == (bytes(BLOCK) + data)[:room]


def test_other_errors_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_fd: int, _views: Views, _offset: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "pwritev", broken)
    with DirectFile(tmp_path / "a") as file, pytest.raises(OSError, match="Invalid argument"):
        file.append(bytes(9))
        file.finish()


def test_a_file_that_is_there_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        DirectFile(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"old"
