"""Cameras that stream H.264, H.265 or JPEG over RTSP, with RTP over TCP or UDP.

A picture's stamp is the arrival of its first RTP packet on this machine.  The stamp is later than
the exposure by the delays of the camera's encoder and of the network; decoding does not move it.
One thread receives and stamps, another one decodes.  Between them is a bounded `Backlog`: when
pictures arrive faster than they are decoded and recorded, they are dropped and counted
(``overrun``), and recording resumes at the next picture that is decodable.  Gaps in RTP's sequence
numbers are counted losses.  JPEGs are recorded without decoding, and so is H.264 with
``codec: copy``: a picture then also has the camera's time, from its sender reports (RTCP).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from drivers.camera.decoder import Decoder, make_decoder, require_pyav
from drivers.camera.h264 import H264Passing
from drivers.camera.http.camera import Connection, Url, connect, parse_url
from drivers.camera.pictures import (
    LiveCamera,
    Missing,
    Note,
    Shot,
    check_jpeg,
    find_size,
    require_same_size,
    trim_jpeg,
)
from drivers.camera.rtsp.backlog import Backlog, Dropped
from drivers.camera.rtsp.client import RtspClient
from drivers.camera.rtsp.messages import Media
from drivers.camera.rtsp.rtp import AccessUnit, Depacketizer, NalAssembler
from drivers.camera.rtsp.rtp_jpeg import JpegAssembler
from drivers.camera.rtsp.udp_ports import RtpPorts
from recorder.common.errors import DeviceError, ProtocolError, RecorderError
from recorder.common.secret_masking import mask_value

_OPEN_S = 4.8  # longest wait for a first picture in all
_UNITS = 32  # pictures before the decoder
_BYTES = 32 << 20
_SHOTS = 4  # pictures after the decoder; a full queue stops the decoder
_COPIED_SHOTS = 256  # without a decoder; after a stall many come at once
_TURN_S = 0.2


class RtspCamera(LiveCamera):
    """A stream over RTSP.

    Args:
        name: the sensor's name.
        address: the text after ``rtsp:``.
        fps: nominal rate; None: the stream's declared rate.
        timeout_s: time without a picture after which the camera is lost.
        copying: H.264 is recorded as it is.
        over_udp: RTP comes over UDP.
        connecting: makes the connection.
        decoding: makes the decoder.
        clock: CLOCK_MONOTONIC in ns.
    """

    def __init__(
        self,
        name: str,
        address: str,
        *,
        fps: float | None = None,
        timeout_s: float = 5.0,
        copying: bool = False,
        over_udp: bool = False,
        connecting: Callable[[Url], Connection] = connect,
        decoding: Callable[[Media], Decoder] | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.where = f"{name}: {mask_value(f'rtsp:{address}')}"
        self._url = parse_url(self.where, "rtsp", address)
        self._wanted_fps = fps
        self._timeout_s = timeout_s
        self._connecting = connecting
        passing = partial(H264Passing, self.where) if copying else make_decoder
        self._decoding = decoding or passing
        self.device_clock = copying
        ports = partial(RtpPorts, ipv6=":" in self._url.host)
        self._opening = ports if over_udp else None
        self._clock = clock
        self._player: _Player | None = None

    def open(self) -> None:
        require_pyav(self.where)
        self._failure: Exception | None = None
        deadline_ns = self._clock() + round(_OPEN_S * 1e9)
        client = RtspClient(self.where, self._url, self._connecting, self._clock, self._opening)
        try:
            media = client.start(deadline_ns)
            decoder = self._decoding(media)
        except BaseException:
            client.close()
            raise
        timeout_ns = round(self._timeout_s * 1e9)
        left_ns = deadline_ns - self._clock()
        player = _Player(
            self.where, client, media, decoder, self._clock, timeout_ns, alone=self.device_clock
        )
        self._player = player
        try:
            opened = player.shots.get(timeout=max(left_ns / 1e9, 0.01))
        except queue.Empty:
            opened = DeviceError(
                f"{self.where}: no picture that is decodable without earlier ones within "
                f"{_OPEN_S:g} s (the camera's interval of key frames must be shorter)"
            )
        if isinstance(opened, Exception):
            self.close()
            raise opened
        self._first: Shot | None = opened
        self.size, self.jpegs = player.size, media.codec == "jpeg"
        self.fps = self._wanted_fps or media.fps or decoder.fps
        self.settings = {"codec": media.codec, "stamps": "arrival of the first packet"}

    def read(self, timeout_s: float) -> list[Shot | Note]:
        if self._player is None:
            raise DeviceError(f"{self.where}: read before open")
        events: list[Shot | Note] = []
        first, self._first = self._first, None
        if first is not None:
            events.append(first)
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
        """Release the stream; its threads end after their present call."""
        if self._player is not None:
            self._player.stop()
        self._player = None


class _Player:
    """The threads of one connection: one receives, one decodes.

    Args:
        alone: one thread does both; decoding costs nothing.

    Attributes:
        shots: pictures and losses from the first picture on; at the end, the reason of the end.
        size: (width, height) of the first picture.
    """

    def __init__(
        self,
        where: str,
        client: RtspClient,
        media: Media,
        decoder: Decoder,
        clock: Callable[[], int],
        timeout_ns: int,
        alone: bool,
    ) -> None:
        self._where = where
        self._client = client
        assembler = JpegAssembler() if media.codec == "jpeg" else NalAssembler(media.codec)
        self._depacketizer = Depacketizer(assembler, media.payload_type, media.clock_hz)
        self._decoder = decoder
        self._clock = clock
        self._timeout_ns = timeout_ns
        self._backlog = Backlog(_UNITS, _BYTES)
        self._alone = alone
        self._stopping = threading.Event()
        self._last_ns = 0
        self.shots: queue.Queue[Shot | Exception] = queue.Queue(_COPIED_SHOTS if alone else _SHOTS)
        self.size = (0, 0)
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for work, name in ((self._receive, "rtsp"), (self._decode, "rtsp decoder"))
            if work != self._decode or not alone
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask the threads to end."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * _TURN_S)

    def _receive(self) -> None:
        """Receive, stamp and assemble pictures."""
        alive_ns = self._clock()
        try:
            while not self._stopping.is_set():
                packets = self._client.receive(_TURN_S)
                self._depacketizer.clock.report = self._client.report
                for t_ns, packet in packets:
                    for unit in self._depacketizer.feed(packet, t_ns):
                        alive_ns = t_ns
                        self._backlog.offer(unit)
                        while self._alone and self._work_off(0.0):
                            pass
                if self._clock() - alive_ns > self._timeout_ns:
                    raise DeviceError(f"{self._where}: no picture for {self._timeout_ns / 1e9:g} s")
        except Exception as error:  # noqa: BLE001  the reading thread raises it again
            self._backlog.end(self._ended(error))
            if self._alone:
                self._decode()
        finally:
            self._client.close()

    def _decode(self) -> None:
        """Decode the received units until the end of the stream."""
        try:
            while not self._stopping.is_set():
                self._work_off(_TURN_S)
        except Exception as error:  # noqa: BLE001  the reading thread raises it again
            self._put(self._ended(error))
        finally:
            self._stopping.set()

    def _work_off(self, timeout_s: float) -> bool:
        """Decode the next unit, or report the next losses; return False if neither is waiting."""
        item = self._backlog.take(timeout_s)
        if isinstance(item, AccessUnit):
            self._pass(self._decoder.decode(item))
            self._backlog.done()
        elif item is not None:
            self._pass(self._decoder.drain())
            if isinstance(item, Exception):
                raise item
            self._pass(_losses(item))
        return item is not None

    def _ended(self, error: Exception) -> Exception:
        if isinstance(error, RecorderError) and not isinstance(error, ProtocolError):
            return error
        return DeviceError(f"{self._where}: {error}")

    def _pass(self, shots: Sequence[Shot]) -> None:
        """Check sizes, and make stamps increase: packets that arrive together have one stamp."""
        for shot in shots:
            picture = shot.picture
            if isinstance(picture, bytes) and self.size == (0, 0):
                try:
                    header = check_jpeg(picture)
                    self.size = header.width, header.height
                except ProtocolError:
                    continue
            if isinstance(picture, bytes):
                picture = trim_jpeg(self._where, picture, self.size)
            elif not isinstance(picture, Missing):
                size = find_size(picture)
                self.size = size if self.size == (0, 0) else self.size
                require_same_size(self._where, size, self.size)
            if self.size != (0, 0):  # the stream begins with its first picture
                self._last_ns = max(shot.t_ns, self._last_ns + 1)
                self._put(replace(shot, t_ns=self._last_ns, picture=picture))

    def _put(self, item: Shot | Exception) -> None:
        while True:
            try:
                return self.shots.put(item, timeout=_TURN_S)
            except queue.Full:
                if self._stopping.is_set():
                    return None


def _losses(dropped: Dropped) -> list[Shot]:
    first_ns = dropped.t_ns - len(dropped.counts) + 1  # each later than the one before
    return [
        Shot(first_ns + k, Missing(dropped.reasons[cause], count, cause))
        for k, (cause, count) in enumerate(dropped.counts.items())
    ]
