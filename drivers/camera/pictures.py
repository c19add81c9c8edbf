"""Picture types, and checks and conversions of pictures, for all camera sources."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.codecs.raw_pixels import RawPixels
from recorder.common.errors import ProtocolError, StreamChangedError

_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JpegHeader:
    """Values from a JPEG's markers (ITU-T T.81, annex B).

    Attributes:
        width, height: pixels.
        components: 1 grey, 3 colour.
        process: low byte of the frame header's marker: 0xC0 baseline, 0xC2 progressive.
        length: bytes up to and including the end-of-image marker.
    """

    width: int
    height: int
    components: int
    process: int
    length: int


def parse_jpeg(data: bytes) -> JpegHeader:
    """Parse the markers of the first image in `data`.

    Raises:
        ProtocolError: the data are not a JPEG, or are truncated; names the fault.
    """
    if data[:2] != b"\xff\xd8":
        raise ProtocolError(f"no JPEG: begins with {data[:2].hex() or 'nothing'}, not ffd8")
    frame: tuple[int, int, int, int] | None = None
    at = 2
    while at + 1 < len(data):
        if data[at] != 0xFF:
            raise ProtocolError(f"a JPEG with {data[at]:02x} at {at} where a marker should be")
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        at += 2
        if marker == 0xD9:
            if frame is None:
                raise ProtocolError("a JPEG without a frame header")
            return JpegHeader(*frame, length=at)
        length = int.from_bytes(data[at : at + 2], "big")
        if length < 2 or at + length > len(data):
            break
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and length >= 8:
            height = int.from_bytes(data[at + 3 : at + 5], "big")
            width = int.from_bytes(data[at + 5 : at + 7], "big")
            frame = width, height, data[at + 7], marker
        at += length
        if marker == 0xDA:  # entropy-coded data follows, with only these markers
            after = _MARKER_IN_SCAN.search(data, at)
            if after is None:
                break
            at = after.start()
    raise ProtocolError(f"a JPEG cut off after {len(data)} bytes: no end-of-image marker")


Image = npt.NDArray[Any]
"""A decoded picture: u1 [height, width, 3], BGR; a raw picture: u1 or u2 [height, width]."""

_MOST_PIXELS = 1 << 27  # decoded, they take 400 MB; a few kilobytes may declare 32 times as many
_PASSED_PROCESSES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive: supported by all readers


@dataclass(frozen=True, slots=True)
class Missing:
    """Substitute for `count` pictures of the source that cannot be recorded.

    `cause` is ``corrupt`` for damaged pictures, ``undecoded`` for pictures of an undamaged file
    that the decoder omits (an edit list that cuts the file's ends), and ``device`` for pictures
    that the camera did not deliver according to its own counter.
    """

    reason: str
    count: int = 1
    cause: str = "corrupt"


@dataclass(frozen=True, slots=True)
class CodedPicture:
    """A picture of a video as its camera encoded it: an access unit of H.264.

    Attributes:
        data: NAL units with start codes; of a keyframe with parameter sets.
        size: (width, height) in pixels.
    """

    data: bytes
    size: tuple[int, int]


Still = Image | bytes | Missing
"""A picture that is decoded, a JPEG, or a loss in its place."""
Picture = Still | CodedPicture


@dataclass(frozen=True, slots=True)
class Shot:
    """A live picture, or a `Missing` in its place.

    Attributes:
        t_ns: CLOCK_MONOTONIC; the camera's `settings` define its meaning.
        picture: unchanged JPEG bytes, a decoded image, or `Missing`.
        t_device_ns: the camera's own time, if the camera has a clock.
        exposure_us: the exposure time, if it is known.
    """

    t_ns: int
    picture: Picture
    t_device_ns: int | None = None
    exposure_us: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A change of a live camera's state to record."""

    t_ns: int
    values: dict[str, Any] = field(default_factory=dict)


class LiveCamera(ABC):
    """A camera that delivers pictures at its own pace.

    >>> camera.open()
    >>> for event in camera.read(timeout_s=0.2):     # empty where none arrived in time
    ...     ...                                      # Shot or Note
    >>> camera.close()

    Attributes (after `open`):
        size: (width, height) in pixels.
        fps: nominal pictures per second; None where the rate is unknown.
        jpegs: pictures are the camera's own JPEGs, unchanged.
        raw: format of the values of raw pictures; None if the pictures are not raw.
        device_clock: shots have `t_device_ns`.
        reports_exposure: shots have `exposure_us` where it is known.
        settings: properties of the device that are constant between two starts.
    """

    size: tuple[int, int] = (0, 0)
    fps: float | None = None
    jpegs: bool = False
    raw: RawPixels | None = None
    device_clock: bool = False
    reports_exposure: bool = False
    settings: Mapping[str, Any] = {}
    where: str = ""

    @abstractmethod
    def open(self) -> None:
        """Connect and wait for a first picture; takes at most 5 s.

        Raises:
            DeviceError: the camera is absent or delivers no picture.
            SourceError: the camera is present but does not support the options.
        """

    @abstractmethod
    def read(self, timeout_s: float) -> list[Shot | Note]:
        """Return the events since the last call; wait for them up to `timeout_s`.

        Raises:
            DeviceError: the camera is lost.
            StreamChangedError: the size of the camera's pictures has changed.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the camera; may be called twice."""


def check_jpeg(data: bytes) -> JpegHeader:
    """Check a JPEG that is to be recorded unchanged.

    Raises:
        ProtocolError: the JPEG is damaged, or many readers do not support its kind.
    """
    header = parse_jpeg(data)
    if header.process not in _PASSED_PROCESSES or header.components not in (1, 3):
        raise ProtocolError(
            f"a JPEG of process {header.process:02x} with {header.components} components"
        )
    if not 0 < header.width * header.height <= _MOST_PIXELS:
        raise ProtocolError(f"a JPEG of {header.width} x {header.height} pixels")
    return header


def find_size(picture: Image | CodedPicture) -> tuple[int, int]:
    """Return (width, height) of a picture."""
    if isinstance(picture, CodedPicture):
        return picture.size
    return picture.shape[1], picture.shape[0]


def require_same_size(where: str, size: tuple[int, int], declared: tuple[int, int]) -> None:
    """Raise StreamChangedError if a picture's (width, height) differs from the declared size."""
    if size != declared:
        raise StreamChangedError(
            f"{where}: a picture has {size[0]} x {size[1]} pixels, not the declared "
            f"{declared[0]} x {declared[1]}"
        )


def make_gap_event(
    whose: str, t_ns: int, before: int, number: int, lost: int | None
) -> Shot | Note:
    """Return the loss in the numbers of the ``camera`` or ``kernel``; `lost` None: a restart."""
    if lost is None:
        return Note(t_ns, {"numbers_restarted": {"from": before, "to": number}})
    reason = f"the {whose}'s numbers go from {before} to {number}"
    return Shot(t_ns, Missing(reason, lost, "device"))


def trim_jpeg(where: str, data: bytes, declared: tuple[int, int]) -> bytes | Missing:
    """Return a JPEG without the padding after its end, or `Missing` if it cannot be recorded.

    Raises:
        StreamChangedError: its (width, height) differs from the declared size.
    """
    try:
        header = check_jpeg(data)
    except ProtocolError as error:
        return Missing(str(error))
    require_same_size(where, (header.width, header.height), declared)
    return data[: header.length]


def choose_size(options: Mapping[str, Any], source: tuple[int, int]) -> tuple[int, int] | None:
    """Return (width, height) to resize to; None where the source already has the size."""
    width, height = options["width"], options["height"]
    if width is None and height is None:
        return None
    width = width or max(1, round(source[0] * height / source[1]))
    height = height or max(1, round(source[1] * width / source[0]))
    return None if (width, height) == source else (width, height)


def decode_image(data: bytes) -> Image | Missing:
    """Decode a JPEG, or a picture of another format that OpenCV reads."""
    import cv2

    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    found = cv2.imdecode(np.frombuffer(data, np.uint8), flags) if data else None
    return Missing("the picture does not decode") if found is None else np.asarray(found, np.uint8)


def resize_picture(picture: Image | bytes, size: tuple[int, int]) -> Image | Missing:
    """Decode the picture and resize it to (width, height) pixels."""
    import cv2

    if isinstance(picture, bytes):
        picture_or_loss = decode_image(picture)
        if isinstance(picture_or_loss, Missing):
            return picture_or_loss
        picture = picture_or_loss
    shrinks = size[0] * size[1] < picture.shape[0] * picture.shape[1]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(picture, size, interpolation=how), np.uint8)


def import_opencv() -> Any:
    """Import OpenCV with one thread and without output on stderr.

    The driver turns failures into exceptions or counted losses.
    """
    import cv2

    cv2.setNumThreads(1)
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    # Only this variable sets FFmpeg's own log level in OpenCV (-8 is AV_LOG_QUIET).
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    return cv2
