"""UDP datagrams as ``udp_msgs/msg/UdpPacket`` of ROS 2's drivers, in both profiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recorder.archives.mcap.ros2_names import ros_topic
from recorder.archives.mcap.topics import Topic
from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.common.files import Buffer
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import UDP_PACKET
from recorder.formats.ros2.messages import Header, UdpPacket
from recorder.perception.datagrams import PAYLOAD, address_text
from recorder.perception.foxglove.channels import EncodeSamples


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
