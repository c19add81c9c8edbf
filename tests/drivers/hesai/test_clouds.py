"""Points of real Hesai lidars against clouds of tier4/nebula, made of the same packets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial import cKDTree

from recorder.codecs.streams import StreamSpec
from recorder.perception.lidar.beams import BeamPoints
from tests.drivers.kit.lidar.lidars import REAL, Account, feed, make_family, read_real

CUT_DEG, NEAR_M, SAME_M = 12.0, 2e-3, 0.1
"""Degrees around the cut, where the cloud cuts each channel elsewhere; how near a point is to be;
distance of two returns of a measurement, of which nebula keeps one."""


def read_cloud(folder: Path) -> npt.NDArray[np.float64]:
    """Return x, y and z of a cloud, m [points, 3]."""
    (path,) = folder.glob("*.pcd")
    head, _, body = path.read_bytes().partition(b"DATA binary\n")
    rows = {line.split()[0]: line.split()[1:] for line in head.decode().splitlines() if line}
    kinds = zip(rows["FIELDS"], rows["TYPE"], rows["SIZE"], strict=True)
    layout = np.dtype(
        [(name, {"F": "f", "U": "u", "I": "i"}[kind] + size) for name, kind, size in kinds]
    )
    points = np.frombuffer(body, layout)
    return np.stack([points[axis] for axis in "xyz"], axis=1).astype(np.float64)


def decode(shared_data: Path, folder: str) -> tuple[Account, StreamSpec]:
    packets, t_ns = read_real(shared_data, folder)
    family = make_family(
        REAL[folder], calibration=str(shared_data / "lidar" / folder / "angles.csv")
    )
    stream = family.start(packets[0].tobytes(), live=False)
    account = feed(stream, packets, t_ns)
    return account, stream.specs(finite=True)[0]


@pytest.mark.parametrize("folder", [name for name in REAL if name.startswith("hesai")])
def test_points_are_those_of_nebula(shared_data: Path, folder: str) -> None:
    account, spec = decode(shared_data, folder)
    source = BeamPoints(spec)
    cloud = read_cloud(shared_data / "lidar" / folder)
    clouds = []
    for sample in account.samples:
        _, points = source.points({n: np.asarray(v)[0] for n, v in sample.data.items()}, 0)
        clouds.append(points)
    every = np.concatenate(clouds)
    xyz = np.stack([every[axis] for axis in "xyz"], axis=1).astype(np.float64)
    distance_m, _ = cKDTree(xyz).query(cloud)
    assert distance_m.max() < 1e-4
    # The other way round: of the turn that most of the cloud is of.
    matches = [
        np.count_nonzero(cKDTree(np.stack([p[a] for a in "xyz"], axis=1)).query(cloud)[0] < 1e-4)
        for p in clouds
    ]
    ours = clouds[int(np.argmax(matches))]
    xyz = np.stack([ours[axis] for axis in "xyz"], axis=1).astype(np.float64)
    range_m, azimuth_deg = np.linalg.norm(xyz, axis=1), np.degrees(np.arctan2(xyz[:, 0], xyz[:, 1]))
    cloud_m = np.linalg.norm(cloud, axis=1)
    inside = (
        (range_m >= cloud_m.min()) & (range_m <= cloud_m.max()) & (np.abs(azimuth_deg) > CUT_DEG)
    )
    found, _ = cKDTree(cloud).query(xyz)
    kept = inside & keep_later_returns(ours, range_m)
    assert np.count_nonzero(kept) > 1000
    assert np.mean(found[kept] < NEAR_M) >= 0.999


def keep_later_returns(
    points: npt.NDArray[np.void], range_m: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Return which points nebula keeps: of returns near one another the later one."""
    order = np.lexsort((points["return"], points["t"], points["ring"]))
    first, second = order[:-1], order[1:]
    same_shot = (points["t"][first] == points["t"][second]) & (
        points["ring"][first] == points["ring"][second]
    )
    kept = np.ones(len(points), bool)
    kept[first[same_shot & (np.abs(range_m[first] - range_m[second]) < SAME_M)]] = False
    return kept


@pytest.mark.parametrize("folder", [name for name in REAL if name.startswith("hesai")])
def test_columns_follow_one_another_evenly(shared_data: Path, folder: str) -> None:
    account, spec = decode(shared_data, folder)
    source = BeamPoints(spec)
    steps_ns = np.diff(account.times)
    off_ns = np.abs(steps_ns - source.beams.column_ns)  # across packets as within them
    assert np.median(off_ns) <= 1000 and off_ns.max() <= 2000  # the packets' microseconds jitter
    for sample in account.samples:
        there = np.asarray(sample.data["t_col"])[0] > 0
        t_s = np.asarray(sample.data["t_col"])[0][there].astype(np.int64) / 1e9
        azimuth = np.unwrap(np.asarray(sample.data["azimuth"])[0][there] * 0.01, period=360)
        for part in np.array_split(np.arange(len(t_s)), 4):  # the motor varies within a turn
            if len(part) < 50:
                continue
            line = np.polynomial.Polynomial.fit(t_s[part] - t_s[0], azimuth[part], 1)
            assert np.abs(line(t_s[part] - t_s[0]) - azimuth[part]).max() < 0.2
