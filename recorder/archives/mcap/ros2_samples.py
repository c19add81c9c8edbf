"""Samples of streams as messages of ROS 2: pictures, inertial data, positions, other numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.archives.base import Job
from recorder.archives.mcap.ros2_names import Names, ros_topic
from recorder.archives.mcap.samples import sample_feed
from recorder.archives.mcap.topics import Entry, Feed, Topic
from recorder.contract.streams import StreamSpec
from recorder.contract.wire import Buffer, Message
from recorder.formats.ros2.messages import (
    CameraInfo,
    CompressedImage,
    Header,
    Imu,
    NavSatFix,
    encode_camera_info,
    encode_compressed_image,
    encode_imu,
    encode_nav_sat_fix,
    encode_string,
)
from recorder.processing.calibration import SensorCalibration
from recorder.processing.camera_pictures import Pictures
from recorder.processing.earth import is_position
from recorder.processing.foxglove.channels import EncodeSamples
from recorder.processing.foxglove.pictures import camera_model
from recorder.processing.foxglove.series import json_channels
from recorder.processing.geometry import quaternion_of_rotation
from recorder.processing.poses import imu_rotations
from recorder.processing.read_ahead import ReadAhead
from recorder.session.playback_messages import playable_spec
from recorder.session.stream import Batch, Stream

Parts = Sequence[Buffer]
Made = Sequence[tuple[str, Parts]]
"""Messages of a sample: topic and parts."""

_ROWS: Final = 1024
_WINDOW: Final = 4096
_UNKNOWN: Final = (0.0,) * 9
_ABSENT: Final = (-1.0, *_UNKNOWN[1:])
_ENU_OF_NED: Final = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
_NO_FIX, _FIX = -1, 0
_COVARIANCE_UNKNOWN, _COVARIANCE_KNOWN = 0, 3
_ROS_MODELS: Final = {"kannala_brandt": "equidistant"}


def large_feed(
    job: Job,
    stream: Stream,
    topics: Sequence[Topic],
    make: Callable[[int], Made],
    *,
    first: Made = (),
    end: Callable[[], None] = lambda: None,
) -> Feed:
    """A pass over a stream whose samples are prepared ahead, in threads.

    Args:
        job: the session's job.
        stream: one with times.
        topics: of the messages.
        make: makes the messages of a sample's index; several threads call it at once.
        first: messages before those of the first sample, at its time.
        end: called after the last sample.
    """

    def entries() -> Generator[Entry]:
        with ReadAhead(make, len(stream)) as samples:
            for index, t_ns, seq in _numbers(job, stream):
                with job.at(stream.name, index):
                    made = samples.take(index)
                for topic, parts in (*first, *made) if index == 0 else made:
                    yield Entry(topic, t_ns, None, seq, parts)
        end()

    return Feed(stream.name, topics, entries)


def _numbers(job: Job, stream: Stream) -> Iterator[tuple[int, int, int]]:
    """Index, stamp and recorded number of every sample."""
    for start in range(0, len(stream), _WINDOW):
        stop = min(start + _WINDOW, len(stream))
        with job.at(stream.name, start):
            times, numbers = stream.times(start, stop), _seq(stream, start, stop)
        yield from zip(range(start, stop), times.tolist(), numbers, strict=True)


def _seq(stream: Stream, start: int, stop: int) -> list[int]:
    """The recorded numbers of samples; without any, their indices in the whole stream."""
    if "seq" in stream.meta:
        return [int(number) for number in stream.read(start, stop, ["seq"])["seq"]]
    return list(range(stream.first + start, stream.first + stop))


def small_feed(
    job: Job,
    stream: Stream,
    topic: Topic,
    channels: Sequence[str],
    encode: Callable[[Batch], Iterator[Parts]],
) -> Feed:
    """A pass over a stream of small samples.

    Args:
        job: the session's job.
        stream: one with times.
        topic: of the messages.
        channels: channels that `encode` needs.
        encode: one message for every sample of a batch.
    """

    def entries() -> Generator[Entry]:
        for start in range(0, len(stream), _ROWS):
            stop = min(start + _ROWS, len(stream))
            with job.at(stream.name, start):
                (batch,) = stream.iterate(_ROWS, channels, start=start, stop=stop)
                numbers = _seq(stream, start, stop)
                made = list(encode(batch))
            for t_ns, seq, parts in zip(batch.t_ns.tolist(), numbers, made, strict=True):
                yield Entry(topic.name, t_ns, None, seq, parts)

    return Feed(stream.name, [topic], entries)


def camera_feed(job: Job, stream: Stream, names: Names) -> Feed:
    """``/NAME/image/compressed``, and ``/NAME/camera_info`` at the same stamps.

    Recorded JPEGs are passed on unchanged.  Without a model in the calibration that ROS 2 knows,
    there is no ``camera_info``.
    """
    pictures = Pictures(stream)
    if remark := pictures.remark():
        job.notes.add(remark, stream.name)
    frame = names.frame(stream.name)
    image = ros_topic(
        names.topic(stream.name, "image/compressed"),
        "sensor_msgs/msg/CompressedImage",
        compress=False,
    )
    info = camera_info(job.calibration.of(stream.name), pictures.size)
    info_name = names.topic(stream.name, "camera_info")
    topics = [image]
    if info is None:
        job.notes.add("no model in the calibration that ROS 2 knows: no camera_info", stream.name)
    else:
        topics.append(ros_topic(info_name, "sensor_msgs/msg/CameraInfo"))

    def make(index: int) -> Made:
        header = Header(_time(stream, index), frame)
        jpeg = encode_compressed_image(CompressedImage(header, "jpeg", pictures.jpeg(index)))
        made: list[tuple[str, Parts]] = [(image.name, jpeg)]
        if info is not None:
            made.append((info_name, encode_camera_info(replace(info, header=header))))
        return made

    return large_feed(job, stream, topics, make)


def camera_info(calibration: SensorCalibration, size: tuple[int, int]) -> CameraInfo | None:
    """A camera's model, without a stamp; None where ROS 2 has no such model.

    ``equidistant`` of ROS 2 is OpenCV's fisheye model (REP-118 and image_geometry name it so).
    """
    model = camera_model(calibration, size)
    if model is None:
        return None
    kind = str(model["distortion_model"])
    return CameraInfo(
        Header(0, ""),
        model["height"],
        model["width"],
        _ROS_MODELS.get(kind, kind),
        tuple(model["D"]),
        tuple(model["K"]),
        tuple(model["R"]),
        tuple(model["P"]),
    )


def imu_feed(job: Job, stream: Stream, names: Names) -> Feed:
    """``/NAME/data``: sensor_msgs/Imu; ``/NAME/data_raw`` without orientations (REP-145).

    The orientation is that of the sensor in east, north, up, whatever local frame the device has.
    A covariance is not known: all zero.  What was not measured has -1 as the first element of its
    covariance (sensor_msgs/msg/Imu); its orientation is the identity.
    """
    oriented = stream.meta.get("rot", {}).get("shape") == [3]
    channels = ["acc", "avel", *(["rot"] if oriented else [])]
    left_out = [name for name in stream.data_channels if name not in channels]
    if left_out:
        job.notes.add(f"sensor_msgs/Imu has no {', '.join(left_out)}: left out", stream.name)
    settings: Mapping[str, Any] = stream.spec.settings if stream.spec is not None else {}
    local = str(settings.get("coordinates") or "ENU")
    frame = names.frame(stream.name)

    def encode(batch: Batch) -> Iterator[Parts]:
        turns: list[tuple[float, ...] | None] = [None] * len(batch.t_ns)
        if oriented:
            rotations = imu_rotations(batch.data["rot"], local)
            known = np.isfinite(rotations[:, 0, 0])
            quaternions = iter(quaternion_of_rotation(rotations[known]).tolist())
            turns = [tuple(next(quaternions)) if fine else None for fine in known.tolist()]
        rows = zip(batch.t_ns.tolist(), turns, *map(_rows, (batch, batch), ("avel", "acc")),
                   strict=True)  # fmt: skip
        for t_ns, turn, (avel, avel_fine), (acc, acc_fine) in rows:
            yield encode_imu(
                Imu(
                    Header(t_ns, frame),
                    (0.0, 0.0, 0.0, 1.0) if turn is None else turn,
                    _ABSENT if turn is None else _UNKNOWN,
                    avel,
                    _UNKNOWN if avel_fine else _ABSENT,
                    acc,
                    _UNKNOWN if acc_fine else _ABSENT,
                )
            )

    name = names.topic(stream.name, "data" if oriented else "data_raw")
    return small_feed(job, stream, ros_topic(name, "sensor_msgs/msg/Imu"), channels, encode)


def _rows(batch: Batch, channel: str) -> Iterator[tuple[tuple[float, ...], bool]]:
    """Values of every sample, and whether all of them are finite."""
    values = batch.data[channel]
    fine = np.isfinite(values).all(axis=1).tolist()
    return zip(map(tuple, values.astype(np.float64).tolist()), fine, strict=True)


def position_feed(job: Job, stream: Stream, position: str, names: Names) -> Feed:
    """``/NAME/fix``: sensor_msgs/NavSatFix, also of samples without a position (status -1, NaN).

    Args:
        job: the session's job.
        stream: stream of positions.
        position: its channel f8 [2 or 3] with latitude and longitude in degrees, and the height
            above the ellipsoid in m.  A covariance north, east, down is read from ``cov``, the
            receiver's fix from ``fix`` (0: none).
        names: of topics and frames.
    """
    covariance = stream.meta.get("cov", {})
    has_covariance = covariance.get("shape") == [3, 3] and "north, east, down" in (
        covariance.get("desc") or ""
    )
    has_fix = stream.meta.get("fix", {}).get("shape") == []
    channels = [position, *(["cov"] if has_covariance else []), *(["fix"] if has_fix else [])]
    frame = names.frame(stream.name)

    def encode(batch: Batch) -> Iterator[Parts]:
        places = batch.data[position].astype(np.float64)
        found = is_position(places)
        if has_fix:
            fixes = found & (batch.data["fix"] > 0)
        for index, t_ns in enumerate(batch.t_ns.tolist()):
            matrix: tuple[float, ...] = _UNKNOWN
            if has_covariance and np.isfinite(batch.data["cov"][index]).all():
                matrix = _enu(batch.data["cov"][index])
            place = places[index].tolist() if found[index] else [math.nan] * 3
            yield encode_nav_sat_fix(
                NavSatFix(
                    Header(t_ns, frame),
                    _FIX if (fixes if has_fix else found)[index] else _NO_FIX,
                    0,
                    place[0],
                    place[1],
                    place[2] if len(place) > 2 else math.nan,
                    matrix,
                    _COVARIANCE_UNKNOWN if matrix is _UNKNOWN else _COVARIANCE_KNOWN,
                )
            )

    topic = ros_topic(names.topic(stream.name, "fix"), "sensor_msgs/msg/NavSatFix")
    return small_feed(job, stream, topic, channels, encode)


def _enu(ned: npt.NDArray[Any]) -> tuple[float, ...]:
    turned = _ENU_OF_NED @ ned.astype(np.float64) @ _ENU_OF_NED.T
    return tuple(turned.reshape(-1).tolist())


def json_feed(job: Job, stream: Stream, names: Names) -> Feed | None:
    """``/NAME/samples``: the small numeric channels of a stream as JSON in std_msgs/String.

    For streams that ROS 2 has no message for; None where there is no such channel.
    """
    with job.at(stream.name):
        spec: StreamSpec = playable_spec(stream)
    found = json_channels(spec)
    if not found:
        job.notes.add("has no message of ROS 2: left out", stream.name)
        return None
    topic = ros_topic(names.topic(stream.name, "samples"), "std_msgs/msg/String")
    return sample_feed(job, stream, spec, [(topic, _as_string(found[0].encode))])


def _as_string(encode: EncodeSamples) -> Callable[[Message, int], list[tuple[int, Parts]]]:
    """An encoder of texts in CDR, of one of texts."""
    return lambda message, offset_ns: [
        (t_ns, encode_string(b"".join(text).decode())) for t_ns, text in encode(message, offset_ns)
    ]


def _time(stream: Stream, index: int) -> int:
    return int(stream.times(index, index + 1)[0])
