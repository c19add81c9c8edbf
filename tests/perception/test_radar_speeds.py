"""Speeds beyond the unambiguous ones: who decides, and that nobody guesses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from drivers.mmwave.chirp import ChirpConfig
from drivers.mmwave.driver import SIM_CHIRP
from drivers.mmwave.fmcw import BeatSignal, Scatterers
from drivers.mmwave.model import SimulatedRadar
from drivers.world import World
from recorder.common.errors import FormatError
from recorder.perception.radar.array import decided
from recorder.perception.radar.frames import RadarFrames, find_step, max_velocity_m_s
from recorder.perception.radar.radar import Detections, RadarGeometry, RadarProcessor, SpeedMethod
from recorder.perception.radar.range_rate import resolve_by_range_rate

Floats = npt.NDArray[np.float64]
PERIOD_M_S = 2 * SIM_CHIRP.max_doppler


def calibration(errors: Floats, residual_deg: float = 2.0) -> dict[str, Any]:
    """What undoes errors of the phases, in turns."""
    factors = np.exp(-2j * np.pi * errors)
    pairs = np.stack([factors.real, factors.imag], axis=-1)
    return {"coefficients": pairs.tolist(), "residual_deg": residual_deg}


def geometry(
    known: dict[str, Any] | None, chirp: ChirpConfig = SIM_CHIRP, order: str = "qqii"
) -> RadarGeometry:
    return RadarGeometry.of_metadata(json.dumps(chirp.intrinsics(order, known)), "radar.json")


def point(
    speed: float,
    errors: Floats,
    place: tuple[float, float, float] = (15.0, 3.0, 0.0),
    chirp: ChirpConfig = SIM_CHIRP,
) -> npt.NDArray[np.int16]:
    """A frame with one loud point and noise, of antennas with errors (in turns)."""
    at = np.array([place])
    velocity = speed * at / np.linalg.norm(at)
    signal = BeatSignal(chirp, "qqii", errors)
    noise = np.random.default_rng(1).normal(0, 16, signal.noise_shape).astype(np.int16)
    return signal.frame(Scatterers(at, velocity, np.zeros((1, 3)), np.array([60.0])), noise)


def errors_of(seed: int, degrees: float = 60.0) -> Floats:
    return np.random.default_rng(seed).normal(0, degrees / 360, (3, 4))


@pytest.mark.parametrize("speed", [-13.0, 3.0, 14.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_array_decides_if_it_is_calibrated(speed: float, seed: int) -> None:
    errors = errors_of(seed)
    found = RadarProcessor(geometry(calibration(errors))).detect(point(speed, errors))
    assert found.method[0] == SpeedMethod.ARRAY
    assert found.velocity_m_s[0] == pytest.approx(speed, abs=0.1)
    assert np.degrees(np.arctan2(*found.direction[0, 1::-1])) == pytest.approx(11.3, abs=1)
    assert found.margin_db[0] > 1
    assert found.turns[0] == round(speed / PERIOD_M_S)


@pytest.mark.parametrize("speed", [-13.0, 3.0, 14.0])
@pytest.mark.parametrize("seed", range(4))
def test_an_uncalibrated_array_decides_nothing(speed: float, seed: int) -> None:
    found = RadarProcessor(geometry(None)).detect(point(speed, errors_of(seed)))
    assert found.method[0] == SpeedMethod.AMBIGUOUS and found.turns[0] == 0
    off = (found.velocity_m_s[0] - speed) / PERIOD_M_S
    assert off == pytest.approx(round(off), abs=0.01)
    assert abs(found.velocity_m_s[0]) <= SIM_CHIRP.max_doppler


def test_a_calibration_with_a_large_residual_decides_nothing() -> None:
    errors = errors_of(0)
    rough = calibration(errors, residual_deg=15.0)
    assert RadarProcessor(geometry(rough)).detect(point(14.0, errors)).method[0] == 0


def test_the_range_bias_is_subtracted() -> None:
    errors = errors_of(1)
    frame = point(3.0, errors)
    plain, biased = (
        RadarProcessor(geometry(calibration(errors) | {"range_bias_m": bias})).detect(frame)
        for bias in (0.0, 0.25)
    )
    assert plain.range_m[0] - biased.range_m[0] == pytest.approx(0.25, abs=1e-4)


def test_two_waves_in_one_cell_are_not_one_plane_wave() -> None:
    """Two targets of the same range and speed at both sides: no multiple is trusted."""
    at = np.array([[15.0, 6.0, 0.0], [15.0, -6.0, 0.0]])
    points = Scatterers(
        at, 14.0 * at / np.linalg.norm(at[0]), np.zeros((2, 3)), np.array([60.0, 55.0])
    )
    found = RadarProcessor(geometry(calibration(np.zeros((3, 4))))).detect(
        BeatSignal(SIM_CHIRP, "qqii").frame(points, None)
    )
    assert found.method[0] == SpeedMethod.AMBIGUOUS


@pytest.mark.parametrize("snr_db", [5.0, 10.0, 15.0, 30.0])
@pytest.mark.parametrize("residual_deg", [0.0, 4.0, 8.0])
def test_what_is_decided_is_right(snr_db: float, residual_deg: float) -> None:
    """Of plane waves with noise and with errors of whole transmitters, none is decided wrongly."""
    rng, count = np.random.default_rng(5), 1500
    processor = RadarProcessor(geometry(calibration(np.zeros((3, 4)), residual_deg)))
    array = processor._array
    assert array is not None
    left = rng.uniform(-0.8, 0.8, count)
    unit = np.stack([np.sqrt(1 - left**2), left, np.zeros(count)], axis=1)
    wave = array.steering(unit).conj().reshape(count, 3, 4)
    wave *= np.exp(1j * rng.normal(0, np.radians(residual_deg), (count, 3, 1)))
    noise = rng.normal(size=(2, count, 3, 4)) * np.sqrt(0.5 * 10 ** (-snr_db / 10))
    signal = wave + noise[0] + 1j * noise[1]
    fit_db, _ = processor._fit(array, signal, np.zeros(count))
    total_db = 10 * np.log10(12 * np.sum(np.abs(signal) ** 2, axis=(1, 2)))
    sure = decided(fit_db, total_db, np.full(count, snr_db), residual_deg, (3, 4))
    wrong = np.argmax(fit_db, axis=1) != 0
    assert np.count_nonzero(sure & wrong) == 0
    if snr_db >= 15 and residual_deg <= 4:
        assert np.count_nonzero(sure) > 0.9 * count


def followed(
    speeds: list[float], errors: Floats, chirp: ChirpConfig = SIM_CHIRP, start_m: float = 20.0
) -> list[Detections]:
    """The strongest detections of frames in which a point moves."""
    processor, frames, range_m = RadarProcessor(geometry(None, chirp)), [], start_m
    for speed in speeds:
        frame = point(speed, errors, (range_m, 0.0, 0.0), chirp)
        frames.append(processor.detect(frame))
        range_m += speed * chirp.frame_period * 1e-3
    times = np.arange(len(frames)) * chirp.frame_period * 1e-3
    return [
        resolve_by_range_rate(
            frame,
            [
                (float(times[j] - times[k]), frames[j])
                for j in range(len(frames))
                if 0 < abs(j - k) <= 2
            ],
            processor.geometry,
        )
        for k, frame in enumerate(frames)
    ]


@pytest.mark.parametrize("speed", [-24.0, -13.0, -9.0, 1.0, 9.0, 14.0, 26.0])
def test_the_range_rate_decides_without_a_calibration(speed: float) -> None:
    for found in followed([speed] * 5, errors_of(2)):
        assert found.method[0] == SpeedMethod.RANGE_RATE
        assert found.velocity_m_s[0] == pytest.approx(speed, abs=0.1)
        assert found.turns[0] == round(speed / PERIOD_M_S)


def test_a_range_that_is_not_followed_stays_ambiguous() -> None:
    (alone,) = followed([14.0], errors_of(2))
    assert alone.method[0] == SpeedMethod.AMBIGUOUS
    two = followed([14.0, 14.0], errors_of(2))
    assert [found.method[0] for found in two] == [0, 0]  # one frame might agree by chance


def test_frames_that_follow_too_fast_tell_no_multiples() -> None:
    """2 v_max T is 0.16 m, less than two cells."""
    slow = replace(SIM_CHIRP, idle_time=400.0, frame_period=90.0)
    assert 2 * slow.max_doppler * 0.09 < 2 * slow.range_resolution
    assert {int(f.method[0]) for f in followed([3.0] * 4, errors_of(2), slow)} == {0}


def test_a_range_rate_changes_range_and_direction_with_the_speed() -> None:
    found = followed([-13.0] * 5, np.zeros((3, 4)))[2]
    still = followed([-13.0] * 1, np.zeros((3, 4)), start_m=20.0 - 2 * 13.0 * 0.05)[0]
    shift = (found.velocity_m_s[0] - still.velocity_m_s[0]) * geometry(None).coupling_s
    assert found.range_m[0] - still.range_m[0] == pytest.approx(-shift, abs=1e-3)
    assert found.direction[0] == pytest.approx([1, 0, 0], abs=0.02)
    assert abs(still.direction[0, 1]) > 0.1  # the phases of another speed


@pytest.mark.parametrize("scene", ["drive", "straight", "parked"])
def test_the_worlds_targets_have_their_speeds_or_are_ambiguous(scene: str) -> None:
    """Of a radar whose antennas nobody has calibrated."""
    radar = SimulatedRadar(SIM_CHIRP, "qqii", 7, World(scene, 0), phase_error_deg=50.0)
    processor = RadarProcessor(geometry(None))
    t_ns = np.arange(24, dtype=np.int64) * 50_000_000
    frames = RadarFrames(processor, radar.frame, t_ns)
    counts = {method: [0, 0] for method in SpeedMethod}
    for index in range(24):
        found = frames.resolved(index)
        assert np.abs(found.velocity_m_s).max() <= max_velocity_m_s(processor)
        for target in radar.targets(index):
            off = found.velocity_m_s - target.velocity_mps
            modulo = off - PERIOD_M_S * np.rint(off / PERIOD_M_S)
            near = (np.abs(found.range_m - target.range_m) < 0.3) & (np.abs(modulo) < 0.4)
            for one in np.flatnonzero(near & (found.snr_db > 15)):
                counts[SpeedMethod(found.method[one])][int(abs(off[one]) > 0.5)] += 1
    right, wrong = counts[SpeedMethod.RANGE_RATE]
    assert counts[SpeedMethod.ARRAY] == [0, 0]
    assert wrong <= 0.01 * right and right > 8 * sum(counts[SpeedMethod.AMBIGUOUS])
    assert frames.remarks() == []


def near_things(shift: int, order: str | None = "qqii") -> npt.NDArray[np.int16]:
    """Leakage, a bumper and two moving targets; the capture is shifted by some values."""
    chirp = SIM_CHIRP if order is not None else replace(SIM_CHIRP, device="AWR2944")
    points = Scatterers(
        np.array([[0.25, 0.0, 0.0], [9.0, 2.0, 0.0], [20.0, -4.0, 0.0]]),
        np.array([[0.0, 0.0, 0.0], [-7.0, 0.0, 0.0], [3.0, 0.0, 0.0]]),
        np.zeros((3, 3)),
        np.array([300.0, 60.0, 60.0]),
    )
    signal = BeatSignal(chirp, order or "qqii")
    noise = np.random.default_rng(1).normal(0, 100, signal.noise_shape).astype(np.int16)
    frame = signal.frame(points, noise)
    return np.roll(frame.reshape(-1), -shift).reshape(frame.shape)


@pytest.mark.parametrize(("order", "sample"), [("qqii", 148), (None, 40)])
def test_a_capture_that_is_cut_a_packet_early(order: str | None, sample: int) -> None:
    """A packet has 728 values: 364 complex samples, or 728 real ones, of chirps of 256."""
    assert find_step(near_things(0, order), order) is None
    assert find_step(near_things(728, order), order) == sample


def test_a_misaligned_capture_is_reported_and_its_array_decides_nothing() -> None:
    processor = RadarProcessor(geometry(calibration(np.zeros((3, 4)))))
    t_ns = np.arange(3, dtype=np.int64) * 50_000_000
    for shift, remarks in ((0, 0), (728, 1)):
        frames = RadarFrames(processor, lambda _, shift=shift: near_things(shift), t_ns)  # type: ignore[misc]
        methods = {int(m) for k in range(3) for m in frames.resolved(k).method}
        assert (SpeedMethod.ARRAY in methods) == (shift == 0)
        assert len(frames.remarks()) == remarks
    assert "3 frames have a step before sample 148 of every chirp" in frames.remarks()[0]


def test_directions_are_in_the_field_of_view() -> None:
    """Whatever the noise is; a target within it is found where it is."""
    known = geometry(calibration(np.zeros((3, 4))))
    assert known.view_deg == (80.0, 20.0)
    processor = RadarProcessor(known, threshold_db=3.0)
    rng = np.random.default_rng(3)
    found = processor.detect(rng.normal(0, 40, SIM_CHIRP.shape).astype(np.int16))
    assert len(found) > 50
    every = found.directions.reshape(-1, 3).astype(np.float64)
    assert np.degrees(np.arcsin(np.abs(every[:, 2]))).max() <= 20.01
    assert np.degrees(np.abs(np.arctan2(every[:, 1], every[:, 0]))).max() <= 80.01
    assert np.degrees(np.arcsin(np.abs(every[:, 2]))).max() > 19  # up to the edge
    high = processor.detect(point(0.0, np.zeros((3, 4)), (12.0, 1.0, 3.9)))
    assert np.degrees(np.arcsin(high.direction[0, 2])) == pytest.approx(17.9, abs=1.5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "lacks coefficients"),
        ({"coefficients": [[[1, 0]] * 4] * 2}, r"coefficients have the shape \(2, 4, 2\)"),
        ({"coefficients": [[[0, 0]] * 4] * 3}, "zero or no number"),
        ({"coefficients": [[[1, 0]] * 4] * 3, "residual_deg": -1}, "residual_deg -1 is no"),
    ],
)
def test_an_invalid_calibration_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        geometry({"method": "x"} | values)
