"""Single changes of a recording, chosen by a seed, that can be taken back."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        path, other = rng.choice(files), rng.choice(files)
        after: dict[Path, bytes | None]
        match kind:
            case "record" if journal is not None:
                after = {journal: _of_records(rng, journal.read_bytes())}
            case "bytes" if data := path.read_bytes():
                kind = (change := rng.choice(OF_BYTES)).__name__
                after = {path: change(rng, data)}
            case "file gone":
                after = {path: None}
            case "file added":
                name = f"{rng.choice(('x', 'seq_i', 'meta', 'commits'))}{rng.randrange(99)}"
                after = {path.with_name(name): rng.randbytes(rng.randrange(9))}
            case "files swapped":
                after = {path: other.read_bytes(), other: path.read_bytes()}
            case _:
                continue
        before = {path: path.read_bytes() if path.exists() else None for path in after}
        if after != before:
            break
    _write(after)
    try:
        yield f"{kind}: {', '.join(map(str, after))}", set(after)
    finally:
        _write(before)


def _write(contents: Mapping[Path, bytes | None]) -> None:
    for path, data in contents.items():
        path.unlink() if data is None else path.write_bytes(data)
