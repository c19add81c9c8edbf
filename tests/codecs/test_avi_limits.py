"""Limits of the AVI writer: size, memory, and files beyond 4 GiB."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from recorder.codecs.storage import open_channel
from recorder.codecs.storage.avi import MAX_FRAME_BYTES, AviLayout, AviWriter, scan_avi
from recorder.common.errors import StorageError
from tests.codecs.avi_kit import (
    DISK,
    HEIGHT,
    JPEGS,
    LAYOUT,
    META,
    WIDTH,
    append,
    decode,
    packets,
    repair_avi,
    same_picture,
)


def test_full_super_index_is_an_error_and_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "v.avi"
    layout = AviLayout.of(WIDTH, HEIGHT, 25.0, super_entries=3)
    limit = layout.header_bytes + 2 * len(JPEGS[0])  # one frame in the first, then a few each
    writer = AviWriter.create(path, DISK, layout, limit)
    written = 0
    with pytest.raises(StorageError, match=r"v\.avi: full, .* 3 segments"):
        for jpeg in JPEGS:
            append(writer, [jpeg])
            written += 1
    writer.finish()
    writer.files[0].close()
    assert written > 3
    assert packets(path) == JPEGS[:written]
    assert len(scan_avi(path).segments) == 3
    assert scan_avi(path).finished


class _NoDisk:
    """An AppendFile that keeps lengths only."""

    path = Path("v.avi")
    length = LAYOUT.header_bytes
    dirty = False

    def append(self, data: Any) -> None:
        self.length += memoryview(data).nbytes

    def flush(self) -> None: ...
    def patchable(self, offset: int, size: int) -> None: ...
    def verify_in_place(self) -> None: ...
    def patch(self, offset: int, data: bytes) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


def test_a_frame_that_an_index_cannot_hold(tmp_path: Path) -> None:
    writer = AviWriter.create(tmp_path / "v.avi", DISK, LAYOUT)
    with pytest.raises(StorageError, match="a frame of 2147483648 bytes"):
        writer.append(b"", 1, np.array([MAX_FRAME_BYTES + 1], np.uint32))
    writer.files[0].close()


def test_memory_stays_flat_over_segments() -> None:
    """Ten thousand frames in hundreds of segments leave no trace in memory."""
    layout = AviLayout.of(WIDTH, HEIGHT, 25.0)
    file = _NoDisk()
    file.length = layout.header_bytes
    writer = AviWriter(file, layout, 10_000)
    frames, sizes = bytes(3000), np.full(10, 300, np.uint32)
    for _ in range(100):
        writer.append(frames, 10, sizes)
    tracemalloc.start()
    try:
        for _ in range(1000):
            writer.append(frames, 10, sizes)
        assert tracemalloc.get_traced_memory()[0] < 50_000
    finally:
        tracemalloc.stop()


def test_payload_is_not_copied(tmp_path: Path) -> None:
    """The buffers handed to the file are views of the message's frame."""
    message = bytearray(b"".join(JPEGS[:3]))
    seen: list[memoryview] = []

    class Spy(_NoDisk):
        def append(self, data: Any) -> None:
            super().append(data)
            if isinstance(data, memoryview):
                seen.append(data)

    writer = AviWriter(Spy(), LAYOUT, 1 << 20)
    sizes = np.array([len(j) for j in JPEGS[:3]], np.uint32)
    writer.append(memoryview(message), 3, sizes)
    assert [v.obj is message for v in seen] == [True] * 3
    assert [bytes(v) for v in seen] == JPEGS[:3]


@pytest.mark.long
def test_opencv_seeks_in_more_than_4_gib(tmp_path: Path) -> None:
    """Real JPEGs made large by comment segments, so that it is quick to write."""
    filler = b"".join(b"\xff\xfe\xff\xff" + bytes(65_533) for _ in range(256))  # 16 MiB of COM
    path = tmp_path / "v.avi"
    layout = AviLayout.of(WIDTH, HEIGHT, 25.0)
    writer = AviWriter.create(path, DISK, layout)
    count = 272
    for index in range(count):
        jpeg = JPEGS[index % 40]
        frame = jpeg[:2] + filler + jpeg[2:]
        append(writer, [frame])
    writer.finish()
    writer.files[0].close()
    assert path.stat().st_size > 4 << 30
    assert len(scan_avi(path).segments) == 5
    video = cv2.VideoCapture(str(path))
    assert video.get(cv2.CAP_PROP_FRAME_COUNT) == count
    with open_channel(tmp_path, "v.avi", META) as channel:
        assert len(channel) == count
        for index in (0, count - 1, count // 2, 63, 64, count - 10, 1):
            video.set(cv2.CAP_PROP_POS_FRAMES, index)
            good, image = video.read()
            assert good
            shown = [same_picture(image, j) for j in JPEGS].index(True)
            assert shown == index % 40
            ours = channel[index]
            np.testing.assert_array_equal(ours[..., ::-1], decode(JPEGS[index % 40]))
    # And unfinished: everything in order, then repaired, which reads only the last segment.
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 100_000_000)
    whole = repair_avi(path)
    assert whole < count
    video = cv2.VideoCapture(str(path))
    assert video.get(cv2.CAP_PROP_FRAME_COUNT) == whole
    video.set(cv2.CAP_PROP_POS_FRAMES, whole - 1)
    assert same_picture(video.read()[1], JPEGS[(whole - 1) % 40])
