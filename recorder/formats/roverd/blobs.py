"""``npz`` and ``jpg``: a folder with a file per sample, ``000000.npz``, ``000001.npz``, ...

Read, and written after the fact from arrays or JPEGs; not recorded, since a file a sample costs
more than its bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.contract.channel_formats import pack_npz
from recorder.contract.channel_formats.jpeg import encode_jpeg
from recorder.contract.errors import FormatError
from recorder.formats.disk import FOLDER_MODE, PosixDisk, make_empty
from recorder.formats.roverd.channel import FramedReader, Layout
from recorder.formats.roverd.storage import ChannelStorage


class BlobReader(FramedReader):
    """Reads ``npz`` and ``jpg`` folders, one file at a time."""

    def __init__(self, path: Path, layout: Layout, partial: bool = False) -> None:
        super().__init__(path, layout)
        self._suffix = "." + layout.format
        if not path.is_dir():
            raise FormatError(f"{path}: no such folder")
        names = {p.name for p in path.iterdir()}
        self._length = 0
        while blob_name(self._length, layout.format) in names:
            self._length += 1
        if len(names) != self._length and not partial:
            other = min(names - {blob_name(i, layout.format) for i in range(self._length)})
            raise FormatError(
                f"{path}: {other!r} is not one of the files 000000{self._suffix} and so on, of "
                f"which the first {self._length} are there"
            )

    def __len__(self) -> int:
        return self._length

    def _where(self, index: int) -> str:
        return str(self.path / blob_name(index, self.format))

    def encoded(self, index: int) -> bytes:
        path = self.path / blob_name(self._index(index), self.format)
        try:
            return path.read_bytes()
        except OSError as error:
            raise FormatError(f"{path}: {error.strerror}") from None

    def close(self) -> None:
        pass


class BlobStorage(ChannelStorage):
    """A folder, which is exported and not recorded."""

    reader = BlobReader


def blob_name(index: int, format_: str) -> str:
    """File name of a sample: six digits, more where they do not suffice."""
    return f"{index:06d}.{format_}"


def export_blobs(
    folder: Path,
    name: str,
    format_: str,
    samples: Iterable[npt.NDArray[Any] | bytes],
    *,
    description: str = "",
    compress: bool = False,
    quality: int = 95,
) -> dict[str, Any]:
    """Write a blob channel into a sensor's folder; it is there whole or not at all, durably.

    >>> entry = export_blobs(folder, "image", "jpg", jpegs)  # doctest: +SKIP

    Args:
        folder: the sensor's folder.
        name: the channel's name; becomes a folder.
        format_: ``npz`` or ``jpg``.
        samples: arrays [*shape], all alike (``jpg``: u1 RGB [height, width, 3]); for ``jpg`` also
            JPEGs as bytes, which are stored as they are.
        description: one line for ``meta.json``.
        compress: deflate the arrays (``npz``).
        quality: JPEG quality of arrays, 1 to 100 (``jpg``).

    Returns:
        The channel's entry for ``meta.json``.

    Raises:
        FileExistsError: the channel is there already.
        FormatError: no samples, samples that differ in shape or type, or bytes that are no JPEG.
        ValueError: another format.
    """
    if format_ not in ("npz", "jpg"):
        raise ValueError(f"{format_!r} is no blob format; npz and jpg are")
    from recorder.formats.zarr2.stores import sync_tree

    path = folder / name
    if path.exists():
        raise FileExistsError(17, "already exists", str(path))
    temporary = folder / f".{name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(FOLDER_MODE)
    try:
        kind: tuple[np.dtype[Any], tuple[int, ...]] | None = None
        for index, sample in enumerate(samples):
            where = f"{path / blob_name(index, format_)}"
            target = temporary / blob_name(index, format_)
            make_empty(target)
            if format_ == "jpg":
                data, found = _jpeg(sample, quality, where)
                target.write_bytes(data)
            elif isinstance(sample, bytes):
                raise FormatError(f"{where}: npz is made from arrays, not from bytes")
            else:
                values = np.ascontiguousarray(sample, sample.dtype.newbyteorder("<"))
                values = values.reshape(sample.shape)  # ascontiguousarray gives a scalar an axis
                target.write_bytes(pack_npz(values, compress))
                found = (values.dtype, values.shape)
            if kind is not None and found != kind:
                raise FormatError(f"{where}: is {found}, those before it are {kind}")
            kind = found
        if kind is None:
            raise FormatError(f"{path}: no samples to export")
        sync_tree(temporary)
        temporary.rename(path)
        PosixDisk().sync_folder(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    dtype, shape = kind
    return {"format": format_, "type": dtype.str[1:], "shape": list(shape), "desc": description}


def _jpeg(
    sample: npt.NDArray[Any] | bytes, quality: int, where: str
) -> tuple[bytes, tuple[np.dtype[Any], tuple[int, ...]]]:
    """A JPEG, and dtype and shape of what it decodes to."""
    import cv2

    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    if isinstance(sample, bytes):
        image = cv2.imdecode(np.frombuffer(sample, np.uint8), flags) if sample else None
        if image is None:
            raise FormatError(f"{where}: {len(sample)} bytes that do not decode as JPEG")
        return sample, (np.dtype("u1"), image.shape)
    if sample.dtype != np.uint8 or sample.ndim != 3 or sample.shape[2] != 3:
        raise FormatError(f"{where}: {sample.dtype} {list(sample.shape)} is no RGB image")
    image = cv2.cvtColor(sample, cv2.COLOR_RGB2BGR)
    data = encode_jpeg(image.astype(np.uint8, copy=False), quality)
    if data is None:
        raise FormatError(f"{where}: OpenCV does not encode it as JPEG")
    return bytes(data), (sample.dtype, sample.shape)
