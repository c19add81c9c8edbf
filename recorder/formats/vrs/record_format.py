"""RecordFormat strings, which describe a record's blocks (VRS, RecordFormat.cpp).

>>> str(RecordFormat.parse("data_layout/size=12+image/raw/640x480/pixel=grey8"))
'data_layout/size=12+image/raw/640x480/pixel=grey8'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from recorder.common.errors import FormatError
from recorder.formats.vrs.media import AUDIO_FORMATS, IMAGE_FORMATS, AudioSampleFormat, PixelFormat

_ESCAPED = "+/\\% \"'"
_FORMAT_NAME = re.compile(r"[^A-Za-z0-9_\-*.,;:!@~#&|\[\]{}']")


@dataclass(frozen=True, slots=True)
class Content:
    """Description of a block.

    `size` is its number of bytes, if the format states it.
    """

    size: int | None = None
    keyword: ClassVar[str] = "empty"

    @property
    def block_size(self) -> int | None:
        """Bytes that follow from the format alone; None if they do not."""
        return self.size

    @property
    def details(self) -> str:
        """Text after the size."""
        return ""

    def __str__(self) -> str:
        size = "" if self.size is None else f"/size={self.size}"
        return f"{self.keyword}{size}{'/' if self.details else ''}{self.details}"


@dataclass(frozen=True, slots=True)
class EmptyContent(Content):
    """Description of no block, in a record without data."""

    @property
    def block_size(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class LayoutContent(Content):
    """Description of a DataLayout; a separate tag holds its declaration."""

    keyword: ClassVar[str] = "data_layout"


@dataclass(frozen=True, slots=True)
class CustomContent(Content):
    """Description of bytes that only their writer interprets; `format` is its name for them."""

    format: str = ""
    keyword: ClassVar[str] = "custom"

    @property
    def details(self) -> str:
        return f"format={_FORMAT_NAME.sub('_', self.format)}" if self.format else ""


@dataclass(frozen=True, slots=True)
class ImageContent(Content):
    """Description of an image.

    Attributes:
        format: "raw", "jpg", "png", "video", "jxl", "custom_codec"; "undefined" if not stated.
        width, height: pixels, 0 if not stated.
        pixel_format: pixel format of raw images, and of decoded ones.
        stride, stride_2: bytes per line of the first and the other planes, 0 for the default.
        codec: name of the codec, for "video" and "custom_codec".
        codec_quality: 0 to 100; None for unknown.
    """

    format: str = "undefined"
    width: int = 0
    height: int = 0
    pixel_format: PixelFormat = PixelFormat.UNDEFINED
    stride: int = 0
    stride_2: int = 0
    codec: str = ""
    codec_quality: int | None = None
    keyword: ClassVar[str] = "image"

    @property
    def raw_size(self) -> int | None:
        """Bytes of the image in raw form."""
        return self.pixel_format.raw_size(self.width, self.height, self.stride, self.stride_2)

    @property
    def block_size(self) -> int | None:
        if self.size is not None or self.format != "raw":
            return self.size
        return self.raw_size

    @property
    def details(self) -> str:
        if self.format == "undefined":
            return ""
        parts = [self.format]
        if self.width and self.height:
            parts.append(f"{self.width}x{self.height}")
        if self.pixel_format:
            parts.append(f"pixel={self.pixel_format.text}")
        coded = self.format in ("video", "custom_codec")
        if coded or self.format == "raw":
            parts += [f"stride={self.stride}"] if self.stride else []
            parts += [f"stride_2={self.stride_2}"] if self.stride_2 else []
        if coded:
            parts += [f"codec={_escape(self.codec)}"] if self.codec else []
            if self.codec_quality is not None:
                parts.append(f"codec_quality={self.codec_quality}")
        return "/".join(parts)


@dataclass(frozen=True, slots=True)
class AudioContent(Content):
    """Description of audio.

    Attributes:
        format: "pcm", "opus"; "undefined" if not stated.
        sample_format: format of one sample of one channel.
        channels, rate_hz, samples: 0 if not stated; samples are per channel.
        stride: bytes of one sample of all channels, 0 for packed.
    """

    format: str = "undefined"
    sample_format: AudioSampleFormat = AudioSampleFormat.UNDEFINED
    channels: int = 0
    rate_hz: int = 0
    samples: int = 0
    stride: int = 0
    keyword: ClassVar[str] = "audio"

    @property
    def frame_stride(self) -> int:
        """Bytes of one sample of all channels; 0 if unknown."""
        return self.stride or self.sample_format.bytes_per_sample * self.channels

    @property
    def block_size(self) -> int | None:
        if self.size is not None or self.format != "pcm":
            return self.size
        return self.frame_stride * self.samples or None

    @property
    def details(self) -> str:
        if self.format == "undefined":
            return ""
        parts = [self.format]
        if self.sample_format:
            parts.append(self.sample_format.text)
        parts += [f"channels={self.channels}"] if self.channels else []
        parts += [f"rate={self.rate_hz}"] if self.rate_hz else []
        parts += [f"samples={self.samples}"] if self.samples else []
        if self.stride and self.stride != self.sample_format.bytes_per_sample * self.channels:
            parts.append(f"stride={self.stride}")
        return "/".join(parts)


class RecordFormat:
    """Blocks of a record, one after another.

    >>> RecordFormat(LayoutContent(), ImageContent(format="jpg"))
    RecordFormat('data_layout+image/jpg')
    """

    def __init__(self, *blocks: Content) -> None:
        self.blocks = blocks

    def __str__(self) -> str:
        return "+".join(str(block) for block in self.blocks) or "empty"

    def __repr__(self) -> str:
        return f"RecordFormat({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordFormat) and self.blocks == other.blocks

    def __hash__(self) -> int:
        return hash(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[Content]:
        return iter(self.blocks)

    def check(self, sizes_next: Iterable[int] = ()) -> None:
        """Check that readers can find the end of each block and of each image line.

        Args:
            sizes_next: numbers of the layout blocks with ``next_content_block_size``, which applies
                only to the block right after them.

        Raises:
            FormatError: no reader could find such an end.
        """
        served = {at + 1 for at in sizes_next}
        open_end: Content | None = None
        for at, block in enumerate(self.blocks):
            raw = isinstance(block, ImageContent) and block.format == "raw"
            if isinstance(block, ImageContent) and block.stride:
                least = block.pixel_format.default_stride(block.width)
                if block.stride < least:
                    raise FormatError(f"'{block}': a line has {least} bytes at least")
            sized = block.block_size is not None
            if open_end is not None and not sized:
                raise FormatError(
                    f"'{self}': no reader can tell where '{open_end}' ends: give it a size, or a "
                    "layout with next_content_block_size right before it"
                )
            if not (sized or raw or at in served or isinstance(block, LayoutContent)):
                open_end = block

    def find_size(self, at: int, remaining: int) -> int | None:
        """Return the bytes of a block by the format alone, if `remaining` bytes are left."""
        own = self.blocks[at].block_size
        if own is not None:
            return own if own <= remaining else None
        after = 0
        for block in self.blocks[at + 1 :]:
            size = block.block_size
            if size is None:
                return None
            after += size
        return remaining - after if after <= remaining else None

    @classmethod
    def parse(cls, text: str, *, strict: bool = True) -> RecordFormat:
        """Parse a RecordFormat string.

        Args:
            text: the tag's value.
            strict: whether an unknown word is a FormatError; otherwise it is ignored, and an
                unknown type of block becomes a custom one, as in the format's own reader.
        """
        return cls(*(_parse_block(part, strict) for part in text.split("+")))


def _parse_block(text: str, strict: bool) -> Content:
    word, *details = text.split("/")
    kinds: dict[str, type[Content]] = {
        kind.keyword: kind
        for kind in (EmptyContent, LayoutContent, CustomContent, ImageContent, AudioContent)
    }
    kind = kinds.get(word)
    if kind is None:
        if strict:
            raise FormatError(f"'{text}': {word!r} is no type of block, {', '.join(kinds)} are")
        return CustomContent()
    size = None
    if details and (found := re.fullmatch(r"size=(\d{1,10})", details[0])):
        size = int(found[1])
        details = details[1:]
    block = kind(size)
    for number, detail in enumerate(details):
        changed: Content | None = None
        if isinstance(block, CustomContent) and detail.startswith("format="):
            changed = replace(block, format=detail.removeprefix("format="))
        elif isinstance(block, ImageContent):
            changed = _parse_image_detail(block, detail, number)
        elif isinstance(block, AudioContent):
            changed = _parse_audio_detail(block, detail, number)
        if changed is None and strict:
            raise FormatError(f"'{text}': unknown detail {detail!r}")
        block = changed or block
    return block


def _parse_image_detail(block: ImageContent, text: str, number: int) -> ImageContent | None:
    if number == 0:
        return replace(block, format=text) if text in IMAGE_FORMATS[1:] else None
    if found := re.fullmatch(r"(\d{1,10})x(\d{1,10})", text):
        return replace(block, width=int(found[1]), height=int(found[2]))
    key, _, value = text.partition("=")
    if key == "pixel" and (pixel := PixelFormat.from_text(value)):
        return replace(block, pixel_format=pixel)
    if key == "codec":
        return replace(block, codec=_unescape(value))
    if not re.fullmatch(r"\d{1,10}", value):
        # Key frame positions belong to single records; such strings are for debugging.
        return block if key == "keyframe_timestamp" else None
    if key == "stride":
        return replace(block, stride=int(value))
    if key == "stride_2":
        return replace(block, stride_2=int(value))
    if key == "codec_quality":
        return replace(block, codec_quality=int(value) if int(value) <= 100 else None)
    return block if key == "keyframe_index" else None


def _parse_audio_detail(block: AudioContent, text: str, number: int) -> AudioContent | None:
    if number == 0:
        return replace(block, format=text) if text in AUDIO_FORMATS[1:] else None
    if sample := AudioSampleFormat.from_text(text):
        return replace(block, sample_format=sample)
    key, _, value = text.partition("=")
    names = {"channels": "channels", "rate": "rate_hz", "samples": "samples", "stride": "stride"}
    if key not in names or not re.fullmatch(r"\d{1,10}", value):
        return None
    return replace(block, **{names[key]: int(value)})  # type: ignore[arg-type]


def _escape(text: str) -> str:
    data = text.encode("utf-8", "surrogateescape")
    return "".join(
        f"%{byte:02X}" if byte < 32 or byte >= 127 or chr(byte) in _ESCAPED else chr(byte)
        for byte in data
    )


def _unescape(text: str) -> str:
    data = text.encode("utf-8", "surrogateescape")
    plain = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), data)
    return plain.decode("utf-8", "surrogateescape")


def format_tag(record_type: str, version: int) -> str:
    """Return the name of the tag with a record type's RecordFormat: ``RF:Data:1``."""
    return f"RF:{record_type}:{version}"


def layout_tag(record_type: str, version: int, block: int) -> str:
    """Return the name of the tag with a block's DataLayout: ``DL:Data:1:0``."""
    return f"DL:{record_type}:{version}:{block}"


def find_formats(tags: Iterable[str]) -> list[tuple[str, str, int]]:
    """Return the tags that hold a RecordFormat: (name of the tag, record type, version)."""
    pattern = re.compile(r"RF:(Data|Configuration|State|Tags):(\d{1,10})")
    found = ((tag, pattern.fullmatch(tag)) for tag in tags)
    return [(tag, match[1], int(match[2])) for tag, match in found if match]
