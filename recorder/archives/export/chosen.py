"""Selection of the samples of an export, and the record of samples that cannot be read."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from recorder.common.errors import RecorderError, SessionError
from recorder.session.part import Moment
from recorder.session.reader import Session
from recorder.session.session_part import stream_part
from recorder.session.stream import BATCH_BYTES, BATCH_SAMPLES, Stream

T = TypeVar("T")

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


def read_parts(
    read: Callable[[int, int], T], indices: Sequence[int], fail: Callable[[int, Exception], object]
) -> Iterator[tuple[int, T]]:
    """Read samples together, or one by one where some of them cannot be read.

    Args:
        read: reads the samples from one index up to another.
        indices: of the samples, rising; one or more.
        fail: called with each sample that cannot be read.

    Yields:
        index of the first sample of a part, and what `read` returned.
    """
    first, last = indices[0], indices[-1]
    if last - first == len(indices) - 1:
        try:
            yield first, read(first, last + 1)
            return
        except (RecorderError, OSError):
            pass  # sample by sample, to find the damaged ones
    for index in indices:
        try:
            part = read(index, index + 1)
        except (RecorderError, OSError) as error:
            fail(index, error)
        else:
            yield index, part


def blocks(indices: Sequence[int], sample_bytes: int) -> Iterator[Sequence[int]]:
    """Divide indices into blocks of about a megabyte of samples."""
    step = max(1, min(BATCH_SAMPLES, BATCH_BYTES // max(1, sample_bytes)))
    return (indices[at : at + step] for at in range(0, len(indices), step))
