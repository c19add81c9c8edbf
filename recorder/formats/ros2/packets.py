"""``udp_msgs/msg/UdpPacket`` of ROS 2 (repository flynneva/udp_msgs), in CDR."""

from __future__ import annotations

from dataclasses import dataclass

from recorder.contract.wire import Buffer
from recorder.formats.ros2.cdr import CdrReader, CdrWriter
from recorder.formats.ros2.messages import Header, put_header, take_header


@dataclass(frozen=True, slots=True)
class UdpPacket:
    """A datagram; `address` and `src_port` are its sender's."""

    header: Header
    address: str
    src_port: int
    data: Buffer


def encode_udp_packet(packet: UdpPacket) -> list[Buffer]:
    """A ``udp_msgs/msg/UdpPacket`` in CDR."""
    writer = CdrWriter()
    put_header(writer, packet.header)
    writer.string(packet.address)
    writer.put("H", packet.src_port)
    writer.blob(packet.data)
    return writer.finish()


def decode_udp_packet(data: Buffer) -> UdpPacket:
    """A ``udp_msgs/msg/UdpPacket`` from CDR.

    Raises:
        FormatError: the bytes are no such message.
    """
    reader = CdrReader(data, "udp_msgs/msg/UdpPacket")
    header, address = take_header(reader), reader.string()
    (port,) = reader.take("H")
    packet = UdpPacket(header, address, port, reader.blob())
    reader.finish()
    return packet
