"""Faults of simulated sensors: measured in the data, and only while they last."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from drivers.camera.driver import CameraDriver
from drivers.camera.model import SIM_CAMERA_OPTIONS, SimulatedCamera, make_camera
from drivers.can.driver import CanDriver
from drivers.can.simulated import SimulatedBus
from drivers.gnss.driver import GnssDriver
from drivers.gnss.simulated import make_receiver
from drivers.hesai.driver import HesaiDriver
from drivers.imu.driver import ImuDriver
from drivers.kit.driver import Driver, SensorConfig
from drivers.kit.lidar.simulated import SceneView, fill_view
from drivers.lidar.driver import LidarDriver
from drivers.lidar.model import LidarScene
from drivers.livox.driver import LivoxDriver
from drivers.mmwave.driver import MmwaveDriver
from drivers.mmwave.model import SIM_CHIRP, make_radar
from drivers.ouster.driver import OusterDriver
from drivers.sim.emulated_rig import make_emulator
from drivers.world import World
from drivers.world.faults import CAMERA_FAULTS, Kinds, fault_option, read_faults
from drivers.world.imu import make_imu
from drivers.xsens.driver import XsensDriver
from recorder.common.errors import ConfigError
from recorder.config.options import check_options
from tests.support.devices import make_driver, make_entry, read_item, samples, times

Image = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
WORLD = World("drive", 0)
FPS = 10.0
FIRST, LAST = 20, 29
"""First and last of the pictures, sweeps and epochs of 100 ms from 2 to 3 s."""
SENSORS: Sequence[tuple[type[Driver], set[str]]] = (
    (CameraDriver, {"blur", "gain", "flicker", "frozen", "torn", "dirt", "noise", "rain", "night"}),
    (LidarDriver, {"sector", "beam", "noise", "drop", "rain"}),
    (OusterDriver, {"sector", "beam", "noise", "drop", "rain"}),
    (HesaiDriver, {"sector", "beam", "noise", "drop", "rain"}),
    (LivoxDriver, {"sector", "beam", "noise", "drop", "rain"}),
    (ImuDriver, {"stick", "clip"}),
    (XsensDriver, {"stick", "clip"}),
    (GnssDriver, {"jump"}),
    (CanDriver, {"silence"}),
    (MmwaveDriver, {"noise"}),
)


def fault(kind: str, amount: float | None = None, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "from_s": 2.0, "to_s": 3.0, "amount": amount, **more}


# --- the option -------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "known"), SENSORS, ids=[kind.__name__ for kind, _ in SENSORS])
def test_an_unknown_kind_is_refused_with_those_of_the_sensor(
    kind: type[Driver], known: set[str]
) -> None:
    for name in known:
        checked = check_options(kind.options, {"faults": [{"kind": name}]}, "s")
        assert checked["faults"] == [{"kind": name, "from_s": 0.0, "to_s": None, "amount": None}]
    with pytest.raises(ConfigError) as caught:
        check_options(kind.options, {"faults": [{"kind": sorted(known)[0]}, {"kind": "fog"}]}, "s")
    assert caught.value.key == "s.faults[1].kind"
    found = caught.value.problem.removeprefix("'fog' is not one of ").partition(" (")[0]
    assert set(found.split(", ")) == known


@pytest.mark.parametrize(
    ("entry", "key", "problem"),
    [
        ({"kind": "blur", "to_s": 0}, "to_s", "0 is not after from_s, 0"),
        ({"kind": "dirt", "amount": 1.5}, "amount", "1.5 is above the maximum of dirt, 1"),
        ({"kind": "rain", "amount": 9}, "amount", "9 is above the maximum of rain, 5"),
    ],
)
def test_a_fault_that_cannot_be_names_its_key(entry: Any, key: str, problem: str) -> None:
    options = check_options({"faults": fault_option(CAMERA_FAULTS)}, {"faults": [entry]})
    with pytest.raises(ConfigError, match=problem) as caught:
        read_faults("front", options, CAMERA_FAULTS)
    assert caught.value.key == f"front.faults[0].{key}"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({}, "missing; this key is required"),
        ({"kind": "blur", "form_s": 2}, "unknown key (did you mean 'from_s'?)"),
        ({"kind": "blur", "from_s": -1}, "-1 is below the minimum of 0"),
        ("blur", "needs a mapping, not str ('blur')"),
    ],
)
def test_an_entry_of_the_option_is_checked(entry: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_options(SIM_CAMERA_OPTIONS, {"faults": [entry]}, "front")
    assert caught.value.problem == problem and caught.value.key.startswith("front.faults[0]")


EMULATED: Sequence[tuple[type[Driver], str, dict[str, Any]]] = (
    (CameraDriver, "camera", {"width": 64, "height": 48}),
    (CameraDriver, "camera", {"width": 64, "height": 48, "codec": "copy"}),
    (CanDriver, "can", {}),
    (GnssDriver, "gnss", {}),
    (HesaiDriver, "hesai", {"model": "Pandar40P"}),
    (LivoxDriver, "livox", {"model": "HAP"}),
    (MmwaveDriver, "mmwave", {}),
    (OusterDriver, "ouster", {"beams": 32}),
    (XsensDriver, "xsens", {}),
)


@pytest.mark.parametrize(("kind", "driver", "options"), EMULATED)
def test_an_emulated_device_reads_the_option(
    kind: type[Driver], driver: str, options: dict[str, Any]
) -> None:
    wrong = [{"kind": str((kind.options["faults"].keys or {})["kind"].choices[0]), "to_s": 0.0}]
    entry = make_entry(kind, "device", driver, "sim", faults=wrong, **options)
    emulator = make_emulator(entry, (), 0)
    try:
        with pytest.raises(ConfigError) as caught:
            emulator.start()
            for now_ns in range(0, 20_000_000_000, 100_000_000):
                emulator.step(now_ns)
        assert caught.value.key == "device.faults[0].to_s"
    finally:
        emulator.stop()


# --- cameras ----------------------------------------------------------------------------------


def camera(*faults: Mapping[str, Any], **more: Any) -> SimulatedCamera:
    options = check_options(SIM_CAMERA_OPTIONS, {"faults": list(faults), **more})
    return make_camera("camera", options, (320, 180), FPS, WORLD)


def outside_is_as_without(faulty: SimulatedCamera) -> None:
    for index in (FIRST - 1, LAST + 1):
        assert faulty.frame(index).tobytes() == PLAIN.frame(index).tobytes()


PLAIN = camera()


def sharpness(image: Image) -> float:
    return float(cv2.Laplacian(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)[40:], cv2.CV_64F).var())


def brightness(image: Image) -> float:
    return float(image[40:].mean())


def test_blur_lowers_the_variance_of_the_laplacian() -> None:
    found = [sharpness(PLAIN.frame(FIRST))]
    for sigma in (1.0, 2.0, 4.0):
        blurred = camera(fault("blur", sigma))
        found.append(sharpness(blurred.frame(FIRST)))
    assert all(later < 0.5 * earlier for earlier, later in itertools.pairwise(found))
    outside_is_as_without(blurred)


def test_gain_multiplies_the_levels() -> None:
    dark = camera(fault("gain", 0.5))
    ratio = dark.frame(LAST)[40:].astype(float) / np.maximum(PLAIN.frame(LAST)[40:], 1)
    assert ratio.mean() == pytest.approx(0.5, abs=0.01)
    bright = camera(fault("gain", 2.0)).frame(LAST)[40:]
    assert (bright > 245).mean() > 0.2 > (PLAIN.frame(LAST)[40:] > 245).mean() + 0.1
    outside_is_as_without(dark)


def test_flicker_changes_the_brightness_from_picture_to_picture() -> None:
    flickering = camera(fault("flicker", 0.3))
    ratio = np.array([
        brightness(flickering.frame(k)) / brightness(PLAIN.frame(k)) for k in range(FIRST, LAST + 1)
    ])  # fmt: skip
    assert ratio.min() > 0.69 and ratio.max() < 1.31 and ratio.std() > 0.08
    outside_is_as_without(flickering)


def test_frozen_pictures_are_equal() -> None:
    frozen = camera(fault("frozen"), noise=1.0)
    shown = [frozen.frame(k).tobytes() for k in range(FIRST, LAST + 2)]
    assert len(set(shown[:-1])) == 1 and shown[-1] != shown[0]
    assert shown[0] == camera(noise=1.0).frame(FIRST).tobytes()


def test_torn_pictures_end_with_the_one_before() -> None:
    torn = camera(fault("torn", 0.25))
    image = torn.frame(FIRST + 3)
    top = 135  # three quarters
    np.testing.assert_array_equal(image[:top], PLAIN.frame(FIRST + 3)[:top])
    np.testing.assert_array_equal(image[top:], PLAIN.frame(FIRST + 2)[top:])
    assert (image[top:] != PLAIN.frame(FIRST + 3)[top:]).any()
    outside_is_as_without(torn)


def test_dirt_covers_its_share_at_the_same_place() -> None:
    dirty = camera(fault("dirt", 0.2))
    covered = [
        (np.abs(dirty.frame(k)[40:].astype(int) - PLAIN.frame(k)[40:]) > 2).any(axis=2)
        for k in (FIRST, LAST)
    ]
    for mask in covered:
        assert 0.1 < mask.mean() < 0.3
    both = covered[0] & covered[1]
    assert both.sum() > 0.85 * covered[0].sum()
    whole = dirty._faults._cover(dirty._faults._faults[0])
    assert whole.mean() == pytest.approx(0.2, abs=0.001)
    # Patches, not points: most neighbours of covered pixels are covered.
    assert (whole[1:] == whole[:-1]).mean() > 0.97
    outside_is_as_without(dirty)


def test_noise_has_its_deviation() -> None:
    error = camera(fault("noise", 8.0)).frame(FIRST).astype(float) - PLAIN.frame(FIRST)
    inside = PLAIN.frame(FIRST)
    middle = error[40:][(inside[40:] > 60) & (inside[40:] < 190)]
    assert middle.std() == pytest.approx(8.0, rel=0.05) and abs(middle.mean()) < 0.3
    noisy = camera(fault("noise", 8.0))
    later = noisy.frame(FIRST + 1).astype(float) - PLAIN.frame(FIRST + 1)
    assert abs(np.corrcoef(error[40:, :, 0].ravel(), later[40:, :, 0].ravel())[0, 1]) < 0.05


def test_rain_and_night_are_combinations() -> None:
    night = camera(fault("night")).frame(FIRST)
    assert brightness(night) < 0.25 * brightness(PLAIN.frame(FIRST))
    rain = camera(fault("rain")).frame(FIRST)
    parts = camera(fault("blur", 1.2), fault("dirt", 0.08), fault("noise", 3.0))
    assert np.abs(rain[40:].astype(int) - PLAIN.frame(FIRST)[40:]).mean() > 2
    assert parts._faults._faults[0].size == 1.2  # as `rain` has it
    kinds = [made.kind for made in read_faults("c", {"faults": [fault("rain")]}, CAMERA_FAULTS)]
    assert kinds == ["blur", "dirt", "noise"]


# --- lidars -----------------------------------------------------------------------------------

LIDAR = {"beams": 16, "columns": 360, "noise": 0.0}


def lidar(*faults: Mapping[str, Any], seed: int = 0) -> LidarScene:
    options = check_options(LidarDriver.options, {**LIDAR, "faults": list(faults), "seed": seed})
    return LidarScene("lidar", options)


def returns(scene: LidarScene, index: int) -> npt.NDArray[np.int64]:
    """Number of returns [beam, column] of a sweep."""
    points = scene.sweep(index)
    found = np.zeros((16, 360), np.int64)
    column = np.rint(points["t_offset"] / scene.beams.step_ns).astype(int)
    np.add.at(found, (points["ring"], column), 1)
    return found


def test_a_covered_sector_has_no_returns() -> None:
    covered, plain = lidar(fault("sector", 0.2)), lidar()
    found, expected = returns(covered, FIRST), returns(plain, FIRST)
    empty = expected.any(axis=0) & ~found.any(axis=0)
    np.testing.assert_array_equal(found[:, ~empty], expected[:, ~empty])
    blind = np.flatnonzero(~found.any(axis=0))
    assert 65 <= len(blind) <= 80  # a fifth of 360, and columns that never have a return
    gaps = np.diff(np.flatnonzero(empty))
    assert (gaps > 5).sum() <= 1  # side by side
    assert not returns(covered, LAST)[:, empty].any()
    np.testing.assert_array_equal(returns(covered, LAST + 1), returns(plain, LAST + 1))
    np.testing.assert_array_equal(returns(covered, FIRST - 1), returns(plain, FIRST - 1))


def test_dead_beams_are_the_same_all_the_time() -> None:
    dead, plain = lidar(fault("beam", 3)), lidar()
    for index in (FIRST, LAST):
        lost = returns(plain, index).any(axis=1) & ~returns(dead, index).any(axis=1)
        assert lost.sum() == 3
        found, expected = returns(dead, index), returns(plain, index)
        np.testing.assert_array_equal(found[~lost], expected[~lost])
    other = lidar(fault("beam", 3), seed=1)
    assert (returns(other, FIRST).any(axis=1) != returns(dead, FIRST).any(axis=1)).any()


def test_dropped_returns_are_their_share() -> None:
    found, expected = returns(lidar(fault("drop", 0.4)), FIRST), returns(lidar(), FIRST)
    count = expected.sum()
    assert found.sum() / count == pytest.approx(0.6, abs=5 * np.sqrt(0.24 / count))
    assert (found <= expected).all()
    assert (returns(lidar(fault("drop", 0.4)), FIRST + 1) != found).any()


def test_noise_scatters_points_along_their_rays() -> None:
    noisy, plain = lidar(fault("noise", 0.2)).sweep(FIRST), lidar().sweep(FIRST)

    def distances(points: npt.NDArray[Any]) -> dict[tuple[int, int], float]:
        ranges = np.linalg.norm(points["xyz"], axis=1).tolist()
        return dict(zip(zip(points["ring"].tolist(), points["t_offset"].tolist(), strict=True),
                        ranges, strict=True))  # fmt: skip

    one, other = distances(noisy), distances(plain)
    common = one.keys() & other.keys()
    assert len(common) > 0.9 * len(plain)
    error = np.array([one[key] - other[key] for key in common])
    assert error.std() == pytest.approx(0.2, rel=0.1) and abs(error.mean()) < 0.03


def test_rain_of_a_lidar_drops_and_scatters() -> None:
    count = returns(lidar(fault("rain", 2.0)), FIRST).sum() / returns(lidar(), FIRST).sum()
    assert count == pytest.approx(0.5, abs=0.05)


def test_lidars_of_all_families_and_an_ouster_have_them() -> None:
    options = check_options(
        LivoxDriver.options, {"model": "HAP", "noise": 0, "faults": [fault("sector", 0.5)]}
    )
    rays = fill_view((-60.0, 60.0, -12.5, 12.5), 8, 200, 500_000)
    view = SceneView(SensorConfig("lidar", "sim", "", options), rays)
    before, during = (view.look(k, t_s)[0] > 0 for k, t_s in ((0, 1.0), (1, 2.0)))
    assert (before.any(axis=0) & ~during.any(axis=0)).sum() > 60
    core = pytest.importorskip("ouster.sdk.core", reason="needs the extra `ouster`")
    from drivers.ouster.model import default_info, make_lidar_scene

    chosen = check_options(OusterDriver.options, {"beams": 32, "faults": [fault("sector", 0.5)]})
    scene = make_lidar_scene(core, default_info(core, "512x10", 32), "lidar", chosen)
    hit = [(scene.sweep(k)["RANGE"] > 0).any(axis=0).sum() for k in (FIRST - 1, FIRST)]
    assert hit[1] == pytest.approx(hit[0] / 2, rel=0.2)


# --- the others -------------------------------------------------------------------------------


def imu(*faults: Mapping[str, Any]) -> Callable[[int, int], Any]:
    options = check_options(ImuDriver.options, {"faults": list(faults), "road": "rough"})
    return make_imu("imu", options, 100.0).samples


def test_a_stuck_axis_keeps_its_value_and_the_others_do_not() -> None:
    for axis, channel in ((5, "avel"), (1, "acc")):
        stuck, plain = imu(fault("stick", axis))(0, 400), imu()(0, 400)
        values, expected = getattr(stuck, channel), getattr(plain, channel)
        during = np.zeros(400, bool)
        during[200:300] = True
        assert (values[during, axis % 3] == expected[200, axis % 3]).all()
        np.testing.assert_array_equal(values[~during], expected[~during])
        rest = [k for k in range(3) if k != axis % 3]
        np.testing.assert_array_equal(values[:, rest], expected[:, rest])
    # In any batches.
    parts = [imu(fault("stick"))(k, 25).avel for k in range(0, 400, 25)]
    np.testing.assert_array_equal(np.concatenate(parts), imu(fault("stick"))(0, 400).avel)


def test_a_clipped_gyro_stays_within_its_range() -> None:
    clipped, plain = imu(fault("clip", 0.03))(0, 400).avel, imu()(0, 400).avel
    assert np.abs(plain[200:300]).max() > 0.06
    assert np.abs(clipped[200:300]).max() == np.float32(0.03)
    small = np.abs(plain) < 0.03
    np.testing.assert_array_equal(clipped[small], plain[small])
    np.testing.assert_array_equal(clipped[300:], plain[300:])


def test_a_jump_of_positions_has_its_length() -> None:
    def positions(*faults: Mapping[str, Any]) -> Floats:
        options = check_options(GnssDriver.options, {"faults": list(faults)})
        return np.asarray(make_receiver("gnss", options).epochs(0, 40)[1]["pos"])

    jumped, plain = positions(fault("jump", 40.0)), positions()
    apart = 6_371_000 * np.radians(jumped[:, :2] - plain[:, :2])
    apart[:, 1] *= np.cos(np.radians(48.2))
    length = np.hypot(*apart.T)
    np.testing.assert_allclose(length[20:30], 40.0, rtol=0.01)
    assert not length[:20].any() and not length[30:].any()


def test_a_silent_bus_and_a_silent_sender_send_nothing() -> None:
    def identifiers(*faults: Mapping[str, Any]) -> tuple[Any, Any]:
        options = check_options(CanDriver.options, {"faults": list(faults), "rate": 500})
        frames = SimulatedBus(options).frames(0, 4_000_000_000)
        return frames.t_ns, frames.id

    t_ns, sent = identifiers()
    during = (t_ns >= 2_000_000_000) & (t_ns < 3_000_000_000)
    found_ns, found = identifiers(fault("silence"))
    np.testing.assert_array_equal(found_ns, t_ns[~during])
    np.testing.assert_array_equal(found, sent[~during])
    assert during.sum() > 450
    found_ns, found = identifiers(fault("silence", 210))
    left = ~(during & (sent == 210))
    np.testing.assert_array_equal(found, sent[left])
    assert (~left).sum() == 100  # of the 10 ms
    with pytest.raises(ConfigError, match=r"can\.faults\[0\]\.to_s: missing"):
        identifiers({"kind": "silence", "from_s": 2.0, "to_s": None, "amount": None})


@pytest.mark.parametrize("signals", [[], ["VehicleMotion.*"]])
def test_a_bus_goes_on_after_its_silence(signals: list[str]) -> None:
    driver = make_driver(CanDriver, "can", "sim", faults=[fault("silence")], signals=signals)
    driver.open()
    found: list[Any] = []
    while not found or found[-1].t_ns[-1] < 3_500_000_000:
        found += samples([read_item(driver)])
    driver.close()
    streams = {sample.stream for sample in found}
    assert len(streams) == 1 + len(signals)
    for stream in streams:
        gaps = np.diff(times(found, stream))
        assert (gaps > 900_000_000).sum() == 1 and gaps.max() < 1_100_000_000


def test_a_radars_noise_is_louder() -> None:
    def frame(index: int, *faults: Mapping[str, Any]) -> Floats:
        options = check_options(MmwaveDriver.options, {"faults": list(faults), "noise": 0.5})
        chirp = SIM_CHIRP
        return make_radar("radar", options, chirp, "qqii").frame(index).astype(np.float64)

    quiet = check_options(MmwaveDriver.options, {"noise": 0})
    clean = make_radar("radar", quiet, SIM_CHIRP, "qqii").frame(40).astype(np.float64)
    plain, loud = frame(40) - clean, frame(40, fault("noise", 6.0)) - clean
    assert loud.std() / plain.std() == pytest.approx(6.0, rel=0.15)
    np.testing.assert_array_equal(frame(10, fault("noise", 6.0)), frame(10))


def kinds_of(option: Any) -> Kinds:
    return {kind: CAMERA_FAULTS[kind] for kind in option.keys["kind"].choices}


def test_the_description_names_the_kinds() -> None:
    option = SIM_CAMERA_OPTIONS["faults"]
    assert ", ".join(kinds_of(option)) in option.description
