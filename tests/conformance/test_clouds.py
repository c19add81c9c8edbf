"""Lidars that are recorded as points, read by the formats' own software and by other decoders.

The truth is a set of points that stand still in the world: a vehicle drives past and turns, and its
lidar measures each point at the point's own time.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from recorder.archives.export import Wanted, export
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.session.reader import Session
from tests.acceptance.command import recorder
from tests.session import clouds
from tests.session.driven_clouds import COUNT, Drive, drive

pytestmark = pytest.mark.conformance

WITHIN_M = 1e-3


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    return drive(tmp_path_factory.mktemp("timed") / "drive", clouds.WITH_TIMES)


@pytest.fixture(scope="module")
def untimed(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    return drive(tmp_path_factory.mktemp("untimed") / "drive", clouds.WITHOUT_TIMES)


@pytest.fixture(params=["timed", "untimed"])
def either(request: pytest.FixtureRequest) -> Drive:
    made: Drive = request.getfixturevalue(request.param)
    return made


def loaded(made: Drive, out: Path) -> Any:
    """The sequence in NVIDIA's loader."""
    components = pytest.importorskip("ncore.impl.data.v4.components", reason="needs nvidia-ncore")
    compat = pytest.importorskip("ncore.impl.data.v4.compat")
    (result,) = finalize(made.path, [ArchiveRequest("ncore")], out=out)
    reader = components.SequenceComponentGroupsReader([result.files[-1]])
    return compat.SequenceLoaderV4(reader)


def test_nvidias_loader_puts_points_where_they_are_in_the_world(
    timed: Drive, tmp_path: Path
) -> None:
    loader = loaded(timed, tmp_path)
    sensor = loader.get_lidar_sensor("lidar")
    assert sensor.frames_count == COUNT
    ends_us = sensor.frames_timestamps_us[:, 1]
    assert ends_us.tolist() == (timed.lidar.t_ns // 1000).tolist()
    to_world = loader.pose_graph.evaluate_poses("lidar", "world", ends_us)
    for index, (sweep, expected) in enumerate(zip(timed.sweeps, timed.world, strict=True)):
        hit = clouds.has_return(sweep)
        raw = sensor.get_frame_point_cloud(index, False, False, 0).xyz_m_end
        assert np.abs(raw - sweep["xyz"][hit]).max() < 1e-4
        points = sensor.get_frame_point_cloud(index, True, False, 0).xyz_m_end
        pose = to_world[index]
        world = np.asarray(points, np.float64) @ pose[:3, :3].T + pose[:3, 3]
        assert np.linalg.norm(world - expected[hit], axis=1).max() < WITHIN_M
        # Without the rig's motion in the sweep they would be elsewhere.
        still = np.asarray(raw, np.float64) @ pose[:3, :3].T + pose[:3, 3]
        assert np.linalg.norm(still - expected[hit], axis=1).max() > 1
        assert np.array_equal(sensor.get_frame_generic_data(index, "ring"), sweep["ring"][hit])


def test_nvidias_model_has_the_directions_of_the_points(timed: Drive, tmp_path: Path) -> None:
    sensor = loaded(timed, tmp_path).get_lidar_sensor("lidar")
    model = sensor.model_parameters
    assert (model.n_rows, model.n_columns) == (clouds.RINGS, clouds.COLUMNS)
    assert model.spinning_direction == "cw"
    assert model.spinning_frequency_hz == pytest.approx(10, rel=1e-3)
    for index in range(COUNT):
        elements = sensor.get_frame_ray_bundle_model_element(index).astype(int)
        elevation = model.row_elevations_rad[elements[:, 0]]
        azimuth = model.column_azimuths_rad[elements[:, 1]]
        azimuth = azimuth + model.row_azimuth_offsets_rad[elements[:, 0]]
        level = np.cos(elevation)
        expected = np.stack(
            [level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)], 1
        )
        direction = sensor.get_frame_ray_bundle_direction(index)
        assert np.abs(direction - expected).max() < 1e-3


def test_nvidias_loader_reads_point_clouds(untimed: Drive, tmp_path: Path) -> None:
    loader = loaded(untimed, tmp_path)
    assert "lidar" not in loader.lidar_ids
    source = loader.get_point_clouds_source("lidar")
    assert source.pc_timestamps_us.tolist() == (untimed.lidar.t_ns // 1000).tolist()
    to_world = loader.pose_graph.evaluate_poses("lidar", "world", source.pc_timestamps_us)
    for index, (sweep, expected) in enumerate(zip(untimed.sweeps, untimed.world, strict=True)):
        hit = clouds.has_return(sweep)
        cloud = source.get_pc(index)
        assert cloud.reference_frame_id == "lidar"
        assert np.array_equal(cloud.xyz, sweep["xyz"][hit])
        for name in ("ring", "reflectivity"):
            assert np.array_equal(cloud.get_attribute(name), sweep[name][hit])
        pose = to_world[index]
        world = cloud.xyz.astype(np.float64) @ pose[:3, :3].T + pose[:3, 3]
        assert np.linalg.norm(world - expected[hit], axis=1).max() < WITHIN_M


def test_validation_reads_point_clouds_with_nvidias_loader(untimed: Drive, tmp_path: Path) -> None:
    pytest.importorskip("ncore.impl.data.v4.components", reason="needs nvidia-ncore")
    (result,) = finalize(untimed.path, [ArchiveRequest("ncore")], out=tmp_path)
    ran = recorder("validate", result.files[-1], "--format", "json")
    assert ran.code == 0, ran.err
    assert f"lidar {COUNT} point clouds" in json.dumps(ran.result)


NUMPY_OF_FIELD = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 8: "<f8"}


def check_points(found: Any, sweep: clouds.Sweep) -> None:
    xyz = np.stack([found["x"], found["y"], found["z"]], axis=1)
    assert np.array_equal(xyz, sweep["xyz"], equal_nan=True)
    for name in {*(sweep.dtype.names or ())} - {"xyz", "tag"}:
        field = "t" if name == "t_offset" else name
        assert np.array_equal(found[field], sweep[name]), name


def test_mcap_ros2_support_reads_the_points(either: Drive, tmp_path: Path) -> None:
    decoder = pytest.importorskip("mcap_ros2.decoder", reason="needs mcap-ros2-support")
    make_reader = pytest.importorskip("mcap.reader").make_reader
    request = ArchiveRequest("mcap", {"profile": "ros2"})
    (result,) = finalize(either.path, [request], out=tmp_path)
    (path,) = result.files[0].glob("*.mcap")
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True, decoder_factories=[decoder.DecoderFactory()])
        read = [
            (message.log_time, decoded)
            for _, _, message, decoded in reader.iter_decoded_messages(["/lidar/points"])
        ]
    assert [t_ns for t_ns, _ in read] == either.lidar.t_ns.tolist()
    for (t_ns, message), sweep in zip(read, either.sweeps, strict=True):
        stamp_ns = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        assert stamp_ns == clouds.begin_ns(t_ns, sweep)
        kind = np.dtype(
            {
                "names": [field.name for field in message.fields],
                "formats": [NUMPY_OF_FIELD[field.datatype] for field in message.fields],
                "offsets": [field.offset for field in message.fields],
                "itemsize": message.point_step,
            }
        )
        check_points(np.frombuffer(bytes(message.data), kind), sweep)


def test_edgefirsts_client_and_pypcd4_read_the_points(either: Drive, tmp_path: Path) -> None:
    client = pytest.importorskip("edgefirst_client", reason="needs edgefirst-client")
    from tests.conformance.test_edgefirst import complaints

    pypcd4 = pytest.importorskip("pypcd4", reason="needs pypcd4")
    (result,) = finalize(
        either.path,
        [ArchiveRequest("edgefirst", {"tolerance_ms": 40, "container": "folder"})],
        out=tmp_path,
    )
    (root,) = result.files
    assert client.read_dataset_metadata(root / f"{root.name}.arrow")
    for line in complaints(root):
        assert not re.search(r"missing|error|invalid", line, re.IGNORECASE), line
    seen = 0
    for path in sorted(root.rglob("*.lidar.pcd")):
        cloud = pypcd4.PointCloud.from_path(path)
        found = {field: cloud.numpy((field,))[:, 0] for field in cloud.fields}
        matches = [
            sweep[clouds.has_return(sweep)]
            for sweep in either.sweeps
            if np.array_equal(sweep["xyz"][clouds.has_return(sweep)][:, 0], found["x"])
        ]
        assert len(matches) == 1
        check_points(found, matches[0])
        seen += 1
    assert seen == COUNT  # each sweep with one picture


def test_pypcd4_reads_exported_points(either: Drive, tmp_path: Path) -> None:
    pypcd4 = pytest.importorskip("pypcd4", reason="needs pypcd4")
    with Session(either.path, virtual=True, partial=True) as session:
        made = export(session, Wanted("lidar", "pcd"), tmp_path / "looks")
    for path, sweep in zip(made.files, either.sweeps, strict=True):
        cloud = pypcd4.PointCloud.from_path(path)
        check_points({f: cloud.numpy((f,))[:, 0] for f in cloud.fields}, sweep)


def test_pyvrs_reads_the_packed_sweeps(either: Drive, tmp_path: Path) -> None:
    pyvrs = pytest.importorskip("pyvrs", reason="needs PyPI `vrs`")
    (result,) = finalize(either.path, [ArchiveRequest("vrs")], out=tmp_path)
    reader = pyvrs.SyncVRSReader(str(result.files[0]))
    (lidar,) = (name for name in reader.stream_ids if name.startswith("245-"))
    blocks = [
        np.asarray(record.custom_blocks[0]).tobytes()
        for record in reader.filtered_by_fields(stream_ids={lidar}, record_types={"data"})
    ]
    assert len(blocks) == COUNT
    for block, sweep in zip(blocks, either.sweeps, strict=True):
        content = zstandard.ZstdDecompressor().decompress(block)  # as docs/session.md has it
        planes = np.frombuffer(content, np.uint8).reshape(sweep.dtype.itemsize, len(sweep))
        assert planes.T.tobytes() == sweep.tobytes()
