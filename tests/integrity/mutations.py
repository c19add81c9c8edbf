"""Single changes of a recording, chosen by a seed, that can be taken back."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from recorder.session.journal.frames import decode_frames

Change = Callable[[random.Random, bytes], bytes]


def _flip(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _remove(rng: random.Random, data: bytes) -> bytes:
    at, size = rng.randrange(len(data)), rng.choice((1, 4, 8, 4096))
    return data[:at] + data[at + size :]


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 8))) + data[at:]


def _append_zeros(rng: random.Random, data: bytes) -> bytes:
    return data + bytes(rng.choice((1, 8, 4096)))


def _swap_bytes(rng: random.Random, data: bytes) -> bytes:
    size = rng.choice((1, 4, 8))
    one, other = sorted(rng.randrange(max(1, len(data) - size)) for _ in range(2))
    if one + size > other:
        return data
    parts = data[:one], data[other : other + size], data[one + size : other]
    return b"".join((*parts, data[one : one + size], data[other + size :]))


def _zero(rng: random.Random, data: bytes) -> bytes:
    at, size = rng.randrange(len(data)), rng.choice((1, 8, 512))
    stop = min(at + size, len(data))
    return data[:at] + bytes(stop - at) + data[stop:]


OF_BYTES: Sequence[Change] = (_flip, _flip, _remove, _insert, _append_zeros, _swap_bytes, _zero)


def _of_records(rng: random.Random, data: bytes) -> bytes:
    """A journal with a record removed, doubled, or two that change places."""
    records = [data[frame.start : frame.end] for frame in decode_frames(data)]
    at = rng.randrange(len(records))
    match rng.randrange(3):
        case 0:
            del records[at]
        case 1:
            records.insert(at, records[rng.randrange(len(records))])
        case _:
            other = rng.randrange(len(records))
            records[at], records[other] = records[other], records[at]
    return b"".join(records)


@contextlib.contextmanager
def mutated(
    rng: random.Random, root: Path, files: Sequence[Path], journal: Path | None
) -> Iterator[tuple[str, set[Path]]]:
    """Make one change below a folder, and take it back.

    Args:
        rng: chooses.
        root: gets added files.
        files: that are changed.
        journal: one of them whose records are changed, too.

    Yields:
        the change, and the files at one of which it must be found.
    """
    while True:
        kind = rng.choice(("bytes",) * 6 + ("record", "file gone", "file added", "files swapped"))
        path = rng.choice(files)
        before = path.read_bytes()
        if kind == "record" and journal is not None:
            path, before = journal, journal.read_bytes()
            after = _of_records(rng, before)
        elif kind == "bytes" and before:
            after = (change := rng.choice(OF_BYTES))(rng, before)
            kind = change.__name__
        elif kind == "file gone":
            path.unlink()
            try:
                yield f"{kind}: {path}", {path}
            finally:
                path.write_bytes(before)
            return
        elif kind == "file added":
            folder = rng.choice([f.parent for f in files])
            added = folder / f"{rng.choice(('x', 'seq_i', 'meta', 'commits'))}{rng.randrange(99)}"
            added.write_bytes(rng.randbytes(rng.randrange(9)))
            try:
                yield f"{kind}: {added}", {added}
            finally:
                added.unlink()
            return
        elif kind == "files swapped":
            other = rng.choice(files)
            theirs = other.read_bytes()
            if theirs == before:
                continue
            path.write_bytes(theirs)
            other.write_bytes(before)
            try:
                yield f"{kind}: {path}, {other}", {path, other}
            finally:
                path.write_bytes(before)
                other.write_bytes(theirs)
            return
        else:
            continue
        if after == before:
            continue
        path.write_bytes(after)
        try:
            yield f"{kind}: {path}", {path}
        finally:
            path.write_bytes(before)
        return
