"""Samples in data messages, encoded as their driver or a recording has them, and decoded.

::

    samples = EncodedSamples(spec)
    samples.check(message)
    jpeg = samples.newest(message, "video.avi")     # the bytes of the newest sample
    ranges = samples.decoded(message, "rng")        # [beams, columns], of the newest sample
    acc = samples.every(message, "acc")             # [n, 3]

A channel that is not asked for is not decoded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.bus.wire import Message, check_data
from recorder.codecs import CHANNEL_FORMATS, Framing
from recorder.codecs.streams import StreamSpec
from recorder.common.files import Buffer


class EncodedSamples:
    """Reads the channels of a stream's data messages.  Safe for several threads.

    Args:
        spec: the stream's declaration.
    """

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        self._at = {channel.name: at for at, channel in enumerate(spec.channels)}
        variable = [c.name for c in spec.channels if c.framing is Framing.EACH]
        self._sizes_at = {name: at for at, name in enumerate(variable)}
        self._decoders = {c.name: CHANNEL_FORMATS[c.format].decoder() for c in spec.channels}

    def check(self, message: Message) -> None:
        """Check that a message is one of the stream; `newest` and the others rely on it.

        Raises:
            ProtocolError: the message does not fit the declaration.
        """
        check_data(message, self.spec)

    def newest(self, message: Message, channel: str) -> Buffer:
        """Return the newest sample of a channel, encoded; the whole frame where all are joint."""
        spec, frame = self.spec.channel(channel), memoryview(message.frames[self._at[channel]])
        if spec.framing is Framing.EACH:
            return frame[frame.nbytes - int(message.sizes[self._sizes_at[channel]][-1]) :]
        return frame[-spec.sample_bytes :] if spec.framing is Framing.PLAIN else frame

    def decoded(self, message: Message, channel: str) -> npt.NDArray[Any]:
        """Return the newest sample of a channel decoded, [*shape], read-only.

        Raises:
            FormatError: the sample cannot be decoded; the message names stream and channel.
        """
        spec = self.spec.channel(channel)
        if spec.framing is Framing.EACH:
            values = np.empty(spec.shape, spec.np_dtype)
            self._decoders[channel](
                self.newest(message, channel), values, self._describe_place(channel)
            )
            return values
        if spec.framing is Framing.PLAIN:
            values = np.frombuffer(self.newest(message, channel), spec.np_dtype)
            return values.reshape(spec.shape)
        return np.asarray(self.every(message, channel)[-1])

    def every(self, message: Message, channel: str) -> npt.NDArray[Any]:
        """Return all samples of a channel that is not encoded sample by sample, [n, *shape].

        Raises:
            FormatError: the samples cannot be decoded; the message names stream and channel.
        """
        spec, frame = self.spec.channel(channel), message.frames[self._at[channel]]
        values = np.empty((message.count or 0, *spec.shape), spec.np_dtype)
        self._decoders[channel](frame, values, self._describe_place(channel))
        return values

    def _describe_place(self, channel: str) -> str:
        return f"{self.spec.name}: {channel}"
