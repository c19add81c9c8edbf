"""The source ``vrs:PATH[#STREAM]``, which plays a camera's or an IMU's stream of any VRS file.

The kit replaces a driver by `VrsSource` if the driver declares its kind (`Driver.recorded_kind`).
JPEGs and H.264 are passed on unchanged; raw and PNG images are encoded by the kit.  Raw pictures
of the recorder's own files (`recorder.codecs.raw_pixels`) keep their values, and with ``codec:
copy`` all raw grey and Bayer pictures.  An IMU's values are found by the usual names in data
layouts, including Project Aria's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Encoded, Item, Lost, Sample, SensorConfig
from drivers.kit.recorded_source import (
    SHORT_BATCH_NS,
    Pixels,
    RecordedSource,
    decode_picture,
    median_rate_hz,
    video_channel,
)
from drivers.kit.topics.pictures import NO_KEYFRAME, PictureConverter
from recorder.bus.messages import CHANGED
from recorder.codecs.raw_pixels import RawPixels
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError, ProtocolError, SourceError, StreamChangedError
from recorder.formats.vrs import (
    DataBlock,
    ImageContent,
    LayoutBlock,
    PixelFormat,
    RecordType,
    StreamId,
    VrsReader,
    VrsRecord,
    VrsStream,
)
from recorder.formats.vrs.content import Block
from recorder.formats.vrs.contents import (
    CAMERA,
    IMU,
    find_image,
    find_kind,
    find_layout,
    find_play_range_s,
    imu_values,
    is_h264,
    is_yuv,
)

_ABOUT = {
    "acc": ("acceleration, gravity included", "m/s^2"),
    "avel": ("rate of turn", "rad/s"),
    "rot": ("Euler angles; NaN where the file has none", "rad"),
    "mag": ("magnetic field, in the file's own unit", ""),
}
_DEVICE_TIMES = ("t_dev_ns", "capture_timestamp_ns")
_USUAL = {CAMERA: 214, IMU: 241}  # type ids of the plain classes: RGB camera, IMU
_GREYS = {
    PixelFormat.GREY8: 0,
    PixelFormat.GREY10: 2,
    PixelFormat.GREY12: 4,
    PixelFormat.GREY16: 8,
}
_RAW = {
    PixelFormat.GREY8: RawPixels(8),
    PixelFormat.GREY10: RawPixels(10),
    PixelFormat.GREY12: RawPixels(12),
    PixelFormat.GREY16: RawPixels(16),
    PixelFormat.BAYER8_RGGB: RawPixels(8, "RGGB"),
    PixelFormat.BAYER8_BGGR: RawPixels(8, "BGGR"),
    PixelFormat.BAYER8_GBRG: RawPixels(8, "GBRG"),
    PixelFormat.BAYER10_GBRG: RawPixels(10, "GBRG"),
}
_MOST_BYTES = 1 << 28  # of a record


class VrsSource(RecordedSource):
    """Source that plays one stream of a VRS file.

    The stream is selected by its id (``#214-1``), its type's number, its flavor or its name.
    Without a selection, the file must have exactly one stream of the kind, or one of the plain
    class.  Stamps count from the earliest data of the whole file, so that several streams played
    from the file keep their relative times.  A record that cannot be decoded is `Lost`, cause
    ``corrupt``; a truncated file ends with an interval of loss, cause ``truncated``.
    """

    _vrs: VrsReader | None = None
    _records: Iterator[VrsRecord] = iter(())
    _video: PictureConverter | None = None
    _held: VrsRecord | None = None

    def __init__(self, sensor: SensorConfig, kind: str) -> None:
        """Make a source for a driver of this kind, `CAMERA` or `IMU`."""
        super().__init__(sensor)
        self._kind = kind
        self._channels: tuple[ChannelSpec, ...] = ()
        self._device_time = ""
        self._clock_offset_ns: int | None = None

    def _open(self) -> StreamSpec:
        path, wanted = self.sensor.path_and_part()
        vrs = self._vrs = VrsReader(path, most_bytes=_MOST_BYTES)
        stream, first = self._choose(vrs, wanted or "")
        blocks = first.blocks()
        layout = find_layout(blocks)
        labels = set(layout.as_dict()) if layout is not None else set()
        self._device_time = next((n for n in _DEVICE_TIMES if n in labels), "")
        self._has_device_time = bool(self._device_time)
        # The recorder's own files have times in ns; a record's own time is a rounded double.
        offset = vrs.tags.get("clock_offset_ns", "")
        exact = "t_mono_ns" in labels and offset.lstrip("-").isdecimal()
        self._clock_offset_ns = int(offset) if exact else None
        self._origin_ns = round(find_play_range_s(vrs)[0] * 1e9)
        own = vrs.timestamps_s(stream.id, RecordType.DATA)
        settings: dict[str, Any] = {"vrs_stream": str(stream.id), "vrs_flavor": stream.flavor}
        settings |= {f"vrs_tag.{key}": value for key, value in stream.tags.items()}
        if self._kind == CAMERA:
            settings = {**self._open_camera(vrs, stream.id, first), **settings}
        else:
            self._channels = tuple(
                ChannelSpec(name, "raw", "f4", (3,), *_ABOUT[name]) for name in imu_values(layout)
            )
        self._records = vrs.records(stream.id, RecordType.DATA)
        self._held = None
        return StreamSpec(
            self.sensor.name,
            self._channels,
            rate_hz=_rate_hz(vrs, stream.id, own),
            device_clock=self._has_device_time,
            finite=True,
            settings=settings,
            bytes_per_sample=first.size if self._kind == CAMERA else 0,
        )

    def _open_camera(self, vrs: VrsReader, stream: StreamId, first: VrsRecord) -> dict[str, Any]:
        """Choose the channel of a camera's pictures; return the stream's further settings."""
        self._video = None
        if is_h264(find_image(first.blocks())):
            self._channels = (_find_video_channel(vrs, stream, self.sensor.address),)
            self._video = PictureConverter(self.sensor.address)
            return {"passed_through": True}
        raw, recorded = _raw_pictures(vrs, stream)
        if raw is None and self.sensor.options.get("codec") == "copy":
            raw = _raw_channel(find_image(first.blocks()))
        if raw is not None:
            self._channels = (raw,)
            return {**recorded, "passed_through": True}
        picture = _picture(first.blocks(), first)
        self._channels = (video_channel(picture, self.sensor.address),)
        quality = self.sensor.options.get("quality") or 90
        return {"passed_through": isinstance(picture, bytes), "jpeg_quality": quality}

    def _choose(self, vrs: VrsReader, wanted: str) -> tuple[VrsStream, VrsRecord]:
        fitting: dict[StreamId, VrsRecord] = {}
        for stream in vrs.streams:
            record = next(vrs.records(stream, RecordType.DATA), None)
            if record is not None and self._fits(record):
                fitting[stream] = record
        known = ", ".join(f"{s} ({vrs.streams[s].name}, {vrs.streams[s].flavor})" for s in fitting)
        there = f"its {self._kind} streams: {known or 'none'}"
        found = [s for s in fitting if not wanted or _is_named(vrs.streams[s], wanted)]
        if len(found) > 1 and not wanted:
            found = [s for s in found if s.type_id == _USUAL[self._kind]]
        if not found and wanted:
            raise FormatError(f"{vrs.path}: no {self._kind} stream matches {wanted!r}; {there}")
        if not fitting:
            raise FormatError(f"{vrs.path}: has no {self._kind} stream")
        if len(found) != 1:
            raise FormatError(f"{vrs.path}: select a stream, as in #{next(iter(fitting))}; {there}")
        return vrs.streams[found[0]], fitting[found[0]]

    def _fits(self, record: VrsRecord) -> bool:
        try:
            return find_kind(record.blocks()) == self._kind
        except FormatError:
            return False

    def read(self) -> Item:
        """Return the next picture, or the IMU's values of the next few ms.

        Raises:
            EndOfSource: the stream's last record was already returned.
        """
        if self._vrs is None:
            raise SourceError(f"{self.sensor.name}: read before open")
        record = self._next()
        if record is None:
            return self._end(self._vrs)
        try:
            if self._video is not None:
                return self._access_unit(self._video, record)
            if self._kind == CAMERA:
                blocks = record.blocks()
                data: npt.NDArray[Any] | Encoded
                if self._channels[0].pixels is not None:
                    data = _pixels(blocks, record)[None]
                else:
                    picture = _picture(blocks, record)
                    data = [picture] if isinstance(picture, bytes) else picture[None]
                t_ns, t_dev_ns = self._times(record, find_layout(blocks))
                return self._sample([t_ns], [t_dev_ns], {self._channels[0].name: data})
            return self._batch(record)
        except StreamChangedError as error:
            return self._lost(record, CHANGED, str(error))
        except FormatError as error:
            return self._lost(record, "corrupt", str(error))

    def _lost(self, record: VrsRecord, cause: str, reason: str) -> Lost:
        t_ns = round(record.timestamp_s * 1e9)
        return Lost(self.sensor.name, t_ns, cause, 1, detail={"reason": reason})

    def _access_unit(self, video: PictureConverter, record: VrsRecord) -> Item:
        """Return the picture of a video as it is; before the first keyframe its loss."""
        blocks = record.blocks()
        block = find_image(blocks)
        if not is_h264(block):
            raise FormatError(f"{record.reader.where(record)}: has no H.264")
        unit = video.convert_unit(bytes(block.data))
        if unit is None:
            return self._lost(record, "joining", NO_KEYFRAME)
        t_ns, t_dev_ns = self._times(record, find_layout(blocks))
        return self._sample([t_ns], [t_dev_ns], {self._channels[0].name: [unit]})

    def _batch(self, first: VrsRecord) -> Sample:
        rows: list[dict[str, npt.NDArray[np.float32]]] = []
        times: list[int] = []
        device: list[int] = []
        record: VrsRecord | None = first
        until_s = first.timestamp_s + SHORT_BATCH_NS / 1e9
        while record is not None and record.timestamp_s < until_s:
            try:
                layout = find_layout(record.blocks())
                values = imu_values(layout)
                t_ns, t_dev_ns = self._times(record, layout)
            except FormatError:
                if not rows:
                    raise
                break
            rows.append(values)
            times.append(t_ns)
            device.append(t_dev_ns)
            record = self._next()
        self._held = record
        nothing = np.full(3, np.nan, np.float32)
        data = {
            c.name: np.array([row.get(c.name, nothing) for row in rows], np.float32)
            for c in self._channels
        }
        return self._sample(times, device, data)

    def _times(self, record: VrsRecord, layout: LayoutBlock | None) -> tuple[int, int]:
        """Return a record's own time and the device's time, in ns."""
        t_ns, t_dev_ns = round(record.timestamp_s * 1e9), 0
        values = layout.as_dict() if layout is not None else {}
        if self._clock_offset_ns is not None and "t_mono_ns" in values:
            t_ns = int(values["t_mono_ns"]) + self._clock_offset_ns
        if self._device_time:
            t_dev_ns = max(0, int(values.get(self._device_time, 0)))
        return t_ns, t_dev_ns

    def _next(self) -> VrsRecord | None:
        held, self._held = self._held, None
        return held if held is not None else next(self._records, None)

    def _end(self, vrs: VrsReader) -> Item:
        tail, vrs.tail = vrs.tail, None
        return self._truncated(tail, round(find_play_range_s(vrs)[1] * 1e9))

    def close(self) -> None:
        """Close the file."""
        self._records = iter(())
        if self._vrs is not None:
            self._vrs.close()
            self._vrs = None


def _is_named(stream: VrsStream, wanted: str) -> bool:
    names = (str(stream.id), str(stream.id.type_id), stream.flavor, stream.name)
    return wanted.lower() in (name.lower() for name in names)


def _find_video_channel(vrs: VrsReader, stream: StreamId, where: str) -> ChannelSpec:
    """Return the channel of a stream of H.264, whose size its first keyframe states.

    Raises:
        FormatError: the stream has no keyframe.
    """
    video = PictureConverter(where)
    for record in vrs.records(stream, RecordType.DATA):
        with suppress(FormatError):
            if is_h264(block := find_image(record.blocks())):
                video.convert_unit(bytes(block.data))
        if video.channel is not None:
            return video.channel
    raise FormatError(f"{vrs.path}: the H.264 of {stream} has no keyframe")


def _raw_channel(block: DataBlock | None) -> ChannelSpec | None:
    """Return the channel of raw pictures of one value per pixel; None for all other pictures."""
    content = None if block is None else block.content
    if not isinstance(content, ImageContent) or content.format != "raw":
        return None
    if (pixels := _RAW.get(content.pixel_format)) is None:
        return None
    shape, text = (content.height, content.width), f"camera image, raw values ({pixels.name})"
    return ChannelSpec(pixels.channel, "raw", pixels.dtype, shape, text)


def _pixels(blocks: Sequence[Block], record: VrsRecord) -> npt.NDArray[Any]:
    """Return the values of a raw image."""
    block = find_image(blocks)
    if block is None:
        raise FormatError(f"{record.reader.where(record)}: has no image")
    return block.array()


def _raw_pictures(vrs: VrsReader, stream: StreamId) -> tuple[ChannelSpec | None, Mapping[str, Any]]:
    """Return the channel of raw pictures that the recorder declared, and its settings."""
    for values in _configurations(vrs, stream):
        try:
            wire = json.loads(values["declaration"])
            spec = StreamSpec.from_wire({**wire, "settings": json.loads(values["settings"])})
        except (KeyError, TypeError, ValueError, ProtocolError):
            continue
        for channel in spec.channels:
            if channel.pixels is not None:
                return channel, spec.settings
    return None, {}


def _picture(blocks: Sequence[Block], record: VrsRecord) -> bytes | Pixels:
    """Return the stored JPEG, or the pixels."""
    block = find_image(blocks)
    if block is None:
        raise FormatError(f"{record.reader.where(record)}: has no image")
    content = block.content
    assert isinstance(content, ImageContent)
    if block.data[:2] == b"\xff\xd8" and content.format != "raw":
        return block.data
    if content.format in ("png", "jpg"):
        decoded = decode_picture(block.data)
        if decoded is None:
            raise FormatError(
                f"{record.reader.where(record)}: the {content.format} image is damaged"
            )
        return decoded
    if content.format != "raw":
        raise FormatError(f"{record.reader.where(record)}: cannot decode images '{content}'")
    if is_yuv(block):
        return _convert_yuv(block.data, content)
    return _bgr(block.array(), content.pixel_format, record)


def _convert_yuv(data: bytes, content: ImageContent) -> Pixels:
    """Return the pixels of a picture for which `is_yuv` holds."""
    import cv2

    values = np.frombuffer(data, np.uint8)
    if content.pixel_format is PixelFormat.YUY2:
        values = values.reshape(content.height, content.width, 2)
        return np.asarray(cv2.cvtColor(values, cv2.COLOR_YUV2BGR_YUY2), np.uint8)
    code = {
        PixelFormat.YUV_I420_SPLIT: cv2.COLOR_YUV2BGR_I420,
        PixelFormat.YUV_420_NV12: cv2.COLOR_YUV2BGR_NV12,
        PixelFormat.YUV_420_NV21: cv2.COLOR_YUV2BGR_NV21,
    }[content.pixel_format]
    values = values.reshape(content.height * 3 // 2, content.width)
    return np.asarray(cv2.cvtColor(values, code), np.uint8)


def _bgr(
    pixels: npt.NDArray[Any], pixel_format: PixelFormat, record: VrsRecord
) -> npt.NDArray[np.uint8]:
    if pixel_format in _GREYS:
        grey = (pixels >> _GREYS[pixel_format]).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=2)
    match pixel_format:
        case PixelFormat.BGR8:
            return pixels
        case PixelFormat.RGB8 | PixelFormat.RGBA8:
            return np.ascontiguousarray(pixels[..., 2::-1])
    where = record.reader.where(record)
    raise FormatError(f"{where}: cannot encode pixels of format {pixel_format.text} as a picture")


def _configurations(vrs: VrsReader, stream: StreamId) -> Iterator[Mapping[str, Any]]:
    """Yield the values of the stream's configuration records."""
    for record in vrs.records(stream, RecordType.CONFIGURATION):
        try:
            layout = find_layout(record.blocks())
        except FormatError:
            continue
        if layout is not None:
            yield layout.as_dict()


def _rate_hz(vrs: VrsReader, stream: StreamId, times: npt.NDArray[np.float64]) -> float | None:
    """Return the rate from the configuration, or else from the stamps."""
    for values in _configurations(vrs, stream):
        rate = values.get("nominal_rate")
        if isinstance(rate, float) and 0 < rate < 1e6:
            return rate
    return median_rate_hz(times, 1)
