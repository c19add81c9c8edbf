"""The IMU of a lidar, whose packets come beside those with ranges, as the stream ``NAME_imu``.

::

    imu = ImuStream("lidar", span=1 << 32, rate_hz=200.0, cause="network")
    spec = imu.declare(finite=False)
    for item in imu.convert(ImuSample(number, device_ns, acc, avel), t_ns):
        ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Lost, Sample
from recorder.codecs.streams import ChannelSpec, StreamSpec

IMU_SUFFIX: Final = "_imu"
GRAVITY_M_S2: Final = 9.80665
_CHANNELS: Final = (
    ChannelSpec("acc", "raw", "f4", (3,), "acceleration, gravity included", "m/s^2"),
    ChannelSpec("avel", "raw", "f4", (3,), "rate of turn", "rad/s"),
)
_RESTART: Final = 2000
"""A number so far from the one before is of an IMU that has restarted, or of a late packet."""


@dataclass(frozen=True, slots=True)
class ImuSample:
    """One packet of an IMU.

    Attributes:
        number: of the packet.
        t_ns: device time, ns.
        acc: acceleration, f4 [3], m/s^2.
        avel: rate of turn, f4 [3], rad/s.
    """

    number: int
    t_ns: int
    acc: npt.NDArray[Any]
    avel: npt.NDArray[Any]


class ImuStream:
    """Converter of an IMU's packets to items, with an account of lost ones.

    Args:
        sensor: name of the lidar.
        span: number after which the packets' numbers begin again at 0.
        rate_hz: samples in a second; None: unknown.
        cause: of lost packets.
    """

    def __init__(self, sensor: str, span: int, rate_hz: float | None, cause: str) -> None:
        self._name, self._span, self._rate_hz, self._cause = sensor, span, rate_hz, cause
        self._t_ns, self._number = 0, -1

    def declare(self, *, finite: bool) -> StreamSpec:
        """Return the declaration of the stream."""
        return StreamSpec(
            self._name + IMU_SUFFIX,
            _CHANNELS,
            rate_hz=self._rate_hz,
            device_clock=True,
            finite=finite,
            description="IMU of the lidar",
        )

    def convert(self, sample: ImuSample, t_ns: int) -> Iterator[Item]:
        """Convert a packet, which arrived at `t_ns`; one that came twice is nothing."""
        name = self._name + IMU_SUFFIX
        self._t_ns = t_ns = max(self._t_ns, t_ns)
        step = 1 if self._number < 0 else (sample.number - self._number) % self._span
        self._number = sample.number
        if not step:
            return
        if 1 < step < _RESTART:
            yield Lost(name, t_ns, self._cause, step - 1)
        values = {"acc": sample.acc[None], "avel": sample.avel[None]}
        yield Sample(name, np.array([t_ns], np.int64), values, np.array([sample.t_ns], np.int64))
