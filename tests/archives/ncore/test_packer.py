"""Sessions as NCore sequences: what becomes what, and what is said of odd sessions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.common.errors import ConfigError, SessionError
from recorder.perception.earth import earth_points, local_axes, local_to_earth
from recorder.perception.geometry import rotation_of_rpy, transform
from recorder.perception.lidar.lidar import OusterOptics
from recorder.session.reader import Session
from tests.archives.contract import backward, recovered
from tests.archives.ncore.packer_rig import (
    CALIBRATION,
    LIDAR_JSON,
    Archive,
    add_poses,
    lidar,
    other_channel,
    pack,
    rig,
    still_imu,
)
from tests.perception.test_earth_poses import ORIGIN, add_gnss, even, positions
from tests.session.build import START_NS, Builder, build_session, camera_spec, radar_spec

S = 1_000_000_000


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated rig with labels of every kind."""
    builder = rig(tmp_path_factory.mktemp("root") / "drive")
    path = builder.close()
    (path / "calibration.yaml").write_text(CALIBRATION)
    t_ns = START_NS + np.arange(-5, 30, dtype=np.int64) * 50_000_000
    add_poses(path, t_ns, np.stack([(t_ns - START_NS) / S] * 3, axis=1), "_pose")
    write_labels(path)
    return path


def write_labels(path: Path) -> None:
    def lines(file: str, head: dict[str, Any], labels: list[dict[str, Any]]) -> None:
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_text("".join(json.dumps(line) + "\n" for line in [head, *labels]))

    box = {"track": "car_1", "class": "car", "frame": "rig", "center_m": [5, 0, 1],
           "size_m": [4, 2, 1.5], "quaternion_xyzw": [0, 0, 0.6, 0.8]}  # fmt: skip
    head = {"format": "recorder-cuboids", "version": 1, "source": "manual"}
    cuboids = [
        {"t_ns": START_NS + S // 2, **box},
        {"t_ns": START_NS + 9 * S, **box},
        {"t_ns": START_NS + S // 2, **box, "frame": "elsewhere"},
    ]
    lines("_cuboids/hand.jsonl", head, cuboids)
    head = {"format": "recorder-boxes", "version": 1, "source": "net", "camera": "camera"}
    boxes = [
        {"t_ns": START_NS, "frame": frame, "track": "a", "class": "car", "box_px": [1, 2, 3, 4]}
        for frame in (0, 2, 2)
    ]
    lines("_labels/camera.jsonl", head, boxes)
    (path / "_masks/camera").mkdir(parents=True)
    cv2.imwrite(str(path / "_masks/camera/ego.png"), np.eye(24, 32, dtype=np.uint8) * 255)
    head = {"format": "recorder-point-clouds", "version": 1, "frame": "world"}
    cloud = {"t_ns": START_NS + S // 2, "file": "0.npz"}
    lines("_point_clouds/map/index.jsonl", head, [cloud])
    xyz, label = np.arange(12).reshape(4, 3), np.arange(4, dtype=np.uint8)
    np.savez(path / "_point_clouds/map/0.npz", xyz=xyz, label=label)
    folder = path / "_camera"
    folder.mkdir()
    with Session(path) as opened:
        ts = opened.streams["camera"].t_ns[[1, 4]] / 1e9
    ts.tofile(folder / "ts")
    (np.arange(2)[:, None, None] + np.zeros((2, 24, 32))).astype(np.uint8).tofile(
        folder / "segment"
    )
    meta = {
        "ts": {"format": "raw", "type": "f8", "shape": [], "desc": ""},
        "segment": {"format": "raw", "type": "u1", "shape": [24, 32], "desc": "classes"},
    }
    (folder / "meta.json").write_text(json.dumps(meta))


def add_sets(path: Path) -> None:
    """A second set of boxes in space and in pictures, and a cloud whose header describes it."""
    lines = {
        "_cuboids/net.jsonl": [
            {"format": "recorder-cuboids", "version": 1, "source": "net"},
            {"t_ns": START_NS + S // 2, "track": "car_9", "class": "car", "frame": "rig",
             "center_m": [6, 0, 1], "size_m": [4, 2, 1.5], "quaternion_xyzw": [0, 0, 0, 1],
             "score": 0.5, "status": "draft"},
        ],
        "_labels/camera@net.jsonl": [
            {"format": "recorder-boxes", "version": 1, "source": "net"},
            {"t_ns": START_NS, "frame": 1, "track": "b", "class": "car", "box_px": [5, 6, 7, 8]},
        ],
        "_point_clouds/model/index.jsonl": [
            {"format": "recorder-point-clouds", "version": 1, "frame": "camera", "unit": "UNITLESS",
             "attributes": {"normal": {"transform": "DIRECTION"}, "goal": {"transform": "point"}},
             "data": ["bounds"]},
            {"t_ns": START_NS + S // 2, "file": "0.npz", "metadata": {"epoch": 3}},
        ],
    }  # fmt: skip
    for name, documents in lines.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("".join(json.dumps(line) + "\n" for line in documents))
    xyz = np.arange(6, dtype=np.float32).reshape(2, 3)
    arrays: dict[str, Any] = {
        "normal": np.eye(3, dtype=np.float32)[1:],
        "goal": xyz + 1,
        "label": np.ones(2, "u1"),
        "bounds": np.array([[0.0, 5.0]]),
    }
    np.savez(path / "_point_clouds/model/0.npz", xyz=xyz, **arrays)


@pytest.fixture(scope="module")
def packed(session: Path) -> Archive:
    return pack(session)


@pytest.fixture
def opened(session: Path) -> Any:
    with Session(session, virtual=True) as opened:
        yield opened


def test_interval_holds_everything(packed: Archive, opened: Session) -> None:
    interval = packed.meta["sequence_timestamp_interval_us"]
    stamps = [opened.streams[name].t_ns for name in ("camera", "lidar", "radar", "imu")]
    assert interval["stop"] - 1 == max(int(t[-1]) for t in stamps) // 1000
    starts = [packed.times_us(name)[0, 0] for name in ("cameras/camera", "lidars/lidar")]
    assert interval["start"] == min(*starts, packed.times_us("radars/radar")[0, 0])
    times = packed.pose_times_us()
    assert (times[0], times[-1]) == (interval["start"], interval["stop"] - 1)
    assert (np.diff(times) > 0).all()


def test_pictures_are_untouched(packed: Archive, opened: Session) -> None:
    camera = opened.streams["camera"]
    ends = packed.times_us("cameras/camera")[:, 1]
    assert np.array_equal(ends, camera.t_ns // 1000)
    for index, end in enumerate(ends):
        key = f"cameras/camera/frames/{end}/image/0"
        assert packed.keys[key] == camera.channels["video.avi"].encoded(index)


def test_what_is_generic_data_is_told_with_its_units(packed: Archive) -> None:
    metadata = packed.attributes("poses/default")["generic_meta_data"]
    assert metadata["generic_streams"].keys() == {"imu"}
    assert metadata["generic_streams"]["imu"]["channels"]["acc"]["unit"] == "m/s^2"


def test_sets_of_labels_are_instances(session: Path, tmp_path: Path) -> None:
    """All of them were in one, every object twice."""
    path = shutil.copytree(session, tmp_path / "s")
    add_sets(path)
    packed = pack(path)
    found = {}
    for instance in ("default", "net"):
        (cuboid,) = packed.attributes(f"cuboids/{instance}/cuboids")["cuboid_track_observations"]
        sets = packed.attributes(f"cuboids/{instance}")["generic_meta_data"]["sets"]
        found[instance] = cuboid["track_id"], list(sets)
    assert found == {"default": ("car_1", ["hand"]), "net": ("car_9", ["net"])}
    assert packed.noted("_cuboids/hand.jsonl: is the instance default") == 1
    assert packed.noted("_cuboids/net.jsonl: is the instance net") == 1
    for key in ("score", "status"):
        assert packed.noted(f"_cuboids/net.jsonl: {key} of 1 labels left out") == 1
    end = packed.times_us("cameras/camera")[1, 1]
    frame = packed.attributes(f"cameras/camera/frames/{end}/generic_data")
    assert [len(frame[key]) for key in ("boxes", "boxes@net")] == [0, 1]
    metadata = packed.attributes("cameras/camera")["generic_meta_data"]
    assert metadata["boxes@net"]["source"] == "net"
    other = pack(path, cuboids="net")
    assert "cuboids/hand/.zattrs" in other.keys
    observations = other.attributes("cuboids/default/cuboids")["cuboid_track_observations"]
    assert observations[0]["track_id"] == "car_9"
    (path / "_cuboids/net.jsonl").rename(path / "_cuboids/default.jsonl")
    own = pack(path)
    assert own.noted("_cuboids/default.jsonl: is the instance default") == 1
    assert own.noted("_cuboids/hand.jsonl: is the instance hand") == 1
    with pytest.raises(SessionError, match="names another set as default"):
        pack(path, cuboids="hand")


def test_clouds_are_as_their_header_describes_them(session: Path, tmp_path: Path) -> None:
    path = shutil.copytree(session, tmp_path / "s")
    add_sets(path)
    packed = pack(path)
    for place in ("point_clouds/model", "point_clouds/model/pcs"):
        attributes = packed.attributes(place)
        assert attributes["coordinate_unit"] == "UNITLESS"
        described = attributes["attribute_schemas"]
        kinds = {name: about["transform_type"] for name, about in described.items()}
        assert kinds == {"normal": "DIRECTION", "goal": "POINT", "label": "INVARIANT"}
    cloud = packed.attributes("point_clouds/model/pcs/0")
    assert cloud["generic_meta_data"] == {"epoch": 3}
    assert packed.array("point_clouds/model/pcs/0/generic_data/bounds").tolist() == [[0, 5]]


def test_lidar_rays(packed: Archive, opened: Session) -> None:
    stream = opened.streams["lidar"]
    optics = OusterOptics.of_metadata(LIDAR_JSON, "")
    for index, (_, end) in enumerate(packed.times_us("lidars/lidar")):
        data = stream.sample(index)
        ranges = data["rng"].astype(np.uint32) + data["rng_far"]
        rays = optics.rays([ranges], [data["rfl"]])
        frame = f"lidars/lidar/frames/{end}"
        stored = packed.array(f"{frame}/ray_bundle/direction")
        assert np.array_equal(stored, rays.direction)
        stored = packed.array(f"{frame}/ray_bundle_returns/distance_m")
        assert np.array_equal(stored, rays.distance_m, equal_nan=True)
        stored = packed.array(f"{frame}/generic_data/near_ir")
        assert np.array_equal(stored.reshape(data["nir"].shape), data["nir"])
        stored = packed.array(f"{frame}/ray_bundle_returns/ambient")
        there = ~np.isnan(rays.distance_m[0])
        assert there.any() and np.array_equal(stored[0, there], data["nir"].reshape(-1)[there])
        assert np.isnan(stored[0, ~there]).all()
    model = packed.attributes("intrinsics/default/lidars/lidar")["lidar_model_parameters"]
    assert model["row_elevations_rad"][0] == pytest.approx(np.radians(8))
    assert model["spinning_frequency_hz"] == 10


def test_static_poses_and_intrinsics(packed: Archive) -> None:
    static = packed.attributes("poses/default/static_poses")
    camera = np.array(static["('camera', 'rig')"]["pose"])
    assert np.allclose(camera[:3, 3], (1, 0, 1.5))
    assert np.allclose(camera[:3, :3] @ (0, 0, 1), (1, 0, 0))  # it looks forward
    parameters = packed.attributes("intrinsics/default/cameras/camera")["camera_model_parameters"]
    assert parameters["principal_point"] == [16.0, 12.0]  # of half pixels, there
    assert parameters["radial_coeffs"][0] == pytest.approx(0.1)
    assert packed.noted("lidar", "not in the calibration") == 1


def test_poses_come_from_the_pose_sensor(packed: Archive) -> None:
    poses = packed.attributes("poses/default/dynamic_poses")["('rig', 'world')"]
    matrices, times = np.array(poses["poses"]), np.array(poses["timestamps_us"])
    expected = (times * 1000 - START_NS) / S
    assert np.abs(matrices[:, 0, 3] - expected).max() < 2e-6  # stamps are whole microseconds
    trajectory = packed.attributes("poses/default")["generic_meta_data"]["trajectory"]
    assert (trajectory["source"], trajectory["measured"]) == ("sensor _pose", True)


def test_imu_rows(packed: Archive, opened: Session) -> None:
    imu = opened.streams["imu"]
    assert np.array_equal(packed.array("poses/default/generic_data/imu.t_ns"), imu.t_ns)
    for name, values in imu.read().items():
        assert np.array_equal(packed.array(f"poses/default/generic_data/imu.{name}"), values)


def test_labels(packed: Archive, opened: Session) -> None:
    (cuboid,) = packed.attributes("cuboids/default/cuboids")["cuboid_track_observations"]
    assert (cuboid["track_id"], cuboid["source"]) == ("car_1", "GT_ANNOTATION")
    yaw = cuboid["bbox3"]["rot"][2]
    assert yaw == pytest.approx(2 * np.arctan2(0.6, 0.8))
    assert packed.noted("1 cuboids lie outside") == 1
    assert packed.noted("1 cuboids are relative to no sensor") == 1
    ends = packed.times_us("cameras/camera")[:, 1]
    boxes = [
        packed.attributes(f"cameras/camera/frames/{end}/generic_data")["boxes"] for end in ends
    ]
    assert [len(found) for found in boxes[:4]] == [1, 0, 2, 0]
    assert boxes[0][0]["box_px"] == [1, 2, 3, 4]
    mask = packed.keys["masks/default/cameras/camera/ego/0"]
    assert mask == (opened.path / "_masks/camera/ego.png").read_bytes()
    assert packed.array("point_clouds/map/pcs/0/xyz")[3].tolist() == [9, 10, 11]
    assert packed.array("point_clouds/map/pcs/0/label").tolist() == [0, 1, 2, 3]
    labels = "camera_labels/segmentation.semantic@camera"
    times = packed.array(f"{labels}/timestamps_us")
    assert times.tolist() == [ends[1], ends[4]]
    image = cv2.imdecode(packed.array(f"{labels}/labels/{ends[4]}/data"), cv2.IMREAD_UNCHANGED)
    assert image is not None
    assert (image == 1).all()


def test_oddities_stand_in_the_archive_too(packed: Archive) -> None:
    notes = packed.attributes("poses/default")["generic_meta_data"]["notes"]
    assert notes == list(packed.result.notes)
    assert len(set(notes)) == len(notes)


# Odd sessions


def test_without_calibration_or_poses(tmp_path: Path) -> None:
    packed = pack(rig(tmp_path / "s", 0.3).close())
    assert packed.noted("has no calibration") == 1
    assert packed.noted("camera", "placeholder intrinsics") == 1
    assert packed.attributes("intrinsics/default/cameras/camera")["placeholder"] is True
    trajectory = packed.attributes("poses/default")["generic_meta_data"]["trajectory"]
    assert (trajectory["source"], trajectory["measured"]) == ("orientation of imu", False)


def test_cameras_that_are_not_calibrated_look_ahead(tmp_path: Path) -> None:
    """The camera's z is forward, x right, y down; other sensors have the rig's axes."""
    packed = pack(rig(tmp_path / "s", 0.3).close())
    static = packed.attributes("poses/default/static_poses")
    camera, lidar_pose = (
        np.array(static[f"('{name}', 'rig')"]["pose"]) for name in ("camera", "lidar")
    )
    axes = camera[:3, :3].T
    assert np.allclose(axes, [[0, -1, 0], [0, 0, -1], [1, 0, 0]])  # x, y, z of the camera
    assert np.array_equal(camera[:3, 3], [0, 0, 0])
    assert np.array_equal(lidar_pose, np.eye(4))
    assert packed.noted("session", "has no calibration", "cameras look ahead") == 1


def test_imu_orientation_goes_through_its_mounting(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    made = builder.add(still_imu(), 0.5)
    path = builder.close()
    (path / "calibration.yaml").write_text(CALIBRATION)
    poses = pack(path).attributes("poses/default/dynamic_poses")["('rig', 'world')"]
    first = np.array(poses["poses"])[0, :3, :3]
    expected = rotation_of_rpy(made.data["rot"][0]) @ np.diag([-1.0, -1.0, 1.0])
    assert np.allclose(first, expected, atol=1e-6)
    assert np.array(poses["poses"])[:, :3, 3].any() == np.False_


def test_positions_place_the_world_on_earth(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(still_imu(), count=91)
    even(builder, "imu", 91, 10_000_000)
    fixes = positions(10)
    add_gnss(builder, fixes)
    packed = pack(builder.close())
    assert packed.noted("poses") == 0
    to_earth = packed.attributes("poses/default/static_poses")["('world', 'world_global')"]
    assert to_earth["dtype"] == "float64"
    poses = packed.attributes("poses/default/dynamic_poses")["('rig', 'world')"]
    ends = (np.array(to_earth["pose"]) @ np.array(poses["poses"]))[[0, -1], :3, 3]
    assert np.allclose(ends, earth_points(fixes[[0, -1]]), rtol=0, atol=1e-5)
    trajectory = packed.attributes("poses/default")["generic_meta_data"]["trajectory"]
    assert trajectory["source"] == "positions of imu_gnss, orientation of imu"
    rows = packed.array("poses/default/generic_data/imu_gnss.pos")
    assert np.array_equal(rows, fixes)


def test_positions_place_another_trajectory_on_earth(tmp_path: Path) -> None:
    """Poses of `_pose` in a world of their own: turned by nothing, a kilometre to the east."""
    builder = Builder(tmp_path / "s")
    builder.add(still_imu(), count=301)
    even(builder, "imu", 301, 10_000_000)
    builder.add(camera_spec(), 3.0)
    np.zeros((301, 3), "<f4").tofile(builder.path / "imu/rot")
    add_gnss(builder, positions(31))
    t_ns = START_NS + np.arange(31, dtype=np.int64) * 100_000_000
    north_up = (earth_points(positions(31)) - earth_points(positions(1))) @ local_axes(ORIGIN)
    add_poses(builder.path, t_ns, north_up - (1000, 0, 0), "_pose")
    packed = pack(builder.close())
    pose = packed.attributes("poses/default/static_poses")["('world', 'world_global')"]["pose"]
    expected = local_to_earth(ORIGIN) @ transform(np.eye(3), np.array([1000.0, 0, 0]))
    # The axes of the earth turn by a millionth of a radian over these 30 m.
    assert np.allclose(pose, expected, rtol=0, atol=0.01)
    known = packed.attributes("poses/default")["generic_meta_data"]["world_global"]
    assert known["positions"] == "imu_gnss" and known["residual_m"] < 0.01


@pytest.mark.parametrize("spec", [camera_spec(), lidar(), radar_spec(), still_imu()])
def test_one_sensor_only(tmp_path: Path, spec: Any) -> None:
    packed = pack(build_session(tmp_path / "s", spec, count=3).path)
    assert packed.result.summary["frames"][spec.name] == 3


def test_a_single_sample(tmp_path: Path) -> None:
    packed = pack(build_session(tmp_path / "s", camera_spec(), count=1).path, poses="identity")
    assert len(packed.times_us("cameras/camera")) == 1
    assert len(packed.pose_times_us()) == 2


def test_late_streams_and_early_ends(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 3.0)
    builder.add(still_imu(), 1.0, offset_ns=S)
    packed = pack(builder.close())
    assert packed.noted("imu: begins 1.0") == 1
    assert packed.noted("imu: ends 0.9") == 1
    assert packed.noted("poses: held for 1.0", "before the first of imu") == 1
    assert packed.noted("poses: held for 0.9", "after the last of imu") == 1
    interval = packed.meta["sequence_timestamp_interval_us"]
    times = packed.pose_times_us()
    assert (times[0], times[-1]) == (interval["start"], interval["stop"] - 1)


def test_equal_and_backward_times(tmp_path: Path) -> None:
    packed = pack(backward(tmp_path / "s"))
    assert len(packed.times_us("cameras/camera")) == 8
    assert packed.noted("camera: 1 samples left out: they end in the same microsecond") == 1
    assert packed.noted("camera: 1 samples left out: their times go backward") == 1


def test_a_recovered_session_with_gaps(tmp_path: Path) -> None:
    packed = pack(recovered(tmp_path / "s"))
    assert packed.noted("session: recovered") == 1
    assert packed.noted("camera: lost samples: 4 (buffer)") == 1
    assert packed.meta["generic_meta_data"]["lost"]["camera"]["counted"] == {"buffer": 4}


def test_streams_of_other_kinds(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.2)
    made = builder.add(other_channel("pos", "f8", (3,))("gnss"), 0.5)
    builder.add(other_channel("volume", "f4", (64, 64))("sonar"), 0.5)
    packed = pack(builder.close())
    stored = packed.array("poses/default/generic_data/gnss.pos")
    assert np.array_equal(stored, made.data["pos"])
    assert packed.noted("sonar: unsupported kind of stream") == 1


def pack_column_times(path: Path, t_col: Any) -> Archive:
    """Pack a lidar's sweeps with these device times of columns, u8 [sweeps, 64]."""
    builder = Builder(path / "s")
    made = builder.add(lidar(), count=len(t_col))
    rebuilt = Builder(path / "t")
    made.data["t_col"][:] = t_col
    rebuilt.streams, rebuilt.epochs = builder.streams, builder.epochs
    rebuilt.sensors = builder.sensors
    rebuilt._write(made)
    return pack(rebuilt.close())


def test_a_sweep_that_begins_before_the_one_before_it(tmp_path: Path) -> None:
    """Its start is moved, and no ray is measured before it; a sweep without times is noted."""
    columns = np.arange(64, dtype=np.uint64)[None]
    steps = np.array([1_000_000, 0, 4_000_000], np.uint64)[:, None]
    packed = pack_column_times(tmp_path, columns * steps + (steps > 0))
    assert packed.noted("lidar: sweeps without column times of the device") == 1
    assert packed.noted("lidar: 1 samples began before the one before them") == 1
    spans = packed.times_us("lidars/lidar")
    assert spans[2, 0] == spans[1, 0] + 1
    for start, end in spans.tolist():
        times = packed.array(f"lidars/lidar/frames/{end}/ray_bundle/timestamp_us")
        assert (times.min(), times.max()) == (start, end)


def test_missing_columns_have_no_return_and_a_time(tmp_path: Path) -> None:
    t_col = np.arange(64, dtype=np.uint64) * 1_000_000 + 5
    t_col[10:20] = 0
    packed = pack_column_times(tmp_path, np.tile(t_col, (2, 1)))
    end = packed.times_us("lidars/lidar")[0, 1]
    times = packed.array(f"lidars/lidar/frames/{end}/ray_bundle/timestamp_us").reshape(8, 64)
    assert (np.diff(times[0].astype(np.int64)) == 1000).all()
    assert times[0, -1] == end


def test_a_calibration_of_another_resolution(session: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(CALIBRATION.replace("[32, 24]", "[64, 48]"))
    (result,) = finalize(session, [ArchiveRequest("ncore")], out=tmp_path, calibration=other)
    assert any("calibrated for 64x48, but the pictures have 32x24" in n for n in result.notes)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("fx: 30,", "sensors.camera.parameters.fx: missing"),
        ("k1: 0.1", "sensors.camera.parameters.q: unknown key"),
        ("model: opencv-pinhole", "sensors.camera.model: 'pinhole' is not one of"),
        ("[0, 0, 1, 0]", r"sensors.imu.T_sensor_rig.quaternion_xyzw: needs 4 numbers"),
    ],
)
def test_a_wrong_calibration_names_file_line_and_key(
    session: Path, tmp_path: Path, wrong: str, words: str
) -> None:
    right = {"fx: 30,": "", "k1: 0.1": "q: 1", "[0, 0, 1, 0]": "[0, 1]"}
    other = tmp_path / "other.yaml"
    other.write_text(CALIBRATION.replace(wrong, right.get(wrong, "model: pinhole")))
    with pytest.raises(ConfigError, match=rf"other.yaml:\d+: {words}"):
        list(finalize(session, [ArchiveRequest("ncore")], out=tmp_path, calibration=other))
