"""Folder and itar stores: tar programs, the index, consolidated metadata, damage, full disks."""

from __future__ import annotations

import errno
import hashlib
import json
import lzma
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import threading
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.common.errors import FormatError, StorageError
from recorder.formats.zarr2 import (
    ArrayParts,
    FolderStore,
    Hierarchy,
    ItarStore,
    LazyRows,
    SpillFile,
    open_store,
    read_metadata,
)
from recorder.formats.zarr2 import stores as stores_module
from recorder.formats.zarr2.documents import load_cbor
from recorder.formats.zarr2.itar import GATHER_BYTES, member_header
from recorder.formats.zarr2.stores import compute_md5
from tests.archives.contract import fill_up
from tests.formats.zarr2.kit import keys_of

STORES = {"folder": FolderStore, "itar": ItarStore}
LONG = "x" * 90 + "/" + "y" * 140


def fill(hierarchy: Hierarchy) -> None:
    """Keys of all kinds, long names among them."""
    group = hierarchy.root.group("sensor", {"poses": np.arange(32.0).reshape(2, 4, 4)})
    for number in range(20):
        frame = group.group(f"frame{number}", {"n_rays": number, "name": "ü"})
        frame.array("direction", np.full((50, 3), number, np.float32))
        frame.text("image", bytes([number + 1]) * (500 + number))
    first, second = LONG.split("/")
    hierarchy.root.group(first).group(second).array("z" * 20, np.arange(3))


def write_itar(path: Path, **options: Any) -> ItarStore:
    """An itar with those keys."""
    store = ItarStore(path, **options)
    with Hierarchy(store, consolidation="cbor.xz", attributes={"a": 1}) as hierarchy:
        fill(hierarchy)
    return store


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("consolidation", ["cbor.xz", "json"])
def test_consolidated_metadata_is_all_metadata(
    tmp_path: Path, kind: str, consolidation: Any
) -> None:
    path = tmp_path / "s"
    with Hierarchy(STORES[kind](path), consolidation=consolidation) as hierarchy:
        fill(hierarchy)
        hierarchy.root.group("lazy", {"rows": LazyRows(2, lambda: iter([{"b": 1.5}, 7]))})
    keys = keys_of(path)
    plain = {k: json.loads(v) for k, v in keys.items() if k.rpartition("/")[2].startswith(".z")
             and not k.startswith(".zmetadata")}  # fmt: skip
    if consolidation == "json":
        document = json.loads(keys[".zmetadata"])
    else:
        document = load_cbor(lzma.decompress(keys[".zmetadata.cbor.xz"]))
    assert document == {"zarr_consolidated_format": 1, "metadata": plain}
    assert plain["lazy/.zattrs"] == {"rows": [{"b": 1.5}, 7]}
    assert plain["sensor/.zattrs"]["poses"][1][3] == [28.0, 29.0, 30.0, 31.0]
    assert read_metadata(open_store(path)) == plain


def test_both_stores_hold_the_same(tmp_path: Path) -> None:
    write_itar(tmp_path / "a.itar")
    with Hierarchy(
        FolderStore(tmp_path / "a"), consolidation="cbor.xz", attributes={"a": 1}
    ) as hierarchy:
        fill(hierarchy)
    assert keys_of(tmp_path / "a.itar") == keys_of(tmp_path / "a")
    for path in (tmp_path / "a.itar", tmp_path / "a"):
        store = open_store(path)
        assert {key: store[key] for key in store} == keys_of(path)
        assert "nothing" not in store
        with pytest.raises(KeyError):
            store["nothing"]


def test_the_index_is_as_ncore_has_it(tmp_path: Path) -> None:
    path = tmp_path / "a.itar"
    store = write_itar(path, digest=True)
    data = path.read_bytes()
    assert store.md5 == hashlib.md5(data, usedforsecurity=False).hexdigest()
    assert len(data) % 512 == 0
    magic, kind, offset, size = struct.unpack_from("<4sIQI", data, len(data) - 512)
    assert (magic, kind, offset % 512) == (b"itar", 1, 0)
    assert len(data) == offset + size + -size % 512 + 512
    index = load_cbor(lzma.decompress(data[offset : offset + size]))
    assert list(index) == ["items", "offset_datas", "sizes"]
    assert index["offset_datas"] == sorted(index["offset_datas"])
    assert dict(zip(index["items"], index["sizes"], strict=True)) == {
        key: len(value) for key, value in keys_of(path).items()
    }
    with tarfile.open(path) as tar:
        assert [member.offset_data for member in tar] == index["offset_datas"]


def test_members_of_all_sizes_are_stored_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "a.itar"
    sizes = [1 << 20, *range(3000), 16383, 16384, 16385, 3, 0, 70_000, 511, 512, 513, 2 << 20, 1]
    values = {f"m/{k}": bytes([k % 251]) * size for k, size in enumerate(sizes)}
    store = ItarStore(path, digest=True)
    for key, value in values.items():
        store.put(key, value)
    store.close()
    assert list(keys_of(path).items()) == list(values.items())
    assert store.md5 == hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    opened = open_store(path)
    assert {key: opened[key] for key in opened} == values


def test_a_store_that_nobody_finished_does_not_keep_the_process(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from recorder.formats.zarr2 import ItarStore
store = ItarStore(Path({str(tmp_path)!r}, "s"), digest=True)
store.put("a", bytes(3_000_000))
raise SystemExit(7)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 7


def test_md5_of_a_folder_follows_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "s" / "B").mkdir(parents=True)
    (tmp_path / "s" / "a").write_bytes(b"one")
    (tmp_path / "s" / "B" / "c").write_bytes(b"two")
    digest = hashlib.md5(b"aone" + b"Bctwo", usedforsecurity=False)
    assert compute_md5(tmp_path / "s") == digest.hexdigest()


def test_md5_of_a_file_that_was_cut_is_one_error(tmp_path: Path) -> None:
    cut = ItarStore(tmp_path / "s", digest=True)
    assert cut._hash is not None
    cut._hash.set_length(1000)
    with pytest.raises(StorageError, match="shorter than what was written"):
        cut._hash.finish()
    cut.discard()


def test_small_items_are_gathered_before_they_are_written(tmp_path: Path) -> None:
    store = ItarStore(tmp_path / "s.itar")
    store.put("a", bytes(400))
    assert (tmp_path / "s.itar").stat().st_size == 0
    for number in range(4000):  # of 1 KiB with their headers
        store.put(f"items/{number}", bytes(400))
        waiting = store._length - (tmp_path / "s.itar").stat().st_size
        assert waiting <= GATHER_BYTES
    store.close()


def test_gnu_tar_lists_and_extracts(tmp_path: Path) -> None:
    if shutil.which("tar") is None:
        pytest.skip("there is no tar program")
    path = tmp_path / "a.itar"
    write_itar(path)
    (tmp_path / "out").mkdir()
    ran = subprocess.run(
        ["tar", "-xvf", path, "-C", tmp_path / "out"], capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    assert keys_of(tmp_path / "out") == keys_of(path)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 8**11 - 1, 8**11, 1 << 40])
@pytest.mark.parametrize(
    "key", ["a", "a" * 100, "a" * 101, LONG, f"{LONG}/{'z' * 99}", "d/" * 120 + "e", "ü/b"]
)
def test_headers(key: str, size: int) -> None:
    header = BytesIO(member_header(key, size) + bytes(1024))
    with tarfile.open(fileobj=header, mode="r:") as tar:
        read = tar.next()
    assert read is not None
    assert (read.name, read.size, read.type, read.mode) == (key, size, tarfile.REGTYPE, 0o644)


@pytest.mark.parametrize("rest", [1, 99, 100, 101])
def test_headers_of_names_around_the_longest_that_fit(rest: int) -> None:
    """A prefix of 155 bytes and a name of 100 (POSIX ustar); read by Python's own tar."""
    for size in (*range(1, 6), *range(95, 105), *range(150, 160), 256):
        for key in (f"{'p' * size}/{'n' * rest}", f"{'p' * (size // 2)}/{'q' * size}/n"):
            test_headers(key, 3)
            cuts = [at for at, c in enumerate(key) if c == "/" and at <= 155]
            fits = len(key) <= 100 or any(len(key) - at - 1 <= 100 for at in cuts)
            assert (len(member_header(key, 3)) == tarfile.BLOCKSIZE) == fits, key


@pytest.mark.parametrize("length", [0, 511, 512, 5000, -512, -1])
def test_a_cut_itar_is_named(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.itar"
    write_itar(path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(FormatError, match=r"a\.itar: not an itar"):
        open_store(path)


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.itar"
    write_itar(path)
    data = bytearray(path.read_bytes())
    _, _, offset, size = struct.unpack_from("<4sIQI", data, len(data) - 512)
    for at in range(offset, offset + size, 7):
        damaged = data.copy()
        damaged[at] ^= 0x55
        path.write_bytes(damaged)
        with pytest.raises(FormatError):
            open_store(path)


@pytest.mark.parametrize("kind", STORES)
def test_a_store_that_is_there_is_not_touched(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    with Hierarchy(STORES[kind](path)) as hierarchy:
        fill(hierarchy)
    before = keys_of(path)
    with pytest.raises(StorageError, match="exists"):
        STORES[kind](path)
    assert keys_of(path) == before


@pytest.mark.parametrize("kind", STORES)
def test_nothing_is_left_of_a_block_that_fails(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    with (
        pytest.raises(RuntimeError),
        Hierarchy(STORES[kind](path), consolidation="cbor.xz") as hierarchy,
    ):
        fill(hierarchy)
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_up(monkeypatch, 3 << 20)
    with (
        pytest.raises(StorageError, match=r"s: No space left"),
        Hierarchy(ItarStore(tmp_path / "s", digest=True)) as hierarchy,
    ):
        for number in range(100):
            hierarchy.root.text(f"t{number}", bytes(100_000) + b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_value_of_another_size_is_noticed(tmp_path: Path) -> None:
    for name, kind in STORES.items():
        store = kind(tmp_path / name)
        with pytest.raises(FormatError, match=f"{name}: a"):
            store.put_parts("a", 3, [b"ab", b"cd"])
        store.discard()


def test_spools_give_back_what_they_took(tmp_path: Path) -> None:
    for count in (0, 3, 200_000):
        spool = SpillFile(tmp_path)
        lines = [b"%d" % number for number in range(count)]
        for line in lines:
            spool.write(line + b"\n")
        assert spool.size == sum(map(len, lines)) + count
        assert b"".join(spool.parts()) == b"".join(spool.parts())
        assert list(spool.lines()) == lines
        spool.close()


@pytest.mark.campaign(weight=3)
def test_long_attributes_take_no_memory(tmp_path: Path) -> None:
    """Their text is 7.5 MB, their numbers as Python's 13 MB."""
    code = f"""
import resource, sys
from pathlib import Path
import numpy as np
from recorder.formats.zarr2 import ArrayParts, Hierarchy, ItarStore
parts = ArrayParts(25_000, lambda: (np.random.rand(1000, 4, 4) for _ in range(25)))
def write(name, attributes):
    with Hierarchy(ItarStore(Path({str(tmp_path)!r}, name)), consolidation="cbor.xz") as h:
        h.root.set_attributes(attributes)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(write("a", {{"p": np.zeros((5000, 4, 4))}}), write("b", {{"p": parts}}))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    small, large = map(int, ran.stdout.split())
    assert large - small < 6_000  # kB
    assert (tmp_path / "b").stat().st_size > 7e6


def test_parts_of_an_array_are_its_rows() -> None:
    array = np.arange(10_000)
    parts = list(ArrayParts.of(array).parts())
    assert len(parts) == 3
    assert np.array_equal(np.concatenate(parts), array)


def test_what_is_put_again_is_one_file(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "s")
    for number in range(3):
        store.put_again(f"g{number}/.zgroup", b"{}")
        store.put(f"g{number}/0", b"{}")
    store.close()
    assert store.md5 is None
    groups = [(tmp_path / f"s/g{n}/.zgroup").stat() for n in range(3)]
    assert {s.st_ino for s in groups} == {groups[0].st_ino}
    assert {(tmp_path / f"s/g{n}/0").stat().st_nlink for n in range(3)} == {1}
    assert set(keys_of(tmp_path / "s").values()) == {b"{}"}


@pytest.mark.parametrize(("code", "tries"), [(errno.EMLINK, 3), (errno.EPERM, 1)])
def test_names_that_a_file_system_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, tries: int
) -> None:
    tried = []

    def refuse(one: str, other: str) -> None:
        tried.append(other)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    with Hierarchy(FolderStore(tmp_path / "s")) as hierarchy:
        for name in "abc":
            hierarchy.root.group(name)
    assert len(tried) == tries  # a file with all the names that it can have is not the last one
    documents = {k: v for k, v in keys_of(tmp_path / "s").items() if k.endswith(".zgroup")}
    assert len(documents) == 4
    assert len(set(documents.values())) == 1


def test_a_disk_that_fails_while_a_name_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(one: str, other: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", fail)
    store = FolderStore(tmp_path / "s")
    store.put_again("a", b"1")
    store.put_again("b", b"1")
    with pytest.raises(StorageError, match=r"/s: No space left"):
        store.close()
    store.discard()
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("finish", ["close", "put", "put_parts"])
def test_what_goes_wrong_behind_is_raised_by_the_next_call(tmp_path: Path, finish: str) -> None:
    store = FolderStore(tmp_path / "s")
    store.put("a/b", b"1")
    store.put("a/b", b"2")
    store.put("a/c", b"3")
    with pytest.raises(StorageError, match=r"/s: File exists"):
        if finish == "put":
            for number in range(10_000):  # so far behind it never is
                store.put(f"d{number}", b"")
        elif finish == "put_parts":
            store.put_parts("d", 1, [b"4"])
        else:
            store.close()
    assert (tmp_path / "s/a/b").read_bytes() == b"1"
    store.discard()


def test_a_writer_that_is_slow_holds_up_who_puts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 8 MB and a value are behind, however many are put."""
    gate, seen, real = threading.Semaphore(0), [0], os.open

    def slow(*args: Any, **options: Any) -> int:
        gate.acquire()
        seen[0] += 1
        return real(*args, **options)

    monkeypatch.setattr(os, "open", slow)
    store = FolderStore(tmp_path / "s")
    put = [0]

    def put_all() -> None:
        for number in range(40):
            store.put(f"{number}", bytes(1 << 20))
            put[0] += 1

    putter = threading.Thread(target=put_all)
    putter.start()
    while putter.is_alive():
        assert put[0] <= seen[0] + 10
        gate.release()
        putter.join(0.001)
    for _ in range(40):
        gate.release()
    monkeypatch.setattr(os, "open", real)
    store.close()
    assert sorted(p.stat().st_size for p in (tmp_path / "s").iterdir()) == [1 << 20] * 40


def test_bytes_that_are_put_again_are_forgotten_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores_module, "_KEPT_NAMES", 8)
    store = FolderStore(tmp_path / "s")
    for number in range(30):
        store.put_again(f"{number}", b"%d" % number)
    store.close()
    assert 0 < len(store._files.names) <= 8
