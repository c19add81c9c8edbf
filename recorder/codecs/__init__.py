"""Channel formats of roverd: the codec and the description of each.

How each is stored is in `recorder.codecs.storage`, whose registry has the same keys.  A format
that drivers record is declared in a `recorder.codecs.streams.ChannelSpec`; the others are what
traces of roverd hold besides.
"""

from __future__ import annotations

import io
import lzma
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from recorder.codecs.h264 import H264Decoder, is_key, picture_size, rgb_pixels
from recorder.codecs.jpeg import decode_jpeg, encode_jpeg, jpeg_size
from recorder.codecs.points import (
    MOST_POINTS,
    Column,
    count_points,
    pack_planes,
    points_dtype,
    unpack_records,
)
from recorder.codecs.shuffling import pack_image, transpose, unpack_image
from recorder.codecs.xz import WORTH, BlockUnpacker, XzCompressor, decompress, stored_stream
from recorder.common.errors import FormatError, ProtocolError, StreamChangedError
from recorder.common.files import Buffer

if TYPE_CHECKING:
    from recorder.codecs.streams import ChannelSpec, StreamSpec

DEFAULT_JPEG_QUALITY = 90
STORED = "xz_stored"
"""Setting of a stream: names of its channels of ``lzmaf`` whose samples are stored as they are, to
be packed after the session (`recorder.integrity.deferred_compression`)."""

Encode = Callable[[npt.NDArray[Any]], Sequence[Buffer]]
"""Function from samples, [n, *shape], to frames: n of them, or one, as the framing demands."""
Decode = Callable[[Buffer, npt.NDArray[Any], str], None]
"""Function that fills an array from a frame; the text names the frame in errors."""

POINTS_SUFFIX = ".bin"
"""Suffix of channels of ``points``, which their index lacks: ``points.bin``, ``points_i``."""

_COPIED_BYTES = 4096  # up to here a copy is cheaper than a view
_NPZ_KEY = "data"
_PIXELS = {"u1": "GREY8", "u2": "GREY16"}
_DEPTHS = {10: "GREY10", 12: "GREY12"}
_RAW_PIXELS = {"SRGGB8": "BAYER8_RGGB", "SBGGR8": "BAYER8_BGGR"}
"""Other Bayer pictures are stored as grey.  VRS packs RAW10_BAYER_..., and readers of before June
2026 return no image of BAYER8_GBRG and BAYER10_GBRG."""


class Framing(Enum):
    """Framing of a channel's samples in a data message."""

    PLAIN = "values"
    """One frame: the samples' values, one after another."""
    JOINT = "all"
    """One frame: all samples encoded together; the frame cannot be cut."""
    EACH = "each"
    """One frame: the encoded samples joined; the header has their sizes."""
    NONE = "none"
    """No frame: each sample is a file of its own."""


@dataclass(frozen=True, slots=True)
class ContentBlock:
    """Description of a sample as one content block of a VRS record.

    Attributes:
        kind: ``image`` or ``custom``.
        format: the image's format, such as ``jpg``, or the name of a custom format.
        size: size of a custom block in bytes; None where samples differ in length.
        width, height: pixels of an image.
        pixel_format: name of VRS's pixel format; empty if the image's own bytes have it.
        codec: name of a video's codec.
    """

    kind: str
    format: str
    size: int | None = None
    width: int = 0
    height: int = 0
    pixel_format: str = ""
    codec: str = ""


class ChannelFormat(ABC):
    """Description and codec of one format.

    ::

        encode = found.encoder(stream, channel)          # stateful: one for each channel
        frames = encode(values)                          # [n, *shape] -> frames
        decode = found.decoder()
        decode(frames[0], out, "lidar/rng: sample 7")    # out [*shape], or [n, *shape]

    A frame holds one sample where the framing is `EACH` or `NONE`, else all samples of a message.

    Attributes:
        name: the key in both registries, and the format's name in ``meta.json``.
        recorded_as: the format of such a channel in a new recording; its own name where drivers may
            declare it.
        framing: how a data message carries its samples.
        holds: dtype and shape that the format is limited to, as text; empty if it takes any.
        picture: whether samples are pictures.
        keyed: whether a decoder can begin only with some of the samples, the keyframes of a video.
    """

    framing: ClassVar[Framing]
    holds: ClassVar[str] = ""
    picture: ClassVar[bool] = False
    keyed: ClassVar[bool] = False

    def __init__(self, name: str, recorded_as: str | None = None) -> None:
        self.name = name
        self.recorded_as = recorded_as or name

    @property
    def variable(self) -> bool:
        """Whether encoded samples differ in length, so that a data message has their sizes."""
        return self.framing is Framing.EACH

    def fits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:  # noqa: ARG002
        """Return whether a channel of that dtype and sample shape can have the format."""
        return True

    def columns_fault(
        self,
        columns: Sequence[Column],
        shape: tuple[int, ...],  # noqa: ARG002
    ) -> str | None:
        """Return why a channel of that sample shape cannot have those columns; None if it can."""
        return f"{self.name} has no columns" if columns else None

    def files(self, channel: str) -> tuple[str, ...]:
        """Return the names of a channel's files (or its folder); the first is the channel's own."""
        return (channel,)

    def make_entries(self, channel: ChannelSpec) -> dict[str, dict[str, Any]]:
        """Return the channel's entries of ``meta.json``, which roverd's readers accept."""
        return {channel.name: channel.meta()}

    def side_files(self, channel: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return the names of files that ``meta.json`` must not declare; each holds the entry."""
        return ()

    def can_start(self, frame: Buffer) -> bool:  # noqa: ARG002
        """Return whether a decoder can begin with an encoded sample."""
        return True

    def content(self, channel: ChannelSpec) -> ContentBlock:
        """Return the VRS content block of a sample."""
        dtype, shape = channel.dtype, channel.shape
        pixel = _PIXELS.get(dtype, "") if len(shape) == 2 else ""
        if channel.pixels is not None:
            pixel = _RAW_PIXELS.get(channel.pixels.name) or _DEPTHS.get(channel.pixels.bits, pixel)
        if dtype == "u1" and len(shape) == 3 and shape[2] == 3:
            pixel = "RGB8"
        if not pixel:
            return ContentBlock("custom", f"{channel.name}.{dtype}", channel.sample_bytes)
        return ContentBlock("image", "raw", None, shape[1], shape[0], pixel)

    @abstractmethod
    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        """Encode samples [n, *shape] to frames by the format's general method, without settings."""

    def encoder(self, stream: StreamSpec, channel: ChannelSpec) -> Encode:  # noqa: ARG002
        """Return a driver's encoder for the stream's settings; any reader reads its frames.

        Raises:
            StreamChangedError: when it is called: values cannot be encoded.
        """
        return self.encode

    @abstractmethod
    def decoder(self) -> Decode:
        """Return a function that fills an array from a frame; several threads may use it.

        Raises:
            FormatError: when it is called: the frame does not hold what the array is to hold.
        """

    def shape_fault(self, frame: bytes, shape: tuple[int, ...]) -> str | None:  # noqa: ARG002
        """Return why an encoded sample's header contradicts that shape; None if it does not."""
        return None

    def sizes_fault(
        self,
        sizes: npt.NDArray[np.uint32],
        shape: tuple[int, ...],  # noqa: ARG002
    ) -> str | None:
        """Return why encoded samples of that shape cannot have those sizes in bytes, else None."""
        return None if sizes.all() else "a sample has no bytes"

    def hidden_fault(self, frame: bytes) -> str | None:  # noqa: ARG002
        """Return a fault of an encoded sample that does not stop its decoding; None without one."""
        return None


class Raw(ChannelFormat):
    """Format of values one after another, little-endian, without any header."""

    framing = Framing.PLAIN

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        if values.nbytes <= _COPIED_BYTES:
            return [values.tobytes()]
        return [np.ascontiguousarray(values).reshape(-1).view(np.uint8).data]

    def decoder(self) -> Decode:
        return _fill


class Xz(ChannelFormat):
    """Format with all samples of a message in one xz stream."""

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
    """Format with an xz stream for each sample; an index file has their ends."""

    framing = Framing.EACH

    def files(self, channel: str) -> tuple[str, ...]:
        return channel, channel + "_i"

    def content(self, channel: ChannelSpec) -> ContentBlock:
        return ContentBlock("custom", f"{channel.name}.xz")

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        return [lzma.compress(value.tobytes(), preset=0) for value in values]

    def encoder(self, stream: StreamSpec, channel: ChannelSpec) -> Encode:
        if channel.name in stream.settings.get(STORED, ()):
            return lambda values: [stored_stream(value) for value in values]
        compress = _compressor(stream, channel).compress
        return lambda values: [compress(value) for value in values]

    def decoder(self) -> Decode:
        unpack = BlockUnpacker().unpack

        def decode(frame: Buffer, out: npt.NDArray[Any], where: str) -> None:
            stream, flat = bytes(frame), out.reshape(-1).view(np.uint8)
            if not unpack(stream, flat):
                flat[:] = np.frombuffer(decompress(stream, len(flat), where), np.uint8)

        return decode


class _Indexed(ChannelFormat):
    """Base of formats that roverd lacks: encoded samples, and an index of their places.

    Attributes:
        row: content of a row of the index, and its number of u8.
    """

    framing = Framing.EACH
    row: ClassVar[tuple[str, int]]

    def files(self, channel: str) -> tuple[str, ...]:
        return channel, channel + "_i"

    def make_entries(self, channel: ChannelSpec) -> dict[str, dict[str, Any]]:
        text, values = self.row
        desc = f"{text} in {channel.name}"
        entry = {"format": "raw", "type": "u8", "shape": [values], "desc": desc}
        return {self.files(channel.name)[1]: entry}

    def side_files(self, channel: str) -> tuple[str, ...]:
        return (channel + ".json",)


class Bytes(_Indexed):
    """Format of samples of bytes that differ in length.

    A sample is u1 [most bytes], decoded with zeros behind its own bytes.
    """

    holds = "u1 [most bytes of a sample]"
    row = "offset and bytes of each sample", 2

    def fits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
        return dtype == np.uint8 and len(shape) == 1

    def content(self, channel: ChannelSpec) -> ContentBlock:
        return ContentBlock("custom", f"{channel.name}.bytes")

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        return [value.tobytes() for value in values]

    def decoder(self) -> Decode:
        def decode(frame: Buffer, out: npt.NDArray[Any], where: str) -> None:
            if fault := self.shape_fault(frame, out.shape):
                raise FormatError(f"{where}: {fault}")
            out[: len(frame)] = np.frombuffer(frame, np.uint8)
            out[len(frame) :] = 0

        return decode

    def shape_fault(self, frame: Buffer, shape: tuple[int, ...]) -> str | None:
        if len(frame) <= shape[0]:
            return None
        return f"{len(frame)} bytes where at most {shape[0]} are declared"

    def sizes_fault(self, sizes: npt.NDArray[np.uint32], shape: tuple[int, ...]) -> str | None:
        longest = int(sizes.max(initial=0))
        if longest <= shape[0]:
            return None
        return f"{longest} bytes where at most {shape[0]} are declared"


class Points(_Indexed):
    """Format of sweeps of any number of points, each packed (`recorder.codecs.points`).

    A sample is u1 [most points, bytes of a point], decoded with zeros behind its own points.  The
    channel's `columns` give the bytes of a point a meaning; the index has no suffix ``.bin``.
    """

    holds = f"u1 [at most {MOST_POINTS} points, bytes of a point]"
    row = "offset and points of each sweep", 2

    def fits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
        return dtype == np.uint8 and len(shape) == 2 and shape[0] <= MOST_POINTS

    def columns_fault(self, columns: Sequence[Column], shape: tuple[int, ...]) -> str | None:
        try:
            point_bytes = points_dtype(columns).itemsize
        except ProtocolError as error:
            return str(error)
        if point_bytes == shape[1]:
            return None
        return f"the columns of a point have {point_bytes} bytes, not {shape[1]}"

    def files(self, channel: str) -> tuple[str, ...]:
        return channel, channel.removesuffix(POINTS_SUFFIX) + "_i"

    def content(self, channel: ChannelSpec) -> ContentBlock:
        return ContentBlock("custom", f"{channel.name}.points")

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        return [pack_planes([transpose(value)]) for value in values]

    def decoder(self) -> Decode:
        def decode(frame: Buffer, out: npt.NDArray[Any], where: str) -> None:
            if fault := self.shape_fault(frame, out.shape):
                raise FormatError(f"{where}: {fault}")
            records = unpack_records(frame, out.shape[1], where)
            out[: len(records)] = records
            out[len(records) :] = 0

        return decode

    def shape_fault(self, frame: Buffer, shape: tuple[int, ...]) -> str | None:
        try:
            points = count_points(frame, shape[1], "a sweep")
        except FormatError as error:
            return str(error)
        if points <= shape[0]:
            return None
        return f"{points} points where at most {shape[0]} are declared"


class Zstandard(_Indexed):
    """Format of images of integers, each packed (`recorder.codecs.shuffling`)."""

    holds = "integers"
    row = "offset and bytes of each sample", 2

    def fits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:  # noqa: ARG002
        return dtype.kind in "iu"

    def content(self, channel: ChannelSpec) -> ContentBlock:
        return ContentBlock("custom", f"{channel.name}.{channel.dtype}.zst")

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        return [pack_image(value) for value in values]

    def decoder(self) -> Decode:
        return unpack_image


class Npz(ChannelFormat):
    """Format with a file for each sample: a zip with one array (numpy, ``numpy.lib.format``)."""

    framing = Framing.NONE

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        return [pack_npz(value) for value in values]

    def decoder(self) -> Decode:
        return _load


class _Pictures(ChannelFormat):
    """Base of formats of encoded pictures."""

    framing = Framing.EACH
    holds = "u1 [height, width, 3]"
    picture = True

    def fits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
        return dtype == np.uint8 and len(shape) == 3 and shape[2] == 3


class Jpeg(_Pictures):
    """Format with a JPEG for each picture, u1 [height, width, 3]: from BGR, decoded to RGB."""

    def content(self, channel: ChannelSpec) -> ContentBlock:
        height, width, _ = channel.shape
        return ContentBlock("image", "jpg", None, width, height)

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        return _encode_jpegs(values, DEFAULT_JPEG_QUALITY, self.name)

    def encoder(self, stream: StreamSpec, channel: ChannelSpec) -> Encode:  # noqa: ARG002
        quality = int(stream.settings.get("jpeg_quality", DEFAULT_JPEG_QUALITY))
        return lambda values: _encode_jpegs(values, quality, stream.name)

    def decoder(self) -> Decode:
        return decode_jpeg

    def shape_fault(self, frame: bytes, shape: tuple[int, ...]) -> str | None:
        size = jpeg_size(frame)
        if size == shape[:2]:
            return None
        return f"a frame of {size and size[::-1]} where {shape[1::-1]} is declared"

    def hidden_fault(self, frame: bytes) -> str | None:
        # A JPEG that was cut decodes all the same, its lower part grey.
        return None if frame.rstrip(b"\0").endswith(b"\xff\xd9") else "the JPEG is cut short"


class H264(_Indexed, _Pictures):
    """Format with an access unit of H.264, as the camera encoded it, for each picture.

    Pictures are u1 [height, width, 3].

    The decoder decodes keyframes; other pictures are decoded by the channel's reader, which has the
    pictures before them.
    """

    row = "offset, bytes and keyframe (0 or 1) of each access unit of H.264", 3
    keyed = True

    def can_start(self, frame: Buffer) -> bool:
        return is_key(frame)

    def content(self, channel: ChannelSpec) -> ContentBlock:
        height, width, _ = channel.shape
        return ContentBlock("image", "video", None, width, height, "YUV_I420_SPLIT", "H.264")

    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:  # noqa: ARG002
        raise StreamChangedError(f"{self.name} is recorded as a camera encodes it: not encoded")

    def decoder(self) -> Decode:
        def decode(frame: Buffer, out: npt.NDArray[Any], where: str) -> None:
            if not is_key(frame):
                raise FormatError(f"{where}: is no keyframe of H.264: needs the pictures before")
            decoder = H264Decoder()
            picture = rgb_pixels(decoder.decode(bytes(frame), where))
            if picture.shape != out.shape:
                raise FormatError(f"{where}: is {picture.shape}, the channel's is {out.shape}")
            out[...] = picture

        return decode

    def shape_fault(self, frame: bytes, shape: tuple[int, ...]) -> str | None:
        try:
            size = picture_size(frame)
        except FormatError as error:
            return str(error)
        if size is None or size == shape[1::-1]:
            return None
        return f"a picture of {size} where {shape[1::-1]} is declared"


CHANNEL_FORMATS: Mapping[str, ChannelFormat] = {
    found.name: found
    for found in (
        Raw("raw"),
        Xz("lzma"),
        XzFrames("lzmaf"),
        Jpeg("mjpg"),
        H264("h264"),
        Bytes("bytes"),
        Points("points"),
        Zstandard("zstdf"),
        Npz("npz", recorded_as="lzmaf"),
        Jpeg("jpg", recorded_as="mjpg"),
    )
}
"""Channel formats by the name in ``meta.json``."""

RECORDED_FORMATS = tuple(n for n, found in CHANNEL_FORMATS.items() if found.recorded_as == n)
"""Formats that a driver may declare."""
PICTURE_FORMATS = tuple(n for n, found in CHANNEL_FORMATS.items() if found.picture)
"""Formats whose samples are pictures."""


def channel_files(channel: str, format_: str) -> tuple[str, ...]:
    """Return the names of a channel's files; of an unknown format, the channel's own alone."""
    found = CHANNEL_FORMATS.get(format_)
    return (channel,) if found is None else found.files(channel)


def indexed_channels(index: str) -> tuple[str, ...]:
    """Return the names that a channel may have whose index is the file `index`."""
    stem = index.removesuffix("_i")
    return () if stem == index else (stem, stem + POINTS_SUFFIX)


def payload(
    channels: Sequence[ChannelSpec], encoded: Sequence[Sequence[Buffer]]
) -> tuple[list[Buffer], tuple[npt.NDArray[np.uint32], ...]]:
    """Join encoded samples to one frame a channel, and u4 sizes [n] of each variable channel.

    Args:
        channels: the stream's, in the order of its declaration.
        encoded: the frames from each channel's encoder.
    """
    frames, sizes = [], []
    for channel, parts in zip(channels, encoded, strict=True):
        if channel.variable:
            sizes.append(np.array([len(part) for part in parts], np.uint32))
        frames.append(parts[0] if len(parts) == 1 else b"".join(parts))
    return frames, tuple(sizes)


def pack_npz(value: npt.NDArray[Any]) -> bytes:
    """Pack an array into an npz file."""
    file = io.BytesIO()
    np.savez(file, data=value)
    return file.getvalue()


def _compressor(stream: StreamSpec, channel: ChannelSpec) -> XzCompressor:
    worth = float(stream.settings.get("xz_worth", WORTH))
    return XzCompressor(channel.np_dtype.itemsize, channel.delta, worth)


def _fill(data: Buffer, out: npt.NDArray[Any], where: str) -> None:
    flat, values = out.reshape(-1).view(np.uint8), np.frombuffer(data, np.uint8)
    if len(values) != len(flat):
        raise FormatError(f"{where}: {len(values)} bytes of {len(out)} samples")
    flat[:] = values


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


def _encode_jpegs(images: npt.NDArray[Any], quality: int, where: str) -> list[Buffer]:
    frames: list[Buffer] = []
    for image in images:
        frame = encode_jpeg(image, quality)
        if frame is None:
            raise StreamChangedError(f"{where}: OpenCV cannot encode a frame as JPEG")
        frames.append(frame)
    return frames
