"""Pieces of a DataLayout as files declare and store them (VRS, DataLayout.cpp).

Readers identify a piece only by its kind, element type, label and, for arrays, size.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recorder.common.errors import FormatError
from recorder.formats.vrs.elements import (
    ELEMENT_TYPES,
    Cursor,
    ElementType,
    decode_text,
    encode_text,
    pack_text,
    string,
)

VALUE, ARRAY, VECTOR, TEXT, STRING_MAP = "Value", "Array", "Vector", "String", "StringMap"
MAX_ARRAY = 1 << 28
"""Most elements of an array; the format's own reader accepts 1 GiB per layout."""
_U32 = struct.Struct("<I")


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One piece.

    Attributes:
        kind: "Value", "Array", "Vector", "String" or "StringMap".
        element: type of its values; `string` for String.
        label: full name, ``left/focal_length`` inside of a struct.
        count: number of values, for Array.
        default: the value if a file has no such piece; None: zeros, or empty.
        tags: free texts about the piece, such as ``unit`` and ``description``.
        properties: numbers of the element type about the piece, such as ``min`` and ``max``.
        required: whether readers refuse a layout without the piece.
    """

    kind: str
    element: ElementType
    label: str
    count: int = 0
    default: Any = None
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: bool = False

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Identity of the piece."""
        return (self.kind, self.element.name, self.label, self.count)

    @property
    def type_name(self) -> str:
        """Type name in files: ``DataPieceArray<float>``."""
        about = "" if self.kind == TEXT else f"<{self.element.name}>"
        return f"DataPiece{self.kind}{about}"

    @property
    def fixed(self) -> bool:
        """Whether the size is the same in every record."""
        return self.kind in (VALUE, ARRAY)

    @property
    def size(self) -> int:
        """Size of a fixed piece in bytes."""
        return self.element.size * (self.count if self.kind == ARRAY else 1)

    def make_default(self) -> Any:
        """Return a new copy of the value for a piece that is not set, or not in a file."""
        if self.default is not None:
            return self.from_json(self.default)
        if self.kind == VALUE:
            return self.element.zero()
        if self.kind == ARRAY:
            return np.zeros((self.count, *self.element.shape), self.element.dtype)
        if self.kind == STRING_MAP:
            return {}
        if self.kind == TEXT:
            return ""
        if self.element is string:
            return []
        return np.zeros((0, *self.element.shape), self.element.dtype)

    def from_json(self, value: Any) -> Any:
        """Convert a given value, or one from JSON, to the piece's own kind of value."""
        if self.kind == TEXT:
            return str(value)
        if self.kind == STRING_MAP:
            return {str(k): self._convert_element(v) for k, v in value.items()}
        if self.kind == VALUE:
            return self._convert_element(value)
        if self.element is string:
            return [str(v) for v in value]
        count = self.count if self.kind == ARRAY else None
        return self.element.unpack(self.element.pack(value, count))

    def _convert_element(self, value: Any) -> Any:
        if self.element is string:
            return str(value)
        return self.element.unpack_one(self.element.pack_one(value))

    def pack(self, value: Any) -> bytes:
        """Pack a value to its bytes in a record; FormatError names the piece."""
        try:
            return self._pack(value)
        except FormatError as error:
            raise FormatError(f"piece {self.label!r}: {error}") from None

    def _pack(self, value: Any) -> bytes:
        if self.kind == VALUE:
            return self.element.pack_one(value)
        if self.kind == ARRAY:
            return self.element.pack(value, self.count)
        if self.kind == TEXT:
            return encode_text(value)
        if self.kind == STRING_MAP:
            return self._pack_map(value)
        if self.element is string:
            if isinstance(value, str):
                raise FormatError("wants a sequence of strings, got one string")
            texts = [pack_text(text) for text in value]
            return _U32.pack(len(texts)) + b"".join(texts)
        return self.element.pack(value, None)

    def _pack_map(self, value: Any) -> bytes:
        if not isinstance(value, Mapping):
            raise FormatError(f"wants a mapping, got {type(value).__name__}")
        parts: list[bytes] = []
        # Sorted as the format's own maps are, so that equal values are equal bytes.
        for key, item in sorted((encode_text(k), v) for k, v in value.items()):
            packed = pack_text(item) if self.element is string else self.element.pack_one(item)
            parts += (_U32.pack(len(key)), key, packed)
        return b"".join(parts)

    def unpack(self, data: memoryview) -> Any:
        """Unpack the value of a variable piece, or of a fixed one that is not a number."""
        if self.kind == TEXT:
            return decode_text(data)
        if self.kind == STRING_MAP:
            return self._unpack_map(data)
        if self.element is string:
            return self._unpack_strings(data)
        if self.kind == VALUE:
            return self.element.unpack_one(bytes(data))
        if len(data) % self.element.size:
            raise FormatError(
                f"piece {self.label!r}: {len(data)} bytes are no whole number of "
                f"{self.element.name} ({self.element.size} bytes each)"
            )
        return self.element.unpack(bytes(data))

    def _unpack_strings(self, data: memoryview) -> list[str]:
        if not data:
            return []
        cursor = Cursor(data, f"piece {self.label!r}")
        return [cursor.text() for _ in range(cursor.count(4))]

    def _unpack_map(self, data: memoryview) -> dict[str, Any]:
        cursor = Cursor(data, f"piece {self.label!r}")
        values: dict[str, Any] = {}
        while cursor.at < len(data):
            key = cursor.text()
            if self.element is string:
                values[key] = cursor.text()
            else:
                values[key] = self.element.unpack_one(cursor.take(self.element.size))
        return values

    # --- the JSON of a stream's tags

    def to_json(self, place: int) -> dict[str, Any]:
        """Return the piece's entry in the layout's JSON.

        `place` is the offset of a fixed piece, or the number of a variable one.
        """
        entry: dict[str, Any] = {"name": self.label, "type": self.type_name}
        entry["offset" if self.fixed else "index"] = place
        if self.tags:
            entry["tags"] = dict(sorted(self.tags.items()))
        if self.required:
            entry["required"] = True
        if self.kind == ARRAY:
            entry["size"] = self.count
        if self.default is not None:
            entry["default"] = _convert_to_plain(self.from_json(self.default))
        if self.properties:
            items = sorted(self.properties.items())
            entry["properties"] = {k: _convert_to_plain(self._convert_element(v)) for k, v in items}
        return entry

    @classmethod
    def of_json(cls, entry: Any) -> Piece:
        """Parse the piece that an entry declares.

        Raises:
            FormatError: the label is missing, the type is unknown, or an array has no size; the
                places of the following pieces are then unknown.
        """
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise FormatError(f"a piece without a name: {str(entry)[:80]}")
        label, type_name = entry["name"], entry.get("type")
        if not isinstance(type_name, str):
            raise FormatError(f"piece {label!r} has no type")
        kind, element = _parse_type(label, type_name)
        count = entry.get("size", 0) if kind == ARRAY else 0
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_ARRAY:
            raise FormatError(f"piece {label!r}: an array of size {count!r}")
        tags, properties = _read_texts(entry.get("tags")), _read_mapping(entry.get("properties"))
        required = entry.get("required") is True
        piece = cls(kind, element, label, count, entry.get("default"), tags, properties, required)
        try:
            piece.to_json(0)
        except (FormatError, TypeError, ValueError, AttributeError):
            # A default or property of another type is ignored, as by the format's own reader.
            return cls(kind, element, label, count, None, tags, {}, required)
        return piece


def _parse_type(label: str, type_name: str) -> tuple[str, ElementType]:
    if type_name == "DataPieceString":
        return TEXT, string
    kind, _, element = type_name.removeprefix("DataPiece").removesuffix(">").partition("<")
    found = ELEMENT_TYPES.get(element)
    kinds = (VECTOR, STRING_MAP) if found is string else (VALUE, ARRAY, VECTOR, STRING_MAP)
    if found is None or kind not in kinds or type_name != f"DataPiece{kind}<{element}>":
        raise FormatError(f"piece {label!r} is of an unknown type {type_name!r}")
    return kind, found


def _read_mapping(value: Any) -> dict[str, Any]:
    return {str(k): v for k, v in value.items()} if isinstance(value, dict) else {}


def _read_texts(value: Any) -> dict[str, str]:
    return {k: v for k, v in _read_mapping(value).items() if isinstance(v, str)}


def _convert_to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {k: _convert_to_plain(v) for k, v in sorted(value.items())}
    return value
