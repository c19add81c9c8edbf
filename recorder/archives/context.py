"""Packing context of a session: its data, its workers and the location of errors.

::

    with context.locate_errors("camera", index):     # errors inside name the stream and the sample
        jpeg = context.session.streams["camera"].sample(index)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from recorder.archives.sample_workers import (
    EncoderFactory,
    SampleError,
    SampleWorkers,
    WorkerContext,
    processes_for,
)
from recorder.archives.session_notes import SessionNotes
from recorder.common.errors import ArchiveError, RecorderError, StorageError, UsageError
from recorder.perception.calibration import Calibration
from recorder.perception.frames import kind_of
from recorder.perception.geometry import Floats, rotation_of_quaternion, transform
from recorder.perception.label_facts import picture_files
from recorder.perception.labels import BOXES, LabelFile, box_files
from recorder.session.playback import is_small
from recorder.session.reader import Session
from recorder.session.stream import Stream

Item = TypeVar("Item")

CAMERA_AHEAD: Floats = transform(
    rotation_of_quaternion(np.array([-0.5, 0.5, -0.5, 0.5])), np.zeros(3)
)
"""``T_sensor_rig`` of a camera in the rig's origin that looks along x: z forward, x right."""


@dataclass
class PackingContext:
    """One session to pack, as one archive or into a shared archive.

    Attributes:
        session: opened with virtual sensors, for reading only.
        folder: an empty folder for the files.  Sessions that are packed together share the folder.
        options: the packer's options, checked.
        calibration: the session's calibration, or the given one instead; may be empty.
        warnings: sentences with which the notes begin.
        advance: called with the amount of finished work, in the unit of `Packer.ticks`.
        workers: the processes that encode samples for all archives of the session; None: started
            when needed, for this archive alone.
        worker: in a worker, the objects that its encoders share.
        at_fault: whether this session is the one that could not be packed; see `fault_scope`.
        redaction: by camera, how its pictures were redacted (`redact_session`); else empty.
        notes: irregularities of the session; the packer adds those that it finds.
    """

    session: Session
    folder: Path
    options: Mapping[str, Any]
    calibration: Calibration
    warnings: Sequence[str] = ()
    advance: Callable[[float], None] = lambda _: None
    workers: SampleWorkers | None = None
    worker: WorkerContext | None = None
    at_fault: bool = False
    redaction: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: SessionNotes = field(init=False)
    _own: SampleWorkers | None = None

    def __post_init__(self) -> None:
        self.notes = SessionNotes(self.session, self.warnings)

    def encode_samples(
        self, stream: str, factory: EncoderFactory, indices: Iterable[int], *, group: int
    ) -> Generator[Any]:
        """Yield encoded samples of a stream, in order; see `SampleWorkers.encode_samples`.

        Raises:
            ArchiveError, StorageError: as by `locate_errors`.
        """
        encode, settings = self._pool().encode_samples, self._settings(stream)
        try:
            yield from encode(stream, factory, indices, group=group, **settings)
        except SampleError as error:
            self._raise(stream, error)

    def submit(
        self, stream: str, factory: EncoderFactory, indices: Sequence[int], *, group: int
    ) -> Callable[[], list[Any]]:
        """Begin to encode samples of one group; the returned function waits for them.

        Raises:
            ArchiveError, StorageError: by that function, as by `locate_errors`.
        """
        submit, settings = self._pool().submit, self._settings(stream)
        pending = submit(stream, factory, indices, group=group, **settings)

        def wait() -> list[Any]:
            try:
                return pending.result()
            except SampleError as error:
                self._raise(stream, error)

        return wait

    def _pool(self) -> SampleWorkers:
        if self.workers is None:
            path, part = self.session.path, self.session.part
            self.workers = self._own = SampleWorkers(
                path, part, processes_for(path), redacted=self.session.redacted
            )
        return self.workers

    def _settings(self, stream: str) -> dict[str, Any]:
        """Return the arguments of a stream's encoding: times for the errors, target of remarks."""
        times = self.session.streams[stream].times
        return {
            "time_of": lambda index: int(times(index, index + 1)[0]),
            "remark": partial(self.notes.add, subject=stream),
        }

    def _raise(self, stream: str, error: SampleError) -> NoReturn:
        with self.locate_errors(stream, error.index):
            raise error.error from None

    def close(self) -> None:
        """Close the session's files; for archives of many sessions."""
        self.session.close()
        if self._own is not None:
            self._own.close()
            self.workers = self._own = None

    @property
    def streams(self) -> list[Stream]:
        """Streams of the session's sensors, without the virtual streams."""
        return [s for s in self.session.streams.values() if not s.name.startswith("_")]

    def contains(self, t_ns: int) -> bool:
        """Return whether a time, epoch ns, is in the part of the session that is packed."""
        begin_ns, end_ns = self.session.interval_ns
        return (begin_ns is None or t_ns >= begin_ns) and (end_ns is None or t_ns < end_ns)

    def has_samples(self, stream: Stream) -> bool:
        """Return whether a stream has samples with times; note a stream that has none."""
        with self.locate_errors(stream.name):
            missing = not len(stream)
        if not stream.has_times:
            self.notes.add("has no times: left out", stream.name)
        elif missing:
            self.notes.add("no sample was recorded", stream.name)
        return stream.has_times and not missing

    def find_pose(self, stream: Stream, *, note_missing: bool = True) -> Floats:
        """Return ``T_sensor_rig``, f8 [4, 4]; by default, note a stream without a calibration.

        A stream without a calibration is placed at the rig's origin.  A camera looks ahead there;
        other sensors have the rig's axes.
        """
        if (pose := self.calibration.of(stream.name).pose) is not None:
            return pose
        camera = kind_of(stream) == "camera"
        if note_missing:
            ahead = " and looks ahead" if camera else ""
            self.notes.add(
                f"not in the calibration: placed at the rig's origin{ahead}", stream.name
            )
        return CAMERA_AHEAD.copy() if camera else np.eye(4)

    @contextmanager
    def fault_scope(self) -> Iterator[None]:
        """Mark this session as at fault when an error is raised inside.

        A dataset of several sessions is then packed without this session.  Disk errors
        (`StorageError`) and usage errors mark no session.
        """
        try:
            yield
        except (StorageError, UsageError):
            raise
        except RecorderError:
            self.at_fault = True
            raise

    @contextmanager
    def locate_errors(self, stream: str, sample: int | None = None) -> Iterator[None]:
        """Add the stream and the sample to errors raised inside, and act as `fault_scope`.

        Raises:
            ArchiveError: replaces any error of a file or format.
            StorageError: disk errors keep their type.
        """
        try:
            with self.fault_scope():
                yield
        except (_PlacedArchiveError, _PlacedStorageError):
            raise  # the inner place is more precise
        except OSError as error:
            place = f"{error.filename}: " if error.filename is not None else ""
            message = f"{self._describe_place(stream, sample)}: {place}{error.strerror or error}"
            raise _PlacedStorageError(message) from error
        except StorageError as error:
            raise _PlacedStorageError(f"{self._describe_place(stream, sample)}: {error}") from error
        except UsageError:
            raise
        except RecorderError as error:
            raise _PlacedArchiveError(f"{self._describe_place(stream, sample)}: {error}") from error

    def locate_items(self, stream: str, items: Iterator[Item]) -> Iterator[Item]:
        """Yield the items; an error names the stream."""
        while True:
            with self.locate_errors(stream):
                item = next(items, None)
            if item is None:
                return
            yield item

    def find_boxes(
        self, cameras: Collection[str], *, places_facts: bool = False
    ) -> list[LabelFile]:
        """Return all sets of labels in pictures; note those of cameras that are not packed.

        Args:
            cameras: the cameras that are packed.
            places_facts: whether the archive has a place for facts about whole pictures, which are
                noted otherwise.
        """
        for file in [] if places_facts else picture_files(self.session.path):
            text = "facts about whole pictures: left out: the format has none"
            self.notes.add(text, f"{BOXES}/{file.path.parent.name}/{file.path.name}")
        files = box_files(self.session.path)
        for file in files:
            if file.camera not in cameras:
                text = "labels of a camera that is not packed: left out"
                self.notes.add(text, f"{BOXES}/{file.name}")
        return [file for file in files if file.camera in cameras]

    def _describe_place(self, stream: str, sample: int | None) -> str:
        """Return the stream and the sample's number in the whole recording, as text."""
        if sample is None:
            return stream
        known = self.session.streams.get(stream)
        return f"{stream}, sample {sample + (0 if known is None else known.first)}"


def sample_ticks(stream: Stream) -> float:
    """Return the work that a sample is, in the unit of `PackingContext.advance`."""
    return 1 / 256 if is_small(stream) else 1.0


class _PlacedArchiveError(ArchiveError):
    """Error whose message already names the place."""


class _PlacedStorageError(StorageError):
    """Error whose message already names the place."""
