"""What emulated devices answer on their wires, without a driver of ours at the other end."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drivers.ouster.emulator_http import OusterApi
from drivers.xsens.emulator import XsensEmulator
from tests.drivers.camera.http_rig import SMALL, Bench
from tests.drivers.xsens.rig import entry as mti_entry

METADATA = {"sensor_info": {"image_rev": "v3.1.0", "prod_line": "OS-1-128"}, "lidar_data_format": 7}
SETTINGS = {"udp_dest": "10.0.0.9", "lidar_mode": "1024x10", "azimuth_window": [0, 360000]}


def refuse_fast(settings: Any) -> str | None:
    return "too fast" if settings["lidar_mode"] == "4096x20" else None


@pytest.fixture
def api() -> Iterator[OusterApi]:
    made = OusterApi(METADATA, SETTINGS, refuse_fast)
    made.run(17)
    made.start()
    yield made
    made.stop()


def ask(api: OusterApi, method: str, path: str, body: str = "") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=60)
    try:
        connection.request(method, f"/api/v1/{path}", body or None)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_settings_are_staged_and_come_into_force_when_it_starts_anew(api: OusterApi) -> None:
    """As in Ouster's HTTP API reference: what POST answers is an empty object."""
    mode = json.dumps({"lidar_mode": "512x20"})
    assert ask(api, "POST", "sensor/config?reinit=false", mode) == (200, {})
    assert ask(api, "GET", "sensor/config") == (200, SETTINGS)
    staged = SETTINGS | {"lidar_mode": "512x20"}
    assert ask(api, "GET", "sensor/config?staging=true") == (200, staged)
    assert (api.reinitialize, api.status) == (None, "RUNNING")
    assert ask(api, "POST", "sensor/config", json.dumps({"udp_dest": "@auto"})) == (200, {})
    # A sensor answers as before for a moment.
    assert (api.reinitialize, api.status) == (staged | {"udp_dest": "127.0.0.1"}, "RUNNING")
    assert ask(api, "GET", "sensor/config") == (200, SETTINGS)
    assert ask(api, "GET", "sensor/metadata/sensor_info")[1]["status"] == "RUNNING"
    api.status = "INITIALIZING"
    assert ask(api, "GET", "sensor/metadata") == (404, {"error": "the sensor is INITIALIZING"})
    assert ask(api, "GET", "sensor/metadata/sensor_info")[1]["status"] == "INITIALIZING"


@pytest.mark.parametrize(
    ("body", "code", "error"),
    [
        ("{", 400, "the body is no JSON"),
        ("[1]", 400, "the body is no object"),
        ('{"colour": 1}', 400, "unknown setting colour"),
        ('{"lidar_mode": "4096x20"}', 400, "too fast"),
    ],
)
def test_settings_that_it_refuses_change_nothing(
    api: OusterApi, body: str, code: int, error: str
) -> None:
    assert ask(api, "POST", "sensor/config", body) == (code, {"error": error})
    assert ask(api, "GET", "sensor/config?staging=true") == (200, SETTINGS)
    assert (api.reinitialize, api.status) == (None, "RUNNING")
    assert ask(api, "DELETE", "sensor/config") == (405, {"error": "method not allowed"})


def test_commands_of_older_firmware(api: OusterApi) -> None:
    command = "sensor/cmd/set_config_param?args="
    assert ask(api, "GET", f"{command}lidar_mode+512x20") == (200, "set_config_param")
    assert ask(api, "GET", f"{command}azimuth_window+[0,90000]") == (200, "set_config_param")
    staged = SETTINGS | {"lidar_mode": "512x20", "azimuth_window": [0, 90000]}
    get = "sensor/cmd/get_config_param?args="
    assert ask(api, "GET", f"{get}staged") == (200, staged)
    assert ask(api, "GET", f"{get}active") == (200, SETTINGS)
    assert ask(api, "GET", "sensor/cmd/set_udp_dest_auto") == (200, {})
    assert ask(api, "GET", f'{command}.+{{"lidar_mode":"2048x10"}}') == (200, "set_config_param")
    assert (api.reinitialize, api.status) == (None, "RUNNING")
    for name in ("save_config_params", "reinitialize"):
        assert ask(api, "GET", f"sensor/cmd/{name}") == (200, {})
    assert api.reinitialize == staged | {"udp_dest": "127.0.0.1", "lidar_mode": "2048x10"}
    assert ask(api, "GET", f"{command}.+5")[0] == 400
    assert ask(api, "GET", "sensor/cmd/explode") == (404, {"error": "no such command"})
    assert ask(api, "POST", "sensor/cmd/reinitialize")[0] == 405


def test_what_a_server_shows_is_never_changed_while_somebody_looks(api: OusterApi) -> None:
    runner = threading.Thread(target=api.run, args=(18,))
    asker = threading.Thread(target=ask, args=(api, "POST", "sensor/config", "{}"))
    with api.lock:
        for thread in (runner, asker):
            thread.start()
            thread.join(0.2)  # they come no further than the lock
        assert api.metadata["sensor_info"]["initialization_id"] == 17
        assert (api.reinitialize, api.status) == (None, "RUNNING")
    for thread in (runner, asker):
        thread.join()
    assert api.metadata["sensor_info"]["initialization_id"] == 18
    assert api.reinitialize == SETTINGS


def test_what_a_camera_is_told_while_it_sends_does_not_matter() -> None:
    bench = Bench(**SMALL)
    try:
        address = bench.source.source.partition("//")[2].partition("/")
        host, port = address[0].split(":")
        request = f"GET /{address[2]} HTTP/1.1\r\n\r\n".encode()
        with socket.create_connection((host, int(port)), timeout=60) as client:
            said = b""
            for turn in range(4):
                client.sendall(request)
                until_ns = bench.now_ns + 200_000_000
                while bench.now_ns < until_ns:
                    bench.advance(until_ns)
                client.setblocking(False)
                while True:
                    try:
                        said += client.recv(1 << 20)
                    except BlockingIOError:
                        break
                client.settimeout(60)
                assert said.count(b"HTTP/1.1 200 OK") == 1, f"turn {turn}"
    finally:
        bench.emulator.stop()
    assert said.count(b"image/jpeg") > 10


def test_what_an_mti_sends_without_a_port_is_lost() -> None:
    emulator = XsensEmulator(mti_entry(), (), seed=1)
    link = Path(emulator.start().source.partition(":")[2])
    try:
        emulator._port.pull()
        emulator._write(b"nobody hears it")
        assert not link.is_symlink()
        emulator._port.pull()  # it is away already
    finally:
        emulator.stop()
