"""Options of the archives with detections of radars, and what reads the sensors' metadata."""

from __future__ import annotations

from recorder.contract.config.options import Option, OptionTable
from recorder.processing.sensor_files import lidar_optics as lidar_optics
from recorder.processing.sensor_files import lidar_returns as lidar_returns
from recorder.processing.sensor_files import radar_geometry as radar_geometry
from recorder.processing.sensor_files import read_text as read_text

RADAR_OPTIONS: OptionTable = {
    "radar_threshold_db": Option(
        "float", 12.0, "threshold above the noise [dB]", minimum=3, maximum=60
    ),
    "radar_limit": Option("int", 256, "detections per frame", minimum=1, maximum=10_000),
    "radar_rcs_db": Option("float", 67.2, "power of a target of 1 m2 at 1 m [dB]"),
}
"""Options of all archives with detections of radars."""
