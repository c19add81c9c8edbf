"""``raw``, ``lzma``, ``lzmaf`` and ``npz``: arrays as they are, or packed without loss."""

from __future__ import annotations

import io
import lzma
import zipfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recorder.contract.channel_formats.base import (
    Buffer,
    ChannelFormat,
    ContentBlock,
    Decode,
    Encode,
    Framing,
)
from recorder.contract.channel_formats.xz import WORTH, BlockUnpacker, XzCompressor
from recorder.contract.errors import FormatError

if TYPE_CHECKING:
    from recorder.contract.streams import ChannelSpec, StreamSpec

_NPZ_KEY = "data"
_COPIED_BYTES = 4096  # up to here a copy is cheaper than a view


class Raw(ChannelFormat):
    """Values one after another, little-endian, without any header."""

    framing = Framing.PLAIN

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        if values.nbytes <= _COPIED_BYTES:
            return [values.tobytes()]
        return [np.ascontiguousarray(values).reshape(-1).view(np.uint8).data]

    def decoder(self) -> Decode:
        return _fill


class Xz(ChannelFormat):
    """All samples of a message in one xz stream."""

    framing = Framing.JOINT

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        return [lzma.compress(values.tobytes(), preset=0)]

    def encoder(self, stream: StreamSpec, channel: ChannelSpec) -> Encode:
        compress = _compressor(stream, channel).compress
        return lambda values: [compress(values)]

    def decoder(self) -> Decode:
        def decode(frame: Buffer, out: npt.NDArray[Any], where: str) -> None:
            try:
                data = lzma.decompress(frame)
            except lzma.LZMAError as error:
                raise FormatError(f"{where}: {error}") from None
            _fill(data, out, where)

        return decode


class XzFrames(ChannelFormat):
    """Every sample an xz stream of its own; an index file has their ends."""

    framing = Framing.EACH

    def files(self, channel: str) -> tuple[str, ...]:
        return channel, channel + "_i"

    def content(self, channel: ChannelSpec) -> ContentBlock:
        return ContentBlock("custom", f"{channel.name}.xz")

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        return [lzma.compress(value.tobytes(), preset=0) for value in values]

    def encoder(self, stream: StreamSpec, channel: ChannelSpec) -> Encode:
        compress = _compressor(stream, channel).compress
        return lambda values: [compress(value) for value in values]

    def decoder(self) -> Decode:
        unpack = BlockUnpacker().unpack

        def decode(frame: Buffer, out: npt.NDArray[Any], where: str) -> None:
            stream, flat = bytes(frame), out.reshape(-1).view(np.uint8)
            if not unpack(stream, flat):
                flat[:] = np.frombuffer(_unpacked(stream, len(flat), where), np.uint8)

        return decode


class Npz(ChannelFormat):
    """Every sample a file: a zip with one array in it (numpy, ``numpy.lib.format``)."""

    framing = Framing.NONE

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        return [pack_npz(value) for value in values]

    def decoder(self) -> Decode:
        return _load


def pack_npz(value: npt.NDArray[Any], compress: bool = False) -> bytes:
    """An array as a file; deflated where asked for."""
    file = io.BytesIO()
    save = np.savez_compressed if compress else np.savez
    save(file, data=value)
    return file.getvalue()


def _compressor(stream: StreamSpec, channel: ChannelSpec) -> XzCompressor:
    worth = float(stream.settings.get("xz_worth", WORTH))
    return XzCompressor(channel.np_dtype.itemsize, channel.delta, worth)


def _fill(data: Buffer, out: npt.NDArray[Any], where: str) -> None:
    flat, values = out.reshape(-1).view(np.uint8), np.frombuffer(data, np.uint8)
    if len(values) != len(flat):
        raise FormatError(f"{where}: {len(values)} bytes of {len(out)} samples")
    flat[:] = values


def _unpacked(stream: bytes, size: int, where: str) -> bytes:
    decoder = lzma.LZMADecompressor()
    try:
        # Bounded: a damaged stream must not unpack to more than a sample.
        values = decoder.decompress(stream, size + 1)
    except lzma.LZMAError as error:
        raise FormatError(f"{where}: {error}") from None
    if not decoder.eof or decoder.unused_data or len(values) != size:
        raise FormatError(f"{where} is not one xz stream of {size} bytes")
    return values


def _load(frame: Buffer, out: npt.NDArray[Any], where: str) -> None:
    try:
        with np.load(io.BytesIO(frame), allow_pickle=False) as arrays:
            values = np.asarray(arrays[_NPZ_KEY])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise FormatError(f"{where}: not an npz with an array {_NPZ_KEY!r}: {error}") from None
    if values.dtype != out.dtype or values.shape != out.shape:
        raise FormatError(
            f"{where}: holds {values.dtype} {list(values.shape)}, the channel's are "
            f"{out.dtype} {list(out.shape)}"
        )
    out[...] = values
