"""Columns of a spinning lidar: the measurements of all channels at one azimuth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_FAST: Final = 3
"""Blocks that are so many times further apart than most have others missing between them."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns in order of their firing.

    Attributes:
        azimuth: u4 [columns], in the packet's unit.
        t_ns: i8 [columns], device time before the channels' firing times, ns.
        ranges: u2 [returns, columns, channels], in the packet's unit; 0: no return.
        reflectivity: u1 [returns, columns, channels].
        confidence: u1 [returns, columns, channels]; None: not sent.
        state: u1 [columns], which of the sensor's tables of firing times holds; None: it has one.
        host_ns: i8 [columns], arrival of the column's packet; None: not filled in.
    """

    azimuth: npt.NDArray[np.uint32]
    t_ns: npt.NDArray[np.int64]
    ranges: npt.NDArray[Any]
    reflectivity: npt.NDArray[Any]
    confidence: npt.NDArray[Any] | None = None
    state: npt.NDArray[np.uint8] | None = None
    host_ns: npt.NDArray[np.int64] | None = None

    def part(self, begin: int, end: int) -> Columns:
        """Return the columns from `begin` to `end`, as views."""

        def cut(values: Any) -> Any:
            return None if values is None else values[begin:end]

        def cut_image(values: Any) -> Any:
            return None if values is None else values[:, begin:end]

        return Columns(
            cut(self.azimuth),
            cut(self.t_ns),
            cut_image(self.ranges),
            cut_image(self.reflectivity),
            cut_image(self.confidence),
            cut(self.state),
            cut(self.host_ns),
        )


def spread_azimuth(azimuth: npt.NDArray[Any], turn: int) -> npt.NDArray[np.uint32]:
    """Return the azimuths of two columns for each block: the second lies half-way to the next.

    The last block of a packet takes the step before it: a packet alone gives the same.  Behind a
    block where others are missing, the second column lies as far as elsewhere.

    Args:
        azimuth: [packets, blocks], of blocks with two columns, at least two in a packet.
        turn: azimuths of a turn.

    Returns:
        u4 [2 * packets * blocks].
    """
    first = azimuth.astype(np.int64)
    ahead = np.diff(first, axis=1) % turn
    usual = np.median(ahead, axis=1, keepdims=True).astype(np.int64)
    ahead = np.where(ahead > _FAST * usual, usual, ahead)
    ahead = np.concatenate([ahead, ahead[:, -1:]], axis=1)
    return (np.stack([first, first + (ahead + 1) // 2], 2) % turn).ravel().astype("<u4")


def epoch_seconds(
    year: Any, month: Any, day: Any, hour: Any, minute: Any, second: Any
) -> npt.NDArray[np.int64]:
    """Return seconds since 1970 of dates and times, arrays i8; impossible ones are carried over."""
    months = (year - 1970) * 12 + month - 1
    days = months.astype("M8[M]").astype("M8[D]").astype(np.int64) + day - 1
    return np.asarray(((days * 24 + hour) * 60 + minute) * 60 + second, np.int64)
