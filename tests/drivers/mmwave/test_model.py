"""The simulated radar: lone targets found by plain Fourier transforms, and the same bytes."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from drivers.mmwave.chirp import DEVICES, ChirpConfig
from drivers.mmwave.driver import SIM_CHIRP
from drivers.mmwave.fmcw import BeatSignal, Scatterers
from drivers.mmwave.model import SimulatedRadar
from drivers.world import World
from drivers.world.mounts import RADAR, Mount
from tests.drivers.mmwave.spectra import Spectrum, samples_of
from tests.drivers.world.lone import target, world_of

SMALL = replace(SIM_CHIRP, adc_samples=128, frame_length=32, freq_slope=60.0)


def point(
    place: tuple[float, float, float],
    velocity: tuple[float, float, float] = (0.0, 0.0, 0.0),
    amplitude: float = 100.0,
) -> Scatterers:
    return Scatterers(
        np.array([place]), np.array([velocity]), np.zeros((1, 3)), np.array([amplitude])
    )


@pytest.mark.parametrize("device", sorted(DEVICES))
@pytest.mark.parametrize("order", ["qqii", "iiqq"])
def test_a_point_is_found_at_range_speed_and_angle(device: str, order: str) -> None:
    chirp = replace(SMALL, device=device, frequency=60.0 if device == "AWRL6844" else 77.0)
    described = chirp.intrinsics(order)
    rng = np.random.default_rng(11)
    raised = len({up for _, up in chirp.antennas.tx_places + chirp.antennas.rx_places}) > 1
    for _ in range(3):
        azimuth = rng.uniform(-0.8, 0.8)
        elevation = rng.uniform(-0.25, 0.25) if raised else 0.0
        distance = rng.uniform(0.2, 0.8) * chirp.max_range
        speed = rng.uniform(-0.9, 0.9) * chirp.max_doppler
        toward = np.array(
            [
                np.cos(azimuth) * np.cos(elevation),
                np.sin(azimuth) * np.cos(elevation),
                np.sin(elevation),
            ]
        )
        frame = BeatSignal(chirp, order).frame(
            point(tuple(distance * toward), tuple(speed * toward)), None
        )
        spectrum = Spectrum.of(frame, described)
        row, column = spectrum.place(distance, speed)
        peak = np.unravel_index(int(spectrum.power.argmax()), spectrum.power.shape)
        loops = chirp.frame_length
        assert abs((peak[0] - row + loops / 2) % loops - loops / 2) <= 1
        assert abs(peak[1] - column) <= 1
        found = spectrum.direction(int(peak[0]), int(peak[1]), speed)
        assert found[0] == pytest.approx(azimuth, abs=np.deg2rad(2.0) / np.cos(azimuth))
        assert found[1] == pytest.approx(elevation, abs=np.deg2rad(4.0))


def test_the_phase_of_every_sample_is_that_of_the_ramps_difference() -> None:
    """Against the definition: the ramp that is sent less the ramp that comes back."""
    chirp, place, velocity = SMALL, np.array([4.0, 2.0, 0.5]), np.array([-3.0, 1.0, 0.2])
    cube = samples_of(
        BeatSignal(chirp, "iiqq").frame(point(tuple(place), tuple(velocity), 8000.0), None),
        chirp.intrinsics("iiqq"),
    )
    antennas, c = chirp.antennas.antennas_m(), 299_792_458.0
    slope, start = chirp.freq_slope * 1e12, chirp.frequency * 1e9
    for loop, tx, rx, n in ((0, 0, 0, 0), (0, 2, 3, 127), (17, 1, 2, 40), (31, 2, 0, 99)):
        number = loop * 3 + tx
        ramp_s = number * (chirp.idle_time + chirp.ramp_end_time) * 1e-6 + chirp.idle_time * 1e-6
        in_ramp_s = chirp.adc_start_time * 1e-6 + n / (chirp.sample_rate * 1e3)
        now_s = ramp_s + in_ramp_s - chirp.frame_time * 1e-3 / 2
        at = place + velocity * now_s
        way = np.linalg.norm(at - antennas["tx_m"][tx]) + np.linalg.norm(at - antennas["rx_m"][rx])
        ago_s = in_ramp_s - way / c
        turns = (start * in_ramp_s + slope * in_ramp_s**2 / 2) - (
            start * ago_s + slope * ago_s**2 / 2
        )
        expected = 8000.0 * np.exp(2j * np.pi * (turns % 1.0))
        assert abs(cube[loop, tx, rx, n] - expected) < 8000.0 * 0.04


def test_the_orders_of_the_lanes_hold_the_same_samples() -> None:
    points = point((5.0, 1.0, 0.0))
    a, b = (
        samples_of(BeatSignal(SMALL, order).frame(points, None), SMALL.intrinsics(order))
        for order in ("qqii", "iiqq")
    )
    np.testing.assert_array_equal(a, b)
    assert np.abs(np.abs(a) - 100.0).max() < 1.0


def test_what_is_too_loud_saturates() -> None:
    frame = BeatSignal(SMALL, "qqii").frame(point((5.0, 1.0, 0.0), amplitude=90_000.0), None)
    assert (frame.min(), frame.max()) == (-32768, 32767)
    assert np.mean(np.abs(frame.astype(int)) > 32_000) > 0.3
    silent = BeatSignal(SMALL, "qqii").frame(
        Scatterers(*(np.empty((0, 3)),) * 3, np.empty(0)), None
    )
    assert not silent.any() and silent.shape == SMALL.shape


def test_strength_follows_the_radar_equation(monkeypatch: pytest.MonkeyPatch) -> None:
    def strength(distance: float, rcs: float) -> float:
        placed = [target("pole", (0.2, 0.2, 3.0), rcs, start=RADAR.translation[0] + 0.1 + distance)]
        world = world_of(monkeypatch, placed)
        cube = samples_of(
            SimulatedRadar(SIM_CHIRP, "iiqq", world=world, noise=0.0).frame(0),
            SIM_CHIRP.intrinsics("iiqq"),
        )
        return float(np.abs(cube).mean())

    loud = strength(5.0, 100.0)
    assert strength(10.0, 100.0) == pytest.approx(loud / 4, rel=0.02)
    assert strength(5.0, 25.0) == pytest.approx(loud / 2, rel=0.02)
    assert strength(SIM_CHIRP.max_range + 1.0, 1e6) == 0  # held back by the filter
    # 12 dBm, 2 x 10 dB, 30 dB, 77.6 GHz, 80 m^2, 5 m; 50 ohm, 65536 steps over 1 V: by hand.
    watts = 0.016 * 100 * SIM_CHIRP.wavelength**2 * 80 / ((4 * np.pi) ** 3 * 5.0**4) * 1000
    assert loud == pytest.approx(np.sqrt(2 * 50 * watts) * 65536, rel=0.02)


def test_noise_is_thermal_and_new_in_every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = world_of(monkeypatch, [target(start=-100.0)])
    frames = [
        SimulatedRadar(SIM_CHIRP, "iiqq", 3, empty).frame(k).astype(float).ravel() for k in (0, 1)
    ]
    expected = np.sqrt(50 * 4.0e-21 * 1e7 * 31.6 * 1000) * 65536
    for frame in frames:
        assert frame.std() == pytest.approx(expected, rel=0.01)
        assert abs(frame.mean()) < 0.2
        assert abs(np.corrcoef(frame[1:], frame[:-1])[0, 1]) < 0.01
    assert abs(np.corrcoef(frames[0], frames[1])[0, 1]) < 0.01
    doubled = SimulatedRadar(SIM_CHIRP, "iiqq", 3, empty, noise=2.0).frame(0)
    assert doubled.std() == pytest.approx(2 * expected, rel=0.01)
    assert not SimulatedRadar(SIM_CHIRP, "iiqq", 3, empty, noise=0.0).frame(0).any()


@pytest.mark.parametrize("speed", [3.0, 12.0])
def test_a_moving_target_in_a_moving_world(monkeypatch: pytest.MonkeyPatch, speed: float) -> None:
    """Closing at 15 m/s, folded over: found where its nearest side is in the frame's middle."""
    placed = [target("truck", (6.0, 2.4, 3.0), 40.0, start=48.0, speed=-3.0, lateral_m=3.0)]
    world = world_of(monkeypatch, placed, speed)
    radar = SimulatedRadar(SIM_CHIRP, "qqii", world=world)
    for index in range(0, 40, 18):
        spectrum = Spectrum.of(radar.frame(index), SIM_CHIRP.intrinsics("qqii"))
        middle_s = (index * SIM_CHIRP.frame_period + SIM_CHIRP.frame_time / 2) * 1e-3
        ahead = 48.0 - 3.0 - RADAR.translation[0] - (speed + 3.0) * middle_s
        aside = 3.0 - 1.2
        distance = np.hypot(ahead, aside)
        radial = -(speed + 3.0) * ahead / distance
        row, column = spectrum.place(float(distance), float(radial))
        off = spectrum.peak_near(row, column, 3)
        assert abs(off[0]) <= 1 and abs(off[1]) <= 1
        assert off[2] > 300 * np.median(spectrum.power)
        azimuth, _ = spectrum.direction(round(row + off[0]), round(column + off[1]), float(radial))
        assert azimuth == pytest.approx(np.arctan2(aside, ahead), abs=np.deg2rad(2))
        state = radar.targets(index)[0]
        assert (state.range_m, state.velocity_mps) == pytest.approx((distance, radial), rel=1e-3)


def test_a_raised_radar_sees_low_things_below(monkeypatch: pytest.MonkeyPatch) -> None:
    placed = [target("car", (4.0, 2.0, 1.0), start=20.0)]
    mount = Mount((0.0, 0.0, 4.0), (0.0, 0.0, 0.0, 1.0))
    radar = SimulatedRadar(SIM_CHIRP, "qqii", world=world_of(monkeypatch, placed), mount=mount)
    spectrum = Spectrum.of(radar.frame(0), SIM_CHIRP.intrinsics("qqii"))
    row, column = (int(v) for v in np.unravel_index(spectrum.power.argmax(), spectrum.power.shape))
    assert abs(column - np.hypot(18.0, 3.0) / SIM_CHIRP.range_resolution) <= 1
    azimuth, elevation = spectrum.direction(row, column, 0.0)
    assert azimuth == pytest.approx(0.0, abs=np.deg2rad(2))
    assert elevation == pytest.approx(-np.arctan2(3.0, 18.0), abs=np.deg2rad(4))


def test_behind_the_radar_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(monkeypatch, [target("car", start=-8.0, rcs_m2=100.0)])
    assert not SimulatedRadar(SIM_CHIRP, "qqii", world=world, noise=0.0).frame(0).any()
    back = Mount((0.0, 0.0, 0.6), (0.0, 0.0, 1.0, 0.0))
    seen = SimulatedRadar(SIM_CHIRP, "qqii", world=world, mount=back, noise=0.0)
    assert seen.frame(0).any() and seen.targets(0)[0].range_m == pytest.approx(6.0)


def digest() -> str:
    """Of frames of complex and real samples, in a crowded world."""
    total = hashlib.sha256()
    for chirp, scene in ((SIM_CHIRP, "straight"), (replace(SMALL, device="AWR2944"), "drive")):
        radar = SimulatedRadar(chirp, "qqii", 7, World(scene, 7))
        for index in (0, 57, 72_000):
            total.update(radar.frame(index).tobytes())
    return total.hexdigest()


GOLDEN = "50b7b1d6f6f8193047531320d75ce959577ceb4fd52021946a2977f8f8eabf7e"


def test_the_same_bytes_as_ever() -> None:
    assert digest() == GOLDEN


def test_any_frame_at_any_time() -> None:
    chirp = ChirpConfig(**{**SMALL_KEYS, "device": "AWR1642"})
    radar = SimulatedRadar(chirp, "qqii", 5)
    expected = {k: radar.frame(k).tobytes() for k in (0, 1, 2, 300)}
    assert len(set(expected.values())) == 4
    for k in (300, 1, 0):
        assert SimulatedRadar(chirp, "qqii", 5).frame(k).tobytes() == expected[k]
    assert SimulatedRadar(chirp, "qqii", 6).frame(1).tobytes() != expected[1]


SMALL_KEYS = {name: getattr(SMALL, name) for name in ChirpConfig.__dataclass_fields__}


@pytest.mark.parametrize("index", [180, 1125, 1245, 2175, 2680])
def test_the_nearest_points_of_turning_boxes(index: int) -> None:
    """Ranges and speeds of the world's cars, by the geometry of a box and a difference quotient.

    In these frames a car turns whose side, not whose corner, is nearest.
    """
    radar = SimulatedRadar(SIM_CHIRP, "qqii")
    middle_s = (index * SIM_CHIRP.frame_period + SIM_CHIRP.frame_time / 2) * 1e-3
    step_s = 1e-4
    times = middle_s + np.array([0.0, -step_s, step_s])
    states = radar.world.states(times)
    place, rotation = radar.world.trajectory.pose(times)
    eye = place + rotation @ np.array(RADAR.translation)
    by_track = {shape.track: k for k, shape in enumerate(radar.world.targets)}
    checked = 0
    for state in radar.targets(index):
        k = by_track[state.track]
        shape = radar.world.targets[k]
        if shape.kind == "pole":
            continue
        turns = [
            np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
            for c, s in zip(states.cos_yaw[k], states.sin_yaw[k], strict=True)
        ]
        seen = turns[0].T @ (eye[0] - states.centre_m[k, 0])
        half = np.array(shape.size_m) / 2
        nearest = np.clip(seen, -half, half)
        ranges = [
            np.linalg.norm(turn @ nearest + centre - at)
            for turn, centre, at in zip(turns, states.centre_m[k], eye, strict=True)
        ]
        assert state.range_m == pytest.approx(ranges[0], rel=1e-9)
        speed = (ranges[2] - ranges[1]) / (2 * step_s)
        assert state.velocity_mps == pytest.approx(speed, abs=2e-3)
        checked += 1
    assert checked >= 2
