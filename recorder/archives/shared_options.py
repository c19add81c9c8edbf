"""Options that several archives share, and what they choose: poses, labels, radars' detections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from recorder.archives.context import PackingContext
from recorder.archives.sample_workers import WorkerContext
from recorder.common.errors import SessionError
from recorder.config.options import Option, OptionTable
from recorder.perception.labels import (
    BOXES,
    CUBOIDS,
    MANUAL,
    QUALITIES,
    SIMULATED,
    LabelFile,
)
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


CUBOID_SET = Option("str", None, "set of _cuboids; default: a manual one, simulated, the first")
"""The option ``cuboids``."""
LABEL_SET = Option("str", None, "set of _labels/CAMERA@SET.jsonl; default: that without a name")
"""The option ``labels``."""
_SOURCES = {MANUAL: 0, "GT_ANNOTATION": 0, SIMULATED: 1, "GT_SYNTHETIC": 1}
"""Sources of labels, the preferred first; programs come after them."""


def choose_cuboids(context: PackingContext, files: Sequence[LabelFile]) -> LabelFile | None:
    """Return the set of cuboids that the option ``cuboids`` names, or the preferred set.

    Two sets together would contain every object twice.

    Raises:
        SessionError: the session does not have the set.
    """
    wanted = context.options["cuboids"]
    if wanted is not None and wanted not in (names := [file.name for file in files]):
        there = ", ".join(names) or "none"
        raise SessionError(f"{CUBOIDS}: has no set {wanted!r}; there are: {there}")
    found = [file for file in files if wanted in (None, file.name)]
    return min(found, key=lambda file: (_rank_source(file), file.name), default=None)


def choose_boxes(context: PackingContext, files: Sequence[LabelFile]) -> dict[str, LabelFile]:
    """Return the set of boxes that the option ``labels`` names, or the preferred set, by camera.

    Raises:
        SessionError: the session has labels, but not the set.
    """
    wanted, chosen = context.options["labels"], dict[str, LabelFile]()
    if wanted is not None and files and wanted not in (names := [file.set_name for file in files]):
        there = ", ".join(sorted(set(names) - {""})) or "none with a name"
        raise SessionError(f"{BOXES}: has no set {wanted!r}; there are: {there}")
    for file in sorted(files, key=lambda f: (f.set_name != "", _rank_source(f), f.name)):
        if wanted in (None, file.set_name):
            chosen.setdefault(file.camera, file)
    return chosen


def _rank_source(file: LabelFile) -> int:
    return _SOURCES.get(file.source, len(_SOURCES))


def note_other_sets(
    context: PackingContext, files: Iterable[LabelFile], chosen: Collection[LabelFile], option: str
) -> None:
    """Note the sets of labels that are left out beside the chosen sets."""
    packed = ", ".join(file.name for file in chosen) or "none"
    for file in files:
        if file not in chosen:
            context.notes.add(
                f"left out, {packed} is packed; the option {option} names another",
                f"{file.path.parent.name}/{file.path.name}",
            )


class UnplacedKeys:
    """Counter of the optional keys of labels for which an archive has no place.

    Args:
        placed: the keys that the archive stores.
    """

    def __init__(self, placed: Collection[str] = ()) -> None:
        self._without_place = QUALITIES - set(placed)
        self._counts: Counter[str] = Counter()

    def count(self, label: Mapping[str, Any]) -> None:
        """Count the keys of a label."""
        if not self._without_place.isdisjoint(label):
            self._counts.update(self._without_place & label.keys())

    def note(self, context: PackingContext, subject: str) -> None:
        """Note the keys that were left out, and in how many labels."""
        for key, count in sorted(self._counts.items()):
            context.notes.add(f"{key} of {count} labels left out: the format has none", subject)


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
