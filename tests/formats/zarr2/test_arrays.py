"""Arrays and groups in both kinds of store, read back by a second reader."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import FormatError
from recorder.formats.zarr2 import (
    ArraySpec,
    Blosc,
    EncodedArray,
    FolderStore,
    Group,
    Hierarchy,
    ItarStore,
    RowsSpec,
    open_store,
    read_array,
)
from recorder.formats.zarr2.arrays import encode_chunks, encode_fill_value
from tests.formats.zarr2.kit import decode, keys_of

STORES = {"folder": FolderStore, "itar": ItarStore}
AGENT = np.dtype([("centroid", "<f8", (2,)), ("id", "<u8"), ("box", [("a", "<f4"), ("b", "u1")])])
Write = Callable[[Callable[[Group], None]], Path]


@pytest.fixture(params=STORES)
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Write:
    """Fills a root group; the path of the store."""

    def run(fill: Callable[[Group], None]) -> Path:
        path = tmp_path / "s"
        with Hierarchy(STORES[request.param](path)) as hierarchy:
            fill(hierarchy.root)
        return path

    return run


def values(dtype: str | np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Arbitrary bytes as an array; bools are 0 or 1."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    top = 2 if dtype.kind == "b" else 256
    raw = np.random.default_rng(3).integers(0, top, size, dtype=np.uint8)
    return raw.view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", ["?", "u1", "<i2", ">i4", "<f4", "<f8", "<c8", "<M8[us]", "S5"])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (0, 3), (5, 4), (3, 2, 2)])
def test_every_dtype_and_shape(write: Write, dtype: str, shape: tuple[int, ...]) -> None:
    array = values(dtype, shape)
    path = write(lambda root: root.array("a", array, attributes={"unit": "m"}))
    keys = keys_of(path)
    read = decode(keys, "a")
    assert (read.dtype, read.shape) == (array.dtype, array.shape)
    assert read.tobytes() == array.tobytes()
    assert json.loads(keys["a/.zattrs"]) == {"unit": "m"}
    assert read_array(open_store(path), "a").tobytes() == array.tobytes()
    chunks = [key for key in keys if key.startswith("a/") and key[2] != "."]
    assert len(chunks) == (1 if array.size else 0)


def test_metadata_is_zarrs(write: Write) -> None:
    keys = keys_of(write(lambda root: root.array("a", np.zeros((0, 3), "<f4"))))
    assert json.loads(keys[".zgroup"]) == {"zarr_format": 2}
    compressor = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 2, "blocksize": 0}
    assert json.loads(keys["a/.zarray"]) == {
        "zarr_format": 2,
        "shape": [0, 3],
        "chunks": [1, 3],
        "dtype": "<f4",
        "compressor": compressor,
        "fill_value": 0.0,
        "order": "C",
        "filters": None,
    }


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("chunks", [(1, 1), (2, 3), (5, 4), (7, 9), (4, 4)])
@pytest.mark.parametrize("compressor", [None, Blosc(shuffle=1)])
def test_chunks(chunks: tuple[int, int], order: Literal["C", "F"], compressor: Blosc) -> None:
    array = np.arange(20, dtype="<i4").reshape(5, 4)
    spec = ArraySpec(chunks, compressor, fill_value=-1, order=order)
    encoded = EncodedArray.encode(array, spec)
    keys = {f"a/{key}": data for key, data in encoded.chunks}
    keys["a/.zarray"] = encoded.metadata
    assert np.array_equal(decode(keys, "a"), array)


def test_edges_are_padded_with_the_fill_value() -> None:
    spec = ArraySpec((4,), None, fill_value=np.nan)
    (_, first), (_, second) = encode_chunks(np.arange(5, dtype="<f4"), spec)
    assert np.frombuffer(first, "<f4").tolist() == [0, 1, 2, 3]
    tail = np.frombuffer(second, "<f4")
    assert tail[0] == 4
    assert np.isnan(tail[1:]).all()


@given(
    sizes=st.lists(st.integers(0, 25), max_size=8),
    chunk_rows=st.integers(1, 12),
    row_shape=st.sampled_from([(), (2,), (2, 3)]),
)
def test_rows_appended_in_any_portions(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    chunk_rows: int,
    row_shape: tuple[int, ...],
) -> None:
    path = tmp_path_factory.mktemp("rows") / "s"
    rows = values(AGENT, (sum(sizes), *row_shape))
    with Hierarchy(FolderStore(path)) as hierarchy:
        writer = hierarchy.root.rows("agents", RowsSpec(AGENT, row_shape, chunk_rows))
        at = 0
        for size in sizes:
            writer.append(rows[at : at + size])
            at += size
        writer.close()
    read = decode(keys_of(path), "agents")
    assert (read.dtype, read.shape) == (AGENT, rows.shape)
    assert read.tobytes() == rows.tobytes()


def test_structures_as_l5kit_has_them() -> None:
    encoded = EncodedArray.encode(np.zeros(3, AGENT), ArraySpec((10,), Blosc(shuffle=1)))
    metadata = json.loads(encoded.metadata)
    assert metadata["dtype"] == [
        ["centroid", "<f8", [2]],
        ["id", "<u8"],
        ["box", [["a", "<f4"], ["b", "|u1"]]],
    ]
    assert base64.b64decode(metadata["fill_value"]) == bytes(AGENT.itemsize)


@pytest.mark.parametrize(
    ("value", "dtype", "encoded"),
    [
        (None, "f4", None),
        (np.nan, "f4", "NaN"),
        (-np.inf, "f8", "-Infinity"),
        (0, "f8", 0.0),
        (7, "i8", 7),
        (True, "?", True),
        (0, "S9", ""),
        (b"ab", "S9", "YWI="),
        (0, "U3", ""),
        (1 - 2j, "c16", [1.0, -2.0]),
        (5, "M8[ns]", 5),
    ],
)
def test_fill_values(value: Any, dtype: str, encoded: Any) -> None:
    assert encode_fill_value(value, np.dtype(dtype)) == encoded


def test_bytes_as_a_0d_array(write: Write) -> None:
    keys = keys_of(write(lambda root: root.text("image", b"\xff\xd8 ab\0", {"format": "jpeg"})))
    meta = json.loads(keys["image/.zarray"])
    assert (meta["dtype"], meta["shape"], meta["chunks"]) == ("|S6", [], [])
    assert (meta["fill_value"], meta["compressor"]) == ("", None)
    assert keys["image/0"] == b"\xff\xd8 ab\0"


def test_an_array_encoded_once_is_the_same_each_time(write: Write) -> None:
    array = np.arange(12, dtype="<u2").reshape(6, 2)
    encoded = EncodedArray.encode(array)

    def fill(root: Group) -> None:
        for name in "abc":
            root.array(name, encoded)
        root.array("plain", array)

    keys = keys_of(write(fill))
    assert keys["a/0.0"] == keys["b/0.0"] == keys["c/0.0"] == keys["plain/0.0"]
    assert np.array_equal(decode(keys, "c"), array)


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        (np.dtype(object), "Python objects"),
        (np.dtype([("a", "u1"), ("b", "<i4")], align=True), "padded"),
        (np.dtype({"names": ["a"], "formats": ["u1"], "itemsize": 4}), "padded at its end"),
    ],
)
def test_dtypes_without_a_form_are_refused(dtype: np.dtype[Any], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        EncodedArray.encode(np.zeros(2, dtype))


def test_chunks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(FormatError, match="do not fit"):
        EncodedArray.encode(np.zeros((2, 2)), ArraySpec((2,)))
    with pytest.raises(FormatError, match="do not fit"):
        EncodedArray.encode(np.zeros((2, 2)), ArraySpec((2, 0)))


def test_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    with Hierarchy(FolderStore(tmp_path / "s")) as hierarchy:
        rows = hierarchy.root.rows("r", RowsSpec(np.dtype("<f4"), (2,)))
        for bad in (np.zeros((3, 2)), np.zeros((3, 3), "<f4"), np.zeros((), "<f4")):
            with pytest.raises(FormatError, match="array r takes rows of float32"):
                rows.append(bad)
        rows.close()
        with pytest.raises(FormatError, match="closed"):
            rows.append(np.zeros((1, 2), "<f4"))


def test_names_and_attributes_once_only(tmp_path: Path) -> None:
    with Hierarchy(FolderStore(tmp_path / "s")) as hierarchy:
        group = hierarchy.root.group("g", {"a": 1})
        for bad in ("", "a/b", ".zgroup", "..", "x\0"):
            with pytest.raises(FormatError, match="cannot name a member"):
                group.group(bad)
        group.array("x", np.zeros(1))
        with pytest.raises(FormatError, match="has a member 'x' already"):
            group.group("x")
        with pytest.raises(FormatError, match="has its attributes already"):
            group.set_attributes({})
        with pytest.raises(FormatError, match="JSON cannot hold"):
            group.group("h", {"a": np.nan})
        with pytest.raises(FormatError, match="no bytes"):
            group.text("t", b"")
