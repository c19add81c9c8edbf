"""Layouts with every piece type, values for them, and files of both."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from recorder.common.files import PosixDisk
from recorder.formats.vrs import (
    Array,
    AudioContent,
    AudioSampleFormat,
    Compressor,
    CustomContent,
    DataLayout,
    Enum,
    ImageContent,
    LayoutSpec,
    PixelFormat,
    RecordableType,
    RecordLayout,
    RecordType,
    StreamId,
    StreamSpec,
    String,
    StringMap,
    Struct,
    Value,
    Vector,
    VrsWriter,
)
from recorder.formats.vrs.headers import RECORD_HEADER, FileHeader
from recorder.formats.vrs.layout import (
    ARRAY,
    POD_TYPES,
    STRING_MAP,
    TEXT,
    VALUE,
    VECTOR,
    ElementType,
    Matrix3Df,
    Piece,
    Point3Dd,
    float32,
    float64,
    string,
    uint8,
    uint32,
)
from recorder.formats.vrs.media import ImageSpec, NextContentBlockSpec

CREATION_ID = 1_700_000_000_000_000_001


def every_piece() -> LayoutSpec:
    """One piece of every kind and element type, and of arrays one with three elements."""
    pieces: list[Piece] = []
    for element in POD_TYPES:
        pieces += (
            Piece(VALUE, element, f"value/{element.name}"),
            Piece(ARRAY, element, f"array/{element.name}", 3),
            Piece(VECTOR, element, f"vector/{element.name}"),
            Piece(STRING_MAP, element, f"map/{element.name}"),
        )
    pieces += (
        Piece(VECTOR, string, "vector/string"),
        Piece(STRING_MAP, string, "map/string"),
        Piece(TEXT, string, "text"),
    )
    return LayoutSpec(pieces)


def some_values(spec: LayoutSpec, rng: np.random.Generator) -> list[Any]:
    """Values for all pieces of a layout, with the extremes among them."""
    return [_value(piece, rng) for piece in spec.pieces]


def _value(piece: Piece, rng: np.random.Generator) -> Any:
    words = ["", "a", "ä ö", "key", "word " * 5]
    count = int(rng.integers(0, 4))
    if piece.kind == TEXT:
        return str(rng.choice(words))
    if piece.kind == STRING_MAP:
        keys = words[:count]
        if piece.element is string:
            return {key: str(rng.choice(words)) for key in keys}
        return {key: _scalar(_numbers(piece.element, 1, rng)[0]) for key in keys}
    if piece.element is string:
        return [str(word) for word in rng.choice(words, count)]
    if piece.kind == VALUE:
        return _scalar(_numbers(piece.element, 1, rng)[0])
    return _numbers(piece.element, piece.count if piece.kind == ARRAY else count, rng)


def _scalar(value: Any) -> Any:
    return value.item() if np.ndim(value) == 0 else value


def _numbers(element: ElementType, count: int, rng: np.random.Generator) -> Any:
    shape = (count, *element.shape)
    if element.dtype.kind == "b":
        return rng.random(shape) < 0.5
    if element.dtype.kind == "f":
        values = rng.normal(size=shape) * 10.0 ** rng.integers(-30, 30, shape)
        values[rng.random(shape) < 0.1] = np.inf
        return values.astype(element.dtype)
    info = np.iinfo(element.dtype)
    values = rng.integers(info.min, info.max, shape, element.dtype, endpoint=True)
    return np.where(rng.random(shape) < 0.2, info.min, values).astype(element.dtype)


def same(left: Any, right: Any) -> bool:
    """Whether two values of a piece are the same, NaN being itself."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, str) or isinstance(right, str):
        return isinstance(left, str) and left == right
    if isinstance(left, list) and left and isinstance(left[0], str):
        return left == list(right)
    a, b = np.asarray(left), np.asarray(right)
    if not a.size and not b.size:
        return True
    return a.shape == b.shape and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))


class Mode(IntEnum):
    MANUAL = 0
    AUTO = 1


class Pose(DataLayout):
    position_m = Value(Point3Dd, "position")
    rotation = Value(Matrix3Df, "rotation")
    history = Vector(Point3Dd, "history")


class CameraConfiguration(ImageSpec):
    name = String("name")
    settings = StringMap(float64, "settings")


class CameraData(DataLayout):
    exposure_s = Value(float64, "exposure_time", unit="s")
    mode = Enum(Mode, uint8, "mode", default=Mode.AUTO)
    roi = Array(uint32, "roi", 4, default=[0, 0, 8, 6])
    gains = Vector(float32, "gains")
    poses = Struct(Pose, "poses", 2)


class ImuData(DataLayout):
    acceleration = Value(Point3Dd, "acceleration", unit="m/s2")
    sequence = Value(uint32, "sequence")


class AudioConfiguration(DataLayout):
    sample_format = Enum(AudioSampleFormat, uint8, "audio_sample_format")
    channels = Value(uint8, "audio_channel_count")
    rate_hz = Value(uint32, "audio_sample_rate")


CAMERA = StreamSpec(
    RecordableType.RGB_CAMERA,
    "recorder/camera",
    {
        (RecordType.CONFIGURATION, 1): RecordLayout(CameraConfiguration),
        (RecordType.DATA, 1): RecordLayout(CameraData, ImageContent(format="raw")),
        (RecordType.DATA, 2): RecordLayout(CameraData, ImageContent(format="jpg")),
    },
    {"place": "Dach"},
    serial="camera-1",
)
IMU = StreamSpec(
    RecordableType.IMU_DATA,
    "recorder/imu",
    {(RecordType.DATA, 1): RecordLayout(ImuData), (RecordType.STATE, 1): RecordLayout(Pose)},
    serial="imu-1",
)
LIDAR = StreamSpec(
    RecordableType.LIDAR_DATA,
    "recorder/lidar",
    {
        (RecordType.DATA, 1): RecordLayout(
            ImuData,
            CustomContent(size=5, format="sweep"),
            NextContentBlockSpec,
            CustomContent(format="more"),
            CustomContent(size=3),
        )
    },
    serial="lidar-1",
)
AUDIO = StreamSpec(
    RecordableType.STEREO_AUDIO,
    "recorder/audio",
    {
        (RecordType.CONFIGURATION, 1): RecordLayout(AudioConfiguration),
        (RecordType.DATA, 1): RecordLayout(ImuData, AudioContent(format="pcm")),
    },
    serial="audio-1",
)
CAMERA_ID, IMU_ID, LIDAR_ID, AUDIO_ID = (
    StreamId(int(s.type_id), 1) for s in (CAMERA, IMU, LIDAR, AUDIO)
)
WIDTH, HEIGHT = 8, 6
TAGS = {"vehicle": "rig-1", "note": "äöü"}
RECORDS_PER_STEP = 4


def create(path: Path) -> VrsWriter:
    """A file with camera, IMU and audio in its description."""
    return VrsWriter.create(path, PosixDisk(), [CAMERA, IMU, AUDIO], TAGS, creation_id=CREATION_ID)


def begin(writer: VrsWriter) -> None:
    """The configuration records."""
    config = CameraConfiguration(
        width=WIDTH,
        height=HEIGHT,
        pixel_format=PixelFormat.RGB8,
        name="front",
        settings={"gamma": 2.2},
    )
    writer.streams[CAMERA_ID].write(RecordType.CONFIGURATION, 0.0, config)
    audio = AudioConfiguration(sample_format=AudioSampleFormat.INT16LE, channels=2, rate_hz=48000)
    writer.streams[AUDIO_ID].write(RecordType.CONFIGURATION, 0.0, audio)


def pixels(step: int) -> bytes:
    return bytes(i * 7 + step & 255 for i in range(WIDTH * HEIGHT * 3))


def imu_data(step: int) -> ImuData:
    return ImuData(acceleration=[step, -step / 3, 9.81], sequence=step)


def write_step(writer: VrsWriter, step: int, compressor: Compressor | None = None) -> None:
    """Four records of one instant; the lidar appears at step 1, and comes at every second."""
    t = 1.0 + step * 0.25
    data = CameraData(exposure_s=0.001 * step, gains=np.arange(step % 4, dtype=np.float32))
    data.poses[1].history = np.arange(3 * (step % 3)).reshape(-1, 3)
    streams = writer.streams
    # Out of time order on purpose: sensors arrive as they like.
    streams[CAMERA_ID].write(RecordType.DATA, t, data, pixels(step), compressor=compressor)
    streams[IMU_ID].write(RecordType.DATA, t - 0.1, imu_data(step))
    samples = np.arange(20, dtype="<i2") + step
    streams[AUDIO_ID].write(RecordType.DATA, t, imu_data(step), samples.tobytes())
    if step % 2:
        if LIDAR_ID not in streams:
            writer.add_stream(LIDAR)
        more = bytes([step]) * (step % 7)
        sizes = NextContentBlockSpec(next_content_block_size=len(more))
        blocks = (imu_data(step), b"sweep", sizes, more, b"end")
        writer.streams[LIDAR_ID].write(RecordType.DATA, t, *blocks)
    else:
        streams[IMU_ID].write(RecordType.STATE, t, Pose(position_m=[step, 0, 0]))


def flush(writer: VrsWriter) -> tuple[int, int]:
    """Lengths as a journal would commit them."""
    for file in writer.files:
        file.flush()
    return writer.files[0].length, writer.files[1].length


def close(writer: VrsWriter) -> tuple[int, int]:
    lengths = flush(writer)
    for file in writer.files:
        file.close()
    return lengths


def write_file(
    path: Path, steps: int = 6, finish: bool = True, compressor: Compressor | None = None
) -> Path:
    """A whole file."""
    writer = create(path)
    begin(writer)
    for step in range(steps):
        write_step(writer, step, compressor)
    if finish:
        writer.finish()
    close(writer)
    return path


def record_ends(path: Path) -> list[int]:
    """Ends of the description and of all records, TAGS records among them."""
    data = path.read_bytes()
    ends, at = [], 80
    while at < len(data):
        at += int.from_bytes(data[at : at + 4], "little")
        ends.append(at)
    return ends


def split_file(folder: Path, *, closed: bool, frames: int = 3) -> Path:
    """The same records with description and index in a first chunk of their own."""
    whole = write_file(folder / "whole.vrs")
    data = whole.read_bytes()
    header = FileHeader.unpack(data, whole)
    first = record_ends(whole)[0]
    records = data[first : header.index_offset]
    entries = np.frombuffer((folder / "whole.vrs.index").read_bytes(), "V19")
    parts = [
        zstandard.ZstdCompressor().compress(p.tobytes()) for p in np.array_split(entries, frames)
    ]
    packed = b"".join(parts)
    size, whole_size = (32 + len(packed), 19 * len(entries)) if closed else (32, 0)
    index = RECORD_HEADER.pack(size, first - 80, 1, 3, 1.7976931348623157e308, 0, 3, 2, whole_size)
    head = FileHeader(
        header.creation_id, first, 80, first + 32 + len(packed) if closed else 0
    ).pack()
    # Its first record's previous one is the empty index.
    records = records[:4] + struct.pack("<I", 32) + records[8:]
    (folder / "s.vrs").write_bytes(head + data[80:first] + index + packed)
    (folder / "s.vrs_1").write_bytes(records)
    return folder / "s.vrs"
