"""Parts of sessions as archives: ``recorder finalize --from --until --streams``."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.cli import main
from recorder.formats.vrs import RecordType, VrsReader
from recorder.session.vrs.files import map_vrs_streams
from tests.acceptance.command import contents
from tests.archives.ncore.packer_rig import Archive, add_poses, lidar, still_imu
from tests.formats.zarr2.kit import keys_of
from tests.session.build import START_NS, Builder, camera_spec

pytest.importorskip("numcodecs", reason="needs numcodecs (the extra `archives`)")
pyarrow: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")


@pytest.fixture(autouse=True)
def gave_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recorder.common.syscalls.be_idle", lambda: None)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    builder = Builder(tmp_path / "drive")
    for spec in (camera_spec(), lidar(), still_imu()):
        builder.add(spec, 1.0)
    path = builder.close()
    boxes = path / "_labels"
    boxes.mkdir()
    header = {"format": "recorder-boxes", "version": 1, "camera": "camera"}
    lines = [
        {"t_ns": int(t_ns), "class": "car", "track": f"t{k}", "box_px": [1, 1, 2, 2]}
        | ({"frame": k} if k % 2 else {})
        for k, t_ns in enumerate(builder.streams["camera"].t_ns)
    ]
    text = "\n".join(json.dumps(line) for line in [header, *lines])
    (boxes / "camera.jsonl").write_text(text + "\n")
    return path


def pack(capsys: pytest.CaptureFixture[str], *args: object, code: int = 0) -> list[dict[str, Any]]:
    assert main(["finalize", *map(str, args), "--format", "json"]) == code
    archives: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["archives"]
    return archives


def test_ncore(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (whole,) = pack(capsys, session, "--to", "ncore")
    before = contents(session / "_archives")
    (part,) = pack(capsys, session, "--to", "ncore", "--from", 0.4, "--until", 0.7)
    folder = session / "_archives/parts/from_0.4_until_0.7/ncore"
    assert [Path(file) for file in part["files"]] == [
        folder / "drive.ncore4.zarr.itar",
        folder / "drive.json",
    ]
    assert contents(session / "_archives").items() >= before.items()  # the whole one stays
    assert "session: packed in part: from 0.4 s, until 0.7 s" in part["notes"]
    assert not any("packed in part" in note for note in whole["notes"])
    assert part["summary"]["frames"]["camera"] == 9
    packed = Archive({}, {}, keys_of(Path(part["files"][0])))  # type: ignore[arg-type]
    ends = packed.times_us("cameras/camera")[:, 1]
    assert len(ends) == 9
    assert ends[0] * 1000 + 999 >= START_NS + 400_000_000
    assert ends[-1] * 1000 < START_NS + 700_000_000
    for number, end_us in enumerate(ends, start=12):
        meta = packed.attributes(f"cameras/camera/frames/{end_us}/generic_data")
        assert (meta["sample"], meta["seq"]) == (number, number)
        assert [box["track"] for box in meta["boxes"]] == [f"t{number}"]


def test_poses_are_those_of_the_whole_session(
    session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first pose is interpolated from one before the part, of a stream that is not packed."""
    t_ns = START_NS + np.array([0, 1_000_000_000])
    add_poses(session, t_ns, np.array([[0.0, 0, 0], [10.0, 0, 0]]), "_pose")
    options = ("--streams", "camera", "--from", 0.5)
    (part,) = pack(capsys, session, "--to", "ncore", *options)
    assert part["summary"]["frames"].keys() == {"camera"}
    packed = Archive({}, {}, keys_of(Path(part["files"][0])))  # type: ignore[arg-type]
    poses = packed.attributes("poses/default/dynamic_poses")["('rig', 'world')"]
    first_us = poses["timestamps_us"][0]
    matrix = np.array(poses["poses"][0])
    assert matrix[0][3] == pytest.approx((first_us * 1000 - START_NS) / 1e8, abs=1e-3)
    assert not any("poses: held" in note for note in part["notes"])


def test_edgefirst(session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Samples keep their numbers and labels; several parts of a session go into one dataset."""
    out = tmp_path / "data"
    for begin, end in ((0.4, 0.7), (0.8, 0.9)):
        options = ("--from", begin, "--until", end, "--out", out)
        (part,) = pack(capsys, session, "--to", "edgefirst", *options)
        assert not any("labels are of no picture" in note for note in part["notes"])
    found = dataset(out / "edgefirst/data")
    frames = {(row["name"], row["frame"]): row["object_id"] for row in found}
    assert len(frames) == len(found) == 9 + 3
    numbers = sorted(frame for _, frame in frames)
    assert numbers == [*range(12, 21), *range(24, 27)]
    assert all(track.endswith(f"/t{frame}") for (_, frame), track in frames.items())


def dataset(root: Path) -> list[dict[str, Any]]:
    """The rows; each has its picture."""
    with pyarrow.OSFile(str(root / f"{root.name}.arrow"), "rb") as file:
        rows: list[dict[str, Any]] = pyarrow.ipc.open_file(file).read_all().to_pylist()
    with zipfile.ZipFile(root / f"{root.name}.zip") as files:
        for row in rows:
            files.getinfo(f"{row['name']}/{row['name']}_{row['frame']:03d}.camera.jpeg")
    return rows


def test_l5kit(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (part,) = pack(capsys, session, "--to", "l5kit", "--from", 0.4, "--until", 0.7)
    assert part["summary"]["frames"]["frames"] == 3
    (part,) = pack(capsys, session, "--to", "l5kit", "--streams", "camera,imu")
    assert part["summary"]["frames"]["frames"] == 30
    assert "_archives/parts/camera-imu/l5kit" in part["files"][0]


def test_vrs(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--from", "2024-06-01T10:00:00.5Z", "--streams", "imu")
    (part,) = pack(capsys, session, "--to", "vrs", *options)
    with VrsReader(Path(part["files"][0])) as reader:
        assert set(map_vrs_streams({s.id: s.tags for s in reader.streams.values()})) == {"", "imu"}
        data = [r for r in reader if r.record_type is RecordType.DATA]
        assert reader.tags["part"] == "from 2024-06-01T10:00:00.5Z, streams imu"
    assert len(data) == part["summary"]["frames"]["imu"] == 62
    assert data[0].timestamp_s >= 1_717_236_000.5


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (["--from", "soon"], "--from: 'soon': needs seconds since the start", 2),
        (["--until", "-1"], "--until: '-1': needs seconds since the start", 2),
        (["--from", "2", "--until", "2"], "--until 2: needs a time after --from 2", 2),
        (["--streams", "camera,"], "--streams: 'camera,' has an empty name", 2),
        (["--streams", "rear"], "has no stream 'rear'; its streams: camera, imu, lidar", 1),
        (["--from", "60"], "has no sample: from 60 s", 1),
    ],
)
def test_wrong_parts(
    session: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str, code: int
) -> None:
    for archive in ("ncore", "edgefirst"):
        assert main(["finalize", str(session), "--to", archive, *options]) == code
        assert words in capsys.readouterr().err
    assert not (session / "_archives").exists() or not list((session / "_archives").rglob("*.json"))


def test_pending_packs_whole_sessions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finalize", "--pending", "rig.yaml", "--from", "1"]) == 2
    assert "--pending: packs whole sessions" in capsys.readouterr().err
