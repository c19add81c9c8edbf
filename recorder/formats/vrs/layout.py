"""Layouts as Python classes, declared like the format's own examples.

>>> class Mode(IntEnum):
...     MANUAL, AUTO = 0, 1
>>> class CameraData(DataLayout):
...     exposure_s = Value(float64, "exposure_time", unit="s")
...     mode = Enum(Mode, uint8, "mode")
...     roi = Array(uint32, "roi", 4)
...     gains = Vector(float32, "gains")
>>> data = CameraData(exposure_s=0.01, mode=Mode.AUTO, roi=[0, 0, 640, 480])
>>> payload = data.encode()
>>> CameraData.decode(payload).exposure_s
0.01

Use `map` to read records of another version of the class. It matches pieces by kind, label and
element type. A piece that the file lacks has its default, and its name is in `missing`.

A record has, packed and little-endian: the fixed pieces in their order; one (u32 offset, u32
length) pair for every variable piece; the data of the variable pieces (VRS, DataLayout.cpp,
PODMacro.inc). Matrices are stored row by row. In Python a scalar is an int, float or bool, a point
an array [n], a matrix an array [n, n], a string a str.
"""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError


@dataclass(frozen=True, slots=True)
class ElementType:
    """Element type: the T of ``DataPieceValue<T>``.

    Attributes:
        name: name in files, such as ``uint32_t`` or ``Point3Df``.
        dtype: dtype of one of its numbers, little-endian.
        shape: () for numbers, (n,) for points, (n, n) for matrices.
        code: code of `struct` for numbers; else "".
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    code: str

    @property
    def size(self) -> int:
        """Size of one value in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    def zero(self) -> Any:
        """Return the value that stands for an unset one: zeros."""
        if self.shape:
            return np.zeros(self.shape, self.dtype)
        return self.dtype.type(0).item()

    def pack(self, values: Any, count: int | None) -> bytes:
        """Pack `count` values to bytes; None: any number of values.

        Raises:
            FormatError: the count or the shape differs, or numbers do not fit.
        """
        array = self._convert(values)
        expected = (count,) if count is not None else (len(array) if array.ndim else 0,)
        if array.shape != (*expected, *self.shape):
            if not count and array.ndim and not array.size:
                return b""
            number = "any number" if count is None else str(count)
            shape = f" of shape {self.shape}" if self.shape else ""
            raise FormatError(f"wants {number} of {self.name}{shape}, got shape {array.shape}")
        return array.tobytes()

    def pack_one(self, value: Any) -> bytes:
        """Pack one value to bytes; raise FormatError if it does not fit."""
        array = self._convert(value)
        if array.shape != self.shape:
            raise FormatError(f"wants one {self.name}, shape {self.shape}, got {array.shape}")
        return array.tobytes()

    def _convert(self, values: Any) -> npt.NDArray[Any]:
        try:
            array = np.asarray(values)
            if array.dtype == self.dtype:
                return array
            if array.dtype.kind not in "biuf":
                raise FormatError(f"wants {self.name}, got {array.dtype}")
            with np.errstate(invalid="ignore", over="ignore"):
                packed = array.astype(self.dtype)
                if self.dtype.kind == "f":
                    fits = np.isfinite(packed) | ~np.isfinite(array)
                else:
                    fits = packed == array
        except (ValueError, OverflowError) as error:
            raise FormatError(f"wants {self.name}: {error}") from None
        if not fits.all():
            raise FormatError(f"wants {self.name}, which cannot hold {array[~fits].flat[0]}")
        return packed

    def unpack(self, data: bytes) -> npt.NDArray[Any]:
        """Unpack bytes to values [k, *shape], fresh and writable; the size must be a multiple."""
        return np.frombuffer(data, self.dtype).reshape(-1, *self.shape).copy()

    def unpack_one(self, data: bytes) -> Any:
        """Unpack bytes to one value."""
        value = np.frombuffer(data, self.dtype)
        return value.reshape(self.shape).copy() if self.shape else value[0].item()


def _number(name: str, dtype: str, code: str) -> ElementType:
    return ElementType(name, np.dtype(dtype), (), code)


Bool = _number("Bool", "?", "?")
char = _number("char", "<i1", "b")
float64 = _number("double", "<f8", "d")
float32 = _number("float", "<f4", "f")
int64 = _number("int64_t", "<i8", "q")
uint64 = _number("uint64_t", "<u8", "Q")
int32 = _number("int32_t", "<i4", "i")
uint32 = _number("uint32_t", "<u4", "I")
int16 = _number("int16_t", "<i2", "h")
uint16 = _number("uint16_t", "<u2", "H")
int8 = _number("int8_t", "<i1", "b")
uint8 = _number("uint8_t", "<u1", "B")

_LETTERS = {"d": "<f8", "f": "<f4", "i": "<i4"}


def _point(n: int, letter: str) -> ElementType:
    return ElementType(f"Point{n}D{letter}", np.dtype(_LETTERS[letter]), (n,), "")


def _matrix(n: int, letter: str) -> ElementType:
    return ElementType(f"Matrix{n}D{letter}", np.dtype(_LETTERS[letter]), (n, n), "")


Point2Dd, Point2Df, Point2Di = _point(2, "d"), _point(2, "f"), _point(2, "i")
Point3Dd, Point3Df, Point3Di = _point(3, "d"), _point(3, "f"), _point(3, "i")
Point4Dd, Point4Df, Point4Di = _point(4, "d"), _point(4, "f"), _point(4, "i")
Matrix2Dd, Matrix2Df, Matrix2Di = _matrix(2, "d"), _matrix(2, "f"), _matrix(2, "i")
Matrix3Dd, Matrix3Df, Matrix3Di = _matrix(3, "d"), _matrix(3, "f"), _matrix(3, "i")
Matrix4Dd, Matrix4Df, Matrix4Di = _matrix(4, "d"), _matrix(4, "f"), _matrix(4, "i")

string = ElementType("string", np.dtype(object), (), "")
"""Only in ``DataPieceVector`` and ``DataPieceStringMap``; stored as length and bytes."""

POD_TYPES: tuple[ElementType, ...] = (
    *(Bool, char, float64, float32, int64, uint64, int32, uint32, int16, uint16, int8, uint8),
    *(Point2Dd, Point2Df, Point2Di, Point3Dd, Point3Df, Point3Di, Point4Dd, Point4Df, Point4Di),
    *(Matrix2Dd, Matrix2Df, Matrix2Di, Matrix3Dd, Matrix3Df, Matrix3Di),
    *(Matrix4Dd, Matrix4Df, Matrix4Di),
)
"""Types that Value, Array, Vector and StringMap all accept."""

ELEMENT_TYPES: dict[str, ElementType] = {t.name: t for t in (*POD_TYPES, string)}
"""Element types by their name in files."""


def encode_text(text: str) -> bytes:
    """Encode a text as UTF-8; restore bytes that were not UTF-8 when they were read."""
    if not isinstance(text, str):
        raise FormatError(f"wants a string, got {type(text).__name__}")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise FormatError(f"wants text that UTF-8 can hold: {error.reason}") from None


def decode_text(data: bytes | memoryview) -> str:
    """Decode any bytes to a text; the inverse of `encode_text`."""
    return bytes(data).decode("utf-8", "surrogateescape")


_U32 = struct.Struct("<I")


def pack_text(text: str) -> bytes:
    """Pack a text after its length in bytes, u32."""
    data = encode_text(text)
    return _U32.pack(len(data)) + data


class Cursor:
    """Reader of lengths and texts.

    If the data end too early, it raises a FormatError that starts with `where`.

    Attributes:
        at: offset of the next byte.
    """

    def __init__(self, data: bytes | memoryview, where: str) -> None:
        self.at = 0
        self._data = data
        self._where = where

    def take(self, size: int) -> bytes:
        """Read the next `size` bytes."""
        part = bytes(self._data[self.at : self.at + size])
        if len(part) < size:
            raise FormatError(
                f"{self._where}: wants {size} bytes at {self.at} of {len(self._data)}"
            )
        self.at += size
        return part

    def number(self) -> int:
        """Read the next u32."""
        value: int = _U32.unpack(self.take(4))[0]
        return value

    def count(self, least: int) -> int:
        """Read a number of items of at least `least` bytes; FormatError if they do not fit."""
        value = self.number()
        if value * least > len(self._data) - self.at:
            raise FormatError(f"{self._where}: {value} entries in {len(self._data)} bytes")
        return value

    def text(self) -> str:
        """Read the next text, after its length."""
        return decode_text(self.take(self.number()))


VALUE, ARRAY, VECTOR, TEXT, STRING_MAP = "Value", "Array", "Vector", "String", "StringMap"
MAX_ARRAY = 1 << 28
"""Most elements of an array; the format's own reader accepts 1 GiB per layout."""


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


_PAIR = struct.Struct("<II")
MAX_FIXED_BYTES = 1 << 30
"""Most bytes of fixed pieces; the format's own reader refuses more."""


class LayoutSpec:
    """Pieces of a layout.

    >>> spec = LayoutSpec.from_json(stream_tags["DL:Data:1:0"])  # doctest: +SKIP
    >>> values, size = spec.decode(payload)  # doctest: +SKIP

    Attributes:
        pieces: pieces in stored order: the fixed pieces, then the variable pieces, each as
            declared.
        fixed_size: bytes before the variable pieces' data.
        size: bytes of every record's layout; None if a piece is variable.
    """

    def __init__(self, pieces: Iterable[Piece]) -> None:
        """Order pieces by fixed and variable, each as given; labels must be unique."""
        declared = tuple(pieces)
        fixed = tuple(p for p in declared if p.fixed)
        self.variable = tuple(p for p in declared if not p.fixed)
        self.pieces = fixed + self.variable
        self._keys = tuple(p.key for p in self.pieces)
        self._places = {key: at for at, key in enumerate(self._keys)}
        if len(self._places) < len(self._keys):
            double = next(p for i, p in enumerate(self.pieces) if self._places[p.key] != i)
            raise FormatError(f"two pieces {double.type_name} {double.label!r} in one layout")
        self._fixed = fixed
        data_size = sum(p.size for p in fixed)
        self.fixed_size = data_size + _PAIR.size * len(self.variable)
        if self.fixed_size > MAX_FIXED_BYTES:
            raise FormatError(f"a layout with {self.fixed_size} bytes of fixed pieces")
        self.size = None if self.variable else self.fixed_size
        # Numbers go through `struct` all at once; points, matrices and arrays as their bytes.
        self._numbers = tuple(bool(p.kind == VALUE and p.element.code) for p in fixed)
        codes = (
            p.element.code if number else f"{p.size}s"
            for p, number in zip(fixed, self._numbers, strict=True)
        )
        self._struct = struct.Struct("<" + "".join(codes))
        self._opaque = tuple(at for at, number in enumerate(self._numbers) if not number)
        self._pairs = struct.Struct("<" + "II" * len(self.variable))

    def __eq__(self, other: object) -> bool:
        """Return whether the pieces and their places are the same; ignore defaults and tags."""
        return isinstance(other, LayoutSpec) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __repr__(self) -> str:
        return f"<layout {', '.join(f'{p.label}: {p.type_name}' for p in self.pieces)}>"

    def place(self, piece: Piece) -> int | None:
        """Return the index in `pieces` of a piece that matches this one; None without one."""
        return self._places.get(piece.key)

    # --- records

    def encode(self, values: Sequence[Any]) -> bytes:
        """Encode one record's layout to bytes.

        Args:
            values: one value per piece, in the order of `pieces`.

        Raises:
            FormatError: a value does not fit its piece; names the piece.
        """
        fixed = self._fixed
        numbers = list(values[: len(fixed)])
        for at in self._opaque:
            numbers[at] = fixed[at].pack(numbers[at])
        try:
            head = self._struct.pack(*numbers)
        except (struct.error, OverflowError, TypeError):
            self._blame(numbers)
            raise
        if not self.variable:
            return head
        pairs: list[int] = []
        parts = [head, b""]
        offset = 0
        for piece, value in zip(self.variable, values[len(fixed) :], strict=True):
            data = piece.pack(value)
            pairs += (offset, len(data))
            parts.append(data)
            offset += len(data)
        try:
            parts[1] = self._pairs.pack(*pairs)
        except struct.error:
            raise FormatError(f"a layout with {offset} bytes of variable pieces") from None
        return b"".join(parts)

    def _blame(self, numbers: Sequence[Any]) -> None:
        for piece, number, value in zip(self._fixed, self._numbers, numbers, strict=True):
            if number:
                try:
                    struct.pack("<" + piece.element.code, value)
                except (struct.error, OverflowError, TypeError):
                    raise FormatError(
                        f"piece {piece.label!r}: wants {piece.element.name}, got {value!r}"
                    ) from None

    def decode(self, data: bytes | memoryview) -> tuple[list[Any], int]:
        """Decode the values at the start of some bytes.

        Returns:
            The values in the order of `pieces`, and the number of their bytes.

        Raises:
            FormatError: the bytes end too early, or the offsets in them do not fit.
        """
        view = memoryview(data)
        if len(view) < self.fixed_size:
            raise FormatError(f"a layout wants {self.fixed_size} bytes, {len(view)} are there")
        values: list[Any] = list(self._struct.unpack_from(view))
        for at in self._opaque:
            values[at] = self._fixed[at].unpack(memoryview(values[at]))
        if not self.variable:
            return values, self.fixed_size
        pairs = self._pairs.unpack_from(view, self._struct.size)
        size = pairs[-2] + pairs[-1]
        area = view[self.fixed_size : self.fixed_size + size]
        if len(area) < size:
            raise FormatError(
                f"a layout's variable pieces want {size} bytes, {len(area)} are there"
            )
        for piece, offset, length in zip(self.variable, pairs[::2], pairs[1::2], strict=True):
            if offset + length > size:
                raise FormatError(
                    f"piece {piece.label!r}: bytes {offset} to {offset + length} of {size}"
                )
            values.append(piece.unpack(area[offset : offset + length]))
        return values, self.fixed_size + size

    # --- tags

    def to_json(self) -> str:
        """Return the text of a tag such as ``DL:Data:1:0``."""
        entries: list[dict[str, Any]] = []
        offset = 0
        for piece in self._fixed:
            entries.append(piece.to_json(offset))
            offset += piece.size
        entries += (piece.to_json(number) for number, piece in enumerate(self.variable))
        return json.dumps({"data_layout": entries}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LayoutSpec:
        """Parse the layout that a tag declares; the order of its entries counts, offsets do not.

        Raises:
            FormatError: the text is not such a declaration, or has a piece of an unknown type.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"a data layout that is no JSON: {error}") from None
        entries = document.get("data_layout") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            raise FormatError("a data layout without a list 'data_layout'")
        return cls(Piece.of_json(entry) for entry in entries)


class _Member:
    """Member of a `DataLayout`; an instance holds the value under the member's name."""

    name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return instance.__dict__[self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value

    def make_value(self) -> Any:
        """Return the member's value in a new instance."""
        raise NotImplementedError

    def leaves(self, prefix: str, path: tuple[Any, ...]) -> Iterator[_Leaf]:
        """Yield the member's pieces with their places."""
        raise NotImplementedError


class _Leaf:
    """One piece and its path: names of attributes, or positions in a tuple of structs."""

    def __init__(self, piece: Piece, path: tuple[Any, ...], kind: type[enum.Enum] | None) -> None:
        self.piece = piece
        self.path = path
        self.enum = kind
        self.name = ".".join(str(step) for step in path)

    def get(self, layout: DataLayout) -> Any:
        value: Any = layout
        for step in self.path:
            value = value[step] if isinstance(step, int) else value.__dict__[step]
        if self.enum is not None and isinstance(value, enum.Enum):
            return value.value
        return value

    def set(self, layout: DataLayout, value: Any) -> None:
        target: Any = layout
        for step in self.path[:-1]:
            target = target[step] if isinstance(step, int) else target.__dict__[step]
        target.__dict__[self.path[-1]] = (
            value if self.enum is None else find_member(self.enum, value)
        )


def find_member(kind: type[enum.Enum], value: Any) -> Any:
    """Return the member with that value; the plain value if unknown, as in a newer file."""
    try:
        return kind(value)
    except ValueError:
        return value


class _PieceMember(_Member):
    def __init__(
        self,
        kind: str,
        element: ElementType,
        label: str,
        *,
        count: int = 0,
        enum_type: type[enum.Enum] | None = None,
        default: Any = None,
        required: bool = False,
        properties: Mapping[str, Any] | None = None,
        **tags: str,
    ) -> None:
        if isinstance(default, enum.Enum):
            default = default.value
        self._enum = enum_type
        about = tags, properties or {}, required
        self.piece = Piece(kind, element, label, count, default, *about)
        value = self.piece.make_default()  # raises for a default that does not fit
        self._first = value if enum_type is None else find_member(enum_type, value)

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self.piece = replace(self.piece, label=self.piece.label or name)

    def make_value(self) -> Any:
        first = self._first
        return first.copy() if isinstance(first, (np.ndarray, dict, list)) else first

    def leaves(self, prefix: str, path: tuple[Any, ...]) -> Iterator[_Leaf]:
        piece = replace(self.piece, label=prefix + self.piece.label)
        yield _Leaf(piece, (*path, self.name), self._enum)


def Value(element: ElementType, label: str = "", **about: Any) -> Any:  # noqa: N802
    """Declare one value.

    `about`: default, required, properties, and tags such as unit and description. Without a label,
    the attribute's name is the label; this holds for all kinds.
    """
    return _PieceMember(VALUE, element, label, **about)


def Enum(kind: type[enum.Enum], element: ElementType, label: str = "", **about: Any) -> Any:  # noqa: N802
    """Declare one value of an enumeration with integer values; files store its number."""
    return _PieceMember(VALUE, element, label, enum_type=kind, **about)


def Array(element: ElementType, label: str, count: int, **about: Any) -> Any:  # noqa: N802
    """Declare `count` values, an array [count, *shape of the element]."""
    return _PieceMember(ARRAY, element, label, count=count, **about)


def Vector(element: ElementType, label: str = "", **about: Any) -> Any:  # noqa: N802
    """Declare any number of values, an array [k, *shape of the element]; of `string`: a list."""
    return _PieceMember(VECTOR, element, label, **about)


def String(label: str = "", **about: Any) -> Any:  # noqa: N802
    """Declare a text."""
    return _PieceMember(TEXT, string, label, **about)


def StringMap(element: ElementType, label: str = "", **about: Any) -> Any:  # noqa: N802
    """Declare values of one type under texts, a dict."""
    return _PieceMember(STRING_MAP, element, label, **about)


class Struct(_Member):
    """Pieces of another layout inside of this one, under ``label/``.

    With a count, that many layouts are under ``label/0/``, ``label/1/``, ..., and the value is a
    tuple of instances.
    """

    def __init__(self, layout: type[DataLayout], label: str = "", count: int | None = None) -> None:
        self._layout = layout
        self._label = label
        self._count = count

    def make_value(self) -> Any:
        if self._count is None:
            return self._layout()
        return tuple(self._layout() for _ in range(self._count))

    def leaves(self, prefix: str, path: tuple[Any, ...]) -> Iterator[_Leaf]:
        prefix = f"{prefix}{self._label or self.name}/"
        path = (*path, self.name)
        if self._count is None:
            yield from self._layout._walk(prefix, path)
        else:
            for at in range(self._count):
                yield from self._layout._walk(f"{prefix}{at}/", (*path, at))


class Optional(_Member):
    """Pieces that either all records of a file have, or none.

    Without them the value is None; `DataLayout.having` makes the class with them. When a file is
    read, the value is an instance if the file has at least one of the pieces. Optional pieces must
    be direct members of the layout that is written and read, not of a struct in it.
    """

    def __init__(self, layout: type[DataLayout], *, present: bool = False) -> None:
        self.layout = layout
        self.present = present

    def make_value(self) -> Any:
        return self.layout() if self.present else None

    def leaves(self, prefix: str, path: tuple[Any, ...]) -> Iterator[_Leaf]:
        if self.present:
            yield from self.layout._walk(prefix, (*path, self.name))


class DataLayout:
    """Base of all layouts; see the module.

    Attributes:
        spec: the pieces, as a file declares them.
        missing: names of attributes that the file lacks (``left.focal_length`` inside of structs);
            empty for instances that were not read from a file.
    """

    spec: ClassVar[LayoutSpec] = LayoutSpec(())
    _members: ClassVar[dict[str, _Member]] = {}
    _leaves: ClassVar[tuple[_Leaf, ...]] = ()
    _flat: ClassVar[tuple[str, ...] | None] = ()
    _variants: ClassVar[dict[tuple[str, ...], Any]] = {}
    missing: frozenset[str] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls).keys() & vars(DataLayout).keys():
            if isinstance(vars(cls)[name], _Member):
                raise FormatError(f"{cls.__name__}: {name!r} is a name of DataLayout's own")
        members = dict(cls._members)
        members.update({k: v for k, v in vars(cls).items() if isinstance(v, _Member)})
        cls._members = members
        leaves = tuple(cls._walk("", ()))
        try:
            cls.spec = LayoutSpec(leaf.piece for leaf in leaves)
        except FormatError as error:
            raise FormatError(f"{cls.__name__}: {error}") from None
        cls._leaves = tuple(sorted(leaves, key=lambda leaf: not leaf.piece.fixed))
        flat = all(len(leaf.path) == 1 and leaf.enum is None for leaf in leaves)
        cls._flat = tuple(leaf.path[0] for leaf in cls._leaves) if flat else None

    @classmethod
    def _walk(cls, prefix: str, path: tuple[Any, ...]) -> Iterator[_Leaf]:
        for member in cls._members.values():
            yield from member.leaves(prefix, path)

    @classmethod
    def having(cls, *names: str) -> type[Self]:
        """Make the same class with these optional pieces."""
        variants = cls.__dict__.get("_variants")
        if variants is None:
            variants = cls._variants = {}
        if names in variants:
            variant: type[Self] = variants[names]
            return variant
        present: dict[str, Any] = {}
        for name in names:
            member = cls._members.get(name)
            if not isinstance(member, Optional):
                raise FormatError(f"{cls.__name__} has no optional pieces {name!r}")
            present[name] = Optional(member.layout, present=True)
        variant = variants[names] = type(cls.__name__, (cls,), present)
        return variant

    def __init__(self, **values: Any) -> None:
        """Set pieces by their names; others have their default."""
        own = self.__dict__
        for name, member in self._members.items():
            own[name] = values.pop(name) if name in values else member.make_value()
        if values:
            raise FormatError(f"{type(self).__name__} has no piece {sorted(values)[0]!r}")

    def __repr__(self) -> str:
        values = (f"{name}={self.__dict__[name]!r}" for name in self._members)
        return f"{type(self).__name__}({', '.join(values)})"

    def encode(self) -> bytes:
        """Encode to the bytes in a record; FormatError names a piece whose value does not fit."""
        try:
            if self._flat is not None:
                own = self.__dict__
                return self.spec.encode([own[name] for name in self._flat])
            return self.spec.encode([leaf.get(self) for leaf in self._leaves])
        except FormatError as error:
            raise FormatError(f"{type(self).__name__}: {error}") from None

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """Decode bytes of exactly this layout; for files' records see `map`."""
        values, _ = cls.spec.decode(data)
        return cls.map(cls.spec, values)

    @classmethod
    def map(cls, spec: LayoutSpec, values: Sequence[Any]) -> Self:
        """Map a file's layout and values by (kind, label, element type), in any order.

        Raises:
            FormatError: the file lacks a piece that is required here.
        """
        reader = cls
        optional = {k: m for k, m in cls._members.items() if isinstance(m, Optional)}
        there = [
            name
            for name, member in optional.items()
            if not member.present
            and any(spec.place(leaf.piece) is not None for leaf in member.layout._leaves)
        ]
        if there:
            reader = cls.having(*there)
        layout = reader()
        missing: set[str] = set()
        for leaf in reader._leaves:
            place = spec.place(leaf.piece)
            if place is not None:
                leaf.set(layout, values[place])
            elif leaf.piece.required:
                raise FormatError(
                    f"{cls.__name__} requires {leaf.piece.type_name} {leaf.piece.label!r}, "
                    "which the file has not"
                )
            else:
                missing.add(leaf.name)
        layout.missing = frozenset(missing)
        return layout
