"""Digests are those of the bytes, and are known before the kernel has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.files import GATHER_BYTES, Disk, PosixDisk
from recorder.session.journal.digests import (
    Announcement,
    Digested,
    DigestedFile,
    DigestingDisk,
    zero_ranges,
)

PAGE = 4096


class Announced:
    """Takes announcements, and looks at how much the file holds by then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[Announcement] = []
        self.sizes: list[int] = []

    def __call__(self, entries: object) -> None:
        assert isinstance(entries, list)
        self.entries += entries
        self.sizes.append(self.path.stat().st_size)


def created(path: Path) -> tuple[DigestedFile, Announced]:
    announced = Announced(path)
    disk = DigestingDisk(PosixDisk(), announced, lambda path, length: Digested())
    file = disk.create(path)
    assert isinstance(file, DigestedFile)
    return file, announced


def test_whatever_a_disk_does_is_done_by_the_disk_below(tmp_path: Path) -> None:
    plain = PosixDisk()
    disk: Disk = DigestingDisk(plain, lambda entries: None, lambda path, length: Digested())
    members = {name for name in (*vars(Disk), *Disk.__annotations__) if not name.startswith("_")}
    own = {"create", "reopen", "sync_files"}  # which look at files
    assert own < members
    for name in members - own:
        assert getattr(disk, name) == getattr(plain, name), name


@given(
    st.lists(
        st.tuples(st.integers(0, 9000), st.sampled_from(["", "", "flush", "seal"])), max_size=25
    )
)
def test_every_leaf_and_every_announcement_is_the_digest_of_its_bytes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    path = tmp_path_factory.mktemp("d") / "file"
    file, announced = created(path)
    bounds = {0}
    for number, (size, then) in enumerate(steps):
        file.append(bytes([number + 1]) * size)
        bounds.add(file.length)
        if then == "flush":
            file.flush()
        elif then == "seal":
            file.seal()
    file.flush()
    file.seal()
    data = path.read_bytes()
    leaves = file.take_leaves()
    assert [leaf.start for leaf in leaves] == [0, *(leaf.end for leaf in leaves)][: len(leaves)]
    assert (leaves[-1].end if leaves else 0) == len(data) and file.take_leaves() == []
    for leaf in (*leaves, *(entry.leaf for entry in announced.entries)):
        assert leaf.digest == blake3(data[leaf.start : leaf.end]).digest()
    ends = {entry.leaf.end for entry in announced.entries}
    for page in range(0, len(data), PAGE):  # where a kill may end a write
        whole = max(at for at in bounds if at <= page)
        assert whole == 0 or whole in ends, f"{whole} lies before the page at {page}"
    file.close()


@pytest.mark.parametrize("size", [8, 700, GATHER_BYTES // 2, 3 * GATHER_BYTES])
def test_a_digest_is_announced_before_the_kernel_has_the_bytes(tmp_path: Path, size: int) -> None:
    file, announced = created(tmp_path / "file")
    for _ in range(1200 if size < 1000 else 7):
        file.append(bytes(size))
        on_disk = (tmp_path / "file").stat().st_size
        assert on_disk <= max([0, *(e.leaf.end for e in announced.entries)])
    file.flush()
    ends = [e.leaf.end for e in announced.entries]
    assert ends[-1] == file.length and announced.sizes[-1] < file.length
    file.close()


def test_a_file_that_is_reopened_goes_on_where_its_leaf_began(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"leaf" + b"tail" + b"cut off")
    disk = DigestingDisk(PosixDisk(), lambda entries: None, lambda path, length: Digested(4))
    file = disk.reopen(path, 8)
    assert isinstance(file, DigestedFile)
    file.append(b"more")
    assert (file.start, file.running().digest) == (4, blake3(b"tailmore").digest())
    file.close()
    assert path.read_bytes() == b"leaftailmore"


def test_patchable_ranges_count_as_zeros_and_others_cannot_be_patched(tmp_path: Path) -> None:
    file, announced = created(tmp_path / "file")
    file.patchable(2, 3)
    file.append(b"0123456789")
    file.flush()
    expected = blake3(b"01\0\0\x0056789").digest()
    assert file.running().digest == expected
    file.patch(2, b"abc")
    assert file.running().digest == expected
    assert (tmp_path / "file").read_bytes() == b"01abc56789"
    assert file.digest_patched() == blake3(b"abc").digest()
    assert announced.entries[-1].ranges == ((2, 3),) and file.take_ranges() == [(2, 3)]
    for offset, data in ((1, b"ab"), (4, b"xy"), (0, b"x")):
        with pytest.raises(ValueError, match="were not named patchable"):
            file.patch(offset, data)
    file.close()


@given(st.data())
def test_masking_equals_zeros_in_the_whole(data: st.DataObject) -> None:
    whole = bytearray(data.draw(st.binary(min_size=1, max_size=60)))
    spans = st.tuples(st.integers(0, 70), st.integers(0, 20))
    ranges = data.draw(st.lists(spans, max_size=4))
    cut = data.draw(st.integers(0, len(whole)))
    parts = bytes(zero_ranges(bytes(whole[:cut]), 0, ranges))
    parts += bytes(zero_ranges(bytes(whole[cut:]), cut, ranges))
    for offset, size in ranges:
        end = min(offset + size, len(whole))
        if offset < end:
            whole[offset:end] = bytes(end - offset)
    assert parts == bytes(whole)


def test_what_is_sealed_before_it_is_flushed_is_announced_too(tmp_path: Path) -> None:
    file, announced = created(tmp_path / "file")
    file.append(b"first")
    file.seal()
    file.flush()
    file.append(b"second")
    file.flush()
    found = [(e.leaf.start, e.leaf.end) for e in announced.entries]
    assert found == [(0, 5), (5, 11)]
    assert announced.entries[0].leaf.digest == blake3(b"first").digest()
    file.close()
