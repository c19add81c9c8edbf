"""The channels of CAN frames that play from a recording, and a message's values for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recorder.codecs.streams import ChannelSpec
from recorder.formats.ros2.messages import CanFrame, FdFrame

_EXTENDED, _REMOTE, _ERROR = 0x8000_0000, 0x4000_0000, 0x2000_0000
_ID_MASK, _FD = 0x1FFF_FFFF, 0x04


def can_channels(found: Sequence[CanFrame | FdFrame]) -> tuple[ChannelSpec, ...]:
    """Return the channels of frames, as the driver for CAN declares them."""
    width = 64 if isinstance(found[0], FdFrame) else 8
    return (
        ChannelSpec("id", "raw", "u4", (), "identifier, with the flags of linux/can.h"),
        ChannelSpec("len", "raw", "u1", (), "bytes of data, or requested"),
        ChannelSpec("flags", "raw", "u1", (), "4: CAN FD; no others are known"),
        ChannelSpec("data", "raw", "u1", (width,), "data, zeros behind its bytes"),
    )


def can_values(frame: CanFrame | FdFrame) -> dict[str, Any]:
    """Return the values of a message, by channel."""
    number = frame.id & _ID_MASK | _EXTENDED * frame.is_extended | _ERROR * frame.is_error
    if isinstance(frame, FdFrame):
        length, flags = frame.length, _FD
        data = bytes(frame.data[:length]).ljust(64, b"\0")
    else:
        number |= _REMOTE * frame.is_rtr
        length, flags = frame.dlc, 0
        used = 0 if frame.is_rtr else min(length, 8)
        data = frame.data[:used].ljust(8, b"\0")
    return {"id": number, "len": length, "flags": flags, "data": np.frombuffer(data, np.uint8)}
