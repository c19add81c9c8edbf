"""xwr, the software of the radar's makers of captures, on what is recorded of a radar."""

from __future__ import annotations

import itertools
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.mmwave.chirp import DEVICES, ChirpConfig
from drivers.mmwave.chirp_limits import violations
from drivers.mmwave.model import SimulatedRadar
from tests.acceptance.command import column, meta
from tests.conformance.conftest import RADAR, record

xwr = pytest.importorskip("xwr", reason="needs xwr, which is not installed")
from xwr import DCAConfig, constraints  # noqa: E402

pytestmark = pytest.mark.conformance
NAMES = {field.name for field in fields(ChirpConfig)}


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


CHIRP = ChirpConfig("AWR1843", 77.0, 6.0, 5.7, 34.0, 67.012, 256, 10_000, 64, 50.0)
CHANGES: dict[str, tuple[Any, ...]] = {
    "device": ("AWR1843", "AWR1843L", "AWR1843AOP", "AWR1642", "AWR2944", "AWR2944P", "AWRL6844"),
    "frequency": (77.0, 60.0, 75.0, 79.5),
    "idle_time": (6.0, 100.0, 224.0, 226.0),
    "ramp_end_time": (34.0, 31.3, 20.0, 160.0),
    "freq_slope": (67.012, 160.0),
    "adc_samples": (256, 250, 512, 1000),
    "sample_rate": (10_000, 1_900, 12_600, 38_000, 46_000),
    "frame_length": (64, 100, 256),
    "frame_period": (50.0, 7.7, 5.0),
}
CARDS: tuple[dict[str, float], ...] = (
    {},
    {"delay": 80.0},
    {"delay": 300.0},
    {"socket_buffer": 100_000},
)


@pytest.mark.parametrize("device", CHANGES["device"])
def test_the_rules_for_chirps_are_xwrs(device: str) -> None:
    """Each change alone and each two together break the same rules in both."""
    single: list[dict[str, Any]] = [
        {key: value} for key, values in CHANGES.items() for value in values if key != "device"
    ]
    for one, other in itertools.product(single, single):
        chirp = replace(CHIRP, **{"device": device, **one, **other})
        values = {f.name: getattr(chirp, f.name) for f in fields(xwr.XWRConfig) if f.name in NAMES}
        values["device"] = DEVICES[device].family or device
        for card in CARDS if one == other else CARDS[:1]:
            theirs = constraints.check_config(xwr.XWRConfig(**values), DCAConfig(**card), log=False)
            known = {r.constraint.__name__ for r in theirs if r.passed is False}
            ours = violations(chirp, {"delay": 5.0, "socket_buffer": 6_291_456} | card)
            assert {v.rule for v in ours} == known, (chirp, card)


def test_every_device_of_xwr_is_known() -> None:
    from xwr import radar

    theirs = {name for name in radar.__all__ if name.startswith("AWR")}
    assert theirs <= set(DEVICES)
    for name in theirs:
        device, family = DEVICES[name], getattr(radar, name)
        assert (device.tx, device.rx) == (family.NUM_TX, family.NUM_RX)
        assert device.complex_samples == (family.BYTES_PER_SAMPLE == 4)


def test_the_antennas_of_the_aop_are_where_xwr_has_them() -> None:
    """Columns to the left, as for the other boards, and rows from the top down."""
    from xwr.rsp import numpy as rsp

    pairs = np.arange(12, dtype=np.complex64).reshape(1, 1, 3, 4, 1)
    grid = rsp.AWR1843AOP().mimo_virtual_array(pairs)[0, 0, :, :, 0].real.astype(int)
    device = DEVICES["AWR1843AOP"]
    for (row, left), pair in np.ndenumerate(grid):
        tx, rx = device.tx_places[pair // 4], device.rx_places[pair % 4]
        assert (tx[0] + rx[0], tx[1] + rx[1]) == (left, -row)


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
