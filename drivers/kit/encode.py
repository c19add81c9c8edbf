"""Encoding of samples into the payload frames of a data message; done in the driver's process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Lost, Sample, State
from recorder.bus.wire import Kind, Message
from recorder.codecs import CHANNEL_FORMATS, Encode, Framing, payload
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import StreamChangedError
from recorder.common.files import Buffer

_BUSY = 0.7  # of a sample's period


class Encoder:
    """Encoder of one stream's samples, each channel by the codec of its format.

    >>> spec = StreamSpec("imu", (ChannelSpec("acc", "raw", "f4", (3,)),))
    >>> sample = Sample("imu", np.array([0]), {"acc": np.zeros((1, 3), "<f4")})
    >>> frames, sizes = Encoder(spec).encode(sample)
    """

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        self._names = frozenset(c.name for c in spec.channels)
        self._encoders = [CHANNEL_FORMATS[c.format].encoder(spec, c) for c in spec.channels]
        self._several = sum(c.framing is not Framing.PLAIN for c in spec.channels) > 1
        self._pool: ThreadPoolExecutor | None = None

    def encode(self, sample: Sample) -> tuple[list[Buffer], tuple[npt.NDArray[np.uint32], ...]]:
        """Return payload frames, one per channel, and sizes, an array [n] per variable channel.

        Raises:
            StreamChangedError: an array's dtype or shape, or an image's, is not as declared.
        """
        if sample.data.keys() != self._names:
            raise StreamChangedError(
                f"{self.spec.name}: gives channels {sorted(sample.data)} where "
                f"{sorted(c.name for c in self.spec.channels)} are declared"
            )
        jobs = [
            (channel, encode, sample.data[channel.name], sample.count)
            for channel, encode in zip(self.spec.channels, self._encoders, strict=True)
        ]
        if self._pool is not None:
            encoded = list(self._pool.map(self._encode_channel, jobs))
        else:
            started_s = time.thread_time()
            encoded = [self._encode_channel(job) for job in jobs]
            if self._several:
                self._choose_threads(time.thread_time() - started_s, sample.count)
        return payload(self.spec.channels, encoded)

    def _choose_threads(self, cpu_s: float, count: int) -> None:
        """Encode two channels at a time from now on where one at a time is hardly fast enough.

        liblzma releases the GIL.  Two threads at once cost a tenth more CPU than one, so a sweep
        that is done well within its period is left to one.
        """
        if self.spec.rate_hz is None or cpu_s > _BUSY * count / self.spec.rate_hz:
            self._pool = ThreadPoolExecutor(2, "encode")

    def close(self) -> None:
        """Release the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _encode_channel(
        self, job: tuple[ChannelSpec, Encode, npt.NDArray[Any] | Sequence[bytes], int]
    ) -> Sequence[Buffer]:
        channel, encode, values, count = job
        if not isinstance(values, np.ndarray):
            return self._check_encoded(channel, values, count)
        expected = (count, *channel.shape)
        if values.shape != expected or values.dtype != channel.np_dtype:
            raise StreamChangedError(
                f"{self.spec.name}/{channel.name}: {len(values)} x {values.dtype.str[1:]} "
                f"{list(values.shape[1:])} came where {count} x {channel.dtype} "
                f"{list(channel.shape)} was declared"
            )
        return encode(values)

    def _check_encoded(
        self, channel: ChannelSpec, values: Sequence[bytes], count: int
    ) -> Sequence[bytes]:
        frames = {Framing.EACH: count, Framing.JOINT: 1}.get(channel.framing)
        if len(values) != frames:
            raise StreamChangedError(
                f"{self.spec.name}/{channel.name}: {len(values)} encoded frames for {count} "
                f"samples of format {channel.format}"
            )
        check = CHANNEL_FORMATS[channel.format].shape_fault
        for value in values:
            if fault := check(value, channel.shape):
                raise StreamChangedError(f"{self.spec.name}/{channel.name}: {fault}")
        return values


def make_message(item: Item, encoders: Mapping[str, Encoder]) -> Message:
    """Make the message that carries an item to the writer; encode samples.

    Raises:
        StreamChangedError: see `Encoder.encode`.
    """
    match item:
        case Sample():
            frames, sizes = encoders[item.stream].encode(item)
            return Message(
                Kind.DATA,
                stream=item.stream,
                count=item.count,
                t_mono_ns=item.t_ns,
                t_dev_ns=item.t_dev_ns,
                sizes=sizes,
                frames=frames,
            )
        case State():
            return Message(Kind.STATE, stream=item.stream, t_mono_ns=item.t_ns, values=item.values)
        case Lost():
            values = {"cause": item.cause, **item.detail}
            if item.estimate is not None:
                values["estimate"] = item.estimate
            return Message(
                Kind.LOST,
                stream=item.stream,
                count=item.count,
                t_mono_ns=item.t_ns,
                values=values,
            )
