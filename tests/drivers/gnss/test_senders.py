"""Satellite receivers: several senders on one line or behind one gpsd, and epochs without a fix.

Sentences are those of NMEA 0183 4.11, written by hand; reports of gpsd as in gpsd_json(5).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.gnss import live as live_module
from drivers.gnss.driver import GnssDriver
from drivers.kit.driver import Item, Sample, State
from recorder.common.errors import DeviceError
from tests.drivers.gnss.gnss_messages import pvt, sentence
from tests.drivers.gnss.test_driver import START_NS, Scripted, driver, heard, passing, play, say
from tests.drivers.gnss.test_packets import UTC_NS
from tests.support.devices import causes, losses, samples, states, streaming

NORTH, SOUTH = 49 + 7 / 60, 48 + 7 / 60


def gga(clock: str, degrees: str, talker: str = "GP", quality: int = 1) -> bytes:
    place = f"{degrees}07.0000,N,01131.0000,E" if quality else ",,,"
    return sentence(f"{talker}GGA,{clock},{place},{quality},08,0.9,545.4,M,46.9,M,,")


def rmc(clock: str, degrees: str = "", talker: str = "GP") -> bytes:
    place = f"A,{degrees}07.0000,N,01131.0000,E,022.4,084.4" if degrees else "V,,,,,,"
    return sentence(f"{talker}RMC,{clock},{place},010526,,,A")


def clocks(count: int, period_s: float = 1.0, start_s: float = 0.0) -> list[str]:
    start = datetime(2026, 5, 1, 10, tzinfo=UTC)
    times = [start + timedelta(seconds=start_s + k * period_s) for k in range(count)]
    return [f"{t:%H%M%S.%f}"[:9] for t in times]


def latitudes(items: Iterable[Item]) -> list[float]:
    return [float(np.asarray(i.data["pos"])[0, 0]) for i in items if isinstance(i, Sample)]


def test_of_two_receivers_on_a_line_one_is_recorded_and_the_other_counted(tmp_path: Path) -> None:
    log = b"".join(gga(c, d) + rmc(c, d) for c in clocks(12) for d in ("48", "49"))
    items = play(tmp_path / "log", log)
    assert latitudes(items) == pytest.approx([SOUTH] * 12)
    assert {cause for cause, _ in causes(items)} == {"time"}
    assert sum(count or 0 for _, count in causes(items)) == 12
    lost = losses(items)[0]
    assert lost.detail["reason"].startswith("a further position for a time that has one: two")


def test_of_two_talkers_one_is_recorded_and_both_are_named(tmp_path: Path) -> None:
    log = b"".join(
        gga(c, "48", "GN") + rmc(c, "48", "GN") + gga(c, "49", "GL") + rmc(c, "49", "GL")
        for c in clocks(6)
    )
    items = play(tmp_path / "log", log)
    assert latitudes(items) == pytest.approx([SOUTH] * 6) and not causes(items)
    assert passing(items)[-1] == {"positions_by_sender": {"GN": 12, "GL": 12}}
    items = play(tmp_path / "log", log, talker="GL")
    assert latitudes(items) == pytest.approx([NORTH] * 6) and not causes(items)
    assert passing(items)[-1] == {"positions_by_sender": {"GN": 12, "GL": 12}}


@pytest.mark.parametrize("given", [{}, {"rate": 5.0}])
def test_a_rate_above_the_digits_of_the_times_is_counted(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    """Five epochs a second, with times in whole seconds, of a receiver that moves."""
    log = b""
    for k in range(50):
        place = f"4807.{k:04d},N,01131.0000,E"
        log += sentence(f"GPGGA,1000{k // 5:02d},{place},1,08,0.9,545.4,M,46.9,M,,")
        log += sentence(f"GPRMC,1000{k // 5:02d},A,{place},022.4,084.4,010526,,,A")
    items = play(tmp_path / "log", log, **given)
    assert latitudes(items) == pytest.approx([48 + (7 + k / 2000) / 60 for k in range(10)])
    assert {cause for cause, _ in causes(items)} == {"time"}
    assert sum(count or 0 for _, count in causes(items)) == 40


@pytest.mark.parametrize("late_s", [0.1, 0.2, 0.25, 0.3])
def test_of_two_receivers_at_other_times_one_is_recorded(tmp_path: Path, late_s: float) -> None:
    """2 Hz each, with one talker: their positions alternate faster than anything drives."""
    ours = clocks(24, 0.5)
    theirs = clocks(25, 0.5, start_s=late_s)
    log = b"".join(
        gga(a, "48") + rmc(a, "48") + gga(b, "49") + rmc(b, "49")
        for a, b in zip(ours, theirs, strict=False)
    )
    items = play(tmp_path / "log", log)
    assert latitudes(items) == pytest.approx([SOUTH] * 24) and not causes(items)
    other = passing(items)[-1]["second_receiver"]
    assert other == {"positions": 24, "distance_m": 111_000}


def test_a_receiver_that_leaps_now_and_then_is_one(tmp_path: Path) -> None:
    """It reports a place far away: its rows are recorded as they come."""
    places = ["48"] * 10 + ["00"] + ["48"] * 10 + ["00"] + ["48"] * 10 + ["10"] * 30
    log = b"".join(gga(c, p) + rmc(c, p) for c, p in zip(clocks(61 + 1), places, strict=False))
    items = play(tmp_path / "log", log)
    assert len(samples(items)) == 62 and not causes(items) and not passing(items)


def test_times_with_too_few_digits_for_their_rate_are_no_loss(tmp_path: Path) -> None:
    """4 Hz with tenths of seconds, as they are rounded: 0.0, 0.2, 0.5, 0.8."""
    tenths = [round(2.5 * k + 1e-9) for k in range(40)]
    log = b"".join(
        gga(f"1000{t // 10:02d}.{t % 10}", "48") + rmc(f"1000{t // 10:02d}.{t % 10}", "48")
        for t in tenths
    )
    items = play(tmp_path / "log", log)
    assert len(samples(items)) == 40 and not causes(items)


def test_a_message_of_nmea_that_comes_twice_may_be_another_epoch(tmp_path: Path) -> None:
    """As of a receiver that stands, 2 Hz with whole seconds."""
    log = b"".join((gga(c, "48") + rmc(c, "48")) * 2 for c in clocks(5))
    items = play(tmp_path / "log", log)
    assert len(samples(items)) == 5 and sum(count or 0 for _, count in causes(items)) == 5


def test_a_message_of_ubx_that_comes_twice_is_no_loss(tmp_path: Path) -> None:
    items = play(tmp_path / "log", b"".join(pvt(UTC_NS + k * 10**9) * 2 for k in range(5)))
    assert len(samples(items)) == 5 and not causes(items)
    assert sum(state["epochs_repeated_or_late"] for state in passing(items)) == 5


def test_two_receivers_of_ubx_on_a_line_are_counted(tmp_path: Path) -> None:
    times = [UTC_NS + k * 10**9 for k in range(6)]
    items = play(tmp_path / "log", b"".join(pvt(t) + pvt(t, lat=49.5) for t in times))
    assert latitudes(items) == pytest.approx([48.1234567] * 6)
    assert sum(count or 0 for _, count in causes(items)) == 6


@pytest.mark.parametrize("kind", ["RMC", "GGA", "GNS", "GNS and RMC"])
def test_epochs_without_a_fix_are_rows(tmp_path: Path, kind: str) -> None:
    def epoch(clock: str, has_fix: bool) -> bytes:
        modes = "AA" if has_fix else "NN"
        place = "4807.0000,N,01131.0000,E" if has_fix else ",,,"
        heights = "545.4,46.9" if has_fix else ","
        gns = sentence(f"GNGNS,{clock},{place},{modes},08,0.9,{heights},,,V")
        parts = {
            "RMC": rmc(clock, "48" if has_fix else ""),
            "GGA": gga(clock, "48", quality=int(has_fix)),
            "GNS": gns,
        }
        return b"".join(parts[name] for name in kind.split(" and "))

    fixes = [True] * 4 + [False] * 4 + [True] * 4
    log = b"".join(map(epoch, clocks(12), fixes))
    if "RMC" not in kind:  # they have no date
        log = sentence("GPZDA,095959.00,01,05,2026,00,00") + rmc("095959.00") + log
    items = play(tmp_path / "log", log)
    rows = samples(items)[-12:]
    assert not causes(items) and len(samples(items)) == 12 + ("RMC" not in kind)
    assert [bool(row.data["fix"][0]) for row in rows] == fixes
    assert np.isfinite(latitudes(rows)).tolist() == fixes
    assert [int(row.data["quality"][0]) for row in rows] == [int(fix) for fix in fixes]
    if "GNS" in kind:
        assert np.asarray(rows[0].data["pos"])[0] == pytest.approx([SOUTH, 11 + 31 / 60, 592.3])


def test_epochs_without_a_time_are_not_missing(tmp_path: Path) -> None:
    """A receiver that starts again in a tunnel sends sentences without a time."""
    seen = clocks(20)
    dark = sentence("GPRMC,,V,,,,,,,,,,N") + sentence("GPGGA,,,,,,0,00,99.99,,,,,,")
    log = b"".join(rmc(c, "48") + gga(c, "48") for c in seen[:8])
    log += dark * 7 + b"".join(rmc(c, "48") + gga(c, "48") for c in seen[15:])
    items = play(tmp_path / "log", log)
    assert len(samples(items)) == 13 and not causes(items)
    assert passing(items) == [{"epochs_without_time": 7}]
    missing = play(tmp_path / "log", log.replace(dark * 7, dark * 4))
    assert causes(missing) == [("device", 3)]


@pytest.mark.parametrize("count", [4, 40])
def test_of_two_receivers_on_a_live_line_one_is_recorded(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    lines: list[tuple[bytes, int]] = []
    for k in range(count):
        lines.append((pvt(UTC_NS + k * 10**9), START_NS + k * 10**9))
        late_ns = k * 10**9 + 300_000_000
        lines.append((pvt(UTC_NS + late_ns, lat=49.5), START_NS + late_ns))
    say(monkeypatch, lines, lambda: lines_now(lines))
    with streaming(driver("tcp", "host:1")) as (recorded, spec):
        items = heard(recorded, lines)
    assert spec.rate_hz == pytest.approx(1.0)
    found = latitudes(items)
    assert found == pytest.approx([48.1234567] * len(found)) and not causes(items)
    assert any("second_receiver" in values for values in states(items, lasting=True))


# gpsd


def tpv(device: str | None, latitude: float, after_ms: int, **more: Any) -> bytes:
    stamp = datetime.fromtimestamp(UTC_NS / 1e9 + after_ms / 1e3, UTC)
    report = {"class": "TPV", "mode": 3, "lat": latitude, "lon": 11.0, "altHAE": 500.0}
    report |= {"time": f"{stamp:%Y-%m-%dT%H:%M:%S}.{stamp.microsecond // 1000:03d}Z"}
    return json.dumps(report | ({} if device is None else {"device": device}) | more).encode()


def behind_gpsd(
    monkeypatch: pytest.MonkeyPatch, script: list[tuple[bytes, float]], **given: Any
) -> tuple[GnssDriver, list[Item]]:
    """What is recorded of gpsd's lines, each with its arrival in s; the driver stays open."""
    lines = [(line + b"\r\n", START_NS + round(at_s * 1e9)) for line, at_s in script]
    say(monkeypatch, lines, lambda: lines_now(lines))
    recorded = driver("gpsd", "localhost:2947", **given)
    recorded.open()
    return recorded, heard(recorded, lines)


def lines_now(lines: list[tuple[bytes, int]]) -> int:
    return lines[0][1] if lines else START_NS


ACM, USB = "/dev/ttyACM0", "/dev/ttyUSB0"


@pytest.mark.parametrize("late_ms", [0, 200])
def test_of_two_receivers_behind_gpsd_one_is_recorded(
    monkeypatch: pytest.MonkeyPatch, late_ms: int
) -> None:
    script = []
    for k in range(24):
        script.append((tpv(ACM, 48.0, 500 * k), k / 2))
        script.append((json.dumps({"class": "SKY", "device": USB, "uSat": 3}).encode(), k / 2))
        script.append((tpv(USB, 50.0, 500 * k + late_ms), k / 2 + late_ms / 1000))
    _, items = behind_gpsd(monkeypatch, script)
    assert latitudes(items) == [48.0] * 24 and not causes(items)
    assert {int(row.data["sats"][0]) for row in samples(items)} == {0}
    start, others = (i for i in items if isinstance(i, State))
    assert start.lasting and start.values["device"] == ACM
    assert others.lasting and set(others.values["positions_by_sender"]) == {ACM, USB}
    _, items = behind_gpsd(monkeypatch, script, device=USB)
    assert latitudes(items) == [50.0] * 24 and not causes(items)


def test_a_receiver_behind_gpsd_that_falls_silent_is_lost_beside_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver does not go on with the other one: it is another receiver."""
    both = [(tpv(d, x, 500 * k), k / 2) for k in range(8) for d, x in ((ACM, 48.0), (USB, 50.0))]
    alone = [(tpv(USB, 50.0, 500 * k), k / 2) for k in range(8, 40)]
    with pytest.raises(DeviceError, match="sends nothing for 5 s"):
        behind_gpsd(monkeypatch, both + alone)
    monkeypatch.undo()
    recorded, _ = behind_gpsd(monkeypatch, both)
    recorded.close()
    lines = [(b"".join(line + b"\r\n" for line, _ in alone), START_NS)]
    monkeypatch.setattr(live_module, "TcpLine", lambda *_: Scripted(lines))
    monkeypatch.setattr(live_module, "_OPEN_S", 0.05)
    with pytest.raises(DeviceError, match=rf"no position .*, but .* positions of {USB}"):
        recorded.open()
    lines.append((b"".join(line + b"\r\n" for line, _ in both), START_NS))
    (spec,) = recorded.open()
    assert spec.settings["device"] == ACM


def test_a_receiver_behind_gpsd_that_has_another_name_is_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Linux gives a receiver that is plugged in again the next number, if the last is in use."""
    both = [(tpv(d, x, 500 * k), k / 2) for k in range(8) for d, x in ((ACM, 48.0), (USB, 50.0))]
    again = "/dev/ttyACM1"
    script = [*both, (tpv(again, 48.0, 4000), 4.0), (tpv(USB, 50.0, 4000), 4.0)]
    recorded, items = behind_gpsd(monkeypatch, script)
    assert latitudes(items) == [48.0] * 8
    recorded.close()
    late = [tpv(d, x, 500 * k) for k in range(10, 20) for d, x in ((USB, 50.0), (again, 48.0))]
    lines = [(line + b"\r\n", START_NS) for line in late]
    monkeypatch.setattr(live_module, "TcpLine", lambda *_: Scripted(lines))
    (spec,) = recorded.open()
    items = heard(recorded, lines)
    assert spec.settings["device"] == again and set(latitudes(items)) == {48.0}


def test_gpsd_without_names_of_devices_or_without_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [(tpv(None, 48.0, 500 * k), k / 2) for k in range(6)]
    script += [(json.dumps({"class": "TPV", "mode": 1}).encode(), k / 2) for k in range(6, 10)]
    script += [(tpv(None, 48.0, 500 * k), k / 2) for k in range(10, 16)]
    _, items = behind_gpsd(monkeypatch, script)
    assert latitudes(items) == [48.0] * 12 and not causes(items)
    assert {"epochs_without_time": 4} in passing(items)
