"""The file of an import's choices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recorder.common.errors import ConfigError
from recorder.perception.import_map import ImportMap, TopicChoice, read_import_map

WHOLE = """\
rig: body
world: map
poses: /odom
topics:
  /front/image: {sensor: front, frame: optical}
  /debug: {skip: true}
  /ouster/lidar_packets: {driver: ouster, options: {metadata: os1.json}}
mounts:
  optical: {translation_m: [1, 0, 2], quaternion_xyzw: [0, 0, 0, 1]}
  imu: {parent: mast, translation_m: [0, 0, 1], quaternion_xyzw: [0, 0, 1, 0]}
"""


def test_all_keys_are_read(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(WHOLE)
    found = read_import_map(tmp_path / "map.yaml")
    assert (found.rig, found.world, found.poses) == ("body", "map", "/odom")
    assert found.of("/front/image") == TopicChoice("front", frame="optical")
    assert found.of("/debug").skip and found.of("/other") == TopicChoice()
    assert found.of("/ouster/lidar_packets").options == {"metadata": "os1.json"}
    optical, imu = found.mounts
    assert (optical.frame, optical.parent, imu.parent) == ("optical", "", "mast")
    assert optical.pose[:3, 3].tolist() == [1, 0, 2]
    assert np.allclose(imu.pose[:3, :3], np.diag([-1, -1, 1]))


def test_an_empty_file_makes_no_choice(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text("mounts: {}\n# rig: base_link\n")
    assert read_import_map(tmp_path / "map.yaml") == ImportMap()


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("rigs: body\n", 1, "rigs: unknown key (did you mean 'rig'?)"),
        ("topics:\n  /a: {sensors: b}\n", 2, "topics./a.sensors: unknown key"),
        ("topics:\n  /a: skip\n", 2, "topics./a"),
        ("mounts:\n  a: {translation_m: [1, 2]}\n", 2, "mounts.a.translation_m: needs 3 numbers"),
        (
            "mounts:\n  a: {translation_m: [1, 2, 3], quaternion_xyzw: [0, 0, 0, 2]}\n",
            2,
            "mounts.a.quaternion_xyzw: does not have length 1",
        ),
    ],
)
def test_a_wrong_value_is_one_error_with_its_line(
    tmp_path: Path, text: str, line: int, problem: str
) -> None:
    path = tmp_path / "map.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_import_map(path)
    assert f"{path}:{line}: {problem}" in str(raised.value)
