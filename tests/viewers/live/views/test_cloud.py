"""The view of a lidar that is recorded as points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from drivers.kit.driver import Sample
from recorder.bus.wire import Message
from recorder.codecs.points import Column, pack_points
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, UsageError
from recorder.viewers.live.views import list_views, make_view
from tests.session import clouds
from tests.viewers.live.views.sensors import encoded


def message_of(spec: StreamSpec, *sweeps: clouds.Sweep) -> Message:
    data: dict[str, Any] = {"points.bin": [pack_points(sweep) for sweep in sweeps]}
    return encoded(spec, Sample(spec.name, np.arange(len(sweeps), dtype=np.int64), data))


def drawn(spec: StreamSpec, message: Message, **options: Any) -> tuple[dict[str, Any], Any]:
    view = make_view(spec, "cloud", options)
    assert (view.static, view.every) == (None, False)
    drawing = view.draw([message])
    assert drawing is not None
    return drawing.header, dict(drawing.arrays)


def test_a_cloud_offers_points() -> None:
    assert list_views(clouds.cloud_spec()) == ("cloud",)


def test_the_points_are_the_returns_of_the_newest_sweep() -> None:
    spec, sweep = clouds.cloud_spec(), clouds.make_sweep(seed=3)
    header, arrays = drawn(spec, message_of(spec, clouds.make_sweep(seed=1), sweep))
    returned = sweep[clouds.has_return(sweep)]
    assert np.array_equal(arrays["points"], returned["xyz"])
    assert arrays["points"].dtype == np.float32
    assert (header["count"], header["step"]) == (len(returned), 1)
    bright = arrays["intensity"] * (header["intensity_white"] / 255)
    expected = np.minimum(returned["intensity"], header["intensity_white"])
    assert np.abs(bright - expected).max() <= header["intensity_white"] / 255
    assert np.mean(returned["intensity"] <= header["intensity_white"]) >= 0.98


def test_every_nth_point_is_shown() -> None:
    spec, sweep = clouds.cloud_spec(), clouds.make_sweep()
    header, arrays = drawn(spec, message_of(spec, sweep), points=1000)
    returned = sweep[clouds.has_return(sweep)]
    assert header == {**header, "count": len(returned), "step": 3}
    assert np.array_equal(arrays["points"], returned["xyz"][::3])
    assert len(arrays["intensity"]) == len(arrays["points"]) <= 1000


@pytest.mark.parametrize("brightness", [0, np.nan, np.inf, -1])
def test_odd_intensities_are_dark(brightness: float) -> None:
    spec, sweep = clouds.cloud_spec(), clouds.make_sweep()
    sweep["intensity"] = brightness
    header, arrays = drawn(spec, message_of(spec, sweep))
    assert header["intensity_white"] == 1
    assert not arrays["intensity"].any()


def test_points_without_an_intensity() -> None:
    spec = clouds.cloud_spec((clouds.POSITION,))
    _, arrays = drawn(spec, message_of(spec, clouds.make_sweep((clouds.POSITION,))))
    assert list(arrays) == ["points"]


def test_a_sweep_without_a_point() -> None:
    spec = clouds.cloud_spec()
    header, arrays = drawn(spec, message_of(spec, clouds.make_sweep()[:0]), points=10)
    assert (header["count"], header["step"], arrays["points"].shape) == (0, 1, (0, 3))


def test_what_is_wrong_is_named() -> None:
    spec = clouds.cloud_spec()
    with pytest.raises(UsageError, match=r"lidar: view cloud: option rows: unknown key"):
        make_view(spec, "cloud", {"rows": 3})
    with pytest.raises(FormatError, match=r"lidar: points.bin: has no column xyz"):
        make_view(clouds.cloud_spec((Column("ring", "u2"),)), "cloud", {})
    message = message_of(spec, clouds.make_sweep())
    frame = bytearray(message.frames[0])
    frame[len(frame) // 2] ^= 0xFF
    message.frames = [bytes(frame)]
    with pytest.raises(FormatError, match=r"lidar: points.bin: "):
        make_view(spec, "cloud", {}).draw([message])


@pytest.mark.filterwarnings("error")
def test_any_values_are_drawn() -> None:
    spec, rng = clouds.cloud_spec(), np.random.default_rng(6)
    sweep = clouds.make_sweep()
    for _ in range(20):
        sweep[:] = np.frombuffer(rng.bytes(sweep.nbytes), sweep.dtype)
        header, arrays = drawn(spec, message_of(spec, sweep), points=100)
        assert len(arrays["points"]) == len(arrays["intensity"]) <= min(100, header["count"])
        assert np.isfinite(arrays["points"]).all() and np.isfinite(header["intensity_white"])
