"""A simulated sensor that sends datagrams: a counter, the time, the vehicle's position, and filler.

A datagram begins with `HEAD` (network byte order): its number u8, its time u8 in ns since the start
of the source, and the position f8[3] of the rig in the simulated world, in m.  Filler follows; its
bytes and its length depend on the number.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.world import SCENE_OPTION, World
from recorder.config.options import Option, OptionTable

HEAD: Final = struct.Struct(">QQddd")

SIM_DATAGRAM_OPTIONS: Final[OptionTable] = {
    "size": Option(
        "int",
        1206,
        "sim: bytes of the longest datagram (default: those of a Velodyne's)",
        minimum=HEAD.size,
        maximum=65507,
    ),
    "seed": Option("int", 0, "sim: seed of the world", minimum=0),
    "scene": SCENE_OPTION,
}

DEFAULT_RATE_HZ: Final = 1000.0
SIM_PORT: Final = 2368
"""Source and destination port of the simulated datagrams: a Velodyne's."""

_FILLER: Final = bytes(k * 167 & 0xFF for k in range(256)) * 257


class SimulatedSender:
    """The datagrams of the simulated sensor, each made from its number.

    >>> sender = SimulatedSender({"rate": 100.0, "size": 80, "seed": 0, "scene": "parked"})
    >>> number, t_ns, *position_m = HEAD.unpack_from(sender.datagrams(0, 8)[7])
    >>> number, t_ns
    (7, 80000000)

    Args:
        options: ``rate`` in Hz (None: 1000) and those of `SIM_DATAGRAM_OPTIONS`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.rate_hz = float(options["rate"] or DEFAULT_RATE_HZ)
        self._longest = int(options["size"])
        self._world = World(options["scene"], options["seed"])

    def times_ns(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the times of the datagrams [start, stop), ns since the start of the source."""
        numbers = np.arange(start + 1, stop + 1, dtype=np.int64)
        return np.asarray(np.rint(numbers * (1e9 / self.rate_hz)), np.int64)

    def datagrams(self, start: int, stop: int) -> list[bytes]:
        """Return the datagrams [start, stop)."""
        times = self.times_ns(start, stop)
        positions, _ = self._world.trajectory.pose(times / 1e9)
        made = []
        rows = zip(range(start, stop), times.tolist(), positions.tolist(), strict=True)
        for number, t_ns, position in rows:
            head = HEAD.pack(number, t_ns, *position)
            length = (number * 2654435761 >> 7) % (self._longest - len(head) + 1)
            at = number & 0xFF
            made.append(head + _FILLER[at : at + length])
        return made
