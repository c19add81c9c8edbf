"""Camera driver: V4L2 devices, RTSP and HTTP streams, video files, and a simulated camera.

The driver has one stream with the sensor's name and the channel ``video.avi`` (mjpg, u1 [height,
width, 3], BGR); of a camera that reports its exposure time also the channel ``exposure`` (raw, u4,
us, 0 where unknown).  JPEGs of the source (a camera's own MJPEG, MJPEG in any container, a JPEG
sequence) are recorded byte for byte, without the padding after the end of an image.  Other
formats are decoded here and encoded by the kit.  A raw `pixel_format` has the channel
``image.FORMAT`` (raw, u1 or u2 [height, width]) in place of ``video.avi``, with all bits of the
sensor's values; see `recorder.codecs.raw_pixels`.  With ``codec: copy`` the channel is
``video.h264`` (h264, u1 [height, width, 3]): access units as the source encoded them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import ClassVar

from drivers.camera.live import HttpSource, RtspSource, V4l2Source
from drivers.camera.played import FileSource
from drivers.camera.simulated import SimulatedSource
from drivers.camera.stream import COMMON_OPTIONS, CameraSource
from drivers.kit.driver import SensorConfig
from drivers.kit.source_driver import ReadDriver
from drivers.kit.topics.connect import TOPIC_FORMS, TOPIC_OPTIONS, TOPIC_SCHEMES
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import SourceError

SOURCES: Mapping[str, type[CameraSource]] = {
    "v4l2": V4l2Source,
    "rtsp": RtspSource,
    "http": HttpSource,
    "https": HttpSource,
    "file": FileSource,
    "sim": SimulatedSource,
}


class CameraDriver(ReadDriver):
    """Records a camera, plays a video file, or draws the simulated world.

    >>> driver = CameraDriver(sensor)
    >>> (spec,) = driver.open()
    >>> sample = driver.read()
    >>> sample.data["video.avi"]         # uint8 [1, h, w, 3] (BGR), or a list with one JPEG
    >>> driver.close()
    """

    options: ClassVar = dict(
        chain(
            COMMON_OPTIONS.items(),
            *(source.options.items() for source in SOURCES.values()),
            TOPIC_OPTIONS.items(),
        )
    )
    recorded_kind = "camera"
    schemes: ClassVar = {
        "vrs": "PATH[#STREAM]: a camera's stream in a VRS file",
        "bag": "PATH[#TOPIC]: pictures in a ROS 2 bag (MCAP, SQLite)",
        "mcap": "as bag",
        "sim": "the simulated world, with the frame's number in the picture",
        "file": "a video that OpenCV opens, or a pattern of numbered pictures (img_%04d.jpg)",
        "v4l2": "/dev/videoN, preferably /dev/v4l/by-id/...: a camera of this machine",
        "http": "//[USER:PASSWORD@]HOST[:PORT]/PATH: MJPEG (multipart/x-mixed-replace)",
        "https": "as http, over TLS",
        "rtsp": "//[USER:PASSWORD@]HOST[:PORT]/PATH: H.264, H.265 or JPEG; extra `rtsp`",
        **TOPIC_FORMS,
    }
    live_schemes: ClassVar = frozenset({"v4l2", "http", "https", "rtsp", *TOPIC_SCHEMES})

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._camera = SOURCES[sensor.scheme](sensor)

    def open(self) -> Sequence[StreamSpec]:
        """Open the source and read its first picture to declare the true size.

        Raises:
            SourceError: the file does not exist or holds no frame that can be decoded; a source
                does not support the options.
            DeviceError: a device is absent or gives no picture.
        """
        camera = self._camera
        if camera.copying and not camera.copies:
            known = ", ".join(f"{s}:" for s, source in sorted(SOURCES.items()) if source.copies)
            name = self.sensor.name
            raise SourceError(f"{name}: codec: copy records H.264 of the sources {known} only")
        camera.check_options(self.options)
        spec = camera.open()
        self.source = camera
        return [spec]
