"""Recording of a camera's unchanged H.264 from RTSP: CPU of the driver and of the writer.

A separate process serves 1080p at 30 Hz and 8 Mbit/s (x264, constant bit rate, a keyframe a second)
over RTSP, paced by the clock, as long as a client plays it.  ``recorder run`` records it with
``codec: copy``, and in turns decodes it and encodes it as JPEG.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import struct
import time
from collections.abc import Iterator
from fractions import Fraction
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np

from benchmarks.harness import Figure, Option, Run
from benchmarks.recording import Recording, record_measured

OPTIONS = {
    "seconds": Option("float", 20.0, "length of a long run", minimum=4.0),
    "rounds": Option("int", 3, "repetitions", minimum=1),
    "mbit": Option("float", 8.0, "bit rate of the camera, Mbit/s", minimum=0.1),
}
QUICK = {"seconds": 6.0, "rounds": 1}
_SIZE: Final = (1920, 1080)
_FPS: Final = 30
_LOOP: Final = 3 * _FPS  # pictures of the video, which is played again and again
_CLOCK_HZ: Final = 90_000
_SDP: Final = (
    "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=camera\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
    "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\n"
    "a=control:track\r\n"
)


def measure(run: Run) -> Iterator[Figure]:
    """Record with and without copying, in turns."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    serving = context.Process(target=serve, args=(run.options["mbit"], there), daemon=True)
    serving.start()
    try:
        port, mbit = here.recv()
        run.data["camera"] = f"1080p at {_FPS} Hz, {mbit:.2f} Mbit/s of H.264"
        shares: dict[str, list[float]] = {"driver": [], "writer": [], "decoding driver": []}
        missing, seconds = [], run.options["seconds"]
        _record(run, port, "copy", 2.0)  # fills caches
        for _ in run.rounds():
            copied, lost = _record(run, port, "copy", seconds)
            encoded, more = _record(run, port, "jpeg", seconds)
            shares["driver"].append(copied.cpu["camera"] / seconds)
            shares["writer"].append(copied.cpu["writer"] / seconds)
            shares["decoding driver"].append(encoded.cpu["camera"] / seconds)
            missing.append(lost + more)
        for name, found in shares.items():
            yield Figure(name, found, "s/s")
        yield Figure("pictures lost", missing, "")
    finally:
        serving.terminate()
        serving.join()


def _record(run: Run, port: int, codec: str, seconds: float) -> tuple[Recording, float]:
    """Record a session; return it, and the number of lost pictures."""
    with run.scratch() as folder:
        entry = {"driver": "camera", "source": f"rtsp://127.0.0.1:{port}/live", "codec": codec}
        made = record_measured(folder, {"camera": entry}, seconds, ("--no-finalize",))
    camera = made.streams["camera"]
    if camera["samples"] < 0.9 * _FPS * (seconds - 1):
        run.note(f"{codec}: {camera['samples']} pictures in {seconds:g} s")
    return made, float(sum(camera["lost"].values()))


def serve(mbit: float, ready: Connection) -> None:
    """Serve the video to one client after another; send the port and the bit rate to `ready`.

    It runs in a separate process.
    """
    packets, made_mbit = _video(mbit)
    listening = socket.create_server(("127.0.0.1", 0))
    ready.send((listening.getsockname()[1], made_mbit))
    while True:
        client, _ = listening.accept()
        with client, contextlib.suppress(OSError):
            if _answer(client):
                _play(client, packets)


def _video(mbit: float) -> tuple[list[list[bytes]], float]:
    """Return the RTP packets of each picture, as FFmpeg packs them, and the bit rate, Mbit/s."""
    import av

    class Sink:
        def __init__(self) -> None:
            self.packets: list[bytes] = []

        def write(self, data: Any) -> int:
            self.packets.append(bytes(data))
            return len(data)

    sink, kbit = Sink(), round(mbit * 1000)
    rate = f"bitrate={kbit}:vbv-maxrate={kbit}:vbv-bufsize={kbit // 4}:nal-hrd=cbr"
    x264 = f"{rate}:keyint={_FPS}:min-keyint={_FPS}:scenecut=0:bframes=0:log-level=none"
    options = {"preset": "ultrafast", "tune": "zerolatency", "x264-params": x264}
    pictures, size = [], 0
    with av.open(sink, "w", format="rtp", options={"packetsize": "1400"}) as container:
        stream: Any = container.add_stream("libx264", rate=_FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = *_SIZE, "yuv420p"
        stream.time_base = Fraction(1, _CLOCK_HZ)
        coarse = np.random.default_rng(1).integers(0, 256, (270, 480, 3)).astype(np.uint8)
        image = coarse.repeat(4, axis=0).repeat(4, axis=1)
        for index in [*range(_LOOP), None]:
            frame = None
            if index is not None:
                rolled = np.roll(image, 3 * index, axis=1)
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(rolled), format="rgb24")
                frame.pts, frame.time_base = index, Fraction(1, _FPS)
            for packet in stream.encode(frame):
                sink.packets.clear()
                size += packet.size
                container.mux(packet)
                pictures.append([p for p in sink.packets if not 192 <= p[1] <= 223])
    return pictures, size * 8 * _FPS / _LOOP / 1e6


def _answer(client: socket.socket) -> bool:
    """Answer requests up to PLAY; return whether the client asked for PLAY."""
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            if not (more := client.recv(4096)):
                return False
            data += more
        head, _, data = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        method = lines[0].split(" ")[0]
        number = next(x for x in lines if x.lower().startswith("cseq")).partition(":")[2].strip()
        more_lines, body = ["Session: 1;timeout=60"], ""
        if method == "DESCRIBE":
            body = _SDP
            more_lines = ["Content-Type: application/sdp", f"Content-Length: {len(body)}"]
        elif method == "SETUP":
            more_lines.append("Transport: RTP/AVP/TCP;unicast;interleaved=0-1")
        answer = ["RTSP/1.0 200 OK", f"CSeq: {number}", *more_lines]
        client.sendall(("\r\n".join(answer) + "\r\n\r\n" + body).encode())
        if method in ("PLAY", "TEARDOWN"):
            return method == "PLAY"


def _play(client: socket.socket, pictures: list[list[bytes]]) -> None:
    """Send a picture every 1/30 s until the client disconnects; answer no requests."""
    begin_s, number, sequence = time.monotonic(), 0, 0
    while True:
        sent = bytearray()
        for packet in pictures[number % len(pictures)]:
            stamp = number * (_CLOCK_HZ // _FPS) & 0xFFFFFFFF
            head = struct.pack(">HII", sequence & 0xFFFF, stamp, 7)
            sent += b"$\0" + len(packet).to_bytes(2, "big") + packet[:2] + head + packet[12:]
            sequence += 1
        client.sendall(sent)
        number += 1
        wait_s = begin_s + number / _FPS - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
