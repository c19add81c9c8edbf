"""Raw pictures in the archives: VRS keeps the values, NCore and EdgeFirst get 8 bits."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from drivers.kit.driver import EndOfSource, Sample, SensorConfig
from drivers.kit.vrs_source import VrsSource
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.codecs.raw_pixels import RawPixels
from recorder.formats.vrs import DataBlock, ImageContent, RecordType, VrsReader
from recorder.perception.camera.camera_pictures import Pictures
from recorder.session.reader import Session
from tests.archives.edgefirst.rig import pack as pack_edgefirst
from tests.archives.l5kit.rig import pack as pack_l5kit
from tests.archives.ncore.packer_rig import pack as pack_ncore
from tests.recording.writer.vrs_session import stream_of
from tests.session.build import HEIGHT, WIDTH, Builder, Recorded, raw_camera_spec

BAYER, GREY = RawPixels(10, "RGGB"), RawPixels(12)
REMARK = "camera: pictures have the sensor's values ({}, {} bits): packed with 8 bits, {}; "


def built(path: Path, pixels: RawPixels) -> tuple[Path, Recorded]:
    builder = Builder(path)
    put = builder.add(raw_camera_spec(pixels=pixels), 0.2)
    return builder.close(), put


def expected(path: Path) -> list[bytes]:
    with Session(path) as session:
        pictures = Pictures(session.streams["camera"])
        return [pictures.jpeg(index) for index in range(len(session.streams["camera"]))]


@pytest.mark.parametrize(("pixels", "how"), [(BAYER, "demosaiced"), (GREY, "monochrome")])
def test_ncore_gets_jpegs(tmp_path: Path, pixels: RawPixels, how: str) -> None:
    path, put = built(tmp_path / "drive", pixels)
    packed = pack_ncore(path, poses="identity")
    ends = packed.times_us("cameras/camera")[:, 1].tolist()
    assert len(ends) == len(put.t_ns)
    for end, jpeg in zip(ends, expected(path), strict=True):
        assert packed.keys[f"cameras/camera/frames/{end}/image/0"] == jpeg
    remark = REMARK.format(pixels.name, pixels.bits, how)
    assert sum(note.startswith(remark) for note in packed.result.notes) == 1


@pytest.mark.parametrize("pixels", [BAYER, GREY, RawPixels(16), RawPixels(8, "GBRG")])
def test_ncore_gets_the_values_by_option(tmp_path: Path, pixels: RawPixels) -> None:
    path, put = built(tmp_path / "drive", pixels)
    packed = pack_ncore(path, poses="identity", raw_pictures="png")
    ends = packed.times_us("cameras/camera")[:, 1].tolist()
    assert len(ends) == len(put.t_ns)
    with Session(path) as session:
        pictures = Pictures(session.streams["camera"])
        for index, end in enumerate(ends):
            frame = f"cameras/camera/frames/{end}"
            assert packed.attributes(f"{frame}/image")["format"] == "png"
            data = np.frombuffer(packed.keys[f"{frame}/image/0"], np.uint8)
            picture = cv2.imdecode(data, cv2.IMREAD_UNCHANGED)
            assert picture is not None
            assert picture.dtype == pixels.dtype
            np.testing.assert_array_equal(picture, pictures.values(index))
            shown = cv2.cvtColor(pictures.picture(index), cv2.COLOR_BGR2GRAY)
            assert shown.shape == picture.shape
    about = packed.attributes("cameras/camera")["generic_meta_data"]["pixels"]
    assert about == {"format": pixels.name, "bits": pixels.bits, "pattern": pixels.pattern}
    assert packed.noted("camera: pictures are packed as PNGs", pixels.name) == 1


@pytest.mark.parametrize("images", ["jpeg", "png"])
def test_edgefirst_gets_pictures_of_eight_bits(tmp_path: Path, images: str) -> None:
    path, put = built(tmp_path / "drive", BAYER)
    data = pack_edgefirst(path, images=images)
    name = "camera.png" if images == "png" else "camera.jpeg"
    with Session(path) as session:
        pictures = Pictures(session.streams["camera"])
        for index in range(len(put.t_ns)):
            file = np.frombuffer(data.file(index, name), np.uint8)
            picture = cv2.imdecode(file, cv2.IMREAD_COLOR)
            if images == "png":
                np.testing.assert_array_equal(picture, pictures.picture(index))
            else:
                decoded = cv2.imdecode(np.frombuffer(pictures.jpeg(index), np.uint8), 1)
                np.testing.assert_array_equal(picture, decoded)


@pytest.mark.parametrize(
    ("pixels", "text"),
    [
        (BAYER, "grey10"),
        (GREY, "grey12"),
        (RawPixels(10, "GBRG"), "grey10"),
        (RawPixels(8, "RGGB"), "bayer8_rggb"),
        (RawPixels(8, "GRBG"), "grey8"),
        (RawPixels(14, "RGGB"), "grey16"),
        (RawPixels(16), "grey16"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_vrs_keeps_the_values(tmp_path: Path, pixels: RawPixels, text: str) -> None:
    path, put = built(tmp_path / "drive", pixels)
    (result,) = finalize(path, [ArchiveRequest("vrs", {})])
    values = put.data[pixels.channel]
    with VrsReader(result.files[0]) as vrs:
        stream = stream_of(vrs, "camera")
        records = list(vrs.records(stream, RecordType.DATA))
        assert len(records) == len(values)
        for record, value in zip(records, values, strict=True):
            (block,) = (b for b in record.blocks() if isinstance(b, DataBlock))
            assert isinstance(block.content, ImageContent)
            content = block.content
            assert (content.format, content.width, content.height) == ("raw", WIDTH, HEIGHT)
            assert content.pixel_format.text == text
            np.testing.assert_array_equal(block.array(), value)
    assert not any("8 bits" in note for note in result.notes)
    source = VrsSource(SensorConfig("front", "vrs", str(result.files[0]), {}), "camera")
    (spec,) = source.open()
    assert spec.channels == put.spec.channels
    assert put.spec.settings.items() <= spec.settings.items()
    for value in values:
        item = source.read()
        assert isinstance(item, Sample)
        np.testing.assert_array_equal(np.asarray(item.data[pixels.channel])[0], value)
    with pytest.raises(EndOfSource):
        source.read()
    source.close()


def test_l5kit_has_no_pictures(tmp_path: Path) -> None:
    path, put = built(tmp_path / "drive", BAYER)
    assert len(pack_l5kit(path).frames) == len(put.t_ns)
