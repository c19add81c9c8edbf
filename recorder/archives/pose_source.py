"""Poses for archives: from a lidar, and what is odd about those of any source."""

from __future__ import annotations

from typing import Any

import numpy as np

from recorder.archives.base import Job
from recorder.contract.errors import SessionError
from recorder.processing.lidar import OusterOptics
from recorder.processing.odometry import LidarOdometry
from recorder.processing.poses import Cover, PoseSource
from recorder.session.stream import Stream

ODOMETRY = "kiss-icp"
"""The value of the option ``poses`` for poses from the lidar."""
_HELD_NS = 100_000_000  # poses held for longer than this are worth a word
_GAP_NS = 1_000_000_000


def odometry(job: Job, lidar: tuple[Stream, OusterOptics] | None) -> PoseSource:
    """Poses from a lidar; SessionError where there is none."""
    if lidar is None:
        raise SessionError(f"{job.session.path}: has no lidar for odometry")
    stream, optics = lidar
    pose = job.calibration.of(stream.name).pose
    return LidarOdometry(stream, optics, np.eye(4) if pose is None else pose, job.advance)


def note_poses(
    job: Job, source: PoseSource, cover: Cover, margins_ns: tuple[int, int] = (0, 0)
) -> tuple[dict[str, Any], dict[str, float]]:
    """Note where poses come from, and where they are held or interpolated for long.

    Args:
        job: the session.
        source: of the poses.
        cover: that went through all of them.
        margins_ns: by how much the cover reaches beyond what is packed, before and behind it.

    Returns:
        the source's description, and for how long its first and its last pose are held, if at all.
    """
    say, held = job.notes.add, {}
    text: dict[str, Any] = source.describe()
    if not text["measured"]:
        say(text.get("note", text["source"]), "poses")
    for name, held_ns, margin_ns, where in (
        ("held_before_s", cover.held_before_ns, margins_ns[0], "before the first"),
        ("held_after_s", cover.held_after_ns, margins_ns[1], "after the last"),
    ):
        if (ns := held_ns - margin_ns) > 0:
            held[name] = ns / 1e9
        if ns > _HELD_NS:
            say(f"held for {ns / 1e9:.3f} s {where} of {source.name}", "poses")
    if cover.longest_gap_ns > _GAP_NS:
        say(f"{cover.longest_gap_ns / 1e9:.3f} s without one are interpolated", "poses")
    if left_out := text.get("poses_left_out"):
        say(f"{left_out} left out: no rotations, or times that go back", "poses")
    return text, held
