"""Section on the vehicle's positions and its trajectory."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.perception.earth import local_track, position_channel
from recorder.perception.poses import NpzPoses, has_poses
from recorder.session.reader import Session
from recorder.session.stream import Stream
from recorder.viewers.report.drawing import round_step
from recorder.viewers.report.markup import Content, Html, element
from recorder.viewers.report.report_context import ReportContext
from recorder.viewers.report.session_scan import READ_ERRORS

_POINTS: Final = 1500
_SIZE: Final = 400  # units of a map
_EDGE: Final = 24
_MOST: Final = 6
_BREAK: Final = 2.5  # of the usual time between two points

Floats = npt.NDArray[np.float64]


def tracks_section(material: ReportContext) -> Content:
    """Make maps of positions on Earth, and of the trajectory in its own world."""
    maps: list[Content] = []
    for stream in material.streams[:]:
        try:
            if len(maps) < _MOST and (channel := position_channel(stream)) is not None:
                maps.append(_draw_positions(stream, channel))
        except READ_ERRORS as error:
            maps.append(material.fail(stream.name, error))
    try:
        if (found := _find_trajectory(material.session)) is not None:
            name, points, after = found
            maps.append(_draw_map(f"trajectory {name}", points, ("x", "y"), "", after))
    except READ_ERRORS as error:
        maps.append(material.fail("trajectory", error))
    return element("div", maps, class_="plots") if maps else None


def _read_evenly(stream: Stream, channel: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return evenly spaced values of a channel, [n, ...], and which follow an outage, [n]."""
    at = np.unique(np.linspace(0, len(stream) - 1, min(_POINTS, len(stream))).astype(np.int64))
    reader = stream.channels[channel]
    values = np.concatenate([reader.read(i, i + 1) for i in at.tolist()])
    after: npt.NDArray[np.bool_] = np.zeros(len(at), np.bool_)
    if stream.has_times and len(at) > 2:
        times = np.concatenate([stream.times(i, i + 1) for i in at.tolist()])
        steps = np.diff(times)
        after[1:] = steps > _BREAK * np.median(steps)
    return values, after


def _draw_positions(stream: Stream, channel: str) -> Html:
    positions, after = _read_evenly(stream, channel)
    track, origin = local_track(positions.astype(np.float64), None)
    if origin is None:
        text = f"{stream.name}: none of its {len(stream)} positions was measured"
        return element("p", text, class_="odd")
    missing = np.count_nonzero(np.isnan(track[:, 0]))
    text = f"from {origin[0]:.6f}°, {origin[1]:.6f}°, {origin[2]:.1f} m"
    if missing:
        text += f"; {100 * missing / len(track):.0f} % without a position"
    return _draw_map(stream.name, track, ("east", "north"), text, after)


def _find_trajectory(session: Session) -> tuple[str, Floats, npt.NDArray[np.bool_] | None] | None:
    """Return the best trajectory: name, points [n, 3] in m, and which of them follow an outage."""
    found = [s for s in session.streams.values() if has_poses(s) and len(s)]
    if found:
        stream = min(found, key=lambda s: (s.name != "_pose", s.name))
        points, after = _read_evenly(stream, "pos")
        return stream.name, points.astype(np.float64), after
    for name in ("_pose", "_lidar", "_camera", "_radar"):
        path = session.path / name / "pose.npz"
        if path.is_file():
            points = np.concatenate([poses[:, :3, 3] for _, poses in NpzPoses(path).blocks()])
            return name, points[:: max(1, len(points) // _POINTS)], None
    return None


def _draw_map(
    name: str,
    points: Floats,
    axes: tuple[str, str],
    text: str,
    after: npt.NDArray[np.bool_] | None = None,
) -> Html:
    """Draw points [n, 2 or 3] in m from above, with equal scales, north or y up.

    No line leads to the points that follow an outage (`after`, [n]).
    """
    known: npt.NDArray[np.bool_] = np.asarray(np.isfinite(points[:, :2]).all(axis=1))
    good = points[known, :2]
    if not len(good):
        return element("p", f"{name}: has no point", class_="odd")
    least, most = good.min(axis=0), good.max(axis=0)
    extent = max(float((most - least).max()), 1.0)
    scale = (_SIZE - 2 * _EDGE) / extent
    middle = (least + most) / 2

    def place_point(point: Floats) -> tuple[float, float]:
        across, up = ((point - middle) * scale).tolist()
        return _SIZE / 2 + across, _SIZE / 2 - up

    words, pen = [], "M"
    breaks = np.zeros(len(points), np.bool_) if after is None else after
    for point, here, broken in zip(points[:, :2], known.tolist(), breaks.tolist(), strict=True):
        if broken:
            pen = "M"
        if here:
            across, down = place_point(point)
            words.append(f"{pen}{across:.1f} {down:.1f}")
        pen = "L" if here else "M"
    (x0, y0), (x1, y1) = place_point(good[0]), place_point(good[-1])
    bar = round_step(extent / 8)
    wide = bar * scale
    length = float(np.linalg.norm(np.diff(good, axis=0), axis=1).sum())
    shapes = [
        element("rect", x=0, y=0, width=_SIZE, height=_SIZE, class_="sheet"),
        element("path", d="".join(words), class_="s s0"),
        element("circle", cx=x0, cy=y0, r=5, class_="begin"),
        element("text", "start", x=x0, y=y0 + 20, text_anchor="middle"),
        element("rect", x=x1 - 4, y=y1 - 4, width=8, height=8, class_="finish"),
        element("text", "end", x=x1, y=y1 - 10, text_anchor="middle"),
        element("path", d=f"M10 {_SIZE - 14}v6h{wide:.1f}v-6", class_="s s5 solid"),
        element("text", f"{bar:g} m", x=14 + wide, y=_SIZE - 7),
        element("text", f"↑ {axes[1]}", x=10, y=18),
    ]
    label = f"{name}: {length:.0f} m from start to end"
    drawn = element("svg", shapes, viewBox=f"0 0 {_SIZE} {_SIZE}", class_="map", role="img",
                    aria_label=label)  # fmt: skip
    title = [element("b", name), element("small", f" {length:.0f} m long {text}")]
    return element("figure", element("figcaption", title), drawn)
