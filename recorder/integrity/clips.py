"""Verification of a clip: a session whose samples come from the sessions that it names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from recorder.codecs.streams import TIME_CHANNELS
from recorder.common.errors import FormatError, RecorderError
from recorder.integrity.claims import NOT_COMPARED, Claim, SourceSpan
from recorder.integrity.origins import check_origins
from recorder.integrity.proof import Proof, Trust
from recorder.integrity.sources import FindSource, check_source
from recorder.session.reader import Session
from recorder.session.stream import Stream

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
            if len(chosen) and (k := _find_difference(stream, chosen, whole, at[chosen])) >= 0:
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


def _find_difference(one: Stream, at: Any, other: Stream, there: Any) -> int:
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
