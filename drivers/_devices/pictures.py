"""Pictures on their way from a source to a recording, whatever the source is."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers._protocols.jpeg import JpegHeader, parse_jpeg
from recorder.contract.errors import ProtocolError, StreamChangedError

Image = npt.NDArray[np.uint8]
"""Decoded: [height, width, 3], BGR."""

_PASSED_PROCESSES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive: any reader shows them


@dataclass(frozen=True, slots=True)
class Missing:
    """Takes the place of `count` pictures that the source had and that cannot be had.

    `cause` is ``corrupt`` where they are damaged, ``undecoded`` where the decoder leaves them out
    of an undamaged file (an edit list that cuts its ends off), ``device`` where a camera's own
    counter says that it did not give them.
    """

    reason: str
    count: int = 1
    cause: str = "corrupt"


Picture = Image | bytes | Missing


@dataclass(frozen=True, slots=True)
class Shot:
    """A live picture, or what is missing in its place.

    Attributes:
        t_ns: CLOCK_MONOTONIC; what it stands for is said by the camera's `settings`.
        picture: JPEG bytes as they came, a decoded image, or `Missing`.
        t_device_ns: the camera's own time, where it has one.
    """

    t_ns: int
    picture: Picture
    t_device_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something about a live camera that is worth a record of its state."""

    t_ns: int
    values: dict[str, Any] = field(default_factory=dict)


class LiveCamera(ABC):
    """A camera that gives pictures when they come.

    >>> camera.open()
    >>> for event in camera.read(timeout_s=0.2):     # empty where none came in time
    ...     ...                                      # Shot or Note
    >>> camera.close()

    Attributes (after `open`):
        size: (width, height) in pixels.
        fps: nominal pictures a second; None where nobody knows.
        jpegs: pictures are the JPEGs that the camera made, unchanged.
        device_clock: shots have `t_device_ns`.
        settings: what the device says about itself and does not change between two starts.
    """

    size: tuple[int, int] = (0, 0)
    fps: float | None = None
    jpegs: bool = False
    device_clock: bool = False
    settings: Mapping[str, Any] = {}
    where: str = ""

    @abstractmethod
    def open(self) -> None:
        """Connect, and wait for a first picture; takes 5 s at the most.

        Raises:
            DeviceError: it is not there, or gives no picture.
            SourceError: it is there, but cannot do what the options ask for.
        """

    @abstractmethod
    def read(self, timeout_s: float) -> list[Shot | Note]:
        """What came since the last call, waiting for it up to `timeout_s`.

        Raises:
            DeviceError: it went away.
            StreamChangedError: its pictures have another size than at first.
        """

    @abstractmethod
    def close(self) -> None:
        """Release it; may be called twice."""


def passable(data: bytes) -> JpegHeader:
    """Look at a JPEG that is to be recorded as it is.

    Raises:
        ProtocolError: it is damaged, or of a kind that many readers do not show.
    """
    header = parse_jpeg(data)
    if header.process not in _PASSED_PROCESSES or header.components not in (1, 3):
        raise ProtocolError(
            f"a JPEG of process {header.process:02x} with {header.components} components"
        )
    if not header.width or not header.height:
        raise ProtocolError(f"a JPEG of {header.width} x {header.height} pixels")
    return header


def same_size(where: str, size: tuple[int, int], declared: tuple[int, int]) -> None:
    """StreamChangedError where a picture's (width, height) is not the one that was declared."""
    if size != declared:
        raise StreamChangedError(
            f"{where}: a picture of {size[0]} x {size[1]} pixels came where "
            f"{declared[0]} x {declared[1]} was declared; the stream ends"
        )


def trimmed(where: str, data: bytes, declared: tuple[int, int]) -> bytes | Missing:
    """A JPEG that is to be recorded as it is, without what is padded behind it.

    Raises:
        StreamChangedError: its (width, height) is not the one that was declared.
    """
    try:
        header = passable(data)
    except ProtocolError as error:
        return Missing(str(error))
    same_size(where, (header.width, header.height), declared)
    return data[: header.length]


def wanted_size(options: Mapping[str, Any], source: tuple[int, int]) -> tuple[int, int] | None:
    """(width, height) to resize to; None where the source has it already."""
    width, height = options["width"], options["height"]
    if width is None and height is None:
        return None
    width = width or max(1, round(source[0] * height / source[1]))
    height = height or max(1, round(source[1] * width / source[0]))
    return None if (width, height) == source else (width, height)


def resized(picture: Image | bytes, size: tuple[int, int]) -> Image | Missing:
    """The picture, decoded, with (width, height) pixels."""
    import cv2

    if isinstance(picture, bytes):
        flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
        if (decoded := cv2.imdecode(np.frombuffer(picture, np.uint8), flags)) is None:
            return Missing("the JPEG does not decode")
        picture = np.asarray(decoded, np.uint8)
    shrinks = size[0] * size[1] < picture.shape[0] * picture.shape[1]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(picture, size, interpolation=how), np.uint8)


def quiet_opencv() -> Any:
    """OpenCV with one thread and no lines on stderr.

    What goes wrong becomes an exception or a counted loss in the driver.
    """
    import cv2

    cv2.setNumThreads(1)
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    # OpenCV offers no other way to FFmpeg's own log level (-8 is AV_LOG_QUIET).
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    return cv2
