"""An emulated network camera: H.264 over RTSP 1.0 (RFC 2326), RTP over TCP or UDP, RTCP reports.

The simulated world, encoded by x264, or an H.264 file feeds the camera of a config's entry with
``codec: copy``.  A client chooses TCP or UDP.  Pictures are due k / fps after the first `step`; a
file begins with its first client.  All clients get the same packets.

Faults hit RTP packets: ``loss``, ``duplicate``, and, over UDP, ``reorder``.  A network card drops
damaged packets, so that ``corrupt`` is rejected.  ``stall``: pictures are taken, and not sent;
``unplug`` and ``reboot``: the camera is absent, and after a reboot numbers, timestamps and its
clock begin again; ``clock_jump``: the camera's clock jumps.  The time of faults counts from the
first picture that a client gets.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from drivers.camera.files.h264 import H264File
from drivers.camera.model import SIM_FPS, SIM_SIZE, make_camera
from drivers.camera.model_output import SimulatedVideo
from drivers.camera.pictures import CodedPicture, choose_size
from drivers.camera.rtsp.sender import CLOCK_HZ, RtpSender, make_session_description
from drivers.camera.served_emulator import Client, ServedCamera
from drivers.kit.emulator import LOOPBACK, EmulatedSource
from drivers.kit.emulator_faults import Fault
from recorder.common.errors import DeviceError, SourceError
from recorder.config.settings import SensorEntry

PATH: Final = "/stream"
START_NS: Final = 1_700_000_000_000_000_000
"""The camera's clock at power-on, epoch ns."""

_REPORT_NS: Final = 1_000_000_000
_REQUEST = re.compile(rb"([A-Z_]{1,20}) (\S{1,2000}) RTSP/1\.0")
_METHODS: Final = "OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, GET_PARAMETER, TEARDOWN"
_MAX_REQUEST_BYTES: Final = 16 << 10
_MAX_WAITING_BYTES: Final = 8 << 20  # for a client that reads too slowly


@dataclass(eq=False)
class _Client(Client):
    channels: tuple[int, int] | None = None
    ports: tuple[int, int] | None = None


class RtspCameraEmulator(ServedCamera[_Client]):
    """One camera on loopback; see the module.

    >>> emulator = RtspCameraEmulator(entry, [Fault("loss", rate=0.01)], seed=1)
    >>> emulator.start().source
    'rtsp://127.0.0.1:41235/stream'

    Attributes:
        skipped: packets that a client did not get because it reads too slowly.
    """

    client_kind = _Client

    def __init__(self, sensor: SensorEntry, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        super().__init__(sensor, faults, seed)
        if any(fault.kind == "corrupt" for fault in faults):
            raise SourceError(f"{sensor.name}: a network drops damaged packets; use loss")
        over_tcp = sensor.options["transport"] == "tcp"
        if over_tcp and any(fault.kind == "reorder" for fault in faults):
            raise SourceError(f"{sensor.name}: TCP does not reorder; set transport: udp")
        self._udp: tuple[socket.socket, socket.socket] | None = None
        self._random = random.Random(seed)
        self._file: H264File | None = None
        self._video: SimulatedVideo | None = None
        self._reported_ns: int | None = None

    def start(self) -> EmulatedSource:
        keyframe = self._feed()
        self._description = make_session_description(keyframe, self._fps)
        self._power_on()
        self._listen()
        self._udp = self._bind_ports()
        source = f"rtsp://{LOOPBACK}:{self._port}{PATH}"
        transport = self.sensor.options["transport"]
        return EmulatedSource(source, {"codec": "copy", "fps": self._fps, "transport": transport})

    def _feed(self) -> bytes:
        """Open the camera's feed; return its first keyframe."""
        name, options = self.sensor.name, self.sensor.options
        if self.sensor.scheme == "file":
            self._file = H264File(name, self.sensor.address, options["fps"])
            self._file.open()
            self._fps = self._file.fps or SIM_FPS
            self._held = self._file.read()
            assert self._held is not None and isinstance(self._held[1], CodedPicture)
            return self._held[1].data
        size = choose_size(options, SIM_SIZE) or SIM_SIZE
        self._fps = options["fps"] or SIM_FPS
        self._camera = make_camera(name, options, size, self._fps)
        return SimulatedVideo(name, self._camera, 0).unit()

    @property
    def _sequential(self) -> bool:
        return self._file is not None

    def stop(self) -> None:
        self._hang_up()
        for each in (self._listener, *(self._udp or ())):
            if each is not None:
                each.close()
        self._listener = self._udp = None
        if self._file is not None:
            self._file.close()

    # Pictures

    def _skip(self, elapsed_ns: int) -> None:
        """Skip the pictures that no client receives; the next one is a keyframe."""
        while self._due_ns(self._next) <= elapsed_ns:
            self._next += 1
            if self._file is not None and self._watched:
                self._from_file()
        self._video = None

    def _from_file(self) -> bytes | None:
        assert self._file is not None
        held, self._held = self._held, self._file.read()
        if held is None:
            return None
        return held[1].data if isinstance(held[1], CodedPicture) else b""

    def _picture(self, due_ns: int) -> None:
        """Send picture `_next`."""
        if self._file is not None:
            unit = self._from_file()
        else:
            if self._video is None:
                self._video = SimulatedVideo(self.sensor.name, self._camera, self._next)
            unit = self._video.unit()
        self._next += 1
        if unit is None:
            self._ended = True
            self._hang_up()
            return
        if self._first_ns is None:
            self._first_ns = due_ns
        t_s = (due_ns - self._first_ns) / 1e9
        since_ns = due_ns - self._power_on_ns
        timestamp = (self._base + round(since_ns * CLOCK_HZ / 1e9)) & 0xFFFFFFFF
        packets = self._sender.packets(unit, timestamp)
        if self._count_stall(t_s):
            return
        if self._reported_ns is None or due_ns - self._reported_ns >= _REPORT_NS:
            self._reported_ns = due_ns
            time_ns = START_NS + since_ns + self._jump_ns
            self._send_all(1, self._sender.report(time_ns, timestamp))
        for packet in packets:
            for sent in self._packet_faults.apply(t_s, packet):
                self._send_all(0, sent)

    def _send_all(self, kind: int, packet: bytes) -> None:
        """Send RTP (0) or RTCP (1) to all clients that play."""
        for client in self._clients:
            if not client.playing:
                continue
            if client.channels is not None:
                if len(client.waiting) > _MAX_WAITING_BYTES:
                    self.skipped += 1
                    continue
                head = bytes((0x24, client.channels[kind])) + len(packet).to_bytes(2, "big")
                client.waiting += head + packet
            elif client.ports is not None and self._udp is not None:
                with contextlib.suppress(OSError):
                    self._udp[kind].sendto(packet, (client.host, client.ports[kind]))

    # Faults of the whole camera

    def _power_on(self) -> None:
        numbers = self._random
        self._base = numbers.getrandbits(32)
        self._sender = RtpSender(numbers.getrandbits(32), numbers.getrandbits(16))
        self._reported_ns = None

    def _reappear(self, _elapsed_ns: int, /, *, rebooted: bool) -> None:
        if rebooted:
            self._power_on()

    # Connections

    def _bind_ports(self) -> tuple[socket.socket, socket.socket]:
        """Bind an even port and the next one (RFC 3550, section 11)."""
        for _ in range(100):
            rtp = self._bind(socket.SOCK_DGRAM, 0)
            port = rtp.getsockname()[1]
            with contextlib.suppress(DeviceError):
                if port % 2 == 0:
                    return rtp, self._bind(socket.SOCK_DGRAM, port + 1)
            rtp.close()
        raise DeviceError(f"{self.sensor.name}: no two UDP ports in a row are free")

    def _receive(self, client: _Client, data: bytes) -> bool:
        client.request += data
        if len(client.request) > _MAX_REQUEST_BYTES:
            return False
        while client.request:
            if client.request[0] == 0x24:  # its RTCP reports on the connection
                end = 4 + int.from_bytes(client.request[2:4], "big")
                if len(client.request) < max(4, end):
                    break
                del client.request[:end]
                continue
            head, found, rest = bytes(client.request).partition(b"\r\n\r\n")
            if not found:
                break
            client.request[:] = rest
            self._answer(client, head)
        return True

    def _answer(self, client: _Client, head: bytes) -> None:
        match = _REQUEST.match(head)
        lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
        fields = {name.strip().lower(): value.strip().decode("latin-1") for name, _, value in lines}
        cseq = fields.get(b"cseq", "0")
        status, more, body = "200 OK", ["Session: 4d5e6f;timeout=60"], ""
        method = match[1].decode() if match is not None else ""
        match method:
            case "OPTIONS":
                more = [f"Public: {_METHODS}"]
            case "DESCRIBE":
                body = self._description
                base = f"rtsp://{LOOPBACK}:{self._port}{PATH}/"
                more = ["Content-Type: application/sdp", f"Content-Base: {base}"]
                more.append(f"Content-Length: {len(body)}")
            case "SETUP":
                transport = self._set_up(client, fields.get(b"transport", ""))
                if transport is None:
                    status = "461 Unsupported Transport"
                else:
                    more.append(f"Transport: {transport}")
            case "PLAY" if client.channels is None and client.ports is None:
                status = "455 Method Not Valid in This State"
            case "PLAY":
                client.playing = self._watched = True
                more.append("Range: npt=0-")
                self._reported_ns = None  # a new client learns the camera's time at once
            case "PAUSE" | "TEARDOWN":
                client.playing = False
            case "GET_PARAMETER" | "SET_PARAMETER":
                pass
            case _:
                status = "501 Not Implemented" if method else "400 Bad Request"
        reply = "\r\n".join((f"RTSP/1.0 {status}", f"CSeq: {cseq}", *more))
        client.waiting += f"{reply}\r\n\r\n{body}".encode("latin-1")

    def _set_up(self, client: _Client, wanted: str) -> str | None:
        """Choose an offered transport; return None if none of them is known."""
        for offer in wanted.split(","):
            channels = re.search(r"interleaved=(\d{1,3})-(\d{1,3})", offer)
            ports = re.search(r"client_port=(\d{1,5})-(\d{1,5})", offer)
            if "TCP" in offer.upper() and channels is not None:
                client.channels = int(channels[1]), int(channels[2])
                return f"RTP/AVP/TCP;unicast;interleaved={channels[1]}-{channels[2]}"
            if "TCP" not in offer.upper() and ports is not None and self._udp is not None:
                client.ports = int(ports[1]), int(ports[2])
                ours = "-".join(str(each.getsockname()[1]) for each in self._udp)
                theirs = f"{ports[1]}-{ports[2]}"
                return f"RTP/AVP;unicast;client_port={theirs};server_port={ours}"
        return None
