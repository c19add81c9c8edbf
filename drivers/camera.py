"""Camera driver: V4L2 devices, RTSP and HTTP streams, video files, and a simulated camera.

The driver has one stream with the sensor's name and the channel ``video.avi`` (mjpg, u1 [height,
width, 3], BGR); of a camera that reports its exposure time also the channel ``exposure`` (raw, u4,
us, 0 where unknown).  JPEGs of the source (a camera's own MJPEG, MJPEG in any container, a JPEG
sequence) are recorded byte for byte, without the padding after the end of an image.  Other
formats are decoded here and encoded by the kit.  A raw `pixel_format` has the channel
``image.FORMAT`` (raw, u1 or u2 [height, width]) in place of ``video.avi``, with all bits of the
sensor's values; see `recorder.contract.raw_pixels`.  With ``codec: copy`` the channel is
``video.h264`` (h264, u1 [height, width, 3]): access units as the source encoded them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from drivers._devices.h264_file import H264File
from drivers._devices.http_camera import HttpCamera
from drivers._devices.numbered_pictures import NumberedPictures, open_video
from drivers._devices.pictures import (
    CodedPicture,
    LiveCamera,
    Missing,
    Note,
    Picture,
    Shot,
    resized,
    wanted_size,
)
from drivers._devices.raw_settings import RAW_OPTIONS, raw_settings
from drivers._devices.rtsp_camera import RtspCamera
from drivers._devices.v4l2 import V4l2Camera
from drivers._devices.v4l2_pixels import COPIED_FORMAT, PIXEL_FORMATS
from drivers._devices.v4l2_stamps import Timing
from drivers._devices.video_file import VideoFile
from drivers._kit.driver import Driver, EndOfSource, Item, Lost, Sample, SensorConfig, State
from drivers._kit.runner import main
from drivers._protocols.raw_pictures import RawFormat
from drivers.sim.camera import SimulatedCamera
from drivers.sim.camera_parts import simulated_pictures
from drivers.sim.deferred_data import DeferredData
from drivers.sim.raw_camera import raw_format, raw_pictures
from drivers.sim.rig import SIM_CAMERA_OPTIONS, SIM_FPS, SIM_SIZE, simulated_camera
from drivers.sim.video import SimulatedVideo
from recorder.contract.config.options import Option, OptionTable
from recorder.contract.errors import SourceError
from recorder.contract.raw_pixels import Levels, RawPixels
from recorder.contract.streams import ChannelSpec, StreamSpec

CHANNEL: Final = "video.avi"
VIDEO: Final = "video.h264"
EXPOSURE: Final = ChannelSpec("exposure", "raw", "u4", (), "exposure time, 0: unknown", "us")
_BYTES_PER_PIXEL = 0.35  # upper bound for a JPEG of a street scene at quality 90
_BYTES_PER_CODED_PIXEL = 0.02  # 10 Mbit/s of 1080p at 30 Hz
_COPIED_SCHEMES: Final = ("file", "rtsp", "sim", "v4l2")
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
    "controls": Option(
        "map", None, "v4l2: controls to set, named as in `v4l2-ctl --list-ctrls`",
    ),
    "pixel_format": Option(
        "str", None,
        "v4l2: the device's format (default: MJPG if offered, else a decodable one); "
        "sim: a raw format",
        choices=PIXEL_FORMATS,
    ),
    "transport": Option(
        "str", "tcp", "rtsp: RTP over tcp, in the camera's connection, or over udp",
        choices=("tcp", "udp"),
    ),
    "frame_number_header": Option(
        "str", "X-Frame-Number", "http: header of a part that holds the picture's number",
    ),
}  # fmt: skip


class CameraDriver(Driver):
    """Records a camera, plays a video file, or draws the simulated world.

    A file's stamps are the container's presentation times of the frames' starts, in ns from the
    first frame.  Where a container has no stamp, or a stamp that does not increase, the next stamp
    is 1/fps later.  V4L2 stamps are the kernel's, moved to the end of the exposure; stamps of
    network streams are the arrival on this machine less ``latency_ms`` (see the modules of
    `drivers._devices`).  A picture that cannot be decoded and a gap in the device's own frame
    numbers are counted losses.  A file that ends before its declared number of frames raises
    `SourceError` after its last complete frame.

    >>> driver = CameraDriver(sensor)
    >>> (spec,) = driver.open()
    >>> sample = driver.read()
    >>> sample.data["video.avi"]         # uint8 [1, h, w, 3] (BGR), or a list with one JPEG
    >>> driver.close()
    """

    options: ClassVar = {
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
            "copy: record the H.264 of a file:, rtsp: or v4l2: source as it is; "
            "jpeg: record pictures as JPEG",
            choices=("jpeg", "copy"),
        ),
        **_LIVE_OPTIONS,
        **RAW_OPTIONS,
        **SIM_CAMERA_OPTIONS,
    }  # fmt: skip
    recorded_kind = "camera"
    schemes: ClassVar = {
        "vrs": "PATH[#STREAM]: a camera's stream in a VRS file",
        "mcap": "PATH[#TOPIC]: pictures in an MCAP file or a ROS 2 bag",
        "sim": "the simulated world, with the frame's number in the picture",
        "file": "a video that OpenCV opens, or a pattern of numbered pictures (img_%04d.jpg)",
        "v4l2": "/dev/videoN, preferably /dev/v4l/by-id/...: a camera of this machine",
        "http": "//[USER:PASSWORD@]HOST[:PORT]/PATH: MJPEG (multipart/x-mixed-replace)",
        "https": "as http, over TLS",
        "rtsp": "//[USER:PASSWORD@]HOST[:PORT]/PATH: H.264, H.265 or JPEG; extra `rtsp`",
    }
    live_schemes: ClassVar = frozenset({"v4l2", "http", "https", "rtsp"})

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._simulated: SimulatedCamera | None = None
        self._coded: SimulatedVideo | None = None
        self._index = 0
        self._fps = SIM_FPS
        self._video: VideoFile | NumberedPictures | H264File | None = None
        self._live: LiveCamera | None = None
        self._came: deque[Shot | Note] = deque()
        self._device_clock: bool | None = None  # as declared at the first opening
        self._exposures = False  # channel declared at the first opening
        self._latency_ns = 0  # to subtract from stamps of arrival
        self._size: tuple[int, int] | None = None  # to resize to
        self._channel = CHANNEL
        self._raw: RawFormat | None = None  # of the simulated camera

    def open(self) -> Sequence[StreamSpec]:
        """Open the source and read its first picture to declare the true size.

        Raises:
            SourceError: the file does not exist or holds no frame that can be decoded; a device
                does not support the options.
            DeviceError: a device is absent or gives no picture.
        """
        self._check_copying()
        if self.sensor.scheme in self.live_schemes:
            return [self._open_live()]
        if self.sensor.options["controls"]:
            raise SourceError(f"{self.sensor.name}: controls: only a v4l2: camera has controls")
        if self.sensor.options["latency_ms"]:
            raise SourceError(f"{self.sensor.name}: latency_ms: only a live camera has latency")
        if self.sensor.scheme != "sim":
            self._refuse_formats()
        return [self._open_simulated() if self.sensor.scheme == "sim" else self._open_file()]

    def _open_simulated(self) -> StreamSpec:
        options = self.sensor.options
        size = wanted_size(options, SIM_SIZE) or SIM_SIZE
        self._fps = options["fps"] or SIM_FPS
        self._simulated = simulated_camera(self.sensor.name, options, size, self._fps)
        self._index = 0
        if self._copying:
            self._coded = SimulatedVideo(self.sensor.name, self._simulated, 0)
        settings = {"scene": options["scene"], "seed": options["seed"], **self._known_times()}
        self._raw = raw_format(self.sensor.name, options["pixel_format"], size[0])
        if self._raw is not None:
            settings["pixel_format"] = self._raw.name
        pixels = None if self._raw is None else self._raw.pixels
        return self._spec(size, self._fps, finite=False, settings=settings, pixels=pixels)

    @property
    def _copying(self) -> bool:
        return bool(self.sensor.options["codec"] == "copy")

    def _check_copying(self) -> None:
        """Raise SourceError for ``codec: copy`` with a source or an option that it excludes."""
        options, name = self.sensor.options, self.sensor.name
        copies_format = options["pixel_format"] == COPIED_FORMAT
        if not self._copying:
            if copies_format:
                raise SourceError(f"{name}: pixel_format: H264 is recorded only with codec: copy")
            return
        if self.sensor.scheme not in _COPIED_SCHEMES:
            known = ", ".join(f"{scheme}:" for scheme in _COPIED_SCHEMES)
            raise SourceError(f"{name}: codec: copy records H.264 of the sources {known} only")
        if options["pixel_format"] and not copies_format:
            raise SourceError(f"{name}: pixel_format: codec: copy records H264 only")
        if self.sensor.scheme in ("file", "rtsp") and (options["width"] or options["height"]):
            raise SourceError(f"{name}: width, height: codec: copy does not resize pictures")

    def _refuse_formats(self) -> None:
        """Raise SourceError for options that only devices and the simulated camera have."""
        if self.sensor.options["pixel_format"]:
            raise SourceError(
                f"{self.sensor.name}: pixel_format: only a v4l2: or sim: camera has this option"
            )

    def _open_file(self) -> StreamSpec:
        options = self.sensor.options
        where = f"{self.sensor.name}: file:{self.sensor.address}"
        if self._copying:
            copied = H264File(where, self.sensor.address, options["fps"])
            copied.open()
            self._video = copied
            return self._spec(copied.size, copied.fps, finite=True, settings={"codec": "h264"})
        video = open_video(where, self.sensor.address, options["fps"])
        self._video, self._size = video, wanted_size(options, video.size)
        passed_through = video.jpegs and self._size is None
        settings = {"codec": video.codec, "passed_through": passed_through}
        return self._spec(self._size or video.size, video.fps, finite=True, settings=settings)

    def _open_live(self) -> StreamSpec:
        live = self._make_live()
        live.open()
        self._live = live
        self._size = wanted_size(self.sensor.options, live.size)
        if self._device_clock is None:
            self._device_clock, self._exposures = live.device_clock, live.reports_exposure
        passed_through = self._copying or (live.jpegs and self._size is None)
        settings = {"passed_through": passed_through, **self._known_times(), **live.settings}
        return self._spec(
            self._size or live.size, live.fps, finite=False, settings=settings,
            device_clock=self._device_clock, pixels=live.raw,
        )  # fmt: skip

    def _known_times(self) -> dict[str, float]:
        """Return the camera's times that the config states, for the stream's settings."""
        names = ("exposure_ms", "readout_ms", "latency_ms")
        return {name: value for name in names if (value := self.sensor.options[name])}

    def _make_live(self) -> LiveCamera:
        sensor, options = self.sensor, self.sensor.options
        if options["gain"] != SIM_CAMERA_OPTIONS["gain"].default:
            raise SourceError(
                f"{sensor.name}: gain: only the simulated camera has this option; "
                "set a v4l2: camera's controls by name, as in controls: {gain: 20}"
            )
        if sensor.scheme == "v4l2":
            return V4l2Camera(
                sensor.name,
                sensor.address,
                size=(options["width"], options["height"]),
                fps=options["fps"],
                pixel_format=options["pixel_format"],
                controls=options["controls"] or {},
                copying=self._copying,
                timing=Timing(
                    options["exposure_ms"] or None, options["readout_ms"], options["latency_ms"]
                ),
                timeout_s=options["timeout_s"],
            )
        self._latency_ns = round(options["latency_ms"] * 1e6)
        if options["controls"]:
            raise SourceError(f"{sensor.name}: controls: only a v4l2: camera has this option")
        self._refuse_formats()
        if sensor.scheme == "rtsp":
            return RtspCamera(
                sensor.name,
                sensor.address,
                fps=options["fps"],
                timeout_s=options["timeout_s"],
                copying=self._copying,
                over_udp=options["transport"] == "udp",
            )
        return HttpCamera(
            sensor.name,
            sensor.scheme,
            sensor.address,
            fps=options["fps"],
            timeout_s=options["timeout_s"],
            number_header=options["frame_number_header"],
        )

    def read(self) -> Item | None:
        """Return the next frame, or the loss of a frame that cannot be decoded.

        Raises:
            EndOfSource: the file's last frame was already returned.
            SourceError: the file ends before its declared number of frames.
            DeviceError: the device is lost.
            StreamChangedError: the size of a device's pictures has changed.
        """
        if self._simulated is not None:
            return self._draw(self._simulated)
        if self._live is not None:
            return self._next_event(self._live)
        if self._video is None:
            raise SourceError(f"{self.sensor.name}: read before open")
        shot = self._video.read()
        if shot is None:
            raise EndOfSource
        if isinstance(shot, Note):
            return State(self.sensor.name, shot.t_ns, shot.values)
        return self._item(*shot)

    def close(self) -> None:
        if self._video is not None:
            self._video.close()
        if self._live is not None:
            self._live.close()
        self._came.clear()
        self._video = self._simulated = self._coded = self._live = None

    def _draw(self, camera: SimulatedCamera) -> Sample:
        index = self._index
        self._index += 1
        t_ns = np.array([round(index * 1e9 / self._fps)], np.int64)
        if self._coded is not None:
            return Sample(self.sensor.name, t_ns, {VIDEO: [self._coded.unit()]})
        make = partial(simulated_pictures, camera, index, self.sensor.options["quality"], CHANNEL)
        if self._raw is not None:
            levels = Levels.of_settings(self._raw.pixels, self.sensor.options)
            raw = partial(raw_pictures, camera, index, self._raw, levels)
            return Sample(self.sensor.name, t_ns, DeferredData(raw))
        return Sample(self.sensor.name, t_ns, DeferredData(make))

    def _next_event(self, live: LiveCamera) -> Item | None:
        if not self._came:
            self._came.extend(live.read(_TURN_S))
        if not self._came:
            return None
        event = self._came.popleft()
        t_ns = event.t_ns - self._latency_ns
        if isinstance(event, Note):
            return State(self.sensor.name, t_ns, event.values)
        t_device_ns = (event.t_device_ns or 0) if self._device_clock else None
        item = self._item(t_ns, event.picture, t_device_ns)
        if self._exposures and isinstance(item, Sample):
            exposure = {EXPOSURE.name: np.array([event.exposure_us or 0], np.uint32)}
            item = replace(item, data={**item.data, **exposure})
        return item

    def _item(self, t_ns: int, picture: Picture, t_device_ns: int | None = None) -> Item:
        if isinstance(picture, CodedPicture):
            picture = picture.data
        elif self._size is not None and not isinstance(picture, Missing):
            picture = resized(picture, self._size)
        if isinstance(picture, Missing):
            detail = {"reason": picture.reason}
            return Lost(self.sensor.name, t_ns, picture.cause, picture.count, detail=detail)
        frames = [picture] if isinstance(picture, bytes) else picture[None]
        device = None if t_device_ns is None else np.array([t_device_ns], np.int64)
        return Sample(self.sensor.name, np.array([t_ns], np.int64), {self._channel: frames}, device)

    def _spec(
        self,
        size: tuple[int, int],
        fps: float | None,
        finite: bool,
        settings: Mapping[str, Any],
        device_clock: bool = False,
        pixels: RawPixels | None = None,
    ) -> StreamSpec:
        width, height = size
        options = self.sensor.options
        channel = ChannelSpec(CHANNEL, "mjpg", "u1", (height, width, 3), "camera image")
        sample_bytes = int(width * height * _BYTES_PER_PIXEL)
        if self._copying:
            channel = ChannelSpec(VIDEO, "h264", "u1", (height, width, 3), "camera image, H.264")
            sample_bytes = int(width * height * _BYTES_PER_CODED_PIXEL)
        if pixels is not None:
            text = f"camera image, the sensor's values ({pixels.name})"
            channel = ChannelSpec(pixels.channel, "raw", pixels.dtype, (height, width), text)
            sample_bytes = channel.sample_bytes
        self._channel = channel.name
        return StreamSpec(
            self.sensor.name,
            (channel, *((EXPOSURE,) if self._exposures else ())),
            rate_hz=fps,
            device_clock=device_clock,
            bytes_per_sample=sample_bytes,
            finite=finite,
            description="camera" if pixels is None else f"camera, {pixels.name}",
            settings={
                "width": width,
                "height": height,
                "fps": fps,
                "jpeg_quality": options["quality"],
                **raw_settings(self.sensor.name, options, pixels),
                **settings,
            },
        )


if __name__ == "__main__":
    main(CameraDriver)
