"""Reader of one protobuf message's fields by their numbers (protobuf's "Encoding" document).

This small reader replaces the package ``protobuf``: the recorder reads a few fields of five
messages whose numbers never change. A vehicle computer needs neither generated classes nor another
compiled dependency for that. Unknown fields are skipped, as the format demands.

    image = ProtobufReader(data, "foxglove.CompressedImage")
    jpeg, kind = image.blob(2), image.text(3)
"""

from __future__ import annotations

import struct
from typing import Final

from recorder.common.errors import FormatError
from recorder.common.files import Buffer

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_NAMES: Final = {_VARINT: "varint", _FIXED64: "fixed64", _BYTES: "bytes", _FIXED32: "fixed32"}
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_LONGEST: Final = 10  # bytes of a varint

Value = int | memoryview


class ProtobufReader:
    """Reader of a message's fields by number.

    An absent field has its type's zero. If a field occurs twice, the last one counts.

    Args:
        data: the message's bytes.
        what: name of the message in errors.

    Raises:
        FormatError: from every method; names the field and its fault.
    """

    def __init__(self, data: Buffer, what: str) -> None:
        self._view = memoryview(data)
        self._what = what
        self._fields: dict[int, list[tuple[int, Value]]] = {}
        at = 0
        while at < len(self._view):
            key, at = self._varint(at)
            number, kind = key >> 3, key & 7
            value: Value
            if kind == _VARINT:
                value, at = self._varint(at)
            elif kind in _FIXED:
                value, at = self._bytes(at, _FIXED[kind])
            elif kind == _BYTES:
                size, at = self._varint(at)
                value, at = self._bytes(at, size)
            else:
                raise FormatError(f"{what}: byte {at}: field {number} has the wire type {kind}")
            self._fields.setdefault(number, []).append((kind, value))

    def blob(self, number: int) -> memoryview:
        """Return the bytes of a field, not copied."""
        value = self._last(number, _BYTES)
        return value if isinstance(value, memoryview) else memoryview(b"")

    def text(self, number: int) -> str:
        """Return a text field."""
        try:
            return str(self.blob(number), "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{self._what}: field {number}: not UTF-8: {error.reason}") from None

    def integer(self, number: int) -> int:
        """Return an int32 or int64 field, or an unsigned one of less than 64 bits."""
        value = self._last(number, _VARINT)
        if not isinstance(value, int):
            return 0
        return value - (1 << 64) if value >> 63 else value

    def fixed32(self, number: int) -> int:
        """Return a fixed32 field."""
        value = self._last(number, _FIXED32)
        return int.from_bytes(value, "little") if isinstance(value, memoryview) else 0

    def double(self, number: int) -> float:
        """Return a double field."""
        value = self._last(number, _FIXED64)
        return float(struct.unpack("<d", value)[0]) if isinstance(value, memoryview) else 0.0

    def doubles(self, number: int) -> tuple[float, ...]:
        """Return a field with doubles, packed or one by one."""
        data = bytearray()
        for kind, value in self._fields.get(number, ()):
            if kind not in (_BYTES, _FIXED64) or not isinstance(value, memoryview):
                raise self._misfit(number, kind, "a list of doubles")
            if len(value) % 8:
                raise FormatError(f"{self._what}: field {number}: {len(value)} bytes of doubles")
            data += value
        return struct.unpack(f"<{len(data) // 8}d", data)

    def message(self, number: int) -> ProtobufReader:
        """Return a message field; empty if it is absent."""
        return ProtobufReader(self.blob(number), f"{self._what}: field {number}")

    def messages(self, number: int) -> list[ProtobufReader]:
        """Return a field with messages."""
        found = []
        for kind, value in self._fields.get(number, ()):
            if kind != _BYTES or not isinstance(value, memoryview):
                raise self._misfit(number, kind, "a list of messages")
            found.append(ProtobufReader(value, f"{self._what}: field {number}"))
        return found

    def _last(self, number: int, wanted: int) -> Value | None:
        if not (values := self._fields.get(number)):
            return None
        kind, value = values[-1]
        if kind != wanted:
            raise self._misfit(number, kind, _NAMES[wanted])
        return value

    def _misfit(self, number: int, kind: int, wanted: str) -> FormatError:
        return FormatError(f"{self._what}: field {number} is {_NAMES[kind]}, not {wanted}")

    def _varint(self, at: int) -> tuple[int, int]:
        value = 0
        for place in range(_LONGEST):
            if at + place >= len(self._view):
                raise FormatError(f"{self._what}: ends in the number at byte {at}")
            byte = self._view[at + place]
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at + place + 1
        raise FormatError(f"{self._what}: the number at byte {at} has more than {_LONGEST} bytes")

    def _bytes(self, at: int, size: int) -> tuple[memoryview, int]:
        left = len(self._view) - at
        if size > left:
            raise FormatError(f"{self._what}: byte {at}: {size} bytes are needed, {left} are left")
        return self._view[at : at + size], at + size
