"""Recovery of ``session.vrs``: the file is cut, and missing records are added.

The file is cut at its last commit.  Later samples in the streams' own files are added.  So the file
has a record of every kept sample, and of no other.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from recorder.bus.wire import Kind, Message
from recorder.codecs import CHANNEL_FORMATS, payload
from recorder.codecs.storage import ChannelReader, open_channel
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError, StorageError
from recorder.common.files import Buffer
from recorder.formats.vrs import (
    data_records,
    description_end,
    find_resume_point,
    whole_records_end,
)
from recorder.recording.writer.session_vrs import SessionVrs
from recorder.session import layout
from recorder.session.vrs.files import map_vrs_streams

INDEX = f"{layout.PRIVATE}/{layout.VRS_INDEX}"
_SAMPLES = 16  # samples read at once, which may be large


@dataclass(slots=True)
class VrsReport:
    """Result of the file's recovery.

    Attributes:
        lengths: new lengths of the file and of its index entries, by path; empty if the description
            is damaged: the session then continues without the file.
        cut_bytes: number of bytes moved to ``salvage``.
        damaged: why the file contains less than was committed; None if it does not.
        records: by stream, the number of remaining data records; None: those of the commit.
    """

    lengths: dict[str, int] = field(default_factory=dict)
    cut_bytes: int = 0
    damaged: str | None = None
    records: dict[str, int] | None = None


def measure_vrs(
    session: Path,
    lengths: Mapping[str, int],
    proven: int,
    tags_at: Sequence[int] | None = None,
) -> VrsReport:
    """Find the length from which a dead writer's file can be resumed.

    Args:
        session: the session's folder.
        lengths: committed lengths by path, from the journal.
        proven: number of intact bytes of the file.
        tags_at: offsets of all TAGS records; None if unknown.
    """
    path, index_path = session / layout.VRS, session / INDEX
    try:
        start, size = description_end(path)
    except (OSError, FormatError, StorageError) as error:
        return VrsReport(damaged=f"{path}: cannot be read: {error}")
    length, index_length = lengths.get(layout.VRS, start), lengths.get(INDEX)
    report = VrsReport({layout.VRS: length})
    try:
        if proven < length:
            raise StorageError(f"{path}: {length} bytes were committed, {proven} are intact")
        find_resume_point(path, index_path, length, index_length, tags_at)
        if index_length is not None and index_path.is_file():
            report.lengths[INDEX] = min(index_length, index_path.stat().st_size)
    except (OSError, FormatError, StorageError) as error:
        end, _, _ = whole_records_end(path, start, size, min(length, proven))
        report.lengths = {layout.VRS: end}
        report.damaged = f"{error}"
    report.cut_bytes = max(0, path.stat().st_size - report.lengths[layout.VRS])
    return report


def fit(report: VrsReport, session: Path, kept: Mapping[str, int]) -> None:
    """Set the cut before the first record of a sample that is not kept; count the other records.

    This is for a session whose files contain less than was committed: each file may lack another
    part.

    Args:
        report: result of `measure_vrs`; it is updated.
        session: the session's folder.
        kept: by stream, the number of samples that its own files keep.
    """
    path, end = session / layout.VRS, report.lengths[layout.VRS]
    tags, records = data_records(path, end)
    names = {stream: name for name, stream in map_vrs_streams(tags).items()}
    counts: Counter[str] = Counter()
    for start, stream in records:
        name = names[stream]
        if counts[name] == kept.get(name, 0):
            report.lengths = {layout.VRS: start}
            report.cut_bytes = path.stat().st_size - start
            break
        counts[name] += 1
    report.records = dict(counts)


def refill(
    vrs: SessionVrs,
    folder: Path,
    spec: StreamSpec,
    samples: range,
    runs: Sequence[tuple[int, int]],
    offset_ns: int,
) -> None:
    """Add samples from a stream's own files that the VRS file lacks.

    Args:
        vrs: the open VRS file.
        folder: the stream's folder.
        spec: the stream's declaration.
        samples: indices of the samples.
        runs: the stream's epochs as (epoch, index of its first sample).
        offset_ns: epoch ns minus ``t_mono``.
    """
    first, stop = samples.start, samples.stop
    epochs = {index: epoch for epoch, index in runs if index >= first}
    epoch = next((epoch for epoch, index in reversed(runs) if index < first), 0)
    last_ns = int(read_times(folder, "t_mono", first - 1, first)[0]) if first else -1
    edges = sorted({first, *(at for at in epochs if first < at < stop), stop})
    with contextlib.ExitStack() as opened:
        channels = [
            opened.enter_context(open_channel(folder, c.name, c.meta(), partial=True))
            for c in spec.channels
        ]
        for start, end in pairwise(edges):
            begins = start in epochs
            epoch = epochs.get(start, epoch)
            for message in _messages(folder, spec, channels, start, end):
                message.epoch = epoch
                t_mono = message.t_mono_ns
                assert not isinstance(t_mono, int)
                if begins:
                    vrs.begin_epoch(spec, message, last_ns)
                    begins = False
                vrs.data(spec, message, t_mono, (t_mono + offset_ns).astype("<f8") / 1e9)
                last_ns = int(t_mono[-1])


def _messages(
    folder: Path, spec: StreamSpec, readers: Sequence[ChannelReader], first: int, stop: int
) -> Iterator[Message]:
    """Yield samples as data messages, each with consecutive numbers."""
    seqs = read_times(folder, "seq", first, stop)
    cuts = {first, stop, *range(first, stop, _SAMPLES)}
    cuts |= {first + 1 + int(at) for at in np.flatnonzero(np.diff(seqs) != 1)}
    edges = sorted(cuts)
    for start, end in pairwise(edges):
        frames, sizes = payload(
            spec.channels,
            [_encode(c, r, start, end) for c, r in zip(spec.channels, readers, strict=True)],
        )
        yield Message(
            Kind.DATA,
            spec.name,
            seq=int(seqs[start - first]),
            count=end - start,
            t_mono_ns=read_times(folder, "t_mono", start, end),
            t_dev_ns=read_times(folder, "t_dev", start, end) if spec.device_clock else None,
            sizes=sizes,
            frames=frames,
        )


def _encode(channel: ChannelSpec, reader: ChannelReader, start: int, end: int) -> Sequence[Buffer]:
    """Encode samples of a channel as a driver sends them."""
    if channel.variable:
        return [reader.encoded(at) for at in range(start, end)]
    return CHANNEL_FORMATS[channel.format].encode(reader.read(start, end))


def read_times(folder: Path, name: str, first: int, stop: int) -> npt.NDArray[np.int64]:
    """Read samples [first, stop) of a time file, int64 [n]."""
    return np.fromfile(folder / name, "<i8", stop - first, offset=8 * first)
