"""Exports of a stream as one file: a table, arrays, a network capture.

A table is CSV (RFC 4180, but with line feeds), with a row for each sample.  Columns are ``ts (s)``
with all nine decimals of the stamp, ``seq``, ``t_dev (ns)``, and the values of the channels.  A
value of an array has its place in its name, as in ``acc[0] (m/s^2)``.  Numbers have the digits that
identify the value in the channel's type.

Arrays are those of numpy (``numpy.lib.format``, version 1.0, in a zip)::

    with np.load("lidar.npz") as arrays:
        arrays["t_ns"], arrays["rng"]            # int64 [n], u2 [n, beams, columns]

Samples are written one by one, without compression.  A zip holds one array after another, so that
each channel is read from its first sample to its last.  Only if samples are damaged, the file is
written again, without them.
"""

from __future__ import annotations

import csv
import itertools
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.archives.export.chosen import Damage, blocks, read_parts
from recorder.common.errors import FormatError, RecorderError, UsageError
from recorder.formats.pcap.writer import PcapWriter
from recorder.perception.stream_contents import PAYLOAD, destination_of
from recorder.session.playback import find_unit
from recorder.session.stream import Stream

Values = npt.NDArray[Any]

MOST_VALUES: Final = 64
"""Largest number of values that a sample of a channel may have."""
_NUMBERS: Final = {"seq": "seq", "t_dev": "t_dev (ns)"}
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_STAMPS: Final = "t_ns"
_ATTEMPTS: Final = 3
_BLOCK: Final = 1024
_FIELDS: Final = ("source", "source_port", "port")

_Block = tuple[npt.NDArray[np.int64], list[bytes], dict[str, npt.NDArray[Any]]]


def table_channels(stream: Stream, asked: Sequence[str] | None) -> list[str]:
    """Return names of the channels of a table; UsageError if a requested one has too many values.

    Args:
        stream: the stream.
        asked: names of channels; None: all of few values.
    """
    sizes = {name: math.prod(stream.meta[name]["shape"]) for name in stream.data_channels}
    if asked is None:
        return [name for name, size in sizes.items() if size <= MOST_VALUES]
    for name in asked:
        if sizes.get(name, 0) > MOST_VALUES:
            raise UsageError(
                f"{stream.name}: {name} has {sizes[name]} values a sample; a table holds channels "
                f"of up to {MOST_VALUES}; export it with --to npz"
            )
    return [name for name in asked if name in sizes]


def write_table(
    path: Path,
    stream: Stream,
    indices: range,
    channels: Sequence[str],
    damage: Damage,
    advance: Callable[[int], None],
) -> int:
    """Write a table; return the number of its rows.

    Args:
        path: of the file.
        stream: the stream.
        indices: of the samples.
        channels: names of the channels, from `table_channels`.
        damage: receives the samples that are left out.
        advance: called with the number of samples done.
    """
    numbers = [name for name in _NUMBERS if name in stream.meta]
    names = [*numbers, *channels]
    rows = 0

    def read(start: int, stop: int) -> tuple[int, Values | None, Mapping[str, Values]]:
        times = stream.times(start, stop) if stream.has_times else None
        return stop - start, times, stream.read(start, stop, names)

    with path.open("w", encoding="utf-8", newline="") as file:
        header = csv.writer(file, lineterminator="\n")
        header.writerow(map(_escape_title, _format_titles(stream, numbers, channels)))
        for block in blocks(indices, sum(stream.channels[name].sample_bytes for name in names)):
            for _, (count, times, data) in read_parts(read, block, damage.add):
                file.writelines(_format_lines(count, times, data))
                rows += count
            advance(len(block))
    return rows


def _format_titles(
    stream: Stream, numbers: Sequence[str], channels: Sequence[str]
) -> Iterator[str]:
    if stream.has_times:
        yield "ts (s)"
    yield from (_NUMBERS[name] for name in numbers)
    for name in channels:
        unit = find_unit(stream, name)
        entry = stream.meta[name]
        parts = (".re", ".im") if np.dtype(entry["type"]).kind == "c" else ("",)
        for place in itertools.product(*map(range, entry["shape"])):
            at = "".join(f"[{k}]" for k in place)
            yield from (f"{name}{at}{part}" + (f" ({unit})" if unit else "") for part in parts)


def _format_lines(count: int, times: Values | None, data: Mapping[str, Values]) -> Iterator[str]:
    columns = [_format_values(values, count) for values in data.values()]
    if times is not None:
        stamps = [f"{Decimal(t_ns).scaleb(-9):.9f}" for t_ns in times.tolist()]
        columns.insert(0, np.array(stamps).reshape(count, 1))
    rows = np.concatenate(columns, axis=1).tolist() if columns else [[]] * count
    return (",".join(row) + "\n" for row in rows)


def _format_values(values: npt.NDArray[Any], count: int) -> npt.NDArray[np.str_]:
    """Format values [n, *shape] as texts [n, columns], with as few digits as are needed."""
    if values.dtype.kind == "c":
        values = values.view(values.real.dtype)
    if values.dtype.kind == "b":
        values = values.astype(np.uint8)
    return values.reshape(count, -1).astype(np.str_)


def _escape_title(title: str) -> str:
    """Return a title that no spreadsheet reads as a formula."""
    return f"'{title}" if title.startswith(_FORMULA) else title


def array_bytes(stream: Stream, channels: Sequence[str], samples: int) -> int:
    """Return the size in bytes of the arrays of that many samples."""
    return samples * sum(
        _count_sample_bytes(stream, name) for name in _list_names(stream, channels)
    )


def write_arrays(
    path: Path,
    stream: Stream,
    indices: range,
    channels: Sequence[str],
    damage: Damage,
    advance: Callable[[float], None],
) -> int:
    """Write arrays of the same number of samples; return that number.

    Args:
        path: of the file.
        stream: the stream.
        indices: of the samples.
        channels: names of the channels; the time channels must be among them.
        damage: receives the samples that are left out.
        advance: called with the number of samples done.

    Raises:
        FormatError: all samples are damaged, or other samples fail at each attempt.
    """
    names = _list_names(stream, channels)
    kept = list(indices)
    for _ in range(_ATTEMPTS):
        bad: dict[int, Exception] = {}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name in names:
                for done in _write_array(archive, stream, name, kept, bad):
                    advance(done / len(names))
        for index in sorted(bad):
            damage.add(index, bad[index])
        if not bad:
            return len(kept)
        kept = [index for index in kept if index not in bad]
        if not kept:
            return 0
    raise FormatError(f"{stream.path}: cannot be read: other samples fail at each attempt")


def _list_names(stream: Stream, channels: Sequence[str]) -> list[str]:
    own = [_STAMPS] if stream.has_times and _STAMPS not in channels else []
    return [*own, *channels]


def _count_sample_bytes(stream: Stream, name: str) -> int:
    dtype, shape = _get_layout(stream, name)
    return dtype.itemsize * math.prod(shape)


def _get_layout(stream: Stream, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if name not in stream.meta:
        return np.dtype("<i8"), ()
    return stream.channels[name].dtype, tuple(stream.channels[name].shape)


def _write_array(
    archive: zipfile.ZipFile,
    stream: Stream,
    name: str,
    kept: Sequence[int],
    bad: dict[int, Exception],
) -> Iterator[int]:
    """Write an array in steps of several samples; after a damaged one, only look for more damage.

    Yields:
        the number of samples of each step.
    """
    dtype, shape = _get_layout(stream, name)
    header: dict[str, Any] = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": (len(kept), *shape),
    }
    member = zipfile.ZipInfo(f"{name}.npy")
    with archive.open(member, "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks(kept, _count_sample_bytes(stream, name)):
            for _, values in read_parts(
                partial(_read_channel, stream, name), block, bad.setdefault
            ):
                if not bad:
                    file.write(np.ascontiguousarray(values, dtype).reshape(-1).view(np.uint8).data)
            yield len(block)


def _read_channel(stream: Stream, name: str, start: int, stop: int) -> npt.NDArray[Any]:
    if name not in stream.meta:
        return stream.times(start, stop)
    return stream.channels[name].read(start, stop)


def write_capture(
    path: Path, stream: Stream, indices: range, damage: Damage, advance: Callable[[float], None]
) -> int:
    """Write datagrams as pcap, with their stamps in epoch ns.

    Args:
        path: of the file.
        stream: one of datagrams, with times.
        indices: of the samples, rising.
        damage: receives the samples that are left out.
        advance: called with the number of samples done.

    Returns:
        the number of written datagrams.
    """
    destination, count = destination_of(stream), 0
    with path.open("wb", buffering=1 << 20) as file:
        writer = PcapWriter(file)
        for at in range(0, len(indices), _BLOCK):
            block = indices[at : at + _BLOCK]
            for index, (times, payloads, numbers) in read_parts(
                partial(_read_range, stream), block, damage.add
            ):
                sources = numbers["source"].tobytes()
                ports = zip(numbers["source_port"].tolist(), numbers["port"].tolist(), strict=True)
                rows = zip(times.tolist(), payloads, ports, strict=True)
                for k, (t_ns, payload, (source_port, port)) in enumerate(rows):
                    source = sources[16 * k : 16 * k + 16]
                    try:
                        writer.write(t_ns, source, source_port, destination, port, payload)
                    except RecorderError as error:
                        damage.add(index + k, error)
                        continue
                    count += 1
            advance(len(block))
    return count


def _read_range(stream: Stream, start: int, stop: int) -> _Block:
    payloads = stream.channels[PAYLOAD].encoded_range(start, stop)
    numbers = {name: stream.channels[name].read(start, stop) for name in _FIELDS}
    return stream.times(start, stop), payloads, numbers
