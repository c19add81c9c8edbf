"""Pictures and points that are exported, by other software."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ouster.sdk import core

from recorder.perception.lidar.points import SweepPoints
from recorder.perception.radar.geometry import RadarGeometry
from recorder.perception.radar.maps import RadarMaps
from recorder.perception.radar.radar import RadarProcessor
from tests.cli.test_export import Array, read_picture, refused, run
from tests.cli.test_export import built as built
from tests.cli.test_export import here as here
from tests.session.build import Builder, raw_camera_spec


def test_jpegs_are_those_of_the_session(built: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    made = run(capsys, built.path, "camera", "--to", "jpg", "--out", "looks")
    assert (made["place"], made["samples"], len(made["files"])) == ("looks", 5, 5)
    assert made["files"] == sorted(map(str, Path("looks").iterdir()))
    name = "camera_2024-06-01_10-00-00.124480448.jpg"  # the stamp of the first sample, in UTC
    assert Path(made["files"][0]).name == name and built.streams["camera"].t_ns[0] % 10**9 == (
        124480448
    )
    recorded = (built.path / "camera" / "video.avi").read_bytes()
    for path in made["files"]:
        assert Path(path).read_bytes() in recorded
        assert read_picture(path).shape == (48, 64, 3)


def test_pngs_of_a_camera_are_its_decoded_jpegs(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    jpg = run(capsys, built.path, "camera", "--to", "jpg", "--from", "0.1", "--until", "0.3")
    png = run(capsys, built.path, "camera", "--to", "png", "--from", "0.1", "--until", "0.3")
    assert (jpg["samples"], png["samples"]) == (2, 2)
    for one, other in zip(jpg["files"], png["files"], strict=True):
        assert Path(one).stem == Path(other).stem
        assert np.array_equal(read_picture(one), read_picture(other))


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_raw_pictures_are_rendered(
    tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = Builder(tmp_path / "rig")
    made = builder.add(raw_camera_spec(), count=2)
    path = builder.close()
    run(capsys, path, "camera", "--to", ending, "--until", "0.02", "--out", f"one.{ending}")
    picture = read_picture(f"one.{ending}")
    values = next(iter(made.data.values()))[0]
    assert picture.shape == (*values.shape, 3) and picture.dtype == np.uint8
    if ending == "png":  # the red pixels of RGGB: from the black level 16 to the white level 200
        red = np.clip((values[0::2, 0::2].astype(float) - 16) / (200 - 16) * 1.9, 0, 1)
        white = red == 1
        assert white.any() and (picture[0::2, 0::2, 2][white] == 255).all()


def test_ranges_of_a_lidar_are_upright_in_mm(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(capsys, built.path, "lidar", "--to", "png")
    lidar = built.streams["lidar"]
    info = core.SensorInfo((built.path / "lidar" / "lidar.json").read_text())
    beyond = 0
    assert made["samples"] == 5
    for k, path in enumerate(made["files"]):
        ranges = lidar.data["rng"][k].astype(np.uint32) + lidar.data["rng_far"][k]
        beyond += int(np.count_nonzero(ranges > 65535))
        upright = core.destagger(info, np.minimum(ranges, 65535).astype(np.uint16))
        found = read_picture(path)
        assert found.dtype == np.uint16 and np.array_equal(found, upright)
    assert beyond and made["notes"] == [
        f"{beyond} ranges beyond 65.535 m are 65535 in the pictures"
    ]


def test_several_pictures_of_each_sweep(built: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    made = run(
        capsys, built.path, "lidar", "--to", "png", "--channels", "rfl,nir", "--until", "0.05"
    )
    assert made["samples"] == 1 and [Path(p).stem[-4:] for p in made["files"]] == ["_rfl", "_nir"]
    info = core.SensorInfo((built.path / "lidar" / "lidar.json").read_text())
    for path, name in zip(made["files"], ("rfl", "nir"), strict=True):
        values = built.streams["lidar"].data[name][0]
        found = read_picture(path)
        assert found.dtype == values.dtype
        assert np.array_equal(found, core.destagger(info, values))
    text = refused(capsys, built.path, "lidar", "--to", "png", "--channels", "t_col")
    assert "t_col is no picture; pictures: rng, rfl, nir" in text


def test_a_radars_power_over_range_and_speed(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(capsys, built.path, "radar", "--to", "png", "--until", "0.04", "--out", "map.png")
    picture = read_picture("map.png")
    text = (built.path / "radar" / "radar.json").read_text()
    geometry = RadarGeometry.of_metadata(text, "radar.json")
    maps, processor = RadarMaps(geometry), RadarProcessor(geometry)
    iq = built.streams["radar"].data["iq"][0]
    level_db, _ = maps.range_doppler(processor.spectra(iq))
    assert made["samples"] == 1 and picture.shape == (16, 256) and picture.dtype == np.uint8
    assert np.abs(picture * 0.25 - 10 - np.clip(level_db, -10, 53.75)).max() <= 0.126
    found = processor.detect(iq)  # the strongest detection is a bright spot of the picture
    row = int(np.argmin(np.abs(maps.velocity_m_s - found.velocity_m_s[0])))
    column = int(np.argmin(np.abs(maps.range_m - found.range_m[0])))
    rows = np.arange(row - 1, row + 2) % len(picture)  # speeds wrap around
    assert picture[rows, column - 1 : column + 2].max() == picture.max()


# --- points


def read_pcd(path: str | Path) -> tuple[dict[str, str], Array]:
    """Header and points of a binary PCD, by the published description of the format."""
    head, _, body = Path(path).read_bytes().partition(b"DATA binary\n")
    lines = [line for line in head.decode().splitlines() if not line.startswith("#")]
    header = dict(line.split(" ", 1) for line in lines)
    kinds = {"F": "f", "U": "u", "I": "i"}
    columns = zip(*(header[key].split() for key in ("FIELDS", "TYPE", "SIZE")), strict=True)
    dtype = np.dtype([(name, f"<{kinds[kind]}{size}") for name, kind, size in columns])
    points = np.frombuffer(body, dtype)
    assert len(points) == int(header["POINTS"]) == int(header["WIDTH"])
    return header, points


def test_points_of_a_lidar_are_those_of_its_sweeps(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(capsys, built.path, "lidar", "--to", "pcd")
    lidar = built.streams["lidar"]
    sweeps = SweepPoints(lidar.spec, destaggered=False)
    assert len(made["files"]) == made["samples"] == 5
    for k, path in enumerate(made["files"]):
        sample = {name: values[k] for name, values in lidar.data.items()}
        start_ns, expected = sweeps.points(sample, int(lidar.t_ns[k]))
        header, points = read_pcd(path)
        assert header["FIELDS"] == "x y z intensity return ring t"
        assert np.array_equal(points, expected)
        comment = Path(path).read_bytes().split(b"\n", 1)[0].decode()
        assert comment == f"# t: ns after {start_ns} ns since 1970-01-01 UTC"


def test_points_of_a_radar_are_its_detections(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(capsys, built.path, "radar", "--to", "pcd")
    text = (built.path / "radar" / "radar.json").read_text()
    geometry = RadarGeometry.of_metadata(text, "radar.json")
    processor = RadarProcessor(geometry)
    assert len(made["files"]) == made["samples"] == 10
    for k, path in enumerate(made["files"]):
        header, points = read_pcd(path)
        found = processor.detect(built.streams["radar"].data["iq"][k])
        assert len(found) == len(points) > 3
        assert header["FIELDS"] == "x y z velocity power snr method"
        away = np.sqrt(points["x"] ** 2 + points["y"] ** 2 + points["z"] ** 2)
        assert np.abs(away - found.range_m).max() < 0.3  # speeds that were resolved move a range
        assert np.array_equal(points["power"], found.power_db)


def test_a_radars_calibration_in_the_session_is_used(
    built: Builder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "calibrated"
    folder.mkdir()  # the built session stays as it is
    for path in built.path.iterdir():
        (folder / path.name).symlink_to(path)
    _, tx, rx, _ = built.streams["radar"].data["iq"].shape[1:]
    ones = json.dumps([[[1.0, 0.0]] * rx] * tx)
    text = f"sensors:\n  radar:\n    antennas: {{coefficients: {ones}, range_bias_m: 2.5}}\n"
    (folder / "calibration.yaml").write_text(text)
    until = ("--to", "pcd", "--until", "0.04")
    run(capsys, built.path, "radar", *until, "--out", "a.pcd")
    run(capsys, folder, "radar", *until, "--out", "b.pcd")
    (_, plain), (_, moved) = read_pcd("a.pcd"), read_pcd("b.pcd")
    lengths = [np.sqrt(p["x"] ** 2 + p["y"] ** 2 + p["z"] ** 2)[:3] for p in (plain, moved)]
    assert np.allclose(lengths[0] - lengths[1], 2.5, atol=0.3)


# --- what is chosen, and where it goes
