"""RTSP cameras: what is made of FFmpeg's answers; FFmpeg itself on an emulated camera."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
import pytest

from drivers._devices import rtsp_camera
from drivers._devices.pictures import Missing, Note, Shot
from drivers._devices.rtsp_camera import RtspCamera
from drivers._kit.driver import Sample
from drivers.sim.emulators.camera import CameraEmulator
from recorder.contract.errors import DeviceError, SourceError, StreamChangedError
from tests.drivers.camera_rig import Image, driver, jpeg
from tests.drivers.http_rig import SMALL, entry, lost, small_jpeg
from tests.sim.numbers import read_frame_number

IMAGES = [np.full((48, 64, 3), k, np.uint8) for k in range(40)]
JPEGS = [jpeg(k, (64, 48)) for k in range(8)]


class FakeTime:
    """The clock of the module under test; pictures move it."""

    def __init__(self) -> None:
        self.now_ns = 9_000_000_000

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    def monotonic_ns(self) -> int:
        return self.now_ns


class Ffmpeg:
    """Stands for cv2.VideoCapture: gives pictures, each after so many ms, and when it is let to.

    What `released` has not let through waits; an exception is raised; None is the end.
    """

    def __init__(self, clock: FakeTime) -> None:
        self.clock = clock
        self.pictures: list[tuple[Any, float]] = []
        self.fourcc = "h264"
        self.fps = 25.0
        self.opened = self.raw = False
        self.openable = True
        self.released = threading.Semaphore(10_000)
        self.gone = threading.Event()
        self.parameters: dict[int, int] = {}

    def __call__(self, url: str, backend: int, parameters: list[int]) -> Ffmpeg:
        assert url.startswith("rtsp://")
        assert backend == cv2.CAP_FFMPEG
        self.parameters = dict(zip(parameters[::2], parameters[1::2], strict=True))
        self.opened = self.openable
        return self

    def isOpened(self) -> bool:  # noqa: N802  OpenCV's
        return self.opened

    def get(self, what: int) -> float:
        if what == cv2.CAP_PROP_FPS:
            return self.fps
        assert what == cv2.CAP_PROP_FOURCC
        return float(int.from_bytes(self.fourcc.encode(), "little"))

    def set(self, what: int, value: float) -> bool:
        assert (what, value) == (cv2.CAP_PROP_FORMAT, -1)
        self.raw = True
        return True

    def read(self) -> tuple[bool, Image | None]:
        assert self.released.acquire(timeout=20)
        picture, after_ms = self.pictures.pop(0) if self.pictures else (None, 5000.0)
        self.clock.now_ns += round(after_ms * 1e6)
        if isinstance(picture, Exception):
            raise picture
        if isinstance(picture, bytes):
            assert self.raw
            picture = np.frombuffer(picture, np.uint8)
        return picture is not None, picture

    def release(self) -> None:
        self.opened = False
        self.gone.set()


@pytest.fixture
def ffmpeg(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ffmpeg]:
    clock = FakeTime()
    made = Ffmpeg(clock)
    monkeypatch.setattr(rtsp_camera, "time", clock)
    monkeypatch.setattr(cv2, "VideoCapture", made)
    yield made


def watch(camera: RtspCamera) -> tuple[list[Shot | Note], Exception]:
    """All until the end, and what the end is."""
    events: list[Shot | Note] = []
    try:
        while True:
            events += camera.read(20.0)
    except (DeviceError, StreamChangedError) as error:
        return events, error


def values(events: list[Shot | Note]) -> list[int]:
    return [int(e.picture[0, 0, 0]) if isinstance(e.picture, np.ndarray) else -1
            for e in events if isinstance(e, Shot)]  # fmt: skip


def test_pictures_are_stamped_when_they_come_and_the_backlog_is_left_out(ffmpeg: Ffmpeg) -> None:
    ffmpeg.pictures = [(image, 1.0 if k < 7 else 40.0) for k, image in enumerate(IMAGES[:15])]
    camera = RtspCamera("front", "//cam/live")
    camera.open()
    assert (camera.size, camera.fps, camera.jpegs) == ((64, 48), 25.0, False)
    assert camera.settings["codec"] == "h264"
    events, end = watch(camera)
    assert values(events) == list(range(7, 15))
    assert [(b.t_ns - a.t_ns) / 1e6 for a, b in pairwise(events)] == [40.0] * 7
    assert events[0].t_ns == 9_000_000_000 + 47_000_000
    assert isinstance(end, DeviceError)
    assert str(end) == "front: rtsp://cam/live: the stream ended, or no data arrived for 5 s"
    assert ffmpeg.gone.wait(20)
    with pytest.raises(DeviceError, match="the stream ended"):
        camera.read(0.2)
    camera.close()
    for what in (cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, cv2.CAP_PROP_READ_TIMEOUT_MSEC):
        assert 0 < ffmpeg.parameters[what] <= 5000


def test_a_burst_for_ever_is_believed_after_a_while(ffmpeg: Ffmpeg) -> None:
    ffmpeg.pictures = [(IMAGES[k % 40], 10.0) for k in range(500)]
    ffmpeg.released = threading.Semaphore(0)
    camera = RtspCamera("front", "//cam/live")
    ffmpeg.released.release(152)
    camera.open()
    assert camera.read(20.0) != []
    camera.close()
    ffmpeg.released.release(10)
    assert ffmpeg.gone.wait(20)


def test_mjpeg_is_passed_through(ffmpeg: Ffmpeg) -> None:
    ffmpeg.fourcc = "MJPG"
    damaged = JPEGS[3][:400]
    pieces = [JPEGS[0], JPEGS[1], JPEGS[2] + bytes(9), damaged, JPEGS[4]]
    ffmpeg.pictures = [(data, 40.0) for data in pieces]
    camera = RtspCamera("front", "//cam/live", fps=10.0)
    camera.open()
    assert (camera.size, camera.fps, camera.jpegs) == ((64, 48), 10.0, True)
    events, _ = watch(camera)
    pictures = [e.picture for e in events if isinstance(e, Shot)]
    assert [p for p in pictures if isinstance(p, bytes)] == [JPEGS[1], JPEGS[2], JPEGS[4]]
    assert isinstance(pictures[2], Missing)
    assert lost(events, "corrupt") == 1
    camera.close()


def test_pictures_that_nobody_takes_are_counted(ffmpeg: Ffmpeg) -> None:
    ffmpeg.pictures = [(image, 40.0) for image in IMAGES]
    ffmpeg.released = threading.Semaphore(37)
    camera = RtspCamera("front", "//cam/live")
    camera.open()  # two of them
    player = camera._player
    assert player is not None
    while player._refused < 35 - rtsp_camera._WAITING + 1:  # the thread works on
        threading.Event().wait(0.001)
    first = camera.read(20.0)
    assert values(first) == list(range(1, rtsp_camera._WAITING + 1))
    ffmpeg.released.release(10)
    events, _ = watch(camera)
    assert lost(events, "overrun") == 36 - rtsp_camera._WAITING
    assert values(events) == [-1, 37, 38, 39]
    assert all(b.t_ns > a.t_ns for a, b in pairwise(first + events))
    camera.close()


def test_a_size_that_changes_ends_the_stream(ffmpeg: Ffmpeg) -> None:
    other = np.zeros((50, 64, 3), np.uint8)
    ffmpeg.pictures = [(p, 40.0) for p in (IMAGES[0], IMAGES[1], IMAGES[2], other, IMAGES[3])]
    camera = RtspCamera("front", "//cam/live")
    camera.open()
    events, end = watch(camera)
    assert values(events) == [1, 2]
    assert isinstance(end, StreamChangedError)
    assert "64 x 50" in str(end)
    camera.close()


def test_streams_that_cannot_be_opened(ffmpeg: Ffmpeg) -> None:
    camera = RtspCamera("front", "//user:secret@cam/live")
    ffmpeg.openable = False
    with pytest.raises(DeviceError, match=r"front: rtsp://user:\*\*\*@cam/live: no stream"):
        camera.open()
    ffmpeg.openable = True
    with pytest.raises(DeviceError, match="the stream ended"):
        camera.open()  # it gives no picture
    ffmpeg.pictures = [(cv2.error("of OpenCV"), 0.0)]
    with pytest.raises(DeviceError, match="of OpenCV"):
        camera.open()
    ffmpeg.fourcc, ffmpeg.pictures = "MJPG", [(b"no jpeg", 40.0)]
    with pytest.raises(DeviceError, match="no JPEG"):
        camera.open()
    ffmpeg.fourcc, ffmpeg.fps = "h264", 90_000.0  # a time base, and no rate
    ffmpeg.pictures = [(image, 40.0) for image in IMAGES[:3]]
    camera.open()
    assert camera.fps is None
    camera.close()


def test_a_call_that_hangs_holds_nobody_up(ffmpeg: Ffmpeg, monkeypatch: pytest.MonkeyPatch) -> None:
    ffmpeg.released = threading.Semaphore(0)
    monkeypatch.setattr(rtsp_camera, "_OPEN_S", 0.05)
    camera = RtspCamera("front", "//cam/live")
    with pytest.raises(DeviceError, match="no picture within"):
        camera.open()
    assert not ffmpeg.gone.is_set()
    ffmpeg.pictures = [(image, 40.0) for image in IMAGES[:3]]
    ffmpeg.released.release(50)
    assert ffmpeg.gone.wait(20)  # the thread lets go by itself


def test_addresses() -> None:
    for bad in ("cam/live", "//", "//:554/x", "//cam:99999/", "//cam:0/"):
        with pytest.raises(SourceError, match="front: rtsp:"):
            RtspCamera("front", bad)
    with pytest.raises(DeviceError, match="before open"):
        RtspCamera("front", "//cam/").read(0.1)


def test_nobody_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    camera = driver(f"//u:secret@127.0.0.1:{port}/live", "rtsp", name="rear")
    with pytest.raises(DeviceError, match=r"rear: rtsp://u:.*: no stream") as caught:
        camera.open()
    assert "secret" not in str(caught.value)
    camera.close()


def test_ffmpeg_itself_on_an_emulated_camera(monkeypatch: pytest.MonkeyPatch) -> None:
    """FFmpeg reads the emulator's HTTP; but for the protocol all is as with RTSP."""
    emulator = CameraEmulator(entry(**SMALL))
    url = emulator.start().source
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            due_ns = emulator.step(time.monotonic_ns())
            stop.wait(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))

    thread = threading.Thread(target=run)
    thread.start()
    # A busy machine may be slow; what is waited for comes all the same.
    monkeypatch.setattr(rtsp_camera, "_CONNECT_S", 30.0)
    monkeypatch.setattr(rtsp_camera, "_OPEN_S", 40.0)
    camera = driver("//cam/live", "rtsp", timeout_s=30.0)
    real = RtspCamera.__init__

    def redirected(self: RtspCamera, *args: Any, **more: Any) -> None:
        real(self, *args, **more)
        self._url = url

    monkeypatch.setattr(RtspCamera, "__init__", redirected)
    try:
        (spec,) = camera.open()
        assert spec.settings["passed_through"] is True
        assert spec.channel("video.avi").shape == (120, 160, 3)
        found: list[bytes] = []
        while len(found) < 8:
            item = camera.read()
            assert item is None or isinstance(item, Sample)
            if item is not None:
                found += item.data["video.avi"]
    finally:
        stop.set()
        thread.join()
        emulator.stop()
    with pytest.raises(DeviceError, match="the stream ended"):
        while True:
            camera.read()
    camera.close()
    numbers = []
    for data in found:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        numbers.append(read_frame_number(np.asarray(image, np.uint8)))
    assert numbers == list(range(numbers[0], numbers[0] + 8))
    assert found == [small_jpeg(number) for number in numbers]


def test_read_gives_nothing_where_no_picture_comes_in_time(ffmpeg: Ffmpeg) -> None:
    ffmpeg.pictures = [(image, 40.0) for image in IMAGES[:4]]
    ffmpeg.released = threading.Semaphore(2)
    camera = RtspCamera("front", "//cam/live")
    camera.open()
    assert values(camera.read(20.0)) == [1]
    assert camera.read(0.001) == []
    ffmpeg.released.release(10)
    assert values(camera.read(20.0))[0] == 2
    camera.close()
