"""The simulated camera: what it shows lies where OpenCV's projection says."""

from __future__ import annotations

import hashlib
from itertools import product
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from drivers.camera.backdrop import BONNET_COLOUR, Backdrop
from drivers.camera.lens import Lens
from drivers.camera.model import SimulatedCamera, strip_block_px
from drivers.camera.outlines import draw_order
from drivers.sim.truth import boxes, ego_mask
from drivers.world import World, mounts
from tests.campaigns import Selector

Floats = npt.NDArray[np.float64]
Image = npt.NDArray[np.uint8]

WIDTH, HEIGHT = 640, 360
LENS = Lens.default(WIDTH, HEIGHT)
WORLD = World("drive")
ASKEW = mounts.Mount((1.6, 0.4, 1.6), (-0.52, 0.46, -0.5, 0.517494))
READOUT_S = 0.03


def opencv(points: Floats, lens: Lens = LENS) -> Floats:
    """Pixels [n, 2] of points in the camera's axes [n, 3], by OpenCV."""
    matrix = np.array([[lens.focal_px, 0, lens.centre_px[0]], [0, lens.focal_px, lens.centre_px[1]],
                       [0, 0, 1]])  # fmt: skip
    pixels, _ = cv2.projectPoints(
        points.reshape(-1, 1, 3), np.zeros(3), np.zeros(3), matrix, np.array(lens.distortion)
    )
    return np.asarray(pixels, np.float64).reshape(-1, 2)


def in_camera(points: Floats, t_s: Floats, mount: mounts.Mount) -> Floats:
    """World points [n, 3] in the camera's axes at times [n]."""
    position, rotation = WORLD.trajectory.pose(t_s)
    in_rig = np.einsum("nji,nj->ni", rotation, points - position)
    return np.asarray((in_rig - mount.translation) @ mount.rotation)


PLACES = [-1.0, -0.5, 0.0, 0.5, 1.0]
EDGES = np.array(
    [
        np.roll([place, a, b], axis)
        for place in PLACES
        for a in (-1, 1)
        for b in (-1, 1)
        for axis in range(3)
    ]
)

"""Places on a box's edges (lenses and rolling shutters bend them), the corners among them."""


def edges(number: int, t_s: Floats) -> Floats:
    """The places on a target's edges in the world, [60, 3], each at its own time [60]."""
    target = WORLD.targets[number]
    centre, yaw = target.pose(t_s)
    x, y, z = (EDGES * np.array(target.size_m) / 2).T
    c, s = np.cos(yaw), np.sin(yaw)
    return np.asarray(np.column_stack([c * x - s * y, s * x + c * y, z]) + centre)


def projected(number: int, t_s: float, mount: mounts.Mount, readout_s: float) -> Floats:
    """Pixels of places on a target's edges, [60, 2], each when its row is read."""
    rows = np.full(len(EDGES), HEIGHT / 2)
    for _ in range(8):
        times = t_s - readout_s * (HEIGHT - 1 - rows) / HEIGHT
        pixels = opencv(in_camera(edges(number, times), times, mount))
        rows = pixels[:, 1]
    return pixels


def camera(mount: mounts.Mount = mounts.CAMERA, readout_s: float = 0.0, **more: Any) -> Any:
    """At 1000 Hz: picture k is that of millisecond k."""
    return SimulatedCamera(WORLD, LENS, mount, fps=1000.0, readout_s=readout_s, **more)


# --- the lens ---------------------------------------------------------------------------------


@pytest.mark.parametrize("distortion", [(0.0,) * 5, LENS.distortion, (-0.2, 0.05, 0.002, 0.003, 0)])
def test_the_lens_is_opencvs(distortion: tuple[float, float, float, float, float]) -> None:
    lens = Lens.default(WIDTH, HEIGHT, distortion=distortion)
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(-3, 3, 500), rng.uniform(-2, 2, 500), np.full(500, 5.0)])
    u, v = lens.project(points[:, 0] / 5, points[:, 1] / 5)
    np.testing.assert_allclose(np.column_stack([u, v]), opencv(points, lens), atol=1e-9)
    x, y = lens.unproject(u, v)
    np.testing.assert_allclose(np.column_stack([x, y]), points[:, :2] / 5, atol=1e-9)


def test_a_lens_that_folds_its_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="folds"):
        SimulatedCamera(WORLD, Lens.default(WIDTH, HEIGHT, distortion=(-3.0, 0, 0, 0, 0)))


# --- targets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mount", "readout_s"),
    [
        pytest.param(mounts.CAMERA, 0.0, id="global"),
        pytest.param(mounts.CAMERA, READOUT_S, id="rolling", marks=pytest.mark.campaign),
        pytest.param(ASKEW, 0.0, id="askew", marks=pytest.mark.campaign),
        pytest.param(ASKEW, READOUT_S, id="askew, rolling"),
    ],
)
def test_a_targets_pixels_lie_where_its_box_is_projected(
    mount: mounts.Mount, readout_s: float
) -> None:
    pictures = camera(mount, readout_s)
    kinds: set[str] = set()
    errors = []
    # Straight on, round a corner, at the stop.
    for millisecond in (900, 6500, 9000, 53_000, 61_000):
        t_s = millisecond / 1000
        whole = pictures.frame(millisecond)
        for box in boxes(pictures, t_s):
            inside = box.left > 1 and box.top > strip_block_px(WIDTH) + 1
            inside &= box.left + box.width < WIDTH - 2 and box.top + box.height < HEIGHT - 2
            if box.occluded or not inside or box.width < 5 or box.height < 5:
                continue
            without = pictures.frame(millisecond, frozenset({box.target}))
            different = (whole != without).any(axis=2)
            different[: strip_block_px(WIDTH) * 6, : WIDTH // 3] = False
            rows, columns = np.nonzero(different)
            pixels = projected(box.target, t_s, mount, readout_s)
            low, high = pixels.min(axis=0), pixels.max(axis=0)
            if low[1] < strip_block_px(WIDTH) * 6 and low[0] < WIDTH // 3:
                continue  # behind the number
            errors.append(
                [columns.min() - low[0], rows.min() - low[1],
                 columns.max() - high[0], rows.max() - high[1]]
            )  # fmt: skip
            np.testing.assert_allclose([box.left, box.top], low, atol=0.6)
            np.testing.assert_allclose([box.width, box.height], high - low, atol=1.0)
            kinds.add(WORLD.targets[box.target].kind)
    assert len(errors) >= 12
    assert {"car", "pole", "pedestrian", "cyclist"} <= kinds
    assert np.abs(errors).max() <= 1.0  # a pixel is there or not
    assert np.abs(np.mean(errors, axis=0)).max() < 0.35


def test_what_is_nearer_covers_what_is_behind() -> None:
    """Boxes without overlap, seen along random rays: of those met, the nearest is drawn last."""
    rng = np.random.default_rng(3)
    checked = 0
    for _ in range(50):
        centres: list[Floats] = []
        shapes: list[Any] = []
        for _ in range(14):
            half = rng.uniform(0.1, 4.0, 2)
            angle, centre = rng.uniform(0, np.pi), rng.uniform(-25, 25, 2)
            reach = float(np.hypot(*half))
            if np.hypot(*centre) < reach + 0.3 or any(
                np.hypot(*(centre - other[:2])) < reach + other[2] for other in centres
            ):
                continue
            centres.append(np.array([*centre, reach]))
            along = np.array([np.cos(angle), np.sin(angle)])
            aside = np.array([-along[1], along[0]])
            around = ((1, 1), (-1, 1), (-1, -1), (1, -1))[:: 1 if len(shapes) % 2 else -1]
            shapes.append([centre + a * half[0] * along + b * half[1] * aside for a, b in around])
        outlines = np.array(shapes)
        place = np.empty(len(outlines), int)
        place[draw_order(outlines, np.zeros(2))] = np.arange(len(outlines))
        for bearing in rng.uniform(0, 2 * np.pi, 60):
            met = hits(outlines, np.array([np.cos(bearing), np.sin(bearing)]))
            if np.isfinite(met).sum() > 1:
                checked += 1
                shown = np.flatnonzero(np.isfinite(met))[np.argmax(place[np.isfinite(met)])]
                assert shown == np.argmin(met)
    assert checked > 150


@pytest.mark.parametrize("mirrored", [1.0, -1.0])
def test_a_long_wall_does_not_cover_what_stands_before_it(mirrored: float) -> None:
    """Its middle is the nearer one; what it reaches to beside the eye is behind the other."""
    around = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)])
    wall = np.array([0.0, 5.0]) + around * [30.0, 0.2]
    before = np.array([20.0, 3.0]) + around * [0.5, 0.5]
    behind = np.array([0.0, 7.0]) + around * [0.5, 0.5]
    outlines = np.stack([before, wall, behind]) * [mirrored, 1.0]
    assert draw_order(outlines, np.zeros(2)).tolist() == [2, 1, 0]
    assert draw_order(outlines[::-1], np.zeros(2)).tolist() == [0, 1, 2]


def hits(outlines: Floats, ray: Floats) -> Floats:
    """Distance along a ray from the origin to each outline [m, 4, 2]; inf where it is missed."""
    start, edge = outlines, np.roll(outlines, -1, axis=1) - outlines
    across = edge[..., 0] * ray[1] - edge[..., 1] * ray[0]
    distance = (start[..., 1] * edge[..., 0] - start[..., 0] * edge[..., 1]) / across
    share = (start[..., 1] * ray[0] - start[..., 0] * ray[1]) / across
    good = (distance > 0) & (share >= 0) & (share <= 1)
    return np.asarray(np.where(good, distance, np.inf).min(axis=1))


def test_any_place_and_any_time_can_be_drawn(select: Selector) -> None:
    sideways = mounts.Mount((1.0, 0.0, 1.4), (-0.7071068, 0.0, 0.0, 0.7071068))  # looks left
    backward = mounts.Mount((0.0, 0.0, 1.4), (-0.5, -0.5, 0.5, 0.5))
    scenes = product(("drive", "straight", "parked"), (mounts.CAMERA, sideways, backward))
    for scene, mount in select(scenes, 4):
        pictures = SimulatedCamera(World(scene, seed=1), Lens.default(160, 90), mount, fps=2.0)
        for index in select((*range(0, 170, 17), 1_000_003), 6):
            assert pictures.frame(index)[30:].std() > 5


# --- ground, sky, own vehicle -----------------------------------------------------------------


@pytest.mark.parametrize("readout_s", [0.0, READOUT_S])
def test_each_pixel_of_the_ground_shows_its_place(readout_s: float) -> None:
    backdrop = Backdrop(WORLD, LENS, ASKEW)
    rng = np.random.default_rng(5)
    u, v = rng.integers(0, WIDTH, 4000), rng.integers(HEIGHT // 2 + 20, HEIGHT, 4000)
    x, y = LENS.unproject(u.astype(np.float64), v.astype(np.float64))
    rays = np.column_stack([x, y, np.ones(4000)]) @ ASKEW.rotation.T
    for t_s in (1.0, 7.0, 60.0):
        rows = t_s - readout_s * (HEIGHT - 1 - np.arange(HEIGHT)) / HEIGHT
        codes = backdrop.codes(rows if readout_s else np.array([t_s]))
        position, rotation = WORLD.trajectory.pose(rows[v])
        at = ASKEW.translation - rays * (ASKEW.translation[2] / rays[:, 2:])
        down = (rays[:, 2] < 0) & (np.hypot(at[:, 0], at[:, 1]) < 40)
        assert down.sum() > 2000
        world = np.einsum("nij,nj->ni", rotation, at) + position
        expected = WORLD.ground.codes(world[:, 0], world[:, 1])
        same = codes[v, u][down] == expected[down]
        assert same.mean() > 0.995  # but for rounding at the edge of a cell


def test_a_rolling_shutter_shows_each_row_at_its_time() -> None:
    rolling = camera(readout_s=READOUT_S)
    at_once = camera()
    end = 7000
    picture = rolling.frame(end)
    for row in (60, 170, 200, 260, 300):
        instant = end - round(READOUT_S * 1000 * (HEIGHT - 1 - row) / HEIGHT)
        exact = READOUT_S * 1000 * (HEIGHT - 1 - row) / HEIGHT
        same = (at_once.frame(instant)[row] == picture[row]).all(axis=1).mean()
        other = (at_once.frame(end)[row] == picture[row]).all(axis=1).mean()
        assert same > (0.8 if abs(exact - round(exact)) < 0.1 else 0.5)
        assert same > other


def test_a_long_exposure_blurs_what_moves() -> None:
    sharp, blurred = camera().frame(7000), camera(exposure_s=0.04).frame(7000)
    below = slice(HEIGHT // 2 + 10, HEIGHT - 60)

    def detail(image: Image) -> float:
        return float(np.abs(np.diff(image[below].astype(int), axis=1)).mean())

    assert detail(blurred) < 0.8 * detail(sharp)
    assert abs(blurred[below].mean() - sharp[below].mean()) < 3


def test_the_own_vehicle_is_where_its_mask_says() -> None:
    pictures = camera()
    mask = ego_mask(pictures)
    assert set(np.unique(mask).tolist()) == {0, 255}
    assert 0.01 < (mask > 0).mean() < 0.2
    for index in (0, 7000, 53_333):
        picture = pictures.frame(index)
        assert (picture[mask > 0] == BONNET_COLOUR).all()
        assert not (picture[mask == 0] == BONNET_COLOUR).all(axis=1).any()


# --- the same in every run --------------------------------------------------------------------

GOLDEN = {
    "plain": "11e88974df26531c9faed3349b9a30cee033fbbb242e0f376ef61bd9c6483e99",
    "everything": "743863a33a1e78caca276e3ad7b506c7941c82a633ea333a3858381b6d27a936",
}


def test_golden_pictures() -> None:
    world = World("drive", seed=5)
    plain = SimulatedCamera(world, LENS)
    everything = SimulatedCamera(
        world, LENS, ASKEW, readout_s=READOUT_S, exposure_s=0.01, gain=1.2, noise=1.0
    )
    found = {
        name: hashlib.sha256(b"".join(c.frame(k).tobytes() for k in (0, 211, 1600))).hexdigest()
        for name, c in (("plain", plain), ("everything", everything))
    }
    assert found == GOLDEN
