"""Lidars whose sweeps are ranges in the packet's unit, in every archive and reader."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

import recorder
from recorder.archives.export import Wanted, export
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.codecs.beams import BEAMS
from recorder.formats.vrs import VrsReader
from recorder.formats.vrs.streams import RecordableType
from recorder.session.reader import Session
from recorder.session.validation import validate
from recorder.viewers.live.views import list_views, make_view
from recorder.viewers.report import write_report
from tests.archives.edgefirst import rig as edgefirst
from tests.archives.mcap import bags
from tests.archives.mcap.test_foxglove import pack as pack_foxglove
from tests.archives.ncore.packer_rig import pack as pack_ncore
from tests.archives.vrs.test_packer import blocks_of
from tests.cli.test_export_pictures import read_pcd
from tests.recording.writer.vrs_session import stream_of
from tests.session import beam_sweeps as beam
from tests.viewers.live.foxglove.client import stamp_ns
from tests.viewers.live.views.sensors import message_of
from tests.viewers.report.reading import Page

POINTS = [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "u1"), ("return", "u1"),
          ("ring", "<u2"), ("t", "<u4")]  # fmt: skip


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> beam.Drive:
    path = tmp_path_factory.mktemp("beams") / "drive"
    return beam.drive(path, calibration=edgefirst.FULL_CALIBRATION)


def test_a_session_is_valid(driven: beam.Drive) -> None:
    report = validate(driven.path, deep=True)
    assert report.problems == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "not JSON"),
        ("{}", "required field `vendor`"),
        (beam.make_beams(returns=["a", "b", "c"]).to_text(), "with rng3"),
    ],
)
def test_a_wrong_description_is_an_error(tmp_path: Path, text: str, fault: str) -> None:
    path = beam.drive(tmp_path / "s").path
    (path / "lidar" / BEAMS).write_text(text)
    report = validate(path)
    assert any(BEAMS in p.message and fault in p.message for p in report.problems), report.problems


def test_ncore_has_a_ray_for_each_point(driven: beam.Drive) -> None:
    archive = pack_ncore(driven.path)
    for index, points in enumerate(driven.sweeps):
        frame = f"lidars/lidar/frames/{driven.lidar.t_ns[index] // 1000}"
        direction = archive.array(f"{frame}/ray_bundle/direction")
        distance = archive.array(f"{frame}/ray_bundle_returns/distance_m")
        xyz = direction * distance[0][:, None]
        assert np.abs(xyz - np.array([p.xyz for p in points])).max() < 1e-4
        t_us = (driven.start_ns(index) + np.array([p.t_ns for p in points])) // 1000
        assert np.array_equal(archive.array(f"{frame}/ray_bundle/timestamp_us"), t_us)
        rings = archive.array(f"{frame}/generic_data/ring")
        elements = archive.array(f"{frame}/ray_bundle/model_element")
        assert rings.tolist() == elements[:, 0].tolist() == [p.ring for p in points]
        assert archive.array(f"{frame}/generic_data/return").tolist() == [p.return_ for p in points]
    model = archive.attributes("intrinsics/default/lidars/lidar")["lidar_model_parameters"]
    assert (model["n_rows"], model["n_columns"]) == (beam.CHANNELS, 9_000)
    sensor = archive.attributes("lidars/lidar")["generic_meta_data"]["sensor"]
    assert sensor["model"] == "of the beams; calibration: default"
    assert sensor["model_error_deg"] < 0.021


@pytest.mark.parametrize("order", ["staggered", "destaggered"])
def test_a_bag_of_ros2_has_the_points(driven: beam.Drive, order: str) -> None:
    bag = bags.pack(driven.builder, points=order, lidar="points_and_ranges")
    assert bag.log_ns("/lidar/points") == driven.lidar.t_ns.tolist()
    for index, points in enumerate(driven.sweeps):
        found = [bag.of("/lidar/points")[index]]
        found += [bag.of("/lidar/points2")[index]] if order == "destaggered" else []
        clouds = [bags.cloud(message).reshape(-1) for message in found]
        whole = np.concatenate(clouds)
        beam.check_points(whole[np.isfinite(whole["x"])], points)
        assert {bags.stamp_ns(message) for message in found} == {driven.start_ns(index)}
        image = bags.image(bag.of("/lidar/range_image2")[index])
        assert np.array_equal(image, driven.lidar.data["rng2"][index])
    assert not bag.noted("no message has")


def test_foxglove_has_the_points(driven: beam.Drive, tmp_path: Path) -> None:
    found, context = pack_foxglove(driven.path, tmp_path, lidar="points_and_ranges")
    for index, points in enumerate(driven.sweeps):
        value = found.messages["/lidar/points"][index].value
        assert stamp_ns(value.timestamp) == driven.start_ns(index)
        beam.check_points(np.frombuffer(value.data, np.dtype(POINTS)), points)
        image = found.messages["/lidar/range2"][index].value
        metres = np.frombuffer(image.data, "<f4").reshape(image.height, image.width)
        assert np.allclose(metres, driven.lidar.data["rng2"][index] * 0.004)
        image = found.messages["/lidar/confidence2"][index].value
        confidence = np.frombuffer(image.data, "u1").reshape(image.height, image.width)
        assert np.array_equal(confidence, driven.lidar.data["conf2"][index])
    assert not any("no message has" in line for line in context.notes.lines)


@pytest.mark.parametrize("returns", [1, 2])
def test_edgefirst_has_the_returns(driven: beam.Drive, tmp_path: Path, returns: int) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
    images = ["depth", "reflectivity"]
    options = {"tolerance_ms": 40, "returns": returns, "lidar_images": images}
    dataset = edgefirst.pack_all([driven.path], tmp_path / "out", **options)
    seen = 0
    for frame in range(len(driven.builder.streams["camera"].t_ns)):
        if "lidar.pcd" not in dataset.endings(frame):
            continue
        seen += 1
        t_ns = driven.builder.streams["camera"].t_ns[frame]
        near = int(np.abs(driven.lidar.t_ns - t_ns).argmin())
        points = [p for p in driven.sweeps[near] if p.return_ < returns]
        beam.check_points(dataset.points(frame, "lidar.pcd"), points)
        ranges, reflectivity = (show(driven, name, near) for name in ("rng", "rfl"))
        depth = np.rint(ranges * 0.004 * 256).astype(np.uint16)
        assert np.array_equal(dataset.picture(frame, "lidar.png"), depth)
        jpeg = dataset.picture(frame, "lidar.jpeg").astype(int)
        assert np.abs(jpeg - reflectivity).mean() < 3
    assert seen > 2
    assert bool(dataset.noted("second returns left out")) is (returns == 1)
    assert not dataset.noted("no pictures")


def show(driven: beam.Drive, channel: str, index: int) -> npt.NDArray[Any]:
    """The picture of a sweep: a column each 3.6 deg, azimuth 0 in the middle."""
    values = driven.lidar.data[channel][index][:, : beam.COLUMNS]
    return np.roll(values, beam.COLUMNS // 2, axis=1)


def test_vrs_has_the_frames(driven: beam.Drive, tmp_path: Path) -> None:
    (result,) = finalize(driven.path, [ArchiveRequest("vrs")], out=tmp_path)
    with VrsReader(result.files[0]) as vrs:
        assert stream_of(vrs, "lidar").type_id == RecordableType.LIDAR_DATA
        found = blocks_of(vrs, "lidar")
    with Session(driven.path) as session:
        reader = session.streams["lidar"].channels["rng"]
        assert [bytes(blocks[0].data) for _, blocks in found] == [
            reader.encoded(k) for k in range(len(reader))
        ]


def test_exports(driven: beam.Drive, tmp_path: Path) -> None:
    with Session(driven.path, virtual=True, partial=True) as session:
        made = export(session, Wanted("lidar", "pcd"), tmp_path / "clouds")
        pictures = export(session, Wanted("lidar", "png", channels=["rng2"]), tmp_path / "png")
        export(session, Wanted("lidar", "npz"), tmp_path / "a.npz")
    for index, path in enumerate(made.files):
        beam.check_points(read_pcd(path)[1], driven.sweeps[index])
        picture = cv2.imread(str(pictures.files[index]), cv2.IMREAD_UNCHANGED)
        assert picture is not None
        assert np.array_equal(picture, driven.lidar.data["rng2"][index])
    with np.load(tmp_path / "a.npz") as arrays:
        assert np.array_equal(arrays["rng"], driven.lidar.data["rng"])


def test_the_api_has_points_and_ranges(driven: beam.Drive) -> None:
    with recorder.open(driven.path) as session:
        lidar = session["lidar"]
        points = np.array([p.xyz for p in driven.sweeps[1]])
        assert np.abs(lidar.points(1, frame="sensor") - points).max() < 1e-4
        cloud = lidar.cloud(1)
        assert cloud["return"].tolist() == [p.return_ for p in driven.sweeps[1]]
        assert (cloud["t_ns"] - driven.start_ns(1)).tolist() == [p.t_ns for p in driven.sweeps[1]]
        assert np.allclose(lidar.ranges(1), driven.lidar.data["rng"][1] * 0.004)


def test_the_live_view_shows_the_points(driven: beam.Drive) -> None:
    spec = driven.lidar.spec
    assert list_views(spec) == ("cloud", "range_image")
    data = {name: values[1:2] for name, values in driven.lidar.data.items()}
    drawing = make_view(spec, "cloud", {}).draw([message_of(spec, data)])
    assert drawing is not None
    (name, xyz), *_ = drawing.arrays
    assert name == "points"
    assert np.abs(xyz - np.array([p.xyz for p in driven.sweeps[1]])).max() < 1e-4


def test_the_live_view_shows_a_range_image(driven: beam.Drive) -> None:
    spec = driven.lidar.spec
    data = {name: values[1:2] for name, values in driven.lidar.data.items()}
    drawing = make_view(spec, "range_image", {}).draw([message_of(spec, data)])
    assert drawing is not None
    arrays = dict(drawing.arrays)
    assert np.array_equal(arrays["range"], show(driven, "rng", 1))
    assert np.array_equal(arrays["intensity"], show(driven, "rfl", 1))
    size = {"rows": beam.CHANNELS, "columns": beam.COLUMNS, "row_step": 1, "column_step": 1}
    assert drawing.header == {
        **size, "range_unit_m": 0.004, "intensity": "reflectivity", "intensity_white": 255.0,
    }  # fmt: skip


def test_the_report_shows_sweeps_and_a_range_image(driven: beam.Drive) -> None:
    page = Page(write_report(driven.path))
    section = page.sections["lidars"]
    counts = Counter(f"{len(points)} points" for points in driven.sweeps)
    assert all(section.count(text) >= count for text, count in counts.items())
    assert "range image" in section and "dark is 80 m" in section


def test_archives_name_a_missing_description(tmp_path: Path) -> None:
    made = beam.drive(tmp_path / "s")
    (made.path / "lidar" / BEAMS).unlink()
    page = Page(write_report(made.path))
    assert "lidar.json" in page.sections["lidars"] or BEAMS in page.sections["lidars"]


def test_the_beams_of_another_sensor_do_not_fit(driven: beam.Drive) -> None:
    spec = replace(driven.lidar.spec, files={BEAMS: "{}"})
    with pytest.raises(Exception, match=r"lidar: beams.json: .*vendor"):
        make_view(spec, "cloud", {})
