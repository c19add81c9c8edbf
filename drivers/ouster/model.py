"""The measurements of a simulated Ouster: ranges, reflectivity, near infrared, and its IMU.

Every column is cast at its own time: vehicle and targets move while the sensor turns.  Column c of
sweep k is measured at world time ``(k + c / columns) * period``; the device's clock is one second
ahead.  A sweep never depends on the previous sweep.

The frame of the mount (``T_sensor_rig``) is Ouster's *sensor frame*, the frame of the points from
ouster-sdk's ``XYZLut(info)``.  An extrinsic matrix in the metadata (``sensor_to_body``) is not
applied here, so points made with ``use_extrinsics=True`` have other coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.ouster.beams import Beams
from drivers.world import GRAVITY_M_S2, World
from drivers.world.faults import LIDAR_FAULTS, Fault, read_faults
from drivers.world.mounts import LIDAR, Mount, make_mount, rotate, rotate_back
from drivers.world.noise import bits, noise_seed, normal
from drivers.world.view import HORIZON_M, Seen, View

START_NS: Final = 1_000_000_000
"""The device's clock at world time 0."""

DEFAULT_MODE: Final = "1024x10"
"""Columns x Hz of a sensor without metadata."""

_NOISE_MM: Final = 8.0
_NOISE_UNIT: Final = 16  # parts of a millimetre
_NOISE_SPARE: Final = 1 << 16
_REACH: Final = {"OS-0": 22.0, "OS-1": 55.0, "OS-2": 100.0}  # m, for a diffuse surface of 10 %
_DIVERGENCE: Final = {"OS-0": 3.1e-3, "OS-1": 1.6e-3, "OS-2": 0.8e-3}  # rad, half of the beam
_RFL_NOISE, _NIR_NOISE = 1.5, 12.0
_SUNLIGHT, _SKYLIGHT, _SKY_NIR = 900.0, 500.0, 260.0
_IMU_BLOCK: Final = 128
_ACC_NOISE, _AVEL_NOISE = 0.03, 0.002

Image = npt.NDArray[Any]


def default_info(core: Any, mode: str, beams: int) -> Any:
    """Make metadata of a sensor with the design values of an OS-1: SensorInfo of ouster-sdk.

    Args:
        core: the module ouster.sdk.core.
        mode: columns x Hz, such as ``1024x10``.
        beams: number of beams, spread evenly over +-21 degrees.
    """
    info = core.SensorInfo.from_default(core.LidarMode(mode))
    azimuth_deg = np.resize([4.2, 1.4, -1.4, -4.2], beams)
    info.beam_altitude_angles = np.round(np.linspace(21.0, -21.0, beams), 3).tolist()
    info.beam_azimuth_angles = azimuth_deg.tolist()
    info.prod_line, info.fw_rev, info.sn = f"OS-1-{beams}", "v2.3.0", 1
    data_format = info.format
    shift = np.round((azimuth_deg - azimuth_deg.min()) / 360 * data_format.columns_per_frame)
    data_format.pixels_per_column = beams
    data_format.pixel_shift_by_row = shift.astype(int).tolist()
    data_format.udp_profile_lidar = core.UDPProfileLidar.RNG15_RFL8_NIR8
    info.format = data_format
    config = info.config
    config.udp_port_lidar, config.udp_port_imu = 7502, 7503
    config.udp_profile_lidar = core.UDPProfileLidar.RNG15_RFL8_NIR8
    info.config = config
    return info


def make_lidar_scene(core: Any, info: Any, name: str, options: Mapping[str, Any]) -> LidarScene:
    """Make the scene that a sensor's checked options describe.

    Args:
        core: the module ouster.sdk.core.
        info: the sensor's SensorInfo.
        name: the sensor's name, for messages and its noise.
        options: ``scene``, ``seed``, ``noise`` and ``mount``.

    Raises:
        ConfigError: an invalid fault.
        SourceError: an invalid mount; the message names sensor and option.
    """
    mount = make_mount(name, options["mount"], LIDAR)
    world = World.of(options)
    seed = noise_seed(options["seed"], name, "lidar")
    faults = read_faults(name, options, LIDAR_FAULTS)
    return LidarScene(core, info, world, mount, seed, options["noise"], faults)


class LidarScene:
    """Sweeps and IMU samples of one sensor in the world.

    >>> scene = LidarScene(core, default_info(core, "1024x10", 128), World("drive", seed=0))
    >>> scene.sweep(0)["RANGE"].shape
    (128, 1024)

    Ranges are rounded to the resolution of the sensor's profile (8 mm with RNG15_RFL8_NIR8, else
    1 mm); without a surface, or with too little returned light, they are 0.  In a profile with two
    returns, the first is the nearer one.  There is a second return where a beam grazes the outline
    of a target, so that a part of the beam continues to the surface behind.

    Args:
        core: the module ouster.sdk.core.
        info: the sensor's SensorInfo; its profile defines the fields.
        world: the world.
        mount: the sensor's place in the rig.
        seed: of the noise.
        noise: scale of the noise; 0: no noise.  1 means 8 mm of range.
        faults: of the lidar, see `LidarFaults`.

    Attributes:
        fields: dtypes of the sweeps' fields, by ouster-sdk's names.
        beams, columns: shape of a sweep.
        rays: the rays' geometry.
    """

    def __init__(
        self,
        core: Any,
        info: Any,
        world: World,
        mount: Mount = LIDAR,
        seed: int = 0,
        noise: float = 1.0,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.beams, self.columns = int(info.h), int(info.w)
        layout = core.PacketFormat(info)
        sent = set(layout.fields)
        dtypes = {
            "RANGE": "u4", "REFLECTIVITY": "u1", "NEAR_IR": "u2", "RANGE2": "u4",
            "REFLECTIVITY2": "u1",
        }  # fmt: skip
        self.fields = {name: dtype for name, dtype in dtypes.items() if name in sent}
        masks = {name: int(layout.field_value_mask(name)) for name in self.fields}
        self._units = {name: (mask & -mask, mask) for name, mask in masks.items()}
        self._units.setdefault("NEAR_IR", (1, 0xFFFF))
        self.rays = Beams(info)
        self.world, self.mount = world, mount
        self.period_ns = self.rays.period_ns
        family = str(info.prod_line)[:4]
        self._reach_m = _REACH.get(family, _REACH["OS-1"])
        divergence = _DIVERGENCE.get(family, _DIVERGENCE["OS-1"])
        materials = np.array([target.reflectivity for target in world.targets])
        beam = divergence if "RANGE2" in sent else None
        reach_m = self._reach_m * np.sqrt(10 * materials)
        self._view = View(world, mount, self.rays, beam, reach_m, faults, seed)
        self._seed, self._noise = seed, noise
        # Each sweep's noise is the sum of two cuts of this array, like newly drawn noise.
        pixels = self.beams * self.columns + _NOISE_SPARE
        scale = _NOISE_MM * _NOISE_UNIT * noise / float(np.sqrt(2.0))
        drawn = normal(seed, "lidar", 0, pixels) * scale
        self._drawn = np.rint(np.clip(drawn, -16000, 16000)).astype(np.int16)
        place = np.asarray(info.imu_to_sensor_transform, np.float64)
        self._arm_m = rotate(mount.rotation, place[:3, 3] * 1e-3) + mount.translation
        self._imu_block = -1, np.empty((0, 6))
        self._imu_to_rig = mount.rotation @ place[:3, :3]

    def sweep(self, index: int) -> Mapping[str, Image]:
        """Return the sweep's fields by ouster-sdk's names, [beams, columns], ranges in mm."""
        first, second = self._view.look(index * self.period_ns * 1e-9)
        fields = self._returns(first, index, "", 1.0)
        if second is not None:
            second.distance[fields["RANGE"] == 0] = np.inf
            fields |= self._returns(second, index, "2", 0.5)
        fields["NEAR_IR"] = self._ambient(first, index)
        if len(self.rays.columns) < self.columns:
            unseen = np.ones(self.columns, bool)
            unseen[self.rays.columns] = False
            for values in fields.values():
                values[:, unseen] = 0
        return {name: fields[name] for name in self.fields}

    def _returns(self, seen: Seen, index: int, suffix: str, share: float) -> dict[str, Image]:
        """Return range and reflectivity of surfaces whose `share` of the light suffices."""
        distance = seen.distance
        dim = np.float32(10 * share * self._reach_m * self._reach_m)
        bright = seen.reflectivity * seen.cosine
        bright *= dim
        lit = (distance * distance <= bright) & (distance < HORIZON_M)
        step, top = self._units["RANGE" + suffix]
        mm = np.where(lit, distance, 0)
        mm += np.float32(self.rays.offset_m)
        mm *= np.float32(1000.0)
        reflectivity = seen.reflectivity * np.float32(100.0)
        if self._noise:
            mm += self._cut(index, 0) * np.float32(1 / _NOISE_UNIT)
            reflectivity += self._cut(index, 1) * np.float32(_RFL_NOISE / _NOISE_MM / _NOISE_UNIT)
        counts = np.rint(mm * np.float32(1 / step), out=mm).astype(np.int32)
        counts *= lit
        counts[(counts < 0) | (counts > top // step)] = 0
        counts *= step
        np.clip(np.rint(reflectivity, out=reflectivity), 0, 255, out=reflectivity)
        reflectivity *= counts > 0
        return {
            "RANGE" + suffix: counts.view("<u4"),
            "REFLECTIVITY" + suffix: reflectivity.astype("u1"),
        }

    def _ambient(self, seen: Seen, index: int) -> Image:
        """Return near infrared light of sun and sky, also for pixels without a return."""
        light = seen.sunlight * np.float32(_SUNLIGHT)
        light += np.float32(_SKYLIGHT)
        light *= seen.reflectivity
        light[seen.distance == np.inf] = _SKY_NIR
        if self._noise:
            light += self._cut(index, 2) * np.float32(_NIR_NOISE / _NOISE_MM / _NOISE_UNIT)
        _, top = self._units["NEAR_IR"]
        np.clip(light, 0, top, out=light)
        return light.astype("<u2") & np.uint16(top)

    def _cut(self, index: int, which: int) -> npt.NDArray[np.int16]:
        """Return the noise of a sweep, int16 [beams, columns], in 1 / _NOISE_UNIT mm."""
        starts = bits(self._seed, "lidarcut", index, 6)[2 * which : 2 * which + 2]
        pixels = self.beams * self.columns
        one, two = (int(start) % _NOISE_SPARE for start in starts)
        drawn = self._drawn[one : one + pixels] + self._drawn[two : two + pixels]
        return np.asarray(drawn).reshape(self.beams, self.columns)

    def column_times(self, index: int) -> npt.NDArray[np.uint64]:
        """Return the device time u8 ns of each column, [columns]; 0 for unmeasured columns."""
        times = np.zeros(self.columns, "<u8")
        at = (self.rays.columns * self.period_ns + self.columns // 2) // self.columns
        times[self.rays.columns] = (START_NS + index * self.period_ns + at).astype("<u8")
        return times

    def end_time(self, index: int) -> int:
        """Return the device time in ns of the sweep's last measured column."""
        last = int(self.rays.columns[-1])
        at = (last * self.period_ns + self.columns // 2) // self.columns
        return START_NS + index * self.period_ns + at

    def imu_count(self, until_ns: int, rate_hz: float) -> int:
        """Return the number of IMU samples with a device time up to `until_ns`."""
        count = int((until_ns - START_NS) * rate_hz / 1e9) + 2
        while round((count - 1) * (1e9 / rate_hz)) + START_NS > until_ns:
            count -= 1
        return count

    def imu_times(self, first: int, count: int, rate_hz: float) -> npt.NDArray[np.int64]:
        """Return the device times in ns of the IMU's samples `first` to `first + count - 1`."""
        numbers = np.arange(first, first + count)
        return np.asarray(START_NS + np.rint(numbers * (1e9 / rate_hz)).astype(np.int64))

    def imu(self, first: int, count: int, rate_hz: float) -> dict[str, Image]:
        """Return the built-in IMU's samples `first` to `first + count - 1`, in its own axes.

        ``acc`` f4 [count, 3], specific force in m/s^2; ``avel`` f4 [count, 3], rate of turn in
        rad/s.
        """
        t_ns = self.imu_times(first, count, rate_hz) - START_NS
        motion = self.world.trajectory.motion(t_ns * 1e-9)
        rate, arm = motion.angular_rate_rad_s, self._arm_m
        swing = np.cross(motion.angular_acceleration_rad_s2, arm)
        swing = swing + np.cross(rate, np.cross(rate, arm))
        force = motion.acceleration_m_s2 + np.array([0.0, 0.0, GRAVITY_M_S2])
        force = rotate_back(motion.rotation, force) + swing
        acc = rotate_back(self._imu_to_rig, force)
        avel = rotate_back(self._imu_to_rig, rate)
        if self._noise:
            noise = np.array([self._make_imu_noise(k) for k in range(first, first + count)])
            noise = self._noise * noise.reshape(count, 6)
            acc, avel = acc + _ACC_NOISE * noise[:, :3], avel + _AVEL_NOISE * noise[:, 3:]
        return {"acc": acc.astype("<f4"), "avel": avel.astype("<f4")}

    def _make_imu_noise(self, index: int) -> npt.NDArray[np.float64]:
        block, place = divmod(index, _IMU_BLOCK)
        if block != self._imu_block[0]:
            drawn = normal(self._seed, "lidarimu", block, 6 * _IMU_BLOCK)
            self._imu_block = block, drawn.reshape(_IMU_BLOCK, 6)
        return np.asarray(self._imu_block[1][place])
