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

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from struct import calcsize
from typing import Any, Final, Protocol

from recorder.common.errors import FormatError
from recorder.common.files import Buffer
from recorder.formats.ros2.cdr import CdrReader, CdrWriter
from recorder.formats.ros2.definitions import parse_fields
from recorder.formats.ros2.messages import CLASSES

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
        self._codes = "".join(f"{length or ''}{code}" for code, length in numbers)
        self.least = sum(calcsize("<" + code) * (length or 1) for code, length in numbers)

    def put(self, writer: CdrWriter, values: Iterator[Any]) -> None:
        flat: list[Any] = []
        for (_, length), value in zip(self.numbers, values, strict=False):
            flat += value if length else (value,)
        writer.put(self._codes, *flat)

    def take(self, reader: CdrReader, values: list[Any]) -> None:
        flat, at = reader.take(self._codes), 0
        for code, length in self.numbers:
            array = flat[at : at + length]
            values.append((bytes(array) if code == "B" else array) if length else flat[at])
            at += length or 1


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
    if len(steps) == len(numbers) > 1 and len({*numbers}) == 1:
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
