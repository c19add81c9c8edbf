"""The ring: what is taken is sent once and in order, refusals are counted, budgets hold."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.kit.send_ring import SendRing
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import ProtocolError

NAMES = ("a", "b")
SPECS = [StreamSpec(name, (ChannelSpec("x", "raw", "u1", (1,)),)) for name in NAMES]
HEADER = Message(Kind.DATA).nbytes


def data(stream: str, size: int = 36, count: int = 1) -> Message:
    """A data message of `size` + 64 bytes."""
    times = np.arange(count, dtype=np.int64)
    return Message(Kind.DATA, stream=stream, count=count, t_mono_ns=times, frames=[bytes(size)])


def ready(buffer_bytes: int = 1000, window_bytes: int = 1000) -> SendRing:
    ring = SendRing(SPECS, epoch=7)
    ring.hello({}, buffer_bytes=buffer_bytes, window_bytes=window_bytes)
    return ring


def sent(ring: SendRing) -> list[Message]:
    messages = []
    while (message := ring.next_to_send()) is not None:
        ring.mark_sent(message)
        messages.append(message)
    return messages


def test_numbers_are_gap_free_and_a_refusal_takes_seq_in_order() -> None:
    ring = ready(buffer_bytes=200)
    assert ring.offer(data("a", count=3))  # the first uses no budget
    assert ring.offer(data("a"))
    assert ring.offer(data("a"))
    assert ring.offer(data("a", count=5)) is False
    assert not ring.offer(data("a", count=2))
    assert ring.refused == {"a": 7}
    ring.offer(Message(Kind.STATE, stream="a", values={"x": 1}))
    ring.offer(Message(Kind.LOST, stream="a", count=2, values={"cause": "device"}))
    ring.end("eof")
    out = [(m.kind, m.number, m.seq, m.count) for m in sent(ring) if m.stream == "a"]
    assert out == [
        (Kind.DATA, 0, 0, 3),
        (Kind.DATA, 1, 3, 1),
        (Kind.DATA, 2, 4, 1),
        (Kind.LOST, 3, 5, 7),  # before what came after the refused samples
        (Kind.STATE, 4, 12, 0),
        (Kind.LOST, 5, 12, 2),
        (Kind.END, 6, 14, 0),
    ]


def test_refusals_are_told_when_there_is_room_even_if_nothing_follows() -> None:
    ring = ready(buffer_bytes=100)
    assert ring.offer(data("a"))
    assert ring.offer(data("a"))
    assert not ring.offer(data("a", count=4))
    assert not ring.empty
    sent(ring)
    ring.acknowledge({"a": (7, 2, 2)})
    assert [(m.kind, m.count, m.seq) for m in sent(ring)] == [(Kind.LOST, 4, 2)]


def test_a_message_larger_than_the_ring_is_refused_and_told_at_once() -> None:
    """Also as a stream's first, and in an empty ring: nothing would ever make room for it."""
    ring = ready(buffer_bytes=200)
    for _ in range(3):
        assert not ring.offer(data("a", 5000))
    assert [(m.kind, m.number, m.seq, m.count) for m in sent(ring)] == [(Kind.LOST, 0, 0, 3)]
    assert ring.offer(data("a", 136))
    assert ring.offer(data("a", 136))
    assert not ring.offer(data("a", 137))
    out = [(m.kind, m.number, m.seq, m.count) for m in sent(ring)]
    assert out == [(Kind.DATA, 1, 3, 1), (Kind.DATA, 2, 4, 1), (Kind.LOST, 3, 5, 1)]
    assert ring.refused == {"a": 4} and ring.bytes_held == 2 * 200 + 2 * HEADER


def test_a_ring_that_is_in_use_elsewhere_takes_one_that_fits() -> None:
    ring = ready(buffer_bytes=200)
    assert ring.offer(data("a"))
    ring.buffer_bytes = 0  # a session that ends holds the bytes
    assert ring.offer(data("a", 136))
    assert not ring.offer(data("a"))


def test_refusals_in_a_row_are_one_message_until_it_is_sent() -> None:
    ring = ready(buffer_bytes=200)
    for t_ns in (5, 7, 11):
        message = data("a", 5000)
        message.t_mono_ns = np.array([t_ns])
        assert not ring.offer(message)
        if t_ns == 7:
            (lost,) = sent(ring)
            assert (lost.count, lost.t_mono_ns, lost.values["duration_ns"]) == (2, 7, 2)
    (lost,) = sent(ring)
    assert (lost.number, lost.seq, lost.count, lost.t_mono_ns) == (1, 2, 1, 11)


def test_credit_holds_back_but_always_lets_one_message_through() -> None:
    ring = ready(buffer_bytes=10_000, window_bytes=250)
    for size in (36, 36, 36, 5000, 36):
        assert ring.offer(data("a", size))
    assert len(sent(ring)) == 2
    ring.acknowledge({"a": (7, 0, 2)})  # received, not durable: credit is renewed
    assert len(sent(ring)) == 1
    ring.acknowledge({"a": (7, 0, 3)})
    assert len(sent(ring)) == 1  # larger than the window: alone
    assert ring.bytes_held == 4 * 100 + 5064
    ring.acknowledge({"a": (7, 5, 5)})
    assert ring.bytes_held == 0


def test_a_hello_that_expects_the_acknowledged_again_is_an_error() -> None:
    ring = ready()
    for _ in range(3):
        ring.offer(data("a"))
    sent(ring)
    ring.acknowledge({"a": (7, 2, 3)})
    for number in (1, 4):
        with pytest.raises(ProtocolError, match=f"a: the writer expects message {number}"):
            ring.hello({"a": (7, number, number)}, buffer_bytes=1000, window_bytes=1000)
    ring.hello({"a": (7, 2, 2)}, buffer_bytes=1000, window_bytes=1000)
    assert [m.number for m in sent(ring)] == [2]


def test_a_hello_does_not_forgive_what_still_waits_for_the_disk() -> None:
    ring = ready(window_bytes=300)
    for _ in range(5):
        ring.offer(data("a"))
    assert len(sent(ring)) == 3
    ring.hello({"a": (7, 3, 0)}, buffer_bytes=1000, window_bytes=300)
    assert sent(ring) == []
    ring.acknowledge({"a": (7, 0, 3)})
    assert len(sent(ring)) == 2


def test_acknowledgements_of_other_epochs_and_streams_mean_nothing() -> None:
    ring = ready()
    ring.offer(data("a"))
    ring.acknowledge({"a": (6, 1, 1), "z": (7, 1, 1)})
    assert not ring.empty
    ring.hello({"a": (6, 40, 40)}, buffer_bytes=1000, window_bytes=1000)
    assert [m.number for m in sent(ring)] == [0]


def numbered(ring: SendRing) -> list[tuple[int, int, int | None]]:
    return [(m.number, m.seq, m.count) for m in sent(ring)]


def test_few_bytes_join_the_message_before_until_that_was_sent() -> None:
    ring = SendRing(SPECS, epoch=7, merge_bytes=236)
    ring.hello({}, buffer_bytes=1000, window_bytes=1000)
    for _ in range(5):
        assert ring.offer(data("a"))
    # The first has a budget of its own; two and one are 136 + 100 bytes, which is the limit.
    held = ring.bytes_held
    assert numbered(ring) == [(0, 0, 1), (1, 1, 3), (2, 4, 1)]
    assert ring.offer(data("a", count=2))  # what was sent stays as it was
    assert ring.bytes_held == held + 100
    assert numbered(ring) == [(3, 5, 2)]
    ring.hello({"a": (7, 1, 1)}, buffer_bytes=1000, window_bytes=1000)  # to another writer, too
    assert ring.offer(data("a"))
    assert ring.offer(data("a"))
    assert numbered(ring) == [(1, 1, 3), (2, 4, 1), (3, 5, 2), (4, 7, 2)]


def test_only_samples_of_raw_channels_join_and_only_samples() -> None:
    video = StreamSpec("v", (*SPECS[0].channels, ChannelSpec("y", "lzma", "u1", (1, 1))))
    ring = SendRing([*SPECS, video], epoch=7, merge_bytes=1000)
    ring.hello({}, buffer_bytes=1000, window_bytes=1000)
    for _ in range(3):
        assert ring.offer(data("v"))
        assert ring.offer(data("a"))
    assert ring.offer(Message(Kind.STATE, stream="a", values={"x": 1}))
    assert ring.offer(data("a"))
    assert ring.offer(Message(Kind.LOST, stream="a", count=4, values={"cause": "device"}))
    out = [(m.stream, m.kind, m.seq, m.count) for m in sent(ring)]
    assert out == [
        ("a", Kind.DATA, 0, 1),
        ("a", Kind.DATA, 1, 2),
        ("a", Kind.STATE, 3, 0),
        ("a", Kind.DATA, 3, 1),
        ("a", Kind.LOST, 4, 4),
        *[("v", Kind.DATA, n, 1) for n in range(3)],
    ]


def test_each_run_of_refusals_has_its_own_time_and_count() -> None:
    def timed(*times: int) -> Message:
        message = data("a", count=len(times))
        message.t_mono_ns = np.array(times)
        return message

    ring = ready(buffer_bytes=100)
    assert ring.offer(timed(1_000))
    assert ring.offer(timed(2_000))
    assert not ring.offer(timed(3_000, 3_500))
    assert not ring.offer(timed(4_000, 4_600, 4_900))
    sent(ring)
    ring.acknowledge({"a": (7, 2, 2)})
    assert ring.offer(timed(5_000))
    assert not ring.offer(timed(6_000, 6_200))
    assert ring.refused == {"a": 7}, "in all"
    sent_now = sent(ring)
    ring.acknowledge({"a": (7, 4, 4)})
    reported = [m for m in sent_now + sent(ring) if m.kind is Kind.LOST]
    assert [(m.count, m.t_mono_ns, m.values) for m in reported] == [
        (5, 4_900, {"cause": "refused", "duration_ns": 1_900}),
        (2, 6_200, {"cause": "refused", "duration_ns": 200}),
    ]


def test_a_state_takes_no_numbers_whatever_it_counts() -> None:
    ring = ready()
    assert ring.offer(Message(Kind.STATE, stream="a", count=3, values={"x": 1}))
    assert ring.offer(Message(Kind.LOST, stream="a", count=None, values={"cause": "device"}))
    assert ring.offer(data("a"))
    assert numbered(ring) == [(0, 0, 0), (1, 0, None), (2, 0, 1)]


def test_the_credit_is_used_to_its_last_byte() -> None:
    ring = ready(buffer_bytes=10_000, window_bytes=300)
    for _ in range(4):
        ring.offer(data("a"))
    assert len(sent(ring)) == 3
    ring.hello({"a": (7, 0, 0)}, buffer_bytes=10_000, window_bytes=299)
    assert len(sent(ring)) == 2


def test_the_ring_is_used_to_its_last_byte() -> None:
    for size, taken in ((200, True), (199, False)):
        ring = ready(buffer_bytes=size)
        assert ring.offer(data("a")) and ring.offer(data("a"))
        assert ring.offer(data("a")) is taken


def test_after_its_end_a_stream_takes_nothing() -> None:
    ring = ready()
    assert ring.offer(data("b"))
    states = [ring.ended]
    ring.end("changed", "now 3 x 4")
    states.append(ring.ended)
    assert states == [False, True]
    for stream in ("a", "b"):
        with pytest.raises(ProtocolError, match=f"{stream}: a message after the stream's end"):
            ring.offer(data(stream))
    ring.end("stopped")
    ends = [(m.stream, m.values) for m in sent(ring) if m.kind is Kind.END]
    assert ends == [(s, {"reason": "changed", "detail": "now 3 x 4"}) for s in ("a", "b")]
    with pytest.raises(ProtocolError, match="c: a message of a stream that was not declared"):
        ring.offer(data("c"))
