"""Records of a stream in ``session.vrs``; the stream's declaration determines their layout.

A data record begins with a layout: times, number, epoch, and every small channel of fixed size, as
an array of its own type.  Larger channels follow as blocks, in the order of the declaration: JPEG
frames as images, raw pictures of one or two bytes per pixel as raw images, others as bytes.

Readers can find the end of one block at most by themselves, so the layout before each block holds
the block's size (``next_content_block_size``).  Before an access unit of H.264 the layout also has
the picture's size, and the keyframe with which decoding begins (VRS, DataLayoutConventions.h,
``VideoFrameSpec``).
"""

from __future__ import annotations

import contextlib
import json
import platform
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import recorder
from recorder.bus.wire import Message
from recorder.codecs import CHANNEL_FORMATS, Framing
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.files import Buffer
from recorder.common.secret_masking import mask_secrets
from recorder.config.yaml_lines import shareable_text
from recorder.formats.vrs import (
    CustomContent,
    DataLayout,
    ImageContent,
    LayoutSpec,
    PixelFormat,
    RecordableType,
    RecordLayout,
    RecordType,
    String,
    StringMap,
    Value,
)
from recorder.formats.vrs import StreamSpec as VrsStreamSpec
from recorder.formats.vrs.layout import (
    ARRAY,
    VALUE,
    ElementType,
    Piece,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
)
from recorder.formats.vrs.media import NEXT_CONTENT_BLOCK_SIZE
from recorder.formats.vrs.record_format import Content
from recorder.session.vrs.files import STREAM_TAG

SMALL_BYTES = 4096
"""Largest size of a raw channel's samples that are pieces of the layout.

Larger samples and pictures are blocks.
"""
CONFIGURATION = (RecordType.CONFIGURATION, 1)
STATE = (RecordType.STATE, 1)
DATA = (RecordType.DATA, 1)

Times = npt.NDArray[np.int64]
Stamps = npt.NDArray[np.float64]
Rows = npt.NDArray[np.uint8]

_ELEMENTS: Mapping[str, tuple[ElementType, int]] = {
    "u1": (uint8, 1),
    "u2": (uint16, 1),
    "u4": (uint32, 1),
    "u8": (uint64, 1),
    "i1": (int8, 1),
    "i2": (int16, 1),
    "i4": (int32, 1),
    "i8": (int64, 1),
    "f2": (uint16, 1),  # VRS has no half floats: stored as their bits
    "f4": (float32, 1),
    "f8": (float64, 1),
    "c8": (float32, 2),  # real, imaginary
    "c16": (float64, 2),
}
_SIZE = struct.Struct("<I")
_VIDEO = struct.Struct("<IIIdI")
_UNKNOWN_KEY = 0xFFFFFFFF


class ConfigurationData(DataLayout):
    """The configuration of a stream at the begin of an epoch (a driver's start)."""

    stream = String("stream")
    driver = String("driver")
    epoch = Value(uint64, "epoch")
    t_mono_ns = Value(int64, "t_mono_ns", unit="ns")
    clock_offset_ns = Value(
        int64, "clock_offset_ns", unit="ns", description="epoch ns minus t_mono_ns"
    )
    rate_hz = Value(float64, "nominal_rate", unit="Hz")
    declaration = String("declaration", description="channels and all else, JSON")
    settings = String("settings", description="of the device or the source, JSON")
    files = StringMap(string, "files", description="intrinsics and the like, text by file name")


class StateData(DataLayout):
    """A driver's state, a loss, an incident, an epoch's begin or end, by `kind`."""

    t_mono_ns = Value(int64, "t_mono_ns", unit="ns")
    epoch = Value(uint64, "epoch")
    seq = Value(uint64, "seq", description="of the sample that comes next")
    kind = String("kind")
    cause = String("cause")
    numbers = StringMap(float64, "numbers", description="the values that are numbers")
    values = String("values", description="all values, JSON")


class BlockSize(DataLayout):
    """The size of a block, before every block except the first."""

    size = Value(uint32, NEXT_CONTENT_BLOCK_SIZE, unit="bytes")


_METADATA = {CONFIGURATION: RecordLayout(ConfigurationData), STATE: RecordLayout(StateData)}


def create_session_stream(session: str) -> VrsStreamSpec:
    """Return the stream of records without a sensor: clock steps, marks, the writer's incidents."""
    tags, serial = {STREAM_TAG: ""}, f"{session}/"
    return VrsStreamSpec(
        RecordableType.EVENT_DATA, "recorder/session", _METADATA, tags, serial=serial
    )


def create_metadata_stream(name: str, driver: str, spec: StreamSpec, session: str) -> VrsStreamSpec:
    """Return a VRS stream of configuration and state records."""
    type_id, kind = _classify(spec)
    tags = {STREAM_TAG: name, "driver": driver, "description": spec.description}
    return VrsStreamSpec(
        type_id,
        f"recorder/{driver or kind}",
        _METADATA,
        {key: value for key, value in tags.items() if value},
        serial=f"{session}/{name}",
    )


def add_data_records(stream: VrsStreamSpec, layout: RecordLayout) -> VrsStreamSpec:
    """Return the same stream with data records."""
    return replace(stream, records={**stream.records, DATA: layout})


def _classify(spec: StreamSpec) -> tuple[RecordableType, str]:
    """Return the class of a stream, by its formats and by the channels of roverd's sensors."""
    names = {channel.name for channel in spec.channels}
    if any(channel.picture for channel in spec.channels):
        return RecordableType.RGB_CAMERA, "camera"
    if "iq" in names:
        return RecordableType.RADAR_DATA, "radar"
    if names & {"rng", "points.bin"}:
        return RecordableType.LIDAR_DATA, "lidar"
    if names & {"acc", "avel"}:
        return RecordableType.IMU_DATA, "imu"
    return RecordableType.SENSOR_DATA, "sensor"


class DataRecords:
    """Data records of a stream: their declaration and their bytes.

    Attributes:
        layout: their declaration.
        row_bytes: bytes of a record's data if all records have the same size, else None.
    """

    def __init__(self, spec: StreamSpec) -> None:
        """Derive the records from the declaration."""
        self._spec = spec
        self._small = [is_small(channel) for channel in spec.channels]
        small = [c for c in spec.channels if is_small(c)]
        blocks = [c for c in spec.channels if not is_small(c)]
        videos = [c for c in blocks if CHANNEL_FORMATS[c.format].keyed]
        self._video = _Video(videos[0]) if videos else None
        times = ("t_mono_ns", "t_dev_ns") if spec.device_clock else ("t_mono_ns",)
        head = [Piece(VALUE, int64, name, tags={"unit": "ns"}) for name in times]
        head += [Piece(VALUE, uint64, "seq"), Piece(VALUE, uint64, "epoch")]
        self._head = struct.Struct("<" + "".join(piece.element.code for piece in head))
        pieces = [*head, *map(_create_piece, small)]
        fields: list[tuple[str, Any]] = [(piece.label, piece.element.dtype) for piece in head]
        fields += [(f"c{n}", f"V{channel.sample_bytes}") for n, channel in enumerate(small)]
        if self._video is not None:
            pieces += self._video.pieces
        if blocks:
            pieces.append(Piece(VALUE, uint32, NEXT_CONTENT_BLOCK_SIZE, tags={"unit": "bytes"}))
        parts: list[LayoutSpec | Content] = [LayoutSpec(pieces)]
        for number, channel in enumerate(blocks):
            parts += [BlockSize.spec] if number else []
            parts.append(_create_content(channel))
        self.layout = RecordLayout(*parts)
        self._row = None if blocks else np.dtype(fields)
        self.row_bytes = None if self._row is None else self._row.itemsize

    def rows(self, message: Message, t_mono: Times) -> Rows:
        """Return data of a message's records, u1 [n, row_bytes]; only for records of one size."""
        assert self._row is not None
        frames = _decompress_frames(self._spec, message)
        if len(t_mono) == 1:  # most messages
            data = b"".join((self._pack_head(message, t_mono, 0), *frames))
            return np.frombuffer(data, np.uint8)[None]
        rows = np.empty(len(t_mono), self._row)
        rows["t_mono_ns"] = t_mono
        if message.t_dev_ns is not None:
            rows["t_dev_ns"] = message.t_dev_ns
        rows["seq"] = np.arange(message.seq, message.seq + len(t_mono), dtype=np.uint64)
        rows["epoch"] = message.epoch
        for number, frame in enumerate(frames):
            field = f"c{number}"
            rows[field] = np.frombuffer(frame, rows.dtype[field])
        return rows.view(np.uint8).reshape(len(rows), -1)

    def records(self, message: Message, t_mono: Times, ts: Sequence[float]) -> list[list[Buffer]]:
        """Return the parts of every record of a message; frames are not copied.

        Args:
            message: as received.
            t_mono: int64 [n], stored times.
            ts: timestamps of the records, epoch seconds.
        """
        spec = self._spec
        frames = [memoryview(f).cast("B") for f in _decompress_frames(spec, message)]
        sizes = iter(message.sizes)
        cuts: list[Sequence[int]] = [
            [0, *np.cumsum(next(sizes), dtype=np.int64).tolist()]
            if channel.variable
            else range(0, len(frame) + 1, channel.sample_bytes)
            for channel, frame in zip(spec.channels, frames, strict=True)
        ]
        found: list[list[Buffer]] = []
        for at in range(len(t_mono)):
            head = [self._pack_head(message, t_mono, at)]
            parts: list[Buffer] = []
            video = b""
            for channel, small, frame, cut in zip(
                spec.channels, self._small, frames, cuts, strict=True
            ):
                data = frame[cut[at] : cut[at + 1]]
                if small:
                    head.append(bytes(data))
                    continue
                parts += (_SIZE.pack(len(data)), data)
                if self._video is not None and channel is self._video.channel:
                    video = self._video.described(data, ts[at])
            # The first block's size is the last piece of the layout.
            found.append([b"".join((*head, video, *parts[:1])), *parts[1:]])
        return found

    def _pack_head(self, message: Message, t_mono: Times, at: int) -> bytes:
        times = [int(t_mono[at])]
        if message.t_dev_ns is not None:
            times.append(int(message.t_dev_ns[at]))
        return self._head.pack(*times, message.seq + at, message.epoch)


class _Video:
    """State of a video channel that VRS readers need to decode an access unit.

    After a writer was restarted, records up to the next keyframe have the number that VRS reserves
    for an unknown keyframe.
    """

    pieces = (
        Piece(VALUE, uint32, "image_width", tags={"unit": "px"}),
        Piece(VALUE, uint32, "image_height", tags={"unit": "px"}),
        Piece(VALUE, uint32, "image_pixel_format"),
        Piece(VALUE, float64, "image_key_frame_timestamp", tags={"unit": "s"}),
        Piece(VALUE, uint32, "image_key_frame_index"),
    )

    def __init__(self, channel: ChannelSpec) -> None:
        self.channel = channel
        self._starts = CHANNEL_FORMATS[channel.format].can_start
        self._key_s: float | None = None
        self._since = 0  # access units since the keyframe

    def described(self, unit: Buffer, timestamp_s: float) -> bytes:
        """Return the values of `pieces` for the next access unit."""
        if self._starts(unit):
            self._key_s, self._since = timestamp_s, 0
        elif self._key_s is not None:
            self._since += 1
        height, width = self.channel.shape[:2]
        known = self._key_s is not None
        key = (self._key_s or 0.0, self._since) if known else (0.0, _UNKNOWN_KEY)
        return _VIDEO.pack(width, height, PixelFormat.YUV_I420_SPLIT, *key)


def is_small(channel: ChannelSpec) -> bool:
    """Return whether a channel is a piece of the records' layout, not a block of its own."""
    small = channel.sample_bytes <= SMALL_BYTES
    return small and not channel.variable and not channel.picture


def _create_piece(channel: ChannelSpec) -> Piece:
    element, per_value = _ELEMENTS[channel.dtype]
    count = channel.sample_bytes // element.size
    tags = {"unit": channel.unit, "description": channel.description}
    if len(channel.shape) > 1:
        tags["shape"] = "x".join(map(str, channel.shape))
    if per_value > 1 or channel.dtype == "f2":
        tags["dtype"] = channel.dtype
    kind, size = (ARRAY, count) if channel.shape or per_value > 1 else (VALUE, 0)
    return Piece(kind, element, channel.name, size, tags={k: v for k, v in tags.items() if v})


def _create_content(channel: ChannelSpec) -> Content:
    block = CHANNEL_FORMATS[channel.format].content(channel)
    if block.kind == "custom":
        return CustomContent(block.size, block.format)
    pixel = PixelFormat[block.pixel_format or "UNDEFINED"]
    return ImageContent(
        format=block.format,
        width=block.width,
        height=block.height,
        pixel_format=pixel,
        codec=block.codec,
    )


def _decompress_frames(spec: StreamSpec, message: Message) -> list[Buffer]:
    """Return a message's frames; frames of several samples are decompressed."""
    frames = list(message.frames)
    for at, channel in enumerate(spec.channels):
        if channel.framing is Framing.JOINT:
            values = np.empty((message.count or 0, *channel.shape), channel.np_dtype)
            where = f"{spec.name}: {channel.name}: data message {message.number}"
            CHANNEL_FORMATS[channel.format].decoder()(frames[at], values, where)
            frames[at] = values.tobytes()
    return frames


TIME_DOMAIN = (
    "epoch seconds on the session's host clock: CLOCK_MONOTONIC plus clock_offset_ns, which is "
    "fixed at the session's start; ts of the session's streams"
)


def configuration(
    spec: StreamSpec, driver: str, epoch: int, t_mono_ns: int, offset_ns: int
) -> ConfigurationData:
    """Return the configuration of a stream at the begin of an epoch."""
    wire = spec.to_wire()
    files, settings = wire.pop("files"), wire.pop("settings")
    return ConfigurationData(
        stream=spec.name,
        driver=driver,
        epoch=epoch,
        t_mono_ns=t_mono_ns,
        clock_offset_ns=offset_ns,
        rate_hz=spec.rate_hz or 0.0,
        declaration=as_json(wire),
        settings=as_json(settings),
        files={as_text(name): as_text(text) for name, text in files.items()},
    )


def session_configuration(
    session: Path, values: Mapping[str, Any], t_mono_ns: int, offset_ns: int
) -> ConfigurationData:
    """Return the configuration of a session: ``session.json`` at the start, and its files."""
    files = {}
    for name in ("config.yaml", "calibration.yaml"):
        if (session / name).is_file():
            files[name] = as_text((session / name).read_text("utf-8", "replace"))
    settings = {
        k: v for k, v in values.items() if k not in ("state", "end_ns", "streams", "epochs")
    }
    return ConfigurationData(
        t_mono_ns=t_mono_ns, clock_offset_ns=offset_ns, settings=as_json(settings), files=files
    )


def state(
    t_mono_ns: int,
    kind: str,
    epoch: int,
    seq: int,
    cause: str | None,
    values: Mapping[str, Any],
) -> StateData:
    """Return the record of a state, a loss, an incident, or an epoch's begin or end."""
    return StateData(
        t_mono_ns=t_mono_ns,
        epoch=max(0, epoch),
        seq=max(0, seq),
        kind=as_text(kind),
        cause=as_text(cause or ""),
        numbers=_select_numbers(values),
        values=as_json(values),
    )


def event_state(event: Mapping[str, Any], offset_ns: int) -> StateData:
    """Return the record of an event of the session's log."""
    seq, epoch = event.get("first_seq"), event.get("epoch")
    return state(
        event["t_ns"] - offset_ns,
        str(event["type"]),
        epoch if isinstance(epoch, int) else 0,
        seq if isinstance(seq, int) else 0,
        event.get("cause"),
        event,
    )


def map_drivers(sensors: Mapping[str, Any]) -> dict[str, str]:
    """Return the driver of every stream, from ``sensors`` of ``session.json``."""
    drivers = {}
    for name, sensor in sensors.items():
        for stream in (name, *(sensor.get("streams") or ())):
            drivers[stream] = str(sensor.get("driver") or "")
    return drivers


def file_tags(values: Mapping[str, Any]) -> dict[str, str]:
    """Return tags of the file, from ``session.json``."""
    start_ns, start_mono_ns = int(values["start_ns"]), int(values["start_mono_ns"])
    tags = {
        "capture_time_epoch": str(start_ns // 1_000_000_000),
        "session_id": values["name"],
        "device_id": values.get("hostname") or platform.node(),
        "time_domain": TIME_DOMAIN,
        "start_ns": start_ns,
        "start_mono_ns": start_mono_ns,
        "clock_offset_ns": start_ns - start_mono_ns,
        "recorder_version": values.get("recorder_version") or recorder.__version__,
    }
    more = {f"metadata.{k}": v for k, v in (values.get("metadata") or {}).items()}
    return {
        as_text(str(k)): as_text(v if isinstance(v, str) else as_json(v))
        for k, v in (tags | more).items()
    }


def mask_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags of a file with likely secrets in the session's metadata masked."""
    return {key: _mask_tag(key, value) for key, value in tags.items()}


def _mask_tag(key: str, value: str) -> str:
    name = key.removeprefix("metadata.")
    if name == key:
        return value
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = value
    masked = mask_secrets({name: parsed})[name]
    if masked == parsed:
        return value
    return as_text(masked if isinstance(masked, str) else as_json(masked))


def mask_configuration(data: bytes) -> bytes:
    """Return a session's configuration record with likely secrets masked; else unchanged."""
    record = ConfigurationData.decode(data)
    settings: Any = json.loads(record.settings or "{}")
    masked = settings | {"metadata": mask_secrets(settings.get("metadata"))}
    files = {
        name: shareable_text(text) if name == "config.yaml" else text
        for name, text in record.files.items()
    }
    if files == record.files and masked["metadata"] == settings.get("metadata"):
        return data
    record.files, record.settings = files, as_json(masked)
    return record.encode()


def _select_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for key, value in values.items():
        if isinstance(value, (int, float)):
            with contextlib.suppress(OverflowError):  # an int may exceed a float
                found[as_text(str(key))] = float(value)
    return found


def as_json(value: Any) -> str:
    """Format compact JSON; values that JSON cannot hold become text."""
    return json.dumps(value, separators=(",", ":"), default=str)


def as_text(text: str) -> str:
    """Return the text with characters that UTF-8 cannot encode replaced."""
    return text.encode("utf-8", "replace").decode()
