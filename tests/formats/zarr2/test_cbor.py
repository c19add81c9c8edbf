"""CBOR: RFC 8949's own examples, round trips, damage."""

from __future__ import annotations

import lzma
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import FormatError
from recorder.formats.zarr2.documents import (
    ArrayParts,
    LazyRows,
    cbor_parts,
    dump_cbor,
    dump_items,
    dump_text,
    load_cbor,
    make_compressor,
)

# RFC 8949, appendix A; floats as doubles, as other writers have them.
EXAMPLES: list[tuple[Any, str]] = [
    (0, "00"),
    (23, "17"),
    (24, "1818"),
    (1000, "1903e8"),
    (1_000_000, "1a000f4240"),
    (18446744073709551615, "1bffffffffffffffff"),
    (-1, "20"),
    (-1000, "3903e7"),
    (-18446744073709551616, "3bffffffffffffffff"),
    (1.1, "fb3ff199999999999a"),
    (False, "f4"),
    (True, "f5"),
    (None, "f6"),
    (b"\x01\x02", "420102"),
    ("", "60"),
    ("ü", "62c3bc"),
    ([1, [2, 3], [4, 5]], "8301820203820405"),
    ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
]


@pytest.mark.parametrize(("value", "encoded"), EXAMPLES)
def test_examples_of_the_rfc(value: Any, encoded: str) -> None:
    assert dump_cbor(value).hex() == encoded
    assert load_cbor(bytes.fromhex(encoded)) == value


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
        ("9fff", []),
        ("f93e00", 1.5),
        ("fa47c35000", 100000.0),
    ],
)
def test_forms_that_are_only_read(encoded: str, value: Any) -> None:
    assert load_cbor(bytes.fromhex(encoded)) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_round_trip(value: Any) -> None:
    assert load_cbor(dump_cbor(value)) == value


@pytest.mark.parametrize("dtype", ["f4", "f8", "u8", "i8", "u1", "?"])
@pytest.mark.parametrize("shape", [(0,), (3,), (30, 2), (5000, 4, 4), (2, 300, 1)])
def test_arrays_are_lists(dtype: str, shape: tuple[int, ...]) -> None:
    array = (np.random.default_rng(1).random(shape) * 200).astype(dtype)
    assert load_cbor(dump_cbor({"a": array})) == {"a": array.tolist()}


@pytest.mark.parametrize("shape", [(0,), (3,), (30, 2), (5000, 4, 4)])
def test_arrays_of_doubles_are_encoded_as_their_lists(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(1).random(shape)
    assert dump_cbor(array) == dump_cbor(array.tolist())


@pytest.mark.parametrize("length", [0, 1, 23, 24, 25, 255, 256, 257, 65535, 65536])
@pytest.mark.parametrize("character", ["k", "é", "€"])
def test_short_and_long_texts_are_encoded_alike(length: int, character: str) -> None:
    text = character * length
    assert dump_text(text) == dump_cbor(text)


@pytest.mark.parametrize("count", [0, 1, 23, 24, 255, 256, 3000])
def test_items_are_those_of_a_list_without_its_head(count: int) -> None:
    numbers = [(1 << 64) - 1 - k for k in range(count)]
    assert dump_items(numbers) == b"".join(map(dump_cbor, numbers))
    texts = [f"frames/{k}/é" for k in range(count)]
    assert dump_items(texts) == b"".join(map(dump_cbor, texts))


def test_long_things_come_in_parts() -> None:
    rows = LazyRows(3, lambda: iter([{"a": 1}, [], None]))
    parts = ArrayParts(4, lambda: iter([np.arange(3.0), np.arange(1.0)]))
    assert load_cbor(dump_cbor({"r": rows, "p": parts})) == {
        "r": [{"a": 1}, [], None],
        "p": [0.0, 1.0, 2.0, 0.0],
    }
    assert max(map(len, cbor_parts(np.zeros((100_000, 4))))) < 200_000


@given(st.binary(max_size=60))
def test_bytes_are_a_document_or_an_error(data: bytes) -> None:
    try:
        value = load_cbor(data)
    except FormatError as error:
        assert str(error)
    else:
        assert load_cbor(dump_cbor(value)) == value or "nan" in repr(value)


@pytest.mark.parametrize(
    "encoded",
    [
        "c11a514b67b0",  # tag 1, a time
        "c24101",  # tag 2, a large integer
        "d81c80",  # tag 28, a shared list
        "d9d9f700",  # tag 55799, CBOR itself
        "81f7",  # undefined
        "f0",  # a simple value without a meaning
        "1f",  # an integer of unknown length
        "a18000",  # a list as a key
        "a1a000",  # a map as a key
        "81" * 101 + "00",  # nested too deep
    ],
)
def test_what_no_document_holds_is_not_read(encoded: str) -> None:
    with pytest.raises(FormatError, match="CBOR is damaged"):
        load_cbor(bytes.fromhex(encoded))


def test_every_cut_is_noticed() -> None:
    whole = dump_cbor({"items": ["a", "bc"], "sizes": [1, 70000], "x": 2.5})
    for length in range(len(whole)):
        with pytest.raises(FormatError):
            load_cbor(whole[:length])
    with pytest.raises(FormatError, match="behind the document"):
        load_cbor(whole + b"\0")


@pytest.mark.parametrize("value", [object(), {1, 2}, 2**64, np.float32(1)])
def test_other_types_are_refused(value: Any) -> None:
    with pytest.raises(FormatError, match="CBOR cannot hold"):
        dump_cbor([value])


@pytest.mark.parametrize("preset", [1, 3])
def test_documents_are_compressed_in_little_memory(preset: int) -> None:
    tracemalloc.start()
    try:
        compressor = make_compressor(preset)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4_000_000
    names = [f"cameras/camera/frames/{k * 33_333_333}/image" for k in range(20_000)]
    data = dump_cbor(names)
    packed = compressor.compress(data) + compressor.flush()
    assert lzma.decompress(packed) == data
    assert len(packed) < 1.05 * len(lzma.compress(data, preset=preset))
