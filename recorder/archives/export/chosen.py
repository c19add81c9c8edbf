"""Selection of the samples of an export, and the record of samples that cannot be read."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import RecorderError, SessionError
from recorder.session.part import Moment
from recorder.session.reader import Session
from recorder.session.session_part import stream_part
from recorder.session.stream import BATCH_BYTES, BATCH_SAMPLES, Stream

MOST_PROBLEMS = 100
"""Largest number of problems that are listed one by one."""


class Damage:
    """Record of the samples that are left out, with the first `MOST_PROBLEMS` problems.

    Attributes:
        count: number of samples left out.
        problems: one sentence each, with path and sample.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._left_out: set[int] = set()
        self.count = 0
        self.problems: list[str] = []

    def add(self, index: int, error: Exception) -> None:
        """Leave out a sample of the stream, because of an error."""
        if index in self._left_out:
            return
        self._left_out.add(index)
        self.count += 1
        at = f"sample {self._stream.first + index}"
        text = str(error)
        if isinstance(error, OSError):
            text = f"{self._stream.path}: {at}: {error.strerror or error}"
        elif at not in text:
            text = f"{self._stream.path}: {at}: {text}"
        self._note(text)

    def miss(self, count: int, text: str) -> None:
        """Count samples that a channel does not have."""
        self.count += count
        self._note(text)

    def _note(self, text: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)


def with_channels(stream: Stream, names: Collection[str]) -> Stream:
    """Return the same stream without other channels, so that their damage does not matter."""
    made = copy.copy(stream)
    made.meta = {name: entry for name, entry in stream.meta.items() if name in names}
    made.whole, made._length = made, None
    return made


def chosen_part(
    session: Session, stream: Stream, begin: Moment | None, end: Moment | None
) -> Stream:
    """Return the samples of a stream with stamps in the half-open interval.

    Raises:
        SessionError: the interval has no sample, or the stream has no times.
        FormatError: a channel is missing or damaged.
    """
    begin_ns = None if begin is None else begin.in_session(session)
    end_ns = None if end is None else end.in_session(session)
    inside = range(len(stream))
    if begin_ns is not None or end_ns is not None:
        inside = stream.between(begin_ns, end_ns)
    if not inside:
        raise SessionError(f"{stream.path}: {_describe_extent(session, stream)}")
    return stream_part(stream, inside.start, inside.stop)


def _describe_extent(session: Session, stream: Stream) -> str:
    """Describe why no sample was chosen."""
    if not len(stream):
        return "has no sample"
    start_ns = session.start_ns or 0
    ends = (float(stream.t_ns[k] - start_ns) * 1e-9 for k in (0, -1))
    first, last = (f"{seconds:.3f}" for seconds in ends)
    return f"has no sample in this interval; its samples are from {first} s to {last} s"


def lengths_agree(stream: Stream, damage: Damage) -> None:
    """Count samples at the end of a closed stream that some channels have and others lack."""
    lengths = {name: len(stream.channels[name]) for name in stream.meta}
    for name, length in lengths.items():
        lost = max(lengths.values()) - length
        if lost and length == len(stream):
            path = stream.path / name
            damage.miss(lost, f"{path}: ends after sample {length - 1}; {lost} more were recorded")
            return


@dataclass(frozen=True, slots=True)
class Block:
    """Samples of a stream, n > 0.

    Attributes:
        indices: int [n], rising.
        t_ns: int64 [n], epoch ns; None if the stream has no times.
        data: for each channel an array [n, *shape].
    """

    indices: list[int]
    t_ns: npt.NDArray[np.int64] | None
    data: Mapping[str, npt.NDArray[Any]]


def read_blocks(
    stream: Stream, indices: range, names: Sequence[str], damage: Damage
) -> Iterator[Block]:
    """Yield samples in blocks of about a megabyte; leave out samples that cannot be read.

    Args:
        stream: the stream.
        indices: of the samples, rising.
        names: of the channels.
        damage: receives the samples that are left out.
    """
    size = sum(stream.channels[name].sample_bytes for name in names)
    step = max(1, min(BATCH_SAMPLES, BATCH_BYTES // max(1, size)))
    for at in range(0, len(indices), step):
        block = indices[at : at + step]
        if block.step == 1:
            try:
                yield _read_block(stream, block, names)
                continue
            except (RecorderError, OSError):
                pass  # sample by sample, to find the damaged ones
        found = []
        for index in block:
            try:
                found.append(_read_block(stream, range(index, index + 1), names))
            except (RecorderError, OSError) as error:
                damage.add(index, error)
        if found:
            yield _join_blocks(found)


def _read_block(stream: Stream, block: range, names: Sequence[str]) -> Block:
    start, stop = block.start, block.stop
    t_ns = stream.times(start, stop) if stream.has_times else None
    return Block(list(block), t_ns, stream.read(start, stop, names))


def _join_blocks(blocks: Sequence[Block]) -> Block:
    times = [block.t_ns for block in blocks if block.t_ns is not None]
    return Block(
        [index for block in blocks for index in block.indices],
        np.concatenate(times) if times else None,
        {name: np.concatenate([b.data[name] for b in blocks]) for name in blocks[0].data},
    )
