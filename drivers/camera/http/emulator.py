"""An emulated camera: JPEGs over HTTP (``multipart/x-mixed-replace``) for any number of clients.

The simulated world or a video file feeds the camera.  The camera runs on its own time: picture k is
due k / fps after the first `step`, with or without clients; a video begins with its first client.
A client's pictures are numbered (``X-Frame-Number``) and stamped with the camera's own clock
(``X-Timestamp``), both from 0 at each power-on.

Faults, counted in pictures where possible:

- ``loss``: the picture is taken and numbered, but not sent.
- ``corrupt``: the second half of the JPEG is missing.
- ``duplicate``: the picture is sent twice, with the same number.
- ``stall``: pictures are numbered, but not sent; the connections stay open.
- ``reboot``: the camera is absent for a while; then numbers and clock start again.
- ``unplug``: the camera is absent for a while, and its numbers and clock continue.
- ``clock_jump``: the camera's clock jumps.

The faults' time begins with the first picture that a client receives.  ``reorder`` is rejected: TCP
does not reorder.  A client's first picture has no fault, because a loss before it cannot be
counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from drivers.camera.files.numbered import open_video
from drivers.camera.model import SIM_FPS, SIM_SIZE, make_camera
from drivers.camera.model_output import BOUNDARY, encode_part, encode_picture, make_jpeg
from drivers.camera.pictures import Missing, Note, choose_size, resize_picture
from drivers.camera.served_emulator import Client, ServedCamera
from drivers.kit.emulator import LOOPBACK, EmulatedSource
from drivers.kit.emulator_faults import Fault
from recorder.common.errors import SourceError
from recorder.config.settings import SensorEntry

PATH = "/stream.mjpg"

_REQUEST = re.compile(rb"(GET|HEAD) (\S{1,2000}) HTTP/1\.[01]\r?\n")
_HEAD = (
    "HTTP/1.1 200 OK\r\n"
    f"Content-Type: multipart/x-mixed-replace; boundary={BOUNDARY}\r\n"
    "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
)
_MAX_REQUEST_BYTES = 8 << 10
_MAX_WAITING_BYTES = 32 << 20  # for a client that reads too slowly


@dataclass(eq=False)
class _Client(Client):
    """A connection.

    Attributes:
        given: number of pictures that the client has received.
        closing: the connection is closed after all bytes are sent.
    """

    given: int = 0
    closing: bool = False


class CameraEmulator(ServedCamera[_Client]):
    """One camera on loopback; see the module.

    >>> emulator = CameraEmulator(entry, [Fault("loss", rate=0.01)], seed=1)
    >>> emulator.start().source
    'http://127.0.0.1:41235/stream.mjpg'

    Attributes:
        skipped: pictures that clients missed because they read too slowly.
        sent: pictures that were sent to at least one client.
    """

    client_kind = _Client

    def __init__(self, sensor: SensorEntry, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        super().__init__(sensor, faults, seed)
        if any(fault.kind == "reorder" for fault in faults):
            raise SourceError(f"{sensor.name}: a camera's stream over TCP is never reordered")
        if sensor.options["pixel_format"] not in (None, "MJPG"):
            raise SourceError(f"{sensor.name}: pixel_format: an emulated camera sends JPEGs")
        self._first = 0  # index of the picture that has number 0
        self.sent = 0

    def start(self) -> EmulatedSource:
        options = self.sensor.options
        self._pictures = _pictures(self.sensor)
        self._fps = self._pictures.fps
        self._listen()
        source = f"http://{LOOPBACK}:{self._port}{PATH}"
        return EmulatedSource(source, {"fps": self._fps, "quality": options["quality"]})

    @property
    def _sequential(self) -> bool:
        return self._pictures.sequential

    def stop(self) -> None:
        self._hang_up()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._pictures.close()

    # Time

    def _next_index(self, elapsed_ns: int) -> int:
        index = int(elapsed_ns * self._fps / 1e9)
        while self._due_ns(index) <= elapsed_ns:
            index += 1
        return index

    def _skip(self, elapsed_ns: int) -> None:
        self._next = max(self._next, self._next_index(elapsed_ns))

    def _reappear(self, elapsed_ns: int, /, *, rebooted: bool) -> None:
        self._skip(elapsed_ns)
        if rebooted:
            self._first = self._next

    # Pictures

    def _picture(self, due_ns: int) -> None:
        """Take picture `_next` and send it to the playing clients."""
        index, number = self._next, self._next - self._first
        self._next += 1
        clients = [client for client in self._clients if client.playing]
        jpeg = self._pictures.jpeg(index)
        if jpeg is None:
            self._ended = True
            for client in clients:
                client.waiting += f"--{BOUNDARY}--\r\n".encode()
                client.closing = True
            return
        if not clients:
            return
        if self._first_ns is None:
            self._first_ns = due_ns
        t_s = (due_ns - self._first_ns) / 1e9
        if self._count_stall(t_s):
            return
        device_ns = max(0, due_ns - self._power_on_ns + self._jump_ns)
        sent = [encode_part(jpeg, number, device_ns)]
        if all(client.given for client in clients):
            sent = self._hit(t_s, jpeg, number, device_ns)
        self.sent += bool(sent)
        for client in clients:
            self._give(client, sent)

    def _hit(self, t_s: float, jpeg: bytes, number: int, device_ns: int) -> list[bytes]:
        """Return the parts that are sent for a picture."""
        token = number.to_bytes(8, "big")  # replaces the picture, so that only JPEGs are damaged
        outcome = self._packet_faults.apply(t_s, token)
        good = encode_part(jpeg, number, device_ns)
        bad = encode_part(jpeg[: len(jpeg) // 2], number, device_ns)
        return [good if each == token else bad for each in outcome]

    def _give(self, client: _Client, parts: Sequence[bytes]) -> None:
        if len(client.waiting) > _MAX_WAITING_BYTES:
            self.skipped += 1
            return
        for each in parts:
            client.waiting += each
        client.given += 1

    # Connections

    def _receive(self, client: _Client, data: bytes) -> bool:
        if client.playing or client.closing:
            return True  # further bytes are ignored
        client.request += data
        if b"\r\n\r\n" in client.request or len(client.request) > _MAX_REQUEST_BYTES:
            self._answer(client)
        return True

    def _answer(self, client: _Client) -> None:
        match = _REQUEST.match(client.request)
        if match is None:
            status = "400 Bad Request"
        elif match[2].partition(b"?")[0] not in (PATH.encode(), b"/"):
            status = "404 Not Found"
        else:
            client.waiting += _HEAD.encode()
            client.playing = match[1] == b"GET"
            client.closing = not client.playing
            self._watched |= client.playing
            return
        client.closing = True
        client.waiting += (
            f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )

    def _send(self, client: _Client) -> bool:
        return super()._send(client) and not client.closing


# Pictures


class _Pictures(Protocol):
    """The source of the camera's pictures.

    Attributes:
        fps: pictures per second.
        sequential: pictures are made one after the other, however long each takes.
    """

    fps: float
    sequential: bool

    def jpeg(self, index: int, /) -> bytes | None:
        """Return picture `index`; None at the end."""

    def close(self) -> None:
        """Release all resources."""


class _Simulated:
    """Pictures of the simulated world, in any order."""

    sequential = False

    def __init__(self, sensor: SensorEntry) -> None:
        options = sensor.options
        self.fps: float = options["fps"] or SIM_FPS
        size = choose_size(options, SIM_SIZE) or SIM_SIZE
        self._camera = make_camera(sensor.name, options, size, self.fps)
        self._quality = options["quality"]

    def jpeg(self, index: int) -> bytes | None:
        return make_jpeg(self._camera, index, self._quality)

    def close(self) -> None:
        pass


class _Recorded:
    """A video's JPEGs, or its encoded pictures, in order."""

    sequential = True

    def __init__(self, sensor: SensorEntry) -> None:
        self._where = f"{sensor.name}: file:{sensor.address}"
        self._address = sensor.address
        self._loop = sensor.loop
        self._quality = sensor.options["quality"]
        self._video = open_video(self._where, self._address, None)
        self._size = choose_size(sensor.options, self._video.size)
        self.fps: float = sensor.options["fps"] or self._video.fps or SIM_FPS

    def jpeg(self, _: int) -> bytes | None:
        """Return the next picture, whatever its index; None at the end."""
        begun = False
        while True:
            shot = self._video.read()
            if shot is None:
                self._video.close()
                if not self._loop or begun:
                    return None
                begun = True  # a file without a complete picture must not loop forever
                self._video = open_video(self._where, self._address, None)
                continue
            if isinstance(shot, Note):
                continue
            picture = shot[1]
            if self._size is not None and not isinstance(picture, Missing):
                picture = resize_picture(picture, self._size)
            if isinstance(picture, Missing):
                continue  # a camera sends only the pictures that it has
            return picture if isinstance(picture, bytes) else encode_picture(picture, self._quality)

    def close(self) -> None:
        self._video.close()


def _pictures(sensor: SensorEntry) -> _Pictures:
    match sensor.scheme:
        case "sim":
            return _Simulated(sensor)
        case "file":
            return _Recorded(sensor)
        case _:
            raise SourceError(
                f"{sensor.name}: a camera is emulated from sim: or file:, not {sensor.scheme}:"
            )
