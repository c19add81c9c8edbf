"""Cameras that deliver pictures at their own pace: V4L2, HTTP, RTSP."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from drivers.camera.pictures import LiveCamera, Note, Shot, choose_size
from drivers.camera.raw_pictures import PIXEL_FORMATS
from drivers.camera.stream import CameraSource
from drivers.kit.driver import Item, Sample, SensorConfig, State
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.options import Option, OptionTable

EXPOSURE: Final = ChannelSpec("exposure", "raw", "u4", (), "exposure time, 0: unknown", "us")
_TURN_S = 0.2

_LIVE_OPTIONS: Final[OptionTable] = {
    "timeout_s": Option(
        "float", 5.0, "live: time without a picture after which the device is lost [s]",
        minimum=0.5, maximum=60,
    ),
    "latency_ms": Option(
        "float", 0.0,
        "live: from the end of the exposure to the stamp, which is moved back by this time [ms]",
        minimum=-1000, maximum=5000,
    ),
}  # fmt: skip
_NO_GAIN: Final = (
    "only the simulated camera has this option; set a v4l2: camera's controls by name, as in "
    "controls: {gain: 20}"
)
_REFUSED_BY_NETWORK: Final = {
    "gain": _NO_GAIN,
    "controls": "only a v4l2: camera has this option",
    "pixel_format": "only a v4l2: or sim: camera has this option",
}


class LiveSource(CameraSource):
    """Source of a live camera's pictures with their times.

    A picture that cannot be decoded and a gap in the device's own frame numbers are counted losses.
    A size other than that of the first opening raises `StreamChangedError`.
    """

    options: ClassVar = _LIVE_OPTIONS
    refused: ClassVar = _REFUSED_BY_NETWORK

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._scheme = sensor.scheme
        self._live: LiveCamera | None = None
        self._came: deque[Shot | Note] = deque()
        self._device_clock: bool | None = None  # as declared at the first opening
        self._exposures = False  # channel declared at the first opening
        self._latency_ns = round(self.config["latency_ms"] * 1e6)  # to subtract from arrivals

    @abstractmethod
    def make(self) -> LiveCamera:
        """Return the camera, not yet open."""

    def open(self) -> StreamSpec:
        live = self.make()
        live.open()
        self._live = live
        self._size = choose_size(self.config, live.size)
        if self._device_clock is None:
            self._device_clock, self._exposures = live.device_clock, live.reports_exposure
        passed_through = self.copying or (live.jpegs and self._size is None)
        settings = {"passed_through": passed_through, **self.known_times(), **live.settings}
        return self.spec(
            self._size or live.size, live.fps, settings,
            device_clock=self._device_clock, pixels=live.raw,
            further=(EXPOSURE,) if self._exposures else (),
        )  # fmt: skip

    def read(self) -> Item | None:
        assert self._live is not None
        if not self._came:
            self._came.extend(self._live.read(_TURN_S))
        if not self._came:
            return None
        event = self._came.popleft()
        t_ns = event.t_ns - self._latency_ns
        if isinstance(event, Note):
            return State(self.name, t_ns, event.values)
        t_device_ns = (event.t_device_ns or 0) if self._device_clock else None
        item = self.item(t_ns, event.picture, t_device_ns)
        if self._exposures and isinstance(item, Sample):
            exposure = {EXPOSURE.name: np.array([event.exposure_us or 0], np.uint32)}
            item = replace(item, data={**item.data, **exposure})
        return item

    def close(self) -> None:
        if self._live is not None:
            self._live.close()
        self._came.clear()
        self._live = None


class V4l2Source(LiveSource):
    """A camera of this machine; stamps are the kernel's, moved to the end of the exposure."""

    options: ClassVar = {
        **_LIVE_OPTIONS,
        "controls": Option(
            "map", None, "v4l2: controls to set, named as in `v4l2-ctl --list-ctrls`",
        ),
        "pixel_format": Option(
            "str", None,
            "v4l2: the device's format (default: MJPG if offered, else a decodable one); "
            "sim: a raw format",
            choices=PIXEL_FORMATS,
        ),
    }  # fmt: skip
    refused: ClassVar = {"gain": _NO_GAIN}
    copies = copies_sizes = True

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._latency_ns = 0  # `Timing` subtracts it

    def make(self) -> LiveCamera:
        from drivers.camera.v4l2.camera import Timing, V4l2Camera

        options = self.config
        return V4l2Camera(
            self.name,
            self.address,
            size=(options["width"], options["height"]),
            fps=options["fps"],
            pixel_format=options["pixel_format"],
            controls=options["controls"] or {},
            copying=self.copying,
            timing=Timing(
                options["exposure_ms"] or None, options["readout_ms"], options["latency_ms"]
            ),
            timeout_s=options["timeout_s"],
        )


class RtspSource(LiveSource):
    """A network camera's stream; stamps are the arrival on this machine less ``latency_ms``."""

    options: ClassVar = {
        **_LIVE_OPTIONS,
        "transport": Option(
            "str", "tcp", "rtsp: RTP over tcp, in the camera's connection, or over udp",
            choices=("tcp", "udp"),
        ),
    }  # fmt: skip
    copies = True

    def make(self) -> LiveCamera:
        from drivers.camera.rtsp.camera import RtspCamera

        return RtspCamera(
            self.name,
            self.address,
            fps=self.config["fps"],
            timeout_s=self.config["timeout_s"],
            copying=self.copying,
            over_udp=self.config["transport"] == "udp",
        )


class HttpSource(LiveSource):
    """A camera that sends JPEGs over HTTP; stamps are the arrival less ``latency_ms``."""

    options: ClassVar = {
        **_LIVE_OPTIONS,
        "frame_number_header": Option(
            "str", "X-Frame-Number", "http: header of a part that holds the picture's number",
        ),
    }  # fmt: skip

    def make(self) -> LiveCamera:
        from drivers.camera.http.camera import HttpCamera

        return HttpCamera(
            self.name,
            self._scheme,
            self.address,
            fps=self.config["fps"],
            timeout_s=self.config["timeout_s"],
            number_header=self.config["frame_number_header"],
        )
