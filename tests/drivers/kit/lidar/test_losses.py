"""Packets that are lost, late and repeated: what is recorded and what is counted was sent."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.campaigns import seeded
from tests.drivers.kit.lidar.lidars import (
    NUMBERED,
    Account,
    Lidar,
    Packets,
    Times,
    feed,
    hold_up,
)

NUMBERLESS = ["VLP-16", "Puck Hi-Res", "HDL-32E", "VLP-32C", "VLS-128"]
SECOND_NS = 1_000_000_000


def disturb(dice: random.Random, count: int, most: int) -> list[int]:
    """Return which packets arrive, in their order: without runs of losses, repeated, late."""
    lost: set[int] = set()
    for _ in range(dice.randrange(6)):
        begin = dice.randrange(1, count)
        lost |= set(range(begin, begin + dice.randrange(1, most)))
    share = dice.choice([0.0, 0.0, 0.01, 0.1])
    arriving = [n for n in range(count) if n not in lost and (n == 0 or dice.random() >= share)]
    copies = [n for n in arriving if dice.random() < 0.02]
    late = dice.choice([0, 0, 3, 6])
    return [0, *sorted([*arriving[1:], *copies], key=lambda n: n + dice.random() * late)]


def arrive(
    dice: random.Random, packets: Packets, t_ns: Times, arriving: list[int]
) -> tuple[Packets, Times]:
    """Return what arrives, and when: a network may hold packets up."""
    return packets[arriving], hold_up(dice, np.maximum.accumulate(t_ns[arriving]))


def check(account: Account, lidar: Lidar, arriving: list[int]) -> None:
    """Check that the columns between the first and the last packet are recorded or counted."""
    sent = (max(arriving) - min(arriving) + 1) * lidar.decoder.columns
    here = len(set(arriving)) * lidar.decoder.columns
    per_turn = 1e9 / lidar.rate_hz / lidar.decoder.column_ns
    beyond = account.total("columns_beyond_width")
    missing = account.total("columns_missing") - beyond
    assert account.columns + beyond + account.total("packets_late") * lidar.decoder.columns == here
    counted = missing + account.lost_sweeps * per_turn
    # A turn has no whole number of columns.
    assert abs(sent - here - counted) <= 1.1 * account.lost_sweeps
    packets = (max(arriving) - min(arriving) + 1) - len(set(arriving))
    assert account.total("packets_missing") == packets
    assert account.total("packets_repeated") == len(arriving) - len(set(arriving))
    assert not account.total("packets_corrupt") and not account.total("packets_restarts")


@pytest.mark.parametrize("model", ["PandarXT32", "PandarQT64", "PandarXT16"])
@seeded(3, weight=10, least=170)
def test_packets_with_numbers(model: str, seed: int) -> None:
    dice = random.Random(seed)
    mode = dice.choice([0x37, 0x39])
    lidar = Lidar(model, mode, seed)
    per_turn = int(1e9 / lidar.rate_hz / lidar.decoder.column_ns / lidar.decoder.columns)
    packets, t_ns = lidar.send(lidar.turn(3 * per_turn), dice.choice([0, 2**32 - 900]))
    arriving = disturb(dice, len(packets), dice.choice([4, 40, per_turn, 2 * per_turn]))
    arrived = arrive(dice, packets, t_ns, arriving)
    account = feed(lidar.start(packets), *arrived, batch=dice.choice([7, 64, 500]))
    check(account, lidar, arriving)


@pytest.mark.parametrize("model", ["VLP-16", "VLP-32C", "Pandar40P"])
@seeded(3, weight=10, least=170)
def test_packets_without_numbers(model: str, seed: int) -> None:
    dice = random.Random(seed)
    lidar = Lidar(model, dice.choice([0x37, 0x39]), seed)
    if model == "Pandar40P":
        lidar.decoder = lidar.family.make_decoder(bytes(lidar.decoder._packet)[:1262])
    per_turn = int(1e9 / lidar.rate_hz / lidar.decoder.column_ns / lidar.decoder.columns)
    start_ns = 1_700_000_000 * SECOND_NS + dice.randrange(3600) * SECOND_NS
    packets, t_ns = lidar.send(lidar.turn(3 * per_turn, start_ns, dice.randrange(36000)))
    arriving = disturb(dice, len(packets), dice.choice([4, 40, per_turn, 2 * per_turn]))
    arrived = arrive(dice, packets, t_ns, arriving)
    account = feed(lidar.start(packets), *arrived, batch=dice.choice([7, 64, 500]))
    check(account, lidar, arriving)


@pytest.mark.parametrize("model", [*NUMBERED, *NUMBERLESS])
@pytest.mark.parametrize("step_s", [-0.03, -0.1, 0.1, 1.0, -3600.0, 37.0, 86_400 * 7.0])
def test_a_step_of_the_clock_is_no_loss(model: str, step_s: float) -> None:
    lidar = Lidar(model, 0x37)
    columns = lidar.turn(300)
    packets, t_ns = lidar.send(columns)
    stepped, _ = lidar.send(lidar.turn(300, int(columns.t_ns[0] + step_s * SECOND_NS)))
    account = feed(lidar.start(packets), np.concatenate([packets[:200], stepped[200:]]), t_ns)
    assert account.columns == len(columns.azimuth)
    assert account.total("columns_missing") == account.lost_sweeps == 0
    assert not account.total("packets_repeated") and not account.total("packets_late")
    clock_tells = lidar.decoder.number_bits or step_s % 3600
    assert len(account.find("device_clock_step_ns")) == bool(abs(step_s) > 0.2 and clock_tells)


@pytest.mark.parametrize("model", ["VLP-16", "HDL-32E"])
def test_sweeps_that_are_lost_are_told_from_a_step_of_the_clock(model: str) -> None:
    lidar = Lidar(model, 0x37)
    per_turn = round(1e9 / lidar.rate_hz / lidar.decoder.column_ns / lidar.decoder.columns)
    packets, t_ns = lidar.send(lidar.turn(6 * per_turn))
    kept = [*range(per_turn // 2), *range(per_turn // 2 + 4 * per_turn, 6 * per_turn)]
    account = feed(lidar.start(packets), packets[kept], t_ns[kept])
    check(account, lidar, kept)
    assert account.lost_sweeps == 3


@pytest.mark.parametrize("model", [*NUMBERED, *NUMBERLESS])
def test_packets_that_are_held_up_are_no_loss(model: str) -> None:
    """The network or this machine stalls, and the packets come late, in a burst."""
    lidar = Lidar(model, 0x37)
    columns = lidar.turn(600)
    packets, t_ns = lidar.send(columns)
    t_ns[200:] = np.maximum(t_ns[200:], t_ns[200] + 3 * SECOND_NS)
    account = feed(lidar.start(packets), packets, t_ns)
    assert account.columns == len(columns.azimuth)
    assert account.total("columns_missing") == account.lost_sweeps == 0


def test_a_part_of_the_turn_that_is_left_out_is_no_loss() -> None:
    lidar = Lidar("VLP-16", 0x37)
    turning = lidar.turn(1200)
    inside = np.flatnonzero((turning.azimuth > 9000) & (turning.azimuth < 27_000))
    chosen = inside[: len(inside) // lidar.decoder.columns * lidar.decoder.columns]
    columns = turning.part(0, len(chosen))
    columns.azimuth[:], columns.t_ns[:] = turning.azimuth[chosen], turning.t_ns[chosen]
    packets, t_ns = lidar.send(columns)
    account = feed(lidar.start(packets), packets, np.maximum.accumulate(t_ns))
    assert account.columns == len(chosen)
    assert [len(s.data["t_col"]) for s in account.samples] == [1] * 16
    # Until a packet has shown the part, a gap between packets is counted.
    assert account.total("columns_missing") <= 1808
    assert account.lost_sweeps == 0


def test_three_gaps_of_an_xt32m_are_counted_in_packets() -> None:
    lidar = Lidar("PandarXT32M", 0x37)
    packets, t_ns = lidar.send(lidar.turn(2400), 2**32 - 1000)
    kept = [*range(300), *range(340, 900), *range(912, 1400), *range(2200, 2400)]
    account = feed(lidar.start(packets), packets[kept], t_ns[kept])
    assert account.total("packets_missing") == 40 + 12 + 800
    assert account.lost_sweeps == 1
    check(account, lidar, kept)
