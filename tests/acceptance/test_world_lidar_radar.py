"""Lidar and radar of one world, recorded by the command, held against the world's own truth.

Everything is read back from the session's files.  What the truth is comes from the trajectory and
the targets alone: rays, points and cells are computed here once more, by ouster-sdk and plain
Fourier transforms.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ouster.sdk import core

from drivers.world import World
from drivers.world.mounts import LIDAR, RADAR, Mount
from recorder.session.reader import Session, lidar_range_mm
from recorder.session.stream import Stream
from tests.acceptance.command import assert_nothing_lost, assert_sound, here, write_config
from tests.drivers.mmwave.spectra import Spectrum
from tests.drivers.ouster.caster import GROUND, in_target, off_surface

Floats = npt.NDArray[np.float64]

TILTED = Mount((1.2, 0.1, 1.9), (0.0, 0.04997917, 0.0, 0.99875026))
SIDE = Mount((3.4, 0.8, 0.7), (0.0, 0.0, 0.19866933, 0.98006658))
REAL = {"os0": "OS-0-32-U1_v2.2.0_1024x10.json", "os1": "OS-1-128_v2.3.0_1024x10.json"}


def mount_option(mount: Mount) -> str:
    return json.dumps(mount.to_mapping()).replace('"', "")


def record(folder: Path, sensors: str) -> Path:
    config = write_config(folder / "config.yaml", sensors)
    ran = here("run", config, "--root", folder, "--name", "s", "--duration", 2)
    assert ran.code == 0, ran.err
    assert ran.complaints == []
    return folder / "s"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Two seconds of the default lidar, with its noise, and of radars in both orders."""
    sensors = f"""
        lidar: {{driver: ouster, source: "sim:", pace: max, seed: 5, scene: straight, mode: 512x10,
            beams: 64}}
        radar: {{driver: mmwave, source: "sim:", pace: max, seed: 5, scene: straight}}
        side: {{driver: mmwave, source: "sim:", pace: max, seed: 5, scene: straight,
            iq_order: iiqq, mount: {mount_option(SIDE)}}}
    """.replace(",\n            ", ", ")
    path = record(tmp_path_factory.mktemp("default"), sensors)
    assert_nothing_lost(path)
    assert_sound(path)
    with Session(path) as session:
        yield session


@pytest.fixture(scope="module")
def real(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Two seconds of two real sensors' geometry, without noise."""
    common = 'driver: ouster, source: "sim:", pace: max, seed: 5, noise: 0, compression: raw'
    folder = shared_data / "ouster"
    sensors = f"""
        os0: {{{common}, metadata: {folder / REAL["os0"]}}}
        os1: {{{common}, metadata: {folder / REAL["os1"]}, mount: {mount_option(TILTED)}}}
    """
    path = record(tmp_path_factory.mktemp("real"), sensors)
    assert_nothing_lost(path)
    with Session(path) as session:
        yield session


def world_seconds(session: Session, stream: Stream, index: int, t_dev_ns: Any) -> Floats:
    """World time of device times of a sample: it begins with the session."""
    assert session.start_ns is not None
    end_ns = int(stream.t_ns[index]) - session.start_ns
    assert stream.t_dev_ns is not None
    late = np.asarray(t_dev_ns).astype(np.int64) - int(stream.t_dev_ns[index])
    return np.asarray((end_ns + late) * 1e-9, np.float64)


@dataclass
class Cloud:
    """Points [n, 3] in the sensor's frame, their times [n] and pixels."""

    points: Floats
    t_s: Floats
    columns: npt.NDArray[np.int64]

    def in_world(self, world: World, mount: Mount, t_s: Floats | None = None) -> Floats:
        position, rotation = world.trajectory.pose(self.t_s if t_s is None else t_s)
        in_rig = self.points @ mount.rotation.T + mount.translation
        return np.asarray(np.einsum("nij,nj->ni", rotation, in_rig) + position)


def cloud(session: Session, name: str, index: int, return_: int = 1, every: int = 1) -> Cloud:
    stream = session.streams[name]
    info = core.SensorInfo((session.path / name / "lidar.json").read_text())
    ranges = lidar_range_mm(stream, index, return_)
    t_col = stream.sample(index, ["t_col"])["t_col"]
    t_s = np.broadcast_to(world_seconds(session, stream, index, t_col), ranges.shape)
    hit = ranges > 0
    columns = np.broadcast_to(np.arange(ranges.shape[1]), ranges.shape)
    points = np.asarray(core.XYZLut(info, False)(ranges))
    return Cloud(points[hit][::every].astype(np.float64), t_s[hit][::every], columns[hit][::every])


@pytest.mark.parametrize(
    ("name", "mount", "step_mm"),
    [("os0", LIDAR, 1), ("os1", TILTED, 8)],
)
def test_points_lie_on_surfaces_at_each_columns_own_time(
    real: Session, name: str, mount: Mount, step_mm: int
) -> None:
    world = World("drive", 5)
    assert len(real.streams[name]) == 20
    seen: Counter[int] = Counter()
    for index in (0, 19):
        seen_points = cloud(real, name, index, every=11)
        off, who = off_surface(seen_points.in_world(world, mount), seen_points.t_s, world)
        assert off.max() < 0.005 + 0.001
        assert off.max() < step_mm / 2000 + 0.0005  # half of what the profile can tell apart
        seen.update(who.tolist())
        # Taken at the sweep's end, all at once, they would not.
        late = np.full_like(seen_points.t_s, seen_points.t_s.max())
        off, _ = off_surface(seen_points.in_world(world, mount, late), late, world)
        assert np.mean(off > 0.006) > 0.05
    kinds = Counter(world.targets[k].kind for k in seen if k != GROUND and seen[k] >= 3)
    assert kinds["car"] >= 3 and kinds["pole"] >= 1 and kinds["building"] >= 3
    assert seen[GROUND] > 500


def test_second_returns_lie_on_what_is_behind(real: Session) -> None:
    world, count = World("drive", 5), 0
    for index in range(0, 20, 4):
        stream = real.streams["os0"]
        first, second = (lidar_range_mm(stream, index, k).astype(np.int64) for k in (1, 2))
        behind = second > 0
        assert (second > first)[behind].all() and (first > 0)[behind].all()
        points = cloud(real, "os0", index, 2)
        off, _ = off_surface(points.in_world(world, LIDAR), points.t_s, world)
        assert off.max() < 0.006
        count += int(behind.sum())
    assert count > 50


def test_points_with_noise(session: Session) -> None:
    world = World("straight", 5)
    stream = session.streams["lidar"]
    assert len(stream) == 20 and len(session.streams["lidar_imu"]) == 200
    assert session.start_ns is not None
    assert int(stream.t_ns[0]) - session.start_ns == pytest.approx(511 / 512 * 1e8, abs=1)
    points = cloud(session, "lidar", 11, every=7)
    off, _ = off_surface(points.in_world(world, LIDAR), points.t_s, world)
    # 8 mm along the ray, and rounding to 8 mm; the surface may be nearer than along the ray.
    assert np.sqrt(np.mean(off**2)) < 0.009 and off.max() < 0.05


def nearest(world: World, number: int, mount: Mount, t_s: Floats) -> Floats:
    """Nearest point of a target's surface, in the radar's frame, at times [n]: [n, 3]."""
    position, rotation = world.trajectory.pose(t_s)
    radar = position + rotation @ mount.translation
    centre, turned = in_target(world, number, t_s)
    seen = np.einsum("nji,nj->ni", turned, radar - centre)
    half = np.array(world.targets[number].size_m) / 2
    local = np.clip(seen, -half, half)
    if world.targets[number].kind == "pole":
        flat = np.linalg.norm(seen[:, :2], axis=1)[:, None]
        local[:, :2] = half[0] * seen[:, :2] / flat
    point = np.einsum("nij,nj->ni", turned, local) + centre - radar
    return np.asarray(np.einsum("nji,nj->ni", rotation, point) @ mount.rotation)


@dataclass
class Echo:
    """What comes back from a point of a target: range, radial speed, azimuth, strength in dB."""

    number: int
    range_m: float
    speed_m_s: float
    azimuth: float
    level: float


def echo(number: int, places: Floats, step_s: float, rcs_m2: float) -> Echo | None:
    """Of a point's places [3, 3] at three times; strength by rcs, range and antennas, no unit."""
    distance = np.linalg.norm(places, axis=1)
    x, y, _ = places[1]
    if x <= 0 or distance[1] > 80:
        return None
    azimuth = float(np.arctan2(y, x))
    level = 10 * np.log10(rcs_m2 * np.cos(azimuth) ** 4 / distance[1] ** 4)
    speed = (distance[2] - distance[0]) / (2 * step_s)
    return Echo(number, float(distance[1]), float(speed), azimuth, float(level))


def echoes(world: World, mount: Mount, t_s: float) -> tuple[dict[int, Echo], list[Echo]]:
    """Of targets' nearest points, by number; and of all points that may echo, with the edges."""
    step_s = 1e-3
    times = np.array([t_s - step_s, t_s, t_s + step_s])
    position, rotation = world.trajectory.pose(times)
    radar = position + rotation @ mount.translation
    near: dict[int, Echo] = {}
    points = []
    for number, target in enumerate(world.targets):
        main = echo(number, nearest(world, number, mount, times), step_s, target.rcs_m2)
        if main is not None:
            near[number] = main
            points.append(main)
        if target.size_m[0] < 1:
            continue
        centre, turned = in_target(world, number, times)
        for a, b in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
            local = np.array([a * target.size_m[0] / 2, b * target.size_m[1] / 2, 0.0])
            place = centre + turned @ local - radar
            place[:, 2] = 0.0
            in_radar = np.einsum("nji,nj->ni", rotation, place) @ mount.rotation
            edge = echo(number, in_radar, step_s, target.rcs_m2 / 10)
            if edge is not None:
                points.append(edge)
    return near, points


def alone(one: Echo, points: list[Echo], spectrum: Spectrum) -> bool:
    """Whether no other echo that could be heard here falls into the cells around."""
    loops = len(spectrum.power)
    row, column = spectrum.place(one.range_m, one.speed_m_s)
    for other in points:
        if abs(other.range_m - one.range_m) + abs(other.speed_m_s - one.speed_m_s) < 1e-3:
            continue
        i, j = spectrum.place(other.range_m, other.speed_m_s)
        rows = abs((i - row + loops / 2) % loops - loops / 2)
        columns = abs(j - column)
        rival = one.level - (3 if other.number == one.number else 10)
        close = rows < 4.5 and columns < 4.5 and other.level > rival
        # Skirts of what is much louder reach further, along rows and columns.
        if close or ((rows < 4 or columns < 4) and other.level > one.level + 30):
            return False
    return True


@pytest.mark.parametrize(
    ("name", "order", "mount"),
    [("radar", "qqii", RADAR), ("side", "iiqq", SIDE)],
)
def test_targets_stand_in_their_cells_of_the_radar(
    session: Session, name: str, order: str, mount: Mount
) -> None:
    world, stream = World("straight", 5), session.streams[name]
    described = json.loads((session.path / name / "radar.json").read_bytes())
    assert described["iq_order"] == order and len(stream) == 40
    assert session.start_ns is not None
    kinds: Counter[str] = Counter()
    moving, angles = 0, []
    for index in range(0, 40, 6):
        spectrum = Spectrum.of(stream.sample(index, ["iq"])["iq"], described)
        end_s = (int(stream.t_ns[index]) - session.start_ns) * 1e-9
        near, points = echoes(world, mount, end_s - described["frame_time"] * 1e-3 / 2)
        floor = float(np.median(spectrum.power))
        for number, one in near.items():
            row, column = spectrum.place(one.range_m, one.speed_m_s)
            visible = one.level > -56 and abs(one.azimuth) < 0.9
            reach = 0.88 * spectrum.power.shape[1]
            if not visible or not 8 < column < reach or not alone(one, points, spectrum):
                continue
            off = spectrum.peak_near(row, column, 2)
            what = (index, world.targets[number].track, one, off)
            assert abs(off[0]) <= 1 and abs(off[1]) <= 1, what
            assert off[2] > 15 * floor, what
            azimuth, _ = spectrum.direction(
                round(row + off[0]), round(column + off[1]), one.speed_m_s
            )
            # Eight antennas half a wave apart tell 2 / 8 rad apart, the more aside the less.
            assert abs(azimuth - one.azimuth) < 0.25 / np.cos(one.azimuth), what
            angles.append(abs(azimuth - one.azimuth))
            kinds[world.targets[number].kind] += 1
            moving += not world.targets[number].standing
    assert sum(kinds.values()) > 20 and len(kinds) >= 4 and moving > 10
    assert np.median(angles) < np.deg2rad(1.5)


def test_the_other_order_shows_nothing_there(session: Session) -> None:
    """What makes the test above one of the order of I and Q."""
    described = json.loads((session.path / "radar/radar.json").read_bytes())
    iq = session.streams["radar"].sample(20, ["iq"])["iq"]
    right = Spectrum.of(iq, described)
    wrong = Spectrum.of(iq, {**described, "iq_order": "iiqq"})
    row, column = np.unravel_index(int(right.power.argmax()), right.power.shape)
    samples = right.power.shape[1]
    mirrored = wrong.power[-row % len(wrong.power), -column % samples]
    assert mirrored == pytest.approx(right.power[row, column])
    assert wrong.power[row, column] < 1e-3 * mirrored


def test_both_sensors_see_the_same_car(session: Session) -> None:
    """The nearest point of the car ahead, by lidar and by radar, in the rig's frame."""
    world = World("straight", 5)
    ahead = next(t for t in world.targets if t.kind == "car")
    points = cloud(session, "lidar", 10)
    in_world = points.in_world(world, LIDAR)
    centre, turned = in_target(world, ahead.number, points.t_s)
    local = np.einsum("nji,nj->ni", turned, in_world - centre)
    on_car = (np.abs(local) < np.array(ahead.size_m) / 2 + 0.03).all(axis=1) & (local[:, 2] > -0.6)
    assert on_car.sum() > 15
    position, rotation = world.trajectory.pose(points.t_s[on_car])
    in_rig = np.einsum("nji,nj->ni", rotation, in_world[on_car] - position)
    by_lidar = float(np.linalg.norm((in_rig - RADAR.translation)[:, :2], axis=1).min())
    described = json.loads((session.path / "radar/radar.json").read_bytes())
    stream = session.streams["radar"]
    middle_ns = int(session.streams["lidar"].t_ns[10]) - 50_000_000
    spectrum = Spectrum.of(stream.sample(stream.at(middle_ns), ["iq"])["iq"], described)
    _, column = spectrum.place(by_lidar, 0.0)
    rows = np.abs(np.fft.fftfreq(len(spectrum.power), 1 / len(spectrum.power))) < 12
    cells = spectrum.power[rows][:, round(column) - 12 : round(column) + 13]
    peak = int(np.unravel_index(int(cells.argmax()), cells.shape)[1]) - 12 + round(column)
    assert abs(peak - column) <= 2
