"""The simulated lidar against plain geometry, ouster-sdk's own tables, and itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ouster.sdk import core

from drivers.ouster.beams import Beams
from drivers.ouster.model import START_NS, LidarScene, default_info
from drivers.world import GRAVITY_M_S2, World
from drivers.world.mounts import LIDAR, Mount
from tests.drivers.ouster.caster import Rays, cast, rays_of
from tests.drivers.ouster.rig import make_info
from tests.drivers.world.lone import target, world_of

OS0 = "OS-0-32-U1_v2.2.0_1024x10.json"
OS1 = "OS-1-128_v2.3.0_1024x10.json"
DUAL = "RNG19_RFL8_SIG16_NIR16_DUAL"


def info_named(name: str, shared_data: Path) -> Any:
    return core.SensorInfo((shared_data / "ouster" / name).read_text())


def dual_info(beams: int = 32, mode: str = "512x10") -> Any:
    info = default_info(core, mode, beams)
    layout = info.format
    layout.udp_profile_lidar = core.UDPProfileLidar.from_string(DUAL)
    info.format = layout
    return info


def world_times(lidar: LidarScene, index: int) -> npt.NDArray[np.float64]:
    return np.asarray((lidar.column_times(index).astype(np.int64) - START_NS) * 1e-9, np.float64)


def pixels(info: Any, count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    return rng.integers(0, info.h, count), rng.integers(0, info.w, count)


@pytest.mark.parametrize("name", [OS0, OS1])
def test_rays_are_those_of_ouster_sdk(name: str, shared_data: Path) -> None:
    info = info_named(name, shared_data)
    beams = Beams(info)
    for mm in (700, 20_000, 240_000):
        expected = np.asarray(core.XYZLut(info, False)(np.full((info.h, info.w), mm, np.uint32)))
        points = beams.origin + np.float32(mm / 1000 - beams.offset_m) * beams.direction
        assert np.abs(np.moveaxis(points, 0, -1) - expected).max() < 5e-5


@pytest.mark.parametrize(
    ("window", "columns"),
    [
        ((0, 511), range(512)),
        ((100, 103), range(100, 104)),
        ((510, 2), (0, 1, 2, 510, 511)),  # across the encoder's zero; in a sweep's order
    ],
)
def test_the_columns_of_a_window(window: tuple[int, int], columns: Iterable[int]) -> None:
    info = default_info(core, "512x10", 32)
    layout = info.format
    layout.column_window = window
    info.format = layout
    assert Beams(info).columns.tolist() == list(columns)


def test_rays_of_a_sensor_with_an_angle_for_every_pixel() -> None:
    info = default_info(core, "512x10", 32)
    down, aside = np.meshgrid(np.linspace(10, -10, 32), np.linspace(-30, 30, 512), indexing="ij")
    info.beam_altitude_angles, info.beam_azimuth_angles = (
        down.ravel().tolist(),
        aside.ravel().tolist(),
    )
    beams = Beams(info)
    expected = np.asarray(core.XYZLut(info, False)(np.full((32, 512), 20_000, np.uint32)))
    points = beams.origin + np.float32(20 - beams.offset_m) * beams.direction
    assert np.abs(np.moveaxis(points, 0, -1) - expected).max() < 5e-5
    assert np.mean(LidarScene(core, info, World("parked")).sweep(3)["RANGE"] > 0) > 0.3


TILTED = Mount((1.0, 0.2, 1.9), (0.1, -0.1, 0.1, 0.98488578))


@pytest.mark.parametrize(
    ("name", "scene", "index", "mount"),
    [
        (OS1, "drive", 30, LIDAR),
        pytest.param(OS1, "straight", 999_999, LIDAR, marks=pytest.mark.campaign),
        pytest.param(OS0, "parked", 7, LIDAR, marks=pytest.mark.campaign),
        (OS0, "drive", 137, TILTED),
    ],
)
def test_every_ray_meets_what_plain_geometry_says(
    name: str, scene: str, index: int, mount: Mount, shared_data: Path
) -> None:
    info, world = info_named(name, shared_data), World(scene, 1)
    lidar = LidarScene(core, info, world, mount, noise=0.0)
    fields = lidar.sweep(index)
    rows, columns = pixels(info, 3_000)
    t_col_s = world_times(lidar, index)
    expected, who = cast(rays_of(info, world, mount, t_col_s, rows, columns), world)
    got = fields["RANGE"][rows, columns] / 1000.0
    step = 0.008 if name == OS1 else 0.001
    same = np.abs(got - expected) <= step / 2 + 0.0005
    # At the very edge of a target, rounding decides whether it is met.
    assert np.mean(same[got > 0]) > 0.999
    assert np.mean(got[expected < 8] > 0) > 0.999
    assert len(set(who[got > 0].tolist())) > 12
    assert (got == 0).any() and not got[expected > 261].any()


def test_the_vehicle_moves_during_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall ahead comes nearer from column to column."""
    placed = [target("building", (0.5, 400.0, 30.0), start=60.0)]
    info = default_info(core, "1024x10", 32)
    lidar = LidarScene(core, info, world_of(monkeypatch, placed, speed=20.0), noise=0.0)
    beams = Beams(info)
    first = lidar.sweep(0)["RANGE"]
    points = (first / 1000.0 - beams.offset_m) * beams.direction[0] + beams.origin[0]
    wall = (np.abs(beams.direction[2] - 0.03) < 0.05) & (first > 30_000)
    t_s = np.broadcast_to(np.arange(1024) / 10_240.0, wall.shape)
    expected = 60.0 - 0.25 - LIDAR.translation[0] - 20.0 * t_s
    assert wall.sum() > 1000 and np.ptp(t_s[wall]) > 0.03
    assert np.abs(points - expected)[wall].max() < 0.0045
    assert np.abs(points - expected[:, 512:513])[wall].max() > 0.25


def test_a_grazed_edge_shows_what_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Second returns are beams of which a neighbour, a beam's radius aside, passes the target."""
    thin = [target("pole", (0.02, 0.02, 4.0), start=8.0, lateral_m=3 + 0.57 * k) for k in range(8)]
    placed = [
        target("car", (2.0, 3.0, 1.0), start=10.0),
        *thin,
        target("building", (1.0, 60.0, 20.0), start=20.0, reflectivity=0.9),
    ]
    info, world = dual_info(128, "1024x10"), world_of(monkeypatch, placed)
    lidar = LidarScene(core, info, world, noise=0.0)
    fields = lidar.sweep(0)
    t_col_s = world_times(lidar, 0)
    front = np.s_[:, 340:684]  # the rest looks elsewhere
    rows, columns = (a[front].ravel() for a in np.indices((info.h, info.w)))
    rays = rays_of(info, world, LIDAR, t_col_s, rows, columns)
    met, who = cast(rays, world)
    first, second = (fields[n][front].ravel() / 1000.0 for n in ("RANGE", "RANGE2"))
    two = second > 0
    assert 20 < two.sum() < 1000
    assert set(who[two].tolist()) > {0} and not (who[two] == 9).any()
    assert (second[two] > first[two]).all()
    assert not fields["REFLECTIVITY2"][front].ravel()[~two].any()
    np.testing.assert_allclose(first[two], met[two], atol=0.001)

    # What is behind: the same rays in a world without what is in front of the wall.
    rest = world_of(monkeypatch, placed[9:])
    behind, wall = cast(rays, rest)
    np.testing.assert_allclose(second[two], behind[two], atol=0.001)

    # A beam of 1.6 mrad around the ray: passes the target with two returns, meets it with one.
    chosen = np.flatnonzero((who >= 0) & (who < 9))
    rays = Rays(rays.start[chosen], rays.direction[chosen], rays.t_s[chosen], 0.0)
    two, who, seen = two[chosen], who[chosen], first[chosen] > 0
    across = np.cross(rays.direction, [0.0, 0.0, 1.0])
    across /= np.linalg.norm(across, axis=1)[:, None]
    above = np.cross(across, rays.direction)
    all_on, some_off = np.ones(len(two), bool), np.zeros(len(two), bool)
    for angle in np.arange(8) * np.pi / 4:
        for radius, off in ((1.4e-3, False), (1.8e-3, True)):
            aside = radius * (np.cos(angle) * across + np.sin(angle) * above)
            _, other = cast(Rays(rays.start, rays.direction + aside, rays.t_s, 0.0), world)
            if off:
                some_off |= other != who
            else:
                all_on &= other == who
    assert some_off[two].all()
    # A beam wholly on the target has one return, unless it is within a hair of the outline.
    assert np.mean(two[seen & (who == 0) & all_on]) < 0.02
    # What is thinner than the beam lets a part of it go on, which the wall sends back.
    slender = (who > 0) & seen & (wall[chosen] == 0)
    assert slender.sum() >= 10 and two[slender].all()


def test_far_and_dark_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    info = default_info(core, "1024x10", 128)
    seen = {}
    for reflectivity in (0.05, 0.8):
        placed = [target("building", (1.0, 40.0, 30.0), start=70.0, reflectivity=reflectivity)]
        lidar = LidarScene(core, info, world_of(monkeypatch, placed), noise=0.0)
        fields = lidar.sweep(0)
        seen[reflectivity] = fields["RANGE"] > 60_000
        assert fields["RANGE"].max() > (65_535 if reflectivity == 0.8 else 0)
        assert (fields["REFLECTIVITY"][seen[reflectivity]] == 80).all()
    assert not seen[0.05].any() and seen[0.8].sum() > 1000


def test_values_are_what_the_profile_carries() -> None:
    narrow, wide = default_info(core, "512x10", 32), dual_info()
    low = LidarScene(core, narrow, World("drive")).sweep(2)
    assert set(low) == {"RANGE", "REFLECTIVITY", "NEAR_IR"}
    assert not (low["RANGE"] % 8).any() and not (low["NEAR_IR"] % 16).any()
    high = LidarScene(core, wide, World("drive")).sweep(2)
    assert set(high) == {*low, "RANGE2", "REFLECTIVITY2"}
    assert (high["RANGE"] % 8).any() and (high["NEAR_IR"] % 16).any()
    for name, values in high.items():
        assert (
            values.dtype
            == {"RANGE": "u4", "REFLECTIVITY": "u1", "NEAR_IR": "u2"}[name.removesuffix("2")]
        )
    world = World("parked")
    for profile in (p.name for p in core.UDPProfileLidar.values() if p.name not in "UNKNOWN OFF"):
        info = make_info(profile)
        layout = core.PacketFormat(info)
        sweep = LidarScene(core, info, world).sweep(0)
        assert "RANGE" in sweep and (sweep["RANGE"] > 0).any()
        for name, values in sweep.items():
            assert not np.any(values & ~np.uint32(layout.field_value_mask(name))), (profile, name)


def test_noise_is_as_large_as_said_and_new_in_every_sweep() -> None:
    info, world = dual_info(), World("parked", 1)
    still = LidarScene(core, info, world, noise=0.0).sweep(4)["RANGE"].astype(int)
    for scale in (1.0, 3.0):
        lidar = LidarScene(core, info, world, seed=9, noise=scale)
        errors = [(lidar.sweep(k)["RANGE"].astype(int) - still)[still > 0] for k in (4, 4, 4)]
        error = errors[0][np.abs(errors[0]) < 100 * scale]
        assert error.std() == pytest.approx(8.0 * scale, rel=0.05)
        assert abs(error.mean()) < 0.5 * scale
        np.testing.assert_array_equal(errors[0], errors[1])
    moved = LidarScene(core, info, world, seed=9).sweep(5)["RANGE"].astype(int) - still
    near = (still > 0) & (np.abs(moved) < 60)
    first = LidarScene(core, info, world, seed=9).sweep(4)["RANGE"].astype(int) - still
    assert abs(np.corrcoef(first[near], moved[near])[0, 1]) < 0.05


def test_columns_outside_the_window_are_not_measured() -> None:
    info = make_info(DUAL, window=48)
    lidar = LidarScene(core, info, World("drive"))
    times = lidar.column_times(3)
    assert np.flatnonzero(times).tolist() == list(range(48))
    assert lidar.end_time(3) == times.max() == times[47]
    sweep = lidar.sweep(3)
    assert not any(values[:, 48:].any() for values in sweep.values())
    assert all(sweep[name][:, :48].any() for name in ("RANGE", "REFLECTIVITY", "NEAR_IR"))


@pytest.mark.parametrize("scene", ["drive", "straight"])
def test_the_imu_feels_how_its_place_moves(scene: str) -> None:
    """Against differences of the trajectory, at the IMU's own place in the sensor."""
    info, world = default_info(core, "1024x10", 32), World(scene)
    mount = Mount((1.0, 0.3, 1.9), (0.0, 0.0, 0.6, 0.8))
    lidar = LidarScene(core, info, world, mount, noise=0.0)
    samples, h = lidar.imu(200, 3000, 100.0), 1e-3
    t_s = (lidar.imu_times(200, 3000, 100.0) - START_NS) * 1e-9
    place = np.array([6.253, -11.775, 7.645]) * 1e-3 @ mount.rotation.T + mount.translation

    def at(t: Any) -> tuple[Any, Any]:
        position, rotation = world.trajectory.pose(t)
        return position + rotation @ place, rotation @ mount.rotation

    (before, r0), (now, r1), (after, r2) = at(t_s - h), at(t_s), at(t_s + h)
    pull = (after - 2 * now + before) / h**2 + [0.0, 0.0, GRAVITY_M_S2]
    force = np.einsum("nji,nj->ni", r1, pull)
    spin = np.einsum("nji,njk->nik", r1, (r2 - r0) / (2 * h))
    rate = np.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], axis=1)
    # Where one part of the drive ends and another begins, the force has a bend.
    assert np.quantile(np.abs(samples["acc"] - force).max(axis=1), 0.99) < 2e-3
    assert np.abs(samples["avel"] - rate).max() < 1e-3
    if scene == "drive":
        assert np.ptp(samples["avel"][:, 2]) > 0.3 and np.ptp(samples["acc"][:, 0]) > 1.5
    noisy = LidarScene(core, info, world, mount, noise=2.0).imu(200, 3000, 100.0)
    assert (noisy["acc"] - samples["acc"]).std() == pytest.approx(0.06, rel=0.05)
    parts = [LidarScene(core, info, world, mount, noise=2.0).imu(k, 1, 100.0) for k in (330, 200)]
    assert parts[0]["acc"].tobytes() == noisy["acc"][130:131].tobytes()
    assert parts[1]["avel"].tobytes() == noisy["avel"][:1].tobytes()


def digest() -> str:
    """Of sweeps and IMU samples of a sensor with two returns and of one with one."""
    total = hashlib.sha256()
    for info, scene in ((dual_info(), "drive"), (default_info(core, "1024x10", 64), "straight")):
        lidar = LidarScene(core, info, World(scene, 7), seed=7)
        for index in (0, 57, 36_000):
            for values in lidar.sweep(index).values():
                total.update(values.tobytes())
        for values in lidar.imu(120, 40, 100.0).values():
            total.update(values.tobytes())
    return total.hexdigest()


GOLDEN = "d41efa496dd9f54eb5a0def350c621f92cb1d984b0e5f958c8085f062052434c"


def test_the_same_bytes_as_ever() -> None:
    assert digest() == GOLDEN


def test_any_sweep_at_any_time() -> None:
    info = dual_info()
    lidar = LidarScene(core, info, World("drive", 1), seed=2)
    expected = {k: {n: v.tobytes() for n, v in lidar.sweep(k).items()} for k in (0, 1, 2, 40)}
    for k in (40, 2, 0):
        again = LidarScene(core, info, World("drive", 1), seed=2).sweep(k)
        assert {n: v.tobytes() for n, v in again.items()} == expected[k]
    other = LidarScene(core, info, World("drive", 1), seed=3).sweep(1)
    assert other["RANGE"].tobytes() != expected[1]["RANGE"]
