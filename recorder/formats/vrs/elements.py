"""Element types of DataLayout pieces: numbers, points, matrices and strings (VRS, PODMacro.inc).

Values are packed without alignment, little-endian; matrices are stored row by row. In Python a
scalar is an int, float or bool, a point an array [n], a matrix an array [n, n], a string a str.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import Any

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
