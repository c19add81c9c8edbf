"""H.264 access units that are recorded unchanged."""

from __future__ import annotations

from drivers.camera.pictures import CodedPicture, Missing, Shot, require_same_size
from drivers.camera.rtsp.messages import Media
from drivers.camera.rtsp.rtp import AccessUnit
from recorder.codecs.h264 import H264Decoder, ParameterSets, has_picture, is_key, picture_size
from recorder.common.errors import FormatError, SourceError

B_FRAMES = (
    "pictures come in another order than they are shown (B-frames), which codec: copy does not "
    "record; configure the camera without B-frames, or record with codec: jpeg"
)


class H264Pictures:
    """Checker of access units that inserts the parameter sets which keyframes lack.

    Args:
        where: the source, for messages.
        known: parameter sets that the source declares, with start codes.

    Attributes:
        size: (width, height) in pixels; (0, 0) before the first keyframe.
    """

    def __init__(self, where: str, known: bytes = b"") -> None:
        self.size = (0, 0)
        self._where = where
        self._sets = ParameterSets(known)
        self._pending = b""

    def take(self, data: bytes) -> CodedPicture | Missing | None:
        """Return the picture of a buffer; None for parameter sets alone.

        Buffers before the first keyframe give None, too.

        Raises:
            StreamChangedError: the pictures' size has changed.
        """
        unit, self._pending = self._pending + data, b""
        if not has_picture(unit):
            if len(unit) < 1 << 16:
                self._pending = unit
            return None
        unit = self._sets.complete(unit)
        try:
            size = picture_size(unit)
        except FormatError as error:
            return Missing(str(error))
        if size is not None and self.size != (0, 0):
            require_same_size(self._where, size, self.size)
        if self.size == (0, 0) and is_key(unit):
            self.size = size or (0, 0)
        return None if self.size == (0, 0) else CodedPicture(unit, self.size)


class H264Passing:
    """Decoder that passes a network stream's access units on unchanged.

    `drivers.camera.decoder` defines its interface.

    Args:
        where: the camera, for messages.
        media: the stream.

    Raises:
        SourceError: it is not H.264.
    """

    def __init__(self, where: str, media: Media) -> None:
        if media.codec != "h264":
            raise SourceError(f"{where}: codec: copy: sends {media.codec}, only h264 is copied")
        self.fps: float | None = None
        self._where = where
        self._clock_hz = media.clock_hz
        self._pictures = H264Pictures(where, media.parameter_sets)
        self._timestamp: int | None = None

    def decode(self, unit: AccessUnit) -> list[Shot]:
        """Return the unit as a picture.

        Raises:
            SourceError: the camera sends B-frames.
            StreamChangedError: the pictures' size has changed.
        """
        before, self._timestamp = self._timestamp, unit.timestamp
        if before is not None and 0 < before - unit.timestamp < self._clock_hz:
            raise SourceError(f"{self._where}: {B_FRAMES}")
        first = self._pictures.size == (0, 0)
        picture = self._pictures.take(unit.data)
        if picture is None:
            return []
        if first and isinstance(picture, CodedPicture):
            self.fps = read_fps(picture.data)
        return [Shot(unit.t_ns, picture, unit.t_device_ns)]

    def drain(self) -> list[Shot]:
        """Return nothing: no picture is held back."""
        return []


def read_fps(keyframe: bytes) -> float | None:
    """Return the pictures per second that FFmpeg reads from a keyframe's parameter sets."""
    decoder = H264Decoder()
    try:
        decoder.decode(keyframe, "")
    except FormatError:
        return None
    return decoder.fps
