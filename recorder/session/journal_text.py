"""Journals of earlier versions: text, one record a line, without digests.

A line is the CRC-32 of the rest in eight hex digits, a space, and a JSON object with the record's
kind under ``k``.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any


def decode_line(line: bytes) -> dict[str, Any] | None:
    """The record in a line; None where the line is torn or damaged."""
    try:
        crc, text = int(line[:8], 16), line[9:-1]
    except ValueError:
        return None
    if line[-1:] != b"\n" or line[8:9] != b" " or zlib.crc32(text) != crc:
        return None
    try:
        record = json.loads(text)
    except ValueError:  # the checksum of no bytes is 0
        return None
    return record if isinstance(record, dict) else None


def decode_lines(text: bytes) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Valid records with the offsets of their start and end."""
    offset = 0
    for line in text.splitlines(keepends=True):
        record = decode_line(line)
        if record is not None:
            yield offset, offset + len(line), record
        offset += len(line)
