"""What a VRS file becomes when it is imported: cameras, IMUs, and all records as they are.

The sensor `RECORDS` has every record of the file bit for bit, so nothing of the file is lost.
Pictures that a camera records unchanged are in the camera's stream alone.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

import numpy as np

from recorder.archives.importing import Contents, PlannedSensor, make_name
from recorder.archives.vrs.aria_calibration import TAG, read_mounts
from recorder.archives.vrs.packed_contents import read_packed_session
from recorder.codecs.h264 import is_key
from recorder.codecs.jpeg import jpeg_size
from recorder.common.errors import FormatError
from recorder.formats.vrs import (
    DataBlock,
    ImageContent,
    PixelFormat,
    RecordType,
    StreamId,
    VrsReader,
    VrsStream,
)
from recorder.formats.vrs.contents import (
    CAMERA,
    IMU,
    find_image,
    find_kind,
    find_play_range_s,
    is_h264,
    is_yuv,
)
from recorder.formats.vrs.headers import FILE_HEADER_BYTES, FileHeader
from recorder.session.vrs.files import map_vrs_streams

KIND: Final = "VRS file"
RECORDS: Final = "vrs"
"""Name of the sensor that has all records."""
_MOST_BYTES: Final = 1 << 28
_JPEG: Final = b"\xff\xd8"
_ENCODED: Final = "encoded as JPEG; the original ones are in the records"
_RAW: Final = frozenset(
    {
        *(PixelFormat.GREY8, PixelFormat.GREY10, PixelFormat.GREY12, PixelFormat.GREY16),
        *(PixelFormat.BAYER8_RGGB, PixelFormat.BAYER8_BGGR, PixelFormat.BAYER8_GBRG),
        PixelFormat.BAYER10_GBRG,
    }
)
"""Raw pictures that keep their values."""
_COLOURS: Final = frozenset({PixelFormat.RGB8, PixelFormat.BGR8, PixelFormat.RGBA8})
_EPOCH_NS: Final = 946_684_800 * 10**9  # 2000


def fits(path: Path) -> bool:
    """Return whether a file is a VRS file by its first bytes or its name."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(FILE_HEADER_BYTES)
    try:
        FileHeader.unpack(head, path)
    except FormatError:
        return path.suffix == ".vrs"
    return True


def read_contents(path: Path) -> Contents:
    """Return what a VRS file becomes.

    Raises:
        FormatError: it is no VRS file, or has no data, or no times.
        OSError: it cannot be read.
    """
    with VrsReader(path, most_bytes=_MOST_BYTES) as vrs:
        if "" in map_vrs_streams({each.id: each.tags for each in vrs.streams.values()}):
            return read_packed_session(path)
        begin_s, end_s = find_play_range_s(vrs)
        contents = Contents(path, KIND, round(begin_s * 1e9), round(end_s * 1e9))
        _Reader(vrs, contents).read()
    return contents


class _Reader:
    """Reader of the streams of one file."""

    def __init__(self, vrs: VrsReader, contents: Contents) -> None:
        self._vrs, self._contents = vrs, contents
        self._source = f"vrs:{contents.path.absolute()}"
        self._names = [RECORDS]
        self._cut: list[str] = []

    def read(self) -> None:
        """Add the sensors, and the notes on what the file does not say."""
        contents, vrs = self._contents, self._vrs
        for stream in vrs.streams.values():
            self._add_sensor(stream)
        if (calibration := vrs.tags.get(TAG)) is not None:
            self._add_mounts(calibration)
        becomes = "every record bit for bit, and the tags"
        becomes += f"; without the pictures of {', '.join(self._cut)}" if self._cut else ""
        options = {"without_pictures": self._cut} if self._cut else {}
        records = PlannedSensor(
            *(RECORDS, "topics", self._source, "all records", becomes, len(vrs) + 1),
            options=options,
        )
        contents.sensors.append(records)
        contents.notes.append("a VRS file does not count lost samples: their number is unknown")
        if contents.start_ns < _EPOCH_NS:
            start_s = contents.start_ns / 1e9
            contents.notes.append(
                f"times are of the file's own clock, which begins at {start_s:.1f} s, not of 1970"
            )
        if vrs.tail is not None:
            contents.notes.append(f"the file is not whole: {vrs.tail}")

    def _add_sensor(self, stream: VrsStream) -> None:
        """Add the sensor of a camera or an IMU; other streams are records alone."""
        records = self._vrs.records(stream.id, RecordType.DATA)
        try:
            first = next(records, None)
            blocks = [] if first is None else first.blocks()
        except FormatError as error:
            self._contents.notes.append(f"{stream.id}: {error}: in the records alone")
            return
        kind = find_kind(blocks)
        if not kind:
            return
        becomes, options = "values of the IMU", dict[str, str]()
        lost: list[str] = []
        if kind == CAMERA:
            picture = find_image(blocks)
            assert picture is not None
            try:
                becomes, kept = _describe_pictures(picture)
                if is_h264(picture):
                    lost = self._find_start(stream.id)
            except FormatError as error:
                self._contents.notes.append(f"{stream.id}: {error}: in the records alone")
                return
            if kept:
                self._cut.append(str(stream.id))
                options = {"codec": "copy"} if _is_raw(picture) else {}
        name = make_name(self._choose_name(stream), self._names)
        self._names.append(name)
        count = self._vrs.counts()[stream.id, RecordType.DATA]
        origin = f"{stream.id} ({', '.join(filter(None, (stream.name, stream.flavor)))})"
        self._contents.sensors.append(
            PlannedSensor(
                name,
                {CAMERA: "camera", IMU: "imu"}[kind],
                f"{self._source}#{stream.id}",
                origin,
                becomes,
                count,
                lost,
                options,
            )
        )

    def _add_mounts(self, text: str) -> None:
        """Add the mounts of Aria's calibration; name the models that are not taken."""
        contents = self._contents
        sensors = {
            sensor.source.rpartition("#")[2]: sensor.name
            for sensor in contents.sensors
            if sensor.driver != "topics"
        }
        models: dict[str, list[str]] = {}
        try:
            for stream, entry, model in read_mounts(text):
                if (name := sensors.get(stream)) is not None:
                    contents.calibration[name] = entry
                    models.setdefault(model, []).append(name)
        except FormatError as error:
            contents.calibration.clear()
            contents.notes.append(str(error))
            return
        models.pop("", None)
        for model, names in models.items():
            text = "no model of the recorder's; it is in the tags"
            contents.lost[f"models of {', '.join(names)}"] = f"{model} is {text}"
        if contents.calibration:
            contents.notes.append("the rig is Aria's device frame, that of the left SLAM camera")

    def _choose_name(self, stream: VrsStream) -> str:
        """Return a name made of the type's name, with the instance if there are several."""
        name = re.sub(r"(?i)\b(class|data|device)\b", "", stream.name)
        many = sum(other.type_id == stream.id.type_id for other in self._vrs.streams) > 1
        return f"{name} {stream.id.instance}" if many else name

    def _find_start(self, stream: StreamId) -> list[str]:
        """Return what of a video is not in the camera's stream.

        Raises:
            FormatError: it has no keyframe.
        """
        for number, record in enumerate(self._vrs.records(stream, RecordType.DATA)):
            with contextlib.suppress(FormatError):
                picture = find_image(record.blocks())
                if is_h264(picture) and is_key(picture.data):
                    before = f"{number} pictures before the first keyframe are in the records alone"
                    return [before] if number else []
        raise FormatError("video without a keyframe")


def _is_raw(picture: DataBlock) -> bool:
    content = picture.content
    return isinstance(content, ImageContent) and content.format == "raw"


def _is_decoded(data: bytes) -> bool:
    import cv2

    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) is not None


def _describe_pictures(picture: DataBlock) -> tuple[str, bool]:
    """Return what a camera records of such pictures, and whether it keeps all of them.

    Raises:
        FormatError: a camera cannot record them.
    """
    content = picture.content
    assert isinstance(content, ImageContent)
    if is_h264(picture):
        return "H.264 as it is; the extra `rtsp` decodes it", True
    if content.format == "raw":
        name = content.pixel_format.text
        if is_yuv(picture):
            return f"pictures, {name}, {_ENCODED}", False
        picture.array()
        if content.pixel_format in _RAW:
            return f"raw pictures, {name}", True
        if content.pixel_format in _COLOURS:
            return f"pictures, {name}, {_ENCODED}", False
    elif picture.data[:2] == _JPEG and jpeg_size(picture.data) is not None:
        return "JPEGs as they are", True
    elif content.format == "png" and _is_decoded(picture.data):
        return f"PNGs, {_ENCODED}", False
    raise FormatError(f"pictures '{content}' are not recorded by cameras")
