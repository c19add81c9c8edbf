"""Profile ``foxglove``: topics of the live view, with Foxglove's schemas (docs/mcap.md)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from recorder.archives.context import PackingContext
from recorder.archives.mcap import foxglove_lidar, foxglove_radar
from recorder.archives.mcap.bus_messages import COVERED as CAN_COVERED
from recorder.archives.mcap.bus_messages import can_topics, packet_topic
from recorder.archives.mcap.recorded_topics import topic_feed
from recorder.archives.mcap.samples import sample_entries, sample_feed
from recorder.archives.mcap.session_records import (
    find_rig_poses,
    first_ns,
    label_feed,
    packed_poses,
)
from recorder.archives.mcap.topics import Entry, Feed, Make, Product, Topic, WrittenFile
from recorder.archives.mcap.worker_feeds import RadarPoints, worker_feed
from recorder.archives.sample_workers import LIDAR_GROUP, RADAR_GROUP
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError
from recorder.common.files import Buffer
from recorder.formats.mcap import Schema
from recorder.formats.recorded_topic import find_topic
from recorder.perception.earth import declared_position
from recorder.perception.foxglove import scene
from recorder.perception.foxglove.channels import EncodeSamples, SampleChannel
from recorder.perception.foxglove.pictures import (
    calibration_of,
    picture_channel,
    raw_picture_channel,
    video_channel,
)
from recorder.perception.foxglove.series import json_channels, position_channel, small_channels
from recorder.perception.frames import image_channel, kind_of
from recorder.perception.labels import Lines, cuboid_files
from recorder.perception.poses import PoseSource
from recorder.perception.stream_contents import CHANNELS, holds_can_frames, holds_datagrams
from recorder.session.events import format_event
from recorder.session.replay import playable_spec
from recorder.session.stream import Stream

_LOG: Final = "/log"
_TRANSFORMS: Final = "/tf"
_COMPRESSED: Final = ("foxglove.CompressedImage", "foxglove.CompressedVideo")

Topics = list[tuple[Topic, EncodeSamples]]


class FoxgloveProfile:
    """Profile of messages for Foxglove; see `recorder.archives.mcap.topics.Profile`."""

    name = "foxglove"
    header = ""
    log = Topic(_LOG, scene.LOG)

    def feeds(self, context: PackingContext) -> list[Feed]:
        feeds = []
        for stream in context.streams:
            if context.has_samples(stream):
                with context.locate_errors(stream.name):
                    feeds += self.stream_feeds(context, stream)
        feeds += _transform_feeds(context)
        with context.locate_errors("labels"):
            cuboids = cuboid_files(context.session.path)
            boxes = context.find_boxes(context.session.streams)
        for file in cuboids:
            topic = Topic(f"/labels/{file.name}", scene.LABELS)
            feeds.append(label_feed(context, topic, file, _as_parts(scene.label_update)))
        for file in boxes:
            own = f"/{file.set_name}" if file.set_name else ""
            topic = Topic(f"/{file.camera}/boxes{own}", scene.BOXES)
            feeds.append(label_feed(context, topic, file, _as_parts(scene.box_annotations)))
        return feeds

    def stream_feeds(self, context: PackingContext, stream: Stream) -> list[Feed]:
        return _stream_feeds(context, stream)

    def event(self, event: Mapping[str, Any]) -> Entry:
        t_ns, kind = int(event["t_ns"]), str(event.get("type") or "")
        text = format_event({**event, "type": kind})
        stream = event.get("stream")
        payload = scene.log_message(t_ns, kind, None if stream is None else str(stream), text)
        return Entry(_LOG, t_ns, t_ns, 0, [payload])

    def json_topic(self, name: str, schema: Schema) -> Topic:
        return Topic(name, schema)

    def json_parts(self, text: str) -> Sequence[Buffer]:
        return [text.encode()]

    def path(self, context: PackingContext) -> Path:
        return context.folder / f"{context.session.name}.mcap"

    def finish(self, context: PackingContext, written: WrittenFile) -> str:
        return str(written.path.relative_to(context.folder))


PROFILE = FoxgloveProfile()


def _stream_feeds(context: PackingContext, stream: Stream) -> list[Feed]:
    """Return the feed of a stream's samples, and the feed of a camera's model."""
    try:
        spec = playable_spec(stream)
    except FormatError as error:
        context.notes.add(f"left out: {error}", stream.name)
        return []
    if (recorded := find_topic(stream.spec)) is not None:
        feed = topic_feed(context, stream, spec, recorded)
        return [] if feed is None else [feed]
    topics: Topics = [_topic(channel) for channel in json_channels(spec)]
    taken = {channel.name for channel in small_channels(spec)}
    kind = kind_of(spec)
    radar: RadarPoints | None = None
    group = 0
    feeds: list[Feed] = []
    if kind == "camera":
        topics += _camera_topics(context, spec)
        taken.add(image_channel(spec) or "")
        feeds += _calibration_feeds(context, stream, spec)
    elif kind == "lidar":
        made, channels = foxglove_lidar.topics(context, stream, spec)
        topics += made
        taken |= channels
        group = LIDAR_GROUP if made else 0
    elif kind == "radar":
        made, radar = foxglove_radar.topics(context, stream, spec)
        topics += made
        taken |= {"iq"}
        group = RADAR_GROUP
    if holds_datagrams(spec):
        topics = [packet_topic(f"/{stream.name}/packets", stream.name, spec)]
        taken = {*CHANNELS} - {"port"}
    elif holds_can_frames(spec):
        topics = can_topics(f"/{stream.name}/frames", stream.name, spec)
        taken = {*CAN_COVERED}
    if (position := declared_position(spec)) is not None:
        topics.append(_topic(position_channel(spec, position)))
    left_out = [channel.name for channel in spec.channels if channel.name not in taken]
    if left_out:
        context.notes.add(f"no message has the channels {', '.join(left_out)}", stream.name)
    if topics:
        topics = [(_avoid_reserved_name(topic), encode) for topic, encode in topics]
        if group:
            make = _make(stream, spec, topics, radar)
            feed = worker_feed(context, stream, [topic for topic, _ in topics], make, group=group)
        else:
            feed = sample_feed(context, stream, spec, topics)
        feeds.append(feed)
    return feeds


def _make(stream: Stream, spec: StreamSpec, topics: Topics, radar: RadarPoints | None) -> Make:
    """Return a function that makes the messages of a lidar's or a radar's samples."""

    def make(indices: Sequence[int]) -> list[Product]:
        if radar is None:
            return [Product(sample_entries(stream, k, spec, topics)) for k in indices]
        radar.frames.find(indices)
        return [radar.product(k, sample_entries(stream, k, spec, topics)) for k in indices]

    return make


def _avoid_reserved_name(topic: Topic) -> Topic:
    """Return a stream's topic; prefix it with ``/stream`` if another topic has its name."""
    if topic.name in (_LOG, _TRANSFORMS) or topic.name.startswith(("/labels/", "/recorder/")):
        return replace(topic, name=f"/stream{topic.name}")
    return topic


def _topic(
    channel: SampleChannel, metadata: Mapping[str, str] | None = None
) -> tuple[Topic, EncodeSamples]:
    schema = channel.schema
    compress = schema.name not in _COMPRESSED
    return Topic(channel.topic, schema, compress, metadata or {}), channel.encode


def _camera_topics(context: PackingContext, spec: StreamSpec) -> Topics:
    channel: ChannelSpec = spec.channel(image_channel(spec) or "")
    if spec.keyed:
        return [_topic(video_channel(spec))]
    if channel.pixels is None or context.options["raw_pictures"] == "jpeg":
        return [_topic(picture_channel(spec))]
    keys = ("black_level", "white_level", "white_balance")
    levels = {key: str(spec.settings[key]) for key in keys if spec.settings.get(key) is not None}
    return [_topic(raw_picture_channel(spec), {"pixels": channel.pixels.name, **levels})]


def _calibration_feeds(context: PackingContext, stream: Stream, spec: StreamSpec) -> list[Feed]:
    """Return the feed of a camera's model, one message at its first picture, if it is known."""
    known = calibration_of(spec, context.calibration.of(stream.name))
    if known is None:
        return []
    name, schema, encode = known
    topic = _avoid_reserved_name(Topic(name, schema))
    t_ns = int(stream.times(0, 1)[0])
    return [
        Feed("", [topic], partial(_once, topic.name, t_ns, encode), f"{stream.name} calibration")
    ]


def _once(topic: str, t_ns: int, encode: Callable[[int], bytes]) -> Generator[Entry]:
    yield Entry(topic, t_ns, t_ns, 0, [encode(t_ns)])


def _transform_feeds(context: PackingContext) -> list[Feed]:
    """Return the feed ``/tf``: the places of the sensors once, and the poses of the rig."""
    places = scene.sensor_places(context.calibration)
    poses = find_rig_poses(context)
    if not places and poses is None:
        return []
    topic = Topic(_TRANSFORMS, scene.TRANSFORMS)
    return [Feed("", [topic], partial(_transforms, context, places, poses), "poses")]


def _transforms(
    context: PackingContext, places: Sequence[scene.Place], poses: PoseSource | None
) -> Generator[Entry]:
    blocks = iter(()) if poses is None else packed_poses(context, poses)
    first = next(blocks, None)
    number = 0
    if places:
        t_ns = first_ns(context) if first is None else min(first_ns(context), int(first[0][0]))
        yield Entry(_TRANSFORMS, t_ns, t_ns, number, [scene.transforms(t_ns, places)])
        number += 1
    for times_ns, matrices in chain([] if first is None else [first], blocks):
        for t_ns, made in scene.rig_transforms(times_ns, matrices):
            yield Entry(_TRANSFORMS, t_ns, t_ns, number, [made])
            number += 1


def _as_parts(encode: Callable[[int, Lines], bytes]) -> Callable[[int, Lines], list[bytes]]:
    return lambda t_ns, lines: [encode(t_ns, lines)]
