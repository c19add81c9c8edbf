"""CAN frames and UDP datagrams as messages of ROS 2, in both profiles.

Classic frames and frames of CAN FD have a topic each.  A datagram is ``udp_msgs/msg/UdpPacket``, as
ROS 2's drivers send it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from recorder.archives.mcap.ros2_names import ros_topic
from recorder.archives.mcap.topics import Topic
from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.common.files import Buffer
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import CAN_FRAME, FD_FRAME, UDP_PACKET
from recorder.formats.ros2.messages import CanFrame, FdFrame, Header, UdpPacket
from recorder.perception.foxglove.channels import EncodeSamples
from recorder.perception.stream_contents import (
    ERROR,
    EXTENDED,
    FD,
    ID_MASK,
    PAYLOAD,
    REMOTE,
    address_text,
)

COVERED: Final = frozenset({"id", "len", "data"})
"""Channels that the messages contain."""

_Row = tuple[int, int, int, bytes, bool]  # t_ns, id, length, whole data, whether of CAN FD
_Made = list[tuple[int, Sequence[Buffer]]]


def can_topics(name: str, frame: str, spec: StreamSpec) -> list[tuple[Topic, EncodeSamples]]:
    """Return topics with a message for each frame: ``NAME`` and, for frames of CAN FD, ``NAME_fd``.

    Args:
        name: name of the topic of classic frames.
        frame: frame of the headers.
        spec: declaration of a stream of frames.
    """
    at = {channel.name: k for k, channel in enumerate(spec.channels)}
    width = spec.channel("data").shape[0]

    def rows(message: Message, offset_ns: int) -> Iterator[_Row]:
        frames = [memoryview(each).cast("B") for each in message.frames]
        ids = np.frombuffer(frames[at["id"]], "<u4").tolist()
        data = bytes(frames[at["data"]])
        stamps = np.atleast_1d(message.t_mono_ns).tolist()
        found = zip(stamps, ids, frames[at["len"]], frames[at["flags"]], strict=True)
        for k, (t_ns, number, length, flags) in enumerate(found):
            payload = data[k * width : (k + 1) * width]
            yield t_ns + offset_ns, number, length, payload, bool(flags & FD)

    def classic(message: Message, offset_ns: int) -> _Made:
        return [
            (
                t_ns,
                encode_message(CAN_FRAME, _classic(Header(t_ns, frame), number, length, payload)),
            )
            for t_ns, number, length, payload, is_fd in rows(message, offset_ns)
            if not is_fd
        ]

    def fd(message: Message, offset_ns: int) -> _Made:
        return [
            (t_ns, encode_message(FD_FRAME, _fd(Header(t_ns, frame), number, payload[:length])))
            for t_ns, number, length, payload, is_fd in rows(message, offset_ns)
            if is_fd
        ]

    topics: list[tuple[Topic, EncodeSamples]] = [(ros_topic(name, CAN_FRAME), classic)]
    if width > 8:
        topics.append((ros_topic(f"{name}_fd", FD_FRAME), fd))
    return topics


def _classic(header: Header, number: int, length: int, data: bytes) -> CanFrame:
    remote, extended, error = (bool(number & flag) for flag in (REMOTE, EXTENDED, ERROR))
    return CanFrame(header, number & ID_MASK, remote, extended, error, length, data[:8])


def _fd(header: Header, number: int, data: bytes) -> FdFrame:
    extended, error = (bool(number & flag) for flag in (EXTENDED, ERROR))
    return FdFrame(header, number & ID_MASK, extended, error, len(data), data)


def packet_topic(name: str, frame: str, spec: StreamSpec) -> tuple[Topic, EncodeSamples]:
    """Return a topic with a message for each datagram.

    Args:
        name: name of the topic.
        frame: frame of the headers.
        spec: declaration of a stream of datagrams.
    """
    at = {channel.name: k for k, channel in enumerate(spec.channels)}

    def encode(message: Message, offset_ns: int) -> list[tuple[int, Sequence[Buffer]]]:
        made: list[tuple[int, Sequence[Buffer]]] = []
        frames = [memoryview(each).cast("B") for each in message.frames]
        (sizes,) = message.sizes
        ends = np.cumsum(sizes, dtype=np.int64).tolist()
        sources = bytes(frames[at["source"]])
        ports = np.frombuffer(frames[at["source_port"]], "<u2").tolist()
        payload, start = frames[at[PAYLOAD]], 0
        for k, t_ns in enumerate(np.atleast_1d(message.t_mono_ns).tolist()):
            header = Header(t_ns + offset_ns, frame)
            address = address_text(sources[16 * k : 16 * k + 16])
            packet = UdpPacket(header, address, ports[k], payload[start : ends[k]])
            start = ends[k]
            made.append((t_ns + offset_ns, encode_message(UDP_PACKET, packet)))
        return made

    return ros_topic(name, UDP_PACKET), encode
