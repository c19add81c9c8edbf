"""The emulated RTSP camera, with FFmpeg's client and with ours: what is sent is what arrives."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from drivers.camera.driver import CameraDriver
from drivers.camera.rtsp.emulator import START_NS
from drivers.kit.driver import Item, Sample
from drivers.kit.emulator import EmulatedSource
from drivers.kit.emulator_faults import Fault
from drivers.sim.emulated_rig import EmulatedRig
from recorder.codecs.h264 import nal_units, read_nal_type
from recorder.common.errors import DeviceError, SourceError
from recorder.config.settings import SensorEntry
from tests.drivers.camera.rig import driver
from tests.h264 import demuxed, number_of, write_file
from tests.support.devices import device_times, losses, make_entry, samples, streaming

COUNT, RATE = 60, 40
TRANSPORTS = [pytest.param("tcp", marks=pytest.mark.campaign), "udp"]
SIM: dict[str, Any] = {"width": 96, "height": 64, "fps": 50.0}


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_file(tmp_path_factory.mktemp("video") / "drive.mp4", COUNT, rate=RATE)


def entry(scheme: str, address: str = "", **options: Any) -> SensorEntry:
    given = {"codec": "copy", **options}
    return make_entry(CameraDriver, "front", "camera", scheme, address, **given)


@contextmanager
def emulated(sensor: SensorEntry, *faults: Fault) -> Iterator[tuple[EmulatedSource, EmulatedRig]]:
    with EmulatedRig([sensor], {"front": faults}, seed=2) as rig:
        yield rig.sources["front"], rig


def camera(source: EmulatedSource, **options: Any) -> CameraDriver:
    scheme, _, address = source.source.partition(":")
    return driver(address, scheme, **source.options, **options)


def watch(source: EmulatedSource, until: int) -> list[Item]:
    """What the driver gives until it has so many pictures, or the camera ends the stream."""
    opened, items = camera(source), list[Item]()
    opened.open()
    try:
        while sum(isinstance(item, Sample) for item in items) < until:
            if (item := opened.read()) is not None:
                items.append(item)
    except DeviceError:
        pass
    finally:
        opened.close()
    return items


def units_of(items: Sequence[Item | None]) -> list[bytes]:
    return [bytes(sample.data["video.h264"][0]) for sample in samples(items)]


def nals(units: Sequence[bytes]) -> list[list[bytes]]:
    return [list(nal_units(unit)) for unit in units]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_ffmpeg_gets_the_units_of_the_file(drive: Path, transport: str) -> None:
    how = {"rtsp_transport": transport}
    with (
        emulated(entry("file", str(drive))) as (source, _),
        av.open(source.source, options=how) as container,
    ):
        packets = container.demux(video=0)
        received = [bytes(next(packets)) for _ in range(COUNT - 1)]
    assert nals(received) == nals(demuxed(drive))[: COUNT - 1]


def test_the_driver_gets_the_units_of_the_file_with_the_cameras_times(drive: Path) -> None:
    with emulated(entry("file", str(drive))) as (source, _):
        items = watch(source, COUNT)
    assert nals(units_of(items)) == nals(demuxed(drive))
    times = device_times(items)
    period_ns = 10**9 / RATE
    due = [START_NS + round(k * period_ns) for k in range(COUNT)]
    assert np.abs(times - due).max() < 20_000, "one tick of 90 kHz is 11 us"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_lost_packets_are_counted_and_pictures_return_with_a_keyframe(
    drive: Path, transport: str
) -> None:
    """The keyframe of pictures 10 to 14 loses a packet: none of these can be decoded."""
    loss = Fault("loss", at_s=10 / RATE - 0.001, count=1)
    with emulated(entry("file", str(drive), transport=transport), loss) as (source, rig):
        items = watch(source, COUNT)
        injected = rig.injected["front"]
    assert injected == {"loss": 1}
    units, whole = units_of(items), nals(demuxed(drive))
    kept = [whole.index(unit) for unit in nals(units)]
    assert kept == sorted(set(range(COUNT)) - set(range(10, 15)))
    assert sum(item.count or 0 for item in losses(items)) == 5
    context = av.CodecContext.create("h264", "r")
    shown = [
        number_of(frame.to_ndarray(format="rgb24"))
        for unit in [*units, b""]
        for frame in context.decode(av.Packet(unit) if unit else None)
    ]
    assert shown == [k % 14 for k in kept]


def test_repeated_and_reordered_datagrams_cost_nothing(drive: Path) -> None:
    faults = Fault("reorder", rate=0.1), Fault("duplicate", rate=0.1)
    with emulated(entry("file", str(drive), transport="udp"), *faults) as (source, rig):
        assert source.options["transport"] == "udp"
        items = watch(source, COUNT)
        assert min(rig.injected["front"].values()) > 1
    assert nals(units_of(items)) == nals(demuxed(drive))
    assert not losses(items)


@pytest.mark.campaign
@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_what_a_file_is_lost_of_at_random_is_counted(drive: Path, transport: str) -> None:
    sensor = entry("file", str(drive), transport=transport)
    with emulated(sensor, Fault("loss", rate=0.1)) as (source, rig):
        items = watch(source, COUNT)
        assert rig.injected["front"]["loss"] > 3
    whole = nals(demuxed(drive))
    kept = [whole.index(unit) for unit in nals(units_of(items))]
    last = max(k for k, item in enumerate(items) if isinstance(item, Sample))
    lost = sum(item.count or 0 for item in losses(items[:last]))
    assert kept == sorted(set(kept))
    assert lost == kept[-1] - kept[0] + 1 - len(kept)


def test_the_simulated_camera_sends_what_sim_records() -> None:
    with emulated(entry("sim", **SIM)) as (source, _):
        assert source.options == {"codec": "copy", "fps": 50.0, "transport": "tcp"}
        received = units_of(watch(source, 30))
    with streaming(driver("", "sim", codec="copy", **SIM)) as (played, spec):
        assert (spec.channels[0].format, spec.channels[0].shape) == ("h264", (64, 96, 3))
        recorded = units_of([played.read() for _ in range(60)])
    assert read_nal_type(next(nal_units(recorded[0]))) == 7, "a sequence parameter set comes first"
    pictures = decoded(recorded)
    assert len(received) == 30
    shown = decoded(received)
    starts = [k for k in range(len(pictures)) if np.abs(pictures[k] - shown[0]).mean() < 2]
    assert starts, "the world is the same; the camera began with another picture"


def decoded(units: Sequence[bytes]) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    context = av.CodecContext.create("h264", "r")
    packets = [*(av.Packet(unit) for unit in units), None]
    frames = [frame for packet in packets for frame in context.decode(packet)]
    return [frame.to_ndarray(format="gray").astype(float) for frame in frames]


@pytest.mark.campaign
def test_a_camera_that_is_unplugged_comes_back() -> None:
    fault = Fault("unplug", at_s=0.3, duration_s=0.3)
    with emulated(entry("sim", **SIM), fault) as (source, rig):
        assert watch(source, 10_000), "until it is unplugged"
        reached = False
        while not reached:
            try:
                reached = len(watch(source, 5)) >= 5
            except DeviceError as error:
                assert re.search(r"refused|reset|closed", str(error))
        assert rig.injected["front"] == {"unplug": 1}


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ("PLAY {url} RTSP/1.0", "455 Method Not Valid in This State"),
        ("SETUP {url} RTSP/1.0\r\nTransport: RTP/AVP/SCTP;unicast", "461 Unsupported Transport"),
        ("RECORD {url} RTSP/1.0", "501 Not Implemented"),
        ("GET / HTTP/1.1", "400 Bad Request"),
    ],
)
def test_what_the_camera_refuses(drive: Path, request_: str, status: str) -> None:
    with emulated(entry("file", str(drive))) as (source, _):
        host, port = source.source.removeprefix("rtsp://").partition("/")[0].split(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            text = request_.replace("{url}", source.source)
            client.sendall(f"{text}\r\nCSeq: 7\r\n\r\n".encode())
            answer = client.recv(4096).decode()
    assert answer.startswith(f"RTSP/1.0 {status}\r\nCSeq: 7\r\n")


def test_faults_and_sizes_that_cannot_be() -> None:
    with pytest.raises(SourceError, match="front: a network drops damaged packets"):
        EmulatedRig([entry("sim")], {"front": [Fault("corrupt")]})
    with pytest.raises(SourceError, match="front: TCP does not reorder; set transport: udp"):
        EmulatedRig([entry("sim")], {"front": [Fault("reorder")]})
    odd = driver("", "sim", codec="copy", width=97, height=64)
    with pytest.raises(SourceError, match=r"97 x 64: H\.264 needs even width and height"):
        odd.open()
