"""The bytes of a simulated camera: parts of a ``multipart/x-mixed-replace`` stream.

The emulated camera sends these bytes through a socket; ``sim:`` passes the same bytes directly to
the same parser.
"""

from __future__ import annotations

from typing import Final

from drivers._protocols.multipart import MultipartParser, Part
from drivers.sim.camera import Image, SimulatedCamera
from recorder.contract.channel_formats.jpeg import encode_jpeg

BOUNDARY: Final = "recorder-frame"
NUMBER_HEADER: Final = "X-Frame-Number"


def part(jpeg: bytes | memoryview, number: int, t_device_ns: int) -> bytes:
    """Return one picture in the wire format, with its number and the camera's time."""
    seconds, rest_ns = divmod(t_device_ns, 1_000_000_000)
    head = (
        f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n"
        f"{NUMBER_HEADER}: {number}\r\nX-Timestamp: {seconds}.{rest_ns // 1000:06d}\r\n\r\n"
    )
    return b"".join((head.encode(), jpeg, b"\r\n"))


def simulated_jpeg(camera: SimulatedCamera, index: int, quality: int) -> bytes:
    """Return picture `index` of a simulated camera as the JPEG of the camera's own encoder."""
    return encoded(camera.frame(index), quality)


def encoded(image: Image, quality: int) -> bytes:
    """Encode an image as JPEG; ValueError if OpenCV cannot encode it."""
    jpeg = encode_jpeg(image, quality)
    if jpeg is None:
        raise ValueError(f"OpenCV cannot encode an image {list(image.shape)}")
    return bytes(jpeg)


def simulated_pictures(
    camera: SimulatedCamera, index: int, quality: int, channel: str
) -> dict[str, list[bytes]]:
    """Draw, encode and parse picture `index`; return the data of its sample."""
    t_ns = round(index * 1e9 / camera.fps)
    (parsed,) = MultipartParser(BOUNDARY).feed(
        part(simulated_jpeg(camera, index, quality), index, t_ns)
    )
    assert isinstance(parsed, Part)
    return {channel: [parsed.body]}
