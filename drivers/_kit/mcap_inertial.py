"""The channels of an IMU that plays from a recording, and a message's values for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from recorder.contract.streams import ChannelSpec
from recorder.formats.bags.messages import Floats, Inertial

_ABOUT: Final = {
    "acc": ((3,), "acceleration, gravity included", "m/s^2"),
    "avel": ((3,), "rate of turn", "rad/s"),
    "rot": ((3,), "roll, pitch, yaw; sensor to local frame; NaN where not measured", "rad"),
    "quat": ((4,), "orientation, real part first; sensor to local frame", ""),
    "mag": ((3,), "magnetic field, in the recording's own unit", ""),
}


def inertial_channels(found: Sequence[Inertial]) -> tuple[ChannelSpec, ...]:
    """The channels that messages have; ``rot`` is always there, as in roverd."""
    names = {"acc", "avel", "rot"}
    if any(each.quat is not None for each in found):
        names.add("quat")
    if any(each.mag is not None for each in found):
        names.add("mag")
    return tuple(
        ChannelSpec(name, "raw", "f4", *about) for name, about in _ABOUT.items() if name in names
    )


def inertial_values(message: Inertial) -> dict[str, Floats]:
    """The values of a message, by channel."""
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
    """Roll, pitch, yaw in rad of a quaternion of any length other than 0: Rz(yaw) Ry(pitch) Rx."""
    length = w * w + x * x + y * y + z * z
    if not 0 < length < np.inf:
        return (np.nan, np.nan, np.nan)
    sine = 2 * (w * y - x * z) / length
    return (
        float(np.arctan2(2 * (w * x + y * z), w * w - x * x - y * y + z * z)),
        float(np.arcsin(np.clip(sine, -1, 1))),
        float(np.arctan2(2 * (w * z + x * y), w * w + x * x - y * y - z * z)),
    )
