"""The bytes of a simulated camera: parts of a ``multipart/x-mixed-replace`` stream.

The emulated camera sends these bytes through a socket; ``sim:`` passes the same bytes directly to
the same parser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


class SimulatedPicture(Mapping[str, list[bytes]]):
    """Data of one sample: the picture is drawn, encoded and parsed on access.

    A driver that restarts during a session skips the samples up to the present time; an endless
    simulated source may have many hours of them.

    >>> data = SimulatedPicture(camera, 17, quality=90, channel="video.avi")
    >>> (jpeg,) = data["video.avi"]
    """

    def __init__(self, camera: SimulatedCamera, index: int, quality: int, channel: str) -> None:
        self._camera = camera
        self._index = index
        self._quality = quality
        self._channel = channel
        self._made: list[bytes] | None = None

    def __getitem__(self, name: str) -> list[bytes]:
        if name != self._channel:
            raise KeyError(name)
        if self._made is None:
            jpeg = simulated_jpeg(self._camera, self._index, self._quality)
            t_ns = round(self._index * 1e9 / self._camera.fps)
            (parsed,) = MultipartParser(BOUNDARY).feed(part(jpeg, self._index, t_ns))
            assert isinstance(parsed, Part)
            self._made = [parsed.body]
        return self._made

    def __iter__(self) -> Iterator[str]:
        return iter((self._channel,))

    def __len__(self) -> int:
        return 1
