"""A VRS file with streams of many kinds, as the software of others writes them."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from recorder.common.files import PosixDisk
from recorder.formats.vrs import (
    Array,
    AudioContent,
    AudioSampleFormat,
    Compression,
    Compressor,
    CustomContent,
    DataLayout,
    ImageContent,
    PixelFormat,
    RecordLayout,
    RecordType,
    StreamId,
    StreamSpec,
    String,
    Value,
    VrsWriter,
    default_index_path,
)
from recorder.formats.vrs.layout import float32, float64, int64, uint32
from recorder.formats.vrs.streams import StreamTags
from tests.h264 import SIZE, encode

HEIGHT, WIDTH = 24, 32
COUNT = 8
START_S = 1000.5
STEP_S = 0.05
CONFIGURATION, STATE, DATA = RecordType.CONFIGURATION, RecordType.STATE, RecordType.DATA


class Settings(DataLayout):
    rate_hz = Value(float64, "nominal_rate")
    model = String("model")


class Frame(DataLayout):
    t_device_ns = Value(int64, "capture_timestamp_ns")
    exposure_s = Value(float64, "exposure_duration_s")
    size = Value(uint32, "next_content_block_size")


class Motion(DataLayout):
    t_device_ns = Value(int64, "capture_timestamp_ns")
    acceleration = Array(float32, "accelerometer", 3)
    turn = Array(float32, "gyroscope", 3)
    temperature = Value(float64, "temperature_deg_c")


class Size(DataLayout):
    size = Value(uint32, "next_content_block_size")


def jpeg(at: int) -> bytes:
    rows = np.arange(HEIGHT * WIDTH * 3, dtype=np.uint16).reshape(HEIGHT, WIDTH, 3)
    return bytes(cv2.imencode(".jpg", (rows // 12 + at).astype(np.uint8))[1])


def raw(at: int) -> bytes:
    """Return the pixels of a picture of 10 bits."""
    return (np.arange(HEIGHT * WIDTH, dtype="<u2") + at).tobytes()


def sound(at: int) -> bytes:
    return (np.arange(32, dtype="<i2") * at).tobytes()


def motion(at: int) -> Motion:
    values = np.arange(3, dtype=np.float32) / 3 + at
    return Motion(
        t_device_ns=at * 5_000_000, acceleration=values, turn=-values, temperature=20.0 + at
    )


def write_foreign(path: Path, compression: Compression = Compression.NONE) -> Path:
    """Write a file of `COUNT` data records in each stream.

    Streams: 200-1 H.264 that begins three pictures before a keyframe, 214-1 JPEGs with a custom
    block behind them, 214-2 JPEGs, 231-1 audio, 400-1 custom blocks of version 3, 500-1 records
    that no tag declares, 1201-1 grey10, 1202-1 an IMU.
    """
    settings = {(CONFIGURATION, 1): RecordLayout(Settings)}
    front = settings | {
        (STATE, 1): RecordLayout(CustomContent()),
        (DATA, 1): RecordLayout(Frame, ImageContent(format="jpg"), CustomContent(size=5)),
    }
    grey = ImageContent(format="raw", width=WIDTH, height=HEIGHT, pixel_format=PixelFormat.GREY10)
    video = ImageContent(format="video", width=SIZE[0], height=SIZE[1], codec="H.264")
    audio = AudioContent(None, "pcm", AudioSampleFormat.INT16LE, 2, 16000)
    notes = RecordLayout(CustomContent(format="notes"))
    specs = [
        StreamSpec(200, "other/video", {(DATA, 1): RecordLayout(Size, video)}),
        StreamSpec(214, "other/front", front, tags={"place": "roof"}),
        StreamSpec(214, "other/rear", {(DATA, 1): RecordLayout(ImageContent(format="jpg"))}),
        StreamSpec(231, "other/audio", {(DATA, 1): RecordLayout(audio)}),
        StreamSpec(400, "other/notes", {(DATA, 3): notes}),
        StreamSpec(500, "other/unknown", {}),
        StreamSpec(1201, "other/grey", {(DATA, 1): RecordLayout(grey)}),
        StreamSpec(1202, "other/imu", settings | {(DATA, 1): RecordLayout(Motion)}),
    ]
    writer = VrsWriter.create(path, PosixDisk(), specs, {"vehicle": "rig-9"})
    streams = {str(stream): each for stream, each in writer.streams.items()}
    packer = None if compression is Compression.NONE else Compressor(compression)
    for name, model in (("214-1", "wide"), ("1202-1", "cheap")):
        streams[name].write(CONFIGURATION, 5e-324, Settings(rate_hz=20.0, model=model))
    streams["214-1"].write(STATE, START_S + 0.11, b"warm")
    for at, unit in enumerate(encode(COUNT + 2)[2:]):
        t_s = START_S + at * STEP_S
        streams["200-1"].write(DATA, t_s, Size(size=len(unit)), unit, compressor=packer)
        frame = Frame(t_device_ns=at, exposure_s=at / 100, size=len(jpeg(at)))
        streams["214-1"].write(DATA, t_s, frame, jpeg(at), b"five!", compressor=packer)
        streams["214-2"].write(DATA, t_s, jpeg(at + 50), compressor=packer)
        streams["231-1"].write(DATA, t_s, sound(at), compressor=packer)
        streams["400-1"].write(DATA, t_s, b"note" * at, version=3, compressor=packer)
        writer.put(StreamId(500, 1), DATA, 7, t_s, [bytes([at] * 3)])
        streams["1201-1"].write(DATA, t_s, raw(at), compressor=packer)
        streams["1202-1"].write(DATA, t_s, motion(at), compressor=packer)
    return _finish(path, writer)


def _finish(path: Path, writer: VrsWriter) -> Path:
    writer.finish()
    for file in writer.files:
        file.close()
    default_index_path(path).unlink()
    return path


def write_records(
    path: Path, *records: tuple[float, bytes], compressor: Compressor | None = None
) -> Path:
    """Write a file of one stream, 500-1, with data records that no tag declares."""
    writer = VrsWriter.create_as(path, PosixDisk(), {StreamId(500, 1): StreamTags()}, {})
    for t_s, data in records:
        writer.put(StreamId(500, 1), DATA, 1, t_s, [data], compressor)
    return _finish(path, writer)
