"""H.264 decoding by FFmpeg's decoder in PyAV, which the extra ``rtsp`` installs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.common.extras import need_extra


class H264Decoder:
    """Decoder of consecutive access units, the first of them a keyframe.

    ::

        decoder = H264Decoder()
        for unit in units:
            frame = decoder.decode(unit, where)
        picture = rgb_pixels(frame)           # u1 [height, width, 3]

    Pictures must come in display order (no B-frames), so that every access unit gives its picture
    at once.

    Raises:
        FormatError: PyAV is not installed.
    """

    def __init__(self) -> None:
        try:
            import av
        except ImportError as error:
            raise FormatError(f"decoding H.264 {need_extra('rtsp')}: {error}") from None
        av.logging.set_level(None)
        self._av = av
        self._context: Any = av.CodecContext.create("h264", "r")
        self._context.thread_count = 1  # threads delay pictures
        # A damaged slice is an error, not a picture with repaired parts.
        self._context.options = {"err_detect": "explode", "flags": "+low_delay"}
        self._number = 0

    def decode(self, unit: bytes, where: str) -> Any:
        """Return the picture of an access unit, for `rgb_pixels`.

        Raises:
            FormatError: the access unit does not decode; begin with a keyframe in a new decoder.
        """
        packet = self._av.Packet(unit)
        packet.pts = self._number = self._number + 1
        try:
            frames = self._context.decode(packet) if unit else []
            if not frames:
                frames = self._context.decode(None)
                self._context.flush_buffers()
        except self._av.error.FFmpegError as error:
            raise FormatError(f"{where}: does not decode as H.264: {error.strerror}") from None
        for frame in frames:
            if frame.pts == self._number and not frame.is_corrupt:
                return frame
        raise FormatError(f"{where}: {len(unit)} bytes that do not decode as H.264")

    @property
    def fps(self) -> float | None:
        """Pictures per second, as the parameter sets declare them; None where they do not."""
        rate = self._context.framerate
        return float(rate) if rate else None


def rgb_pixels(frame: Any) -> npt.NDArray[np.uint8]:
    """Return the pixels of a decoder's picture, u1 [height, width, 3]."""
    return np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
