"""Video files whose H.264 is recorded unchanged, through PyAV's demuxers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drivers.camera.decoder import require_pyav
from drivers.camera.files.video import (
    ASSUMED_FPS,
    FrameClock,
    find_readable_address,
    make_truncation_error,
    read_index,
)
from drivers.camera.h264 import B_FRAMES, H264Pictures
from drivers.camera.pictures import CodedPicture, Missing
from recorder.bus.messages import CHANGED
from recorder.codecs.h264 import is_key
from recorder.common.errors import SourceError, StreamChangedError
from recorder.common.files import find_numbered_files


class H264File:
    """Reader of a file's access units in order, through FFmpeg's demuxer and ``h264_mp4toannexb``.

    Any container that FFmpeg knows (MP4, MKV, AVI, TS, a bare ``.h264``).  Access units before the
    first keyframe are left out.

    >>> video = H264File("camera: file:drive.mp4", "/data/drive.mp4", fps=None)
    >>> video.open()
    >>> while (shot := video.read()) is not None:
    ...     t_ns, picture = shot
    >>> video.close()

    Args:
        where: the file's name in messages.
        address: its path.
        fps: the rate to play at; None: the file's own stamps.

    Attributes (after `open`):
        size: (width, height) of the pictures.
        fps: nominal rate in Hz, or None where the container has none.
    """

    def __init__(self, where: str, address: str, fps: float | None) -> None:
        self.where = where
        self.size = (0, 0)
        self.fps = fps
        self._address = address
        self._retimed = fps is not None
        self._container: Any = None
        self._misfit = ""  # why the pictures since the last keyframe cannot be recorded
        self._shots: Iterator[tuple[int, CodedPicture | Missing]] = iter(())

    def open(self) -> None:
        """Open the file and read up to its first keyframe, which the first `read` returns.

        Raises:
            SourceError: the file does not exist, its video is not H.264, has B-frames or no
                keyframe, or PyAV is not installed.
        """
        require_pyav(self.where)
        import av

        av.logging.set_level(None)
        if not Path(self._address).is_file():
            if find_numbered_files(Path(self._address)):
                raise SourceError(f"{self.where}: has pictures, no H.264; use codec: jpeg")
            raise SourceError(f"{self.where}: no such file")
        try:
            self._container = av.open(find_readable_address(self._address))
            self._start(av)
        except av.error.FFmpegError as error:
            self.close()
            raise SourceError(f"{self.where}: is no video: {error.strerror}") from None
        except BaseException:
            self.close()
            raise

    def _start(self, av: Any) -> None:
        streams = self._container.streams.video
        codec = streams[0].codec_context.name if streams else "no video"
        if codec != "h264":
            raise SourceError(
                f"{self.where}: has {codec}: codec: copy records H.264 only; use codec: jpeg"
            )
        stream = streams[0]
        if stream.codec_context.reorder_depth:
            raise SourceError(f"{self.where}: {B_FRAMES}")
        rate = stream.average_rate
        if not self._retimed:
            self.fps = float(rate) if rate and 0 < rate < 1e6 else None
        self._clock = FrameClock(self.fps or ASSUMED_FPS, trusted=not self._retimed)
        self._taken = 0
        pictures = H264Pictures(self.where)
        self._shots = self._read_all(av, stream, pictures)
        first = next(self._shots, None)
        if first is None:
            raise SourceError(f"{self.where}: has no keyframe of H.264")
        self.size = pictures.size
        self._first: tuple[int, CodedPicture | Missing] | None = first

    def read(self) -> tuple[int, CodedPicture | Missing] | None:
        """Return stamp in ns and access unit; None at the end.

        `Missing` takes the place of a damaged access unit, and of one of another size than the
        first.

        Raises:
            SourceError: the file is damaged, ends before its declared number of pictures, or has
                B-frames.
        """
        import av

        first, self._first = self._first, None
        if first is not None:
            return first
        try:
            shot = next(self._shots, None)
        except av.error.FFmpegError as error:
            raise SourceError(
                f"{self.where}: cannot be read after {self._taken} pictures: {error.strerror}"
            ) from None
        if shot is None:
            index = read_index(self._address)
            if index.is_cut or self._taken < (index.pictures or 0):
                raise make_truncation_error(self.where, self._taken, index)
        return shot

    def close(self) -> None:
        """Release the file."""
        self._shots = iter(())
        if self._container is not None:
            self._container.close()
        self._container = None

    def _read_all(
        self, av: Any, stream: Any, pictures: H264Pictures
    ) -> Iterator[tuple[int, CodedPicture | Missing]]:
        filters = av.bitstream.BitStreamFilterContext("h264_mp4toannexb", stream)
        last_pts = None
        for packet in self._container.demux(stream):
            if not packet.size:  # the demuxer's end
                break
            self._taken += 1
            pts = packet.pts
            if pts is not None:
                if last_pts is not None and pts < last_pts:
                    raise SourceError(f"{self.where}: frame {self._taken - 1}: {B_FRAMES}")
                last_pts = pts
            position_ms = math.nan if pts is None else float(pts * packet.time_base * 1000)
            t_ns = self._clock.stamp(position_ms)
            for made in filters.filter(packet):
                if (picture := self._take(pictures, bytes(made))) is not None:
                    yield t_ns, picture

    def _take(self, pictures: H264Pictures, data: bytes) -> CodedPicture | Missing | None:
        try:
            picture = pictures.take(data)
        except StreamChangedError as error:
            self._misfit = str(error)
            return Missing(self._misfit, cause=CHANGED)
        if self._misfit and isinstance(picture, CodedPicture):
            if not is_key(picture.data):  # it depends on a keyframe that is not recorded
                return Missing(self._misfit, cause=CHANGED)
            self._misfit = ""
        return picture
