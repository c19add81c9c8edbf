"""Detections against targets of known place and speed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from drivers._protocols.chirp import ChirpConfig, to_complex
from drivers.mmwave import SIM_CHIRP
from drivers.sim.fmcw import BeatSignal, Scatterers
from drivers.sim.radar import SimulatedRadar
from drivers.sim.world import World
from recorder.contract.errors import FormatError
from recorder.processing.radar import (
    Detections,
    RadarGeometry,
    RadarProcessor,
    noise_around,
    to_samples,
)

DEVICES = ["AWR1843", "AWR1642", "AWR2944", "AWRL6844"]


def geometry(chirp: ChirpConfig, order: str = "qqii") -> RadarGeometry:
    return RadarGeometry.of_metadata(json.dumps(chirp.intrinsics(order)), "radar.json")


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
    assert np.array_equal(to_samples(values, order), to_complex(values, order))
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
    assert noise_around(power)[10, 106] < 2


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
        ({"range_resolution": None}, "is of no use"),
        ({"iq_order": "qiqi"}, "is of no use: iq_order 'qiqi'"),
        ({"antennas": {"tx_m": [[0, 0, 0]], "rx_m": []}}, "is of no use"),
    ],
)
def test_bad_metadata_names_file_and_key(change: dict[str, object], words: str) -> None:
    text = json.dumps(SIM_CHIRP.intrinsics("qqii") | change)
    with pytest.raises(FormatError, match=f"radar.json: {words}"):
        RadarGeometry.of_metadata(text, "radar.json")


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
