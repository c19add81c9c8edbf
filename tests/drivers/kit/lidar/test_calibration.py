"""Files of angles: of vendors, of other models, damaged, and what is made of them."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from drivers.kit.lidar.calibration import parse_angles, read_angles
from recorder.codecs.beams import Beams
from recorder.codecs.mirrors import TurningMirrors
from recorder.common.errors import FormatError, SourceError
from recorder.perception.lidar.beam_geometry import TwoPointRanges
from tests.drivers.kit.lidar.lidars import Lidar, make_family, make_packet

TURN = 36000 * 256


def write_yaml(path: Path, channels: int, resolution: float | None, **more: float) -> Path:
    lasers = [
        {"laser_id": k, "rot_correction": 0.01 * k, "vert_correction": -0.1 + 0.01 * k, **more}
        for k in range(channels)
    ]
    content: dict[str, Any] = {"lasers": lasers[::-1], "num_lasers": channels}
    content |= {} if resolution is None else {"distance_resolution": resolution}
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_yaml_file_is_of_lasers_in_order(tmp_path: Path) -> None:
    angles = read_angles(write_yaml(tmp_path / "a.yaml", 16, 0.002), 16, 2.0, "VLP-16")
    assert angles.elevation_deg[15] == pytest.approx(np.degrees(0.05))
    assert angles.azimuth_deg[15] == pytest.approx(-np.degrees(0.15))
    assert angles.two_point is None and angles.rise_mm == () and angles.origin == "a.yaml"


@pytest.mark.parametrize(
    ("channels", "resolution", "model", "unit_mm", "wanted"),
    [
        (128, 0.007, "VLS-128", 4.0, "distances in 7 mm, the packets of a VLS-128 have 4 mm"),
        (32, 0.004, "VLP-16", 2.0, "has 32 channels, a VLP-16 has 16"),
    ],
)
def test_a_file_of_another_model_is_an_error_that_names_both(
    tmp_path: Path, channels: int, resolution: float, model: str, unit_mm: float, wanted: str
) -> None:
    path = write_yaml(tmp_path / "a.yaml", channels, resolution)
    count = {"VLS-128": 128, "VLP-16": 16}[model]
    with pytest.raises(FormatError, match=f"^{path}: has .*{wanted.removeprefix('has ')}"):
        read_angles(path, count, unit_mm, model)
    with pytest.raises(SourceError, match=f"lidar: calibration: {path}: "):
        make_family(model, calibration=str(path)).start(make_packet(model), live=False)


@pytest.mark.parametrize(
    "name",
    ["HDL-32E", "Puck-Hi-Res", "VLP-16", "VLP-32C"],
)
def test_the_design_of_a_model_is_that_of_its_published_file(shared_data: Path, name: str) -> None:
    model = name.replace("Puck-", "Puck ")
    lidar = Lidar(model, 0x37)
    path = shared_data / "lidar" / "tables" / f"velodyne_{name}.yml"
    read = read_angles(path, lidar.decoder.channels, lidar.decoder.unit_mm, model)
    beams = Beams.of_text(
        lidar.start(lidar.send(lidar.turn(1))[0]).specs(finite=True)[0].files["beams.json"],
        "beams.json",
    )
    assert beams.elevation_deg == pytest.approx(read.elevation_deg, abs=1e-3)
    assert beams.azimuth_deg == pytest.approx(read.azimuth_deg, abs=1e-3)


def test_a_puck_without_offsets_has_those_of_its_manual(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_yaml(tmp_path / "a.yaml", 16, None)
    for more, rise in (({}, 41.9 * np.tan(0.1)), ({"vert_offset_correction": 0.005}, 5.0)):
        path = write_yaml(tmp_path / "a.yaml", 16, None, **more)
        family = make_family("VLP-16", calibration=str(path))
        spec = family.start(make_packet("VLP-16"), live=False).specs(finite=True)[0]
        beams = Beams.of_text(spec.files["beams.json"], "beams.json")
        assert beams.rise_mm[0] == pytest.approx(rise)
        said = "rise as the manual of the VLP-16" in capsys.readouterr().err
        assert said is (not more)


def test_an_hdl_64e_needs_its_file_and_has_its_corrections(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no angles of its design"):
        make_family("HDL-64E S3").start(make_packet("HDL-64E S3", 0x37), live=False)
    more = {"dist_correction": 1.2, "dist_correction_x": 1.3, "dist_correction_y": 1.25}
    more |= {"horiz_offset_correction": 0.026, "vert_offset_correction": 0.2}
    path = write_yaml(tmp_path / "a.yaml", 64, 0.002, **more)
    family = make_family("HDL-64E S3", calibration=str(path))
    spec = family.start(make_packet("HDL-64E S3", 0x37), live=False).specs(finite=True)[0]
    beams = Beams.of_text(spec.files["beams.json"], "beams.json")
    assert beams.two_point is not None and beams.rise_mm[0] == pytest.approx(200)
    place = TwoPointRanges(beams).place
    one = np.zeros(1, int)
    # At azimuth 0, y's correction: (1.25 - 1.2) is left of it at 1.93 m, nothing at 25.04 m.
    ahead, right, up = place(np.array([30.0]), one, np.zeros(1))
    assert ahead == pytest.approx(31.2 * np.cos(-0.1))
    assert right == pytest.approx(-0.026) and up == pytest.approx(31.2 * np.sin(-0.1) + 0.2)
    near_m = 1.93 / np.cos(-0.1) - 1.2
    ahead, _, up = place(np.array([near_m]), one, np.zeros(1))
    assert ahead == pytest.approx((near_m + 1.25) * np.cos(-0.1))
    assert up == pytest.approx((near_m + 1.25) * np.sin(-0.1) + 0.2)
    ahead, right, _ = place(np.array([2.4 / np.cos(-0.1) - 1.2]), one, np.array([np.pi / 2]))
    assert right == pytest.approx((2.4 / np.cos(-0.1) - 1.2 + 1.3) * np.cos(-0.1))


def build_mirrors(resolution: int = 2) -> bytes:
    """Return a file of 128 channels and 3 mirrors, by the layout of Hesai's SDK."""
    fields = [600_000, 3_600_000, 6_600_000], [3_600_000, 6_600_000, 600_000]
    angles = [1000 * (c % 2) - 500 for c in range(128)], [330_000 - 5000 * c for c in range(128)]
    words = [value // resolution for row in (*fields, *angles) for value in row]
    adjust = [(c + k) % 100 - 50 for c in range(128) for k in range(180)]
    head = bytes((0xEE, 0xFF, 1, 5, 128, 3, 3, *range(8), resolution))
    return (
        head + struct.pack("<6I256i", *words) + struct.pack("<46080b", *adjust, *adjust) + bytes(32)
    )


@pytest.mark.parametrize("resolution", [1, 2])
def test_the_mirrors_of_an_at128(tmp_path: Path, resolution: int) -> None:
    path = tmp_path / "at.dat"
    path.write_bytes(build_mirrors(resolution))
    family = make_family("AT128", calibration=str(path))
    spec = family.start(make_packet("AT128"), live=False).specs(finite=True)[0]
    beams = Beams.of_text(spec.files["beams.json"], "beams.json")
    assert beams.turn == TURN and beams.elevation_deg[10] == pytest.approx(280_000 / 25600)
    mirrors = TurningMirrors(beams)
    # The second mirror, 0.75 of the way from adjustment 80 to 81; channel 3.
    column = np.array([80.75 * 51_200])
    azimuth, elevation = mirrors.find_azimuths(column), mirrors.find_elevations(column)
    adjust = 0.01 * ((3 + 80) % 100 - 50 + 0.75)
    wanted = (2 * (column[0] - 3_600_000) - 500) / 25600 + adjust
    assert np.degrees(azimuth[3, 0]) == pytest.approx(wanted)
    assert np.degrees(elevation[3, 0]) == pytest.approx((330_000 - 15_000) / 25600 + adjust)


@pytest.mark.parametrize("name", ["a.csv", "a.yaml", "a.dat"])
def test_damaged_files_are_named_or_read(name: str, tmp_path: Path) -> None:
    rows = "Laser id,Elevation,Azimuth\n" + "".join(f"{k},{k}.5,-1\n" for k in range(1, 17))
    data = {
        "a.csv": rows.encode(),
        "a.yaml": write_yaml(tmp_path / "a.yaml", 16, 0.002).read_bytes(),
        "a.dat": build_mirrors(),
    }[name]
    channels = 128 if name == "a.dat" else 16
    assert parse_angles(data, name, channels, 2.0, "model").origin == name
    dice = random.Random(name)
    for _ in range(40):
        damaged = bytearray(data[: dice.randrange(len(data))] if dice.random() < 0.5 else data)
        for _ in range(dice.randrange(4)):
            if damaged:
                damaged[dice.randrange(len(damaged)) % 40] = dice.randrange(256)
        try:
            angles = parse_angles(bytes(damaged), name, channels, 2.0, "model")
        except FormatError as error:
            assert "channels" in str(error) or "is no file" in str(error) or "mm" in str(error)
        else:
            assert len(angles.elevation_deg) == channels
