"""``driver: livox`` from captures and bags: sweeps, their account, the IMU, states."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from drivers.kit.driver import Item, Lost, SensorConfig, State
from drivers.kit.lidar.cloud_stream import CloudPacketStream
from drivers.livox.driver import LivoxDriver
from drivers.livox.packets import CARTESIAN, SPHERICAL
from recorder.codecs.points import points_dtype, unpack_points
from recorder.common.errors import SourceError
from recorder.config.options import check_options
from recorder.formats.ros2.definitions import NEBULA_PACKETS
from recorder.perception.lidar.clouds import make_point_source
from tests.campaigns import seeded
from tests.drivers.kit.lidar.packet_messages import scan_message
from tests.drivers.livox.rig import (
    INTERVAL_NS,
    START_NS,
    Lidar,
    arrivals,
    arrive,
    count_points,
    push_packet,
    write_device,
)
from tests.formats.bags.kit import write_mcap
from tests.support.devices import device_times, losses, make_driver, read_all, samples, states

PER_SWEEP = 100_000_000 / INTERVAL_NS


@pytest.mark.parametrize("resets", [True, False])
def test_a_capture_gives_sweeps_and_the_imu(tmp_path: Path, resets: bool) -> None:
    lidar = Lidar(resets=resets)
    sent = arrivals(lidar.packets(650))
    told = push_packet(k8006=b"\1", k8007=(4000).to_bytes(4, "little"))
    sent[5:5] = [(sent[5][0], 56201, told)] * 2
    driver = make_driver(LivoxDriver, "lidar", "pcap", write_device(tmp_path / "a.pcap", sent))
    points, imu = driver.open()
    items = read_all(driver)
    driver.close()
    assert [spec.name for spec in (points, imu)] == ["lidar", "lidar_imu"] and points.rate_hz == 10
    sweeps = samples(items, "lidar")
    assert [count_points(s) for s in sweeps] == [209 * 96, 208 * 96, 208 * 96, 25 * 96]
    assert not losses(items) and not [s for s in states(items) if "packets_missing" in s]
    dtype = points_dtype(points.channel("points.bin").columns)
    frame = sweeps[0].data["points.bin"][0]
    assert isinstance(frame, bytes)
    cloud = unpack_points(frame, dtype, "lidar")
    values = lidar.values(650)[:209].ravel()
    assert np.array_equal(cloud["xyz"], values["xyz"])
    assert np.array_equal(cloud["tag"], values["tag"])
    assert cloud["t_offset"][96] == INTERVAL_NS and cloud["t_offset"][1] == INTERVAL_NS // 96
    ends = device_times(items, "lidar")
    assert ends[0] == START_NS + 208 * INTERVAL_NS + 95 * INTERVAL_NS // 96
    measured = samples(items, "lidar_imu")
    assert len(measured) == 62 and measured[7].t_dev_ns is not None
    assert measured[7].t_dev_ns[0] == START_NS + 7 * 5_000_000
    assert {"work_state": "normal", "core_c": 40} in states(items, lasting=True)
    assert {"clock": "PTP"} in states(items, lasting=True)


def test_readers_have_the_points_in_metres(tmp_path: Path) -> None:
    lidar = Lidar(SPHERICAL)
    path = write_device(tmp_path / "a.pcap", arrivals(lidar.packets(10)))
    driver = make_driver(LivoxDriver, "lidar", "pcap", path, imu=False)
    (spec,) = driver.open()
    (sample,) = samples(read_all(driver))
    driver.close()
    source = make_point_source(spec)
    dtype = points_dtype(spec.channel("points.bin").columns)
    frame = sample.data["points.bin"][0]
    assert isinstance(frame, bytes)
    start_ns, points = source.points({"points.bin": unpack_points(frame, dtype, "")}, 10**9)
    values = lidar.values(10).ravel()
    norm = np.sqrt(sum(points[axis].astype(float) ** 2 for axis in "xyz"))
    assert np.allclose(norm, values["depth"] / 1000, rtol=1e-6)
    assert start_ns == 10**9 - (9 * INTERVAL_NS + 95 * INTERVAL_NS // 96)


def test_a_bag_gives_what_a_capture_of_the_packets_gives(tmp_path: Path) -> None:
    sent = arrivals(Lidar().packets(300))
    points = [(t_ns, payload) for t_ns, port, payload in sent if port == 56301]
    imu = [(t_ns, payload) for t_ns, port, payload in sent if port == 56401]
    messages = [
        *(
            scan_message("/l/packets", NEBULA_PACKETS, points[k : k + 50])
            for k in range(0, 300, 50)
        ),
        *(scan_message("/l/imu_packets", NEBULA_PACKETS, [each]) for each in imu),
    ]
    path = write_mcap(tmp_path / "a.mcap", sorted(messages, key=lambda each: each.log_ns))
    found = play_all("bag", path)
    wanted = play_all("pcap", write_device(tmp_path / "a.pcap", sent))
    for name in ("lidar", "lidar_imu"):
        for one, other in zip(samples(found, name), samples(wanted, name), strict=True):
            assert one.t_dev_ns == other.t_dev_ns
            for channel, values in one.data.items():
                assert np.array_equal(np.asarray(values), np.asarray(other.data[channel]))


def play_all(scheme: str, path: Path) -> list[Item]:
    driver = make_driver(LivoxDriver, "lidar", scheme, path)
    driver.open()
    items = read_all(driver)
    driver.close()
    return items


def test_missing_packets_of_the_imu_are_counted(tmp_path: Path) -> None:
    sent = arrivals(Lidar().packets(300))
    dropped = {START_NS + k * 5_000_000 for k in (5, 6, 7, 15)}
    kept = [each for each in sent if each[1] != 56401 or each[0] not in dropped]
    items = play_all("pcap", write_device(tmp_path / "a.pcap", kept))
    found = [lost.count for lost in losses(items) if lost.stream == "lidar_imu"]
    assert found == [3, 1] and len(samples(items, "lidar_imu")) == 28 - 4


def test_other_packets_are_named(tmp_path: Path) -> None:
    path = write_device(tmp_path / "a.pcap", [(START_NS, 56301, b"no packet of a lidar")])
    with pytest.raises(SourceError, match=r"has no packet of Mid-360 or HAP.*56301 \(1\)"):
        make_driver(LivoxDriver, "lidar", "pcap", path).open()


def account(items: list[Item]) -> tuple[int, int, int]:
    """Packets that were recorded, and that are missing; and lost sweeps."""
    missing = lost = 0
    for item in items:
        if isinstance(item, State):
            missing += item.values.get("packets_missing", 0)
        elif isinstance(item, Lost):
            assert item.count is not None
            missing, lost = missing + item.detail["packets_missing"], lost + item.count
    return sum(count_points(s) // 96 for s in samples(items)), missing, lost


@pytest.mark.parametrize("step_s", [-20, -0.3, 0.3, 1.2, 20])
def test_a_step_of_the_clock_is_no_loss(step_s: float) -> None:
    """Also not after an hour in which nothing came and the clock fell behind."""
    lidar, hour_ns, behind_ns = Lidar(resets=False), 3600 * 10**9, 1_440_000_000
    sent = START_NS + np.arange(900) * INTERVAL_NS + np.repeat([0, hour_ns, hour_ns], 300)
    device = sent + np.repeat([0, -behind_ns, round(step_s * 1e9) - behind_ns], 300)
    packets = lidar.decoder.encode(lidar.values(900), device, np.arange(900))
    stream = make_stream(lidar)
    items = [*stream.take(packets, sent, sent), *stream.finish()]
    recorded, missing, _ = account(items)
    assert (recorded, missing) == (900, round((hour_ns - behind_ns) / INTERVAL_NS))


def make_stream(lidar: Lidar) -> CloudPacketStream:
    options = check_options(LivoxDriver.options, {})
    sensor = SensorConfig("lidar", "pcap", "", options)
    return CloudPacketStream(sensor, lidar.decoder, live=False)


def send_with_faults(seed: int) -> None:
    """Recorded and counted packets are those that were sent, with losses, reordering and delays."""
    dice = random.Random(seed)
    lidar = Lidar(CARTESIAN, resets=dice.random() < 0.5, seed=seed)
    count = dice.randrange(200, 2500)
    packets = lidar.packets(count, first=dice.choice([0, dice.randrange(60_000, 70_000)]))
    kept = [k for k in range(count) if dice.random() >= dice.choice([0, 0.01, 0.1])]
    for _ in range(dice.randrange(4)):  # whole sweeps, too
        begin = dice.randrange(count)
        gap = range(begin, begin + dice.choice([30, 300, 900]))
        kept = [k for k in kept if k not in gap]
    if len(kept) < 2:
        return
    window = dice.choice([0, 3])
    copies = [k for k in kept[1:] if dice.random() < 0.02]
    mixed = sorted([*kept[1:], *copies], key=lambda k: k + dice.random() * window)
    order = np.array([kept[0], *mixed])
    stream = make_stream(lidar)
    items: list[Item] = []
    at, times = 0, arrive(dice, order, INTERVAL_NS)
    while at < len(order):
        part = slice(at, at := at + dice.choice([1, 7, 64, 500]))
        items += stream.take(packets[order[part]], times[part], times[part])
    items += stream.finish()
    recorded, missing, lost = account(items)
    assert recorded == len(kept)
    assert recorded + missing == kept[-1] - kept[0] + 1, seed
    repeated = sum(s.get("packets_repeated", 0) for s in states(items))
    assert repeated == len(copies)
    assert lost <= (kept[-1] - kept[0]) / PER_SWEEP


@seeded(6, weight=10, least=494)
def test_recorded_and_counted_packets_are_those_that_were_sent(seed: int) -> None:
    send_with_faults(seed)
