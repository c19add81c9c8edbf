"""xwr, the software of the radar's makers of captures, on what is recorded of a radar."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers._protocols.chirp import ChirpConfig
from drivers.sim.radar import SimulatedRadar
from tests.acceptance.command import column, meta
from tests.conformance.conftest import RADAR, record

xwr = pytest.importorskip("xwr", reason="needs xwr, which is not installed")
pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module", params=["qqii", "iiqq"])
def radar(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty frames of a simulated AWR1843 in one order of I and Q."""
    sensors = f"""
        radar: {{driver: mmwave, source: "sim:", pace: max, seed: 4, iq_order: {request.param}}}
    """
    return record(tmp_path_factory.mktemp("radar"), sensors, 1.5)


def described(session: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((session / "radar/radar.json").read_bytes())
    return values


def config_of(session: Path) -> Any:
    """xwr's own configuration from the keys in radar.json."""
    known = {field.name for field in fields(xwr.XWRConfig)}
    return xwr.XWRConfig(**{k: v for k, v in described(session).items() if k in known})


@pytest.mark.parametrize("chirp", ["default", RADAR], ids=["default", "small"])
def test_radar_json_says_what_xwr_says(tmp_path: Path, chirp: str) -> None:
    option = "" if chirp == "default" else f", radar: {chirp}"
    sensors = f'radar: {{driver: mmwave, source: "sim:", pace: max{option}}}'
    session = record(tmp_path, sensors, 1)
    theirs, ours = config_of(session), described(session)
    assert tuple(ours["shape"]) == theirs.shape
    assert tuple(ours["raw_shape"]) == theirs.raw_shape
    assert tuple(meta(session, "radar")["iq"]["shape"]) == theirs.raw_shape
    names = ("range_resolution", "max_range", "wavelength", "doppler_resolution", "max_doppler")
    for name in names:
        assert ours[name] == pytest.approx(getattr(theirs, name), rel=1e-9), name
    size = (session / "radar/iq").stat().st_size
    assert size == theirs.frame_size * len(column(session, "radar", "ts"))


def test_targets_are_where_xwrs_processing_finds_them(radar: Path) -> None:
    from xwr.rsp import numpy as rsp

    described_ = described(radar)
    chirp = ChirpConfig(**{f.name: described_[f.name] for f in fields(ChirpConfig)})
    truth = SimulatedRadar(chirp, described_["iq_order"], seed=4)
    process = rsp.AWR1843Boost(window=True, sample_swap=described_["iq_order"] == "iiqq")
    frames = column(radar, "radar", "iq")
    assert len(frames) == 30
    loops, samples = chirp.frame_length, chirp.adc_samples
    for k in (0, 7, 29):
        cube = np.abs(process(frames[k][None]))  # [1, doppler, elevation, azimuth, range]
        power = (cube**2).sum(axis=(0, 2, 3))
        doppler, distance = np.unravel_index(int(power.argmax()), power.shape)
        target = truth.targets(k)[0]
        assert abs(distance - target.range_m / chirp.range_resolution) <= 1
        offset = target.velocity_mps / chirp.doppler_resolution
        assert abs((doppler - offset) % loops - loops // 2) <= 1  # speeds go round
        # It stands where it is to the right or left: columns of sin(azimuth), to the right.
        azimuths = (cube[0, doppler, :, :, distance] ** 2).sum(axis=0)
        middle = len(azimuths) // 2
        aside = -np.sin(target.azimuth_rad) * middle
        assert abs(int(azimuths.argmax()) - middle - aside) <= 1
        # All that are not faint stand out of the noise, each where it is.
        level = np.median(power)
        loud = [t for t in truth.targets(k) if t.amplitude > 2]
        assert len(loud) > 4
        for other in loud:
            row = (round(other.velocity_mps / chirp.doppler_resolution) + loops // 2) % loops
            at = round(other.range_m / chirp.range_resolution)
            near = power[max(0, row - 1) : row + 2, max(0, at - 1) : min(samples, at + 2)]
            assert near.max() > 30 * level


def test_the_wrong_order_mirrors_the_range(radar: Path) -> None:
    """What makes the test above one of the order: with the other setting it would fail."""
    from xwr.rsp import numpy as rsp

    order = described(radar)["iq_order"]
    frame = column(radar, "radar", "iq")[0][None]
    peaks = []
    for swap in (order == "iiqq", order == "qqii"):
        power = np.abs(rsp.AWR1843Boost(sample_swap=swap)(frame)) ** 2
        peaks.append(int(power.sum(axis=(0, 1, 2, 3)).argmax()))
    assert abs(sum(peaks) - frame.shape[-1] // 2) <= 1 and peaks[0] != peaks[1]
