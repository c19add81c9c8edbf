"""What an Ouster's answers are read as, what is asked of it, how its channels are described."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from drivers._devices.ouster import OusterHttp, Wanted, Watch, clock_state, firmware_version
from drivers._protocols.ouster_frames import channel_specs
from recorder.contract.errors import DeviceError

HERE = "10.0.0.1"


@pytest.mark.parametrize(
    ("info", "version"),
    [
        ({"image_rev": "ousteros-image-prod-aries-v2.3.0+20220415163956"}, (2, 3)),
        ({"image_rev": "ousteros-image-prod-bootes-v3.1.0-rc.2+20231012"}, (3, 1)),
        ({"build_rev": "v1.14.0-beta.14"}, (1, 14)),
        ({"image_rev": "", "build_rev": "2.5"}, (2, 5)),
        ({"image_rev": "v3.12.1", "build_rev": "v1.2.3"}, (3, 12)),
        ({"image_rev": "no number"}, (0, 0)),
        ({}, (0, 0)),
    ],
)
def test_firmware_versions(info: dict[str, str], version: tuple[int, ...]) -> None:
    assert firmware_version(info) == version


def test_each_part_of_the_clocks_state_is_where_the_sensor_says_it() -> None:
    answer = {
        "sensor": {
            "timestamp": {"mode": "TIME_FROM_PTP_1588", "time": 57178.44},
            "sync_pulse_in": {"locked": 1, "diagnostics": {"count": 2}},
            "multipurpose_io": {"mode": "INPUT_NMEA_UART"},
            "nmea": {"locked": 0, "baud_rate": "BAUD_9600"},
        },
        "ptp": {
            "port_data_set": {"port_state": "SLAVE", "port_identity": "bc0fa7.fffe.c48254-1"},
            "parent_data_set": {"grandmaster_identity": "001747.fffe.700038"},
        },
        "system": {"monotonic": 57191.8, "realtime": 1_700_000_000.5},
    }
    assert clock_state(answer) == {
        "timestamp_mode": "TIME_FROM_PTP_1588",
        "sync_pulse_in_locked": 1,
        "multipurpose_io_mode": "INPUT_NMEA_UART",
        "nmea_locked": 0,
        "ptp_port_state": "SLAVE",
        "ptp_grandmaster": "001747.fffe.700038",
    }


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ({}, {}),
        ({"sensor": 5, "ptp": None}, {}),
        ({"sensor": {"nmea": {"locked": 1}}}, {"nmea_locked": 1}),
        ({"sensor": {"timestamp": {"mode": {"a": 1}}, "nmea": [1]}}, {}),
    ],
)
def test_a_clocks_state_in_part_or_of_another_shape(
    answer: dict[str, Any], state: dict[str, Any]
) -> None:
    assert clock_state(answer) == state


@pytest.mark.parametrize(
    ("wanted", "active", "changes"),
    [
        (Wanted({}), {"udp_dest": HERE}, {}),
        (Wanted({}), {"udp_dest": "10.0.0.9"}, {"udp_dest": HERE}),
        (Wanted({}), {}, {"udp_dest": HERE}),
        (Wanted({}), {"udp_dest": "239.1.2.3"}, {}),  # others may listen to the group
        (Wanted({}, "239.1.2.3"), {"udp_dest": HERE}, {"udp_dest": "239.1.2.3"}),
        (Wanted({}, "10.0.0.9"), {"udp_dest": "10.0.0.9"}, {}),
        (
            Wanted({"lidar_mode": "512x20", "phase_lock_enable": True}),
            {"udp_dest": HERE, "lidar_mode": "512x20", "phase_lock_enable": False},
            {"phase_lock_enable": True},
        ),
        (
            Wanted({}),
            {"udp_dest": HERE, "operating_mode": "STANDBY", "auto_start_flag": 0},
            {"operating_mode": "NORMAL", "auto_start_flag": 1},
        ),
        (
            Wanted({"operating_mode": "STANDBY", "auto_start_flag": 0}),
            {"udp_dest": HERE, "operating_mode": "NORMAL", "auto_start_flag": 1},
            {"operating_mode": "STANDBY", "auto_start_flag": 0},
        ),
        (
            Wanted({}),
            {"udp_dest": "10.0.0.9", "udp_ip": "10.0.0.9"},
            {"udp_dest": HERE, "udp_ip": HERE},
        ),
        (
            Wanted({}),
            {"udp_dest": "10.0.0.9", "udp_dest_zm": "10.0.0.9"},
            {"udp_dest": HERE, "udp_dest_zm": HERE},
        ),
        (Wanted({}), {"udp_dest": "10.0.0.9", "udp_dest_zm": ""}, {"udp_dest": HERE}),
        (Wanted({}), {"udp_dest": HERE, "udp_ip": "10.0.0.9", "udp_dest_zm": "10.0.0.9"}, {}),
    ],
)
def test_only_what_differs_is_set(
    wanted: Wanted, active: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert wanted.changes(active, HERE) == changes


@pytest.mark.parametrize("near_ir", [True, False])
def test_what_a_channel_holds_is_in_its_description(near_ir: bool) -> None:
    there = ["RANGE", "REFLECTIVITY", "SIGNAL", *(["NEAR_IR"] if near_ir else [])]
    fields: dict[str, tuple[str, tuple[int, ...]]] = dict.fromkeys(there, ("u4", ()))
    specs = channel_specs(fields, 128, 1024, "lzmaf", ["SIGNAL"])
    assert [(c.name, c.format, c.dtype, c.shape, c.unit, c.description) for c in specs] == [
        ("rng", "lzmaf", "u2", (128, 1024), "mm", "range, first return, saturates at 65535"),
        (
            "rng_far", "lzmaf", "u4", (128, 1024), "mm",
            "range, first return minus rng: what exceeds 65535 mm",
        ),
        ("rfl", "lzmaf", "u1", (128, 1024), "", "calibrated reflectivity, first return"),
        (
            "nir", "lzmaf", "u2", (128, 1024), "",
            "near infrared ambient photons"
            + ("" if near_ir else "; not sent in this profile, all zero"),
        ),
        ("signal", "lzmaf", "u4", (128, 1024), "", "ouster-sdk's field SIGNAL"),
        (
            "t_col", "raw", "u8", (1024,), "ns",
            "device time of each column; 0 where the column is missing",
        ),
    ]  # fmt: skip


@contextmanager
def served(chunks: int) -> Iterator[str]:
    """A host that answers any request with so many chunks of a MiB."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # a client that has given up may leave its connection open

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                for _ in range(chunks):
                    self.wfile.write(bytes([32]) * (1 << 20))
                self.wfile.write(b"{}")
            except OSError:  # the client has heard enough
                pass

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_an_answer_without_end_is_given_up() -> None:
    with served(chunks=1) as host:
        assert OusterHttp(host, timeout_s=20.0).sensor_info() == {}
    no_end = pytest.raises(DeviceError, match="sensor_info: the answer is too long")
    with served(chunks=20) as host, no_end:
        OusterHttp(host, timeout_s=20.0).sensor_info()


class Sensor(OusterHttp):
    """Answers at once."""

    def __init__(self) -> None:
        super().__init__(HERE)

    def clock(self) -> dict[str, Any]:
        return {"timestamp_mode": "TIME_FROM_INTERNAL_OSC"}

    def alerts(self) -> list[Any]:
        return [{"id": "0x01"}]


def news_of(watch: Watch, patience_s: float) -> list[str]:
    """Kinds of what comes first, and within that time."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if news := watch.news():
            return [one.kind for one in news]
        time.sleep(0.01)
    return []


def test_a_question_does_not_wait_until_the_clock_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drivers._devices.ouster._CLOCK_S", 3600.0)
    watch = Watch(Sensor())
    try:
        assert news_of(watch, 20.0) == ["clock"]
        time.sleep(0.1)  # it waits by now
        watch.ask("alerts")
        assert news_of(watch, 20.0) == ["alerts"]
    finally:
        watch.close()
