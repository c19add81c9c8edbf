"""Section on radars: power over range and speed, at a few moments."""

from __future__ import annotations

import numpy as np

from recorder.common.errors import FormatError
from recorder.perception.radar.geometry import RadarGeometry
from recorder.perception.radar.maps import RadarMaps
from recorder.perception.radar.radar import RadarProcessor
from recorder.session.playback import recorded_spec
from recorder.session.stream import Stream
from recorder.viewers.report.drawing import Axis, moment_text, raster_plot, ticks
from recorder.viewers.report.markup import Content, Html, element, table
from recorder.viewers.report.rasters import apply_colours
from recorder.viewers.report.report_context import SENSOR_MOMENTS, ReportContext
from recorder.viewers.report.session_scan import READ_ERRORS

_TARGETS = 4
_RANGE_DB = (-3.0, 45.0)


def radars_section(material: ReportContext) -> Content:
    """Make the section on each radar at a few moments."""
    made = [_draw_frames(material, stream) for stream in material.of_kind("radar")]
    return made or None


def _draw_frames(material: ReportContext, stream: Stream) -> Html:
    title = element("h3", stream.name)
    try:
        geometry = _read_geometry(stream)
        maps, processor = RadarMaps(geometry), RadarProcessor(geometry, limit=_TARGETS)
    except READ_ERRORS as error:
        return element("div", title, material.fail(stream.name, error))
    shown: list[Content] = []
    rows: list[list[str | None]] = []
    for index in material.moments(stream, SENSOR_MOMENTS["radar"]):
        try:
            sample = stream.sample(index)
            spectra = processor.spectra(sample["iq"])
            level_db, _ = maps.range_doppler(spectra)
            time = moment_text(material.since_start_s(stream, index))
            # Speeds rise upwards.
            picture = apply_colours(level_db[::-1], *_RANGE_DB)
            valid = bool(sample.get("valid", True))
            shown.append(_draw_map(material, maps, np.ascontiguousarray(picture), time, valid))
            found = processor.find(spectra)
            targets = zip(found.range_m, found.velocity_m_s, found.snr_db, strict=True)
            rows.append([time, "; ".join(f"{r:.1f} m, {v:+.1f} m/s, {s:.0f} dB"
                                         for r, v, s in targets) or None])  # fmt: skip
        except READ_ERRORS as error:
            shown.append(material.fail(f"{stream.name}, frame {index}", error))
    low, high = _RANGE_DB
    about = f"power over range and speed, from {low:g} dB (dark) to {high:g} dB above the noise"
    listed = table(("Time", "Strongest targets: range, speed, above the noise"), rows)
    return element("div", title, element("p", about, class_="muted"),
                   element("div", shown, class_="plots"), listed if rows else None)  # fmt: skip


def _read_geometry(stream: Stream) -> RadarGeometry:
    where = str(stream.path / "radar.json")
    text = recorded_spec(stream).files.get("radar.json")
    if text is None:
        raise FormatError(f"{where}: is missing; without it frames cannot be processed")
    return RadarGeometry.of_metadata(text, where, tuple(stream.meta["iq"]["shape"]))


def _draw_map(
    material: ReportContext, maps: RadarMaps, picture: np.ndarray, time: str, valid: bool
) -> Html:
    speeds, ranges = maps.velocity_m_s, maps.range_m
    x = Axis(float(ranges[0]), float(ranges[-1]), ticks(float(ranges[0]), float(ranges[-1])), "m",
             lambda m: f"{m:g} m")  # fmt: skip
    low, high = float(speeds[0]), float(speeds[-1])
    y = Axis(low, high, ticks(low, high, 4), "m/s")
    title = f"{time}" + ("" if valid else ", packets of this frame are missing")
    return raster_plot(title, x, y, material.picture(picture), f"range and speed at {time}")
