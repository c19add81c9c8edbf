"""Video files through OpenCV's FFmpeg: decoded pictures, or the file's own JPEGs."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.camera.files.video_index import VideoIndex, read_video_index
from drivers.camera.pictures import Missing, Still, check_jpeg, import_opencv, parse_jpeg
from recorder.common.errors import ProtocolError, SourceError

ASSUMED_FPS = 25.0  # only for stamps, where a container has neither stamps nor a rate
_DECODE_ATTEMPTS = 8  # consecutive failed reads that mean the end of a file
_LONGEST_MS = 1e12  # a container's time beyond 30 years is invalid


class VideoFile:
    """Reader of a video through OpenCV's FFmpeg: decoded frames, or the file's own JPEGs.

    >>> video = VideoFile("camera: file:drive.mp4", "/data/drive.mp4", fps=None)
    >>> video.open()
    >>> while (shot := video.read()) is not None:
    ...     t_ns, picture = shot
    >>> video.close()

    Where a video changes its size, OpenCV scales decoded pictures to the size of the first one;
    JPEGs that are passed through keep their new size.

    Args:
        where: the video's name in messages.
        address: the file.
        fps: the rate to play at; None: the file's own stamps.

    Attributes (after `open`):
        size: (width, height) of the first frame.
        fps: nominal rate in Hz, or None where the container has none.
        codec: four characters, as named by OpenCV.
        jpegs: pictures are returned as unchanged JPEG bytes.
    """

    def __init__(self, where: str, address: str, fps: float | None) -> None:
        self.where = where
        self.size = (0, 0)
        self.fps = fps
        self.codec = ""
        self.jpegs = False
        self._address = address
        self._retimed = fps is not None
        self._capture: Any = None
        self._ready: deque[tuple[int, Still]] = deque()
        self._taken = 0
        self._last_ms = 0.0

    def open(self) -> None:
        """Open the file and read its first frame, which the first `read` returns.

        Raises:
            SourceError: the file does not exist, or holds no frame that can be decoded.
        """
        cv2 = import_opencv()
        path = Path(self._address)
        if not path.exists():
            raise SourceError(f"{self.where}: no such file")
        if path.is_dir():
            raise SourceError(f"{self.where}: is a folder; name a file or a pattern (img_%04d.jpg)")
        # The content decides, not the name: the packets of an MJPEG file are complete JPEGs.
        first = self._start(raw=True)
        self.jpegs = first is not None and _can_pass(first.tobytes(), self._capture)
        if self.jpegs:
            header = parse_jpeg(first.tobytes())
            self.size = header.width, header.height
        else:
            self.close()
            first = self._start(raw=False)
            if first is None:
                self.close()
                raise SourceError(f"{self.where}: not a video with a frame that OpenCV can decode")
            self.size = first.shape[1], first.shape[0]
        file_fps = self._capture.get(cv2.CAP_PROP_FPS)
        self._file_fps = file_fps if 0 < file_fps < 1e6 else None
        if not self._retimed:
            self.fps = self._file_fps
        self._clock = FrameClock(self.fps or ASSUMED_FPS, trusted=not self._retimed)
        codec = int(self._capture.get(cv2.CAP_PROP_FOURCC)) & 0xFFFFFFFF
        self.codec = codec.to_bytes(4, "little").decode("latin-1").strip("\0 ")
        self._accept(first, failed=0)

    def read(self) -> tuple[int, Still] | None:
        """Return stamp in ns and picture, or `Missing` for an undecodable picture; None at the end.

        Raises:
            SourceError: the file ends before its declared number of frames.
        """
        if not self._ready:
            self._fetch()
        return self._ready.popleft() if self._ready else None

    def close(self) -> None:
        """Release the file."""
        if self._capture is not None:
            self._capture.release()
        self._capture = None
        self._ready.clear()
        self._taken = 0

    def _start(self, raw: bool) -> Any:
        """Open a capture of packets (`raw`) or pictures; return its first item, or None."""
        self._capture = _open_capture(find_readable_address(self._address), raw)
        done, first = self._capture.read() if self._capture.isOpened() else (False, None)
        return first if done else None

    def _fetch(self) -> None:
        # OpenCV gives the same answer for a picture that cannot be decoded and for the end of the
        # file; only further reads distinguish them.
        for failed in range(_DECODE_ATTEMPTS):
            done, picture = self._capture.read()
            if done:
                self._accept(picture, failed)
                return
        if (kept_back := self._end()) is not None:
            self._ready.append(kept_back)

    def _accept(self, picture: npt.NDArray[np.uint8], failed: int) -> None:
        import cv2

        if failed:
            # A decoder that works ahead reports a failure before it returns the earlier frames.
            missing = Missing("the decoder refuses the picture", failed)
            self._ready.append((self._clock.last_ns, missing))
        self._taken += failed + 1
        self._last_ms = self._capture.get(cv2.CAP_PROP_POS_MSEC)
        t_ns = self._clock.stamp(self._last_ms, failed + 1)
        if not self.jpegs:
            self._ready.append((t_ns, picture))
            return
        data = picture.tobytes()
        try:
            self._ready.append((t_ns, data[: parse_jpeg(data).length]))
        except ProtocolError as error:
            self._ready.append((t_ns, Missing(str(error))))

    def _end(self) -> tuple[int, Missing] | None:
        """Decide at the end of the file whether it is complete, undecoded in part, or truncated."""
        index = read_index(
            self._address
        )  # OpenCV has an estimate where the file declares no number
        missing = (index.pictures or 0) - self._taken
        if missing <= 0 and not index.is_cut:
            return None
        if missing > 0 and not index.is_cut:
            if self._file_fps is not None and _is_avi(Path(self._address)):
                end_s = self._last_ms / 1e3 + 1.5 / self._file_fps
                if end_s >= (index.pictures or 0) / self._file_fps:
                    return None  # the camera left pictures out: AVI counts their places
            if not self.jpegs and self._packets() == index.pictures:
                self._taken += missing
                reason = "in the file, but the decoder does not give them"
                return self._clock.last_ns, Missing(reason, missing, "undecoded")
        raise make_truncation_error(self.where, self._taken, index)

    def _packets(self) -> int:
        """Count the file's video packets; reads the file again, without decoding."""
        capture = _open_capture(find_readable_address(self._address), raw=True)
        count = 0
        while capture.grab():
            count += 1
        capture.release()
        return count


class FrameClock:
    """Strictly increasing stamps in ns from a container's times, even from invalid ones.

    >>> clock = FrameClock(fps=25)
    >>> [clock.stamp(ms) for ms in (0.0, 40.0, 40.0, float("nan"))]
    [0, 40000000, 80000000, 120000000]

    Args:
        fps: the rate of the stamps where the container's stamps do not increase.
        trusted: False: the stamp of frame k is k / fps, whatever the container's times.

    Attributes:
        last_ns: the latest stamp; -1 before the first.
    """

    def __init__(self, fps: float, trusted: bool = True) -> None:
        self._period_ns = 1e9 / fps
        self._trusted = trusted
        self._base_ns = 0
        self._steps = -1  # frames since the base
        self.last_ns = -1

    def stamp(self, position_ms: float, frames: int = 1) -> int:
        """Return the stamp in ns of the frame that is `frames` after the last frame.

        Args:
            position_ms: the container's time; NaN where it has none.
            frames: 1, or more after missing frames.
        """
        self._steps += frames
        if self._trusted and abs(position_ms) < _LONGEST_MS:
            t_ns = round(position_ms * 1e6)
            if t_ns > self.last_ns:
                self._base_ns, self._steps = t_ns, 0
        self.last_ns = max(self._base_ns + round(self._steps * self._period_ns), self.last_ns + 1)
        return self.last_ns


def _open_capture(address: str, raw: bool) -> Any:
    import cv2

    # One thread: the other cores are for the other sensors.
    parameters = [cv2.CAP_PROP_N_THREADS, 1, *([cv2.CAP_PROP_FORMAT, -1] if raw else [])]
    return cv2.VideoCapture(address, cv2.CAP_FFMPEG, parameters)


def _can_pass(data: bytes, capture: Any) -> bool:
    """Return whether every reader of MJPEG files shows packets like this one correctly."""
    import cv2

    try:
        header = check_jpeg(data)
    except ProtocolError:
        return False
    # Interlaced MJPEG has two images of half the height per packet; a phone's MOV may be rotated.
    fields = capture.get(cv2.CAP_PROP_FRAME_HEIGHT) == 2 * header.height
    return not fields and not capture.get(cv2.CAP_PROP_ORIENTATION_META)


def _is_avi(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"RIFF"


def read_index(address: str) -> VideoIndex:
    """Return the declarations of an address's file; empty if it cannot be read."""
    try:
        with Path(address).open("rb") as file:
            return read_video_index(file)
    except OSError:
        return VideoIndex()


def find_readable_address(address: str) -> str:
    """Return the address at which FFmpeg opens a file, without a fragment's head that is cut."""
    end = read_index(address).broken_at
    return address if end is None else f"subfile,,start,0,end,{end},,:{address}"


def make_truncation_error(where: str, taken: int, index: VideoIndex) -> SourceError:
    """Return the error of a file that ends too early."""
    number = "" if index.pictures is None else f" of {index.pictures}"
    return SourceError(
        f"{where}: ends after {taken}{number} frames; the file is truncated or damaged"
    )
