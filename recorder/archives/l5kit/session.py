"""Packing of one session as scenes of a dataset."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import recorder
from recorder.archives.context import PackingContext
from recorder.archives.l5kit.agents import NO_AGENTS, CuboidAgents
from recorder.archives.l5kit.dataset import HOST_LENGTH, DatasetWriter, find_label
from recorder.archives.l5kit.faces import NAME_LENGTH, TrafficLightFaces
from recorder.archives.l5kit.frames import FrameTimes, choose_frames, note_ends
from recorder.archives.shared_options import (
    choose_boxes,
    choose_cuboids,
    choose_poses,
    note_other_sets,
    note_poses,
)
from recorder.common.errors import ConfigError, FormatError
from recorder.perception.frames import NS_PER_US, kind_of
from recorder.perception.geometry import Floats
from recorder.perception.labels import box_files, cuboid_files
from recorder.perception.poses import Cover, PoseSource, RollingTrajectory

_CLASSES_LISTED = 10


class SessionPacker:
    """Packer of one session into a dataset that may contain other sessions."""

    def __init__(self, context: PackingContext, dataset: DatasetWriter) -> None:
        self._context, self._dataset = context, dataset
        self._frames = self._agents = 0

    def pack(self) -> None:
        """Add the session's scenes and its entry to the dataset.

        Raises:
            SessionError, ArchiveError, FormatError: the session cannot be packed; the message
                names the place.
        """
        context = self._context
        self._note_streams()
        times = choose_frames(context)
        gap_ns = round(context.options["bridge_s"] * 1e9)
        # Labels before the first frame and after the last one also need poses.
        start_ns = (times.first_ns - gap_ns) // NS_PER_US * NS_PER_US
        last_ns = ((times.last_ns + gap_ns) // NS_PER_US + 1) * NS_PER_US
        self._margins_ns = times.first_ns - start_ns, last_ns - times.last_ns
        self._cover = Cover(self._pose_source(times), start_ns, last_ns)
        trajectory = RollingTrajectory(self._cover.blocks())
        agents = self._find_agents(times, trajectory, gap_ns)
        self._pack_frames(times, trajectory, agents)
        with context.locate_errors(f"poses from {self._source.name}"):
            trajectory.drain()
        text, held = note_poses(context, self._source, self._cover, self._margins_ns)
        if agents is not None:
            with context.locate_errors(agents.place):
                agents.finish()
            self._note_labels(agents)
        self._note_times(times)
        note_ends(context, times)
        entry = self._entry(times) | {"trajectory": text | held}
        if agents is not None:
            entry["cuboids"] = {"name": agents.file.name, **agents.file.header}
        self._dataset.session(entry | {"notes": list(context.notes.lines)})

    def _note_streams(self) -> None:
        self._context.notes.add_absent()
        self._context.notes.add_bus_streams(self._context.streams)
        for stream in self._context.streams:
            if not len(stream):
                self._context.notes.add("no sample was recorded", stream.name)
        self._context.notes.add_recovery()

    def _pose_source(self, times: FrameTimes) -> PoseSource:
        framed = [times.stream] if times.stream and kind_of(times.stream) == "lidar" else []
        with self._context.locate_errors("poses"):
            self._source = choose_poses(self._context, framed)
        return self._source

    # Labels

    def _find_agents(
        self, times: FrameTimes, trajectory: RollingTrajectory, gap_ns: int
    ) -> CuboidAgents | None:
        context = self._context
        with context.locate_errors("_cuboids"):
            files = cuboid_files(context.session.path)
            file = choose_cuboids(context, files)
        note_other_sets(context, files, [] if file is None else [file], "cuboids")
        if file is None:
            context.notes.add("has no boxes in space: frames without agents", "session")
            return None
        try:
            json.dumps(dict(file.header), allow_nan=False)
        except ValueError:
            raise FormatError(
                f"{file.path}:1: contains NaN or Infinity, which JSON does not allow"
            ) from None
        return CuboidAgents(
            file,
            trajectory,
            self._mounting,
            read_classes(context.options["classes"]),
            span_ns=(times.first_ns, times.last_ns),
            gap_ns=gap_ns,
            bridge=file.header.get("times_of") != times.name,
        )

    def _mounting(self, frame: str) -> Floats | None:
        """Return ``T_sensor_rig`` of a sensor that is the reference frame of boxes."""
        context = self._context
        stream = context.session.whole.streams.get(frame)
        return context.calibration.of(frame).pose if stream is None else context.find_pose(stream)

    def _note_labels(self, agents: CuboidAgents) -> None:
        counts, subject = agents.counts, agents.place
        note = self._context.notes.add
        for count, text in (
            (counts.alone, "boxes belong to no frame: left out"),
            (counts.elsewhere, "boxes are relative to no known sensor: left out"),
            (counts.repeated, "boxes of a track that has one then: left out"),
            (counts.without_velocity, "agents have no known velocity: 0"),
        ):
            if count:
                note(f"{count} {text}", subject)
        counts.unplaced.note(self._context, subject)
        if counts.unknown_classes:
            words = sorted(counts.unknown_classes)
            listed = ", ".join(words[:_CLASSES_LISTED])
            if len(words) > _CLASSES_LISTED:
                listed += f" and {len(words) - _CLASSES_LISTED} more"
            note(f"classes without a label of L5Kit's, UNKNOWN there: {listed}", subject)

    # Frames

    def _pack_frames(
        self, times: FrameTimes, trajectory: RollingTrajectory, agents: CuboidAgents | None
    ) -> None:
        context = self._context
        scenes = _Scenes(context, self._dataset)
        ahead = np.array([context.options["ego_center_m"], 0.0, 0.0])
        windows = times.windows()
        with context.locate_errors("_labels"):
            files = box_files(context.session.path)
            chosen = list(choose_boxes(context, files).values())
            faces = TrafficLightFaces(chosen)
        note_other_sets(context, files, chosen, "labels")
        while True:
            with context.locate_errors(times.name or "frames"):
                t_ns = next(windows, None)
            if t_ns is None:
                break
            with context.locate_errors(f"poses from {self._source.name}"):
                poses = trajectory.at(t_ns)
            for stamp, pose in zip(t_ns.tolist(), poses, strict=True):
                found = NO_AGENTS
                if agents is not None:
                    with context.locate_errors(agents.place):
                        found = agents.at(stamp)
                with context.locate_errors("_labels"):
                    lights = faces.at(stamp)
                scenes.frame(stamp)
                rotation = pose[:3, :3]
                place = pose[:3, 3] + rotation @ ahead
                self._dataset.frame(stamp, place, rotation, found, lights)
                self._agents += len(found)
                context.advance(1)
            self._frames += len(t_ns)
            trajectory.forget(int(t_ns[-1]))
        if times.left_out:
            context.advance(times.left_out)
        scenes.close()
        if faces.cut:
            context.notes.add(
                f"names of traffic light faces are cut to {NAME_LENGTH} characters", "_labels"
            )

    def _note_times(self, times: FrameTimes) -> None:
        subject, note = times.name or "frames", self._context.notes.add
        if times.left_out:
            note(f"{times.left_out} samples left out: their times do not rise", subject)
        if times.gaps:
            note(
                f"{times.gaps} gaps between frames, the longest of"
                f" {times.longest_gap_ns / 1e9:.3f} s; scenes go on over them",
                subject,
            )

    def _entry(self, times: FrameTimes) -> dict[str, Any]:
        """Return the session's entry for the attributes of the dataset."""
        session, calibration = self._context.session, self._context.calibration
        lost = self._context.notes.add_losses()
        return {
            "name": session.name,
            "start_ns": session.start_ns,
            "end_ns": session.end_ns,
            "state": session.state,
            "metadata": dict(session.metadata),
            "hostname": hostname(self._context),
            "frames_of": times.name or None,
            "frames": self._frames,
            "agents": self._agents,
            "lost": lost,
            "calibration_sha256": calibration.sha256,
            "packed_by": f"recorder {recorder.__version__}",
        }


class _Scenes:
    """Splitter of the frames into scenes, as the option ``scene_s`` requires."""

    def __init__(self, context: PackingContext, dataset: DatasetWriter) -> None:
        seconds = context.options["scene_s"]
        self._length_ns = round(seconds * 1e9) if seconds else None
        self._dataset = dataset
        self._host = hostname(context)
        if len(self._host) > HOST_LENGTH:
            context.notes.add(f"host {self._host} is cut to {HOST_LENGTH} characters", "session")
        self._first_ns = self._start_ns = self._last_ns = 0
        self._begun = False

    def frame(self, t_ns: int) -> None:
        """Begin a new scene if one is due; call before each frame."""
        if not self._begun:
            self._begun = True
            self._first_ns = self._start_ns = t_ns
        elif self._length_ns is not None:
            number = (t_ns - self._first_ns) // self._length_ns
            if number != (self._start_ns - self._first_ns) // self._length_ns:
                # In L5Kit a scene continues in the next one if end and start are equal.
                self._dataset.scene(self._host, self._start_ns, t_ns)
                self._start_ns = t_ns
        self._last_ns = t_ns

    def close(self) -> None:
        """Close the last scene, at its last frame."""
        self._dataset.scene(self._host, self._start_ns, self._last_ns)


def hostname(context: PackingContext) -> str:
    """Return the name of the recording computer; empty if the session does not name it."""
    return str((context.session.header or {}).get("hostname") or "")


def read_classes(option: Any) -> dict[str, int]:
    """Parse the option ``classes``: labels by class.

    Raises:
        ConfigError: a value is not a label.
    """
    classes = {}
    for word, label in (option or {}).items():
        index = find_label(str(label))
        if index is None:
            raise ConfigError(f"{label!r} is not an L5Kit label", key=f"l5kit.classes.{word}")
        classes[str(word)] = index
    return classes
