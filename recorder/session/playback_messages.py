"""Recorded samples of a stream as the messages that its driver sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from recorder.bus.wire import Message
from recorder.codecs import CHANNEL_FORMATS, Framing
from recorder.codecs.streams import StreamSpec
from recorder.session.playback import Chunk, play, read_chunk, recorded_spec
from recorder.session.reader import Session
from recorder.session.replay import create_message
from recorder.session.stream import Stream


def playable_spec(stream: Stream) -> StreamSpec:
    """Return a stream's declaration as recorded, but without compressing again.

    Channels whose samples were compressed together are declared as raw values.

    Raises:
        FormatError: the stream cannot be declared.
    """
    spec = recorded_spec(stream)
    channels = (
        replace(channel, format="raw")
        if CHANNEL_FORMATS[channel.format].framing is Framing.JOINT
        else channel
        for channel in spec.channels
    )
    return replace(spec, channels=tuple(channels))


def messages(session: Session, stream: str, spec: StreamSpec) -> Iterator[Message]:
    """Yield the samples of a stream as data messages in order; large ones each in its own.

    Small samples within `recorder.session.playback.BATCH_NS` go together.  ``t_mono_ns`` is epoch
    ns.

    Args:
        session: the recorded session.
        stream: name of the stream.
        spec: its declaration, as `playable_spec` makes it.

    Raises:
        SessionError: there is no stream of that name.
        FormatError: a channel's bytes do not fit its format.
    """
    for item in play(session, [stream]):
        if isinstance(item, Chunk):
            yield create_message(item, spec)


def sample_message(stream: Stream, index: int, spec: StreamSpec) -> Message:
    """Return one sample as a data message; several threads may call at once.

    The message's ``number`` is the index of the sample.

    Args:
        stream: the recorded stream.
        index: of the sample.
        spec: the stream's declaration, as `playable_spec` makes it.

    Raises:
        IndexError: there is no such sample.
        FormatError: a channel's bytes do not fit its format.
    """
    times = stream.times(index, index + 1)
    seq = index
    if "seq" in stream.meta:
        seq = int(stream.channels["seq"].read(index, index + 1).astype(np.int64)[0])
    message = create_message(read_chunk(stream, index, seq, times), spec)
    message.number = index
    return message
