"""What a calibration file may hold, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recorder.common.errors import ConfigError
from recorder.perception.calibration import Calibration, SensorCalibration, read_calibration

GOOD = "{translation_m: [1, 2, 3], quaternion_xyzw: [0, 0, 0, 1]}"


def read(path: Path, entry: str) -> SensorCalibration:
    path.write_text(f"sensors:\n  cam: {entry}\n")
    return read_calibration(path).of("cam")


def test_everything_of_a_sensor(tmp_path: Path) -> None:
    found = read(
        tmp_path / "c.yaml",
        f"{{T_sensor_rig: {GOOD}, model: ftheta, parameters: {{cx: 1}}, resolution: [640, 480], "
        "calibrated_at: 2026-01-02}",
    )
    assert found.pose is not None
    assert np.array_equal(found.pose, [[1, 0, 0, 1], [0, 1, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]])
    assert (found.model, found.resolution) == ("ftheta", (640, 480))
    assert (found.parameters, found.calibrated_at) == ({"cx": 1}, "2026-01-02")


def test_nothing_of_a_sensor(tmp_path: Path) -> None:
    found = read(tmp_path / "c.yaml", "{}")
    assert found == SensorCalibration() == Calibration().of("cam")
    assert found.pose is None and found.resolution is None


@pytest.mark.parametrize(
    ("place", "turn", "wrong"),
    [
        *([[1.0] * n, [0, 0, 0, 1], "translation_m: needs 3"] for n in (0, 1, 2, 4, 5)),
        *([[1, 2, 3], [0.5] * n, "quaternion_xyzw: needs 4 numbers"] for n in (0, 3, 5)),
    ],
)
def test_a_pose_has_three_and_four_numbers(
    tmp_path: Path, place: list[float], turn: list[float], wrong: str
) -> None:
    pose = f"{{translation_m: {place}, quaternion_xyzw: {turn}}}"
    with pytest.raises(ConfigError, match=rf"c.yaml:2: .*cam.T_sensor_rig.{wrong}"):
        read(tmp_path / "c.yaml", f"{{T_sensor_rig: {pose}}}")


@pytest.mark.parametrize("missing", ["translation_m", "quaternion_xyzw"])
def test_half_a_pose_is_none(tmp_path: Path, missing: str) -> None:
    pose = GOOD.replace(missing, "#")
    kept = "{quaternion_xyzw: [0, 0, 0, 1]}" if "trans" in missing else "{translation_m: [1, 2, 3]}"
    assert pose != GOOD
    with pytest.raises(ConfigError, match=rf"cam.T_sensor_rig.{missing}: needs"):
        read(tmp_path / "c.yaml", f"{{T_sensor_rig: {kept}}}")


@pytest.mark.parametrize(
    ("length", "good"),
    [(1.0009, True), (0.9991, True), (1.0011, False), (0.9989, False), (0.0, False), (2.0, False)],
)
def test_a_quaternion_has_length_one(tmp_path: Path, length: float, good: bool) -> None:
    quaternion = [0.6 * length, 0, 0, -0.8 * length]
    entry = f"{{T_sensor_rig: {{translation_m: [1, 2, 3], quaternion_xyzw: {quaternion}}}}}"
    if good:
        pose = read(tmp_path / "c.yaml", entry).pose
        assert pose is not None and np.allclose(pose[:3, :3] @ pose[:3, :3].T, np.eye(3))
        return
    with pytest.raises(
        ConfigError, match=r"cam.T_sensor_rig.quaternion_xyzw: does not have length 1"
    ):
        read(tmp_path / "c.yaml", entry)


@pytest.mark.parametrize(
    "size", ["[640]", "[640, 480, 3]", "[]", "[0, 480]", "[640, 0]", "[640, -1]"]
)
def test_a_resolution_is_width_and_height(tmp_path: Path, size: str) -> None:
    for model in ("", ", model: ftheta"):
        with pytest.raises(ConfigError, match=r"cam.resolution: needs width and height in pixels"):
            read(tmp_path / "c.yaml", f"{{resolution: {size}{model}}}")
    assert read(tmp_path / "c.yaml", "{resolution: [1, 1]}").resolution == (1, 1)


def test_a_model_is_for_one_resolution(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cam.resolution: missing; a camera model is for one"):
        read(tmp_path / "c.yaml", "{model: opencv-pinhole}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sensors: {}\nsensor: {}\n", "c.yaml:2: sensor: unknown key; a calibration has 'sensors'"),
        ("sensors: [a]\n", "c.yaml:1: sensors: needs a mapping of sensors"),
        ("sensors:\n  a: {}\n  cam: {T_rig: 1}\n", "c.yaml:3: sensors.cam.T_rig: unknown key"),
        ("sensors:\n  cam: {model: pinhole}\n", "c.yaml:2: sensors.cam.model"),
    ],
)
def test_what_is_no_calibration(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_calibration(tmp_path / "c.yaml")
    assert words in str(caught.value)
