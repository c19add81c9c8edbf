"""One session's samples, sequence by sequence, in bounded memory.

Files are made ahead by a few threads and written in order by the one that called.  A sweep or a
frame of a radar that goes with several pictures is made once.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recorder.archives import ArchiveError
from recorder.archives.base import Job
from recorder.archives.edgefirst.cameras import CameraFiles
from recorder.archives.edgefirst.catalog import Entry
from recorder.archives.edgefirst.container import Container, Payload
from recorder.archives.edgefirst.lidar_files import LidarFiles
from recorder.archives.edgefirst.radar_files import RadarFiles
from recorder.archives.edgefirst.rows import RowMaker
from recorder.archives.edgefirst.samples import PoseWalk, Thinning, find_places, nearest
from recorder.archives.edgefirst.sensors import Made
from recorder.archives.edgefirst.split import Split
from recorder.archives.edgefirst.table import Existing, Table
from recorder.processing.frames import kind_of
from recorder.processing.labels import box_files
from recorder.processing.poses import Identity, find_poses
from recorder.session.accounts import losses, lost_events
from recorder.session.layout import RECOVERED
from recorder.session.stream import Stream

_KEPT = 4
"""Samples of a sensor whose files are remembered."""


@dataclass
class _Sample:
    """A sample in the making."""

    index: int
    t_ns: int
    name: str
    picture: Future[Payload]
    made: list[Future[Made]] = field(default_factory=list)
    depth: Future[Payload] | None = None
    lidar_t_ns: int | None = None


class SessionPacker:
    """Packs one session into a dataset.

    Args:
        job: the session.
        entry: its names; what is found out about it goes there.
        container: for the files.
        table: for the rows.
    """

    def __init__(self, job: Job, entry: Entry, container: Container, table: Table) -> None:
        self._job, self._entry = job, entry
        self._container, self._table = container, table
        options = job.options
        self._tolerance_ns = round(options["tolerance_ms"] * 1e6)
        self._thinning = Thinning(options["every"], options["max_rate"])
        self._split = Split(
            options["split"],
            options["val"],
            options["test"],
            round(options["block_s"] * 1e9),
            options["seed"],
        )
        self._memory: dict[str, OrderedDict[int, Future[Made]]] = {}

    def pack(self) -> dict[str, int]:
        """Pack it; returns the number of samples of each sequence.

        Raises:
            ArchiveError: it has no picture.
        """
        job = self._job
        cameras = self._look()
        self._places = find_places(
            [s for s in job.session.streams.values() if not s.name.startswith("_")]
        )
        for camera in cameras:
            several = f"{self._entry.base}_{camera.name}"
            self._entry.sequences[camera.name] = several if len(cameras) > 1 else self._entry.base
        counts: dict[str, int] = {}
        with ThreadPoolExecutor(job.options["threads"], "edgefirst") as pool:
            for camera in cameras:
                counts[self._entry.sequences[camera.name]] = self._pack_camera(camera, pool)
        if self._radar is not None:
            for line in self._radar.told():
                job.notes.say(line, self._radar.name)
        self._entry.facts |= self._facts(counts)
        return counts

    def _look(self) -> list[CameraFiles]:
        """Find what there is to pack."""
        job, session = self._job, self._job.session
        for name, fault in session.broken.items():
            job.notes.say(f"cannot be read, left out: {fault}", name)
        for name in sorted(
            session.declared.keys() - session.streams.keys() - session.broken.keys()
        ):
            job.notes.say("no sample was recorded", name)
        found: dict[str, list[Stream]] = {"camera": [], "lidar": [], "radar": []}
        for name, stream in session.streams.items():
            if name.startswith("_") or kind_of(stream) not in found:
                continue
            with job.at(name):
                if not stream.has_times:
                    job.notes.say("has no times: left out", name)
                elif not len(stream):
                    job.notes.say("no sample was recorded", name)
                else:
                    found[kind_of(stream)].append(stream)
        if not found["camera"]:
            there = ", ".join(s.name for s in found["lidar"] + found["radar"])
            raise ArchiveError(
                f"{session.path}: has no picture, and a sample is one"
                + (f"; it has only {there}" if there else "")
            )
        if job.calibration.path is None:
            job.notes.say("has no calibration: no depth in pictures, no places", "session")
        cameras = []
        for stream in found["camera"]:
            with job.at(stream.name):
                cameras.append(CameraFiles(job, stream))
        for name in sorted(box_files(session.path).keys() - {c.name for c in cameras}):
            job.notes.say("labels of a camera that is not packed: left out", f"_labels/{name}")
        project = "projected" in job.options["lidar_images"]
        if project and not any(camera.projects for camera in cameras):
            job.notes.say("no camera is calibrated: no depth in pictures", "session")
            project = False
        self._lidar = self._radar = None
        if lidar := self._chosen("lidar", found["lidar"]):
            with job.at(lidar.name):
                self._lidar = LidarFiles(job, lidar, project=project)
                if project and self._lidar.pose is None:
                    job.notes.say("not in the calibration: no depth in pictures", lidar.name)
        if radar := self._chosen("radar", found["radar"]):
            with job.at(radar.name):
                self._radar = RadarFiles(job, radar)
        self._look_at_losses()
        return cameras

    def _chosen(self, kind: str, streams: Sequence[Stream]) -> Stream | None:
        """The sensor of a kind: the one that was asked for, else the first."""
        job, wanted = self._job, self._job.options[kind]
        if wanted is not None:
            for stream in streams:
                if stream.name == wanted:
                    return stream
            job.notes.say(f"there is no such {kind}: none is packed", wanted)
            return None
        if not streams:
            job.notes.say(f"has no {kind}", "session")
            return None
        for stream in streams[1:]:
            job.notes.say(
                f"left out: a sample has one {kind}; edgefirst.{kind} names it", stream.name
            )
        return streams[0]

    def _look_at_losses(self) -> None:
        session = self._job.session
        lost: dict[str, Any] = {}
        for name, events in lost_events(session.events()).items():
            counted, intervals = losses(events)
            lost[name] = {"counted": dict(counted), "uncounted_intervals": len(intervals)}
            parts = [f"{n} ({cause})" for cause, n in counted.items()]
            if intervals:
                parts.append(f"{len(intervals)} intervals that nobody counted")
            self._job.notes.say("lost samples: " + ", ".join(parts), name)
        if session.state == RECOVERED:
            self._job.notes.say("recovered: its writer died, or its disk failed", "session")
        self._entry.facts["lost"] = lost

    def _pack_camera(self, camera: CameraFiles, pool: ThreadPoolExecutor) -> int:
        job = self._job
        sequence = self._entry.sequences[camera.name]
        source = find_poses(job.session, job.calibration, job.options["poses"])
        walk = None if isinstance(source, Identity) else PoseWalk(source)
        told = source.describe()
        self._entry.facts["poses"] = told["source"]
        if walk is None:
            job.notes.say("no poses known: samples have none", "poses")
        elif not told["measured"]:
            job.notes.say(told.get("note", told["source"]), "poses")
        rows = RowMaker(job, camera, sequence, self._entry.base, walk, self._tolerance_ns)
        start_ns = job.session.start_ns or 0
        self._missing: dict[str, int] = {}
        pending: deque[_Sample] = deque()
        count, told_index = 0, -1

        def finish() -> None:
            nonlocal count, told_index
            sample = pending.popleft()
            self._write(sample)
            group = self._split.group(self._entry.base, sample.t_ns - start_ns)
            with job.at(camera.name, sample.index):
                place = None if self._places is None else self._places.at(sample.t_ns)
                for row in rows.make(sample.index, sample.t_ns, sample.lidar_t_ns, group, place):
                    self._table.add(row)
            job.advance(sample.index - told_index)
            told_index = sample.index
            count += 1

        ahead = 2 * job.options["threads"] + 1
        try:
            for index, t_ns in self._thinning.choose(camera.stream):
                pending.append(self._begin(camera, sequence, index, t_ns, pool))
                if len(pending) > ahead:
                    finish()
            while pending:
                finish()
        finally:
            for sample in pending:
                sample.picture.cancel()
                for made in sample.made:
                    made.cancel()
        job.advance(len(camera.stream) - 1 - told_index)
        self._say(camera, rows, count)
        return count

    def _begin(
        self, camera: CameraFiles, sequence: str, index: int, t_ns: int, pool: ThreadPoolExecutor
    ) -> _Sample:
        """Have a sample's files made."""
        name = f"{sequence}/{sequence}_{index:03d}"
        place = None if self._places is None else self._places.at(t_ns)
        jpeg = camera.picture(index)
        picture: Future[Payload]
        if camera.ending == "camera.png":
            picture = pool.submit(camera.make, index, jpeg, t_ns, place, name)
        else:
            picture = Future()
            picture.set_result(camera.make(index, jpeg, t_ns, place, name))
        sample = _Sample(index, t_ns, name, picture)
        for sensor in (self._lidar, self._radar):
            if sensor is None:
                continue
            at = nearest(sensor.stream, t_ns, self._tolerance_ns)
            if at is None:
                self._missing[sensor.name] = self._missing.get(sensor.name, 0) + 1
                continue
            made = self._remembered(sensor.name, at, sensor.make, pool)
            sample.made.append(made)
            if sensor is self._lidar:
                sample.lidar_t_ns = int(sensor.stream.t_ns[at])
                if self._lidar.projects and camera.projects:
                    sample.depth = pool.submit(_depth, camera, made)
        return sample

    def _remembered(
        self, name: str, index: int, make: Callable[[int], Made], pool: ThreadPoolExecutor
    ) -> Future[Made]:
        kept = self._memory.setdefault(name, OrderedDict())
        if index not in kept:
            kept[index] = pool.submit(make, index)
            if len(kept) > _KEPT:
                kept.popitem(last=False)
        return kept[index]

    def _write(self, sample: _Sample) -> None:
        name, t_ns = sample.name, sample.t_ns
        ending = "camera.png" if self._job.options["images"] == "png" else "camera.jpeg"
        self._container.add(f"{name}.{ending}", sample.picture.result(), t_ns)
        for made in sample.made:
            for kind, payload in made.result().files.items():
                self._container.add(f"{name}.{kind}", payload, t_ns)
        if sample.depth is not None:
            self._container.add(f"{name}.depth.png", sample.depth.result(), t_ns)

    def _say(self, camera: CameraFiles, rows: RowMaker, count: int) -> None:
        job = self._job
        for name, missing in self._missing.items():
            near = f"within {job.options['tolerance_ms']:g} ms"
            if missing == count:
                job.notes.say(f"no sample {near} of any picture of {camera.name}", name)
            else:
                job.notes.say(
                    f"{missing} of {count} samples of {camera.name} have none {near}", name
                )
        for line in rows.told():
            job.notes.say(line, camera.name)
        classes = max(rows.classes, self._entry.facts.get("classes", 0))
        if classes:
            self._entry.facts["classes"] = classes

    def _facts(self, counts: Mapping[str, int]) -> dict[str, Any]:
        session = self._job.session
        facts: dict[str, Any] = {
            "state": session.state,
            "hostname": (session.header or {}).get("hostname"),
            "metadata": dict(session.metadata),
            "samples": dict(counts),
            "calibration_sha256": self._job.calibration.sha256,
            "notes": list(self._job.notes.lines),
        }
        if self._lidar is not None:
            facts["lidar"] = self._lidar.name
        if self._radar is not None:
            facts["radar"] = self._radar.describe()
        return facts


def _depth(camera: CameraFiles, made: Future[Made]) -> Payload:
    points = made.result().points
    assert points is not None
    return camera.depth(np.asarray(points, np.float64))


def is_camera(stream: Stream) -> bool:
    """Whether a stream's pictures become samples."""
    return not stream.name.startswith("_") and stream.has_times and kind_of(stream) == "camera"


def class_names(before: Existing | None, new: Sequence[Entry]) -> dict[str, str]:
    """Entries of the file metadata that say what values of masks of classes mean.

    Args:
        before: an older table that is added to.
        new: the sessions that are packed now; ``classes`` of their facts is the number of values.
    """
    known: list[str] = []
    if before is not None and before.metadata.get("mask_interpretation") == "class_index":
        known = json.loads(before.metadata.get("labels") or "[]")
    count = max((entry.facts.get("classes", 0) for entry in new), default=0)
    names = known + [f"class_{number}" for number in range(len(known), count)]
    if not names:
        return {}
    return {"mask_interpretation": "class_index", "labels": json.dumps(names)}
