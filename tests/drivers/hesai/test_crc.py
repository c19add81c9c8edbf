"""Checksums of packets: which ones are wrong, and what becomes of such packets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.hesai import crc
from drivers.hesai.models import MODELS
from recorder.session.events import INCOMPLETE
from tests.drivers.kit.lidar.lidars import Account, Lidar, Packets, Times, feed
from tests.drivers.kit.lidar.test_calibration import build_mirrors

MODES = {"QT128": 0x39, "OT128": 0x39, "AT128": 0x37}


def test_the_checksum_is_the_published_one() -> None:
    """The check value of CRC-32/MPEG-2 in catalogues of CRCs."""
    (found,) = crc.compute(np.frombuffer(b"123456789", np.uint8)[None])
    assert found == 0x0376E6E7


def by_definition(values: bytes) -> int:
    """Polynomial 04C11DB7 from FFFFFFFF, the highest bit first, nothing reversed or inverted."""
    found = 0xFFFFFFFF
    for value in values:
        found ^= value << 24
        for _ in range(8):
            found = (found << 1 ^ (0x04C11DB7 if found >> 31 else 0)) & 0xFFFFFFFF
    return found


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 12, 16, 25, 50, 97])
def test_each_wrong_packet_is_found(count: int) -> None:
    dice = np.random.default_rng(count)
    packets = dice.integers(0, 256, (count, 40), np.uint8)
    for packet in packets:
        packet[30:34] = list(by_definition(packet[5:30].tobytes()).to_bytes(4, "little"))
    assert crc.find_sound(packets, 5, 30).all()
    for wrong in ([0], [count - 1], [count // 2, count // 2 - 1], list(range(count))):
        flawed = packets.copy()
        flawed[wrong, int(dice.integers(5, 34))] ^= 16  # the same flaw in all of them
        found = crc.find_sound(flawed, 5, 30)
        assert set(np.flatnonzero(~found).tolist()) == {n % count for n in wrong}
    packets[:, :5] ^= 1
    packets[:, 34:] ^= 1
    assert crc.find_sound(packets, 5, 30).all()  # other bytes do not matter


def test_most_packets_are_checked_in_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    _, packets, _ = send("QT128")
    checked: list[int] = []
    compute = crc.compute

    def count(values: Packets) -> Any:
        checked.append(len(values))
        return compute(values)

    monkeypatch.setattr(crc, "compute", count)
    assert crc.find_sound(packets[:1000], *MODELS["QT128"].crcs[0]).all()
    assert len(checked) == 1 and checked[0] < 100


def send(model: str) -> tuple[Lidar, Packets, Times]:
    lidar = Lidar(model, MODES[model])
    per_turn = int(1e9 / lidar.rate_hz / lidar.decoder.column_ns / lidar.decoder.columns)
    return lidar, *lidar.send(lidar.turn(2 * per_turn + 40, azimuth=7))


@pytest.mark.parametrize("model", MODES)
def test_damaged_packets_are_a_loss_with_its_cause(model: str, tmp_path: Path) -> None:
    options = {}
    if model == "AT128":
        options["calibration"] = str(tmp_path / "at.dat")
        (tmp_path / "at.dat").write_bytes(build_mirrors())
    lidar, packets, t_ns = send(model)
    flawed = packets.copy()
    for number, (begin, end) in enumerate(MODELS[model].crcs):
        flawed[50 + 10 * number, (begin + end) // 2] ^= 2
    account = feed(lidar.start(packets, **options), flawed, t_ns, batch=70)
    assert account.total("packets_corrupt") == account.total("packets_missing") == 2
    assert account.total("packets_crc_wrong") == 2
    counted = [each["corrupt"] for each in account.find(INCOMPLETE) if "corrupt" in each]
    assert counted == [{"samples": 1, "parts": 2 * lidar.decoder.columns}]


def test_lost_packets_have_their_cause_again() -> None:
    lidar, packets, t_ns = send("QT128")
    packets[50, 30] ^= 1
    kept = np.delete(np.arange(len(packets)), len(packets) - 20)
    account: Account = feed(lidar.start(packets), packets[kept], t_ns[kept], batch=70)
    assert [list(each) for each in account.find(INCOMPLETE)] == [["corrupt"], ["network"]]


def test_a_device_without_checksums_is_recorded() -> None:
    lidar, packets, t_ns = send("QT128")
    for _, end in MODELS["QT128"].crcs:
        packets[:, end : end + crc.CRC_BYTES] = 0
    account = feed(lidar.start(packets), packets, t_ns)
    assert not account.total("packets_corrupt")
    assert account.columns == len(packets) * lidar.decoder.columns
