"""Cameras that stream over RTSP, through OpenCV's FFmpeg, over TCP.

A picture's stamp is the time of its decoding on this machine.  It is later than the exposure by
the delays of the camera's encoder, the network and the decoder; a decoder that reorders adds the
time of whole pictures.  A camera's MJPEG over HTTP has stamps nearer to the exposure.  RTP's own
numbers stay inside FFmpeg, so gaps cannot be counted; TCP loses no data in transit.  MJPEG in RTP
is passed on as FFmpeg reassembles it (RTP omits a JPEG's tables, RFC 2435).
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from drivers._devices.pictures import (
    LiveCamera,
    Missing,
    Note,
    Picture,
    Shot,
    passable,
    quiet_opencv,
    same_size,
    trimmed,
)
from recorder.contract.errors import DeviceError, ProtocolError, RecorderError, SourceError
from recorder.contract.redaction import mask_value

_CONNECT_S = 2.5
_OPEN_S = 4.8  # longest wait for a first picture in all
_WAITING = 16  # pictures that may wait for the encoder
_MOST_FPS = 1000.0
_BACKLOG_S = 1.5  # longest time for pictures that gathered while FFmpeg probed the stream
_FRESH = 0.3  # share of a period: a picture with a longer wait is not from the backlog
_ASSUMED_FPS = 30.0


@dataclass(frozen=True, slots=True)
class _Stream:
    """Properties of a stream, with its first picture."""

    size: tuple[int, int]
    fps: float | None
    codec: str
    jpegs: bool


class RtspCamera(LiveCamera):
    """A stream that FFmpeg plays.

    Args:
        name: the sensor's name.
        address: the text after ``rtsp:``.
        fps: nominal rate; None: the stream's declared rate.
        timeout_s: time without a picture after which the camera is lost.
    """

    def __init__(
        self, name: str, address: str, *, fps: float | None = None, timeout_s: float = 5.0
    ) -> None:
        self.where = f"{name}: {mask_value(f'rtsp:{address}')}"
        self._url = f"rtsp:{address}"
        self._timeout_s = timeout_s
        self._wanted_fps = fps
        self._player: _Player | None = None
        try:
            parts = urlsplit(self._url)
            good = bool(parts.hostname) and address.startswith("//") and parts.port != 0
        except ValueError as error:
            raise SourceError(f"{self.where}: is not an address: {error}") from None
        if not good:
            raise SourceError(f"{self.where}: needs the form rtsp://HOST[:PORT]/PATH")

    def open(self) -> None:
        quiet_opencv()
        self._failure: Exception | None = None
        self._player = player = _Player(self.where, self._url, self._timeout_s)
        try:
            opened = player.opened.get(timeout=_OPEN_S)
        except queue.Empty:
            opened = DeviceError(f"{self.where}: no picture within {_OPEN_S:g} s")
        if isinstance(opened, Exception):
            self.close()
            raise opened
        self.size, self.jpegs = opened.size, opened.jpegs
        self.fps = self._wanted_fps or opened.fps
        self.settings = {"codec": opened.codec, "stamps": "arrival, decoded"}

    def read(self, timeout_s: float) -> list[Shot | Note]:
        if self._player is None:
            raise DeviceError(f"{self.where}: read before open")
        events: list[Shot | Note] = []
        while self._failure is None:
            try:
                item = self._player.shots.get(timeout=0 if events else timeout_s)
            except queue.Empty:
                return events
            if isinstance(item, Exception):
                self._failure = item  # raised after the earlier pictures were returned
            else:
                events.append(item)
        if not events:
            raise self._failure
        return events

    def close(self) -> None:
        """Release the stream; a running call of FFmpeg ends at its own time limit."""
        if self._player is not None:
            self._player.stop()
        self._player = None


class _Player:
    """One connection, read by its own thread: FFmpeg's calls block, for a limited time.

    Attributes:
        opened: the stream's properties, or the reason why there is no stream; once.
        shots: pictures in order of arrival; at the end, the reason of the end.
    """

    def __init__(self, where: str, url: str, timeout_s: float) -> None:
        self._where = where
        self._url = url
        self._timeout_s = timeout_s
        self.opened: queue.Queue[_Stream | Exception] = queue.Queue()
        self.shots: queue.Queue[Shot | Exception] = queue.Queue()
        self._stopping = threading.Event()
        self._refused = 0
        self._last_ns = -1
        self._thread = threading.Thread(target=self._run, name="rtsp", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; it ends after its present call."""
        self._stopping.set()
        self._thread.join(0.2)

    def _run(self) -> None:
        capture: Any = None
        results: queue.Queue[Any] = self.opened
        try:
            capture = self._connected()
            stream, picture = self._first(capture)
            results.put(stream)
            results = self.shots
            while not self._stopping.is_set():
                self._add(picture, stream)
                picture = self._next(capture)
        except RecorderError as error:
            results.put(error)
        except Exception as error:  # noqa: BLE001  the reading thread raises it again
            results.put(DeviceError(f"{self._where}: {error}"))
        finally:
            if capture is not None:
                capture.release()

    def _connected(self) -> Any:
        import cv2

        parameters = [
            *(cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, round(_CONNECT_S * 1e3)),
            *(cv2.CAP_PROP_READ_TIMEOUT_MSEC, round(self._timeout_s * 1e3)),
            # One thread: it adds no delay, and the other cores are for the other sensors.
            *(cv2.CAP_PROP_N_THREADS, 1),
        ]
        capture = cv2.VideoCapture(self._url, cv2.CAP_FFMPEG, parameters)
        if not capture.isOpened():
            capture.release()
            raise DeviceError(f"{self._where}: no stream (FFmpeg gives no reason)")
        return capture

    def _first(self, capture: Any) -> tuple[_Stream, npt.NDArray[np.uint8]]:
        import cv2

        code = int(capture.get(cv2.CAP_PROP_FOURCC)) & 0xFFFFFFFF
        codec = code.to_bytes(4, "little").decode("latin-1").strip("\0 ")
        jpegs = codec == "MJPG" and bool(capture.set(cv2.CAP_PROP_FORMAT, -1))
        fps = float(capture.get(cv2.CAP_PROP_FPS))
        picture = self._next(capture)
        if jpegs:
            try:
                header = passable(picture.tobytes())
            except ProtocolError as error:
                raise DeviceError(f"{self._where}: {error}") from None
            size = header.width, header.height
        else:
            size = picture.shape[1], picture.shape[0]
        stream = _Stream(size, fps if 0 < fps <= _MOST_FPS else None, codec, jpegs)
        return stream, self._fresh(capture, stream, picture)

    def _fresh(
        self, capture: Any, stream: _Stream, picture: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.uint8]:
        """Return the first picture that arrives while it is awaited.

        FFmpeg probes a stream for about a second before it returns the first picture.  Pictures
        that arrived during that time follow at once: their stamps would be wrong by that second.
        """
        wait_s = _FRESH / (stream.fps or _ASSUMED_FPS)
        start_s = time.monotonic()
        while not self._stopping.is_set() and time.monotonic() - start_s < _BACKLOG_S:
            before_s = time.monotonic()
            picture = self._next(capture)
            if time.monotonic() - before_s > wait_s:
                break
        return picture

    def _next(self, capture: Any) -> npt.NDArray[np.uint8]:
        done, picture = capture.read()
        if not done:
            raise DeviceError(
                f"{self._where}: the stream ended, or no data arrived for {self._timeout_s:g} s"
            )
        return np.asarray(picture, np.uint8)

    def _add(self, raw: npt.NDArray[np.uint8], stream: _Stream) -> None:
        """Pass a picture on, or count it where too many pictures wait already."""
        t_ns = self._last_ns = max(time.monotonic_ns(), self._last_ns + 2)
        if self.shots.qsize() >= _WAITING:
            self._refused += 1
            return
        if self._refused:
            reason = "came faster than they could be encoded"
            self.shots.put(Shot(t_ns - 1, Missing(reason, self._refused, "overrun")))
            self._refused = 0
        picture: Picture = raw
        if stream.jpegs:
            picture = trimmed(self._where, raw.tobytes(), stream.size)
        else:
            same_size(self._where, (raw.shape[1], raw.shape[0]), stream.size)
        self.shots.put(Shot(t_ns, picture))
