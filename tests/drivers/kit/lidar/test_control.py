"""Emulated lidars on the network: brought up, recorded, watched, refused, and lost."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.hesai import ptc_messages as ptc
from drivers.hesai.control import HesaiControl, PtcClient
from drivers.hesai.driver import HesaiDriver
from drivers.hesai.emulator import HesaiEmulator
from drivers.kit.driver import Lost, Sample, SensorConfig, State
from drivers.kit.emulator_faults import Fault, PacketFaults
from drivers.kit.lidar.control import ControlWatch
from drivers.kit.lidar.controlled_emulator import LidarEmulator
from drivers.kit.lidar.simulated import START_NS
from drivers.velodyne.control import VelodyneControl, to_celsius
from drivers.velodyne.driver import VelodyneDriver
from drivers.velodyne.emulator import VelodyneEmulator
from recorder.codecs.beams import BEAMS, Beams
from recorder.common.errors import DeviceError, SourceError
from recorder.config.loading import load_config
from recorder.config.options import check_options
from recorder.config.settings import SensorEntry
from recorder.formats.pcap.writer import MAPPED, PcapWriter
from recorder.recording.supervisor.driver_registry import driver_schema
from tests.drivers.kit.lidar.lidars import Account, Lidar, Packets, Times
from tests.support.waiting import wait_until

VENDORS: dict[str, Any] = {
    "hesai": (HesaiDriver, HesaiEmulator, HesaiControl),
    "velodyne": (VelodyneDriver, VelodyneEmulator, VelodyneControl),
}


class Rig:
    """An emulated lidar, stepped by a thread of its own, and the driver that records it."""

    def __init__(self, vendor: str, faults: list[Fault], address: str, options: Any) -> None:
        self.vendor = vendor
        self._driver, emulator, self._control = VENDORS[vendor]
        scheme = "pcap" if address else "sim"
        checked = check_options(self._driver.options, options)
        entry = SensorEntry("lidar", vendor, scheme, address, checked)
        self.emulator: LidarEmulator = emulator(entry, faults)
        self.source = self.emulator.start()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            due_ns = self.emulator.step(time.monotonic_ns())
            self._stop.wait(max(0.0, min(0.01, (due_ns - time.monotonic_ns()) / 1e9)))

    def sensor(self, **options: Any) -> SensorConfig:
        checked = check_options(self._driver.options, {**self.source.options, **options})
        return SensorConfig("lidar", self.vendor, self.source.source.partition(":")[2], checked)

    def driver(self, **options: Any) -> Any:
        return self._driver(self.sensor(**options))

    def control(self, **options: Any) -> Any:
        return self._control(self.sensor(**options))

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.emulator.stop()


@contextmanager
def rig(
    vendor: str, *, faults: list[Fault] | None = None, address: str = "", **options: Any
) -> Iterator[Rig]:
    made = Rig(vendor, faults or [], address, options)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A capture of a few packets for each vendor: an emulated lidar of it costs little."""
    made = {}
    for vendor, model in (("hesai", "PandarXT32"), ("velodyne", "VLP-16")):
        lidar = Lidar(model, 0x37)
        path = tmp_path_factory.mktemp("captures") / f"{vendor}.pcap"
        write_capture(path, *lidar.send(lidar.turn(3)))
        made[vendor] = str(path)
    return made


def write_capture(path: Path, packets: Packets, t_ns: Times) -> None:
    with path.open("wb") as file:
        writer = PcapWriter(file)
        for packet, at_ns in zip(packets, t_ns.tolist(), strict=True):
            source, host = MAPPED + b"\n\0\0\1", MAPPED + b"\n\0\0\2"
            writer.write(at_ns, source, 2368, host, 2368, packet.tobytes())


def read_sweeps(driver: Any, count: int) -> list[Any]:
    items: list[Any] = []
    while sum(isinstance(item, Sample) for item in items) < count:
        if (item := driver.read()) is not None:
            items.append(item)
    return items


@pytest.mark.parametrize(
    ("vendor", "options", "wanted"),
    [
        (
            "hesai",
            {"rpm": 1200, "return_mode": "strongest", "sync_angle": 90, "clock_source": "ptp"},
            {"returns": ["strongest"], "rate": 20.0},
        ),
        (
            "velodyne",
            {"rpm": 1200, "return_mode": "dual", "phase_deg": 90.5},
            {"returns": ["last", "strongest"], "rate": 20.0},
        ),
    ],
)
def test_a_lidar_is_set_read_back_and_recorded(
    vendor: str, options: dict[str, Any], wanted: dict[str, Any]
) -> None:
    with rig(vendor) as found:
        driver = found.driver(**options)
        (spec,) = driver.open()
        try:
            items = read_sweeps(driver, 3)
        finally:
            driver.close()
        settings = found.emulator.server.settings
        assert {name: settings[name] for name in options} == options
        assert settings["udp_dest"] == "127.0.0.1"
        beams = Beams.of_text(spec.files[BEAMS], BEAMS)
        assert beams.returns == wanted["returns"] and spec.rate_hz == wanted["rate"]
        assert beams.serial.startswith("EMULATED")
        assert beams.calibration == ("sensor" if vendor == "hesai" else "default")
        states = [item.values for item in items if isinstance(item, State)]
        opened = states[0]
        assert opened["device"]["serial"].startswith("EMULATED")
        assert {name: opened["settings"][name] for name in options} == options
        assert not [item for item in items if isinstance(item, Lost)]
        samples = [item for item in items if isinstance(item, Sample)]
        assert all(np.count_nonzero(np.asarray(sample.data["rng"])) for sample in samples)


@pytest.mark.parametrize("vendor", VENDORS)
def test_its_state_is_watched(vendor: str, captures: dict[str, str]) -> None:
    with rig(vendor, address=captures[vendor]) as found:
        server: Any = found.emulator.server
        control = found.control(**({"clock_source": "ptp"} if vendor == "hesai" else {}))
        control.bring_up()
        watch = ControlWatch(control, 0.01)
        news: list[dict[str, Any]] = []

        def has(name: str, value: Any) -> bool:
            news.extend(watch.news())
            return any(each.get(name) == value for each in news)

        try:
            wait_until("the event", lambda: has("control", "answers"))
            state = news[0]
            if vendor == "hesai":
                assert state["ptp"] == "locked" and state["temperatures_c"] == [41] * 8
                assert state["ptp_offset_from_master_ns"] == 250
                server.temperature_c = 97
                wait_until("the event", lambda: has("temperatures_c", [97] * 8))
            else:
                assert state["gps_pps"] == "Absent" and state["temperature_top_c"] == 34
                server.pps = "Locked"
                wait_until("the event", lambda: has("gps_pps", "Locked"))
            server.stop()
            wait_until("the loss of the control", lambda: is_lost(news, watch))
            server.start()
            news.clear()
            wait_until("its answer", lambda: has("control", "answers"))
        finally:
            watch.close()


def test_a_lidar_that_closes_its_connection_at_once_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *_: socket.socket())
    with pytest.raises(DeviceError, match="Transport endpoint is not connected"):
        PtcClient("127.0.0.1")


def is_lost(news: list[dict[str, Any]], watch: ControlWatch) -> bool:
    news.extend(watch.news())
    return any("refused" in each.get("control", "") for each in news)


@pytest.mark.parametrize(
    ("vendor", "options", "refused", "wanted"),
    [
        ("hesai", {"rpm": 1200}, "rpm", "PTC, rpm: the lidar refuses it: invalid parameter"),
        ("hesai", {"rpm": 601}, "", "PTC, rpm: the lidar refuses it: invalid parameter"),
        ("hesai", {"return_mode": "first"}, "return_mode", "PTC, return_mode: the lidar refuses"),
        ("hesai", {"ptp": {"domain": 3}}, "ptp", "PTC, ptp: the lidar refuses it"),
        ("velodyne", {"rpm": 1200}, "rpm", r"does not take on its settings: rpm: 1200 \(has 600\)"),
        ("velodyne", {"rpm": 601}, "", r"does not take on its settings: rpm: 601 \(has 600\)"),
        ("velodyne", {"phase_deg": 7.0}, "phase_deg", "does not take on its settings: phase_deg"),
    ],
)
def test_what_a_lidar_refuses_is_named(
    vendor: str, options: dict[str, Any], refused: str, wanted: str, captures: dict[str, str]
) -> None:
    with rig(vendor, address=captures[vendor]) as found:
        found.emulator.server.refused = {refused}
        with pytest.raises(DeviceError, match=f"^lidar: {vendor}://127.0.0.1.*{wanted}"):
            found.driver(**options).open()


@pytest.mark.parametrize("vendor", VENDORS)
def test_what_a_lidar_ignores_is_named(vendor: str, captures: dict[str, str]) -> None:
    with rig(vendor, address=captures[vendor]) as found:
        found.emulator.server.refused, found.emulator.server.ignored = set(), {"rpm"}
        wanted = r"does not take on its settings: rpm: 1200 \(has 600\)"
        with pytest.raises(DeviceError, match=f"^lidar: {vendor}://127.0.0.1.*{wanted}"):
            found.driver(rpm=1200).open()


@pytest.mark.parametrize(("vendor", "other"), [("hesai", "QT128"), ("velodyne", "VLP-32C")])
def test_another_model_is_named(vendor: str, other: str, captures: dict[str, str]) -> None:
    with (
        rig(vendor, address=captures[vendor]) as found,
        pytest.raises(SourceError, match=f"the lidar is a .*, not a {other}"),
    ):
        found.driver(model=other).open()


@pytest.mark.parametrize("vendor", VENDORS)
def test_packets_of_another_model_than_configured_are_named(vendor: str) -> None:
    """The lidar tells no model; its packets do."""
    with rig(vendor) as found:
        other = "PandarXT16" if vendor == "hesai" else "VLP-32C"
        driver = found.driver(model=other, timeout_s=0.5)
        server: Any = found.emulator.server
        server._model = "another"
        if vendor == "hesai":  # an inventory that ends before the model
            whole = ptc.build_inventory("S", "Pandar40P")
            server._answers[ptc.INVENTORY] = lambda _: whole[:104]
        with pytest.raises(DeviceError, match=rf"no packet of {other} arrives.*not of a {other}"):
            driver.open()


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_lidar_that_is_not_there(vendor: str, captures: dict[str, str]) -> None:
    with rig(vendor, address=captures[vendor]) as found:
        driver = found.driver()
    with pytest.raises(DeviceError, match=f"lidar: {vendor}://.*refused"):
        driver.open()
    kind = VENDORS[vendor][0]
    with pytest.raises((SourceError, DeviceError), match=f"lidar: {vendor}://"):
        kind(SensorConfig("lidar", vendor, "//:x:y", check_options(kind.options, {}))).open()


def test_the_faults_of_packets_are_counted() -> None:
    with rig("hesai") as found:
        driver, account = found.driver(), Account()
        driver.open()
        try:
            account.take(read_sweeps(driver, 1))
            found.emulator._packet_faults = PacketFaults([Fault("loss", count=30)], 0)
            while account.total("columns_missing") == 0:
                if (item := driver.read()) is not None:
                    account.take([item])
        finally:
            driver.close()
        # Four columns with two returns are a packet; the loss may lie in two sweeps.
        assert account.total("columns_missing") in range(1, 30 * 4 + 1)


@pytest.mark.parametrize(("vendor", "model"), [("hesai", "PandarXT32"), ("velodyne", "VLP-16")])
def test_a_capture_is_sent_as_it_is(vendor: str, model: str, tmp_path: Path) -> None:
    lidar = Lidar(model, 0x39)
    packets, t_ns = lidar.send(lidar.turn(200))
    path = tmp_path / "a.pcap"
    write_capture(path, packets, t_ns)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        rig(vendor, address=str(path)) as found,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
        server = found.emulator.server
        assert found.emulator.model == model and server.refused == {"rpm", "return_mode"}
        assert server.settings["return_mode"] == "dual" and server.settings["rpm"] == 600
        with server.lock:
            server.settings |= {"lidar_port": receiver.getsockname()[1], "udp_dest": "127.0.0.1"}
        assert all(receiver.recv(2000) == packet.tobytes() for packet in packets)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x47\x74\x07\x00\x00\x00\x00\x05abc",
        b"\x47\x74\x07\x00\xff\xff\xff\xff",
        b"\x47\x74\x08\x00\x00\x00\x00\x00",
        b"HTTP/1.1 400 Bad\r\n",
        struct.pack(">2sBBI", b"\x47\x74", 7, 0, 3) + b"abc",
    ],
)
def test_answers_that_are_none(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def reply() -> None:
            made, _ = server.accept()
            with made:
                made.recv(100)
                made.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        options = check_options(HesaiDriver.options, {})
        with pytest.raises(DeviceError, match=r"^PTC"):
            HesaiControl(SensorConfig("lidar", "hesai", f"//127.0.0.1:{port}", options)).bring_up()
        thread.join()


def test_the_values_of_ptc_are_those_of_the_manual() -> None:
    """Offsets by nebula's structures of the answers."""
    config = bytearray(49)
    config[12:16], config[16:18] = bytes((239, 1, 2, 3)), (2369).to_bytes(2, "big")
    config[20:22], config[22] = (1200).to_bytes(2, "big"), 1
    config[23:25], config[29], config[32] = (9000).to_bytes(2, "big"), 1, 4
    found = ptc.parse_config(bytes(config))
    assert (found["udp_dest"], found["lidar_port"], found["rpm"]) == ("239.1.2.3", 2369, 1200)
    assert (found["sync_angle"], found["clock_source"], found["return_mode"]) == (
        90,
        "ptp",
        "last_first",
    )
    for size, place, number, model in (
        (120, 106, 25, "PandarXT32"),
        (144, 108, 32, "QT128"),
        (162, 106, 42, "OT128"),
        (184, 170, 48, "AT128"),
        (120, 106, 99, None),
    ):
        inventory = bytearray(size)
        inventory[:5], inventory[place] = b"XT123", number
        told = ptc.parse_inventory(bytes(inventory))
        assert (told["serial"], told["model"]) == ("XT123", model)
    status = struct.pack(">IH9iBBiiB5x", 77, 1201, *range(4000, 4900, 100), 1, 0, 5, 120, 2)
    state = ptc.parse_status(status)
    assert state["temperatures_c"] == list(range(40, 49)) and state["motor_rpm_measured"] == 1200
    assert (state["gps_pps_locked"], state["ptp"], state["operation_hours"]) == (True, "locked", 2)
    assert ptc.build_request(0x17, b"\x04\xb0").hex() == "4774170000000002" + "04b0"
    ptp = {"profile": "802.1AS automotive", "domain": 1, "transport": "l2", "tsn": True}
    assert ptc.build_ptp(ptp, False).hex() == "02010101"
    assert ptc.parse_ptp(b"\1" + ptc.build_ptp(ptp, False)) == {"enabled": True, **ptp}


def test_a_temperature_by_the_manuals_formula() -> None:
    # VLP-16 manual: -1481.96 + sqrt(2.1962E6 + (1.8639 - V) / 3.88E-6) deg C
    assert to_celsius(1.8639 / 5 * 4096) == pytest.approx(-1481.96 + 2.1962e6**0.5)


def test_a_connection_ends_with_its_block(captures: dict[str, str]) -> None:
    with rig("hesai", address=captures["hesai"]) as found:
        with PtcClient(f"127.0.0.1:{found.emulator.server.port}") as client:
            assert ptc.parse_inventory(client.ask(ptc.INVENTORY))["model"] == "PandarXT32"
            assert client.here == client.there == "127.0.0.1"
        with pytest.raises(DeviceError):
            client.ask(ptc.INVENTORY)


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        ({"profile": "gPTP"}, "profile: 'gPTP' is wrong; allowed: 1588v2"),
        ({"domain": 300}, "domain: 300 is wrong; allowed: 0 to 127"),
        ({"log_intervals": [1, 2]}, "log_intervals: .* is wrong; allowed: three whole numbers"),
        ({"log_intervals": "abc"}, "log_intervals: .* is wrong; allowed: three whole numbers"),
        ({"clock": 1}, "unknown key 'clock'; the keys are profile, domain"),
        ({"domain": []}, "domain: .* is wrong; allowed: 0 to 127"),
    ],
)
def test_wrong_settings_of_ptp_are_named(wanted: dict[str, Any], fault: str) -> None:
    options = check_options(HesaiDriver.options, {"ptp": wanted})
    with pytest.raises(SourceError, match=f"lidar: ptp: {fault}"):
        HesaiControl(SensorConfig("lidar", "hesai", "//127.0.0.1", options))


def test_ptp_is_set_as_a_whole(captures: dict[str, str]) -> None:
    with rig("hesai", address=captures["hesai"]) as found:
        wanted = {"domain": 5, "transport": "l2"}
        device = found.control(clock_source="ptp", ptp=wanted).bring_up()
        assert device.settings["ptp"] == {
            "enabled": True,
            "profile": "1588v2",
            "domain": 5,
            "transport": "l2",
            "log_intervals": [1, 1, 0],
        }


@pytest.mark.parametrize("vendor", VENDORS)
def test_an_emulated_lidar_breaks_down_when_it_is_to(vendor: str) -> None:
    """By invented times: nothing is waited for."""
    faults = [
        Fault("stall", 0.2, 0.2),
        Fault("unplug", 0.6, 0.3),
        Fault("clock_jump", 1.0, value=9),
    ]
    driver, emulator, _ = VENDORS[vendor]
    entry = SensorEntry("lidar", vendor, "sim", "", check_options(driver.options, {}))
    lidar: LidarEmulator = emulator(entry, faults)
    sent: list[tuple[float, bytes]] = []
    lidar.start()
    try:
        clock_ns = 0
        lidar._put = lambda packet: sent.append((clock_ns / 1e9, packet))  # type: ignore[method-assign]
        lidar.step(0)
        assert not sent  # it has no destination
        lidar.server.settings["udp_dest"] = "127.0.0.1"
        open_s = []
        while clock_ns < 1_900_000_000:
            clock_ns = max(lidar.step(clock_ns), clock_ns + 1)
            if lidar.server._server is None:
                open_s.append(clock_ns / 1e9 - 0.5)
        times = np.array([t for t, _ in sent]) - 0.5  # from the first packet
        packets = np.frombuffer(b"".join(p for _, p in sent), np.uint8).reshape(len(sent), -1)
        decoder = lidar.family.make_decoder(packets[0].tobytes())
        device_ns = decoder.decode(packets, np.full(len(packets), START_NS)).t_ns[
            :: decoder.columns
        ]
    finally:
        lidar.stop()
    assert not np.count_nonzero((times > 0.201) & (times < 0.399))
    assert not np.count_nonzero((times > 0.601) & (times < 0.899))
    assert min(open_s) > 0.59 and max(open_s) < 0.92  # its control is away, too
    jumped = device_ns - START_NS - times * 1e9 > 8.5e9
    assert times[jumped].min() == pytest.approx(1.0, abs=0.11) and jumped[times > 1.2].all()
    assert lidar.injected["clock_jump"] == 1
    assert lidar.injected["stall"] > 50 and lidar.injected["unplug"] > 80


def test_the_config_for_lidars_loads() -> None:
    path = Path(__file__).parents[4] / "configs" / "lidars.yaml"
    sensors = load_config(path, driver_schema).sensors
    assert [(each.driver, each.scheme, each.live) for each in sensors] == [
        ("hesai", "hesai", True),
        ("velodyne", "velodyne", True),
        ("robosense", "robosense", True),
        ("livox", "livox", True),
    ]
    ports = [each.options["lidar_port"] for each in sensors if "lidar_port" in each.options]
    assert len(set(ports)) == len(ports) > 2
