"""V4L2 devices that deliver pictures in several planes."""

from __future__ import annotations

import errno

import cv2
import numpy as np
import pytest

from drivers.camera.pictures import Missing, Shot
from drivers.camera.v4l2 import abi
from recorder.common.errors import DeviceError, SourceError
from tests.drivers.camera.http_rig import jpegs, lost
from tests.drivers.camera.rig import Image
from tests.drivers.camera.v4l2_kernel import JPEGS, FakeDevice, Frame, camera, record

WIDTH, HEIGHT = 64, 48


def device(name: str, planes: tuple[int, ...], *frames: Frame) -> FakeDevice:
    """A multi-planar device; `planes` are the bytes of a row in each plane."""
    made = FakeDevice(*frames)
    made.capabilities = abi.CAP_VIDEO_CAPTURE_MPLANE | abi.CAP_STREAMING
    made.formats, made.planes = {name: [(WIDTH, HEIGHT)]}, planes
    made.current = (WIDTH, HEIGHT, name)
    return made


def picture() -> Image:
    flat = np.full((HEIGHT, WIDTH, 3), (200, 120, 40), np.uint8)  # survives any subsampling
    flat[:, : WIDTH // 2] = (40, 200, 90)
    return flat


def planes_of(name: str) -> list[Image]:
    planar = np.asarray(cv2.cvtColor(picture(), cv2.COLOR_BGR2YUV_I420))
    luma, chroma = planar[:HEIGHT], planar[HEIGHT:].reshape(2, HEIGHT // 2, WIDTH // 2)
    pairs = chroma.transpose(1, 2, 0).reshape(HEIGHT // 2, WIDTH)
    return {
        "NV12": [np.vstack([luma, pairs])],
        "NM12": [luma, pairs],
        "YM12": [luma, chroma[0], chroma[1]],
        "BGR3": [picture().reshape(HEIGHT, -1)],
    }[name]


@pytest.mark.parametrize("name", ["NV12", "NM12", "YM12", "BGR3"])
@pytest.mark.parametrize(("padding", "data_offset"), [(0, 0), (32, 128)])
def test_planes_become_a_picture(name: str, padding: int, data_offset: int) -> None:
    padded = [np.pad(rows, ((0, 0), (0, padding)), constant_values=99) for rows in planes_of(name)]
    data = tuple(rows.tobytes() for rows in padded)
    made = device(
        name,
        tuple(rows.shape[1] for rows in padded),
        Frame(planes=data, data_offset=data_offset),
        Frame(planes=(*data[:-1], data[-1][:-40]), data_offset=data_offset),
        Frame(planes=data, flags=abi.BUF_STAMP_MONOTONIC | abi.BUF_ERROR),
        Frame(planes=(*data[:-1], b"")),
        *(Frame(planes=data, data_offset=data_offset) for _ in range(9)),  # every buffer, twice
    )
    events = record(made)
    assert lost(events, "corrupt") == 3
    shots = [event.picture for event in events if isinstance(event, Shot)]
    pictures = [shot for shot in shots if isinstance(shot, np.ndarray)]
    assert len(pictures) == 10
    short = shots[1]
    size = sum(map(len, data))
    assert isinstance(short, Missing)
    assert short.reason == f"{size - 40} bytes of a picture of {size}"
    for shot in pictures:
        assert (shot.dtype, shot.shape) == (np.dtype(np.uint8), (HEIGHT, WIDTH, 3))
        assert np.abs(shot.astype(int) - picture()).max() <= 4


def test_jpegs_of_a_multi_planar_device_are_unchanged() -> None:
    made = device("MJPG", (0,), *(Frame(planes=(data + bytes(9),)) for data in JPEGS))
    assert jpegs(record(made)) == JPEGS
    assert made.calls[-1] == "STREAMOFF"


def test_a_device_of_both_kinds_is_used_without_planes() -> None:
    made = FakeDevice(*(Frame(data) for data in JPEGS))
    made.capabilities |= abi.CAP_VIDEO_CAPTURE_MPLANE
    assert jpegs(record(made)) == JPEGS


def test_another_number_of_planes_than_the_formats() -> None:
    made = device("NM12", (WIDTH,), Frame(planes=(b"",)))
    with pytest.raises(SourceError, match="NM12 in 1 planes instead of 2"):
        camera(made).open()
    assert (made.mapped, made.opened) == (0, 0)


@pytest.mark.parametrize("request_", [abi.QUERYBUF, abi.STREAMON])
def test_nothing_stays_mapped_after_a_failure(request_: int) -> None:
    made = device("NM12", (WIDTH, WIDTH), Frame(planes=(bytes(1), bytes(1))))
    made.failing[request_] = errno.EIO
    with pytest.raises(DeviceError, match="Input/output error"):
        camera(made).open()
    assert (made.mapped, made.opened) == (0, 0)


def test_a_device_without_memory() -> None:
    made = device("NM12", (WIDTH, WIDTH))
    made.granted = 0
    with pytest.raises(DeviceError, match="has no memory for pictures"):
        camera(made).open()
    assert (made.mapped, made.opened) == (0, 0)
