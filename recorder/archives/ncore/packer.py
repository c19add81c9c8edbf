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
from recorder.archives.ncore.format.extra_stores import read_packed
from recorder.archives.ncore.format.frames import FrameWriter
from recorder.archives.ncore.format.manifest import Manifest
from recorder.archives.ncore.format.point_clouds import PointCloudsWriter
from recorder.archives.ncore.format.sequence import DEFAULT, SequenceWriter
from recorder.archives.ncore.mapping.camera_labels import pack_camera_labels
from recorder.archives.ncore.mapping.clouds import make_point_sensor
from recorder.archives.ncore.mapping.depth import DEPTH, pack_depth
from recorder.archives.ncore.mapping.labels import pack_clouds, pack_cuboids, pack_masks
from recorder.archives.ncore.mapping.placing import place_rig
from recorder.archives.ncore.mapping.rays import Lidar, Radar
from recorder.archives.ncore.mapping.sensors import (
    RAW_PICTURES,
    Camera,
    Sensor,
    count_ticks,
    is_generic,
    pack_generic,
)
from recorder.archives.ncore.mapping.store_plan import (
    GROUP_OPTIONS,
    SENSORS,
    check_groups,
    make_plan,
)
from recorder.archives.sample_workers import tune_for_packing
from recorder.archives.shared_options import (
    CUBOID_SET,
    ODOMETRY,
    POSES,
    RADAR_OPTIONS,
    require_poses,
)
from recorder.common.errors import FormatError, SessionError
from recorder.config.options import Option, OptionTable
from recorder.formats.zarr2 import require_numcodecs
from recorder.perception.calibration import calibration_files
from recorder.perception.camera.camera_pictures import JPEG_QUALITY
from recorder.perception.frames import has_ouster_sweeps, kind_of, stamp_span_ns
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

    has_all_labels = True
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
        "depth": DEPTH,
        "jpeg_quality": JPEG_QUALITY,
        "raw_pictures": RAW_PICTURES,
        "second_returns": Option(
            "str", "shared", "their rays: the first return's, or own", choices=("shared", "own")
        ),
        **GROUP_OPTIONS,
        **RADAR_OPTIONS,
    }

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        checked = super().check(options)
        checked["groups"] = check_groups(checked, self.name)
        require_numcodecs()
        require_poses(checked)
        return checked

    def ticks(self, context: PackingContext) -> float:
        streams = context.streams
        if context.options["only"]:
            streams = [s for s in streams if is_generic(s) or kind_of(s) == "camera"]
        total = sum(count_ticks(stream) for stream in streams)
        if context.options["poses"] == ODOMETRY:
            runs = 1 + len(calibration_files(context.session.path))
            if context.options["depth"] is not None:
                runs += sum(kind_of(stream) == "camera" for stream in context.streams)
            total += runs * sum(len(s) for s in context.streams if kind_of(s) == "lidar")
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
        place = context.folder.parent  # the context's folder lies beside the archive's final place
        if context.options["only"] and (older := read_packed(place, name)) is not None:
            context.redaction = older.metadata.get("redaction", {})  # of the kept pictures
        self._find_streams()
        interval_ns = self._interval()
        metadata = self._metadata()
        manifest = Manifest(name, Interval.from_ns(*interval_ns), metadata)
        plan = self._plan = make_plan(place, name, manifest, context.options, context.notes.add)
        with SequenceWriter(
            context.folder,
            name,
            interval_ns=interval_ns,
            metadata=metadata,
            store=context.options["store"],
            beside=plan.beside,
            kept=plan.kept,
            groups=plan.groups,
        ) as sequence:
            poses = place_rig(context, sequence, self._sensors, self._generic, plan.written)
            if plan.kept:
                self._find_packed()
            else:
                self._pack_sensors(sequence)
            if self._writes(sequence, "poses"):
                self._pack_generic(sequence)
            self._pack_labels(sequence)
            if self._writes(sequence, "poses"):
                self._store_notes(sequence)
        assert sequence.packed is not None
        stores = [path.name for path in sequence.packed.stores]
        summary: dict[str, Any] = {"sequence": name, "frames": self._counts}
        return PackedFiles(
            (*stores, sequence.packed.meta.name),
            tuple(old for old in plan.replaced if old not in stores),
            summary if poses is None else summary | {"poses": poses},
            tuple(entry.path for entry in plan.kept),
        )

    def _writes(self, sequence: SequenceWriter, component: str) -> bool:
        """Return whether a component's instance ``default`` is packed."""
        return component in self._plan.written and not sequence.keeps(component, DEFAULT)

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
        self._packed = {name for name, count in self._counts.items() if count}

    def _find_packed(self) -> None:
        """Find the sensors in the stores that are kept, and the ends of the cameras' frames."""
        context = self._context
        self._packed = self._plan.kept_instances(*SENSORS, "point_clouds")
        self._sensors = [sensor for sensor in self._sensors if sensor.name in self._packed]
        if "camera_labels" not in self._plan.written:
            return
        for sensor in self._sensors:
            if isinstance(sensor, Camera):
                for _ in sensor.samples(sensor.start_ns):
                    pass
                if sensor.boxes:
                    text = "boxes are in the frames, which are not packed again"
                    context.notes.add(text, sensor.name)

    def _pack_generic(self, sequence: SequenceWriter) -> None:
        context = self._context
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
        frames = {s.name for s in self._sensors} & self._packed | {"rig", "world"}
        counts, written = {}, self._plan.written
        if "cuboids" in written:
            counts["cuboids"] = pack_cuboids(context, sequence, frames)
        if "masks" in written:
            sizes = {name: camera.size for name, camera in cameras.items()}
            counts["masks"] = pack_masks(context, sequence, sizes)
        if "point_clouds" in written:
            counts["point clouds"] = pack_clouds(context, sequence, frames)
        if "camera_labels" in written:
            counts["camera labels"] = pack_camera_labels(context, sequence, cameras)
            counts["camera labels"] += pack_depth(context, sequence, cameras)
        if self._plan.kept and self._writes(sequence, "masks"):
            masks = sequence.masks()
            for name in cameras.keys() - masks.cameras:
                masks.camera(name, {})
        self._counts |= {name: count for name, count in counts.items() if count}

    def _store_notes(self, sequence: SequenceWriter) -> None:
        """Store the notes in the archive: each sensor's own, and all of them with the poses."""
        for writer in self._writers:
            if sentences := self._context.notes.find(writer.instance):
                writer.metadata["notes"] = sentences
        sequence.poses().metadata["notes"] = list(self._context.notes.lines)
        sequence.poses().metadata["packing"] = {
            "packed_by": f"recorder {recorder.__version__}",
            "options": {k: v for k, v in self._context.options.items() if k != "only"}
            | {"groups": self._plan.groups},
            "calibration_sha256": self._context.calibration.sha256,
        }
