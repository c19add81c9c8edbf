"""The IMU of an Airy: its packets, and the stream that appears with them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit.driver import EndOfSource, NewStream
from drivers.robosense.driver import RobosenseDriver
from drivers.robosense.imu import NUMBER_SPAN, is_imu, make_imu, read_imu
from drivers.robosense.models import MODELS
from recorder.common.errors import FormatError
from recorder.formats.pcap.writer import PcapWriter
from tests.drivers.kit.lidar.packet_messages import HOST, SENSOR
from tests.drivers.robosense.rig import DIFOP, MSOP, START_NS, arrivals, describe, make_packets
from tests.support.devices import losses, make_driver, samples, states

RS_DRIVER = {
    "aa555a0500006553f1010001871b00002157ffffc92a00007ac2ffff8dceffffc726ffffe224000000000001020000"
    "00060000": (1_700_000_001.100123, (1.04187, -1.713623, 3.836182),
                 (-15.570971, -7.751929, -4.071441)),
    "aa555a0500006553f10300049551ffffa61800007fcaffffb0e40000270100004010ffffbc08000000000003000000"
    "00080000": (1_700_000_003.300369, (-11.238281, 15.973633, -9.888672),
                 (1.329583, 2.183792, -2.316950)),
}  # fmt: skip
"""Packets, and what RoboSense's rs_driver 1.5.19, compiled, made of them: s, g, rad/s."""
IMU = 6688


@pytest.mark.parametrize("text", RS_DRIVER)
def test_values_are_those_of_rs_driver(text: str) -> None:
    time_s, acc_g, avel = RS_DRIVER[text]
    sample = read_imu(bytes.fromhex(text))
    assert sample.t_ns == round(time_s * 1e6) * 1000
    assert np.allclose(sample.acc, np.array(acc_g) * 9.80665, rtol=0, atol=1e-4)
    assert np.allclose(sample.avel, avel, rtol=0, atol=1e-5)


def test_other_packets_are_refused() -> None:
    packet = bytearray(make_imu(3, START_NS))
    assert is_imu(bytes(packet)) and not is_imu(bytes(packet[:-1])) and not is_imu(bytes(51))
    packet[44] = 4
    with pytest.raises(FormatError, match="unknown scales 1, 4"):
        read_imu(bytes(packet))


def write_capture(path: Path, numbers: list[int]) -> Path:
    """A capture of an Airy, with packets of its IMU after its first packets with ranges."""
    packets = arrivals(make_packets(MODELS["Airy"], 1, 300))
    with path.open("wb") as file:
        writer = PcapWriter(file)
        writer.write(START_NS, SENSOR, DIFOP, HOST, DIFOP, describe(MODELS["Airy"], 1))
        for k, (t_ns, payload) in enumerate(packets):
            writer.write(t_ns, SENSOR, MSOP, HOST, MSOP, payload)
            if k >= 20 and k - 20 < len(numbers):
                writer.write(t_ns, SENSOR, IMU, HOST, IMU, make_imu(numbers[k - 20], t_ns + 5000))
    return path


def play(path: Path, **options: Any) -> list[Any]:
    driver = make_driver(RobosenseDriver, "lidar", "pcap", str(path), **options)
    (spec,) = driver.open()
    assert spec.name == "lidar"
    items: list[Any] = []
    with contextlib.suppress(EndOfSource):
        while True:
            items.append(driver.read())
    driver.close()
    return items


def test_the_stream_appears_with_its_packets(tmp_path: Path) -> None:
    numbers = [NUMBER_SPAN - 2, NUMBER_SPAN - 1, 0, 0, 1, 5]  # one twice, three lost
    items = play(write_capture(tmp_path / "a.pcap", numbers))
    (spec,) = [item.spec for item in items if isinstance(item, NewStream)]
    assert spec.name == "lidar_imu" and spec.finite
    found = samples([item for item in items if not isinstance(item, NewStream)], "lidar_imu")
    assert len(found) == 5
    assert all(np.allclose(s.data["acc"], [[0, 0, 9.80665]]) for s in found)
    assert all((s.t_dev_ns - s.t_ns == 5000).all() for s in found if s.t_dev_ns is not None)
    (lost,) = losses(items)
    assert (lost.stream, lost.count) == ("lidar_imu", 3)
    assert not any("packets_corrupt" in state for state in states(items))


def test_the_imu_may_be_left_out(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.pcap", [1, 2, 3])
    items = play(path, imu=False)
    assert not any(isinstance(item, NewStream) for item in items)
    assert samples(items, "lidar")
