"""Frames of CAN as messages of ROS 2, in CDR.

``can_msgs/msg/Frame`` (repository ros-industrial/ros_canopen) holds classic frames,
``ros2_socketcan_msgs/msg/FdFrame`` (autowarefoundation/ros2_socketcan) frames of CAN FD.
"""

from __future__ import annotations

from dataclasses import dataclass

from recorder.contract.errors import FormatError
from recorder.contract.wire import Buffer
from recorder.formats.ros2.cdr import CdrReader, CdrWriter
from recorder.formats.ros2.messages import Header, put_header, take_header

FRAME = "can_msgs/msg/Frame"
FD_FRAME = "ros2_socketcan_msgs/msg/FdFrame"
_CLASSIC_BYTES, _FD_BYTES = 8, 64


@dataclass(frozen=True, slots=True)
class CanFrame:
    """A classic frame; `data` are 8 bytes, of which `dlc` count."""

    header: Header
    id: int
    is_rtr: bool
    is_extended: bool
    is_error: bool
    dlc: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FdFrame:
    """A frame of CAN FD of up to 64 bytes."""

    header: Header
    id: int
    is_extended: bool
    is_error: bool
    data: bytes


def encode_can_frame(frame: CanFrame) -> list[Buffer]:
    """A ``can_msgs/msg/Frame`` in CDR; FormatError if the data are not 8 bytes."""
    if len(frame.data) != _CLASSIC_BYTES:
        raise FormatError(f"{FRAME}: has {len(frame.data)} bytes of data, not 8")
    writer = CdrWriter()
    put_header(writer, frame.header)
    flags = frame.is_rtr, frame.is_extended, frame.is_error
    writer.put("I???B8B", frame.id, *flags, frame.dlc, *frame.data)
    return writer.finish()


def decode_can_frame(data: Buffer) -> CanFrame:
    """A ``can_msgs/msg/Frame`` from CDR; FormatError if the bytes are no such message."""
    reader = CdrReader(data, FRAME)
    header = take_header(reader)
    number, remote, extended, error, dlc, *values = reader.take("I???B8B")
    reader.finish()
    return CanFrame(header, number, remote, extended, error, dlc, bytes(values))


def encode_fd_frame(frame: FdFrame) -> list[Buffer]:
    """A ``ros2_socketcan_msgs/msg/FdFrame`` in CDR; FormatError for more than 64 bytes."""
    if len(frame.data) > _FD_BYTES:
        raise FormatError(f"{FD_FRAME}: has {len(frame.data)} bytes of data, more than 64")
    writer = CdrWriter()
    put_header(writer, frame.header)
    writer.put("I??B", frame.id, frame.is_extended, frame.is_error, len(frame.data))
    writer.blob(frame.data)
    return writer.finish()


def decode_fd_frame(data: Buffer) -> FdFrame:
    """A ``ros2_socketcan_msgs/msg/FdFrame`` from CDR; FormatError if it is no such message."""
    reader = CdrReader(data, FD_FRAME)
    header = take_header(reader)
    number, extended, error, length = reader.take("I??B")
    payload = bytes(reader.blob())
    reader.finish()
    if len(payload) > _FD_BYTES or length > len(payload):
        raise FormatError(f"{FD_FRAME}: length {length} with {len(payload)} bytes of data")
    return FdFrame(header, number, extended, error, payload[:length])
