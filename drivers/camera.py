"""Camera driver: video files and a simulated camera.

One stream with the sensor's name, one channel ``video.avi`` (mjpg, u1 [height, width, 3], BGR).
Where the source holds JPEGs already (MJPEG in any container, a JPEG sequence) they are passed
through byte for byte, without what a camera pads after the end of an image; everything else is
decoded here and encoded by the kit.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from drivers._kit.driver import Driver, EndOfSource, Item, Lost, Sample, SensorConfig
from drivers._kit.runner import main
from drivers._protocols.jpeg import parse_jpeg
from drivers.sim.camera import SimulatedCamera
from drivers.sim.rig import SIM_CAMERA_OPTIONS, SIM_FPS, SIM_SIZE, simulated_camera
from recorder.contract.errors import ProtocolError, SourceError
from recorder.contract.options import Option
from recorder.contract.streams import ChannelSpec, StreamSpec

CHANNEL = "video.avi"
_ASSUMED_FPS = 25.0  # for stamps alone, where a container gives neither stamps nor a rate
_BYTES_PER_PIXEL = 0.35  # of a JPEG at quality 90 of a street scene, from above
_DECODE_ATTEMPTS = 8  # failed reads in a row that make the end of a file
_ESTIMATE_SLACK_S = 1.0
_LONGEST_MS = 1e12  # a container's time beyond 30 years is none

Image = npt.NDArray[np.uint8]


class CameraDriver(Driver):
    """Plays a video file, or draws the simulated world.

    Stamps are the container's presentation times of the frames' starts, in ns from the first
    frame; where a container gives none, or one that does not increase, they go on by 1/fps.
    A picture that does not decode is a counted loss; a file that ends before the number of frames
    that it declares is a `SourceError`, after its last whole frame.

    >>> driver = CameraDriver(sensor)
    >>> (spec,) = driver.open()
    >>> sample = driver.read()
    >>> sample.data["video.avi"]         # uint8 [1, h, w, 3] (BGR), or a list with one JPEG
    >>> driver.close()
    """

    options: ClassVar = {
        "width": Option(
            "int", None, "pixels; frames are resized to it (default: the source's; sim: 1280)",
            minimum=32, maximum=16384,
        ),
        "height": Option(
            "int", None, "pixels; one of width and height alone keeps the proportions",
            minimum=32, maximum=16384,
        ),
        "fps": Option(
            "float", None, "Hz; a file is played at this rate (default: its own; sim: 30)",
            minimum=0.01, maximum=1000,
        ),
        "quality": Option(
            "int", 90, "JPEG quality of frames that are encoded here, not of JPEG sources",
            minimum=1, maximum=100,
        ),
        **SIM_CAMERA_OPTIONS,
    }  # fmt: skip
    vrs_kind = "camera"
    schemes: ClassVar = {
        "vrs": "PATH[#STREAM]: a camera's stream of a VRS file",
        "sim": "the simulated world, with the frame's number in the picture",
        "file": "a video that OpenCV opens, or a pattern of numbered images (img_%04d.jpg)",
    }

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._simulated: SimulatedCamera | None = None
        self._index = 0
        self._fps = SIM_FPS
        self._video: VideoFile | None = None
        self._size: tuple[int, int] | None = None  # to resize to

    def open(self) -> Sequence[StreamSpec]:
        """Open the source; a file's first frame is read, so that its declared size is true.

        Raises:
            SourceError: there is no such file, or no frame in it that decodes.
        """
        options = self.sensor.options
        if self.sensor.scheme == "sim":
            size = _wanted_size(options, SIM_SIZE) or SIM_SIZE
            self._fps = options["fps"] or SIM_FPS
            self._simulated = simulated_camera(self.sensor.name, options, size, self._fps)
            self._index = 0
            settings = {"scene": options["scene"], "seed": options["seed"]}
            return [self._spec(size, self._fps, finite=False, settings=settings)]
        self._video = video = VideoFile(self.sensor, options["fps"])
        try:
            video.open()
            self._size = _wanted_size(options, video.size)
        except SourceError:
            self.close()
            raise
        passed_through = video.jpegs and self._size is None
        settings = {"codec": video.codec, "passed_through": passed_through}
        return [self._spec(self._size or video.size, video.fps, finite=True, settings=settings)]

    def read(self) -> Item:
        """The next frame, or the loss of one that does not decode.

        Raises:
            EndOfSource: the file's last frame was given.
            SourceError: the file ends before the frames that it declares.
        """
        if self._simulated is not None:
            t_ns = round(self._index * 1e9 / self._fps)
            image = self._simulated.frame(self._index)
            self._index += 1
            return self._sample(t_ns, image[None])
        if self._video is None:
            raise SourceError(f"{self.sensor.name}: read before open")
        return self._item(*self._video.read())

    def close(self) -> None:
        if self._video is not None:
            self._video.close()
        self._video = self._simulated = None

    def _item(self, t_ns: int, picture: Picture) -> Item:
        if self._size is not None and not isinstance(picture, Missing):
            picture = _resized(picture, self._size)
        if isinstance(picture, Missing):
            detail = {"reason": picture.reason}
            return Lost(self.sensor.name, t_ns, picture.cause, picture.count, detail=detail)
        return self._sample(t_ns, [picture] if isinstance(picture, bytes) else picture[None])

    def _sample(self, t_ns: int, frames: Image | list[bytes]) -> Sample:
        return Sample(self.sensor.name, np.array([t_ns], np.int64), {CHANNEL: frames})

    def _spec(
        self, size: tuple[int, int], fps: float | None, finite: bool, settings: dict[str, Any]
    ) -> StreamSpec:
        width, height = size
        return StreamSpec(
            self.sensor.name,
            (ChannelSpec(CHANNEL, "mjpg", "u1", (height, width, 3), "camera image"),),
            rate_hz=fps,
            bytes_per_sample=int(width * height * _BYTES_PER_PIXEL),
            finite=finite,
            description="camera",
            settings={
                "width": width,
                "height": height,
                "fps": fps,
                "jpeg_quality": self.sensor.options["quality"],
                **settings,
            },
        )


@dataclass(frozen=True, slots=True)
class Missing:
    """Takes the place of `count` pictures that the file holds and that cannot be had.

    `cause` is ``corrupt`` where they are damaged, ``undecoded`` where the decoder leaves them out
    of an undamaged file (an edit list that cuts its ends off).
    """

    reason: str
    count: int = 1
    cause: str = "corrupt"


Picture = Image | bytes | Missing


class VideoFile:
    """A video through OpenCV's FFmpeg, one frame at a time, decoded or as the JPEGs it is made of.

    >>> video = VideoFile(sensor, fps=None)
    >>> video.open()
    >>> t_ns, picture = video.read()     # until EndOfSource
    >>> video.close()

    OpenCV scales a decoded picture to the size of the first where a video changes its size;
    JPEGs that are passed through show the change.

    Args:
        sensor: whose address is the file.
        fps: the rate to play at; None for the file's own stamps.

    Attributes (after `open`):
        size: (width, height) of the first frame.
        fps: nominal rate in Hz, or None where the container gives none.
        codec: four characters, as OpenCV names it.
        jpegs: pictures are given as JPEG bytes, unchanged.
    """

    def __init__(self, sensor: SensorConfig, fps: float | None) -> None:
        self.where = f"{sensor.name}: file:{sensor.address}"
        self.size = (0, 0)
        self.fps = fps
        self.codec = ""
        self.jpegs = False
        self._sensor = sensor
        self._retimed = fps is not None
        self._capture: Any = None
        self._ready: deque[tuple[int, Picture]] = deque()
        self._taken = 0
        self._last_ms = 0.0

    def open(self) -> None:
        """Open the file and take its first frame, which later is the first to be read.

        Raises:
            SourceError: there is no such file, or nothing in it decodes.
        """
        import cv2

        _quiet(cv2)
        path = Path(self._sensor.address)
        if not ("%" in path.name and path.parent.is_dir()) and self._sensor.path.is_dir():
            raise SourceError(f"{self.where}: a folder; name a file or a pattern (img_%04d.jpg)")
        # The content decides, not the name: the packets of an MJPEG file are whole JPEGs.
        first = self._start(raw=True)
        self.jpegs = first is not None and _can_pass(first.tobytes(), self._capture)
        if self.jpegs:
            header = parse_jpeg(first.tobytes())
            self.size = header.width, header.height
        else:
            self.close()
            first = self._start(raw=False)
            if first is None:
                raise SourceError(f"{self.where}: not a video with a frame that OpenCV can decode")
            self.size = first.shape[1], first.shape[0]
        file_fps = self._capture.get(cv2.CAP_PROP_FPS)
        self._file_fps = file_fps if 0 < file_fps < 1e6 else None
        if not self._retimed:
            self.fps = self._file_fps
        self._clock = FrameClock(self.fps or _ASSUMED_FPS, trusted=not self._retimed)
        count = self._capture.get(cv2.CAP_PROP_FRAME_COUNT)
        self._expected = int(count) if 0 < count < 2**53 else None
        codec = int(self._capture.get(cv2.CAP_PROP_FOURCC)) & 0xFFFFFFFF
        self.codec = codec.to_bytes(4, "little").decode("latin-1").strip("\0 ")
        self._accept(first, failed=0)

    def read(self) -> tuple[int, Picture]:
        """Stamp in ns and picture; `Missing` in the place of what does not decode.

        Raises:
            EndOfSource: the end, where it should be.
            SourceError: the end, but the file declares more frames.
        """
        if not self._ready:
            self._fetch()
        return self._ready.popleft()

    def close(self) -> None:
        """Release the file."""
        if self._capture is not None:
            self._capture.release()
        self._capture = None
        self._ready.clear()
        self._taken = 0

    def _start(self, raw: bool) -> Any:
        """Open a capture of packets (`raw`) or pictures and return its first; None without one."""
        self._capture = _open_capture(self._sensor.address, raw)
        done, first = self._capture.read() if self._capture.isOpened() else (False, None)
        return first if done else None

    def _fetch(self) -> None:
        # OpenCV answers a picture that does not decode as it answers the end of the file; only
        # reading on tells one from the other.
        for failed in range(_DECODE_ATTEMPTS):
            done, picture = self._capture.read()
            if done:
                self._accept(picture, failed)
                return
        self._ready.append(self._end())

    def _accept(self, picture: npt.NDArray[np.uint8], failed: int) -> None:
        import cv2

        if failed:
            # A decoder that works ahead refuses before it gives the frames that came before.
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

    def _end(self) -> tuple[int, Missing]:
        """What the end of the file means: an exception, or frames that the decoder kept back."""
        if self._expected is None or self._taken >= self._expected:
            raise EndOfSource
        if self._file_fps is not None:
            slack_s = 1.5 / self._file_fps
            if not _declares_frames(Path(self._sensor.address)):
                # The count is an estimate from the duration, which may be that of the sound.
                slack_s += _ESTIMATE_SLACK_S
            if self._last_ms / 1e3 + slack_s >= self._expected / self._file_fps:
                raise EndOfSource  # as long as declared: frames were left out when it was made
        if not self.jpegs and self._packets() == self._expected:
            missing = self._expected - self._taken
            self._taken = self._expected
            reason = "in the file, but the decoder does not give them"
            return self._clock.last_ns, Missing(reason, missing, "undecoded")
        raise SourceError(
            f"{self.where}: ends after {self._taken} of {self._expected} frames; "
            "the file is cut or damaged"
        )

    def _packets(self) -> int:
        """Number of the file's video packets; reads it once more, without decoding."""
        capture = _open_capture(self._sensor.address, raw=True)
        count = 0
        while capture.grab():
            count += 1
        capture.release()
        return count


class FrameClock:
    """Strictly increasing stamps in ns from a container's times, whatever these are worth.

    >>> clock = FrameClock(fps=25)
    >>> [clock.stamp(ms) for ms in (0.0, 40.0, 40.0, float("nan"))]
    [0, 40000000, 80000000, 120000000]

    Args:
        fps: the rate at which stamps go on where the container's do not.
        trusted: False for frame k at k / fps, whatever the container says.

    Attributes:
        last_ns: the stamp given last; -1 before the first.
    """

    def __init__(self, fps: float, trusted: bool = True) -> None:
        self._period_ns = 1e9 / fps
        self._trusted = trusted
        self._base_ns = 0
        self._steps = -1  # frames since the base
        self.last_ns = -1

    def stamp(self, position_ms: float, frames: int = 1) -> int:
        """The stamp in ns of the frame that comes `frames` after the last.

        Args:
            position_ms: the container's time; NaN where there is none.
            frames: 1, or more where frames between are missing.
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

    # One thread: the machine's cores belong to the other sensors as well.
    parameters = [cv2.CAP_PROP_N_THREADS, 1, *([cv2.CAP_PROP_FORMAT, -1] if raw else [])]
    return cv2.VideoCapture(address, cv2.CAP_FFMPEG, parameters)


def _can_pass(data: bytes, capture: Any) -> bool:
    """Whether packets like this one are images that any reader of an MJPEG file shows as meant."""
    import cv2

    try:
        header = parse_jpeg(data)
    except ProtocolError:
        return False
    common = header.process in (0xC0, 0xC1, 0xC2) and header.components in (1, 3)
    # Interlaced MJPEG has two images of half the height in a packet; a phone's MOV may be turned.
    fields = capture.get(cv2.CAP_PROP_FRAME_HEIGHT) == 2 * header.height
    return common and not fields and not capture.get(cv2.CAP_PROP_ORIENTATION_META)


def _declares_frames(path: Path) -> bool:
    """Whether the container counts its frames: ISO media (MP4, MOV) and AVI do."""
    try:
        with path.open("rb") as file:
            start = file.read(12)
    except OSError:
        return False
    return start[4:8] == b"ftyp" or (start[:4] == b"RIFF" and start[8:] == b"AVI ")


def _wanted_size(options: Mapping[str, Any], source: tuple[int, int]) -> tuple[int, int] | None:
    """(width, height) to resize to; None where the source has it already."""
    width, height = options["width"], options["height"]
    if width is None and height is None:
        return None
    width = width or max(1, round(source[0] * height / source[1]))
    height = height or max(1, round(source[1] * width / source[0]))
    return None if (width, height) == source else (width, height)


def _resized(picture: Image | bytes, size: tuple[int, int]) -> Image | Missing:
    import cv2

    if isinstance(picture, bytes):
        flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
        if (decoded := cv2.imdecode(np.frombuffer(picture, np.uint8), flags)) is None:
            return Missing("the JPEG does not decode")
        picture = np.asarray(decoded)
    shrinks = size[0] * size[1] < picture.shape[0] * picture.shape[1]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(picture, size, interpolation=how))


def _quiet(cv2: Any) -> None:
    """One thread, and no lines on stderr: what goes wrong becomes an exception or a loss here."""
    cv2.setNumThreads(1)
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    # OpenCV offers no other way to FFmpeg's own log level (-8 is AV_LOG_QUIET).
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")


if __name__ == "__main__":
    main(CameraDriver)
