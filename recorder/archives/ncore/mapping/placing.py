"""Poses and models of a session's sensors: an instance of both for each of its calibrations.

The instance ``default``, which loaders read unless another one is requested, is of the session's
own calibration or the given one.  Each file of ``_calibrations`` is one more instance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from recorder.archives.context import PackingContext
from recorder.archives.ncore.format.poses import PosesWriter
from recorder.archives.ncore.format.sequence import DEFAULT, SequenceWriter
from recorder.archives.ncore.mapping.labels import stays
from recorder.archives.ncore.mapping.sensors import Camera, Sensor
from recorder.archives.shared_options import choose_poses, note_poses
from recorder.perception.calibration import CALIBRATIONS, Calibration, read_calibration_sets
from recorder.perception.earth_fit import find_earth_fit
from recorder.perception.frames import kind_of
from recorder.perception.poses import Cover, EarthPoses
from recorder.session.stream import Stream


def place_rig(
    context: PackingContext,
    sequence: SequenceWriter,
    sensors: Sequence[Sensor],
    generic: Iterable[Stream],
    written: Collection[str],
) -> str | None:
    """Store poses and models of all sensors by each calibration.

    Args:
        context: the session's context.
        sequence: the sequence to write to.
        sensors: the sensors that are packed.
        generic: streams that are packed as generic data; those with a calibrated pose get one.
        written: the components that are packed, of ``poses`` and ``intrinsics``.

    Returns:
        the source of the trajectory; None if no trajectory is packed.
    """
    if context.calibration.path is None:
        ahead = any(isinstance(sensor, Camera) for sensor in sensors)
        context.notes.add(
            "has no calibration: sensors are placed at the rig's origin"
            + (", cameras look ahead" if ahead else ""),
            "session",
        )
    sets = read_calibration_sets(context.session.path, context.calibration)
    source = None
    for name, calibration in {DEFAULT: context.calibration, **sets}.items():
        subject = "calibration.yaml" if name == DEFAULT else f"{CALIBRATIONS}/{name}.yaml"
        if name != DEFAULT:
            context.notes.add(f"is the instance {name}", subject)
        if "intrinsics" in written and not stays(context, sequence, "intrinsics", name, subject):
            intrinsics = sequence.intrinsics(name)
            intrinsics.metadata |= _describe(name, calibration)
            for sensor in sensors:
                sensor.place_model(intrinsics, calibration)
        if "poses" in written and not stays(context, sequence, "poses", name, subject):
            view = replace(context, calibration=calibration)
            view.notes = context.notes
            poses = sequence.poses(name)
            poses.metadata |= _describe(name, calibration)
            _place_sensors(view, poses, sensors, generic)
            text = _pack_trajectory(view, sequence, poses, sensors)
            source = source or text
    return source


def _describe(name: str, calibration: Calibration) -> dict[str, Any]:
    """Return the metadata of the instance of a further calibration."""
    if name == DEFAULT or calibration.path is None:
        return {}
    return {"calibration": {"file": calibration.path.name, "sha256": calibration.sha256}}


def _place_sensors(
    context: PackingContext,
    poses: PosesWriter,
    sensors: Iterable[Sensor],
    generic: Iterable[Stream],
) -> None:
    calibrated = context.calibration.path is not None
    for sensor in sensors:
        pose = context.find_pose(sensor.stream, note_missing=calibrated)
        poses.static_pose(sensor.name, "rig", pose)
    for stream in generic:
        known = context.calibration.of(stream.name).pose
        if known is not None:
            poses.static_pose(stream.name, "rig", known)


def _pack_trajectory(
    context: PackingContext,
    sequence: SequenceWriter,
    poses: PosesWriter,
    sensors: Iterable[Sensor],
) -> str:
    """Store the rig's poses in the world, and the world's on Earth; return their source."""
    interval = sequence.interval
    lidars = (s.stream for s in sensors if kind_of(s.stream) == "lidar")
    source = choose_poses(context, lidars)
    cover = Cover(source, interval.start_ns, interval.last_ns)
    trajectory = poses.trajectory("rig", "world")
    fit, to_earth = None, source.to_earth if isinstance(source, EarthPoses) else None
    if to_earth is None and source.describe()["measured"]:
        fit = find_earth_fit(context.session, context.calibration)
    with context.locate_errors(f"poses from {source.name}"):
        for t_ns, matrices in cover.blocks():
            trajectory.append(t_ns, matrices)
            if fit is not None:
                fit.add(t_ns, matrices)
    if fit is not None and (to_earth := fit.to_earth()) is not None:
        known = {"positions": fit.name, "residual_m": round(fit.residual_m, 3)}
        poses.metadata["world_global"] = known
    if to_earth is not None:
        poses.static_pose("world", "world_global", to_earth)
    text, _ = note_poses(context, source, cover)
    poses.metadata["trajectory"] = text | cover.describe()
    return str(text["source"])
