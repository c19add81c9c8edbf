"""Messages and frames: both ways unchanged, and foreign bytes are told apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recorder.bus.wire import NUMBERED, Kind, Message, check_data, decode, encode
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import ProtocolError

I64 = st.integers(-(2**63), 2**63 - 1)
COUNTS = st.integers(0, 2**40)
VALUES = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | I64 | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=5,
    ),
    max_size=4,
)
FRAMES = st.lists(st.binary(max_size=200), max_size=4)


@st.composite
def data_messages(draw: st.DrawFn) -> Message:
    count = draw(st.integers(1, 20))
    times = st.lists(I64, min_size=count, max_size=count)
    sizes = st.lists(st.integers(0, 2**32 - 1), min_size=count, max_size=count)
    return Message(
        Kind.DATA,
        stream=draw(st.text(max_size=10)),
        epoch=draw(COUNTS),
        number=draw(COUNTS),
        seq=draw(COUNTS),
        count=count,
        t_mono_ns=np.array(draw(times), np.int64),
        t_dev_ns=draw(st.none() | times.map(lambda t: np.array(t, np.int64))),
        sizes=tuple(np.array(draw(sizes), np.uint32) for _ in range(draw(st.integers(0, 3)))),
        values=draw(VALUES),
        frames=draw(FRAMES),
    )


other_messages = st.builds(
    Message,
    kind=st.sampled_from([k for k in Kind if k is not Kind.DATA]),
    stream=st.text(max_size=10),
    epoch=COUNTS,
    number=COUNTS,
    seq=COUNTS,
    count=st.just(0),
    t_mono_ns=st.integers(0, 2**63 - 1),
    values=VALUES,
    frames=FRAMES,
) | st.builds(
    Message, kind=st.just(Kind.LOST), count=st.none() | COUNTS, t_mono_ns=I64, values=VALUES
)


def plain(message: Message) -> dict[str, Any]:
    """A message's content, comparable."""
    times = message.t_mono_ns
    return {
        "kind": message.kind,
        "stream": message.stream,
        "numbers": (message.epoch, message.number, message.seq, message.count),
        "t": times if isinstance(times, int) else times.tolist(),
        "d": None if message.t_dev_ns is None else message.t_dev_ns.tolist(),
        "z": [z.tolist() for z in message.sizes],
        "v": message.values,
        "frames": [bytes(f) for f in message.frames],
    }


@given(data_messages() | other_messages)
def test_what_is_encoded_decodes_to_itself(message: Message) -> None:
    frames = [bytes(frame) for frame in encode(message)]
    assert plain(decode(frames)) == plain(message)


def test_payload_frames_are_passed_on_not_copied() -> None:
    payload = bytearray(100)
    frames = encode(Message(Kind.DATA, frames=[payload, memoryview(payload)[10:]]))
    assert frames[1] is payload and isinstance(frames[2], memoryview)
    assert decode(frames).frames[0] is payload


def test_bytes_count_whatever_the_items_size() -> None:
    view = np.zeros((3, 5), "<f8").data
    assert Message(Kind.DATA, frames=[view, b"12"]).nbytes == 64 + 120 + 2
    assert Message(Kind.END).nbytes > 0


def test_next_seq_of_an_uncounted_loss_is_its_own() -> None:
    assert Message(Kind.LOST, seq=5, count=None).next_seq == 5
    assert Message(Kind.LOST, seq=5, count=3).next_seq == 8
    assert frozenset({Kind.DATA, Kind.STATE, Kind.LOST, Kind.END}) == NUMBERED


@given(st.lists(st.binary(max_size=60), max_size=4))
@example([b"\xc7\x04\xff\x00\x00\x00\x00"])  # an extension: a timestamp of wrong length
@example([b"\xc7\x0c\xff" + b"\xff" * 12])  # and one with a billion of seconds too many
@example([b"\xdd\xff\xff\xff\xff"])  # an array that claims to be huge
@example([b"\x81\x90\x01"])  # a mapping with a list for a key
@example([b"\x91" * 2000])
def test_arbitrary_bytes_raise_nothing_but_a_protocol_error(frames: list[bytes]) -> None:
    try:
        decode(frames)
    except ProtocolError as error:
        assert str(error)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys("semqntdzv", ANYTHING) | {"k": st.sampled_from(list(Kind))}
    )
    | ANYTHING
)
@example({"k": "data", "n": -1})
@example({"k": []})
@example({"k": "data", "z": [None]})
@example({"k": "data", "n": None, "t": b""})
def test_a_header_of_the_right_shape_with_wrong_values(header: Any) -> None:
    """Decoded or refused, and what is decoded holds together."""
    try:
        message = decode([msgpack.packb(header)])
    except ProtocolError:
        return
    assert message.kind == header["k"]
    assert min(message.epoch, message.number, message.seq, message.count or 0) >= 0
    arrays = [message.t_dev_ns, *message.sizes]
    if not isinstance(message.t_mono_ns, int):
        arrays.append(message.t_mono_ns)
    assert all(len(a) == message.count for a in arrays if a is not None)


@given(data_messages(), st.data())
def test_damaged_headers(message: Message, data: st.DataObject) -> None:
    frames = [bytes(frame) for frame in encode(message)]
    header = bytearray(frames[0])
    at = data.draw(st.integers(0, len(header) - 1))
    header[at] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.integers(0, len(header)))
    for damaged in (bytes(header), bytes(header[:cut])):
        try:
            decode([damaged, *frames[1:]])
        except ProtocolError as error:
            assert str(error)


def test_no_frames_at_all() -> None:
    with pytest.raises(ProtocolError, match="without frames"):
        decode([])


SPEC = StreamSpec(
    "lidar",
    (
        ChannelSpec("rng", "lzmaf", "u2", (4, 8)),
        ChannelSpec("n", "raw", "u4", (2,)),
        ChannelSpec("valid", "lzma", "u1"),
        ChannelSpec("v", "mjpg", "u1", (4, 4, 3)),
    ),
    device_clock=True,
)


def good() -> Message:
    return Message(
        Kind.DATA,
        stream="lidar",
        number=3,
        count=2,
        t_mono_ns=np.array([1, 2]),
        t_dev_ns=np.array([1, 2]),
        sizes=(np.array([10, 20], np.uint32), np.array([5, 6], np.uint32)),
        frames=[bytes(30), bytes(16), bytes(9), bytes(11)],
    )


def frame(i: int, length: int) -> Callable[[Message], None]:
    def change(message: Message) -> None:
        frames = list(message.frames)
        frames[i] = bytes(length)
        message.frames = frames

    return change


def assign(**values: Any) -> Callable[[Message], None]:
    def change(message: Message) -> None:
        for name, value in values.items():
            setattr(message, name, value)

    return change


def sizes(i: int, values: list[int]) -> Callable[[Message], None]:
    def change(message: Message) -> None:
        all_sizes = list(message.sizes)
        all_sizes[i] = np.array(values, np.uint32)
        message.sizes = tuple(all_sizes)

    return change


def test_a_consistent_data_message_passes() -> None:
    check_data(good(), SPEC)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (assign(count=0), "holds no sample"),
        (assign(count=None), "holds no sample"),
        (assign(t_mono_ns=5), "holds no sample"),
        (assign(t_dev_ns=None), "device times"),
        (assign(frames=[bytes(30), bytes(16), bytes(9)]), "3 frames for 4 channels"),
        (assign(frames=[]), "0 frames for 4 channels"),
        (frame(0, 31), "sizes of rng do not add up to 31"),
        (frame(1, 15), "n has 15 bytes, not 2 x 8"),
        (frame(1, 24), "n has 24 bytes, not 2 x 8"),
        (frame(2, 0), "valid is empty"),
        (frame(3, 10), "sizes of v do not add up to 10"),
        (sizes(0, [30, 0]), "rng: a sample has no bytes"),
        (sizes(0, [10, 19]), "sizes of rng"),
        (sizes(1, [2**32 - 1, 12]), "sizes of v"),  # the sum must not wrap around
        (assign(sizes=()), "sizes of rng"),
        (assign(sizes=good().sizes[:1]), "sizes of v"),
        (assign(sizes=(*good().sizes, np.array([1, 1], np.uint32))), "more size arrays"),
    ],
)
def test_each_inconsistency_is_named(change: Callable[[Message], None], text: str) -> None:
    message = good()
    change(message)
    with pytest.raises(ProtocolError, match="lidar: data message 3") as caught:
        check_data(message, SPEC)
    assert text in str(caught.value)


def test_device_times_without_a_device_clock() -> None:
    spec = StreamSpec("imu", (ChannelSpec("acc", "raw", "f4", (3,)),))
    message = Message(
        Kind.DATA, count=1, t_mono_ns=np.array([1]), t_dev_ns=np.array([1]), frames=[bytes(12)]
    )
    with pytest.raises(ProtocolError, match="device times"):
        check_data(message, spec)
    message.t_dev_ns = None
    check_data(message, spec)


def test_bytes_of_any_length_may_be_none_but_not_too_many() -> None:
    spec = StreamSpec("front", (ChannelSpec("payload", "bytes", "u1", (8,)),))

    def message(lengths: list[int]) -> Message:
        return Message(
            Kind.DATA, "front", count=len(lengths), t_mono_ns=np.arange(len(lengths)),
            sizes=(np.array(lengths, np.uint32),), frames=[bytes(sum(lengths))],
        )  # fmt: skip

    for lengths in ([0], [0, 0, 0], [8, 0, 1]):
        check_data(message(lengths), spec)
    with pytest.raises(ProtocolError, match="payload: 9 bytes where at most 8 are declared"):
        check_data(message([1, 9]), spec)
