"""Profile ``ros2``: a bag that ``ros2 bag`` opens, with messages of ROS 2 in CDR.

The bag is a folder ``NAME/`` with ``NAME_0.mcap`` and ``metadata.yaml``.  docs/mcap.md lists topics
and frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recorder.archives.context import PackingContext
from recorder.archives.mcap.bus_messages import can_topics, packet_topic
from recorder.archives.mcap.recorded_topics import topic_feed
from recorder.archives.mcap.ros2_cameras import camera_feed
from recorder.archives.mcap.ros2_clouds import lidar_feed, radar_feed
from recorder.archives.mcap.ros2_names import Names, ros_topic
from recorder.archives.mcap.ros2_samples import (
    imu_channels,
    imu_feed,
    json_feed,
    position_feed,
)
from recorder.archives.mcap.ros2_scene import (
    LOG,
    choose_world,
    event_entry,
    label_feeds,
    pose_feed,
    static_feed,
)
from recorder.archives.mcap.samples import sample_feed
from recorder.archives.mcap.session_records import find_rig_poses
from recorder.archives.mcap.topics import Entry, Feed, Topic, WrittenFile
from recorder.common.errors import FormatError
from recorder.common.files import Buffer, PosixDisk
from recorder.formats.mcap import TYPE_HASH, Schema
from recorder.formats.recorded_topic import CDR, find_topic
from recorder.formats.ros2.bag import BagTopic, bag_metadata
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import STRING
from recorder.perception.earth import position_channel
from recorder.perception.frames import image_channel, kind_of
from recorder.perception.stream_contents import holds_can_frames, holds_datagrams
from recorder.session.replay import playable_spec
from recorder.session.stream import Stream


class Ros2Profile:
    """Profile of messages of ROS 2; see `recorder.archives.mcap.topics.Profile`."""

    name = "ros2"
    header = "ros2"
    log = LOG

    def feeds(self, context: PackingContext) -> list[Feed]:
        poses = find_rig_poses(context)
        names = Names(context, choose_world(poses))
        feeds: list[Feed | None] = []
        for stream in context.streams:
            if context.has_samples(stream):
                with context.locate_errors(stream.name):
                    feeds += _stream_feeds(context, stream, names)
        if not any(feeds):
            return []
        feeds.append(static_feed(context, names))
        if poses is not None:
            feeds.append(pose_feed(context, poses, names))
        feeds += label_feeds(context, names)
        return [feed for feed in feeds if feed is not None]

    def stream_feeds(self, context: PackingContext, stream: Stream) -> list[Feed]:
        # The frame of the world, which names would have from the poses, is in no sample.
        return [feed for feed in _stream_feeds(context, stream, Names(context)) if feed is not None]

    def event(self, event: Mapping[str, Any]) -> Entry:
        return event_entry(event)

    def json_topic(self, name: str, schema: Schema) -> Topic:  # noqa: ARG002
        return ros_topic(name, STRING, depth=1000, latched=True)

    def json_parts(self, text: str) -> Sequence[Buffer]:
        return encode_message(STRING, text)

    def path(self, context: PackingContext) -> Path:
        folder = context.folder / context.session.name
        PosixDisk().make_folder(folder)
        return folder / f"{context.session.name}_0.mcap"

    def finish(self, context: PackingContext, written: WrittenFile) -> str:  # noqa: ARG002
        topics = [
            BagTopic(
                topic.name,
                topic.schema.name,
                topic.metadata.get("offered_qos_profiles", ""),
                written.counts[topic.name],
                topic.metadata.get(TYPE_HASH, ""),
            )
            for topic in written.topics
        ]
        text = bag_metadata(written.path.name, topics, written.start_ns, written.end_ns)
        PosixDisk().write_file(written.path.parent / "metadata.yaml", text)
        return written.path.parent.name


PROFILE = Ros2Profile()


def _stream_feeds(context: PackingContext, stream: Stream, names: Names) -> list[Feed | None]:
    """Return the feeds of a stream with samples."""
    try:
        spec = playable_spec(stream)
    except FormatError as error:
        context.notes.add(f"left out: {error}", stream.name)
        return []
    if (topic := find_topic(stream.spec)) is not None:
        return [topic_feed(context, stream, spec, topic, [CDR])]
    if holds_datagrams(spec):
        context.notes.add("no message has the channels port", stream.name)
        name = names.topic(stream.name, "packets")
        packets = packet_topic(name, names.frame(stream.name), spec)
        return [sample_feed(context, stream, spec, [packets])]
    if holds_can_frames(spec):
        context.notes.add("no message has the channels flags", stream.name)
        topics = can_topics(names.topic(stream.name, "frames"), names.frame(stream.name), spec)
        return [sample_feed(context, stream, spec, topics)]
    feed: Feed | None = None
    covered: set[str] = set()
    kind = kind_of(stream)
    if kind == "camera":
        feed, covered = camera_feed(context, stream, names), {image_channel(stream) or ""}
    elif kind == "lidar":
        feed, covered = lidar_feed(context, stream, spec, names)
    elif kind == "radar":
        feed, covered = radar_feed(context, stream, names), {"iq", "valid"}
    elif kind == "imu":
        feed, covered = imu_feed(context, stream, names), {*imu_channels(stream)}
    elif (position := position_channel(stream)) is not None:
        feed, covered = position_feed(context, stream, position, names), {position}
    return [feed, json_feed(context, stream, spec, covered, names)]
