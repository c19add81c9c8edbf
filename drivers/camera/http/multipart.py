"""Parser of the pictures of a ``multipart/x-mixed-replace`` stream (RFC 2046, section 5.1).

Deviations of real cameras from the RFC are accepted: a boundary declared with its leading dashes,
line feeds without carriage returns, parts without a length, no bytes between a part and the next
delimiter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from recorder.common.errors import ProtocolError

MAX_HEADER_BYTES = 16 << 10
MAX_PART_BYTES = 64 << 20

_BOUNDARY = re.compile(r';\s*boundary\s*=\s*(?:"([^"]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE)
_HEADER_END = re.compile(rb"\r?\n\r?\n")
_LINE_ENDS = b"\r\n"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the stream.

    Attributes:
        headers: by name in lower case; the last value of a repeated header.
        body: its bytes, unchanged.
        end: position of the body's end in the stream; identifies the chunk of its last byte.
    """

    headers: Mapping[str, str]
    body: bytes
    end: int


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged part; parsing continues at the next delimiter.

    Attributes:
        reason: the kind of damage.
        end: as in `Part`.
        headers: the part's headers, as far as they were read.
    """

    reason: str
    end: int
    headers: Mapping[str, str] = field(default_factory=dict)


def parse_boundary(content_type: str) -> str:
    """Return the boundary declared by a ``Content-Type``.

    Raises:
        ProtocolError: the type is not multipart, or declares no boundary.
    """
    if not content_type.strip().lower().startswith("multipart/"):
        raise ProtocolError(f"content type {content_type[:80]!r} instead of multipart")
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise ProtocolError(f"content type {content_type[:80]!r} declares no boundary")
    return match[1] or match[2]


class MultipartParser:
    """Parser of a stream, in chunks of any size, into parts.

    >>> parser = MultipartParser("frame")
    >>> parser.feed(b"--frame\\r\\nContent-Length: 2\\r\\n\\r\\nhi")
    [Part(headers={'content-length': '2'}, body=b'hi', end=40)]

    A part with a ``Content-Length`` is returned with its last byte, a part without it as soon as
    the next delimiter is found.

    Args:
        boundary: as declared by the ``Content-Type``.

    Attributes:
        ended: the closing delimiter was found; later bytes belong to no part.
    """

    def __init__(self, boundary: str) -> None:
        name = re.escape(boundary.encode("latin-1", "replace"))
        dashes = rb"(?:--)?" if boundary.startswith("--") else rb"--"
        # At the start of a line, with optional dashes that close the stream.
        self._delimiter = re.compile(rb"(?:^|\r?\n)" + dashes + name + rb"(--)?[ \t]{0,8}(\r?\n|$)")
        self._word = b"--" + boundary.removeprefix("--").encode("latin-1", "replace")
        self._keep = len(boundary) + 24  # bytes that may belong to an incomplete delimiter
        self._buffer = bytearray()
        self._before = 0  # bytes of the stream before the buffer
        self._searched = 0  # bytes of the buffer without a delimiter
        self._headers: dict[str, str] | None = None  # None: not in a part
        self._length: int | None = None
        self._lost = False  # the skipped bytes are already reported
        self._after_delimiter = False
        self.ended = False

    def feed(self, data: bytes | memoryview) -> list[Part | Damage]:
        """Return the parts that the next bytes complete, in order, with damaged ones in place."""
        self._buffer += data
        found: list[Part | Damage] = []
        while not self.ended and self._advance(found):
            pass
        if self.ended:
            self._drop(len(self._buffer))
        return found

    def _advance(self, found: list[Part | Damage]) -> bool:
        """Take one step; return False if more bytes are needed."""
        if self._after_delimiter:
            return self._take_headers(found)
        if self._headers is None:
            return self._take_delimiter(found)
        if self._length is not None:
            return self._take_sized(self._length, found)
        return self._take_unsized(found)

    def _take_delimiter(self, found: list[Part | Damage]) -> bool:
        """Skip to the byte after the next delimiter."""
        match = self._find_delimiter()
        if match is None:
            # Bytes that cannot be the beginning of a delimiter are discarded.
            if (useless := len(self._buffer) - self._keep) > 0:
                self._skip(bytes(self._buffer[:useless]), found)
                self._drop(useless)
                self._searched = 0
            return False
        self._skip(bytes(self._buffer[: match.start()]), found)
        self._pass(match)
        return True

    def _skip(self, skipped: bytes, found: list[Part | Damage]) -> None:
        if skipped.strip(_LINE_ENDS) and not self._lost:
            self._lost = True
            reason = f"{len(skipped)} or more bytes that are no part"
            found.append(Damage(reason, self._before + len(skipped)))

    def _find_delimiter(self) -> re.Match[bytes] | None:
        """Return the next delimiter with a complete line; store how far the buffer was searched."""
        match = self._delimiter.search(self._buffer, max(0, self._searched))
        if match is None or (not match[2] and not match[1]):
            # The end of the buffer is not the end of a line: more bytes may follow.
            at = len(self._buffer) if match is None else match.start() + self._keep
            self._searched = max(0, min(at, len(self._buffer)) - self._keep)
            return None
        return match

    def _pass(self, match: re.Match[bytes]) -> None:
        self._lost = False
        self.ended = match[1] is not None
        self._drop(match.end())
        self._searched = 0
        self._headers, self._length = None, None
        self._after_delimiter = True

    def _take_headers(self, found: list[Part | Damage]) -> bool:
        buffer = self._buffer
        if buffer[:2] == b"\r\n" or buffer[:1] == b"\n":  # a part without headers
            end, stop = 0, 2 if buffer[:1] == b"\r" else 1
        else:
            match = _HEADER_END.search(buffer, max(0, self._searched - 3), MAX_HEADER_BYTES)
            if match is None:
                self._searched = len(buffer)
                if len(buffer) < MAX_HEADER_BYTES:
                    return False
                return self._damaged("a part whose headers do not end", {}, found)
            end, stop = match.start(), match.end()
        self._headers = headers = parse_headers(bytes(buffer[:end]))
        self._after_delimiter = False
        self._drop(stop)
        self._searched = 0
        length = headers.get("content-length", "").strip()
        if length:
            if not (length.isascii() and length.isdigit()) or int(length[:12]) > MAX_PART_BYTES:
                return self._damaged(f"a part of {length[:20]!r} bytes", headers, found)
            self._length = int(length[:12])
        return True

    def _take_sized(self, length: int, found: list[Part | Damage]) -> bool:
        assert self._headers is not None
        # A delimiter before the end: the sender truncated the part, or its length is damaged.
        limit = min(length, len(self._buffer))
        at = self._buffer.find(self._word, max(0, self._searched - self._keep), limit)
        if at >= 0:
            match = self._delimiter.search(self._buffer, max(0, at - 4), limit)
            if match is not None and match[2]:
                return self._damaged(f"a part of less than {length} bytes", self._headers, found)
        self._searched = limit
        if limit < length:
            return False
        body = bytes(self._buffer[:length])
        found.append(Part(self._headers, body, self._before + length))
        self._drop(length)
        self._searched = 0
        self._headers = self._length = None
        return True

    def _take_unsized(self, found: list[Part | Damage]) -> bool:
        assert self._headers is not None
        match = self._find_delimiter()
        if match is None:
            if len(self._buffer) > MAX_PART_BYTES:
                return self._damaged("a part that does not end", self._headers, found)
            return False
        body = bytes(self._buffer[: match.start()])
        found.append(Part(self._headers, body, self._before + match.start()))
        self._pass(match)
        return True

    def _damaged(self, reason: str, headers: Mapping[str, str], found: list[Part | Damage]) -> bool:
        found.append(Damage(reason, self._before, dict(headers)))
        self._lost = True
        self._after_delimiter = False
        self._headers = self._length = None
        self._searched = 0
        return True

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._before += count


def parse_headers(block: bytes) -> dict[str, str]:
    """Parse header lines (RFC 9112, section 5) by lower-case name; skip lines without a colon."""
    headers = {}
    for line in block.split(b"\n"):
        name, colon, value = line.strip().partition(b":")
        if colon:
            headers[name.strip().decode("latin-1").lower()] = value.strip().decode("latin-1")
    return headers
