"""Pictures, videos and drivers for the tests of cameras."""

from __future__ import annotations

import functools
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from drivers.camera.driver import CameraDriver
from drivers.camera.lens import Lens
from drivers.camera.model import SimulatedCamera
from drivers.kit.driver import Item, Sample
from drivers.world import World
from recorder.codecs.streams import StreamSpec
from tests.support import devices
from tests.support.devices import make_driver

Image = npt.NDArray[np.uint8]
WIDTH, HEIGHT = 320, 240
PICTURES = SimulatedCamera(World(seed=1), Lens.default(WIDTH, HEIGHT))
# Drawn once a run.
PICTURES.frame = functools.cache(PICTURES.frame)  # type: ignore[method-assign]


def driver(
    address: Path | str, scheme: str = "file", name: str = "camera", **options: Any
) -> CameraDriver:
    return make_driver(CameraDriver, name, scheme, address, **options)


def take(opened: CameraDriver) -> Item:
    """The next item of a source that is always ready."""
    item = opened.read()
    assert item is not None
    return item


def play(address: Path | str, **options: Any) -> tuple[StreamSpec, list[Item]]:
    """Open, read all, close."""
    return devices.play(driver(address, **options))


def stamps(items: Sequence[Item]) -> list[int]:
    return [int(np.max(item.t_ns)) for item in items]


def frame(item: Item) -> Image:
    """The picture of a sample, decoded if need be."""
    assert isinstance(item, Sample)
    (value,) = item.data["video.avi"]
    if isinstance(value, bytes):
        return np.asarray(cv2.imdecode(np.frombuffer(value, np.uint8), cv2.IMREAD_COLOR))
    return np.asarray(value)


def jpeg(index: int, size: tuple[int, int] = (WIDTH, HEIGHT)) -> bytes:
    image = cv2.resize(PICTURES.frame(index), size)
    return bytes(cv2.imencode(".jpg", image)[1].data)


def write_video(path: Path, codec: str, count: int = 20, fps: float = 30.0) -> Path:
    path.write_bytes(_encode_video(path.suffix, codec, count, fps))
    return path


@functools.cache
def _encode_video(suffix: str, codec: str, count: int, fps: float) -> bytes:
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        fourcc = cv2.VideoWriter.fourcc(*codec)
        writer = cv2.VideoWriter(file.name, cv2.CAP_FFMPEG, fourcc, fps, (WIDTH, HEIGHT))
        assert writer.isOpened()
        for index in range(count):
            writer.write(PICTURES.frame(index))
        writer.release()
        return Path(file.name).read_bytes()


def chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def write_avi(path: Path, frames: Sequence[bytes], declared: int | None = None) -> Path:
    """An AVI 1.0 of 25 fps with these chunks, whatever is in them."""
    count = len(frames) if declared is None else declared
    avih = struct.pack("<14I", 40_000, 0, 0, 0x10, count, 0, 1, 0, WIDTH, HEIGHT, 0, 0, 0, 0)
    strh = b"vidsMJPG" + struct.pack(
        "<IHHIIIIIIII4H", 0, 0, 0, 0, 1, 25, 0, count, 0, 2**32 - 1, 0, 0, 0, WIDTH, HEIGHT
    )
    strf = struct.pack(
        "<IiiHH4sIiiII", 40, WIDTH, HEIGHT, 1, 24, b"MJPG", WIDTH * HEIGHT * 3, 0, 0, 0, 0
    )
    strl = chunk(b"LIST", b"strl" + chunk(b"strh", strh) + chunk(b"strf", strf))
    header = chunk(b"LIST", b"hdrl" + chunk(b"avih", avih) + strl)
    movi, index = b"movi", b""
    for data in frames:
        index += b"00dc" + struct.pack("<III", 0x10, len(movi), len(data))
        movi += chunk(b"00dc", data)
    body = b"AVI " + header + chunk(b"LIST", movi) + chunk(b"idx1", index)
    path.write_bytes(chunk(b"RIFF", body))
    return path
