"""A simulated satellite receiver on the vehicle of the simulated world, with a receiver's noise.

The error of a position is slow (satellites' orbits, the ionosphere) and white (the receiver).  The
slow part is a sum of waves whose periods are 20 to 300 s; so each row follows from its time alone.
World time 0 is 2024-06-01 12:00 UTC.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.gnss.fixes import AUTONOMOUS, FIX_3D, gnss_spec
from drivers.kit.driver import Item, Sample, SensorConfig
from drivers.kit.satellite_navigation import SECOND_NS, convert_utc_to_gps, earth_fixed, geodetic
from drivers.world import World, mounts, world_settings
from drivers.world.faults import GNSS_FAULTS, Fault, read_faults
from drivers.world.imu import SimulatedImu
from drivers.world.noise import noise_seed, uniform
from recorder.common.errors import ConfigError

START_UTC_NS: Final = round(datetime(2024, 6, 1, 12, tzinfo=UTC).timestamp()) * SECOND_NS
RATE_HZ: Final = 10.0
LEVEL_M, UPRIGHT_M, SPEED_M_S = 1.2, 2.0, 0.05
"""Standard deviations of a position, level and upright, and of a velocity."""
_SLOW: Final = 0.9  # share of the slow error in a position's variance
_WAVES: Final = 6

Floats = npt.NDArray[np.float64]


class SimulatedReceiver:
    """An endless, deterministic receiver: an epoch depends on its number alone.

    Args:
        antenna: the place in the world; its rate does not matter.
        rate_hz: epochs a second.
        origin: latitude and longitude in deg, height in m, of the world's origin.
        noise: scale of the errors; 0: none.
        seed: of the errors.
        faults: ``jump``: positions are off by the amount in m, level, in one direction.

    Attributes:
        rate_hz: epochs a second.
    """

    def __init__(
        self,
        antenna: SimulatedImu,
        rate_hz: float,
        origin: tuple[float, float, float],
        noise: float,
        seed: int,
        faults: Sequence[Fault] = (),
    ) -> None:
        self._faults = faults
        self.rate_hz = rate_hz
        self._antenna, self._origin = antenna, origin
        self._period_ns = round(1e9 / rate_hz)
        self._noise, self._seed = noise, seed
        rng = np.random.default_rng(seed)
        self._phases = rng.uniform(0, 2 * np.pi, (_WAVES, 3))
        self._periods_s = np.geomspace(20.0, 300.0, _WAVES)[:, None] * rng.uniform(0.9, 1.1, (1, 3))

    def epochs(self, first: int, count: int) -> tuple[npt.NDArray[np.int64], dict[str, Any]]:
        """Return epochs `first` to `first + count - 1`: GPS times in ns, arrays by channel."""
        t_ns = (first + np.arange(count, dtype=np.int64)) * self._period_ns
        enu, velocity = self._antenna.place(t_ns / 1e9)
        for fault in self._faults:
            turn = 2 * np.pi * float(uniform(self._seed, "jump", fault.number, 1)[0])
            jump = fault.size * np.array([math.cos(turn), math.sin(turn), 0.0])
            enu = enu + fault.active(t_ns / 1e9)[:, None] * jump
        white = np.stack(
            [np.random.default_rng((self._seed, first + k)).normal(size=6) for k in range(count)]
        )
        waves = np.sin(
            2 * np.pi * (t_ns / 1e9)[:, None, None] / self._periods_s + self._phases
        ).sum(axis=1) * math.sqrt(2 / _WAVES)
        sigma = np.array([LEVEL_M, LEVEL_M, UPRIGHT_M])
        error = math.sqrt(_SLOW) * waves + math.sqrt(1 - _SLOW) * white[:, :3]
        points = earth_fixed(enu + self._noise * sigma * error, self._origin)
        velocity = velocity + self._noise * SPEED_M_S * white[:, 3:]
        utc_ns = START_UTC_NS + t_ns
        level, upright = LEVEL_M**2, UPRIGHT_M**2
        cov = np.diag([level, level, upright]) * self._noise**2
        data = {
            "pos": np.array([geodetic(tuple(point)) for point in points.tolist()]),
            "vel": np.stack([velocity[:, 1], velocity[:, 0], -velocity[:, 2]], 1).astype("<f4"),
            "fix": np.full(count, FIX_3D, np.uint8),
            "cov": np.broadcast_to(cov.astype("<f4"), (count, 3, 3)).copy(),
            "sats": np.full(count, 14, np.uint8),
            "utc": utc_ns,
            "quality": np.full(count, AUTONOMOUS, np.uint8),
        }
        return np.array([convert_utc_to_gps(int(t)) for t in utc_ns], np.int64), data


def make_receiver(name: str, options: Mapping[str, Any]) -> SimulatedReceiver:
    """Make the receiver that a sensor's checked options describe.

    Raises:
        ConfigError: the origin is no place on Earth, or a fault is invalid.
        SourceError: an invalid mount; the message names sensor and option.
    """
    rate_hz = float(options["rate"] or RATE_HZ)
    world = World.of(options)
    mount = mounts.make_mount(name, options["mount"], mounts.IMU)
    origin = options["origin"]
    if len(origin) != 3 or not (abs(origin[0]) <= 90 and abs(origin[1]) <= 180):
        raise ConfigError("is not latitude and longitude in deg, height in m", key=f"{name}.origin")
    place = (float(origin[0]), float(origin[1]), float(origin[2]))
    seed = noise_seed(options["seed"], name, "gnss")
    antenna = SimulatedImu(rate_hz, world, mount, 0.0)
    faults = read_faults(name, options, GNSS_FAULTS)
    return SimulatedReceiver(antenna, rate_hz, place, options["noise"], seed, faults)


_SIM_EPOCHS = 50


class SimulatedSource:
    """Source of the simulated receiver."""

    def __init__(self, sensor: SensorConfig) -> None:
        options = sensor.options
        self._receiver = make_receiver(sensor.name, options)
        about = world_settings(options) | {"simulated": True}
        self.spec = gnss_spec(sensor.name, self._receiver.rate_hz, False, about)
        self._next = 0
        self._items: deque[Item] = deque()

    def read(self) -> Item:
        if not self._items:
            times, data = self._receiver.epochs(self._next, _SIM_EPOCHS)
            self._next += _SIM_EPOCHS
            for k in range(_SIM_EPOCHS):
                part = {name: values[k : k + 1] for name, values in data.items()}
                stamps = times[k : k + 1]
                self._items.append(Sample(self.spec.name, stamps, part, stamps))
        return self._items.popleft()

    def close(self) -> None:
        pass
