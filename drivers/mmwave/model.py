"""A simulated mmWave radar's reception from the world, in the layout of a raw capture.

Frame k begins at world time ``k * frame_period`` with the idle time of its first chirp.  It ends
``frame_time`` later, at its stamp, with the ramp of its last chirp.

A target reflects most from the point of its surface that is nearest to the radar, and a little from
its upright edges.  The strength follows the radar equation with the values of an AWR1843BOOST
(12 dBm, two antennas of 10 dB, 30 dB from there to the converter, noise figure 15 dB).  The filter
before the converter suppresses echoes beyond ``max_range``.  Targets do not hide each other, and
the ground reflects nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.mmwave.chirp import ChirpConfig
from drivers.mmwave.fmcw import NOISE_UNIT, BeatSignal, Floats, Frame, Scatterers
from drivers.world import World
from drivers.world.faults import RADAR_FAULTS, Fault, active_at, read_faults
from drivers.world.mounts import RADAR, Mount, make_mount, rotate, rotate_back
from drivers.world.noise import bits, noise_seed, normal

SIM_CHIRP: Final = ChirpConfig(
    device="AWR1843",
    frequency=77.0,
    idle_time=6.0,
    adc_start_time=5.7,
    ramp_end_time=34.0,
    freq_slope=30.0,
    adc_samples=256,
    sample_rate=10_000,
    frame_length=64,
    frame_period=50.0,
)
"""Default chirp configuration of ``sim:``: 15.7 MB/s, 50 m, +-8 m/s."""

_NOISE_SPARE: Final = 1 << 18  # largest shift of a frame's cuts of the noise
_NOISE_LIMIT: Final = 16_000.0

_POWER_W: Final = 0.016  # transmitted
_ANTENNA: Final = 10.0  # gain of each of the two antennas, straight ahead
_RECEIVER: Final = 1000.0  # gain, in power
_OHM: Final = 50.0
_STEP_V: Final = 1.0 / 65536  # of the converter, over +-0.5 V
_KT_W_HZ: Final = 4.0e-21  # thermal noise at 290 K
_NOISE_FIGURE: Final = 31.6

_NEAR_SHARE, _EDGE_SHARE = 0.8, 0.06  # of a target's cross section
_EDGED_M: Final = 1.0  # shorter targets have no edges of their own
_FAINT: Final = 0.02  # steps of the converter; weaker echoes are omitted
_NEAREST_M: Final = 0.2
_FASTEST_M_S: Final = 300.0  # a faster target was relocated in the middle of a frame
_BEAM_UP: Final = 0.376  # sine of the elevation at which an antenna has a quarter of its gain


@dataclass(frozen=True, slots=True)
class TargetState:
    """A target in the middle of a frame: its nearest point, in the radar's frame.

    Attributes:
        track: the target's identity, as in the world.
        range_m: distance from the radar.
        velocity_mps: radial, positive for a growing range.
        azimuth_rad: to the left.
        elevation_rad: up.
        amplitude: of its tone, in steps of the ADC.
    """

    track: str
    range_m: float
    velocity_mps: float
    azimuth_rad: float
    elevation_rad: float
    amplitude: float


class SimulatedRadar:
    """Synthesizer of an endless sequence's frame `k`, in any order, without state.

    >>> radar = SimulatedRadar(chirp, "qqii", seed=0)
    >>> frame = radar.frame(0)           # int16 chirp.shape; the caller may keep it
    >>> radar.targets(0)[0].range_m      # the frame's targets, the strongest first

    Args:
        chirp: the configuration; defines shape and resolutions.
        iq_order: order of the lanes, see `drivers.mmwave.chirp.lane_columns`.
        seed: of the noise, and of the world if `world` is None.
        world: the world; default: the scene ``drive``.
        mount: the radar's place in the rig: x forward, y left, z up.
        noise: scale of the thermal noise; 0: no noise.
        phase_error_deg: standard deviation of the antennas' phase errors, by the seed.
        faults: ``noise``: factor of the thermal noise.
    """

    def __init__(
        self,
        chirp: ChirpConfig,
        iq_order: str,
        seed: int = 0,
        world: World | None = None,
        mount: Mount = RADAR,
        noise: float = 1.0,
        phase_error_deg: float = 0.0,
        faults: Sequence[Fault] = (),
    ) -> None:
        self._faults = faults
        self.chirp = chirp
        device = chirp.antennas
        drawn = normal(seed, "antenna", 0, device.tx * device.rx)
        self.phase_errors = drawn.reshape(device.tx, device.rx) * (phase_error_deg / 360)
        """f8 [tx, rx], in turns."""
        self.world = world if world is not None else World("drive", seed)
        self._signal = BeatSignal(chirp, iq_order, self.phase_errors)
        self._seed, self._rotation, self._translation = seed, mount.rotation, mount.translation
        shapes = self.world.targets
        self._half = self.world.sizes_m / 2
        self._rcs = np.array([target.rcs_m2 for target in shapes])
        self._poles = np.array([target.kind == "pole" for target in shapes])
        self._edged = (self._half[:, 0] > _EDGED_M / 2) & ~self._poles
        wave = chirp.wavelength
        four_pi = 4.0 * math.pi
        received = _POWER_W * _ANTENNA * _ANTENNA * wave * wave / (four_pi * four_pi * four_pi)
        self._loudness = math.sqrt(2 * _OHM * _RECEIVER * received) / _STEP_V
        hertz = chirp.sample_rate * 1e3
        power = _KT_W_HZ * hertz * _NOISE_FIGURE * _RECEIVER
        self.noise_steps = noise * math.sqrt(_OHM * power) / _STEP_V
        # Each frame's noise is the sum of two cuts of this array, like newly drawn noise.
        self._drawn: npt.NDArray[np.int16] | None = None
        if noise:
            count = math.prod(chirp.shape) + _NOISE_SPARE
            scale = self.noise_steps * NOISE_UNIT / math.sqrt(2.0)
            drawn = normal(seed, "radar", 0, count) * scale
            self._drawn = np.rint(np.clip(drawn, -_NOISE_LIMIT, _NOISE_LIMIT)).astype(np.int16)

    def end_ns(self, index: int) -> int:
        """Return the world time at which frame `index` ends, ns."""
        return round((index * self.chirp.frame_period + self.chirp.frame_time) * 1e6)

    def targets(self, index: int) -> list[TargetState]:
        """Return the targets in frame `index`, the strongest first."""
        points, owners, main = self._scatterers(index)
        place, velocity = points.place_m, points.velocity_m_s
        distance = np.sqrt((place * place).sum(axis=1))
        radial = (place * velocity).sum(axis=1) / distance
        flat = np.hypot(place[:, 0], place[:, 1])
        azimuth, elevation = np.arctan2(place[:, 1], place[:, 0]), np.arctan2(place[:, 2], flat)
        states = [
            TargetState(
                self.world.targets[owners[k]].track, float(distance[k]), float(radial[k]),
                float(azimuth[k]), float(elevation[k]), float(points.amplitude[k]),
            )
            for k in np.flatnonzero(main)
        ]  # fmt: skip
        return sorted(states, key=lambda state: -state.amplitude)

    def frame(self, index: int) -> Frame:
        """Return frame `index` (from 0) as a new array: int16 [chirps, tx, rx, values]."""
        return self._signal.frame(self._scatterers(index)[0], self._noise(index))

    def _noise(self, index: int) -> npt.NDArray[np.int16] | None:
        if self._drawn is None:
            return None
        size = math.prod(self.chirp.shape)
        one, two = (int(start) % _NOISE_SPARE for start in bits(self._seed, "radarcut", index, 2))
        noise = self._drawn[one : one + size] + self._drawn[two : two + size]
        for fault in active_at(self._faults, index * self.chirp.frame_period * 1e-3):
            noise = np.clip(noise * fault.size, -32767, 32767).astype(np.int16)
        return np.asarray(noise).reshape(self._signal.noise_shape)

    def _scatterers(
        self, index: int
    ) -> tuple[Scatterers, npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """Return the points in view, their targets, and a mask of the targets' nearest points."""
        chirp = self.chirp
        half_s = 0.5e-3 * chirp.frame_time
        middle_s = index * chirp.frame_period * 1e-3 + half_s
        times = middle_s + np.array([-half_s, 0.0, half_s])
        states = self.world.states(times)
        position, rotation = self.world.trajectory.pose(times)
        position = position + rotate(rotation, self._translation)
        rotation = rotation @ self._rotation
        cosine, sine = states.cos_yaw, states.sin_yaw

        # The radar's position in each target's axes, and from it the points, in the middle.
        away = position[1] - states.centre_m[:, 1]
        c, s = cosine[:, 1], sine[:, 1]
        seen = np.stack(
            [c * away[:, 0] + s * away[:, 1], c * away[:, 1] - s * away[:, 0], away[:, 2]], axis=1
        )
        nearest = np.clip(seen, -self._half, self._half)
        level = np.sqrt(seen[:, 0] * seen[:, 0] + seen[:, 1] * seen[:, 1])
        rim = self._half[:, :1] * seen[:, :2] / np.maximum(level, 1e-9)[:, None]
        nearest[self._poles, :2] = rim[self._poles]
        local, owners, shares = [nearest], [np.arange(len(nearest))], [_NEAR_SHARE]
        for ahead in (-1.0, 1.0):
            for left in (-1.0, 1.0):
                edge = np.stack(
                    [ahead * self._half[:, 0], left * self._half[:, 1], nearest[:, 2]], axis=1
                )
                shown = (ahead * seen[:, 0] > self._half[:, 0]) | (
                    left * seen[:, 1] > self._half[:, 1]
                )
                these = np.flatnonzero(shown & self._edged)
                local.append(edge[these])
                owners.append(these)
                shares.append(_EDGE_SHARE)
        point, owner = np.concatenate(local), np.concatenate(owners)
        share = np.repeat(shares, [len(o) for o in owners])

        # The same points of the targets at the three times, in the radar's frame.
        c, s = cosine[owner], sine[owner]
        x, y = point[:, :1], point[:, 1:2]
        world = np.stack([c * x - s * y, s * x + c * y, np.repeat(point[:, 2:], 3, axis=1)], axis=2)
        world += states.centre_m[owner] - position
        at = rotate_back(rotation, world)
        velocity = (at[:, 2] - at[:, 0]) * (0.5 / half_s)
        acceleration = (at[:, 2] + at[:, 0] - 2 * at[:, 1]) * (1.0 / (half_s * half_s))
        amplitude = self._amplitudes(at[:, 1], share * self._rcs[owner])
        amplitude *= np.abs(velocity).max(axis=1) < _FASTEST_M_S
        kept = amplitude > _FAINT
        points = Scatterers(at[kept, 1], velocity[kept], acceleration[kept], amplitude[kept])
        main = np.arange(len(point)) < len(nearest)
        return points, owner[kept], main[kept]

    def _amplitudes(self, place: Floats, rcs_m2: Floats) -> Floats:
        """Return amplitudes in steps of the ADC by the radar equation, with antennas and filter."""
        x, y, z = place[:, 0], place[:, 1], place[:, 2]
        level = x * x + y * y
        square = level + z * z
        distance = np.sqrt(square)
        up = z / (np.maximum(distance, _NEAREST_M) * _BEAM_UP)
        lobe = 1.0 + up * up
        gain = (x * x / np.maximum(level, 1e-12)) / (lobe * lobe)
        room = np.clip((1.0 - distance / self.chirp.max_range) * 10.0, 0.0, 1.0)
        gain *= room * room * (3.0 - 2.0 * room)
        amplitude = self._loudness * np.sqrt(rcs_m2) / np.maximum(square, 1e-6) * gain
        return np.asarray(np.where((x > 0) & (distance > _NEAREST_M), amplitude, 0.0))


def make_radar(
    name: str, options: Mapping[str, Any], chirp: ChirpConfig, iq_order: str
) -> SimulatedRadar:
    """Make the radar that a sensor's checked options describe.

    Raises:
        ConfigError: an invalid fault.
        SourceError: an invalid mount; the message names sensor and option.
    """
    return SimulatedRadar(
        chirp,
        iq_order,
        noise_seed(options["seed"], name, "radar"),
        World.of(options),
        make_mount(name, options["mount"], RADAR),
        options["noise"],
        options["phase_error_deg"],
        read_faults(name, options, RADAR_FAULTS),
    )
