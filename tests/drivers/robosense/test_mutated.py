"""Lost and mutated packets of RoboSense and Livox: all are recorded or counted."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from drivers.kit.driver import Item, SensorConfig, State
from drivers.kit.lidar.family import Family, FamilyDriver
from drivers.kit.lidar.form import FormChangedError
from drivers.livox.driver import LivoxDriver, LivoxFamily
from drivers.robosense.driver import RobosenseDriver, RobosenseFamily
from drivers.robosense.models import MODELS
from recorder.common.errors import SourceError
from recorder.config.options import check_options
from tests.campaigns import Campaign, seeded
from tests.drivers.livox.rig import Lidar, imu_packet, push_packet
from tests.drivers.robosense import test_m1
from tests.drivers.robosense.rig import START_NS, describe, make_packets, options_for
from tests.support.devices import losses, samples

KINDS = [*MODELS, "M1", "Mid-360"]


def make_family(name: str) -> tuple[Family, np.ndarray, list[bytes]]:
    """A family, packets of one of its models, and others that the device sends."""
    driver: type[FamilyDriver] = LivoxDriver if name == "Mid-360" else RobosenseDriver
    options = options_for(MODELS[name]) if name in MODELS else {}
    sensor = SensorConfig("lidar", "pcap", "", check_options(driver.options, options))
    if name == "Mid-360":
        return LivoxFamily(sensor), Lidar().packets(600), [imu_packet(1), push_packet(k8006=b"\1")]
    told = bytearray(256)
    told[:8] = describe(MODELS["Helios"], 1)[:8]
    if name == "M1":
        return RobosenseFamily(sensor), test_m1.make_packets(600), [bytes(told)]
    model = MODELS[name]
    return RobosenseFamily(sensor), make_packets(model, 1, 600), [describe(model, 1)]


def mutate(dice: random.Random, packet: bytes) -> bytes:
    made = bytearray(packet)
    for _ in range(dice.choice([1, 1, 2, 20])):
        made[dice.randrange(min(len(made), dice.choice([40, 300, 2000])))] = dice.randrange(256)
    return bytes(made[: dice.randrange(len(made))] if dice.random() < 0.1 else made)


def send_mutated(name: str, seed: int, count: int = 600) -> None:
    """No packet, whatever it is, ends a stream, but one that tells of another return mode."""
    dice = random.Random(f"{name} {seed}")
    family, packets, others = make_family(name)
    for other in others:
        family.take_side_packet(mutate(dice, other))
        family.take_side_packet(other)
    stream = family.start(packets[0].tobytes(), live=dice.random() < 0.5)
    size, at = stream.packet_bytes, 0
    items: list[Any] = []
    while at < count:
        chosen = packets[at : (at := at + dice.choice([1, 20, 64]))]
        payloads = [
            p.tobytes() if dice.random() < 0.2 else mutate(dice, p.tobytes()) for p in chosen
        ]
        whole = [p for p in payloads if len(p) == size]
        times = START_NS + at * 600_000 + np.arange(len(whole))
        try:
            if whole:
                rows = np.frombuffer(b"".join(whole), np.uint8).reshape(-1, size)
                items += stream.take(rows, times, times)
            for payload in payloads:
                family.is_packet(payload)
                items += stream.take_other(payload) if len(payload) != size else ()
            for other in others:
                items += family.convert_side_packet(mutate(dice, other), START_NS + at) or ()
        except FormChangedError as error:
            assert "from here on" in str(error)
            return
    items += stream.finish()
    assert samples(items, "lidar")


@pytest.mark.parametrize("name", KINDS)
def test_a_mutated_packet_ends_no_stream(name: str) -> None:
    send_mutated(name, 0)


@pytest.mark.campaign(weight=8, least=167)
@pytest.mark.parametrize("name", KINDS)
def test_mutated_packets_end_no_stream(name: str, campaign: Campaign) -> None:
    for seed in campaign.seeds():
        send_mutated(name, seed)


def account(items: list[Item]) -> int:
    """Recorded and missing columns, without whole sweeps that are missing."""
    found = sum(int(np.count_nonzero(s.data["t_col"])) for s in samples(items))
    values = [item.values for item in items if isinstance(item, State)]
    return found + sum(int(v.get("columns_missing", 0)) for v in values)


@seeded(4, weight=15, least=500)
def test_recorded_and_counted_columns_are_those_that_were_sent(seed: int) -> None:
    dice = random.Random(seed)
    name = dice.choice(list(MODELS))
    family, packets, (described,) = make_family(name)
    family.take_side_packet(described)
    stream = family.start(packets[0].tobytes(), live=False)
    kept = [k for k in range(600) if dice.random() >= dice.choice([0, 0.02, 0.1])]
    mixed = sorted(kept[1:], key=lambda k: k + dice.random() * 3)
    order = np.array([kept[0], *mixed])
    per_packet = account(read(stream, packets, np.arange(4))) // 4
    family, packets, _ = make_family(name)
    family.take_side_packet(described)
    stream = family.start(packets[0].tobytes(), live=False)
    items = read(stream, packets, order)
    assert not losses(items)
    sent = (kept[-1] - kept[0] + 1) * per_packet
    # Gaps of the azimuth are told to a column; those of numbers exactly.
    gaps = np.count_nonzero(np.diff(kept) > 1)
    assert abs(account(items) - sent) <= (0 if name == "Airy" else gaps), (seed, name)


def read(stream: object, packets: np.ndarray, order: np.ndarray) -> list[Item]:
    items: list[Item] = []
    for part in np.array_split(order, max(1, len(order) // 50)):
        arrived = START_NS + np.maximum.accumulate(part) * 300_000
        items += stream.take(packets[part], arrived, arrived)  # type: ignore[attr-defined]
    items += stream.finish()  # type: ignore[attr-defined]
    return items


def test_a_description_of_another_model_is_one_error() -> None:
    family, packets, _ = make_family("Helios")
    family.take_side_packet(describe(MODELS["Ruby Plus"], 1)[:468] + b"\xff" * 780)
    with pytest.raises(SourceError, match="has no angles of its design"):
        family.start(packets[0].tobytes(), live=False)
