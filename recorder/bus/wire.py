"""Messages on the data plane, and their frames.

A message is a msgpack header followed by zero or more payload frames.  Header keys are single
letters, since every sample pays for them:

====  =======================================================================================
key   meaning
====  =======================================================================================
k     kind, one of `Kind`
s     stream name
e     epoch: names one start of a driver in one session (u64)
m     message number in the epoch, from 0, gap-free over ``data``, ``state``, ``lost``, ``end``
q     ``seq`` of the first sample of a ``data`` or ``lost`` message; elsewhere the next one's
n     count of samples (``data``, ``lost``; None in ``lost`` if the count is unknown)
t     ``t_mono`` in ns, int64 little-endian [n] (``data``); one int elsewhere
d     ``t_dev`` in ns, int64 little-endian [n]; absent without a device clock
z     one u4 little-endian array [n] of encoded sizes per variable-length channel, in order
v     the kind's further values, a mapping (`recorder.bus.messages`)
b     key of the session that it belongs to (first message of a stream in a session)
====  =======================================================================================

Driver to writer: ``join`` (declares the sensor's streams), ``data``, ``state``, ``lost``,
``end``, ``ping``, ``fault``.  Writer to driver: ``who`` (introduce yourself), ``hello`` (session,
next message expected, buffer and credit), ``ack`` (durable through, received through), ``finish``
(the session ends: flush, then send ``end``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgpack
import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, Struct, UnsetType

from recorder.codecs import CHANNEL_FORMATS, Framing
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ProtocolError
from recorder.common.files import Buffer, buffer_size
from recorder.common.struct_codec import Count, describe_problem

TimeArray = npt.NDArray[np.int64]


class Kind(StrEnum):
    """Kinds of messages."""

    JOIN = "join"
    DATA = "data"
    STATE = "state"
    LOST = "lost"
    END = "end"
    PING = "ping"
    FAULT = "fault"
    WHO = "who"
    HELLO = "hello"
    ACK = "ack"
    FINISH = "finish"
    COMMAND = "command"
    STATUS = "status"


OVERHEAD = 64
"""Bytes that `Message.nbytes` counts in addition to the payload."""

NUMBERED = frozenset({Kind.DATA, Kind.STATE, Kind.LOST, Kind.END})
"""Kinds with a message number: kept in the ring until durable, accepted in order only."""


@dataclass(slots=True)
class Message:
    """Message on the data plane; the frames are not copied."""

    kind: Kind
    stream: str = ""
    epoch: int = 0
    number: int = 0
    seq: int = 0
    count: int | None = 0
    t_mono_ns: TimeArray | int = 0
    t_dev_ns: TimeArray | None = None
    sizes: tuple[npt.NDArray[np.uint32], ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    frames: Sequence[Buffer] = ()
    session: str = ""
    _nbytes: int = field(default=0, init=False, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Payload bytes for credit and budgets; never 0, so that many headers count."""
        if not self._nbytes:  # asked for at every station
            self._nbytes = OVERHEAD + sum([buffer_size(frame) for frame in self.frames])
        return self._nbytes

    def join(self, *others: Message) -> None:
        """Append the samples of the stream's next messages; see `StreamSpec.joinable`."""
        messages = (self, *others)
        frames = zip(*[m.frames for m in messages], strict=True)
        self.frames = [b"".join(parts) for parts in frames]
        self.t_mono_ns = np.concatenate([_times(m) for m in messages])
        device = [m.t_dev_ns for m in messages if m.t_dev_ns is not None]
        if self.t_dev_ns is not None:
            self.t_dev_ns = np.concatenate(device)
        self.count = sum([m.count or 0 for m in messages])
        self._nbytes = 0

    @property
    def next_seq(self) -> int:
        """Value of `seq` that follows this message."""
        return self.seq + (self.count or 0)


def _times(message: Message) -> TimeArray:
    times = message.t_mono_ns
    return np.array([times], np.int64) if isinstance(times, int) else times


class _Header(Struct):
    """Header of a message; the module's table explains its keys."""

    k: Kind
    s: str = ""
    e: Count = 0
    m: Count = 0
    q: Count = 0
    n: Count | None = 0
    t: bytes | int = 0
    d: bytes | UnsetType = UNSET
    z: list[bytes] = []
    v: dict[str, Any] = {}
    b: str = ""


_HEADER = msgspec.msgpack.Decoder(_Header)


def encode(message: Message) -> list[Buffer]:
    """Encode a message to header and payload frames; the payload is not copied."""
    header: dict[str, Any] = {"k": message.kind.value}
    if message.stream:
        header["s"] = message.stream
    if message.kind in NUMBERED:
        header |= {"e": message.epoch, "m": message.number, "q": message.seq, "n": message.count}
    elif message.epoch or message.number or message.seq:
        header |= {"e": message.epoch, "m": message.number, "q": message.seq}
    if isinstance(message.t_mono_ns, np.ndarray):
        header["t"] = message.t_mono_ns.astype("<i8", copy=False).tobytes()
    elif message.t_mono_ns:
        header["t"] = message.t_mono_ns
    if message.t_dev_ns is not None:
        header["d"] = message.t_dev_ns.astype("<i8", copy=False).tobytes()
    if message.sizes:
        header["z"] = [z.astype("<u4", copy=False).tobytes() for z in message.sizes]
    if message.values:
        header["v"] = message.values
    if message.session:
        header["b"] = message.session
    return [msgpack.packb(header), *message.frames]


def decode(frames: Sequence[Buffer]) -> Message:
    """Decode the frames of a message; the inverse of `encode`.

    Raises:
        ProtocolError: the frames are not a message; names what is wrong.
    """
    if not frames:
        raise ProtocolError("a message without frames")
    try:
        header = _HEADER.decode(frames[0])
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the header: {describe_problem(str(error))}") from None
    count, times, device = header.n, header.t, header.d
    return Message(
        kind=header.k,
        stream=header.s,
        epoch=header.e,
        number=header.m,
        seq=header.q,
        count=count,
        t_mono_ns=times if isinstance(times, int) else _array(times, "<i8", count, "t"),
        t_dev_ns=None if device is UNSET else _array(device, "<i8", count, "d"),
        sizes=tuple([_array(sizes, "<u4", count, "z") for sizes in header.z]),
        values=header.v,
        frames=frames[1:],
        session=header.b,
    )


def check_data(message: Message, spec: StreamSpec) -> None:
    """Check a data message by its stream's declaration.

    Raises:
        ProtocolError: a count of zero, a frame too few, a frame of the wrong length.
    """
    where = f"{spec.name}: data message {message.number}"
    if not message.count or not isinstance(message.t_mono_ns, np.ndarray):
        raise ProtocolError(f"{where} holds no sample")
    if (message.t_dev_ns is not None) != spec.device_clock:
        raise ProtocolError(f"{where}: device times do not match the declaration")
    if len(message.frames) != len(spec.channels):
        raise ProtocolError(
            f"{where} has {len(message.frames)} frames for {len(spec.channels)} channels"
        )
    sizes = iter(message.sizes)
    for channel, frame in zip(spec.channels, message.frames, strict=True):
        length = buffer_size(frame)
        framing = channel.framing
        if framing is Framing.EACH:
            size = next(sizes, None)
            if size is None or sum(size.tolist()) != length:
                raise ProtocolError(f"{where}: sizes of {channel.name} do not add up to {length}")
            if fault := CHANNEL_FORMATS[channel.format].sizes_fault(size, channel.shape):
                raise ProtocolError(f"{where}: {channel.name}: {fault}")
        elif framing is Framing.PLAIN and length != message.count * channel.sample_bytes:
            raise ProtocolError(
                f"{where}: {channel.name} has {length} bytes, not {message.count} x "
                f"{channel.sample_bytes}"
            )
        elif not length:
            raise ProtocolError(f"{where}: {channel.name} is empty")
    if next(sizes, None) is not None:
        raise ProtocolError(f"{where}: more size arrays than variable channels")


def _array(raw: bytes, dtype: str, count: int | None, key: str) -> npt.NDArray[Any]:
    size = np.dtype(dtype).itemsize
    if count is None or len(raw) != count * size:
        raise ProtocolError(f"header key {key!r} does not hold {count} values of {size} bytes")
    return np.frombuffer(raw, dtype)
