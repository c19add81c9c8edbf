"""Trees of frames, however strange."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from recorder.common.errors import FormatError
from recorder.formats.ros2.messages import Header, TransformStamped
from recorder.perception.geometry import transform
from recorder.perception.transforms import FrameTree
from tests.campaigns import seeded

STILL = (0.0, 0.0, 0.0, 1.0)


def edge(
    parent: str, child: str, place: tuple[float, ...] = (0, 0, 0), turn: tuple[float, ...] = STILL
) -> TransformStamped:
    return TransformStamped(Header(0, parent), child, place, turn)


def grow(*edges: TransformStamped) -> FrameTree:
    tree = FrameTree()
    for each in edges:
        tree.add(each)
    return tree


def test_a_frame_beside_the_rig_has_a_place_by_their_common_frame() -> None:
    quarter = tuple(Rotation.from_euler("z", 90, degrees=True).as_quat())
    tree = grow(
        edge("odom", "footprint", (9, 9, 9)), edge("odom", "footprint", (8, 9, 9)),
        edge("footprint", "base", (0, 0, 1), quarter), edge("footprint", "mast", (1, 0, 0)),
        edge("mast", "lidar", (0, 0, 2)),
    )  # fmt: skip
    of_base = transform(Rotation.from_quat(quarter).as_matrix(), (0, 0, 1))
    wanted = np.linalg.inv(of_base) @ transform(np.eye(3), (1, 0, 2))
    assert np.allclose(tree.place("lidar", "base"), wanted)
    assert np.allclose(tree.place("base", "base"), np.eye(4))
    with pytest.raises(FormatError, match=r"no transforms lead from its frame 'odom' to 'base'"):
        tree.place("odom", "base")
    assert [each.parent for each in tree.climb("base")] == ["footprint", "odom"]
    assert [each.moves for each in tree.climb("base", "odom")] == [False, True]


def test_a_mount_replaces_transforms() -> None:
    tree = grow(edge("a", "lidar"), edge("b", "lidar"), edge("map", "base"))
    tree.fix("lidar", "base", transform(np.eye(3), (1, 2, 3)))
    assert tree.place("lidar", "base")[:3, 3].tolist() == [1, 2, 3]


def test_rings_and_long_chains_are_no_way() -> None:
    ring = grow(edge("a", "b"), edge("b", "c"), edge("c", "a"), edge("x", "x"))
    for frame in ("a", "x"):
        with pytest.raises(FormatError, match="no transforms lead from"):
            ring.climb(frame)
    chain = grow(*(edge(str(at), str(at + 1)) for at in range(5000)))
    assert len(chain.climb("90", "0")) == 90
    with pytest.raises(FormatError, match="no transforms lead from '5000'"):
        chain.climb("5000")
    ladder = [
        edge(f"{side}{at}", f"{own}{at + 1}") for at in range(60) for side in "ab" for own in "ab"
    ]
    with pytest.raises(FormatError, match="no transforms lead from 'a60' to 'world'"):
        grow(*ladder).climb("a60", "world")
    with pytest.raises(FormatError, match="has the parents"):
        grow(*ladder).climb("a60")


@seeded(20, weight=5, least=20)
def test_any_transforms_give_a_place_or_one_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [*"abcde", "", "/a"]
    values = [0.0, 1.0, -2.0, 1e300, np.nan, np.inf]
    tree = FrameTree()
    for _ in range(rng.integers(1, 12)):
        turn = STILL if rng.random() < 0.7 else tuple(rng.choice(values, 4))
        place = tuple(rng.choice(values[:3] if rng.random() < 0.8 else values, 3))
        tree.add(edge(str(rng.choice(names)), str(rng.choice(names)), place, turn))
    for frame in names:
        for rig in "abc":
            try:
                assert np.isfinite(tree.place(frame, rig)).all()
            except FormatError as error:
                assert "\n" not in str(error)
            try:
                way = tree.climb(frame, rig)
                assert not way or way[-1].parent == rig
            except FormatError as error:
                assert "\n" not in str(error)
