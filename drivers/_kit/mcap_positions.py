"""The channels of positions that play from a recording, and a message's values for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from recorder.contract.streams import ChannelSpec
from recorder.formats.bags.positions import Position

_ABOUT: Final = {
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
    """The channels that messages have; ``pos`` and ``fix`` are always there."""
    names = {"pos", "fix"}
    for each in found:
        names |= position_values(each).keys()
    return tuple(
        ChannelSpec(name, "raw", *about) for name, about in _ABOUT.items() if name in names
    )


def position_values(message: Position) -> dict[str, Any]:
    """The values of a message, by channel."""
    values: dict[str, Any] = {"pos": message.pos, "fix": message.fix, **message.more}
    if message.vel is not None:
        values["vel"] = message.vel
    if message.cov is not None:
        values["cov"] = np.reshape(message.cov, (3, 3))
    return values


def absent_value(channel: ChannelSpec) -> Any:
    """What a sample has in a channel about which its message says nothing: NaN, or 0."""
    return np.full(channel.shape, np.nan if channel.np_dtype.kind == "f" else 0)


def column(channel: ChannelSpec, rows: Sequence[Mapping[str, Any]]) -> Any:
    """The values [n, *shape] of a channel; a value beyond f4 becomes infinite."""
    absent = absent_value(channel)
    with np.errstate(over="ignore"):
        return np.array([row.get(channel.name, absent) for row in rows]).astype(channel.np_dtype)
