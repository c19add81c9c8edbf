"""Maps of radar frames against points of known place, and the simulated world's targets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from drivers.mmwave.chirp import ChirpConfig
from drivers.mmwave.driver import SIM_CHIRP
from drivers.mmwave.fmcw import BeatSignal, Scatterers
from drivers.mmwave.model import SimulatedRadar
from recorder.common.errors import FormatError
from recorder.perception.radar.maps import RadarMaps, in_db_steps
from recorder.perception.radar.radar import RadarProcessor
from tests.drivers.world.lone import target, world_of
from tests.perception.test_radar import DEVICES, geometry

Map = npt.NDArray[np.float32]


def frame_of(
    chirp: ChirpConfig, places: list[list[float]], speeds: list[float], amplitude: float = 60.0
) -> npt.NDArray[np.int16]:
    """Points with radial speeds, with noise."""
    at = np.array(places)
    velocity = at / np.linalg.norm(at, axis=1, keepdims=True) * np.array(speeds)[:, None]
    signal = BeatSignal(chirp, "qqii")
    noise = np.random.default_rng(1).normal(0, 16, signal.noise_shape).astype(np.int16)
    points = Scatterers(at, velocity, np.zeros_like(at), np.full(len(at), amplitude))
    return signal.frame(points, noise)


def peak(level_db: Map) -> tuple[int, int]:
    row, column = np.unravel_index(int(level_db.argmax()), level_db.shape)
    return int(row), int(column)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("azimuth_deg", "speed"), [(0, 0.0), (-20, 3.1), (37, -5.0), (10, 5.6)])
def test_the_peak_is_at_the_range_speed_and_azimuth(
    device: str, azimuth_deg: float, speed: float
) -> None:
    chirp = replace(SIM_CHIRP, device=device)
    azimuth, distance = np.radians(azimuth_deg), 11.0
    place = [distance * np.cos(azimuth), distance * np.sin(azimuth), 0.0]
    processor, maps = RadarProcessor(geometry(chirp)), RadarMaps(geometry(chirp))
    spectra = processor.spectra(frame_of(chirp, [place], [speed]))
    level_db, noise_db = maps.range_doppler(spectra)
    assert level_db.shape == (len(maps.velocity_m_s), len(maps.range_m))
    row, column = peak(level_db)
    coupled = distance + speed * processor.geometry.coupling_s
    assert abs(maps.range_m[column] - coupled) <= processor.geometry.range_resolution
    assert abs(maps.velocity_m_s[row] - speed) <= processor.geometry.doppler_resolution
    assert level_db.max() + noise_db == pytest.approx(20 * np.log10(60), abs=3)
    assert np.median(level_db) == pytest.approx(0, abs=1e-3)
    waves_db, noise_db = maps.range_azimuth(spectra)
    assert waves_db.shape == (len(maps.azimuth_rad), len(maps.range_m))
    row, column = peak(waves_db)
    assert abs(maps.range_m[column] - coupled) <= processor.geometry.range_resolution
    assert abs(maps.azimuth_rad[row] - azimuth) <= np.radians(2.1)
    assert waves_db.max() + noise_db == pytest.approx(20 * np.log10(60), abs=3)


def test_two_targets_of_one_range_are_told_apart_by_their_speeds() -> None:
    """One stands, one moves: without a compensation, its phases over the array are wrong."""
    angles = np.radians([-35.0, 30.0])
    places = [[14 * np.cos(a), 14 * np.sin(a), 0.0] for a in angles]
    processor, maps = RadarProcessor(geometry(SIM_CHIRP)), RadarMaps(geometry(SIM_CHIRP))
    waves_db, _ = maps.range_azimuth(processor.spectra(frame_of(SIM_CHIRP, places, [0.0, 6.0])))
    column = int(np.abs(maps.range_m - 14).argmin())
    along = waves_db[:, column - 1 : column + 2].max(axis=1)
    for angle in angles:
        near = np.abs(maps.azimuth_rad - angle) < np.radians(3)
        assert along[near].max() > along.max() - 2
    between = np.abs(maps.azimuth_rad) < np.radians(8)
    assert along[between].max() < along.max() - 8


def test_the_calibration_of_the_antennas_is_used() -> None:
    """Errors of the phases blur the azimuth, unless they are known; a bias moves the axis."""
    errors = np.random.default_rng(5).normal(0, 0.15, (3, 4))  # turns
    place, still = np.array([[12 * np.cos(0.4), 12 * np.sin(0.4), 0.0]]), np.zeros((1, 3))
    signal = BeatSignal(SIM_CHIRP, "qqii", errors)
    noise = np.random.default_rng(1).normal(0, 16, signal.noise_shape).astype(np.int16)
    iq = signal.frame(Scatterers(place, still, still, np.array([60.0])), noise)
    ideal = geometry(SIM_CHIRP)
    assert ideal.calibration is not None
    measured = ideal.calibration.coefficients * np.exp(-2j * np.pi * errors)
    calibration = replace(ideal.calibration, coefficients=measured, range_bias_m=0.5)
    maps = RadarMaps(replace(ideal, calibration=calibration))
    spectra = RadarProcessor(ideal).spectra(iq)
    waves_db, noise_db = maps.range_azimuth(spectra)
    row, column = peak(waves_db)
    assert abs(maps.azimuth_rad[row] - 0.4) <= np.radians(2.1)
    assert maps.range_m[column] == pytest.approx(12 - 0.5, abs=0.2)
    assert waves_db.max() + noise_db == pytest.approx(20 * np.log10(60), abs=1.5)
    blurred_db, noise_db = RadarMaps(ideal).range_azimuth(spectra)
    assert blurred_db.max() + noise_db < 20 * np.log10(60) - 2


def test_the_axes_rise_and_have_the_middle_of_doppler_at_rest() -> None:
    maps = RadarMaps(geometry(SIM_CHIRP))
    for axis in (maps.range_m, maps.velocity_m_s, maps.azimuth_rad):
        assert (np.diff(axis) > 0).all()
    assert maps.velocity_m_s[len(maps.velocity_m_s) // 2] == 0
    assert -maps.velocity_m_s[0] == pytest.approx(maps.geometry.max_velocity)
    assert maps.azimuth_rad[len(maps.azimuth_rad) // 2] == pytest.approx(0)
    odd = RadarMaps(geometry(replace(SIM_CHIRP, frame_length=33)))
    assert odd.velocity_m_s[16] == 0 and (np.diff(odd.velocity_m_s) > 0).all()


def test_a_simulated_target_is_where_it_truly_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's own simulation, of a car that comes nearer, beside the road's middle."""
    car = target(start=25.0, lateral_m=3.0, rcs_m2=100.0)
    world = world_of(monkeypatch, [car], speed=5.0)
    radar = SimulatedRadar(SIM_CHIRP, "qqii", world=world)
    processor, maps = RadarProcessor(geometry(SIM_CHIRP)), RadarMaps(geometry(SIM_CHIRP))
    (truth,) = radar.targets(4)
    spectra = processor.spectra(radar.frame(4))
    row, column = peak(maps.range_doppler(spectra)[0])
    assert abs(maps.range_m[column] - truth.range_m) < 0.3
    assert abs(maps.velocity_m_s[row] - truth.velocity_mps) < 0.3
    row, column = peak(maps.range_azimuth(spectra)[0])
    assert abs(maps.range_m[column] - truth.range_m) < 0.3
    assert abs(maps.azimuth_rad[row] - truth.azimuth_rad) < np.radians(3)


def test_silence_has_no_level() -> None:
    processor, maps = RadarProcessor(geometry(SIM_CHIRP)), RadarMaps(geometry(SIM_CHIRP))
    spectra = processor.spectra(np.zeros(SIM_CHIRP.shape, np.int16))
    for level_db, noise_db in (maps.range_doppler(spectra), maps.range_azimuth(spectra)):
        assert not level_db.any() and np.isfinite(noise_db)


def test_no_azimuths_without_antennas() -> None:
    known = geometry(SIM_CHIRP)
    maps = RadarMaps(replace(known, tx_m=None, rx_m=None))
    assert len(maps.azimuth_rad) == 0
    spectra = RadarProcessor(known).spectra(np.zeros(SIM_CHIRP.shape, np.int16))
    with pytest.raises(FormatError, match="antennas"):
        maps.range_azimuth(spectra)


def test_levels_in_steps_are_limited() -> None:
    levels = np.array([-300, -10, -9.8, -9.7, 0, 60.2, 117.5, 400], np.float32)
    assert in_db_steps(levels, -10, 0.5).tolist() == [0, 0, 0, 1, 20, 140, 255, 255]
