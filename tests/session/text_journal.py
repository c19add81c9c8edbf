"""Journals as earlier versions wrote them: lines of text, without digests."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recorder.session.journal import walk_journal

_OF_DIGESTS = ("digest", "leaves", "patchable", "patched", "took_us", "records", "cut", "root")


def encode_line(kind: str, values: Mapping[str, Any]) -> bytes:
    """One line."""
    text = json.dumps({"k": kind, **values}, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def as_text(journal: Path) -> bytes:
    """A journal's records as an earlier version would have written them."""
    lines = []
    for frame, content, _ in walk_journal(journal):
        if frame.kind == "snapshot":
            continue
        dropped = (*_OF_DIGESTS, "files", "session") if frame.kind != "commit" else _OF_DIGESTS
        lines.append(
            encode_line(frame.kind, {k: v for k, v in content.items() if k not in dropped})
        )
    return b"".join(lines)


def frames(journal: Path) -> list[bytes]:
    """The bytes of each record of a journal."""
    data = journal.read_bytes()
    return [data[frame.start : frame.end] for frame, _, _ in walk_journal(journal)]
