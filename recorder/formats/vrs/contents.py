"""Content of the streams of a VRS file: pictures of a camera, values of an IMU, or others.

>>> find_kind(next(vrs.records("1202-1", RecordType.DATA)).blocks())  # doctest: +SKIP
'imu'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.formats.vrs.content import Block, DataBlock, LayoutBlock
from recorder.formats.vrs.headers import RecordType
from recorder.formats.vrs.media import PixelFormat
from recorder.formats.vrs.reader import VrsReader
from recorder.formats.vrs.record_format import ImageContent

CAMERA, IMU = "camera", "imu"
"""Kinds of streams that a driver may play from a VRS file."""

_PIECES: Mapping[str, tuple[str, ...]] = {
    "acc": ("acc", "accelerometer", "acceleration", "accel", "accels_msec2", "linear_acceleration"),
    "avel": ("avel", "gyroscope", "gyro", "angular_velocity", "gyros_radsec"),
    "rot": ("rot",),
    "mag": ("mag", "magnetometer", "magnetic_field", "mag_tesla"),
}
"""Labels of an IMU's values in data layouts, three numbers each."""
_VALID = {"acc": "accelerometer_valid", "avel": "gyroscope_valid", "mag": "magnetometer_valid"}

YUV = frozenset(
    {
        *(PixelFormat.YUV_I420_SPLIT, PixelFormat.YUV_420_NV12, PixelFormat.YUV_420_NV21),
        PixelFormat.YUY2,
    }
)
"""Pixel formats with one value of colour for two or four pixels."""
_LATEST_S = 9.2e9  # epoch ns, as i8

Values = dict[str, npt.NDArray[np.float32]]


def find_kind(blocks: Sequence[Block]) -> str:
    """Return the kind of a stream by the blocks of a data record; "" for neither kind."""
    if find_image(blocks) is not None:
        return CAMERA
    return IMU if {"acc", "avel"} <= imu_values(find_layout(blocks)).keys() else ""


def find_layout(blocks: Sequence[Block]) -> LayoutBlock | None:
    """Return the first layout of a record; None without one."""
    return next((block for block in blocks if isinstance(block, LayoutBlock)), None)


def find_image(blocks: Sequence[Block]) -> DataBlock | None:
    """Return the first image of a record; None without one."""
    for block in blocks:
        if isinstance(block, DataBlock) and isinstance(block.content, ImageContent):
            return block
    return None


def is_h264(block: DataBlock | None) -> TypeGuard[DataBlock]:
    """Return whether a block is an access unit of H.264."""
    if block is None or not isinstance(block.content, ImageContent):
        return False
    content = block.content
    return content.format == "video" and content.codec.upper() in ("H.264", "H264")


def is_yuv(block: DataBlock) -> bool:
    """Return whether a block is a whole raw picture of `YUV`, of even size, without padding."""
    content = block.content
    if not isinstance(content, ImageContent) or content.pixel_format not in YUV:
        return False
    even = content.width % 2 == 0 and content.height % 2 == 0
    padded = content.stride or content.stride_2
    return even and not padded and content.raw_size == len(block.data)


def imu_values(layout: LayoutBlock | None) -> Values:
    """Return an IMU's values, f4 [3] each; NaN where the record marks them as invalid."""
    there = layout.as_dict() if layout is not None else {}
    found = {}
    for name, labels in _PIECES.items():
        for label in labels:
            value = np.asarray(there.get(label, ()))
            if value.shape == (3,) and value.dtype.kind in "fi":
                valid = there.get(_VALID.get(name, ""), True)
                found[name] = value.astype(np.float32) if valid else np.full(3, np.nan, np.float32)
                break
    if "mag" in found and not np.isfinite(found["mag"]).any():
        del found["mag"]
    if {"acc", "avel"} <= found.keys():
        found.setdefault("rot", np.full(3, np.nan, np.float32))
    return {name: found[name] for name in _PIECES if name in found}


def find_play_range_s(vrs: VrsReader) -> tuple[float, float]:
    """Return the first and the last time of a file's data, in s on the clock of the file.

    All sources that play a file count from the first one.

    Raises:
        FormatError: the file has no data, or times that are not within 290 years of 1970.
    """
    times = vrs.timestamps_s(types=RecordType.DATA)
    if not len(times):
        raise FormatError(f"{vrs.path}: has no data record")
    first, last = float(times[0]), float(times[-1])
    if not -_LATEST_S < first <= last < _LATEST_S:  # not a number is the last one, too
        raise FormatError(f"{vrs.path}: data from {first:g} to {last:g} s: no times")
    return first, last
