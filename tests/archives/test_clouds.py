"""Lidars that are recorded as points, in every archive but NCore (`ncore.test_packer_clouds`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.export import Wanted, export
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.codecs.points import (
    Column,
    make_columns,
    pack_points,
    points_dtype,
    unpack_points,
)
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import UsageError
from recorder.formats.vrs import RecordType, VrsReader
from recorder.formats.vrs.streams import RecordableType
from recorder.perception.ego_motion import Motion
from recorder.session.reader import Session
from recorder.session.vrs.records import ConfigurationData
from tests.acceptance.command import here
from tests.archives.edgefirst import rig as edgefirst
from tests.archives.mcap import bags
from tests.archives.mcap.test_foxglove import pack as pack_foxglove
from tests.archives.vrs.test_packer import blocks_of
from tests.cli.test_export_pictures import read_pcd
from tests.formats.bags.kit import START_NS, Sent, write_mcap
from tests.formats.ros2 import cloud_kit
from tests.recording.writer.vrs_session import stream_of
from tests.session import clouds, driven_clouds
from tests.session.build import Builder, Recorded, camera_spec
from tests.viewers.live.foxglove.client import stamp_ns

COLUMNS = (*clouds.WITH_TIMES, Column("stamp", "u8"), Column("power", "f8"), Column("row", "i2"))
FIELDS = ["x", "y", "z", "intensity", "ring", "t", "tag_0", "tag_1", "stamp", "power", "row"]
CALIBRATION = edgefirst.FULL_CALIBRATION
NUMPY_OF_FOXGLOVE = {1: "u1", 2: "i1", 3: "<u2", 4: "<i2", 5: "<u4", 6: "<i4", 7: "<f4", 8: "<f8"}


@dataclass
class Drive:
    """A session of a camera and a lidar, closed."""

    builder: Builder
    lidar: Recorded
    sweeps: list[clouds.Sweep]

    @property
    def path(self) -> Path:
        return self.builder.path

    def start_ns(self, index: int) -> int:
        """Time from which the times of a sweep's points count."""
        return clouds.begin_ns(self.lidar.t_ns[index], self.sweeps[index])


def drive(path: Path, columns: Any = COLUMNS, count: int = 4) -> Drive:
    builder = Builder(path)
    builder.add(camera_spec(), count / 10)
    sweeps = [clouds.make_sweep(columns, seed) for seed in range(count)]
    for sweep in sweeps if columns is COLUMNS else ():
        sweep["stamp"], sweep["power"], sweep["row"] = 1 << 40, 0.25, -3
    lidar = clouds.add_clouds(builder, sweeps, clouds.cloud_spec(columns))
    (path / "calibration.yaml").write_text(CALIBRATION)
    builder.close()
    return Drive(builder, lidar, sweeps)


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    return drive(tmp_path_factory.mktemp("clouds") / "drive")


@pytest.fixture(scope="module")
def untimed(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    return drive(tmp_path_factory.mktemp("untimed") / "drive", clouds.WITHOUT_TIMES)


@pytest.fixture(params=["driven", "untimed"])
def either(request: pytest.FixtureRequest) -> Iterator[Drive]:
    yield request.getfixturevalue(request.param)


def check_points(found: Any, sweep: clouds.Sweep) -> None:
    """Check all fields of points against the recorded columns."""
    xyz = np.stack([found["x"], found["y"], found["z"]], axis=1)
    assert np.array_equal(xyz, sweep["xyz"], equal_nan=True)
    own = {"t_offset": "t"}
    for name in sweep.dtype.names or ():
        if name == "tag":
            for k in range(2):
                assert np.array_equal(found[f"tag_{k}"], sweep["tag"][:, k])
        elif name != "xyz":
            assert np.array_equal(found[own.get(name, name)], sweep[name]), name


def test_a_bag_of_ros2_has_all_columns(either: Drive) -> None:
    bag = bags.pack(either.builder)
    assert bag.log_ns("/lidar/points") == either.lidar.t_ns.tolist()
    for index, message in enumerate(bag.of("/lidar/points")):
        assert bags.stamp_ns(message) == either.start_ns(index)
        assert (message.header.frame_id, message.height) == ("lidar", 1)
        assert message.is_dense is False  # there are NaN
        check_points(bags.cloud(message)[0], either.sweeps[index])
    assert not bag.noted("no message has")


def test_an_imported_bag_gives_the_headers_stamps_back(tmp_path: Path) -> None:
    """`ts` is the end of each sweep; the clouds of the new bag begin as those of the old one."""
    rng = np.random.default_rng(4)
    names = "ouster", "hesai", "livox"
    stamps = [START_NS + k * 100_000_123 for k in range(4)]
    sent = {
        name: [cloud_kit.DRIVERS[name](rng, stamp_ns=stamp) for stamp in stamps] for name in names
    }
    messages = [
        Sent(f"/{name}/points", cloud.type_name, "cdr", cloud.data, stamp + 130_000_000)
        for name, made in sent.items()
        for stamp, cloud in zip(stamps, made, strict=True)
    ]
    bag = write_mcap(tmp_path / "a.mcap", messages)
    ran = here("import", bag, "--root", tmp_path, "--name", "s", "--format", "json")
    assert ran.code == 0, ran.err
    request = ArchiveRequest("mcap", {"profile": "ros2"})
    (result,) = finalize(tmp_path / "s", [request], out=tmp_path / "out")
    found = bags.received(result.files[0])
    with Session(tmp_path / "s") as session:
        for name in names:
            received = [message for _, message in found[f"/{name}/points"]]
            assert [bags.stamp_ns(message) for message in received] == stamps
            ends = session.streams[name].t_ns
            for message, cloud, end_ns in zip(received, sent[name], ends.tolist(), strict=True):
                assert cloud.t_ns is not None
                times = bags.stamp_ns(message) + bags.cloud(message)["t"].reshape(-1).astype("i8")
                assert np.abs(times - cloud.t_ns).max() <= 500
                assert times.max() == end_ns


def test_fields_are_of_types_that_ros_and_pcl_have(tmp_path: Path) -> None:
    made = drive(tmp_path / "drive", (clouds.POSITION, Column("intensity", "u2"), *COLUMNS[-3:]), 1)
    (message,) = bags.pack(made.builder).of("/lidar/points")
    fields = {field.name: field.datatype for field in message.fields}
    assert fields == {"x": 7, "y": 7, "z": 7, "intensity": 7, "stamp": 8, "power": 8, "row": 3}
    assert all(field.offset % min(4, message.point_step) == 0 for field in message.fields)
    check_points(bags.cloud(message)[0], made.sweeps[0])


def test_a_sweep_of_returns_alone_is_dense(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    sweep = clouds.make_sweep()
    clouds.add_clouds(builder, [sweep[clouds.has_return(sweep)], sweep[:0]])
    builder.close()
    first, empty = bags.pack(builder).of("/lidar/points")
    assert (first.is_dense, empty.is_dense) == (True, True)
    assert (empty.width, len(empty.data)) == (0, 0)


@pytest.mark.parametrize(
    ("grid", "shape"),
    [((16, 180), (16, 180)), ((1, 2880), (1, 2880)), ((16, 181), (1, 2880)), ((0, 0), (1, 2880))],
)
def test_an_organised_cloud_has_rows(
    tmp_path: Path, grid: tuple[int, int], shape: tuple[int, int]
) -> None:
    builder = Builder(tmp_path / "drive")
    spec, sweep = clouds.cloud_spec(), clouds.make_sweep()
    spec = replace(spec, channels=(*spec.channels, ChannelSpec("grid", "raw", "u4", (2,))))
    data: dict[str, Any] = {"points.bin": [pack_points(sweep)], "grid": np.array([grid], "<u4")}
    builder.add(spec, count=1, data=data)
    builder.close()
    bag = bags.pack(builder)
    assert [topic for topic in bag.messages if topic.startswith("/lidar")] == ["/lidar/points"]
    (message,) = bag.of("/lidar/points")
    assert (message.height, message.width) == shape
    check_points(bags.cloud(message).reshape(-1), sweep)


def test_foxglove_has_all_columns(either: Drive, tmp_path: Path) -> None:
    found, context = pack_foxglove(either.path, tmp_path)
    assert found.schemas["/lidar/points"] == "foxglove.PointCloud"
    messages = found.messages["/lidar/points"]
    assert [message.log_ns for message in messages] == either.lidar.t_ns.tolist()
    for index, message in enumerate(messages):
        value = message.value
        assert (stamp_ns(value.timestamp), value.frame_id) == (either.start_ns(index), "lidar")
        kind = np.dtype(
            {
                "names": [field.name for field in value.fields],
                "formats": [NUMPY_OF_FOXGLOVE[field.type] for field in value.fields],
                "offsets": [field.offset for field in value.fields],
                "itemsize": value.point_stride,
            }
        )
        check_points(np.frombuffer(value.data, kind), either.sweeps[index])
    assert not any("no message has" in line for line in context.notes.lines)


@pytest.mark.parametrize("profile", ["foxglove", "ros2"])
@pytest.mark.parametrize("wanted", ["points", "points_and_ranges", "ranges", "none"])
def test_images_of_points_are_noted(
    untimed: Drive, tmp_path: Path, profile: str, wanted: str
) -> None:
    request = ArchiveRequest("mcap", {"profile": profile, "lidar": wanted})
    (result,) = finalize(untimed.path, [request], out=tmp_path)
    noted = [note for note in result.notes if "lidar" in note]
    expected = ["lidar: its lidar records points: no images"] if "ranges" in wanted else []
    assert noted == expected


def test_edgefirst_has_the_returns(either: Drive, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
    dataset = edgefirst.pack_all([either.path], tmp_path / "out", tolerance_ms=40, accompany="all")
    seen = 0
    with Session(either.path) as session:
        pictures = session.streams["camera"].t_ns
    for frame, t_ns in enumerate(pictures.tolist()):
        near = int(np.abs(either.lidar.t_ns - t_ns).argmin())
        if "lidar.pcd" not in dataset.endings(frame):
            assert abs(int(either.lidar.t_ns[near]) - t_ns) > 40_000_000
            continue
        seen += 1
        sweep = either.sweeps[near]
        check_points(dataset.points(frame, "lidar.pcd"), sweep[clouds.has_return(sweep)])
        pcd = dataset.file(frame, "lidar.pcd")
        assert edgefirst.viewpoint(pcd) == [1, 0, 2, 1, 0, 0, 0]
    assert seen > 3


def test_edgefirst_notes_pictures_that_points_do_not_give(untimed: Drive, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
    images = ["depth", "reflectivity", "projected"]
    options = {"lidar_images": images, "accompany": "all"}
    dataset = edgefirst.pack_all([untimed.path], tmp_path / "out", **options)
    assert dataset.noted("lidar: its lidar records points: no pictures of depth, reflectivity")
    assert {"camera.jpeg", "lidar.pcd", "depth.png"} <= dataset.endings(3)
    assert dataset.picture(3, "depth.png").any()


def test_poses_around_a_sweep_span_its_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Depth in pictures needs the rig's motion until the last point of a sweep."""
    pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
    camera = (
        ", camera: {T_sensor_rig: {translation_m: [1, 0, 1.5], "
        "quaternion_xyzw: [-0.5, 0.5, -0.5, 0.5]}, model: opencv-pinhole, "
        "parameters: {fx: 30, fy: 31, cx: 15.5, cy: 11.5}, resolution: [32, 24]}"
    )
    made = driven_clouds.drive(tmp_path / "drive", clouds.WITH_TIMES, camera)
    spans: list[tuple[bool, bool]] = []
    move = Motion.move

    def check(self: Motion, points: Any, t_ns: Any) -> Any:
        spans.append((self.t_ns[0] <= t_ns.min(), t_ns.max() <= self.t_ns[-1]))
        return move(self, points, t_ns)

    monkeypatch.setattr(Motion, "move", check)
    options = {"lidar_images": ["projected"], "tolerance_ms": 60}
    (_,) = finalize(made.path, [ArchiveRequest("edgefirst", options)], out=tmp_path / "out")
    assert len(spans) > 5
    assert set(spans) == {(True, True)}


def test_vrs_has_the_packed_sweeps(either: Drive, tmp_path: Path) -> None:
    (result,) = finalize(either.path, [ArchiveRequest("vrs")], out=tmp_path)
    with VrsReader(result.files[0]) as vrs:
        lidar = stream_of(vrs, "lidar")
        (metadata,) = vrs.records(lidar, RecordType.CONFIGURATION)
        (channel,) = json.loads(metadata.layout(ConfigurationData).declaration)["channels"]
        found = blocks_of(vrs, "lidar")
    assert lidar.type_id == RecordableType.LIDAR_DATA
    columns = make_columns(channel["columns"])
    assert points_dtype(columns) == either.sweeps[0].dtype
    for (values, blocks), sweep in zip(found, either.sweeps, strict=True):
        assert values["epoch"] == 11
        read = unpack_points(blocks[0].data, sweep.dtype, "")
        assert np.array_equal(read.view("u1"), sweep.view("u1"))


def test_export_gives_pcd_files(either: Drive, tmp_path: Path) -> None:
    with Session(either.path, virtual=True, partial=True) as session:
        made = export(session, Wanted("lidar", "pcd"), tmp_path / "looks")
    assert made.samples == len(made.files) == len(either.sweeps)
    for index, path in enumerate(made.files):
        header, points = read_pcd(path)
        check_points(points, either.sweeps[index])
        first = path.read_bytes().split(b"\n", 1)[0].decode()
        timed = " t " in f" {header['FIELDS']} "
        about = "t: ns after" if timed else "all points:"
        assert first == f"# {about} {either.start_ns(index)} ns since 1970-01-01 UTC"


@pytest.mark.parametrize("format_", ["png", "npz", "jpg"])
def test_export_refuses_what_points_are_not(untimed: Drive, tmp_path: Path, format_: str) -> None:
    with (
        Session(untimed.path, virtual=True, partial=True) as session,
        pytest.raises(UsageError, match=f"lidar: cannot be exported as {format_}; fits: csv, pcd"),
    ):
        export(session, Wanted("lidar", format_), tmp_path / "looks")


@pytest.mark.parametrize("archive", ["ncore", "mcap", "bag", "edgefirst", "vrs"])
@pytest.mark.filterwarnings("error")
def test_any_values_are_packed(tmp_path: Path, archive: str) -> None:
    """Columns of random bytes: infinite and tiny positions, any rings and times."""
    if archive == "edgefirst":
        pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
    rng = np.random.default_rng(5)
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec(), 0.4)
    sweeps = [clouds.make_sweep(COLUMNS, seed) for seed in range(4)]
    for sweep in sweeps:
        sweep[:] = np.frombuffer(rng.bytes(sweep.nbytes), sweep.dtype)
        sweep["t_offset"] //= 50
    made = clouds.add_clouds(builder, sweeps, clouds.cloud_spec(COLUMNS))
    builder.close()
    options = {"profile": "ros2"} if archive == "bag" else {}
    request = ArchiveRequest("mcap" if archive == "bag" else archive, options)
    (result,) = finalize(builder.path, [request], out=tmp_path / "out")
    if archive == "ncore":
        assert result.summary["frames"]["lidar"] == len(made.t_ns)
