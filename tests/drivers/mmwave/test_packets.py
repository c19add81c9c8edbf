from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.mmwave import packets as dca1000
from drivers.mmwave.frames import AssembledFrame, FrameAssembler, FrameClock, MissedFrames
from drivers.mmwave.packets import PACKET_BYTES, PAYLOAD_BYTES, make_packets
from recorder.common.errors import ProtocolError

Bytes = npt.NDArray[np.uint8]
Out = AssembledFrame | MissedFrames


def stream(packets: int, seed: int = 0) -> Bytes:
    """What goes through the card: no zeros, so that what is missing shows."""
    rng = np.random.default_rng(seed)
    return rng.integers(1, 256, packets * PAYLOAD_BYTES).astype(np.uint8)


def feed(
    assembler: FrameAssembler, packets: Bytes, batch: int = 64, start_ns: int = 0
) -> list[Out]:
    """Packet k arrives at k microseconds; rows are as long as a receiver's."""
    rows = np.zeros((len(packets), 1472), np.uint8)
    rows[:, :PACKET_BYTES] = packets
    out: list[Out] = []
    for k in range(0, len(rows), batch):
        part = rows[k : k + batch].copy()
        t_ns = start_ns + 1000 * np.arange(k, k + len(part), dtype=np.int64)
        out += assembler.take(part, np.full(len(part), PACKET_BYTES, np.int64), t_ns)
        part[:] = 0xEE  # the receiver's memory is used again
    return out


def whole(out: list[Out], payload: Bytes, size: int, first: int = 0) -> None:
    """All that came is right, in order, and whole."""
    for k, frame in enumerate(out, first):
        assert isinstance(frame, AssembledFrame)
        assert (frame.index, frame.bytes_missing, frame.packets_lost) == (k, 0, 0)
        assert frame.data.tobytes() == payload[k * size : (k + 1) * size].tobytes()


@pytest.mark.parametrize("size", [60, 1000, 1456, 1458, 4000, 14560, 100_000])
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_frames_of_any_size_come_back(size: int, batch: int) -> None:
    payload = stream(150)
    out = feed(FrameAssembler(size), make_packets(payload, 0), batch)
    assert len(out) == len(payload) // size
    whole(out, payload, size)


def test_the_stamp_is_that_of_the_last_packet_that_ends_in_the_frame() -> None:
    out = feed(FrameAssembler(4 * PAYLOAD_BYTES), make_packets(stream(8), 0))
    assert [frame.t_ns for frame in out] == [3000, 7000]
    # The packet with a frame's last bytes comes with the next frame's first ones.
    packets = make_packets(stream(12), 0)
    out = feed(FrameAssembler(4 * PAYLOAD_BYTES + 100), packets)
    assert [frame.t_ns for frame in out] == [3000, 7000]
    # A frame that lies within a packet has only that.
    out = feed(FrameAssembler(400), make_packets(stream(2), 0))
    assert [frame.t_ns for frame in out] == [0, 0, 0, 0, 1000, 1000, 1000]


def test_whole_frames_that_are_lost_are_counted() -> None:
    size, payload = 3000, stream(9000)
    packets = np.delete(make_packets(payload, 0), np.s_[10:8500], axis=0)
    out = feed(FrameAssembler(size), packets)
    missed = [frame for frame in out if isinstance(frame, MissedFrames)]
    frames = [frame for frame in out if isinstance(frame, AssembledFrame)]
    assert missed[0].index == 5 and missed[0].count > 4000  # the rest as the window moves on
    assert len(frames) + sum(m.count for m in missed) == len(payload) // size
    assert sum(f.packets_lost for f in out) == 8490
    k = 0
    for frame in out:
        assert frame.index == k
        k += frame.count if isinstance(frame, MissedFrames) else 1
    assert [f.bytes_missing for f in frames if f.bytes_missing] == [3000 - 2560, 1000]


def test_late_packets_find_their_place_within_the_window() -> None:
    payload = stream(400)
    packets = make_packets(payload, 0)
    order = list(range(400))
    order.insert(130, order.pop(100))  # 30 packets late, and later than its frame's successor
    assembler = FrameAssembler(5000, window=64)
    out = feed(assembler, packets[order])
    whole(out, payload, 5000)
    assert len(out) == 400 * PAYLOAD_BYTES // 5000
    assert (assembler.reordered, assembler.late, assembler.duplicates) == (1, 0, 0)
    # A frame is as old as its newest packet that ends in it.
    assert out[100 * PAYLOAD_BYTES // 5000].t_ns == 130_000


def test_a_packet_beyond_the_window_is_lost_and_told_as_late() -> None:
    packets = make_packets(stream(400), 0)
    order = list(range(400))
    order.insert(300, order.pop(100))
    assembler = FrameAssembler(5000, window=64)
    out = feed(assembler, packets[order])
    assert (assembler.reordered, assembler.late) == (0, 1)
    assert sum(frame.packets_lost for frame in out) == 1


def test_duplicates_are_dropped() -> None:
    payload = stream(200)
    packets = make_packets(payload, 0)
    order = sorted([*range(200), *range(200), 3, 3])
    order += [50]  # of a frame that is gone already
    assembler = FrameAssembler(4321)
    out = feed(assembler, packets[order])
    whole(out, payload, 4321)
    assert assembler.duplicates == 203
    assert assembler.late == assembler.corrupt == 0


@pytest.mark.parametrize("bit", range(80))
def test_any_bit_of_a_header_that_is_wrong_is_noticed(bit: int) -> None:
    payload = stream(20)
    packets = make_packets(payload, 0)
    packets[9, bit // 8] ^= 1 << bit % 8
    assembler = FrameAssembler(PAYLOAD_BYTES * 2, window=4)
    out = feed(assembler, packets)
    assert assembler.corrupt == 1
    assert [f.packets_corrupt for f in out] == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    assert not any(f.packets_lost for f in out)


@pytest.mark.parametrize("size", [0, 9, 10, PACKET_BYTES - 1, PACKET_BYTES + 1])
def test_a_packet_of_another_length_is_not_used(size: int) -> None:
    packets = make_packets(stream(20), 0)
    rows = np.zeros((20, 1600), np.uint8)
    rows[:, :PACKET_BYTES] = packets
    sizes = np.full(20, PACKET_BYTES, np.int64)
    sizes[7] = size
    assembler = FrameAssembler(PAYLOAD_BYTES * 2, window=4)
    out = assembler.take(rows, sizes, np.zeros(20, np.int64))
    assert [f.packets_corrupt for f in out] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]


def test_numbers_and_counts_go_round() -> None:
    """After 2^32 packets (a day at the highest rate), and after 2^48 bytes."""
    for beyond in (1 << 32, -(-(1 << 48) // PAYLOAD_BYTES)):
        first = (beyond - 20) * PAYLOAD_BYTES // 2000 + 1
        payload = stream(60)
        begin = first * 2000 // PAYLOAD_BYTES
        packets = make_packets(payload, begin)
        assembler = FrameAssembler(2000, first=first)
        out = feed(assembler, packets)
        assert len(out) > 40 and not assembler.corrupt
        skip = first * 2000 - begin * PAYLOAD_BYTES
        for k, frame in enumerate(out):
            assert isinstance(frame, AssembledFrame) and frame.index == first + k
            at = skip + k * 2000
            assert frame.data.tobytes() == payload[at : at + 2000].tobytes()


def test_a_card_that_counts_from_nought() -> None:
    payload = stream(20)
    packets = make_packets(payload, 0)
    numbers = packets[:, :4].copy().view("<u4")
    packets[:, :4] = (numbers - 1).view(np.uint8)
    assembler = FrameAssembler(2000)
    out = feed(assembler, packets)
    whole(out, payload, 2000)
    assert len(out) == 14 and not assembler.corrupt


def test_a_card_that_counts_anew_is_noticed() -> None:
    assembler = FrameAssembler(50_000)
    feed(assembler, make_packets(stream(4_000), 0))
    with pytest.raises(ProtocolError, match="has restarted its count"):
        feed(assembler, make_packets(stream(1600), 0))


def test_what_never_was_a_capture_is_noticed() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(ProtocolError, match="1024 consecutive packets"):
        feed(FrameAssembler(50_000), rng.integers(0, 256, (1600, PACKET_BYTES)).astype(np.uint8))


def test_the_beginning_of_a_capture_may_be_lost() -> None:
    payload = stream(40)
    out = feed(FrameAssembler(2000, window=4), make_packets(payload, 0)[3:])
    assert [type(f) for f in out[:3]] == [MissedFrames, AssembledFrame, AssembledFrame]
    assert sum(f.packets_lost for f in out) == 3
    last = out[3:]
    whole(last, payload, 2000, first=last[0].index)


def test_flush_gives_what_is_there() -> None:
    payload = stream(10)
    assembler = FrameAssembler(10_000, window=64)
    packets = np.delete(make_packets(payload, 0), [2], axis=0)
    assert feed(assembler, packets[:8]) == []  # bytes up to 13104; the window holds them back
    one, two = assembler.flush()
    assert isinstance(one, AssembledFrame) and isinstance(two, AssembledFrame)
    expected = payload[:20_000].copy()
    expected[2 * PAYLOAD_BYTES : 3 * PAYLOAD_BYTES] = 0
    expected[9 * PAYLOAD_BYTES :] = 0
    assert np.concatenate([one.data, two.data])[:14560].tobytes() == expected[:14560].tobytes()
    assert not two.data[3104:].any()
    assert (one.packets_lost, one.bytes_missing) == (1, PAYLOAD_BYTES)
    # What the card has not sent yet is missing, not lost.
    assert (two.packets_lost, two.bytes_missing) == (0, 20_000 - 9 * PAYLOAD_BYTES)
    assert assembler.flush() == []


@dataclass
class Network:
    """Loses, repeats and delays packets, and knows what it did."""

    order: list[int] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    repeated: int = 0

    @classmethod
    def of(cls, packets: int, seed: int, window: int) -> Network:
        rng, network = random.Random(seed), cls()
        places: list[tuple[float, int]] = []
        rates = [rng.choice([0.0, 0.01, 0.2]) for _ in range(3)]
        k = 0
        while k < packets:
            if rng.random() < rates[0] * 0.3:  # a burst
                burst = rng.choice([1, 1, 5, 300])
                network.lost.update(range(k, min(k + burst, packets)))
                k += burst
                continue
            delay = rng.uniform(0, window / 2) if rng.random() < rates[1] else 0.0
            places.append((k + delay, k))
            if rng.random() < rates[2]:
                network.repeated += 1
                places.append((k + delay + rng.uniform(0, window / 2), k))
            k += 1
        network.order = [k for _, k in sorted(places)]
        return network


@given(
    seed=st.integers(0, 10**9),
    size=st.sampled_from([2, 600, 1456, 5000, 30_000, 91_728]),
    batch=st.sampled_from([1, 13, 64, 1000]),
)
def test_whatever_the_network_does(seed: int, size: int, batch: int) -> None:
    """Counted loss equals injected loss, and every byte is its own or zero."""
    payload = stream(400 if size > 100 else 6, seed=1)
    count = len(payload) // PAYLOAD_BYTES
    network = Network.of(count, seed, window=64)
    # A quiet end, so that all frames are given.
    tail = range(count - 70, count) if count > 200 else range(0)
    network.order = [k for k in network.order if k not in tail] + list(tail)
    network.lost -= set(tail)
    assembler = FrameAssembler(size, window=64)
    out = feed(assembler, make_packets(payload, 0)[network.order], batch) + assembler.flush()

    expected = payload.copy().reshape(-1, PAYLOAD_BYTES)
    expected[sorted(network.lost)] = 0
    flat, k = expected.reshape(-1), 0
    for frame in out:
        assert frame.index == k
        if isinstance(frame, MissedFrames):
            assert not flat[k * size : (k + frame.count) * size].any()
            k += frame.count
            continue
        true = flat[k * size : (k + 1) * size]
        assert frame.data[: len(true)].tobytes() == true.tobytes()
        assert frame.bytes_missing == np.count_nonzero(true == 0) + size - len(true)
        k += 1
    unfinished = {n for n in network.lost if n * PAYLOAD_BYTES >= k * size}
    assert sum(frame.packets_lost for frame in out) == len(network.lost - unfinished)
    assert assembler.late == assembler.corrupt == 0
    if count > 200:
        assert not unfinished


def seen(times: list[float], indices: list[int] | None = None) -> list[int]:
    """What the clock of a radar with a period of 1 s says of each frame's stamp, in s."""
    clock = FrameClock(1_000_000_000)
    pairs = zip(indices or range(len(times)), times, strict=True)
    return [clock.see(k, round(t * 1e9)) for k, t in pairs]


def test_frames_that_the_radar_left_out_are_counted_once() -> None:
    rng = random.Random(1)
    times = [k + rng.uniform(0, 0.05) for k in range(30) if not 6 <= k < 9]
    assert sum(seen(times)) == 3 and seen(times)[14] == 3


def test_frames_that_the_network_lost_are_not_left_out() -> None:
    kept = [k for k in range(30) if not 6 <= k < 9]
    assert not any(seen([float(k) for k in kept], kept))


def test_frames_that_were_held_up_are_not_left_out() -> None:
    # For a while, and then all at once; for ever longer; by half a period, for good; little by
    # little, and then at an even pace.
    assert not any(seen([0, 1, 2, 6, 6.1, 6.2, 6.3, 7, 8, 9, 10, 11, 12, 13, 14, 15]))
    assert not any(seen([k + min(k, 10) * 0.4 for k in range(40)]))
    assert not any(seen([k * 1.3 for k in range(40)]))
    assert not any(seen([k + 0.5 * (k > 5) for k in range(40)]))


def test_two_gaps_are_two_counts() -> None:
    times = [float(k) for k in range(60) if k not in (6, 30, 31)]
    assert [lost for lost in seen(times) if lost] == [1, 2]


def test_a_clock_that_drifts_is_followed() -> None:
    assert not any(seen([k * 1.0005 for k in range(5000)]))


def test_commands_and_answers() -> None:
    raw = struct.pack("<HHH6sH", 0xA55A, 0x0B, 6, b"\xbe\x05\x71\x02\x00\x00", 0xEEAA)
    command = dca1000.parse_command(raw)
    assert (command.code, command.data) == (dca1000.CONFIG_RECORD, raw[6:12])
    answer = dca1000.Answer(dca1000.START_RECORD, 1)
    assert dca1000.Answer.parse(answer.to_bytes()) == answer
    for bad in (
        b"",
        raw[:-1],
        raw + b"\0",
        b"\0" + raw[1:],
        raw[:-2] + b"\0\0",
        raw[:4] + b"\xff" * 10,
    ):
        with pytest.raises(ProtocolError):
            dca1000.parse_command(bad)
    for bad in (b"", raw, answer.to_bytes()[:-1], bytes(8)):
        with pytest.raises(ProtocolError):
            dca1000.Answer.parse(bad)
