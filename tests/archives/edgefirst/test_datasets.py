"""Sessions as EdgeFirst datasets: what is missing, several of them, and what goes wrong."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import pytest

from recorder.archives.edgefirst import pipeline, sensors
from recorder.archives.edgefirst.pipeline import AHEAD, WINDOW
from recorder.archives.edgefirst.samples import nearest_all
from recorder.archives.finalize import ArchiveRequest, collect, prepare
from recorder.common.errors import ArchiveError, ConfigError, FormatError, UsageError
from recorder.formats.zip.writer import ZipContainer
from recorder.session.reader import lidar_range_mm
from tests.archives.contract import recovered
from tests.archives.edgefirst.rig import (
    BASE,
    pack,
    pack_all,
    read,
)
from tests.archives.ncore.packer_rig import (
    lidar,
)
from tests.codecs.blob_kit import write_blobs
from tests.session.build import HEIGHT, START_NS, WIDTH, Builder, build_session, camera_spec

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
ipc: Any = pytest.importorskip("pyarrow.ipc")


def test_only_pictures(tmp_path: Path) -> None:
    data = pack(build_session(tmp_path / "s", camera_spec(), seconds=0.1).path)
    assert data.endings(0) == {"camera.jpeg"}
    for words in ("has no lidar", "has no radar", "has no calibration", "no poses known"):
        assert data.noted(words) == 1
    assert data.table.schema.names == ["name", "frame", "group", "size"]


def test_only_a_lidar_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ArchiveError, match="has no picture, but each sample needs one; it has only lidar"
    ):
        pack(build_session(tmp_path / "s", lidar(), seconds=0.2).path)


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
    data = pack(recovered(tmp_path / "s"))
    assert data.noted("camera: lost samples: 4 (buffer)") == 1
    assert data.noted("recovered") == 1
    assert data.reported["sessions"][0]["lost"]["camera"]["counted"] == {"buffer": 4}


def test_a_hosts_name_and_the_date_name_a_sequence(tmp_path: Path) -> None:
    path = short(tmp_path / "s", host="rig_7.local")
    assert pack(path).sequences == ["rig_7_2024_06_01_10_00_00"]


def test_a_plain_trace_is_named_as_it_is(tmp_path: Path) -> None:
    data = pack(
        build_session(tmp_path / "my trace", camera_spec(), lidar(), seconds=0.1, plain=True).path
    )
    assert data.sequences == ["my-trace"]
    assert data.result.files[0].name == "my trace"
    assert {row["frame"] for row in data.rows} == {0, 1, 2}


def test_one_picture(tmp_path: Path) -> None:
    data = pack(build_session(tmp_path / "s", camera_spec(), count=1).path, max_rate=5)
    assert [row["frame"] for row in data.rows] == [0]


def test_pictures_in_a_folder(tmp_path: Path) -> None:
    """As roverd has them, too."""
    builder = Builder(tmp_path / "s")
    made = builder.add(camera_spec(), 0.1)
    folder = builder.path / "camera"
    write_blobs(folder, "image", "jpg", list(made.data["video.avi"]))
    (folder / "video.avi").unlink()
    meta = json.loads((folder / "meta.json").read_text())
    meta["image"] = meta.pop("video.avi") | {"format": "jpg"}
    (folder / "meta.json").write_text(json.dumps(meta))
    header = builder.path / "_recorder/session.json"
    builder.close()
    text = json.loads(header.read_text())
    header.write_text(json.dumps({**text, "streams": {}}))
    data = pack(builder.path)
    assert data.picture(2, "camera.jpeg").shape == (HEIGHT, WIDTH, 3)


def short(path: Path, host: str = "rig") -> Path:
    """A session of three pictures and a sweep."""
    build_session(path, camera_spec(), lidar(), seconds=0.1)
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
    assert [entry["name"] for entry in second.reported["sessions"]] == ["a", "b", "c"]
    third = pack_all(paths[:1], out, container=container, every=2)
    assert len(third.rows) == 8
    assert third.sequences == second.sequences
    assert [path.name for path in (out / "edgefirst").iterdir()] == ["summer"]


def test_somebody_elses_sequences_stay(tmp_path: Path) -> None:
    """A dataset that another program made, with a sequence of the very name."""
    root = tmp_path / "out/edgefirst/out"
    root.mkdir(parents=True)
    base = "rig_2024_06_01_10_00_00"
    table = pa.table({"name": [base, base], "frame": pa.array([0, 1], pa.uint32())})
    table = table.replace_schema_metadata({"schema_version": "2026.04", "own": "entry"})
    with ipc.new_file(str(root / "out.arrow"), table.schema) as writer:
        writer.write_table(table)
    with zipfile.ZipFile(root / "out.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(f"{base}/{base}_000.camera.jpeg", b"somebody's own")
    data = pack_all([short(tmp_path / "a")], tmp_path / "out")
    assert data.sequences == [base, f"{base}_2"]
    assert data.file(0, "camera.jpeg", base) == b"somebody's own"
    assert [row["name"] for row in data.rows] == [base] * 2 + [f"{base}_2"] * 3
    assert data.table.schema.metadata[b"own"] == b"entry"
    assert data.table.schema.metadata[b"schema_version"] == b"2026.10"


def test_what_cannot_be_added_says_why(tmp_path: Path) -> None:
    paths = [short(tmp_path / name) for name in "ab"]
    out = tmp_path / "out"
    before = pack_all(paths[:1], out).files
    for options, words in (
        ({"container": "folder"}, "set edgefirst.container=zip"),
        ({"schema": "mission"}, "set edgefirst.schema=2026.10"),
    ):
        with pytest.raises(ArchiveError, match=words):
            pack_all(paths[1:], out, **options)
    (out / "edgefirst/out/out.zip").write_bytes(b"damaged")
    with pytest.raises(ArchiveError, match=r"out\.zip: is not a ZIP"):
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
        [ArchiveRequest("edgefirst")],
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
        ({"lidar_images": ["colour"]}, "edgefirst.lidar_images: 'colour' is not one of"),
        ({"val": 0.7, "test": 0.5}, "edgefirst.val: the sum of val and test exceeds 1"),
        ({"every": 0}, "edgefirst.every"),
        ({"columns": {"box2d": "text"}}, "edgefirst.columns.box2d: the format has this column"),
        ({"columns": {"lux": "float"}}, "edgefirst.columns.lux: needs one of text, integer"),
        ({"inputs": ["imu"]}, "edgefirst.inputs: 'imu' is not one of lidar, radar"),
        ({"status": "valid"}, "edgefirst.status: 'valid' is not one of stated, derived"),
    ],
)
def test_wrong_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepare([ArchiveRequest("edgefirst", options)])


@pytest.mark.parametrize("package", ["pa", "zlib"])
def test_without_a_package_the_extra_is_named(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"recorder.archives.edgefirst.schema.{package}", None)
    with pytest.raises(UsageError, match="needs the extra archives"):
        prepare([ArchiveRequest("edgefirst")])


def test_a_failure_in_another_thread_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.5)
    builder.add(lidar(), 0.5)
    read_ranges = lidar_range_mm

    def broken(stream: Any, index: int, number: int) -> Any:
        if index == 2:
            raise FormatError("a frame that xz cannot unpack")
        return read_ranges(stream, index, number)

    monkeypatch.setattr(sensors, "lidar_range_mm", broken)
    with pytest.raises(ArchiveError, match="edgefirst: lidar, sample 2: a frame that xz cannot"):
        pack(builder.close())
    assert not list((tmp_path / "s/_archives/edgefirst").iterdir())


def test_a_window_is_made_while_the_one_before_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some ahead; and a sweep once, however many pictures it goes with."""
    path = build_session(tmp_path / "s", camera_spec(), lidar(), seconds=4.0).path
    begun: list[int] = []
    happened: list[str] = []
    most = written = 0
    make, add = sensors.LidarEncoder.__call__, ZipContainer.add
    nearest, write = nearest_all, pipeline.Window.write

    def beginning(*arguments: Any) -> Any:
        happened.append("begun")
        return nearest(*arguments)

    def writing(self: Any, container: Any) -> None:
        happened.append("written")
        write(self, container)

    def making(self: Any, indices: Sequence[int]) -> Any:
        begun.extend(indices)
        return make(self, indices)

    def adding(self: Any, name: str, payload: Any, t_ns: int) -> None:
        nonlocal most, written
        written += name.endswith("lidar.pcd")
        most = max(most, len(begun) - written // 3)
        add(self, name, payload, t_ns)

    monkeypatch.setattr(sensors.LidarEncoder, "__call__", making)
    monkeypatch.setattr(ZipContainer, "add", adding)
    monkeypatch.setattr("recorder.archives.edgefirst.pipeline.nearest_all", beginning)
    monkeypatch.setattr(pipeline.Window, "write", writing)
    data = pack(path, accompany="all")
    assert sorted(begun) == list(range(40))
    assert most <= (1 + AHEAD) * WINDOW // 3 + 2
    assert sum(name.endswith("lidar.pcd") for name in data.files) > 115
    windows = happened.count("written")
    assert windows == happened.count("begun") > 3
    ahead = [happened[:at].count("begun") for at, what in enumerate(happened) if what == "written"]
    assert ahead == [min(windows, 1 + AHEAD + number) for number in range(windows)]


def test_packing_leaves_the_processors_to_the_packers_own_threads(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.2)
    before = cv2.getNumThreads()
    cv2.setNumThreads(2)
    try:
        pack(builder.close())
        assert cv2.getNumThreads() == 1
    finally:
        cv2.setNumThreads(before)
