"""H.264 in the archives: MCAP and VRS keep access units, the others get JPEGs of the pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt
import pytest

from drivers.camera.driver import CameraDriver
from drivers.kit.driver import Lost
from drivers.kit.runner import make_driver
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.cli import main
from recorder.codecs.jpeg import encode_jpeg
from recorder.common.errors import SourceError
from recorder.common.files import PosixDisk
from recorder.formats.vrs import (
    DataBlock,
    ImageContent,
    LayoutBlock,
    RecordType,
    VrsReader,
    VrsWriter,
)
from recorder.formats.vrs.streams import StreamTags
from recorder.perception.camera.camera_pictures import Pictures
from recorder.session.reader import Session
from recorder.session.replay import playable_spec, sample_message
from recorder.viewers.foxglove.catalog import stream_channels
from recorder.viewers.live.views.picture import PictureView
from recorder.viewers.report.report_context import SENSOR_MOMENTS
from tests.archives.edgefirst.rig import pack as pack_edgefirst
from tests.archives.mcap.bags import pack as pack_bag
from tests.archives.mcap.reading import read
from tests.archives.ncore.packer_rig import pack as pack_ncore
from tests.h264 import GROUP, SIZE, decoded, number_of
from tests.recording.writer.vrs_session import stream_of
from tests.session.build import Builder, Recorded, video_camera_spec
from tests.support.devices import play

COUNT = 13
REMARK = "camera: video.h264: decoded and packed as JPEGs of quality {}; "


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recorded, Builder]:
    builder = Builder(tmp_path_factory.mktemp("video") / "drive")
    put = builder.add(video_camera_spec(), count=COUNT)
    return builder.close(), put, builder


@pytest.fixture
def path(drive: tuple[Path, Recorded, Builder]) -> Path:
    return drive[0]


@pytest.fixture
def put(drive: tuple[Path, Recorded, Builder]) -> Recorded:
    return drive[1]


def pictures_of(path: Path) -> list[npt.NDArray[np.uint8]]:
    """BGR, as FFmpeg decodes the file."""
    return [picture[..., ::-1] for picture in decoded(path / "camera" / "video.h264")]


def jpegs_of(path: Path, quality: int = 90) -> list[bytes]:
    return [bytes(encode_jpeg(picture, quality) or b"") for picture in pictures_of(path)]


def test_pictures_are_those_that_ffmpeg_decodes(path: Path) -> None:
    with Session(path) as session:
        pictures = Pictures(session.streams["camera"])
        assert (pictures.size, pictures.encodes, pictures.pixels) == (SIZE, True, None)
        for index in (0, 1, 12, 7, 6, 2):
            np.testing.assert_array_equal(pictures.picture(index), pictures_of(path)[index])
        assert [pictures.jpeg(k) for k in range(COUNT)] == jpegs_of(path)


@pytest.mark.parametrize("quality", [None, 60])
def test_ncore_gets_jpegs(path: Path, quality: int | None) -> None:
    packed = pack_ncore(path, poses="identity", jpeg_quality=quality)
    ends = packed.times_us("cameras/camera")[:, 1].tolist()
    images = [packed.keys[f"cameras/camera/frames/{end}/image/0"] for end in ends]
    assert images == jpegs_of(path, quality or 90)
    remark = REMARK.format(quality or 90)
    assert sum(note.startswith(remark) for note in packed.result.notes) == 1


@pytest.mark.parametrize("images", ["jpeg", "png"])
def test_edgefirst_gets_pictures(path: Path, images: str) -> None:
    data = pack_edgefirst(path, images=images, jpeg_quality=70)
    for index, picture in enumerate(pictures_of(path)):
        file = data.file(index, "camera.png" if images == "png" else "camera.jpeg")
        found = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
        if images == "jpeg":
            jpeg = np.frombuffer(jpegs_of(path, 70)[index], np.uint8)
            picture = np.asarray(cv2.imdecode(jpeg, cv2.IMREAD_COLOR), np.uint8)
        np.testing.assert_array_equal(found, picture)


def test_mcap_has_compressed_video(path: Path, put: Recorded, tmp_path: Path) -> None:
    (result,) = finalize(path, [ArchiveRequest("mcap", {})], out=tmp_path)
    found = read(result.files[0])
    assert found.schemas["/camera/video"] == "foxglove.CompressedVideo"
    messages = found.messages["/camera/video"]
    assert [m.value.data for m in messages] == put.data["video.h264"]
    assert {(m.value.format, m.value.frame_id) for m in messages} == {("h264", "camera")}
    assert [m.log_ns for m in messages] == put.t_ns.tolist()
    assert not any("decoded" in note or "no message" in note for note in result.notes)
    # A viewer's decoder takes the messages as they come.
    decoder = av.CodecContext.create("h264", "r")
    numbers = []
    for message in messages:
        for frame in decoder.decode(av.Packet(message.value.data)):
            numbers.append(number_of(frame.to_ndarray(format="rgb24")))
    numbers += [number_of(f.to_ndarray(format="rgb24")) for f in decoder.decode(None)]
    assert numbers == list(range(COUNT))


def test_a_bag_of_ros_2_has_jpegs(drive: tuple[Path, Recorded, Builder]) -> None:
    bag = pack_bag(drive[2], jpeg_quality=80)
    messages = [message for _, message in bag.messages["/camera/image/compressed"]]
    assert [bytes(message.data) for message in messages] == jpegs_of(drive[0], 80)
    assert any(note.startswith(REMARK.format(80)) for note in bag.result.notes)


def test_vrs_has_video_with_its_keyframes(path: Path, put: Recorded, tmp_path: Path) -> None:
    (result,) = finalize(path, [ArchiveRequest("vrs", {})], out=tmp_path)
    with VrsReader(result.files[0]) as vrs:
        stream = stream_of(vrs, "camera")
        records = list(vrs.records(stream, RecordType.DATA))
        assert len(records) == COUNT
        key_s = -1.0
        for index, record in enumerate(records):
            layout, block = record.blocks()
            assert isinstance(layout, LayoutBlock)
            assert isinstance(block, DataBlock)
            content = block.content
            assert isinstance(content, ImageContent)
            assert (content.format, content.codec) == ("video", "H.264")
            assert (content.width, content.height) == SIZE
            assert content.pixel_format.text == "yuv_i420_split"
            assert bytes(block.data) == put.data["video.h264"][index]
            values = layout.as_dict()
            assert (values["image_width"], values["image_height"]) == SIZE
            key_s = record.timestamp_s if index % GROUP == 0 else key_s
            assert values["image_key_frame_timestamp"] == key_s
            assert values["image_key_frame_index"] == index % GROUP


def play_vrs(path: Path) -> tuple[Any, list[Any]]:
    entry = {"name": "again", "scheme": "vrs", "address": str(path), "options": {}, "pace": "max"}
    return play(make_driver(CameraDriver, entry))


def test_video_of_a_vrs_file_is_played_as_it_is(path: Path, put: Recorded, tmp_path: Path) -> None:
    (result,) = finalize(path, [ArchiveRequest("vrs", {})], out=tmp_path)
    spec, items = play_vrs(result.files[0])
    (channel,) = spec.channels
    assert (channel.name, channel.format) == ("video.h264", "h264")
    assert channel.shape == (SIZE[1], SIZE[0], 3)
    assert spec.settings["passed_through"] is True
    units = [bytes(item.data["video.h264"][0]) for item in items]
    assert units == put.data["video.h264"]
    with Session(path) as session:
        t_ns = session.streams["camera"].t_ns
    assert np.concatenate([item.t_ns for item in items]).tolist() == t_ns.tolist()


def rewrite(source: Path, target: Path, change: Callable[[int, bytes], bytes | None]) -> Path:
    """Copy a VRS file with other data records of its camera; None leaves a record out."""
    with VrsReader(source) as vrs:
        stream = stream_of(vrs, "camera")
        streams = {n: StreamTags(found.vrs_tags, found.tags) for n, found in vrs.streams.items()}
        writer = VrsWriter.create_as(target, PosixDisk(), streams, vrs.tags)
        count = 0
        for record in vrs.records(file_order=True):
            header, data = vrs.read(record)
            kept: bytes | None = data
            if record.stream == stream and record.record_type is RecordType.DATA:
                kept = change(count, data)
                count += 1
            if kept is not None:
                kind = record.record_type
                writer.put(record.stream, kind, header.version, record.timestamp_s, [kept])
        writer.finish()
        for file in writer.files:
            file.close()
    return target


def test_video_that_begins_without_a_keyframe_and_damaged_video(
    path: Path, put: Recorded, tmp_path: Path
) -> None:
    (result,) = finalize(path, [ArchiveRequest("vrs", {})], out=tmp_path)
    units = put.data["video.h264"]

    def cut(index: int, data: bytes) -> bytes | None:
        unit = units[index]
        if index == GROUP + 2:
            return data[: -len(unit)] + bytes(len(unit))
        return None if index == 0 else data

    spec, items = play_vrs(rewrite(result.files[0], tmp_path / "cut.vrs", cut))
    causes = [item.cause if isinstance(item, Lost) else "" for item in items]
    assert causes == ["joining"] * (GROUP - 1) + ["", "", "corrupt"] + [""] * (COUNT - GROUP - 3)
    assert spec.channels[0].shape == (SIZE[1], SIZE[0], 3)

    def without_keyframes(index: int, data: bytes) -> bytes | None:
        return data if index % GROUP else None

    broken = rewrite(result.files[0], tmp_path / "none.vrs", without_keyframes)
    with pytest.raises(SourceError, match=r"none\.vrs: the H\.264 of 214-1 has no keyframe"):
        play_vrs(broken)


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_export_decodes(path: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / "out"
    assert main(["export", str(path), "camera", "--to", ending, "--out", str(out)]) == 0
    files = sorted(p for p in out.rglob(f"*.{ending}"))
    assert len(files) == COUNT
    for file, jpeg, picture in zip(files, jpegs_of(path), pictures_of(path), strict=True):
        if ending == "jpg":
            assert file.read_bytes() == jpeg
        else:
            np.testing.assert_array_equal(cv2.imread(str(file)), picture)


def test_the_dashboard_shows_keyframes(path: Path) -> None:
    with Session(path) as session:
        stream = session.streams["camera"]
        spec = playable_spec(stream)
        assert PictureView.is_offered(spec)
        view = PictureView(spec, {})
        for index in range(COUNT):
            message = sample_message(stream, index, spec)
            drawing = view.draw([message])
            if index % GROUP:
                assert drawing is None
                continue
            assert drawing is not None
            assert (drawing.header["width"], drawing.header["height"]) == SIZE
            (array,) = (data for name, data in drawing.arrays if name == "jpeg")
            shown = cv2.imdecode(np.frombuffer(array, np.uint8), cv2.IMREAD_COLOR)
            assert number_of(np.asarray(shown)) == index


def test_foxglove_gets_what_is_recorded(path: Path, put: Recorded) -> None:
    with Session(path) as session:
        stream = session.streams["camera"]
        spec = playable_spec(stream)
        (channel,) = [c for c in stream_channels(spec) if c.topic == "/camera/video"]
        made: list[Any] = list(channel.encode(sample_message(stream, 3, spec), 0))
        assert put.data["video.h264"][3] in b"".join(made[0][1])


def test_the_report_has_pictures(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert main(["report", str(path), "--out", str(out)]) == 0
    assert out.read_text().count('<img src="data:image/') == len(
        range(COUNT)[: SENSOR_MOMENTS["camera"]]
    )
