"""Clocks of lidars: unset, off by known sizes, stepping, and those that tell the hour alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from drivers.kit.lidar.clock import ClockWatch, describe_offset
from tests.drivers.kit.lidar.lidars import Lidar, feed

SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
NOON_NS = 1_700_000_000 * SECOND_NS // HOUR_NS * HOUR_NS


@pytest.mark.parametrize(
    ("offset_s", "wanted"),
    [
        (0.02, "agrees"),
        (37.0, "TAI"),
        (36.7, "TAI"),
        (18.0, "GPS"),
        (604_800.0, "ahead by a week"),
        (-604_800.0, "behind by a week"),
        (-619_315_200.0, "1024 weeks"),
        (3_155_673_600.0, "century"),  # 2120 read as 2020 + 100
        (-168_685_362.0, "behind: not set"),  # as a recording of a Pandar40P
        (-109_375_908.0, "behind: not set"),  # as a recording of a PandarXT32
        (1200.0, "it is ahead"),
    ],
)
def test_offsets_have_a_name_and_their_size(offset_s: float, wanted: str) -> None:
    found = describe_offset(offset_s)
    assert wanted in found["device_clock"] and found["device_clock_offset_s"] == offset_s


def test_an_offset_is_reported_once_and_a_step_when_it_comes() -> None:
    watch = ClockWatch()
    assert watch.take(NOON_NS, NOON_NS + 37 * SECOND_NS)["device_clock_offset_s"] == 37.0
    for second in range(1, 100):
        drift = second * 50_000  # 50 ppm
        assert (
            watch.take(NOON_NS + second * SECOND_NS, NOON_NS + (37 + second) * SECOND_NS + drift)
            == {}
        )
    found = watch.take(NOON_NS + 100 * SECOND_NS, NOON_NS + 100 * SECOND_NS)
    assert found["device_clock_step_ns"] == pytest.approx(-37 * SECOND_NS, abs=10_000_000)
    assert found["device_clock_offset_s"] == 0.0


def test_packets_that_are_held_up_are_no_step() -> None:
    """A network holds packets up for two seconds, again and again, and they come in a burst."""
    watch, found = ClockWatch(), list[dict[str, Any]]()
    for packet in range(2000):
        sent_ns = NOON_NS + packet * SECOND_NS // 100
        held = packet % 500 >= 300
        came_ns = NOON_NS + (packet // 500 * 500 + 500) * SECOND_NS // 100 if held else sent_ns
        found.append(watch.take(came_ns + 1000, sent_ns))
    assert [values for values in found[1:] if values] == []


def test_a_clock_that_is_set_back_a_little_is_told_when_it_lasts() -> None:
    watch, found = ClockWatch(), list[dict[str, Any]]()
    for packet in range(1000):
        host_ns = NOON_NS + packet * SECOND_NS // 2
        found.append(watch.take(host_ns, host_ns - (packet >= 300) * 400_000_000))
    (told,) = [values for values in found[1:] if values]
    assert told["device_clock_step_ns"] == pytest.approx(-400_000_000, abs=1)
    assert found.index(told) == 306


@pytest.mark.parametrize("host_off_s", [0, 1200, -1200])
def test_the_hour_is_completed_across_its_turn(host_off_s: int) -> None:
    lidar = Lidar("VLP-16", 0x37)
    start_ns = NOON_NS + HOUR_NS - SECOND_NS // 20  # 50 ms before the hour
    packets, t_ns = lidar.send(lidar.turn(100, start_ns))
    account = feed(lidar.start(packets), packets, t_ns, offset_ns=host_off_s * SECOND_NS)
    times = account.times
    assert (np.diff(times) > 0).all()
    assert abs(int(times[0]) - start_ns) < 10_000
    assert account.columns == 2400 and not account.total("columns_missing")
    (offset,) = account.find("device_clock_offset_s")
    assert offset == pytest.approx(-host_off_s, abs=0.01)


@pytest.mark.parametrize(("model", "century_s"), [("Pandar64", 0), ("PandarXT32", -100_000_000)])
def test_unset_clocks_are_reported_once(model: str, century_s: int) -> None:
    lidar = Lidar(model)
    packets, t_ns = lidar.send(lidar.turn(400, NOON_NS + century_s * SECOND_NS))
    account = feed(lidar.start(packets), packets, t_ns - century_s * SECOND_NS)
    assert account.find("device_clock_offset_s") == [pytest.approx(century_s, abs=0.01)]
    stream = lidar.start(packets)
    assert stream.specs(finite=True)[0].settings["clock"] == "the sensor's date and time"
