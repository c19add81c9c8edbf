"""Options of the archives with radar detections, and readers of sensors' metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recorder.archives.sample_workers import WorkerContext
from recorder.config.options import Option, OptionTable
from recorder.perception.radar.frames import RadarFrames
from recorder.perception.radar.geometry import RadarGeometry
from recorder.perception.radar.radar import RadarProcessor
from recorder.perception.sensor_files import lidar_optics as lidar_optics
from recorder.perception.sensor_files import lidar_returns as lidar_returns
from recorder.perception.sensor_files import radar_geometry as radar_geometry
from recorder.perception.sensor_files import read_text as read_text
from recorder.session.stream import Stream

RADAR_OPTIONS: OptionTable = {
    "radar_threshold_db": Option(
        "float", 12.0, "threshold above the noise [dB]", minimum=3, maximum=60
    ),
    "radar_limit": Option("int", 256, "detections per frame", minimum=1, maximum=10_000),
    "radar_rcs_db": Option("float", 67.2, "power of a target of 1 m2 at 1 m [dB]"),
}
"""Options of all archives with radar detections."""


def radar_processor(geometry: RadarGeometry, options: Mapping[str, Any]) -> RadarProcessor:
    """Return the processor of a radar's frames for the values of `RADAR_OPTIONS`."""
    return RadarProcessor(geometry, options["radar_threshold_db"], options["radar_limit"])


def radar_frames(
    stream: Stream,
    geometry: RadarGeometry,
    options: Mapping[str, Any],
    worker: WorkerContext | None,
) -> RadarFrames:
    """Return a radar's detections; archives of equal options share the object in a worker."""

    def make() -> RadarFrames:
        processor = radar_processor(geometry, options)
        return RadarFrames(processor, lambda k: stream.sample(k, ["iq"])["iq"], stream.t_ns)

    if worker is None:
        return make()
    settings = options["radar_threshold_db"], options["radar_limit"]
    return worker.shared((stream.name, "detections", *settings), make)
