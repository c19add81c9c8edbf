"""A hundred thousand mutated requests to an emulated camera, and answers of a lidar in JSON."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
from typing import Any

import pytest

from drivers.camera.http.emulator import CameraEmulator
from drivers.ouster.http_api import OusterHttp, clock_offset, clock_state
from drivers.ouster.live import read_ports
from drivers.ouster.setup import Wanted, bring_up
from recorder.common.errors import DeviceError, SourceError
from tests.drivers.camera.http_rig import SMALL, Drawn, entry
from tests.drivers.fuzzing import GROWTH, mutated, resident

pytestmark = pytest.mark.campaign(weight=12)


def test_requests_at_the_emulated_camera(mutations: int) -> None:
    rng = random.Random(6)
    asked = [
        b"GET /stream.mjpg HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HEAD / HTTP/1.0\r\n\r\n",
        b"GET /other HTTP/1.1\r\n\r\n",
    ]
    emulator = CameraEmulator(entry(**SMALL))
    where = emulator.start().source.split("/")[2].split(":")
    emulator._pictures = Drawn()
    now_ns, streams, answered, before = 0, 0, 0, 0
    try:
        for k in range(mutations):
            client = socket.create_connection((where[0], int(where[1])))
            # Gone at once, without a trace in the kernel: there are not as many ports.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.setblocking(False)
            client.sendall(mutated(rng, asked[k % 3], (b"\r\n\r\n", b"\0" * 50)) or b"\r")
            now_ns += 1_000_000
            emulator.step(now_ns)
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                said = client.recv(4096)
                answered += said.startswith(b"HTTP/1.1 ")
                streams += b"multipart/" in said
            client.close()
            if k == mutations // 4:
                before = resident()
        emulator.step(now_ns)
        assert streams > mutations // 10 and answered - streams > mutations // 10
        assert len(emulator._clients) <= 1
    finally:
        emulator.stop()
    assert resident() - before < GROWTH


VALUES = [
    None,
    "",
    "x",
    0,
    -1,
    7502,
    1e300,
    2**70,
    [],
    {},
    [1],
    {"a": 1},
    True,
    "9" * 400,
    "\ud800",
]


def scrambled(rng: random.Random, value: Any) -> Any:
    """The JSON value with parts replaced, or left out."""
    if rng.random() < 0.1:
        return rng.choice(VALUES)
    if isinstance(value, dict):
        return {k: scrambled(rng, v) for k, v in value.items() if rng.random() > 0.05}
    return value


def test_what_a_lidar_says_is_what_it_is_not(mutations: int) -> None:
    """Answers that are JSON, but hold what nobody expects."""
    rng = random.Random(7)
    info = {"status": "RUNNING", "image_rev": "v3.1.0", "initialization_id": 5}
    settings = {
        "udp_dest": "127.0.0.1", "udp_port_lidar": 7502, "udp_port_imu": 7503,
        "lidar_mode": "1024x10", "operating_mode": "NORMAL", "auto_start_flag": 1,
        "udp_dest_zm": "", "udp_ip": "",
    }  # fmt: skip
    clock = {
        "sensor": {
            "timestamp": {"mode": "X"},
            "multipurpose_io": {"mode": "OFF", "nmea": {"locked": 1, "leap_seconds": 0}},
            "sync_pulse_in": {},
        },
        "ptp": {
            "port_data_set": {"port_state": "SLAVE"},
            "current_data_set": {"offset_from_master": 7},
            "time_properties_data_set": {"current_utc_offset": 37},
        },
    }
    right = {"sensor/config": settings, "sensor/metadata/sensor_info": info, "time": clock}
    right |= {"sensor/alerts": {"active": []}, "sensor/cmd/get_config_param": settings}
    right |= {"sensor/cmd/set_config_param": {}, "sensor/cmd/reinitialize": {}}

    asked = brought = 0

    class Sensor(OusterHttp):
        local_address = "127.0.0.1"

        def _ask(self, method: str, path: str, body: str | None = None) -> str:
            nonlocal asked
            asked += 1
            self.local_address = "127.0.0.1"
            return json.dumps(scrambled(rng, right[path.partition("?")[0]]))

    sensor = Sensor("h")
    while asked < mutations:
        wanted = Wanted({"lidar_mode": "1024x10"})
        try:
            active, _ = bring_up(sensor, wanted, 0.0)
            brought += 1
            ports = read_ports(active)
            assert all(0 < port < 65536 for port in ports)
        except (DeviceError, SourceError):
            pass
        with contextlib.suppress(DeviceError, SourceError):
            answer = sensor.clock()
            json.dumps(clock_state(answer) | clock_offset(answer))
            sensor.alerts()
    assert brought > mutations // 100
