"""A simulated sensor whose clock is off: its stamps are wrong, all else is the same."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from drivers.kit.driver import Driver, Sample
from drivers.kit.runner import make_driver
from drivers.kit.simulated_clock import ClockError, SkewedDriver
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ConfigError
from tests.support.devices import read_item, samples

SENSORS: Mapping[str, tuple[str, Mapping[str, Any], int]] = {
    "camera": ("CameraDriver", {"width": 64, "height": 48}, 4),
    "can": ("CanDriver", {"signals": ["VehicleMotion.*"]}, 12),
    "gnss": ("GnssDriver", {}, 6),
    "imu": ("ImuDriver", {}, 6),
    "lidar": ("LidarDriver", {"beams": 4, "columns": 16}, 3),
    "hesai": ("HesaiDriver", {"model": "Pandar40P"}, 2),
    "livox": ("LivoxDriver", {"model": "HAP", "rate": 20.0}, 2),
    "ouster": ("OusterDriver", {"beams": 32, "mode": "512x10"}, 8),
    "mmwave": ("MmwaveDriver", {}, 2),
    "xsens": ("XsensDriver", {}, 6),
}  # fmt: skip


def make(driver: str, **options: Any) -> Driver:
    kind, usual, _ = SENSORS[driver]
    entry = {"name": driver, "scheme": "sim", "address": "", "options": {**usual, **options}}
    return make_driver(getattr(importlib.import_module(f"drivers.{driver}.driver"), kind), entry)


def record(driver: Driver, count: int) -> tuple[dict[str, StreamSpec], list[Sample], int | None]:
    """The streams, the first samples, and the stamp of the session's start."""
    specs = {spec.name: spec for spec in driver.open()}
    found: list[Sample] = []
    while len(found) < count:
        found += samples([read_item(driver)])
    made = [Sample(s.stream, s.t_ns, dict(s.data.items()), s.t_dev_ns) for s in found]
    driver.close()
    return specs, made, driver.origin_ns


@pytest.mark.parametrize("name", SENSORS)
def test_all_but_the_stamps_is_the_same_bit_for_bit(name: str) -> None:
    if name == "ouster":
        pytest.importorskip("ouster.sdk", reason="needs the extra `ouster`")
    count = SENSORS[name][2]
    _, plain, origin_ns = record(make(name), count)
    specs, late, late_origin_ns = record(make(name, clock={"offset_ms": 33.25}), count)
    # The session begins with the first true time, so that the offset does not vanish.
    assert late_origin_ns == (origin_ns if origin_ns is not None else plain[0].t_ns.min())
    for one, other in zip(plain, late, strict=True):
        assert one.stream == other.stream
        np.testing.assert_array_equal(other.t_ns - one.t_ns, 33_250_000)
        if one.t_dev_ns is not None:
            assert other.t_dev_ns is not None
            np.testing.assert_array_equal(other.t_dev_ns - one.t_dev_ns, 33_250_000)
        for channel in specs[one.stream].channels:
            mine, its = (np.asarray(s.data[channel.name]) for s in (one, other))
            if channel.device_time:
                assert mine.any()
                its = np.where(mine != 0, its - mine.dtype.type(33_250_000), its)
            assert mine.tobytes() == its.tobytes(), channel.name
    for spec in specs.values():
        assert spec.settings["clock"] == {"offset_ms": 33.25, "drift_ppm": 0.0, "jitter_us": 0.0}


def stamps(clock: dict[str, float], count: int = 400, **options: Any) -> npt.NDArray[np.int64]:
    _, found, _ = record(make("imu", clock=clock, **options), count)
    return np.concatenate([sample.t_ns for sample in found])


def test_drift_is_the_slope_of_the_error() -> None:
    true_ns = stamps({})
    error = stamps({"drift_ppm": 40.0, "offset_ms": 5.0}) - true_ns
    slope, offset_ns = np.polyfit(true_ns / 1e9, error, 1)
    assert slope == pytest.approx(40_000, rel=1e-3)  # ns a second
    assert offset_ns == pytest.approx(5e6, abs=1)


def test_jitter_is_white_and_of_its_size_and_by_the_seed() -> None:
    true_ns = stamps({})
    jitter = {"jitter_us": 50.0}
    error = stamps(jitter) - true_ns
    count = len(error)
    assert error.std() == pytest.approx(50_000, rel=5 / np.sqrt(2 * count))
    assert abs(error.mean()) < 5 * 50_000 / np.sqrt(count)
    assert abs(np.corrcoef(error[1:], error[:-1])[0, 1]) < 5 / np.sqrt(count)
    np.testing.assert_array_equal(stamps(jitter) - true_ns, error)
    assert (stamps(jitter, seed=1) - true_ns != error).mean() > 0.99


def test_stamps_increase_although_the_jitter_exceeds_the_period() -> None:
    found = stamps({"jitter_us": 30_000.0})
    assert (np.diff(found) > 0).all()


def test_what_would_be_stamped_before_the_start_is_left_out() -> None:
    _, plain, _ = record(make("camera"), 12)
    _, early, origin_ns = record(make("camera", clock={"offset_ms": -200.0}), 4)
    assert origin_ns == 0
    assert early[0].t_ns[0] == 0 and (early[0].t_ns >= 0).all()
    assert early[0].data["video.avi"] == plain[6].data["video.avi"]  # taken at 200 ms


def test_a_driver_that_is_opened_again_begins_again() -> None:
    driver = make("imu", clock={"offset_ms": 1.0, "jitter_us": 100.0})
    first, second = (record(driver, 5)[1] for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.t_ns, other.t_ns)


def test_true_times_are_found_again() -> None:
    error = ClockError(offset_ns=-7_000_000, drift=1e-4)
    true_ns = np.arange(0, 3_600_000_000_000, 7_777_777_777)
    assert np.abs(error.true_times(error.stamps(true_ns)) - true_ns).max() <= 1


def test_without_an_error_and_for_other_sources_there_is_no_skew() -> None:
    assert not isinstance(make("imu", clock={"offset_ms": 0}), SkewedDriver)
    with pytest.raises(ConfigError, match=r"clock\.drift_ppm: 2000 is above the maximum of 1000"):
        make("imu", clock={"drift_ppm": 2000})
