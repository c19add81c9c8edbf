"""A simulated sensor that sends datagrams: a counter, the time, the vehicle's position, and filler.

A datagram begins with `HEAD` (network byte order): its number u8, its time u8 in ns since the start
of the source, and the position f8[3] of the rig in the simulated world, in m.  Filler follows; its
bytes and its length depend on the number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Sample, SensorConfig
from drivers.kit.sample_batches import DeferredData
from drivers.udp.stream import datagram_stream, map_address
from drivers.world import WORLD_OPTIONS, World
from recorder.codecs.streams import StreamSpec
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
    **WORLD_OPTIONS,
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
        self._world = World.of(options)

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


_BATCH: Final = 256
_SIM_BATCH_S: Final = 0.01


class SimulatedSource:
    """The simulated sender, endless; data are made on access."""

    def __init__(self, sensor: SensorConfig) -> None:
        self._sensor = sensor
        self._sender = SimulatedSender(sensor.options)

    def open(self) -> list[StreamSpec]:
        """Declare the stream."""
        settings = {"address": "127.0.0.1", "port": SIM_PORT}
        return [datagram_stream(self._sensor, settings, self._sender.rate_hz)]

    def items(self) -> Iterator[Item]:
        """Yield batches of datagrams, without end."""
        sender = self._sender
        count = max(1, min(_BATCH, int(sender.rate_hz * _SIM_BATCH_S)))
        start = 0
        while True:
            stop = start + count
            data = DeferredData[Any](partial(self._sent, start, stop))
            yield Sample(self._sensor.name, sender.times_ns(start, stop), data)
            start = stop

    def _sent(self, start: int, stop: int) -> dict[str, npt.NDArray[Any] | list[bytes]]:
        count = stop - start
        here = np.frombuffer(map_address(bytes((127, 0, 0, 1))), np.uint8)
        return {
            "payload": self._sender.datagrams(start, stop),
            "source": np.tile(here, (count, 1)),
            "source_port": np.full(count, SIM_PORT, "<u2"),
            "port": np.full(count, SIM_PORT, "<u2"),
        }

    def close(self) -> None:
        """Do nothing: the source holds no resources."""
