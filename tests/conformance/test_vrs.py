"""pyvrs (PyPI `vrs`) on what our writer wrote, and our reader beside it on what both read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.common.files import PosixDisk
from recorder.formats.vrs import (
    Compression,
    Compressor,
    CustomContent,
    DataBlock,
    ImageContent,
    LayoutBlock,
    PixelFormat,
    RecordableType,
    RecordLayout,
    RecordType,
    StreamId,
    StreamSpec,
    VrsReader,
    VrsWriter,
    rewrite_vrs,
)
from recorder.formats.vrs.streams import recordable_name
from tests.formats.vrs import golden, kit
from tests.h264 import GROUP, SIZE, decoded
from tests.session.build import build_session, video_camera_spec

pytestmark = pytest.mark.conformance
pyvrs = pytest.importorskip("pyvrs", reason="needs PyPI `vrs`: run `make conformance`")

PLANES = (PixelFormat.YUV_I420_SPLIT, PixelFormat.YUV_420_NV12, PixelFormat.YUV_420_NV21)
COMPRESSORS = [None, Compressor(Compression.LZ4), Compressor(Compression.ZSTD)]


def checksum(path: Path) -> str:
    text = str(pyvrs.records_checksum(str(path), False))
    assert len(text) == 16 and int(text, 16) >= 0, text  # it returns a text where it fails
    return text


def their_values(record: Any) -> list[dict[str, Any]]:
    return [dict(block) for block in record.metadata_blocks]


def assert_same_records(path: Path) -> int:
    """Both readers give the same streams, tags, records, values and blocks."""
    theirs = pyvrs.SyncVRSReader(str(path))
    with VrsReader(path) as ours:
        assert {str(stream) for stream in ours.streams} == theirs.stream_ids
        assert ours.tags == dict(theirs.file_tags)
        for stream in ours.streams.values():
            assert stream.tags == dict(theirs.stream_tags[str(stream.id)])
            info = theirs.get_stream_info(str(stream.id))
            assert info["device_name"]
            if stream.serial:
                assert info["serial_number"] == stream.serial
            assert info.get("flavor", "") == stream.flavor
            for kind in (RecordType.CONFIGURATION, RecordType.STATE, RecordType.DATA):
                count = ours.counts().get((stream.id, kind), 0)
                assert info[f"{kind.tag.lower()}_records_count"] == count
        assert len(ours) == len(theirs)
        for number, record in enumerate(theirs):
            assert_same_record(ours[number], record)
        return len(ours)


def assert_same_record(ours: Any, theirs: Any) -> None:
    assert (str(ours.stream), ours.record_type.tag.lower()) == (
        theirs.stream_id,
        theirs.record_type,
    )
    assert ours.timestamp_s == theirs.timestamp
    assert ours.header().version == theirs.format_version
    blocks = ours.blocks()
    layouts = [b for b in blocks if isinstance(b, LayoutBlock)]
    assert len(layouts) == theirs.n_metadata_blocks
    for layout, values in zip(layouts, their_values(theirs), strict=True):
        assert values.keys() <= layout.as_dict().keys()
        for label, value in layout.as_dict().items():
            # pyvrs leaves vectors out that are empty.
            theirs_value = values.get(label, [])
            assert kit.same(value, numbers(theirs_value)), (label, value, theirs_value)
    for name in ("image", "audio", "custom"):
        mine = [b for b in blocks if isinstance(b, DataBlock) and b.content.keyword == name]
        others = list(getattr(theirs, f"{name}_blocks"))
        assert len(mine) == len(others)
        for block, other in zip(mine, others, strict=True):
            assert block.known
            assert comparable(block) == np.asarray(other).tobytes()


def comparable(block: DataBlock) -> bytes:
    """Their images are arrays without padding at the ends of lines, and without further planes."""
    content = block.content
    if isinstance(content, ImageContent) and content.format == "raw":
        if content.pixel_format in PLANES:
            return block.data[: content.width * content.height]
        if content.stride:
            return block.array().tobytes()
    return block.data


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_all_streams_and_blocks(tmp_path: Path, compressor: Compressor | None) -> None:
    path = kit.write_file(tmp_path / "a.vrs", 20, compressor=compressor)
    assert assert_same_records(path) == 20 * kit.RECORDS_PER_STEP + 2


def numbers(value: Any) -> Any:
    """pyvrs gives a char as one byte, or several as one string of bytes."""
    if isinstance(value, bytes):
        signed = np.frombuffer(value, np.int8)
        return signed[0] if len(signed) == 1 else signed
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [numbers(item) for item in value]
    return value


def test_every_piece_type(tmp_path: Path) -> None:
    spec = kit.every_piece()
    rng = np.random.default_rng(4)
    stream = StreamSpec(
        RecordableType.SENSOR_DATA, "test/every", {(RecordType.DATA, 1): RecordLayout(spec)}
    )
    writer = VrsWriter.create(tmp_path / "a.vrs", PosixDisk(), [stream])
    rows = [kit.some_values(spec, rng) for _ in range(20)]
    for number, values in enumerate(rows):
        data = spec.encode(values)
        writer.put(StreamId(240, 1), RecordType.DATA, 1, float(number), [data])
    writer.finish()
    kit.close(writer)
    theirs = pyvrs.SyncVRSReader(str(tmp_path / "a.vrs"))
    for record, values in zip(theirs, rows, strict=True):
        read = their_values(record)[0]
        for piece, value in zip(spec.pieces, values, strict=True):
            there = read.get(piece.label, [] if piece.kind == "Vector" else None)
            assert kit.same(value, numbers(there)), (piece.label, value, there)
    assert assert_same_records(tmp_path / "a.vrs") == 20


@pytest.mark.parametrize("closed", [True, False])
def test_an_index_in_a_chunk_of_its_own(tmp_path: Path, closed: bool) -> None:
    path = kit.split_file(tmp_path, closed=closed)
    assert assert_same_records(path) == 6 * kit.RECORDS_PER_STEP + 2


@pytest.mark.parametrize("name", golden.FILES)
def test_files_of_their_writer(name: str) -> None:
    assert assert_same_records(golden.FOLDER / name) == len(golden.STREAMS) * (golden.FRAMES + 1)


def test_a_real_recording(shared_data: Path) -> None:
    assert assert_same_records(shared_data / "vrs" / "aria_recording.vrs") == 785


def sources(shared_data: Path, folder: Path) -> list[Path]:
    ours = kit.write_file(folder / "ours.vrs", 9)
    real = shared_data / "vrs" / "aria_recording.vrs"
    return [ours, real, *(golden.FOLDER / name for name in golden.FILES)]


def test_checksums_agree_after_a_rewrite(shared_data: Path, tmp_path: Path) -> None:
    for source in sources(shared_data, tmp_path):
        before = checksum(source)
        for compressor in COMPRESSORS:
            kind = compressor.kind.name if compressor else "NONE"
            target = tmp_path / f"{source.stem}_{kind}.vrs"
            rewrite_vrs(source, target, PosixDisk(), compressor=compressor)
            assert checksum(target) == before, (source, kind)
            again = tmp_path / f"{source.stem}_{kind}_again.vrs"
            rewrite_vrs(target, again, PosixDisk())
            assert checksum(again) == before
            assert_same_records(again)


def test_cut_anywhere_after_the_description(tmp_path: Path) -> None:
    whole = kit.write_file(tmp_path / "whole.vrs", 3).read_bytes()
    with VrsReader(tmp_path / "whole.vrs") as reader:
        start = reader.header.header_bytes
        first = start + int.from_bytes(whole[start : start + 4], "little")
        ends = sorted(r.offset + r.size for r in reader)
    path = tmp_path / "cut.vrs"
    path.write_bytes(whole)
    rng = np.random.default_rng(1)
    near = {end + step for end in ends for step in (-1, 0, 1, 31, 32, 33)}
    cuts = near | set(rng.integers(first, len(whole), 150).tolist())
    for cut in sorted((c for c in cuts if first <= c < len(whole)), reverse=True):
        os.truncate(path, cut)
        expected = sum(end <= cut for end in ends)
        with VrsReader(path) as ours:
            assert len(ours) == expected, cut
            assert not ours.indexed and ours.tail is not None
        theirs = pyvrs.SyncVRSReader(str(path))
        assert len(theirs) == expected, cut
    assert_same_records(path)


def test_a_writer_that_went_on(tmp_path: Path) -> None:
    path = tmp_path / "a.vrs"
    kit.write_file(tmp_path / "whole.vrs", 12)
    writer = kit.create(path)
    kit.begin(writer)
    for step in range(12):
        kit.write_step(writer, step)
        length, index_length = kit.flush(writer)
        kit.write_step(writer, 99)  # lost again
        kit.close(writer)
        writer = VrsWriter.resume(path, PosixDisk(), length, index_length=index_length)
    kit.close(writer)
    assert assert_same_records(path) == 12 * kit.RECORDS_PER_STEP + 2  # by a rebuilt index
    writer = VrsWriter.resume(path, PosixDisk(), path.stat().st_size)
    writer.finish()
    kit.close(writer)
    assert path.read_bytes() == (tmp_path / "whole.vrs").read_bytes()
    assert assert_same_records(path) == 12 * kit.RECORDS_PER_STEP + 2
    assert checksum(path) == checksum(tmp_path / "whole.vrs")


# PyPI `vrs` 1.2.2 was built before these two were added to the format.
TOO_NEW = (PixelFormat.BAYER8_GBRG, PixelFormat.BAYER10_GBRG)
PACKED = (
    PixelFormat.YUY2,
    PixelFormat.RAW10,
    PixelFormat.RAW10_BAYER_RGGB,
    PixelFormat.RAW10_BAYER_BGGR,
    PixelFormat.GREY10PACKED,
)


PIXELS = [p for p in PixelFormat if p and p not in TOO_NEW]
# Of those in planes, and packed ones, neither reader gives pixels without their padding.
STRIDED = [p for p in PIXELS if p not in (*PLANES, *PACKED)]


@pytest.mark.parametrize(
    ("pixel", "stride"), [(p, 0) for p in PIXELS] + [(p, 400) for p in STRIDED]
)
def test_images_of_every_pixel_format(tmp_path: Path, pixel: PixelFormat, stride: int) -> None:
    content = ImageContent(format="raw", width=24, height=7, pixel_format=pixel, stride=stride)
    # What follows the image lies right only where both agree on the image's size.
    layout = RecordLayout(content, CustomContent(size=4))
    stream = StreamSpec(RecordableType.RGB_CAMERA, "test/pixels", {(RecordType.DATA, 1): layout})
    writer = VrsWriter.create(tmp_path / "a.vrs", PosixDisk(), [stream])
    assert content.raw_size
    data = np.random.default_rng(1).bytes(content.raw_size)
    writer.streams[StreamId(214, 1)].write(RecordType.DATA, 1.0, data, b"end!")
    writer.finish()
    kit.close(writer)
    assert assert_same_records(tmp_path / "a.vrs") == 1
    spec = pyvrs.SyncVRSReader(str(tmp_path / "a.vrs"))[0].image_specs[0]
    assert (spec.width, spec.height, spec.pixel_format) == (24, 7, pixel.text)
    if not stride:
        return
    with VrsReader(tmp_path / "a.vrs") as ours:
        block = ours[0].blocks()[0]
        assert isinstance(block, DataBlock)
        assert block.array().shape[:2] == (7, 24)


def test_jpegs_decode_to_the_same_pixels(tmp_path: Path) -> None:
    import cv2

    y, x = np.mgrid[0:48, 0:64]
    picture = np.stack([x * 4, y * 5, x + y], -1).astype(np.uint8)
    _, jpeg = cv2.imencode(".jpg", picture)
    writer = kit.create(tmp_path / "a.vrs")
    kit.begin(writer)
    stream = writer.streams[kit.CAMERA_ID]
    stream.write(RecordType.DATA, 1.0, kit.CameraData(), jpeg.tobytes(), version=2)
    writer.finish()
    kit.close(writer)
    reader = pyvrs.SyncVRSReader(str(tmp_path / "a.vrs"))
    reader.set_image_conversion(pyvrs.ImageConversion.NORMALIZE)
    decoded = np.asarray(reader[2].image_blocks[0])
    expected = cv2.cvtColor(cv2.imdecode(jpeg, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    assert decoded.shape == expected.shape
    assert np.abs(decoded.astype(int) - expected).max() <= 2


def test_compressed_video_is_what_ffmpeg_decodes(tmp_path: Path) -> None:
    """pyvrs gives the units and their place after the keyframe; FFmpeg decodes all of them."""
    import av

    session = build_session(tmp_path / "drive", video_camera_spec(), count=GROUP + 3).path
    (result,) = finalize(session, [ArchiveRequest("vrs")], out=tmp_path)
    reader = pyvrs.SyncVRSReader(str(result.files[0]))
    records = [record for record in reader if record.n_image_blocks]
    specs = [record.image_specs[0] for record in records]
    assert {(s.image_format, s.codec_name, (s.width, s.height)) for s in specs} == {
        ("video", "H.264", SIZE)
    }
    assert [s.key_frame_index for s in specs] == [k % GROUP for k in range(GROUP + 3)]
    keys = [int(records[k - k % GROUP].timestamp) for k in range(GROUP + 3)]
    assert [s.key_frame_timestamp for s in specs] == keys  # pyvrs gives whole seconds
    codec = av.CodecContext.create("h264", "r")
    pictures = []
    for record in records:
        pictures += codec.decode(av.Packet(np.asarray(record.image_blocks[0]).tobytes()))
    pictures += codec.decode(None)
    expected = decoded(session / "camera" / "video.h264")
    assert len(pictures) == len(expected) == GROUP + 3
    for picture, reference in zip(pictures, expected, strict=True):
        np.testing.assert_array_equal(picture.to_ndarray(format="rgb24"), reference)


def test_names_of_streams() -> None:
    for kind in RecordableType:
        assert recordable_name(kind) == pyvrs.recordable_type_id_name(f"{int(kind)}-1")


def test_custom_blocks_without_a_layout_before_them(tmp_path: Path) -> None:
    """A limit of pyvrs that docs/vrs.md tells of: it keeps the last of them only."""
    layout = RecordLayout(CustomContent(size=3), CustomContent(size=2))
    stream = StreamSpec(RecordableType.SENSOR_DATA, "test/custom", {(RecordType.DATA, 1): layout})
    writer = VrsWriter.create(tmp_path / "a.vrs", PosixDisk(), [stream])
    writer.streams[StreamId(240, 1)].write(RecordType.DATA, 1.0, b"abc", b"de")
    writer.finish()
    kit.close(writer)
    record = pyvrs.SyncVRSReader(str(tmp_path / "a.vrs"))[0]
    assert [np.asarray(b).tobytes() for b in record.custom_blocks] == [b"de"]
    with VrsReader(tmp_path / "a.vrs") as ours:
        blocks = [b.data for b in ours[0].blocks() if isinstance(b, DataBlock)]
        assert blocks == [b"abc", b"de"]
