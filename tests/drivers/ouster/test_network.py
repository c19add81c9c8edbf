"""The Ouster driver and a sensor that answers late, loses its settings, or has an IPv6 address."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from typing import Any

import pytest

from drivers.kit.driver import State
from drivers.kit.udp_socket import UdpReceiver, parse_address
from drivers.ouster.driver import OusterDriver
from drivers.ouster.emulator import OusterEmulator
from drivers.ouster.emulator_http import OusterApi
from drivers.ouster.http_api import OusterHttp
from drivers.ouster.live import _bind_address
from recorder.common.errors import DeviceError
from recorder.config.options import check_options
from recorder.config.settings import SensorEntry
from recorder.recording.supervisor.driver_registry import check_source
from tests.drivers.ouster.ouster_device import (
    emulator_for,
    inject,
    live_driver,
    recording,
    reported,
    running,
    sweeps,
    write_metadata,
)
from tests.drivers.ouster.rig import make_info
from tests.support.devices import open_again, read_until
from tests.support.waiting import wait_until

WANTED = {"phase_lock_enable": True, "phase_lock_offset": 90_000}


@pytest.fixture
def emulator(tmp_path: Path) -> OusterEmulator:
    return emulator_for("sim", "", metadata=write_metadata(tmp_path, make_info()))


def api_of(emulator: OusterEmulator) -> OusterApi:
    assert emulator._api is not None
    return emulator._api


def has(emulator: OusterEmulator) -> dict[str, Any]:
    """The wanted settings' values in the sensor."""
    return {name: api_of(emulator).settings[name] for name in WANTED}


@pytest.mark.campaign
def test_open_does_not_wait_for_a_late_answer_and_gets_it(
    emulator: OusterEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a session of the other sensors begins."""
    monkeypatch.setattr("drivers.ouster.live._HTTP_S", 0.05)
    with running(emulator) as address:
        api_of(emulator).delay_s = 0.5
        driver = live_driver(address, settings=WANTED)
        with pytest.raises(DeviceError, match=r"has not answered yet \(settings\)"):
            driver.open()
        open_again(driver)
        read_until(driver, sweeps(1))
        driver.close()
    assert has(emulator) == WANTED and emulator._init_id == 1000 + 5 + 2


def test_a_sensor_that_is_busy_for_a_moment_is_asked_again(
    emulator: OusterEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivers.ouster.http_api._RETRY_S", 0.01)
    with running(emulator) as address:
        api, http = api_of(emulator), OusterHttp(address.removeprefix("//"))
        api.failures.extend([503, 500])
        assert "status" in http.sensor_info()
        api.failures.extend([503, 500, 502, 404])
        with pytest.raises(DeviceError, match=r"sensor_info: 502 .*temporarily"):
            http.sensor_info()
        with pytest.raises(DeviceError, match="sensor/metadata/sensor_info: 404"):
            http.sensor_info()  # once: it is not there before the sensor runs
        assert not api.failures


@pytest.mark.parametrize("persist", [pytest.param(False, marks=pytest.mark.campaign), True])
def test_settings_after_a_power_cycle(tmp_path: Path, persist: bool) -> None:
    metadata = write_metadata(tmp_path, make_info())
    emulator = emulator_for("sim", "", metadata=metadata)
    with running(emulator) as address:
        options: dict[str, Any] = {"settings": WANTED, "persist": persist}
        driver = live_driver(address, **options, timeout_s=30.0 if persist else 1.0)
        open_again(driver)
        inject(emulator, "reboot", duration_s=0.2)
        if persist:
            states = read_until(driver, reported("sensor_restarted"))
            assert states[0].values["settings_stored"] is True  # type: ignore[union-attr]
        else:
            with pytest.raises(DeviceError, match="no packets of the sensor"):
                read_until(driver, lambda _: False)
            driver.close()
            # On a busy machine it is silent before, too.
            wait_until("the power cycle", lambda: has(emulator) != WANTED)
            driver = live_driver(address, **options, timeout_s=30.0)
            open_again(driver)
        read_until(driver, sweeps(2))
        driver.close()
    assert has(emulator) == WANTED
    # The starts: at first, with the settings, after the power cycle, and with the settings again.
    assert emulator._init_id == 1000 + 5 + (3 if persist else 4)
    assert (api_of(emulator).stored == api_of(emulator).settings) is persist


@pytest.mark.campaign
def test_settings_that_are_lost_while_the_sensor_sends_are_set_again(
    emulator: OusterEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivers.ouster.http_api._POLL_S", 0.05)
    with recording(emulator, settings=WANTED) as driver:
        read_until(driver, sweeps(1))
        api = api_of(emulator)
        with api.lock:
            api.settings = api.settings | {"signal_multiplier": 2}  # nobody asked for another value
        told = [i.values for i in read_until(driver, reported("settings")) if isinstance(i, State)]
        while told[-1].get("settings", {}).get("signal_multiplier") != 2:
            items = read_until(driver, reported("settings"))
            told += [i.values for i in items if isinstance(i, State)]
        with api.lock:
            api.settings = api.settings | {"phase_lock_enable": False}
        with pytest.raises(DeviceError, match="has lost its settings phase_lock_enable"):
            read_until(driver, lambda _: False)
        driver.close()
        open_again(driver)
    assert has(emulator) == WANTED


@pytest.mark.campaign
def test_two_sensors_on_the_same_ports(emulator: OusterEmulator, tmp_path: Path) -> None:
    metadata = write_metadata(tmp_path, make_info())
    other = emulator_for("sim", "", metadata=metadata, seed=1)
    with running(emulator) as address, running(other) as second:
        driver = live_driver(address)
        open_again(driver)
        settings = api_of(emulator).settings
        ports = settings["udp_port_lidar"], settings["udp_port_imu"]
        assert driver.receives == [("127.0.0.1", port) for port in sorted(ports)]
        twin = live_driver(second, lidar_port=ports[0], imu_port=ports[1])
        with pytest.raises(DeviceError, match="in use by another sensor or program; each sensor"):
            while True:
                with pytest.raises(DeviceError) as caught:
                    twin.open()
                if "cannot be bound" in str(caught.value):
                    raise caught.value
        driver.close()
        options = check_options(OusterDriver.options, {})
        checked = check_source(SensorEntry("lidar", "ouster", "ouster", address, options))
        assert checked.problem is None and checked.receives == tuple(driver.receives)


def link_local() -> Iterator[str]:
    """This machine's link-local addresses of IPv6, each with its link."""
    path = Path("/proc/net/if_inet6")
    for line in path.read_text().splitlines() if path.exists() else []:
        number, _, _, _, _, name = line.split()
        address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(number))
        if address.startswith("fe80:"):
            yield f"{address}%{name}"


@pytest.mark.parametrize("kind", ["loopback", "link-local"])
def test_an_address_on_a_link_is_kept_for_http_and_for_packets(kind: str) -> None:
    address = "::1" if kind == "loopback" else next(link_local(), "")
    if not address or not socket.has_ipv6:
        pytest.skip(f"this machine has no {kind} address of IPv6")
    hosts: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hosts.append(str(self.headers["Host"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    class Server(TCPServer):  # HTTPServer asks the network for its name
        address_family = socket.AF_INET6

    where = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0][4]
    try:
        server = Server(where, Handler)  # type: ignore[arg-type]
    except OSError:
        pytest.skip(f"this machine has no {kind} address of IPv6")
    with server:
        port = server.server_address[1]
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        http = OusterHttp(f"[{address}]:{port}")
        assert http.sensor_info() == {}
        thread.join()
    plain = address.partition("%")[0]
    assert hosts == [f"[{plain}]:{port}"]
    assert http.local_address == (address if kind == "link-local" else plain)
    here = _bind_address(f"{plain}%eth7", http.local_address)
    with UdpReceiver(here, 0, 1 << 16, 20.0) as receiver:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
            to = socket.getaddrinfo(here, receiver.port, type=socket.SOCK_DGRAM)[0][4]
            sender.sendto(b"packet", to)
        batch = receiver.receive()
    assert len(batch) == 1 and batch.source(0) == socket.inet_pton(socket.AF_INET6, plain)


@pytest.mark.parametrize(
    ("destination", "here", "address"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.1"),
        ("10.0.0.2", "10.0.0.1", ""),
        ("239.1.2.3", "10.0.0.1", "239.1.2.3"),
        ("fe80::1%eth0", "fe80::1%enp3s0", "fe80::1%enp3s0"),
        ("fe80::1", "fe80::1%enp3s0", "fe80::1%enp3s0"),
        ("fd00::2", "10.0.0.1", "::"),
        ("", "10.0.0.1", ""),
    ],
)
def test_where_packets_are_received(destination: str, here: str, address: str) -> None:
    assert _bind_address(destination, here) == address


def test_an_address_of_a_link_in_a_source() -> None:
    assert parse_address("[fe80::1%eth0]:7502", "") == ("fe80::1%eth0", 7502)
