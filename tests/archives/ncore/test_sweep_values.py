"""What an Ouster's pixels have besides range and reflectivity: near infrared, signal, others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.session.reader import Session
from tests.archives.ncore.packer_rig import Archive, lidar, pack
from tests.session.build import BEAMS, COLUMNS, Builder

SHAPE = (BEAMS, COLUMNS)


def more(*channels: ChannelSpec) -> StreamSpec:
    spec = lidar()
    return replace(spec, channels=(*spec.channels, *channels))


def channel(name: str, dtype: str = "u2", text: str = "") -> ChannelSpec:
    return ChannelSpec(name, "lzmaf", dtype, SHAPE, text)


SECOND = (channel("rng2"), channel("rfl2", "u1"))


def pack_one(path: Path, spec: StreamSpec, **options: Any) -> tuple[Archive, dict[str, Any], str]:
    """The archive, the first sweep's channels, and the group of its frame."""
    builder = Builder(path)
    builder.add(spec, 0.3)
    session = builder.close()
    archive = pack(session, **options)
    with Session(session) as opened:
        data = opened.streams["lidar"].sample(0)
    (_, end) = archive.times_us("lidars/lidar")[0]
    return archive, data, f"lidars/lidar/frames/{end}"


def test_each_return_has_its_signal_and_the_pixels_near_infrared(tmp_path: Path) -> None:
    spec = more(*SECOND, channel("signal"), channel("signal2"))
    archive, data, frame = pack_one(tmp_path / "drive", spec)
    distance = archive.array(f"{frame}/ray_bundle_returns/distance_m")
    absent = np.isnan(distance)
    for name, channels in (("signal", ["signal", "signal2"]), ("ambient", ["nir", "nir"])):
        values = archive.array(f"{frame}/ray_bundle_returns/{name}")
        expected = np.stack([data[each].reshape(-1) for each in channels]).astype(np.float32)
        assert values.dtype == np.float32
        assert np.array_equal(values, np.where(absent, np.nan, expected), equal_nan=True)
    assert f"{frame}/generic_data/signal/.zarray" not in archive.keys


def test_rays_of_second_returns_have_their_pixels_values(tmp_path: Path) -> None:
    spec = more(*SECOND, channel("signal"), channel("signal2"))
    archive, data, frame = pack_one(tmp_path / "drive", spec, second_returns="own")
    distance = archive.array(f"{frame}/ray_bundle_returns/distance_m")
    signal = archive.array(f"{frame}/ray_bundle_returns/signal")
    pixels = BEAMS * COLUMNS
    assert signal.shape == distance.shape
    own = distance.shape[1] - pixels
    assert own > 0
    assert np.array_equal(np.isnan(signal), np.isnan(distance))
    found = [
        *signal[1, :pixels][~np.isnan(signal[1, :pixels])], *signal[1, pixels:].tolist()
    ]  # fmt: skip
    hit = data["rng2"].reshape(-1) > 0
    assert sorted(found) == sorted(data["signal2"].reshape(-1)[hit].astype(float))


@pytest.mark.parametrize("with_second", [False, True])
def test_further_channels_are_data_of_the_frame(tmp_path: Path, with_second: bool) -> None:
    """Also the signal, if not every return has one."""
    extra = (channel("flags", "u1"), channel("signal"))
    spec = more(*(SECOND if with_second else ()), *extra)
    archive, data, frame = pack_one(tmp_path / "drive", spec)
    flags = archive.array(f"{frame}/generic_data/flags")
    assert np.array_equal(flags, data["flags"].reshape(-1))
    place = "generic_data" if with_second else "ray_bundle_returns"
    assert f"{frame}/{place}/signal/.zarray" in archive.keys


def test_a_channel_that_the_sensor_does_not_send_is_left_out(tmp_path: Path) -> None:
    spec = lidar()
    silent = [
        replace(each, description="near infrared; not sent in this profile, all zero")
        if each.name == "nir" else each
        for each in spec.channels
    ]  # fmt: skip
    archive, _, frame = pack_one(tmp_path / "drive", replace(spec, channels=tuple(silent)))
    own = [key for key in archive.keys if key.startswith(frame)]
    assert own and not any("near_ir" in key or "ambient" in key for key in own)
