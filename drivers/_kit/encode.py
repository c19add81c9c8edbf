"""Encoding of samples into the payload frames of a data message; done in the driver's process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers._kit.driver import Sample
from drivers._kit.xz import WORTH, XzCompressor
from drivers._protocols.jpeg import encode_jpeg, jpeg_size
from recorder.contract.errors import StreamChangedError
from recorder.contract.streams import ChannelSpec, StreamSpec
from recorder.contract.wire import Buffer

DEFAULT_JPEG_QUALITY = 90
_BUSY = 0.7  # of a sample's period
_COPIED_BYTES = 4096  # up to here a copy is cheaper than a view


class Encoder:
    """Encodes one stream's samples.

    >>> spec = StreamSpec("imu", (ChannelSpec("acc", "raw", "f4", (3,)),))
    >>> sample = Sample("imu", np.array([0]), {"acc": np.zeros((1, 3), "<f4")})
    >>> frames, sizes = Encoder(spec).encode(sample)
    """

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        self._quality = int(spec.settings.get("jpeg_quality", DEFAULT_JPEG_QUALITY))
        worth = float(spec.settings.get("xz_worth", WORTH))
        self._names = frozenset(c.name for c in spec.channels)
        self._xz = {
            c.name: XzCompressor(c.np_dtype.itemsize, c.delta, worth)
            for c in spec.channels
            if c.format in ("lzma", "lzmaf")
        }
        self._pool: ThreadPoolExecutor | None = None

    def encode(self, sample: Sample) -> tuple[list[Buffer], tuple[npt.NDArray[np.uint32], ...]]:
        """Payload frames, one per channel, and sizes, one array [n] per variable channel.

        Raises:
            StreamChangedError: an array's dtype or shape, or an image's, is not as declared.
        """
        if sample.data.keys() != self._names:
            raise StreamChangedError(
                f"{self.spec.name}: gives channels {sorted(sample.data)} where "
                f"{sorted(c.name for c in self.spec.channels)} are declared"
            )
        jobs = [(c, sample.data[c.name], sample.count) for c in self.spec.channels]
        if self._pool is not None:
            encoded = list(self._pool.map(self._encode_channel, jobs))
        else:
            started_s = time.thread_time()
            encoded = [self._encode_channel(job) for job in jobs]
            if len(self._xz) > 1:
                self._judge(time.thread_time() - started_s, sample.count)
        frames: list[Buffer] = []
        sizes: list[npt.NDArray[np.uint32]] = []
        for channel, parts in zip(self.spec.channels, encoded, strict=True):
            if channel.variable:
                sizes.append(np.array([len(p) for p in parts], np.uint32))
            frames.append(parts[0] if len(parts) == 1 else b"".join(parts))
        return frames, tuple(sizes)

    def _judge(self, cpu_s: float, count: int) -> None:
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
        self, job: tuple[ChannelSpec, npt.NDArray[Any] | Sequence[bytes], int]
    ) -> list[Any]:
        channel, values, count = job
        if not isinstance(values, np.ndarray):
            return self._check_encoded(channel, values, count)
        expected = (count, *channel.shape)
        if values.shape != expected or values.dtype != channel.np_dtype:
            raise StreamChangedError(
                f"{self.spec.name}/{channel.name}: {len(values)} x {values.dtype.str[1:]} "
                f"{list(values.shape[1:])} came where {count} x {channel.dtype} "
                f"{list(channel.shape)} was declared; the stream ends"
            )
        match channel.format:
            case "raw":
                if values.nbytes <= _COPIED_BYTES:
                    return [values.tobytes()]
                return [np.ascontiguousarray(values).data.cast("B")]
            case "lzma":
                return [self._xz[channel.name].compress(values)]
            case "lzmaf":
                compress = self._xz[channel.name].compress
                return [compress(value) for value in values]
            case _:
                return [self._jpeg(value) for value in values]

    def _check_encoded(
        self, channel: ChannelSpec, values: Sequence[bytes], count: int
    ) -> list[bytes]:
        if channel.format == "raw" or len(values) != (1 if channel.format == "lzma" else count):
            raise StreamChangedError(
                f"{self.spec.name}/{channel.name}: {len(values)} encoded frames for {count} "
                f"samples of format {channel.format}"
            )
        if channel.format == "mjpg":
            for value in values:
                self._check_jpeg(channel, value)
        return list(values)

    def _jpeg(self, image: npt.NDArray[np.uint8]) -> memoryview:
        data = encode_jpeg(image, self._quality)
        if data is None:
            raise StreamChangedError(f"{self.spec.name}: OpenCV cannot encode a frame as JPEG")
        return data

    def _check_jpeg(self, channel: ChannelSpec, data: bytes) -> None:
        size = jpeg_size(data)
        if size != channel.shape[:2]:
            raise StreamChangedError(
                f"{self.spec.name}/{channel.name}: a frame of {size and size[::-1]} where "
                f"{channel.shape[1::-1]} is declared"
            )
