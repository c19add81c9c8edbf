"""Sessions as EdgeFirst datasets: what is told of them, in pictures, metadata and notes."""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.edgefirst import samples
from recorder.archives.edgefirst.samples import Split
from recorder.archives.edgefirst.sensors import radar_points
from recorder.archives.edgefirst.session import SessionPacker
from recorder.common.errors import ArchiveError, StorageError
from recorder.perception.radar.radar import Detections, SpeedMethod
from tests.archives.edgefirst.rig import (
    BASE,
    FULL_CALIBRATION,
    exif_of,
    pack,
    pack_all,
)
from tests.archives.ncore.packer_rig import add_poses, rig
from tests.session.build import (
    HEIGHT,
    START_NS,
    WIDTH,
    Builder,
    build_session,
    camera_spec,
    gnss_spec,
    radar_spec,
)

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")


@pytest.mark.parametrize("images", ["jpeg", "png"])
def test_exif_tells_time_place_lens_and_device(tmp_path: Path, images: str) -> None:
    builder = Builder(tmp_path / "s")
    settings = {"make": "Acme", "model": "Eye 3", "serial": "42", "exposure_ms": 12.5}
    made = builder.add(replace(camera_spec(), settings=settings), count=2)
    fixes = builder.add(gnss_spec(), count=3)
    np.tile([-52.5, 13.26, -4.0], (len(fixes.t_ns), 1)).astype("<f8").tofile(
        builder.path / "gnss/pos"
    )
    (builder.path / "calibration.yaml").write_text(FULL_CALIBRATION)
    data = pack(builder.close(), images=images)
    reported = exif_of(data.file(1, f"camera.{images}"))
    t_ns = int(made.t_ns[1])
    assert reported["0"] == {
        0x010E: f"{BASE}/{BASE}_001",
        0x010F: "Acme",
        0x0110: "Eye 3",
        0x0131: reported["0"][0x0131],
        0x0132: "2024:06:01 10:00:00",
        0x013C: "rig-1",
    }
    assert reported["0"][0x0131].startswith("recorder ")
    comment = reported["exif"].pop(0x9286)
    assert reported["exif"] == {
        0x829A: 0.0125,
        0x9000: b"0232",
        0x9003: "2024:06:01 10:00:00",
        0x9004: "2024:06:01 10:00:00",
        **dict.fromkeys((0x9010, 0x9011, 0x9012), "+00:00"),
        **dict.fromkeys((0x9290, 0x9291, 0x9292), f"{t_ns % 1_000_000_000:09d}"),
        0xA002: WIDTH,
        0xA003: HEIGHT,
        0xA405: round(30 / WIDTH * 36),
        0xA431: "42",
    }
    lens = json.loads(comment.removeprefix(b"UNICODE\0").decode("utf-16-le"))
    assert (lens["model"], lens["parameters"]["k1"]) == ("opencv-pinhole", 0.1)
    assert np.array(lens["T_camera_rig"])[:3, 3].tolist() == [1, 0, 1.5]
    place = reported["gps"]
    assert (place[1], place[3], place[5], place[29]) == ("S", "E", b"\1", "2024:06:01")
    assert place[2] == (52, 30, 0)
    assert place[4] == pytest.approx((13, 15, 36))
    assert place[6] == 4
    assert place[7] == pytest.approx((10, 0, t_ns / 1e9 % 60), abs=1e-5)


def test_the_device_is_the_stream_where_it_has_no_name(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec("left"), count=1)
    reported = exif_of(pack(builder.close()).file(0, "camera.jpeg"))
    assert reported["0"][0x0110] == "left"
    assert "gps" not in reported
    assert reported["exif"].keys().isdisjoint({0x829A, 0xA405, 0xA431})


def test_columns_of_radar_points() -> None:
    found = Detections(
        range_m=np.array([10.0]),
        velocity_m_s=np.array([-3.0]),
        direction=np.array([[0.6, 0.8, 0.0]]),
        power_db=np.array([30.0]),
        snr_db=np.array([12.0]),
        margin_db=np.array([2.5]),
        method=np.array([SpeedMethod.RANGE_RATE], np.uint8),
        turns=np.zeros(1, np.int16),
        directions=np.array([[[0.6, 0.8, 0.0]]]),
        fit_db=np.zeros((1, 1), np.float32),
    )
    (point,) = radar_points(found, 67.0, 16.0)
    assert [float(value) for value in point] == [6, 8, 0, -3, 30, 18, 30 + 40 - 67, 2.5, 2, 16]


def described(path: Path) -> Builder:
    """A session that has something of everything that is told."""
    builder = rig(path, 0.2)
    (builder.path / "calibration.yaml").write_text(FULL_CALIBRATION)
    return builder


def test_metadata_tell_what_a_session_was(tmp_path: Path) -> None:
    path = described(tmp_path / "s").close()
    file = path / "_recorder/session.json"
    header = json.loads(file.read_text())
    file.write_text(json.dumps({**header, "metadata": {"vehicle": "rig-1"}}))
    data = pack(path, every=2)
    (reported,) = data.reported["sessions"]
    assert (reported["name"], reported["start_ns"], reported["state"]) == ("s", START_NS, "clean")
    assert (reported["sequences"], reported["samples"]) == ({"camera": BASE}, {BASE: 3})
    assert reported["metadata"] == {"vehicle": "rig-1"}
    digest = hashlib.sha256((path / "calibration.yaml").read_bytes()).hexdigest()
    assert reported["calibration_sha256"] == digest
    assert (reported["lidar"], reported["radar"]["name"]) == ("lidar", "radar")
    assert reported["radar"]["shape"][:2] == [2, 4]
    assert reported["notes"] == list(data.result.notes)
    assert data.reported["options"]["every"] == 2


def other_size(path: Path) -> dict[str, Any]:
    text = FULL_CALIBRATION.replace("[32, 24]", "[64, 48]")
    (path / "calibration.yaml").write_text(text)
    return {"lidar_images": ["projected"]}


def only_the_camera(path: Path) -> dict[str, Any]:
    text, _, _ = FULL_CALIBRATION.partition("  imu:")
    (path / "calibration.yaml").write_text(text)
    return {"lidar_images": ["projected"]}


def labels_of_another(path: Path) -> dict[str, Any]:
    (path / "_labels").mkdir()
    header = {"format": "recorder-boxes", "version": 1, "source": "manual", "camera": "rear"}
    (path / "_labels/rear.jsonl").write_text(json.dumps(header) + "\n")
    return {}


def behind_the_poses(path: Path) -> dict[str, Any]:
    add_poses(path, START_NS + np.array([0, 10_000_000]), np.zeros((2, 3)), "_pose")
    return {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_size, ["camera: calibrated for 64x48, but the pictures have 32x24: not used",
                      "session: no camera is calibrated: no depth in pictures"]),
        (only_the_camera, ["lidar: not in the calibration: no depth in pictures"]),
        (labels_of_another, ["_labels/rear: labels of a camera that is not packed: left out"]),
        (behind_the_poses, ["camera: 2 samples have no pose: none is near in time"]),
    ],
)  # fmt: skip
def test_what_is_left_out_is_said(
    tmp_path: Path, change: Callable[[Path], dict[str, Any]], words: list[str]
) -> None:
    path = described(tmp_path / "s").close()
    data = pack(path, **change(path))
    for word in words:
        assert data.result.notes.count(word) == 1
    assert "depth.png" not in data.endings(0)


def test_sensors_without_a_sample_and_frames_without_packets(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.2)
    builder.add(camera_spec("rear"), count=0)
    iq, valid = radar_spec().channels
    spec = replace(radar_spec(), channels=(iq, replace(valid, format="raw")))
    builder.add(spec, 0.2)
    path = builder.close()
    np.array([1, 0, 1, 0], np.uint8).tofile(path / "radar/valid")
    data = pack(path)
    assert data.sequences == [BASE]
    assert data.result.notes.count("rear: no sample was recorded") == 1
    assert data.result.notes.count("radar: 2 frames lack packets; they are packed") == 1


def test_streams_that_cannot_be_read(tmp_path: Path) -> None:
    """Made by others, beside what was recorded."""
    path = build_session(tmp_path / "s", camera_spec(), count=2).path
    (path / "_pose").mkdir()
    (path / "_pose/meta.json").write_text("{")
    data = pack(path)
    assert data.noted("_pose: cannot be read, left out: ", "meta.json: not JSON") == 1


def test_blocks_count_from_the_start_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all samples of a block are of one group."""
    monkeypatch.setattr(samples, "BLOCK_NS", 100_000_000)
    builder = Builder(tmp_path / "s")
    made = builder.add(camera_spec(), 2.0)
    data = pack(builder.close(), split="block", val=0.5)
    split = Split("block", val=0.5)
    since = (made.t_ns - START_NS).tolist()
    assert [row["group"] for row in data.rows] == [split.group(BASE, t) for t in since]
    assert {row["group"] for row in data.rows} == {"train", "val"}


def test_a_replaced_session_keeps_its_name_in_any_order(tmp_path: Path) -> None:
    """All began in the same second; a new one does not take the name of one that is replaced."""
    paths = {}
    for count, name in enumerate("abcd", start=1):
        paths[name] = build_session(tmp_path / name, camera_spec(), count=count).path
    pack_all([paths[name] for name in "abc"], tmp_path / "out")
    data = pack_all([paths[name] for name in "dca"], tmp_path / "out")
    bases = {"a": BASE, "b": f"{BASE}_2", "c": f"{BASE}_3", "d": f"{BASE}_4"}
    assert {entry["name"]: entry["base"] for entry in data.reported["sessions"]} == bases
    for count, base in enumerate(bases.values(), start=1):
        assert sum(name.startswith(f"{base}/") for name in data.files) == count
        assert sum(row["name"] == base for row in data.rows) == count


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("order", [("x", "x_rear"), ("x_rear", "x")])
def test_a_cameras_name_does_not_make_two_sequences_one(
    tmp_path: Path, order: tuple[str, str], together: bool
) -> None:
    cameras = {"x": ("front", "rear"), "x_rear": ("camera",)}
    paths = []
    for name in order:
        builder = Builder(tmp_path / name, plain=True)
        for camera in cameras[name]:
            builder.add(camera_spec(camera), count=1)
        paths.append(builder.close())
    for some in (paths,) if together else ([path] for path in paths):
        data = pack_all(some, tmp_path / "out")
    assert len(data.files) == len(data.sequences) == len(data.rows) == 3


def test_two_copies_of_a_session_are_refused(tmp_path: Path) -> None:
    for folder in "ab":
        build_session(tmp_path / folder / "s", camera_spec(), count=1)
    with pytest.raises(ArchiveError, match=r"b/s: has the name and the start of .*a/s"):
        pack_all([tmp_path / "a/s", tmp_path / "b/s"], tmp_path / "out")


def test_sessions_are_closed_when_they_are_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset of a hundred sessions does not need all their files at once."""
    paths = [rig(tmp_path / name, 0.1).close() for name in "abc"]
    opened: list[int] = []
    pack_one = SessionPacker.pack

    def packing(self: SessionPacker) -> dict[str, int]:
        opened.append(len(list(Path("/proc/self/fd").iterdir())))
        return pack_one(self)

    monkeypatch.setattr(SessionPacker, "pack", packing)
    pack_all(paths, tmp_path / "out")
    assert opened[2] <= opened[1] <= opened[0]


def test_a_file_system_that_cannot_be_synced_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def syncfs(self, fd: int) -> int:
            return -1

    monkeypatch.setattr(ctypes, "CDLL", Library)
    monkeypatch.setattr(ctypes, "get_errno", lambda: 5)
    with pytest.raises(StorageError, match="cannot be synced: Input/output error"):
        pack(build_session(tmp_path / "s", camera_spec(), count=1).path, container="folder")
    assert not list((tmp_path / "s/_archives/edgefirst").iterdir())
