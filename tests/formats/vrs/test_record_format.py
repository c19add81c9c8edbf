"""RecordFormat strings, and the blocks of records that they describe."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import FormatError
from recorder.formats.vrs import (
    AudioContent,
    AudioSampleFormat,
    CustomContent,
    DataBlock,
    DataLayout,
    EmptyContent,
    ImageContent,
    LayoutBlock,
    PixelFormat,
    RecordFormat,
    RecordLayout,
    Value,
)
from recorder.formats.vrs.content import Block, read_blocks
from recorder.formats.vrs.layout import uint8, uint32
from recorder.formats.vrs.media import (
    AudioSpec,
    CodecSpec,
    ImageSpec,
    NextContentBlockSpec,
)
from recorder.formats.vrs.record_format import LayoutContent


@pytest.mark.parametrize(
    "text",
    [
        "empty",
        "data_layout",
        "data_layout/size=12+image/jpg",
        "image",
        "image/png",
        "image/jxl",
        "image/raw",
        "image/raw/640x480/pixel=grey8",
        "image/raw/640x480/pixel=grey8/stride=648",
        "image/raw/640x480/pixel=yuv_420_nv12/stride=648/stride_2=700",
        "image/raw/3x2/pixel=rgb32F",
        "image/custom_codec/codec=my%2Fown",
        "image/video/64x48/pixel=yuv_i420_split/codec=H.264/codec_quality=70",
        "image/size=12/jpg",
        "audio",
        "audio/opus",
        "audio/pcm",
        "audio/pcm/uint24be/channels=1/rate=32000",
        "audio/pcm/int16le/channels=2/rate=48000/samples=256/stride=6",
        "custom",
        "custom/format=my_own",
        "custom/size=160/format=my_own",
        "data_layout+data_layout/size=4+audio/pcm+custom/size=3",
    ],
)
def test_texts_of_the_format(text: str) -> None:
    assert str(RecordFormat.parse(text)) == text


def test_what_the_text_says() -> None:
    image, audio = RecordFormat.parse(
        "image/raw/640x480/pixel=grey8/stride=648+audio/pcm/uint24be/channels=2/rate=32000"
    )
    assert image == ImageContent(
        format="raw", width=640, height=480, pixel_format=PixelFormat.GREY8, stride=648
    )
    assert image.block_size == 648 * 480
    assert audio == AudioContent(
        format="pcm", sample_format=AudioSampleFormat.UINT24BE, channels=2, rate_hz=32000
    )
    assert isinstance(audio, AudioContent) and audio.frame_stride == 6


@pytest.mark.parametrize(
    "text", ["datalayout", "custom/format=x/size=3", "image/gif", "image/raw/pixel=grb8", "a+b", ""]
)
def test_what_readers_would_pass_over_is_an_error(text: str) -> None:
    with pytest.raises(FormatError):
        RecordFormat.parse(text)
    assert RecordFormat.parse(text, strict=False).blocks


def test_the_keyword_of_the_manual_is_a_custom_block() -> None:
    lenient = RecordFormat.parse("datalayout+image/jpg", strict=False)
    assert lenient.blocks == (CustomContent(), ImageContent(format="jpg"))


@given(st.text(max_size=40))
def test_any_text_is_a_format_or_a_clear_error(text: str) -> None:
    assert len(RecordFormat.parse(text, strict=False)) >= 1
    try:
        strict = RecordFormat.parse(text)
    except FormatError:
        return
    assert RecordFormat.parse(str(strict)) == strict


@pytest.mark.parametrize(
    ("pixel", "size"),
    [
        (PixelFormat.GREY8, 7 * 5),
        (PixelFormat.RGB8, 3 * 7 * 5),
        (PixelFormat.GREY16, 2 * 7 * 5),
        (PixelFormat.YUV_I420_SPLIT, 7 * 5 + 2 * 4 * 3),
        (PixelFormat.YUV_420_NV21, 7 * 5 + 8 * 3),
        (PixelFormat.YUY2, 16 * 5),
        (PixelFormat.RAW10, 10 * 5),
        (PixelFormat.UNDEFINED, None),
    ],
)
def test_sizes_of_raw_images(pixel: PixelFormat, size: int | None) -> None:
    assert pixel.raw_size(7, 5) == size


def test_formats_that_nobody_could_read() -> None:
    two = (CustomContent(), CustomContent())
    with pytest.raises(FormatError, match="where 'custom' ends"):
        RecordLayout(*two)
    with pytest.raises(FormatError, match="where 'image/jpg' ends"):
        RecordLayout(ImageContent(format="jpg"), NextContentBlockSpec, CustomContent(), *two)
    RecordLayout(NextContentBlockSpec, CustomContent(), CustomContent(size=3), CustomContent())
    RecordLayout(NextContentBlockSpec, CustomContent(), NextContentBlockSpec, CustomContent())
    with pytest.raises(FormatError, match="by its DataLayout"):
        RecordLayout(LayoutContent())


def test_lines_that_overlap() -> None:
    content = ImageContent(
        format="raw", width=4, height=2, pixel_format=PixelFormat.RGB8, stride=11
    )
    with pytest.raises(FormatError, match="12 bytes at least"):
        RecordLayout(content)
    with pytest.raises(FormatError, match="overlap"):
        DataBlock(content, bytes(22)).array()


# --- blocks of records


class Number(DataLayout):
    number = Value(uint32, "number")


def blocks_of(layout: RecordLayout, data: bytes, *configuration: DataLayout) -> list[Block]:
    before: list[Block] = [
        LayoutBlock(c.spec, c.spec.decode(c.encode())[0], 0) for c in configuration
    ]
    return read_blocks(layout, data, lambda: before)


def data_block(block: Block) -> DataBlock:
    assert isinstance(block, DataBlock)
    return block


def test_sizes_by_next_content_block_size() -> None:
    layout = RecordLayout(
        NextContentBlockSpec, CustomContent(), Number, CustomContent(size=2), CustomContent()
    )
    data = NextContentBlockSpec(next_content_block_size=3).encode() + b"abc"
    data += Number(number=9).encode() + b"de" + b"rest"
    blocks = blocks_of(layout, data)
    assert [data_block(blocks[i]).data for i in (1, 3, 4)] == [b"abc", b"de", b"rest"]
    assert isinstance(blocks[2], LayoutBlock) and blocks[2]["number"] == 9


def test_it_serves_the_block_right_after_only() -> None:
    layout = RecordLayout(NextContentBlockSpec, Number, CustomContent())
    data = NextContentBlockSpec(next_content_block_size=1).encode() + Number().encode() + b"abc"
    assert data_block(blocks_of(layout, data)[2]).data == b"abc"


def test_size_of_an_open_block_before_sized_ones() -> None:
    layout = RecordLayout(ImageContent(format="jpg"), CustomContent(size=2))
    blocks = blocks_of(layout, b"jpeg..")
    assert [data_block(b).data for b in blocks] == [b"jpeg", b".."]


def test_raw_image_described_before_it_or_in_the_configuration() -> None:
    pixels = bytes(range(24))
    spec = ImageSpec(width=4, height=2, pixel_format=PixelFormat.RGB8)
    config = ImageSpec(width=3, height=8, pixel_format=PixelFormat.GREY8)
    inside = RecordLayout(ImageSpec, ImageContent(format="raw"))
    block = data_block(blocks_of(inside, spec.encode() + pixels, config)[1])
    assert block.array().shape == (2, 4, 3)
    assert block.array().tobytes() == pixels
    outside = RecordLayout(Number, ImageContent(format="raw"))
    block = data_block(blocks_of(outside, Number().encode() + pixels, Number(), config)[1])
    assert block.array().shape == (8, 3)
    block = data_block(blocks_of(outside, Number().encode() + pixels)[1])
    assert not block.known and block.data == pixels


def test_raw_image_of_an_old_file() -> None:
    class Old(DataLayout):
        width = Value(uint32, "image_width")
        height = Value(uint32, "image_height")
        bytes_per_pixel = Value(uint8, "image_bytes_per_pixel")

    old = Old(width=2, height=2, bytes_per_pixel=4)
    block = data_block(blocks_of(RecordLayout(ImageContent(format="raw")), bytes(16), old)[0])
    assert block.array().dtype == np.float32 and block.array().shape == (2, 2)


def test_lines_with_padding() -> None:
    content = ImageContent(
        format="raw", width=3, height=2, pixel_format=PixelFormat.GREY16, stride=8
    )
    data = np.arange(8, dtype="<u2").tobytes()
    block = data_block(blocks_of(RecordLayout(content), data)[0])
    assert block.array().tolist() == [[0, 1, 2], [4, 5, 6]]


def test_codec_images_take_what_layouts_say() -> None:
    spec = CodecSpec(width=8, height=4, pixel_format=1, codec_name="H.264", codec_quality=50)
    layout = RecordLayout(Number, ImageContent(format="video"))
    block = data_block(blocks_of(layout, Number().encode() + b"frame", spec)[1])
    content = block.content
    assert isinstance(content, ImageContent)
    assert (content.codec, content.codec_quality, content.width) == ("H.264", 50, 8)
    assert block.known and block.data == b"frame"


def test_audio_of_the_configuration() -> None:
    spec = AudioSpec(sample_format=AudioSampleFormat.INT16BE, channels=2, rate_hz=8000)
    samples = np.arange(12, dtype=">i2").reshape(6, 2)
    layout = RecordLayout(AudioContent(format="pcm"))
    block = data_block(blocks_of(layout, samples.tobytes(), spec)[0])
    assert isinstance(block.content, AudioContent) and block.content.samples == 6
    np.testing.assert_array_equal(block.array(), samples)
    assert not data_block(blocks_of(layout, samples.tobytes()[:-1], spec)[0]).known
    assert not data_block(blocks_of(layout, samples.tobytes())[0]).known


def test_audio_samples_counted_right_before_it() -> None:
    content = AudioContent(
        format="pcm", sample_format=AudioSampleFormat.UINT8, channels=1, rate_hz=8000
    )

    class Count(DataLayout):
        samples = Value(uint32, "audio_sample_count")

    layout = RecordLayout.from_tags(
        RecordFormat(LayoutContent(4), content, CustomContent()), [Count.spec, None, None]
    )
    blocks = blocks_of(layout, Count(samples=3).encode() + b"abcde")
    assert [data_block(b).data for b in blocks[1:]] == [b"abc", b"de"]


def test_blocks_that_are_no_arrays() -> None:
    for content in (
        ImageContent(format="jpg"),
        CustomContent(),
        EmptyContent(),
        ImageContent(format="raw", width=4, height=1, pixel_format=PixelFormat.RAW10),
        AudioContent(format="pcm", sample_format=AudioSampleFormat.UINT8ALAW, channels=1),
    ):
        with pytest.raises(FormatError, match="no array"):
            DataBlock(content, bytes(5)).array()


def test_a_layout_that_no_tag_declares() -> None:
    layout = RecordLayout.from_tags(RecordFormat(LayoutContent()), [None])
    with pytest.raises(FormatError, match="block 0"):
        blocks_of(layout, b"")
