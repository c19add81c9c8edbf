from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from drivers.mmwave.packets import HEADER_BYTES, PAYLOAD_BYTES
from drivers.mmwave.simulated import CardBuffer, FramePackets


class Source:
    """Frames of random values, and how often each was made."""

    def __init__(self, values: int) -> None:
        self._values = values
        self.made: Counter[int] = Counter()

    def frame(self, index: int) -> npt.NDArray[np.int16]:
        self.made[index] += 1
        rng = np.random.default_rng(index)
        return rng.integers(-32768, 32768, (2, self._values // 2)).astype("<i2")


@pytest.mark.parametrize("values", [10, 500, 728, 1000, 50_000])
def test_packets_of_a_frame_are_those_that_the_card_sends(values: int) -> None:
    source, card = Source(values), CardBuffer()
    sent = np.concatenate([card.push(source.frame(k)) for k in range(40)])
    assert card.sent == len(sent) == 40 * values * 2 // PAYLOAD_BYTES
    assert card.waiting == 40 * values * 2 % PAYLOAD_BYTES
    stream = sent[:, HEADER_BYTES:].tobytes()
    assert stream == b"".join(source.frame(k).tobytes() for k in range(40))[: len(stream)]
    packets = FramePackets(source.frame, values * 2)
    for index in (0, 1, 2, 17, 3):
        held = packets.holding(index)
        first = index * values * 2 // PAYLOAD_BYTES
        known = sent[first : first + len(held)]
        np.testing.assert_array_equal(held[: len(known)], known)
        assert held[0, 4:10].tobytes() == (first * PAYLOAD_BYTES).to_bytes(6, "little")
        assert held[0, :4].tobytes() == (first + 1).to_bytes(4, "little")
        assert first * PAYLOAD_BYTES <= index * values * 2
        assert (first + len(held)) * PAYLOAD_BYTES >= (index + 1) * values * 2


def test_in_order_each_frame_is_made_once() -> None:
    source = Source(5000)
    packets = FramePackets(source.frame, 10_000)
    for index in range(20):
        packets.holding(index)
    assert set(source.made.values()) == {1} and len(source.made) <= 21
    packets.holding(10**9)  # whatever went before is not made for it
    assert len(source.made) <= 24
