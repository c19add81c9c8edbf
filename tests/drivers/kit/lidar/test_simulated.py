"""Simulated lidars of all models: points of the same world, wherever their beams are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.hesai.driver import HesaiDriver
from drivers.kit.driver import Sample
from drivers.kit.lidar.family import FamilyDriver
from drivers.livox.driver import LivoxDriver
from drivers.robosense.driver import RobosenseDriver
from drivers.velodyne.driver import VelodyneDriver
from recorder.codecs.points import points_dtype, unpack_points
from recorder.common.errors import SourceError
from recorder.perception.frames import cloud_channel
from recorder.perception.lidar.clouds import make_point_source
from tests.drivers.kit.lidar.test_calibration import build_mirrors
from tests.support.devices import make_driver, samples, states

MOUNTED_M = 1.95
"""Height of the default mount above the ground."""
SEEN: list[tuple[type[FamilyDriver], str]] = [
    *((HesaiDriver, name) for name in ("Pandar40P", "PandarXT32M", "QT128", "OT128")),
    *((VelodyneDriver, name) for name in ("VLP-16", "VLP-32C", "VLS-128")),
    *((RobosenseDriver, name) for name in ("RS-16", "RS-32", "Helios", "Ruby Plus", "M1")),
    *((LivoxDriver, name) for name in ("Mid-360", "HAP")),
]


def see(kind: type[FamilyDriver], model: str, **options: Any) -> tuple[Any, list[Any]]:
    """Points of the second sweep of a lidar without noise, and all items."""
    driver = make_driver(kind, "lidar", "sim", model=model, noise=0, **options)
    spec = driver.open()[0]
    items = list[Any]()
    while len(samples(items)) < 2:
        items.append(driver.read())
    driver.close()
    sample = samples(items)[1]
    source = make_point_source(spec)
    if (cloud := cloud_channel(spec)) is None:
        data = {name: np.asarray(values)[0] for name, values in sample.data.items()}
    else:
        frame = sample.data[cloud][0]
        assert isinstance(frame, bytes)
        data = {cloud: unpack_points(frame, points_dtype(spec.channel(cloud).columns), "lidar")}
    return source.points(data, int(sample.t_ns[0]))[1], items


@pytest.mark.parametrize(("kind", "model"), SEEN)
def test_the_ground_is_flat_below_every_model(kind: type[FamilyDriver], model: str) -> None:
    points, items = see(kind, model)
    near = np.hypot(points["x"], points["y"]) < 25
    near &= points["z"] < -1.5
    assert near.sum() > 100
    heights = points["z"][near]
    assert np.median(heights) == pytest.approx(-MOUNTED_M, abs=0.01)
    assert np.quantile(np.abs(heights + MOUNTED_M), 0.5) < 0.05
    assert not [s for s in states(items) if "columns_missing" in s or "packets_missing" in s]


@pytest.mark.parametrize(
    ("kind", "model"), [(HesaiDriver, "PandarXT32"), (RobosenseDriver, "RS-32")]
)
def test_all_see_the_same_walls(kind: type[FamilyDriver], model: str) -> None:
    """Azimuths count from the x or the y axis; what stands on the ground is at one place."""
    found = []
    for each, name in ((kind, model), (VelodyneDriver, "VLS-128")):
        points, _ = see(each, name)
        standing = (points["z"] > -1) & (np.hypot(points["x"], points["y"]) < 30)
        found.append(np.stack([points["x"], points["y"], points["z"]], 1)[standing])
    some = found[0][:: max(1, len(found[0]) // 100)]
    apart = np.linalg.norm(found[1][None] - some[:, None], axis=2).min(axis=1)
    assert np.quantile(apart, 0.8) < 0.5


def test_an_at128_sees_the_walls_by_its_mirrors(tmp_path: Path) -> None:
    (tmp_path / "at.dat").write_bytes(build_mirrors())
    points, _ = see(HesaiDriver, "AT128", calibration=str(tmp_path / "at.dat"))
    azimuth_deg = np.degrees(np.arctan2(points["x"], points["y"]))
    assert 28 < azimuth_deg.min() < 34 and 146 < azimuth_deg.max() < 152
    near = (np.hypot(points["x"], points["y"]) < 25) & (points["z"] < -1.5)
    assert near.sum() > 100
    assert np.quantile(np.abs(points["z"][near] + MOUNTED_M), 0.5) < 0.01
    others, _ = see(VelodyneDriver, "VLS-128")
    found = []
    for each in (points, others):
        standing = (each["z"] > -1) & (np.hypot(each["x"], each["y"]) < 30)
        found.append(np.stack([each["x"], each["y"], each["z"]], 1)[standing])
    some = found[0][:: max(1, len(found[0]) // 100)]
    apart = np.linalg.norm(found[1][None] - some[:, None], axis=2).min(axis=1)
    assert np.quantile(apart, 0.8) < 0.5


def test_sweeps_have_what_the_packets_have() -> None:
    driver = make_driver(HesaiDriver, "lidar", "sim", model="QT128")
    (spec,) = driver.open()
    item = None
    while not isinstance(item, Sample):
        item = driver.read()
    columns = np.asarray(item.data["state"])[0][np.asarray(item.data["t_col"])[0] > 0]
    ranges = np.asarray(item.data["rng"])[0][:, : len(columns)]
    assert spec.settings["model"] == "QT128" and set(columns.tolist()) == {0, 1}
    assert not ranges[:32, columns == 0].any() and ranges[:32, columns == 1].any()
    driver.close()


def test_a_model_without_angles_needs_a_file() -> None:
    with pytest.raises(SourceError, match="a AT128 has no angles of its design"):
        make_driver(HesaiDriver, "lidar", "sim", model="AT128").open()
