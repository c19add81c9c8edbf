"""Traffic light faces of frames, from the labels of cameras."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from recorder.archives.finalize import ArchiveRequest, collect
from recorder.common.errors import ArchiveError
from tests.archives.l5kit.rig import Dataset, pack, still, sweeps

MS = 1_000_000


def write_faces(path: Path, camera: str, labels: Iterable[dict[str, Any]]) -> None:
    head = {"format": "recorder-boxes", "version": 1, "source": "manual", "camera": camera}
    lines = [{"class": "traffic_light_face", "box_px": [1, 1, 2, 2]} | label for label in labels]
    (path / "_labels").mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in [head, *lines])
    (path / f"_labels/{camera}.jsonl").write_text(text)


def test_faces_nearest_in_time(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.5)
    still(path)
    t = t_ns.tolist()
    red = {"track": "7/red", "traffic_light": "7"}
    write_faces(
        path,
        "front",
        [
            {"t_ns": t[0] - 30 * MS, **red, "state": "inactive"},
            {"t_ns": t[0] + 10 * MS, **red, "state": "active"},
            {"t_ns": t[0] + 10 * MS, "track": "lone", "state": "unknown"},
            {"t_ns": t[1] - 20 * MS, "track": "car_1", "class": "car"},
            {"t_ns": t[1] + 40 * MS, **red, "state": "active", "score": 0.75},
            {"t_ns": t[3] + 10 * MS, **red, "state": "inactive"},
        ],
    )
    write_faces(path, "rear", [{"t_ns": t[3] + 5 * MS, **red, "state": "unknown"}])
    dataset = pack(path)
    intervals = dataset.frames["traffic_light_faces_index_interval"].tolist()
    assert intervals == [[0, 2], [2, 3], [3, 3], [3, 4], [4, 4]]
    faces = dataset.traffic_light_faces
    assert faces["face_id"].tolist() == ["7/red", "lone", "7/red", "7/red"]
    assert faces["traffic_light_id"].tolist() == ["7", "lone", "7", "7"]
    states = faces["traffic_light_face_status"].tolist()  # active, inactive, unknown
    assert states == [[1, 0, 0], [0, 0, 1], [0.75, 0, 0.25], [0, 0, 1]]


def test_faces_of_an_older_dataset_stay(tmp_path: Path) -> None:
    """Another session is added to it; the intervals join."""
    paths = []
    for number in range(2):
        path, t_ns = sweeps(tmp_path / f"s{number}", 0.3 + number / 10)
        still(path)
        labels = [{"t_ns": int(t), "track": f"f{number}", "state": "active"} for t in t_ns]
        write_faces(path, "front", labels)
        paths.append(path)
    for path in paths:
        (result,) = collect([path], [ArchiveRequest("l5kit")], tmp_path / "out")
        dataset = Dataset.of(result)
    ids = dataset.traffic_light_faces["face_id"].tolist()
    assert ids == ["f0"] * 3 + ["f1"] * 4
    intervals = dataset.frames["traffic_light_faces_index_interval"]
    assert intervals.tolist() == [[k, k + 1] for k in range(7)]


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ({"track": "a", "state": "green"}, "state: needs active, inactive, unknown, not 'green'"),
        ({"track": "a"}, "state: needs active, inactive, unknown, not None"),
        ({"state": "active"}, "track: needs a text"),
        ({"track": "a", "state": "active", "score": 2}, "score: needs a number from 0 to 1"),
    ],
)
def test_a_wrong_face_is_named(tmp_path: Path, label: dict[str, Any], words: str) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.3)
    still(path)
    write_faces(path, "front", [{"t_ns": int(t_ns[0]), **label}])
    with pytest.raises(ArchiveError, match=rf"_labels.*front\.jsonl:2: {words}"):
        pack(path)


def test_long_names_are_cut_and_reported(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.3)
    still(path)
    name = "a_name_that_is_too_long"
    write_faces(path, "front", [{"t_ns": int(t_ns[0]), "track": name, "state": "active"}])
    dataset = pack(path)
    assert dataset.traffic_light_faces["face_id"].tolist() == [name[:16]]
    assert dataset.noted("_labels: names of traffic light faces are cut to 16 characters") == 1
