"""The common part of the sources of recordings (VRS, MCAP)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Driver, Encoded, EndOfSource, Lost, Sample
from recorder.codecs.jpeg import jpeg_size
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError

Pixels = npt.NDArray[np.uint8]
"""[height, width, 3], BGR."""

VIDEO: Final = "video.avi"
SHORT_BATCH_NS: Final = 8_000_000
"""Interval of an IMU's values that a source returns at once, when it plays in real time."""


LATE_NS: Final = 100_000_000
"""Longest time by which a sample of a capture or log may lie before its predecessor: merged queues
and interfaces differ by this much."""


class RecordedSource(Driver):
    """Base of the sources that play one stream of a recording."""

    _has_device_time = False

    def open(self) -> Sequence[StreamSpec]:
        """Open the recording, choose the stream, and declare it from its first data.

        Raises:
            SourceError: the file does not exist or is no such recording, or it has no such stream,
                or no stream that this driver can play.
        """
        self.close()
        try:
            return [self._open()]
        except (OSError, FormatError) as error:
            self.close()
            raise self.sensor.fault(error) from None

    @abstractmethod
    def _open(self) -> StreamSpec:
        """Open the recording and return the stream's declaration; raises OSError, FormatError."""

    def _sample(
        self,
        times: Sequence[int],
        device: Sequence[int],
        data: Mapping[str, npt.NDArray[Any] | Encoded],
    ) -> Sample:
        """Return a sample per time, in epoch ns; `device` counts only with `_has_device_time`."""
        t_dev_ns = np.array(device, np.int64) if self._has_device_time else None
        return Sample(self.sensor.name, np.array(times, np.int64), data, t_dev_ns)

    def _truncated(self, tail: str | None, last_ns: int) -> Lost:
        """Return the loss at the end of a recording that is not whole.

        Args:
            tail: the part that is not read; None: the recording is whole.
            last_ns: time of the last sample, epoch ns.

        Raises:
            EndOfSource: the recording is whole.
        """
        if tail is None:
            raise EndOfSource
        return Lost(self.sensor.name, last_ns, "truncated", None, detail={"reason": tail})


def video_channel(picture: bytes | Pixels, where: str) -> ChannelSpec:
    """Return the channel of JPEGs for the first picture: a JPEG, or pixels to encode.

    Raises:
        FormatError: a JPEG without a frame header; the text starts with `where`.
    """
    size = jpeg_size(picture) if isinstance(picture, bytes) else picture.shape[:2]
    if size is None:
        raise FormatError(f"{where}: the first picture is not a JPEG")
    return ChannelSpec(VIDEO, "mjpg", "u1", (*size, 3), "pictures", "")


def decode_picture(data: bytes) -> Pixels | None:
    """Decode a JPEG, PNG or another compressed picture; None if it does not decode."""
    import cv2

    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if data else None
    return None if decoded is None else np.asarray(decoded, np.uint8)


def median_rate_hz(
    times: Sequence[int] | npt.NDArray[np.int64] | npt.NDArray[np.float64], per_s: float
) -> float | None:
    """Return the rate of the median step between times, in Hz; None if it is not above 1 us.

    Args:
        times: in order, `per_s` units a second.
    """
    steps = np.diff(np.asarray(times))
    middle = float(np.median(steps)) if len(steps) else 0.0
    return per_s / middle if middle > per_s / 1e6 else None
