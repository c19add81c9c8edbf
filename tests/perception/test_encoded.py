"""Samples of data messages, read channel by channel."""

from __future__ import annotations

import numpy as np
import pytest

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError, ProtocolError
from recorder.perception.encoded import EncodedSamples
from tests.session.build import content
from tests.viewers.live.views.sensors import message_of

SPEC = StreamSpec(
    "many",
    (
        ChannelSpec("plain", "raw", "i2", (2, 3)),
        ChannelSpec("joint", "lzma", "f4", (4,)),
        ChannelSpec("each", "lzmaf", "u2", (8, 16), delta=True),
        ChannelSpec("scalar", "raw", "u1"),
        ChannelSpec("other", "lzmaf", "u4", (8, 16)),
    ),
)


@pytest.mark.parametrize("count", [1, 3])
def test_every_framing_gives_what_was_encoded(count: int) -> None:
    data = content(SPEC, count)
    message, samples = message_of(SPEC, data), EncodedSamples(SPEC)
    samples.check(message)
    for name, values in data.items():
        newest = samples.decoded(message, name)
        assert newest.dtype == values.dtype and np.array_equal(newest, values[-1])
    for name in ("plain", "joint", "scalar"):
        assert np.array_equal(samples.every(message, name), data[name])
    assert bytes(samples.newest(message, "plain")) == data["plain"][-1].tobytes()


def test_a_channel_that_is_not_read_may_be_damaged() -> None:
    data = content(SPEC, 2)
    message, samples = message_of(SPEC, data), EncodedSamples(SPEC)
    message.frames = [*message.frames[:4], bytes(len(message.frames[4]))]
    samples.check(message)
    assert np.array_equal(samples.decoded(message, "each"), data["each"][-1])
    with pytest.raises(FormatError, match="many: other"):
        samples.decoded(message, "other")


def test_a_message_of_another_shape_is_refused() -> None:
    message = message_of(SPEC, content(SPEC, 1))
    message.frames = [message.frames[0][:-1], *message.frames[1:]]
    with pytest.raises(ProtocolError, match="many: data message 0: plain has 11 bytes"):
        EncodedSamples(SPEC).check(message)
