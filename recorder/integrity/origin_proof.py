"""Proof that a clip's samples are those of a signed session, without that session.

A file ``_recorder/origin-N.proof`` of a clip, one for each session that it was cut from::

    bytes of the session that the clip lacks, one range after the other
    the table, msgpack
    bytes of the table, u8

The table has consecutive leaves of the session's tree of digests, the nodes beside them up to its
root, which the session's signature states, and the samples of each stream.  For each leaf with
samples of the clip the table has *pieces*: the places in the clip of the bytes that the leaf is the
digest of.  Bytes that the journal's digests leave out are zeros there.  For each stream it has
*edges*: leaves of ``t_mono`` with the stamps of the samples before and after those in the clip.

=====================================  =====================================================
piece                                  bytes
=====================================  =====================================================
[file, offset, bytes]                  of the clip's file
[file, offset, bytes, values, shift]   the same as rows of u8 values, the first of which grows
[file, sample, samples, -1]            xz streams that hold samples as they are
=====================================  =====================================================

Pieces are not trusted: only bytes that have the leaf's digest are used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgpack
import numpy as np

from recorder.codecs.storage import ChannelReader
from recorder.codecs.xz import stored_stream
from recorder.common.errors import FormatError
from recorder.session.journal.digests import Leaf, compute_range_root, digest, digest_leaf
from recorder.session.journal.packed_channels import RecordedFile

INDEXED: Final = {
    "lzmaf": (1, 1),
    **dict.fromkeys(("bytes", "points", "zstdf"), (2, 0)),
    "h264": (3, 0),
}
"""Formats with an index: u8 values of a row, rows before that of the first sample."""
STORED: Final = -1
_LENGTH_BYTES: Final = 8
STAMP_BYTES: Final = 8
"""Bytes of a stamp in ``ts`` or ``t_mono``."""

Row = tuple[str, Leaf]
"""A leaf with the path of its file."""
Piece = list[int]


@dataclass(frozen=True)
class Group:
    """Samples of a stream that were committed together.

    Attributes:
        start, stop: the samples.
        files: by path, indices of the leaves that have their bytes, in order.
    """

    start: int
    stop: int
    files: Mapping[str, list[int]]


def group_samples(rows: Sequence[Row], stream: str) -> list[Group]:
    """Return the samples of a stream by commits, as far as they were not cut later.

    The leaves of a stream's files lie side by side in a commit.  ``ts`` is the last; its length
    gives the number of samples.

    Args:
        rows: consecutive leaves of a session.
        stream: its name.
    """
    groups: list[Group] = []
    files: dict[str, list[int]] = {}
    for number, (path, leaf) in enumerate(rows):
        if path.partition("/")[0] != stream:
            continue
        own = files.setdefault(path, [])
        while own and rows[own[-1]][1].start >= leaf.start:
            own.pop()
        own.append(number)
        if path == f"{stream}/ts":
            while groups and groups[-1].start >= leaf.start // STAMP_BYTES:
                groups.pop()
            groups.append(Group(leaf.start // STAMP_BYTES, leaf.end // STAMP_BYTES, files))
            files = {}
    return groups


def select_groups(groups: Sequence[Group], start: int, stop: int) -> list[Group]:
    """Return the groups with samples of ``[start, stop)``; FormatError if any are missing."""
    found = [group for group in groups if group.start < stop and group.stop > start]
    at = start
    for group in found:
        if group.start > at:
            break
        at = group.stop
    if at < stop:
        raise FormatError(f"no digests of sample {at}")
    return found


@dataclass(frozen=True)
class Edge:
    """Stamps of a stream around one end of the clip's samples: a leaf of ``t_mono``.

    Attributes:
        number: its index among all leaves.
        start: offset of its bytes in the file.
        data: its bytes.
        nodes: `recorder.session.journal.digests.prove_range` of it.
    """

    number: int
    start: int
    data: bytes
    nodes: list[bytes]


@dataclass
class OriginProof:
    """The table of a proof.

    Attributes:
        size: leaves of the session's tree.
        first: index of the first of `rows`.
        rows: consecutive leaves.
        nodes: `recorder.session.journal.digests.prove_range` of them.
        streams: by name, first sample in the clip, first sample in the session, samples.
        edges: by stream.
        files: paths in the clip that pieces name by number.
        pieces: by index in `rows`.
    """

    size: int
    first: int
    rows: list[Row]
    nodes: list[bytes]
    streams: dict[str, tuple[int, int, int]]
    edges: dict[str, list[Edge]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    pieces: dict[int, list[Piece]] = field(default_factory=dict)

    @property
    def root(self) -> bytes:
        """The root of the session's tree; FormatError if the table does not fit a tree."""
        leaves = [digest_leaf(path, leaf) for path, leaf in self.rows]
        return compute_range_root(self.size, self.first, leaves, self.nodes)

    def stamp(self, stream: str, sample: int) -> int:
        """Return the ``t_mono`` of a sample beside the clip; FormatError without a valid edge."""
        at = sample * STAMP_BYTES
        for edge in self.edges.get(stream, ()):
            end = edge.start + len(edge.data)
            if edge.start <= at and at + STAMP_BYTES <= end:
                leaf = Leaf(edge.start, end, digest(edge.data))
                leaves = [digest_leaf(f"{stream}/t_mono", leaf)]
                if compute_range_root(self.size, edge.number, leaves, edge.nodes) != self.root:
                    break
                stamp = edge.data[at - edge.start :][:STAMP_BYTES]
                return int.from_bytes(stamp, "little")
        raise FormatError(f"no stamp of sample {sample}")

    def encode(self) -> bytes:
        """Return the end of the file: the table and its size."""
        names = sorted({path for path, _ in self.rows})
        numbers = {name: number for number, name in enumerate(names)}
        rows = [[numbers[path], leaf.start, leaf.end, leaf.digest] for path, leaf in self.rows]
        edges = {
            name: [[edge.number, edge.start, edge.data, edge.nodes] for edge in own]
            for name, own in self.edges.items()
        }
        body = [self.size, self.first, names, rows, self.nodes, self.streams, edges, self.files]
        table: bytes = msgpack.packb([*body, self.pieces])
        return table + len(table).to_bytes(_LENGTH_BYTES, "little")

    @classmethod
    def read(cls, path: Path) -> OriginProof:
        """Read the table of a file; FormatError, OSError."""
        with path.open("rb") as file:
            end = file.seek(-_LENGTH_BYTES, 2) if path.stat().st_size > _LENGTH_BYTES else 0
            size = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if not 0 < size <= end:
                raise FormatError(f"{path}: has no table")
            file.seek(end - size)
            table = file.read(size)
        try:
            values = msgpack.unpackb(table, strict_map_key=False)
            count, first, names, rows, nodes, streams, edges, files, pieces = values
            found = [(names[row[0]], Leaf(*row[1:])) for row in rows]
            spans = {str(name): (int(a), int(b), int(n)) for name, (a, b, n) in streams.items()}
            beside = {str(name): [Edge(*edge) for edge in own] for name, own in edges.items()}
            return cls(count, first, found, nodes, spans, beside, files, pieces)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise FormatError(f"{path}: its table is damaged ({type(error).__name__})") from None


class Rebuilding:
    """Access to bytes of a session that are rebuilt from the files of a clip.

    Args:
        proof: the table.
        open_file: opens a file of the clip as it was recorded; FormatError, OSError.
        reader: returns the reader of a channel of the clip by its path; LookupError.
    """

    def __init__(
        self,
        proof: OriginProof,
        open_file: Callable[[str], RecordedFile],
        reader: Callable[[str], ChannelReader],
    ) -> None:
        self._proof, self._open, self._reader = proof, open_file, reader
        self._files: dict[str, RecordedFile] = {}

    def leaf(self, number: int) -> bytes:
        """Return the bytes of a leaf; FormatError if the clip does not have them."""
        path, leaf = self._proof.rows[number]
        data = bytearray()
        try:
            for piece in self._proof.pieces[number]:
                data += self._read_piece(piece, leaf.end - leaf.start - len(data))
        except (OSError, LookupError, TypeError, ValueError) as error:
            raise FormatError(
                f"{path}: its proof cannot be read ({type(error).__name__})"
            ) from None
        if len(data) != leaf.end - leaf.start or digest(data) != leaf.digest:
            raise FormatError(f"{path}: bytes {leaf.start} to {leaf.end} are not as recorded")
        return bytes(data)

    def span(self, numbers: Sequence[int]) -> tuple[int, bytes]:
        """Return offset and bytes of leaves that follow each other; FormatError."""
        rows = [self._proof.rows[number][1] for number in numbers]
        if any(one.end != other.start for one, other in pairwise(rows)):
            raise FormatError("leaves do not follow each other")
        return rows[0].start if rows else 0, b"".join(map(self.leaf, numbers))

    def _read_piece(self, piece: Piece, most: int) -> bytes:
        number, at, count, *more = piece
        name = self._proof.files[number]
        if more == [STORED]:
            reader, streams = self._reader(name), bytearray()
            for sample in range(at, at + count):
                if len(streams) > most:
                    break
                streams += stored_stream(reader[sample])
            return bytes(streams)
        if not 0 <= count <= most or at < 0:
            raise ValueError(f"a piece of {count} bytes of {most}")
        if name not in self._files:
            self._files[name] = self._open(name)
        data = read_exactly(self._files[name], at, count)
        if not more:
            return data
        rows = np.frombuffer(data, "<u8").reshape(-1, more[0]).copy()
        rows[:, 0] += np.uint64(more[1] % (1 << 64))
        return rows.tobytes()

    def close(self) -> None:
        """Close the files."""
        while self._files:
            self._files.popitem()[1].close()


def read_exactly(file: RecordedFile, start: int, count: int) -> bytes:
    """Return bytes of a file, fewer if it ends before, or is damaged there."""
    data = bytearray()
    file.seek(start)
    with contextlib.suppress(FormatError):
        while len(data) < count and (more := file.read(count - len(data))):
            data += more
    return bytes(data)
