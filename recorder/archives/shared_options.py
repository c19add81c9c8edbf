"""Options that several archives share, and what they choose: poses, and detections of radars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from recorder.archives.context import PackingContext
from recorder.archives.sample_workers import WorkerContext
from recorder.common.errors import SessionError
from recorder.config.options import Option, OptionTable
from recorder.perception.lidar.odometry import LidarOdometry, require_odometry
from recorder.perception.poses import Cover, PoseSource, find_poses
from recorder.perception.radar.frames import RadarFrames
from recorder.perception.radar.geometry import RadarGeometry
from recorder.perception.radar.radar import RadarProcessor
from recorder.session.stream import Stream

ODOMETRY = "kiss-icp"
"""Value of the option ``poses`` for lidar odometry."""
POSES = Option("str", "auto", f"source: auto, imu, identity, {ODOMETRY}, or a sensor's name")
"""The option ``poses``."""
_HELD_NS = 100_000_000  # a note reports poses that are held for longer
_GAP_NS = 1_000_000_000


def require_poses(options: Mapping[str, Any]) -> None:
    """Raise a UsageError where the option ``poses`` needs a package that is not installed."""
    if options["poses"] == ODOMETRY:
        require_odometry()


def choose_poses(context: PackingContext, lidars: Iterable[Stream]) -> PoseSource:
    """Return the source of poses that the option ``poses`` names; odometry uses the first lidar.

    Raises:
        SessionError: the session does not have the source.
    """
    if context.options["poses"] != ODOMETRY:
        return find_poses(context.session.whole, context.calibration, context.options["poses"])
    lidar = next(iter(lidars), None)
    if lidar is None:
        raise SessionError(f"{context.session.path}: has no lidar for odometry")
    pose = context.calibration.of(lidar.name).pose
    return LidarOdometry(lidar, np.eye(4) if pose is None else pose, context.advance)


def note_poses(
    context: PackingContext, source: PoseSource, cover: Cover, margins_ns: tuple[int, int] = (0, 0)
) -> tuple[dict[str, Any], dict[str, float]]:
    """Note the source of the poses, and where poses are held or interpolated for long.

    Args:
        context: the session's context.
        source: source of the poses.
        cover: cover of the source, after its last block.
        margins_ns: durations by which the cover begins before and ends after the packed samples.

    Returns:
        the source's description; seconds for which the first and the last pose are held, if any.
    """
    note, held = context.notes.add, {}
    text: dict[str, Any] = source.describe()
    if not text["measured"]:
        note(text.get("note", text["source"]), "poses")
    for name, held_ns, margin_ns, where in (
        ("held_before_s", cover.held_before_ns, margins_ns[0], "before the first"),
        ("held_after_s", cover.held_after_ns, margins_ns[1], "after the last"),
    ):
        if (ns := held_ns - margin_ns) > 0:
            held[name] = ns / 1e9
        if ns > _HELD_NS:
            note(f"held for {ns / 1e9:.3f} s {where} of {source.name}", "poses")
    if cover.longest_gap_ns > _GAP_NS:
        note(f"{cover.longest_gap_ns / 1e9:.3f} s without one are interpolated", "poses")
    if left_out := text.get("poses_left_out"):
        note(f"{left_out} left out: no position or rotation there, or times that go back", "poses")
    return text, held


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
