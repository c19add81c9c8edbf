"""A sensor gets the wanted settings, whatever it answers for a while."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ouster import http_api
from drivers.ouster import setup as ouster_setup
from drivers.ouster.http_api import OusterHttp
from drivers.ouster.setup import Setup, Wanted, bring_up, is_same_address
from recorder.common.errors import DeviceError
from tests.examples import examples

HERE = "10.0.0.1"
FACTORY = {"udp_dest": "", "lidar_mode": "1024x10", "timestamp_mode": "TIME_FROM_INTERNAL_OSC"}
LINK, ITS_LINK = "fe80::fc:1%enp0s3", "fe80::fc:1%eth0"  # one address, as the two sides name it
GOAL = {"lidar_mode": "512x20", "timestamp_mode": "TIME_FROM_PTP_1588"}


class Time:
    """The module `time`, without waiting."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Sensor(OusterHttp):
    """A sensor that restarts some time after it is asked to, and then has its new settings.

    Args:
        lingers_s: how long it still answers RUNNING with its old settings.
        starts_s: how long it then starts.
        keeps: settings that it never changes.
        trouble: gives a fault for each request, until there are none left.
    """

    def __init__(
        self,
        time: Time,
        lingers_s: float = 2.0,
        starts_s: float = 20.0,
        keeps: tuple[str, ...] = (),
        trouble: Callable[[], str] = lambda: "",
        version: str = "v3.1.0",
        has_id: bool = True,
    ) -> None:
        super().__init__("sensor")
        self.local_address = HERE
        self.time, self.lingers_s, self.starts_s, self.keeps = time, lingers_s, starts_s, keeps
        self.trouble, self.image_rev, self.has_id = trouble, version, has_id
        self.active, self.staged = dict(FACTORY), dict(FACTORY)
        self.stored = dict(FACTORY)
        self.init_id = 7
        self.restarts = self.saves = 0
        self._next: tuple[float, dict[str, Any]] | None = None
        self._seen: dict[str, str] = {}

    def power_cycle(self) -> None:
        self.init_id += 1
        self._next = None
        self.active, self.staged = dict(self.stored), dict(self.stored)

    def _status(self) -> str:
        if self._next is None:
            return "RUNNING"
        at_s, changed = self._next
        if self.time.now_s < at_s + self.lingers_s:
            return "RUNNING"
        if self.time.now_s < at_s + self.lingers_s + self.starts_s:
            return "INITIALIZING"
        self._next = None
        self.init_id += 1
        self.active |= {n: v for n, v in changed.items() if n not in self.keeps}
        self.staged = dict(self.active)
        return "RUNNING"

    def _ask(self, method: str, path: str, body: str | None = None) -> str:
        self.time.sleep(0.05)
        fault, key = self.trouble(), method + path
        if fault == "power":
            self.power_cycle()
        if fault == "late":
            self._answer(method, path, body)
            self.time.sleep(40.0)
            raise DeviceError("no answer in 40.0 s")
        if fault == "lost":
            raise DeviceError("connection reset")
        if fault == "busy":
            raise DeviceError("503 busy")
        if fault == "reject":
            raise DeviceError("400 no")
        if fault == "garbage":
            return "<html>"
        if fault == "ignore" and method == "POST":
            return "{}"
        if fault == "old" and method == "GET" and key in self._seen:
            return self._seen[key]
        self._seen[key] = answer = json.dumps(self._answer(method, path, body))
        return answer

    def _answer(self, method: str, path: str, body: str | None) -> Any:
        status = self._status()
        place, _, query = path.partition("?")
        command = place.removeprefix("sensor/cmd/")
        if place == "sensor/metadata/sensor_info":
            info = {"status": status, "image_rev": self.image_rev}
            return info | ({"initialization_id": self.init_id} if self.has_id else {})
        if place == "sensor/metadata":
            return {"metadata": self.init_id}
        if method == "GET" and (place == "sensor/config" or command == "get_config_param"):
            return self.staged if "staging=true" in query or "staged" in query else self.active
        if command == "set_config_param":
            body = urllib.parse.unquote(query.removeprefix("args=.+"))
        if body and body != "{}":
            self.staged |= json.loads(body)
        if command == "set_udp_dest_auto" or self.staged["udp_dest"] == "@auto":
            self.staged["udp_dest"] = ITS_LINK
        if "reinit=true" in query or command == "reinitialize":
            self._next = self.time.now_s, dict(self.staged)
            self.restarts += 1
        if "persist=true" in query or command == "save_config_params":
            self.stored = dict(self.active)
            self.saves += 1
        return {}


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    for module in (http_api, ouster_setup):
        monkeypatch.setattr(module, "time", made)
    return made


def opened(sensor: Sensor, wanted: Wanted, limit_s: float = 600.0) -> list[str]:
    """Open it as the kit does, again and again; the reasons why it did not open."""
    until_s, reasons = sensor.time.now_s + limit_s, list[str]()
    while True:
        try:
            active, _ = bring_up(sensor, wanted, sensor.time.now_s + 2.5)
        except DeviceError as error:
            assert sensor.time.now_s < until_s, f"never up: {error}"
            reasons.append(str(error))
            sensor.time.sleep(5.0)
        else:
            assert active == sensor.active or sensor.trouble() != ""
            return reasons


def test_old_settings_right_after_the_request_are_not_refusals(time: Time) -> None:
    sensor, wanted = Sensor(time, lingers_s=10.0), Wanted(GOAL)
    reasons = opened(sensor, wanted)
    assert sensor.active == FACTORY | GOAL | {"udp_dest": HERE}
    assert (wanted.refused, sensor.restarts) == ({}, 1)
    assert "the sensor has not restarted with its new settings yet" in reasons
    assert "the sensor is starting (INITIALIZING)" in reasons
    assert opened(sensor, wanted) == [] and sensor.restarts == 1


def test_only_a_restart_decides() -> None:
    wanted, right = Wanted(GOAL), FACTORY | GOAL | {"udp_dest": HERE}
    assert wanted.next_changes(7, FACTORY, HERE, 0.0) == GOAL | {"udp_dest": HERE}
    wanted.record_request(0.0)
    assert wanted.next_changes(7, right, HERE, 1.0) is None  # new settings, and no restart yet
    assert wanted.next_changes(8, FACTORY, HERE, 30.0) is None  # an old answer after the restart
    assert wanted.next_changes(8, right, HERE, 31.0) == {}
    assert wanted.next_changes(8, FACTORY, HERE, 99.0) == GOAL | {"udp_dest": HERE}
    wanted.record_request(100.0)
    assert wanted.next_changes(8, FACTORY, HERE, 159.0) is None
    assert wanted.next_changes(8, right, HERE, 159.0) == {}  # its id is the same after a restart


@pytest.mark.parametrize("version", ["v2.3.0", "v3.1.0"])
def test_after_a_power_cycle_the_settings_are_set_again(time: Time, version: str) -> None:
    sensor = Sensor(time, keeps=("timestamp_mode",), version=version)
    wanted = Wanted(GOAL)
    opened(sensor, wanted)
    assert wanted.refused == {"timestamp_mode": "TIME_FROM_INTERNAL_OSC"}
    assert sensor.restarts == 2  # a second time, should the first configuration have been lost
    opened(sensor, wanted)
    assert sensor.restarts == 2
    sensor.keeps = ()
    sensor.power_cycle()
    opened(sensor, wanted)
    assert wanted.refused == {} and sensor.active == FACTORY | GOAL | {"udp_dest": HERE}


def test_firmware_without_an_initialization_id(time: Time) -> None:
    sensor, wanted = Sensor(time, has_id=False, version="v2.0.0"), Wanted(GOAL)
    opened(sensor, wanted)
    assert (wanted.refused, sensor.restarts) == ({}, 1)
    assert sensor.active == FACTORY | GOAL | {"udp_dest": HERE}


def test_a_request_without_effect_is_repeated(time: Time) -> None:
    faults = iter(["", "", "ignore", "ignore"])
    sensor, wanted = Sensor(time, trouble=lambda: next(faults, "")), Wanted(GOAL)
    opened(sensor, wanted)
    assert (wanted.refused, sensor.restarts) == ({}, 1)
    assert sensor.active == FACTORY | GOAL | {"udp_dest": HERE}


@pytest.mark.parametrize("version", ["v2.3.0", "v3.1.0"])
def test_stored_settings_need_no_restart_after_a_power_cycle(time: Time, version: str) -> None:
    assert not Wanted(GOAL).persist, "a flash memory wears out"
    for persist in (False, True):
        sensor, wanted = Sensor(time, version=version), Wanted(GOAL, persist=persist)
        opened(sensor, wanted)
        opened(sensor, wanted)
        assert sensor.saves == persist  # a flash memory wears out
        sensor.power_cycle()
        opened(sensor, wanted)
        assert sensor.restarts == (1 if persist else 2)


def test_settings_that_cannot_be_stored_do_not_keep_a_sensor_from_recording(
    time: Time, capsys: pytest.CaptureFixture[str]
) -> None:
    sensor, wanted = Sensor(time), Wanted(GOAL, persist=True)
    full = iter([DeviceError("HTTP API, sensor/config: 500 full")])

    def save() -> None:
        for error in full:
            raise error
        OusterHttp.save(sensor)

    sensor.save = save  # type: ignore[method-assign]
    opened(sensor, wanted)
    assert "a power cycle loses them: HTTP API, sensor/config: 500 full" in capsys.readouterr().err
    assert wanted.stored is False
    opened(sensor, wanted)
    assert sensor.stored == sensor.active and wanted.stored


FAULTS = ["", "late", "lost", "busy", "reject", "garbage", "old"]


@examples(3)
@given(
    faults=st.lists(st.sampled_from(FAULTS), max_size=40),
    once=st.sampled_from(["", "ignore", "power"]),
    place=st.integers(0, 40),
    lingers_s=st.sampled_from([0.0, 1.0, 10.0]),
    starts_s=st.sampled_from([0.0, 0.1, 30.0]),
    legacy=st.booleans(),
)
def test_whatever_it_answers_for_a_while_it_ends_with_the_wanted_settings(
    faults: list[str], once: str, place: int, lingers_s: float, starts_s: float, legacy: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        time = Time()
        for module in (http_api, ouster_setup):
            patch.setattr(module, "time", time)
        faults.insert(min(place, len(faults)), once)
        drawn = iter(faults)
        sensor = Sensor(
            time, lingers_s, starts_s,
            trouble=lambda: next(drawn, ""), version="v2.3.0" if legacy else "v3.1.0",
        )  # fmt: skip
        wanted, right = Wanted(GOAL), FACTORY | GOAL | {"udp_dest": HERE}
        opened(sensor, wanted, 3600.0)
        # While it runs, its settings are looked at as well: an answer may have been too old.
        for _ in range(len(faults)):
            try:
                left = wanted.changes(sensor.settings(), HERE)
            except DeviceError:
                continue
            if left:
                opened(sensor, wanted, 3600.0)
        assert sensor.active == right
        assert sensor.restarts <= 4 + len(faults)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("fe80::1%eth0", "fe80::1%enp3s0", True),
        ("fe80::1", "FE80:0::1%eth0", True),
        ("fe80::1%eth0", "fe80::2%eth0", False),
        ("", "fe80::1%eth0", False),
        ("vehicle.local", "vehicle.local", True),
    ],
)
def test_one_address_on_two_links_names(one: str, other: str, same: bool) -> None:
    assert is_same_address(one, other) is same


@pytest.mark.parametrize("version", ["v2.3.0", "v3.1.0"])
def test_a_link_local_destination_is_inserted_by_the_sensor(time: Time, version: str) -> None:
    sensor, wanted = Sensor(time, version=version), Wanted({}, udp_dest="@auto")
    sensor.local_address = LINK
    sensor.active |= {"udp_dest_zm": "10.0.0.9"}
    opened(sensor, wanted)
    assert sensor.active["udp_dest"] == sensor.active["udp_dest_zm"] == ITS_LINK
    assert (sensor.restarts, wanted.refused) == (1, {})
    chosen = Wanted({}, udp_dest=LINK)
    assert chosen.changes({"udp_dest": ""}, HERE) == {"udp_dest": LINK}
    assert chosen.changes({"udp_dest": "fe80::fc:1"}, HERE) == {}


def test_an_answer_that_takes_long_is_waited_for_in_the_background() -> None:
    setup, go = Setup("sensor", Wanted({})), threading.Event()

    class Slow(OusterHttp):
        def metadata(self) -> str:
            assert go.wait(60)
            return "{}"

    setup.http = Slow("sensor")
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"has not answered yet \(metadata\)"):
            setup.metadata(0.01)
    go.set()
    assert setup.metadata(60.0) == "{}"
