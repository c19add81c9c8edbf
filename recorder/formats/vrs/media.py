"""Pixel, image and audio formats (VRS, RecordFormat.h and .cpp).

They have names in RecordFormat strings, numbers in layouts, and sizes that follow from them.
"""

from __future__ import annotations

from enum import IntEnum

from recorder.formats.vrs.layout import DataLayout, Enum, String, Value, uint8, uint32

IMAGE_FORMATS = ("undefined", "raw", "jpg", "png", "video", "jxl", "custom_codec")
"""Names of image formats, in the order of their numbers."""

AUDIO_FORMATS = ("undefined", "pcm", "opus")


class PixelFormat(IntEnum):
    """Pixel formats; the names are those of RecordFormat strings, in capitals."""

    UNDEFINED = 0
    GREY8 = 1
    BGR8 = 2
    DEPTH32F = 3
    RGB8 = 4
    YUV_I420_SPLIT = 5
    RGBA8 = 6
    RGB10 = 7
    RGB12 = 8
    GREY10 = 9
    GREY12 = 10
    GREY16 = 11
    RGB32F = 12
    SCALAR64F = 13
    YUY2 = 14
    RGB_IR_4X4 = 15
    RGBA32F = 16
    BAYER8_RGGB = 17
    RAW10 = 18
    RAW10_BAYER_RGGB = 19
    RAW10_BAYER_BGGR = 20
    YUV_420_NV21 = 21
    YUV_420_NV12 = 22
    GREY10PACKED = 23
    BAYER8_BGGR = 24
    BAYER10_GBRG = 25
    BAYER8_GBRG = 26

    @property
    def text(self) -> str:
        """Name in ``pixel=...``; three of them end in a capital F there."""
        return _PIXEL_TEXTS.get(self, self.name.lower())

    @classmethod
    def from_text(cls, text: str) -> PixelFormat:
        """Return the format of a name, in any case; UNDEFINED for an unknown name."""
        return _PIXELS.get(text.lower(), cls.UNDEFINED)

    def default_stride(self, width: int) -> int:
        """Return the bytes from one line of the first plane to the next."""
        if self in _BYTES_PER_PIXEL:
            return width * _BYTES_PER_PIXEL[self]
        if self in _TEN_BITS_PACKED:  # four pixels in five bytes
            return (width + 3) // 4 * 5
        if self is PixelFormat.YUY2:  # two pixels in four bytes
            return (width + 1) // 2 * 4
        return width if self in _PLANES else 0

    def raw_size(self, width: int, height: int, stride: int = 0, stride_2: int = 0) -> int | None:
        """Return the bytes of a raw image; None if they do not follow from the arguments.

        Args:
            width: pixels, 0 for unknown.
            height: lines, 0 for unknown.
            stride: bytes per line of the first plane, 0 for the default.
            stride_2: bytes per line of the other planes, 0 for the default.
        """
        if not width or not height:
            return None
        size = (stride or self.default_stride(width)) * height
        planes = _PLANES.get(self, 1)
        if planes > 1:
            chroma = (width + 1) // 2 if planes == 3 else width + width % 2
            size += (planes - 1) * (stride_2 or chroma) * ((height + 1) // 2)
        return size or None


_PIXEL_TEXTS = {
    PixelFormat.RGB32F: "rgb32F",
    PixelFormat.SCALAR64F: "scalar64F",
    PixelFormat.RGBA32F: "rgba32F",
}
_PIXELS = {pixel.name.lower(): pixel for pixel in PixelFormat}
_PLANES = {
    PixelFormat.YUV_I420_SPLIT: 3,
    PixelFormat.YUV_420_NV21: 2,
    PixelFormat.YUV_420_NV12: 2,
}
_TEN_BITS_PACKED = (
    PixelFormat.RAW10,
    PixelFormat.RAW10_BAYER_RGGB,
    PixelFormat.RAW10_BAYER_BGGR,
    PixelFormat.GREY10PACKED,
)
PIXEL_ARRAYS: dict[PixelFormat, tuple[str, int]] = {
    PixelFormat.GREY8: ("u1", 1),
    PixelFormat.BAYER8_RGGB: ("u1", 1),
    PixelFormat.BAYER8_BGGR: ("u1", 1),
    PixelFormat.BAYER8_GBRG: ("u1", 1),
    PixelFormat.RGB_IR_4X4: ("u1", 1),
    PixelFormat.GREY10: ("<u2", 1),
    PixelFormat.GREY12: ("<u2", 1),
    PixelFormat.GREY16: ("<u2", 1),
    PixelFormat.BAYER10_GBRG: ("<u2", 1),
    PixelFormat.RGB8: ("u1", 3),
    PixelFormat.BGR8: ("u1", 3),
    PixelFormat.RGBA8: ("u1", 4),
    PixelFormat.RGB10: ("<u2", 3),
    PixelFormat.RGB12: ("<u2", 3),
    PixelFormat.DEPTH32F: ("<f4", 1),
    PixelFormat.SCALAR64F: ("<f8", 1),
    PixelFormat.RGB32F: ("<f4", 3),
    PixelFormat.RGBA32F: ("<f4", 4),
}
"""Dtype and number of values of a pixel, for formats that an array can hold."""
_BYTES_PER_PIXEL = {p: int(kind[-1]) * count for p, (kind, count) in PIXEL_ARRAYS.items()}


class AudioSampleFormat(IntEnum):
    """Audio sample formats; the names are those of RecordFormat strings, in capitals."""

    UNDEFINED = 0
    INT8 = 1
    UINT8 = 2
    UINT8ALAW = 3
    UINT8MULAW = 4
    INT16LE = 5
    UINT16LE = 6
    INT16BE = 7
    UINT16BE = 8
    INT24LE = 9
    UINT24LE = 10
    INT24BE = 11
    UINT24BE = 12
    INT32LE = 13
    UINT32LE = 14
    INT32BE = 15
    UINT32BE = 16
    FLOAT32LE = 17
    FLOAT32BE = 18
    FLOAT64LE = 19
    FLOAT64BE = 20

    @property
    def text(self) -> str:
        """Name in ``audio/pcm/int16le``."""
        return self.name.lower()

    @classmethod
    def from_text(cls, text: str) -> AudioSampleFormat:
        """Return the format of a name, in any case; UNDEFINED for an unknown name."""
        return _SAMPLES.get(text.lower(), cls.UNDEFINED)

    @property
    def bytes_per_sample(self) -> int:
        """Bytes of one sample of one channel; 0 for UNDEFINED."""
        for bits in (64, 32, 24, 16, 8):
            if str(bits) in self.name:
                return bits // 8
        return 0


_SAMPLES = {sample.name.lower(): sample for sample in AudioSampleFormat}


NEXT_CONTENT_BLOCK_SIZE = "next_content_block_size"


class ImageSpec(DataLayout):
    """Description of an image block, in a layout before it or in the last configuration record."""

    width = Value(uint32, "image_width", unit="px")
    height = Value(uint32, "image_height", unit="px")
    stride = Value(uint32, "image_stride", unit="bytes")
    stride_2 = Value(uint32, "image_stride_2", unit="bytes")
    pixel_format = Enum(PixelFormat, uint32, "image_pixel_format")


class CodecSpec(ImageSpec):
    """Description of an image block with a named codec."""

    codec_quality = Value(uint32, "image_codec_quality", default=255)
    codec_name = String("image_codec_name")


class OldImageSpec(CodecSpec):
    """Description of an image block with the older keys that readers accept, too."""

    bytes_per_pixel = Value(uint32, "image_bytes_per_pixel")
    bytes_per_pixel_8 = Value(uint8, "image_bytes_per_pixel")


class AudioSpec(DataLayout):
    """Description of an audio block, in a layout before it or in the last configuration record."""

    format = Value(uint8, "audio_format", default=1)
    sample_format = Enum(AudioSampleFormat, uint8, "audio_sample_format")
    stride = Value(uint8, "audio_sample_stride", unit="bytes")
    channels = Value(uint8, "audio_channel_count")
    rate_hz = Value(uint32, "audio_sample_rate", unit="Hz")
    samples = Value(uint32, "audio_sample_count")


class NextContentBlockSpec(DataLayout):
    """Size of the block right after this layout, and of audio the number of samples."""

    next_content_block_size = Value(uint32, NEXT_CONTENT_BLOCK_SIZE, unit="bytes")
    audio_sample_count = Value(uint32, "audio_sample_count")
