"""Files of the format's own C++ writer, and what is in them.

The files in golden/ were made by

    python -m tests.formats.vrs.golden

with PyPI `vrs` 1.2.2, whose compiled module can write three sample streams.  They are read by
tests that do not need that package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FOLDER = Path(__file__).parent / "golden"
WIDTH, HEIGHT, GREY8 = 24, 16, 1
FRAMES = 5
TAGS = {"vehicle": "rig-1", "ort": "München"}
STREAM_TAGS = {"place": "roof"}

FILES: dict[str, dict[str, Any]] = {
    "plain.vrs": {"late": False, "compression": "NONE"},
    "late.vrs": {"late": True, "compression": "NONE"},
    "lz4.vrs": {"late": False, "compression": "LZ4_FAST"},
    "zstd.vrs": {"late": False, "compression": "ZSTD_MEDIUM"},
}
STREAMS = ("sample", "sample_with_image", "sample_with_multiple_data_layout")


def metadata(stream: int, frame: int, layout: int = 0) -> dict[str, Any]:
    """Values of a data record's layout."""
    number = 100 * stream + 10 * frame + layout
    return {
        "room_temperature": number + 0.25,
        "camera_id": -number,
        "some_string_int_map": {f"key {i}": number + i for i in range(frame)},
        "doubles": [number / 3, float("inf"), -0.0],
        "some_string": f"Bild {number} äöü " + "x" * 250,
    }


def image(stream: int, frame: int) -> npt.NDArray[np.uint8]:
    """Pixels [HEIGHT, WIDTH] of a data record."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    pixels: npt.NDArray[np.uint8] = (x // 4 * 10 + y // 4 * 40 + stream + frame).astype(np.uint8)
    return pixels


def configuration() -> dict[str, int]:
    """Values of a configuration record."""
    return {"image_width": WIDTH, "image_height": HEIGHT, "image_pixel_format": GREY8}


def timestamp_s(stream: int, frame: int) -> float:
    """Of a data record; the configuration's is 0.5."""
    return 1.0 + frame * 0.1 + stream * 0.01


def write(path: Path, late: bool, compression: str) -> None:
    """One file, by the C++ writer.

    Late streams are declared in TAGS records, in which this way of writing has no formats yet.
    """
    import vrsbindings  # type: ignore[import-not-found]

    writer = vrsbindings.Writer()
    writer.resetNewInstanceIds()
    for key, value in TAGS.items():
        writer.setTag(key, value)
    if late:
        writer.create(str(path))
    streams = [writer.createStream(name) for name in STREAMS]
    formats = []
    for stream in streams:
        stream.setTag(*next(iter(STREAM_TAGS.items())))
        stream.setCompression(getattr(vrsbindings.CompressionPreset, compression))
        kinds = (vrsbindings.RecordType.CONFIGURATION, vrsbindings.RecordType.DATA)
        formats.append([stream.createRecordFormat(kind) for kind in kinds])
    if not late:
        writer.create(str(path))
    for number, (stream, (config, _)) in enumerate(zip(streams, formats, strict=True)):
        _set(config, [configuration()])
        stream.createRecord(0.5, config)
        for frame in range(FRAMES):
            data = formats[number][1]
            _set(data, [metadata(number, frame, k) for k in range(2 if number == 2 else 1)])
            images = [image(number, frame)] if number else []
            stream.createRecord(timestamp_s(number, frame), data, *images)
    writer.writeRecords(1e9)
    assert writer.close() == 0


def _set(record_format: Any, layouts: list[dict[str, Any]]) -> None:
    for members, values in zip(record_format.getMembers(), layouts, strict=True):
        for label, value in values.items():
            members[label].set(value)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for name, options in FILES.items():
        write(folder / name, **options)
        print(folder / name, (folder / name).stat().st_size)
