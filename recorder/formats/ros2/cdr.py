"""Common Data Representation, little-endian, in which ROS 2 encodes messages.

A message is 4 bytes of encapsulation (``00 01 00 00``: CDR_LE, no options) and a body. The offset
of a number from the begin of the body is a multiple of the number's size. A string is its length
with the zero at its end (u4), UTF-8, the zero; a sequence is its length (u4) and its elements; an
array of fixed length and a nested message have no length (DDS-XTypes 1.3, 7.4.3, version 1 of the
encoding; the bytes equal those of the rosbags package).

    writer = CdrWriter()
    writer.put("iI", seconds, nanoseconds)
    writer.string("lidar")
    writer.blob(jpeg)                 # the buffer itself becomes a part, nothing is copied
    parts = writer.finish()
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import Any, Final

from recorder.common.errors import FormatError
from recorder.common.files import Buffer

ENCAPSULATION: Final = b"\x00\x01\x00\x00"
_PADDING: Final = 3  # bytes of any value behind a message; some middleware puts more, as zeros
_CODE: Final = re.compile(r"(\d*)([bB?hHiIfqQd])")


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
            codes: codes of `struct`: ``bB?hHiIfqQd``, each with an optional count.
            values: as many numbers as the codes say.

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
