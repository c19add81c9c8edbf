"""Encoding of samples into the payload frames of a data message; done in the driver's process."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers._kit.driver import Sample
from drivers._protocols.jpeg import jpeg_size
from recorder.contract.errors import StreamChangedError
from recorder.contract.streams import ChannelSpec, StreamSpec
from recorder.contract.wire import Buffer

DEFAULT_JPEG_QUALITY = 90


def xz_filters(channel: ChannelSpec) -> list[dict[str, int]]:
    """The xz filter chain of a channel (any chain is legal: readers take it from the stream).

    Tuned on sweeps of an OS-1-128: the fastest match finder with the shortest match length and a
    64 KiB dictionary, and a delta over neighbouring values where they change little.
    """
    chain = [
        {
            "id": lzma.FILTER_LZMA2,
            "preset": 0,
            "mode": lzma.MODE_FAST,
            "mf": lzma.MF_HC4,
            "nice_len": 4,
            "dict_size": 64 * 1024,
        }
    ]
    if channel.delta:
        chain.insert(0, {"id": lzma.FILTER_DELTA, "dist": channel.np_dtype.itemsize})
    return chain


class Encoder:
    """Encodes one stream's samples.

    >>> spec = StreamSpec("imu", (ChannelSpec("acc", "raw", "f4", (3,)),))
    >>> sample = Sample("imu", np.array([0]), {"acc": np.zeros((1, 3), "<f4")})
    >>> frames, sizes = Encoder(spec).encode(sample)
    """

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        self._quality = int(spec.settings.get("jpeg_quality", DEFAULT_JPEG_QUALITY))
        self._filters = {c.name: xz_filters(c) for c in spec.channels}
        compressed = sum(c.format in ("lzma", "lzmaf") for c in spec.channels)
        # liblzma releases the GIL: two channels at a time keep a 20 Hz lidar within its period.
        self._pool = ThreadPoolExecutor(2, "encode") if compressed > 1 else None

    def encode(self, sample: Sample) -> tuple[list[Buffer], tuple[npt.NDArray[np.uint32], ...]]:
        """Payload frames, one per channel, and sizes, one array [n] per variable channel.

        Raises:
            StreamChangedError: an array's dtype or shape, or an image's, is not as declared.
        """
        if set(sample.data) != {c.name for c in self.spec.channels}:
            raise StreamChangedError(
                f"{self.spec.name}: gives channels {sorted(sample.data)} where "
                f"{sorted(c.name for c in self.spec.channels)} are declared"
            )
        jobs = [(c, sample.data[c.name], sample.count) for c in self.spec.channels]
        run = map if self._pool is None else self._pool.map
        encoded = list(run(self._encode_channel, jobs))
        frames: list[Buffer] = []
        sizes: list[npt.NDArray[np.uint32]] = []
        for channel, parts in zip(self.spec.channels, encoded, strict=True):
            if channel.variable:
                sizes.append(np.array([len(p) for p in parts], np.uint32))
            frames.append(parts[0] if len(parts) == 1 else b"".join(parts))
        return frames, tuple(sizes)

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
                f"{self.spec.name}/{channel.name}: {values.dtype.str[1:]} {list(values.shape[1:])} "
                f"x {len(values)} where {channel.dtype} {list(channel.shape)} x {count} is due"
            )
        match channel.format:
            case "raw":
                return [np.ascontiguousarray(values).data.cast("B")]
            case "lzma":
                return [self._compress(channel, values)]
            case "lzmaf":
                return [self._compress(channel, value) for value in values]
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

    def _compress(self, channel: ChannelSpec, value: npt.NDArray[Any]) -> bytes:
        return lzma.compress(
            np.ascontiguousarray(value).data,
            format=lzma.FORMAT_XZ,
            check=lzma.CHECK_CRC32,
            filters=self._filters[channel.name],
        )

    def _jpeg(self, image: npt.NDArray[np.uint8]) -> bytes:
        import cv2

        done, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, self._quality])
        if not done:
            raise StreamChangedError(f"{self.spec.name}: OpenCV cannot encode a frame as JPEG")
        return bytes(data.data)

    def _check_jpeg(self, channel: ChannelSpec, data: bytes) -> None:
        size = jpeg_size(data)
        if size != channel.shape[:2]:
            raise StreamChangedError(
                f"{self.spec.name}/{channel.name}: a frame of {size and size[::-1]} where "
                f"{channel.shape[1::-1]} is declared"
            )
