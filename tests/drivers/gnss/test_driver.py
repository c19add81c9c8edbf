"""The gnss driver: logs, the simulated receiver, and emulated devices."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from drivers.gnss import live as live_module
from drivers.gnss.connection import Line, PulsePerSecond
from drivers.gnss.driver import GnssDriver
from drivers.gnss.emulator import DELAY_NS, GnssEmulator
from drivers.gnss.simulated import LEVEL_M, START_UTC_NS
from drivers.kit.driver import Item, Lost
from drivers.kit.emulator_faults import Fault
from drivers.kit.satellite_navigation import SECOND_NS, convert_gps_to_utc, convert_utc_to_gps
from recorder.common.errors import DeviceError, SourceError
from recorder.perception.earth import earth_points, local_to_earth
from tests.drivers.gnss.gnss_messages import cov, eoe, gga, pvt, rmc, sentence
from tests.drivers.gnss.test_packets import UTC_NS
from tests.support.devices import (
    causes,
    column,
    device_times,
    losses,
    make_driver,
    make_entry,
    open_again,
    opened,
    read_all,
    read_until,
    read_waiting,
    samples,
    states,
    stepped,
    streaming,
    terminal,
    times,
)
from tests.support.devices import play as play_one


def driver(scheme: str, address: object = "", **given: Any) -> GnssDriver:
    return make_driver(GnssDriver, "gnss", scheme, address, **given)


def read(found: GnssDriver, count: int) -> list[Item]:
    """Items until there are so many samples."""
    return read_until(found, lambda items: len(samples(items)) >= count)


def test_a_log_is_played(tmp_path: Path) -> None:
    epochs = [UTC_NS + k * SECOND_NS // 10 for k in range(50)]
    damaged = bytearray(pvt(epochs[20]))
    damaged[30] ^= 1
    parts = [bytes(damaged) if k == 20 else pvt(t) + cov(t) for k, t in enumerate(epochs)]
    (tmp_path / "log.ubx").write_bytes(b"\x01\x02" + b"".join(parts))
    with streaming(driver("file", str(tmp_path / "log.ubx"))) as (played, spec):
        assert spec.rate_hz == pytest.approx(10.0) and spec.finite and spec.device_clock
        items = read_all(played)
    assert times(items).tolist() == [convert_utc_to_gps(t) for k, t in enumerate(epochs) if k != 20]
    assert causes(items) == [("corrupt", 1)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no position: nothing that a receiver sends"),
        (gga(UTC_NS) * 3, "no position: 3 NMEA; 1 positions without a time"),
        (bytes(1000), "no position: nothing"),
    ],
)
def test_a_log_without_positions_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(SourceError, match=message):
        driver("file", str(tmp_path / "log")).open()


def test_the_simulated_receiver_is_near_the_truth() -> None:
    exact, noisy = driver("sim", noise=0.0), driver("sim")
    (spec,) = exact.open()
    noisy.open()
    assert spec.rate_hz == 10.0 and not spec.finite
    rows = [samples(read(d, 600)) for d in (exact, noisy)]
    points = [
        earth_points(np.concatenate([np.asarray(s.data["pos"]) for s in part])) for part in rows
    ]
    to_earth = local_to_earth(np.array([48.2, 11.5, 480.0]))
    error = (points[1] - points[0]) @ to_earth[:3, :3]  # east, north, up
    spread = np.sqrt((error**2).mean(axis=0))
    assert 0.1 * LEVEL_M < spread[0] < 4 * LEVEL_M and 0.1 * LEVEL_M < spread[1] < 4 * LEVEL_M
    assert np.abs(np.diff(error, axis=0)).max() < 3 * LEVEL_M  # slow, for the most part
    speed = np.concatenate([np.asarray(s.data["vel"]) for s in rows[0]])
    moved = np.diff(points[0], axis=0) @ to_earth[:3, :3] * 10
    assert np.abs(moved[:, 1] - (speed[:-1, 0] + speed[1:, 0]) / 2).max() < 0.1
    assert int(np.asarray(rows[0][0].data["utc"])[0]) == START_UTC_NS
    assert int(rows[0][0].t_ns[0]) == convert_utc_to_gps(START_UTC_NS)
    with pytest.raises(Exception, match="latitude and longitude"):
        driver("sim", origin=[95.0, 0.0, 0.0]).open()


@contextlib.contextmanager
def live(
    *faults: Fault, log: Path | None = None, recorded: dict[str, Any] | None = None, **given: Any
) -> Iterator[GnssDriver]:
    """A driver of an emulated receiver that runs in a thread, with the options `recorded`."""
    scheme = "file" if log else "sim"
    emulator = GnssEmulator(
        make_entry(GnssDriver, "gnss", "gnss", scheme, log or "", **given), faults
    )
    scheme, _, address = emulator.start().source.partition(":")
    with contextlib.ExitStack() as running:
        running.callback(emulator.stop)
        running.enter_context(stepped(emulator))
        made = driver(scheme, address, **recorded or {})
        yield running.enter_context(contextlib.closing(made))


@pytest.mark.campaign
def test_a_receiver_behind_tcp_is_recorded() -> None:
    with live(recorded={"latency_ms": DELAY_NS / 1e6}, rate=20.0, noise=0.0) as recorded:
        (spec,) = recorded.open()
        assert spec.rate_hz == pytest.approx(20.0) and not spec.finite
        assert not recorded.played
        items = read(recorded, 40)
    (state,) = states(items, lasting=True)
    assert state["protocol"] == "ubx" and len(states(items)) == 1 and not losses(items)
    rows, devices = samples(items), device_times(items)
    assert (np.diff(devices) == SECOND_NS // 20).all()
    with opened(driver("sim", rate=20.0, noise=0.0)) as simulated:
        first = round((convert_gps_to_utc(int(devices[0])) - START_UTC_NS) * 20 / SECOND_NS)
        truth = samples(read(simulated, first + 40))[first:]
    for row, exact in zip(rows, truth, strict=True):
        for name, most in (("pos", 1e-3), ("vel", 1e-3), ("cov", 1e-6), ("utc", 0)):
            difference = np.asarray(row.data[name]) - np.asarray(exact.data[name])
            if name == "pos":
                assert np.abs(difference[0, :2]).max() < 1e-7  # NAV-PVT has 1e-7 deg
                difference = difference[0, 2:]
            assert np.abs(difference).max() <= most, name
    assert in_order(items) and (times(items) < time.monotonic_ns()).all()


@pytest.mark.campaign
def test_what_a_receiver_loses_is_counted() -> None:
    with live(Fault("corrupt", rate=0.2), rate=20.0) as recorded:
        recorded.open()
        items = read(recorded, 60)
    rows = samples(items)
    lost = sum(count or 0 for _, count in causes(items))
    first, last = device_times(items)[[0, -1]].tolist()
    assert lost > 0
    assert {cause for cause, _ in causes(items)} == {"corrupt"}
    assert round((last - first) * 20 / SECOND_NS) + 1 == len(rows) + lost


def test_a_receiver_that_is_unplugged_is_lost_and_found_again() -> None:
    with live(Fault("unplug", at_s=1.0, duration_s=0.5), rate=20.0) as recorded:
        recorded.open()
        with pytest.raises(DeviceError, match=r"closed the connection|reset"):
            read(recorded, 1000)
        recorded.close()
        open_again(recorded)
        read(recorded, 3)


def test_a_receiver_that_falls_silent_is_lost() -> None:
    stall = Fault("stall", at_s=1.0, duration_s=60.0)
    with live(stall, recorded={"timeout_s": 1.0}, rate=20.0) as recorded:
        recorded.open()
        with pytest.raises(DeviceError, match="sends nothing for 1 s"):
            read(recorded, 1000)


def test_a_log_is_emulated(tmp_path: Path) -> None:
    epochs = [UTC_NS + k * SECOND_NS // 10 for k in range(40)]
    (tmp_path / "log").write_bytes(b"".join(gga(t) + rmc(t) for t in epochs))
    with live(log=tmp_path / "log") as recorded:
        (spec,) = recorded.open()
        assert spec.settings["protocol"] == "nmea"
        items = read(recorded, 11)
    whole = samples(items)[1:]  # the driver may join within an epoch
    assert [row.data["quality"][0] for row in whole] == [5] * 10


def test_a_serial_port_is_read_at_any_of_the_usual_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers.gnss.live._TRY_S", 0.3)
    over = threading.Event()

    def send(master: int) -> None:
        for k in range(10_000):
            if over.wait(0.05):
                return
            os.write(master, pvt(UTC_NS + k * SECOND_NS // 20))

    with terminal() as (master, port):
        thread = threading.Thread(target=send, args=[master])
        thread.start()
        recorded = driver("serial", port)
        try:
            (spec,) = recorded.open()
            assert spec.rate_hz == pytest.approx(20.0)
            assert spec.settings["baudrate"] == 38_400
            assert len(samples(read(recorded, 10))) == 10
        finally:
            over.set()
            thread.join()
            recorded.close()


def test_nobody_there_is_a_device_error() -> None:
    with pytest.raises(DeviceError, match="refused"):
        driver("tcp", "127.0.0.1:1").open()
    with pytest.raises(DeviceError, match="/dev/none"):
        driver("serial", "/dev/none").open()


def test_pulses_give_times(tmp_path: Path) -> None:
    (tmp_path / "pps0").mkdir()
    realtime = 1_750_000_000 * SECOND_NS + 300_000_000
    pps = PulsePerSecond("/dev/pps0", lambda: realtime, lambda: 5_000_000_000, tmp_path)
    gps_ns = convert_utc_to_gps(1_750_000_000 * SECOND_NS - SECOND_NS // 10)
    assert pps.host_ns(gps_ns) is None
    assert pps.report() == {"device": "/dev/pps0", "pulse": None}
    # The host's clock is 12345 ns ahead of GPS; the pulse was 0.3 s ago.
    (tmp_path / "pps0/assert").write_text("1750000000.000012345#42\n")
    assert pps.report() is None  # every ten seconds
    pulse_mono_ns = 5_000_000_000 - 300_000_000 + 12_345
    assert pps.host_ns(gps_ns) == pulse_mono_ns - SECOND_NS // 10
    fresh = PulsePerSecond("/dev/pps0", lambda: realtime, lambda: 5_000_000_000, tmp_path)
    report = fresh.report()
    assert report is not None and report["offset_ns"] == 12_345 and report["pulse"] == 42
    realtime += 10 * SECOND_NS  # no pulse for ten seconds
    assert fresh.host_ns(gps_ns) is None
    (tmp_path / "pps0/assert").write_text("garbage")
    assert fresh.latest() is None


START_NS = 1_000_000_000_000


class Scripted:
    """A line that has received what a test says, when it says so."""

    byte_ns = 0.0

    def __init__(self, script: list[tuple[bytes, int]]) -> None:
        self._script = script

    def receive(self, timeout_s: float) -> tuple[bytes, int]:
        return self._script.pop(0) if self._script else (b"", START_NS)

    def close(self) -> None:
        pass


def say(
    monkeypatch: pytest.MonkeyPatch, script: list[tuple[bytes, int]], now_ns: Callable[[], int]
) -> None:
    """Let the next line of TCP have received this, and the driver's clock be at `now_ns`."""
    line: Line = Scripted(script)
    monkeypatch.setattr(live_module, "TcpLine", lambda *_: line)
    clock = SimpleNamespace(monotonic=time.monotonic, monotonic_ns=now_ns)
    monkeypatch.setattr(live_module, "time", clock)


def heard(recorded: GnssDriver, script: list[tuple[bytes, int]]) -> list[Item]:
    """What the driver gives of all that the line has received."""
    items: list[Item] = []
    while script:
        items += read_waiting(recorded)
    return items + read_waiting(recorded)


def scripted(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[float, float]], **given: Any
) -> list[Item]:
    """What is recorded of epochs of 10 Hz, and then of `steps`: (GPS time, arrival) in s."""
    usual = [(k / 10, k / 10) for k in range(10)]
    script = [
        (pvt(UTC_NS + round(gps_s * 1000) * 1_000_000), START_NS + round(at_s * 1e9))
        for gps_s, at_s in usual + steps
    ]
    script.append((eoe(UTC_NS + round(steps[-1][0] * 1000) * 1_000_000), script[-1][1]))
    say(monkeypatch, script, lambda: START_NS)
    with opened(driver("tcp", "host:1", **given)) as recorded:
        return heard(recorded, script)


def passing(items: Iterable[Item]) -> list[dict[str, Any]]:
    return states(items, lasting=False)


def in_order(items: list[Item]) -> bool:
    return bool((np.diff(times(items)) > 0).all())


def test_an_epoch_that_comes_again_is_not_recorded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    again = [(0.8, 1.0), (0.9, 1.01), (1.0, 1.02), (1.1, 1.1)]
    items = scripted(monkeypatch, again)
    assert device_times(items).tolist() == [
        convert_utc_to_gps(UTC_NS) + k * SECOND_NS // 10 for k in range(12)
    ]
    assert passing(items)[-1] == {"epochs_repeated_or_late": 2}
    assert not losses(items)
    assert in_order(items)


def test_a_receiver_that_sends_no_position_for_long_loses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The line is not silent: the gap is longer than any timeout, and is counted."""
    items = scripted(monkeypatch, [(30.9, 30.9), (31.0, 31.0)], timeout_s=1.0)
    assert causes(items) == [("device", 299)]
    assert not passing(items) and in_order(items)


@pytest.mark.parametrize("step_s", [-3600.0, -2.0, 5.0, 86_400.0])
def test_a_receiver_whose_clock_is_set_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    items = scripted(monkeypatch, [(1 + k / 10 + step_s, 1 + k / 10) for k in range(5)])
    (state,) = passing(items)
    assert state["device_clock_step_ns"] == pytest.approx(step_s * 1e9, abs=1e6)
    assert not losses(items)
    assert in_order(items)
    assert abs(times(items)[11] - START_NS - 1_100_000_000) < 2_000_000


def test_messages_that_are_held_up_on_the_way_are_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [(1 + k / 10, 4.0) for k in range(30)] + [(4 + k / 10, 4 + k / 10) for k in range(5)]
    items = scripted(monkeypatch, held)
    assert not passing(items) and not losses(items)
    wanted = START_NS + np.arange(len(samples(items))) * 100_000_000
    assert np.abs(times(items) - wanted).max() < 5_000_000


def test_what_is_out_of_order_in_a_log_is_counted(tmp_path: Path) -> None:
    order = [*range(30), 10, 11, *range(30, 40), 5]
    log = b"".join(pvt(UTC_NS + k * SECOND_NS // 10) for k in order)
    items = play(tmp_path / "log.ubx", log)
    assert len(samples(items)) == 40
    assert passing(items) == [{"epochs_repeated_or_late": 2}, {"epochs_repeated_or_late": 1}]


def play(path: Path, log: bytes, **given: Any) -> list[Item]:
    path.write_bytes(log)
    played = driver("file", str(path), **given)
    return play_one(played)[1]


@pytest.mark.parametrize(
    "step_s", [-3600, -1024 * 604_800, 1024 * 604_800], ids=["set", "rollover", "date"]
)
def test_a_log_goes_on_where_the_receivers_clock_was_set(tmp_path: Path, step_s: int) -> None:
    """As a receiver whose count of GPS weeks rolls over, or that learns the date."""
    sent = [UTC_NS + (k + (step_s if k >= 50 else 0)) * SECOND_NS for k in range(100)]
    items = play(tmp_path / "log.ubx", b"".join(map(pvt, sent)))
    assert device_times(items).tolist() == [
        convert_utc_to_gps(sent[0], 18) + t - sent[0] for t in sent
    ]
    assert (np.diff(times(items)) == SECOND_NS).all()
    assert passing(items) == [{"device_clock_step_ns": step_s * SECOND_NS}]
    assert not losses(items)


def test_one_wrong_date_in_a_log_costs_nothing(tmp_path: Path) -> None:
    sent = [UTC_NS + (k + 10**9 * (k == 50)) * SECOND_NS for k in range(100)]
    items = play(tmp_path / "log.ubx", b"".join(map(pvt, sent)))
    assert len(samples(items)) == 100 and in_order(items)
    steps = [state["device_clock_step_ns"] for state in passing(items)]
    assert steps == [10**9 * SECOND_NS, -(10**9) * SECOND_NS]


def test_a_cold_start_with_the_receivers_first_date_is_no_gap_of_years(tmp_path: Path) -> None:
    """Before it has a fix, a receiver sends RMC with a date of its own."""

    def void(second: int) -> bytes:
        return sentence(f"GNRMC,0000{second:02d}.00,V,,,,,,,060180,,,N")

    sent = [UTC_NS + k * SECOND_NS for k in range(30)]
    log = b"".join(map(void, range(5))) + b"".join(rmc(t) + gga(t) for t in sent)
    items = play(tmp_path / "log.nmea", log)
    assert (np.diff(times(items)) == SECOND_NS).all()
    assert column(items, "utc")[-30:].tolist() == sent
    assert not losses(items)


def test_one_odd_step_is_not_taken_for_the_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receivers move their epochs to the whole second once they know the time."""
    seconds = [k / 10 - (0.06 if k >= 20 else 0.0) for k in range(100)]
    log = b"".join(pvt(UTC_NS + round(second * 1e9)) for second in seconds)
    items = play(tmp_path / "log.ubx", log)
    assert len(samples(items)) == 100
    assert not losses(items)
    moved = [(1 + k / 10 - 0.06, 1 + k / 10) for k in range(5)]
    late = [(t + 0.7, a + 0.7) for t, a in moved]
    items = scripted(monkeypatch, [*moved, *late])
    assert [item.count for item in items if isinstance(item, Lost)] == [2]


def test_a_rate_that_rises_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faster = [1 + k / 50 for k in range(10) if k != 7]
    items = scripted(monkeypatch, [(t, t) for t in faster])
    assert [item.count for item in items if isinstance(item, Lost)] == [1]
    seconds = [k / 10 for k in range(10)] + faster
    items = play(tmp_path / "log.ubx", b"".join(pvt(UTC_NS + round(s * 1e9)) for s in seconds))
    assert [item.count for item in items if isinstance(item, Lost)] == [1]
    items = scripted(monkeypatch, [(t, t) for t in faster], rate=10.0)
    assert not losses(items)
