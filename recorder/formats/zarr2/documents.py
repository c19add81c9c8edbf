"""Documents as JSON and CBOR (RFC 8949); long lists are never in memory as a whole.

A document has the types of `json`, and numpy arrays, `ArrayParts` and `LazyRows` as values of
dictionaries. These become lists, written in parts.  cbor2, which encodes and decodes indexes and
consolidated metadata, is imported only when it is needed.
"""

from __future__ import annotations

import io
import json
import lzma
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError

_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
PART_ROWS = 4096
"""Number of rows of an array that are converted to text at a time."""
_WINDOW_BYTES = 256 << 10


@dataclass(frozen=True)
class ArrayParts:
    """Rows of a long array, part after part; each write calls `parts` again.

    Attributes:
        length: number of rows.
        parts: function that yields arrays with the rows, none of them empty.
    """

    length: int
    parts: Callable[[], Iterator[npt.NDArray[Any]]]

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> ArrayParts:
        """Split an array into parts whose texts take little memory."""
        starts = range(0, len(array), PART_ROWS)
        return cls(len(array), lambda: (array[at : at + PART_ROWS] for at in starts))


@dataclass(frozen=True)
class LazyRows:
    """List that is made while it is written; each write calls `items` or `texts` again.

    Attributes:
        length: number of items.
        items: function that yields the items from the first on.
        texts: function that yields the items as compact JSON, if they are available as such.
    """

    length: int
    items: Callable[[], Iterator[Any]]
    texts: Callable[[], Iterator[bytes]] | None = None


def is_lazy(value: object) -> bool:
    """Return whether a document has an array or `LazyRows` anywhere that `json_parts` looks."""
    if isinstance(value, Mapping):
        return any(is_lazy(item) for item in value.values())
    return isinstance(value, np.ndarray | ArrayParts | LazyRows)


def dump_json(value: object) -> bytes:
    """Encode a plain document as compact JSON; FormatError for unsupported values, such as NaN."""
    try:
        return _ENCODER.encode(value).encode()
    except (TypeError, ValueError) as error:
        raise FormatError(f"metadata that JSON cannot hold: {error}") from None


def json_parts(value: object) -> Iterator[bytes]:
    """Yield a document as compact JSON, in parts."""
    if isinstance(value, Mapping):
        yield b"{"
        for position, (key, item) in enumerate(value.items()):
            yield (b"," if position else b"") + dump_json(key) + b":"
            yield from json_parts(item)
        yield b"}"
    elif isinstance(value, np.ndarray):
        yield from json_parts(ArrayParts.of(value))
    elif isinstance(value, ArrayParts):
        yield b"["
        for position, part in enumerate(value.parts()):
            yield (b"," if position else b"") + dump_json(part.tolist())[1:-1]
        yield b"]"
    elif isinstance(value, LazyRows):
        yield b"["
        texts = map(dump_json, value.items()) if value.texts is None else value.texts()
        for position, text in enumerate(texts):
            yield b"," + text if position else text
        yield b"]"
    else:
        yield dump_json(value)


if TYPE_CHECKING:
    from cbor2 import CBOREncoder, EncoderHook, SemanticDecoderCallback

TEXT, LIST, MAP = 3, 4, 5
_SHORT, _ONE_BYTE = 24, 24  # lengths below are in the head; it says that a byte follows
OPEN_MAP = b"\xbf"
BREAK = b"\xff"
_MAX_DEPTH = 100


def head(major: int, argument: int) -> bytes:
    """Return the initial bytes of an item: major type and argument (RFC 8949, 3)."""
    unsigned = dump_cbor(argument)
    return bytes((major << 5 | unsigned[0],)) + unsigned[1:]


def dump_cbor(value: object) -> bytes:
    """Encode a document in one piece; raise FormatError for unsupported types."""
    import cbor2

    return cbor2.dumps(value, encoders=_ENCODERS)


def dump_text(text: str) -> bytes:
    """Encode a text of any length; short texts are fastest."""
    data = text.encode()
    size = len(data)
    if size < _SHORT:
        return bytes((TEXT << 5 | size,)) + data
    return (bytes((TEXT << 5 | _ONE_BYTE, size)) if size < 256 else head(TEXT, size)) + data


def dump_items(values: Sequence[str] | Sequence[int]) -> bytes:
    """Encode texts and whole numbers below 2**64, one after the other."""
    import cbor2

    return cbor2.dumps(values)[len(head(LIST, len(values))) :]


def cbor_parts(value: object) -> Iterator[bytes]:
    """Yield a document in parts; raise FormatError for unsupported types."""
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
        yield from _encode_array(ArrayParts.of(value))
    elif isinstance(value, ArrayParts):
        yield from _encode_array(value)
    else:
        yield dump_cbor(value)


class _Encoders(dict[type, "EncoderHook"]):
    """Encoders by type, also for subclasses; cbor2 encodes more types than a document may have."""

    def __missing__(self, kind: type) -> EncoderHook:
        from cbor2 import CBOREncoder

        hooks: tuple[tuple[type, EncoderHook], ...] = (
            (bool, CBOREncoder.encode_bool),
            (int, _put_integer),
            (float, CBOREncoder.encode_float),
            (str, CBOREncoder.encode_string),
            (bytes, CBOREncoder.encode_bytes),
            (type(None), lambda encoder, _: encoder.encode_none()),
            (Mapping, CBOREncoder.encode_map),
            (Sequence, CBOREncoder.encode_array),
            (object, _put_parts),
        )
        hook = self[kind] = next(hook for base, hook in hooks if issubclass(kind, base))
        return hook


_ENCODERS = _Encoders()


def _put_integer(encoder: CBOREncoder, value: int) -> None:
    if not -(1 << 64) <= value < 1 << 64:
        raise FormatError(f"metadata that CBOR cannot hold: the integer {value}")
    encoder.encode_int(value)


def _put_parts(encoder: CBOREncoder, value: object) -> None:
    if not isinstance(value, LazyRows | np.ndarray | ArrayParts):
        raise FormatError(f"metadata that CBOR cannot hold: {type(value).__name__}")
    for part in cbor_parts(value):
        encoder.write(part)


def _encode_array(array: ArrayParts) -> Iterator[bytes]:
    yield head(LIST, array.length)
    for part in array.parts():
        if part.dtype.kind in "fu" and part.dtype.itemsize <= 8:
            yield _encode_rows(part)
        else:
            yield dump_cbor(part.tolist())[len(head(LIST, len(part))) :]


def _encode_rows(array: npt.NDArray[Any]) -> bytes:
    """Encode the items of an array's first axis, every number in nine bytes.

    For [4096, 4, 4] doubles (610,304 bytes) numpy takes 1.4 ms, cbor2 6.2.1 takes 11.8 ms; for 4096
    u8 they take 0.02 and 0.5 ms.
    """
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


def make_compressor(preset: int) -> lzma.LZMACompressor:
    """Return a compressor of documents to xz that takes 3 MB.

    Documents repeat themselves within some kB: the window of preset 3 would take 33 MB, and make an
    index no smaller.
    """
    filters = [{"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": _WINDOW_BYTES}]
    return lzma.LZMACompressor(filters=filters)


def load_cbor(data: bytes) -> Any:
    """Decode the document in some bytes; raise FormatError if they are not exactly one."""
    import cbor2

    file = io.BytesIO(data)
    try:
        value = cbor2.load(file, max_depth=_MAX_DEPTH, semantic_decoders=_NO_TAGS)
    except cbor2.CBORDecodeError as error:
        raise FormatError(f"CBOR is damaged: {error.__cause__ or error}") from None
    if left := len(data) - file.tell():
        raise FormatError(f"CBOR is damaged: {left} bytes behind the document")
    if not _is_document(value):
        raise FormatError("CBOR is damaged: a value of a type that no document holds")
    return value


def _is_document(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_document, value)) and all(map(_is_document, value.values()))
    if isinstance(value, list):
        return all(map(_is_document, value))
    return value is None or isinstance(value, str | int | float | bytes)


def _refuse_tag(_value: object, _immutable: bool) -> None:
    raise ValueError("tags are not read")


_NO_TAGS: defaultdict[int, SemanticDecoderCallback] = defaultdict(lambda: _refuse_tag)
