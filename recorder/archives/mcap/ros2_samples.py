"""Messages of small samples in ROS 2: inertial data, positions, other numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.archives.context import PackingContext
from recorder.archives.mcap.ros2_names import Names, ros_topic
from recorder.archives.mcap.samples import sample_feed
from recorder.archives.mcap.topics import Entry, Feed, Topic
from recorder.archives.sample_workers import read_ahead
from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.common.files import Buffer
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import IMAGE, IMU, NAV_SAT_FIX, STRING
from recorder.formats.ros2.messages import Header, Image, Imu, NavSatFix
from recorder.perception.earth import is_position
from recorder.perception.foxglove.channels import EncodeSamples
from recorder.perception.foxglove.series import json_channels, small_channels
from recorder.perception.geometry import quaternion_of_rotation
from recorder.perception.poses import imu_rotations
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
_ENCODINGS: Final = {"u1": "mono8", "u2": "16UC1", "u4": "32SC1"}


def large_feed(
    context: PackingContext,
    stream: Stream,
    topics: Sequence[Topic],
    make: Callable[[int], Made],
) -> Feed:
    """Return the feed of a stream whose samples are prepared ahead, in threads.

    Args:
        context: the session's context.
        stream: a stream with times.
        topics: topics of the messages.
        make: makes the messages of a sample by index; several threads call it concurrently.
    """

    def entries() -> Generator[Entry]:
        with read_ahead(make, len(stream)) as samples:
            for index, t_ns, seq in _numbers(context, stream):
                with context.locate_errors(stream.name, index):
                    made = next(samples).result()
                for topic, parts in made:
                    yield Entry(topic, t_ns, None, seq, parts)

    return Feed(stream.name, topics, entries)


def sample_entries(stream: Stream, index: int, made: Made) -> list[Entry]:
    """Return the messages of a sample, at its time."""
    (seq,) = _seq(stream, index, index + 1)
    return [Entry(topic, sample_time(stream, index), None, seq, parts) for topic, parts in made]


def _numbers(context: PackingContext, stream: Stream) -> Iterator[tuple[int, int, int]]:
    """Yield index, stamp and recorded number of every sample."""
    for start in range(0, len(stream), _WINDOW):
        stop = min(start + _WINDOW, len(stream))
        with context.locate_errors(stream.name, start):
            times, numbers = stream.times(start, stop), _seq(stream, start, stop)
        yield from zip(range(start, stop), times.tolist(), numbers, strict=True)


def _seq(stream: Stream, start: int, stop: int) -> list[int]:
    """Return the recorded numbers of samples, or else their indices in the whole stream."""
    if "seq" in stream.meta:
        return [int(number) for number in stream.read(start, stop, ["seq"])["seq"]]
    return list(range(stream.first + start, stream.first + stop))


def small_feed(
    context: PackingContext,
    stream: Stream,
    topic: Topic,
    channels: Sequence[str],
    encode: Callable[[Batch], Iterator[Parts]],
) -> Feed:
    """Return the feed of a stream of small samples.

    Args:
        context: the session's context.
        stream: a stream with times.
        topic: topic of the messages.
        channels: channels that `encode` needs.
        encode: one message for every sample of a batch.
    """

    def entries() -> Generator[Entry]:
        for start in range(0, len(stream), _ROWS):
            stop = min(start + _ROWS, len(stream))
            with context.locate_errors(stream.name, start):
                (batch,) = stream.iterate(_ROWS, channels, start=start, stop=stop)
                numbers = _seq(stream, start, stop)
                made = list(encode(batch))
            for t_ns, seq, parts in zip(batch.t_ns.tolist(), numbers, made, strict=True):
                yield Entry(topic.name, t_ns, None, seq, parts)

    return Feed(stream.name, [topic], entries)


def imu_channels(stream: Stream) -> list[str]:
    """Return the channels that fit a sensor_msgs/Imu; orientations are roll, pitch, yaw."""
    oriented = stream.meta.get("rot", {}).get("shape") == [3]
    return ["acc", "avel", *(["rot"] if oriented else [])]


def imu_feed(context: PackingContext, stream: Stream, names: Names) -> Feed:
    """Return the feed of ``/NAME/data``, or ``/NAME/data_raw`` without orientations (REP-145).

    The messages are sensor_msgs/Imu.  The orientation is the sensor's in east, north, up, whatever
    local frame the device has.  An unknown covariance is all zero.  A quantity that was not
    measured has -1 as the first element of its covariance (sensor_msgs/msg/Imu); an orientation
    that was not measured is the identity.
    """
    channels = imu_channels(stream)
    oriented = "rot" in channels
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
            yield encode_message(
                IMU,
                Imu(
                    Header(t_ns, frame),
                    (0.0, 0.0, 0.0, 1.0) if turn is None else turn,
                    _ABSENT if turn is None else _UNKNOWN,
                    avel,
                    _UNKNOWN if avel_fine else _ABSENT,
                    acc,
                    _UNKNOWN if acc_fine else _ABSENT,
                ),
            )

    name = names.topic(stream.name, "data" if oriented else "data_raw")
    return small_feed(context, stream, ros_topic(name, IMU), channels, encode)


def _rows(batch: Batch, channel: str) -> Iterator[tuple[tuple[float, ...], bool]]:
    """Yield the values of every sample, and whether all of them are finite."""
    values = batch.data[channel]
    fine = np.isfinite(values).all(axis=1).tolist()
    return zip(map(tuple, values.astype(np.float64).tolist()), fine, strict=True)


def position_feed(context: PackingContext, stream: Stream, position: str, names: Names) -> Feed:
    """Return the feed of ``/NAME/fix``: sensor_msgs/NavSatFix, -1 and NaN without a position.

    Args:
        context: the session's context.
        stream: stream of positions.
        position: its channel f8 [2 or 3] with latitude and longitude in degrees, and the height
            above the ellipsoid in m.  A covariance north, east, down is read from ``cov``, the
            receiver's fix from ``fix`` (0: none).
        names: names of topics and frames.
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
            yield encode_message(
                NAV_SAT_FIX,
                NavSatFix(
                    Header(t_ns, frame),
                    _FIX if (fixes if has_fix else found)[index] else _NO_FIX,
                    0,
                    place[0],
                    place[1],
                    place[2] if len(place) > 2 else math.nan,
                    matrix,
                    _COVARIANCE_UNKNOWN if matrix is _UNKNOWN else _COVARIANCE_KNOWN,
                ),
            )

    topic = ros_topic(names.topic(stream.name, "fix"), NAV_SAT_FIX)
    return small_feed(context, stream, topic, channels, encode)


def _enu(ned: npt.NDArray[Any]) -> tuple[float, ...]:
    turned = _ENU_OF_NED @ ned.astype(np.float64) @ _ENU_OF_NED.T
    return tuple(turned.reshape(-1).tolist())


def json_feed(
    context: PackingContext,
    stream: Stream,
    spec: StreamSpec,
    covered: Collection[str],
    names: Names,
) -> Feed | None:
    """Return the feed of ``/NAME/samples``: small numeric channels as JSON in std_msgs/String.

    Args:
        context: the session's context.
        stream: a stream with times.
        spec: its declaration, from `recorder.session.replay.playable_spec`.
        covered: channels that other messages contain.
        names: names of topics and frames.

    Returns:
        the feed; None if other messages contain all small channels.  Further channels are noted.
    """
    small = {channel.name for channel in small_channels(spec)}
    left_out = [c.name for c in spec.channels if c.name not in small and c.name not in covered]
    if left_out:
        context.notes.add(f"no message has the channels {', '.join(left_out)}", stream.name)
    if small <= set(covered):
        return None
    topic = ros_topic(names.topic(stream.name, "samples"), STRING)
    (channel,) = json_channels(spec)
    return sample_feed(context, stream, spec, [(topic, _as_string(channel.encode))])


def _as_string(encode: EncodeSamples) -> Callable[[Message, int], list[tuple[int, Parts]]]:
    """Convert an encoder of texts to an encoder of CDR strings."""
    return lambda message, offset_ns: [
        (t_ns, encode_message(STRING, b"".join(text).decode()))
        for t_ns, text in encode(message, offset_ns)
    ]


def sample_time(stream: Stream, index: int) -> int:
    """Return the stamp of a sample, epoch ns."""
    return int(stream.times(index, index + 1)[0])


def image_parts(header: Header, pixels: npt.NDArray[Any], encoding: str = "") -> Parts:
    """Return an Image of u1, u2 or u4 [height, width]; values of u4 are below 2^31.

    Args:
        header: header of the message.
        pixels: must not change afterwards.
        encoding: as ``sensor_msgs/image_encodings.hpp`` names it; empty: by the dtype ``mono8``,
            ``16UC1`` or ``32SC1``.
    """
    height, width = pixels.shape
    kind, step = pixels.dtype.str[1:], width * pixels.dtype.itemsize
    data = np.ascontiguousarray(pixels).data
    return encode_message(
        IMAGE, Image(header, height, width, encoding or _ENCODINGS[kind], 0, step, data)
    )
