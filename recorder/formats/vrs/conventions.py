"""Layouts whose labels describe other blocks to readers (VRS, DataLayoutConventions.h).

Readers match label and element type: they do not find ``image_width`` as uint64. A layout class may
inherit from these, or use them as structs.
"""

from __future__ import annotations

from recorder.formats.vrs.elements import uint8, uint32
from recorder.formats.vrs.layout import DataLayout, Enum, String, Value
from recorder.formats.vrs.media import AudioSampleFormat, PixelFormat

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
