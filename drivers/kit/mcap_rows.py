"""IMUs, positions and CAN frames of recordings: their channels, and the values of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from recorder.codecs.streams import ChannelSpec
from recorder.formats.bags.messages import Floats, Inertial, Position
from recorder.formats.ros2.messages import CanFrame, FdFrame

_INERTIAL_CHANNELS: Final = {
    "acc": ((3,), "acceleration, gravity included", "m/s^2"),
    "avel": ((3,), "rate of turn", "rad/s"),
    "rot": ((3,), "roll, pitch, yaw; sensor to local frame; NaN where not measured", "rad"),
    "quat": ((4,), "orientation, real part first; sensor to local frame", ""),
    "mag": ((3,), "magnetic field, in the recording's own unit", ""),
}


def inertial_channels(found: Sequence[Inertial]) -> tuple[ChannelSpec, ...]:
    """Return the channels that messages have; ``rot`` is always there, as in roverd."""
    names = {"acc", "avel", "rot"}
    if any(each.quat is not None for each in found):
        names.add("quat")
    if any(each.mag is not None for each in found):
        names.add("mag")
    return tuple(
        ChannelSpec(name, "raw", "f4", *about)
        for name, about in _INERTIAL_CHANNELS.items()
        if name in names
    )


def inertial_values(message: Inertial) -> dict[str, Floats]:
    """Return the values of a message, by channel."""
    values: dict[str, Floats] = {"acc": message.acc, "avel": message.avel}
    if message.quat is not None:
        values["quat"] = message.quat
    if message.mag is not None:
        values["mag"] = message.mag
    if message.rot is not None:
        values["rot"] = message.rot
    elif message.quat is not None:
        values["rot"] = _angles(*message.quat)
    return values


def _angles(w: float, x: float, y: float, z: float) -> tuple[float, float, float]:
    """Return roll, pitch, yaw in rad of a quaternion: Rz(yaw) Ry(pitch) Rx(roll).

    The quaternion may have any finite length; the angles are NaN for the length 0.
    """
    length = w * w + x * x + y * y + z * z
    if not 0 < length < np.inf:
        return (np.nan, np.nan, np.nan)
    sine = 2 * (w * y - x * z) / length
    return (
        float(np.arctan2(2 * (w * x + y * z), w * w - x * x - y * y + z * z)),
        float(np.arcsin(np.clip(sine, -1, 1))),
        float(np.arctan2(2 * (w * z + x * y), w * w + x * x - y * y - z * z)),
    )


_POSITION_CHANNELS: Final = {
    "pos": (
        "f8", (3,), "latitude, longitude, height above the ellipsoid; NaN: none", "deg, m",
    ),
    "fix": ("u1", (), "0 none, 1 dead reckoning, 2 2D, 3 3D, 4 with dead reckoning, 5 time", ""),
    "vel": ("f4", (3,), "velocity north, east, down; NaN: none", "m/s"),
    "cov": (
        "f4", (3, 3), "covariance of the position north, east, down; NaN: unknown", "m^2",
    ),
    "sats": ("u1", (), "satellites in use", ""),
    "quality": (
        "u1", (), "0 none, 1 autonomous, 2 differential, 4 RTK fixed, 5 RTK float, 6 estimated",
        "",
    ),
    "utc": ("i8", (), "UTC since 1970", "ns"),
}  # fmt: skip


def position_channels(found: Sequence[Position]) -> tuple[ChannelSpec, ...]:
    """Return the channels that messages have; ``pos`` and ``fix`` are always there."""
    names = {"pos", "fix"}
    for each in found:
        names |= position_values(each).keys()
    return tuple(
        ChannelSpec(name, "raw", *about)
        for name, about in _POSITION_CHANNELS.items()
        if name in names
    )


def position_values(message: Position) -> dict[str, Any]:
    """Return the values of a message, by channel."""
    values: dict[str, Any] = {"pos": message.pos, "fix": message.fix, **message.more}
    if message.vel is not None:
        values["vel"] = message.vel
    if message.cov is not None:
        values["cov"] = np.reshape(message.cov, (3, 3))
    return values


def absent_value(channel: ChannelSpec) -> Any:
    """Return the value of a channel that a message does not have: NaN, or 0."""
    return np.full(channel.shape, np.nan if channel.np_dtype.kind == "f" else 0)


def column(channel: ChannelSpec, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return the values [n, *shape] of a channel; a value beyond f4 becomes infinite."""
    absent = absent_value(channel)
    with np.errstate(over="ignore"):
        return np.array([row.get(channel.name, absent) for row in rows]).astype(channel.np_dtype)


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
