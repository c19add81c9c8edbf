"""The proof of a clip: a session by itself, whose samples are those of the sessions it names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from recorder.contract.errors import RecorderError
from recorder.contract.streams import TIME_CHANNELS
from recorder.custody.archives import FindSource, check_source
from recorder.custody.origins import check_origins
from recorder.custody.proof import Proof, Trust
from recorder.session.reader import Session
from recorder.session.stream import Stream

_WINDOW: Final = 256  # samples


def check_clip(proof: Proof, trust: Trust, find: FindSource) -> None:
    """Check what a clip was made from.

    Args:
        proof: of the clip as a session.
        trust: the keys.
        find: gives the sessions.
    """
    proof.kind = "clip"
    try:
        with Session(proof.path) as clip:
            origins = ((clip.header or {}).get("origin") or {}).get("sessions") or []
            sources = []
            for origin in origins:
                if "head" not in origin:
                    text = "an earlier version cut it, which did not record the journal's head"
                    proof.unproven.append(f"made from {origin.get('name')}: {text}")
                    continue
                found = check_source(proof, {"session": origin["name"], **origin}, trust, find)
                sources += [] if found is None else [found]
            if sources and len(sources) == len(origins):
                _compare(clip, sources, proof)
            elif any("proof" in origin for origin in origins) and check_origins(
                clip, origins, trust, proof
            ):
                pass
            elif trust.fingerprints and not proof.signatures and not proof.faults:
                text = "is not signed, and not all sessions that it was cut from are here"
                proof.faults.append(f"{proof.path}: {text}; --sources names their folder")
    except (RecorderError, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        proof.faults.append(f"{proof.path}: cannot be compared with its source: {error}")


def _compare(clip: Session, sources: Sequence[Proof], proof: Proof) -> None:
    if (odd := _odd_file(clip, sources)) is not None:
        proof.faults.append(f"{odd}: is not that of its sources")
        return
    count = 0
    with_streams = [Session(source.path) for source in sources]
    try:
        for name, stream in clip.streams.items():
            left = np.ones(len(stream), bool)
            stamps = stream.channels["t_mono"].read(0, len(stream))
            for source in with_streams:
                if name not in source.streams:
                    continue
                whole = source.streams[name]
                known = whole.channels["t_mono"].read(0, len(whole))
                at = np.searchsorted(known, stamps)
                inside = at < len(known)
                inside[inside] = known[at[inside]] == stamps[inside]
                taken = np.flatnonzero(inside)
                if (jumps := np.flatnonzero(np.diff(at[taken]) != 1)).size:
                    one, other = at[taken[jumps[0]]], at[taken[jumps[0] + 1]]
                    text = f"sample {taken[jumps[0] + 1]} does not follow the one before it: in"
                    text += f" {whole.path} these are samples {one} and {other}"
                    proof.faults.append(f"{stream.path}: {text}")
                    return
                for first in range(0, len(stream), _WINDOW):
                    chosen = np.flatnonzero(inside[first : first + _WINDOW]) + first
                    if len(chosen) and (k := _differs(stream, chosen, whole, at[chosen])) >= 0:
                        text = f"sample {k} is not that of {whole.path}"
                        proof.faults.append(f"{stream.path}: {text}")
                        return
                left &= ~inside
            if left.any():
                first = int(np.flatnonzero(left)[0])
                proof.faults.append(f"{stream.path}: sample {first} is in none of its sources")
                return
            count += len(stream)
    finally:
        for source in with_streams:
            source.close()
    proof.proven.append(f"its {count} samples are those of its sources, byte for byte")


def _odd_file(clip: Session, sources: Sequence[Proof]) -> Path | None:
    """The first file of metadata that is in none of the sources."""
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


def _differs(one: Stream, at: Any, other: Stream, there: Any) -> int:
    """The first sample of a stream that differs from that of another one; -1 if none does."""
    names = [n for n in TIME_CHANNELS if n in one.meta] + list(one.data_channels)
    for k, m in zip(at.tolist(), there.tolist(), strict=True):
        for name in names:
            if _bytes(one, name, k) != _bytes(other, name, m):
                return int(k)
    return -1


def _bytes(stream: Stream, name: str, k: int) -> bytes:
    reader = stream.channels[name]
    if name in TIME_CHANNELS or stream.meta[name]["format"] in ("raw", "lzma"):
        values: bytes = np.ascontiguousarray(reader.read(k, k + 1)).tobytes()
        return values
    return bytes(reader.encoded(k))
