"""Streams whose samples are running numbers, so that each sample found tells which one it is."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from recorder.bus.wire import Kind, Message
from recorder.codecs.storage import open_channel
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.files import Buffer

WIDTH = 32
_COMMENT = b"\xff\xfe\x00\x0a"  # a JPEG comment of eight bytes (T.81, B.2.4.5)


def stream(name: str, rate_hz: float = 100.0, formats: tuple[str, ...] = ("raw",)) -> StreamSpec:
    """A stream with one channel per format, all of which hold the sample's number."""
    channels = {
        "raw": ChannelSpec("raw", "raw", "u8", (WIDTH,)),
        "lzmaf": ChannelSpec("packed", "lzmaf", "u8", (WIDTH,)),
        "mjpg": ChannelSpec("video.avi", "mjpg", "u1", (8, 8, 3)),
    }
    return StreamSpec(name, tuple(channels[f] for f in formats), rate_hz=rate_hz)


def values(number: int) -> npt.NDArray[np.uint64]:
    """u8 [WIDTH], different at every place for every number."""
    return np.arange(WIDTH, dtype="<u8") + np.uint64(number * 1000)


@cache
def _picture() -> bytes:
    import cv2

    return cv2.imencode(".jpg", np.full((8, 8, 3), 90, np.uint8))[1].tobytes()


def jpeg(number: int) -> bytes:
    """A picture with the number in its comment."""
    picture = _picture()
    return picture[:2] + _COMMENT + number.to_bytes(8, "big") + picture[2:]


def packed(number: int) -> bytes:
    return lzma.compress(values(number).tobytes(), lzma.FORMAT_XZ, preset=0)


def encoded(number: int, format_: str) -> bytes:
    match format_:
        case "raw":
            return values(number).tobytes()
        case "lzmaf":
            return packed(number)
        case _:
            return jpeg(number)


def message(spec: StreamSpec, numbers: list[int], t_ns: int, step_ns: int = 1_000_000) -> Message:
    """A data message of those samples, `step_ns` apart from `t_ns` on; not numbered yet."""
    frames: list[Buffer] = []
    sizes = []
    for channel in spec.channels:
        parts = [encoded(number, channel.format) for number in numbers]
        frames.append(b"".join(parts))
        if channel.variable:
            sizes.append(np.array([len(part) for part in parts], np.uint32))
    return Message(
        Kind.DATA,
        stream=spec.name,
        count=len(numbers),
        t_mono_ns=t_ns + step_ns * np.arange(len(numbers), dtype=np.int64),
        sizes=tuple(sizes),
        frames=frames,
    )


def stored(session: Path, name: str) -> list[int]:
    """The numbers of all samples of a closed session's stream; each one whole in every channel."""
    folder = session / name
    if not folder.is_dir():
        return []
    meta = json.loads((folder / "meta.json").read_bytes())
    columns: dict[str, list[int]] = {}
    for channel, entry in meta.items():
        with open_channel(folder, channel, entry) as reader:
            match entry["format"], channel:
                case _, "ts" | "seq" | "t_mono" | "t_dev":
                    columns[channel] = [0] * len(reader)
                case "mjpg", _:
                    columns[channel] = [
                        _number_of_jpeg(reader.encoded(i)) for i in range(len(reader))
                    ]
                case _:
                    columns[channel] = [_number_of_values(v) for v in reader]
    lengths = {channel: len(column) for channel, column in columns.items()}
    assert len(set(lengths.values())) == 1, lengths
    content = [c for name, c in columns.items() if name not in ("ts", "seq", "t_mono", "t_dev")]
    assert all(column == content[0] for column in content), f"{folder}: channels disagree"
    return content[0]


def _number_of_values(found: npt.NDArray[np.uint64]) -> int:
    number = int(found[0]) // 1000
    np.testing.assert_array_equal(found, values(number))
    return number


def _number_of_jpeg(found: bytes) -> int:
    assert found[2:6] == _COMMENT
    number = int.from_bytes(found[6:14], "big")
    assert found == jpeg(number)
    return number
