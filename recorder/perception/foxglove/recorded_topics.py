"""Recorded topics for Foxglove: their messages as they came, under the names that they had."""

from __future__ import annotations

import numpy as np

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.formats.recorded_topic import MESSAGE, RecordedTopic
from recorder.perception.encoded import EncodedSamples
from recorder.perception.foxglove.channels import Encoded, SampleChannel, times_ns


def recorded_channel(spec: StreamSpec, topic: RecordedTopic) -> SampleChannel:
    """Return the topic of a stream of messages.

    A viewer that is late gets the newest messages: of small ones all of about a megabyte.
    """
    samples = EncodedSamples(spec)
    (at,) = [k for k, channel in enumerate(spec.channels) if channel.name == MESSAGE]

    def encode(message: Message, offset_ns: int) -> Encoded:
        samples.check(message)
        data = memoryview(message.frames[at]).cast("B")
        ends = np.cumsum(message.sizes[0], dtype=np.int64).tolist()
        rows = zip(times_ns(message, offset_ns), [0, *ends], ends, strict=False)
        return [(t_ns, [data[start:end]]) for t_ns, start, end in rows]

    encoding = topic.message_encoding
    return SampleChannel(topic.name, topic.schema, spec.name, encode, every=True, encoding=encoding)
