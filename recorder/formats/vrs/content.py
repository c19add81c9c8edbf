"""Blocks of a record's data, and their decoding (VRS, ContentBlockReader.cpp)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.formats.vrs.layout import DataLayout, LayoutSpec
from recorder.formats.vrs.media import (
    AUDIO_FORMATS,
    PIXEL_ARRAYS,
    AudioSampleFormat,
    AudioSpec,
    NextContentBlockSpec,
    OldImageSpec,
    PixelFormat,
)
from recorder.formats.vrs.record_format import (
    AudioContent,
    Content,
    CustomContent,
    EmptyContent,
    ImageContent,
    LayoutContent,
)
from recorder.formats.vrs.streams import RecordLayout, next_size

L = TypeVar("L", bound=DataLayout)
_BYTES_TO_PIXEL = {
    1: PixelFormat.GREY8,
    3: PixelFormat.RGB8,
    4: PixelFormat.DEPTH32F,
    8: PixelFormat.SCALAR64F,
}


@dataclass(frozen=True)
class LayoutBlock:
    """Layout block with its values.

    >>> block["exposure_time"]  # doctest: +SKIP
    0.01

    Attributes:
        spec: pieces of the layout.
        values: one value per piece, in the order of the pieces.
        size: size in bytes.
    """

    spec: LayoutSpec
    values: list[Any]
    size: int

    def __getitem__(self, label: str) -> Any:
        """Return the value of the (first) piece of that name; raise KeyError without one."""
        return self._labels[label]

    @cached_property
    def _labels(self) -> dict[str, Any]:
        pairs = zip(reversed(self.spec.pieces), reversed(self.values), strict=True)
        return {piece.label: value for piece, value in pairs}

    def as_dict(self) -> dict[str, Any]:
        """Return the values under their labels, in stored order."""
        return {piece.label: self._labels[piece.label] for piece in self.spec.pieces}

    def read(self, layout: type[L]) -> L:
        """Convert to an instance of a layout class; see `DataLayout.map`."""
        return layout.map(self.spec, self.values)


@dataclass(frozen=True, slots=True)
class DataBlock:
    """Image, audio, or custom block.

    Attributes:
        content: description, completed from layouts; its size is that of `data`.
        data: stored bytes.
        known: whether the block's end is known; if not, `data` are all remaining bytes.
    """

    content: Content
    data: bytes
    known: bool = True

    def array(self) -> npt.NDArray[Any]:
        """Return the pixels of a raw image, or the samples of PCM audio, fresh and writable.

        Returns:
            Images: [height, width] or [height, width, channels], in the order of the pixel
            format's name; u1, u2, f4 or f8.  Audio: [samples, channels].

        Raises:
            FormatError: the block is compressed, packed, in several planes, or not fully described.
        """
        if isinstance(self.content, ImageContent):
            return _read_pixels(self.content, self.data)
        if isinstance(self.content, AudioContent):
            return _read_samples(self.content, self.data)
        raise FormatError(f"a block '{self.content}' is no array")


Block = LayoutBlock | DataBlock


def _read_pixels(content: ImageContent, data: bytes) -> npt.NDArray[Any]:
    size = content.raw_size
    if content.format != "raw" or content.pixel_format not in PIXEL_ARRAYS or size != len(data):
        raise FormatError(f"an image '{content}' of {len(data)} bytes is no array of pixels")
    dtype, channels = PIXEL_ARRAYS[content.pixel_format]
    line = content.pixel_format.default_stride(content.width)
    stride = content.stride or line
    if stride < line:
        raise FormatError(f"an image '{content}', whose lines overlap, is no array of pixels")
    lines = np.frombuffer(data, np.uint8).reshape(content.height, stride)[:, :line]
    pixels = np.ascontiguousarray(lines).view(dtype)
    shape = (content.height, content.width, channels)
    return pixels.reshape(shape if channels > 1 else shape[:2]).copy()


def _read_samples(content: AudioContent, data: bytes) -> npt.NDArray[Any]:
    name = content.sample_format.name
    width = content.sample_format.bytes_per_sample
    known = content.format == "pcm" and content.channels and width and width != 3
    packed = width * content.channels
    stride = content.frame_stride
    if not known or stride < packed or len(data) % stride or "LAW" in name:
        raise FormatError(f"audio '{content}' of {len(data)} bytes is no array of samples")
    kind = "f" if name.startswith("FLOAT") else "u" if name.startswith("U") else "i"
    frames = np.frombuffer(data, np.uint8).reshape(-1, stride)[:, :packed]
    order = ">" if name.endswith("BE") else "<"
    return np.ascontiguousarray(frames).view(f"{order}{kind}{width}").copy()


def read_blocks(
    layout: RecordLayout, data: bytes, configuration: Callable[[], Sequence[Block]]
) -> list[Block]:
    """Split a record into blocks.

    Args:
        layout: declaration of the record in the stream's tags.
        data: the whole record, uncompressed.
        configuration: returns the blocks of the stream's last configuration record; called only if
            the record does not describe itself.

    Raises:
        FormatError: the data end too early for their layouts, or a layout is not declared.
    """
    blocks: list[Block] = []
    at = 0
    for number, content in enumerate(layout.format):
        if isinstance(content, EmptyContent):
            continue
        if isinstance(content, LayoutContent):
            spec = layout.layouts[number]
            if spec is None:
                raise FormatError(f"block {number} is a layout that no tag declares well")
            values, size = spec.decode(memoryview(data)[at:])
            blocks.append(LayoutBlock(spec, values, size))
            at += size
            continue
        size_known = _find_size(layout, blocks, number, len(data) - at)
        whole = _complete(content, size_known, blocks, configuration)
        size_known = whole.size
        # Without a size, the rest of the record is one block: no later block can be found.
        if size_known is None or size_known > len(data) - at:
            rest = data[at:]
            blocks.append(DataBlock(replace(whole, size=len(rest)), rest, known=False))
            break
        blocks.append(DataBlock(whole, data[at : at + size_known]))
        at += size_known
    return blocks


def _find_size(layout: RecordLayout, blocks: list[Block], number: int, left: int) -> int | None:
    """Return the bytes of a block, from the layout right before it or from the format."""
    content = layout.format.blocks[number]
    sized = isinstance(content, CustomContent) or (
        isinstance(content, ImageContent) and content.format == "raw"
    )
    if sized and content.block_size is not None:
        return content.block_size
    before = blocks[-1] if blocks and number else None
    if isinstance(before, LayoutBlock) and layout.layouts[number - 1] is before.spec:
        declared = next_size(before.spec, before.values)
        if declared is not None:
            return declared
    return layout.format.find_size(number, left)


def _complete(
    content: Content,
    size: int | None,
    blocks: list[Block],
    configuration: Callable[[], Sequence[Block]],
) -> Content:
    """Return a block's content with size and description from layouts; size None if unknown."""
    if isinstance(content, AudioContent):
        audio = _complete_audio(content, size, _find_layouts(blocks, configuration))
        return _complete_audio_size(audio, size, blocks[-1:])
    if not isinstance(content, ImageContent) or content.format in ("jpg", "png", "jxl"):
        return replace(content, size=size)
    if content.format == "raw" and content.block_size is not None:
        return replace(content, size=content.block_size)
    for layout in _find_layouts(blocks, configuration):
        found = _complete_image(content, size, layout.read(OldImageSpec))
        if found is not None:
            return found
    return replace(content, size=size if content.format != "raw" else None)


def _find_layouts(
    blocks: list[Block], configuration: Callable[[], Sequence[Block]]
) -> Iterator[LayoutBlock]:
    """Yield the layouts that may describe a block, nearest first."""
    yield from (b for b in reversed(blocks) if isinstance(b, LayoutBlock))
    yield from (b for b in reversed(configuration()) if isinstance(b, LayoutBlock))


def _complete_image(
    content: ImageContent, size: int | None, spec: OldImageSpec
) -> ImageContent | None:
    pixel = spec.pixel_format if isinstance(spec.pixel_format, PixelFormat) else None
    if not pixel:
        pixel = _BYTES_TO_PIXEL.get(spec.bytes_per_pixel or spec.bytes_per_pixel_8)
    known = bool(spec.width and spec.height and pixel)
    if known and pixel:
        content = replace(
            content,
            width=spec.width,
            height=spec.height,
            pixel_format=pixel,
            stride=spec.stride,
            stride_2=spec.stride_2,
        )
    if content.format == "raw":
        return replace(content, size=content.raw_size) if known else None
    codec = spec.codec_name or content.codec
    if size is None or not codec or not (known or spec.codec_name):
        return None
    quality = spec.codec_quality if spec.codec_quality <= 100 else content.codec_quality
    return replace(content, codec=codec, codec_quality=quality, size=size)


def _complete_audio(
    content: AudioContent, size: int | None, layouts: Iterator[LayoutBlock]
) -> AudioContent:
    if content.format == "pcm" and content.sample_format and content.channels:
        return content
    for layout in layouts:
        spec = layout.read(AudioSpec)
        sample = spec.sample_format
        known = isinstance(sample, AudioSampleFormat) and sample and spec.channels and spec.rate_hz
        if known and 0 < spec.format < len(AUDIO_FORMATS):
            kind = AUDIO_FORMATS[spec.format]
            about = (sample, spec.channels, spec.rate_hz, spec.samples, spec.stride)
            return AudioContent(size, kind, *about)
    return replace(content, format="undefined")


def _complete_audio_size(
    content: AudioContent, size: int | None, before: Sequence[Block]
) -> AudioContent:
    """Complete audio with size and number of samples; size None if they contradict each other."""
    if content.format != "pcm":
        return replace(content, size=None if content.format == "undefined" else size)
    stride = content.frame_stride
    samples = content.samples
    if not samples and before and isinstance(before[0], LayoutBlock):
        samples = before[0].read(NextContentBlockSpec).audio_sample_count
    if samples:
        whole = stride * samples
        return replace(content, samples=samples, size=whole if size in (None, whole) else None)
    if size is None or not stride or size % stride:
        return replace(content, size=None)
    return replace(content, samples=size // stride, size=size)
