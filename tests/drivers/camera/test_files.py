"""Videos that are as they should be, and their stamps."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.camera.driver import CameraDriver
from drivers.camera.files.video import FrameClock
from drivers.kit.driver import Lost, Sample, State
from recorder.common.errors import ConfigError, SourceError
from recorder.config.options import check_options
from tests.drivers.camera.model_numbers import read_frame_number
from tests.drivers.camera.rig import (
    HEIGHT,
    PICTURES,
    WIDTH,
    driver,
    frame,
    jpeg,
    play,
    stamps,
    take,
    write_avi,
    write_video,
)
from tests.support import devices
from tests.support.devices import play_out

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


@pytest.mark.parametrize("kind", ["jpg", "png"])
@pytest.mark.parametrize("step", [1, 5])
def test_numbers_that_are_missing_end_nothing(tmp_path: Path, kind: str, step: int) -> None:
    """The next picture keeps its time; a step that is usual is one period."""
    numbers = [0, 1, 2, 3, 6, 7, 8, 12, 13]
    for number in numbers:
        name = tmp_path / f"100%_{7 + number * step:02d}.{kind}"
        cv2.imwrite(str(name), PICTURES.frame(number))
    cv2.imwrite(str(tmp_path / f"100%_007.{kind}"), PICTURES.frame(0))  # not of the pattern
    _, items = play(tmp_path / f"100%%_%02d.{kind}", fps=10)
    pictures = [item for item in items if isinstance(item, Sample)]
    assert [read_frame_number(frame(item)) for item in pictures] == numbers
    assert stamps(pictures) == [number * 100_000_000 for number in numbers]
    states = [item.values["numbers_missing"] for item in items if isinstance(item, State)]
    assert states == [
        {"from": 7 + 3 * step, "to": 7 + 6 * step},
        {"from": 7 + 8 * step, "to": 7 + 12 * step},
    ]


def test_a_damaged_picture_of_a_pattern_is_one_counted_loss(tmp_path: Path) -> None:
    for index in range(4):
        cv2.imwrite(str(tmp_path / f"{index}.jpg"), PICTURES.frame(index))
    (tmp_path / "2.jpg").write_bytes((tmp_path / "2.jpg").read_bytes()[:-500])
    with pytest.raises(SourceError, match=r"%d.jpg: has pictures, no H.264; use codec: jpeg"):
        driver(tmp_path / "%d.jpg", codec="copy").open()
    _, items = play(tmp_path / "%d.jpg")
    assert [type(item) for item in items] == [Sample, Sample, Lost, Sample]
    assert stamps(items) == [k * 40_000_000 for k in range(4)]
    assert isinstance(items[2], Lost) and items[2].detail["reason"].startswith("2.jpg: ")


def test_numbers_that_are_far_apart_are_no_time(tmp_path: Path) -> None:
    for number in (1, 2, 3, 1_700_000_000):
        cv2.imwrite(str(tmp_path / f"img_{number:04d}.jpg"), PICTURES.frame(0))
    _, items = play(tmp_path / "img_%04d.jpg")
    pictures = [item for item in items if isinstance(item, Sample)]
    assert stamps(pictures) == [k * 40_000_000 for k in range(4)]


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
        items = [take(camera) for _ in range(stop)]
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


@pytest.mark.campaign
def test_the_real_recording(shared_data: Path) -> None:
    spec, items = play(shared_data / "camera" / "solidWhiteRight.mp4")
    assert spec.channel("video.avi").shape == (540, 960, 3)
    assert spec.rate_hz == 25.0
    assert len(items) == 221
    assert stamps(items) == [k * 40_000_000 for k in range(221)]
    means = np.array([frame(item).mean() for item in items[::10]])
    assert means.min() > 50  # daylight: no picture is blank


def test_the_real_recording_cut_in_half(shared_data: Path, tmp_path: Path) -> None:
    data = (shared_data / "camera" / "solidWhiteRight.mp4").read_bytes()
    path = tmp_path / "cut.mp4"
    path.write_bytes(data[: len(data) // 2])
    items, end = play_out(driver(path))
    assert "cut.mp4: ends after 110 of 221 frames" in str(end)
    assert len(devices.samples(items)) == 110


@pytest.mark.parametrize("file", ["v.mp4", "v.avi"])
def test_a_closed_driver_holds_no_file(tmp_path: Path, file: str) -> None:
    camera = driver(write_video(tmp_path / file, "mp4v" if file == "v.mp4" else "MJPG"))
    camera.open()
    camera.read()
    held = vars(camera._camera).copy()  # what is still known elsewhere is closed as well
    assert held["_video"] is not None
    assert str(tmp_path / file) in open_files()
    camera.close()
    assert str(tmp_path / file) not in open_files()
    with pytest.raises(SourceError, match="read before open"):
        camera.read()


def open_files() -> set[str]:
    return {str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
