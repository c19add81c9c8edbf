"""The emulated camera and the HTTP camera, back to back on a made-up clock."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from drivers.camera.files.video import VideoFile
from drivers.camera.http.emulator import CameraEmulator
from drivers.camera.pictures import Missing, Shot, parse_jpeg
from drivers.kit.driver import Sample
from drivers.kit.emulator_faults import Fault
from recorder.common.errors import DeviceError, SourceError
from tests.drivers.camera.http_rig import SMALL, Bench, entry, jpegs, lost, notes, small_jpeg
from tests.drivers.camera.model_numbers import read_frame_number
from tests.drivers.camera.rig import driver, jpeg, write_avi, write_video
from tests.support.devices import opened

Benches = Callable[..., Bench]


@pytest.fixture
def benches() -> Iterator[Benches]:
    """Makes benches, and stops their emulators."""
    made: list[Bench] = []

    def make(*faults: Fault, **more: Any) -> Bench:
        made.append(Bench(faults, **(more or SMALL)))
        return made[-1]

    yield make
    for bench in made:
        bench.emulator.stop()


def number(data: bytes) -> int:
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return read_frame_number(np.asarray(image, np.uint8))


def sim_jpegs(count: int, **options: Any) -> list[bytes]:
    """What ``sim:`` records of the same world."""
    with opened(driver("", "sim", **options)) as camera:
        samples = [camera.read() for _ in range(count)]
    return [s.data["video.avi"][0] for s in samples if isinstance(s, Sample)]


def test_the_jpegs_are_those_of_sim_byte_for_byte(benches: Benches) -> None:
    bench = benches(**SMALL, seed=0)  # draws its own
    assert bench.source.options == {"fps": 20, "quality": 80}
    camera = bench.camera()
    camera.open()
    events = bench.watch(camera, 1.0)
    camera.close()
    assert (camera.size, camera.device_clock) == ((160, 120), True)
    shots = [event for event in events if isinstance(event, Shot)]
    assert len(shots) == len(events) == len(jpegs(events)) == 21  # both ends of the second
    first = number(jpegs(events)[0])
    assert jpegs(events) == sim_jpegs(first + 21, **SMALL)[first:]
    assert jpegs(events) == [small_jpeg(k) for k in range(first, first + 21)]
    for before, after in pairwise(shots):
        assert before.t_device_ns is not None
        assert after.t_device_ns is not None
        assert after.t_ns - before.t_ns == after.t_device_ns - before.t_device_ns == 50_000_000


def test_an_emulated_cameras_lens_has_the_faults_of_sim(benches: Benches) -> None:
    faults = [{"kind": "night"}, {"kind": "dirt", "from_s": 0.4, "amount": 0.3}]
    bench = benches(sensor=entry(**SMALL, faults=faults))
    camera = bench.camera()
    camera.open()
    events = bench.watch(camera, 1.0)
    camera.close()
    found = jpegs(events)
    with opened(driver("", "sim", **SMALL, faults=faults)) as simulated:
        samples = [simulated.read() for _ in range(60)]
    expected = {s.data["video.avi"][0] for s in samples if isinstance(s, Sample)}
    assert len(found) == 21 and expected.issuperset(found)
    assert not expected & set(sim_jpegs(60, **SMALL))


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault("loss", rate=0.2), "device"),
        (Fault("loss", at_s=1.0, count=7), "device"),
        (Fault("corrupt", rate=0.2), "corrupt"),
        (Fault("stall", at_s=1.0, duration_s=0.6), "device"),
    ],
)
def test_counted_loss_is_injected_loss_and_stands_in_its_place(
    benches: Benches, fault: Fault, cause: str
) -> None:
    bench = benches(fault)
    events = bench.record(2.5)
    assert bench.emulator.injected[fault.kind] >= 5
    assert lost(events, cause) == bench.emulator.injected[fault.kind]
    assert notes(events) == []
    at = None
    for event in events:
        assert isinstance(event, Shot)
        if isinstance(event.picture, Missing):
            at = None if at is None else at + event.picture.count
        elif isinstance(event.picture, bytes):
            assert at is None or number(event.picture) == at + 1
            at = number(event.picture)
    assert all(b.t_ns > a.t_ns for a, b in pairwise(events))


def test_repeated_pictures_are_recorded_once(benches: Benches) -> None:
    bench = benches(Fault("duplicate", at_s=0.5, count=3))
    events = bench.record(2.0)
    numbers = [number(data) for data in jpegs(events)]
    assert numbers == list(range(numbers[0], numbers[0] + 41))
    assert notes(events) == [{"repeated": 1}, {"repeated": 2}]  # and silence up to the fourth


def test_a_jump_of_the_cameras_clock_is_kept(benches: Benches) -> None:
    bench = benches(Fault("clock_jump", at_s=1.0, value=3.5))
    camera = bench.camera()
    camera.open()
    shots = [event for event in bench.watch(camera, 2.0) if isinstance(event, Shot)]
    steps = [(b.t_device_ns or 0) - (a.t_device_ns or 0) for a, b in pairwise(shots)]
    assert sorted(steps)[-2:] == [50_000_000, 3_550_000_000]
    assert all(b.t_ns - a.t_ns == 50_000_000 for a, b in pairwise(shots))
    camera.close()


@pytest.mark.parametrize("kind", ["reboot", "unplug"])
def test_a_camera_that_goes_and_comes_back(benches: Benches, kind: str) -> None:
    bench = benches(Fault(kind, at_s=1.0, duration_s=2.0))
    camera = bench.camera()
    camera.open()
    with pytest.raises(DeviceError, match=r"camera: http://127\.0\.0\.1"):
        bench.watch(camera, 3.0)
    camera.close()
    gone_ns = bench.now_ns
    with pytest.raises(DeviceError, match="refused"):
        camera.open()
    while bench.now_ns < gone_ns + 2_100_000_000:
        bench.advance(bench.now_ns + 100_000_000)
    camera.open()
    events = bench.watch(camera, 1.0)
    camera.close()
    assert len(jpegs(events)) >= 20
    first = next(event for event in events if isinstance(event, Shot))
    assert first.t_device_ns is not None
    since_s = first.t_device_ns / 1e9
    assert since_s < 0.5 if kind == "reboot" else since_s > 3.0
    assert number(jpegs(events)[0]) >= 60  # the world went on
    assert bench.emulator.injected == {kind: 1}
    assert lost(events, "device") == 0  # of the time before, the kit tells


def client_of(bench: Bench, request: bytes = b"GET / HTTP/1.1\r\n\r\n") -> socket.socket:
    """A client that has asked for pictures."""
    host, port = bench.source.source.split("/")[2].split(":")
    client = socket.create_connection((host, int(port)), timeout=60)
    client.sendall(request)
    return client


def numbers_of(client: socket.socket, bench: Bench, count: int) -> list[int]:
    """The ``X-Frame-Number`` of so many pictures that a client is sent."""
    data = b""
    client.setblocking(False)
    while len(found := re.findall(rb"X-Frame-Number: (\d+)", data)) < count:
        bench.advance(bench.now_ns + 50_000_000)
        with contextlib.suppress(BlockingIOError):
            data += client.recv(1 << 20)
    return [int(number_) for number_ in found[:count]]


@pytest.mark.parametrize("kind", ["reboot", "unplug"])
def test_numbers_begin_at_0_with_each_power_on(benches: Benches, kind: str) -> None:
    bench = benches(Fault(kind, at_s=1.0, duration_s=2.0))
    with client_of(bench) as client:
        assert numbers_of(client, bench, 3) == [0, 1, 2]
    before_ns = bench.now_ns
    while bench.now_ns < before_ns + 4_000_000_000:
        bench.advance(bench.now_ns + 100_000_000)
    with client_of(bench) as client:
        first, *more = numbers_of(client, bench, 3)
    assert more == [first + 1, first + 2]
    assert bench.emulator.injected == {kind: 1}
    since = 2.0 if kind == "reboot" else 4.0  # seconds since its power-on, a second more or less
    assert (since - 1) * 20 < first < (since + 1) * 20


def test_a_long_stall_is_a_camera_that_is_gone(benches: Benches) -> None:
    bench = benches(Fault("stall", at_s=1.0, duration_s=9.0))
    with opened(bench.camera(timeout_s=2.0)) as camera:
        with pytest.raises(DeviceError, match="no picture for 2 s"):
            bench.watch(camera, 6.0)
        assert bench.now_ns < 1_000_000_000_000 + 3_300_000_000


def test_several_clients_see_the_same(benches: Benches) -> None:
    bench = benches(Fault("loss", rate=0.1))
    first, second = bench.camera(), bench.camera()
    first.open()
    bench.watch(first, 0.5)
    second.open()
    mine, theirs = [], []
    for _ in range(60):
        mine += first.read(0.05)
        theirs += second.read(0.0001)
    assert len(jpegs(theirs)) > 25
    assert set(jpegs(theirs)[1:-1]) <= set(jpegs(mine))
    first.close()
    mine = theirs
    assert len(jpegs(bench.watch(second, 1.0))) > 15  # one that goes does not end the other
    second.close()


def test_a_slow_client_is_passed_over_and_the_others_are_not(
    benches: Benches,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drivers.camera.http.emulator._MAX_WAITING_BYTES", 40_000)
    bench = benches(**SMALL | {"width": 320, "height": 240, "quality": 100})
    lazy = client_of(bench)
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    camera = bench.camera()
    camera.open()
    while not bench.emulator.skipped:
        events = bench.watch(camera, 1.0)
        assert lost(events, "device") == 0
        assert len(jpegs(events)) >= 19
    lazy.close()
    camera.close()


def test_a_machine_that_draws_too_slowly_sends_all_the_same(benches: Benches) -> None:
    bench = benches()
    camera = bench.camera()
    camera.open()

    def slowly(index: int) -> bytes:
        bench.now_ns += 80_000_000  # a period is 50 ms
        return small_jpeg(index)

    bench.emulator._pictures.jpeg = slowly  # type: ignore[method-assign]
    events = bench.watch(camera, 3.0)
    assert len(jpegs(events)) > 25
    assert lost(events, "device") == 0
    assert bench.emulator.late_ns > 1_000_000_000
    camera.close()


def test_faults_wait_for_a_first_client(benches: Benches) -> None:
    bench = benches(Fault("loss", at_s=1.0, count=2), Fault("unplug", at_s=3.0, duration_s=1.0))
    for _ in range(60):
        bench.advance(bench.now_ns + 100_000_000)
        bench.now_ns += 200_000_000
    bench.advance(bench.now_ns)
    camera = bench.camera()
    camera.open()
    events = bench.watch(camera, 2.0)
    assert lost(events, "device") == 2
    assert bench.emulator.injected == {"loss": 2}
    with pytest.raises(DeviceError):
        bench.watch(camera, 2.0)
    camera.close()


def test_requests_that_are_none(benches: Benches) -> None:
    bench = benches()
    for request, answer in (
        (b"GET /other HTTP/1.1\r\n\r\n", b"HTTP/1.1 404"),
        (b"POST / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400"),
        (b"\x00" * 9000, b"HTTP/1.1 400"),
        (b"HEAD / HTTP/1.0\r\n\r\n", b"HTTP/1.1 200"),
    ):
        with client_of(bench, request) as client:
            for _ in range(20):
                bench.advance(bench.now_ns + 1_000_000)
            assert client.recv(4096).startswith(answer)
    bench.emulator.stop()
    bench.emulator.stop()


@pytest.mark.parametrize("codec", ["MJPG", "XVID"])
def test_a_videos_pictures_are_sent(benches: Benches, tmp_path: Path, codec: str) -> None:
    path = write_video(tmp_path / "v.avi", codec, count=12, fps=10)
    bench = benches(sensor=entry("file", str(path)))
    for _ in range(20):  # it waits for a first client
        bench.advance(bench.now_ns + 100_000_000)
    events = bench.record_all()
    assert [number(data) for data in jpegs(events)] == list(range(12))
    bench.advance(bench.now_ns + 1)
    assert bench.emulator.finished
    whole = path.read_bytes()
    assert all((data in whole) == (codec == "MJPG") for data in jpegs(events))


def test_a_video_begins_with_the_request_of_its_first_client(
    benches: Benches, tmp_path: Path
) -> None:
    path = write_video(tmp_path / "v.avi", "MJPG", count=4, fps=10)
    bench = benches(sensor=entry("file", str(path)))
    bench.emulator.step(bench.now_ns)
    with client_of(bench):
        while not bench.emulator._watched:
            assert bench.emulator.sent == 0
            bench.emulator.step(bench.now_ns)
        assert bench.emulator.sent == 1, "in the step that took the request"


def test_a_videos_pictures_are_resized(benches: Benches, tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.avi", "MJPG", count=3, fps=10)
    bench = benches(sensor=entry("file", str(path), width=160, height=90))
    headers = [parse_jpeg(data) for data in jpegs(bench.record_all())]
    assert [(header.width, header.height) for header in headers] == [(160, 90)] * 3


def test_a_file_that_cannot_be_shown_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "v.avi"
    path.write_bytes(bytes(5000))
    videos: list[VideoFile] = []
    opened = VideoFile.open

    def opening(self: VideoFile) -> None:
        videos.append(self)
        opened(self)

    monkeypatch.setattr(VideoFile, "open", opening)
    with pytest.raises(SourceError, match="not a video"):
        CameraEmulator(entry("file", str(path))).start()
    assert [video._capture for video in videos] == [None]


def test_a_video_goes_round_and_leaves_damage_out(benches: Benches, tmp_path: Path) -> None:
    frames = [jpeg(k) for k in range(4)]
    frames[2] = frames[2][:500]
    path = write_avi(tmp_path / "v.avi", frames)
    bench = benches(sensor=entry("file", str(path), loop=True, fps=25))
    events = bench.record(0.35)
    assert [number(data) for data in jpegs(events)][:7] == [0, 1, 3, 0, 1, 3, 0]
    assert not bench.emulator.finished


def test_what_cannot_be_emulated(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="never reordered"):
        CameraEmulator(entry(), [Fault("reorder")])
    with pytest.raises(SourceError, match="sim: or file:"):
        CameraEmulator(entry("rtsp", "//h/")).start()
    with pytest.raises(SourceError, match="no such file"):
        CameraEmulator(entry("file", str(tmp_path / "none.avi"))).start()
