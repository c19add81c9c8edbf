"""Sessions as EdgeFirst datasets: the files of their samples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.edgefirst.pipeline import WINDOW, find_nearest
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import ArchiveError
from recorder.perception.lidar.lidar import OusterOptics
from recorder.perception.radar.radar import RadarGeometry, RadarProcessor
from recorder.session.reader import Session
from tests.archives.edgefirst.rig import (
    BASE,
    FULL_CALIBRATION,
    Dataset,
    decode,
    pack,
    pack_all,
    viewpoint,
)
from tests.archives.ncore.packer_rig import (
    LIDAR_JSON,
    add_poses,
    lidar,
    rig,
)
from tests.session.build import (
    BEAMS,
    COLUMNS,
    HEIGHT,
    RADAR_JSON,
    START_NS,
    WIDTH,
    Builder,
    build_session,
    camera_spec,
    imu_spec,
    radar_spec,
)

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
ipc: Any = pytest.importorskip("pyarrow.ipc")


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


@pytest.mark.parametrize("accompany", ["nearest", "all"])
def test_what_goes_with_a_picture_is_near(
    session: Path, dataset: Dataset, accompany: str, tmp_path: Path
) -> None:
    """A sweep goes with the nearest picture, or with all to which it is the nearest sweep."""
    if accompany == "all":
        dataset = pack_all([session], tmp_path / "all", accompany=accompany, tolerance_ms=40)
    with Session(session) as read:
        camera, sweeps = read.streams["camera"], read.streams["lidar"]
        distance = np.abs(camera.t_ns[:, None] - sweeps.t_ns)
        for frame, near in enumerate(distance.argmin(axis=1).tolist()):
            close = bool(distance[frame, near] <= 40_000_000)
            if accompany == "nearest":
                close &= bool(distance[:, near].argmin() == frame)
            assert ("lidar.pcd" in dataset.endings(frame)) is close
            if close:
                first = dataset.points(frame, "lidar.pcd")["intensity"]
                reflectivity = sweeps.sample(near, ["rfl", "rng", "rng_far"])
                hit = (reflectivity["rng"] + reflectivity["rng_far"]) > 0
                assert np.array_equal(first, reflectivity["rfl"][hit])
    assert dataset.noted("lidar: ", "of 15 samples of camera have none within 40 ms")


def test_a_sweep_goes_with_one_picture_wherever_windows_end(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    pictures = builder.add(camera_spec(), 2.0).t_ns
    sweeps = builder.add(lidar(), 2.0).t_ns
    path = builder.close()
    nearest = np.abs(pictures[:, None] - sweeps).argmin(axis=0).tolist()
    assert len({n // WINDOW for n in nearest}) == len(pictures) // WINDOW + 1
    for every, found in ((1, nearest), (4, range(0, len(pictures), 4))):
        data = pack(path, every=every)
        assert [n for n in range(len(pictures)) if "lidar.pcd" in data.endings(n)] == list(found)


@pytest.mark.parametrize("inputs", [["lidar"], ["radar"], ["lidar", "radar"]])
def test_only_pictures_with_the_wanted_inputs_are_packed(
    session: Path, dataset: Dataset, inputs: list[str], tmp_path: Path
) -> None:
    """The samples are those of the whole dataset that have them, wherever windows end."""
    endings = {"lidar": {"lidar.pcd"}, "radar": {"radar.pcd", "radar.png"}}
    wanted = set[str]().union(*(endings[name] for name in inputs))
    complete = [n for n in range(15) if wanted <= dataset.endings(n)]
    assert 0 < len(complete) < 15
    data = pack_all([session], tmp_path / "out", inputs=inputs, tolerance_ms=40)
    assert sorted({row["frame"] for row in data.rows}) == complete
    assert data.result.summary["frames"] == {BASE: len(complete)}
    names = {f"{BASE}/{BASE}_{n:03d}." for n in complete}
    kept = {k: v for k, v in dataset.files.items() if any(k.startswith(name) for name in names)}
    assert data.files == kept
    left_out = f"{15 - len(complete)} pictures left out: without {' and '.join(inputs)} beside them"
    assert data.noted(f"camera: {left_out}") == 1
    assert data.noted("have none within 40 ms") == 0


def test_depth_of_pictures_that_are_left_out_is_not_made(session: Path, tmp_path: Path) -> None:
    options = {"inputs": ["radar"], "lidar_images": ["projected"], "tolerance_ms": 40}
    data = pack_all([session], tmp_path / "out", **options)
    frames = {row["frame"] for row in data.rows}
    assert {n for n in range(15) if data.endings(n)} == frames
    assert {n for n in range(15) if "depth.png" in data.endings(n)} <= frames
    assert any("depth.png" in data.endings(n) for n in frames)


@pytest.mark.parametrize(
    ("inputs", "words"), [(["lidar"], "lidar"), (["radar", "lidar"], "radar and lidar")]
)
def test_a_session_without_the_wanted_inputs_is_refused(
    tmp_path: Path, inputs: list[str], words: str
) -> None:
    """Also where the sensor is there, but never near a picture."""
    path = build_session(tmp_path / "s", camera_spec(), seconds=0.2).path
    with pytest.raises(ArchiveError, match=f"has no picture with {words} beside it"):
        pack(path, inputs=inputs)
    builder = Builder(tmp_path / "late")
    builder.add(camera_spec(), 0.2)
    builder.add(lidar(), 0.2, offset_ns=2_000_000_000)
    with pytest.raises(ArchiveError, match="has no picture with lidar beside it"):
        pack(builder.close(), inputs=["lidar"])


def test_of_pictures_that_match_a_sweep_the_nearest_is_found() -> None:
    tie = find_nearest(np.array([3, 3, 3, -1]), np.array([5, 2, 2, 0]))
    assert tie.tolist() == [False, True, False, True]  # the earlier one of two
    rng = np.random.default_rng(5)
    for _ in range(200):
        times = np.sort(rng.choice(100, 12, replace=False))
        samples = np.sort(rng.choice(100, rng.integers(1, 8), replace=False))
        matches = np.abs(times[:, None] - samples).argmin(axis=1)
        distances = np.abs(times - samples[matches])
        found = find_nearest(matches, distances)
        for sample in set(matches.tolist()):
            rows = np.flatnonzero(matches == sample)
            best = rows[distances[rows] == distances[rows].min()]
            assert best[0] in np.flatnonzero(found)
            assert set(rows[found[rows]]) <= set(best)


@pytest.mark.parametrize("level", [0, 1, 6])
def test_cubes_are_compressed_without_loss(session: Path, tmp_path: Path, level: int) -> None:
    stored = pack_all([session], tmp_path / "stored", png_level=0)
    other = pack_all([session], tmp_path / "other", png_level=level)
    frames = [n for n in range(15) if "radar.png" in stored.endings(n)]
    assert frames
    for frame in frames:
        same = np.array_equal(other.picture(frame, "radar.png"), stored.picture(frame, "radar.png"))
        assert same
        sizes = len(stored.file(frame, "radar.png")), len(other.file(frame, "radar.png"))
        assert (sizes[1] < sizes[0]) is (level > 0)


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
    assert points.dtype.names == (
        "x", "y", "z", "speed", "power", "noise", "rcs",
        "speed_margin", "speed_method", "speed_period",
    )  # fmt: skip
    assert len(points) == len(found) > 0
    assert np.allclose(points["x"], found.range_m, atol=1e-3)  # no antennas: straight ahead
    periods = (points["speed"] - found.velocity_m_s) / points["speed_period"]
    assert np.allclose(periods, np.rint(periods), atol=1e-3)
    assert np.allclose(points["speed_period"], 2 * processor.geometry.max_velocity)
    assert (np.abs(periods[points["speed_method"] == 0]) < 1e-3).all()
    facts = dataset.reported["sessions"][0]["radar"]["points"]
    assert np.abs(points["speed"]).max() <= facts["max_velocity_m_s"]
    assert facts["velocity_methods"] == {"ambiguous": 0, "array": 1, "range_rate": 2}
    assert np.allclose(points["power"] - points["noise"], found.snr_db, atol=1e-2)
    assert dataset.noted("radar: ", "were cut: edgefirst.radar_gain is high") == 1
    assert dataset.reported["sessions"][0]["radar"]["shape"] == [2, 4, 64, 8]


def test_a_smaller_gain_cuts_nothing(session: Path, tmp_path: Path) -> None:
    made = pack_all([session], tmp_path / "small", radar_gain=0.25)
    assert made.reported["sessions"][0]["radar"]["gain"] == 0.25
    assert made.reported["sessions"][0]["radar"]["doppler_zero"] == 4
    assert not made.noted("were cut")


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


def test_a_sample_without_labels_has_one_row(dataset: Dataset) -> None:
    assert [row["frame"] for row in dataset.rows] == list(range(15))
    assert {row["group"] for row in dataset.rows} <= {"train", "val"}
    assert "label" not in dataset.table.schema.names


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
    data = pack(
        build_session(tmp_path / "s", camera_spec(), spec, imu_spec(), seconds=0.1).path,
        radar_gain=1.0,
    )
    assert data.picture(0, "radar.png").shape == (3 * 32, 2 * 2 * 8)
    assert data.cube(0, 3, 2).shape == (3, 2, 32, 8, 2)


def test_second_returns_by_option(tmp_path: Path) -> None:
    spec = lidar()
    second = tuple(
        replace(channel, name=channel.name.replace("rng", "rng2").replace("rfl", "rfl2"))
        for channel in spec.channels
        if channel.name in ("rng", "rng_far", "rfl")
    )
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.1)
    made = builder.add(replace(spec, channels=(*spec.channels, *second)), 0.1)
    path = builder.close()
    one = pack(path)
    assert one.noted("second returns left out; edgefirst.returns=2 packs them") == 1
    both = pack(path, returns=2).points(0, "lidar.pcd")
    first = one.points(0, "lidar.pcd")
    assert np.array_equal(both[: len(first)], first)
    hit = made.data["rng2"][0] + made.data["rng2_far"][0] > 0
    assert np.array_equal(both["intensity"][len(first) :], made.data["rfl2"][0][hit])


def test_frame_numbers_of_more_than_three_digits(tmp_path: Path) -> None:
    """The client looks for three digits at least, and no more zeros than that takes."""
    data = pack(build_session(tmp_path / "s", camera_spec(), count=1002).path, every=1001)
    assert set(data.files) == {f"{BASE}/{BASE}_{n}.camera.jpeg" for n in ("000", "1001")}


@pytest.mark.parametrize("speed_m_s", [0.0, 15.0])
def test_depth_in_pictures_is_without_ego_motion(tmp_path: Path, speed_m_s: float) -> None:
    """A point measured before the picture is nearer by then; each column has its own time."""
    channels = (
        ChannelSpec("rng", "raw", "u2", (BEAMS, COLUMNS), "range", "mm"),
        ChannelSpec("rfl", "raw", "u1", (BEAMS, COLUMNS), "reflectivity"),
    )
    builder = Builder(tmp_path / "s")
    pictures = builder.add(camera_spec(), 0.5)
    sweeps = builder.add(replace(lidar(), channels=channels), 0.5)
    path = builder.close()
    ranges = np.zeros((len(sweeps.t_ns), BEAMS, COLUMNS), "<u2")
    ahead = COLUMNS // 2
    ranges[:, -1, ahead] = 12_000
    ranges.tofile(path / "lidar/rng")
    (path / "calibration.yaml").write_text(FULL_CALIBRATION)
    t_ns = START_NS + np.arange(-20, 80, dtype=np.int64) * 10_000_000
    x_m = speed_m_s * (t_ns - START_NS) / 1e9
    add_poses(path, t_ns, np.stack([x_m, 0 * x_m, 0 * x_m], 1), "_pose")
    data = pack(path, lidar_images=["projected"], tolerance_ms=60)
    optics = OusterOptics.of_metadata(LIDAR_JSON, "")
    rays = optics.rays([ranges[0].astype(np.uint32)], [np.zeros((BEAMS, COLUMNS), np.uint8)])
    (hit,) = np.flatnonzero(ranges[0])
    measured_m = float(
        rays.direction[hit, 0] * rays.distance_m[0, hit]
    )  # camera and lidar at x = 1
    before_ns = (COLUMNS - 1 - ahead) * 100_000_000 // COLUMNS
    checked = 0
    for frame, t_picture_ns in enumerate(pictures.t_ns.tolist()):
        if "depth.png" not in data.endings(frame):
            continue
        t_point_ns = sweeps.t_ns[np.abs(sweeps.t_ns - t_picture_ns).argmin()] - before_ns
        picture = data.picture(frame, "depth.png")
        (depth,) = picture[picture > 0]
        expected_m = measured_m - speed_m_s * (t_picture_ns - t_point_ns) / 1e9
        assert depth / 256 == pytest.approx(expected_m, abs=0.01)
        checked += 1
    assert checked > 10
