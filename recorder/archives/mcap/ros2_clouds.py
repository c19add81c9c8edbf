"""Messages of lidar sweeps and radar frames in ROS 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.archives.context import PackingContext
from recorder.archives.mcap.ros2_names import Names, ros_topic
from recorder.archives.mcap.ros2_samples import (
    Made,
    Parts,
    image_parts,
    sample_entries,
    sample_time,
)
from recorder.archives.mcap.topics import Feed, Product, Topic
from recorder.archives.mcap.worker_feeds import RadarPoints, worker_feed
from recorder.archives.sample_workers import LIDAR_GROUP, RADAR_GROUP
from recorder.codecs.streams import StreamSpec
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import IMAGE, INT16_ARRAY, POINT_CLOUD, STRING
from recorder.formats.ros2.messages import (
    Dimension,
    Header,
    Int16MultiArray,
    PointCloud2,
    PointField,
)
from recorder.perception.foxglove.radar import LEAST_DB, STEP_DB
from recorder.perception.frames import cloud_channel
from recorder.perception.lidar.clouds import make_point_source, make_range_source
from recorder.perception.lidar.points import RangeSource, convert_points, without_wide_integers
from recorder.perception.radar.maps import RadarMaps, in_db_steps
from recorder.perception.radar.spectra import Float32
from recorder.perception.sensor_files import radar_geometry, read_text
from recorder.session.stream import Stream

LIDAR_POINT: Final = np.dtype(
    {
        "names": ["x", "y", "z", "intensity", "t", "ring", "return"],
        "formats": ["<f4", "<f4", "<f4", "<f4", "<u4", "<u2", "u1"],
        "offsets": [0, 4, 8, 12, 16, 20, 22],
        "itemsize": 24,
    }
)
"""Point of a lidar: m, in the sensor's frame; reflectivity; ns after the header's stamp; row of the
sweep; 0 for the first return.  PCL accepts an ``intensity`` of this type only."""
RADAR_POINT: Final = np.dtype(
    {
        "names": ["x", "y", "z", "velocity", "power", "snr", "method"],
        "formats": ["<f4"] * 6 + ["u1"],
        "offsets": [0, 4, 8, 12, 16, 20, 24],
        "itemsize": 28,
    }
)
"""Detection of a radar, as `recorder.perception.radar.detections.DETECTION`."""
_DATATYPES: Final = {
    code: number for number, code in enumerate(("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"), 1)
}
_PICTURES: Final = {
    "rng": "range_image", "rng_far": "range_far_image", "rfl": "reflec_image",
    "nir": "nearir_image", "rng2": "range_image2", "rng2_far": "range_far_image2",
    "rfl2": "reflec_image2", "rng3": "range_image3", "rfl3": "reflec_image3",
    "conf": "confidence_image", "conf2": "confidence_image2", "conf3": "confidence_image3",
}  # fmt: skip
"""Topics of a lidar's channels, named as by Ouster's driver where it has them."""
GRID: Final = "grid"
"""Channel of a lidar that is recorded as points, u4 [2]: rows and columns of an organised cloud."""
_AXES: Final = ("chirp", "tx", "rx", "value")


def cloud_parts(
    header: Header, points: npt.NDArray[Any], height: int = 1, dense: bool = True
) -> Parts:
    """Return a PointCloud2 of a structured array [n], with `height` rows if it is not 1.

    Args:
        header: of the message.
        points: the points.
        height: number of rows; of more than 1, points may be NaN.
        dense: whether no point of one row is NaN.
    """
    fields = tuple(
        PointField(name, offset, _DATATYPES[dtype.str[1:]])
        for name, (dtype, offset, *_) in (points.dtype.fields or {}).items()
    )
    width, step = len(points) // height, points.dtype.itemsize
    data = np.ascontiguousarray(points).view(np.uint8).data
    dense = dense and height == 1
    return encode_message(
        POINT_CLOUD,
        PointCloud2(header, height, width, fields, False, step, width * step, data, dense),
    )


def lidar_points(points: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert points of `recorder.perception.lidar.points` to `LIDAR_POINT`."""
    made = np.zeros(len(points), LIDAR_POINT)
    floats = points.view(np.float32).reshape(-1, points.dtype.itemsize // 4)
    made.view(np.float32).reshape(-1, LIDAR_POINT.itemsize // 4)[:, :3] = floats[:, :3]
    for name in ("intensity", "t", "ring", "return"):
        made[name] = points[name]
    return made


def radar_points(points: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert detections of `recorder.perception.radar.detections` to `RADAR_POINT`; pad with 0."""
    return convert_points(points, RADAR_POINT)


def lidar_feed(
    context: PackingContext, stream: Stream, spec: StreamSpec, names: Names
) -> tuple[Feed | None, set[str]]:
    """Return the feed of points and, by option, of images; also the channels that they contain.

    The points are in ``/NAME/points``.  Destaggered points are organised: a row for each beam, and
    NaN where there is no return; second returns are in ``/NAME/points2``.  Staggered points are
    the points with a return, of both returns, in the order of the measured rows.  Images are in the
    same order.  Points and images of other lidars than an Ouster are in the order of firing.

    The header's stamp is the time of the earliest column, from which ``t`` counts.  The message's
    log time is the sweep's stamp, the time of its last column.

    A lidar whose points are recorded has ``/NAME/points`` alone, with all columns (`ros_point`),
    and with rows where the recorded cloud had them.  Its header's stamp is the begin of the sweep,
    which was the stamp of the recorded cloud if no point was earlier.
    """
    if (channel := cloud_channel(spec)) is not None:
        return _recorded_feed(context, stream, spec, names), {channel, GRID}
    wanted, upright = context.options["lidar"], context.options["points"] == "destaggered"
    topics: list[Topic] = []
    makers: list[Callable[[dict[str, Any], int], Made]] = []
    channels: dict[str, None] = {}
    sweeps = make_range_source(spec, destaggered=upright, organized=upright)
    if wanted.startswith("points"):
        channels |= dict.fromkeys(sweeps.channels)
        clouds = _Clouds(stream, sweeps, upright, names)
        topics += clouds.topics
        makers.append(clouds.make)
    if wanted.endswith("ranges"):
        pictures = _Pictures(stream, sweeps, names)
        channels |= dict.fromkeys(pictures.channels)
        topics += pictures.topics
        makers.append(pictures.make)
    if not topics:
        return None, set(spec.meta())  # what is left out on purpose needs no note
    needed = list(channels)

    def make(index: int) -> Product:
        sample, t_ns = stream.sample(index, needed), sample_time(stream, index)
        made = [one for maker in makers for one in maker(sample, t_ns)]
        return Product(sample_entries(stream, index, made))

    feed = worker_feed(
        context, stream, topics, lambda indices: [*map(make, indices)], group=LIDAR_GROUP
    )
    return feed, set(channels)


def ros_point(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of recorded points in a PointCloud2: the same fields, aligned.

    An ``intensity`` is f4: PCL accepts no other type.
    """
    fields = without_wide_integers(dtype)
    return np.dtype([(n, "<f4" if n == "intensity" else kind) for n, kind in fields], align=True)


def _recorded_feed(
    context: PackingContext, stream: Stream, spec: StreamSpec, names: Names
) -> Feed | None:
    """Return the feed of a lidar's recorded points; None if they are not asked for."""
    wanted = context.options["lidar"]
    if wanted.endswith("ranges"):
        context.notes.add("its lidar records points: no images", stream.name)
    if not wanted.startswith("points"):
        return None
    source, frame = make_point_source(spec), names.frame(stream.name)
    topic = ros_topic(names.topic(stream.name, "points"), POINT_CLOUD)
    dtype = ros_point(source.point)

    has_grid = GRID in stream.meta

    def make(index: int) -> Product:
        start_ns, points = source.read(stream, index)
        rows = columns = 1
        if has_grid:
            rows, columns = stream.sample(index, [GRID])[GRID].tolist()
        rows = rows if rows * columns == len(points) > 0 else 1
        dense = all(bool(np.isfinite(points[axis]).all()) for axis in "xyz")
        parts = cloud_parts(Header(start_ns, frame), convert_points(points, dtype), rows, dense)
        return Product(sample_entries(stream, index, [(topic.name, parts)]))

    return worker_feed(
        context, stream, [topic], lambda indices: [*map(make, indices)], group=LIDAR_GROUP
    )


class _Clouds:
    """Converter of a lidar's sweeps to point clouds.

    Attributes:
        topics: one topic, or one per return if the clouds are organised.
    """

    def __init__(self, stream: Stream, sweeps: RangeSource, organized: bool, names: Names) -> None:
        self._sweeps, self._organized = sweeps, organized
        self._frame = names.frame(stream.name)
        own = ["points", "points2", "points3"][: sweeps.returns if organized else 1]
        self.topics = [ros_topic(names.topic(stream.name, name), POINT_CLOUD) for name in own]

    def make(self, sample: dict[str, Any], t_ns: int) -> Made:
        start_ns, points = self._sweeps.points(sample, t_ns)
        header = Header(start_ns, self._frame)
        height = self._sweeps.shape[0] if self._organized else 1
        clouds = lidar_points(points).reshape(len(self.topics), -1)
        return [
            (topic.name, cloud_parts(header, cloud, height))
            for topic, cloud in zip(self.topics, clouds, strict=True)
        ]


class _Pictures:
    """Converter of a lidar's channels to images with the recorded values.

    Attributes:
        channels: the recorded channels, and the times of the columns.
        topics: one topic for each image.
    """

    def __init__(self, stream: Stream, sweeps: RangeSource, names: Names) -> None:
        self._sweeps, self._frame = sweeps, names.frame(stream.name)
        self._shown = [name for name in _PICTURES if name in stream.meta]
        self.channels = list(dict.fromkeys([*self._shown, *sweeps.channels]))
        self.topics = [
            ros_topic(names.topic(stream.name, _PICTURES[name]), IMAGE) for name in self._shown
        ]

    def make(self, sample: dict[str, Any], t_ns: int) -> Made:
        header = Header(self._sweeps.start_ns(sample, t_ns), self._frame)
        return [
            (topic.name, image_parts(header, self._sweeps.image(sample[channel])))
            for topic, channel in zip(self.topics, self._shown, strict=True)
        ]


def radar_feed(context: PackingContext, stream: Stream, names: Names) -> Feed:
    """Return the feed of ``/NAME/detections`` and, by option, of maps and IQ.

    The maps are ``/NAME/range_doppler`` and, where the antennas are known, ``/NAME/range_azimuth``.
    A map is an image ``mono8``: a column for each range, from near to far; a row for each speed or
    azimuth, rising from the top to the bottom; a pixel is ``(dB above the map's noise - LEAST_DB) /
    STEP_DB`` (`recorder.perception.foxglove.radar`).

    ``/NAME/iq`` is a std_msgs/Int16MultiArray with the dimensions chirp, tx, rx, value and the
    recorded values.  ``/NAME/config`` describes their order and the chirp: ``radar.json``, once.
    """
    options = context.options
    geometry = radar_geometry(stream, context.calibration)
    if geometry.tx_m is None:
        context.notes.add(
            "radar.json has no antennas: detections have no direction but straight ahead",
            stream.name,
        )
    radar = RadarPoints(context, stream, geometry)
    frame = names.frame(stream.name)
    topics = [ros_topic(names.topic(stream.name, "detections"), POINT_CLOUD)]
    maps = RadarMaps(geometry) if options["maps"] else None
    draws: list[tuple[str, Callable[[Any], tuple[Float32, float]]]] = []
    if maps is not None:
        draws.append((names.topic(stream.name, "range_doppler"), maps.range_doppler))
        if len(maps.azimuth_rad):
            draws.append((names.topic(stream.name, "range_azimuth"), maps.range_azimuth))
        topics += [ros_topic(name, IMAGE) for name, _ in draws]
    first: list[tuple[str, Parts]] = []
    iq_topic = names.topic(stream.name, "iq")
    if options["iq"]:
        topics.append(ros_topic(iq_topic, INT16_ARRAY))
        config = names.topic(stream.name, "config")
        topics.append(ros_topic(config, STRING, depth=1, latched=True))
        first = [(config, encode_message(STRING, read_text(stream, "radar.json")[0]))]

    def make(index: int) -> Product:
        header = Header(sample_time(stream, index), frame)
        found = radar_points(radar.detect(index))
        made = [] if index else list(first)
        made.append((topics[0].name, cloud_parts(header, found)))
        if draws or options["iq"]:
            iq = stream.sample(index, ["iq"])["iq"]
            spectra = radar.frames.processor.spectra(iq) if draws else None
            for name, draw in draws:
                pixels = in_db_steps(draw(spectra)[0], LEAST_DB, STEP_DB)
                made.append((name, image_parts(header, pixels)))
            if options["iq"]:
                made.append((iq_topic, iq_parts(iq)))
        return radar.product(index, sample_entries(stream, index, made))

    def make_all(indices: Sequence[int]) -> list[Product]:
        radar.frames.find(indices)
        return [make(index) for index in indices]

    return worker_feed(context, stream, topics, make_all, group=RADAR_GROUP)


def iq_parts(iq: npt.NDArray[np.int16]) -> Parts:
    """Return a frame's samples, int16 [chirps, tx, rx, values], as an Int16MultiArray."""
    strides = np.cumprod(iq.shape[::-1])[::-1].tolist()
    dimensions = tuple(map(Dimension, _AXES, iq.shape, strides))
    return encode_message(
        INT16_ARRAY, Int16MultiArray(dimensions, 0, np.ascontiguousarray(iq).data)
    )
