"""Pipeline of a camera's samples: planned in windows, encoded ahead by workers, written in order.

::

    pipeline = Pipeline(context, camera, sequence, [lidar, radar], places, motion, pool)
    for window in pipeline.windows():
        window.write(container)
        window.index, window.t_ns, window.lidar_t_ns     # for the table

A sweep or a radar frame accompanies the nearest of the pictures that it matches, or all of them;
it is made once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice

import numpy as np
import numpy.typing as npt

from recorder.archives.context import PackingContext
from recorder.archives.edgefirst.cameras import CameraFiles, Place
from recorder.archives.edgefirst.samples import Places, choose_pictures, nearest_all
from recorder.archives.edgefirst.sensors import LidarFiles, SampleFiles, SensorFiles
from recorder.formats.zip.writer import Container, Payload
from recorder.perception.ego_motion import EgoMotion, Motion

WINDOW = 8
"""Number of pictures planned together; fewer for PNGs, which stay in memory until written."""
_PNG_WINDOW = 4
AHEAD = 1
"""Number of windows that are encoded while one is written."""
NEAREST, ALL = "nearest", "all"
"""Values of the option ``accompany``: the pictures that a sweep or a radar frame accompanies."""
INPUTS = ("lidar", "radar")
"""Values of the option ``inputs``: what a picture needs beside it to be packed."""
NONE = -1
"""Index or stamp of a missing sample."""

Times = npt.NDArray[np.int64]
Files = dict[str, Payload]


@dataclass(frozen=True)
class Window:
    """Window of consecutive samples of a camera.

    Attributes:
        index: int64 [n], indices of the pictures in their stream.
        t_ns: int64 [n], stamps of the pictures.
        lidar_t_ns: int64 [n], stamps of the accompanying sweeps, or `NONE`.
        places: position of each picture.
        names: names of the samples, ``SEQ/SEQ_000``.
        files: for each sample, functions that return (and wait for) contents by file ending.
    """

    index: Times
    t_ns: Times
    lidar_t_ns: Times
    places: list[Place | None]
    names: list[str]
    files: list[list[Callable[[], Files]]]

    def write(self, container: Container) -> None:
        """Write all files; wait for files that are still being made."""
        for name, t_ns, parts in zip(self.names, self.t_ns.tolist(), self.files, strict=True):
            for part in parts:
                for ending, payload in part().items():
                    container.add(f"{name}.{ending}", payload, t_ns)


class _Batch:
    """Samples of a sensor that are encoded together; several threads may wait for them."""

    def __init__(self, files: SensorFiles, indices: Sequence[int]) -> None:
        self._files, self._wait_all = files, files.submit(indices)
        self._lock = threading.Lock()
        self._results: list[SampleFiles] | None = None

    def wait(self, at: int) -> SampleFiles:
        """Wait for the samples and return one; count the irregularities of each once."""
        with self._lock:
            if self._results is None:
                self._results = self._wait_all()
                for one in self._results:
                    self._files.count(one)
            return self._results[at]


Part = Callable[[], SampleFiles]
"""Function that waits for the files of one sample of a sensor."""


@dataclass(frozen=True)
class _Matches:
    """Samples of a sensor that match n pictures.

    Attributes:
        index: int64 [n], index of the sample of each picture, or `NONE`.
        t_ns: int64 [n], stamps of these samples, or `NONE`.
        accompanies: bool [n], whether the sample accompanies the picture.
    """

    index: Times
    t_ns: Times
    accompanies: npt.NDArray[np.bool_]

    def __getitem__(self, chosen: slice | npt.NDArray[np.bool_]) -> _Matches:
        return _Matches(self.index[chosen], self.t_ns[chosen], self.accompanies[chosen])


class _Sensor:
    """Sensor whose samples are matched to pictures: a lidar or a radar.

    Args:
        files: the sensor's files.
        tolerance_ns: largest time between a picture and its sample.
        repeats: whether a sample accompanies all pictures that it matches, not only the nearest.

    Attributes:
        missing: number of pictures without a matching sample.
    """

    def __init__(self, files: SensorFiles, tolerance_ns: int, *, repeats: bool) -> None:
        self.files, self._tolerance_ns, self._repeats = files, tolerance_ns, repeats
        self.kind = "lidar" if isinstance(files, LidarFiles) else "radar"
        self.projects = isinstance(files, LidarFiles) and files.projects
        self._known: dict[int, Part] = {}
        self.missing = 0

    def match(self, t_ns: Times) -> _Matches:
        """Return the samples that match pictures with these stamps, int64 [n]."""
        stream = self.files.stream
        index = nearest_all(stream, t_ns, self._tolerance_ns)
        stamps = np.where(index == NONE, NONE, stream.t_ns[index])
        accompanies = index != NONE
        if not self._repeats:
            accompanies &= find_nearest(index, np.abs(t_ns - stamps))
        return _Matches(index, stamps, accompanies)

    def begin(self, matches: _Matches) -> list[Part | None]:
        """Start making the samples that match pictures; return each picture's sample."""
        self.missing += int(np.count_nonzero(matches.index == NONE))
        # Depth pictures need the points of every picture.
        wanted = matches.index
        if not self.projects:
            wanted = np.where(matches.accompanies, wanted, NONE)
        indices = wanted.tolist()
        distinct = [index for index in dict.fromkeys(indices) if index != NONE]
        parts = {index: self._known[index] for index in distinct if index in self._known}
        new = [index for index in distinct if index not in parts]
        for _, members in groupby(new, lambda index: index // self.files.GROUP):
            together = list(members)
            batch = _Batch(self.files, together)
            parts |= {index: partial(batch.wait, at) for at, index in enumerate(together)}
        self._known = parts
        return [parts.get(index) for index in indices]


def find_nearest(matches: Times, distances: Times) -> npt.NDArray[np.bool_]:
    """Return which of the pictures that match one sample are nearest to it, bool [n].

    Of two equally near pictures it is the earlier one.

    Args:
        matches: int64 [n], index of the sample that each picture matches.
        distances: int64 [n], time between picture and sample.
    """
    nearest = np.ones(len(matches), bool)
    same = matches[1:] == matches[:-1]
    nearest[1:] &= ~same | (distances[1:] < distances[:-1])
    nearest[:-1] &= ~same | (distances[:-1] <= distances[1:])
    return nearest


class Pipeline:
    """Pipeline that makes a camera's samples.

    Args:
        context: the session's context.
        camera: the camera.
        sequence: name of the camera's sequence.
        sensors: files of the sensors that are matched to a picture.
        places: positions of the vehicle; None where unknown.
        motion: motion of the rig, which depth pictures are compensated for.
        pool: threads that make the pictures.

    Attributes:
        left_out: number of pictures without the wanted inputs.
    """

    def __init__(
        self,
        context: PackingContext,
        camera: CameraFiles,
        sequence: str,
        sensors: Sequence[SensorFiles],
        places: Places | None,
        motion: EgoMotion,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._context, self._pool, self._motion = context, pool, motion
        self._camera, self._sequence, self._places = camera, sequence, places
        tolerance_ns = round(context.options["tolerance_ms"] * 1e6)
        repeats = context.options["accompany"] == ALL
        self._sensors = [_Sensor(files, tolerance_ns, repeats=repeats) for files in sensors]
        self._inputs = set(context.options["inputs"])
        self._blind = not self._inputs <= {sensor.kind for sensor in self._sensors}
        self.left_out = 0

    @property
    def missing(self) -> dict[str, int]:
        """Number of samples without a match, by sensor."""
        return {sensor.files.name: sensor.missing for sensor in self._sensors if sensor.missing}

    def windows(self) -> Iterator[Window]:
        """Yield all samples; the next windows are made while the caller writes one."""
        every, max_rate_hz = self._context.options["every"], self._context.options["max_rate"]
        chosen = choose_pictures(self._camera.stream, every, max_rate_hz)
        begun: deque[Window] = deque()
        size = _PNG_WINDOW if self._camera.recodes else WINDOW
        before, pictures = list[tuple[int, int]](), list(islice(chosen, size))
        while pictures:
            after = list(islice(chosen, size))
            around = np.array([t_ns for _, t_ns in (*before, *pictures, *after[:1])])
            inner = slice(len(before), len(before) + len(pictures))
            begun.append(self._begin(np.array(pictures, np.int64), around, inner))
            if len(begun) > AHEAD:
                yield begun.popleft()
            before, pictures = pictures[-1:], after
        yield from begun

    def _begin(self, pictures: npt.NDArray[np.int64], around: Times, inner: slice) -> Window:
        """Start making the samples of pictures.

        Args:
            pictures: int64 [n, (index, stamp)].
            around: stamps of the pictures and of their neighbours.
            inner: the pictures among them.
        """
        matches = [sensor.match(around)[inner] for sensor in self._sensors]
        if self._inputs:
            complete = np.full(len(pictures), not self._blind)
            for sensor, matched in zip(self._sensors, matches, strict=True):
                if sensor.kind in self._inputs:
                    complete &= matched.accompanies
            self.left_out += int(np.count_nonzero(~complete))
            pictures, matches = pictures[complete], [matched[complete] for matched in matches]
        index, t_ns = pictures.T
        lidar_t_ns = np.full(len(index), NONE)
        frames = (index + self._camera.stream.first).tolist()
        names = [f"{self._sequence}/{self._sequence}_{frame:03d}" for frame in frames]
        places = self._places_at(t_ns)
        about = zip(index.tolist(), t_ns.tolist(), places, names, strict=True)
        files = [[self._picture(*one)] for one in about]
        for sensor, matched in zip(self._sensors, matches, strict=True):
            if isinstance(sensor.files, LidarFiles):
                lidar_t_ns = np.where(matched.accompanies, matched.t_ns, NONE)
            parts = sensor.begin(matched)
            for number, (of_sample, part) in enumerate(zip(files, parts, strict=True)):
                if part is None:
                    continue
                if matched.accompanies[number]:
                    of_sample.append(partial(_take_files, part))
                if isinstance(sensor.files, LidarFiles) and sensor.projects:
                    times = int(t_ns[number]), int(matched.t_ns[number])
                    of_sample += self._begin_depth(part, *times, sensor.files.period_ns)
        return Window(index, t_ns, lidar_t_ns, places, names, files)

    def _places_at(self, t_ns: Times) -> list[Place | None]:
        if self._places is None:
            return [None] * len(t_ns)
        with self._context.locate_errors(self._places.name):
            return [self._places.at(t) for t in t_ns.tolist()]

    def _picture(
        self, index: int, t_ns: int, place: Place | None, name: str
    ) -> Callable[[], Files]:
        make = partial(self._camera.make, index, t_ns, place, name)
        # Copying a picture costs less than handing it to a thread.
        return self._pool.submit(make).result if self._camera.recodes else make

    def _begin_depth(
        self, part: Part, picture_ns: int, sweep_ns: int, period_ns: int
    ) -> list[Callable[[], Files]]:
        if not self._camera.projects:
            return []
        with self._context.locate_errors("poses"):
            motion = self._motion.around(picture_ns, sweep_ns, period_ns)
        return [self._pool.submit(self._depth, part, motion).result]

    def _depth(self, part: Part, motion: Motion | None) -> Files:
        made = part()
        assert made.points is not None
        assert made.t_ns is not None
        points = np.asarray(made.points, np.float64)
        if motion is not None:
            points = motion.move(points, made.t_ns)
        return {"depth.png": self._camera.depth(points)}


def _take_files(part: Part) -> Files:
    return part().files
