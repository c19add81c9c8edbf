"""``mjpg``: reading the JPEG frames of an AVI file.

Frames decode to RGB, as roverd's ``VideoChannel`` gives them (u1 [height, width, 3]).  Pixel
values are libjpeg-turbo's; FFmpeg, which roverd uses through OpenCV, differs from it by a few
counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.contract.errors import FormatError
from recorder.formats.roverd.avi import CHUNK
from recorder.formats.roverd.avi_demux import chunk_id_fits, find_frames
from recorder.formats.roverd.channel import ChannelReader, Layout, ReadFile


class MjpgReader(ChannelReader):
    """Reads ``mjpg``; holds 12 bytes a frame and the frame that is decoded."""

    def __init__(self, path: Path, layout: Layout, partial: bool = False) -> None:
        super().__init__(path, layout)
        check_image_layout(path, layout)
        self._file = ReadFile(path)
        try:
            self._frames = find_frames(self._file)
            self._take_tail(self._frames.tail, partial)
            if self._frames.missing and not partial:
                raise FormatError(
                    f"{path}: its header counts {self._frames.missing} frames more than the "
                    f"{len(self)} that it holds"
                )
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._frames.sizes)

    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        block = np.empty((stop - start, *self.shape), self.dtype)
        for index in range(start, stop):
            decode_jpeg(self.encoded(index), block[index - start], f"{self.path}: frame {index}")
        return block

    def encoded(self, index: int) -> bytes:
        at = self._index(index)
        offset, size = int(self._frames.offsets[at]), int(self._frames.sizes[at])
        data = self._file.read(offset - CHUNK.size, CHUNK.size + size)
        name, chunk_bytes = CHUNK.unpack_from(data)
        if not chunk_id_fits(name) or chunk_bytes != size:
            raise FormatError(f"{self.path}: frame {at}: no frame where the index says, {offset}")
        return data[CHUNK.size :]

    def close(self) -> None:
        self._file.close()


def check_image_layout(path: Path, layout: Layout) -> None:
    """FormatError unless the layout is that of RGB images, u1 [height, width, 3]."""
    if layout.dtype != np.uint8 or len(layout.shape) != 3 or layout.shape[2] != 3:
        raise FormatError(
            f"{path}: {layout.format} holds u1 [height, width, 3], "
            f"not {layout.dtype} {list(layout.shape)}"
        )


def decode_jpeg(data: bytes, out: npt.NDArray[Any], where: str) -> None:
    """Decode a JPEG into RGB.

    Args:
        data: the JPEG.
        out: u1 [height, width, 3], filled.
        where: what messages start with.

    Raises:
        FormatError: it does not decode, or its size is not that of `out`.
    """
    import cv2

    # A stored orientation is not applied: video players do not, and shapes must hold.
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flags) if data else None
    if image is None:
        raise FormatError(f"{where}: {len(data)} bytes that do not decode as JPEG")
    if image.shape != out.shape:
        raise FormatError(f"{where}: is {image.shape}, the channel's shape is {out.shape}")
    cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=out)
