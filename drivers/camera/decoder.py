"""Decoders of access units: FFmpeg's in PyAV for H.264 and H.265; JPEGs pass unchanged."""

from __future__ import annotations

import heapq
import os
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from drivers.camera.pictures import Missing, Shot
from drivers.camera.rtsp.messages import Media
from drivers.camera.rtsp.rtp import AccessUnit
from recorder.common.errors import SourceError, need_extra

if TYPE_CHECKING:
    from drivers.camera.rtsp.messages import Media
    from drivers.camera.rtsp.rtp import AccessUnit

_NAMES = {"h264": "h264", "h265": "hevc"}
_MOST_THREADS = 4
_MOST_INSIDE = 64  # pictures in the decoder; FFmpeg's decoders keep 16, and one for each thread


class Decoder(Protocol):
    """Interface of decoders, which make pictures of access units.

    Attributes:
        fps: the pictures' rate as the data declare it; None where they do not.
    """

    fps: float | None

    def decode(self, unit: AccessUnit) -> list[Shot]:
        """Return the pictures that are ready, in the order of their times."""

    def drain(self) -> list[Shot]:
        """Return the remaining pictures; the next unit is a keyframe."""


def require_pyav(where: str) -> None:
    """Raise SourceError if PyAV is not installed."""
    try:
        import av  # noqa: F401
    except ImportError as error:
        raise SourceError(f"{where}: {need_extra('rtsp')}: {error}") from None


def make_decoder(media: Media) -> Decoder:
    """Return the decoder of a codec."""
    return JpegPassing() if media.codec == "jpeg" else VideoDecoder(media)


class JpegPassing:
    """Decoder that passes JPEGs on unchanged."""

    fps: float | None = None

    def decode(self, unit: AccessUnit) -> list[Shot]:
        return [Shot(unit.t_ns, unit.data)]

    def drain(self) -> list[Shot]:
        return []


class VideoDecoder:
    """FFmpeg's decoder on up to four threads, which delay pictures, but not their stamps.

    A picture has the stamp of its access unit.  Where the camera sends pictures in another order
    than it shows them, the k-th shown picture has the k-th arrival, so that stamps increase.  A
    unit without a picture (the decoder omits it, or marks it as damaged) is `Missing`.
    """

    def __init__(self, media: Media) -> None:
        import av

        av.logging.set_level(None)
        self._av = av
        self._converter: Any = av.video.reformatter.VideoReformatter()
        self._context: Any = av.CodecContext.create(_NAMES[media.codec], "r")
        self._context.thread_type = "AUTO"
        self._context.thread_count = min(_MOST_THREADS, os.cpu_count() or 1)
        if media.parameter_sets:
            self._context.extradata = media.parameter_sets
        self._inside: set[int] = set()  # numbers of units without a picture yet
        self._arrivals: list[int] = []  # of these units, a heap
        self._number = 0
        self.fps: float | None = None

    def decode(self, unit: AccessUnit) -> list[Shot]:
        self._number += 1
        self._inside.add(self._number)
        heapq.heappush(self._arrivals, unit.t_ns)
        packet = self._av.Packet(unit.data)
        packet.pts = self._number
        shots = self._run(packet)
        while len(self._inside) > _MOST_INSIDE:
            shots.append(self._leave(min(self._inside)))
        return shots

    def drain(self) -> list[Shot]:
        shots = self._run(None)
        shots += [self._leave(number) for number in sorted(self._inside)]
        self._context.flush_buffers()
        return shots

    def _run(self, packet: Any) -> list[Shot]:
        try:
            frames = self._context.decode(packet)
        except self._av.error.FFmpegError:
            return []  # the unit stays inside, and counts as missing
        if self.fps is None and (rate := self._context.framerate):
            self.fps = float(rate)
        shots: list[Shot] = []
        for frame in frames:
            if frame.pts not in self._inside:
                continue  # left out already, or a second picture of its unit
            # The decoder holds back as many earlier pictures as it reorders; the others are lost.
            earlier = sorted(number for number in self._inside if number < frame.pts)
            for number in earlier[: max(0, len(earlier) - self._context.reorder_depth)]:
                shots.append(self._leave(number))
            shot = self._leave(frame.pts)
            if not frame.is_corrupt:
                converted = self._converter.reformat(frame, format="bgr24")
                shot = Shot(shot.t_ns, np.asarray(converted.to_ndarray(), np.uint8))
            shots.append(shot)
        return shots

    def _leave(self, number: int) -> Shot:
        """Remove a unit; return it as missing, with the earliest arrival inside."""
        self._inside.remove(number)
        return Shot(heapq.heappop(self._arrivals), Missing("the decoder gives no picture"))
