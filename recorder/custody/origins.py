"""The proof that a clip's samples are those of signed sessions that are not here."""

from __future__ import annotations

import contextlib
import lzma
import re
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.contract.channel_formats import channel_files
from recorder.contract.channel_formats.xz import decompress
from recorder.contract.errors import FormatError, RecorderError
from recorder.contract.texts import human_time
from recorder.custody.proof import Proof, Trust
from recorder.formats.roverd import ChannelReader
from recorder.formats.roverd.avi import CHUNK, FRAME_ID, LIST
from recorder.session import layout
from recorder.session.journal import read_journal
from recorder.session.origin_proof import (
    INDEXED,
    Group,
    OriginProof,
    Rebuilding,
    groups_of,
    groups_with,
)
from recorder.session.packed_channels import open_recorded, packed_in_place
from recorder.session.reader import Session
from recorder.session.stream import Stream
from recorder.session.vehicle_key import Signed

_NAME: Final = re.compile(r"origin-\d+\.proof")
_LOST: Final = (
    *(FormatError, OSError, LookupError, TypeError, ValueError, AttributeError),
    *(ArithmeticError, struct.error, lzma.LZMAError),
)


def check_origins(
    clip: Session, origins: Sequence[dict[str, Any]], trust: Trust, proof: Proof
) -> bool:
    """Check a clip's samples by the proofs that it carries.

    Args:
        clip: the clip.
        origins: of all its sources, as ``session.json`` has them.
        trust: the keys.
        proof: receives what is found.

    Returns:
        Whether every sample is proven.
    """
    before = len(proof.faults)
    roots = [origin["root"] for origin in origins if "proof" in origin]
    for origin in origins:
        if roots.count(origin.get("root")) > 1:  # else a part between two cuts is not missed
            proof.faults.append(f"{clip.path}: names the session {origin['name']} twice")
            return False
    left = {name: np.ones(len(stream), bool) for name, stream in clip.streams.items()}
    names, signers = [], []
    for origin in origins:
        if "proof" not in origin:
            continue
        names.append(str(origin["name"]))
        signed = Signed.from_record(origin["signed"])
        signers.append(trust.describe(signed))
        proof.faults += _Origin(clip, origin, signed, trust).check(left)
    if len(proof.faults) == before:
        for name, missing in left.items():
            if len(names) == len(origins) and missing.any():
                k, last = np.flatnonzero(missing)[[0, -1]].tolist()
                text = f"samples {k} to {last} are not proven to be of {' or '.join(names)}"
                proof.faults.append(_at(clip.streams[name], k, f"{clip.path / name}: {text}"))
    if len(proof.faults) > before or any(missing.any() for missing in left.values()):
        return False
    who = " and ".join(dict.fromkeys(signers))
    text = f"every sample of {len(left)} streams is of {', '.join(names)}, signed by {who}"
    proof.proven.append(text)
    text = "configuration, calibration and declarations of streams: only the sources prove them"
    proof.unproven.append(text)
    return True


class _Origin:
    """One source of a clip."""

    def __init__(self, clip: Session, origin: dict[str, Any], signed: Signed, trust: Trust) -> None:
        self._clip, self._trust, self._signed = clip, trust, signed
        self._name, self._root = str(origin["name"]), str(origin["root"])
        self._file = str(origin["proof"])

    def check(self, left: dict[str, npt.NDArray[np.bool_]]) -> Iterator[str]:
        """Faults; clears the samples of each stream that are proven."""
        path = layout.private(self._clip.path, self._file)
        said = self._signed.values
        if self._trust.why_not(self._signed) is not None or (
            (said.get("session"), said.get("root")) != (self._name, self._root)
        ):
            return  # `check_source` tells it; the samples are left
        try:
            if not _NAME.fullmatch(self._file):
                raise FormatError(f"{self._file}: is no name of a proof")
            table = OriginProof.read(path)
            if table.root.hex() != self._root:
                raise FormatError(f"{path}: does not reach the digests that {self._name} signed")
        except (*_LOST, RecorderError) as error:
            yield from self._all_lost(left, error)
            return
        state = read_journal(layout.private(self._clip.path, layout.JOURNAL))
        packed = packed_in_place(self._clip.path, state.packed)
        committed = {name: name for name in state.files}  # no other file is opened
        rebuilding = Rebuilding(
            table,
            lambda name: open_recorded(self._clip.path, committed[name], packed, state.specs),
            self._reader,
        )
        with contextlib.closing(rebuilding):
            for name, (first, theirs, count) in table.streams.items():
                if name in left and first >= 0 and 0 < count <= len(left[name]) - first:
                    span = first, theirs, count
                    yield from self._check_stream(table, rebuilding, name, span, left[name])

    def _all_lost(self, left: dict[str, npt.NDArray[np.bool_]], error: Exception) -> Iterator[str]:
        for name, missing in left.items():
            if len(missing):
                text = f"samples 0 to {len(missing) - 1} are not proven to be of {self._name}"
                text = f"{self._clip.path / name}: {text}: {error}"
                yield _at(self._clip.streams[name], 0, text)

    def _reader(self, path: str) -> ChannelReader:
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
            groups = groups_with(groups_of(table.rows, name), theirs, theirs + count)
        except FormatError as error:
            yield _at(stream, first, f"{stream.path}: {error} of {self._name}")
            return
        for group in groups:
            low, high = max(theirs, group.start), min(theirs + count, group.stop)
            at, end = first + low - theirs, first + high - theirs
            for channel in stream.meta:
                reader, start = stream.channels[channel], low - group.start
                try:
                    values = _recorded(rebuilding, name, reader, group)
                    k = _differs(reader, at, values[start : start + high - low])
                    why = "" if k < 0 else f": sample {k} differs"
                except _LOST as error:
                    why = f": {error}"
                if why:
                    text = f"samples {at} to {end - 1} are not proven to be of {self._name}{why}"
                    yield _at(stream, at, f"{stream.path / channel}: {text}")
                    return
            left[at:end] = False


def _at(stream: Stream, sample: int, text: str) -> str:
    """A fault with the time of its first sample."""
    try:
        return f"{text}, from {human_time(int(stream.times(sample, sample + 1)[0]))} on"
    except (FormatError, OSError, LookupError, ValueError):  # the times are damaged
        return text


def _differs(reader: ChannelReader, at: int, recorded: Sequence[bytes]) -> int:
    """The first sample from `at` on that is not as recorded; -1 if none is."""
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


def _recorded(
    rebuilding: Rebuilding, stream: str, reader: ChannelReader, group: Group
) -> list[bytes]:
    """The samples of a group as they were recorded, of one channel.

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
            return list(_frames(data, at, count))
        case _:
            sizes = _sizes(reader.format, at, *index[0], group.start)
    if len(sizes) != count or sum(sizes) != len(data):
        raise FormatError(f"{len(data)} bytes were recorded, not {count} samples")
    ends = np.cumsum([0, *sizes]).tolist()
    return [data[low:high] for low, high in pairwise(ends)]


def _sizes(format_: str, at: int, offset: int, index: bytes, first: int) -> list[int]:
    """Bytes of each sample from `first` on, by the rows of an index."""
    values, head = INDEXED[format_]
    begin = 8 * values * (first + head) if first else 0
    rows = np.frombuffer(index, "<u8").reshape(-1, values)[0 if first else head :]
    if offset != begin:
        raise FormatError("the digests of its index begin elsewhere")
    if format_ != "lzmaf":
        return [int(size) for size in rows[:, 1]]
    ends = [at, *(int(end) for end in rows[:, 0])]
    return [end - start for start, end in pairwise(ends)]


def _frames(data: bytes, start: int, count: int) -> Iterator[bytes]:
    """The JPEGs of consecutive chunks of an AVI of ours; `start` is their offset in the file."""
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
