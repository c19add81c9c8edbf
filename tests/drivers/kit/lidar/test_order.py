"""Packets that are lost, late, repeated, and numbered anew."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from drivers.kit.lidar.order import WINDOW, PacketOrder


def run(numbers: list[int], bits: int, batches: int) -> tuple[PacketOrder, list[int], list[int]]:
    """Return the numbers that come out, and what is missing before each."""
    order, out, missing = PacketOrder(bits), list[int](), list[int]()
    values = np.array(numbers, np.int64)
    for part in np.array_split(np.arange(len(values)), batches):
        if not len(part):
            continue
        packets = values[part].astype("<i8")[:, None].view(np.uint8)
        own = (values[part] % (1 << bits)).astype(np.uint32)
        found = order.take(packets, part.astype(np.int64), own)
        out += found.packets.copy().view("<i8")[:, 0].tolist()
        missing += found.missing.tolist()
    found = order.finish(8)
    out += found.packets.copy().view("<i8")[:, 0].tolist() if len(found) else []
    return order, out, missing + found.missing.tolist()


@given(
    seed=st.integers(0, 1 << 32),
    count=st.integers(1, 400),
    bits=st.sampled_from([16, 32]),
    first=st.sampled_from([0, 5, 65_300, (1 << 32) - 100]),
    lost=st.floats(0, 0.5),
    repeated=st.floats(0, 0.3),
    shuffled=st.integers(0, 20),
    batches=st.integers(1, 9),
)
def test_given_and_missing_packets_are_those_that_were_sent(
    seed: int,
    count: int,
    bits: int,
    first: int,
    lost: float,
    repeated: float,
    shuffled: int,
    batches: int,
) -> None:
    dice = random.Random(seed)
    sent = list(range(first, first + count))
    arriving = [sent[0], *(n for n in sent[1:] if dice.random() >= lost)]
    copies = [n for n in arriving if dice.random() < repeated]
    mixed = sorted([*arriving[1:], *copies], key=lambda n: n + dice.random() * shuffled)
    order, out, missing = run([sent[0], *mixed], bits, batches)
    assert out == sorted(set(arriving)) and order.restarts == order.late == 0
    assert len(out) + sum(missing) == out[-1] - first + 1
    assert order.repeated == len(copies)


def test_a_packet_behind_the_window_is_late_and_stays_counted() -> None:
    numbers = [0, *range(2, WINDOW + 4), 1, 1, *range(WINDOW + 4, WINDOW + 9)]
    order, out, missing = run(numbers, 32, 3)
    assert 1 not in out and sum(missing) == 1
    assert (order.late, order.repeated) == (2, 0)


def test_a_device_that_starts_again_soon_loses_nothing() -> None:
    numbers = [*range(200), *range(150)]
    order, out, missing = run(numbers, 32, 5)
    assert out == numbers and sum(missing) == 0
    assert (order.restarts, order.repeated, order.late) == (1, 0, 0)


def test_a_device_that_counts_anew_loses_nothing() -> None:
    order, out, missing = run([900_000, 900_001, 0, 1, 2], 32, 2)
    assert out == [900_000, 900_001, 0, 1, 2] and sum(missing) == 0 and order.restarts == 1
