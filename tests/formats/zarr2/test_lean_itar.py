"""The reader whose memory hardly grows gives what the plain one gives."""

from __future__ import annotations

import io
import lzma
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from recorder.common.errors import FormatError
from recorder.formats.zarr2 import ItarStore, documents, open_store
from recorder.formats.zarr2.itar import END_FORMAT
from recorder.formats.zarr2.lean_itar import LeanItar

KEYS = {f"cameras/front/frames/{n}/image/0": b"%d" % n * (n % 7 + 1) for n in range(3000)}
KEYS |= {f"cameras/front/frames/{n}/.zgroup": b"{}" for n in range(3000)}
KEYS |= {".zattrs": b"root", "cameras/front/.zattrs": b"front", "poses/a/.zattrs": b"a" * 70_000}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lean") / "a.zarr.itar"
    store = ItarStore(path)
    for key, data in KEYS.items():
        store.put(key, data)
    store.close()
    return path


def test_every_key_has_its_bytes(path: Path) -> None:
    lean, plain = open_store(path, ("",)), open_store(path)
    assert isinstance(lean, LeanItar)
    assert all(key in lean and lean[key] == data for key, data in KEYS.items())
    assert "cameras/front/frames/3000/image/0" not in lean
    with pytest.raises(KeyError):
        lean["none"]
    for group in ("", "cameras", "cameras/front", "cameras/front/frames/17", "none"):
        assert lean.children(group) == plain.children(group)


def test_other_parts_are_not_there(path: Path) -> None:
    lean = open_store(path, ("poses/",))
    assert list(lean) == [".zattrs", "poses/a/.zattrs"]
    assert lean["poses/a/.zattrs"] == KEYS["poses/a/.zattrs"] and lean.children("cameras") == set()


def test_a_member_takes_few_bytes(path: Path) -> None:
    tracemalloc.start()
    lean = open_store(path, ("cameras/",))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    names = sum(len(key) + 60 for key in lean)
    assert taken - names < 60 * len(KEYS)


def _write(path: Path, index: Any, cut: int = 0) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w"):
        pass
    data = lzma.compress(documents.dump_cbor(index))
    data = data[: len(data) - cut]
    end = END_FORMAT.pack(b"itar", 1, len(buffer.getvalue()), len(data)).ljust(512, b"\0")
    path.write_bytes(buffer.getvalue() + data + bytes(-len(data) % 512) + end)
    return path


def _index(**changes: Any) -> dict[str, Any]:
    return {"items": ["a/.zarray"], "offset_datas": [0], "sizes": [1]} | changes


@pytest.mark.parametrize(
    ("index", "cut", "words"),
    [
        (_index(sizes=[1 << 50]), 0, "reaches beyond its end"),
        (_index(sizes=[(1 << 64) - 1]), 0, "reaches beyond its end"),
        (_index(sizes=[-1]), 0, "has another form"),
        (_index(sizes=[1, 2]), 0, "has another form"),
        (_index(items=[1]), 0, "has another form"),
        (_index(items="a"), 0, "has another form"),
        ({"items": ["a"]}, 0, "has another form"),
        ([1], 0, "has another form"),
        (_index(items=["a" * 3000]), 0, "has another form"),
        (_index(), 30, "is cut|is damaged"),
    ],
)
def test_a_damaged_index_is_refused(index: Any, cut: int, words: str, tmp_path: Path) -> None:
    path = _write(tmp_path / "a.zarr.itar", index, cut)
    with pytest.raises(FormatError, match=words):
        open_store(path, ("",))


def test_a_cut_file_is_refused(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    for size in (0, 100, 512, len(data) // 2, len(data) - 512, len(data) - 1):
        (cut := tmp_path / "a.zarr.itar").write_bytes(data[:size])
        with pytest.raises(FormatError, match="not an itar"):
            open_store(cut, ("",))
