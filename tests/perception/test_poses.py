"""Trajectories: where they come from, and that they cover an interval exactly."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import FormatError, SessionError
from recorder.perception.calibration import Calibration
from recorder.perception.geometry import transform
from recorder.perception.poses import Block, Cover, Identity, find_poses
from recorder.session.reader import Session
from tests.archives.ncore.packer_rig import add_poses, still_imu
from tests.session.build import START_NS, Builder, camera_spec

MS = 1_000_000


class Along:
    """Poses along x: one metre a millisecond."""

    name = "along"

    def __init__(self, times_ms: Sequence[int], cuts: Sequence[int] = ()) -> None:
        self._parts = np.split(np.array(times_ms, np.int64) * MS, list(cuts))

    def blocks(self) -> Iterator[Block]:
        for t_ns in self._parts:
            x = np.stack([t_ns / MS, 0 * t_ns, 0 * t_ns], axis=1)
            yield t_ns, transform(np.eye(3), x)

    def describe(self) -> dict[str, Any]:
        return {"source": "along", "measured": True}


def covered(cover: Cover) -> tuple[list[int], list[float]]:
    blocks = list(cover.blocks())
    t_ns = np.concatenate([t for t, _ in blocks])
    x = np.concatenate([poses[:, 0, 3] for _, poses in blocks])
    return t_ns.tolist(), x.tolist()


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=20, unique=True).map(sorted),
    st.lists(st.integers(0, 20), max_size=4).map(sorted),
    st.integers(0, 59),
    st.integers(1, 60),
)
def test_an_interval_is_covered_exactly(
    times: list[int], cuts: list[int], start: int, length: int
) -> None:
    last = start + length
    cover = Cover(Along(times, cuts), start * MS, last * MS)
    t_ns, x = covered(cover)
    assert (t_ns[0], t_ns[-1]) == (start * MS, last * MS)
    assert (np.diff(t_ns) > 0).all()
    inside = [t for t in times if start < t < last]
    assert t_ns[1:-1] == [t * MS for t in inside]
    expected = np.clip(np.array(t_ns) / MS, times[0], times[-1])
    assert np.allclose(x, expected)
    waits = times[0] - start if times[-1] >= start else 0
    assert cover.held_before_ns == max(0, waits) * MS
    assert cover.count == len(t_ns)


def test_gaps_are_told() -> None:
    cover = Cover(Along([0, 10, 70, 80], [2]), 5 * MS, 75 * MS)
    covered(cover)
    assert cover.describe() == {"poses": 4, "longest_gap_s": 0.06}


def test_what_is_held_is_told() -> None:
    cover = Cover(Along([20, 30]), 10 * MS, 50 * MS)
    covered(cover)
    assert (cover.held_before_ns, cover.held_after_ns) == (10 * MS, 20 * MS)


def test_a_source_without_poses() -> None:
    with pytest.raises(FormatError, match="along: holds no pose"):
        covered(Cover(Along([]), 0, MS))


def test_identity_covers_everything() -> None:
    assert covered(Cover(Identity(), 5_000, 9_000)) == ([5_000, 9_000], [0.0, 0.0])


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    builder = Builder(tmp_path / "s")
    builder.add(camera_spec(), 0.2)
    return builder


def source_of(path: Path, wanted: str = "auto") -> dict[str, Any]:
    with Session(path, virtual=True) as session:
        source = find_poses(session, Calibration(), wanted)
        list(source.blocks())
        return source.describe()


def some_poses(path: Path, name: str) -> None:
    t_ns = START_NS + np.arange(20, dtype=np.int64) * 10 * MS
    add_poses(path, t_ns, np.zeros((20, 3)), name)


def test_order_of_preference(builder: Builder) -> None:
    assert source_of(builder.close())["source"] == "identity"
    builder.add(still_imu(), 0.2)
    assert source_of(builder.close())["source"] == "orientation of imu"
    folder = builder.path / "_radar"
    folder.mkdir()
    t = START_NS / 1e9 + np.arange(4.0)
    rot = np.broadcast_to(np.eye(3), (4, 3, 3))
    np.savez(folder / "pose.npz", t=t, pos=np.zeros((4, 3)), rot=rot)
    assert source_of(builder.path)["source"] == "_radar/pose.npz"
    some_poses(builder.path, "odometry")
    assert source_of(builder.path)["source"] == "sensor odometry"
    some_poses(builder.path, "_pose")
    assert source_of(builder.path) == {"source": "sensor _pose", "measured": True}
    for wanted, source in (
        ("identity", "identity"),
        ("imu", "orientation of imu"),
        ("odometry", "sensor odometry"),
        ("_radar", "_radar/pose.npz"),
    ):
        assert source_of(builder.path, wanted)["source"] == source


def test_wrong_options(builder: Builder) -> None:
    path = builder.close()
    with pytest.raises(SessionError, match="has no IMU with orientations"):
        source_of(path, "imu")
    with pytest.raises(SessionError, match="camera: has neither poses"):
        source_of(path, "camera")
    with pytest.raises(SessionError, match="no stream 'nobody'"):
        source_of(path, "nobody")


def test_bad_poses_are_left_out_and_counted(builder: Builder) -> None:
    some_poses(builder.close(), "_pose")
    rot = np.fromfile(builder.path / "_pose/rot", "<f8").reshape(-1, 3, 3)
    rot[3], rot[5, 0, 0] = 0, np.nan
    rot.tofile(builder.path / "_pose/rot")
    t_mono = np.fromfile(builder.path / "_pose/t_mono", "<u8")
    t_mono[8] = t_mono[6]
    t_mono.tofile(builder.path / "_pose/t_mono")
    assert source_of(builder.path)["poses_left_out"] == 3


def test_quaternions_that_are_none_are_left_out(builder: Builder) -> None:
    """Of a length that is not one, longer or shorter, or not known."""
    some_poses(builder.close(), "odometry")
    quaternions = np.tile([0.6, 0.0, 0.0, 0.8], (20, 1))
    lengths = {2: 0.0, 4: 0.5, 6: 0.98, 8: 1.02, 10: 2.0, 12: np.nan}
    for row, length in {**lengths, 14: 0.995, 16: 1.005, 18: -1.0}.items():
        quaternions[row] *= length
    quaternions.tofile(builder.path / "odometry/rot")
    meta = json.loads((builder.path / "odometry/meta.json").read_text())
    meta["rot"]["shape"] = [4]
    (builder.path / "odometry/meta.json").write_text(json.dumps(meta))
    with Session(builder.path, virtual=True) as session:
        source = find_poses(session, Calibration())
        poses = np.concatenate([poses for _, poses in source.blocks()])
    assert source.describe()["poses_left_out"] == len(lengths)
    turned = np.array([[1.0, 0, 0], [0, 0.28, -0.96], [0, 0.96, 0.28]])
    assert np.allclose(poses[:, :3, :3], turned)


def test_a_damaged_bundle_is_named(builder: Builder) -> None:
    path = builder.close()
    (path / "_lidar").mkdir()
    (path / "_lidar/pose.npz").write_bytes(b"PK\x03\x04 not a bundle")
    with pytest.raises(FormatError, match=r"_lidar/pose\.npz: is not a trajectory"):
        source_of(path)
