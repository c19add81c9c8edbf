"""What waits for the tap: small samples become one message, in order, and memory is bounded."""

from __future__ import annotations

import numpy as np

from drivers.kit.send_ring import SMALL_BYTES, SendRing
from drivers.kit.writer_link import TapQueue
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec

IMU = StreamSpec("imu", (ChannelSpec("x", "raw", "u1", (1,)), ChannelSpec("y", "raw", "u1", (2,))))
GNSS = StreamSpec("gnss", (ChannelSpec("x", "raw", "u1", (1,)),))
CAMERA = StreamSpec("camera", (ChannelSpec("picture", "mjpg", "u1", (8, 8, 3)),))
SPECS = (IMU, GNSS, CAMERA)


def sample(number: int, stream: str = "imu", size: int = 1) -> Message:
    times = np.array([number], np.int64)
    return Message(
        Kind.DATA,
        stream,
        count=1,
        t_mono_ns=times,
        t_dev_ns=times + 5,
        frames=[bytes([number % 256]) * size, bytes([number % 256]) * 2 * size],
    )


def times(message: Message) -> list[int]:
    assert isinstance(message.t_mono_ns, np.ndarray)
    return [int(t_ns) for t_ns in message.t_mono_ns]


def test_small_samples_of_a_stream_are_one_message() -> None:
    queue = TapQueue(SPECS)
    assert not queue
    for number in range(3):
        queue.put(sample(number))
        queue.put(sample(number, "gnss"))
    assert queue
    imu, gnss = queue.take()
    assert (imu.stream, imu.count, times(imu)) == ("imu", 3, [0, 1, 2])
    assert imu.t_dev_ns is not None and imu.t_dev_ns.tolist() == [5, 6, 7]
    assert [bytes(frame) for frame in imu.frames] == [b"\0\1\2", b"\0\0\1\1\2\2"]
    assert (gnss.stream, times(gnss)) == ("gnss", [0, 1, 2])
    assert not queue and queue.take() == []


def test_a_large_sample_and_a_state_keep_their_place() -> None:
    queue = TapQueue(SPECS)
    queue.put(sample(0))
    queue.put(sample(1, size=SMALL_BYTES))
    queue.put(sample(2))
    queue.put(Message(Kind.STATE, "imu", t_mono_ns=3))
    queue.put(sample(4))
    queue.put(sample(5))
    got = queue.take()
    assert [times(m) if m.kind is Kind.DATA else m.t_mono_ns for m in got] == [
        [0],
        [1],
        [2],
        3,
        [4, 5],
    ]


def test_encoded_samples_are_not_joined() -> None:
    queue = TapQueue(SPECS)
    for number in range(2):
        queue.put(sample(number, "camera"))
    assert [m.count for m in queue.take()] == [1, 1]


def test_the_writers_messages_are_the_same_and_number_those_of_the_tap() -> None:
    """The ring joins what it has not sent; the tap keeps samples of its own, with numbers."""
    rings = []
    for watched in (True, False):
        ring, queue = SendRing((IMU,), epoch=7, merge_bytes=SMALL_BYTES), TapQueue(SPECS)
        ring.hello({}, buffer_bytes=800, window_bytes=10_000)
        for number in range(8):
            message = sample(number, size=300 if number == 3 else 1)
            assert ring.offer(message) is (number != 3), "the ring has no room for it"
            if watched:
                queue.put(message)
        sequence = []
        while (sent := ring.next_to_send()) is not None:
            ring.mark_sent(sent)
            sequence.append(
                (sent.kind, sent.number, sent.seq, sent.count, [*map(bytes, sent.frames)])
            )
        rings.append(sequence)
        if watched:
            got = [(m.epoch, m.seq, times(m)) for m in queue.take()]
            assert got == [(7, 0, [0, 1, 2]), (0, 0, [3]), (7, 4, [4, 5, 6, 7])]
    assert rings[0] == rings[1]


def test_what_is_not_taken_is_bounded_and_the_latest_is_kept() -> None:
    queue = TapQueue(SPECS)
    for number in range(5000):
        queue.put(sample(number))
    got = queue.take()
    held = [t for message in got for t in times(message)]
    assert held == list(range(5000 - len(held), 5000)) and 100 < len(held) < 600
