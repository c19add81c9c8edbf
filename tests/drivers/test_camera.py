from __future__ import annotations

import math
import struct
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers._kit.driver import EndOfSource, Item, Lost, Sample, SensorConfig
from drivers._protocols.jpeg import parse_jpeg
from drivers.camera import CameraDriver, FrameClock
from drivers.sim.camera import SimulatedCamera, read_frame_number
from drivers.sim.lens import Lens
from drivers.sim.world import World
from recorder.contract.errors import ConfigError, ProtocolError, SourceError
from recorder.contract.options import check_options
from recorder.contract.streams import StreamSpec

Image = npt.NDArray[np.uint8]
WIDTH, HEIGHT = 320, 240
PICTURES = SimulatedCamera(World(seed=1), Lens.default(WIDTH, HEIGHT))


def driver(
    address: Path | str, scheme: str = "file", name: str = "camera", **options: Any
) -> CameraDriver:
    checked = check_options(CameraDriver.options, options)
    return CameraDriver(SensorConfig(name, scheme, str(address), checked))


def drain(opened: CameraDriver) -> list[Item]:
    items: list[Item] = []
    with pytest.raises(EndOfSource):
        while True:
            items.append(opened.read())
    return items


def play(address: Path | str, **options: Any) -> tuple[StreamSpec, list[Item]]:
    """Open, read all, close."""
    camera = driver(address, **options)
    (spec,) = camera.open()
    items = drain(camera)
    camera.close()
    return spec, items


def stamps(items: Sequence[Item]) -> list[int]:
    return [int(np.max(item.t_ns)) for item in items]


def frame(item: Item) -> Image:
    """The picture of a sample, decoded if need be."""
    assert isinstance(item, Sample)
    (value,) = item.data["video.avi"]
    if isinstance(value, bytes):
        return np.asarray(cv2.imdecode(np.frombuffer(value, np.uint8), cv2.IMREAD_COLOR))
    return np.asarray(value)


def jpeg(index: int, size: tuple[int, int] = (WIDTH, HEIGHT)) -> bytes:
    image = cv2.resize(PICTURES.frame(index), size)
    return bytes(cv2.imencode(".jpg", image)[1].data)


def write_video(path: Path, codec: str, count: int = 20, fps: float = 30.0) -> Path:
    fourcc = cv2.VideoWriter.fourcc(*codec)
    writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, fourcc, fps, (WIDTH, HEIGHT))
    assert writer.isOpened()
    for index in range(count):
        writer.write(PICTURES.frame(index))
    writer.release()
    return path


def chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def write_avi(path: Path, frames: Sequence[bytes], declared: int | None = None) -> Path:
    """An AVI 1.0 of 25 fps with these chunks, whatever is in them."""
    count = len(frames) if declared is None else declared
    avih = struct.pack("<14I", 40_000, 0, 0, 0x10, count, 0, 1, 0, WIDTH, HEIGHT, 0, 0, 0, 0)
    strh = b"vidsMJPG" + struct.pack(
        "<IHHIIIIIIII4H", 0, 0, 0, 0, 1, 25, 0, count, 0, 2**32 - 1, 0, 0, 0, WIDTH, HEIGHT
    )
    strf = struct.pack(
        "<IiiHH4sIiiII", 40, WIDTH, HEIGHT, 1, 24, b"MJPG", WIDTH * HEIGHT * 3, 0, 0, 0, 0
    )
    strl = chunk(b"LIST", b"strl" + chunk(b"strh", strh) + chunk(b"strf", strf))
    header = chunk(b"LIST", b"hdrl" + chunk(b"avih", avih) + strl)
    movi, index = b"movi", b""
    for data in frames:
        index += b"00dc" + struct.pack("<III", 0x10, len(movi), len(data))
        movi += chunk(b"00dc", data)
    body = b"AVI " + header + chunk(b"LIST", movi) + chunk(b"idx1", index)
    path.write_bytes(chunk(b"RIFF", body))
    return path


# Files that are as they should be


@pytest.mark.parametrize("file", ["v.mp4", "v.avi", "v.mkv"])
def test_decoded_video(tmp_path: Path, file: str) -> None:
    path = write_video(tmp_path / file, "mp4v" if file != "v.avi" else "XVID")
    spec, items = play(path, name="front", quality=77)
    assert spec.name == "front"
    assert spec.finite
    assert spec.rate_hz == pytest.approx(30.0)
    (channel,) = spec.channels
    assert (channel.name, channel.format, channel.dtype) == ("video.avi", "mjpg", "u1")
    assert channel.shape == (HEIGHT, WIDTH, 3)
    assert spec.settings["jpeg_quality"] == 77
    assert spec.settings["passed_through"] is False
    assert [read_frame_number(frame(item)) for item in items] == list(range(20))
    for index, item in enumerate(items):
        assert isinstance(item, Sample)
        values = item.data["video.avi"]
        assert isinstance(values, np.ndarray)
        assert (values.dtype, values.shape) == (np.dtype(np.uint8), (1, HEIGHT, WIDTH, 3))
        # Blue, green, red, not the other way round.
        assert np.abs(values[0].astype(int) - PICTURES.frame(index)).mean() < 8
    for index, t_ns in enumerate(stamps(items)):
        assert abs(t_ns - index / 30 * 1e9) < 0.51e6  # Matroska counts in whole milliseconds


def test_the_kit_may_keep_every_frame(tmp_path: Path) -> None:
    _, items = play(write_video(tmp_path / "v.mp4", "mp4v", 4))
    assert not any(np.shares_memory(frame(a), frame(b)) for a, b in pairwise(items))


@pytest.mark.parametrize("file", ["v.avi", "v.mov", "v.mkv"])
def test_mjpeg_is_passed_through(tmp_path: Path, file: str) -> None:
    path = write_video(tmp_path / file, "MJPG")
    spec, items = play(path)
    assert spec.settings["passed_through"] is True
    assert spec.channel("video.avi").shape == (HEIGHT, WIDTH, 3)
    whole = path.read_bytes()
    at = 0
    for index, item in enumerate(items):
        assert isinstance(item, Sample)
        (data,) = item.data["video.avi"]
        assert isinstance(data, bytes)
        at = whole.index(data, at) + len(data)  # byte for byte, in the file's order
        assert read_frame_number(frame(item)) == index
    assert len(items) == 20


def test_what_follows_the_end_of_image_is_trimmed(tmp_path: Path) -> None:
    frames = [jpeg(k) for k in range(4)]
    padded = [data + bytes(37 * k) + b"\xff\xd9" * (k % 2) for k, data in enumerate(frames)]
    _, items = play(write_avi(tmp_path / "v.avi", padded))
    assert [list(s.data["video.avi"]) for s in items if isinstance(s, Sample)] == [
        [data] for data in frames
    ]
    assert stamps(items) == [0, 40_000_000, 80_000_000, 120_000_000]


@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_numbered_images(tmp_path: Path, kind: str) -> None:
    for index in range(5):
        cv2.imwrite(str(tmp_path / f"img_{index:03d}.{kind}"), PICTURES.frame(index))
    spec, items = play(tmp_path / f"img_%03d.{kind}", fps=10)
    assert spec.rate_hz == 10.0
    assert spec.settings["passed_through"] is (kind == "jpg")
    assert [read_frame_number(frame(item)) for item in items] == list(range(5))
    assert stamps(items) == [k * 100_000_000 for k in range(5)]
    if kind == "png":
        np.testing.assert_array_equal(frame(items[3]), PICTURES.frame(3))


def test_a_given_rate_replaces_the_files(tmp_path: Path) -> None:
    spec, items = play(write_video(tmp_path / "v.mp4", "mp4v", 5, fps=30), fps=8)
    assert spec.rate_hz == 8.0
    assert stamps(items) == [0, 125_000_000, 250_000_000, 375_000_000, 500_000_000]


@pytest.mark.parametrize("codec", ["mp4v", "MJPG"])
@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"width": 160, "height": 100}, (160, 100)),
        ({"width": 160}, (160, 120)),
        ({"height": 480}, (640, 480)),
    ],
)
def test_resizing(
    tmp_path: Path, codec: str, options: dict[str, int], size: tuple[int, int]
) -> None:
    path = write_video(tmp_path / "v.mov", codec, 3)
    spec, items = play(path, **options)
    assert spec.channel("video.avi").shape == (size[1], size[0], 3)
    assert spec.settings["passed_through"] is False
    assert len(items) == 3
    for index, item in enumerate(items):
        assert isinstance(item, Sample)
        assert isinstance(item.data["video.avi"], np.ndarray)
        expected = cv2.resize(PICTURES.frame(index), size, interpolation=cv2.INTER_AREA)
        assert np.abs(frame(item).astype(int) - np.asarray(expected)).mean() < 8


def test_the_sources_own_size_is_no_resize(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.avi", "MJPG", 2)
    spec, _ = play(path, width=WIDTH, height=HEIGHT)
    assert spec.settings["passed_through"] is True


@pytest.mark.parametrize("codec", ["mp4v", "MJPG"])
def test_open_again_plays_again(tmp_path: Path, codec: str) -> None:
    camera = driver(write_video(tmp_path / "v.mov", codec, 5))
    runs = []
    for stop in (2, 5, 5):  # the first run is left in the middle
        specs = camera.open()
        items = [camera.read() for _ in range(stop)]
        camera.close()
        camera.close()
        runs.append(([s.to_wire() for s in specs], stamps(items), frame(items[1]).tobytes()))
    assert runs[1] == runs[2]
    assert runs[0][0] == runs[1][0]
    assert runs[0][2] == runs[1][2]


def test_a_size_that_changes_shows_in_the_jpegs(tmp_path: Path) -> None:
    # The kit holds every JPEG against the declaration; it must see the true one.
    frames = [jpeg(0), jpeg(1), jpeg(2, (160, 120))]
    spec, items = play(write_avi(tmp_path / "v.avi", frames))
    assert spec.channel("video.avi").shape == (HEIGHT, WIDTH, 3)
    assert [frame(item).shape[:2] for item in items] == [(240, 320), (240, 320), (120, 160)]


def test_interlaced_mjpeg_is_not_passed_through(tmp_path: Path) -> None:
    fields = jpeg(0, (WIDTH, HEIGHT // 2)) + jpeg(1, (WIDTH, HEIGHT // 2))
    spec, items = play(write_avi(tmp_path / "v.avi", [fields] * 3))
    assert spec.settings["passed_through"] is False
    assert [frame(item).shape for item in items] == [(HEIGHT, WIDTH, 3)] * 3


# Files that are not


def test_missing_files(tmp_path: Path) -> None:
    for name in ("none.mp4", "none_%03d.jpg", "no_folder/img_%03d.jpg"):
        with pytest.raises(SourceError) as caught:
            driver(tmp_path / name, name="rear").open()
        assert "rear" in str(caught.value)
        assert str(tmp_path / name) in str(caught.value)
    with pytest.raises(SourceError, match="a folder"):
        driver(tmp_path).open()


@pytest.mark.parametrize("name", ["x.mp4", "x.avi", "x.jpg", "x.mkv", "x"])
@pytest.mark.parametrize("data", [b"", b"no video at all\n" * 50, bytes(5000)])
def test_files_that_are_no_video(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(SourceError, match="not a video") as caught:
        driver(path).open()
    assert str(path) in str(caught.value)


def test_a_video_without_frames(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a video with a frame"):
        driver(write_avi(tmp_path / "v.avi", [])).open()


@pytest.mark.parametrize(
    ("file", "codec"), [("v.avi", "XVID"), ("v.avi", "MJPG"), ("v.mkv", "mp4v")]
)
def test_a_cut_file_ends_with_its_last_frame_and_an_error(
    tmp_path: Path, file: str, codec: str
) -> None:
    path = write_video(tmp_path / file, codec, count=90)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    camera = driver(path, name="rear")
    camera.open()
    items: list[Item] = []
    with pytest.raises(SourceError) as caught:
        while True:
            items.append(camera.read())
    camera.close()
    for word in ("rear", str(path), "of 90 frames", f"after {len(items)} "):
        assert word in str(caught.value)
    pictures = [item for item in items if isinstance(item, Sample)]
    assert 20 < len(pictures) < 80
    assert len(items) - len(pictures) <= 1  # the one that the cut went through
    # An MPEG-4 decoder shows a picture that was cut as far as it goes: not the last one's number.
    numbers = [read_frame_number(frame(item)) for item in pictures]
    assert numbers[:-1] == list(range(len(pictures) - 1))


def test_a_cut_at_every_frame_is_noticed(tmp_path: Path) -> None:
    frames = [jpeg(k) for k in range(6)]
    for kept in range(1, 6):
        camera = driver(write_avi(tmp_path / "v.avi", frames[:kept], declared=6))
        camera.open()
        for index in range(kept):
            assert read_frame_number(frame(camera.read())) == index
        with pytest.raises(SourceError, match=f"after {kept} of 6 frames"):
            camera.read()
        camera.close()


def test_an_unfinished_avi_ends_where_it_ends(tmp_path: Path) -> None:
    # A recording that was cut off declares 0 frames: nothing says that any is missing.
    _, items = play(write_avi(tmp_path / "v.avi", [jpeg(k) for k in range(4)], declared=0))
    assert len(items) == 4


def test_more_frames_than_declared_are_all_given(tmp_path: Path) -> None:
    _, items = play(write_avi(tmp_path / "v.avi", [jpeg(k) for k in range(9)], declared=5))
    assert len(items) == 9


@pytest.mark.parametrize("width", [None, 160])
def test_a_damaged_jpeg_is_one_counted_loss(tmp_path: Path, width: int | None) -> None:
    frames = [jpeg(k) for k in range(8)]
    frames[3] = frames[3][: len(frames[3]) // 2]
    frames[5] = bytes(500)
    _, items = play(write_avi(tmp_path / "v.avi", frames), width=width)
    assert [type(item) for item in items] == [
        Lost if k in (3, 5) else Sample for k in range(8)
    ]  # fmt: skip
    assert stamps(items) == [k * 40_000_000 for k in range(8)]
    for item in items:
        if isinstance(item, Lost):
            assert (item.stream, item.cause, item.count) == ("camera", "corrupt", 1)
    assert isinstance(items[3], Lost)
    assert "cut off" in items[3].detail["reason"]


def test_a_picture_that_does_not_decode_is_one_counted_loss(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.avi", "XVID", count=30)
    data = bytearray(path.read_bytes())
    at = data.index(b"movi")
    for _ in range(13):
        at = data.index(b"00dc", at + 1)
    size = int.from_bytes(data[at + 4 : at + 8], "little")
    data[at + 8 : at + 8 + size] = bytes(size)
    path.write_bytes(data)
    _, items = play(path)
    lost = [item for item in items if isinstance(item, Lost)]
    assert [(item.cause, item.count) for item in lost] == [("corrupt", 1)]
    assert abs(lost[0].t_ns - 12 / 30 * 1e9) < 0.07e9
    pictures = [item for item in items if isinstance(item, Sample)]
    numbers = [read_frame_number(frame(item)) for item in pictures]
    assert (12 in numbers, len(numbers)) == (False, 29)
    assert stamps(pictures) == [pytest.approx(k * 1e9 / 30, abs=2) for k in range(30) if k != 12]


def test_frames_that_an_edit_list_hides_are_counted(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.mp4", "mp4v", count=60)
    data = bytearray(path.read_bytes())
    entry = data.index(b"elst") + 12
    duration, start = struct.unpack_from(">Ii", data, entry)
    per_frame = int.from_bytes(data[(at := data.index(b"mdhd")) + 16 : at + 20], "big") // 30
    struct.pack_into(">Ii", data, entry, duration * 50 // 60, start + 10 * per_frame)
    path.write_bytes(data)
    _, items = play(path)
    numbers = [read_frame_number(frame(i)) for i in items if isinstance(i, Sample)]
    assert numbers == list(range(10, 60))
    assert isinstance(items[-1], Lost)
    assert (items[-1].cause, items[-1].count) == ("undecoded", 10)


def test_frames_left_out_by_the_camera_are_no_cut(tmp_path: Path) -> None:
    frames = [jpeg(k) for k in range(8)]
    frames[4] = b""  # AVI's way to say: the frame before once more
    _, items = play(write_avi(tmp_path / "v.avi", frames))
    assert stamps(items) == [k * 40_000_000 for k in range(8) if k != 4]


def test_a_file_that_vanishes_between_loops(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.avi", "MJPG", 3)
    camera = driver(path)
    camera.open()
    camera.close()
    path.unlink()
    with pytest.raises(SourceError, match="no such file"):
        camera.open()


def test_read_needs_open() -> None:
    with pytest.raises(SourceError, match="before open"):
        driver("/nowhere.mp4").read()


def test_nothing_is_said_on_stderr(tmp_path: Path) -> None:
    # In a process of its own: FFmpeg's log level is fixed by whoever opens a file first.
    cut = write_video(tmp_path / "cut.avi", "XVID")
    cut.write_bytes(cut.read_bytes()[:-30_000])
    (tmp_path / "none.mp4").write_bytes(b"nothing")
    code = """
import sys
from drivers._kit.driver import EndOfSource, SensorConfig
from drivers.camera import CameraDriver
from recorder.contract.errors import SourceError
from recorder.contract.options import check_options
for path in sys.argv[1:]:
    camera = CameraDriver(SensorConfig("c", "file", path, check_options(CameraDriver.options, {})))
    try:
        camera.open()
        while True:
            camera.read()
    except SourceError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(cut), str(tmp_path / "none.mp4")],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2


# Stamps


@given(
    st.floats(0.5, 240),
    st.lists(st.one_of(st.floats(), st.floats(0, 1e6), st.just(0.0)), max_size=40),
)
def test_stamps_increase_whatever_the_container_says(fps: float, positions: list[float]) -> None:
    clock = FrameClock(fps)
    given_ns = [clock.stamp(ms) for ms in positions]
    assert all(b > a for a, b in pairwise(given_ns))
    assert all(-(2**63) <= t < 2**63 for t in given_ns)


@pytest.mark.parametrize("lie", [0.0, math.nan, -5.0, math.inf, -9.2e18])
def test_stamps_without_a_container_are_k_over_fps(lie: float) -> None:
    clock = FrameClock(30.0)
    assert [clock.stamp(lie) for _ in range(7)] == [round(k * 1e9 / 30) for k in range(7)]
    assert clock.stamp(lie, frames=4) == round(10 * 1e9 / 30)
    assert clock.last_ns == round(10 * 1e9 / 30)


def test_stamps_go_back_to_the_containers_when_they_can() -> None:
    clock = FrameClock(25.0)
    given_ms = [clock.stamp(ms) / 1e6 for ms in (0, 33.5, 33.5, math.nan, 150, 200.25)]
    assert given_ms == [0, 33.5, 73.5, 113.5, 150, 200.25]


# JPEG


PROGRESSIVE = bytes(
    cv2.imencode(".jpg", PICTURES.frame(5), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].data
)
RESTARTS = bytes(
    cv2.imencode(".jpg", PICTURES.frame(5), [cv2.IMWRITE_JPEG_RST_INTERVAL, 4])[1].data
)
GREY = bytes(cv2.imencode(".jpg", PICTURES.frame(5)[..., 0])[1].data)


@pytest.mark.parametrize(
    ("data", "components", "process"),
    [(jpeg(5), 3, 0xC0), (PROGRESSIVE, 3, 0xC2), (RESTARTS, 3, 0xC0), (GREY, 1, 0xC0)],
    ids=["baseline", "progressive", "restarts", "grey"],
)
def test_parse_jpeg(data: bytes, components: int, process: int) -> None:
    for tail in (b"", bytes(100), b"\xff\xd9", data):
        header = parse_jpeg(data + tail)
        assert (header.width, header.height) == (WIDTH, HEIGHT)
        assert (header.components, header.process) == (components, process)
        assert header.length == len(data)


@pytest.mark.parametrize("data", [jpeg(5), PROGRESSIVE, RESTARTS], ids=["b", "p", "r"])
def test_a_jpeg_cut_anywhere_is_refused(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            parse_jpeg(data[:length])


@given(st.binary(max_size=300), st.integers(0, 700), st.integers(1, 255))
def test_parse_jpeg_survives_anything(noise: bytes, at: int, flip: int) -> None:
    mutated = bytearray(RESTARTS)
    mutated[at] ^= flip
    for data in (noise, b"\xff\xd8" + noise, bytes(mutated), bytes(mutated[: at + 40]) + noise):
        try:
            header = parse_jpeg(data)
        except ProtocolError:
            continue
        assert 0 < header.length <= len(data)
        assert data[header.length - 2 : header.length] == b"\xff\xd9"


# The simulated camera


def test_sim_stream_and_stamps() -> None:
    camera = driver("", "sim", width=640, height=360, fps=50, quality=80)
    for _ in range(2):  # a second open starts afresh
        (spec,) = camera.open()
        items = [camera.read() for _ in range(5)]
        camera.close()
        assert not spec.finite
        assert spec.rate_hz == 50.0
        assert spec.settings["jpeg_quality"] == 80
        assert spec.channel("video.avi").shape == (360, 640, 3)
        assert stamps(items) == [k * 20_000_000 for k in range(5)]
        assert [read_frame_number(frame(item)) for item in items] == list(range(5))


def test_sim_defaults() -> None:
    camera = driver("", "sim")
    (spec,) = camera.open()
    assert spec.channel("video.avi").shape == (720, 1280, 3)
    assert spec.rate_hz == 30.0
    camera.close()
    (spec,) = driver("", "sim", width=640).open()
    assert spec.channel("video.avi").shape == (360, 640, 3)


def small(seed: int = 0, size: tuple[int, int] = (WIDTH, HEIGHT)) -> SimulatedCamera:
    return SimulatedCamera(World(seed=seed), Lens.default(*size))


def test_sim_is_the_same_for_the_same_seed() -> None:
    first, again, other = small(7), small(7), small(8)
    pictures = [first.frame(k) for k in (0, 1, 1000)]
    for index, picture in zip((1000, 0, 1), [pictures[2], *pictures[:2]], strict=True):
        np.testing.assert_array_equal(again.frame(index), picture)
        assert (other.frame(index) != picture).any()
    assert len({p.tobytes() for p in pictures}) == 3


def test_sim_frames_are_the_callers() -> None:
    camera = small()
    kept = camera.frame(3)
    copy = kept.copy()
    kept[:] = 0
    np.testing.assert_array_equal(camera.frame(3), copy)


SIZED = {size: small(size=size) for size in ((160, 120), (1280, 720), (333, 77))}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(list(SIZED)))
def test_the_frame_number_survives_jpeg(index: int, size: tuple[int, int]) -> None:
    image = SIZED[size].frame(index)
    assert image.shape == (size[1], size[0], 3)
    assert read_frame_number(image) == index
    data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 50])[1]
    assert read_frame_number(np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR))) == index


@pytest.mark.parametrize("size", [(32, 32), (32, 18), (4000, 32), (33, 1000)])
def test_sim_takes_odd_sizes(size: tuple[int, int]) -> None:
    camera = small(size=size)
    for index in (0, 12, 9_999_999):
        assert camera.frame(index).shape == (size[1], size[0], 3)
        assert read_frame_number(camera.frame(index)) == index


def test_sim_options_show_in_the_picture() -> None:
    def picture(**options: Any) -> Image:
        camera = driver("", "sim", width=160, height=120, **options)
        camera.open()
        for _ in range(4):
            item = camera.read()
        camera.close()
        return frame(item)

    plain = picture()
    np.testing.assert_array_equal(picture(), plain)
    for options in (
        {"seed": 5},
        {"scene": "straight"},
        {"noise": 1.0},
        {"mount": {"translation_m": [1.7, 0.3, 1.45]}},
        {"focal_px": 200.0},
        {"distortion": [0.0] * 5},
        {"readout_ms": 20.0},
        {"exposure_ms": 15.0},
        {"gain": 0.5},
    ):
        assert (picture(**options) != plain).any(), options
    assert picture(gain=0.5)[50:].mean() == pytest.approx(plain[50:].mean() / 2, abs=1.0)
    noise = picture(noise=2.0)[50:].astype(int) - plain[50:]
    assert noise.std() == pytest.approx(3.0, abs=0.2)
    assert abs(noise.mean()) < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distortion": [0.1, 0.2]}, "rear: distortion: 2 numbers instead of 5"),
        ({"distortion": [-3.0, 0, 0, 0, 0]}, "rear: distortion: .* folds"),
        ({"mount": {"translation_m": [1.0]}}, "rear: mount.translation_m: 1 numbers instead of 3"),
        ({"mount": {"quaternion_xyzw": [0, 0, 0, 2]}}, "rear: mount.quaternion_xyzw: of length 2"),
    ],
)
def test_sim_refuses_what_is_no_camera(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        driver("", "sim", name="rear", **options).open()


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quality": 0}, "below the minimum"),
        ({"quality": 101}, "above the maximum"),
        ({"width": 1280.5}, "a whole number"),
        ({"width": -1}, "below the minimum"),
        ({"fps": 0}, "below the minimum"),
        ({"widht": 640}, "did you mean 'width'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_options(CameraDriver.options, options)


# A real recording


def test_the_real_recording(shared_data: Path) -> None:
    spec, items = play(shared_data / "camera" / "solidWhiteRight.mp4")
    assert spec.channel("video.avi").shape == (540, 960, 3)
    assert spec.rate_hz == 25.0
    assert len(items) == 221
    assert stamps(items) == [k * 40_000_000 for k in range(221)]
    means = np.array([frame(item).mean() for item in items])
    assert means.min() > 50  # daylight: no picture is blank


def test_the_real_recording_cut_in_half(shared_data: Path, tmp_path: Path) -> None:
    data = (shared_data / "camera" / "solidWhiteRight.mp4").read_bytes()
    path = tmp_path / "cut.mp4"
    path.write_bytes(data[: len(data) // 2])
    camera = driver(path)
    camera.open()
    count = 0
    with pytest.raises(SourceError, match=r"cut\.mp4: ends after 110 of 221 frames"):
        while True:
            count += isinstance(camera.read(), Sample)
    camera.close()
    assert count == 110
