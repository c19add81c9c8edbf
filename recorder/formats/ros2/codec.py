"""Codec of ROS 2 messages: values to CDR and back, by the definitions of the types.

    parts = encode_message("sensor_msgs/msg/Imu", imu)
    imu = decode_message("sensor_msgs/msg/Imu", b"".join(parts))

A message is an object of `recorder.formats.ros2.messages`; its attributes are the fields of the
definition, in their order.  A type without a class is one value (``std_msgs/String``: a str), or
its fields are attributes of the message around it (``geometry_msgs/Pose``: position, orientation).
A time is nanoseconds, an array of ``uint8`` bytes; other arrays and types of equal numbers, such as
``geometry_msgs/Point``, are tuples.  Sequences are tuples, and buffers where a number has at most 4
bytes: neither direction copies them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache, lru_cache
from operator import attrgetter
from struct import calcsize
from typing import Any, Final, Protocol

from recorder.common.errors import FormatError
from recorder.common.files import Buffer
from recorder.formats.ros2.definitions import parse_fields
from recorder.formats.ros2.messages import CLASSES

ENCAPSULATION: Final = b"\x00\x01\x00\x00"
_PADDING: Final = 3  # bytes of any value behind a message; some middleware puts more, as zeros
_CODE: Final = re.compile(r"(\d*)([bB?hHiIfqQds])")


@lru_cache(maxsize=1024)
def _make_layout(codes: str, phase: int) -> struct.Struct:
    """Make the struct of numbers at their natural alignment.

    Args:
        codes: codes of `struct`, each with an optional count.
        phase: position of the first number in the body, modulo 8.
    """
    text, position = "<", phase
    for count, code in _CODE.findall(codes):
        size = struct.calcsize("<" + code)
        gap = -position % size
        text += f"{gap}x{count}{code}"
        position += gap + size * int(count or 1)
    return struct.Struct(text)


class CdrWriter:
    """Encoder of one message in consecutive parts; each large payload is a part of its own."""

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self._head = bytearray(ENCAPSULATION)
        self._position = 0  # in the body

    def put(self, codes: str, *values: Any) -> None:
        """Append numbers.

        Args:
            codes: codes of `struct`: ``bB?hHiIfqQds``, each with an optional count.
            values: as many numbers as the codes say; bytes for ``s``.

        Raises:
            FormatError: a number is outside of its type.
        """
        layout = _make_layout(codes, self._position & 7)
        try:
            self._head += layout.pack(*values)
        except struct.error as error:
            raise FormatError(f"CDR: cannot encode {values} as {codes}: {error}") from None
        self._position += layout.size

    def string(self, text: str) -> None:
        """Append a string.

        Raises:
            FormatError: the text has a surrogate, which UTF-8 cannot encode, or a zero, at which
                other decoders end it.
        """
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise FormatError(f"CDR: cannot encode {text!r} as UTF-8: {error.reason}") from None
        if 0 in data:
            raise FormatError(f"CDR: the string {text!r} has a zero character")
        self.put("I", len(data) + 1)
        self._head += data + b"\0"
        self._position += len(data) + 1

    def blob(self, data: Buffer, alignment: int = 1) -> None:
        """Append a sequence of bytes, or of other numbers as bytes, without copying them.

        Args:
            data: contiguous, little-endian; not of a structured dtype.
            alignment: size of a number, at most 4, so that the data are aligned after the length.
        """
        view = memoryview(data)
        self.put("I", view.nbytes // alignment)
        if not view.nbytes:
            return
        self._parts += [self._head, view.cast("B")]
        self._head = bytearray()
        self._position += view.nbytes

    def finish(self) -> list[Buffer]:
        """Return the parts of the message, in order."""
        return [*self._parts, self._head] if self._head else self._parts


class CdrReader:
    """Decoder of one message.

    Args:
        data: the message with its encapsulation.
        what: name of the message in errors, such as its type.

    Raises:
        FormatError: from every method; names the byte of the message and the fault.
    """

    def __init__(self, data: Buffer, what: str) -> None:
        self._view = memoryview(data)
        self._what = what
        self._position = 0
        self._end = len(self._view) - len(ENCAPSULATION)
        if self._end < 0 or self._view[:2] != ENCAPSULATION[:2]:
            raise FormatError(
                f"{what}: begins with {bytes(self._view[:4]).hex(' ') or 'nothing'}, "
                f"not with 00 01 of little-endian CDR"
            )

    def error(self, problem: str) -> FormatError:
        """Make an error at the present byte."""
        return FormatError(f"{self._what}: byte {self._position + len(ENCAPSULATION)}: {problem}")

    def take(self, codes: str) -> tuple[Any, ...]:
        """Read numbers by the codes of `struct`."""
        layout = _make_layout(codes, self._position & 7)
        self._need(layout.size, f"numbers {codes}")
        values = layout.unpack_from(self._view, self._position + len(ENCAPSULATION))
        self._position += layout.size
        return values

    def count(self, least: int) -> int:
        """Read the length of a sequence whose elements have at least `least` bytes each."""
        (count,) = self.take("I")
        if count * least > self._end - self._position:
            raise self.error(
                f"a sequence of {count} elements needs at least {count * least} bytes, "
                f"{self._end - self._position} are left"
            )
        return int(count)

    def string(self) -> str:
        """Read a string; a length of 0 is an empty string."""
        length = self.count(1)
        data = self._bytes(length)
        if length and data[-1]:
            raise self.error("the string before has no zero at its end")
        try:
            return str(data[: max(0, length - 1)], "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"the string before is not UTF-8: {error.reason}") from None

    def blob(self, alignment: int = 1) -> memoryview:
        """Read a sequence of numbers of at most 4 bytes as bytes, without copying them."""
        return self._bytes(self.count(alignment) * alignment)

    def raw(self, size: int) -> memoryview:
        """Read a number of bytes, without copying them."""
        self._need(size, "bytes")
        return self._bytes(size)

    def finish(self) -> None:
        """Check the end of the message; up to 3 bytes of padding, or zeros, may follow it."""
        rest = self._bytes(self._end - self._position)
        if len(rest) > _PADDING and any(rest):
            raise self.error(f"{len(rest)} bytes follow the message")

    def _bytes(self, size: int) -> memoryview:
        begin = self._position + len(ENCAPSULATION)
        self._position += size
        return self._view[begin : begin + size]

    def _need(self, size: int, what: str) -> None:
        if size > self._end - self._position:
            raise self.error(f"{what} need {size} bytes, {self._end - self._position} are left")


_CODES: Final = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i",
    "uint32": "I", "int64": "q", "uint64": "Q", "float32": "f", "float64": "d",
}  # fmt: skip
_SECOND: Final = 1_000_000_000
_BUFFERED: Final = 4  # the largest number whose sequences are buffers, in bytes


def encode_message(type_name: str, message: Any) -> list[Buffer]:
    """Encode a message.

    Args:
        type_name: one of `recorder.formats.ros2.definitions.TYPES`.
        message: instance of the type's class, or the type's value.

    Returns:
        The message in CDR, in parts; a large payload is a part of its own, not a copy.

    Raises:
        FormatError: a value does not fit into the message.
    """
    writer = CdrWriter()
    _compile_type(type_name).put(writer, iter((message,)))
    return writer.finish()


def decode_message(type_name: str, data: Buffer) -> Any:
    """Decode a message in CDR to the types and values of `encode_message`.

    Raises:
        FormatError: the bytes are not such a message.
    """
    reader, values = CdrReader(data, type_name), list[Any]()
    _compile_type(type_name).take(reader, values)
    reader.finish()
    return values[0]


class _Step(Protocol):
    """Step of a message: at least `least` bytes; one value, or of `_Numbers` one for each field."""

    least: int

    def put(self, writer: CdrWriter, values: Iterator[Any]) -> None: ...

    def take(self, reader: CdrReader, values: list[Any]) -> None: ...


class _Numbers:
    """Step of consecutive numbers: a code of `struct` each, and the length of an array or 0."""

    def __init__(self, numbers: Sequence[tuple[str, int]]) -> None:
        self.numbers = numbers
        codes = ((length, "s" if length and code == "B" else code) for code, length in numbers)
        self._codes = "".join(f"{length or ''}{code}" for length, code in codes)
        self.least = sum(calcsize("<" + code) * (length or 1) for code, length in numbers)

    def put(self, writer: CdrWriter, values: Iterator[Any]) -> None:
        flat: list[Any] = []
        for (code, length), value in zip(self.numbers, values, strict=False):
            if length and code == "B":
                if len(value) != length:
                    raise FormatError(f"CDR: {len(value)} bytes are no array of {length} bytes")
                value = (bytes(value),)
            flat += value if length else (value,)
        writer.put(self._codes, *flat)

    def take(self, reader: CdrReader, values: list[Any]) -> None:
        flat, at = reader.take(self._codes), 0
        for code, length in self.numbers:
            if not length or code == "B":
                values.append(flat[at])
                at += 1
            else:
                values.append(flat[at : at + length])
                at += length


class _Text:
    """Step of a string."""

    least = 4

    def put(self, writer: CdrWriter, values: Iterator[Any]) -> None:
        writer.string(next(values))

    def take(self, reader: CdrReader, values: list[Any]) -> None:
        values.append(reader.string())


class _Time:
    """Step of a time or a duration, as ns."""

    least = 8

    def put(self, writer: CdrWriter, values: Iterator[Any]) -> None:
        seconds, nanoseconds = divmod(stamp_ns := next(values), _SECOND)
        if not -(1 << 31) <= seconds < 1 << 31:
            raise FormatError(f"{stamp_ns} ns: ROS 2 has int32 seconds, until 2038")
        writer.put("iI", seconds, nanoseconds)

    def take(self, reader: CdrReader, values: list[Any]) -> None:
        seconds, nanoseconds = reader.take("iI")
        if nanoseconds >= _SECOND:
            raise reader.error(f"a time with {nanoseconds} ns in a second")
        values.append(seconds * _SECOND + nanoseconds)


class _Sequence:
    """Step of a sequence of one type of numbers."""

    least = 4

    def __init__(self, code: str) -> None:
        self._code, self._size = code, calcsize("<" + code)

    def put(self, writer: CdrWriter, values: Iterator[Any]) -> None:
        numbers = next(values)
        if self._size <= _BUFFERED:
            writer.blob(numbers, self._size)
        else:
            writer.put(f"I{len(numbers)}{self._code}" if numbers else "I", len(numbers), *numbers)

    def take(self, reader: CdrReader, values: list[Any]) -> None:
        if self._size <= _BUFFERED:
            values.append(reader.blob(self._size))
        else:
            count = reader.count(self._size)
            values.append(reader.take(f"{count}{self._code}") if count else ())


class _Items:
    """Step of a sequence of messages, of one step each."""

    least = 4

    def __init__(self, item: _Step) -> None:
        self._item = item

    def put(self, writer: CdrWriter, values: Iterator[Any]) -> None:
        items = next(values)
        writer.put("I", len(items))
        rest = iter(items)
        for _ in items:
            self._item.put(writer, rest)

    def take(self, reader: CdrReader, values: list[Any]) -> None:
        items: list[Any] = []
        for _ in range(reader.count(self._item.least)):
            self._item.take(reader, items)
        values.append(tuple(items))


class _Object:
    """Step of a message that has a class."""

    def __init__(self, message_class: Any, steps: Sequence[_Step]) -> None:
        self._class, self._steps = message_class, steps
        self._values = attrgetter(*(field.name for field in fields(message_class)))
        self.least = sum(step.least for step in steps)

    def put(self, writer: CdrWriter, values: Iterator[Any]) -> None:
        own = iter(self._values(next(values)))
        for step in self._steps:
            step.put(writer, own)

    def take(self, reader: CdrReader, values: list[Any]) -> None:
        own: list[Any] = []
        for step in self._steps:
            step.take(reader, own)
        values.append(self._class(*own))


@cache
def _compile_type(type_name: str) -> _Step:
    """Compile a type to its only step."""
    (step,) = _compile(type_name.replace("/msg/", "/"))
    return step


def _compile(name: str) -> list[_Step]:
    """Compile a type such as ``sensor_msgs/Imu`` to steps; a type with a class is one step."""
    if name.startswith("builtin_interfaces/"):
        return [_Time()]
    steps: list[_Step] = []
    for kind, is_list, length in parse_fields(name):
        if kind == "string":
            steps.append(_Text())
        elif code := _CODES.get(kind):
            steps.append(_Sequence(code) if is_list else _Numbers([(code, length)]))
        elif is_list:
            steps.append(_Items(*_compile(kind)))
        else:
            steps += _compile(kind)
    if message_class := CLASSES.get(name):
        return [_Object(message_class, _join_numbers(steps))]
    numbers = [field for step in steps if isinstance(step, _Numbers) for field in step.numbers]
    if len(steps) == len(numbers) > 1 and len({*numbers}) == 1 and not numbers[0][1]:
        return [_Numbers([(numbers[0][0], len(numbers))])]
    return steps


def _join_numbers(steps: Sequence[_Step]) -> list[_Step]:
    """Join the steps of adjacent numbers."""
    joined: list[_Step] = []
    for step in steps:
        if isinstance(step, _Numbers) and joined and isinstance(last := joined[-1], _Numbers):
            joined[-1] = _Numbers([*last.numbers, *step.numbers])
        else:
            joined.append(step)
    return joined
