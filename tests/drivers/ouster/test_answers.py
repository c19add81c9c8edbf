"""What an Ouster's answers are read as, what is asked of it, how its channels are described."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from drivers.kit.http_request import own_address
from drivers.ouster.frames import channel_specs
from drivers.ouster.http_api import (
    OusterHttp,
    Watch,
    clock_offset,
    clock_state,
    firmware_version,
)
from drivers.ouster.setup import Wanted
from recorder.common.errors import DeviceError

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


# ``/api/v1/time/sensor`` of a sensor with a GPS receiver, as its users have published it, in part.
SENSOR_TIME = {
    "multipurpose_io": {
        "nmea": {
            "leap_seconds": 0,
            "diagnostics": {"decoding": {"utc_decoded_count": 14410, "not_valid_count": 0}},
            "locked": 1,
        },
        "mode": "INPUT_NMEA_UART",
    },
    "sync_pulse_in": {"polarity": "ACTIVE_HIGH", "diagnostics": {"count": 30920}, "locked": 1},
    "timestamp": {
        "time_options": {"ptp_1588": 1143485, "internal_osc": 1143477, "sync_pulse_in": 1677462633},
        "mode": "TIME_FROM_SYNC_PULSE_IN",
        "time": 1677462634.3781691,
    },
}
PTP = {
    "current_data_set": {"mean_path_delay": 30110, "offset_from_master": 224159},
    "parent_data_set": {"grandmaster_identity": "001747.fffe.700038"},
    "port_data_set": {"port_state": "SLAVE", "port_identity": "bc0fa7.fffe.c48254-1"},
    "time_properties_data_set": {
        "current_utc_offset": 37,
        "current_utc_offset_valid": 1,
        "ptp_timescale": 1,
    },
}


def test_each_part_of_the_clocks_state_is_where_the_sensor_reports_it() -> None:
    answer = {"sensor": SENSOR_TIME, "ptp": PTP, "system": {"realtime": 1_700_000_000.5}}
    assert clock_state(answer) == {
        "timestamp_mode": "TIME_FROM_SYNC_PULSE_IN",
        "sync_pulse_in_locked": 1,
        "multipurpose_io_mode": "INPUT_NMEA_UART",
        "nmea_locked": 1,
        "nmea_leap_seconds": 0,
        "ptp_port_state": "SLAVE",
        "ptp_grandmaster": "001747.fffe.700038",
        "ptp_timescale": 1,
        "ptp_utc_offset_s": 37,
        "ptp_utc_offset_valid": 1,
    }
    assert clock_offset(answer) == {"ptp_offset_from_master_ns": 224159}


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ({}, {}),
        ({"sensor": 5, "ptp": None}, {}),
        ({"sensor": {"nmea": {"locked": 1}}}, {"nmea_locked": 1}),
        ({"sensor": {"timestamp": {"mode": {"a": 1}}, "multipurpose_io": {"nmea": [1]}}}, {}),
        ({"ptp": {"current_data_set": {"offset_from_master": True}}}, {}),
    ],
)
def test_a_clocks_state_in_part_or_of_another_shape(
    answer: dict[str, Any], state: dict[str, Any]
) -> None:
    assert clock_state(answer) == state
    assert clock_offset(answer) == {}


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
        assert OusterHttp(host, timeout_s=60.0).sensor_info() == {}
    no_end = pytest.raises(DeviceError, match="sensor_info: the answer is too long")
    with served(chunks=20) as host, no_end:
        OusterHttp(host, timeout_s=60.0).sensor_info()


class Sensor(OusterHttp):
    """Answers at once; its clock drifts, its settings change once."""

    def __init__(self) -> None:
        super().__init__(HERE)
        self.asked = 0

    def clock(self) -> dict[str, Any]:
        self.asked += 1
        offset = {"offset_from_master": self.asked}
        return {
            "sensor": {"timestamp": {"mode": "TIME_FROM_INTERNAL_OSC"}},
            "ptp": {"current_data_set": offset},
        }

    def settings(self, staged: bool = False) -> dict[str, Any]:
        return {"phase_lock_enable": self.asked > 1}

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
    monkeypatch.setattr("drivers.ouster.http_api._POLL_S", 3600.0)
    watch = Watch(Sensor())
    try:
        found: list[str] = []
        while len(found) < 2:
            found += news_of(watch, 20.0)
        assert found == ["clock", "clock_offset"]
        time.sleep(0.1)  # it waits by now
        watch.ask("alerts")
        assert news_of(watch, 20.0) == ["alerts"]
    finally:
        watch.close()


def test_changes_of_clock_and_settings_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers.ouster.http_api._POLL_S", 0.01)
    watch = Watch(Sensor(), {"phase_lock_enable": False})
    found: list[str] = []
    try:
        while len(found) < 5:
            found += news_of(watch, 20.0)
    finally:
        watch.close()
    assert found.count("clock") == found.count("settings") == 1
    assert found[0] == "clock" and found[:3].count("clock_offset") == 2 - (found[2] == "settings")


@pytest.mark.parametrize(
    ("name", "address"),
    [
        (("10.0.0.1", 80), "10.0.0.1"),
        (("fd00::2", 80, 0, 0), "fd00::2"),
        (("fe80::fc:1", 80, 0, 1), "fe80::fc:1%lo"),
    ],
)
def test_a_link_local_address_keeps_its_link(name: tuple[Any, ...], address: str) -> None:
    assert own_address(name) == address
