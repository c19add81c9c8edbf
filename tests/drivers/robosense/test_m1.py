"""The M1: places of all values as rs_driver has them, round trips, sweeps and their account."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from drivers.kit.driver import Item, SensorConfig
from drivers.kit.lidar.cloud_stream import CloudPacketStream
from drivers.kit.lidar.decoder import Packets
from drivers.robosense.description import DESCRIPTION_ID
from drivers.robosense.driver import RobosenseDriver
from drivers.robosense.m1 import COLUMNS, PACKETS, POINTS, M1Decoder, is_packet, make_packet
from recorder.codecs.points import points_dtype
from recorder.common.errors import FormatError
from recorder.config.options import check_options
from recorder.formats.pcap.writer import PcapWriter
from recorder.perception.lidar.device_clouds import DeviceCloud
from tests.campaigns import seeded
from tests.drivers.kit.lidar.packet_messages import HOST, SENSOR
from tests.drivers.livox.rig import arrive, count_points
from tests.drivers.livox.test_driver import account
from tests.drivers.robosense.rig import DIFOP, MSOP, START_NS
from tests.support.devices import make_driver, play, samples, states


def make_packets(count: int, *, dual: bool = False, first: int = 0, seed: int = 1) -> Packets:
    """Packets of noise; times have microseconds."""
    dice = np.random.default_rng(seed)
    decoder = M1Decoder(make_packet(0 if dual else 4))
    values = np.zeros((count, POINTS), points_dtype(COLUMNS))
    for name in ("range", "pitch", "yaw"):
        values[name] = dice.integers(0, 65_536, values.shape)
    for name in ("reflectivity", "attribute", "elongation"):
        values[name] = dice.integers(0, 256, values.shape)
    values["ring"] = np.arange(POINTS) % 5
    values["return"] = np.repeat(dice.integers(1, 3, (count, 25)), 5, axis=1)
    since = np.repeat(dice.integers(0, 150, (count, 25)), 5, axis=1) * 1000
    per_sweep = PACKETS * (2 if dual else 1)
    number = np.arange(first, first + count)
    times = START_NS + (number * decoder.interval_ns).astype(np.int64) // 1000 * 1000
    return decoder.encode(values, since, times, 1 + number % per_sweep)


@pytest.mark.parametrize("dual", [False, True])
def test_points_are_the_same_after_a_round_trip(dual: bool) -> None:
    packets = make_packets(20, dual=dual)
    decoder = M1Decoder(packets[0].tobytes())
    assert decoder.find_sound(packets).all() and decoder.settings["returns"] == 1 + dual
    values, since_ns = decoder.decode(packets)
    times, numbers = decoder.read_times(packets), decoder.read_numbers(packets)
    assert np.array_equal(decoder.encode(values, since_ns, times, numbers), packets)
    assert numbers.tolist() == list(range(1, 21))
    assert decoder.read_state(packets)["temperature_c"] == 20


def test_every_value_is_where_rs_driver_reads_it() -> None:
    """By the structs of decoder_RSM1.hpp, written by hand."""
    head = bytes.fromhex("55aa5aa5") + struct.pack(">HHBB", 77, 1, 4, 2)
    head += (START_NS // 10**9).to_bytes(6, "big") + struct.pack(">I", 123_456) + bytes(10)
    head += bytes((0x10, 95))
    point = struct.pack(">HHHBBB", 400, 32_768 - 3_000, 32_768 + 9_000, 9, 8, 7)
    packet = head + (bytes((40, 1)) + point * 5) * 25 + bytes(3)
    assert is_packet(packet)
    decoder, array = M1Decoder(packet), np.frombuffer(packet, np.uint8)[None]
    assert decoder.read_times(array).tolist() == [START_NS // 10**9 * 10**9 + 123_456_000]
    assert decoder.read_numbers(array).tolist() == [77]
    assert decoder.read_state(array) == {"temperature_c": 15, "return_mode": 4, "time_mode": 2}
    values, since_ns = decoder.decode(array)
    assert since_ns[0, 7] == 40_000 and values["ring"][0, 7] == 2 and values["return"][0, 7] == 1
    points = DeviceCloud(decoder.columns, "lidar").convert(values[0])
    # 2 m, 30 deg down, to the left.
    assert np.allclose(
        [points["x"][3], points["y"][3], points["z"][3]], [0.0, 1.7320508, -1.0], atol=1e-6
    )
    assert points["reflectivity"][3] == 9 and points["elongation"][3] == 7
    with pytest.raises(FormatError, match="is not of an M1"):
        M1Decoder(packet[:-1])


def test_a_capture_gives_sweeps_and_states(tmp_path: Path) -> None:
    packets = make_packets(1500)
    told = bytearray(256)
    told[:8], told[9], told[38:44], told[44:47] = DESCRIPTION_ID, 10, b"serial", bytes((4, 3, 2))
    with (path := tmp_path / "a.pcap").open("wb") as file:
        writer = PcapWriter(file)
        for k, packet in enumerate(packets):
            t_ns = START_NS + k * 158_730
            if k % 500 == 0:
                writer.write(t_ns, SENSOR, DIFOP, HOST, DIFOP, bytes(told))
            writer.write(t_ns, SENSOR, MSOP, HOST, MSOP, packet.tobytes())
    spec, items = play(make_driver(RobosenseDriver, "lidar", "pcap", path))
    assert [count_points(s) // POINTS for s in samples(items)] == [630, 630, 240]
    assert spec.settings["model"] == "M1" and spec.rate_hz == 10
    (about,) = [s for s in states(items, lasting=True) if "serial" in s]
    assert about["time_sync"] == "gPTP" and about["serial"] == b"serial".hex()
    assert not [s for s in states(items) if "packets_missing" in s]


def send_with_faults(seed: int) -> None:
    """Recorded and counted packets are those that were sent, with losses, reordering and delays."""
    dice = random.Random(seed)
    dual, count = dice.random() < 0.5, dice.randrange(500, 4000)
    packets = make_packets(count, dual=dual, first=dice.randrange(2000), seed=seed)
    kept = [k for k in range(count) if dice.random() >= dice.choice([0, 0.01, 0.1])]
    for _ in range(dice.randrange(3)):
        begin = dice.randrange(count)
        gap = range(begin, begin + dice.choice([30, 700, 2000]))
        kept = [k for k in kept if k not in gap]
    if len(kept) < 2:
        return
    mixed = sorted(kept[1:], key=lambda k: k + dice.random() * 3)
    order = np.array([kept[0], *mixed])
    decoder = M1Decoder(packets[0].tobytes())
    options = check_options(RobosenseDriver.options, {})
    stream = CloudPacketStream(SensorConfig("lidar", "pcap", "", options), decoder, live=False)
    items: list[Item] = []
    times = arrive(dice, order, round(decoder.interval_ns))
    for part in np.array_split(np.arange(len(order)), max(1, len(order) // 100)):
        items += stream.take(packets[order[part]], times[part], times[part])
    items += stream.finish()
    recorded = sum(count_points(s) // POINTS for s in samples(items))
    assert recorded == len(kept)
    assert recorded + account(items)[1] == kept[-1] - kept[0] + 1, seed


@seeded(3, weight=8, least=100)
def test_recorded_and_counted_packets_are_those_that_were_sent(seed: int) -> None:
    send_with_faults(seed)
