"""A stream as a file of arrays (numpy, ``numpy.lib.format``, version 1.0, in a zip).

::

    with np.load("lidar.npz") as arrays:
        arrays["t_ns"], arrays["rng"]            # int64 [n], u2 [n, beams, columns]

Samples are written one by one, without compression.  A zip holds one array after another, so that
each channel is read from its first sample to its last.  Only if samples are damaged, the file is
written again, without them.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.archives.export.chosen import Damage
from recorder.common.errors import FormatError, RecorderError
from recorder.session.stream import BATCH_BYTES, BATCH_SAMPLES, Stream

_STAMPS: Final = "t_ns"
_ATTEMPTS: Final = 3


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
    step = max(1, min(BATCH_SAMPLES, BATCH_BYTES // max(1, _count_sample_bytes(stream, name))))
    member = zipfile.ZipInfo(f"{name}.npy")
    with archive.open(member, "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for at in range(0, len(kept), step):
            for values in _read_values(stream, name, kept[at : at + step], bad):
                if not bad:
                    file.write(np.ascontiguousarray(values, dtype).reshape(-1).view(np.uint8).data)
            yield min(step, len(kept) - at)


def _read_values(
    stream: Stream, name: str, indices: Sequence[int], bad: dict[int, Exception]
) -> Iterator[npt.NDArray[Any]]:
    """Yield samples of a channel in pieces [n, *shape]; add the damaged ones to `bad`."""
    first, last = indices[0], indices[-1]
    if last - first == len(indices) - 1:
        try:
            yield _read(stream, name, first, last + 1)
            return
        except (RecorderError, OSError):
            pass  # sample by sample, to find the damaged ones
    for index in indices:
        try:
            yield _read(stream, name, index, index + 1)
        except (RecorderError, OSError) as error:
            bad.setdefault(index, error)


def _read(stream: Stream, name: str, start: int, stop: int) -> npt.NDArray[Any]:
    if name not in stream.meta:
        return stream.times(start, stop)
    return stream.channels[name].read(start, stop)
