"""Proof of a clip's samples by the signatures of source sessions that are not available."""

from __future__ import annotations

import contextlib
import lzma
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs import channel_files
from recorder.codecs.storage import ChannelReader
from recorder.codecs.storage.avi import CHUNK, FRAME_ID, LIST
from recorder.codecs.xz import decompress
from recorder.common.errors import FormatError, RecorderError
from recorder.common.text_format import human_time
from recorder.integrity.claims import NOT_COMPARED, Claim, SourceSpan
from recorder.integrity.origin_proof import (
    INDEXED,
    Group,
    OriginProof,
    Rebuilding,
    group_samples,
    select_groups,
)
from recorder.integrity.proof import Proof, Trust
from recorder.integrity.vehicle_key import Signed
from recorder.session import layout
from recorder.session.journal.journal import read_journal
from recorder.session.journal.packed_channels import find_packed, open_recorded
from recorder.session.reader import Session
from recorder.session.stream import Stream

_NAME: Final = re.compile(r"origin-\d+\.proof")
_LOST: Final = (
    *(FormatError, OSError, LookupError, TypeError, ValueError, AttributeError),
    *(ArithmeticError, struct.error, lzma.LZMAError),
)


def check_origins(clip: Session, claim: Claim, trust: Trust, proof: Proof) -> None:
    """Check a clip's samples by the proofs that it carries; their signatures are checked.

    Args:
        clip: the clip.
        claim: the clip's statement about itself.
        trust: the keys.
        proof: receives the results.
    """
    before = len(proof.faults)
    left = {name: np.ones(len(stream), bool) for name, stream in clip.streams.items()}
    names, signers, whole = [], [], True
    for origin, statement in zip(claim.origins, claim.statements, strict=True):
        if "proof" in origin and statement is not None:
            names.append(str(origin["name"]))
            signed = Signed.from_record(origin["signed"])
            signers.append(trust.describe(signed))
            proof.faults += _Origin(clip, claim, origin, statement).check(left)
        elif statement is None or not left.keys().isdisjoint(statement["samples"]):
            whole = False  # it has samples of which nothing tells whether they are in the clip
    if len(proof.faults) > before:
        return
    for name, missing in left.items():
        if missing.any() and (whole or trust.fingerprints):
            k, last = np.flatnonzero(missing)[[0, -1]].tolist()
            text = f"samples {k} to {last} are not proven to be of {' or '.join(names)}"
            proof.faults.append(_add_time(clip.streams[name], k, f"{clip.path / name}: {text}"))
    if len(proof.faults) > before:
        return
    if not whole:
        text = "some sources are not here, and the clip has no proof of them"
        (proof.faults if trust.fingerprints and not proof.signatures else proof.unproven).append(
            f"{clip.path}: {text}"
        )
        return
    who = " and ".join(dict.fromkeys(signers))
    text = f"every sample of {len(left)} streams is of {', '.join(names)}, signed by {who}"
    proof.proven += [f"no sample is left out {claim.describe()}", text]
    proof.unproven.append(NOT_COMPARED)


class _Origin:
    """One source of a clip, with the proof that the clip carries of it."""

    def __init__(
        self,
        clip: Session,
        claim: Claim,
        origin: Mapping[str, Any],
        statement: Mapping[str, Any],
    ) -> None:
        self._clip, self._claim, self._statement = clip, claim, statement
        self._name, self._root = str(origin["name"]), str(origin["root"])
        self._file = str(origin["proof"])

    def check(self, left: dict[str, npt.NDArray[np.bool_]]) -> Iterator[str]:
        """Yield faults; clear the samples of each stream that are proven from `left`."""
        path = layout.private(self._clip.path, self._file)
        try:
            if not _NAME.fullmatch(self._file):
                raise FormatError(f"{self._file}: is no name of a proof")
            table = OriginProof.read(path)
            if table.root.hex() != self._root:
                raise FormatError(f"{path}: does not reach the digests that {self._name} signed")
        except (*_LOST, RecorderError) as error:
            yield from self._report_all_lost(left, error)
            return
        state = read_journal(layout.private(self._clip.path, layout.JOURNAL))
        packed = find_packed(self._clip.path, state.packed)
        committed = {name: name for name in state.files}  # no other file is opened
        rebuilding = Rebuilding(
            table,
            lambda name: open_recorded(self._clip.path, committed[name], packed, state.specs),
            self._get_reader,
        )
        with contextlib.closing(rebuilding):
            for name in sorted(left.keys() & self._statement["samples"].keys()):
                first, theirs, count = table.streams.get(name, (0, 0, 0))
                if first < 0 or theirs < 0 or not 0 <= count <= len(left[name]) - first:
                    count = 0
                try:
                    self._check_span(table, name, range(theirs, theirs + count))
                except FormatError as error:
                    yield str(error)
                    return
                if count:
                    span = first, theirs, count
                    yield from self._check_stream(table, rebuilding, name, span, left[name])

    def _check_span(self, table: OriginProof, name: str, span: range) -> None:
        """Check that the clip has all samples of its interval; FormatError."""
        clock_ns = int(self._statement["clock_ns"])
        taken = SourceSpan(
            self._name,
            span,
            int(self._statement["samples"][name]),
            lambda sample: self._read_stamp(table, name, sample) + clock_ns,
        )
        place = self._clip.path / name
        try:
            self._claim.check_span(place, taken)
        except FormatError as error:
            if str(place) in str(error):
                raise
            raise FormatError(f"{place}: {error} of {self._name}") from None

    def _read_stamp(self, table: OriginProof, name: str, sample: int) -> int:
        """Return the `t_mono` of a source's sample, from the clip or from the origin's proof."""
        first, theirs, count = table.streams.get(name, (0, 0, 0))
        if theirs <= sample < theirs + count:
            at = first + sample - theirs  # `_check_stream` compares it
            return int(self._clip.streams[name].channels["t_mono"].read(at, at + 1)[0])
        return table.stamp(name, sample)

    def _report_all_lost(
        self, left: dict[str, npt.NDArray[np.bool_]], error: Exception
    ) -> Iterator[str]:
        for name, missing in left.items():
            if len(missing):
                text = f"samples 0 to {len(missing) - 1} are not proven to be of {self._name}"
                text = f"{self._clip.path / name}: {text}: {error}"
                yield _add_time(self._clip.streams[name], 0, text)

    def _get_reader(self, path: str) -> ChannelReader:
        stream, _, channel = path.partition("/")
        return self._clip.streams[stream].channels[channel]

    def _check_stream(
        self,
        table: OriginProof,
        rebuilding: Rebuilding,
        name: str,
        span: tuple[int, int, int],
        left: npt.NDArray[np.bool_],
    ) -> Iterator[str]:
        stream, (first, theirs, count) = self._clip.streams[name], span
        known = {f for c, m in stream.meta.items() for f in channel_files(c, m["format"])}
        files = {path.partition("/")[2] for path, _ in table.rows if path.startswith(f"{name}/")}
        if files - known:
            lost = ", ".join(sorted(files - known))
            yield f"{stream.path}: lacks {lost}, which {self._name} has"
            return
        try:
            groups = select_groups(group_samples(table.rows, name), theirs, theirs + count)
        except FormatError as error:
            yield _add_time(stream, first, f"{stream.path}: {error} of {self._name}")
            return
        for group in groups:
            low, high = max(theirs, group.start), min(theirs + count, group.stop)
            at, end = first + low - theirs, first + high - theirs
            for channel in stream.meta:
                reader, start = stream.channels[channel], low - group.start
                try:
                    values = _rebuild_samples(rebuilding, name, reader, group)
                    k = _find_difference(reader, at, values[start : start + high - low])
                    why = "" if k < 0 else f": sample {k} differs"
                except _LOST as error:
                    why = f": {error}"
                if why:
                    text = f"samples {at} to {end - 1} are not proven to be of {self._name}{why}"
                    yield _add_time(stream, at, f"{stream.path / channel}: {text}")
                    return
            left[at:end] = False


def _add_time(stream: Stream, sample: int, text: str) -> str:
    """Return a fault with the time of its first sample."""
    try:
        return f"{text}, from {human_time(int(stream.times(sample, sample + 1)[0]))} on"
    except (FormatError, OSError, LookupError, ValueError):  # the times are damaged
        return text


def _find_difference(reader: ChannelReader, at: int, recorded: Sequence[bytes]) -> int:
    """Return the first sample from `at` on that differs from the recorded one; -1 if none does."""
    end = at + len(recorded)
    if reader.format in ("raw", "lzma"):
        data, size = reader.read(at, end).tobytes(), reader.sample_bytes
        if data == b"".join(recorded):
            return -1
        found = [data[k * size : (k + 1) * size] for k in range(len(recorded))]
    else:
        found = reader.encoded_range(at, end)
    for k, (mine, theirs) in enumerate(zip(found, recorded, strict=True), at):
        if mine != theirs and not (
            reader.format == "lzmaf"
            and reader[k].tobytes() == decompress(theirs, reader.sample_bytes, "the recorded one")
        ):
            return k
    return -1


def _rebuild_samples(
    rebuilding: Rebuilding, stream: str, reader: ChannelReader, group: Group
) -> list[bytes]:
    """Return the samples of a group of one channel as they were recorded.

    Raises:
        FormatError: its bytes cannot be made, or do not hold so many samples.
    """
    names = channel_files(reader.name, reader.format)
    (at, data), *index = (rebuilding.span(group.files.get(f"{stream}/{n}", [])) for n in names)
    count, size = group.stop - group.start, reader.sample_bytes
    match reader.format:
        case "raw":
            if at != group.start * size:
                raise FormatError("its digests begin inside a sample")
            sizes = [size] * count
        case "lzma":
            data, sizes = lzma.decompress(data, lzma.FORMAT_XZ), [size] * count
        case "mjpg":
            return list(_split_frames(data, at, count))
        case _:
            sizes = _read_sizes(reader.format, at, *index[0], group.start)
    if len(sizes) != count or sum(sizes) != len(data):
        raise FormatError(f"{len(data)} bytes were recorded, not {count} samples")
    ends = np.cumsum([0, *sizes]).tolist()
    return [data[low:high] for low, high in pairwise(ends)]


def _read_sizes(format_: str, at: int, offset: int, index: bytes, first: int) -> list[int]:
    """Return the size in bytes of each sample from `first` on, by the rows of an index."""
    values, head = INDEXED[format_]
    begin = 8 * values * (first + head) if first else 0
    rows = np.frombuffer(index, "<u8").reshape(-1, values)[0 if first else head :]
    if offset != begin:
        raise FormatError("the digests of its index begin elsewhere")
    if format_ != "lzmaf":
        return [int(size) for size in rows[:, 1]]
    ends = [at, *(int(end) for end in rows[:, 0])]
    return [end - start for start, end in pairwise(ends)]


def _split_frames(data: bytes, start: int, count: int) -> Iterator[bytes]:
    """Yield the JPEGs of consecutive chunks of an AVI of ours; `start` is their offset in it."""
    at = 0
    for _ in range(count):
        name, size = CHUNK.unpack_from(data, at)
        while name != FRAME_ID:
            if name == b"RIFF" or (name == b"LIST" and LIST.unpack_from(data, at)[2] == b"movi"):
                at += LIST.size
            else:
                at += CHUNK.size + size + (size & 1)
            name, size = CHUNK.unpack_from(data, at)
        at += CHUNK.size
        if at + size > len(data):
            raise FormatError(f"the frame at byte {start + at} is not whole")
        yield data[at : at + size]
        at += size + (size & 1)
