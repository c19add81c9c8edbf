"""Devices that lie, back to back with one that does not: each costs its own stream only."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from recorder.session.reader import Session
from tests.drivers.test_lying_devices import MULTIPART, OK, Talk, device, endless, said
from tests.recording.daemon.served import Served
from tests.support.waiting import wait_until

REDIRECT = said("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n")
LIES: dict[str, dict[str, Talk]] = {  # by the sensor that tells them
    "lengths": {
        "lidar": endless(OK + b"Content-Length: 99999999999999\r\n\r\n", b"x"),
        "camera": endless(MULTIPART, b"--b\r\nContent-Length: 63000000\r\n\r\nx"),
        "rtsp": said("RTSP/1.0 200 OK\r\nContent-Length: 999999999\r\n\r\n"),
        "gnss": endless(b"\xb5\x62\x01\x07\xff\xff", b"\xb5\x62\x01\x07\xff\xff"),
    },
    "floods and endless headers": {
        "lidar": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        "camera": endless(OK, b"X-Lie: 1\r\n"),
        "rtsp": endless(b"", b"$\0\xff\xff" + bytes(65535)),
        "gnss": endless(b"", b"$GPGGA,"),
    },
    "redirects": {
        "lidar": REDIRECT,
        "camera": REDIRECT,
        "rtsp": said("RTSP/1.0 302 a\r\nCSeq: {cseq}\r\nLocation: rtsp://127.0.0.1:1/\r\n\r\n"),
        "gnss": said("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"),
    },
}
CONFIG = """
version: 1
session: {{root: sessions, name: drive}}
storage: {{min_free_gb: 0}}
sensors:
  imu: {{driver: xsens, source: "sim:", rate: 100}}
  lidar: {{driver: ouster, source: "ouster://127.0.0.1:{lidar}"}}
  camera: {{driver: camera, source: "http://127.0.0.1:{camera}/"}}
  rtsp: {{driver: camera, source: "rtsp://127.0.0.1:{rtsp}/"}}
  gnss: {{driver: gnss, source: "tcp:127.0.0.1:{gnss}"}}
"""


@pytest.mark.campaign(weight=10)
@pytest.mark.parametrize("kind", LIES)
def test_a_device_that_lies_costs_its_own_stream_only(kind: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        liars = {name: stack.enter_context(device(talk)) for name, talk in LIES[kind].items()}
        served = Served(tmp_path, CONFIG.format(**{k: liar.port for k, liar in liars.items()}))
        stack.callback(served.close)
        served.start()
        served.request("start")
        before = served.samples("imu")
        wait_until(
            "all devices are connected", lambda: all(liar.connections for liar in liars.values())
        )
        wait_until("the other sensor records", lambda: served.samples("imu") >= before + 100)
        status = served.status()
        assert status["state"] == "recording"
        closed: Any = served.request("stop")["closed"]
        assert closed["streams"]["imu"]["lost"] == {}
        served.terminate()
    with Session(tmp_path / "sessions/drive") as session:
        assert set(session.streams) == {"imu"}, "who lied from the start has no stream"
        assert len(session.streams["imu"]) >= 100
