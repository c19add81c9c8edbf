"""What a simulated camera sends: parts of a ``multipart/x-mixed-replace`` stream.

The emulated camera sends these bytes through a socket; ``sim:`` hands the same bytes to the same
parser without one.
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
    """One picture as it goes over the wire, with its number and the camera's time."""
    seconds, rest_ns = divmod(t_device_ns, 1_000_000_000)
    head = (
        f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n"
        f"{NUMBER_HEADER}: {number}\r\nX-Timestamp: {seconds}.{rest_ns // 1000:06d}\r\n\r\n"
    )
    return b"".join((head.encode(), jpeg, b"\r\n"))


def simulated_jpeg(camera: SimulatedCamera, index: int, quality: int) -> bytes:
    """Picture `index` of a simulated camera, encoded as a camera's own encoder would."""
    return encoded(camera.frame(index), quality)


def encoded(image: Image, quality: int) -> bytes:
    """An image as JPEG; ValueError where OpenCV cannot."""
    jpeg = encode_jpeg(image, quality)
    if jpeg is None:
        raise ValueError(f"an image {list(image.shape)} that OpenCV cannot encode")
    return bytes(jpeg)


class SimulatedPicture(Mapping[str, list[bytes]]):
    """Data of one sample: the picture is drawn, encoded and parsed when it is asked for.

    A driver that comes back in mid-session skips what has gone by; of an endless simulated source
    these may be many hours.

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
