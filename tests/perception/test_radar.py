"""Detections against targets of known place and speed."""

from __future__ import annotations

import json
from dataclasses import astuple, replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.mmwave.chirp import ChirpConfig, lane_columns
from drivers.mmwave.driver import SIM_CHIRP
from drivers.mmwave.fmcw import BeatSignal, Scatterers
from drivers.mmwave.model import SimulatedRadar
from drivers.world import World
from recorder.common.errors import FormatError
from recorder.perception.radar.radar import Detections, RadarGeometry, RadarProcessor
from recorder.perception.radar.spectra import (
    find_peaks,
    log_noise,
    log_power,
    mean_power,
    strongest,
    to_pairs,
)
from tests.perception import radar_reference as reference

DEVICES = ["AWR1843", "AWR1642", "AWR2944", "AWRL6844"]


def geometry(chirp: ChirpConfig, order: str = "qqii") -> RadarGeometry:
    """Of calibrated antennas."""
    described = chirp.intrinsics(order, chirp.antennas.ideal_calibration())
    return RadarGeometry.of_metadata(json.dumps(described), "radar.json")


def seen(
    chirp: ChirpConfig, place: list[float], velocity: list[float], order: str = "qqii"
) -> Detections:
    """What is detected of one loud point, with noise."""
    points = Scatterers(np.array([place]), np.array([velocity]), np.zeros((1, 3)), np.array([60.0]))
    signal = BeatSignal(chirp, order)
    noise = np.random.default_rng(1).normal(0, 16, signal.noise_shape).astype(np.int16)
    return RadarProcessor(geometry(chirp, order)).detect(signal.frame(points, noise))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("speed", [0.0, 3.1, -5.0])
def test_a_point_is_found_in_its_place(device: str, speed: float) -> None:
    chirp = replace(SIM_CHIRP, device=device)
    place = np.array([11.0, -4.0, 0.0])
    unit = place / np.linalg.norm(place)
    found = seen(chirp, place.tolist(), (speed * unit).tolist())
    assert found.range_m[0] == pytest.approx(np.linalg.norm(place), abs=0.02)
    assert found.velocity_m_s[0] == pytest.approx(speed, abs=0.02)
    assert np.degrees(np.arccos(min(1.0, float(found.direction[0] @ unit)))) < 1.0
    assert np.abs(np.linalg.norm(found.direction, axis=1) - 1).max() < 1e-6
    assert found.power_db[0] == pytest.approx(20 * np.log10(60), abs=3)
    assert (np.diff(found.power_db) <= 0).all()


@pytest.mark.parametrize("range_m", [0.3, 0.6, 0.9])
def test_a_point_that_is_very_near(range_m: float) -> None:
    found = seen(SIM_CHIRP, [range_m, 0.0, 0.0], [0.0, 0.0, 0.0])
    assert found.range_m[0] == pytest.approx(range_m, abs=0.03)


@pytest.mark.parametrize("speed", [-13.0, 14.0])
def test_a_speed_beyond_the_doppler_range_is_resolved(speed: float) -> None:
    place = np.array([15.0, 3.0, 0.0])
    assert abs(speed) > SIM_CHIRP.max_doppler
    found = seen(SIM_CHIRP, place.tolist(), (speed * place / np.linalg.norm(place)).tolist())
    assert found.velocity_m_s[0] == pytest.approx(speed, abs=0.05)
    assert np.degrees(np.arctan2(found.direction[0, 1], found.direction[0, 0])) == pytest.approx(
        np.degrees(np.arctan2(3, 15)), abs=1
    )


def test_elevation_where_the_array_tells_it() -> None:
    found = seen(SIM_CHIRP, [12.0, 0.0, 3.0], [0.0, 0.0, 0.0])
    assert np.degrees(np.arcsin(found.direction[0, 2])) == pytest.approx(14.0, abs=2)


@pytest.mark.parametrize("order", ["qqii", "iiqq"])
def test_both_orders_of_samples(order: str) -> None:
    values = np.random.default_rng(0).integers(-99, 99, (2, 3, 4, 16)).astype(np.int16)
    pairs = to_pairs(values, order).astype(np.float32).view(np.complex64)
    i, q = lane_columns(8, order)
    assert np.array_equal(pairs, values[..., i] + 1j * values[..., q])
    found = seen(SIM_CHIRP, [9.0, 0.0, 0.0], [1.0, 0.0, 0.0], order)
    assert found.velocity_m_s[0] == pytest.approx(1.0, abs=0.02)


def test_noise_alone_is_hardly_ever_detected() -> None:
    processor = RadarProcessor(geometry(SIM_CHIRP))
    rng = np.random.default_rng(3)
    frames = (rng.normal(0, 40, SIM_CHIRP.shape).astype(np.int16) for _ in range(5))
    assert sum(len(processor.detect(frame)) for frame in frames) == 0


def test_silence_is_no_error() -> None:
    found = RadarProcessor(geometry(SIM_CHIRP)).detect(np.zeros(SIM_CHIRP.shape, np.int16))
    assert len(found) == 0
    assert found.direction.shape == (0, 3)


def test_a_strong_target_hides_no_weaker_one_nearby() -> None:
    power = np.ones((64, 256), np.float32)
    power[10:13, 100:103] = 1e6
    assert np.exp(log_noise(log_power(power[None])))[0, 10, 106] < 2


@pytest.mark.parametrize("size", [(64, 256), (16, 40), (8, 20), (5, 9), (1, 12)])
def test_peaks_and_noise_are_the_plain_ones(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(4)
    power = rng.exponential(size=(3, *size)).astype(np.float32)
    for number in range(18):
        frame = power[number % 3]
        row, column = rng.integers(0, size[0]), rng.integers(0, size[1])
        frame[row, column] += 10 ** rng.uniform(1, 6)
        frame[(row + 3) % size[0], column] += 5e-4 * frame[row, column]  # a window's side lobe
    level = log_power(power)
    noise = log_noise(level)
    found = peaks_of(power, level > noise + np.log(12))
    for frame, around, cells in zip(power, noise, found, strict=True):
        exact = frame.astype(np.float64)
        plain = reference.noise_around(exact)
        assert np.allclose(np.exp(around), plain, rtol=1e-5)
        known = reference.peaks(exact, np.maximum(12 * plain, reference.leakage(exact)))
        assert len(known) > 0 or size[0] == 1  # which exceeds no neighbour: it is its own
        assert cells == known.tolist()


def peaks_of(power: npt.NDArray[np.float32], good: npt.NDArray[np.bool_]) -> list[list[list[int]]]:
    """Of each frame, its peaks' Doppler and range."""
    cells = np.stack(np.unravel_index(find_peaks(power, good), power.shape), axis=1)
    return [cells[cells[:, 0] == frame, 1:].tolist() for frame in range(len(power))]


def test_of_equal_neighbours_the_first_is_the_peak() -> None:
    power = np.ones((2, 8, 32), np.float32)
    power[1, 3, 10:12] = power[1, 5:7, 20] = power[1, 2, 0] = power[1, 6, 31] = 100
    power[0, 7, 31] = 200  # of another frame, though it is the next cell but one in memory
    power[1, 0, 1] = 100
    assert peaks_of(power, power > 50) == [[[7, 31]], [[0, 1], [3, 10], [5, 20], [6, 31]]]


def test_the_strongest_come_first_in_each_frame() -> None:
    power = np.zeros((3, 2, 4), np.float32)
    power[0, 0] = [0, 3, 9, 3]
    power[2, 1] = [0, 1, 5, 7]
    cells, counts = strongest(power, np.flatnonzero(power), 2)
    assert cells.tolist() == [2, 1, 23, 22]  # of equal ones the first
    assert counts.tolist() == [2, 0, 2]


def plain_geometry(
    order: str | None, shape: tuple[int, int, int, int], *, depth_m: float | None = None
) -> RadarGeometry:
    """With antennas on a plane, or some of them before it."""
    _, tx, rx, _ = shape
    tx_m = np.zeros((tx, 3))
    tx_m[:, 1], tx_m[:, 2] = np.arange(tx) * rx * 0.002, np.arange(tx) % 2 * 0.002
    rx_m = np.zeros((rx, 3))
    rx_m[:, 1] = np.arange(rx) * 0.002
    tx_m[0, 0] = depth_m or 0.0
    turns: npt.NDArray[np.float64] = np.arange(tx, dtype=np.float64) * 0.1
    return RadarGeometry(shape, order, 0.1, 0.2, 0.004, 1e-4, 1e-2, 0.01, tx_m, rx_m, turns, {})


def tones(what: RadarGeometry, seed: int) -> npt.NDArray[np.int16]:
    """A frame with five targets of any phases, and noise."""
    rng = np.random.default_rng(seed)
    chirps, tx, rx, count = what.shape
    samples = rng.normal(0, 5, (chirps, tx, rx, count)) + 0j
    for _ in range(5):
        beat, turn = rng.uniform(0.1, 2.5), rng.uniform(-3, 3)
        along = beat * np.arange(count) + turn * np.arange(chirps)[:, None, None, None]
        phase = rng.uniform(0, 6) + rng.uniform(-3, 3) * np.arange(rx)[:, None]
        phase = phase + rng.uniform(-3, 3) * np.arange(tx)[:, None, None]
        samples += 150 * np.exp(1j * (along + phase))
    if what.iq_order is None:
        return samples.real.astype(np.int16)
    samples += 1j * rng.normal(0, 5, samples.shape)
    lanes = np.zeros((chirps, tx, rx, count // 2, 2, 2))
    first, second = (0, 1) if what.iq_order == "iiqq" else (1, 0)
    lanes[..., first, :] = samples.real.reshape((*lanes.shape[:-2], 2))
    lanes[..., second, :] = samples.imag.reshape((*lanes.shape[:-2], 2))
    return lanes.reshape(chirps, tx, rx, 2 * count).astype(np.int16)


def check_like_the_plain_one(
    what: RadarGeometry, iq: npt.NDArray[np.int16], threshold_db: float = 12.0
) -> int:
    """Cube and detections equal the reference's; returns how many there are.

    The cube is made in single precision: some 1e-7 of its strongest value is lost, as much as of
    the phases; a phase's error of that size moves a direction by less than its finest step.
    """
    processor = RadarProcessor(what, threshold_db)
    cube, plain = processor.cube(iq), reference.cube_of(iq, what)
    assert cube.dtype == np.complex64
    assert np.abs(cube - plain).max() < 1e-6 * np.abs(plain).max()
    power = mean_power(processor.spectra(iq))
    assert np.allclose(power, (np.abs(plain) ** 2).mean(axis=(1, 2)), rtol=1e-4, atol=1e-9)
    found, known = processor.detect(iq), reference.detections_of(iq, what, threshold_db)
    assert len(found) == len(known)
    for name in ("range_m", "velocity_m_s", "power_db", "snr_db", "margin_db"):
        assert np.allclose(getattr(found, name), getattr(known, name), atol=1e-3), name
    assert np.abs(found.direction - known.direction).max(initial=0) < 2e-3
    assert np.array_equal(found.method, known.method)
    assert np.array_equal(found.turns, known.turns)
    return len(found)


@pytest.mark.parametrize("order", ["qqii", "iiqq", None])
@pytest.mark.parametrize("shape", [(16, 3, 4, 64), (15, 2, 4, 60)])
def test_frames_are_processed_as_the_plain_processing_does(
    order: str | None, shape: tuple[int, int, int, int]
) -> None:
    what = plain_geometry(order, shape)
    assert check_like_the_plain_one(what, tones(what, 3)) >= 3


@pytest.mark.parametrize("tx", [1, 2, 3, 4])
@pytest.mark.parametrize("depth_m", [None, 0.003])
def test_directions_are_the_plain_ones(tx: int, depth_m: float | None) -> None:
    what = plain_geometry("iiqq", (16, tx, 4, 64), depth_m=depth_m)
    assert check_like_the_plain_one(what, tones(what, tx), 6.0) > 3


def test_a_frame_of_the_world_is_processed_as_the_plain_processing_does() -> None:
    radar = SimulatedRadar(SIM_CHIRP, "qqii", world=World("drive", 0))
    assert check_like_the_plain_one(geometry(SIM_CHIRP), radar.frame(40)) > 5


def silence(what: RadarGeometry) -> npt.NDArray[np.int16]:
    chirps, tx, rx, count = what.shape
    return np.zeros((chirps, tx, rx, count if what.iq_order is None else 2 * count), np.int16)


@given(data=st.data())
def test_frames_together_show_what_they_show_one_by_one(data: st.DataObject) -> None:
    """To the last bit: nothing of a frame depends on what else there is."""
    draw = data.draw
    shape = draw(st.sampled_from([(16, 3, 4, 32), (15, 2, 4, 30), (8, 1, 2, 64), (4, 4, 4, 32)]))
    order = draw(st.sampled_from(["qqii", "iiqq", None]))
    what = plain_geometry(order, shape, depth_m=draw(st.sampled_from([None, 0.003])))
    if draw(st.booleans()):
        what = replace(what, tx_m=None, rx_m=None)
    processor = RadarProcessor(
        what, draw(st.sampled_from([3.0, 8.0, 14.0])), limit=draw(st.sampled_from([1, 3, 256]))
    )
    seeds = draw(st.lists(st.integers(0, 40), min_size=1, max_size=6))
    frames = [tones(what, seed) if seed else silence(what) for seed in seeds]
    spectra = [processor.spectra(iq) for iq in frames]
    found = processor.find_all(spectra)
    assert len(found) == len(frames)
    for together, one in zip(found, spectra, strict=True):
        alone = processor.find(one)
        for some, same in zip(astuple(together), astuple(alone), strict=True):
            assert some.dtype == same.dtype
            assert np.array_equal(some, same)


def test_frames_that_cannot_be_written_to_are_read() -> None:
    what = plain_geometry("qqii", (16, 3, 4, 64))
    iq = tones(what, 1)
    expected = RadarProcessor(what).detect(iq)
    iq.setflags(write=False)
    assert np.array_equal(RadarProcessor(what).detect(iq).range_m, expected.range_m)


def test_targets_of_the_world_are_found() -> None:
    radar = SimulatedRadar(SIM_CHIRP, "qqii", world=World("drive", 0))
    processor = RadarProcessor(geometry(SIM_CHIRP))
    checked = 0
    for index in (0, 13, 40, 76):
        found = processor.detect(radar.frame(index))
        points = found.direction * found.range_m[:, None]
        targets = radar.targets(index)
        for target in targets[:4]:
            if any(
                abs(other.range_m - target.range_m) < 0.8 for other in targets if other != target
            ):
                continue
            place = target.range_m * np.array(
                [np.cos(target.azimuth_rad), np.sin(target.azimuth_rad), 0]
            )
            off = np.linalg.norm(points - place, axis=1)
            nearest = int(np.argmin(off))
            assert off[nearest] < 0.05 * target.range_m, target
            assert abs(found.velocity_m_s[nearest] - target.velocity_mps) < 0.1
            checked += 1
    assert checked >= 8


def test_the_strongest_are_kept() -> None:
    radar = SimulatedRadar(SIM_CHIRP, "qqii", world=World("drive", 0))
    iq = radar.frame(0)
    every = RadarProcessor(geometry(SIM_CHIRP)).detect(iq)
    some = RadarProcessor(geometry(SIM_CHIRP), limit=3).detect(iq)
    assert np.array_equal(some.power_db, every.power_db[:3])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"range_resolution": None}, "is invalid"),
        ({"iq_order": "qiqi"}, "is invalid: iq_order 'qiqi'"),
        ({"antennas": {"tx_m": [[0, 0, 0]], "rx_m": []}}, "is invalid"),
    ],
)
def test_bad_metadata_names_file_and_key(change: dict[str, object], words: str) -> None:
    text = json.dumps(SIM_CHIRP.intrinsics("qqii") | change)
    with pytest.raises(FormatError, match=f"radar.json: {words}"):
        RadarGeometry.of_metadata(text, "radar.json")


def test_numbers_of_samples_are_whole_however_they_are_written() -> None:
    values = SIM_CHIRP.intrinsics("qqii")
    text = json.dumps(values | {"raw_shape": [float(n) for n in values["raw_shape"]]})
    made = RadarGeometry.of_metadata(text, "radar.json")
    assert made.shape == geometry(SIM_CHIRP).shape
    assert all(isinstance(n, int) for n in made.shape)
    assert len(RadarProcessor(made).detect(np.zeros(SIM_CHIRP.shape, np.int16))) == 0


def test_files_of_red_rover_have_less() -> None:
    full = SIM_CHIRP.intrinsics("qqii")
    keys = ("shape", "range_resolution", "doppler_resolution", "max_range", "max_doppler")
    text = json.dumps({key: full[key] for key in keys})
    made = RadarGeometry.of_metadata(text, "radar.json", SIM_CHIRP.shape)
    assert (made.iq_order, made.tx_m) == ("qqii", None)
    radar = SimulatedRadar(SIM_CHIRP, "qqii", world=World("drive", 0))
    found = RadarProcessor(made).detect(radar.frame(0))
    strongest = radar.targets(0)[0]
    assert np.abs(found.range_m - strongest.range_m).min() < SIM_CHIRP.range_resolution
    assert (found.direction == (1, 0, 0)).all()


def test_missing_keys_are_named() -> None:
    values = SIM_CHIRP.intrinsics("qqii")
    del values["doppler_resolution"]
    with pytest.raises(FormatError, match=r"radar\.json: lacks doppler_resolution"):
        RadarGeometry.of_metadata(json.dumps(values), "radar.json")
