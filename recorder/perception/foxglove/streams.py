"""All topics of a stream."""

from __future__ import annotations

from recorder.codecs.streams import StreamSpec
from recorder.perception.earth import declared_position
from recorder.perception.foxglove.channels import SampleChannel
from recorder.perception.foxglove.clouds import lidar_channel
from recorder.perception.foxglove.pictures import picture_channel, video_channel
from recorder.perception.foxglove.radar import radar_channels
from recorder.perception.foxglove.series import json_channels, position_channel
from recorder.perception.frames import kind_of


def stream_channels(spec: StreamSpec) -> list[SampleChannel]:
    """Return the topics that come from a stream's samples.

    Raises:
        FormatError: a file of the stream is wrong.
    """
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
