"""The sensors of an NCore sequence as streams.

=================== ================================================================
``cameras/NAME``    JPEGs as they are; grey PNGs with all bits; other images encoded
``lidars/NAME``     a sweep's rays: ``direction``, ``distance``, ``intensity``, times
``radars/NAME``     a frame's detections, in the same columns: ``detections.bin``
``point_clouds/N.`` clouds of a lidar whose points have no times
``generic/NAME``    rows of an IMU or another small stream, of this recorder's archives
=================== ================================================================

Times are whole microseconds.  A sample's stamp is the end of its frame.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.points import Column, pack_points, points_dtype
from recorder.codecs.raw_pixels import PATTERNS, RawPixels
from recorder.codecs.rays import (
    DETECTIONS,
    DIRECTION,
    DISTANCE,
    DURATION,
    ELEMENT,
    RETURNS,
    TIMES,
)
from recorder.codecs.streams import ChannelSpec, StreamSpec, points_channel
from recorder.common.errors import FormatError, ProtocolError, StreamChangedError
from recorder.formats.datasets import ANY_NAME, Damage, RecordedStream, Samples
from recorder.formats.images import PictureChannel
from recorder.formats.ncore.sequence import NS_PER_US, Instance, NcoreSequence

if TYPE_CHECKING:
    from collections.abc import Callable

_ROWS: Final = 1000
_MOST_NS: Final = 2**32 - 1
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_EXPOSURE: Final = "exposure"
_OWN_KEYS: Final = frozenset({"sample", "seq"})
"""Metadata of a frame that only name its place in the session that was packed."""
Values = npt.NDArray[Any]


def make_stream(sequence: NcoreSequence, part: str) -> RecordedStream:
    """Return the stream of a part; raise a FormatError if it is missing or damaged."""
    component, _, name = part.partition("/")
    if component == "generic":
        poses = sequence.instance("poses")
        if poses is not None and name in find_generic(poses):
            return GenericStream(poses, name)
    elif component in _KINDS and (instance := sequence.instance(component, name)) is not None:
        return _KINDS[component](sequence, instance, name)
    raise FormatError(f"{sequence.path}: has no sensor {part!r:.100}")


def find_generic(poses: Instance) -> dict[str, dict[str, Any]]:
    """Return what this recorder's packer says of the small streams that lie with the poses."""
    found = poses.metadata.get("generic_streams")
    if not isinstance(found, dict):
        return {}
    return {name: about for name, about in found.items() if isinstance(about, dict)}


def is_sensor(clouds: Instance) -> bool:
    """Return whether point clouds are the sweeps of a sensor, by this recorder's packer."""
    return "stream" in clouds.metadata


class _FrameStream(RecordedStream):
    """Base of the sensors whose frames are named by their ends."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._frames_us = instance.frames_us()
        if not len(self._frames_us):
            raise FormatError(f"{instance.where()}: has no frame")
        settings = instance.metadata.get("settings")
        self.settings: dict[str, Any] = dict(settings) if isinstance(settings, dict) else {}
        self.settings["ncore_instance"] = instance.name

    def __len__(self) -> int:
        return len(self._frames_us)

    def samples(self) -> Iterator[Samples | Damage]:
        for start_us, end_us in self._frames_us.tolist():
            t_ns = end_us * NS_PER_US
            try:
                data = self._read(start_us, end_us)
            except StreamChangedError as error:
                yield Damage(t_ns, str(error), changed=True)
            except (FormatError, ProtocolError) as error:
                yield Damage(t_ns, str(error))
            else:
                yield Samples(np.array([t_ns], np.int64), data)

    def _read(self, start_us: int, end_us: int) -> Mapping[str, Any]:
        """Return the data of one frame, by channel."""
        raise NotImplementedError

    def _spec(
        self,
        channels: Sequence[ChannelSpec],
        size: int = 0,
        files: Mapping[str, str] | None = None,
    ) -> StreamSpec:
        return StreamSpec(
            ANY_NAME,
            tuple(channels),
            rate_hz=find_rate_hz(self._frames_us[:, 1]),
            bytes_per_sample=size,
            finite=True,
            description=str(self._instance.metadata.get("description") or ""),
            files=files or {},
            settings=self.settings,
        )

    def _find_lost(self, first: str, known: Sequence[str]) -> list[str]:
        """Return what the first frame has that the stream does not have."""
        lost = [
            f"{name}, in the first frame {list(self._instance.array(f'{first}/{name}').shape)}"
            for name in (f"generic_data/{each}" for each in self._children(first, "generic_data"))
            if name not in known
        ]
        metadata = self._instance.attributes(f"{first}/generic_data").keys() - _OWN_KEYS
        metadata = {key for key in metadata if key.partition("@")[0] != "boxes"}
        if metadata:
            lost.append(f"the metadata of its frames: {', '.join(sorted(metadata)):.200}")
        if more := self._children("", "generic_data"):
            lost.append(f"its generic data: {', '.join(more):.200}")
        return lost

    def _children(self, group: str, name: str) -> list[str]:
        path = f"{group}/{name}" if group else name
        return self._instance.children(path)


class CameraStream(_FrameStream):
    """A camera's pictures; ``exposure`` is the time of a frame that is no readout.

    Attributes:
        exact: the pictures are recorded bit for bit.
    """

    def __init__(self, _: NcoreSequence, instance: Instance, name: str) -> None:  # noqa: ARG002
        super().__init__(instance)
        start_us, end_us = self._frames_us[0].tolist()
        first = f"frames/{end_us}"
        image, kind = instance.encoded(f"{first}/image")
        raw = _find_pixels(instance.metadata.get("pixels"))
        self._pictures = PictureChannel(image, kind, instance.where(f"{first}/image"), raw)
        readout_ms = self.settings.get("readout_ms")
        known = isinstance(readout_ms, int | float) and readout_ms > 0
        self._readout_us = round(readout_ms * 1e3) if known else 0  # type: ignore[operator]
        self._exposed = end_us > start_us
        channels = [self._pictures.channel]
        if self._exposed:
            text = "time from the start of the first row's exposure to its end; 0: unknown"
            channels.append(ChannelSpec(_EXPOSURE, "raw", "u4", (), text, "us"))
        self.settings |= self._pictures.settings
        self.spec = self._spec(channels, len(image))
        self.lost = [*self._pictures.lost, *self._find_lost(first, ())]
        self.exact = not self._pictures.lost

    def _read(self, start_us: int, end_us: int) -> Mapping[str, Any]:
        path = f"frames/{end_us}/image"
        image, kind = self._instance.encoded(path)
        data = {self._pictures.channel.name: self._pictures.convert(image, kind)}
        if self._exposed:
            exposure_us = max(0, end_us - start_us - self._readout_us)
            data[_EXPOSURE] = np.array([exposure_us], "<u4")
        return data


def _find_pixels(about: Any) -> RawPixels | None:
    """Return the raw pixels of a sensor that this recorder's packer states; None without them."""
    if not isinstance(about, dict):
        return None
    bits: Any = about.get("bits")
    pattern: Any = about.get("pattern")
    known = bits in (8, 10, 12, 14, 16) and pattern in ("", *PATTERNS)
    return RawPixels(bits, pattern) if known else None


class RayStream(_FrameStream):
    """A lidar's or radar's rays, with all their values, bit for bit.

    The columns of the first frame are those of the stream.  Values of several returns are columns
    of that many numbers.
    """

    def __init__(self, sequence: NcoreSequence, instance: Instance, name: str) -> None:
        super().__init__(instance)
        radar = instance.name.startswith("radars/")
        # An empty frame says nothing of the columns of others.
        _, end_us = next(
            (each for each in self._frames_us.tolist() if self._count(each[1])),
            self._frames_us[0].tolist(),
        )
        first = f"frames/{end_us}"
        self._parts: dict[str, tuple[str, bool]] = {}  # by column: array, and whether per return
        values = self._read_arrays(end_us, None)
        self._columns = tuple(_make_columns(values))
        self._dtype = points_dtype((*self._columns, _TIMES))
        self.settings[RETURNS] = [c.name for c in self._columns if self._parts[c.name][1]]
        columns = (*self._columns, _TIMES)
        text = "detections of the frame, as rays" if radar else "rays of the sweep"
        channel = DETECTIONS if radar else "points.bin"
        self._channel = points_channel(columns, text, channel)
        about = "time from the start of the frame to its stamp"
        duration = ChannelSpec(DURATION, "raw", "u4", (), about, "ns")
        files = {}
        intrinsics = sequence.instance("intrinsics")
        model = {} if intrinsics is None or radar else intrinsics.attributes(f"lidars/{name}")
        if model:
            files["lidar_model.json"] = json.dumps(model)
        rays = len(values[DISTANCE])
        self.spec = self._spec(
            (self._channel, duration), rays * self._dtype.itemsize // 2 or 1, files
        )
        kept = [self._parts[column.name][0] for column in self._columns]
        self.lost = self._find_lost(first, kept)

    def _count(self, end_us: int) -> int:
        rays = self._instance.attributes(f"frames/{end_us}/ray_bundle").get("n_rays")
        return rays if isinstance(rays, int) else 0

    def _read_arrays(self, end_us: int, wanted: Sequence[str] | None) -> dict[str, Values]:
        """Return the values by column, [rays, ...]; `wanted`: None for the first frame."""
        frame, instance = f"frames/{end_us}", self._instance
        if wanted is None:
            self._parts = {
                DIRECTION: ("ray_bundle/direction", False),
                DISTANCE: ("ray_bundle_returns/distance_m", True),
            }
            for name in instance.children(f"{frame}/ray_bundle"):
                if name not in ("direction", "timestamp_us") and _NAME.fullmatch(name):
                    column = ELEMENT if name == "model_element" else name
                    self._parts[column] = (f"ray_bundle/{name}", False)
            for name in instance.children(f"{frame}/ray_bundle_returns"):
                if name != "distance_m" and _NAME.fullmatch(name):
                    self._parts[name] = (f"ray_bundle_returns/{name}", True)
            rays = len(instance.array(f"{frame}/ray_bundle/direction"))
            for name in instance.children(f"{frame}/generic_data"):
                shape = instance.array(f"{frame}/generic_data/{name}").shape
                fits = len(shape) in (1, 2) and shape[0] == rays and name not in self._parts
                if fits and _NAME.fullmatch(name):
                    self._parts[name] = (f"generic_data/{name}", False)
        found: dict[str, Values] = {}
        for column, (path, per_return) in self._parts.items():
            array = instance.array(f"{frame}/{path}")
            if per_return and array.ndim >= 2:
                array = array[0] if len(array) == 1 else np.moveaxis(array, 0, 1)
            found[column] = array.view(np.uint8) if array.dtype == np.bool_ else array
        return found

    def _read(self, start_us: int, end_us: int) -> Mapping[str, Any]:
        values = self._read_arrays(end_us, [column.name for column in self._columns])
        where = self._instance.where(f"frames/{end_us}")
        times_us = self._instance.times_us(f"frames/{end_us}/ray_bundle/timestamp_us")
        rays = len(times_us)
        points = np.empty(rays, self._dtype)
        for column in self._columns:
            array = values[column.name]
            if rays == 0 and array.shape[:1] == (0,):
                continue
            if array.shape != (rays, *column.shape) or array.dtype != self._dtype[column.name].base:
                form = f"{array.dtype} {list(array.shape)}"
                raise StreamChangedError(f"{where}: {column.name} is {form}, unlike the first")
            points[column.name] = array
        since_ns = (times_us - start_us) * NS_PER_US
        span_ns = (end_us - start_us) * NS_PER_US
        if span_ns > _MOST_NS or (rays and not 0 <= since_ns.min() <= since_ns.max() <= span_ns):
            raise FormatError(f"{where}: its rays are not measured within the frame, or it is long")
        points[TIMES] = since_ns
        return {
            self._channel.name: [pack_points(points)],
            DURATION: np.array([span_ns], "<u4"),
        }


_TIMES: Final = Column(TIMES, "u4", (), "ns", "time after the start of the frame")
_ABOUT: Final[Mapping[str, tuple[str, str]]] = {
    DIRECTION: ("", "unit vector from the sensor's origin"),
    DISTANCE: ("m", "along the ray; NaN: no return"),
    "intensity": ("", "0 to 1; NaN: no return"),
    ELEMENT: ("", "row and column in the lidar's model"),
    "radial_velocity_m_s": ("m/s", "positive: receding"),
    "power_db": ("dB", ""),
    "snr_db": ("dB", ""),
    "rcs_dbsm": ("dBsm", ""),
}


def _make_columns(values: Mapping[str, Values]) -> Iterator[Column]:
    """Yield a column for each array whose values a column may have."""
    for name, array in values.items():
        with suppress(ProtocolError):
            yield Column(name, array.dtype.str[1:], array.shape[1:], *_ABOUT.get(name, ("", "")))


class CloudStream(RecordedStream):
    """Clouds of a lidar whose points have no times."""

    def __init__(self, _: NcoreSequence, instance: Instance, name: str) -> None:  # noqa: ARG002
        self._instance = instance
        self._times_us = instance.times_us("pc_timestamps_us")
        if not len(self._times_us):
            raise FormatError(f"{instance.where()}: has no cloud")
        schemas = instance.attributes("pcs").get("attribute_schemas") or {}
        names = [each for each in schemas if _NAME.fullmatch(each) and each != "xyz"]
        first = {each: instance.array(f"pcs/0/{each}") for each in ("xyz", *names)}
        self._columns = tuple(
            Column(each, array.dtype.str[1:], array.shape[1:], "m" if each == "xyz" else "")
            for each, array in first.items()
        )
        self._dtype = points_dtype(self._columns)
        self._channel = points_channel(self._columns, "points of the sweep")
        settings = instance.metadata.get("settings")
        self.spec = StreamSpec(
            ANY_NAME,
            (self._channel,),
            rate_hz=find_rate_hz(self._times_us),
            bytes_per_sample=len(first["xyz"]) * self._dtype.itemsize // 2 or 1,
            finite=True,
            description=str(instance.metadata.get("description") or ""),
            settings=dict(settings) if isinstance(settings, dict) else {},
        )

    def __len__(self) -> int:
        return len(self._times_us)

    def samples(self) -> Iterator[Samples | Damage]:
        for number in np.argsort(self._times_us, kind="stable").tolist():
            t_ns = int(self._times_us[number]) * NS_PER_US
            try:
                points = self._read(number)
            except StreamChangedError as error:
                yield Damage(t_ns, str(error), changed=True)
            except FormatError as error:
                yield Damage(t_ns, str(error))
            else:
                data = {self._channel.name: [pack_points(points)]}
                yield Samples(np.array([t_ns], np.int64), data)

    def _read(self, number: int) -> Values:
        values = {c.name: self._instance.array(f"pcs/{number}/{c.name}") for c in self._columns}
        points = np.empty(len(values["xyz"]), self._dtype)
        for column in self._columns:
            array = values[column.name]
            wanted = (len(points), *column.shape)
            if array.shape != wanted or array.dtype != self._dtype[column.name].base:
                where = self._instance.where(f"pcs/{number}/{column.name}")
                raise StreamChangedError(f"{where}: is unlike the first cloud's")
            points[column.name] = array
        return points


class GenericStream(RecordedStream):
    """Rows of a small stream, which this recorder's packer stores with the poses."""

    def __init__(self, poses: Instance, name: str) -> None:
        about = find_generic(poses)[name]
        self._poses, self._name = poses, name
        channels = []
        units = about.get("channels")
        for channel, details in (units if isinstance(units, dict) else {}).items():
            first = poses.rows(self._path(channel), 0, 1)
            unit = str(details.get("unit") or "") if isinstance(details, dict) else ""
            kind, shape = first.dtype.str[1:], first.shape[1:]
            channels.append(ChannelSpec(channel, "raw", kind, shape, channel, unit))
        self._count = poses.length(self._path("t_ns"))
        if not channels or not self._count:
            raise FormatError(f"{poses.where()}: {name} has no channel, or no sample")
        settings = about.get("settings")
        times = poses.rows(self._path("t_ns"), 0, _ROWS)
        self._first_ns = int(times[0])
        self.spec = StreamSpec(
            ANY_NAME,
            tuple(channels),
            rate_hz=find_rate_hz(times, 1e9),
            finite=True,
            description=str(about.get("description") or ""),
            settings=dict(settings) if isinstance(settings, dict) else {},
        )

    def _path(self, channel: str) -> str:
        return f"generic_data/{self._name}.{channel}"

    def __len__(self) -> int:
        return self._count

    def samples(self) -> Iterator[Samples | Damage]:
        last_ns = self._first_ns
        for at in range(0, self._count, _ROWS):
            stop = min(at + _ROWS, self._count)
            try:
                times = self._poses.rows(self._path("t_ns"), at, stop).astype(np.int64)
                data = {
                    channel.name: self._poses.rows(self._path(channel.name), at, stop)
                    for channel in self.spec.channels
                }
            except FormatError as error:
                yield Damage(last_ns, str(error))
                continue
            last_ns = int(times[-1])
            yield Samples(times, data)


_KINDS: Final[Mapping[str, Callable[[NcoreSequence, Instance, str], RecordedStream]]] = {
    "cameras": CameraStream,
    "lidars": RayStream,
    "radars": RayStream,
    "point_clouds": CloudStream,
}


def find_rate_hz(times: npt.NDArray[Any], per_s: float = 1e6) -> float | None:
    """Return the rate of the median step between times; None with fewer than two."""
    steps = np.diff(times)
    middle = float(np.median(steps)) if len(steps) else 0.0
    rate = per_s / middle if middle > 0 else 0.0
    return round(rate, 3) if 1e-3 <= rate < 1e6 else None
