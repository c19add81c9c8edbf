"""Catalog of the server's channels: the topics of each stream, and the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError
from recorder.formats.recorded_topic import find_topic
from recorder.perception.calibration import Calibration
from recorder.perception.earth import declared_position
from recorder.perception.foxglove.channels import Encoded, SampleChannel, Schema
from recorder.perception.foxglove.clouds import lidar_channel
from recorder.perception.foxglove.pictures import calibration_of, picture_channel, video_channel
from recorder.perception.foxglove.radar import radar_channels
from recorder.perception.foxglove.recorded_topics import recorded_channel
from recorder.perception.foxglove.series import json_channels, position_channel
from recorder.perception.frames import kind_of
from recorder.viewers.foxglove.protocol import Advertised

EncodeTime = Callable[[int], Encoded]
"""Function that encodes the messages due at a time, epoch ns; called in a thread, for one viewer.
"""

BELOW: Final = "/recorder"
"""Where the recorder's own topic is, if a recorded topic has its name."""
STATIC_NS: Final = 1_000_000_000
"""Interval at which static messages are sent again."""


@dataclass(frozen=True, slots=True)
class TimedChannel:
    """A channel whose messages depend on the time alone.

    Attributes:
        topic, schema: name and schema of the messages.
        timed: makes the source for one viewer.
    """

    topic: str
    schema: Schema
    timed: Callable[[], EncodeTime]


@dataclass(frozen=True, slots=True)
class LogChannel:
    """A channel of the events, as the daemon reports them."""

    topic: str
    schema: Schema


Channel = SampleChannel | TimedChannel | LogChannel


def repeat(make: Callable[[int], bytes]) -> Callable[[], EncodeTime]:
    """Return a timed source of one message of which only the stamp changes."""

    def start() -> EncodeTime:
        last: int | None = None

        def due(t_ns: int) -> Encoded:
            nonlocal last
            if last is not None and 0 <= t_ns - last < STATIC_NS:
                return []
            last = t_ns
            return [(t_ns, [make(t_ns)])]

        return due

    return start


class Catalog:
    """Offered channels, and the ids of their advertisements.

    ::

        catalog = Catalog(calibration, [log_channel()])
        channels = catalog.channels(hub.specs)     # {Advertised: Channel}
        catalog.problems                           # the reason for each channel that is not offered

    Args:
        calibration: the rig's calibration.
        others: channels that belong to no stream.

    Attributes:
        problems: by stream, why a channel of it is not offered.
    """

    def __init__(self, calibration: Calibration, others: Sequence[Channel]) -> None:
        self.problems: dict[str, str] = {}
        self._calibration = calibration
        self._others = tuple(others)
        self._of_stream: dict[str, tuple[StreamSpec, list[Channel]]] = {}
        # A number stays with its topic, encoding and schema for good.
        self._numbers: dict[tuple[str, str, Schema], int] = {}

    def channels(self, specs: Mapping[str, StreamSpec]) -> dict[int, tuple[Advertised, Channel]]:
        """Return the channels of these streams and the other channels, by number."""
        for name in self._of_stream.keys() - specs.keys():
            del self._of_stream[name]
            self.problems.pop(name, None)
        for name, spec in specs.items():
            known = self._of_stream.get(name)
            if known is None or known[0] != spec:
                self._of_stream[name] = spec, self._make_channels(spec)
        found = [*self._others]
        for _, channels in self._of_stream.values():
            found += channels
        recorded = {channel.topic for channel in found if _is_recorded(channel)}
        offered: dict[int, tuple[Advertised, Channel]] = {}
        for channel in found:
            if channel.topic in recorded and not _is_recorded(channel):
                channel = replace(channel, topic=f"{BELOW}{channel.topic}")
            advertised = self._advertise(channel)
            offered[advertised.id] = advertised, channel
        return offered

    def _make_channels(self, spec: StreamSpec) -> list[Channel]:
        self.problems.pop(spec.name, None)
        try:
            return offered_channels(spec, self._calibration)
        except FormatError as error:
            self.problems[spec.name] = str(error)
            return [*json_channels(spec)]

    def _advertise(self, channel: Channel) -> Advertised:
        encoding = channel.encoding if isinstance(channel, SampleChannel) else ""
        key = (channel.topic, encoding or channel.schema.message_encoding, channel.schema)
        number = self._numbers.setdefault(key, len(self._numbers) + 1)
        return Advertised(number, *key)


def _is_recorded(channel: Channel) -> bool:
    return isinstance(channel, SampleChannel) and bool(channel.encoding)


def stream_channels(spec: StreamSpec) -> list[SampleChannel]:
    """Return the topics that come from a stream's samples.

    Raises:
        FormatError: a file of the stream is wrong.
    """
    if (topic := find_topic(spec)) is not None:
        return [recorded_channel(spec, topic)]
    kind = kind_of(spec)
    channels = json_channels(spec)
    if kind == "camera":
        channels.append(video_channel(spec) if spec.keyed else picture_channel(spec))
    elif kind == "lidar":
        channels.append(lidar_channel(spec))
    elif kind == "radar":
        channels += radar_channels(spec)
    position = declared_position(spec)
    if position is not None:
        channels.append(position_channel(spec, position))
    return channels


def offered_channels(spec: StreamSpec, calibration: Calibration) -> list[Channel]:
    """Return the channels of a stream, and the calibration of a camera.

    Raises:
        FormatError: a file of the stream is wrong.
    """
    channels: list[Channel] = [*stream_channels(spec)]
    if kind_of(spec) == "camera":
        known = calibration_of(spec, calibration.of(spec.name))
        if known is not None:
            topic, schema, encode = known
            channels.append(TimedChannel(topic, schema, repeat(encode)))
    return channels
