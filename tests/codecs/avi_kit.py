"""What the AVI tests share: small telling JPEGs, a writer call, FFmpeg's view of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from recorder.codecs.storage.avi import AviLayout, AviWriter, scan_avi
from recorder.common.files import PosixDisk

WIDTH, HEIGHT = 96, 64
LAYOUT = AviLayout.of(WIDTH, HEIGHT, 25.0, super_entries=16)
META = {"format": "mjpg", "type": "u1", "shape": [HEIGHT, WIDTH, 3], "desc": ""}
DISK = PosixDisk()


def make_jpeg(index: int) -> bytes:
    """A smooth picture whose colours tell its index (0 to 63)."""
    image = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    image[...] = (index % 4 * 80, index // 4 % 4 * 80, index // 16 * 80)
    encoded: bytes = cv2.imencode(".jpg", image)[1].tobytes()
    return encoded + b"\0" * (index % 3)  # odd and even lengths, as cameras' padding makes them


JPEGS = [make_jpeg(i) for i in range(40)]
SEGMENT = 6 * len(JPEGS[0])


def write(
    path: Path,
    frames: list[bytes],
    finish: bool = True,
    segment_bytes: int = SEGMENT,
    layout: AviLayout = LAYOUT,
) -> int:
    """Write all frames, one message each; the number of bytes."""
    writer = AviWriter.create(path, DISK, layout, segment_bytes)
    append(writer, frames)
    if finish:
        writer.finish()
    writer.files[0].close()
    return writer.files[0].length


def append(writer: AviWriter, frames: list[bytes]) -> None:
    for frame in frames:
        writer.append(frame, 1, np.array([len(frame)], np.uint32))


def repair_avi(path: Path) -> int:
    """Cut an unfinished file after its last whole frame, and finish it; returns the frames."""
    scan = scan_avi(path)
    if not scan.finished:
        length = scan.segments[-1].frames_end
        if scan.end < length:  # the last frame's padding is cut off
            with path.open("ab") as file:
                file.write(bytes(1))
        writer = AviWriter.resume(path, DISK, length, scan.layout)
        writer.finish()
        writer.files[0].close()
    return scan.total


def packets(path: Path) -> list[bytes]:
    """The frames as FFmpeg demuxes them, undecoded."""
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_FORMAT, -1])
    found = []
    while (packet := video.read())[0]:
        found.append(packet[1].tobytes())
    return found


def decode(jpeg: bytes) -> npt.NDArray[Any]:
    image: npt.NDArray[Any] | None = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    return image


def same_picture(shown: npt.NDArray[Any], jpeg: bytes) -> bool:
    """Whether FFmpeg's pixels are those of libjpeg, but for rounding."""
    return bool(np.abs(shown.astype(int) - decode(jpeg).astype(int)).max() <= 4)
