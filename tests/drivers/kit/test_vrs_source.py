"""``vrs:PATH[#STREAM]``: a small file that the test writes, played by the camera and the IMU."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from drivers.camera.driver import CameraDriver
from drivers.kit.driver import Driver, Lost, Sample
from drivers.kit.runner import make_driver
from drivers.mmwave.driver import MmwaveDriver
from drivers.xsens.driver import XsensDriver
from recorder.common.errors import ConfigError, SourceError
from recorder.common.files import PosixDisk
from recorder.formats.vrs import (
    Array,
    DataLayout,
    ImageContent,
    PixelFormat,
    RecordableType,
    RecordLayout,
    RecordType,
    StreamSpec,
    Value,
    VrsReader,
    VrsWriter,
)
from recorder.formats.vrs.layout import Bool, Point3Df, float32, float64, int64
from tests.support.devices import column, device_times, play, samples, times

HEIGHT, WIDTH = 24, 32
DATA, CONFIGURATION = (RecordType.DATA, 1), (RecordType.CONFIGURATION, 1)


class Rate(DataLayout):
    rate_hz = Value(float64, "nominal_rate")


class Frame(DataLayout):
    t_device_ns = Value(int64, "capture_timestamp_ns")


class AriaLike(DataLayout):
    mag_valid = Value(Bool, "magnetometer_valid")
    t_device_ns = Value(int64, "capture_timestamp_ns")
    acceleration = Array(float32, "accelerometer", 3)
    turn = Array(float32, "gyroscope", 3)
    field = Array(float32, "magnetometer", 3)


class Points(DataLayout):
    acceleration = Value(Point3Df, "acceleration")
    turn = Value(Point3Df, "angular_velocity")


class Instance(IntEnum):
    JPEG, RAW, GREY16 = 1, 2, 3


def picture(at: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    rows = np.arange(HEIGHT * WIDTH * 3, dtype=np.uint16).reshape(HEIGHT, WIDTH, 3)
    return (rows // 12 + at).astype(np.uint8)


def jpeg(at: int) -> bytes:
    return bytes(cv2.imencode(".jpg", picture(at))[1])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vrs") / "some#file.vrs"
    raw = {"format": "raw", "width": WIDTH, "height": HEIGHT}
    camera, imu = RecordableType.RGB_CAMERA, RecordableType.IMU_DATA
    configuration = {CONFIGURATION: RecordLayout(Rate)}
    rgb = ImageContent(**raw, pixel_format=PixelFormat.RGB8)  # type: ignore[arg-type]
    grey = ImageContent(**raw, pixel_format=PixelFormat.GREY16)  # type: ignore[arg-type]
    jpg = RecordLayout(Frame, ImageContent(format="jpg"))
    streams = [
        StreamSpec(camera, "test/jpeg", configuration | {DATA: jpg}),
        StreamSpec(camera, "test/raw", {DATA: RecordLayout(Frame, rgb)}),
        StreamSpec(RecordableType.DEPTH_CAMERA, "test/grey", {DATA: RecordLayout(Frame, grey)}),
        StreamSpec(imu, "test/aria", {DATA: RecordLayout(AriaLike)}),
        StreamSpec(imu, "test/points", configuration | {DATA: RecordLayout(Points)}),
    ]
    writer = VrsWriter.create(path, PosixDisk(), streams)
    jpegs, raws, greys, aria, points = writer.streams.values()
    for stream in (jpegs, points):
        stream.write(RecordType.CONFIGURATION, 0.0, Rate(rate_hz=20.0))
    for at in range(6):
        t = 100 + at / 20
        frame = Frame(t_device_ns=at * 50_000_000 + 7)
        jpegs.write(RecordType.DATA, t + 0.01, frame, jpeg(at))
        raws.write(RecordType.DATA, t + 0.02, frame, picture(at)[..., ::-1].tobytes())
        deep = picture(at)[..., 0].astype("<u2") << 8
        greys.write(RecordType.DATA, t + 0.03, frame, deep.tobytes())
    for at in range(40):
        values = np.arange(3, dtype=np.float32) + at
        t = 100 + at / 400
        record = AriaLike(
            t_device_ns=at, acceleration=values, turn=values / 2, field=values, mag_valid=False
        )
        aria.write(RecordType.DATA, t, record)
        points.write(RecordType.DATA, t, Points(acceleration=values, turn=values / 2))
    writer.finish()
    for file in writer.files:
        file.close()
    return path


def open_(kind: type[Driver], path: Path, stream: str = "", **options: Any) -> Driver:
    address = f"{path}#{stream}" if stream else str(path)
    entry = {"name": "s", "scheme": "vrs", "address": address, "options": options}
    return make_driver(kind, entry)


@pytest.mark.parametrize("stream", ["214-1", "test/jpeg", "TEST/JPEG"])
def test_jpegs_go_on_byte_for_byte(path: Path, stream: str) -> None:
    driver = open_(CameraDriver, path, stream)
    spec, items = play(driver)
    assert spec.channels[0].shape == (HEIGHT, WIDTH, 3) and spec.channels[0].format == "mjpg"
    assert (spec.rate_hz, spec.device_clock, spec.finite) == (20.0, True, True)
    assert driver.origin_ns == 100_000_000_000  # the IMUs' first stamp: of the whole file
    assert [item.data["video.avi"] for item in items] == [[jpeg(at)] for at in range(6)]  # type: ignore[union-attr]
    assert times(items).tolist() == [100_010_000_000 + at * 50_000_000 for at in range(6)]
    assert device_times(items).tolist() == [at * 50_000_000 + 7 for at in range(6)]


def test_raw_pictures_are_given_as_pixels(path: Path) -> None:
    spec, items = play(open_(CameraDriver, path, "214-2", quality=70))
    assert spec.settings["jpeg_quality"] == 70 and spec.rate_hz == pytest.approx(20)
    for at, item in enumerate(items):
        assert isinstance(item, Sample)
        assert np.array_equal(item.data["video.avi"], picture(at)[None])
    _, greys = play(open_(CameraDriver, path, "test/grey"))
    for at, item in enumerate(greys):
        assert isinstance(item, Sample)
        expected = np.repeat(picture(at)[..., :1], 3, axis=2)
        assert np.array_equal(item.data["video.avi"], expected[None])


@pytest.mark.parametrize(
    ("pixel_format", "code"),
    [
        (PixelFormat.YUV_I420_SPLIT, cv2.COLOR_BGR2YUV_I420),
        (PixelFormat.YUV_420_NV12, None),
        (PixelFormat.YUV_420_NV21, None),
        (PixelFormat.YUY2, cv2.COLOR_BGR2YUV_YUY2),
    ],
)
def test_yuv_is_given_as_pixels(
    pixel_format: PixelFormat, code: int | None, tmp_path: Path
) -> None:
    quarters = np.array(
        [[[200, 90, 30], [30, 60, 210]], [[10, 180, 20], [120, 120, 120]]], np.uint8
    )
    smooth = cv2.resize(quarters, (WIDTH, HEIGHT), interpolation=cv2.INTER_NEAREST)
    if code is not None:
        stored = cv2.cvtColor(smooth, code).tobytes()
    else:  # of OpenCV's planes, the interleaved ones
        planes = cv2.cvtColor(smooth, cv2.COLOR_BGR2YUV_I420).reshape(-1)
        luma, u, v = np.split(planes, [WIDTH * HEIGHT, WIDTH * HEIGHT * 5 // 4])
        pairs = (u, v) if pixel_format is PixelFormat.YUV_420_NV12 else (v, u)
        stored = luma.tobytes() + np.stack(pairs, 1).tobytes()
    content = ImageContent(format="raw", width=WIDTH, height=HEIGHT, pixel_format=pixel_format)
    spec = StreamSpec(214, "test/yuv", {DATA: RecordLayout(content)})
    writer = VrsWriter.create(tmp_path / "yuv.vrs", PosixDisk(), [spec])
    next(iter(writer.streams.values())).write(RecordType.DATA, 1.0, stored)
    writer.finish()
    for file in writer.files:
        file.close()
    _, (item,) = play(open_(CameraDriver, tmp_path / "yuv.vrs"))
    assert isinstance(item, Sample)
    (shown,) = np.asarray(item.data["video.avi"])
    np.testing.assert_allclose(shown.astype(int), smooth.astype(int), atol=6)


def test_raw_grey_pictures_keep_their_values_with_codec_copy(path: Path) -> None:
    spec, items = play(open_(CameraDriver, path, "test/grey", codec="copy"))
    (channel,) = spec.channels
    assert (channel.name, channel.dtype, channel.shape) == ("image.y16", "u2", (HEIGHT, WIDTH))
    assert spec.settings["passed_through"] and channel.pixels is not None
    for at, item in enumerate(items):
        assert isinstance(item, Sample)
        deep = picture(at)[..., 0].astype("<u2") << 8
        assert np.array_equal(np.asarray(item.data["image.y16"]), deep[None])
    colour, _ = play(open_(CameraDriver, path, "214-2", codec="copy"))
    assert colour.channels[0].name == "video.avi" and not colour.settings["passed_through"]


def test_an_imus_values_are_found_by_the_usual_names(path: Path) -> None:
    for stream, has_times in (("test/aria", True), ("241-2", False)):
        spec, items = play(open_(XsensDriver, path, stream))
        assert [c.name for c in spec.channels] == ["acc", "avel", "rot"]  # no valid mag
        assert spec.device_clock == has_times
        assert len(samples(items)) == len(items) and 8 <= len(items) < 40  # batches
        acc, avel = column(items, "acc"), column(items, "avel")
        expected = np.arange(3, dtype=np.float32) + np.arange(40, dtype=np.float32)[:, None]
        assert np.array_equal(acc, expected) and np.array_equal(avel, expected / 2)
        assert np.isnan(column(items, "rot")).all()
        if has_times:
            assert device_times(items).tolist() == list(range(40))


def test_which_stream_must_be_clear(path: Path) -> None:
    with pytest.raises(SourceError, match=r"select a stream, as in #209-1; its camera streams: "):
        open_(CameraDriver, path).open()
    with pytest.raises(SourceError, match="no camera stream matches '241-1'"):
        open_(CameraDriver, path, "241-1").open()
    with pytest.raises(SourceError, match="no imu stream matches 'nobody'"):
        open_(XsensDriver, path, "nobody").open()
    with pytest.raises(ConfigError, match="no source 'vrs'"):
        open_(MmwaveDriver, path)


def test_what_is_no_vrs_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "x.vrs").write_bytes(b"no" * 100)
    with pytest.raises(SourceError, match="is no VRS file"):
        open_(CameraDriver, tmp_path / "x.vrs").open()
    with pytest.raises(SourceError, match="no such file"):
        open_(CameraDriver, tmp_path / "y.vrs").open()


def test_damaged_records_are_counted_and_a_cut_file_says_so(path: Path, tmp_path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.index(b"\xff\xd8", data.index(b"\xff\xd8") + 2)
    cut = tmp_path / "cut.vrs"
    cut.write_bytes(data[: at - 20])  # inside of the second JPEG's record
    _, items = play(open_(CameraDriver, cut, "214-1"))
    assert len(items) == 2 and isinstance(items[0], Sample)
    assert isinstance(items[1], Lost) and (items[1].cause, items[1].count) == ("truncated", None)
    with VrsReader(cut) as vrs:
        last_s = float(vrs.timestamps_s(types=RecordType.DATA)[-1])
        assert last_s > float(vrs.timestamps_s(types=RecordType.DATA)[-2])
    assert items[1].t_ns == round(last_s * 1e9)
    raw = data.index(picture(3)[..., ::-1].tobytes()[:64])
    assert raw > 0
    data[at : at + 2] = b"no"
    damaged = tmp_path / "damaged.vrs"
    damaged.write_bytes(data)
    _, items = play(open_(CameraDriver, damaged, "214-1"))
    assert [type(item) for item in items] == [Sample, Lost, Sample, Sample, Sample, Sample]
    assert isinstance(items[1], Lost) and (items[1].cause, items[1].count) == ("corrupt", 1)


def test_it_can_be_opened_again_as_a_loop_does(path: Path) -> None:
    driver = open_(XsensDriver, path, "241-1")
    once, again = play(driver), play(driver)
    assert once[0] == again[0] and len(once[1]) == len(again[1])
