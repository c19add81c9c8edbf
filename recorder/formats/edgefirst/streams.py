"""The sensors of an EdgeFirst sequence as streams.

================ ==================================================================
``SEQ/camera``   JPEGs as they are, without EXIF that this recorder has added
``SEQ/lidar``    the points of ``.lidar.pcd``
``SEQ/radar``    the points of ``.radar.pcd``: ``detections.bin``
``SEQ/cube``     ``.radar.png``: i2 [sequence, rx, range, Doppler, 2]
``SEQ/location`` positions of the pictures' EXIF
================ ==================================================================

A part may end with ``@T``, the start of the recording in epoch ns, where several sequences are of
one recording.  All files of a sample have the time of its picture: that of its EXIF, or else 0.1 s
after the frame before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.points import Column, pack_points, points_dtype
from recorder.codecs.rays import DETECTIONS, TIMES
from recorder.codecs.streams import ChannelSpec, StreamSpec, points_channel
from recorder.common.errors import FormatError, ProtocolError, StreamChangedError
from recorder.formats.datasets import ANY_NAME, Damage, RecordedStream, Samples
from recorder.formats.edgefirst.files import EdgeFirstDataset, find_picture
from recorder.formats.exif import find_exif, read_exif, remove_exif
from recorder.formats.images import PictureChannel
from recorder.formats.pcd import decode_pcd
from recorder.formats.png import cube_of_picture, read_text

CUBE: Final = "cube"
CUBE_TEXT: Final = "radar cube"
_OWN: Final = "recorder "
_USUAL: Final = ((2048, 400), (2, 4))
"""Height and width of EdgeFirst's own cubes, and their sequences and receivers."""
_LOOKED_AT: Final = 20
Values = npt.NDArray[Any]


def make_stream(dataset: EdgeFirstDataset, part: str) -> RecordedStream:
    """Return the stream of a part; raise a FormatError if it is missing or damaged."""
    match = re.fullmatch(r"(.+)/([a-z]+)(?:@([0-9]{1,19}))?", part)
    sequence, kind, start = match.groups() if match is not None else ("", "", None)
    if sequence not in dataset.sequences or kind not in _KINDS:
        raise FormatError(f"{dataset.root}: has no sensor {part!r:.100}")
    dataset.start_ns = int(start) if start else dataset.begin_ns(sequence)
    return _KINDS[kind](dataset, sequence)


class _FileStream(RecordedStream):
    """Base of streams whose samples are files."""

    def __init__(self, dataset: EdgeFirstDataset, sequence: str, ending: str = "") -> None:
        self._dataset, self._sequence = dataset, sequence
        self._files = {
            frame: files[ending] if ending else find_picture(files) or ""
            for frame, files in dataset.sequences[sequence].items()
            if (ending in files if ending else find_picture(files))
        }
        if not self._files:
            raise FormatError(f"{dataset.root}: {sequence} has no file {ending or 'of a camera'}")
        self._timed = dataset.has_times(sequence)
        self._first = next(iter(self._files))
        self.lost = []

    def __len__(self) -> int:
        return len(self._files)

    def _declare(self, *channels: ChannelSpec, size: int = 0, **more: Any) -> StreamSpec:
        known = {"edgefirst_sequence": self._sequence} | more
        return StreamSpec(
            ANY_NAME,
            channels,
            rate_hz=self._find_rate(),
            bytes_per_sample=size,
            finite=True,
            settings=known,
        )

    def _find_rate(self) -> float | None:
        times = [self._time_ns(frame, 0) for frame in list(self._files)[:_LOOKED_AT]]
        middle = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
        return round(1e9 / middle, 3) if middle > 1e3 else None

    def _time_ns(self, frame: int, last_ns: int) -> int:
        """Return the time of a sample; one without a time comes right after the last one."""
        if not self._timed:
            return self._dataset.guess_ns(self._sequence, frame)
        t_ns = self._dataset.exif(self._sequence, frame).t_ns
        return last_ns + 1_000_000 if t_ns is None else t_ns

    def samples(self) -> Iterator[Samples | Damage]:
        last_ns, before = self._dataset.start_ns, b""
        for frame, member in self._files.items():
            try:
                t_ns = last_ns = self._time_ns(frame, last_ns)
                data = self._dataset.read(member)
                if self._repeats and data == before:
                    continue
                before = data
                yield Samples(np.array([t_ns], np.int64), self._convert(data, member))
            except StreamChangedError as error:
                yield Damage(last_ns, f"{member}: {error}", changed=True)
            except (FormatError, ProtocolError) as error:
                yield Damage(last_ns, str(error))

    _repeats = True
    """Whether equal files, one after another, are one sample that accompanies several pictures."""

    def _convert(self, data: bytes, member: str) -> Mapping[str, Any]:
        raise NotImplementedError

    def _read_first(self) -> tuple[bytes, str]:
        member = self._files[self._first]
        return self._dataset.read(member), member


class CameraStream(_FileStream):
    """A camera's pictures.

    Attributes:
        comment: what this recorder's packer says of the camera: model, parameters, place.
        exact: the pictures are recorded bit for bit.
        size: width and height.
    """

    _repeats = False

    def __init__(self, dataset: EdgeFirstDataset, sequence: str) -> None:
        super().__init__(dataset, sequence)
        image, member = self._read_first()
        exif = read_exif(find_exif(image))
        self._own = exif.software.startswith(_OWN)
        self._pictures = PictureChannel(image, member.rpartition(".")[2], member)
        self._exposed = exif.exposure_s is not None
        channels = [self._pictures.channel]
        if self._exposed:
            channels.append(ChannelSpec("exposure", "raw", "u4", (), "exposure time", "us"))
        self.spec = self._declare(*channels, size=len(image), **self._pictures.settings)
        self.lost = list(self._pictures.lost)
        if not self._timed:
            self.lost.append("the pictures have no times: 0.1 s apart by their frames")
        self.exact, self.size = not self._pictures.lost, self._pictures.size
        self.comment: Mapping[str, Any] = {}
        if self._own:
            try:
                found = json.loads(exif.comment or "{}")
            except ValueError:
                found = {}
            self.comment = found if isinstance(found, dict) else {}

    def _convert(self, data: bytes, member: str) -> Mapping[str, Any]:
        found = {}
        if self._exposed:
            exposure_s = read_exif(find_exif(data)).exposure_s
            found["exposure"] = np.array([round((exposure_s or 0) * 1e6)], "<u4")
        picture = remove_exif(data) if self._own else data
        found[self._pictures.channel.name] = self._pictures.convert(  # type: ignore[assignment]
            picture, member.rpartition(".")[2]
        )
        return found


class PointStream(_FileStream):
    """The points of a lidar or a radar, with all fields of the first file.

    Attributes:
        viewpoint: place of the sensor in the rig, if the file states one: x, y, z and the
            quaternion w, x, y, z.
    """

    def __init__(self, dataset: EdgeFirstDataset, sequence: str, ending: str, channel: str) -> None:
        super().__init__(dataset, sequence, ending)
        data, member = self._read_first()
        points, self.viewpoint = decode_pcd(data, member)
        self._fields: dict[str, tuple[str, ...]] = {}
        names = points.dtype.names or ()
        axes = [name for name in names if name in ("x", "y", "z")]
        kinds = {points.dtype[axis] for axis in axes}
        if len(axes) != 3 or len(kinds) != 1 or kinds.pop() not in (np.float32, np.float64):
            raise FormatError(f"{member}: has no x, y, z of f4 or f8")
        self._columns = [Column("xyz", points.dtype["x"].str[1:], (3,), "m")]
        for name in names:
            if name not in axes:
                self._add(name, points.dtype[name])
        self._dtype = points_dtype(self._columns)
        self._channel = points_channel(self._columns, "points", channel)
        size = max(1, len(points) * self._dtype.itemsize // 2)
        self.spec = self._declare(self._channel, size=size)

    def _add(self, name: str, kind: np.dtype[Any]) -> None:
        column = re.sub(r"[^a-z0-9_]", "_", name.lower())
        column = TIMES if name == "t" and kind == np.uint32 else column
        known = {each.name for each in self._columns}
        try:
            made = Column(column, kind.base.str[1:], kind.shape)
        except ProtocolError:
            made = None
        if made is None or column in known:
            self.lost = [*self.lost, f"the field {name}, for which there is no column"]
            return
        self._columns.append(made)
        self._fields[column] = (name,)

    def _convert(self, data: bytes, member: str) -> Mapping[str, Any]:
        points, _ = decode_pcd(data, member)
        made = np.empty(len(points), self._dtype)
        wanted = {*"xyz", *(name for (name,) in self._fields.values())}
        if missing := sorted(wanted - set(points.dtype.names or ())):
            raise StreamChangedError(f"has no field {missing[0]}, unlike the first file")
        for at, axis in enumerate("xyz"):
            made["xyz"][:, at] = points[axis]
        for column, (name,) in self._fields.items():
            if points.dtype[name] != self._dtype[column]:
                raise StreamChangedError(
                    f"{name} is {points.dtype[name]}, unlike in the first file"
                )
            made[column] = points[name]
        return {self._channel.name: [pack_points(made)]}


class CubeStream(_FileStream):
    """The cubes of a radar."""

    def __init__(self, dataset: EdgeFirstDataset, sequence: str) -> None:
        super().__init__(dataset, sequence, "radar.png")
        data, member = self._read_first()
        text = read_text(data).get(CUBE_TEXT, "")
        picture = _decode(data, member)
        self._cells = _find_cells(text, picture, member)
        shape = cube_of_picture(picture, *self._cells).shape
        about = "complex values: sequence, rx, range, Doppler, real and imaginary part"
        channel = ChannelSpec(CUBE, "zstdf", "i2", shape, about)
        more = {"cube": text} if text else {}
        self.spec = self._declare(channel, size=channel.sample_bytes // 2, **more)
        self._shape = shape

    def _convert(self, data: bytes, member: str) -> Mapping[str, Any]:
        cube = cube_of_picture(_decode(data, member), *self._cells)
        if cube.shape != self._shape:
            raise StreamChangedError(f"a cube {list(cube.shape)}, unlike the first one")
        return {CUBE: cube[None]}


def _decode(data: bytes, where: str) -> npt.NDArray[np.uint16]:
    import cv2

    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) if data else None
    if picture is None or picture.ndim != 2 or picture.dtype != np.uint16:
        raise FormatError(f"{where}: is no grey PNG of 16 bits")
    return np.asarray(picture)


def _find_cells(text: str, picture: Values, where: str) -> tuple[int, int]:
    """Return the sequences and receivers of a cube."""
    try:
        sequences, receivers, ranges, doppler = json.loads(text)["shape"]
        if picture.shape == (sequences * ranges, receivers * doppler * 2):
            return int(sequences), int(receivers)
    except (ValueError, KeyError, TypeError):
        pass
    if picture.shape == _USUAL[0]:
        return _USUAL[1]
    form = f"{picture.shape[1]}x{picture.shape[0]}"
    raise FormatError(f"{where}: does not say the layout of its cube of {form} pixels")


class LocationStream(_FileStream):
    """Positions of the pictures."""

    _repeats = False

    def __init__(self, dataset: EdgeFirstDataset, sequence: str) -> None:
        super().__init__(dataset, sequence)
        if dataset.exif(sequence, self._first).latitude_deg is None:
            raise FormatError(f"{dataset.root}: the pictures of {sequence} have no position")
        about = "latitude, longitude, height above the ellipsoid"
        pos = ChannelSpec("pos", "raw", "f8", (3,), about, "deg, deg, m")
        fix = ChannelSpec("fix", "raw", "u1", (), "0: none, 2: without height, 3: with height")
        self.spec = self._declare(pos, fix)

    def _convert(self, data: bytes, member: str) -> Mapping[str, Any]:  # noqa: ARG002
        exif = read_exif(find_exif(data))
        values = (exif.latitude_deg, exif.longitude_deg, exif.altitude_m)
        pos = np.array([[np.nan if v is None else v for v in values]], np.float64)
        fix = 0 if np.isnan(pos[0, :2]).any() else 2 if np.isnan(pos[0, 2]) else 3
        return {"pos": pos, "fix": np.array([fix], np.uint8)}


_KINDS: Final[Mapping[str, Callable[[EdgeFirstDataset, str], RecordedStream]]] = {
    "camera": CameraStream,
    "lidar": lambda dataset, sequence: PointStream(dataset, sequence, "lidar.pcd", "points.bin"),
    "radar": lambda dataset, sequence: PointStream(dataset, sequence, "radar.pcd", DETECTIONS),
    "cube": CubeStream,
    "location": LocationStream,
}
