"""The Xsens driver with the simulated IMU and receiver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from drivers.kit.driver import Item, Sample
from drivers.world import World
from drivers.xsens.driver import XsensDriver
from drivers.xsens.model import ORIGIN
from recorder.common.errors import ConfigError
from recorder.config.options import check_options
from recorder.perception.earth import earth_points, local_to_earth
from tests.drivers.xsens.xsens_played import driver_of
from tests.support.devices import check_sample, column, device_times, opened, times


def first_items(driver: XsensDriver, count: int) -> Iterator[Sample]:
    (spec,) = driver.open()
    for _ in range(count):
        item = driver.read()
        assert isinstance(item, Sample)
        check_sample(spec, item)
        yield item
    driver.close()


@pytest.mark.parametrize(("rate", "batch"), [(100.0, 1), (1000.0, 10), (400.0, 4)])
def test_simulated_rates(rate: float, batch: int) -> None:
    items = list(first_items(driver_of(None, rate=rate), 300))
    assert {item.count for item in items} == {batch}
    expected = np.rint(np.arange(300 * batch) * 1e9 / rate)
    np.testing.assert_array_equal(times(items), expected)
    assert (np.diff(device_times(items)) > 0).all()


def test_simulated_bytes_depend_on_the_seed_alone() -> None:
    def content(count: int, **options: Any) -> bytes:
        items: list[Item] = list(first_items(driver_of(None, **options), count))
        return b"".join(column(items, name).tobytes() for name in ("acc", "avel", "rot"))

    whole = content(600)
    assert whole == content(600) == content(60, batch_ms=100)
    assert content(600, seed=1) != whole


def test_simulated_stream_is_endless() -> None:
    (spec,) = driver_of(None, rate=200).open()
    assert not spec.finite and spec.device_clock and spec.rate_hz == 200.0


@pytest.mark.parametrize("batch_ms", [-0.001, 1000.001])
def test_a_batch_is_of_no_less_than_nothing_and_of_a_second_at_most(batch_ms: float) -> None:
    with pytest.raises(ConfigError, match=r"batch_ms: .* is (below|above) the (min|max)imum of"):
        check_options(XsensDriver.options, {"batch_ms": batch_ms})
    for good in (0.0, 1000.0):
        assert check_options(XsensDriver.options, {"batch_ms": good})["batch_ms"] == good


@pytest.mark.parametrize("model", ["MTi-G-710", "MTi-7", "MTi-680G"])
def test_a_simulated_receiver_has_the_true_position(model: str) -> None:
    """The rig's true position, moved to the device's place, on Earth."""
    driver = driver_of(None, model=model, mount={"translation_m": [1.0, 2.0, 3.0]})
    with closing(driver):
        imu, gnss = driver.open()
        assert (imu.name, gnss.name, gnss.rate_hz) == ("imu", "imu_gnss", 10)
        items: list[Sample] = []
        while len([item for item in items if item.stream == "imu_gnss"]) < 60:
            item = driver.read()
            assert isinstance(item, Sample)
            items.append(item)
    rows = [item for item in items if item.stream == "imu_gnss"]
    for row in rows:
        check_sample(gnss, row)
    t_ns = times(rows)
    assert (np.diff(t_ns) == 100_000_000).all() and t_ns[0] == 0
    motion = World("drive", 0).trajectory.motion(t_ns / 1e9)
    place = motion.position_m + motion.rotation @ [1.0, 2.0, 3.0]
    points = local_to_earth(ORIGIN) @ np.pad(place, ((0, 0), (0, 1)), constant_values=1).T
    np.testing.assert_allclose(earth_points(column(rows, "pos")), points.T[:, :3], atol=1e-3)
    lever = np.cross(motion.angular_rate_rad_s, [1.0, 2.0, 3.0])
    velocity = motion.velocity_m_s + (motion.rotation @ lever[..., None])[..., 0]
    ned = velocity[:, [1, 0, 2]] * (1, 1, -1)
    np.testing.assert_allclose(column(rows, "vel"), ned, atol=1e-4)
    assert (column(rows, "fix")[1:] == 3).all()
    start = int(datetime(2024, 6, 1, 12, tzinfo=UTC).timestamp()) * 10**9
    np.testing.assert_array_equal(column(rows, "utc"), start + t_ns)
    # Positions do not run ahead of the samples that they belong to.
    latest = 0
    for item in items:
        if item.stream == "imu":
            latest = int(item.t_ns[-1])
        else:
            assert item.t_ns[0] <= latest


def test_positions_do_not_change_the_samples() -> None:
    def imu_of(**options: Any) -> npt.NDArray[Any]:
        with opened(driver_of(None, batch_ms=500, **options)) as driver:
            items = [item for _ in range(8) if (item := driver.read())]
        return column([item for item in items if item.stream == "imu"][:2], "acc")

    np.testing.assert_array_equal(imu_of(), imu_of(model="MTi-680G"))
