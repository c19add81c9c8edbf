"""Channels in the formats of roverd (RadarML/red-rover, folder ``format/``).

=========  ==============================================  ==========  ==========================
format     on disk                                         recorded    random access by
=========  ==============================================  ==========  ==========================
``raw``    arrays one after another                        yes         arithmetic
``lzma``   concatenated xz streams of such arrays          yes         the streams' own indexes
``lzmaf``  an xz stream a sample, ``NAME_i`` for offsets   yes         ``NAME_i``
``mjpg``   AVI (OpenDML) of JPEG frames                    yes         the AVI's indexes
``npz``    a folder, an array file a sample                exported    file name
``jpg``    a folder, a JPEG a sample                       exported    file name
=========  ==============================================  ==========  ==========================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recorder.contract.errors import FormatError, StorageError
from recorder.contract.streams import ChannelSpec
from recorder.formats.disk import Disk
from recorder.formats.roverd.avi import AviLayout
from recorder.formats.roverd.avi_writer import AviWriter, repair_avi
from recorder.formats.roverd.blobs import BlobReader, export_blobs
from recorder.formats.roverd.channel import (
    ChannelReader,
    ChannelWriter,
    Layout,
    committed_length,
    reopen,
)
from recorder.formats.roverd.mjpg import MjpgReader
from recorder.formats.roverd.raw import PlainWriter, RawReader, resume_raw
from recorder.formats.roverd.xz import (
    LzmafReader,
    LzmafWriter,
    LzmaReader,
    index_path,
    resume_lzmaf,
)

__all__ = [
    "ChannelReader",
    "ChannelWriter",
    "PlainWriter",
    "create_writer",
    "export_blobs",
    "open_channel",
    "repair_avi",
    "resume_writer",
]

_READERS: Mapping[str, Callable[[Path, Layout, bool], ChannelReader]] = {
    "raw": RawReader,
    "lzma": LzmaReader,
    "lzmaf": LzmafReader,
    "mjpg": MjpgReader,
    "npz": BlobReader,
    "jpg": BlobReader,
}


def create_writer(
    folder: Path, spec: ChannelSpec, disk: Disk, rate_hz: float | None
) -> ChannelWriter:
    """Start a channel: create its files and write what the format wants at their start.

    Args:
        folder: the sensor's folder.
        spec: the channel as declared.
        disk: where to write; neither files nor folder are synced here.
        rate_hz: nominal sample rate; a video's frame rate (30 where None).

    Raises:
        FileExistsError: a file of that name is there.
    """
    path = folder / spec.name
    if spec.format == "mjpg":
        return AviWriter.create(path, disk, _avi_layout(spec, rate_hz))
    data = disk.create(path)
    if spec.format != "lzmaf":
        return PlainWriter(data)
    try:
        return LzmafWriter(data, disk.create(index_path(path)))
    except BaseException:
        data.close()
        raise


def resume_writer(
    folder: Path,
    spec: ChannelSpec,
    disk: Disk,
    rate_hz: float | None,
    lengths: Mapping[str, int],
) -> ChannelWriter:
    """Go on with a channel whose writer was killed, at a committed state.

    What was written after it is cut off; what is appended from here on gives the files that one
    undisturbed writer would have made.

    Args:
        folder, spec, disk, rate_hz: as they were given to `create_writer`.
        lengths: committed length of each of the channel's files, bytes by file name.

    Raises:
        StorageError: a length is missing, does not belong to whole samples, or is more than the
            file has.
        FormatError: a file is missing, or is not what its format demands.
    """
    path = folder / spec.name
    length = committed_length(lengths, path)
    match spec.format:
        case "mjpg":
            return AviWriter.resume(path, disk, length, _avi_layout(spec, rate_hz))
        case "lzmaf":
            return resume_lzmaf(path, disk, length, committed_length(lengths, index_path(path)))
        case "raw":
            return resume_raw(path, disk, length, spec.sample_bytes)
        case _:
            return PlainWriter(reopen(disk, path, length))


def open_channel(
    folder: Path, name: str, meta: Mapping[str, Any], *, partial: bool = False
) -> ChannelReader:
    """Open a channel for reading.

    Args:
        folder: the sensor's folder.
        name: the channel's name.
        meta: its entry of ``meta.json``: format, type, shape, desc.
        partial: take a file that ends inside a sample, or goes on after its last one, for the
            whole samples that it holds (a session that is being written, or was cut); otherwise
            that is an error.

    Raises:
        FormatError: the entry or the file is not what it should be; names file and fault.
    """
    path = folder / name
    if "/" in name or name in ("", ".", ".."):
        raise FormatError(f"{folder / 'meta.json'}: {name!r} cannot name a channel")
    layout = Layout.from_meta(f"{folder / 'meta.json'}: channel {name!r}", meta)
    if (reader := _READERS.get(layout.format)) is None:
        raise FormatError(
            f"{folder / 'meta.json'}: channel {name!r}: format {layout.format!r} is none of "
            + ", ".join(_READERS)
        )
    return reader(path, layout, partial)


def _avi_layout(spec: ChannelSpec, rate_hz: float | None) -> AviLayout:
    height, width, _ = spec.shape
    if max(width, height) > 0x7FFFFFFF:
        raise StorageError(f"{spec.name}: an AVI cannot hold frames of {width} x {height}")
    return AviLayout.of(width, height, rate_hz)
