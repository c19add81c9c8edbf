"""Section on lidars: sweeps from above, and a range image of those that record ranges."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.beams import BEAMS
from recorder.common.errors import FormatError, RecorderError
from recorder.perception.calibration import Calibration, session_calibration
from recorder.perception.frames import has_ouster_sweeps
from recorder.perception.geometry import apply
from recorder.perception.lidar.beam_pictures import BeamPictures
from recorder.perception.lidar.clouds import make_point_source
from recorder.perception.lidar.lidar import sweep_optics
from recorder.perception.lidar.points import find_returns, stack_xyz
from recorder.perception.lidar.sweeps import SweepGrid
from recorder.session.playback import recorded_spec
from recorder.session.reader import lidar_range_mm
from recorder.session.stream import Stream
from recorder.viewers.report.drawing import moment_text
from recorder.viewers.report.markup import Content, Html, element
from recorder.viewers.report.rasters import BACKGROUND, Picture, apply_colours, shrink_picture
from recorder.viewers.report.report_context import SENSOR_MOMENTS, ReportContext
from recorder.viewers.report.session_scan import READ_ERRORS

_PIXELS: Final = 480
_EXTENTS_M = (2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300)
_SHARE = 92  # percent of the points are inside of the picture


def lidars_section(material: ReportContext) -> Content:
    """Make the section on each lidar at a few moments."""
    streams = material.of_kind("lidar")
    if not streams:
        return None
    calibration = Calibration()
    with contextlib.suppress(RecorderError, OSError):  # the section on the setup reports it
        calibration = session_calibration(material.session.path)
    return [_draw_sweeps(material, s, calibration) for s in streams]


def _draw_sweeps(material: ReportContext, stream: Stream, calibration: Calibration) -> Html:
    title = element("h3", stream.name)
    try:
        grid = sweep_grid(stream) if has_ouster_sweeps(stream) else None
        spec = recorded_spec(stream)
        source = make_point_source(spec)
        pictures = BeamPictures(spec) if BEAMS in spec.files else None
        pose = calibration.of(stream.name).pose
    except READ_ERRORS as error:
        return element("div", title, material.fail(stream.name, error))
    shown: list[Content] = []
    image: Content = None
    for index in material.moments(stream, SENSOR_MOMENTS["lidar"]):
        try:
            time = moment_text(material.since_start_s(stream, index))
            if grid is None:
                sample = source.read_sample(stream, index)
                points = find_points(source.points(sample, 0)[1], pose)
                if pictures is not None:
                    places = pictures.find_places(sample)
                    metres = pictures.select(sample["rng"], places) * pictures.unit_m
                    image = image or _draw_range_image(material, metres, time)
            else:
                ranges = grid.cut(lidar_range_mm(stream, index))
                points = compute_points(grid, ranges, pose)
                image = image or _draw_range_image(material, ranges * 1e-3, time)
            shown.append(_draw_sweep(material, points, f"{stream.name} at {time}", time))
        except READ_ERRORS as error:
            shown.append(material.fail(f"{stream.name}, sweep {index}", error))
    frame = "the rig's frame" if pose is not None else "the sensor's frame"
    about = f"from above, forward is up, in {frame}; brighter is higher"
    return element("div", title, element("p", about, class_="muted"),
                   element("div", shown, class_="film large"), image)  # fmt: skip


def sweep_grid(stream: Stream) -> SweepGrid:
    """Return the rays of a lidar's sweeps; raise FormatError if its metadata cannot be used."""
    spec = recorded_spec(stream)
    where = str(stream.path / "lidar.json")
    text = spec.files.get("lidar.json")
    if text is None:
        raise FormatError(f"{where}: is missing; without it sweeps have no directions")
    return SweepGrid(*sweep_optics(text, where, tuple(stream.meta["rng"]["shape"])))


def compute_points(
    grid: SweepGrid, ranges: npt.NDArray[np.uint32], pose: npt.NDArray[np.float64] | None
) -> npt.NDArray[np.float32]:
    """Return the points f4 [n, 3] of the returns, m, in the rig's frame where the pose is known."""
    flat = ranges.reshape(-1)
    hit = flat > 0
    points = grid.origin[hit] + grid.direction[hit] * (flat[hit, None] * np.float32(1e-3))
    return points if pose is None else apply(pose, points).astype(np.float32)


def find_points(
    recorded: npt.NDArray[Any], pose: npt.NDArray[np.float64] | None
) -> npt.NDArray[np.float32]:
    """Return recorded points with a return, as `compute_points`."""
    points = stack_xyz(recorded[find_returns(recorded)])
    return points if pose is None else apply(pose, points).astype(np.float32)


def draw_from_above(points: npt.NDArray[np.float32]) -> tuple[Picture, float]:
    """Draw points f4 [n, 3] from above: x is up, y is left; the highest point of a pixel is shown.

    Returns:
        The picture, and the metres from its middle to an edge.
    """
    away = np.hypot(points[:, 0], points[:, 1])
    wanted = float(np.percentile(away, _SHARE)) if len(away) else 10.0
    extent_m = next((m for m in _EXTENTS_M if m >= wanted), _EXTENTS_M[-1])
    picture: Picture = np.full((_PIXELS, _PIXELS, 3), BACKGROUND, np.uint8)
    scale = _PIXELS / 2 / extent_m
    rows = np.rint(_PIXELS / 2 - points[:, 0] * scale).astype(np.int64)
    columns = np.rint(_PIXELS / 2 - points[:, 1] * scale).astype(np.int64)
    inside = (rows >= 0) & (rows < _PIXELS) & (columns >= 0) & (columns < _PIXELS)
    if inside.any():
        height = points[inside, 2]
        low, high = (float(value) for value in np.percentile(height, (5, 95)))
        order = np.argsort(height, kind="stable")
        # The darkest quarter of the colours is hard to see on the background.
        shades = apply_colours(height, low - (high - low) / 3, high)
        picture[rows[inside][order], columns[inside][order]] = shades[order]
    return picture, extent_m


def _draw_sweep(
    material: ReportContext, points: npt.NDArray[np.float32], text: str, time: str
) -> Html:
    picture, extent_m = draw_from_above(points)
    middle = _PIXELS / 2
    rings: list[Content] = []
    for part in (0.5, 1.0):
        radius = middle * part
        rings.append(element("circle", cx=middle, cy=middle, r=radius - 1, class_="ring"))
        metres = f"{extent_m * part:g} m"
        rings.append(element("text", metres, x=middle + 4, y=middle - radius + 18))
    address = material.picture(picture)
    image = element("image", href=address, width=_PIXELS, height=_PIXELS)
    label = f"{text}, from above, {extent_m} m to each side"
    shown = element(
        "svg", image, rings, viewBox=f"0 0 {_PIXELS} {_PIXELS}", class_="sweep", role="img",
        aria_label=label,
    )  # fmt: skip
    return element("figure", shown, element("figcaption", f"{time}, {len(points)} points"))


def _draw_range_image(material: ReportContext, metres: npt.NDArray[Any], time: str) -> Html:
    """Draw the sweep as a range image; brightness is the logarithm of the range."""
    hit = metres > 0
    metres = np.where(hit, metres, 1e-3)
    low, high = (0.5, 50.0)
    if hit.any():
        low, high = (float(v) for v in np.percentile(metres[hit], (1, 99)))
    shades = apply_colours(-np.log(metres), -np.log(max(high, low * 1.01)), -np.log(low))
    shades[~hit] = BACKGROUND
    picture = shrink_picture(shades, 1024)
    shown = element("img", src=material.picture(picture), class_="raster", alt="range image",
                    width=picture.shape[1], height=picture.shape[0])  # fmt: skip
    text = (
        f"range image at {time}: bright is {low:.1f} m, dark is {high:.0f} m, black has no return"
    )
    return element("figure", shown, element("figcaption", text))
