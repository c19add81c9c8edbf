"""The arrays as the format has them, and datasets that are added to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recorder.archives.l5kit.dataset import (
    AGENT,
    LABELS,
    UNKNOWN,
    DatasetReader,
    DatasetWriter,
    find_label,
)
from recorder.common.errors import ArchiveError
from recorder.perception.geometry import rotation_of_rpy
from tests.formats.zarr2.kit import decode, keys_of

LAYOUT = {  # itemsize, chunk rows, bytes in front of each field
    "scenes": (96, 10_000, (0, 16, 80, 88)),
    "frames": (136, 10_000, (0, 8, 24, 40, 64)),
    "agents": (116, 20_000, (0, 16, 28, 32, 40, 48)),
    "traffic_light_faces": (140, 10_000, (0, 64, 128)),
}


def agents(count: int, first: int = 1) -> np.ndarray:
    rows = np.zeros(count, AGENT)
    rows["track_id"] = np.arange(first, first + count)
    return rows


def write(path: Path, name: str, counts: list[int], start_ns: int = 5) -> None:
    """One session with a frame for each of the counts of agents; a scene of every two frames."""
    with DatasetWriter(path) as dataset:
        for k, count in enumerate(counts):
            dataset.frame(start_ns + k, np.full(3, k), np.eye(3), agents(count, 1000 * k))
            if k % 2:
                dataset.scene("a-very-long-host-name", start_ns + k - 1, start_ns + k)
        dataset.session({"name": name, "start_ns": start_ns})


def test_layout(tmp_path: Path) -> None:
    write(tmp_path / "d.zarr", "a", [2, 0, 0, 3])
    keys = keys_of(tmp_path / "d.zarr")
    assert json.loads(keys[".zgroup"]) == {"zarr_format": 2}
    for name, (size, chunk, offsets) in LAYOUT.items():
        meta = json.loads(keys[f"{name}/.zarray"])
        assert meta["chunks"] == [chunk]
        codec = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
        assert (meta["compressor"], meta["order"], meta["filters"]) == (codec, "C", None)
        dtype = decode(keys, name).dtype
        assert dtype.itemsize == size
        assert dtype.names is not None
        assert dtype.fields is not None
        assert tuple(dtype.fields[field][1] for field in dtype.names) == offsets
    assert "traffic_light_faces/0" not in keys
    attributes = json.loads(keys[".zattrs"])
    assert (attributes["format_version"], len(attributes["labels"])) == (2, 17)


def test_intervals_run_on(tmp_path: Path) -> None:
    write(tmp_path / "d.zarr", "a", [2, 0, 0, 3])
    keys = keys_of(tmp_path / "d.zarr")
    frames, scenes = decode(keys, "frames"), decode(keys, "scenes")
    assert frames["agent_index_interval"].tolist() == [[0, 2], [2, 2], [2, 2], [2, 5]]
    assert not frames["traffic_light_faces_index_interval"].any()
    assert scenes["frame_index_interval"].tolist() == [[0, 2], [2, 4]]
    assert scenes["host"].tolist() == ["a-very-long-host"] * 2
    assert frames["ego_translation"][:, 0].tolist() == [0, 1, 2, 3]
    assert decode(keys, "agents")["track_id"].tolist() == [0, 1, 3000, 3001, 3002]


def test_sessions_are_copied_over_chunks(tmp_path: Path) -> None:
    write(tmp_path / "a.zarr", "a", [3, 1])
    counts = [1] * 9_999 + [30_001, 5, 0]
    write(tmp_path / "b.zarr", "b", counts)
    first, second = DatasetReader(tmp_path / "a.zarr"), DatasetReader(tmp_path / "b.zarr")
    with DatasetWriter(tmp_path / "c.zarr") as dataset:
        for old in (first, second, first):
            dataset.copy(old, old.sessions()[0])
    keys = keys_of(tmp_path / "c.zarr")
    joined = decode(keys, "agents")["track_id"]
    one, many = (decode(keys_of(tmp_path / f"{n}.zarr"), "agents")["track_id"] for n in "ab")
    assert np.array_equal(joined, np.concatenate([one, many, one]))
    frames = decode(keys, "frames")
    stops = np.cumsum([3, 1, *counts, 3, 1])
    assert np.array_equal(frames["agent_index_interval"][:, 1], stops)
    assert np.array_equal(frames["agent_index_interval"][1:, 0], stops[:-1])
    scenes = decode(keys, "scenes")["frame_index_interval"]
    assert scenes[:, 0].tolist() == list(range(0, len(frames), 2))
    assert np.array_equal(scenes[1:, 0], scenes[:-1, 1])
    entries = json.loads(keys[".zattrs"])["recorder"]["sessions"]
    assert [entry["scenes"] for entry in entries] == [[0, 1], [1, 5002], [5002, 5003]]


@pytest.mark.parametrize("key", ["agents/0", "frames/0", "agents/.zarray", ".zattrs"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_damage_is_told(tmp_path: Path, key: str, damage: str) -> None:
    write(tmp_path / "a.zarr", "a", [3, 1])
    file = tmp_path / "a.zarr" / key
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ArchiveError, match=key), DatasetWriter(tmp_path / "b.zarr") as made:
        old = DatasetReader(tmp_path / "a.zarr")
        made.copy(old, old.sessions()[0])
    assert not (tmp_path / "b.zarr").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"format_version": 3},
        {"labels": []},
        {"recorder": None},
        {"recorder": {"sessions": [{"name": "a", "start_ns": 1, "scenes": [0, 9]}]}},
    ],
)
def test_datasets_of_others_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    write(tmp_path / "a.zarr", "a", [3, 1])
    file = tmp_path / "a.zarr/.zattrs"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ArchiveError, match=r"is not an L5Kit dataset|does not list its sessions"):
        DatasetReader(tmp_path / "a.zarr").sessions()


def test_labels() -> None:
    assert len(LABELS) == len(set(LABELS)) == 17
    assert UNKNOWN == 1
    words = ["car", "Truck", "PERCEPTION_LABEL_TRAM", "emergency vehicle", "person", "rider"]
    assert [find_label(word) for word in words] == [3, 7, 5, 8, 14, 12]
    assert find_label("AVRESEARCH_LABEL_DONTCARE") == 16
    assert find_label("building") is None


def test_rotations_are_stored_row_by_row(tmp_path: Path) -> None:
    turn = rotation_of_rpy([0.1, -0.2, 0.3])
    with DatasetWriter(tmp_path / "d.zarr") as dataset:
        dataset.frame(1, np.zeros(3), turn, agents(0))
        dataset.scene("", 1, 1)
    assert np.array_equal(decode(keys_of(tmp_path / "d.zarr"), "frames")["ego_rotation"][0], turn)
