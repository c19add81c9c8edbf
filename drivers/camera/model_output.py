"""Output of a simulated camera: parts of an HTTP stream, raw pictures, and H.264.

``sim:`` passes these bytes to the same parsers as a device's; the emulated cameras send them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.camera.decoder import require_pyav
from drivers.camera.http.multipart import MultipartParser, Part
from drivers.camera.model import Image, SimulatedCamera
from drivers.camera.raw_pictures import RAW_FORMATS, RawFormat, unpack_pixels
from recorder.codecs.jpeg import encode_jpeg
from recorder.codecs.raw_pixels import Levels
from recorder.common.errors import SourceError

BOUNDARY: Final = "recorder-frame"
NUMBER_HEADER: Final = "X-Frame-Number"


def encode_part(jpeg: bytes | memoryview, number: int, t_device_ns: int) -> bytes:
    """Return one picture in the wire format, with its number and the camera's time."""
    seconds, rest_ns = divmod(t_device_ns, 1_000_000_000)
    head = (
        f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n"
        f"{NUMBER_HEADER}: {number}\r\nX-Timestamp: {seconds}.{rest_ns // 1000:06d}\r\n\r\n"
    )
    return b"".join((head.encode(), jpeg, b"\r\n"))


def make_jpeg(camera: SimulatedCamera, index: int, quality: int) -> bytes:
    """Return picture `index` of a simulated camera as the JPEG of the camera's own encoder."""
    return encode_picture(camera.frame(index), quality)


def encode_picture(image: Image, quality: int) -> bytes:
    """Encode an image as JPEG; ValueError if OpenCV cannot encode it."""
    jpeg = encode_jpeg(image, quality)
    if jpeg is None:
        raise ValueError(f"OpenCV cannot encode an image {list(image.shape)}")
    return bytes(jpeg)


def make_pictures(
    camera: SimulatedCamera, index: int, quality: int, channel: str
) -> dict[str, list[bytes]]:
    """Draw, encode and parse picture `index`; return the data of its sample."""
    t_ns = round(index * 1e9 / camera.fps)
    (parsed,) = MultipartParser(BOUNDARY).feed(
        encode_part(make_jpeg(camera, index, quality), index, t_ns)
    )
    assert isinstance(parsed, Part)
    return {channel: [parsed.body]}


_CHANNEL = {"B": 0, "G": 1, "R": 2}  # of a BGR picture


def choose_raw_format(name: str, pixel_format: str | None, width: int) -> RawFormat | None:
    """Return the raw format that a simulated camera's options name; None if it makes JPEGs.

    Args:
        name: the sensor's name, for messages.
        pixel_format: the option.
        width: of the pictures, in pixels.

    Raises:
        SourceError: the simulated camera does not have the format, or not with that width.
    """
    if pixel_format in (None, "MJPG"):
        return None
    form = RAW_FORMATS.get(pixel_format or "")
    if form is None:
        known = ", ".join(RAW_FORMATS)
        raise SourceError(f"{name}: pixel_format: a simulated camera offers MJPG, {known}")
    if width % form.group:
        raise SourceError(f"{name}: width: {form.name} needs a multiple of {form.group} pixels")
    return form


def make_raw_values(image: Image, levels: Levels) -> npt.NDArray[Any]:
    """Return the values of a sensor that sees a picture.

    Args:
        image: u1 [height, width, 3], BGR.
        levels: the sensor's; its pattern decides the colour of each pixel.

    Returns:
        u1 or u2 [height, width].
    """
    import cv2

    values = np.empty(image.shape[:2], "<" + levels.pixels.dtype)
    for rows, columns, colour in levels.pixels.places:
        seen = (
            cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
            if colour == "Y"
            else (image[..., _CHANNEL[colour]])
        )
        values[rows, columns] = levels.values(colour)[seen[rows, columns]]
    return values


def pack_pixels(values: npt.NDArray[Any], form: RawFormat) -> bytes:
    """Pack the values of a picture; the inverse of `unpack_pixels`.

    Args:
        values: u1 or u2 [height, width]; the width is a multiple of `form.group`.
        form: the format to pack to.
    """
    if not form.packed:
        return values.astype("<" + form.pixels.dtype).tobytes()
    low_bits = form.pixels.bits - 8
    groups = values.reshape(-1, form.group).astype("<u4")
    shifts = np.arange(form.group, dtype="<u4") * low_bits
    low = ((groups & ((1 << low_bits) - 1)) << shifts).sum(axis=1, dtype="<u4")
    low_bytes = low[:, None].view(np.uint8)[:, : form.group * low_bits // 8]
    return np.hstack([(groups >> low_bits).astype(np.uint8), low_bytes]).tobytes()


def make_raw_pictures(
    camera: SimulatedCamera, index: int, form: RawFormat, levels: Levels
) -> dict[str, npt.NDArray[Any]]:
    """Draw, pack and unpack picture `index`; return the data of its sample."""
    values = make_raw_values(camera.frame(index), levels)
    rows = np.frombuffer(pack_pixels(values, form), np.uint8).reshape(len(values), -1)
    return {form.pixels.channel: unpack_pixels(rows, form)[None]}


_QUIET = "log-level=none:scenecut=0"


class SimulatedVideo:
    """Access units of consecutive pictures; a keyframe with parameter sets every second.

    >>> video = SimulatedVideo("front", camera, first=0)
    >>> unit = video.unit()          # picture 0, Annex B

    Args:
        where: the camera, for messages.
        camera: draws the pictures; their width and height must be even.
        first: number of the first picture, which is a keyframe.

    Raises:
        SourceError: PyAV is not installed, or the pictures have an odd width or height.
    """

    def __init__(self, where: str, camera: SimulatedCamera, first: int) -> None:
        require_pyav(where)
        import av

        width, height = camera.lens.width, camera.lens.height
        if width % 2 or height % 2:
            raise SourceError(f"{where}: {width} x {height}: H.264 needs even width and height")
        self._camera = camera
        self._next = first
        self._new_frame = av.VideoFrame.from_ndarray
        context: Any = av.CodecContext.create("libx264", "w")
        context.width, context.height = width, height
        context.pix_fmt = "yuv420p"
        context.framerate = Fraction(camera.fps).limit_denominator(1000)
        context.time_base = 1 / context.framerate
        context.thread_count = 1  # the same pictures give the same bytes
        group = str(max(1, round(camera.fps)))
        tuning = {"preset": "ultrafast", "tune": "zerolatency", "g": group, "bf": "0"}
        context.options = {**tuning, "x264-params": _QUIET}
        self._context = context

    def unit(self) -> bytes:
        """Draw and encode the next picture."""
        frame = self._new_frame(self._camera.frame(self._next), format="bgr24")
        frame.pts = self._next
        self._next += 1
        return b"".join(bytes(packet) for packet in self._context.encode(frame))
