"""Frames of a journal: the bytes of its records.

=========  ====================================================================================
bytes      hold
=========  ====================================================================================
4          the marker ``9f 52 4a 32``: a reader finds the next record after a damaged one by it
4          CRC-32 of all that follows (u32, little-endian)
4          bytes of the body (u32)
32         BLAKE3 of the frame before; zeros in the first: each record depends on all before it
...        the body: a msgpack array of the record's kind and its content
=========  ====================================================================================
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgpack

from recorder.session.journal.digests import DIGEST_BYTES, digest

MARKER = b"\x9fRJ2"
_HEAD = struct.Struct(f"<4sII{DIGEST_BYTES}s")
MAX_BODY = 64 << 20

FIRST = bytes(DIGEST_BYTES)
"""The digest of the frame before, in the first frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A record with its place in the journal.

    Attributes:
        start, end: offsets in the journal.
        kind: the record's.
        content: of the record.
        previous: digest of the frame before, as stored in this one.
        own: digest of this frame.
    """

    start: int
    end: int
    kind: str
    content: Any
    previous: bytes
    own: bytes


def encode_frame(kind: str, content: Any, previous: bytes) -> bytes:
    """Encode a record's frame.

    Args:
        kind, content: the record; msgpack must be able to hold the content.
        previous: digest of the frame before.
    """
    body: bytes = msgpack.packb([kind, content])
    rest = struct.pack(f"<I{DIGEST_BYTES}s", len(body), previous) + body
    return MARKER + struct.pack("<I", zlib.crc32(rest)) + rest


def _decode(data: bytes, at: int, base: int) -> Frame | None:
    """Return the whole frame at an offset; None without one."""
    if len(data) - at < _HEAD.size:
        return None
    marker, _, size, previous = _HEAD.unpack_from(data, at)
    end = at + _HEAD.size + size
    if marker != MARKER or size > MAX_BODY or end > len(data):
        return None
    if not _is_intact(data, at, end):
        return None
    try:
        kind, content = msgpack.unpackb(data[at + _HEAD.size : end], strict_map_key=False)
    except (ValueError, TypeError):  # a CRC that fits by chance
        return None
    if not isinstance(kind, str):
        return None
    return Frame(base + at, base + end, kind, content, previous, digest(data[at:end]))


def _is_intact(data: bytes, at: int, end: int) -> bool:
    crc = int.from_bytes(data[at + 4 : at + 8], "little")
    return zlib.crc32(memoryview(data)[at + 8 : end]) == crc


def decode_frames(data: bytes, base: int = 0) -> Iterator[Frame]:
    """Yield every whole record of a journal's bytes, also after a damaged one.

    Args:
        data: bytes of the journal; frames that are cut at either end are skipped.
        base: their offset in the journal.
    """
    at = 0
    while (at := data.find(MARKER, at)) >= 0:
        frame = _decode(data, at, base)
        if frame is None:
            at += 1
            continue
        yield frame
        at = frame.end - base
