"""Boxes as agents: at the frames, between labels, in several frames of reference."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.sim.truth import RANGE_M
from drivers.world import World
from recorder.archives.finalize import ArchiveRequest, prepare
from recorder.archives.l5kit.dataset import LABELS
from recorder.common.errors import ConfigError, FormatError
from tests.archives.l5kit.rig import S, pack, still, sweeps, write_boxes, write_truth
from tests.archives.ncore.packer_rig import add_poses

KINDS = {"car": 3, "truck": 7, "cyclist": 12, "pedestrian": 14, "pole": 1, "building": 1}


def at_times(t_ns: Any, **label: Any) -> list[dict[str, Any]]:
    return [{"t_ns": int(t), **label} for t in t_ns]


def test_the_simulated_world_is_the_truth(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 3.0)
    world = World("drive", 3)
    write_truth(path, world, t_ns, "lidar")
    dataset = pack(path)
    t_s = (t_ns - int(dataset.sessions[0]["start_ns"])) / 1e9
    position, rotation = world.trajectory.pose(t_s)
    frames = dataset.frames
    assert np.array_equal(frames["timestamp"], t_ns)
    assert np.abs(frames["ego_translation"] - position).max() < 1e-3
    assert np.abs(frames["ego_rotation"] - rotation).max() < 1e-5
    numbers: dict[int, int] = {}
    for k, t in enumerate(t_s):
        agents = dataset.agents_of(k)
        states = world.states(np.array([t]))
        away = states.centre_m[:, 0, :2] - position[k, :2]
        near = np.flatnonzero(np.linalg.norm(away, axis=1) < RANGE_M)
        assert len(agents) == len(near) > 10
        assert (np.diff(agents["track_id"].astype(int)) > 0).all()
        offsets = agents["centroid"][:, None] - states.centre_m[None, near, 0, :2]
        distance = np.linalg.norm(offsets, axis=2)
        nearest = np.argmin(distance, axis=1)
        assert distance[np.arange(len(agents)), nearest].max() < 1e-3
        for agent, number in zip(agents, near[nearest].tolist(), strict=True):
            assert numbers.setdefault(int(agent["track_id"]), number) == number
            target = world.targets[number]
            yaw = math.atan2(states.sin_yaw[number, 0], states.cos_yaw[number, 0])
            assert abs(math.remainder(float(agent["yaw"]) - yaw, 2 * math.pi)) < 1e-5
            assert np.allclose(agent["extent"], target.size_m)
            assert np.allclose(agent["velocity"], states.velocity_m_s[number, 0, :2], atol=1e-4)
            assert np.flatnonzero(agent["label_probabilities"]).tolist() == [KINDS[target.kind]]
    assert len(set(numbers.values())) == len(numbers)
    assert set(numbers) == set(range(1, len(numbers) + 1))
    assert dataset.noted("UNKNOWN there: building, pole") == 1


def test_frames_between_labels(tmp_path: Path) -> None:
    """Labels at 2 Hz: every track is bridged, turning the short way."""
    path, t_ns = sweeps(tmp_path / "s", 2.0)
    still(path)
    lines = []
    for step in range(5):
        yaw = math.pi - 0.2 + 0.1 * step  # over the edge at pi
        pose: dict[str, Any] = {"center_m": [step, 2 * step, 0], "velocity_m_s": [2, 4, 0]}
        pose["quaternion_xyzw"] = [0, 0, math.sin(yaw / 2), math.cos(yaw / 2)]
        lines.append({"t_ns": int(t_ns[0]) + step * S // 2, **pose})
    write_boxes(path, lines)
    dataset = pack(path)
    t_s = (t_ns - t_ns[0]) / 1e9
    inside = [k for k, t in enumerate(t_s) if t <= 2.0]
    agents = np.concatenate([dataset.agents_of(k) for k in inside])
    assert len(agents) == len(inside) == len(t_ns)
    assert np.allclose(agents["centroid"], np.stack([2 * t_s, 4 * t_s], 1), atol=5e-4)
    turned = np.remainder(agents["yaw"] - (math.pi - 0.2 + 0.2 * t_s) + 1, 2 * np.pi) - 1
    assert np.abs(turned).max() < 5e-5
    assert np.abs(agents["yaw"]).max() <= np.float32(np.pi)
    assert np.allclose(agents["velocity"], (2, 4))
    assert (agents["track_id"] == 1).all()


def test_boxes_around_the_first_and_last_frame_stand_at_the_poses_of_their_own_times(
    tmp_path: Path,
) -> None:
    """The rig drives past a box that stands; its class is corrected on the way."""
    path, t_ns = sweeps(tmp_path / "s", 0.5)
    every = np.arange(int(t_ns[0]) - S, int(t_ns[-1]) + S, S // 100)
    add_poses(path, every, (every - t_ns[0])[:, None] / 1e8 * [1, 0, 0], "_pose")
    ends = t_ns[0] - S // 5, t_ns[2] + S // 50, t_ns[-1] + S // 4
    write_boxes(
        path,
        [
            {"t_ns": int(t), "center_m": [50 - (t - t_ns[0]) / 1e8, 3, 0], "class": word}
            | {"velocity_m_s": None}
            for t, word in zip(ends, ("van", "truck", "truck"), strict=True)
        ],
    )
    dataset = pack(path)
    agents = np.concatenate([dataset.agents_of(k) for k in range(len(t_ns))])
    assert len(agents) == len(t_ns) == 5
    assert np.allclose(agents["centroid"], [50, 3], atol=1e-5)
    assert np.allclose(agents["velocity"], 0, atol=1e-4)
    assert agents["label_probabilities"].argmax(axis=1).tolist() == [4, 7, 7, 7, 7]


@pytest.mark.parametrize(("bridge_s", "bridged"), [(0.3, False), (0.6, True), (0, False)])
def test_how_long_is_bridged(tmp_path: Path, bridge_s: float, bridged: bool) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.6)
    still(path)
    write_boxes(path, at_times(t_ns[[0, 5]] + 900_000))  # made for these frames, all the same
    counts = [
        len(dataset_at) for dataset_at in map(pack(path, bridge_s=bridge_s).agents_of, range(6))
    ]
    assert counts == [1, *[int(bridged)] * 4, 1]


def test_sets_made_for_the_frames_are_not_bridged(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.6)
    still(path)
    write_boxes(path, [*at_times(t_ns[[0, 2]]), {"t_ns": int(t_ns[4]) - S // 50}], times_of="lidar")
    dataset = pack(path)
    assert [len(dataset.agents_of(k)) for k in range(6)] == [1, 0, 1, 0, 0, 0]
    assert dataset.noted("_cuboids/hand.jsonl: 1 boxes belong to no frame") == 1


def test_a_frame_with_labels_of_its_own_has_only_these(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.3)
    still(path)
    other = at_times(t_ns[[1]], track="b")
    write_boxes(path, [*at_times(t_ns[[0]]), *other, *at_times(t_ns[[2]])])
    dataset = pack(path)
    assert [dataset.agents_of(k)["track_id"].tolist() for k in range(3)] == [[1], [2], [1]]


def test_velocities_from_the_track(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.5)
    still(path)
    t_s = (t_ns - t_ns[0]) / 1e9
    lines: list[dict[str, Any]] = [
        {"t_ns": int(t), "center_m": [3 * s + s * s, 1, 0], "velocity_m_s": None}
        for t, s in zip(t_ns, t_s, strict=True)
    ]
    lines.insert(3, {"t_ns": int(t_ns[2]), "track": "lone", "velocity_m_s": None})
    write_boxes(path, lines)
    dataset = pack(path)
    speeds = [dataset.agents_of(k)["velocity"][0, 0] for k in range(5)]
    assert np.allclose(speeds[1:4], 3 + 2 * t_s[1:4], atol=1e-3)  # from both sides
    assert speeds[0] == pytest.approx(3 + t_s[1], abs=1e-3)
    assert speeds[4] == pytest.approx(3 + t_s[3] + t_s[4], abs=1e-3)
    assert dataset.agents_of(2)["velocity"][1].tolist() == [0, 0]
    assert dataset.noted("jsonl: 1 agents have no known velocity") == 1


@pytest.mark.parametrize(
    ("farther_us", "known"), [(5000, False), (300, False), (0, True), (-300, True), (-5000, True)]
)
@pytest.mark.parametrize("hole", [(0, 3), (3, 6)])
def test_a_velocity_is_not_taken_over_a_hole_in_its_track(
    tmp_path: Path, hole: tuple[int, int], farther_us: int, known: bool
) -> None:
    """Two boxes as far apart as is bridged, or a little more or less; the first one is early."""
    path, t_ns = sweeps(tmp_path / "s", 0.7)
    still(path)
    stamps = [int(t_ns[hole[0]]) - 800_000, int(t_ns[hole[1]])]
    apart_ns = stamps[1] - stamps[0]
    centers = [5.0, 5.0 + apart_ns / 1e8]
    write_boxes(
        path,
        [
            {"t_ns": t, "center_m": [x, 1, 0], "velocity_m_s": None}
            for t, x in zip(stamps, centers, strict=True)
        ],
    )
    dataset = pack(path, bridge_s=(apart_ns - farther_us * 1000) / 1e9)
    found = np.concatenate([dataset.agents_of(k) for k in hole])
    assert len(found) == 2
    expected = [10.0, 0.0] if known else [0.0, 0.0]
    assert np.allclose(found["velocity"], expected, atol=1e-3)
    assert dataset.noted("2 agents have no known velocity") == (0 if known else 1)


def test_velocities_of_the_simulated_world_are_those_of_its_tracks(tmp_path: Path) -> None:
    """What the truth does not say of velocities follows from where everything is."""
    world = World("drive", 2)
    path, t_ns = sweeps(tmp_path / "s", 2.0)
    write_truth(path, world, t_ns, "lidar")
    names = pack(path, ego_center_m=0.0).agents
    file = path / "_cuboids/truth.jsonl"
    header, *lines = map(json.loads, file.read_text().splitlines())
    for line in lines:
        line["velocity_m_s"] = None
    file.write_text("\n".join(map(json.dumps, [header, *lines])) + "\n")
    found = pack(path).agents
    assert np.array_equal(found["track_id"], names["track_id"])
    both = np.bincount(found["track_id"])[found["track_id"]] > 1
    assert np.count_nonzero(both) > 100
    # From both sides 0.1 s away, from one at the ends: as far off as speeds change in that time.
    assert np.abs(found["velocity"] - names["velocity"])[both].max() < 1.0
    assert np.median(np.abs(found["velocity"] - names["velocity"])[both]) < 0.02
    assert np.abs(names["velocity"]).max() > 5


def test_frames_of_reference(tmp_path: Path) -> None:
    """The rig stands at (10, 0) and looks north; the lidar looks to its left."""
    path, t_ns = sweeps(tmp_path / "s", 0.1)
    (path / "_rig").mkdir()
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    np.savez(path / "_rig/pose.npz", t=t_ns / 1e9, pos=[[10, 0, 0]], rot=[turn])
    (path / "calibration.yaml").write_text(
        "sensors: {lidar: {T_sensor_rig: {translation_m: [1, 0, 2],"
        " quaternion_xyzw: [0, 0, 0.7071067811865476, 0.7071067811865476]}}}\n"
    )
    t = int(t_ns[0])
    write_boxes(
        path,
        [
            {"t_ns": t, "track": "a", "center_m": [5, 0, 0], "velocity_m_s": [1, 0, 0]},
            {"t_ns": t, "track": "b", "frame": "world", "velocity_m_s": [1, 0, 0]},
            {"t_ns": t, "track": "c", "frame": "lidar", "velocity_m_s": [1, 0, 0]},
            {"t_ns": t, "track": "d", "frame": "nowhere"},
            {"t_ns": t, "track": "a", "center_m": [7, 7, 7]},
        ],
    )
    dataset = pack(path)
    agents = dataset.agents
    assert np.allclose(agents["centroid"], [[10, 5], [5, 0], [5, 1]])
    assert np.allclose(np.abs(agents["yaw"]), [np.pi / 2, 0, np.pi], atol=1e-6)
    assert np.allclose(agents["velocity"], [[0, 1], [1, 0], [-1, 0]], atol=1e-6)
    assert dataset.noted("jsonl: 1 boxes are relative to no known sensor") == 1
    assert dataset.noted("jsonl: 1 boxes of a track that has one then") == 1
    ahead = pack(path, ego_center_m=1.4)
    assert np.allclose(ahead.frames["ego_translation"], [[10, 1.4, 0]])
    assert np.array_equal(ahead.agents, agents)


def test_probabilities(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.1)
    still(path)
    classes: list[dict[str, Any]] = [
        {"class": "van", "score": 0.75},
        {"class": "forklift"},
        {"class": "barrier", "score": 0.5},
        {"class": "unknown", "score": 0.25},
    ]
    lines = [{"t_ns": int(t_ns[0]), "track": str(k), **c} for k, c in enumerate(classes)]
    write_boxes(path, lines)
    dataset = pack(path, classes={"forklift": "other_vehicle"})
    found = dataset.agents["label_probabilities"]
    expected = np.zeros((4, len(LABELS)))
    expected[0, [1, 4]] = 0.25, 0.75
    expected[1, 9] = 1
    expected[2:, 1] = 1
    assert np.allclose(found, expected)
    assert dataset.noted("UNKNOWN there: barrier") == 1
    with pytest.raises(ConfigError, match=r"classes.forklift.*'lift' is not an L5Kit label"):
        prepare(
            [ArchiveRequest("l5kit", {"classes": {"forklift": "lift"}})]
        )  # before anything is read


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([{"center_m": [1, 2]}], r"hand.jsonl:2: center_m"),
        ([{"size_m": [1, 2, -1]}], r"hand.jsonl:2: size_m: is negative"),
        ([{"quaternion_xyzw": [0, 0, 0, 0]}], r"hand.jsonl:2: quaternion_xyzw"),
        ([{"quaternion_xyzw": [0, 0, 1e-320, 0]}], r"hand.jsonl:2: quaternion_xyzw"),
        ([{"quaternion_xyzw": [0, 0, 1e200, 1]}], r"hand.jsonl:2: quaternion_xyzw"),
        ([{"size_m": [1e39, 1, 1]}], r"hand.jsonl:2: size_m: 1e\+39 is too large"),
        ([{"velocity_m_s": [0, -1e39, 0]}], r"hand.jsonl:2: velocity_m_s: -1e\+39 is too"),
        ([{"center_m": [1e39, 0, 0]}], r"hand.jsonl:2: center_m: 1e\+39 is too large"),
        ([{}, {"score": 2}], r"hand.jsonl:3: score"),
        ([{"velocity_m_s": "fast"}], r"hand.jsonl:2: velocity_m_s"),
        ([{}, {"class": ""}], r"hand.jsonl:3: class"),
        ([{}, {"t_ns": 5}], r"hand.jsonl:3: t_ns: the lines are not in order"),
    ],
)
def test_wrong_labels_are_told(tmp_path: Path, lines: list[dict[str, Any]], words: str) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.1)
    still(path)
    write_boxes(path, ({"t_ns": int(t_ns[0]), "track": str(k), **x} for k, x in enumerate(lines)))
    with pytest.raises(FormatError, match=words):
        pack(path)


@pytest.mark.parametrize(
    ("count", "names"), [(10, "a, b, .*, j$"), (12, "a, b, .*, j and 2 more$")]
)
def test_many_unknown_classes_are_cut(tmp_path: Path, count: int, names: str) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.1)
    still(path)
    write_boxes(
        path, ({"t_ns": int(t_ns[0]), "track": w, "class": w} for w in "abcdefghijkl"[:count])
    )
    (note,) = (note for note in pack(path).result.notes if "UNKNOWN there" in note)
    assert re.search(names, note)


def test_a_header_that_json_cannot_hold_is_told(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.1)
    write_boxes(path, at_times(t_ns), threshold=math.nan)
    with pytest.raises(FormatError, match=r"hand.jsonl:1: contains NaN"):
        pack(path)


@pytest.mark.parametrize("t_ns", [-(10**30), 0, 1 << 63, 10**30])
def test_boxes_of_any_other_time_are_counted(tmp_path: Path, t_ns: int) -> None:
    path, _ = sweeps(tmp_path / "s", 0.1)
    still(path)
    write_boxes(path, [{"t_ns": t_ns}])
    assert pack(path).noted("_cuboids/hand.jsonl: 1 boxes belong to no frame") == 1


def test_one_set_of_several(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.1)
    still(path)
    for name, source in (("net", "yolo"), ("truth", "simulated"), ("hand", "manual")):
        track = {"track": name, "center_m": [len(name), 0, 0]}
        write_boxes(path, at_times(t_ns, **track), name, source=source)
    dataset = pack(path)
    assert dataset.agents["centroid"][:, 0].tolist() == [4]
    assert dataset.sessions[0]["cuboids"]["name"] == "hand"
    assert dataset.noted("left out, hand is packed; the option cuboids names another") == 2
    assert pack(path, cuboids="net").agents["centroid"][:, 0].tolist() == [3]
    with pytest.raises(FormatError, match="no set 'nets'; there are: hand, net, truth"):
        pack(path, cuboids="nets")
