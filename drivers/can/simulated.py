"""The CAN bus of the simulated vehicle: motion, steering and brake, as ``vehicle.dbc`` has them.

Each frame follows from its time alone.  The steering angle is that of a vehicle whose rear axle
follows the road (bicycle model); the pressure of the brake is proportional to the deceleration.
Filler raises the number of frames to `rate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.can.frames import CLASSIC_BYTES, EXTENDED, FD, FD_BYTES, SWITCHED, Frames
from drivers.can.stream import Decoding, frame_sample, frame_stream
from drivers.kit.driver import Item, Sample, SensorConfig
from drivers.kit.sample_batches import DeferredData
from drivers.kit.simulated_clock import CLOCK_OPTION
from drivers.world import WORLD_OPTIONS, World
from drivers.world.faults import CAN_FAULTS, fault_option, read_faults
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ConfigError
from recorder.config.options import Option, OptionTable

DATABASE: Final = Path(__file__).with_name("vehicle.dbc")
"""The database of the simulated bus."""
SIM_CAN_OPTIONS: Final[OptionTable] = {
    "seed": Option("int", 0, "sim: seed of the world", minimum=0),
    **WORLD_OPTIONS,
    "clock": CLOCK_OPTION,
    "faults": fault_option(CAN_FAULTS),
}
WHEELBASE_M, TRACK_M, STEERING_RATIO = 2.8, 1.6, 15.0
BAR_PER_M_S2: Final = 12.0
_PEDAL_M_S2: Final = -0.2
_TEMPERATURE: Final = 21.5
_FILLER_ID, _FILLER_IDS = 0x400, 64
_FIRST_NS: Final = 1_000_000

Floats = npt.NDArray[np.float64]
_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Motion:
    """The vehicle at n times, f8 [n] each.

    Attributes:
        t_s: the times.
        speed_m_s, yaw_rate_rad_s, acceleration_m_s2: the last along the vehicle.
        curvature_1_m: of the road below the rear axle, positive to the left.
        east_m, north_m, heading_rad: of the rear axle in the world.
    """

    t_s: Floats
    speed_m_s: Floats
    yaw_rate_rad_s: Floats
    acceleration_m_s2: Floats
    curvature_1_m: Floats
    east_m: Floats
    north_m: Floats
    heading_rad: Floats

    @property
    def road_wheel_rad(self) -> Floats:
        """The angle of the front wheels."""
        return np.asarray(np.arctan(WHEELBASE_M * self.curvature_1_m))

    @classmethod
    def of(cls, world: World, t_s: Floats) -> Motion:
        """Return the motion in a world."""
        found = world.trajectory.motion(t_s)
        along, _, _ = world.trajectory.along(t_s)
        road = world.trajectory.path.at(along)
        ahead = found.rotation[:, :, 0]
        return cls(
            t_s,
            np.einsum("ni,ni->n", found.velocity_m_s, ahead),
            found.angular_rate_rad_s[:, 2],
            np.einsum("ni,ni->n", found.acceleration_m_s2, ahead),
            road.turn / road.stretch,
            found.position_m[:, 0],
            found.position_m[:, 1],
            np.arctan2(ahead[:, 1], ahead[:, 0]),
        )


def _whole(values: Floats, scale: float, kind: str) -> _Bytes:
    """Return values in steps of `scale` as bytes, u1 [n, size of the kind], within its range."""
    dtype = np.dtype(kind)
    bounds = np.iinfo(dtype)
    rounded = np.clip(np.rint(values / scale), bounds.min, bounds.max).astype(dtype)
    return np.ascontiguousarray(rounded).view(np.uint8).reshape(len(values), -1)


def _motion(at: Motion, number: npt.NDArray[np.int64], data: _Bytes) -> None:
    data[:, 0:2] = _whole(at.speed_m_s, 0.01, "<u2")
    data[:, 2:4] = _whole(at.yaw_rate_rad_s, 0.0001, "<i2")
    data[:, 4:6] = _whole(at.acceleration_m_s2, 0.001, "<i2")
    data[:, 7] = number & 0xFF


def _steering(at: Motion, number: npt.NDArray[np.int64], data: _Bytes) -> None:  # noqa: ARG001
    data[:, 0:2] = _whole(np.degrees(at.road_wheel_rad) * STEERING_RATIO, 0.1, ">i2")
    data[:, 2:4] = _whole(at.road_wheel_rad, 0.0001, ">i2")


def _brake(at: Motion, number: npt.NDArray[np.int64], data: _Bytes) -> None:  # noqa: ARG001
    pressure = np.maximum(-at.acceleration_m_s2, 0.0) * BAR_PER_M_S2
    steps = np.minimum(np.rint(pressure / 0.1), 4095).astype(np.uint16)
    pedal = (at.acceleration_m_s2 < _PEDAL_M_S2).astype(np.uint16)
    packed = (steps << np.uint16(4) | pedal).astype("<u2")
    data[:, 0:2] = packed.view(np.uint8).reshape(-1, 2)


def _wheels(at: Motion, number: npt.NDArray[np.int64], data: _Bytes) -> None:  # noqa: ARG001
    for k, (ahead_m, left_m) in enumerate(
        (x, y) for x in (WHEELBASE_M, 0.0) for y in (TRACK_M / 2, -TRACK_M / 2)
    ):
        # A wheel goes around the same point as the rear axle, at its own distance.
        level, upright = 1.0 - at.curvature_1_m * left_m, at.curvature_1_m * ahead_m
        speed = np.abs(at.speed_m_s) * np.hypot(level, upright)
        data[:, 2 * k : 2 * k + 2] = _whole(speed * 3.6, 0.01, ">u2")


def _service(at: Motion, number: npt.NDArray[np.int64], data: _Bytes) -> None:
    page = number & 1
    up_time = _whole(at.t_s, 0.001, "<u4")
    data[:, 0] = page
    data[:, 1] = round((_TEMPERATURE + 40) / 0.5)
    data[page == 1, 1:5] = up_time[page == 1]


def _pose(at: Motion, number: npt.NDArray[np.int64], data: _Bytes) -> None:  # noqa: ARG001
    data[:, 0:8] = at.east_m.astype("<f8").view(np.uint8).reshape(-1, 8)
    data[:, 8:16] = at.north_m.astype("<f8").view(np.uint8).reshape(-1, 8)
    data[:, 16:20] = at.heading_rad.astype("<f4").view(np.uint8).reshape(-1, 4)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message that is sent at a period, from `phase_ns` on."""

    id: int
    size: int
    period_ns: int
    phase_ns: int
    fill: Callable[[Motion, npt.NDArray[np.int64], _Bytes], None]
    flags: int = 0


_MESSAGES: Final = (
    _Sent(200, 8, 10_000_000, 0, _motion),
    _Sent(210, 8, 10_000_000, 300_000, _steering),
    _Sent(230, 4, 20_000_000, 600_000, _brake),
    _Sent(0x18FEF100 | EXTENDED, 8, 20_000_000, 900_000, _wheels),
    _Sent(800, 8, 100_000_000, 1_200_000, _service),
)
_FD_MESSAGES: Final = (_Sent(496, 24, 20_000_000, 1_500_000, _pose, FD | SWITCHED),)


class SimulatedBus:
    """The frames of the simulated vehicle, each made from its time.

    >>> bus = SimulatedBus({"rate": None, "fd": False, "seed": 0, "scene": "parked"})
    >>> len(bus.frames(0, 100_000_000))
    31

    Args:
        options: ``rate`` in frames a second (None: without filler), ``fd`` (whether frames of CAN
            FD are sent) and those of `SIM_CAN_OPTIONS`.
        name: the sensor's, for messages.

    Raises:
        ConfigError: an invalid fault.

    Attributes:
        rate_hz: frames a second.
        width: bytes of the data: 8, or 64 with frames of CAN FD.
    """

    def __init__(self, options: Mapping[str, Any], name: str = "can") -> None:
        self._faults = read_faults(name, options, CAN_FAULTS)
        for fault in self._faults:
            if fault.amount is None and math.isinf(fault.to_s):
                key = f"{name}.faults[{fault.number}].to_s"
                raise ConfigError("missing; the silence of the whole bus needs an end", key=key)
        fd = bool(options["fd"])
        self._messages = _MESSAGES + (_FD_MESSAGES if fd else ())
        self.width = FD_BYTES if fd else CLASSIC_BYTES
        self._world = World.of(options)
        own_hz = sum(1e9 / message.period_ns for message in self._messages)
        self._filler_hz = max(0.0, float(options["rate"] or 0.0) - own_hz)
        self.rate_hz = own_hz + self._filler_hz

    def times(
        self, start_ns: int, stop_ns: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the frames of [start, stop): times in ns, message (-1: filler), its number."""
        parts = []
        for k, message in enumerate(self._messages):
            first_ns = _FIRST_NS + message.phase_ns
            low = max(0, -(-(start_ns - first_ns) // message.period_ns))
            high = max(low, -(-(stop_ns - first_ns) // message.period_ns))
            number = np.arange(low, high, dtype=np.int64)
            parts.append((first_ns + number * message.period_ns, np.full(len(number), k), number))
        if self._filler_hz:
            period_ns = 1e9 / self._filler_hz
            low, high = (max(0, int(t_ns / period_ns) - 1) for t_ns in (start_ns, stop_ns))
            number = np.arange(low, high + 3, dtype=np.int64)
            t_ns = np.rint((number + 1) * period_ns).astype(np.int64)
            inside = (t_ns >= start_ns) & (t_ns < stop_ns)
            parts.append((t_ns[inside], np.full(int(inside.sum()), -1), number[inside]))
        t_ns, which, number = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((which, t_ns))
        sent = self._are_sent(t_ns, which, number)[order]
        return t_ns[order][sent], which[order][sent], number[order][sent]

    def _are_sent(
        self,
        t_ns: npt.NDArray[np.int64],
        which: npt.NDArray[np.int64],
        number: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.bool_]:
        """Return which frames [n] no silence omits."""
        sent = np.ones(len(t_ns), bool)
        if self._faults:
            own = np.array([message.id & ~EXTENDED for message in self._messages])
            identifier = np.where(which < 0, _FILLER_ID + number % _FILLER_IDS, own[which])
        for fault in self._faults:
            silent = fault.active(t_ns / 1e9)
            if fault.amount is not None:
                silent &= identifier == round(fault.amount)
            sent &= ~silent
        return sent

    def frames(self, start_ns: int, stop_ns: int) -> Frames:
        """Return the frames of the interval [start, stop), ns since the start of the source."""
        t_ns, which, number = self.times(start_ns, stop_ns)
        count = len(t_ns)
        made = Frames(
            t_ns,
            (_FILLER_ID + number % _FILLER_IDS).astype(np.uint32),
            np.full(count, 8, np.uint8),
            np.zeros(count, np.uint8),
            np.zeros((count, self.width), np.uint8),
        )
        filler = which < 0
        counts = number[filler].astype("<u8")
        made.data[filler, :8] = counts.view(np.uint8).reshape(-1, 8)
        at = Motion.of(self._world, t_ns / 1e9)
        for k, message in enumerate(self._messages):
            rows = np.flatnonzero(which == k)
            if not len(rows):
                continue
            part = Motion(*(getattr(at, name)[rows] for name in Motion.__slots__))
            data = np.zeros((len(rows), message.size), np.uint8)
            message.fill(part, number[rows], data)
            made.data[rows, : message.size] = data
            made.id[rows], made.length[rows] = message.id, message.size
            made.flags[rows] = message.flags
        return made


_SIM_BATCH_NS: Final = 20_000_000


class SimulatedSource:
    """The simulated vehicle's bus, endless; frames are made on access."""

    def __init__(self, sensor: SensorConfig, decoding: Decoding) -> None:
        self._sensor, self._decoding = sensor, decoding
        self._bus = SimulatedBus(sensor.options, sensor.name)

    def open(self) -> list[StreamSpec]:
        """Declare the streams."""
        bus, settings = self._bus, {"simulated": True} | self._decoding.settings
        streams = self._decoding.streams()
        return [frame_stream(self._sensor, bus.width, bus.rate_hz, settings), *streams]

    def items(self) -> Iterator[Item]:
        """Yield batches of frames, without end."""
        start_ns = 0
        while True:
            stop_ns = start_ns + _SIM_BATCH_NS
            t_ns, _, _ = self._bus.times(start_ns, stop_ns)
            if not len(t_ns):  # a fault silences the bus
                pass
            elif self._decoding.active:
                frames = self._bus.frames(start_ns, stop_ns)
                yield frame_sample(self._sensor.name, frames)
                yield from self._decoding.samples(frames)
            else:
                data = DeferredData[npt.NDArray[Any]](partial(self._make_data, start_ns, stop_ns))
                yield Sample(self._sensor.name, t_ns, data)
            start_ns = stop_ns

    def _make_data(self, start_ns: int, stop_ns: int) -> dict[str, npt.NDArray[Any]]:
        return dict(self._bus.frames(start_ns, stop_ns).channels())

    def close(self) -> None:
        """Do nothing: the source holds no resources."""
