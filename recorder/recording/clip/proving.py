"""Writer of the proofs that a clip's samples are those of its sources (docs/security.md)."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from recorder.codecs import channel_files
from recorder.codecs.storage import ChannelReader
from recorder.common.errors import FormatError
from recorder.common.files import AppendFile
from recorder.integrity.origin_proof import (
    INDEXED,
    STAMP_BYTES,
    STORED,
    Edge,
    Group,
    OriginProof,
    Piece,
    Row,
    group_samples,
    read_exactly,
    select_groups,
)
from recorder.integrity.vehicle_key import Signed
from recorder.recording.clip.sources import offset_ns
from recorder.session import layout
from recorder.session.journal.digests import digest_leaf, prove_range, zero_ranges
from recorder.session.journal.journal import JournalFollower
from recorder.session.journal.packed_channels import (
    RecordedData,
    RecordedFile,
    find_packed,
    open_recorded,
)
from recorder.session.journal.state import JournalState
from recorder.session.session_part import SessionPart
from recorder.session.stream import Stream

_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class _Copy:
    """Bytes of a source's file that the clip contains; without `more`, they can be divided."""

    start: int
    stop: int
    file: int
    at: int
    count: int
    more: tuple[int, ...] = ()

    def part(self, start: int, stop: int) -> Piece | None:
        """Return the piece for the bytes [start, stop) of the source; None if it has none."""
        if STORED in self.more:
            whole = (start, stop) == (self.start, self.stop)
            return [self.file, self.at, self.count, *self.more] if whole else None
        return [self.file, self.at + start - self.start, stop - start, *self.more]


class OriginProver:
    """Builder of the proof of one source of a clip.

    Args:
        source: the part of the source session in the clip.
        rows: all leaves of the source's journal.
        state: the last state of the journal.
        groups: by stream, the committed groups of the samples in the clip.
        spans: by stream, the indices in the source of the samples in the clip.
        beside: by stream, indices of the leaves of ``t_mono`` that hold the stamps of the samples
            directly before and after the clip.
    """

    def __init__(
        self,
        source: SessionPart,
        rows: Sequence[Row],
        state: JournalState,
        groups: Mapping[str, Sequence[Group]],
        spans: Mapping[str, range],
        beside: Mapping[str, Sequence[int]],
    ) -> None:
        self._source, self._rows, self._state, self._groups = source, rows, state, groups
        self._spans, self._beside = spans, beside
        self._packed = find_packed(source.path, state.packed)
        self._sources: dict[str, RecordedFile] = {}
        self._files: list[str] = []

    @classmethod
    def create(
        cls, source: SessionPart, names: Sequence[str], signed: Mapping[str, Any] | None, clock: int
    ) -> OriginProver | None:
        """Create the prover of a source; None if signature and digests do not cover its samples.

        Args:
            source: the part of the source session in the clip.
            names: the clip's streams.
            signed: the source's last signature; None if it is not signed.
            clock: the clip's offset from ``t_mono`` to ``ts``, ns.
        """
        if signed is None or offset_ns(source.whole) != clock:
            return None
        rows: list[Row] = []
        journal = JournalFollower(layout.private(source.path, layout.JOURNAL))
        for frame, content in journal.read():
            if frame.kind == "commit":
                rows += content.get("leaves", ())
        state = journal.state
        if state.tree.root.hex() != Signed.from_record(signed).values.get("root"):
            return None
        if state.tree.size != len(rows):  # a damaged record
            return None
        groups, spans, beside = {}, {}, {}
        for name in names:
            if not (count := len(source.whole.streams.get(name, ()))):
                continue
            span = spans[name] = _find_samples(source, name)
            around = [k for k in (span.start - 1, span.stop) if 0 <= k < count]
            try:
                committed = group_samples(rows, name)
                if span:
                    groups[name] = select_groups(committed, span.start, span.stop)
                beside[name] = [
                    _find_stamp_leaf(committed, rows, name, sample) for sample in around
                ]
            except FormatError:  # the digests do not cover these samples
                return None
        return cls(source, rows, state, groups, spans, beside)

    def write(self, clip: Path, file: AppendFile, firsts: Mapping[str, int]) -> None:
        """Write the proof.

        Args:
            clip: the clip's folder, with the samples.
            file: the file to which the proof is appended.
            firsts: by stream, index in the clip of this source's first sample.
        """
        used = [group for groups in self._groups.values() for group in groups]
        numbers = {n for group in used for own in group.files.values() for n in own}
        start, stop = min(numbers), max(numbers) + 1
        digests = [digest_leaf(path, leaf) for path, leaf in self._rows]
        spans = {
            name: (firsts.get(name, 0), span.start, len(span)) for name, span in self._spans.items()
        }
        nodes = prove_range(digests, start, stop)
        table = OriginProof(len(digests), start, list(self._rows[start:stop]), nodes, spans)
        for name, leaves in self._beside.items():
            table.edges[name] = [self._make_edge(number, digests) for number in sorted(set(leaves))]
        self._files = table.files
        own = self._get_number(f"{layout.PRIVATE}/{file.path.name}")
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [each.close() for each in self._sources.values()])
            for name, groups in self._groups.items():
                copies = self._find_copies(clip, name, spans[name])
                for number in sorted(n for g in groups for own in g.files.values() for n in own):
                    path, leaf = self._rows[number]
                    found = copies.get(path, [])
                    pieces = self._find_pieces(path, leaf.start, leaf.end, found, file, own)
                    table.pieces[number - start] = list(pieces)
        file.append(table.encode())

    def _make_edge(self, number: int, digests: Sequence[bytes]) -> Edge:
        path, leaf = self._rows[number]
        with (self._source.path / path).open("rb") as file:
            data = read_exactly(file, leaf.start, leaf.end - leaf.start)
        return Edge(number, leaf.start, data, prove_range(digests, number, number + 1))

    def _get_number(self, path: str) -> int:
        """Return the index of a clip's file in the proof's file list; add the file if it is new."""
        if path not in self._files:
            self._files.append(path)
        return self._files.index(path)

    def _find_pieces(
        self, path: str, start: int, stop: int, copies: Sequence[_Copy], file: AppendFile, own: int
    ) -> Iterator[Piece]:
        """Yield where the clip has the bytes of a leaf; append missing bytes to the proof."""
        at = start
        first = max(0, bisect_right(copies, start, key=lambda copy: copy.start) - 1)
        for copy in map(copies.__getitem__, range(first, len(copies))):
            if copy.start >= stop:
                break
            begin, end = max(at, copy.start), min(stop, copy.stop)
            if begin < end and (piece := copy.part(begin, end)) is not None:
                if at < begin:
                    yield self._append_literal(path, at, begin, file, own)
                yield piece
                at = end
        if at < stop:
            yield self._append_literal(path, at, stop, file, own)

    def _append_literal(
        self, path: str, start: int, stop: int, file: AppendFile, own: int
    ) -> Piece:
        if path not in self._sources:
            self._sources[path] = open_recorded(
                self._source.path, path, self._packed, self._state.specs
            )
        ranges, offset = self._state.patchable.get(path, ()), file.length
        while start < stop:
            data = read_exactly(self._sources[path], start, min(_BLOCK, stop - start))
            if not data:  # the source is damaged: verification reports the place
                break
            file.append(zero_ranges(data, start, ranges))
            start += len(data)
        return [own, offset, file.length - offset]

    def _find_copies(
        self, clip: Path, name: str, span: tuple[int, int, int]
    ) -> dict[str, list[_Copy]]:
        """Return, by path, the bytes of a stream's files that the clip contains."""
        first, theirs, count = span
        whole, copies = self._source.whole.streams[name], {}
        with contextlib.closing(Stream(clip / name, partial=True)) as made:
            for channel, meta in whole.meta.items():
                path, reader = f"{name}/{channel}", made.channels[channel]
                if path in self._packed:
                    kept = self._packed[path].kept
                    spec = self._state.specs[name].channel(channel)
                    with RecordedData(whole.path, spec, kept) as data:
                        ends = data.ends[theirs : theirs + count + 1]
                    copies[path] = list(self._find_packed(path, ends, kept, reader, span))
                    continue
                source = whole.channels[channel].units(theirs, theirs + count)
                target = reader.units(first, first + count)
                copies[path] = list(self._find_same_runs(path, source, target, span))
                if (shape := INDEXED.get(meta["format"])) is not None and len(source):
                    (values, head), index = shape, channel_files(channel, meta["format"])[1]
                    row = 8 * values
                    begin, at = row * (theirs + head), row * (first + head)
                    more = (values, int(source[0, 2] - target[0, 2]))
                    number, size = self._get_number(f"{name}/{index}"), row * count
                    copies[f"{name}/{index}"] = [_Copy(begin, begin + size, number, at, size, more)]
        return copies

    def _find_same_runs(
        self, path: str, source: Any, target: Any, span: tuple[int, int, int]
    ) -> Iterator[_Copy]:
        """Yield the runs of bytes that both files contain."""
        first, theirs, _ = span
        _, one, other = np.intersect1d(
            source[:, 0] - theirs, target[:, 0] - first, return_indices=True
        )
        same = (source[one][:, [1, 3]] == target[other][:, [1, 3]]).all(axis=1)
        same &= source[one][:, 3] > 0
        begins, ats, sizes = source[one][same, 2], target[other][same, 2], source[one][same, 3]
        breaks = (begins[1:] != (begins + sizes)[:-1]) | (ats[1:] != (ats + sizes)[:-1])
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(sizes)]
        for low, high in pairwise(edges):
            if low < high:
                begin, size = int(begins[low]), int(sizes[low:high].sum())
                yield _Copy(begin, begin + size, self._get_number(path), int(ats[low]), size)

    def _find_packed(
        self,
        path: str,
        ends: Any,
        kept: Sequence[tuple[int, int]],
        reader: ChannelReader,
        span: tuple[int, int, int],
    ) -> Iterator[_Copy]:
        """Yield the recorded bytes of a channel that was packed after the session, by sample."""
        first, theirs, count = span
        number, places = self._get_number(path), reader.units(first, first + count)
        for k in range(count):
            start, stop = int(ends[k]), int(ends[k + 1])
            if any(low <= theirs + k < high for low, high in kept):
                yield _Copy(start, stop, number, int(places[k, 2]), int(places[k, 3]))
            else:
                yield _Copy(start, stop, number, first + k, 1, (STORED,))


def _find_samples(source: SessionPart, name: str) -> range:
    """Return the range of a stream's samples in the clip; without one, its empty place."""
    if (stream := source.streams.get(name)) is not None:
        return range(stream.first, stream.first + len(stream))
    return source.whole.streams[name].between(*source.interval_ns)


def _find_stamp_leaf(
    committed: Sequence[Group], rows: Sequence[Row], name: str, sample: int
) -> int:
    """Return the index of the ``t_mono`` leaf with a sample's stamp; FormatError without one."""
    for group in select_groups(committed, sample, sample + 1):
        for number in group.files.get(f"{name}/t_mono", ()):
            leaf = rows[number][1]
            if leaf.start <= STAMP_BYTES * sample < leaf.end:
                return number
    raise FormatError(f"no digests of sample {sample}")
