"""CBOR encoder and decoder (RFC 8949) for indexes and consolidated metadata.

cbor2 encodes and decodes documents: values of JSON, and byte strings.  Arrays and `LazyRows`
are encoded in parts, as in `jsontext`.  cbor2 is imported only when it is needed.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.formats.zarr2.jsontext import ArrayParts, LazyRows

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
