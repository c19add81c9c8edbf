"""Recorded topics in Foxglove: the messages as they came, with their definitions as schemas."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from drivers.kit.encode import Encoder
from drivers.topics.stream import Messages
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.formats.recorded_topic import RecordedTopic, topic_spec
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import STRING, TRANSFORMS, definition
from tests.viewers.live.foxglove.rig import OFFSET_NS, serving


def spec_of(topic: RecordedTopic, name: str = "ros_topic") -> StreamSpec:
    return topic_spec(name, topic, bytes_per_sample=10, finite=False, settings={})


def message_of(spec: StreamSpec, *rows: tuple[int, bytes]) -> Message:
    held = Messages()
    for number, (t_ns, data) in enumerate(rows):
        held.put(t_ns, data, number, 1, 0)
    sample = held.take(spec.name)
    frames, sizes = Encoder(spec).encode(sample)
    return Message(
        Kind.DATA, spec.name, count=len(rows), t_mono_ns=sample.t_ns, sizes=sizes, frames=frames
    )


async def test_messages_of_ros_come_as_cdr_with_their_definition() -> None:
    spec = spec_of(RecordedTopic("/chat", STRING, "cdr", "ros2msg", b"string data"))
    sent = [(7, b"".join(map(bytes, encode_message(STRING, "a")))), (9, b""), (12, b"\0\1\0\0")]
    async with serving(specs=(spec,)) as rig:
        client = await rig.viewing("/chat", 3)
        channel = client.channels["/chat"]
        assert (channel["encoding"], channel["schemaEncoding"]) == ("cdr", "ros2msg")
        assert (channel["schemaName"], channel["schema"]) == (STRING, "string data")
        rig.put(spec, message_of(spec, *sent))
        received = [await client.data(3) for _ in sent]
        assert [(each.t_ns - OFFSET_NS, bytes(each.payload)) for each in received] == sent


async def test_a_topic_without_a_definition_has_the_one_that_is_known() -> None:
    known = spec_of(RecordedTopic("/chat", STRING))
    unknown = spec_of(RecordedTopic("/mine", "mine/msg/Type"), "ros_mine")
    async with serving(specs=(known, unknown)) as rig:
        client = await (await rig.client()).greeted("/chat")
        assert client.channels["/chat"]["schema"] == definition(STRING).decode()
        assert client.channels["/chat"]["schemaEncoding"] == "ros2msg"
        assert client.channels["/mine"]["schema"] == ""
        assert client.channels["/mine"]["encoding"] == "cdr"


async def test_other_encodings_keep_theirs_and_bad_texts_end_nothing() -> None:
    specs = (
        spec_of(RecordedTopic("/a", "a.B", "protobuf", "protobuf", b"\x0a\xff"), "ros_a"),
        spec_of(RecordedTopic("/b", "a/B", "ros1", "ros1msg", b"string data"), "ros_b"),
        spec_of(RecordedTopic("/c", "a/msg/C", "cdr", "ros2msg", b"int8 \xff"), "ros_c"),
        StreamSpec("ros_d", specs_channels(), files={"topic.json": "{}"}),
    )
    async with serving(specs=specs) as rig:
        client = await (await rig.client()).greeted("/a")
        found = {name: c["encoding"] for name, c in client.channels.items() if len(name) == 2}
        assert found == {"/a": "protobuf", "/b": "ros1", "/c": "cdr"}
        assert client.channels["/a"]["schema"] == "Cv8="
        status = await client.op("status")
        assert status["message"].endswith("topic.json: has no 'definition'")


def specs_channels() -> tuple[ChannelSpec, ...]:
    return spec_of(RecordedTopic("/d", "")).channels


async def test_the_recorders_own_topic_makes_way_for_a_recorded_one(tmp_path: Path) -> None:
    spec = spec_of(RecordedTopic("/tf", TRANSFORMS), "ros_tf")
    log = spec_of(RecordedTopic("/log", STRING), "ros_log")
    calibration = tmp_path / "calibration.yaml"
    place = "T_sensor_rig: {translation_m: [1.0, 2.0, 3.0], quaternion_xyzw: [0, 0, 0, 1.0]}"
    calibration.write_text(f"sensors: {{lidar: {{{place}}}}}\n")
    async with serving(specs=(spec, log), calibration=calibration) as rig:
        client = await rig.viewing("/tf", 1)
        assert client.channels["/tf"]["encoding"] == "cdr"
        assert client.channels["/recorder/tf"]["schemaName"] == "foxglove.FrameTransforms"
        assert client.channels["/recorder/log"]["schemaName"] == "foxglove.Log"
        rig.put(spec, message_of(spec, (5, b"abcd")))
        assert bytes((await client.data(1)).payload) == b"abcd"


def test_a_large_message_is_not_copied() -> None:
    from recorder.perception.foxglove.recorded_topics import recorded_channel

    topic = RecordedTopic("/points", "a/msg/B")
    spec = spec_of(topic)
    message = message_of(spec, (1, bytes(5_000_000)))
    ((_, (part,)),) = recorded_channel(spec, topic).encode(message, 0)
    assert np.shares_memory(np.frombuffer(part, "u1"), np.frombuffer(message.frames[0], "u1"))
