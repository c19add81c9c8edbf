"""Antennas with known errors of their phases, and what is measured of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from drivers.mmwave.driver import SIM_CHIRP
from drivers.mmwave.fmcw import BeatSignal, Scatterers
from recorder.perception.radar.array import AntennaArray
from recorder.perception.radar.calibration import (
    CalibrationError,
    Measured,
    as_mapping,
    calibrate_by_clutter,
    calibrate_by_reflector,
)
from recorder.perception.radar.geometry import PhaseCalibration
from recorder.perception.radar.radar import RadarGeometry, RadarProcessor, SpeedMethod

Floats = npt.NDArray[np.float64]
Samples = npt.NDArray[np.int16]
PLACE = (5.0, 10.0, 3.0)


def geometry(known: dict[str, Any] | None = None) -> RadarGeometry:
    return RadarGeometry.of_metadata(json.dumps(SIM_CHIRP.intrinsics("qqii", known)), "radar.json")


def errors_of(seed: int, degrees: float) -> Floats:
    return np.random.default_rng(seed).normal(0, degrees / 360, (3, 4))


def at(range_m: float, azimuth: float, elevation: float) -> list[float]:
    a, e = np.radians((azimuth, elevation))
    unit = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    place: list[float] = (range_m * unit).tolist()
    return place


def frames(
    places: list[list[float]], errors: Floats, speed: float = 0.0, loud: float = 200.0
) -> list[Samples]:
    """Three frames; the first place is the loudest."""
    signal = BeatSignal(SIM_CHIRP, "qqii", errors)
    count, made = len(places), []
    for k in range(3):
        noise = np.random.default_rng(k).normal(0, 160, signal.noise_shape).astype(np.int16)
        points = np.array(places) + np.array([speed * 0.05 * k, 0, 0])
        amplitude = np.full(count, 40.0)
        amplitude[0] = loud
        velocity = np.tile([speed, 0.0, 0.0], (count, 1))
        made.append(
            signal.frame(Scatterers(points, velocity, np.zeros((count, 3)), amplitude), noise)
        )
    return made


def clutter(seed: int, errors: Floats, count: int = 30, **how: Any) -> list[Samples]:
    rng = np.random.default_rng(seed)
    ranges = np.sort(rng.uniform(3, 45, count))
    places = [at(r, a, e) for r, a, e in zip(ranges, rng.uniform(-60, 60, count),
                                             rng.uniform(-3, 3, count), strict=True)]  # fmt: skip
    return frames(places, errors, loud=40.0, **how)


def error_deg(found: PhaseCalibration, errors: Floats, *, ramp: bool = False) -> float:
    """What is left of the errors; with `ramp`, beside an even growth over the array."""
    left = found.coefficients * np.exp(2j * np.pi * errors)
    left /= np.abs(left)
    if ramp:
        known = geometry()
        assert known.tx_m is not None
        assert known.rx_m is not None
        array = AntennaArray(known.tx_m, known.rx_m, known.wavelength)
        _, start = array.coarse(left.reshape(1, 1, -1))
        _, direction = array.climb(left.reshape(1, -1), start[:, 0])
        left = left * array.steering(direction).reshape(3, 4)
    left = left * np.conj(left.sum()) / abs(left.sum())
    return float(np.degrees(np.sqrt(np.mean(np.angle(left) ** 2))))


@pytest.mark.parametrize("seed", range(4))
def test_a_reflector_shows_all_errors_and_the_range_bias(seed: int) -> None:
    errors = errors_of(seed, 90.0)
    places = [at(PLACE[0] + 0.07, *PLACE[1:]), [12.0, 3.0, 0.0], [20.0, -4.0, 0.5]]
    measured = calibrate_by_reflector(geometry(), frames(places, errors), PLACE)
    found = measured.calibration
    assert error_deg(found, errors) < 0.5
    assert found.range_bias_m == pytest.approx(0.07, abs=0.01)
    assert found.residual_deg < 2 and measured.frames == 3 and measured.level_db > 40
    check_speeds(measured, errors)


def check_speeds(measured: Measured, errors: Floats) -> None:
    """The written calibration decides the speed of a target that is too fast."""
    values = json.loads(json.dumps(as_mapping(measured, geometry())))
    assert values["device"] == "AWR1843" and values["transmitters"] == [0, 1, 2]
    place = np.array([[14.0, 2.0, 0.0]])
    signal = BeatSignal(SIM_CHIRP, "qqii", errors)
    velocity = -12.0 * place / np.linalg.norm(place)
    frame = signal.frame(Scatterers(place, velocity, np.zeros((1, 3)), np.array([80.0])), None)
    seen = RadarProcessor(geometry(values)).detect(frame)
    assert seen.method[0] == SpeedMethod.ARRAY
    assert seen.velocity_m_s[0] == pytest.approx(-12.0, abs=0.1)


@pytest.mark.parametrize("degrees", [20.0, 60.0])
@pytest.mark.parametrize("seed", range(3))
def test_clutter_shows_the_errors_but_for_an_even_growth(seed: int, degrees: float) -> None:
    errors = errors_of(seed, degrees)
    measured = calibrate_by_clutter(geometry(), clutter(seed, errors))
    found = measured.calibration
    assert (
        error_deg(found, errors, ramp=True)
        < 3
        < error_deg(PhaseCalibration(np.ones((3, 4), np.complex128)), errors, ramp=True)
    )
    assert found.residual_deg < 6 and found.range_bias_m == 0 and measured.cells >= 12
    check_speeds(measured, errors)


def zeros() -> Floats:
    return np.zeros((3, 4))


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (lambda: by_reflector([at(9.0, 0, 0)]), "nothing stands out at 5 m"),
        (lambda: by_reflector([at(5.0, 10, 3)], speed=3.0), "5 m: .* something moves"),
        (lambda: by_reflector([at(5.0, 10, 3)], (80.0, 0.0, 0.0)), "beyond the radar"),
        (lambda: calibrate_by_reflector(geometry(), [], PLACE), "has no frame"),
        (lambda: calibrate_by_clutter(geometry(), []), "has no frame"),
        (lambda: calibrate_by_clutter(geometry(), clutter(0, zeros(), 5)), r"things in \d dir"),
        (lambda: calibrate_by_clutter(geometry(), clutter(0, zeros(), speed=-2.0)), "moves"),
        (lambda: calibrate_by_clutter(geometry(), clutter(0, zeros(), speed=-0.03)), "moves"),
        (lambda: calibrate_by_clutter(geometry(), changing()), "the phases vary by"),
    ],
)
def test_frames_that_give_no_calibration(measure: Callable[[], object], message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        measure()


def by_reflector(
    places: list[list[float]], place: tuple[float, ...] = PLACE, speed: float = 0.0
) -> Measured:
    return calibrate_by_reflector(
        geometry(), frames(places, zeros(), speed), (place[0], place[1], place[2])
    )


def changing() -> list[Samples]:
    """Every cell holds two targets in different directions: no plane waves."""
    rng = np.random.default_rng(3)
    places = []
    for range_m in np.arange(3.0, 45.0, 1.5):
        places += [at(range_m, a, 0) for a in rng.uniform(-60, 60, 3)]
    return frames(places, zeros(), loud=40.0)


def test_leakage_is_not_clutter() -> None:
    """However loud it is, and whatever its phases are."""
    errors = errors_of(1, 30.0)
    loud = [[0.4, 0.3, 0.0]]
    near = frames(loud, errors_of(9, 90.0), loud=400.0)
    far = clutter(1, errors)
    both = [(a // 2 + b // 2).astype(np.int16) for a, b in zip(near, far, strict=True)]
    found = calibrate_by_clutter(geometry(), both).calibration
    assert error_deg(found, errors, ramp=True) < 5


def test_a_calibration_without_its_quality_counts_as_5_degrees() -> None:
    known = {"coefficients": np.dstack([np.full((3, 4), 2.0), np.zeros((3, 4))]).tolist()}
    found = PhaseCalibration.of_mapping(known, 3, 4)
    assert (found.residual_deg, found.range_bias_m, found.method) == (5.0, 0.0, "")
    assert np.allclose(found.coefficients, 1.0)
    for residual in (0.0, 180.0):
        named = PhaseCalibration.of_mapping(known | {"residual_deg": residual}, 3, 4)
        assert named.residual_deg == residual
    for residual in (-0.1, 180.1):
        with pytest.raises(ValueError, match="no angle up to 180"):
            PhaseCalibration.of_mapping(known | {"residual_deg": residual}, 3, 4)
