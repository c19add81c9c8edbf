"""Element types of DataLayout pieces: numbers, points, matrices and strings (VRS, PODMacro.inc).

Values are packed without alignment, little-endian; matrices lie row by row.  In Python a scalar is
an int, float or bool, a point an array [n], a matrix an array [n, n], a string a str.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.contract.errors import FormatError


@dataclass(frozen=True, slots=True)
class ElementType:
    """The T of ``DataPieceValue<T>``.

    Attributes:
        name: as in files, ``uint32_t`` or ``Point3Df``.
        dtype: dtype of one of its numbers, little-endian.
        shape: () for numbers, (n,) for points, (n, n) for matrices.
        code: of `struct`, for numbers; else "".
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    code: str

    @property
    def size(self) -> int:
        """Bytes of one value."""
        return prod(self.shape) * self.dtype.itemsize

    def zero(self) -> Any:
        """The value if none is set."""
        if self.shape:
            return np.zeros(self.shape, self.dtype)
        return self.dtype.type(0).item()

    def pack(self, values: Any, count: int | None) -> bytes:
        """Bytes of `count` values; None: of any number.

        Raises:
            FormatError: another count, another shape, or numbers that do not fit.
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
        """Bytes of one value; FormatError if it does not fit."""
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
        """Values of these bytes [k, *shape], fresh and writable; their size must be a multiple."""
        return np.frombuffer(data, self.dtype).reshape(-1, *self.shape).copy()

    def unpack_one(self, data: bytes) -> Any:
        """The value of these bytes."""
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
"""Only in ``DataPieceVector`` and ``DataPieceStringMap``; files give it as length and bytes."""

POD_TYPES: tuple[ElementType, ...] = (
    *(Bool, char, float64, float32, int64, uint64, int32, uint32, int16, uint16, int8, uint8),
    *(Point2Dd, Point2Df, Point2Di, Point3Dd, Point3Df, Point3Di, Point4Dd, Point4Df, Point4Di),
    *(Matrix2Dd, Matrix2Df, Matrix2Di, Matrix3Dd, Matrix3Df, Matrix3Di),
    *(Matrix4Dd, Matrix4Df, Matrix4Di),
)
"""The types that Value, Array, Vector and StringMap all accept."""

ELEMENT_TYPES: dict[str, ElementType] = {t.name: t for t in (*POD_TYPES, string)}
"""By the name in files."""


def encode_text(text: str) -> bytes:
    """UTF-8; bytes that were not UTF-8 when read are restored."""
    if not isinstance(text, str):
        raise FormatError(f"wants a string, got {type(text).__name__}")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise FormatError(f"wants text that UTF-8 can hold: {error.reason}") from None


def decode_text(data: bytes | memoryview) -> str:
    """The inverse of `encode_text`, for all bytes."""
    return bytes(data).decode("utf-8", "surrogateescape")


_U32 = struct.Struct("<I")


def pack_text(text: str) -> bytes:
    """A text behind its length, u32, in bytes."""
    data = encode_text(text)
    return _U32.pack(len(data)) + data


class Cursor:
    """Reads lengths and texts; FormatError, starting with `where`, if the data end too early.

    Attributes:
        at: offset of what is read next.
    """

    def __init__(self, data: bytes | memoryview, where: str) -> None:
        self.at = 0
        self._data = data
        self._where = where

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        part = bytes(self._data[self.at : self.at + size])
        if len(part) < size:
            raise FormatError(
                f"{self._where}: wants {size} bytes at {self.at} of {len(self._data)}"
            )
        self.at += size
        return part

    def number(self) -> int:
        """The next u32."""
        value: int = _U32.unpack(self.take(4))[0]
        return value

    def count(self, least: int) -> int:
        """A number of things that have `least` bytes each; FormatError if they cannot be there."""
        value = self.number()
        if value * least > len(self._data) - self.at:
            raise FormatError(f"{self._where}: {value} entries in {len(self._data)} bytes")
        return value

    def text(self) -> str:
        """The next text, behind its length."""
        return decode_text(self.take(self.number()))
