"""The simulated camera through its driver."""

from __future__ import annotations

from functools import cache
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.camera.driver import CameraDriver
from drivers.camera.lens import Lens
from drivers.camera.model import SimulatedCamera, make_camera
from drivers.camera.model_output import SimulatedVideo
from drivers.kit.driver import Sample
from drivers.kit.encode import Encoder
from drivers.world import World
from recorder.common.errors import SourceError
from recorder.config.options import check_options
from tests.drivers.camera.model_numbers import read_frame_number
from tests.drivers.camera.rig import HEIGHT, WIDTH, Image, driver, frame, stamps, take
from tests.support.devices import opened, streaming

# The simulated camera


def test_sim_stream_and_stamps() -> None:
    camera = driver("", "sim", width=160, height=90, fps=50, quality=80)
    for _ in range(2):  # a second open starts afresh
        (spec,) = camera.open()
        items = [take(camera) for _ in range(5)]
        camera.close()
        assert not spec.finite
        assert spec.rate_hz == 50.0
        assert spec.settings["jpeg_quality"] == 80
        assert spec.channel("video.avi").shape == (90, 160, 3)
        assert stamps(items) == [k * 20_000_000 for k in range(5)]
        assert [read_frame_number(frame(item)) for item in items] == list(range(5))


def test_sim_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedCamera, "_backdrop", None)  # nothing is drawn
    with streaming(driver("", "sim")) as (_, spec):
        assert spec.channel("video.avi").shape == (720, 1280, 3)
        assert spec.rate_hz == 30.0
    (spec,) = driver("", "sim", width=640).open()
    assert spec.channel("video.avi").shape == (360, 640, 3)


def small(seed: int = 0, size: tuple[int, int] = (WIDTH, HEIGHT)) -> SimulatedCamera:
    return SimulatedCamera(World(seed=seed), Lens.default(*size))


def test_sim_is_the_same_for_the_same_seed() -> None:
    first, again, other = small(1), small(1), small(0)
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


@cache
def sized(width: int, height: int) -> SimulatedCamera:
    return small(size=(width, height))


@given(st.integers(0, 2**32 - 1), st.sampled_from([(160, 120), (640, 360), (333, 77)]))
def test_the_frame_number_survives_jpeg(index: int, size: tuple[int, int]) -> None:
    image = sized(*size).frame(index)
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
        with opened(driver("", "sim", width=160, height=120, **options)) as camera:
            for _ in range(4):
                item = take(camera)
        return frame(item)

    plain = picture()
    np.testing.assert_array_equal(picture(), plain)
    for options in (
        {"seed": 1},
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

    def drawn(**options: Any) -> Image:  # what a JPEG does to noise is not asked
        checked = check_options(CameraDriver.options, options)
        return make_camera("camera", checked, (160, 120), 30.0).frame(3)

    noise = drawn(noise=2.0)[50:].astype(int) - drawn()[50:]
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


def test_a_skipped_picture_is_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that comes back in mid-session passes over hours of pictures; only stamps cost."""
    drawn: list[int] = []
    real = SimulatedCamera.frame

    def counted(self: SimulatedCamera, index: int, *more: Any) -> Image:
        drawn.append(index)
        return real(self, index, *more)

    monkeypatch.setattr(SimulatedCamera, "frame", counted)
    with opened(driver("", "sim", width=160)) as camera:
        items = [take(camera) for _ in range(500)]
    assert drawn == []
    assert read_frame_number(frame(items[499])) == 499
    assert read_frame_number(frame(items[499])) == 499
    assert drawn == [499]


def test_sim_gives_the_jpegs_that_the_kit_would_make() -> None:
    """What is encoded in a camera, emulated or not, is what would be encoded behind it."""
    with streaming(driver("", "sim", width=320, quality=83)) as (camera, spec):
        encoder = Encoder(spec)
        sample = take(camera)
    assert isinstance(sample, Sample)
    (mine,), _ = encoder.encode(sample)
    checked = check_options(CameraDriver.options, {})
    image = make_camera("camera", checked, (320, 180), 30.0).frame(0)
    drawn = Sample("camera", np.array([0]), {"video.avi": image[None]})
    (theirs,), _ = encoder.encode(drawn)
    assert bytes(mine) == bytes(theirs)
    encoder.close()


def test_the_simulated_video_has_the_pictures_colours() -> None:
    av = pytest.importorskip("av", reason="needs av (the extra `rtsp`)")
    checked = check_options(CameraDriver.options, {})
    camera = make_camera("camera", checked, (320, 180), 30.0)
    video = SimulatedVideo("front", camera, first=0)
    decoder = av.CodecContext.create("h264", "r")
    packets = [*map(av.Packet, (video.unit() for _ in range(5))), None]
    shown = [p for packet in packets for p in decoder.decode(packet)]
    assert len(shown) == 5
    for index, picture in enumerate(shown):
        blue_green_red = picture.to_ndarray(format="bgr24").astype(int)
        assert np.abs(blue_green_red - camera.frame(index)).mean() < 8
