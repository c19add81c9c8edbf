"""V4L2 cameras on a device that behaves as the kernel's do."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import cv2
import numpy as np
import pytest

from drivers.camera.pictures import Missing, Note, Shot
from drivers.camera.v4l2 import abi
from recorder.common.errors import SourceError
from tests.drivers.camera.http_rig import jpegs, lost, notes
from tests.drivers.camera.rig import Image, jpeg
from tests.drivers.camera.test_v4l2_planes import picture, planes_of
from tests.drivers.camera.v4l2_kernel import JPEGS, FakeDevice, Frame, camera, record, watch
from tests.support.devices import opened


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    yield FakeDevice(*(Frame(data) for data in JPEGS))


# Pictures


def test_the_devices_mjpeg_is_passed_through_with_the_kernels_stamps(device: FakeDevice) -> None:
    for k, frame in enumerate(device.frames):
        frame.data += bytes(17 * k)  # what a driver pads
        frame.t_ns = 70_000_000_000_000 + k * 20_000_000 + 123_000
    with opened(camera(device)) as front:
        assert (front.size, front.jpegs, front.device_clock) == ((64, 48), True, False)
        assert front.fps == pytest.approx(30.0, abs=0.001)
        events = watch(front)
        assert jpegs(events) == JPEGS
        assert [e.t_ns - 70_000_000_000_000 for e in events] == [
            k * 20_000_000 + 123_000 for k in range(8)
        ]
        front.close()
    assert (device.mapped, device.opened) == (0, 0)
    assert device.calls[-1] == "STREAMOFF"


@pytest.mark.parametrize("name", ["YUYV", "UYVY", "NV12", "YU12", "BGR3", "RGB3", "GREY"])
@pytest.mark.parametrize("padding", [0, 32])
def test_other_formats_are_decoded(name: str, padding: int) -> None:
    flat = picture()

    def encoded() -> Image:
        if name in ("BGR3", "RGB3"):
            return flat if name == "BGR3" else flat[..., ::-1]
        if name == "GREY":
            return flat[..., 0]
        if name == "NV12":
            return planes_of(name)[0]
        if name == "YU12":
            return np.asarray(cv2.cvtColor(flat, cv2.COLOR_BGR2YUV_I420))
        luma, pairs = planes_of("NM12")
        packed = np.empty((48, 64, 2), np.uint8)
        at = 0 if name == "YUYV" else 1
        packed[..., at] = luma
        packed[..., 1 - at] = pairs.repeat(2, axis=0)
        return packed

    rows = encoded().reshape(-1, encoded()[0].size)
    data = np.pad(rows, ((0, 0), (0, padding)), constant_values=99).tobytes()
    device = FakeDevice(Frame(data), Frame(data[:-40]), Frame(data + bytes(100)))
    device.formats = {name: [(64, 48)]}
    device.stride_padding = padding
    if name == "YU12" and padding:
        with pytest.raises(SourceError, match="YU12 of 64x48, 96 bytes a row"):
            record(device)
        return
    front = camera(device)
    front.open()
    assert not front.jpegs
    events = watch(front)
    front.close()
    pictures = [e.picture for e in events if isinstance(e, Shot)]
    expected = flat if name != "GREY" else np.repeat(flat[..., :1], 3, axis=2)
    assert isinstance(pictures[1], Missing)
    for shown in (pictures[0], pictures[2]):
        assert isinstance(shown, np.ndarray)
        assert (shown.dtype, shown.shape) == (np.dtype(np.uint8), (48, 64, 3))
        assert np.abs(shown.astype(int) - expected).max() <= 4
        assert shown.flags.owndata or shown.base is not None
    assert not np.shares_memory(pictures[0], pictures[2])


def test_gaps_in_the_kernels_numbers_are_counted_in_their_place(device: FakeDevice) -> None:
    wraps = (1 << 32) - 3
    for frame, sequence in zip(device.frames, (wraps, wraps + 1, 0, 1, 5, 6, 3, 4), strict=True):
        frame.sequence = sequence
    events = record(device)
    assert lost(events, "device") == 1 + 3
    assert notes(events) == [{"numbers_restarted": {"from": 6, "to": 3}}]
    kinds = ["-" if isinstance(e, Note) else "x" if isinstance(e.picture, Missing) else "p"
             for e in events]  # fmt: skip
    assert "".join(kinds) == "ppxppxpp-pp"
    times = [event.t_ns for event in events]
    assert times == sorted(set(times))


def test_a_driver_that_does_not_count(device: FakeDevice) -> None:
    for frame in device.frames:
        frame.sequence = 0
    events = record(device)
    assert jpegs(events) == JPEGS
    assert len(events) == 8


def test_damaged_buffers_are_counted_once(device: FakeDevice) -> None:
    frames = list(device.frames)
    frames[2].flags |= abi.BUF_ERROR
    frames[4].data = b""
    frames[5].data = frames[5].data[:300]
    events = record(device)
    assert jpegs(events) == [JPEGS[k] for k in (0, 1, 3, 6, 7)]
    assert (lost(events, "corrupt"), lost(events, "device")) == (3, 0)


def test_damaged_buffers_before_the_first_picture_are_no_loss(device: FakeDevice) -> None:
    frames = list(device.frames)
    frames[0].flags |= abi.BUF_ERROR
    frames[1].data = b"\0" * 100
    assert jpegs(record(device)) == JPEGS[2:]


def test_stamps_that_repeat_are_moved_apart(device: FakeDevice) -> None:
    for frame in device.frames:
        frame.t_ns = 70_000_000_001_000
    times = [event.t_ns for event in record(device)]
    assert times == list(range(70_000_000_001_000, 70_000_000_001_016, 2))


# Format, size, rate


@pytest.mark.parametrize(
    ("size", "got"),
    [((64, 32), (64, 32)), ((None, 720), (1280, 720)), ((1280, None), (1280, 720)),
     ((64, None), (64, 48)), ((None, None), (64, 48))],
)  # fmt: skip
def test_the_size_is_asked_of_the_device(
    size: tuple[int | None, int | None], got: tuple[int, int]
) -> None:
    device = FakeDevice(Frame(jpeg(0, got)))
    with opened(camera(device, size=size)) as front:
        assert front.size == got
        assert device.current == (*got, "MJPG")


def test_a_size_or_format_that_it_lacks(device: FakeDevice) -> None:
    with pytest.raises(
        SourceError, match="front: v4l2:/dev/video0: gives MJPG 1280x720 instead of the "
        "requested MJPG 1920x1080; it offers 1280x720, 64x48, 64x32"
    ):  # fmt: skip
        camera(device, size=(1920, 1080)).open()
    with pytest.raises(SourceError, match="offers YUYV, MJPG, but not GREY"):
        camera(device, pixel_format="GREY").open()
    device.formats = {"H264": [(64, 48)]}
    with pytest.raises(SourceError, match="offers H264, but not MJPG or JPEG or YUYV"):
        camera(device).open()
    assert (device.mapped, device.opened) == (0, 0)


def test_the_format_can_be_chosen() -> None:
    device = FakeDevice(Frame(bytes(640 * 480 * 2)))
    with opened(camera(device, pixel_format="YUYV", size=(640, 480))) as front:
        assert device.current == (640, 480, "YUYV")
        assert not front.jpegs


@pytest.mark.parametrize(
    ("asked", "given", "warned"), [(30.0, 30.0, ""), (15.0, 15.0, ""), (25.0, 30.0, "gives 30")]
)
def test_the_rate_is_asked_of_the_device(
    device: FakeDevice, asked: float, given: float, warned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(camera(device, fps=asked)) as front:
        assert front.fps == pytest.approx(given, rel=1e-5)
    said = capsys.readouterr().err
    assert warned in said
    assert bool(said) == bool(warned)


def test_a_device_without_rates(device: FakeDevice, capsys: pytest.CaptureFixture[str]) -> None:
    device.failing[abi.G_PARM] = errno.ENOTTY
    with opened(camera(device, fps=20.0)) as front:
        assert front.fps == 20.0
    del device.failing[abi.G_PARM]
    device.frames.append(Frame(JPEGS[0]))
    device.timeperframe, device.period = 0, (0, 0)
    with opened(camera(device, fps=20.0)) as again:
        assert again.fps is None
    assert "does not report its rate" in capsys.readouterr().err


def test_the_calls_have_the_numbers_of_the_kernel() -> None:
    """As <linux/videodev2.h> gives them on 64-bit machines; they hold the structures' sizes."""
    assert {name: getattr(abi, name) for name in CALLS} == CALLS


CALLS = {
    "QUERYCAP": 0x80685600,
    "ENUM_FMT": 0xC0405602,
    "G_FMT": 0xC0D05604,
    "S_FMT": 0xC0D05605,
    "REQBUFS": 0xC0145608,
    "QUERYBUF": 0xC0585609,
    "QBUF": 0xC058560F,
    "DQBUF": 0xC0585611,
    "STREAMON": 0x40045612,
    "STREAMOFF": 0x40045613,
    "G_PARM": 0xC0CC5615,
    "S_PARM": 0xC0CC5616,
    "G_CTRL": 0xC008561B,
    "S_CTRL": 0xC008561C,
    "QUERYCTRL": 0xC0445624,
    "QUERYMENU": 0xC02C5625,
    "ENUM_FRAMESIZES": 0xC02C564A,
}
