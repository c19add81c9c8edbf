"""Names that readers look for in layouts to learn about other blocks (VRS,
DataLayoutConventions.h).

Label and element type count: ``image_width`` as uint64 is not found.  Inherit from these, or use
them inside of a layout class as they are.
"""

from __future__ import annotations

from recorder.formats.vrs.elements import float64, uint8, uint32
from recorder.formats.vrs.layout import DataLayout, Enum, String, Value
from recorder.formats.vrs.media import AudioSampleFormat, PixelFormat

IMAGE_WIDTH = "image_width"
IMAGE_HEIGHT = "image_height"
IMAGE_STRIDE = "image_stride"
IMAGE_STRIDE_2 = "image_stride_2"
IMAGE_PIXEL_FORMAT = "image_pixel_format"
IMAGE_BYTES_PER_PIXEL = "image_bytes_per_pixel"
IMAGE_CODEC_NAME = "image_codec_name"
IMAGE_CODEC_QUALITY = "image_codec_quality"
IMAGE_KEY_FRAME_TIMESTAMP = "image_key_frame_timestamp"
IMAGE_KEY_FRAME_INDEX = "image_key_frame_index"
AUDIO_FORMAT = "audio_format"
AUDIO_SAMPLE_FORMAT = "audio_sample_format"
AUDIO_SAMPLE_STRIDE = "audio_sample_stride"
AUDIO_CHANNEL_COUNT = "audio_channel_count"
AUDIO_SAMPLE_RATE = "audio_sample_rate"
AUDIO_SAMPLE_COUNT = "audio_sample_count"
NEXT_CONTENT_BLOCK_SIZE = "next_content_block_size"


class ImageSpec(DataLayout):
    """What an image block is, in a layout before it or in the last configuration record."""

    width = Value(uint32, IMAGE_WIDTH, unit="px")
    height = Value(uint32, IMAGE_HEIGHT, unit="px")
    stride = Value(uint32, IMAGE_STRIDE, unit="bytes")
    stride_2 = Value(uint32, IMAGE_STRIDE_2, unit="bytes")
    pixel_format = Enum(PixelFormat, uint32, IMAGE_PIXEL_FORMAT)


class CodecSpec(ImageSpec):
    """The same for images of a codec that is named."""

    codec_quality = Value(uint32, IMAGE_CODEC_QUALITY, default=255)
    codec_name = String(IMAGE_CODEC_NAME)


class OldImageSpec(CodecSpec):
    """What readers look for: also what stood in the place of pixel formats once."""

    bytes_per_pixel = Value(uint32, IMAGE_BYTES_PER_PIXEL)
    bytes_per_pixel_8 = Value(uint8, IMAGE_BYTES_PER_PIXEL)


class VideoFrameSpec(DataLayout):
    """Which frame of a video an image is, in the layout right before it."""

    key_frame_timestamp_s = Value(float64, IMAGE_KEY_FRAME_TIMESTAMP, unit="s")
    key_frame_index = Value(uint32, IMAGE_KEY_FRAME_INDEX)


class AudioSpec(DataLayout):
    """What an audio block is, in a layout before it or in the last configuration record."""

    format = Value(uint8, AUDIO_FORMAT, default=1)
    sample_format = Enum(AudioSampleFormat, uint8, AUDIO_SAMPLE_FORMAT)
    stride = Value(uint8, AUDIO_SAMPLE_STRIDE, unit="bytes")
    channels = Value(uint8, AUDIO_CHANNEL_COUNT)
    rate_hz = Value(uint32, AUDIO_SAMPLE_RATE, unit="Hz")
    samples = Value(uint32, AUDIO_SAMPLE_COUNT)


class NextContentBlockSpec(DataLayout):
    """How long the block right after this layout is, and if it is audio, how many samples."""

    next_content_block_size = Value(uint32, NEXT_CONTENT_BLOCK_SIZE, unit="bytes")
    audio_sample_count = Value(uint32, AUDIO_SAMPLE_COUNT)
