"""Sessions packed by ``recorder finalize --to l5kit``, read by zarr and by L5Kit itself."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from drivers.sim.truth import RANGE_M
from drivers.world import World
from tests.acceptance.command import PROJECT, contents, recorder

zarr: Any = pytest.importorskip("zarr", reason="needs zarr (below 3), which is not installed")
if int(zarr.__version__.split(".")[0]) >= 3:
    pytest.skip("needs zarr below 3", allow_module_level=True)

pytestmark = pytest.mark.conformance

PROBABILITIES, STATES = 17, 3
DTYPES = {  # as l5kit/data/zarr_dataset.py and docs/data_format.rst define them
    "scenes": np.dtype(
        [("frame_index_interval", np.int64, (2,)), ("host", "<U16"), ("start_time", np.int64),
         ("end_time", np.int64)]
    ),
    "frames": np.dtype(
        [("timestamp", np.int64), ("agent_index_interval", np.int64, (2,)),
         ("traffic_light_faces_index_interval", np.int64, (2,)),
         ("ego_translation", np.float64, (3,)), ("ego_rotation", np.float64, (3, 3))]
    ),
    "agents": np.dtype(
        [("centroid", np.float64, (2,)), ("extent", np.float32, (3,)), ("yaw", np.float32),
         ("velocity", np.float32, (2,)), ("track_id", np.uint64),
         ("label_probabilities", np.float32, (PROBABILITIES,))]
    ),
    "traffic_light_faces": np.dtype(
        [("face_id", "<U16"), ("traffic_light_id", "<U16"),
         ("traffic_light_face_status", np.float32, (STATES,))]
    ),
}  # fmt: skip
CHUNKS = {"scenes": 10_000, "frames": 10_000, "agents": 20_000, "traffic_light_faces": 10_000}
KINDS = {"car": 3, "truck": 7, "cyclist": 12, "pedestrian": 14, "pole": 1, "building": 1}

WORLD = """version: 1
storage: {{min_free_gb: 0}}
calibration: {calibration}
sensors:
  lidar: {{driver: ouster, source: "sim:", pace: max, mode: 512x10, beams: 32, seed: {seed}}}
  imu: {{driver: xsens, source: "sim:", pace: max, seed: {seed}}}
"""


@pytest.fixture(scope="module")
def l5kit() -> Iterator[Callable[[str], Any]]:
    """Modules of l5kit.data, without what the package imports beside them (torch, for one)."""
    spec = importlib.util.find_spec("l5kit")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("needs l5kit (without its requirements), which is not installed")
    (root,) = spec.submodule_search_locations
    with pytest.MonkeyPatch.context() as patch:
        for name, folder in (("l5kit", Path(root)), ("l5kit.data", Path(root) / "data")):
            package = types.ModuleType(name)
            package.__path__ = [str(folder)]
            patch.setitem(sys.modules, name, package)
        yield lambda module: importlib.import_module(f"l5kit.data.{module}")


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three seconds of the simulated drive, and two of another one."""
    folder = tmp_path_factory.mktemp("l5kit")
    made = []
    for seed, seconds in ((0, 3), (4, 2)):
        text = WORLD.format(calibration=PROJECT / "configs/demo_calibration.yaml", seed=seed)
        config = folder / f"config{seed}.yaml"
        config.write_text(text)
        root, name = folder / "sessions", f"drive{seed}"
        ran = recorder("run", config, "--root", root, "--name", name, "--duration", seconds)
        assert ran.code == 0, ran.err
        made.append(root / name)
    return made


def finalize(*arguments: object) -> Path:
    ran = recorder("finalize", *arguments, "--to", "l5kit", "--format", "json")
    assert (ran.code, ran.err) == (0, [])
    (result,) = ran.result["archives"]
    (path,) = map(Path, result["files"])
    return path


@pytest.fixture(scope="module")
def packed(sessions: list[Path]) -> Path:
    return finalize(sessions[0])


@pytest.fixture(scope="module")
def together(sessions: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both, added one after the other, in scenes of a second."""
    out = tmp_path_factory.mktemp("out") / "drives"
    for session in sessions:
        path = finalize(session, "--out", out, "--option", "l5kit.scene_s=1")
    return path


def start_ns(session: Path) -> int:
    start: int = json.loads((session / "_recorder/session.json").read_text())["start_ns"]
    return start


def check_truth(session: Path, seed: int, frames: Any, agents: Any) -> None:
    """The ego's path and all agents are those of the world."""
    world = World("drive", seed)
    t_s = (frames["timestamp"] - start_ns(session)) / 1e9
    position, rotation = world.trajectory.pose(t_s)
    assert np.abs(frames["ego_translation"] - position).max() < 1e-3
    assert np.abs(frames["ego_rotation"] - rotation).max() < 1e-4
    assert np.abs(np.diff(position, axis=0)).max() > 0.1
    numbers: dict[int, int] = {}
    for frame, t in zip(frames, t_s, strict=True):
        first, last = frame["agent_index_interval"]
        found, states = agents[first:last], world.states(np.array([t]))
        centres = states.centre_m[:, 0, :2]
        ego = world.trajectory.pose(np.array([t]))[0][0, :2]
        near = np.flatnonzero(np.linalg.norm(centres - ego, axis=1) < RANGE_M)
        assert len(found) == len(near) > 0
        offsets = np.linalg.norm(found["centroid"][:, None] - centres[None, near], axis=2)
        assert offsets.min(axis=1).max() < 1e-3
        which = near[offsets.argmin(axis=1)]
        assert len(set(which.tolist())) == len(near)
        check_agents(found, world, states, which, numbers)


def check_agents(
    found: Any, world: World, states: Any, which: npt.NDArray[Any], numbers: dict[int, int]
) -> None:
    for agent, number in zip(found, which.tolist(), strict=True):
        target = world.targets[number]
        assert numbers.setdefault(int(agent["track_id"]), number) == number
        assert np.allclose(agent["extent"], target.size_m)
        cosine, sine = np.cos(agent["yaw"]), np.sin(agent["yaw"])
        assert abs(cosine - states.cos_yaw[number, 0]) < 1e-4
        assert abs(sine - states.sin_yaw[number, 0]) < 1e-4
        velocity = states.velocity_m_s[number, 0, :2]
        assert np.allclose(agent["velocity"], velocity, atol=1e-3)
        probabilities = np.zeros(PROBABILITIES)
        probabilities[KINDS[target.kind]] = 1
        assert np.array_equal(agent["label_probabilities"], probabilities)
    assert 0 not in numbers


def test_zarr_opens_it_with_the_formats_dtypes(packed: Path) -> None:
    root = zarr.open_group(str(packed), mode="r")
    assert set(root.array_keys()) == set(DTYPES)
    for name, dtype in DTYPES.items():
        array = root[name]
        assert (array.dtype, array.chunks) == (dtype, (CHUNKS[name],))
        config = array.compressor.get_config()
        assert (config["cname"], config["clevel"], config["shuffle"]) == ("lz4", 5, 1)
    assert (len(root["scenes"]), len(root["frames"])) == (1, 30)
    assert len(root["agents"]) > 0 == len(root["traffic_light_faces"])
    assert root.attrs["format_version"] == 2
    assert len(root.attrs["labels"]) == PROBABILITIES


def test_truth(packed: Path, sessions: list[Path]) -> None:
    root = zarr.open_group(str(packed), mode="r")
    check_truth(sessions[0], 0, root["frames"][:], root["agents"][:])


def test_frames_between_labels_are_near_the_truth(sessions: list[Path]) -> None:
    """Boxes at 10 Hz, frames at 100 Hz."""
    root = zarr.open_group(str(finalize(sessions[0], "--option", "l5kit.lidar=imu")), mode="r")
    frames, agents = root["frames"][:], root["agents"][:]
    world = World("drive", 0)
    t_s = (frames["timestamp"] - start_ns(sessions[0])) / 1e9
    inside = np.flatnonzero((t_s > 0.2) & (t_s < 2.8))
    assert len(inside) > 250
    for k in inside.tolist():
        found = agents[slice(*frames[k]["agent_index_interval"])]
        assert len(found) > 10
        centres = world.states(t_s[k : k + 1]).centre_m[:, 0, :2]
        offsets = np.linalg.norm(found["centroid"][:, None] - centres[None], axis=2)
        assert offsets.min(axis=1).max() < 0.02


def test_several_sessions(together: Path, sessions: list[Path]) -> None:
    root = zarr.open_group(str(together), mode="r")
    scenes, frames = root["scenes"][:], root["frames"][:]
    assert np.diff(scenes["frame_index_interval"]).ravel().tolist() == [10] * 5
    assert scenes["frame_index_interval"][:, 0].tolist() == [0, 10, 20, 30, 40]
    intervals = frames["agent_index_interval"]
    assert intervals[0, 0] == 0
    assert np.array_equal(intervals[1:, 0], intervals[:-1, 1])
    assert intervals[-1, 1] == len(root["agents"])
    for seed, session, part in ((0, sessions[0], slice(0, 30)), (4, sessions[1], slice(30, 50))):
        check_truth(session, seed, frames[part], root["agents"][:])


def test_l5kit_reads_it(together: Path, l5kit: Callable[[str], Any]) -> None:
    module, combine = l5kit("zarr_dataset"), l5kit("combine")
    dataset = module.ChunkedDataset(str(together)).open()
    assert (len(dataset.scenes), len(dataset.frames)) == (5, 50)
    with pytest.warns(RuntimeWarning, match="should end with"):  # of its own making
        scene = dataset.get_scene_dataset(4)
    assert scene.scenes["frame_index_interval"].tolist() == [[0, 10]]
    assert scene.frames["agent_index_interval"][0, 0] == 0
    last = dataset.frames[40:50]
    first, stop = last["agent_index_interval"][[0, -1], [0, 1]]
    assert np.array_equal(scene.agents, dataset.agents[first:stop])
    cells = [cell.strip() for cell in str(dataset).splitlines()[3].split("|")]
    assert cells[1:3] == ["5", "50"]
    # Scenes that a session was cut into go on in each other.
    combined = combine.get_combined_scenes(dataset.scenes[:])
    assert combined["frame_index_interval"].tolist() == [[0, 30], [30, 50]]


def test_metadata_is_what_l5kit_itself_writes(
    packed: Path, tmp_path: Path, l5kit: Callable[[str], Any]
) -> None:
    theirs = tmp_path / "theirs.zarr"
    with pytest.warns(RuntimeWarning, match="doesn't exist"):
        made = l5kit("zarr_dataset").ChunkedDataset(str(theirs))
    root = zarr.open_group(str(packed), mode="r")
    counts = {key: len(root[name]) for key, name in (
        ("num_scenes", "scenes"), ("num_frames", "frames"), ("num_agents", "agents"),
    )}  # fmt: skip
    made.initialize(**counts)
    for name in DTYPES:
        documents = [json.loads((at / name / ".zarray").read_text()) for at in (packed, theirs)]
        assert documents[0] == documents[1]
    ours, yours = (json.loads((at / ".zattrs").read_text()) for at in (packed, theirs))
    assert {key: ours[key] for key in yours} == yours


def test_nothing_recorded_is_touched(sessions: list[Path]) -> None:
    def recorded() -> dict[str, bytes]:
        found: dict[str, Any] = contents(sessions[0])
        return {key: value for key, value in found.items() if not key.startswith("_archives/")}

    before = recorded()
    finalize(sessions[0])
    assert recorded() == before
