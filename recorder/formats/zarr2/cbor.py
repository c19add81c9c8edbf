"""CBOR (RFC 8949) as far as indexes and consolidated metadata need it, both ways.

Numbers, text, byte strings, lists, maps, true, false and null.  Arrays and `LazyRows` are encoded
in parts, as in `jsontext`; maps and lists of unknown length are read and can be written.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.contract.errors import FormatError
from recorder.formats.zarr2.jsontext import ArrayParts, LazyRows

UNSIGNED, NEGATIVE, BYTES, TEXT, LIST, MAP, TAG, SIMPLE = range(8)
OPEN_MAP = b"\xbf"
BREAK = b"\xff"
_UNKNOWN_LENGTH = -1
_MAX_DEPTH = 100
_DOUBLE = struct.Struct(">Bd").pack
_SHORT = 40
"""Characters of a text that may well come again."""


def head(major: int, argument: int) -> bytes:
    """The initial bytes of an item: major type and argument (RFC 8949, 3)."""
    if argument < 24:
        return bytes((major << 5 | argument,))
    if argument < 0x100:
        return bytes((major << 5 | 24, argument))
    if argument < 0x1_0000:
        return struct.pack(">BH", major << 5 | 25, argument)
    if argument < 0x1_0000_0000:
        return struct.pack(">BI", major << 5 | 26, argument)
    return struct.pack(">BQ", major << 5 | 27, argument)


def dump_cbor(value: object) -> bytes:
    """A document in one piece; FormatError for a type that is not in it."""
    parts: list[bytes] = []
    _put(value, parts.append)
    return b"".join(parts)


def cbor_parts(value: object) -> Iterator[bytes]:
    """A document, in parts; FormatError for a type that is not in it."""
    if isinstance(value, Mapping):
        yield head(MAP, len(value))
        for key, item in value.items():
            yield dump_cbor(key)
            yield from cbor_parts(item)
    elif isinstance(value, LazyRows):
        yield head(LIST, value.length)
        for item in value.items():
            yield dump_cbor(item)
    elif isinstance(value, np.ndarray):
        yield from _array_parts(ArrayParts.of(value))
    elif isinstance(value, ArrayParts):
        yield from _array_parts(value)
    else:
        yield dump_cbor(value)


def _put(value: object, put: Callable[[bytes], None]) -> None:
    """Encode a value; what `json` makes has its own way, for abstract classes are slow to ask."""
    kind = type(value)
    if isinstance(value, str):
        put(_text(value) if len(value) <= _SHORT else _any_text(value))
    elif isinstance(value, float):
        put(_DOUBLE(0xFB, value))
    elif value is None or isinstance(value, bool):
        put(b"\xf6" if value is None else b"\xf5" if value else b"\xf4")
    elif isinstance(value, int):
        put(_integer(value))
    elif isinstance(value, bytes):
        put(head(BYTES, len(value)) + value)
    elif kind is dict or (kind is not list and isinstance(value, Mapping)):
        items: Mapping[object, object] = value  # type: ignore[assignment]
        put(head(MAP, len(items)))
        for key, item in items.items():
            _put(key, put)
            _put(item, put)
    elif isinstance(value, Sequence):
        put(head(LIST, len(value)))
        for item in value:
            _put(item, put)
    elif isinstance(value, LazyRows | np.ndarray | ArrayParts):
        for part in cbor_parts(value):
            put(part)
    else:
        raise FormatError(f"metadata that CBOR cannot hold: {type(value).__name__}")


def _any_text(value: str) -> bytes:
    text = value.encode()
    return head(TEXT, len(text)) + text


_text = functools.lru_cache(maxsize=1024)(_any_text)  # most are keys, and names of classes


def _integer(value: int) -> bytes:
    if not -(1 << 64) <= value < 1 << 64:
        raise FormatError(f"metadata that CBOR cannot hold: the integer {value}")
    return head(UNSIGNED, value) if value >= 0 else head(NEGATIVE, -1 - value)


def _array_parts(array: ArrayParts) -> Iterator[bytes]:
    yield head(LIST, array.length)
    for part in array.parts():
        if part.dtype.kind in "fu" and part.dtype.itemsize <= 8:
            yield _rows(part)
        else:
            for item in part.tolist():
                yield dump_cbor(item)


def _rows(array: npt.NDArray[Any]) -> bytes:
    """The items of an array's first axis, every number in nine bytes."""
    wide, initial = (">f8", 0xFB) if array.dtype.kind == "f" else (">u8", 0x1B)
    numbers = np.ascontiguousarray(array, wide)
    items = np.empty((*array.shape, 9), np.uint8)
    items[..., 0] = initial
    items[..., 1:] = numbers.view(np.uint8).reshape(*array.shape, 8)
    while items.ndim > 2:  # the innermost lists first
        *outer, length, width = items.shape
        lead = np.frombuffer(head(LIST, length), np.uint8)
        joined = np.empty((*outer, len(lead) + length * width), np.uint8)
        joined[..., : len(lead)] = lead
        joined[..., len(lead) :] = items.reshape(*outer, length * width)
        items = joined
    return items.tobytes()


def load_cbor(data: bytes) -> Any:
    """The one document in some bytes; FormatError where they are no such document."""
    try:
        value, end = _load(memoryview(data), 0, 0)
    except (IndexError, struct.error, UnicodeDecodeError, TypeError) as error:
        raise FormatError(f"CBOR is damaged: {error}") from None
    if end != len(data):
        raise FormatError(f"CBOR is damaged: {len(data) - end} bytes behind the document")
    return value


def _load(data: memoryview, at: int, depth: int) -> tuple[Any, int]:
    if depth > _MAX_DEPTH:
        raise FormatError("CBOR is damaged: nested too deep")
    major, low = data[at] >> 5, data[at] & 0x1F
    if major == SIMPLE:
        return _load_simple(data, at, low)
    argument, at = _argument(data, at, low)
    if major == UNSIGNED:
        return argument, at
    if major == NEGATIVE:
        return -1 - argument, at
    if major in (BYTES, TEXT):
        if argument == _UNKNOWN_LENGTH or at + argument > len(data):
            raise FormatError("CBOR is damaged: a string reaches beyond the end")
        raw = bytes(data[at : at + argument])
        return raw if major == BYTES else raw.decode(), at + argument
    if major in (LIST, MAP):
        return _load_items(data, at, argument, depth, pairs=major == MAP)
    raise FormatError("CBOR with tags is not read")


def _argument(data: memoryview, at: int, low: int) -> tuple[int, int]:
    if low < 24:
        return low, at + 1
    if low == 31:
        return _UNKNOWN_LENGTH, at + 1
    if low > 27:
        raise FormatError(f"CBOR is damaged: initial byte {data[at]:#04x}")
    size = 1 << (low - 24)
    if at + 1 + size > len(data):
        raise FormatError("CBOR is damaged: it ends within a number")
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def _load_items(
    data: memoryview, at: int, count: int, depth: int, *, pairs: bool
) -> tuple[Any, int]:
    items: list[Any] = []
    wanted = count if count == _UNKNOWN_LENGTH else count * (2 if pairs else 1)
    while len(items) != wanted:
        if wanted == _UNKNOWN_LENGTH and data[at] == BREAK[0]:
            at += 1
            break
        item, at = _load(data, at, depth + 1)
        items.append(item)
    if not pairs:
        return items, at
    if len(items) % 2:
        raise FormatError("CBOR is damaged: a key without a value")
    return dict(zip(items[::2], items[1::2], strict=True)), at


def _load_simple(data: memoryview, at: int, low: int) -> tuple[Any, int]:
    if low in (20, 21):
        return low == 21, at + 1
    if low == 22:
        return None, at + 1
    form = {25: ">e", 26: ">f", 27: ">d"}.get(low)
    if form is None:
        raise FormatError(f"CBOR is damaged: initial byte {data[at]:#04x}")
    return struct.unpack_from(form, data, at + 1)[0], at + 1 + struct.calcsize(form)
