"""Sessions as EdgeFirst datasets: what is in them, what is added, what is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from recorder.archives import ArchiveError
from recorder.contract.errors import ConfigError, UsageError
from recorder.contract.streams import ChannelSpec, StreamSpec
from recorder.finalizer import Step, collect, prepare
from recorder.processing.lidar import OusterOptics
from recorder.processing.radar import RadarGeometry, RadarProcessor
from recorder.session.reader import Session
from tests.archives.edgefirst.rig import Dataset, decode, pack, pack_all, read, viewpoint
from tests.archives.ncore.packer_rig import (
    CALIBRATION,
    LIDAR_JSON,
    add_poses,
    lidar,
    rig,
    still_imu,
)
from tests.session.build import (
    HEIGHT,
    RADAR_JSON,
    START_NS,
    WIDTH,
    Builder,
    camera_spec,
    imu_spec,
    radar_spec,
)

pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")

BASE = "rig-1_2024_06_01_10_00_00"
FULL_CALIBRATION = (
    CALIBRATION
    + """
  lidar: {T_sensor_rig: {translation_m: [1, 0, 2], quaternion_xyzw: [0, 0, 0, 1]}}
  radar: {T_sensor_rig: {translation_m: [3.5, 0, 0.5], quaternion_xyzw: [0, 0, 1, 0]}}
"""
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = rig(tmp_path_factory.mktemp("rig") / "drive", 0.5)
    (builder.path / "calibration.yaml").write_text(FULL_CALIBRATION)
    return builder.close()


@pytest.fixture(scope="module")
def dataset(session: Path) -> Dataset:
    return pack(session, tolerance_ms=40)


def test_layout_and_names(session: Path, dataset: Dataset) -> None:
    root = session / "_archives/edgefirst/drive"
    assert dataset.result.files == (root,)
    assert {path.name for path in root.iterdir()} == {"drive.arrow", "drive.zip"}
    assert dataset.sequences == [BASE]
    assert dataset.endings(3) == {"camera.jpeg", "lidar.pcd", "radar.pcd", "radar.png"}
    assert {row["frame"] for row in dataset.rows} == set(range(15))
    assert dataset.result.summary["frames"] == {BASE: 15}


def test_what_goes_with_a_picture_is_near(session: Path, dataset: Dataset) -> None:
    with Session(session) as read:
        camera, sweeps = read.streams["camera"], read.streams["lidar"]
        for frame, t_ns in enumerate(camera.t_ns.tolist()):
            near = int(np.abs(sweeps.t_ns - t_ns).argmin())
            close = abs(int(sweeps.t_ns[near]) - t_ns) <= 40_000_000
            assert ("lidar.pcd" in dataset.endings(frame)) is close
            if close:
                first = dataset.points(frame, "lidar.pcd")["intensity"]
                reflectivity = sweeps.sample(near, ["rfl", "rng", "rng_far"])
                hit = (reflectivity["rng"] + reflectivity["rng_far"]) > 0
                assert np.array_equal(first, reflectivity["rfl"][hit])
    assert dataset.noted("lidar: ", "of 15 samples of camera have none within 40 ms")


def test_pictures_are_those_recorded(session: Path, dataset: Dataset) -> None:
    with Session(session) as read:
        pictures = read.streams["camera"].channels["video.avi"]
        for frame in (0, 7):
            recorded = pictures.encoded(frame)
            scan = recorded.index(b"\xff\xdb")
            assert dataset.file(frame, "camera.jpeg").endswith(recorded[scan:])
            assert b"Exif\0\0II*\0" in dataset.file(frame, "camera.jpeg")[:64]


def test_pictures_as_png(session: Path, dataset: Dataset, tmp_path: Path) -> None:
    (session / "calibration.yaml").rename(tmp_path / "c.yaml")
    try:
        made = pack_all([session], tmp_path / "png", images="png", every=5)
    finally:
        (tmp_path / "c.yaml").rename(session / "calibration.yaml")
    assert {row["frame"] for row in made.rows} == {0, 5, 10}
    assert "camera.png" in made.endings(5)
    assert np.array_equal(
        made.picture(5, "camera.png"),
        decode(dataset.file(5, "camera.jpeg")),
    )
    assert made.noted("has no calibration") == 1


def test_lidar_points(session: Path, dataset: Dataset) -> None:
    with Session(session) as read:
        data = read.streams["lidar"].sample(0, ["rng", "rng_far", "rfl"])
        t_ns = read.streams["lidar"].t_ns[0]
        frame = int(np.abs(read.streams["camera"].t_ns - t_ns).argmin())
    ranges = data["rng"].astype(np.uint32) + data["rng_far"]
    rays = OusterOptics.of_metadata(LIDAR_JSON, "").rays([ranges], [data["rfl"]])
    expected = (rays.direction * rays.distance_m[0][:, None])[ranges.reshape(-1) > 0]
    points = dataset.points(frame, "lidar.pcd")
    found = np.stack([points[name] for name in ("x", "y", "z")], axis=1)
    assert np.allclose(found, expected, atol=1e-4)
    assert viewpoint(dataset.file(frame, "lidar.pcd")) == [1, 0, 2, 1, 0, 0, 0]


def test_points_in_the_rig(session: Path, dataset: Dataset, tmp_path: Path) -> None:
    made = pack_all([session], tmp_path / "inrig", points_frame="rig", tolerance_ms=40)
    for ending, shift in (("lidar.pcd", (1, 0, 2)), ("radar.pcd", (3.5, 0, 0.5))):
        one, other = dataset.points(3, ending), made.points(3, ending)
        sign = -1 if ending == "radar.pcd" else 1  # the radar looks back
        assert np.allclose(other["x"], sign * one["x"] + shift[0], atol=1e-4)
        assert np.allclose(other["z"], one["z"] + shift[2], atol=1e-4)
        assert viewpoint(made.file(3, ending)) == [0, 0, 0, 1, 0, 0, 0]


def radar_of(session: Path) -> tuple[RadarProcessor, Any, int]:
    """Processor, raw samples and picture of the radar's third frame."""
    with Session(session) as read:
        stream = read.streams["radar"]
        iq = stream.sample(2, ["iq"])["iq"]
        frame = int(np.abs(read.streams["camera"].t_ns - stream.t_ns[2]).argmin())
    return RadarProcessor(RadarGeometry.of_metadata(RADAR_JSON, "", (8, 2, 4, 128))), iq, frame


def test_radar_cubes_and_points(session: Path, dataset: Dataset) -> None:
    processor, iq, frame = radar_of(session)
    spectrum = np.fft.fftshift(processor.cube(iq), axes=0).transpose(1, 2, 3, 0)
    cube = dataset.cube(frame, 2, 4)
    assert cube.shape == (2, 4, 64, 8, 2)
    full = np.stack([spectrum.real, spectrum.imag], axis=-1) * 16
    inside = np.abs(full) < 32_000  # this noise is louder than any radar's
    assert np.abs(cube - full)[inside].max() <= 0.51
    assert (np.sign(cube) == np.sign(full))[~inside].all()
    found, points = processor.detect(iq), dataset.points(frame, "radar.pcd")
    assert points.dtype.names == ("x", "y", "z", "speed", "power", "noise", "rcs")
    assert len(points) == len(found) > 0
    assert np.allclose(points["x"], found.range_m, atol=1e-3)  # no antennas: straight ahead
    assert np.allclose(points["speed"], found.velocity_m_s, atol=1e-3)
    assert np.allclose(points["power"] - points["noise"], found.snr_db, atol=1e-2)
    assert dataset.noted("radar: ", "were cut: edgefirst.radar_gain is high") == 1
    assert dataset.told["sessions"][0]["radar"]["shape"] == [2, 4, 64, 8]


def test_cropped_cubes(session: Path, tmp_path: Path) -> None:
    options = {"radar_gain": 0.25, "png_level": 6}
    whole = pack_all([session], tmp_path / "whole", **options)
    small = pack_all([session], tmp_path / "small", radar_ranges=10, radar_doppler=4, **options)
    frame = radar_of(session)[2]
    cube = whole.cube(frame, 2, 4)
    assert np.array_equal(small.cube(frame, 2, 4), cube[:, :, :10, 2:6])
    assert small.told["sessions"][0]["radar"]["doppler_zero"] == 2
    assert not whole.noted("were cut")


def test_pictures_of_the_lidar(session: Path, tmp_path: Path) -> None:
    shifted = json.loads(LIDAR_JSON)
    shifted["lidar_data_format"]["pixel_shift_by_row"] = [2, -1] * 4
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.1)
    made = builder.add(replace(lidar(), files={"lidar.json": json.dumps(shifted)}), 0.1)
    (builder.path / "calibration.yaml").write_text(FULL_CALIBRATION)
    data = pack(
        builder.close(), lidar_images=["depth", "reflectivity", "projected"], tolerance_ms=100
    )
    assert data.endings(0) == {
        "camera.jpeg", "lidar.pcd", "lidar.png", "lidar.jpeg", "depth.png",
    }  # fmt: skip
    metres = (made.data["rng"][0].astype(float) + made.data["rng_far"][0]) / 1000
    turned = np.stack([np.roll(row, shift) for row, shift in zip(metres, [2, -1] * 4, strict=True)])
    steps = np.minimum(np.rint(turned * 256), 65535)
    assert np.array_equal(data.picture(0, "lidar.png"), steps)
    assert data.picture(0, "lidar.jpeg").shape == steps.shape
    depth = data.picture(0, "depth.png")
    assert depth.shape == (HEIGHT, WIDTH)
    assert depth.dtype == np.uint16
    points = data.points(0, "lidar.pcd")
    ahead = points["x"] + 1 - 1 > 0  # lidar and camera both sit 1 m before the axle
    assert 0 < np.count_nonzero(depth) <= np.count_nonzero(ahead)
    assert set((depth[depth > 0]).tolist()) <= set(
        np.minimum(np.rint(points["x"][ahead].astype(float) * 256), 65535).tolist()
    )


def labelled(path: Path) -> Path:
    """A session with every kind of label, its rig turning at the spot."""
    builder = rig(path, 0.5)
    (builder.path / "calibration.yaml").write_text(FULL_CALIBRATION)
    camera_t = builder.streams["camera"].t_ns.tolist()
    sweep_t = builder.streams["lidar"].t_ns.tolist()
    boxes = [
        {"format": "recorder-boxes", "version": 1, "source": "manual", "camera": "camera"},
        {"t_ns": camera_t[2], "frame": 2, "track": "car_1", "class": "car",
         "box_px": [-0.5, 5.5, 16, 12], "occluded": 0.3},
        {"t_ns": camera_t[2], "class": "tree", "polygon_px": [[[0, 0], [31, 0], [31, 23]]]},
        {"t_ns": camera_t[4], "frame": 4, "track": "p", "class": "person", "mask": "p.png"},
    ]  # fmt: skip
    cuboids = [
        {"format": "recorder-cuboids", "version": 1, "source": "manual"},
        *(
            {"t_ns": t, "track": "car_1", "class": "car", "frame": frame,
             "center_m": [10 + k, 2, 0.75], "size_m": [4, 2, 1.5],
             "quaternion_xyzw": [0, 0, np.sqrt(0.5), np.sqrt(0.5)]}
            for k, t in enumerate(sweep_t) for frame in ("rig",)
        ),
    ]  # fmt: skip
    for folder, name, lines in (
        ("_labels", "camera.jsonl", boxes),
        ("_cuboids", "a.jsonl", cuboids),
    ):
        (builder.path / folder).mkdir()
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (builder.path / folder / name).write_text(text)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[3:9, 4:14] = 255
    for place in ("_labels/camera/p.png", "_masks/camera/ego.png"):
        (builder.path / place).parent.mkdir(parents=True)
        assert cv2.imwrite(str(builder.path / place), mask)
    t_ns = START_NS + np.arange(0, 60, dtype=np.int64) * 10_000_000
    add_poses(builder.path, t_ns, np.zeros((60, 3)), "_pose")
    return builder.close()


def test_annotations(tmp_path: Path) -> None:
    data = pack(labelled(tmp_path / "s"))
    rows = data.rows
    assert {row["frame"] for row in rows} == set(range(15))
    masks = [row for row in rows if row["ignore"]]
    assert len(masks) == 15
    assert {row["object_id"] for row in masks} == {f"{BASE}/ego"}
    grey = decode(masks[0]["mask"])
    assert np.argwhere(grey)[[0, -1]].tolist() == [[3, 4], [8, 13]]
    assert masks[0]["mask"][24] == 1  # bits of a pixel
    (car,) = (row for row in rows if row["frame"] == 2 and row["object_id"] == f"{BASE}/car_1")
    assert np.allclose(car["box2d"], [0.25, 0.5, 0.5, 0.5])
    # Turned by 90 degrees, it is 2 m long and 4 m wide along the rig's axes.
    assert np.allclose(car["box3d"], [11, 2, 0.75, 2, 4, 1.5])
    assert (car["label"], car["occlusion"], car["ignore"]) == ("car", 1, False)
    (tree,) = (row for row in rows if row["label"] == "tree")
    assert np.allclose(
        tree["polygon"], [[0.5 / 32, 0.5 / 24, 31.5 / 32, 0.5 / 24, 31.5 / 32, 23.5 / 24]]
    )
    assert (tree["frame"], tree["object_id"], tree["box2d"]) == (2, None, None)
    (person,) = (row for row in rows if row["label"] == "person")
    assert person["mask"][24] == 1
    assert {row["label_index"] for row in rows} == {None, 0, 1, 2}
    assert all(row["pose"] == [0, 0, 0] for row in rows)
    assert all(row["size"] == [WIDTH, HEIGHT] for row in rows)


def test_annotations_in_the_missions_schema(tmp_path: Path) -> None:
    data = pack(labelled(tmp_path / "s"), schema="mission")
    (person,) = (row for row in data.rows if row["label"] == "person")
    outline = np.array(person["mask"]).reshape(-1, 2) * (WIDTH, HEIGHT) - 0.5
    assert np.allclose([outline.min(axis=0), outline.max(axis=0)], [[4, 3], [13, 8]], atol=1e-5)
    (tree,) = (row for row in data.rows if row["label"] == "tree")
    assert len(tree["mask"]) == 6
    assert "ignore" not in data.table.schema.names
    assert len({row["frame"] for row in data.rows}) == 15


def test_a_sample_without_labels_has_one_row(dataset: Dataset) -> None:
    assert [row["frame"] for row in dataset.rows] == list(range(15))
    assert {row["group"] for row in dataset.rows} <= {"train", "val"}
    assert "label" not in dataset.table.schema.names


def segmented(path: Path) -> Path:
    builder = Builder(path)
    builder.add(camera_spec(), 0.1)
    folder = builder.path / "_camera"
    folder.mkdir()
    classes = np.arange(3)[:, None, None] + np.zeros((3, HEIGHT, WIDTH), np.uint8)
    classes.astype(np.uint8).tofile(folder / "segment")
    meta = {"segment": {"format": "raw", "type": "u1", "shape": [HEIGHT, WIDTH], "desc": ""}}
    (folder / "meta.json").write_text(json.dumps(meta))
    return builder.close()


def test_classes_of_pixels(tmp_path: Path) -> None:
    path = segmented(tmp_path / "s")
    left_out = pack(path)
    assert left_out.noted("_camera: ", "edgefirst.masks=classes packs them") == 1
    data = pack(path, masks="classes")
    for row in data.rows:
        grey = decode(row["mask"])
        assert (grey == row["frame"]).all()
    metadata = data.table.schema.metadata
    assert metadata[b"mask_interpretation"] == b"class_index"
    assert json.loads(metadata[b"labels"]) == ["class_0", "class_1", "class_2"]


def gps() -> StreamSpec:
    text = "latitude, longitude, height"
    return StreamSpec(
        "gnss", (ChannelSpec("pos", "raw", "f8", (3,), text, "deg, m"),), rate_hz=10.0
    )


def test_places(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.5)
    made = builder.add(gps(), 0.6)
    fixes = np.tile([52.5, -13.25, 34.0], (len(made.t_ns), 1))
    fixes.astype("<f8").tofile(builder.path / "gnss/pos")
    data = pack(builder.close())
    assert all(row["location"] == [52.5, -13.25] for row in data.rows)
    mission = pack(builder.path, schema="mission")
    assert all(row["location"] == [-13.25, 52.5] for row in mission.rows)
    assert b"WGS-84\0" in data.file(0, "camera.jpeg")


def test_the_pose_is_the_imus_where_there_is_no_better(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.3)
    builder.add(still_imu(), 0.4)
    turned = np.tile(np.radians([10.0, -20.0, 30.0]), (40, 1)).astype("<f4")
    turned.tofile(builder.path / "imu/rot")
    data = pack(builder.close())
    assert np.allclose([row["pose"] for row in data.rows], [30, -20, 10], atol=1e-4)
    mission = pack(builder.path, schema="mission")
    assert np.allclose([row["pose"] for row in mission.rows], [10, -20, 30], atol=1e-4)


def test_only_pictures(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.1)
    data = pack(builder.close())
    assert data.endings(0) == {"camera.jpeg"}
    for words in ("has no lidar", "has no radar", "has no calibration", "no poses known"):
        assert data.noted(words) == 1
    assert data.table.schema.names == ["name", "frame", "group", "size"]


def test_only_a_lidar_is_refused(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(lidar(), 0.2)
    with pytest.raises(
        ArchiveError, match="has no picture, and a sample is one; it has only lidar"
    ):
        pack(builder.close())


def test_no_overlap_in_time(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.1)
    builder.add(lidar(), 0.2, offset_ns=5_000_000_000)
    data = pack(builder.close())
    assert data.endings(0) == {"camera.jpeg"}
    assert data.noted("lidar: no sample within 50 ms of any picture of camera") == 1


def test_several_of_a_kind(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    for name in ("front", "rear"):
        builder.add(camera_spec(name), 0.1)
        builder.add(lidar(f"lidar_{name}"), 0.1)
    path = builder.close()
    data = pack(path, split="block")
    assert data.sequences == [f"{BASE}_front", f"{BASE}_rear"]
    assert {row["name"] for row in data.rows} == {f"{BASE}_front", f"{BASE}_rear"}
    assert len({row["group"] for row in data.rows}) == 1
    assert data.noted("lidar_rear: left out") == 1
    other = pack(path, lidar="lidar_rear")
    assert other.noted("lidar_front") == 0
    assert pack(path, lidar="none").noted("none: there is no such lidar") == 1


def test_lost_and_recovered_are_told(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), seq=[0, 1, 4, 5])
    builder.lose("camera", 2, 3)
    data = pack(builder.close("recovered"))
    assert data.noted("camera: lost samples: 2 (buffer)") == 1
    assert data.noted("recovered") == 1
    assert data.told["sessions"][0]["lost"]["camera"]["counted"] == {"buffer": 2}


def test_a_hosts_name_and_the_date_name_a_sequence(tmp_path: Path) -> None:
    path = short(tmp_path / "s", host="rig_7.local")
    assert pack(path).sequences == ["rig_7_2024_06_01_10_00_00"]


def short(path: Path, host: str = "rig") -> Path:
    """A session of three pictures and a sweep."""
    builder = Builder(path)
    builder.add(camera_spec(), 0.1)
    builder.add(lidar(), 0.1)
    builder.close()
    file = path / "_recorder/session.json"
    header = json.loads(file.read_bytes())
    file.write_text(json.dumps({**header, "hostname": host}))
    return path


@pytest.mark.parametrize("container", ["zip", "folder"])
def test_sessions_are_collected_added_and_replaced(tmp_path: Path, container: str) -> None:
    """They all began in the same second on the same host."""
    paths = [short(tmp_path / name) for name in "abc"]
    out = tmp_path / "summer"
    base = "rig_2024_06_01_10_00_00"
    first = pack_all(paths[:2], out, container=container)
    assert first.sequences == [base, f"{base}_2"]
    assert first.result.files == (out / "edgefirst/summer",)
    boxes = {"format": "recorder-boxes", "version": 1, "source": "manual", "camera": "camera"}
    line = {"t_ns": START_NS, "frame": 0, "class": "car", "box_px": [0, 0, 4, 4]}
    (paths[1] / "_labels").mkdir()
    (paths[1] / "_labels/camera.jsonl").write_text(f"{json.dumps(boxes)}\n{json.dumps(line)}\n")
    second = pack_all(paths[1:], out, container=container)
    assert second.sequences == [base, f"{base}_2", f"{base}_3"]
    assert {k: v for k, v in second.files.items() if not k.startswith(f"{base}_3")} == first.files
    labels = {row["name"]: row["label"] for row in second.rows if row["label"]}
    assert labels == {f"{base}_2": "car"}
    assert len(second.rows) == 9
    assert [entry["name"] for entry in second.told["sessions"]] == ["a", "b", "c"]
    third = pack_all(paths[:1], out, container=container, every=2)
    assert len(third.rows) == 8
    assert third.sequences == second.sequences
    assert [path.name for path in (out / "edgefirst").iterdir()] == ["summer"]


def test_what_cannot_be_added_says_why(tmp_path: Path) -> None:
    paths = [short(tmp_path / name) for name in "ab"]
    out = tmp_path / "out"
    before = pack_all(paths[:1], out).files
    for options, words in (
        ({"container": "folder"}, "say edgefirst.container=zip"),
        ({"schema": "mission"}, "say edgefirst.schema=2026.10"),
    ):
        with pytest.raises(ArchiveError, match=words):
            pack_all(paths[1:], out, **options)
    (out / "edgefirst/out/out.zip").write_bytes(b"damaged")
    with pytest.raises(ArchiveError, match=r"out\.zip: is no ZIP"):
        pack_all(paths[1:], out)
    assert (out / "edgefirst/out/out.zip").read_bytes() == b"damaged"
    (out / "edgefirst/out").rename(out / "gone")
    assert pack_all(paths[:1], out).files == before


def test_a_session_without_pictures_among_others(tmp_path: Path) -> None:
    blind = Builder(tmp_path / "blind")
    blind.add(lidar(), 0.2)
    paths = [short(tmp_path / "a"), blind.close(), short(tmp_path / "b")]
    refused: dict[str, str] = {}
    (result,) = collect(
        paths,
        [Step("edgefirst")],
        tmp_path / "out",
        refused=lambda path, error: refused.update({path.name: str(error)}),
    )
    base = "rig_2024_06_01_10_00_00"
    assert read(result).sequences == [base, f"{base}_2"]
    assert list(refused) == ["blind"]
    assert "edgefirst: " in refused["blind"]
    assert "has no picture" in refused["blind"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"container": "tar"}, "edgefirst.container: 'tar' is not one of"),
        ({"lidar_images": ["colour"]}, "edgefirst.lidar_images: 'colour' is none of"),
        ({"val": 0.7, "test": 0.5}, "edgefirst.val: val and test are more than all"),
        ({"every": 0}, "edgefirst.every"),
    ],
)
def test_wrong_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepare([Step("edgefirst", options)])


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recorder.archives.edgefirst.schema.pa", None)
    with pytest.raises(UsageError, match=r"vehicle-recorder\[archives\]"):
        prepare([Step("edgefirst")])


def test_real_samples_and_several_transmitters(tmp_path: Path) -> None:
    """A radar with real samples only: half as many range bins."""
    spec = radar_spec()
    text = json.dumps({**json.loads(RADAR_JSON), "iq_order": None})
    shape = (8, 3, 2, 64)
    spec = replace(
        spec,
        channels=(replace(spec.channels[0], shape=shape), *spec.channels[1:]),
        files={"radar.json": text},
    )
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.1)
    builder.add(spec, 0.1)
    builder.add(imu_spec(), 0.1)
    data = pack(builder.close(), radar_gain=1.0)
    assert data.picture(0, "radar.png").shape == (3 * 32, 2 * 2 * 8)
    assert data.cube(0, 3, 2).shape == (3, 2, 32, 8, 2)
