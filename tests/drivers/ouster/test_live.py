"""The Ouster driver on an emulated device, over loopback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ouster.sdk import core

from drivers.kit.driver import Item, Lost, Sample, State
from drivers.kit.emulator_faults import Fault
from drivers.ouster.emulator import OusterEmulator
from drivers.ouster.frames import Assembly
from drivers.ouster.live import LiveSource
from recorder.common.errors import ConfigError, DeviceError, SourceError
from recorder.formats.pcap.datagrams import read_datagrams
from tests.drivers.ouster.ouster_device import (
    emulator_for,
    imu_missing,
    inject,
    live_driver,
    packets_missing,
    recording,
    reported,
    running,
    sweeps,
    until,
    write_metadata,
)
from tests.drivers.ouster.rig import (
    COLUMNS,
    PACKETS,
    SERIAL,
    capture,
    check_items,
    driver_for,
    flat,
    lidar_packets,
    make_frame,
    make_info,
    play,
    samples,
    write,
)
from tests.support.devices import free_port, losses, open_again, read_until, states
from tests.support.waiting import wait_until

Sensor = Callable[..., OusterEmulator]
FAST = 5  # times as fast as time goes
OS0 = ("OS-0-32-U1_v2.2.0_1024x10.pcap", "OS-0-32-U1_v2.2.0_1024x10.json")


def record(emulator: OusterEmulator, enough: Any, speed: int = FAST, **options: Any) -> list[Item]:
    with running(emulator, speed) as address:
        driver = live_driver(address, **options)
        specs = open_again(driver)
        assert not any(spec.finite for spec in specs)
        try:
            items = read_until(driver, enough)
        finally:
            driver.close()
    check_items(specs, items)
    # At such a speed the device's clock runs away from the host's.
    return [i for i in items if not (isinstance(i, State) and "device_clock_step_ns" in i.values)]


@pytest.fixture
def sensor(tmp_path: Path) -> Sensor:
    """Makes emulators of the small sensor, or of another one, with these faults."""

    def make(*faults: Fault, info: Any = None) -> OusterEmulator:
        metadata = write_metadata(tmp_path, info or make_info())
        return emulator_for("sim", "", faults, metadata=metadata)

    return make


def columns_told(items: list[Item]) -> int:
    return sum(i.values.get("columns_missing", 0) for i in items if isinstance(i, State))


def incomplete_of(items: list[Item]) -> dict[str, dict[str, int]]:
    """What the states count of incomplete sweeps, by cause."""
    found: dict[str, dict[str, int]] = {}
    for item in items:
        for cause, counts in (
            item.values.get("incomplete", {}).items() if isinstance(item, State) else ()
        ):
            known = found.setdefault(cause, {"samples": 0, "parts": 0})
            found[cause] = {key: known[key] + count for key, count in counts.items()}
    return found


@pytest.mark.parametrize(
    "imu", ["LEGACY", pytest.param("ACCEL32_GYRO32_NMEA", marks=pytest.mark.campaign)]
)
def test_a_live_sensor_gives_what_sim_gives(tmp_path: Path, imu: str) -> None:
    metadata = write_metadata(tmp_path, make_info("RNG19_RFL8_SIG16_NIR16_DUAL", imu))
    options: dict[str, Any] = {"metadata": metadata, "seed": 0, "scene": "straight"}
    items = record(emulator_for("sim", "", **options), sweeps(8))
    by_time = simulated(max(int(s.t_dev_ns[0]) for s in samples(items)), **options)
    whole = [s for s in samples(items) if s.data["t_col"].all()]
    measured = samples(items, "lidar_imu")
    assert len(whole) >= 6 and len(measured) >= 10
    for sample in [*whole, *measured]:
        expected = by_time[sample.stream, int(sample.t_dev_ns[0])]
        assert set(sample.data) == set(expected.data)
        np.testing.assert_array_equal(sample.t_dev_ns, expected.t_dev_ns)
        for name in sample.data:
            np.testing.assert_array_equal(sample.data[name], expected.data[name], name)
    assert not losses(items)
    assert packets_missing(items) == 0


def simulated(until_ns: int, **options: Any) -> dict[tuple[str, int], Any]:
    """What ``sim:`` gives until a time, by stream and time; data not looked at are not made."""
    driver, found = driver_for("sim", "", **options), {}
    driver.open()
    while True:
        sample = driver.read()
        assert isinstance(sample, Sample) and sample.t_dev_ns is not None
        found[sample.stream, int(sample.t_dev_ns[0])] = sample
        if sample.t_dev_ns[0] > until_ns:
            return found


@pytest.mark.parametrize("name", ["real", "made"])
def test_a_capture_through_the_emulator_gives_what_pcap_gives(
    tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    if name == "real":
        folder = request.getfixturevalue("shared_data") / "ouster"
        path, metadata = (str(folder / file) for file in OS0)
    else:
        sweeps_made = capture(make_info(), [7, 8, 9, 12])
        del sweeps_made[1][2:4]
        path = str(write(tmp_path, make_info(), flat(sweeps_made)))
        metadata = str(Path(path).with_suffix(".json"))
    _, expected = play(driver_for("pcap", path, metadata=metadata))
    emulator = emulator_for("pcap", path, metadata=metadata)
    count = len(samples(expected)), len(samples(expected, "lidar_imu"))
    items = record(
        emulator,
        lambda items: (len(samples(items)), len(samples(items, "lidar_imu"))) == count,
    )
    for stream in ("lidar", "lidar_imu"):
        pairs = zip(samples(items, stream), samples(expected, stream), strict=True)
        for got, wanted in pairs:
            np.testing.assert_array_equal(got.t_dev_ns, wanted.t_dev_ns)
            for channel in wanted.data:
                np.testing.assert_array_equal(got.data[channel], wanted.data[channel], channel)
    # Nothing but the cause differs in the accounts: a file cannot say where a sweep was lost.
    accounts = [(i.count, i.detail) for i in items if isinstance(i, Lost)]
    assert accounts == [(i.count, i.detail) for i in expected if isinstance(i, Lost)]
    assert columns_told(items) == columns_told(expected)


@pytest.mark.campaign
def test_counted_loss_is_injected_loss(sensor: Sensor) -> None:
    emulator = sensor(Fault("loss", 0.2, 1.3, rate=0.1), Fault("loss", 0.7, count=60))
    items = record(emulator, until(emulator, 1.8), speed=1)
    assert emulator.injected["loss"] > 70
    assert packets_missing(items) + imu_missing(items) == emulator.injected["loss"]
    assert packets_missing(items) > 0 and imu_missing(items) > 0
    # What is missing is zero, where it is missing, and nowhere else.
    for sample in samples(items)[1:]:
        there = sample.data["t_col"][0] > 0
        assert not sample.data["rng"][0][:, ~there].any()
    gone = [i for i in items if isinstance(i, Lost) and i.stream == "lidar"]
    assert gone and {i.cause for i in gone} == {"network"}
    absent = sum(COLUMNS - np.count_nonzero(s.data["t_col"]) for s in samples(items))
    assert absent == columns_told(items)
    # The account by cause has the columns of the packets that were dropped within sweeps.
    in_sweeps = [i.values.get("packets_missing", 0) for i in items if isinstance(i, State)]
    incomplete = incomplete_of(items)
    assert incomplete == {
        "network": {"samples": np.count_nonzero(in_sweeps), "parts": 16 * sum(in_sweeps)}
    }


@pytest.mark.campaign
def test_reordered_and_repeated_packets_cost_nothing(sensor: Sensor) -> None:
    emulator = sensor(*(Fault(kind, 0.2, 2.0, rate=0.1) for kind in ("reorder", "duplicate")))
    items = record(emulator, until(emulator, 2.5))
    assert emulator.injected["reorder"] > 5 and emulator.injected["duplicate"] > 5
    assert packets_missing(items) == imu_missing(items) == 0
    assert all(s.data["t_col"].all() for s in samples(items)[1:])
    repeated = sum(i.values.get("packets_repeated", 0) for i in items if isinstance(i, State))
    assert repeated == emulator.injected["duplicate"]


@pytest.mark.campaign
def test_damaged_packets_are_found_by_their_checksum(sensor: Sensor) -> None:
    info = make_info("RNG19_RFL8_SIG16_NIR16_DUAL", "ACCEL32_GYRO32_NMEA")
    emulator = sensor(Fault("corrupt", 0.2, 2.0, rate=0.1), info=info)
    items = record(emulator, until(emulator, 2.5), speed=2)
    corrupt = sum(i.values.get("packets_corrupt", 0) for i in items if isinstance(i, State))
    assert corrupt == emulator.injected["corrupt"] > 5
    assert packets_missing(items) + imu_missing(items) / 4 == corrupt
    assert incomplete_of(items).keys() == {"corrupt"}
    assert not [i for i in items if isinstance(i, State) and "sensor_restarted" in i.values]


@pytest.mark.campaign
def test_a_packet_that_cannot_be_decoded_costs_nothing_of_the_imu(
    sensor: Sensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples of the IMU wait for the sweep that such a packet ends."""
    take, taken, raised = Assembly.take, 0, 0

    def sometimes(assembly: Assembly[Item], packet: Any) -> Iterator[Item]:
        nonlocal taken, raised
        taken += 1
        if taken % 13 == 0:
            raised += 1
            raise ValueError("damaged")
        yield from take(assembly, packet)

    monkeypatch.setattr(Assembly, "take", sometimes)
    items = record(sensor(), sweeps(8))
    device_ns = np.concatenate([s.t_dev_ns for s in samples(items, "lidar_imu")])
    assert len(device_ns) > 50 and (np.diff(device_ns) < 15_000_000).all()  # at 100 Hz
    corrupt = sum(i.values.get("packets_corrupt", 0) for i in items if isinstance(i, State))
    assert corrupt in (raised - 1, raised) and raised > 3  # told with the next sweep
    assert corrupt <= packets_missing(items)


@pytest.mark.campaign
def test_a_stalled_sensor_misses_what_it_did_not_send(sensor: Sensor) -> None:
    emulator = sensor(Fault("stall", 0.33, 0.6))
    items = record(emulator, until(emulator, 1.3), speed=1)
    assert emulator.injected["stall"] == packets_missing(items) + imu_missing(items) > 0


def test_a_rebooted_sensor_is_noticed_and_its_metadata_recorded(sensor: Sensor) -> None:
    emulator = sensor()
    with running(emulator) as address:
        driver = live_driver(address, persist=True, timeout_s=30.0)
        specs = open_again(driver)
        items = read_until(driver, sweeps(1))
        inject(emulator, "reboot", duration_s=0.2)
        items += read_until(driver, reported("metadata"))
        driver.close()
    check_items(specs, items)
    told = states(items)
    first = next(s["init_id"] for s in told if "settings" in s)
    (restart,) = (s for s in told if s.get("sensor_restarted"))
    (fetched,) = (s for s in told if "metadata" in s)
    assert restart["init_id"] == fetched["init_id"] == first + 1
    assert core.SensorInfo(fetched["metadata"]).init_id == first + 1
    # How many sweeps there were not, nobody can count.
    gone = [(i.stream, i.cause, i.count) for i in items if isinstance(i, Lost)]
    assert gone == [("lidar", "device", None), ("lidar_imu", "device", None)]


@pytest.mark.campaign
def test_a_sensor_that_is_pulled_off_and_comes_back(sensor: Sensor) -> None:
    emulator = sensor(Fault("unplug", 0.2, 1e6))
    with running(emulator) as address:
        driver = live_driver(address, timeout_s=0.5)
        open_again(driver)
        with pytest.raises(DeviceError, match=r"lidar: ouster:.*no packets of the sensor"):
            read_until(driver, lambda _: False)
        driver.close()
        wait_until("pulled off", lambda: emulator.injected["unplug"])
        with pytest.raises(DeviceError, match=r"HTTP API, sensor/metadata/sensor_info: \w+"):
            driver.open()
        assert isinstance(driver.sensor.options, dict)
        driver.sensor.options["timeout_s"] = 30.0
        emulator._back_ns = 0  # it is plugged in again
        open_again(driver)
        items = read_until(driver, sweeps(2))
        driver.close()
    assert not losses(items)


@pytest.mark.campaign  # needs an emulated sensor that keeps its rate
def test_a_clock_that_jumps_is_told(sensor: Sensor) -> None:
    """Farther than a busy machine pauses: a packet that is late looks like a step back."""
    emulator = sensor()
    with recording(emulator) as driver:
        items = read_until(driver, sweeps(1))
        inject(emulator, "clock_jump", value=60.0)
        items += read_until(driver, lambda items: any(steps(items)))
        items += read_until(driver, sweeps(1))
    (step,) = steps(items)
    assert step == pytest.approx(60e9, abs=30e9)
    assert not losses(items)


def steps(items: list[Item]) -> list[int]:
    """Of the device's clock, by more than half a minute."""
    told = [i.values.get("device_clock_step_ns", 0) for i in items if isinstance(i, State)]
    return [step for step in told if abs(step) > 30e9]


def test_settings_are_set_and_recorded() -> None:
    emulator = emulator_for("sim", "", beams=32, mode="1024x10")
    options: dict[str, Any] = {
        "mode": "512x20",
        "profile": "RNG19_RFL8_SIG16_NIR16_DUAL",
        "timestamp_mode": "TIME_FROM_PTP_1588",
        "settings": {"phase_lock_enable": True},
    }
    with running(emulator) as address:
        driver = live_driver(address, **options)
        specs = open_again(driver)
        items = read_until(driver, reported("ptp_offset_from_master_ns"))
        items += read_until(driver, sweeps(1))
        driver.close()
        again = live_driver(address, **options)
        open_again(again)  # nothing differs: it is not reinitialized once more
        other = read_until(again, reported("settings"))
        again.close()
        with pytest.raises(DeviceError, match=r"400 .*unknown setting colour"):
            live_driver(address, settings={"colour": 1}).open()
    assert specs[0].channels[0].shape == (32, 512) and specs[0].rate_hz == 20.0
    assert "rng2" in samples(items)[0].data
    told = states([*items, *other])
    settings = [s for s in told if "settings" in s]
    assert settings[0]["init_id"] == settings[1]["init_id"]
    assert settings[0]["settings"]["timestamp_mode"] == "TIME_FROM_PTP_1588"
    assert settings[0]["settings"]["phase_lock_enable"] is True
    sync = next(s["time_sync"] for s in told if "time_sync" in s)
    assert sync["ptp_port_state"] == "SLAVE" and sync["ptp_utc_offset_s"] == 37


def test_alerts_are_told_and_named(sensor: Sensor) -> None:
    emulator = sensor()
    with recording(emulator) as driver:
        assert emulator._api is not None
        emulator._api.alerts.append({"id": "0x01000015", "msg": "too warm"})
        items = read_until(driver, reported("alerts"))
    told = states(items)
    assert next(s["alert_flags"] for s in told if "alert_flags" in s) == 1
    assert next(s for s in told if "alerts" in s)["alerts"][0]["msg"] == "too warm"


@pytest.mark.campaign
def test_packets_alone(tmp_path: Path) -> None:
    info = make_info()
    metadata = write_metadata(tmp_path, info)
    port = free_port()
    options = {"metadata": metadata, "imu": False, "imu_port": port}
    address = f"//127.0.0.1:{port}"
    driver = live_driver(address, "udp", timeout_s=2.0, **options)
    with pytest.raises(DeviceError, match=f"no packets of the sensor arrive at UDP ports {port}"):
        driver.open()
    frames = [make_frame(info, 7 + k, k) for k in range(2)]
    ours = [p for frame in frames for p in lidar_packets(info, frame)]
    other = lidar_packets(info, make_frame(info, 9), sn=SERIAL + 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        items = send_and_read(driver, sender, port, [*other, *ours[:-1]])
    got = samples(items)
    assert_equals_channels(got[0], frames[0])
    assert np.count_nonzero(got[1].data["t_col"]) == COLUMNS - COLUMNS // PACKETS
    assert np.all(np.diff([s.t_ns[0] for s in got]) > 0)
    assert abs(got[0].t_ns[0] - time.monotonic_ns()) < 60 * 10**9


def send_and_read(driver: Any, sender: socket.socket, port: int, packets: Any) -> list[Item]:
    """Open the driver while packets come; what it gives until there is silence."""
    ready = threading.Event()

    def send() -> None:
        ready.wait(60)
        for _, _, payload in packets:
            sender.sendto(payload, ("127.0.0.1", port))

    thread = threading.Thread(target=send)
    thread.start()
    items: list[Item] = []
    source = LiveSource(driver.sensor, None)
    receive = source._receive

    def receive_when_ready(wait_s: float) -> None:
        ready.set()
        receive(wait_s)

    source._receive = receive_when_ready  # type: ignore[method-assign]
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("drivers.ouster.live.LiveSource", lambda *_: source)
            driver.open()
        with pytest.raises(DeviceError, match="no packets"):
            while True:
                if (item := driver.read()) is not None:
                    items.append(item)
    finally:
        thread.join()
        driver.close()
    return items


def assert_equals_channels(sample: Sample, frame: Any) -> None:
    for name, channel in (("REFLECTIVITY", "rfl"), ("NEAR_IR", "nir")):
        np.testing.assert_array_equal(np.asarray(sample.data[channel])[0], frame.field(name))
    np.testing.assert_array_equal(np.asarray(sample.data["t_col"])[0], frame.timestamp)


def test_packets_that_do_not_fit_the_metadata_are_named(tmp_path: Path) -> None:
    metadata = write_metadata(tmp_path, make_info())
    other = make_info("RNG15_RFL8_NIR8_DUAL")
    port = free_port()
    driver = live_driver(f"//127.0.0.1:{port}", "udp", metadata=metadata, imu_port=port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        packets = lidar_packets(other, make_frame(other, 7))
        source = LiveSource(driver.sensor, None)
        receive = source._receive

        def receive_after_sending(wait_s: float) -> None:
            sender.sendto(packets[0][2], ("127.0.0.1", port))
            receive(min(wait_s, 0.1))

        source._receive = receive_after_sending  # type: ignore[method-assign]
        size = len(packets[0][2])
        try:
            with pytest.raises(
                DeviceError, match=f"of {size} bytes arrive, the metadata requires 1280"
            ):
                source.open()
        finally:
            source.close()


def test_sources_that_cannot_be(tmp_path: Path) -> None:
    for scheme, address, options, message in (
        ("udp", "//127.0.0.1", {"metadata": "x.json"}, "is not of the form udp://ADDRESS:PORT"),
        ("udp", "//127.0.0.1:7502", {}, "needs the sensor's metadata"),
        ("udp", "//127.0.0.1:7502", {"metadata": str(tmp_path / "no.json")}, "no.json: cannot"),
        ("ouster", "//127.0.0.1:http", {}, "is not a host"),
    ):
        with pytest.raises(SourceError, match=message):
            live_driver(address, scheme, **options).open()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"//127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(DeviceError, match=f"^lidar: ouster:{address}: HTTP API, .*refused"):
            live_driver(address).open()
    with pytest.raises(ConfigError, match="emulated from sim: or pcap:"):
        emulator_for("osf", "a.osf")
    with pytest.raises(ConfigError, match="cannot jump"):
        emulator_for("pcap", "a.pcap", [Fault("clock_jump", value=1.0)])


@pytest.mark.campaign
def test_a_small_buffer_is_told(sensor: Sensor, capsys: pytest.CaptureFixture[str]) -> None:
    items = record(sensor(), reported("socket_buffer_bytes"), socket_buffer_mb=1e5)
    (state,) = (values for values in states(items) if "socket_buffer_bytes" in values)
    assert state["socket_buffer_bytes"] < state["socket_buffer_bytes_asked"]
    assert "net.core.rmem_max" in capsys.readouterr().err


def test_the_capture_is_left_as_it_is_by_the_emulator(tmp_path: Path) -> None:
    """What it sends are the capture's bytes."""
    path = write(tmp_path, make_info(), flat(capture(make_info(), [7])))
    emulator = emulator_for("pcap", path)
    sent: list[bytes] = []
    emulator.start()
    assert emulator._api is not None
    emulator._emit = lambda data, *_: sent.append(data)  # type: ignore[method-assign]
    emulator._api.settings["udp_dest"] = "127.0.0.1"
    now_ns = emulator.step(0)
    emulator._api.answer("GET", "/api/v1/sensor/metadata", "", "127.0.0.1")
    while not emulator.finished:
        now_ns = emulator.step(now_ns)
    emulator.stop()
    with path.open("rb") as file:
        assert sent == [datagram.payload for datagram in read_datagrams(file)]
