"""A Velodyne's position packets, by the offsets of the manual, and in a capture."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from drivers.kit.driver import EndOfSource, SensorConfig, State
from drivers.velodyne.driver import VelodyneDriver
from drivers.velodyne.position import parse_position
from recorder.config.options import check_options
from recorder.formats.pcap.writer import MAPPED, PcapWriter
from tests.drivers.kit.lidar.lidars import Lidar

RMC = "$GPRMC,220516,A,5133.82,N,00042.24,W,173.8,231.8,130694,004.2,W*70\r\n"


def build(pps: int = 2, sentence: str = RMC, top_c: int = 51) -> bytes:
    packet = bytearray(512)
    struct.pack_into("<I", packet, 198, 1_234_567)
    packet[187], packet[188], packet[202] = top_c, top_c and 48, pps
    packet[206 : 206 + len(sentence)] = sentence.encode()
    return bytes(packet)


@pytest.mark.parametrize(
    ("sentence", "fix"),
    [
        (RMC, True),
        (RMC.replace(",A,", ",V,"), False),
        ("$GPGGA,172814.0,3723.46,N,12202.26,W,2,6,1.2,18.893,M,-25.669,M,2.0,0031*4F", True),
        ("$GPGGA,172814.0,3723.46,N,12202.26,W,0,6,1.2,18.893,M,-25.669,M,2.0,0031*4F", False),
        ("", False),
        ("$GPRMC", False),
    ],
)
def test_what_a_packet_has(sentence: str, fix: bool) -> None:
    found = parse_position(build(sentence=sentence))
    assert found == {
        "gps_pps": "Locked",
        "gps_fix": fix,
        "shut_down_by_temperature": False,
        "temperature_top_c": 51,
        "temperature_bot_c": 48,
    }
    assert "temperature_top_c" not in (parse_position(build(top_c=0)) or {})
    assert parse_position(build(pps=7)) is parse_position(bytes(511)) is None


def test_changes_are_states_of_a_capture(tmp_path: Path) -> None:
    lidar, path = Lidar("VLP-16", 0x37), tmp_path / "a.pcap"
    packets, t_ns = lidar.send(lidar.turn(300))
    with path.open("wb") as file:
        writer, lidar_address, host = PcapWriter(file), MAPPED + b"\n\0\0\1", MAPPED + b"\n\0\0\2"
        for number, (packet, at_ns) in enumerate(zip(packets, t_ns.tolist(), strict=True)):
            writer.write(at_ns, lidar_address, 2368, host, 2368, packet.tobytes())
            if number % 10 == 0:
                position = build(pps=1 if number < 150 else 2)
                writer.write(at_ns, lidar_address, 8308, host, 8308, position)
    options = check_options(VelodyneDriver.options, {})
    driver = VelodyneDriver(SensorConfig("lidar", "pcap", str(path), options))
    driver.open()
    states = []
    with pytest.raises(EndOfSource):
        while True:
            if isinstance(item := driver.read(), State):
                states.append(item.values)
    driver.close()
    assert [s["gps_pps"] for s in states if "gps_pps" in s] == ["Synchronizing", "Locked"]
    assert not any("packets_corrupt" in state for state in states)
