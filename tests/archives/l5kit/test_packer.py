"""Sessions as scenes: whose samples are frames, odd sessions, datasets of several."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.context import PackingContext
from recorder.archives.finalize import ArchiveRequest, collect
from recorder.archives.l5kit import frames
from recorder.archives.l5kit.frames import FrameTimes
from recorder.archives.l5kit.packer import PACKER
from recorder.common.errors import FormatError, RecorderError, SessionError
from recorder.perception.calibration import Calibration
from recorder.session.reader import Session
from tests.archives.l5kit.rig import Dataset, S, pack, still, sweeps, write_boxes
from tests.archives.ncore.packer_rig import add_poses, lidar, rig, still_imu
from tests.session.build import (
    START_MONO_NS,
    START_NS,
    Builder,
    build_session,
    camera_spec,
    imu_spec,
    radar_spec,
)


def test_a_session_is_a_scene(tmp_path: Path) -> None:
    builder = rig(tmp_path / "drive")
    path, stamps = builder.close(), builder.streams["lidar"].t_ns
    still(path)
    dataset = pack(path)
    (scene,) = dataset.scenes
    assert scene["frame_index_interval"].tolist() == [0, 10]
    assert (scene["host"], scene["start_time"]) == ("rig-1", stamps[0])
    assert scene["end_time"] == stamps[-1]
    assert np.array_equal(dataset.frames["timestamp"], stamps)
    assert dataset.result.files[0].relative_to(path).as_posix() == "_archives/l5kit/drive.zarr"
    assert dataset.result.summary["frames"] == {"scenes": 1, "frames": 10, "agents": 0}
    (entry,) = dataset.sessions
    assert (entry["name"], entry["start_ns"], entry["scenes"]) == ("drive", START_NS, [0, 1])
    assert entry["trajectory"] == {"source": "sensor _pose", "measured": True}
    assert entry["notes"] == list(dataset.result.notes)
    assert dataset.noted("no boxes in space") == 1
    assert not dataset.noted("several lidars")


@pytest.mark.parametrize("scene_s", [0.8, 1.0])
def test_scenes_of_a_length(tmp_path: Path, scene_s: float) -> None:
    path, t_ns = sweeps(tmp_path / "s", 2.4)
    still(path)
    write_boxes(path, ({"t_ns": int(t)} for t in t_ns))
    dataset = pack(path, scene_s=scene_s)
    scenes = dataset.scenes
    cuts = (int(t_ns[0]) + n * round(scene_s * S) for n in (1, 2))
    starts = [0, *(int(np.searchsorted(t_ns, cut)) for cut in cuts)]
    assert scenes["frame_index_interval"].tolist() == [
        [a, b] for a, b in zip(starts, [*starts[1:], len(t_ns)], strict=True)
    ]
    assert np.array_equal(scenes["start_time"], t_ns[starts])
    assert np.array_equal(scenes["end_time"][:-1], scenes["start_time"][1:])
    assert scenes["end_time"][-1] == t_ns[-1]
    assert (dataset.agents["track_id"] == 1).all()
    assert dataset.sessions[0]["scenes"] == [0, 3]


def test_whose_samples_are_frames(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    for spec in (camera_spec(), lidar("front"), lidar("rear"), radar_spec(), still_imu()):
        builder.add(spec, 0.5, offset_ns=len(builder.streams) * 1000)
    path = builder.close()
    still(path)

    def stamps(**options: Any) -> np.ndarray:
        dataset = pack(path, **options)
        assert dataset.noted("several lidars (front, rear)", "front") == (not options)
        found: np.ndarray = dataset.frames["timestamp"]
        return found

    assert np.array_equal(stamps(), builder.streams["front"].t_ns)
    for name in ("rear", "camera", "imu"):
        assert np.array_equal(stamps(lidar=name), builder.streams[name].t_ns)
    with pytest.raises(SessionError, match="no stream 'roof'"):
        pack(path, lidar="roof")


@pytest.mark.parametrize(
    ("specs", "note"),
    [
        ((camera_spec(), radar_spec(), still_imu()), "the frames are those of camera"),
        ((radar_spec(), still_imu()), "the frames are those of radar"),
        ((lidar(),), ""),
    ],
)
def test_missing_sensors(tmp_path: Path, specs: tuple[Any, ...], note: str) -> None:
    builder = Builder(tmp_path / "s")
    for spec in specs:
        builder.add(spec, 0.4)
    builder.close()
    dataset = pack(builder.path)
    assert np.array_equal(dataset.frames["timestamp"], builder.streams[specs[0].name].t_ns)
    assert dataset.noted("has no lidar") == (note != "")
    assert dataset.noted(note)
    if len(specs) == 1:
        assert dataset.noted("poses: no poses known: the rig stands") == 1
        assert (dataset.frames["ego_rotation"] == np.eye(3)).all()


def test_only_an_imu(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    made = builder.add(still_imu(), 0.55)
    dataset = pack(builder.close())
    assert np.array_equal(dataset.frames["timestamp"], made.t_ns[0] + np.arange(6) * 100_000_000)
    assert dataset.noted("no lidar, camera or radar: a frame every 0.1 s") == 1
    assert dataset.noted("poses: orientation from the IMU, translation is zero") == 1
    assert np.abs(dataset.frames["ego_rotation"] - np.eye(3)).max() > 0.1


def test_nothing_to_pack_is_refused(tmp_path: Path) -> None:
    path = build_session(tmp_path / "s", radar_spec(), count=0).path
    with pytest.raises(SessionError, match="radar: has no sample with a time"):
        pack(path, lidar="radar")
    assert not list((path / "_archives/l5kit").iterdir())


def test_one_frame(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", count=1)
    still(path)
    write_boxes(path, [{"t_ns": int(t_ns[0])}])
    dataset = pack(path)
    (scene,) = dataset.scenes
    assert (scene["start_time"], scene["end_time"]) == (t_ns[0], t_ns[0])
    assert dataset.frames["agent_index_interval"].tolist() == [[0, 1]]


def test_recovered_sessions_and_losses(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(lidar(), seq=[0, 1, 2, 6, 7])
    builder.add(imu_spec(), count=0)
    builder.lose("lidar", 3, 5)
    dataset = pack(builder.close("recovered"), poses="identity")
    assert dataset.noted("session: recovered") == 1
    assert dataset.noted("lidar: lost samples: 3 (buffer)") == 1
    assert dataset.noted("imu: no sample was recorded") == 1
    (entry,) = dataset.sessions
    assert entry["lost"] == {"lidar": {"counted": {"buffer": 3}, "uncounted_intervals": 0}}
    assert entry["notes"] == list(dataset.result.notes)


def test_what_lies_outside_of_the_frames_is_said(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(lidar(), 0.5, offset_ns=2 * S)
    builder.add(still_imu(), 4.0)
    builder.add(camera_spec(), 0.5, offset_ns=2 * S + S // 10)
    dataset = pack(builder.close(), poses="identity")
    outside = [note for note in dataset.result.notes if "left out" in note]
    assert len(outside) == 2
    assert dataset.noted("imu: 2.0", "s before the first frame are left out") == 1
    assert dataset.noted("imu: 1.", "s after the last frame are left out") == 1


def restamp(path: Path, t_ns: np.ndarray) -> None:
    """Give a closed lidar other times."""
    (t_ns / 1e9).astype("<f8").tofile(path / "lidar/ts")
    (t_ns - START_NS + START_MONO_NS).astype("<u8").tofile(path / "lidar/t_mono")


def test_gaps_between_frames_are_said(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.5)
    restamp(path, t_ns + np.array([0, 0, 2, 2, 2]) * S)
    dataset = pack(path, poses="identity", scene_s=0.5)
    assert dataset.noted("lidar: 1 gaps between frames, the longest of 2.1") == 1
    assert dataset.scenes["frame_index_interval"].tolist() == [[0, 2], [2, 5]]


def test_times_that_do_not_rise(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 60.0)  # more than is read at a time
    odd = t_ns.copy()
    odd[[3, 512]] = odd[[2, 100]]
    restamp(path, odd)
    dataset = pack(path, poses="identity")
    assert np.array_equal(dataset.frames["timestamp"], np.delete(t_ns, [3, 512]))
    assert dataset.noted("lidar: 2 samples left out: their times do not rise") == 1


def test_no_overlap(tmp_path: Path) -> None:
    """Poses and boxes of another day are no use, and that is said."""
    path, t_ns = sweeps(tmp_path / "s", 0.5)
    add_poses(path, t_ns - 3600 * S, np.stack([np.arange(5.0)] * 3, 1), "_pose")
    write_boxes(path, ({"t_ns": int(t) + 3600 * S} for t in t_ns))
    dataset = pack(path)
    assert not dataset.noted("are interpolated")
    assert dataset.frames["ego_translation"].tolist() == [[4.0, 4.0, 4.0]] * 5
    assert dataset.noted("poses: held for", "after the last of _pose") == 1
    assert dataset.noted("jsonl: 5 boxes belong to no frame") == 1
    assert not len(dataset.agents)


def test_odd_poses_are_said(tmp_path: Path) -> None:
    """Two of four are no use; the others are two seconds apart."""
    path, t_ns = sweeps(tmp_path / "s", 2.1)
    times = t_ns[0] + np.array([0, -1, 1, 2]) * S
    add_poses(path, times, np.array([[0.0] * 3, [9.0] * 3, [np.nan] * 3, [4.0] * 3]), "_pose")
    dataset = pack(path)
    at_s = np.minimum((t_ns - t_ns[0]) / S, 2)
    assert np.allclose(dataset.frames["ego_translation"][:, 0], 2 * at_s, atol=1e-6)
    assert (
        dataset.noted("poses: 2 left out: no position or rotation there, or times that go back")
        == 1
    )
    assert dataset.noted("poses: 2.000 s without one are interpolated") == 1


def test_poses_that_cannot_be_read_and_sensors_that_are_not_calibrated(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 0.3)
    still(path)
    (path / "_pose/meta.json").write_text("{")
    write_boxes(path, ({"t_ns": int(t), "frame": "lidar", "center_m": [5, 6, 7]} for t in t_ns))
    dataset = pack(path)
    assert dataset.noted("_pose: cannot be read, left out: ") == 1
    assert dataset.noted("poses: no poses known: the rig stands") == 1
    assert dataset.noted("lidar: not in the calibration: placed at the rig's origin") == 1
    assert dataset.agents["centroid"].tolist() == [[5, 6]] * 3


def test_boxes_of_a_camera_that_is_not_calibrated(tmp_path: Path) -> None:
    """The camera is placed at the rig's origin and looks ahead."""
    builder = Builder(tmp_path / "s")
    t_ns = builder.add(camera_spec(), 0.3).t_ns
    path = builder.close()
    still(path)
    write_boxes(path, ({"t_ns": int(t), "frame": "camera", "center_m": [2, 0, 5]} for t in t_ns))
    dataset = pack(path)
    assert dataset.agents["centroid"].tolist() == [[5, -2]] * len(t_ns)


def test_held_poses_are_measured_from_the_frames(tmp_path: Path) -> None:
    path, t_ns = sweeps(tmp_path / "s", 1.0)
    part = t_ns[2:7]
    add_poses(path, part, np.stack([(part - t_ns[0]) / S] * 3, 1), "_pose")
    dataset = pack(path)
    x = dataset.frames["ego_translation"][:, 0]
    assert np.allclose(x, (np.clip(t_ns, part[0], part[-1]) - t_ns[0]) / S, atol=1e-6)
    text = dataset.sessions[0]["trajectory"]
    assert text["held_before_s"] == pytest.approx((t_ns[2] - t_ns[0]) / 1e9, abs=1e-5)
    assert text["held_after_s"] == pytest.approx((t_ns[-1] - part[-1]) / 1e9, abs=1e-5)


def test_long_hosts_are_cut(tmp_path: Path) -> None:
    path, _ = sweeps(tmp_path / "s", 0.2)
    header = path / "_recorder/session.json"
    header.write_text(header.read_text().replace('"rig-1"', '"a-vehicle-computer"', 1))
    dataset = pack(path, poses="identity")
    assert dataset.scenes["host"].tolist() == ["a-vehicle-comput"]
    assert dataset.noted("a-vehicle-computer is cut to 16") == 1
    header.write_text(header.read_text().replace("a-vehicle-computer", "a-vehicle-comput", 1))
    assert not pack(path, poses="identity").noted("is cut to")


def test_plain_traces(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "plain", plain=True)
    made = builder.add(lidar(), 0.5)
    dataset = pack(builder.close())
    assert np.abs(dataset.frames["timestamp"] - made.t_ns).max() < 500
    assert dataset.scenes["host"].tolist() == [""]


# Several sessions


def drive(path: Path, seconds: float, agents: int) -> Path:
    """A session with some agents in every frame but the first."""
    path, t_ns = sweeps(path, seconds)
    still(path)
    lines = (
        {"t_ns": int(t), "track": str(k), "center_m": [seconds, k, 0]}
        for t in t_ns[1:]
        for k in range(agents)
    )
    write_boxes(path, lines, times_of="lidar")
    return path


def packed_together(out: Path, *paths: Path, **more: Any) -> Dataset:
    (result,) = collect(paths, [ArchiveRequest("l5kit")], out, **more)
    assert result.files == (out / "l5kit" / f"{out.name}.zarr",)
    return Dataset.of(result)


def check(dataset: Dataset, *expected: tuple[str, int, int]) -> None:
    """Sessions as they should be: name, frames, agents in a frame."""
    assert [entry["name"] for entry in dataset.sessions] == [name for name, _, _ in expected]
    assert dataset.scenes["frame_index_interval"][0, 0] == 0
    frames, agents, at = dataset.frames, dataset.agents, 0
    assert len(dataset.scenes) == len(expected)
    for scene, entry, (_, count, each) in zip(
        dataset.scenes, dataset.sessions, expected, strict=True
    ):
        start, stop = scene["frame_index_interval"]
        assert stop - start == entry["frames"] == count
        for k, frame in enumerate(frames[start:stop]):
            wanted = each if k else 0
            assert frame["agent_index_interval"].tolist() == [at, at + wanted]
            assert agents["track_id"][at : at + wanted].tolist() == list(range(1, wanted + 1))
            assert (agents["centroid"][at : at + wanted, 0] == count / 10).all()
            at += wanted
    assert (at, stop) == (len(agents), len(frames))


def test_several_sessions(tmp_path: Path) -> None:
    paths = [drive(tmp_path / f"s{n}", n / 10, n) for n in (2, 3, 5)]
    dataset = packed_together(tmp_path / "summer", *paths)
    check(dataset, ("s2", 2, 2), ("s3", 3, 3), ("s5", 5, 5))


def test_one_session_is_open_at_a_time(tmp_path: Path) -> None:
    paths = [drive(tmp_path / f"s{n}", 0.3, 1) for n in range(4)]
    files: list[int] = []

    def count(*_: object) -> None:
        files.append(sum(1 for _ in Path("/proc/self/fd").iterdir()))

    packed_together(tmp_path / "summer", *paths, progress=count)
    assert len(files) == 13
    assert max(files[4:]) <= max(files[1:4])


def test_adding_and_replacing(tmp_path: Path) -> None:
    paths = [drive(tmp_path / f"s{n}", n / 10, n) for n in (2, 3, 4, 5)]
    out = tmp_path / "summer"
    packed_together(out, *paths[:2])
    check(packed_together(out, paths[2]), ("s2", 2, 2), ("s3", 3, 3), ("s4", 4, 4))
    changed = drive(tmp_path / "elsewhere" / "s3", 0.7, 6)
    dataset = packed_together(out, changed, paths[3])
    check(dataset, ("s2", 2, 2), ("s3", 7, 6), ("s4", 4, 4), ("s5", 5, 5))
    again = packed_together(out, paths[0])
    for name in ("scenes", "frames", "agents"):
        assert np.array_equal(getattr(again, name), getattr(dataset, name))
    assert [path.name for path in (out / "l5kit").iterdir()] == ["summer.zarr"]


def test_plain_traces_of_one_name_are_told_apart_by_their_first_stamps(tmp_path: Path) -> None:
    paths = []
    for count in (3, 4):
        builder = Builder(tmp_path / str(count) / "drive", plain=True)
        builder.add(lidar(), count=count, offset_ns=count * S)
        paths.append(builder.close())
    out = tmp_path / "summer"
    for path in (*paths, paths[0]):
        dataset = packed_together(out, path)
    assert [entry["frames"] for entry in dataset.sessions] == [3, 4]
    again = packed_together(tmp_path / "autumn", *paths)
    assert np.array_equal(again.frames, dataset.frames)


def test_what_cannot_be_added_to_stays(tmp_path: Path) -> None:
    out = tmp_path / "summer"
    packed_together(out, drive(tmp_path / "a", 0.3, 2))
    chunk = out / "l5kit/summer.zarr/agents/0"
    chunk.write_bytes(b"damaged")
    with pytest.raises(RecorderError, match=r"agents/0: is missing or damaged"):
        packed_together(out, drive(tmp_path / "b", 0.2, 1))
    assert chunk.read_bytes() == b"damaged"


def test_one_of_several_that_cannot_be_packed(tmp_path: Path) -> None:
    empty = Builder(tmp_path / "none")
    empty.add(radar_spec(), count=0)
    bad = drive(tmp_path / "bad", 0.3, 1)
    write_boxes(bad, [{"t_ns": START_NS, "size_m": "big"}])
    good = drive(tmp_path / "good", 0.4, 2)
    reported: dict[str, str] = {}

    def refused(path: Path, error: RecorderError) -> None:
        reported[path.name] = str(error)

    dataset = packed_together(tmp_path / "o", empty.close(), bad, good, refused=refused)
    check(dataset, ("good", 4, 2))
    assert "no sample to pack" in reported["none"]
    assert "hand.jsonl:2: size_m" in reported["bad"]


def test_the_same_session_twice_is_refused(tmp_path: Path) -> None:
    one, two = drive(tmp_path / "s", 0.3, 1), drive(tmp_path / "copy" / "s", 0.3, 1)
    with pytest.raises(RecorderError, match="is the same session as"):
        packed_together(tmp_path / "o", one, two)


def test_lidar_odometry_needs_a_lidar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recorder.archives.shared_options.require_odometry", lambda: None)
    builder = Builder(tmp_path / "s")
    builder.add(replace(camera_spec()), 0.2)
    with pytest.raises(RecorderError, match="has no lidar for odometry"):
        pack(builder.close(), poses="kiss-icp")


@pytest.mark.campaign(weight=3)
def test_memory_does_not_grow(tmp_path: Path) -> None:
    """Beyond what the chunks at hand take."""

    def most(seconds: float) -> int:
        builder = Builder(tmp_path / f"s{seconds}")
        made = builder.add(still_imu(), seconds)
        path = builder.close()
        still(path)
        every = made.t_ns[::10].tolist()
        write_boxes(path, ({"t_ns": t, "track": str(k)} for t in every for k in range(4)))
        folder = tmp_path / f"out{seconds}"
        folder.mkdir()
        options = PACKER.check({"lidar": "imu", "bridge_s": 0.2})
        with Session(path, virtual=True) as session:
            context = PackingContext(session, folder, options, Calibration())
            readings: list[int] = []
            context.advance = lambda _: readings.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.start()
            PACKER.pack(context)
            tracemalloc.stop()
        return max(readings)

    most(1)  # makes what is made once
    shorter, longer = most(6), most(16)
    assert longer < shorter + 140_000  # snapshots that are kept take 200 kB


def test_an_error_in_the_times_names_their_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(window: int) -> None:
        raise FormatError("torn")

    monkeypatch.setattr(FrameTimes, "windows", lambda times: map(torn, [0]))
    path, _ = sweeps(tmp_path / "drive")
    with pytest.raises(RecorderError, match=r"l5kit: lidar: torn"):
        pack(path)


def test_a_window_of_stamps_that_all_go_back_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build_session(tmp_path / "s", lidar(), count=7, plain=True).path
    (np.array([10.0, 11, 10.5, 11, 12, 13, 12.5]) + 1e9).tofile(path / "lidar/ts")
    monkeypatch.setattr(frames, "_WINDOW", 2)
    with Session(path) as session:
        times = FrameTimes.from_stream(session.streams["lidar"])
        windows = [((t_ns - 10**18) // 10**9).tolist() for t_ns in times.windows()]
    assert windows == [[10, 11], [12, 13]]
    assert times.left_out == 3
