"""Channels in the formats of roverd (RadarML/red-rover, folder ``format/``).

=========  ==============================================  ==========  ===========================
format     on disk                                         recorded    random access by
=========  ==============================================  ==========  ===========================
``raw``    arrays one after another                        yes         arithmetic
``lzma``   concatenated xz streams of such arrays          yes         the streams' own indexes
``lzmaf``  an xz stream a sample, ``NAME_i`` for offsets   yes         ``NAME_i``
``mjpg``   AVI (OpenDML) of JPEG frames                    yes         the AVI's indexes
``h264``   Annex B, ``NAME_i`` for offsets and keyframes   yes         ``NAME_i``, from a keyframe
``bytes``  bytes of any length, ``NAME_i`` for offsets     yes         ``NAME_i``
``points``  packed sweeps, ``NAME_i`` for offsets, points  yes         ``NAME_i``
``zstdf``  a frame of Zstandard a sample, ``NAME_i``       yes         ``NAME_i``
``npz``    a folder, an array file a sample                no          file name
``jpg``    a folder, a JPEG a sample                       no          file name
=========  ==============================================  ==========  ===========================

A new format needs a row in `CHANNEL_STORAGE`, and one in `recorder.codecs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recorder.codecs.storage.blobs import BlobStorage
from recorder.codecs.storage.channel import (
    ChannelReader,
    ChannelStorage,
    ChannelWriter,
    Extent,
    Layout,
    NoExtent,
)
from recorder.codecs.storage.h264 import H264Storage
from recorder.codecs.storage.indexed import BytesStorage, LzmafStorage, ZstdfStorage
from recorder.codecs.storage.mjpg import AviStorage
from recorder.codecs.storage.points import PointsStorage
from recorder.codecs.storage.raw import PlainExtent, PlainWriter, RawStorage
from recorder.codecs.storage.xz import LzmaStorage
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError
from recorder.common.files import Disk

__all__ = [
    "CHANNEL_STORAGE",
    "ChannelReader",
    "ChannelStorage",
    "ChannelWriter",
    "Extent",
    "PlainExtent",
    "PlainWriter",
    "create_writer",
    "known_lengths",
    "measure",
    "open_channel",
    "resume_writer",
]

CHANNEL_STORAGE: Mapping[str, type[ChannelStorage]] = {
    "raw": RawStorage,
    "lzma": LzmaStorage,
    "lzmaf": LzmafStorage,
    "mjpg": AviStorage,
    "h264": H264Storage,
    "bytes": BytesStorage,
    "points": PointsStorage,
    "zstdf": ZstdfStorage,
    "npz": BlobStorage,
    "jpg": BlobStorage,
}
"""Storage classes by the name in ``meta.json``, which is also the key of `CHANNEL_FORMATS`."""


def create_writer(
    folder: Path, spec: ChannelSpec, disk: Disk, rate_hz: float | None
) -> ChannelWriter:
    """Start a channel: create its files and write their headers.

    Args:
        folder: the sensor's folder.
        spec: the channel as declared.
        disk: disk to write to; neither files nor folder are synced here.
        rate_hz: nominal sample rate; a video's frame rate (30 if None).

    Raises:
        FileExistsError: a file of that name exists.
    """
    return CHANNEL_STORAGE[spec.format](folder / spec.name, spec, rate_hz).create(disk)


def resume_writer(
    folder: Path,
    spec: ChannelSpec,
    disk: Disk,
    rate_hz: float | None,
    lengths: Mapping[str, int],
) -> ChannelWriter:
    """Resume a channel whose writer was killed, at a committed state.

    Later bytes are cut. The files after further appends equal those of an uninterrupted writer.

    Args:
        folder, spec, disk, rate_hz: as for `create_writer`.
        lengths: committed length of each of the channel's files, in bytes, by file name.

    Raises:
        StorageError: a length is missing, does not end at a whole sample, or exceeds the file.
        FormatError: a file is missing, or does not fit its format.
    """
    storage = CHANNEL_STORAGE[spec.format](folder / spec.name, spec, rate_hz)
    return storage.resume(disk, lengths)


def known_lengths(spec: ChannelSpec, samples: int) -> dict[str, int]:
    """Return the lengths in bytes of the files whose length follows from the number of samples."""
    return CHANNEL_STORAGE[spec.format](Path(spec.name), spec).known_lengths(samples)


def measure(folder: Path, spec: ChannelSpec, committed: int) -> Extent:
    """Measure how many whole samples a channel's files hold, wherever they end.

    Committed samples are trusted.  Later samples are checked one by one, so that the cost depends
    on the tail and not on the recording.  A file that is missing, or not of its format, holds no
    sample.

    Args:
        folder: the stream's folder.
        spec: the channel.
        committed: number of committed samples.
    """
    path = folder / spec.name
    try:
        return CHANNEL_STORAGE[spec.format](path, spec).measure(committed)
    except (FormatError, OSError):
        return NoExtent(path, spec)


def open_channel(
    folder: Path, name: str, meta: Mapping[str, Any], *, partial: bool = False
) -> ChannelReader:
    """Open a channel for reading.

    Args:
        folder: the sensor's folder.
        name: the channel's name.
        meta: the channel's entry of ``meta.json``: format, type, shape, desc.
        partial: whether to accept a file that ends inside a sample, or has bytes after its last
            sample, and read its whole samples (of a session that is being written, or was cut);
            otherwise that is an error.

    Raises:
        FormatError: the entry or the file is not valid; names file and fault.
    """
    path = folder / name
    if "/" in name or name in ("", ".", ".."):
        raise FormatError(f"{folder / 'meta.json'}: {name!r} cannot name a channel")
    layout = Layout.from_meta(f"{folder / 'meta.json'}: channel {name!r}", meta)
    if (storage := CHANNEL_STORAGE.get(layout.format)) is None:
        raise FormatError(
            f"{folder / 'meta.json'}: channel {name!r}: format {layout.format!r} is none of "
            + ", ".join(CHANNEL_STORAGE)
        )
    return storage.reader(path, layout, partial)
