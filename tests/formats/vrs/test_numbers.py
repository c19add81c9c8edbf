"""The format's numbers and names, against those of its own source.

They were read in facebookresearch/vrs at 29a40dc: `vrs/StreamId.h` and `.cpp`, `vrs/RecordFormat.h`
and `.cpp`, `vrs/Record.h`, and `vrs/FileFormat.cpp` for what makes a record's header implausible.
"""

from __future__ import annotations

import pytest

from recorder.formats.vrs.compression import Compression
from recorder.formats.vrs.headers import RecordHeader, RecordType
from recorder.formats.vrs.media import (
    AUDIO_FORMATS,
    IMAGE_FORMATS,
    AudioSampleFormat,
    PixelFormat,
)
from recorder.formats.vrs.streams import RecordableType, recordable_name

# Name in RecordFormat strings, and bytes of a raw image of 7x5 pixels, in the order of the numbers.
PIXELS = (
    ("undefined", None),
    ("grey8", 35),
    ("bgr8", 105),
    ("depth32f", 140),
    ("rgb8", 105),
    ("yuv_i420_split", 35 + 2 * 4 * 3),
    ("rgba8", 140),
    ("rgb10", 210),
    ("rgb12", 210),
    ("grey10", 70),
    ("grey12", 70),
    ("grey16", 70),
    ("rgb32F", 420),
    ("scalar64F", 280),
    ("yuy2", 16 * 5),
    ("rgb_ir_4x4", 35),
    ("rgba32F", 560),
    ("bayer8_rggb", 35),
    ("raw10", 10 * 5),
    ("raw10_bayer_rggb", 10 * 5),
    ("raw10_bayer_bggr", 10 * 5),
    ("yuv_420_nv21", 35 + 8 * 3),
    ("yuv_420_nv12", 35 + 8 * 3),
    ("grey10packed", 10 * 5),
    ("bayer8_bggr", 35),
    ("bayer10_gbrg", 70),
    ("bayer8_gbrg", 35),
)
# Name in RecordFormat strings, and bytes of a sample, in the order of the numbers.
AUDIO_SAMPLES = (
    ("undefined", 0),
    ("int8", 1),
    ("uint8", 1),
    ("uint8alaw", 1),
    ("uint8mulaw", 1),
    ("int16le", 2),
    ("uint16le", 2),
    ("int16be", 2),
    ("uint16be", 2),
    ("int24le", 3),
    ("uint24le", 3),
    ("int24be", 3),
    ("uint24be", 3),
    ("int32le", 4),
    ("uint32le", 4),
    ("int32be", 4),
    ("uint32be", 4),
    ("float32le", 4),
    ("float32be", 4),
    ("float64le", 8),
    ("float64be", 8),
)
RECORDABLES = {
    200: "Forward Camera Class",
    201: "Upward Camera Class",
    202: "Downward Camera Class",
    203: "Backward Camera Class",
    204: "Sideward Camera Class",
    205: "Outward Camera Class",
    206: "Inward Camera Class",
    209: "Depth Camera Class",
    210: "IR Camera Class",
    211: "Eye Camera Class",
    212: "Face Camera Class",
    214: "RGB Camera Class",
    230: "Mono Audio Class",
    231: "Stereo Audio Class",
    232: "Ambient Audio Class",
    240: "Sensor Data Class",
    241: "IMU Data Class",
    242: "Accelerometer Data Class",
    243: "Magnetometer Data Class",
    244: "Gyroscope Data Class",
    245: "Lidar Data Class",
    246: "Temperature Data Class",
    247: "Barometer Data Class",
    254: "Radar Data Class",
    260: "Calibration Data Class",
    262: "Setup Data Class",
    263: "Diagnostic Data Class",
    264: "Performance Data Class",
    280: "Sync Data Class",
    281: "GPS Data Class",
    320: "Event Data Class",
    321: "Command Data Class",
    371: "Pose Data Class",
    372: "Motion Data Class",
    376: "Point Cloud Data Class",
    400: "Annotation Data Class",
    998: "Sample Class",
    999: "Unit Test Class",
    1201: "Camera Data (SLAM)",
    1202: "IMU Data (SLAM)",
    1203: "Magnetometer Data (SLAM)",
}


def test_pixel_formats() -> None:
    assert [(p.text, p.raw_size(7, 5)) for p in PixelFormat] == list(PIXELS)
    assert [int(pixel) for pixel in PixelFormat] == list(range(len(PIXELS)))
    assert [PixelFormat.from_text(name) for name, _ in PIXELS] == list(PixelFormat)


def test_audio_sample_formats() -> None:
    assert [(s.text, s.bytes_per_sample) for s in AudioSampleFormat] == list(AUDIO_SAMPLES)
    assert [int(sample) for sample in AudioSampleFormat] == list(range(len(AUDIO_SAMPLES)))
    assert [AudioSampleFormat.from_text(name) for name, _ in AUDIO_SAMPLES] == list(
        AudioSampleFormat
    )


def test_image_and_audio_formats() -> None:
    names = ("undefined", "raw", "jpg", "png", "video", "jxl", "custom_codec")
    assert names == IMAGE_FORMATS
    assert AUDIO_FORMATS == ("undefined", "pcm", "opus")


def test_recordable_types() -> None:
    assert {int(kind): recordable_name(kind) for kind in RecordableType} == RECORDABLES
    assert recordable_name(1200) == "Recordable 1200"


def test_record_types_and_compressions() -> None:
    assert {k.tag: int(k) for k in RecordType} == {
        "State": 1,
        "Configuration": 2,
        "Data": 3,
        "Tags": 4,
    }
    assert {k.name: int(k) for k in Compression} == {"NONE": 0, "LZ4": 1, "ZSTD": 2}


RAW = RecordHeader(132, 132, 245, 1, 0.5, 1, RecordType.DATA, Compression.NONE, 0)
PACKED = RAW._replace(compression=Compression.ZSTD)


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (RAW, None),
        (RAW._replace(size=32, previous_size=32), None),
        (RAW._replace(previous_size=0), None),
        (RAW._replace(size=31), "size 31"),
        (RAW._replace(previous_size=31), "previous size 31"),
        (RAW._replace(previous_size=1), "previous size 1"),
        (RAW._replace(record_type=RecordType.STATE), None),
        (RAW._replace(record_type=RecordType.TAGS), None),
        (RAW._replace(record_type=0), "record type 0"),
        (RAW._replace(record_type=5), "record type 5"),
        (PACKED._replace(uncompressed_size=100), None),
        (PACKED._replace(uncompressed_size=100, compression=Compression.LZ4), None),
        (PACKED._replace(uncompressed_size=100, compression=0), "compression type 0"),
        (PACKED._replace(uncompressed_size=100, compression=3), "compression type 3"),
        # Compressed data exceed the uncompressed ones by less than the larger of 50 bytes and a
        # half, from 200 bytes on by less than the larger of 100 bytes and a twentieth.
        (PACKED._replace(uncompressed_size=20, size=32 + 69), None),
        (PACKED._replace(uncompressed_size=20, size=32 + 70), "70 bytes compressed, 20 uncompr"),
        (PACKED._replace(uncompressed_size=199, size=32 + 297), None),
        (PACKED._replace(uncompressed_size=199, size=32 + 298), "298 bytes compressed"),
        (PACKED._replace(uncompressed_size=200, size=32 + 299), None),
        (PACKED._replace(uncompressed_size=200, size=32 + 300), "300 bytes compressed"),
        (PACKED._replace(uncompressed_size=4000, size=32 + 4199), None),
        (PACKED._replace(uncompressed_size=4000, size=32 + 4200), "4200 bytes compressed"),
        (PACKED._replace(uncompressed_size=20, size=32 + 70, type_id=1), None),  # an index
    ],
)
def test_headers_that_can_be_of_a_record(header: RecordHeader, fault: str | None) -> None:
    found = header.fault()
    assert found is None if fault is None else found is not None and found.startswith(fault)
