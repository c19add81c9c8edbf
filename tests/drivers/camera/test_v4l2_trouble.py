"""A V4L2 camera's controls, and what can go wrong with the device."""

from __future__ import annotations

import errno
import os
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drivers.camera.pictures import Note
from drivers.camera.v4l2 import abi
from drivers.camera.v4l2.controls import list_controls
from recorder.common.errors import DeviceError, SourceError, StreamChangedError
from tests.drivers.camera.http_rig import jpegs, lost
from tests.drivers.camera.rig import driver, jpeg
from tests.drivers.camera.v4l2_kernel import (
    JPEGS,
    FakeControl,
    FakeDevice,
    Frame,
    camera,
    record,
    watch,
)
from tests.support.devices import opened

AUTO, EXPOSURE, GAIN, BALANCE, MODE, LINE, BUTTON = range(0x980900, 0x980907)


def controls() -> list[FakeControl]:
    integer, boolean = abi.TYPE_INTEGER, abi.TYPE_BOOLEAN
    return [
        FakeControl(GAIN, b"Gain", integer, 10, 0, 100, clamps=lambda v: v // 5 * 5),
        FakeControl(EXPOSURE, b"Exposure Time, Absolute", integer, 156, 1, 5000,
                    governed_by=(AUTO, 3)),
        FakeControl(AUTO, b"Auto Exposure", abi.TYPE_MENU, 3, 0, 3,
                    menu={1: b"Manual Mode", 3: b"Aperture Priority Mode"}),
        FakeControl(BALANCE, b"White Balance, Automatic", boolean, 1),
        FakeControl(MODE, b"Link Frequency", abi.TYPE_INTEGER_MENU, 0, 0, 1,
                    flags=abi.CTRL_READ_ONLY, menu={0: 450_000_000_000, 1: 900}),
        FakeControl(LINE, b"Broken", integer, 0, flags=abi.CTRL_DISABLED),
        FakeControl(BUTTON, b"Reset", 4, 0, flags=abi.CTRL_WRITE_ONLY),
    ]  # fmt: skip


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    yield FakeDevice(*(Frame(data) for data in JPEGS))


# Controls


def test_controls_are_set_read_back_and_recorded(
    device: FakeDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    device.controls = controls()
    wanted = {
        "exposure_time_absolute": 200,  # locked until the automatic, which is named later, is off
        "gain": 33,  # the device has steps of five
        "auto_exposure": "manual mode",
        "white_balance_automatic": False,
    }
    with opened(camera(device, controls=wanted)) as front:
        (state, *_) = front.read(0.2)
        assert isinstance(state, Note)
        assert state.values == {
            "card": "Road Eye 2",
            "driver": "uvcvideo",
            "bus": "usb-0000:00:14.0-3",
            "pixel_format": "MJPG",
            "stamps": "kernel, end of frame",
            "controls": {
                "auto_exposure": "Manual Mode",
                "exposure_time_absolute": 200,
                "gain": 30,
                "white_balance_automatic": False,
                "link_frequency": "450000000000",
            },
            "controls_differ": {"gain": {"asked": 33, "is": 30}},
        }
        assert (
            "front: v4l2:/dev/video0: controls.gain: 33 requested, 30 set"
            in capsys.readouterr().err
        )


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"gian": 3}, r"controls\.gian: the device has no such control .did you mean 'gain'"),
        ({"reset": 1}, "no such control"),
        ({"gain": 101}, r"controls\.gain: 101 is outside of 0 \.\. 100"),
        ({"gain": "high"}, "'high' is not one of its values"),
        ({"gain": 1.5}, "needs a whole number"),
        ({"auto_exposure": "shutter"}, "not one of its values .'Manual Mode', 'Aperture"),
        ({"auto_exposure": 2}, "2 is not one of its values"),
        ({"link_frequency": 1}, "is read-only"),
        ({"link_frequency": True}, "is read-only"),
        ({"exposure_time_absolute": 5}, "rejects 5 .*perhaps an automatic control adjusts it"),
    ],
)
def test_controls_that_cannot_be_set(
    device: FakeDevice, wanted: dict[str, Any], message: str
) -> None:
    device.controls = controls()
    with pytest.raises(SourceError, match=message):
        camera(device, controls=wanted).open()
    assert (device.mapped, device.opened) == (0, 0)


def test_a_device_without_controls(device: FakeDevice) -> None:
    device.failing[abi.QUERYCTRL] = errno.ENOTTY
    with opened(camera(device)) as front:
        (state, *_) = front.read(0.2)
        assert isinstance(state, Note)
        assert state.values["controls"] == {}


# Trouble


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOENT, "front: v4l2:/dev/video0: no such device"),
        (errno.ENXIO, "no such device"),
        (errno.EACCES, "members of the group 'video'"),
        (errno.EMFILE, "Too many open files"),
    ],
)
def test_devices_that_cannot_be_opened(device: FakeDevice, number: int, message: str) -> None:
    device.open_error = number
    with pytest.raises(DeviceError, match=message):
        camera(device).open()


@pytest.mark.parametrize(
    ("request_", "number", "message"),
    [
        (abi.QUERYCAP, errno.ENOTTY, "is not a V4L2 device"),
        (abi.S_FMT, errno.EBUSY, "in use by another program"),
        (abi.REQBUFS, errno.EBUSY, "in use by another program"),
        (abi.STREAMON, errno.ENOSPC, "no bandwidth left"),
        (abi.STREAMON, errno.ENODEV, "no such device"),
        (abi.QUERYBUF, errno.EIO, "Input/output error"),
    ],
)
def test_devices_that_fail_while_they_are_set_up(
    device: FakeDevice, request_: int, number: int, message: str
) -> None:
    device.failing[request_] = number
    with pytest.raises(DeviceError, match=message):
        camera(device).open()
    assert (device.mapped, device.opened) == (0, 0)
    device.failing.clear()
    assert jpegs(record(device)) == JPEGS  # it may be tried again


@pytest.mark.parametrize(
    ("capabilities", "message"),
    [
        (abi.CAP_STREAMING, "gives no pictures"),
        (abi.CAP_VIDEO_CAPTURE, "does not stream"),
    ],
)
def test_devices_that_are_no_cameras(device: FakeDevice, capabilities: int, message: str) -> None:
    device.capabilities = capabilities
    with pytest.raises(SourceError, match=message):
        camera(device).open()
    assert device.opened == 0


def test_a_device_that_gives_nothing() -> None:
    device = FakeDevice()
    start_ns = device.now_ns
    with pytest.raises(DeviceError, match="no whole picture within 4 s"):
        camera(device).open()
    assert device.now_ns - start_ns < 4_500_000_000
    assert (device.mapped, device.opened) == (0, 0)


def unplug(device: FakeDevice) -> None:
    device.present = False


def test_unplugging_and_plugging_in_again() -> None:
    device = FakeDevice(
        Frame(JPEGS[0]), Frame(JPEGS[1]), Frame(error=errno.ENODEV, then=unplug), Frame(JPEGS[2])
    )
    front = camera(device)
    front.open()
    with pytest.raises(DeviceError, match="front: v4l2:/dev/video0: no such device"):
        while True:
            front.read(0.2)
    front.close()
    assert (device.mapped, device.opened) == (0, 0)
    with pytest.raises(DeviceError, match="no such device"):
        front.open()
    device.present = True
    front.open()
    assert jpegs(watch(front)) == [JPEGS[2]]
    front.close()


def test_a_transfer_that_fails_now_and_then_is_survived() -> None:
    frames = []
    for k, data in enumerate(JPEGS):
        frames += [Frame(data, sequence=2 * k), *(Frame(error=errno.EIO) for _ in range(3))]
    with opened(camera(FakeDevice(*frames))) as front:
        events = [event for _ in range(40) for event in front.read(0.2)]
    assert jpegs(events) == JPEGS
    assert lost(events, "device") == 7  # the numbers tell of what was lost with them


def test_a_transfer_that_fails_for_ever_is_an_end() -> None:
    device = FakeDevice(Frame(JPEGS[0]), *(Frame(error=errno.EIO) for _ in range(20)))
    front = camera(device)
    front.open()
    with pytest.raises(DeviceError, match="Input/output error"):
        for _ in range(20):
            front.read(0.2)
    front.close()


def test_silence_is_an_end(device: FakeDevice) -> None:
    with opened(camera(device, timeout_s=1.5)) as front:
        watch(front)
        start_ns = device.now_ns
        with pytest.raises(DeviceError, match=r"no picture for 1\.5 s"):
            while front.read(0.2) == []:
                pass
        assert device.now_ns - start_ns < 2_000_000_000


def test_a_size_that_changes_ends_the_stream() -> None:
    device = FakeDevice(
        *(Frame(data) for data in (JPEGS[0], JPEGS[1], jpeg(2, (80, 48)), JPEGS[3]))
    )
    front = camera(device)
    front.open()
    events = front.read(0.2) + front.read(0.2)
    assert jpegs(events) == JPEGS[:2]
    with pytest.raises(StreamChangedError, match="80 x 48 pixels, not the declared 64 x 48"):
        front.read(0.2)
    front.close()


def test_no_device_on_this_machine() -> None:
    for path in ("/dev/video4711", "/dev/v4l/by-id/usb-none-video-index0"):
        with pytest.raises(DeviceError, match=f"camera: v4l2:{path}: no such device"):
            driver(path, "v4l2").open()
    with pytest.raises(DeviceError, match="is not a V4L2 device"):
        driver("/dev/null", "v4l2").open()


def test_read_needs_open(device: FakeDevice) -> None:
    with pytest.raises(DeviceError, match="before open"):
        camera(device).read(0.2)


def test_the_kernels_own_calls(tmp_path: Path) -> None:
    """What `LinuxKernel` does, on what every machine has: a pipe, a file that is mapped."""
    kernel = abi.LinuxKernel()
    reading, writing = os.pipe()
    try:
        assert not kernel.poll(reading, 0.001)
        os.write(writing, b"12345")
        assert kernel.poll(reading, 1.0)
        waiting = abi.BufferType()
        kernel.ioctl(reading, termios.FIONREAD, waiting)
        assert waiting.type == 5
        with pytest.raises(OSError, match="Inappropriate ioctl") as caught:
            kernel.ioctl(reading, abi.QUERYCAP, abi.Capability())
        assert caught.value.errno == errno.ENOTTY
    finally:
        os.close(reading)
        os.close(writing)
    path = tmp_path / "memory"
    path.write_bytes(bytes(4096) + b"picture".ljust(4096, b"."))
    fd = kernel.open(str(path))
    mapped = kernel.map(fd, 4096, 4096)
    assert mapped[0:7] == b"picture"
    mapped.close()
    kernel.close(fd)
    assert abs(kernel.monotonic_ns() - time.monotonic_ns()) < 10_000_000_000


def test_a_menu_has_the_items_between_its_bounds() -> None:
    """Whatever a device answers beyond them; holes are left out."""

    def ioctl(request: int, argument: Any) -> None:
        if request == abi.QUERYCTRL:
            if argument.id != abi.CTRL_NEXT:
                raise OSError(errno.EINVAL, "the end")
            argument.id, argument.type, argument.name = 7, abi.TYPE_MENU, b"Power Line"
            argument.minimum, argument.maximum = 1, 4
        elif argument.index == 3:
            raise OSError(errno.EINVAL, "a hole")
        else:
            argument.item.name = f"item {argument.index}".encode()

    (control,) = list_controls(ioctl).values()
    assert control.menu == {n: f"item {n}" for n in (1, 2, 4)}


@pytest.mark.parametrize("next_id", [7, 3])
def test_a_list_of_controls_that_goes_back_is_at_its_end(next_id: int) -> None:
    asked: list[int] = []

    def ioctl(request: int, argument: Any) -> None:
        asked.append(argument.id & ~abi.CTRL_NEXT)
        argument.id = next_id if len(asked) > 1 else 7
        argument.type, argument.name = abi.TYPE_INTEGER, f"control {len(asked)}".encode()

    assert list(list_controls(ioctl)) == ["control_1"]
    assert asked == [0, 7]
