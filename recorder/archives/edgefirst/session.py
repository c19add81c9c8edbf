"""Packing of one session's samples, sequence by sequence, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from recorder.archives.context import PackingContext
from recorder.archives.edgefirst.cameras import CameraFiles
from recorder.archives.edgefirst.dataset_index import Entry
from recorder.archives.edgefirst.pipeline import Pipeline
from recorder.archives.edgefirst.recorded_radar import CubeFiles, DetectionFiles, is_cube
from recorder.archives.edgefirst.rows import CameraLabels, RowMaker
from recorder.archives.edgefirst.samples import PoseWalk, Split, find_places
from recorder.archives.edgefirst.sensors import LidarFiles, RadarFiles
from recorder.archives.edgefirst.table import Table
from recorder.archives.edgefirst.table_files import ExistingTable
from recorder.archives.shared_options import choose_boxes, choose_cuboids, note_other_sets
from recorder.common.errors import ArchiveError
from recorder.formats.zip.writer import Container
from recorder.perception.ego_motion import EgoMotion
from recorder.perception.frames import has_detections, kind_of
from recorder.perception.label_facts import picture_files, read_categories
from recorder.perception.labels import BOXES, cuboid_files, label_place
from recorder.perception.poses import Identity, find_poses
from recorder.session.stream import Stream

_THREADS = 2
"""Number of threads that make pictures."""


class SessionPacker:
    """Packer of one session into a dataset.

    Args:
        context: the session's context.
        entry: names of the session's sequences; the packer adds facts about the session.
        container: container of the files.
        table: table of the rows.
    """

    def __init__(
        self, context: PackingContext, entry: Entry, container: Container, table: Table
    ) -> None:
        self._context, self._entry = context, entry
        self._container, self._table = container, table
        options = context.options
        self._tolerance_ns = round(options["tolerance_ms"] * 1e6)
        self._split = Split(options["split"], options["val"], options["test"])

    def pack(self) -> dict[str, int]:
        """Pack the session; return the number of samples of each sequence.

        Raises:
            ArchiveError: the session has no picture, or none with the wanted inputs.
        """
        context = self._context
        cameras = self._find_streams()
        self._places = find_places(
            [s for s in context.session.whole.streams.values() if not s.name.startswith("_")]
        )
        for camera in cameras:
            several = f"{self._entry.base}_{camera.name}"
            self._entry.sequences[camera.name] = several if len(cameras) > 1 else self._entry.base
        counts: dict[str, int] = {}
        pool = ThreadPoolExecutor(_THREADS, "edgefirst")
        try:
            for camera in cameras:
                counts[self._entry.sequences[camera.name]] = self._pack_camera(camera, pool)
            if (inputs := " and ".join(context.options["inputs"])) and not any(counts.values()):
                raise ArchiveError(
                    f"{context.session.path}: has no picture with {inputs} beside it"
                )
        finally:
            pool.shutdown(cancel_futures=True)
        if self._radar is not None:
            for line in self._radar.remarks():
                context.notes.add(line, self._radar.name)
        self._entry.facts |= self._facts(counts)
        return counts

    def _find_streams(self) -> list[CameraFiles]:
        """Find the streams to pack; note the streams that are left out."""
        context, session = self._context, self._context.session
        context.notes.add_absent()
        context.notes.add_bus_streams(context.streams)
        found: dict[str, list[Stream]] = {"camera": [], "lidar": [], "radar": []}
        cubes = []
        for stream in context.streams:
            if (kind := kind_of(stream)) in found:
                if context.has_samples(stream):
                    found["radar" if has_detections(stream) else kind].append(stream)
            elif is_cube(stream) and context.has_samples(stream):
                cubes.append(stream)
            elif not len(stream):
                context.notes.add("no sample was recorded", stream.name)
        if not found["camera"]:
            there = ", ".join(s.name for s in found["lidar"] + found["radar"])
            raise ArchiveError(
                f"{session.path}: has no picture, but each sample needs one"
                + (f"; it has only {there}" if there else "")
            )
        if context.calibration.path is None:
            context.notes.add("has no calibration: no depth in pictures, no places", "session")
        cameras = []
        for stream in found["camera"]:
            with context.locate_errors(stream.name):
                cameras.append(CameraFiles(context, stream))
        self._choose_labels({camera.name for camera in cameras})
        project = "projected" in context.options["lidar_images"]
        if project and not any(camera.projects for camera in cameras):
            context.notes.add("no camera is calibrated: no depth in pictures", "session")
            project = False
        self._lidar = None
        self._radar: RadarFiles | DetectionFiles | None = None
        if lidar := self._choose_sensor("lidar", found["lidar"]):
            with context.locate_errors(lidar.name):
                self._lidar = LidarFiles(context, lidar, project=project)
                if project and self._lidar.pose is None:
                    context.notes.add("not in the calibration: no depth in pictures", lidar.name)
        self._cubes = None
        if radar := self._choose_sensor("radar", found["radar"]):
            with context.locate_errors(radar.name):
                make = DetectionFiles if has_detections(radar) else RadarFiles
                self._radar = make(context, radar)
        if cubes and not isinstance(self._radar, RadarFiles):
            with context.locate_errors(cubes[0].name):
                self._cubes = CubeFiles(context, cubes[0])
        self._entry.facts["lost"] = context.notes.add_losses()
        context.notes.add_recovery()
        return cameras

    def _choose_labels(self, cameras: Collection[str]) -> None:
        """Choose the sets of labels in space and in pictures; note the others."""
        context = self._context
        with context.locate_errors("labels"):
            cuboids = cuboid_files(context.session.path)
            boxes = context.find_boxes(cameras, places_facts=True)
            facts = picture_files(context.session.path)
        chosen, by_camera = choose_cuboids(context, cuboids), choose_boxes(context, boxes)
        with context.locate_errors("labels"):
            for file in filter(None, (chosen, *by_camera.values())):
                self._table.add_categories(read_categories(file), f"{file.path}:1")
        self._labels = {}
        for camera in cameras:
            own = by_camera.get(camera)
            place = label_place(camera, context.options["labels"]) if own is None else own.name
            about = next((file for file in facts if file.path.parent.name == place), None)
            self._labels[camera] = CameraLabels(chosen, own, about)
        packed = [labels.facts for labels in self._labels.values()]
        for file in facts:
            if file not in packed:
                context.notes.add(
                    "left out: of no camera or set of labels that is packed",
                    f"{BOXES}/{file.path.parent.name}/{file.path.name}",
                )
        note_other_sets(context, cuboids, [file for file in cuboids if file is chosen], "cuboids")
        note_other_sets(context, boxes, list(by_camera.values()), "labels")

    def _choose_sensor(self, kind: str, streams: Sequence[Stream]) -> Stream | None:
        """Return the requested sensor of a kind, or the first one by default."""
        context, wanted = self._context, self._context.options[kind]
        if wanted is not None:
            for stream in streams:
                if stream.name == wanted:
                    return stream
            context.notes.add(f"there is no such {kind}: none is packed", wanted)
            return None
        if not streams:
            context.notes.add(f"has no {kind}", "session")
            return None
        for stream in streams[1:]:
            context.notes.add(
                f"left out: a sample has one {kind}; edgefirst.{kind} names it", stream.name
            )
        return streams[0]

    def _pack_camera(self, camera: CameraFiles, pool: ThreadPoolExecutor) -> int:
        context = self._context
        sequence = self._entry.sequences[camera.name]
        source = find_poses(context.session.whole, context.calibration, context.options["poses"])
        walk = None if isinstance(source, Identity) else PoseWalk(source)
        description = source.describe()
        self._entry.facts["poses"] = description["source"]
        if walk is None:
            context.notes.add("no poses known: samples have none", "poses")
        elif not description["measured"]:
            context.notes.add(description.get("note", description["source"]), "poses")
        labels = self._labels[camera.name]
        rows = RowMaker(
            context, camera, sequence, self._entry.base, walk, self._tolerance_ns, labels
        )
        start_ns = context.session.whole.start_ns or 0
        known = (self._lidar, self._radar, self._cubes)
        sensors = [files for files in known if files is not None]
        motion = EgoMotion(
            find_poses(context.session.whole, context.calibration, context.options["poses"])
        )
        pipeline = Pipeline(context, camera, sequence, sensors, self._places, motion, pool)
        count, last_index, inputs = 0, -1, context.options["inputs"]
        for window in pipeline.windows():
            window.write(self._container)
            since_start_ns = (window.t_ns - start_ns).tolist()
            groups = [self._split.group(self._entry.base, t) for t in since_start_ns]
            rows.add_to(
                self._table, window.index, window.t_ns, window.lidar_t_ns, groups, window.places
            )
            last = int(window.index[-1]) if len(window.index) else last_index
            context.advance(last - last_index)
            last_index = last
            count += len(window.index)
        context.advance(len(camera.stream) - 1 - last_index)
        if pipeline.left_out:
            context.notes.add(
                f"{pipeline.left_out} pictures left out: without {' and '.join(inputs)} beside "
                "them (edgefirst.inputs)",
                camera.name,
            )
        self._note_samples(camera, rows, pipeline.missing, count)
        return count

    def _note_samples(
        self, camera: CameraFiles, rows: RowMaker, missing_of: Mapping[str, int], count: int
    ) -> None:
        context = self._context
        for name, missing in missing_of.items():
            near = f"within {context.options['tolerance_ms']:g} ms"
            if missing == count:
                context.notes.add(f"no sample {near} of any picture of {camera.name}", name)
            else:
                context.notes.add(
                    f"{missing} of {count} samples of {camera.name} have none {near}", name
                )
        for line in rows.remarks():
            context.notes.add(line, camera.name)
        classes = max(rows.classes, self._entry.facts.get("classes", 0))
        if classes:
            self._entry.facts["classes"] = classes

    def _facts(self, counts: Mapping[str, int]) -> dict[str, Any]:
        session = self._context.session
        facts: dict[str, Any] = {
            "state": session.state,
            "hostname": (session.header or {}).get("hostname"),
            "metadata": dict(session.metadata),
            "samples": dict(counts),
            "calibration_sha256": self._context.calibration.sha256,
            "notes": list(self._context.notes.lines),
        }
        if self._context.redaction:
            facts["redaction"] = dict(self._context.redaction)
        if self._lidar is not None:
            facts["lidar"] = self._lidar.name
        if self._radar is not None:
            facts["radar"] = self._radar.describe()
        return facts


def class_names(before: ExistingTable | None, new: Sequence[Entry]) -> dict[str, str]:
    """Return the entries of the file metadata that name the values of class masks.

    Args:
        before: an older table that is extended.
        new: the sessions that are packed now; their fact ``classes`` is the number of values.
    """
    known: list[str] = []
    if before is not None and before.metadata.get("mask_interpretation") == "class_index":
        known = before.entry("labels", list)
    count = max((entry.facts.get("classes", 0) for entry in new), default=0)
    names = known + [f"class_{number}" for number in range(len(known), count)]
    if not names:
        return {}
    return {"mask_interpretation": "class_index", "labels": json.dumps(names)}
