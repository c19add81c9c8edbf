"""Verification of a clip: a session whose samples come from the sessions that it names.

A `Claim` is the clip's statement about itself: its interval, its streams and its source sessions.
Samples are compared with the sources, or proven by the signatures of sources that are not
available (`recorder.integrity.origin_proof`).
"""

from __future__ import annotations

import contextlib
import lzma
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs import channel_files
from recorder.codecs.storage import ChannelReader
from recorder.codecs.storage.avi import CHUNK, FRAME_ID, LIST
from recorder.codecs.streams import TIME_CHANNELS
from recorder.codecs.xz import decompress
from recorder.common.errors import FormatError, RecorderError
from recorder.common.text_format import format_time
from recorder.integrity.origin_proof import (
    INDEXED,
    Group,
    OriginProof,
    Rebuilding,
    group_samples,
    select_groups,
)
from recorder.integrity.proof import FindSource, Proof, Trust, add_time, check_source
from recorder.integrity.signatures import digest_metadata
from recorder.integrity.vehicle_key import Signed
from recorder.session import layout
from recorder.session.journal.digests import digest
from recorder.session.journal.journal import read_journal
from recorder.session.journal.packed_channels import find_packed, open_recorded
from recorder.session.reader import Session
from recorder.session.stream import Stream

_CALIBRATION: Final = "calibration.yaml"
NOT_COMPARED: Final = "events, log, session.vrs and what else session.json has: nothing proves them"


@dataclass(frozen=True)
class SourceSpan:
    """The samples of one stream of a source that are in a clip.

    Attributes:
        source: names the stream.
        span: the samples in the source; an empty range at their place if there are none.
        count: all samples of the source's stream.
        stamp: returns the epoch ns of a sample of the source; FormatError.
    """

    source: Path | str
    span: range
    count: int
    stamp: Callable[[int], int]


@dataclass(frozen=True)
class Claim:
    """The statement of a clip about itself, before any part of it is checked.

    Attributes:
        clip: the clip.
        origins: entries of its sources by time, as in ``session.json``.
        statements: the signed statements of the sources; None for a source without a signature.
        interval_ns: half-open, epoch ns; None: from the beginning of the first source, to the end
            of the last one.
        streams: names of its streams; None: all that its sources have.
        lead_in: by stream, samples from before the interval.
    """

    clip: Session
    origins: Sequence[Mapping[str, Any]]
    statements: Sequence[Mapping[str, Any] | None]
    interval_ns: tuple[int | None, int | None]
    streams: frozenset[str] | None
    lead_in: Mapping[str, int]

    @classmethod
    def read(cls, clip: Session) -> Claim:
        """Read the claim of a clip.

        Raises:
            FormatError, LookupError, TypeError, ValueError: the clip has no valid claim.
        """
        origin = (clip.header or {})["origin"]
        origins = list(origin["sessions"])
        if not origins:
            raise FormatError("it names no session that it was made from")
        signed = [origin["signed"] for origin in origins]
        statements = [s and Signed.from_record(s).values for s in signed]
        begin_ns, end_ns = (
            None if origin[key] is None else int(origin[key]) for key in ("from_ns", "until_ns")
        )
        streams = origin["streams"]
        lead_in = {str(name): int(count) for name, count in origin.get("lead_in", {}).items()}
        chosen = None if streams is None else frozenset(streams)
        return cls(clip, origins, statements, (begin_ns, end_ns), chosen, lead_in)

    def describe(self) -> str:
        """Describe the interval and the streams for people."""
        begin_ns, end_ns = self.interval_ns
        words = ["from the beginning" if begin_ns is None else f"from {format_time(begin_ns)}"]
        words.append("to the end" if end_ns is None else f"until {format_time(end_ns)}")
        if self.streams is not None:
            words.append(f"of the streams {', '.join(sorted(self.streams))}; others are not in it")
        return " ".join(words)

    def find_faults(self) -> Iterator[str]:
        """Yield contradictions between the clip and the statements that the signatures cover."""
        path, own = self.clip.path, {n for n, s in self.clip.streams.items() if len(s)}
        if not own:
            yield f"{path}: has no sample"
        if self.streams is not None and own != self.streams:
            different = ", ".join(sorted(own ^ self.streams))
            yield f"{path}: has other streams than it states: {different}"
        roots = [origin["root"] for origin in self.origins]
        for origin in self.origins:
            if roots.count(origin["root"]) > 1:
                yield f"{path}: names the session {origin['name']} twice"
                return
        for statement, origin in zip(self.statements, self.origins, strict=True):
            theirs = set() if statement is None else set(statement["samples"])
            if self.streams is None and (lost := theirs - own):
                text = f"lacks the streams {', '.join(sorted(lost))} of {origin['name']}"
                yield f"{path}: {text}, and states that it has all"
        for one, other in pairwise(range(len(self.origins))):
            statement, after = self.statements[one], self.statements[other]
            if statement is None or after is None or statement["next"] is None:
                continue
            following = {"session": self.origins[other]["name"], "first": after["first"]}
            if statement["next"] != following:
                text = f"{self.origins[one]['name']} is continued by {statement['next']['session']}"
                yield f"{path}: {text}, which is left out"
        if all(self.statements):
            yield from self._check_files([s for s in self.statements if s is not None])
            yield from self._check_times([s for s in self.statements if s is not None])

    def _check_files(self, statements: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        path = self.clip.path
        names = {"config.yaml", _CALIBRATION}
        names |= {f"{n}/{p.name}" for n in self.clip.streams for p in (path / n).glob("*.json")}
        for name in sorted(names):
            theirs = [s["files"][name] for s in statements if name in s["files"]]
            if not (path / name).is_file():
                if theirs:
                    yield f"{path / name}: is missing; its sources have it"
            elif not theirs and name == _CALIBRATION:
                continue  # added to the source after its recording; `find_gaps` reports it
            elif digest((path / name).read_bytes()).hex() not in theirs:
                yield f"{path / name}: is not that of its sources"
        if digest_metadata(self.clip.header or {}) != statements[0]["metadata"]:
            yield f"{path}: its metadata are not those of {self.origins[0]['name']}"

    def _check_times(self, statements: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        header, (begin_ns, end_ns) = self.clip.header or {}, self.interval_ns
        path, name = self.clip.path, self.origins[0]["name"]
        if header["start_ns"] - header["start_mono_ns"] != statements[0]["clock_ns"]:
            yield f"{path}: its clock is not that of {name}: times are shifted"
        start_ns = min(statement["start_ns"] for statement in statements)
        last_ns = max(statement["end_ns"] for statement in statements)
        if (begin_ns is not None and begin_ns < start_ns) or (
            end_ns is not None and end_ns > last_ns
        ):
            yield f"{path}: states an interval that reaches beyond its sources"
        start_ns = start_ns if begin_ns is None else max(begin_ns, start_ns)
        last_ns = last_ns if end_ns is None else min(end_ns, last_ns)
        if (header["start_ns"], header["end_ns"]) != (start_ns, last_ns):
            yield f"{path}: begins or ends at another time than the interval that it states"

    def find_gaps(self) -> Iterator[str]:
        """Yield a line for each fact that the sources' signatures do not prove."""
        signed = [statement for statement in self.statements if statement is not None]
        if (self.clip.path / _CALIBRATION).exists() and not any(
            _CALIBRATION in statement["files"] for statement in signed
        ):
            yield f"{_CALIBRATION}: its sources had none when they were recorded"
        for one, other in pairwise(range(len(self.origins))):
            statement = self.statements[one]
            if statement is None or statement["next"] is None:
                before, after = (self.origins[k]["name"] for k in (one, other))
                text = f"{after} does not continue {before}: what was recorded between them"
                yield f"{text} is not in the clip"

    def check_span(self, place: Path, taken: SourceSpan) -> None:
        """Check that a clip has all samples of a source's stream that lie in its interval.

        Args:
            place: the clip's stream.
            taken: the source's samples that the clip has.

        Raises:
            FormatError: one is missing, or lies outside.
        """
        (begin_ns, end_ns), span = self.interval_ns, taken.span
        lead_in = self.lead_in.get(place.name, 0)
        if span.start > 0 and (begin_ns is None or taken.stamp(span.start - 1) >= begin_ns):
            self._fail(place, f"lacks the samples before sample {span.start} of {taken.source}")
        if span.stop < taken.count and (end_ns is None or taken.stamp(span.stop) < end_ns):
            self._fail(place, f"lacks the samples from sample {span.stop} of {taken.source} on")
        if not span:
            return
        inside = min(span.start + lead_in, span.stop - 1)
        early = begin_ns is not None and taken.stamp(inside) < begin_ns
        if early or (end_ns is not None and taken.stamp(span.stop - 1) >= end_ns):
            self._fail(place, f"has samples of {taken.source} from outside of it")

    def _fail(self, place: Path, text: str) -> None:
        raise FormatError(f"{place}: {text}; it states that it is whole {self.describe()}")


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
            proof.faults.append(add_time(clip.streams[name], k, f"{clip.path / name}: {text}"))
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
                yield add_time(self._clip.streams[name], 0, text)

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
            yield add_time(stream, first, f"{stream.path}: {error} of {self._name}")
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
                    yield add_time(stream, at, f"{stream.path / channel}: {text}")
                    return
            left[at:end] = False


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
            sizes = _read_sizes(reader.format, (at, at + len(data)), *index[0], group.start)
    if len(sizes) != count or sum(sizes) != len(data):
        raise FormatError(f"{len(data)} bytes were recorded, not {count} samples")
    ends = np.cumsum([0, *sizes]).tolist()
    return [data[low:high] for low, high in pairwise(ends)]


def _read_sizes(
    format_: str, span: tuple[int, int], offset: int, index: bytes, first: int
) -> list[int]:
    """Return the size in bytes of each sample from `first` on, by the rows of an index.

    Args:
        format_: the channel's format.
        span: start and end of the samples in the data file.
        offset: place of the rows in the index.
        index: the rows.
        first: index of the first sample.
    """
    values, head = INDEXED[format_]
    begin = 8 * values * (first + head) if first else 0
    rows = np.frombuffer(index, "<u8").reshape(-1, values)[0 if first else head :]
    if offset != begin:
        raise FormatError("the digests of its index begin elsewhere")
    if format_ not in ("lzmaf", "points"):
        return [int(size) for size in rows[:, 1]]
    places = [int(place) for place in rows[:, 0]]
    bounds = [span[0], *places] if format_ == "lzmaf" else [*places, span[1]]
    return [end - start for start, end in pairwise(bounds)]


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


_WINDOW: Final = 256  # samples


def check_clip(proof: Proof, trust: Trust, find: FindSource) -> None:
    """Check the sources of a clip.

    Args:
        proof: of the clip as a session.
        trust: the keys.
        find: returns the proofs of the sessions.
    """
    proof.kind = "clip"
    try:
        with Session(proof.path) as clip:
            _check(clip, proof, trust, find)
    except (
        *(RecorderError, OSError, LookupError, TypeError, ValueError, AttributeError),
        ArithmeticError,
    ) as error:
        proof.faults.append(f"{proof.path}: cannot be compared with its source: {error}")


def _check(clip: Session, proof: Proof, trust: Trust, find: FindSource) -> None:
    claim = Claim.read(clip)
    before, sources = len(proof.faults), []
    for origin in claim.origins:
        values = {"session": origin["name"], **origin}
        found = check_source(proof, values, trust, find, vouched=bool(proof.signatures))
        sources += [] if found is None else [found]
    if len(proof.faults) > before:
        return
    proof.faults += claim.find_faults()
    proof.unproven += claim.find_gaps()
    if len(sources) == len(claim.origins):
        _compare(clip, claim, sources, proof)
    elif any("proof" in origin for origin in claim.origins):
        check_origins(clip, claim, trust, proof)
    elif trust.fingerprints and not proof.signatures and not proof.faults:
        text = "is not signed, and not all sessions that it was cut from are here"
        proof.faults.append(f"{proof.path}: {text}; --sources names their folder")


def _compare(clip: Session, claim: Claim, sources: Sequence[Proof], proof: Proof) -> None:
    """Compare a clip with its sources, by time."""
    if not all(claim.statements) and (foreign := _find_foreign_file(clip, sources)) is not None:
        proof.faults.append(f"{foreign}: is not that of its sources")
        return
    opened = [Session(source.path) for source in sources]
    try:
        count = sum(_compare_stream(stream, opened, claim) for name, stream in clip.streams.items())
        for source in opened:
            _check_left_out(clip, claim, source)
    except FormatError as error:
        proof.faults.append(str(error))
        return
    finally:
        for source in opened:
            source.close()
    proof.proven.append(f"no sample is left out {claim.describe()}")
    proof.proven.append(f"its {count} samples are those of its sources, byte for byte")
    proof.unproven.append(NOT_COMPARED)


def _compare_stream(stream: Stream, sources: Sequence[Session], claim: Claim) -> int:
    """Compare a stream with those of the sources; return the number of its samples.

    Raises:
        FormatError: a sample differs, or is missing.
    """
    left = np.ones(len(stream), bool)
    parts: list[SourceSpan] = []
    stamps = stream.channels["t_mono"].read(0, len(stream))
    for source in sources:
        if stream.name not in source.streams:
            continue
        whole = source.streams[stream.name]
        known = whole.channels["t_mono"].read(0, len(whole))
        at = np.searchsorted(known, stamps)
        inside = at < len(known)
        inside[inside] = known[at[inside]] == stamps[inside]
        taken = np.flatnonzero(inside)
        if (jumps := np.flatnonzero(np.diff(at[taken]) != 1)).size:
            one, other = at[taken[jumps[0]]], at[taken[jumps[0] + 1]]
            text = f"sample {taken[jumps[0] + 1]} does not follow the one before it: in"
            text += f" {whole.path} these are samples {one} and {other}"
            raise FormatError(f"{stream.path}: {text}")
        for first in range(0, len(stream), _WINDOW):
            chosen = np.flatnonzero(inside[first : first + _WINDOW]) + first
            if len(chosen) and (k := _find_changed_sample(stream, chosen, whole, at[chosen])) >= 0:
                raise FormatError(f"{stream.path}: sample {k} is not that of {whole.path}")
        span = whole.between(*claim.interval_ns)[:0]
        if len(taken):
            span = range(int(at[taken[0]]), int(at[taken[-1]]) + 1)
        parts.append(SourceSpan(whole.path, span, len(whole), _create_stamp_reader(whole)))
        left &= ~inside
    if left.any():
        first = int(np.flatnonzero(left)[0])
        raise FormatError(f"{stream.path}: sample {first} is in none of its sources")
    for part in parts:
        claim.check_span(stream.path, part)
    return len(stream)


def _create_stamp_reader(stream: Stream) -> Any:
    return lambda sample: int(stream.times(sample, sample + 1)[0])


def _check_left_out(clip: Session, claim: Claim, source: Session) -> None:
    """Check that a clip of all streams lacks no stream of its source; see `Claim.find_faults`.

    Raises:
        FormatError: a stream is missing.
    """
    if claim.streams is not None or all(claim.statements):
        return
    for name, stream in source.streams.items():
        if not name.startswith("_") and len(stream) and name not in clip.streams:
            raise FormatError(f"{clip.path}: lacks the stream {name}, which {source.path} has")


def _find_foreign_file(clip: Session, sources: Sequence[Proof]) -> Path | None:
    """Return the first file of metadata that equals that of no source; None if all have one."""
    names = ["config.yaml", "calibration.yaml"]
    names += [f"{n}/{p.name}" for n in clip.streams for p in (clip.path / n).glob("*.json")]
    for name in names:
        path = clip.path / name
        theirs = [
            Path(source.path) / name for source in sources if (Path(source.path) / name).is_file()
        ]
        if path.is_file() and all(path.read_bytes() != p.read_bytes() for p in theirs):
            return path
    return None


def _find_changed_sample(one: Stream, at: Any, other: Stream, there: Any) -> int:
    """Return the first sample of a stream that differs from another stream's; -1 if none does."""
    names = [n for n in TIME_CHANNELS if n in one.meta] + list(one.data_channels)
    for k, m in zip(at.tolist(), there.tolist(), strict=True):
        for name in names:
            if _read_bytes(one, name, k) != _read_bytes(other, name, m):
                return int(k)
    return -1


def _read_bytes(stream: Stream, name: str, k: int) -> bytes:
    reader = stream.channels[name]
    if name in TIME_CHANNELS or stream.meta[name]["format"] in ("raw", "lzma"):
        values: bytes = np.ascontiguousarray(reader.read(k, k + 1)).tobytes()
        return values
    return bytes(reader.encoded(k))
