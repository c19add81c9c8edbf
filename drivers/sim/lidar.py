"""What a simulated Ouster sees: a flat yard, a wall around it, and a box that circles the sensor.

Deterministic in (sensor, seed): the k-th sweep never depends on the one before.  The directions of
the beams are those of the sensor's metadata, so that a point cloud made of the ranges is right to
the millimetre of their noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_GROUND_M: Final = -1.7
_WALL_M: Final = (70.0, 6.0)  # radius, height above the ground; beyond the u2 range of 65.535 m
_LIMIT_M: Final = 120.0
_BOX_M: Final = (4.2, 1.9, 1.6)
_BOX_RADIUS_M: Final = 12.0
_BOX_RAD_PER_S: Final = 0.35
_NOISE_MM: Final = 8.0
_NOISE_PERIOD: Final = 251  # columns by which the noise is wider than a sweep; prime
_IMU_PERIOD_NS: Final = 10_000_000
_IMU_NOISE: Final = 1009
_START_NS: Final = 1_000_000_000

Image = npt.NDArray[Any]


def default_info(core: Any, mode: str, beams: int) -> Any:
    """Metadata of a sensor with the design values of an OS-1: SensorInfo of ouster-sdk.

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


class LidarScene:
    """Sweeps and IMU samples of one sensor.

    >>> scene = LidarScene(core, default_info(core, "1024x10", 128), seed=0)
    >>> scene.sweep(0)["RANGE"].shape
    (128, 1024)

    Args:
        core: the module ouster.sdk.core.
        info: the sensor's SensorInfo; its profile says whether there are second returns.
        seed: of the noise and of the ground's texture.
    """

    def __init__(self, core: Any, info: Any, seed: int) -> None:
        self.beams, self.columns = int(info.h), int(info.w)
        self.period_ns = round(1e9 / (info.format.fps or 10))
        dual = "RANGE2" in core.PacketFormat(info).fields
        self.fields = {"RANGE": "u4", "REFLECTIVITY": "u1", "NEAR_IR": "u2"}
        if dual:
            self.fields |= {"RANGE2": "u4", "REFLECTIVITY2": "u1"}
        shape = (self.beams, self.columns)
        lut = core.XYZLut(info, False)
        at_1m, at_2m = (np.asarray(lut(np.full(shape, r, np.uint32))) for r in (1000, 2000))
        # A beam starts beside the sensor's origin: points are offset + metres * direction.
        self._direction = np.moveaxis(at_2m - at_1m, -1, 0).astype("f4").copy()
        self._offset = np.moveaxis(2 * at_1m - at_2m, -1, 0).astype("f4").copy()
        middle = self.beams // 2
        self._azimuth = np.arctan2(self._direction[1, middle], self._direction[0, middle])
        self._spread = np.deg2rad(np.ptp(info.beam_azimuth_angles))
        rng = np.random.default_rng(seed)
        wide = (self.beams, self.columns + _NOISE_PERIOD)
        self._noise_mm = rng.normal(0, _NOISE_MM, wide).round().astype("<i4")
        self._noise_u1 = rng.integers(0, 5, wide, "u1")
        self._imu_noise = rng.normal(0, 1, (_IMU_NOISE, 6)).astype("<f4")
        self._fixed_scene(rng)

    def _fixed_scene(self, rng: np.random.Generator) -> None:
        direction, offset = self._direction.astype("f8"), self._offset.astype("f8")
        with np.errstate(divide="ignore"):
            ground = (_GROUND_M - offset[2]) / np.where(direction[2] < 0, direction[2], -0.0)
        wall = _WALL_M[0] / np.hypot(direction[0], direction[1])
        on_wall = (wall < ground) & (wall * direction[2] + offset[2] < _GROUND_M + _WALL_M[1])
        metres = np.where(on_wall, wall, np.where(ground < wall, ground, 0.0))
        metres[metres > _LIMIT_M] = 0.0
        self._hit = metres > 0
        self._base_mm = np.round(metres * 1000).astype("<i4")
        texture = rng.integers(0, 12, (self.beams, self.columns), "u1")
        self._base_rfl = np.where(on_wall, 110, 24).astype("u1") + texture
        self._base_rfl[~self._hit] = 0
        sky = np.linspace(900, 300, self.beams)[:, None] + 200 * np.cos(self._azimuth)
        self._base_nir = np.where(self._hit, 250 + 4.0 * self._base_rfl, sky).astype("<u2")

    def sweep(self, index: int) -> Mapping[str, Image]:
        """The sweep's fields by ouster-sdk's names, each [beams, columns], ranges in mm."""
        at = index * 97 % _NOISE_PERIOD
        noise_mm = self._noise_mm[:, at : at + self.columns]
        noise_u1 = self._noise_u1[:, at : at + self.columns]
        ranges = self._base_mm + noise_mm
        ranges *= self._hit
        rfl = self._base_rfl + noise_u1
        nir = self._base_nir + noise_u1
        fields = {"RANGE": ranges.view("<u4"), "REFLECTIVITY": rfl, "NEAR_IR": nir}
        behind_mm = np.zeros_like(ranges) if "RANGE2" in self.fields else None
        columns, box_m = self._box((index + 0.5) * self.period_ns * 1e-9)
        hit = np.isfinite(box_m)
        box_mm = np.where(hit, box_m * 1000, 0).astype("<i4") + noise_mm[:, columns]
        hit &= (ranges[:, columns] == 0) | (box_mm < ranges[:, columns])
        if behind_mm is not None:  # a beam that grazes the box also sees what is behind it
            behind_mm[:, columns] = np.where(hit, ranges[:, columns], 0)
            behind_rfl = np.where(behind_mm > 0, rfl, 0).astype("u1")
            fields |= {"RANGE2": behind_mm.view("<u4"), "REFLECTIVITY2": behind_rfl}
        ranges[:, columns] = np.where(hit, box_mm, ranges[:, columns])
        rfl[:, columns] = np.where(hit, 180 + noise_u1[:, columns], rfl[:, columns])
        return fields

    def _box(self, seconds: float) -> tuple[npt.NDArray[np.intp], Image]:
        """Columns that may see the box, and per beam the metres to it; inf where it is missed."""
        angle = _BOX_RAD_PER_S * seconds
        centre = np.array([np.cos(angle), np.sin(angle), 0.0]) * _BOX_RADIUS_M
        centre[2] = _GROUND_M + _BOX_M[2] / 2
        half = np.array(_BOX_M) / 2
        reach = np.arctan(np.hypot(half[0], half[1]) / (_BOX_RADIUS_M - half[0])) + self._spread
        apart = np.abs((self._azimuth - angle + np.pi) % (2 * np.pi) - np.pi)
        columns = np.flatnonzero(apart < reach)
        near = np.zeros((self.beams, len(columns)), "f4")
        far = np.full_like(near, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            for axis in range(3):  # the slab method, on an axis-aligned box
                inverse = 1 / self._direction[axis][:, columns]
                offset = self._offset[axis][:, columns]
                sides = [(centre[axis] + s * half[axis] - offset) * inverse for s in (-1, 1)]
                near = np.fmax(near, np.fmin(*sides))
                far = np.fmin(far, np.fmax(*sides))
        return columns, np.where((near <= far) & (near > 0), near, np.inf)

    def column_times(self, index: int) -> tuple[npt.NDArray[np.uint64], int]:
        """Device time u8 ns of each column's end, [columns], and of the sweep's end."""
        start_ns = _START_NS + index * self.period_ns
        steps = np.arange(1, self.columns + 1, dtype="<u8") * np.uint64(self.period_ns)
        times = np.uint64(start_ns) + steps // np.uint64(self.columns)
        return times, start_ns + self.period_ns

    def imu_time(self, index: int) -> int:
        """Device time in ns of the IMU's k-th sample; 100 Hz."""
        return _START_NS + (index + 1) * _IMU_PERIOD_NS

    def imu(self, index: int) -> dict[str, Image]:
        """``acc`` f4 [1, 3] m/s^2 and ``avel`` f4 [1, 3] rad/s: a car that sways at a stand."""
        seconds = (index + 1) * _IMU_PERIOD_NS * 1e-9
        noise = self._imu_noise[index % _IMU_NOISE]
        sway = np.sin(2 * np.pi * 0.5 * seconds)
        acc = np.array([0.2 * sway, 0.1 * sway, 9.80665]) + 0.03 * noise[:3]
        avel = np.array([0.02 * sway, 0.01 * sway, 0.05 * sway]) + 0.002 * noise[3:]
        return {"acc": acc[None].astype("<f4"), "avel": avel[None].astype("<f4")}
