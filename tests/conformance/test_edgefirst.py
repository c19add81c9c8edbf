"""Sessions packed by ``recorder finalize --to edgefirst``, read by other people's software."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from drivers.mmwave.driver import SIM_CHIRP
from drivers.mmwave.model import SimulatedRadar
from drivers.world import World
from recorder.formats.png import cube_of_picture
from recorder.perception.radar.radar import RadarGeometry, RadarProcessor
from recorder.session.reader import Session, lidar_range_mm
from tests.acceptance.command import recorder
from tests.session.build import HEIGHT, WIDTH, Builder, camera_spec, gnss_spec

client: Any = pytest.importorskip(
    "edgefirst_client", reason="needs edgefirst-client, which is not installed"
)
pl: Any = pytest.importorskip("polars", reason="needs polars, which is not installed")
pypcd4: Any = pytest.importorskip("pypcd4", reason="needs pypcd4, which is not installed")
pil: Any = pytest.importorskip("PIL.Image", reason="needs pillow, which is not installed")
sdk: Any = pytest.importorskip("ouster.sdk.core")

pytestmark = pytest.mark.conformance

CLIENT = Path(sys.executable).with_name("edgefirst-client")
GAIN = 16.0


class Packed(NamedTuple):
    """A session and its dataset in the folder form."""

    session: Session
    root: Path
    frame: Any

    @property
    def sequence(self) -> str:
        (name,) = self.frame["name"].unique().to_list()
        return str(name)

    def file(self, frame: int, ending: str) -> Path:
        name = self.sequence
        return self.root / self.root.name / name / f"{name}_{frame:03d}.{ending}"

    def frames_with(self, stream: str) -> list[tuple[int, int]]:
        """Pictures, and the sample of a stream to which they are nearest, within 50 ms."""
        camera, there = self.session.streams["camera"].t_ns, self.session.streams[stream].t_ns
        distance = np.abs(camera[:, None] - there)
        near = distance.argmin(axis=1).tolist()
        return [
            (frame, sample)
            for frame, sample in enumerate(near)
            if distance[frame, sample] <= 50_000_000 and distance[:, sample].argmin() == frame
        ]


def pack(session: Path, *options: str, out: Path | None = None) -> Path:
    """The dataset's folder."""
    words = [word for option in options for word in ("--option", f"edgefirst.{option}")]
    place = [] if out is None else ["--out", out]
    ran = recorder("finalize", session, "--to", "edgefirst", "--format", "json", *words, *place)
    assert ran.code == 0, ran.err
    return Path(ran.result["archives"][0]["files"][0])


@pytest.fixture(scope="module")
def packed(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Packed]:
    out = tmp_path_factory.mktemp("folder") / "drives"
    root = pack(world, "container=folder", "lidar_images=[depth, reflectivity, projected]", out=out)
    frame = pl.read_ipc(root / f"{root.name}.arrow")
    with Session(world, virtual=True) as session:
        yield Packed(session, root, frame)


def complaints(root: Path) -> list[str]:
    """What ``validate-snapshot`` prints but for files that are not pictures: it ends with 0."""
    done = subprocess.run(
        [str(CLIENT), "validate-snapshot", str(root), "-vv"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert any("snapshot structure" in line for line in lines)
    expected = ("Validating snapshot", "Found", "...", "unreferenced", "Unreferenced", "files in")
    return [line for line in lines if not any(word in line for word in expected)]


def test_the_client_misses_nothing(packed: Packed) -> None:
    for line in complaints(packed.root):
        assert not re.search(r"missing|error|invalid", line, re.IGNORECASE), line


def test_the_client_would_miss_a_picture(packed: Packed, tmp_path: Path) -> None:
    """So that the test above can fail."""
    root = tmp_path / packed.root.name
    shutil.copytree(packed.root, root)
    (root / root.name / packed.sequence / packed.file(7, "camera.jpeg").name).unlink()
    (root / root.name / packed.sequence / packed.file(7, "radar.png").name).unlink(missing_ok=True)
    (root / root.name / packed.sequence / packed.file(7, "radar.pcd").name).unlink(missing_ok=True)
    done = subprocess.run(
        [str(CLIENT), "validate-snapshot", str(root), "-vv"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "issing" in done.stdout + done.stderr


def test_polars_sees_the_schema(packed: Packed) -> None:
    labels, groups = (
        pl.Categorical(pl.Categories(name, namespace=name, physical=kind))
        for name, kind in (("labels", pl.UInt16), ("groups", pl.UInt8))
    )
    assert dict(packed.frame.schema) == {
        "name": pl.String,
        "frame": pl.UInt32,
        "object_id": pl.String,
        "label": labels,
        "label_index": pl.UInt64,
        "group": groups,
        "box2d": pl.Array(pl.Float32, 4),
        "box3d": pl.Array(pl.Float32, 6),
        "mask": pl.Binary,
        "size": pl.Array(pl.UInt32, 2),
        "pose": pl.Array(pl.Float32, 3),
        "ignore": pl.Boolean,
        "exclude": pl.Boolean,
        "iscrowd": pl.Boolean,
        "occlusion": pl.UInt32,
    }
    assert sorted(packed.frame["frame"].unique().to_list()) == list(range(60))


def test_the_client_reads_the_metadata(packed: Packed) -> None:
    reported = client.read_dataset_metadata(packed.root / f"{packed.root.name}.arrow")
    assert (reported.schema_version, reported.mask_interpretation) == ("2026.10", "binary")
    assert set(reported.labels) <= {"building", "car", "cyclist", "pedestrian", "pole", "truck"}
    indices = packed.frame.select("label", "label_index").unique().drop_nulls().to_dicts()
    assert {row["label"]: row["label_index"] for row in indices} == {
        label: entry["id"] for label, entry in reported.category_metadata.items()
    }
    assert [reported.labels[row["label_index"]] for row in indices] == [r["label"] for r in indices]


def test_the_client_makes_coco_of_it(packed: Packed, tmp_path: Path) -> None:
    arrow = packed.root / f"{packed.root.name}.arrow"
    assert client.arrow_to_coco(arrow, tmp_path / "coco.json") > 0
    reported = json.loads((tmp_path / "coco.json").read_text())
    assert {entry["name"] for entry in reported["categories"]} >= {"car", "pedestrian"}
    (image,) = reported["images"]  # the client takes the frames of a sequence for one picture
    assert (image["width"], image["height"]) == (1280, 720)


def test_the_missions_schema(world: Path, tmp_path: Path) -> None:
    root = pack(world, "schema=mission", out=tmp_path / "m")
    frame = pl.read_ipc(root / "m.arrow")
    kinds = dict(frame.schema)
    assert kinds["name"] == pl.Categorical
    assert kinds["frame"] == pl.UInt64
    assert kinds["group"] == pl.Enum(["train", "val"])
    assert isinstance(kinds["label"], pl.Enum)
    assert kinds["mask"] == pl.List(pl.Float32)
    assert kinds["box2d"] == pl.Array(pl.Float32, 4)
    assert kinds["box3d"] == pl.Array(pl.Float32, 6)
    assert kinds["pose"] == pl.Array(pl.Float64, 3)
    assert set(frame["label"].drop_nulls().to_list()) >= {"car", "pedestrian"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session with polygons, masks, boxes in space and places."""
    builder = Builder(tmp_path_factory.mktemp("drawn") / "drawn")
    times = builder.add(camera_spec(), 0.2).t_ns.tolist()
    fixes = builder.add(gnss_spec(), 0.3)
    np.tile([52.5, 13.25, 34.0], (len(fixes.t_ns), 1)).astype("<f8").tofile(
        builder.path / "gnss/pos"
    )
    ring = [[0, 0], [31, 0], [31, 23]]
    boxes = [
        {"format": "recorder-boxes", "version": 1, "source": "manual", "camera": "camera"},
        {"t_ns": times[1], "frame": 1, "class": "tree", "polygon_px": [ring, ring[::-1]]},
        {"t_ns": times[2], "frame": 2, "class": "road", "mask": "road.png"},
    ]
    cuboids = [
        {"format": "recorder-cuboids", "version": 1, "source": "manual"},
        {"t_ns": times[0], "track": "a", "class": "car", "frame": "rig", "center_m": [9, 1, 1],
         "size_m": [4, 2, 1.5], "quaternion_xyzw": [0, 0, 0, 1]},
    ]  # fmt: skip
    for file, lines in (("_labels/camera.jsonl", boxes), ("_cuboids/all.jsonl", cuboids)):
        (builder.path / file).parent.mkdir()
        (builder.path / file).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (builder.path / "_labels/camera").mkdir()
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[3:9, 4:14] = 255
    pil.fromarray(mask).save(builder.path / "_labels/camera/road.png")
    return builder.close()


def test_polars_sees_polygons_masks_and_places(drawn: Path, tmp_path: Path) -> None:
    root = pack(drawn, "container=folder", out=tmp_path / "now")
    frame = pl.read_ipc(root / "now.arrow")
    kinds = dict(frame.schema)
    assert kinds["polygon"] == pl.List(pl.List(pl.Float32))
    assert kinds["mask"] == pl.Binary
    assert kinds["location"] == pl.Array(pl.Float32, 2)
    assert frame["location"].to_list() == [[52.5, 13.25]] * len(frame)
    (tree,) = frame.filter(pl.col("label").cast(pl.String) == "tree").to_dicts()
    assert [len(ring) for ring in tree["polygon"]] == [6, 6]
    (road,) = frame.filter(pl.col("label").cast(pl.String) == "road").to_dicts()
    with pil.open(io.BytesIO(road["mask"])) as image:
        assert (image.mode, image.size) == ("1", (WIDTH, HEIGHT))
        assert np.argwhere(np.array(image))[[0, -1]].tolist() == [[3, 4], [8, 13]]
    for line in complaints(root):
        assert not re.search(r"missing|error|invalid", line, re.IGNORECASE), line
    assert client.arrow_to_coco(root / "now.arrow", tmp_path / "coco.json") > 0
    found = json.loads((tmp_path / "coco.json").read_text())["annotations"]
    assert any(entry.get("segmentation") for entry in found)
    older = pl.read_ipc(pack(drawn, "schema=mission", out=tmp_path / "m") / "m.arrow")
    assert older.schema["mask"] == pl.List(pl.Float32)
    assert older.schema["location"] == pl.Array(pl.Float64, 2)
    assert older["location"].to_list() == [[13.25, 52.5]] * len(older)
    (tree,) = older.filter(pl.col("label").cast(pl.String) == "tree").to_dicts()
    assert np.isnan(tree["mask"]).nonzero()[0].tolist() == [6]


def test_the_client_finds_all_of_several_sessions(world: Path, drawn: Path, tmp_path: Path) -> None:
    """Packed together, one of them once more, into a folder and into a ZIP."""
    for container in ("folder", "zip"):
        out = tmp_path / container
        for options in (["every=10"], ["every=20"]):
            words = [f"edgefirst.{option}" for option in (*options, f"container={container}")]
            args = [word for option in words for word in ("--option", option)]
            ran = recorder("finalize", world, drawn, "--to", "edgefirst", "--out", out, *args)
            assert ran.code == 0, ran.err
        root = out / "edgefirst" / container
        frame = pl.read_ipc(root / f"{container}.arrow").select("name", "frame").unique()
        assert len(frame) == 3 + 1
        reported = {f"{n}/{n}_{f:03d}.camera.jpeg" for n, f in frame.rows()}
        if container == "folder":
            files = {str(p.relative_to(root / root.name)) for p in root.rglob("*.camera.jpeg")}
            for line in complaints(root):
                assert not re.search(r"missing|error|invalid", line, re.IGNORECASE), line
        else:
            with zipfile.ZipFile(root / "zip.zip") as file:
                assert file.testzip() is None
                files = {name for name in file.namelist() if name.endswith(".camera.jpeg")}
        assert files == reported


def test_zips_are_whole(world: Path, tmp_path: Path) -> None:
    root = pack(world, "every=10", out=tmp_path / "z")
    file = root / "z.zip"
    tool = shutil.which("unzip")
    if tool is None:
        pytest.skip("needs unzip, which is not installed")
    done = subprocess.run([tool, "-t", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No errors detected" in done.stdout


def test_the_lidars_points_are_ouster_sdks(packed: Packed) -> None:
    stream = packed.session.streams["lidar"]
    info = sdk.SensorInfo((stream.path / "lidar.json").read_text())
    lut = sdk.XYZLut(info, use_extrinsics=False)
    checked = 0
    for frame, index in packed.frames_with("lidar")[::3]:
        cloud = pypcd4.PointCloud.from_path(packed.file(frame, "lidar.pcd"))
        assert cloud.fields == ("x", "y", "z", "intensity")
        ranges = lidar_range_mm(stream, index)
        hit = ranges > 0
        assert np.abs(cloud.numpy(("x", "y", "z")) - lut(ranges)[hit]).max() < 1e-3
        reflectivity = stream.sample(index, ["rfl"])["rfl"][hit]
        assert np.array_equal(cloud.numpy(("intensity",))[:, 0], reflectivity)
        checked += 1
    assert checked > 5


def processor(packed: Packed) -> RadarProcessor:
    path = packed.session.path / "radar/radar.json"
    return RadarProcessor(RadarGeometry.of_metadata(path.read_text(), str(path)))


def test_radar_points_are_those_detected(packed: Packed) -> None:
    radar = processor(packed)
    stream = packed.session.streams["radar"]
    for frame, index in packed.frames_with("radar")[::20]:
        cloud = pypcd4.PointCloud.from_path(packed.file(frame, "radar.pcd"))
        fields = ("x", "y", "z", "speed", "power", "noise", "rcs")
        assert cloud.fields == (*fields, "speed_margin", "speed_method", "speed_period")
        found = radar.detect(stream.sample(index, ["iq"])["iq"])
        expected = np.column_stack(
            [found.direction * found.range_m[:, None], found.power_db,
             found.power_db - found.snr_db]
        )  # fmt: skip
        points = cloud.numpy(("x", "y", "z", "power", "noise"))
        assert np.allclose(points, expected, atol=2e-2)
        # Neighbouring frames may have moved a speed by its period.
        speed, period = cloud.numpy(("speed", "speed_period")).T
        turns = (speed - found.velocity_m_s) / period
        assert np.allclose(turns, np.round(turns), atol=1e-2)


def cube_of(packed: Packed, frame: int) -> npt.NDArray[np.int16]:
    """Read by Pillow; the shape stands in the picture's own text."""
    with pil.open(packed.file(frame, "radar.png")) as image:
        reported = json.loads(image.text["radar cube"])
        picture = np.array(image).astype(np.uint16)
    sequences, receivers, ranges, doppler = reported["shape"]
    assert picture.shape == (sequences * ranges, receivers * doppler * 2)
    return cube_of_picture(picture, sequences, receivers)


def test_radar_pictures_are_the_cubes(packed: Packed) -> None:
    radar = processor(packed)
    stream = packed.session.streams["radar"]
    for frame, index in packed.frames_with("radar")[::20]:
        spectrum = np.fft.fftshift(radar.cube(stream.sample(index, ["iq"])["iq"]), axes=0)
        full = spectrum.transpose(1, 2, 3, 0) * GAIN
        cube = cube_of(packed, frame)
        assert cube.dtype == np.int16
        assert np.abs(cube[..., 0] - full.real).max() <= 0.52
        assert np.abs(cube[..., 1] - full.imag).max() <= 0.52


def test_a_cubes_peaks_stand_in_their_targets_bins(packed: Packed) -> None:
    """Of targets that have the ranges around them for themselves."""
    world = SimulatedRadar(SIM_CHIRP, "qqii", world=World("drive", 0))
    coupling = processor(packed).geometry.coupling_s
    checked = 0
    for frame, index in packed.frames_with("radar")[::2]:
        cube = cube_of(packed, frame).astype(np.float64)
        power = (cube**2).sum(axis=(0, 1, 4))  # [range, doppler]
        targets = world.targets(index)
        for target in targets:
            alone = all(
                abs(other.range_m - target.range_m) > 12 * SIM_CHIRP.range_resolution
                for other in targets
                if other is not target and other.amplitude > 0.05 * target.amplitude
            )
            if target.amplitude < 16 or not alone:
                continue
            row = (target.range_m + coupling * target.velocity_mps) / SIM_CHIRP.range_resolution
            first = max(0, round(row) - 2)
            around = power[first : first + 5]
            peak = np.unravel_index(int(around.argmax()), around.shape)
            doppler = power.shape[1]
            column = target.velocity_mps / SIM_CHIRP.doppler_resolution + doppler // 2
            off = (peak[1] - column + doppler / 2) % doppler - doppler / 2
            assert abs(first + peak[0] - row) < 1.1, (index, target, peak)
            assert abs(off) < 1.1, (index, target, peak)
            checked += 1
    assert checked > 8


def test_depth_is_that_of_the_points(packed: Packed) -> None:
    """Each point of the picture is one of the sweep's, and those on the road lie on it."""
    frame, _ = packed.frames_with("lidar")[10]
    with pil.open(packed.file(frame, "depth.png")) as image:
        depth = np.array(image) / 256.0
    assert depth.shape == (720, 1280)
    rows, columns = np.nonzero(depth)
    assert len(rows) > 1000
    # A pinhole 1.45 m above level ground sees it at a depth of fy * 1.45 / (v - cy), nearly.
    on_road = (rows > 560) & (abs(columns - 640) < 150)
    expected = 960 * 1.45 / (rows[on_road] - 359.5)
    share = np.abs(depth[rows[on_road], columns[on_road]] / expected - 1)
    assert np.count_nonzero(on_road) > 50
    assert np.median(share) < 0.03


def test_boxes_are_the_truths(packed: Packed) -> None:
    labels = (packed.session.path / "_labels/camera.jsonl").read_text().splitlines()[1:]
    reported = [json.loads(line) for line in labels]
    with_box = packed.frame.filter(pl.col("box2d").is_not_null())
    assert len(with_box) == len(reported)
    rows = {(row["frame"], row["object_id"].split("/")[1]): row for row in with_box.to_dicts()}
    for label in reported:
        left, top, wide, high = label["box_px"]
        cx, cy, w, h = rows[label["frame"], label["track"]]["box2d"]
        assert np.allclose(
            [(cx - w / 2) * 1280 - 0.5, (cy - h / 2) * 720 - 0.5, w * 1280, h * 720],
            [left, top, wide, high],
            atol=1e-2,
        )


CATEGORIES = {
    "car": {"id": 3, "supercategory": "vehicle", "synset": "car.n.01", "synonyms": ["auto"],
            "definition": "a motor vehicle", "frequency": "f"},
    "tram": {"id": 90},
}  # fmt: skip


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session whose labels state all that they can."""
    builder = Builder(tmp_path_factory.mktemp("stated") / "stated")
    times = builder.add(camera_spec(), count=3).t_ns.tolist()
    box = {"t_ns": times[0], "frame": 0, "class": "car", "box_px": [1, 2, 9, 8]}
    full = {"score": 0.75, "truncated": 0.6, "occluded": 0.1, "status": "reviewed",
            "degradation": "high", "metadata": {"weather": "rain", "lux": 5}}  # fmt: skip
    files: dict[str, list[dict[str, Any]]] = {
        "_labels/camera.jsonl": [
            {"format": "recorder-boxes", "version": 1, "categories": CATEGORIES},
            box | full | {"track": "a", "polygon_px": [[[1, 2], [9, 2], [9, 9]]]},
            box | {"track": "b", "class": "tree"},
        ],
        "_labels/camera/pictures.jsonl": [
            {"format": "recorder-pictures", "version": 1},
            {"t_ns": times[0], "degradation": "low", "timing": {"load": 7, "inference": 2**40},
             "absent": ["tram"], "incomplete": ["tree"]},
            {"t_ns": times[2], "degradation": "none", "metadata": {"lux": 9}},
        ],
        "_cuboids/hand.jsonl": [
            {"format": "recorder-cuboids", "version": 1},
            {"t_ns": times[0], "track": "a", "class": "car", "frame": "rig",
             "center_m": [9, 1, 1], "size_m": [4, 2, 1.5], "quaternion_xyzw": [0, 0, 0, 1]},
        ],
    }  # fmt: skip
    for file, lines in files.items():
        (builder.path / file).parent.mkdir(parents=True, exist_ok=True)
        (builder.path / file).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return builder.close()


COLUMNS = "columns={weather: text, lux: integer}"
TIMING = ("load", "preprocess", "inference", "decode")


def test_all_that_labels_state_is_read_by_others(stated: Path, tmp_path: Path) -> None:
    """By the client, by polars, and by DuckDB from pyarrow's table."""
    root = pack(stated, "container=folder", COLUMNS, out=tmp_path / "now")
    arrow = root / "now.arrow"
    about = client.read_dataset_metadata(arrow)
    assert about.category_metadata["car"] == CATEGORIES["car"]
    assert about.labels == ["car", "tram", "tree"]
    indices = {name: entry["id"] for name, entry in about.category_metadata.items()}
    assert indices == {"car": 3, "tram": 90, "tree": 91}
    frame = pl.read_ipc(arrow)
    frequencies = pl.Categories("cat_freq", namespace="cat_freq", physical=pl.UInt8)
    expected = {
        "category_frequency": pl.Categorical(frequencies),
        "neg_label_indices": pl.List(pl.UInt32),
        "not_exhaustive_label_indices": pl.List(pl.UInt32),
        "timing": pl.Struct(dict.fromkeys(TIMING, pl.Int64)),
        "status": pl.String,
        "degradation": pl.String,
        "box2d_score": pl.Float32,
        "truncation": pl.UInt32,
        "weather": pl.String,
        "lux": pl.Int64,
    }
    assert {name: frame.schema[name] for name in expected} == expected
    car, tree, *others = frame.to_dicts()
    assert (car["box2d_score"], car["polygon_score"], car["truncation"]) == (0.75, 0.75, 2)
    assert (car["status"], car["category_frequency"], car["weather"]) == ("reviewed", "f", "rain")
    assert [row["degradation"] for row in (car, tree, *others)] == ["high", "low", None, "none"]
    assert tree["timing"] == dict.fromkeys(TIMING) | {"load": 7, "inference": 2**40}
    assert (tree["neg_label_indices"], tree["not_exhaustive_label_indices"]) == ([90], [91])
    assert [row["lux"] for row in (car, tree, *others)] == [5, None, None, 9]
    for line in complaints(root):
        assert not re.search(r"missing|error|invalid", line, re.IGNORECASE), line
    assert client.arrow_to_coco(arrow, tmp_path / "coco.json") == 3  # a box, a polygon, a box
    coco = json.loads((tmp_path / "coco.json").read_text())
    found = {entry["name"]: entry for entry in coco["categories"]}
    assert {name: entry["id"] for name, entry in found.items()} == indices
    assert (found["car"]["supercategory"], found["car"]["synset"]) == ("vehicle", "car.n.01")
    rows = query(arrow, "select sum(timing.inference), max(box2d_score), list(lux) from rows")
    assert rows == [(2 * 2**40, 0.75, [5, None, None, 9])]


def query(arrow: Path, sql: str) -> list[Any]:
    """Ask DuckDB about a table, which it sees through pyarrow."""
    duckdb: Any = pytest.importorskip("duckdb", reason="needs duckdb, which is not installed")
    ipc: Any = pytest.importorskip("pyarrow.ipc")
    pa: Any = pytest.importorskip("pyarrow")
    table = ipc.open_file(str(arrow)).read_all()
    plain = [field.name for field in table.schema if not pa.types.is_dictionary(field.type)]
    connection = duckdb.connect()
    connection.register("rows", table.select(plain))
    found: list[Any] = connection.execute(sql).fetchall()
    return found


def test_the_missions_schema_has_all_of_the_documents(stated: Path, tmp_path: Path) -> None:
    """Its Enums among them, and what it leaves open beside them."""
    frame = pl.read_ipc(pack(stated, "schema=mission", COLUMNS, out=tmp_path / "m") / "m.arrow")
    assert frame.schema["degradation"] == pl.Enum(["low", "medium", "high"])
    assert frame.schema["status"] == pl.Enum(["valid", "edit", "reviewed"])
    assert frame["status"].to_list() == ["reviewed", "edit", "edit", None]
    assert frame["degradation"].to_list() == ["high", "low", None, None]
    assert frame["mask_score"].to_list() == [0.75, None, None, None]
    assert frame["lux"].to_list() == [5, None, None, 9]
    assert frame["timing"].struct.field("load").to_list() == [7, 7, None, None]


def write_coco(folder: Path, ending: str) -> Path:
    """A dataset that the client itself makes of COCO, with pictures."""
    images = folder / "images"
    images.mkdir(parents=True)
    sizes = {"width": WIDTH, "height": HEIGHT}
    for number in (1, 2, 3):
        pil.new("RGB", (WIDTH, HEIGHT), (number, 0, 0)).save(images / f"{number:04d}.jpg")
    runs = {"size": [HEIGHT, WIDTH], "counts": [10, 20, WIDTH * HEIGHT - 30]}
    box = {"bbox": [1, 2, 10, 8], "area": 80}
    coco = {
        "images": [
            {"id": n, "file_name": f"{n:04d}.jpg", "neg_category_ids": [7],
             "not_exhaustive_category_ids": [3], **sizes} for n in (1, 2, 3)
        ],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 3, "iscrowd": 0,
             "segmentation": [[1, 2, 11, 2, 11, 10]], **box},
            {"id": 2, "image_id": 2, "category_id": 7, "iscrowd": 1, "segmentation": runs, **box},
        ],
        "categories": [
            {"id": 3, "name": "car", "supercategory": "vehicle", "synset": "car.n.01",
             "synonyms": ["auto"], "def": "a motor vehicle", "frequency": "f"},
            {"id": 7, "name": "tree", "frequency": "r"},
        ],
    }  # fmt: skip
    (folder / "instances.json").write_text(json.dumps(coco))
    root = folder / "out/edgefirst/out"
    root.mkdir(parents=True)
    table = root / f"out{ending}"
    made = client.coco_to_arrow(folder / "instances.json", table, group="train", images_dir=images)
    assert made == 3
    return table


@pytest.mark.parametrize("ending", [".arrow", ".parquet"])
def test_what_the_client_wrote_is_sound_and_extended(
    stated: Path, tmp_path: Path, ending: str
) -> None:
    """Nothing of its rows is lost; columns that a third program added stay, too."""
    table = write_coco(tmp_path, ending)
    root = table.parent
    before = pl.read_ipc(table) if ending == ".arrow" else pl.read_parquet(table)
    checked = recorder("validate", root, "--format", "json")
    assert checked.code == 0, checked.err
    if ending == ".arrow":
        add_column(table)
        before = before.with_columns(pl.lit("ann").alias("reviewer"))
    words = ["--option", "edgefirst.container=folder", "--option", f"edgefirst.{COLUMNS}"]
    ran = recorder("finalize", stated, "--to", "edgefirst", "--out", tmp_path / "out", *words)
    assert ran.code == 0, ran.err
    after = pl.read_ipc(root / "out.arrow")
    kept = after.filter(pl.col("name").str.contains("^000"))
    for name in before.columns:
        assert kept[name].to_list() == before[name].to_list(), name
    ours = after.filter(~pl.col("name").str.contains("^000")).to_dicts()
    assert [row["lux"] for row in ours] == [5, None, None, 9]
    assert ours[0]["label_index"] == 3
    about = client.read_dataset_metadata(root / "out.arrow")
    assert {name: entry["id"] for name, entry in about.category_metadata.items()} == {
        "car": 3, "tree": 7, "tram": 90,
    }  # fmt: skip
    assert about.schema_version == "2026.10"
    for line in complaints(root):
        assert not re.search(r"missing|error|invalid", line, re.IGNORECASE), line
    assert client.arrow_to_coco(root / "out.arrow", tmp_path / "coco.json") > 3
    checked = recorder("validate", root, "--format", "json")
    assert checked.code == 0, checked.err


def add_column(arrow: Path) -> None:
    """Add a column to a table, as a program that knows only pyarrow does."""
    pa: Any = pytest.importorskip("pyarrow")
    with pa.OSFile(str(arrow)) as file:
        table = pa.ipc.open_file(file).read_all()
    table = table.append_column("reviewer", pa.array(["ann"] * len(table)))
    with pa.ipc.new_file(str(arrow), table.schema) as writer:
        writer.write_table(table)
