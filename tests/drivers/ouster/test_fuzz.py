"""Damaged packets in great numbers: the driver neither dies, hangs nor grows."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ouster.sdk import core

from drivers.kit.driver import Sample
from drivers.ouster.http_api import OusterHttp
from drivers.ouster.live import LiveSource
from drivers.ouster.packets import Sorter, crc64
from drivers.ouster.setup import Wanted, bring_up
from recorder.common.errors import DeviceError
from tests.drivers.ouster.ouster_device import live_driver, write_metadata
from tests.drivers.ouster.rig import imu_packet, lidar_packets, make_frame, make_info
from tests.support.devices import free_port

SHAPES = [
    ("RNG19_RFL8_SIG16_NIR16_DUAL", "ACCEL32_GYRO32_NMEA"),
    ("LEGACY", "LEGACY"),
    ("FUSA_RNG15_RFL8_NIR8_DUAL", "LEGACY"),
    ("RNG15_RFL8_NIR8_ZONE16", "LEGACY"),
]
HEADER = 64  # bytes in which a change does most


@contextlib.contextmanager
def opened(folder: Path, info: Any) -> Iterator[tuple[LiveSource, int]]:
    """A source that listens on a port, and was sent one good packet."""
    port = free_port()
    metadata = write_metadata(folder, info)
    driver = live_driver(f"//127.0.0.1:{port}", "udp", metadata=metadata, imu_port=port)
    source = LiveSource(driver.sensor, None)
    receive = source._receive
    first = lidar_packets(info, make_frame(info, 1))[0][2]

    def receive_after_sending(wait_s: float) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(first, ("127.0.0.1", port))
        receive(wait_s)

    source._receive = receive_after_sending  # type: ignore[method-assign]
    try:
        source.open()
        source._receive = receive  # type: ignore[method-assign]
        yield source, port
    finally:
        source.close()


def mutations(info: Any, seed: int) -> Iterator[bytes]:
    """Packets of sweeps that go on, damaged in most ways that there are."""
    rng = random.Random(seed)
    sorter = Sorter(core, info, 7502, 7502)
    frame_id = 1
    while True:
        frame_id += 1
        packets = [data for _, _, data in lidar_packets(info, make_frame(info, frame_id % 65536))]
        packets.append(imu_packet(0, frame_id * 10**8)[2])
        for _ in range(20):
            for data in packets:
                damaged = bytearray(data)
                kind = rng.randrange(6)
                for _ in range(rng.randrange(4)):
                    top = len(damaged) if kind < 2 else min(HEADER, len(damaged))
                    damaged[rng.randrange(top)] = rng.randrange(256)
                if kind == 5:
                    damaged = damaged[: rng.randrange(len(damaged))]
                packet = sorter.packet(7502, np.frombuffer(bytes(damaged), np.uint8))
                if packet is not None and rng.random() < 0.5 and len(damaged) > 100:
                    damaged[-8:] = crc64(packet).to_bytes(8, "little")  # damage that fits
                yield bytes(damaged)


def feed(folder: Path, shape: tuple[str, str], count: int) -> int:
    """Send so many packets to a source; how many sweeps it made of them."""
    info = make_info(*shape)
    made = peak_kb = 0
    with (
        opened(folder, info) as (source, port),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        for sent, data in enumerate(mutations(info, 3), 1):
            sender.sendto(data, ("127.0.0.1", port))
            if sent % 40 == 0:
                source._receive(0.0)
                queue, source._queue = source._queue, []
                for t_ns, packet in queue:
                    made += sum(isinstance(i, Sample) for i in source._take(t_ns, packet))
            if sent == count // 2:
                peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if sent == count:
                break
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb
        assert grown_kb < 20_000, f"{grown_kb} KB more after the second half"
    return made


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape[0]))
def test_damaged_packets(tmp_path: Path, shape: tuple[str, str]) -> None:
    assert feed(tmp_path, shape, 2_000) > 3


@pytest.mark.campaign(weight=15)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape[0]))
def test_many_damaged_packets(tmp_path: Path, shape: tuple[str, str], mutations: int) -> None:
    assert feed(tmp_path, shape, mutations) > mutations // 1000


ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n"
    + b'{"status": "RUNNING", "image_rev": "v3.1.0" }',
    b"HTTP/1.1 200 OK\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]",
    b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n0\r\n\r\n",
    b"SSH-2.0-OpenSSH\r\n",
    b"",
]


def answer_with(data: bytes, server: socket.socket) -> None:
    client, _ = server.accept()
    with client:
        client.settimeout(60)
        with contextlib.suppress(OSError):
            client.recv(65536)
            client.sendall(data)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setattr("drivers.ouster.http_api._ATTEMPTS", 1)  # one answer for each request
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_what_is_wrong_with_an_answer_is_named(server: socket.socket) -> None:
    for data, message in (
        (
            ANSWERS[2],
            r"HTTP API, sensor/metadata/sensor_info: the answer is not an object: '\[1\]'",
        ),
        (ANSWERS[3], "HTTP API, sensor/metadata/sensor_info: 503"),
        (ANSWERS[5], "HTTP API, sensor/metadata/sensor_info: SSH-2.0"),
    ):
        thread = threading.Thread(target=answer_with, args=(data, server))
        thread.start()
        http = OusterHttp(f"127.0.0.1:{server.getsockname()[1]}", timeout_s=60.0)
        with pytest.raises(DeviceError, match=message):
            bring_up(http, Wanted({}), 0.0)
        thread.join()
    http = OusterHttp(f"127.0.0.1:{server.getsockname()[1]}", timeout_s=0.1)
    with pytest.raises(DeviceError, match=r"no answer in 0\.1 s"):
        http.sensor_info()
