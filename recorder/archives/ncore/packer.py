"""Packer of a session as an NCore V4 sequence.

The files are ``NAME.ncore4.zarr.itar`` (or the folder ``NAME.ncore4.zarr``) and ``NAME.json``.  The
sequence's interval spans all packed streams.  docs/archives.md maps streams to components.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar

import recorder
from recorder.archives.base import PackedFiles, Packer
from recorder.archives.context import PackingContext
from recorder.archives.ncore.format.component import Interval
from recorder.archives.ncore.format.extra_stores import find_extra_stores
from recorder.archives.ncore.format.frames import FrameWriter
from recorder.archives.ncore.format.manifest import Manifest
from recorder.archives.ncore.format.point_clouds import PointCloudsWriter
from recorder.archives.ncore.format.sequence import SequenceWriter
from recorder.archives.ncore.mapping.clouds import make_point_sensor
from recorder.archives.ncore.mapping.labels import (
    pack_clouds,
    pack_cuboids,
    pack_masks,
    pack_segments,
)
from recorder.archives.ncore.mapping.rays import Lidar, Radar
from recorder.archives.ncore.mapping.sensors import (
    Camera,
    Sensor,
    count_ticks,
    is_generic,
    pack_generic,
)
from recorder.archives.sample_workers import tune_for_packing
from recorder.archives.shared_options import (
    CUBOID_SET,
    ODOMETRY,
    POSES,
    RADAR_OPTIONS,
    choose_poses,
    note_poses,
    require_poses,
)
from recorder.common.errors import FormatError, SessionError
from recorder.config.options import Option, OptionTable
from recorder.formats.zarr2 import require_numcodecs
from recorder.perception.camera.camera_pictures import JPEG_QUALITY
from recorder.perception.earth_fit import find_earth_fit
from recorder.perception.frames import has_ouster_sweeps, kind_of, stamp_span_ns
from recorder.perception.poses import Cover, EarthPoses
from recorder.session.stream import Stream

_KINDS: Mapping[str, Callable[[PackingContext, Stream], Sensor]] = {
    "camera": Camera,
    "lidar": lambda context, stream: (
        Lidar(context, stream) if has_ouster_sweeps(stream) else make_point_sensor(context, stream)
    ),
    "radar": Radar,
}


class NcorePacker(Packer):
    """Packer of a session as an NCore V4 sequence."""

    # numcodecs makes locks when it is imported, which a killed worker could not remove.
    worker_modules = (
        "recorder.archives.ncore.mapping.rays",
        "recorder.archives.ncore.mapping.clouds",
        "numcodecs.blosc",
    )

    options: ClassVar[OptionTable] = {
        "store": Option("str", "itar", "kind of store", choices=("itar", "folder")),
        "poses": POSES,
        "cuboids": CUBOID_SET,
        "jpeg_quality": JPEG_QUALITY,
        "second_returns": Option(
            "str", "shared", "their rays: the first return's, or own", choices=("shared", "own")
        ),
        **RADAR_OPTIONS,
    }

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        checked = super().check(options)
        require_numcodecs()
        require_poses(checked)
        return checked

    def ticks(self, context: PackingContext) -> float:
        total = sum(count_ticks(stream) for stream in context.streams)
        if context.options["poses"] == ODOMETRY:
            total += sum(len(s) for s in context.streams if kind_of(s) == "lidar")
        return total

    def pack(self, context: PackingContext) -> PackedFiles:
        tune_for_packing()
        return _SessionPacker(context).pack()


PACKER = NcorePacker()


class _SessionPacker:
    """Packer of one session."""

    def __init__(self, context: PackingContext) -> None:
        self._context = context
        self._sensors: list[Sensor] = []
        self._generic: list[Stream] = []
        self._counts: dict[str, int] = {}
        self._writers: list[FrameWriter | PointCloudsWriter] = []

    def pack(self) -> PackedFiles:
        context = self._context
        name = context.session.name
        self._find_streams()
        interval_ns = self._interval()
        metadata = self._metadata()
        manifest = Manifest(name, Interval.from_ns(*interval_ns), metadata)
        # The context's folder lies beside the archive's final place.
        beside = find_extra_stores(context.folder.parent, name, manifest, context.notes.add)
        with SequenceWriter(
            context.folder,
            name,
            interval_ns=interval_ns,
            metadata=metadata,
            store=context.options["store"],
            beside=beside,
        ) as sequence:
            self._place(sequence)
            self._pack_trajectory(sequence)
            self._pack_sensors(sequence)
            self._pack_labels(sequence)
            self._store_notes(sequence)
        assert sequence.packed is not None
        stores = [path.name for path in sequence.packed.stores]
        other = ".zarr" if context.options["store"] == "itar" else ".zarr.itar"
        return PackedFiles(
            (*stores, sequence.packed.meta.name),
            (f"{name}.ncore4{other}",),
            {"sequence": name, "frames": self._counts, "poses": self._pose_text},
        )

    def _find_streams(self) -> None:
        """Find the streams to pack; note the streams that are left out."""
        context = self._context
        context.notes.add_absent()
        boxes = context.find_boxes([s.name for s in context.streams if context.has_samples(s)])
        for stream in filter(context.has_samples, context.streams):
            with context.locate_errors(stream.name):
                if (kind := kind_of(stream)) in _KINDS:
                    sensor = _KINDS[kind](context, stream)
                    if isinstance(sensor, Camera):
                        sensor.boxes = [file for file in boxes if file.camera == stream.name]
                    self._sensors.append(sensor)
                elif is_generic(stream):
                    self._generic.append(stream)
                else:
                    context.notes.add("unsupported kind of stream: left out", stream.name)

    def _interval(self) -> tuple[int, int]:
        """Return start and stop of the sequence, ns; note streams that begin late or end early."""
        context = self._context
        spans: dict[str, tuple[int, int]] = {}
        sensors = {sensor.name: sensor for sensor in self._sensors}
        for stream in (*(sensor.stream for sensor in self._sensors), *self._generic):
            with context.locate_errors(stream.name, 0):
                first, last = stamp_span_ns(stream)
                if (sensor := sensors.get(stream.name)) is not None:
                    first = sensor.start_ns(0, first)
                spans[stream.name] = first, last
        if not spans:
            raise SessionError(f"{context.session.path}: has no sample to pack")
        start_ns = min(start for start, _ in spans.values())
        last_ns = max(last for _, last in spans.values())
        for name, (start, last) in spans.items():
            slack_ns = self._slack_ns(name)
            if start - start_ns > slack_ns:
                context.notes.add(f"begins {(start - start_ns) / 1e9:.3f} s after the first", name)
            if last_ns - last > slack_ns:
                context.notes.add(f"ends {(last_ns - last) / 1e9:.3f} s before the last", name)
        if start_ns < 0:
            raise FormatError(f"{context.session.path}: begins before 1970: {start_ns} ns")
        # A sequence must hold at least two poses.
        return start_ns, max(last_ns + 1, start_ns + 2_000)

    def _slack_ns(self, name: str) -> int:
        """Return the tolerated difference of starts or ends, ns: two samples, at least 0.2 s."""
        spec = self._context.session.streams[name].spec
        rate = spec.rate_hz if spec is not None else None
        return max(200_000_000, round(2e9 / rate) if rate else 0)

    def _metadata(self) -> dict[str, Any]:
        """Return the sequence's generic metadata, which do not change if it is packed again.

        Stores that are added later contain the same metadata and must match a repacked sequence.
        """
        session = self._context.session
        header = session.header or {}
        lost = self._context.notes.add_losses()
        self._context.notes.add_recovery()
        redaction = {"redaction": dict(self._context.redaction)} if self._context.redaction else {}
        return redaction | {
            "session": session.name,
            "session_state": session.state,
            "session_metadata": dict(session.metadata),
            "start_ns": session.start_ns,
            "end_ns": session.end_ns,
            "hostname": header.get("hostname"),
            "lost": lost,
        }

    def _place(self, sequence: SequenceWriter) -> None:
        """Store the sensors' static poses and the cameras' models."""
        context, poses = self._context, sequence.poses()
        calibrated = context.calibration.path is not None
        if not calibrated:
            ahead = any(isinstance(sensor, Camera) for sensor in self._sensors)
            context.notes.add(
                "has no calibration: sensors are placed at the rig's origin"
                + (", cameras look ahead" if ahead else ""),
                "session",
            )
        for sensor in self._sensors:
            poses.static_pose(
                sensor.name, "rig", context.find_pose(sensor.stream, note_missing=calibrated)
            )
            if isinstance(sensor, Camera):
                shutter = sensor.find_shutter()
                model = sensor.model(shutter)
                if model is None:
                    sequence.intrinsics().placeholder(sensor.name, sensor.size, shutter)
                else:
                    sequence.intrinsics().camera(sensor.name, model)
        for stream in self._generic:
            pose = context.calibration.of(stream.name).pose
            if pose is not None:
                poses.static_pose(stream.name, "rig", pose)

    def _pack_trajectory(self, sequence: SequenceWriter) -> None:
        context, interval = self._context, sequence.interval
        lidars = (s.stream for s in self._sensors if kind_of(s.stream) == "lidar")
        source = choose_poses(context, lidars)
        cover = Cover(source, interval.start_ns, interval.last_ns)
        trajectory = sequence.poses().trajectory("rig", "world")
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
            sequence.poses().metadata["world_global"] = known
        if to_earth is not None:
            sequence.poses().static_pose("world", "world_global", to_earth)
        text, _ = note_poses(context, source, cover)
        sequence.poses().metadata["trajectory"] = text | cover.describe()
        self._pose_text = text["source"]

    def _pack_sensors(self, sequence: SequenceWriter) -> None:
        context = self._context
        writers: dict[str, FrameWriter | PointCloudsWriter] = {}

        def pack_one(sensor: Sensor) -> Generator[int]:
            with context.locate_errors(sensor.name):
                writers[sensor.name] = yield from sensor.pack(sequence)

        with contextlib.ExitStack() as stack:
            passes = [stack.enter_context(contextlib.closing(pack_one(s))) for s in self._sensors]
            for _ in heapq.merge(*passes):  # the times at which frames end
                pass
        for sensor in self._sensors:
            writer = writers[sensor.name]
            self._writers.append(writer)
            self._counts[sensor.name] = writer.frame_count
            if not writer.frame_count:
                context.notes.add("no frame could be packed", sensor.name)
        known = {}
        for stream in self._generic:
            with context.locate_errors(stream.name):
                known[stream.name] = pack_generic(context, sequence, stream)
            self._counts[stream.name] = len(stream)
        if known:
            sequence.poses().metadata["generic_streams"] = known

    def _pack_labels(self, sequence: SequenceWriter) -> None:
        context = self._context
        cameras = {s.name: s for s in self._sensors if isinstance(s, Camera)}
        packed = {name for name, count in self._counts.items() if count}
        frames = {s.name for s in self._sensors} & packed | {"rig", "world"}
        counts = {
            "cuboids": pack_cuboids(context, sequence, frames),
            "masks": pack_masks(context, sequence, {n: c.size for n, c in cameras.items()}),
            "point clouds": pack_clouds(context, sequence, frames),
            "camera labels": sum(
                pack_segments(context, sequence, camera.stream, camera.ends.find)
                for camera in cameras.values()
            ),
        }
        self._counts |= {name: count for name, count in counts.items() if count}

    def _store_notes(self, sequence: SequenceWriter) -> None:
        """Store the notes in the archive: each sensor's own, and all of them with the poses."""
        for writer in self._writers:
            if sentences := self._context.notes.find(writer.instance):
                writer.metadata["notes"] = sentences
        sequence.poses().metadata["notes"] = list(self._context.notes.lines)
        sequence.poses().metadata["packing"] = {
            "packed_by": f"recorder {recorder.__version__}",
            "options": dict(self._context.options),
            "calibration_sha256": self._context.calibration.sha256,
        }
