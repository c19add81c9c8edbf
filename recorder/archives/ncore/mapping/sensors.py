"""Packing of sensors as NCore components: base class, cameras, and generic streams."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives.context import PackingContext
from recorder.archives.ncore.format.cameras import IntrinsicsWriter
from recorder.archives.ncore.format.frames import FrameWriter
from recorder.archives.ncore.format.point_clouds import PointCloudsWriter
from recorder.archives.ncore.format.sequence import SequenceWriter
from recorder.archives.ncore.mapping.labels import label_source
from recorder.archives.ncore.mapping.models import camera_model, find_shutter
from recorder.common.errors import FormatError
from recorder.config.options import Option
from recorder.formats.png import encode_png
from recorder.perception.calibration import Calibration
from recorder.perception.camera.camera_pictures import Pictures
from recorder.perception.frames import Exposures, FrameGate, kind_of
from recorder.perception.labels import LabelFile
from recorder.session.stream import Stream

PNG = "png"
RAW_PICTURES = Option(
    "str", "jpeg", "raw pictures: 8-bit JPEGs, or PNGs with the values", choices=("jpeg", PNG)
)
"""The option ``raw_pictures``."""
_PNG_LEVEL = 2
GENERIC_BYTES = 4096
"""Largest sample, in bytes, of a stream that is packed as rows (no camera, lidar or radar)."""
_ROWS = 4096

Boxes = Mapping[int, list[dict[str, Any]]]
StartFinder = Callable[[int, int], int]
"""Function that returns the start of a sample of given index and end, ns."""


class FrameEnds:
    """Record of the samples that became frames, and of the frames' ends; 16 bytes per frame."""

    def __init__(self) -> None:
        self._index, self._end_ns = array("q"), array("q")

    def add(self, index: int, end_ns: int) -> None:
        """Add a packed sample."""
        self._index.append(index)
        self._end_ns.append(end_ns)

    def find(self, index: int) -> int | None:
        """Return the end of a sample's frame, ns; None if the sample was left out."""
        at = bisect_left(self._index, index)
        if at == len(self._index) or self._index[at] != index:
            return None
        return self._end_ns[at]


@dataclass
class Sensor:
    """Stream that is packed as a component.

    Attributes:
        context: the session's context.
        stream: the sensor's stream.
        ends: ends of the frames.
    """

    context: PackingContext
    stream: Stream
    gate: FrameGate = field(default_factory=FrameGate)
    ends: FrameEnds = field(default_factory=FrameEnds)

    @property
    def name(self) -> str:
        return self.stream.name

    def start_ns(self, _index: int, end_ns: int, /) -> int:
        """Return the time at which the sample's measurement began, ns."""
        raise NotImplementedError

    def pack(
        self, sequence: SequenceWriter
    ) -> Generator[int, None, FrameWriter | PointCloudsWriter]:
        """Write all frames; yield the end of each, ns, and return the component's writer."""
        raise NotImplementedError

    def place_model(self, intrinsics: IntrinsicsWriter, calibration: Calibration) -> None:
        """Store the sensor's model, if NCore has models of such sensors; note what it lacks."""

    def note(self, sentence: str) -> None:
        """Note an irregularity of this stream."""
        self.context.notes.add(sentence, self.name)

    def metadata(self) -> dict[str, Any]:
        """Return the session's description of the stream, for the component's generic metadata."""
        known: dict[str, Any] = {"stream": self.name}
        spec = self.stream.spec
        if spec is not None:
            known |= {"description": spec.description, "rate_hz": spec.rate_hz}
            known["settings"] = dict(spec.settings)
        calibrated = self.context.calibration.of(self.name)
        known["pose_calibrated"] = calibrated.pose is not None
        if calibrated.calibrated_at is not None:
            known["calibrated_at"] = calibrated.calibrated_at
        return known

    def samples(self, find_start: StartFinder) -> Iterator[tuple[int, int, int]]:
        """Yield index, start and end (ns) of each packed sample.

        Args:
            find_start: called for each sample of the stream, in order.
        """
        gate = self.gate
        numbers = self._numbers()
        for index, end_ns, seq in numbers:
            with self.context.locate_errors(self.name, index):
                times = gate.admit(index, find_start(index, end_ns), end_ns)
                self.seq = seq
            if times is not None:
                self.ends.add(index, times[1])
                yield index, *times
            self.context.advance(1)
        for sentence in gate.remarks():
            self.note(sentence)

    def _numbers(self) -> Iterator[tuple[int, int, int | None]]:
        has_seq = "seq" in self.stream.meta
        for at in range(0, len(self.stream), _ROWS):
            stop = min(at + _ROWS, len(self.stream))
            with self.context.locate_errors(self.name, at):
                times = self.stream.times(at, stop).tolist()
                seqs: Iterable[int | None] = [None] * len(times)
                if has_seq:
                    seqs = self.stream.read(at, stop, ["seq"])["seq"].tolist()
            yield from zip(range(at, stop), times, seqs, strict=True)

    seq: int | None = None
    """Sequence number of the sample that `samples` yielded last."""

    def frame_metadata(self, index: int) -> dict[str, Any]:
        """Return the metadata of one frame: its place in the session."""
        known = {"sample": index + self.stream.first}
        return known if self.seq is None else known | {"seq": self.seq}


@dataclass
class Camera(Sensor):
    """Camera whose JPEGs are stored unchanged; raw pictures and video are encoded.

    By the option ``raw_pictures`` raw pictures become grey PNGs with the values of the sensor.

    A frame starts an exposure and a readout before its end, as far as these are known (see
    `recorder.perception.frames.Exposures`).
    """

    boxes: Sequence[LabelFile] = ()

    def __post_init__(self) -> None:
        self._pictures = Pictures(self.stream, self.context.options["jpeg_quality"])
        self._exposures = Exposures(self.stream)

    def start_ns(self, index: int, end_ns: int) -> int:
        return end_ns - self._exposures.at_ns(index) - self._exposures.readout_ns

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self._pictures.size

    def place_model(self, intrinsics: IntrinsicsWriter, calibration: Calibration) -> None:
        """Store the calibrated model, or a placeholder where it does not fit the pictures."""
        readout_ns = self._exposures.readout_ns
        shutter, contradiction = find_shutter(calibration, self.name, readout_ns)
        if contradiction is not None:
            self.note(f"{contradiction}: packed as {shutter}")
        model = camera_model(calibration, self.name, shutter)
        if model is not None and tuple(model.resolution) == self.size:
            intrinsics.camera(self.name, model)
            return
        sentence = "no intrinsics in the calibration: placeholder intrinsics"
        if model is not None:
            sizes = *model.resolution, *self.size
            sentence = "calibrated for {}x{}, but the pictures have {}x{}: placeholder intrinsics"
            sentence = sentence.format(*sizes)
        self.note(sentence)
        intrinsics.placeholder(self.name, self.size, shutter)

    def _known_exposure(self) -> str:
        if self._exposures.measured:
            return "known for each frame"
        if self._exposures.known:
            return "known"
        return "unknown; frames start at their end"

    def pack(self, sequence: SequenceWriter) -> Generator[int, None, FrameWriter]:
        writer = sequence.camera(
            self.name,
            metadata=self.metadata() | {"exposure": self._known_exposure()},
        )
        pixels = self._pictures.pixels if self.context.options["raw_pictures"] == PNG else None
        if pixels is not None:
            about = {"format": pixels.name, "bits": pixels.bits, "pattern": pixels.pattern}
            writer.metadata["pixels"] = about
            self.note(f"pictures are packed as PNGs with the sensor's values ({pixels.name})")
        elif remark := self._pictures.remark():
            self.note(remark)
        boxes = {
            f"boxes@{file.set_name}" if file.set_name else "boxes": file for file in self.boxes
        }
        readers = {key: BoxReader(self.stream, file) for key, file in boxes.items()}
        for index, start_ns, end_ns in self.samples(self.start_ns):
            with self.context.locate_errors(self.name, index):
                metadata = self.frame_metadata(index)
                metadata |= {key: reader.at(index) for key, reader in readers.items()}
                if pixels is None:
                    image = self._pictures.jpeg(index), "jpeg"
                else:
                    image = encode_png(self._pictures.values(index), level=_PNG_LEVEL), PNG
                writer.frame(start_ns, end_ns, *image, metadata=metadata)
            yield end_ns
        for key, file in boxes.items():
            source = {"label_source": label_source(file.source)}
            writer.metadata[key] = dict(file.header) | source
        return writer


class BoxReader:
    """Reader of the boxes of a camera's pictures, from a file ordered by time."""

    def __init__(self, stream: Stream, boxes: LabelFile) -> None:
        self._stream, self._boxes = stream, self._read(boxes)
        self._next: tuple[int, dict[str, Any]] | None = (-1, {})

    def at(self, index: int) -> list[dict[str, Any]]:
        """Return the boxes of a sample; call with rising indices."""
        found = []
        while self._next is not None and self._next[0] <= index:
            if self._next[0] == index:
                found.append(self._next[1])
            self._next = next(self._boxes, None)
        return found

    def _read(self, boxes: LabelFile) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield sample and box of each line."""
        for where, label in boxes.lines():
            frame = label.get("frame")
            if not isinstance(frame, int):
                frame = self._stream.whole.at(label["t_ns"])
            frame -= self._stream.first
            kept = {key: value for key, value in label.items() if key not in ("t_ns", "frame")}
            if not isinstance(kept.get("class"), str):
                raise FormatError(f"{where}: class: needs a text")
            yield frame, kept


def is_generic(stream: Stream) -> bool:
    """Return whether a stream is packed as rows of generic data."""
    return (
        kind_of(stream) in ("imu", "other")
        and stream.has_times
        and stream.sample_bytes <= GENERIC_BYTES
    )


def pack_generic(
    context: PackingContext, sequence: SequenceWriter, stream: Stream
) -> dict[str, Any]:
    """Store a stream's samples as generic data of the poses: ``NAME.t_ns`` and ``NAME.CHANNEL``.

    Returns:
        the stream's entry in the component's metadata.
    """
    poses = sequence.poses()
    channels = stream.data_channels
    rows = {"t_ns": poses.generic_rows(f"{stream.name}.t_ns", np.int64)}
    for name in channels:
        entry = stream.meta[name]
        rows[name] = poses.generic_rows(
            f"{stream.name}.{name}", entry["type"], tuple(entry["shape"])
        )
    backward, last = 0, -1
    for at in range(0, len(stream), _ROWS):
        stop = min(at + _ROWS, len(stream))
        with context.locate_errors(stream.name, at):
            t_ns: npt.NDArray[np.int64] = stream.times(at, stop)
            data = stream.read(at, stop, channels) if channels else {}
            rows["t_ns"].append(t_ns)
            for name in channels:
                rows[name].append(data[name])
        steps = np.diff(t_ns, prepend=last)
        backward += int(np.count_nonzero(steps <= 0))
        last = int(t_ns[-1])
        context.advance((stop - at) / _ROWS)
    if backward:
        context.notes.add(f"{backward} samples with equal or backward times, packed", stream.name)
    spec = stream.spec
    units = {} if spec is None else {c.name: c.unit for c in spec.channels if c.unit}
    known: dict[str, Any] = {
        "kind": kind_of(stream),
        "samples": len(stream),
        "channels": {name: {"unit": units.get(name, "")} for name in channels},
    }
    if spec is not None:
        known |= {"description": spec.description, "settings": dict(spec.settings)}
    return known


def count_ticks(stream: Stream) -> float:
    """Return the amount of work of a stream, in the unit of `PackingContext.advance`."""
    return len(stream) / _ROWS if is_generic(stream) else len(stream)
