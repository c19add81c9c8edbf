"""The stream of a camera, and the base class of its sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from drivers.camera.pictures import CodedPicture, Missing, Picture, resize_picture
from drivers.camera.raw_pictures import COPIED_FORMAT
from drivers.kit.driver import Item, Lost, Sample, SensorConfig
from recorder.codecs.raw_pixels import Levels, RawPixels
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError, SourceError
from recorder.config.options import Option, OptionTable

CHANNEL: Final = "video.avi"
VIDEO: Final = "video.h264"
_BYTES_PER_PIXEL = 0.35  # upper bound for a JPEG of a street scene at quality 90
_BYTES_PER_CODED_PIXEL = 0.02  # 10 Mbit/s of 1080p at 30 Hz

COMMON_OPTIONS: Final[OptionTable] = {
    "width": Option(
        "int", None,
        "pixels; requested from a V4L2 device, frames of other sources are resized "
        "(default: the source's width; sim: 1280)",
        minimum=32, maximum=16384,
    ),
    "height": Option(
        "int", None, "pixels; with only one of width and height, the proportions are kept",
        minimum=32, maximum=16384,
    ),
    "fps": Option(
        "float", None,
        "Hz; requested from a V4L2 device; playing rate of a file (default: its own; sim: 30)",
        minimum=0.01, maximum=1000,
    ),
    "quality": Option(
        "int", 90, "JPEG quality of frames encoded here; JPEGs of the source are not encoded",
        minimum=1, maximum=100,
    ),
    "codec": Option(
        "str", "jpeg",
        "copy: record the H.264 of a file:, rtsp: or v4l2: source, and raw grey and Bayer pictures "
        "of a vrs: source, as they are; jpeg: record pictures as JPEG",
        choices=("jpeg", "copy"),
    ),
}  # fmt: skip
"""Options of every source of pictures."""

RAW_OPTIONS: Final[OptionTable] = {
    "black_level": Option("int", None, "raw: value of black (default: 0)", minimum=0),
    "white_level": Option("int", None, "raw: value of white (default: the largest)", minimum=1),
    "white_balance": Option(
        "list", None, "raw Bayer: factors of red and blue when shown (default: 1, 1)", items="float"
    ),
}
"""Options of the sources that give raw pictures."""


class CameraSource(ABC):
    """Base of camera sources: their options, and their pictures as the kit's items.

    >>> source = FileSource(sensor)
    >>> spec = source.open()
    >>> item = source.read()
    >>> source.close()

    Args:
        sensor: its options are checked against the driver's table.

    Attributes:
        options: the source's own options, beside `COMMON_OPTIONS`; an option that several sources
            have is declared by one of them.
        refused: options that the source rejects, with the text of each error.  Values of other
            options that the source does not have would not change the recording.
        config: the sensor's options, checked.
        copies: the source gives H.264 for ``codec: copy``.
        copies_sizes: the source also gives H.264 of a requested size.
    """

    options: ClassVar[OptionTable] = {}
    refused: ClassVar[Mapping[str, str]] = {}
    copies: ClassVar[bool] = False
    copies_sizes: ClassVar[bool] = False

    def __init__(self, sensor: SensorConfig) -> None:
        self.name, self.address = sensor.name, sensor.address
        self.config = sensor.options
        self.copying = sensor.options["codec"] == "copy"
        self._size: tuple[int, int] | None = None  # to resize to
        self._channel = CHANNEL

    @abstractmethod
    def open(self) -> StreamSpec:
        """Open the source, which may be opened again after `close`; raises as `Driver.open`."""

    @abstractmethod
    def read(self) -> Item | None:
        """Return the next item; raises as `Driver.read`."""

    @abstractmethod
    def close(self) -> None:
        """Release the source."""

    def check_options(self, table: OptionTable) -> None:
        """Check the options that not every source supports.

        Args:
            table: the driver's options.

        Raises:
            SourceError: an option is set that the source does not support.
        """
        copies_format = self.config["pixel_format"] == COPIED_FORMAT
        if copies_format and not self.copying:
            raise self.fault("pixel_format: H264 is recorded only with codec: copy")
        if self.copying:
            if self.config["pixel_format"] and not copies_format:
                raise self.fault("pixel_format: codec: copy records H264 only")
            if not self.copies_sizes and (self.config["width"] or self.config["height"]):
                raise self.fault("width, height: codec: copy does not resize pictures")
        for option, text in self.refused.items():
            if self.config[option] not in (table[option].default, {}):
                raise self.fault(f"{option}: {text}")

    def fault(self, text: str) -> SourceError:
        """Return an error that names the sensor."""
        return SourceError(f"{self.name}: {text}")

    def known_times(self) -> dict[str, float]:
        """Return the camera's times that the config states, for the stream's settings."""
        names = ("exposure_ms", "readout_ms", "latency_ms")
        return {name: value for name in names if (value := self.config[name])}

    def item(self, t_ns: int, picture: Picture, t_device_ns: int | None = None) -> Item:
        """Return the sample of a picture, or the loss in its place.

        Args:
            t_ns: end of the exposure, in ns.
            picture: of the source; it is resized where the options ask for it.
            t_device_ns: the camera's own time, if it has a clock.
        """
        if isinstance(picture, CodedPicture):
            picture = picture.data
        elif self._size is not None and not isinstance(picture, Missing):
            picture = resize_picture(picture, self._size)
        if isinstance(picture, Missing):
            detail = {"reason": picture.reason}
            return Lost(self.name, t_ns, picture.cause, picture.count, detail=detail)
        frames = [picture] if isinstance(picture, bytes) else picture[None]
        device = None if t_device_ns is None else np.array([t_device_ns], np.int64)
        return Sample(self.name, np.array([t_ns], np.int64), {self._channel: frames}, device)

    def spec(
        self,
        size: tuple[int, int],
        fps: float | None,
        settings: Mapping[str, Any],
        *,
        finite: bool = False,
        device_clock: bool = False,
        pixels: RawPixels | None = None,
        further: tuple[ChannelSpec, ...] = (),
    ) -> StreamSpec:
        """Declare the stream.

        Args:
            size: (width, height) of the recorded pictures.
            fps: nominal rate in Hz, if it is known.
            settings: of the source, beside those of every camera.
            finite: the source ends.
            device_clock: samples have the camera's own times.
            pixels: format of the values of raw pictures.
            further: channels beside the pictures.
        """
        width, height = size
        channel = ChannelSpec(CHANNEL, "mjpg", "u1", (height, width, 3), "camera image")
        sample_bytes = int(width * height * _BYTES_PER_PIXEL)
        if self.copying:
            channel = ChannelSpec(VIDEO, "h264", "u1", (height, width, 3), "camera image, H.264")
            sample_bytes = int(width * height * _BYTES_PER_CODED_PIXEL)
        if pixels is not None:
            text = f"camera image, the sensor's values ({pixels.name})"
            channel = ChannelSpec(pixels.channel, "raw", pixels.dtype, (height, width), text)
            sample_bytes = channel.sample_bytes
        self._channel = channel.name
        return StreamSpec(
            self.name,
            (channel, *further),
            rate_hz=fps,
            device_clock=device_clock,
            bytes_per_sample=sample_bytes,
            finite=finite,
            description="camera" if pixels is None else f"camera, {pixels.name}",
            settings={
                "width": width,
                "height": height,
                "fps": fps,
                "jpeg_quality": self.config["quality"],
                **self._raw_settings(pixels),
                **settings,
            },
        )

    def _raw_settings(self, pixels: RawPixels | None) -> Mapping[str, Any]:
        """Return the known properties of raw pictures; empty if the pictures are not raw."""
        stated = {key: self.config[key] for key in RAW_OPTIONS if self.config[key] is not None}
        if pixels is None:
            for key in stated:
                raise self.fault(f"{key}: only a raw pixel_format has this option")
            return {}
        try:
            Levels.from_settings(pixels, self.config)
        except FormatError as error:
            raise self.fault(str(error)) from None
        pattern = {"bayer_pattern": pixels.pattern} if pixels.pattern else {}
        return {"bits_per_pixel": pixels.bits, **pattern, **stated}
