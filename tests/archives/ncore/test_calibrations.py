"""Several calibrations of a session as instances of poses and intrinsics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.common.errors import SessionError
from recorder.perception.calibration import Calibration, read_calibration, read_calibration_sets
from tests.archives.ncore.packer_rig import CALIBRATION, Archive, pack, rig

FACTORY = """
sensors:
  camera:
    T_sensor_rig: {translation_m: [2, 0, 1.5], quaternion_xyzw: [-0.5, 0.5, -0.5, 0.5]}
    calibrated_at: 2026-01-01
"""
REFINED = """
sensors:
  camera:
    model: opencv-fisheye
    parameters: {fx: 20, fy: 21, cx: 15.5, cy: 11.5}
    resolution: [32, 24]
  lidar:
    T_sensor_rig: {translation_m: [0, 0, 3], quaternion_xyzw: [0, 0, 0, 1]}
"""


def write_sets(session: Path) -> None:
    (session / "calibration.yaml").write_text(CALIBRATION)
    (session / "_calibrations").mkdir()
    (session / "_calibrations/factory.yaml").write_text(FACTORY)
    (session / "_calibrations/online_refined.yaml").write_text(REFINED)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    session = rig(tmp_path_factory.mktemp("root") / "drive").close()
    write_sets(session)
    return pack(session)


def pose(packed: Archive, instance: str, sensor: str) -> list[float]:
    poses = packed.attributes(f"poses/{instance}/static_poses")
    matrix = np.array(poses[f"('{sensor}', 'rig')"]["pose"])
    found: list[float] = matrix[:3, 3].tolist()
    return found


def test_each_set_is_an_instance_of_poses(packed: Archive) -> None:
    cameras = {name: pose(packed, name, "camera") for name in ("default", "factory")}
    assert cameras == {"default": [1, 0, 1.5], "factory": [2, 0, 1.5]}
    assert pose(packed, "online_refined", "camera") == [1, 0, 1.5]  # has none of its own
    assert pose(packed, "online_refined", "lidar") == [0, 0, 3]
    assert pose(packed, "factory", "lidar") == [0, 0, 0]


def test_each_set_is_an_instance_of_intrinsics(packed: Archive) -> None:
    types = {
        name: packed.attributes(f"intrinsics/{name}/cameras/camera")["camera_model_type"]
        for name in ("default", "factory", "online_refined")
    }
    pinhole = "opencv-pinhole"
    assert types == {"default": pinhole, "factory": pinhole, "online_refined": "opencv-fisheye"}
    lidars = {packed.keys[f"intrinsics/{name}/lidars/lidar/.zattrs"] for name in types}
    assert len(lidars) == 1


def test_every_instance_has_the_trajectory_and_its_origin(packed: Archive) -> None:
    (store,) = packed.meta["component_stores"]
    for component in ("poses", "intrinsics"):
        about = store["components"][component]["factory"]["generic_meta_data"]["calibration"]
        assert (about["file"], len(about["sha256"])) == ("factory.yaml", 64)
        assert "calibration" not in store["components"][component]["default"]["generic_meta_data"]
    dynamic = {
        name: packed.attributes(f"poses/{name}/dynamic_poses")["('rig', 'world')"]["timestamps_us"]
        for name in ("default", "factory")
    }
    assert dynamic["default"] == dynamic["factory"]
    assert packed.noted("_calibrations/factory.yaml: is the instance factory") == 1


def test_the_mounting_of_the_imu_turns_the_trajectory(tmp_path: Path) -> None:
    session = rig(tmp_path / "drive").close()
    (session / "_calibrations").mkdir()
    text = "sensors:\n  imu: {T_sensor_rig: {translation_m: [0, 0, 0], quaternion_xyzw: %s}}\n"
    (session / "calibration.yaml").write_text(text % "[0, 0, 0, 1]")
    (session / "_calibrations/turned.yaml").write_text(text % "[0, 0, 1, 0]")
    archive = pack(session)
    first = {
        name: archive.attributes(f"poses/{name}/dynamic_poses")["('rig', 'world')"]["poses"][0]
        for name in ("default", "turned")
    }
    turned = np.array(first["default"])[:2, :2] @ -np.eye(2)
    assert np.allclose(np.array(first["turned"])[:2, :2], turned)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("default.yaml", FACTORY, r"default.yaml: default is the calibration.yaml; choose another"),
        ("factory.yml", FACTORY, r"factory.yml: is no calibration: its name does not end in .yaml"),
        ("new.yaml", "sensor: {}", r"new.yaml:1: sensor: unknown key"),
        ("new.yaml", FACTORY.replace("[2,", "[x,"), r"new.yaml:4: sensors.camera.T_sensor_rig"),
    ],
)
def test_a_wrong_set_is_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / "_calibrations").mkdir()
    (tmp_path / "_calibrations" / name).write_text(text)
    with pytest.raises(SessionError, match=words):
        read_calibration_sets(tmp_path, Calibration())


def test_a_model_of_another_resolution_is_noted(tmp_path: Path) -> None:
    session = rig(tmp_path / "drive").close()
    write_sets(session)
    small = REFINED.replace("[32, 24]", "[16, 12]")
    (session / "_calibrations/online_refined.yaml").write_text(small)
    archive = pack(session)
    assert archive.noted("camera: calibrated for 16x12, but the pictures have 32x24") == 1
    placeholders: Any = archive.attributes("intrinsics/online_refined")["generic_meta_data"]
    assert placeholders["placeholder_cameras"] == ["camera"]
    assert (
        "placeholder_cameras" not in archive.attributes("intrinsics/default")["generic_meta_data"]
    )


def test_what_a_set_does_not_have_is_as_in_the_own_calibration(tmp_path: Path) -> None:
    write_sets(tmp_path)
    base = read_calibration(tmp_path / "calibration.yaml")
    sets = read_calibration_sets(tmp_path, base)
    assert sets.keys() == {"factory", "online_refined"}
    factory, refined = (sets[name].of("camera") for name in sets)
    assert (factory.model, factory.calibrated_at) == ("opencv-pinhole", "2026-01-01")
    assert factory.parameters == base.of("camera").parameters
    assert (refined.model, refined.parameters["fx"]) == ("opencv-fisheye", 20)
    for own, other in ((refined, base.of("camera")), (sets["factory"].of("imu"), base.of("imu"))):
        assert own.pose is not None and other.pose is not None
        assert np.array_equal(own.pose, other.pose)
