"""Containers: read by Python's zipfile, taken over from older ones."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import ArchiveError
from recorder.formats.zip import writer as module
from recorder.formats.zip.writer import (
    Container,
    FolderContainer,
    Payload,
    ZipContainer,
    dos_time,
    read_members,
)

BLOCK, LARGE = 4096, 64 << 10
T_NS = 1_717_236_000_123_456_789  # 2024-06-01 10:00:00 UTC


def fill(container: Container, sequence: str, count: int = 3) -> dict[str, bytes]:
    shared = Payload(f"{sequence} shared".encode() * 9)
    known = {}
    for number in range(count):
        for name, payload in (
            (f"{sequence}/{number}.a", Payload(os.urandom(50 + number))),
            (f"{sequence}/{number}.b", shared),
        ):
            container.add(name, payload, T_NS)
            known[name] = bytes(payload.data)
    return known


def zipped(path: Path, *sequences: str) -> dict[str, bytes]:
    known: dict[str, bytes] = {}
    with ZipContainer(path) as container:
        for sequence in sequences:
            known |= fill(container, sequence)
        container.finish()
    return known


def write_zip(
    path: Path,
    members: Mapping[str, bytes],
    *older: Path,
    which: Callable[[str], bool] = lambda _: True,
) -> None:
    """Take over what older ones have, and add members."""
    with ZipContainer(path) as container:
        for one in older:
            container.keep(one, which)
        for name, data in members.items():
            container.add(name, Payload(data), T_NS)
        container.finish()


def read(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert all(info.compress_type == zipfile.ZIP_STORED for info in file.infolist())
        return {info.filename: file.read(info) for info in file.infolist()}


def test_a_zip_is_read_by_zipfile(tmp_path: Path) -> None:
    known = zipped(tmp_path / "a.zip", "one", "two")
    assert read(tmp_path / "a.zip") == known
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        assert file.infolist()[0].date_time == (2024, 6, 1, 10, 0, 0)
        assert file.infolist()[0].external_attr >> 16 == 0o100640
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def aligned_members(path: Path) -> dict[str, bool]:
    """Whether a member's data begin at a block."""
    with path.open("rb") as file:
        return {
            member.name.decode(): member.data_offset(file, "") % BLOCK == 0
            for member in read_members(file, "")
        }


@given(
    sizes=st.lists(
        st.integers(0, 300) | st.sampled_from([LARGE - 1, LARGE, LARGE + 1, 3 * LARGE + 7]),
        max_size=12,
    ),
)
def test_large_data_begin_at_a_block(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("zip")
    known = {f"s/{'n' * (number % 5)}{number}": os.urandom(n) for number, n in enumerate(sizes)}
    write_zip(path / "a.zip", known)
    assert read(path / "a.zip") == known
    for name, aligned in aligned_members(path / "a.zip").items():
        assert aligned or len(known[name]) < LARGE
    write_zip(path / "b.zip", {"s/more": bytes(LARGE)}, path / "a.zip")
    assert read(path / "b.zip") == known | {"s/more": bytes(LARGE)}
    assert aligned_members(path / "b.zip")["s/more"]


@pytest.mark.skipif(shutil.which("unzip") is None, reason="needs unzip")
def test_a_zip_with_padding_is_read_by_unzip(tmp_path: Path) -> None:
    data = os.urandom(2 * LARGE)
    names = ("s/a", "s/longer", "s/c")
    write_zip(tmp_path / "a.zip", {name: data[: -len(name)] for name in names})
    reported = subprocess.run(["unzip", "-t", tmp_path / "a.zip"], capture_output=True, check=True)
    assert b"No errors detected" in reported.stdout
    assert not reported.stderr


def test_padding_beside_zip64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BOUND", LARGE)
    known = {f"s/{number}": os.urandom(LARGE + number) for number in range(3)}
    write_zip(tmp_path / "a.zip", known)
    assert read(tmp_path / "a.zip") == known
    assert all(aligned_members(tmp_path / "a.zip").values())


def test_partial_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = zipped(tmp_path / "a.zip", "one")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
        write_zip(tmp_path / "b.zip", {"two/a": bytes(100)}, tmp_path / "a.zip")
    assert read(tmp_path / "b.zip") == known | {"two/a": bytes(100)}


def test_writeback_begins_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "begin_writeback", lambda _fd, at, size: ranges.append((at, size)))
    monkeypatch.setattr(module, "_WRITEBACK", 100)
    zipped(tmp_path / "a.zip", "one", "two")
    ends = [at + size for at, size in ranges]
    assert [at for at, _ in ranges] == [0, *ends[:-1]]
    assert min(size for _, size in ranges) >= 100
    assert (tmp_path / "a.zip").stat().st_size - ends[-1] < 100


def test_an_empty_zip(tmp_path: Path) -> None:
    assert zipped(tmp_path / "a.zip") == {}
    assert read(tmp_path / "a.zip") == {}


@pytest.mark.parametrize("wide", [1, 60, 200])
def test_zip64_wherever_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide: int
) -> None:
    """With a bound of a few bytes what else takes gigabytes."""
    known = zipped(tmp_path / "plain.zip", "one", "two")
    monkeypatch.setattr(module, "_BOUND", wide)
    zipped(tmp_path / "b.zip", "x")
    write_zip(tmp_path / "a.zip", {}, tmp_path / "plain.zip")
    assert read(tmp_path / "a.zip") == known
    assert b"PK\6\6" in (tmp_path / "a.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        far = [info for info in file.infolist() if info.header_offset >= wide]
    assert far
    for info in far:
        assert info.extract_version == 45
        assert info.extra.startswith(b"\1\0")
        assert info.extra.endswith(struct.pack("<Q", info.header_offset))
    write_zip(tmp_path / "again.zip", {}, tmp_path / "a.zip", which=lambda name: name == "two")
    assert read(tmp_path / "again.zip") == {k: v for k, v in known.items() if k[:3] == "two"}


def test_zip64_for_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    known = zipped(tmp_path / "a.zip", "one")
    assert b"PK\6\6" in (tmp_path / "a.zip").read_bytes()
    assert read(tmp_path / "a.zip") == known


@pytest.mark.long
def test_more_members_than_two_bytes_count(tmp_path: Path) -> None:
    payload = Payload(b"")
    with ZipContainer(tmp_path / "a.zip") as container:
        for number in range(65_600):
            container.add(f"s/{number}", payload, T_NS)
        container.finish()
    with (tmp_path / "a.zip").open("rb") as file:
        assert sum(1 for _ in read_members(file, "a.zip")) == 65_600
    with zipfile.ZipFile(tmp_path / "a.zip") as read_back:
        assert len(read_back.namelist()) == 65_600


def test_sequences_are_taken_over(tmp_path: Path) -> None:
    known = zipped(tmp_path / "old.zip", "one", "two", "three")
    with ZipContainer(tmp_path / "new.zip") as container:
        container.keep(tmp_path / "old.zip", lambda sequence: sequence != "two")
        added = fill(container, "four")
        container.finish()
    kept = {name: data for name, data in known.items() if not name.startswith("two/")}
    assert read(tmp_path / "new.zip") == kept | added


def test_somebody_elses_zip_is_taken_over(tmp_path: Path) -> None:
    """Compressed, with sizes behind the data and a comment."""
    with zipfile.ZipFile(tmp_path / "old.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("s/b", b"x" * 1000)
        with file.open("s/ä", "w") as member:
            member.write(b"streamed" * 50)
        file.comment = b"PK\5\6 is not the end" * 3
    write_zip(tmp_path / "new.zip", {}, tmp_path / "old.zip")
    with zipfile.ZipFile(tmp_path / "new.zip") as file:
        assert file.testzip() is None
        assert file.read("s/b") == b"x" * 1000
        assert file.read("s/ä") == b"streamed" * 50


def test_names_beyond_ascii_are_told_to_be_utf8(tmp_path: Path) -> None:
    known = {"sänger/ä": b"1", "plain/a": b"2"}
    write_zip(tmp_path / "a.zip", known)
    assert read(tmp_path / "a.zip") == known
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        assert [info.flag_bits for info in file.infolist()] == [0x800, 0]


def test_headers_of_any_length_are_left_behind(tmp_path: Path) -> None:
    """Padding of ours; sizes of 64 bits, further fields and sizes behind the data of others'."""
    large = os.urandom(LARGE + 77)
    write_zip(tmp_path / "ours.zip", {"s/large": large, "s/small": b"small"})
    with zipfile.ZipFile(tmp_path / "theirs.zip", "w") as file:
        reported = zipfile.ZipInfo("t/wide")
        reported.extra = struct.pack("<HH4s", 0xCAFE, 4, b"more")
        with file.open(reported, "w", force_zip64=True) as member:
            member.write(b"wide" * 9)
        file.mkdir("t/folder")
    older = (tmp_path / "ours.zip", tmp_path / "theirs.zip")
    write_zip(tmp_path / "new.zip", {"u/large": large}, *older)
    known = {"s/large": large, "s/small": b"small", "t/wide": b"wide" * 9, "t/folder/": b""}
    assert read(tmp_path / "new.zip") == known | {"u/large": large}


def test_an_older_zip_that_ends_too_early_is_named(tmp_path: Path) -> None:
    """Its directory stands where its last member should be."""
    zipped(tmp_path / "old.zip", "one")
    data = bytearray((tmp_path / "old.zip").read_bytes())
    at = data.rindex(b"PK\1\2")
    data[at + 20 : at + 28] = struct.pack("<2I", 1 << 20, 1 << 20)
    (tmp_path / "old.zip").write_bytes(data)
    with pytest.raises(ArchiveError, match=r"old\.zip: .*one/2\.b"):
        write_zip(tmp_path / "new.zip", {}, tmp_path / "old.zip")


def test_without_copying_in_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", none)
    known = zipped(tmp_path / "old.zip", "one")
    write_zip(tmp_path / "new.zip", {}, tmp_path / "old.zip")
    assert read(tmp_path / "new.zip") == known


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: b"", "is not a ZIP"),
        (lambda data: data[:-30], "is not a ZIP"),
        (lambda data: data.replace(b"PK\3\4", b"PK\3\5", 1), "no member at byte 0"),
        (lambda data: data.replace(b"PK\1\2", b"PK\1\3", 1), "entry 0 of its directory"),
    ],
)
def test_a_damaged_zip_is_refused(tmp_path: Path, damage: object, words: str) -> None:
    zipped(tmp_path / "old.zip", "one")
    data = (tmp_path / "old.zip").read_bytes()
    (tmp_path / "old.zip").write_bytes(damage(data))  # type: ignore[operator]
    with pytest.raises(ArchiveError, match=rf"old\.zip: .*{words}"):
        write_zip(tmp_path / "new.zip", {}, tmp_path / "old.zip")


def test_a_folder_links_what_is_the_same(tmp_path: Path) -> None:
    with FolderContainer(tmp_path / "a") as container:
        known = fill(container, "one")
        container.finish()
    found = {
        path.relative_to(tmp_path / "a").as_posix(): path.read_bytes()
        for path in (tmp_path / "a").rglob("*.?")
    }
    assert found == known
    shared = [(tmp_path / "a/one" / f"{n}.b").stat() for n in range(3)]
    assert len({stat.st_ino for stat in shared}) == 1
    assert shared[0].st_mtime_ns == T_NS
    assert container.count == 6


@pytest.mark.parametrize("links", [True, False])
def test_a_folder_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    with FolderContainer(tmp_path / "old") as container:
        known = fill(container, "one") | fill(container, "two")
    (tmp_path / "old/notes.txt").write_bytes(b"somebody's own")
    if not links:
        monkeypatch.setattr(module, "_link_file", lambda *_: False)
    with FolderContainer(tmp_path / "new") as container:
        container.keep(tmp_path / "old", lambda sequence: sequence == "two")
        container.finish()
    new = tmp_path / "new"
    found = {p.relative_to(new).as_posix(): p.read_bytes() for p in new.rglob("*") if p.is_file()}
    kept = {name: data for name, data in known.items() if name.startswith("two/")}
    assert found == kept | {"notes.txt": b"somebody's own"}
    one, other = (tmp_path / folder / "two/0.a" for folder in ("old", "new"))
    assert (one.stat().st_ino == other.stat().st_ino) is links
    assert one.stat().st_mtime_ns == other.stat().st_mtime_ns


def test_times_that_dos_has_not() -> None:
    assert dos_time(0) == (0, 33)
    assert dos_time(T_NS // 1_000_000_000)[1] == (2024 - 1980) << 9 | 6 << 5 | 1


@pytest.mark.long
def test_a_zip_of_more_than_four_gigabytes(tmp_path: Path) -> None:
    payload = Payload(os.urandom(1 << 20) * 64)
    count = 67
    with ZipContainer(tmp_path / "a.zip") as container:
        for number in range(count):
            container.add(f"s/{number:03d}.bin", payload, T_NS)
        container.add("s/last", Payload(b"the end"), T_NS)
        container.finish()
    assert (tmp_path / "a.zip").stat().st_size > 1 << 32
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        assert file.testzip() is None
        assert file.read("s/last") == b"the end"
        assert file.getinfo("s/last").header_offset > 1 << 32
    if tool := shutil.which("unzip"):
        subprocess.run([tool, "-tqq", tmp_path / "a.zip"], check=True)
    write_zip(tmp_path / "b.zip", {"t/more": b"more"}, tmp_path / "a.zip")
    (tmp_path / "a.zip").unlink()
    with zipfile.ZipFile(tmp_path / "b.zip") as file:
        assert len(file.namelist()) == count + 2
        assert file.read("s/last") == b"the end"
        with file.open(f"s/{count - 1:03d}.bin") as member:
            assert member.read(1 << 20) == payload.data[: 1 << 20]
