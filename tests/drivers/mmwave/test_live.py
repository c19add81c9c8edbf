"""The driver on an emulated radar: the same bytes as from a file, and every loss counted."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from drivers.kit.driver import Item, Lost, Sample
from drivers.kit.udp_socket import Batch
from drivers.mmwave.connection import CardReceiver, RadarCapture
from drivers.mmwave.driver import MmwaveDriver
from drivers.mmwave.packets import SYSTEM_ERROR, Answer
from drivers.mmwave.simulated import CardBuffer
from recorder.common.errors import ConfigError, DeviceError
from tests.drivers.mmwave.rig import (
    QUICK,
    QUICK_SHAPE,
    Frames,
    Rig,
    counted,
    iq,
    lost,
    recording,
    valid,
)
from tests.support.devices import losses, make_driver, opened, samples, states, streaming, times

pytest.importorskip("xwr", reason="needs xwr, which is not installed")


@pytest.fixture(autouse=True)
def _told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers.mmwave.live._TELL_NS", 50_000_000)


def accounted(items: list[Item], truth: Frames) -> int:
    """Every frame is its own or has zeros and says so; returns how many are gone."""
    index = 0
    for item in items:
        if isinstance(item, Lost) and item.cause == "network":
            assert item.count is not None
            index += item.count
        if not isinstance(item, Sample):
            continue
        true, got = truth[index], iq(item)
        if valid(item):
            np.testing.assert_array_equal(got, true)
        else:
            assert (got == 0).any() and ((got == true) | (got == 0)).all()
        index += 1
    return index


@pytest.mark.parametrize("device", ["AWR1642", "AWR1843", "AWR1843L", "AWR1843AOP"])
def test_an_emulated_radar_gives_what_the_simulation_gives(device: str) -> None:
    radar = {**QUICK, "device": device, "frame_period": 20.0}
    options: dict[str, Any] = {"radar": radar, "seed": 5, "scene": "straight"}
    with streaming(make_driver(MmwaveDriver, "radar", "sim", **options)) as (simulated, expected):
        with Rig("sim", options=options) as rig:
            (spec,) = rig.driver.open()
            live = samples(rig.frames(4))
        assert spec.channels == expected.channels
        described, simulated_one = (json.loads(s.files["radar.json"]) for s in (spec, expected))
        assert described["antennas"].pop("calibration") is None  # nobody has measured it
        assert simulated_one["antennas"].pop("calibration")["method"] == "ideal"
        assert described == simulated_one
        assert spec.rate_hz == expected.rate_hz and not spec.finite
        for sample in live:
            same = simulated.read()
            assert isinstance(same, Sample) and valid(sample) == 1
            np.testing.assert_array_equal(iq(sample), iq(same))


def test_frames_come_with_rising_times_at_their_pace(tmp_path: Path) -> None:
    path, truth = recording(tmp_path, 40)
    with Rig("file", path) as rig:
        before_ns = time.monotonic_ns()
        rig.driver.open()
        items = rig.frames(30)
        after_ns = time.monotonic_ns()
    assert accounted(items, truth) == 30
    came = times(items)
    assert before_ns < came[0] and came[-1] < after_ns and (np.diff(came) > 0).all()
    # 29 periods of 10 ms, by the arrival of each frame's last packet.
    assert came[-1] - came[0] > 250e6
    assert not lost(items, "network") and not counted(items, "packets_lost")
    (state,) = states(items, lasting=True)
    assert state["fpga_version"] == "2.9"


def test_close_stops_radar_and_card(tmp_path: Path) -> None:
    path, _ = recording(tmp_path, 40)
    with Rig("file", path) as rig:
        rig.driver.open()
        rig.frames(1)
        rig.driver.close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
            wire.bind(("127.0.0.1", rig.ports["data_port"]))
            wire.settimeout(0.1)  # ten frames' time; what was on the way comes at once
            with pytest.raises(TimeoutError):
                for _ in range(500):
                    wire.recv(2048)
        (spec,) = rig.driver.open()
        assert samples(rig.frames(1))[0].stream == spec.name


def test_every_fault_of_a_packet_is_counted(tmp_path: Path) -> None:
    path, truth = recording(tmp_path, 150)
    faults = ("loss=0.02@0.05+0.5", "corrupt=0.01@0.05+0.5", "duplicate=0.02@0.05+0.5",
              "reorder=0.02@0.05+0.5", "loss=60x@0.3")  # fmt: skip
    with Rig("file", path, faults) as rig:
        rig.driver.open()
        # Until some quiet after the last fault, and the next account of packets.
        items = rig.read(
            lambda items: (
                counted(items, "packets_damaged")
                and len(samples(items)) > 110
                and all(valid(sample) for sample in samples(items)[-20:])
            )
        )
        injected = rig.emulator.injected
    accounted(items, truth)
    assert injected["loss"] > 60 and min(injected.values()) > 5
    assert counted(items, "packets_lost") == injected["loss"]
    assert (
        counted(items, "packets_corrupt")
        == counted(items, "packets_damaged")
        == injected["corrupt"]
    )
    assert counted(items, "packets_duplicate") == injected["duplicate"]
    assert counted(items, "packets_late") == 0
    assert len(lost(items, "network")) == 1  # 60 packets are more than a frame
    assert all(state.get("bytes_missing", 1) > 0 for state in states(items))
    # Each frame that is not valid is counted once, with its packets that are missing or damaged.
    flawed = [state for state in states(items) if "incomplete" in state]
    assert len(flawed) == sum(not valid(sample) for sample in samples(items)) > 5
    found = [(cause, c) for values in flawed for cause, c in values["incomplete"].items()]
    assert {cause for cause, _ in found} == {"network", "corrupt"}
    assert all(counts["samples"] == 1 for _, counts in found)
    whole = sum(values["packets_lost"] + values["packets_corrupt"] for values in flawed)
    assert sum(counts["parts"] for _, counts in found) == whole


class Canned:
    """Stands in for a capture: packets that come at times that are made up."""

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches
        self.warnings: list[str] = []
        self.version = "2.9"
        self.overflow = 0

    def receive(self, timeout_s: float) -> Batch:
        if self._batches:
            return self._batches.pop(0)
        none = np.zeros(0, np.int64)
        return Batch(np.zeros((0, 1466), np.uint8), none, none, np.zeros((0, 28), np.uint8), none)

    def notices(self) -> list[str]:
        return []

    def close(self) -> None:
        pass


def test_frames_that_the_radar_left_out_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The card's numbers go on, the radar's time has a hole of three frames."""
    card, batches = CardBuffer(), []
    made = 0
    for period in range(40):
        if 10 <= period < 13:
            continue
        packets = card.push(np.full(QUICK_SHAPE, made + 1, "<i2"))
        made += 1
        sizes = np.full(len(packets), packets.shape[1], np.int64)
        t_ns = np.full(len(packets), period * 10_000_000, np.int64)
        addresses, dropped = (
            np.zeros((len(packets), 28), np.uint8),
            np.zeros(len(packets), np.int64),
        )
        batches.append(Batch(packets, sizes, t_ns, addresses, dropped))
    monkeypatch.setattr("drivers.mmwave.live.RadarCapture", lambda *_: Canned(batches))
    with opened(make_driver(MmwaveDriver, "radar", "dca1000", radar=QUICK)) as radar:
        items = [radar.read() for _ in range(38)]
    assert [loss.count for loss in lost(items, "device")] == [3]
    for k, sample in enumerate(samples(items)):
        assert valid(sample) == 1 and (iq(sample) == k + 1).all()


@pytest.mark.campaign
def test_a_stalled_radar_is_reset_and_goes_on(tmp_path: Path) -> None:
    path, truth = recording(tmp_path, 60)
    with Rig("file", path, ("stall@0.1+600",)) as rig:
        rig.driver.open()
        rig.wait_for_data(2.0)
        first: list[Item] = []
        with pytest.raises(DeviceError, match=r"radar: dca1000://127.0.0.2: no data for 2.0 s"):
            rig.read(lambda items: first.extend(items[len(first) :]))
        rig.driver.close()
        rig.driver.open()
        again = samples(rig.frames(5))
    # The last frame's end was in the card still.
    whole, (cut,) = samples(first)[:-1], samples(first)[-1:]
    assert [valid(sample) for sample in whole] == [1] * len(whole) and valid(cut) == 0
    for sample, true in zip(whole, truth, strict=False):
        np.testing.assert_array_equal(iq(sample), true)
    for sample, true in zip(again, truth[len(whole) + 1 :], strict=False):
        assert valid(sample) == 1
        np.testing.assert_array_equal(iq(sample), true)


@pytest.mark.parametrize("fault", ["reboot", "unplug"])
@pytest.mark.campaign
def test_a_radar_that_goes_away_comes_back(tmp_path: Path, fault: str) -> None:
    path, _ = recording(tmp_path, 60)
    with Rig("file", path, (f"{fault}@0.1+0.6",)) as rig:
        rig.driver.open()
        rig.wait_for_data(0.3)
        with pytest.raises(DeviceError, match="no data"):
            rig.read(lambda items: False)
        rig.driver.close()
        rig.options["capture"]["timeout"] = 0.3
        failures = []
        while True:
            try:
                rig.driver.open()
                break
            except DeviceError as error:
                failures.append(str(error))
                assert len(failures) < 50
        rig.wait_for_data(10.0)
        items = samples(rig.frames(5))
        assert rig.emulator.injected[fault] == 1
    assert all("the capture card does not answer at 127.0.0.2:" in text for text in failures)
    assert [valid(sample) for sample in items] == [1] * 5


def test_what_others_send_does_not_disturb(tmp_path: Path) -> None:
    path, truth = recording(tmp_path, 60)
    with (
        Rig("file", path) as rig,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        rig.driver.open()
        items = rig.frames(3)
        for packet in (b"", b"x", bytes(1466), bytes(9000), b"\xff" * 1466):
            stranger.sendto(packet, ("127.0.0.1", rig.ports["data_port"]))
        items += rig.frames(10)
    assert accounted(items, truth) == 13
    assert not counted(items, "packets_lost")


def test_packets_of_a_capture_before_are_none_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many gathered while the devices were set up: more than one call takes."""
    path, truth = recording(tmp_path, 60)
    boot, take = RadarCapture._await_boot, CardReceiver.receive
    waits: list[float | None] = []

    def receive(self: CardReceiver, timeout_s: float | None = None) -> Batch:
        waits.append(timeout_s)
        return take(self, timeout_s)

    with (
        Rig("file", path) as rig,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as before,
    ):

        def boot_late(self: RadarCapture, radar: Any) -> None:
            boot(self, radar)
            for number in range(1300):
                head = (number + 1).to_bytes(4, "little") + (number * 1456).to_bytes(6, "little")
                before.sendto(head + bytes(1456), ("127.0.0.1", rig.ports["data_port"]))

        monkeypatch.setattr(RadarCapture, "_await_boot", boot_late)
        monkeypatch.setattr(CardReceiver, "receive", receive)
        rig.driver.open()
        setting_up = list(waits)
        items = rig.frames(5)
    assert len(setting_up) > 1300 // 512 and set(setting_up) == {0.0}, "it waits for none of them"
    assert accounted(items, truth) == 5
    assert not counted(items, "packets_lost")
    assert not losses(items)


def test_what_the_card_says_on_its_own_is_recorded(tmp_path: Path) -> None:
    path, _ = recording(tmp_path, 200)
    with Rig("file", path) as rig:
        rig.driver.open()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
            for packet in (b"?", Answer(SYSTEM_ERROR, 1 << 9).to_bytes()):
                card.sendto(packet, ("127.0.0.1", rig.ports["config_port"]))
        items = rig.read(lambda items: any("capture_card" in s for s in states(items)))
    notices = [s["capture_card"] for s in states(items) if "capture_card" in s]
    assert notices == [["LVDS buffer full"]]


# What is not there, or not what it should be


def refused(rig: Rig, error: type[Exception], match: str) -> None:
    with rig, pytest.raises(error, match=match):
        rig.driver.open()


def test_without_a_card() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.2", 0))
        port = silent.getsockname()[1]
        rig = Rig("sim", changes={("capture", "config_port"): port}, patience_s=0.3)
        message = rf"^radar: dca1000://127.0.0.2: the capture card does not answer at .*:{port}$"
        refused(rig, DeviceError, message)


def test_what_talks_without_end_is_no_radar() -> None:
    class Talker:
        port, timeout, in_waiting = "/dev/ttyACM0", 0.0, 1024
        said = 0

        def read(self, size: int) -> bytes:
            self.said += size
            return b"x" * size

    talker = Talker()
    capture = object.__new__(RadarCapture)
    capture._deadline = time.monotonic() + 60
    with pytest.raises(DeviceError, match="/dev/ttyACM0 has no radar's command line"):
        capture._answer(SimpleNamespace(port=talker))
    assert talker.said <= 65_536 + 1024


@pytest.mark.parametrize(
    ("group", "key", "value", "error", "text"),
    [
        ("capture", "sys_ip", "192.0.2.1", DeviceError,
         r"UDP 192\.0\.2\.1:.* needs the address sys_ip, 192\.0\.2\.1"),
        ("radar", "port", "/gone/ttyACM9", DeviceError,
         r"radar: dca1000://.*ttyACM9.*No such file"),
        ("radar", "device", "AWR1843", DeviceError,
         "the radar rejects 'channelCfg 15 7 0': Error: No such transmitters"),
        ("radar", "frequency", 76.5, ConfigError,
         r"radar\.radar: xwr cannot set a AWR1642 to 76.5 GHz"),
    ],
)  # fmt: skip
def test_devices_that_are_not_there_or_not_what_they_should_be(
    group: str, key: str, value: Any, error: type[Exception], text: str
) -> None:
    refused(Rig("sim", changes={(group, key): value}), error, text)


def test_an_order_of_i_and_q_that_xwr_does_not_make() -> None:
    with pytest.raises(ConfigError, match=r"radar\.iq_order: 'iiqq'; xwr sets a radar to qqii"):
        make_driver(MmwaveDriver, "radar", "dca1000", radar=QUICK, iq_order="iiqq").open()


CFG = """\
% Platform:xWR18xx
sensorStop
flushCfg
dfeDataOutputMode 1
channelCfg 15 7 0
adcCfg 2 1
adcbufCfg -1 0 SWAP 1 1
profileCfg 0 77 10 5 40 0 0 60 1 64 5000 0 0 30
chirpCfg 0 0 0 0 0 0 0 1
chirpCfg 1 1 0 0 0 0 0 4
chirpCfg 2 2 0 0 0 0 0 2
frameCfg 0 2 16 0 20 1 0
compRangeBiasAndRxChanPhase 0.05 0.5 0.5 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0
sensorStart
"""


@pytest.mark.parametrize(("swap", "order"), [("1", "qqii"), ("0", "iiqq")])
def test_a_cfg_file_configures_the_radar(tmp_path: Path, swap: str, order: str) -> None:
    """The transmitters' order, the order of I and Q, and the calibration are the file's."""
    (tmp_path / "radar.cfg").write_text(CFG.replace("SWAP", swap))
    options: dict[str, Any] = {"radar": {}, "cfg": str(tmp_path / "radar.cfg"), "seed": 5}
    simulated = make_driver(MmwaveDriver, "radar", "sim", **options)
    (expected,) = simulated.open()
    commands: list[str] = []
    with Rig("sim", options=options) as rig:
        run = rig.emulator._firmware._run
        rig.emulator._firmware._run = lambda line: commands.append(line) or run(line)  # type: ignore[func-returns-value,method-assign]
        (spec,) = rig.driver.open()
        recording_at_start = rig.emulator._card.recording
        live = samples(rig.frames(3))
    assert recording_at_start and spec.channels == expected.channels
    described = json.loads(spec.files["radar.json"])
    assert (described["iq_order"], described["transmitters"]) == (order, [0, 2, 1])
    assert described["antennas"]["tx_m"][2][2] > 0
    assert described["antennas"]["calibration"]["coefficients"][0][0] == [0.5, 0.5]
    for sample in live:
        same = simulated.read()
        assert isinstance(same, Sample)
        np.testing.assert_array_equal(iq(sample), iq(same))
    sent = [line for line in commands if line]
    assert sent == spec.settings["cfg"] and sent[-1] == "sensorStart"
    assert sent.index("lvdsStreamCfg -1 0 1 0") < len(sent) - 1
    assert CFG.splitlines()[-2] in sent


def test_cfg_and_radar_are_not_both_given(tmp_path: Path) -> None:
    (tmp_path / "radar.cfg").write_text(CFG.replace("SWAP", "1"))
    cfg = {"cfg": str(tmp_path / "radar.cfg")}
    with pytest.raises(ConfigError, match=r"radar\.radar: adc_samples: given by cfg too"):
        make_driver(MmwaveDriver, "radar", "sim", radar={"adc_samples": 64}, **cfg).open()
    with pytest.raises(ConfigError, match=r"radar\.iq_order: 'iiqq'; the cfg file sets qqii"):
        make_driver(MmwaveDriver, "radar", "sim", iq_order="iiqq", **cfg).open()
    impossible = CFG.replace("SWAP", "1").replace("77 10 5 40", "77 10 5 17.7")
    (tmp_path / "radar.cfg").write_text(impossible)
    with pytest.raises(ConfigError, match=r"radar\.cfg: AWR1843: impossible: the last sample"):
        make_driver(MmwaveDriver, "radar", "dca1000", **cfg).open()


def test_an_impossible_chirp_is_refused_before_the_devices_are_asked() -> None:
    """No device answers at this address: the error is the chirp's."""
    with pytest.raises(ConfigError, match=r"radar\.radar: AWR1642: impossible: the last sample is"):
        make_driver(MmwaveDriver, "radar", "dca1000", radar={**QUICK, "ramp_end_time": 17.7}).open()


def test_a_warning_about_the_chirp_is_in_the_session(tmp_path: Path) -> None:
    path, _ = recording(tmp_path, 20)
    with Rig("file", path, changes={("capture", "delay"): 360.0}) as rig:
        (spec,) = rig.driver.open()
        (state,) = states(rig.frames(1), lasting=True)
    (warning,) = rig.driver.warnings
    assert warning.startswith("the radar makes 26 Mbit/s, and the card sends 32 Mbit/s with")
    assert state["warnings"] == [warning] and spec.name == "radar"


@pytest.mark.campaign
def test_a_radar_that_boots_slowly_is_awaited_for_boot_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivers.mmwave.emulator_firmware.BOOT_NS", 500_000_000)
    path, _ = recording(tmp_path, 20)
    with Rig("file", path) as rig:
        rig.driver.sensor.options["boot_s"] = 0.2  # type: ignore[index]
        with pytest.raises(DeviceError, match=r"no prompt .* within 0\.2 s after its reset"):
            rig.driver.open()
        rig.driver.sensor.options["boot_s"] = 20.0  # type: ignore[index]
        rig.driver.open()
        assert rig.frames(1)


def test_the_chirp_configuration_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"radar\.radar: missing: device, frequency"):
        make_driver(MmwaveDriver, "radar", "dca1000").open()


def test_a_failed_open_leaves_nothing_behind(tmp_path: Path) -> None:
    """The same ports and the same serial line serve the next try."""
    path, _ = recording(tmp_path, 20)
    with Rig("file", path, changes={("radar", "frame_length"): 8}) as rig:
        rig.options["radar"]["device"] = "AWR1843"
        for _ in range(2):
            with pytest.raises(DeviceError, match="rejects"):
                rig.driver.open()
        rig.options["radar"]["device"] = "AWR1642"
        (spec,) = rig.driver.open()
        assert spec.channels[0].shape == (8, *QUICK_SHAPE[1:])
        assert not iq(samples(rig.frames(1))[0]).any()  # of another shape than the recording
