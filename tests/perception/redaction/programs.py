"""Redactors for tests: the protocol of docs/redaction.md in plain Python, and ways to break it."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

_HEAD = """
import os, signal, struct, subprocess, sys, time
PICTURE, ANSWER = struct.Struct("<4sIIII4sQqQ80s"), struct.Struct("<4sIQII")
source, sink = sys.stdin.buffer, sys.stdout.buffer

def pictures():
    while head := source.read(128):
        magic, version, width, height, channels, form, number, t_ns, size, name = (
            PICTURE.unpack(head))
        assert (magic, version, channels, form) == (b"RPIC", 1, 3, b"RGB8")
        yield number, width, height, source.read(size)

def answer(number, rows, columns=4, values=(), kind=b"RBOX", version=1):
    data = values if isinstance(values, bytes) else struct.pack(f"<{len(values)}f", *values)
    sink.write(ANSWER.pack(kind, version, number, rows, columns) + data)
    sink.flush()
"""
GOOD = "for number, width, height, data in pictures(): answer(number, 1, 4, (2, 3, 9.5, 12))"


def program(path: Path, body: str) -> list[str]:
    """Write a redactor; returns its command."""
    path.write_text(dedent(_HEAD) + dedent(body))
    return [sys.executable, "-S", str(path)]  # without what it needs not
