"""The parsers of what devices send: `drivers._protocols`."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from drivers.camera.http.multipart import MultipartParser
from drivers.camera.http.response import ResponseParser, authorization
from drivers.camera.model_output import BOUNDARY, encode_part
from drivers.camera.pictures import parse_jpeg
from drivers.camera.rtsp.messages import (
    MessageParser,
    Reply,
    parse_channels,
    parse_sdp,
    parse_session,
)
from drivers.camera.rtsp.rtp import Assembler, Depacketizer, NalAssembler, parse_rtcp
from drivers.camera.rtsp.rtp_jpeg import JpegAssembler
from drivers.can.errors import BusErrors
from drivers.can.frames import FD, FD_BYTES, Frame, pack_frame, parse_frames
from drivers.can.logs import read_log
from drivers.can.signals import SignalTable
from drivers.can.simulated import DATABASE
from drivers.gnss.gpsd import GpsdReception
from drivers.gnss.stream import Reception
from drivers.mmwave.packets import Answer, parse_command
from drivers.mmwave.ti_cfg import read_cfg
from drivers.world.imu import SimulatedImu
from drivers.xsens.model import ImuPackets
from drivers.xsens.mtdata2 import decode_mtdata2
from drivers.xsens.packets import XbusParser, encode_message
from recorder.codecs.jpeg import jpeg_size
from recorder.common.errors import ProtocolError
from recorder.formats.pcap.datagrams import read_datagrams
from tests.drivers.camera import test_fuzz as camera
from tests.drivers.camera.rtp_packets import encode, packets
from tests.drivers.camera.rtsp_script import SDP, interleaved, reply
from tests.drivers.can import test_fuzz as can
from tests.drivers.gnss.test_packets import stream, tpv
from tests.drivers.mmwave.test_ti_cfg import VISUALIZER
from tests.drivers.udp.test_fuzz import captures
from tests.drivers.xsens.test_fuzz import OUTPUTS
from tests.fuzz.targets import Prepared, target


def in_pieces(data: bytes) -> Iterator[bytes]:
    """The input in pieces, whose length it says itself."""
    size = 1 + data[0] % 97 if data else 1
    return (data[at : at + size] for at in range(0, len(data), size))


def exhaust(found: Iterable[object]) -> None:
    for _ in found:
        pass


@target("http", b"\r\n\r\n", b"Content-Length: -1\r\n", b"\nffffffff\r\n", b"--recorder-frame")
def http(_: Path) -> Iterator[Prepared]:
    pictures = b"".join(encode_part(camera.JPEGS[k], k, k * 50_000_000) for k in range(2))

    def feed(data: bytes) -> None:
        answer, pictures = ResponseParser(), MultipartParser(BOUNDARY)
        for piece in in_pieces(data):
            pictures.feed(answer.feed(piece))
        if answer.head is not None:
            authorization(answer.head.challenges, "u", "p", "/", "n")

    yield [head + pictures for head in camera.HEADS], feed


@target("jpeg", b"\xff\xd9", b"\xff\xd8", b"\xff\xc0\x00\x11")
def jpeg(_: Path) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        jpeg_size(data)
        header = parse_jpeg(data)
        assert data[header.length - 2 : header.length] == b"\xff\xd9"

    yield list(camera.JPEGS), feed


@target("rtsp", b"\r\n\r\n", b"$\0\xff\xff", b"Content-Length: 99999\r\n", b"RTSP/1.0 200 OK")
def rtsp(_: Path) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        parser = MessageParser()
        for piece in in_pieces(data):
            for message in parser.feed(piece):
                if isinstance(message, Reply):
                    parse_session(message.head.headers.get("session", ""))
                    with contextlib.suppress(ProtocolError):
                        parse_channels(message.head.headers.get("transport", ""))
                    parse_sdp(message.body, "rtsp://cam/live/")

    request = b"OPTIONS rtsp://a RTSP/1.0\r\nCSeq: 5\r\n\r\n"
    answer = reply("200 OK", "Session: 1;timeout=9", body=SDP, cseq="1").encode()
    yield [answer + interleaved(b"abc") + request, answer * 2, request + interleaved(b"", 1)], feed


def joined(sent: Iterable[bytes]) -> bytes:
    return b"".join(len(data).to_bytes(2, "big") + data for data in sent)


def _rtp(codec: str) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        assembler: Assembler = JpegAssembler() if codec == "jpeg" else NalAssembler(codec)
        tested, at, t_ns = Depacketizer(assembler, 26 if codec == "jpeg" else 96, 90_000), 0, 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 2], "big")
            with contextlib.suppress(ProtocolError):
                tested.feed(data[at + 2 : at + 2 + size], t_ns)
            at, t_ns = at + 2 + size, t_ns + 1000

    sent = packets(encode(codec, 6))
    yield [joined(sent), joined(sent[::2]), joined(sent[:5])], feed


for _codec in ("h264", "h265", "jpeg"):
    target(f"rtp-{_codec}", b"\x7c\x85", b"\0\0", b"\xff\xff")(
        lambda _, codec=_codec: _rtp(codec)  # type: ignore[misc]
    )


@target("rtcp", b"\x81\xcb\x00\x01")
def rtcp(_: Path) -> Iterator[Prepared]:
    from tests.drivers.camera.test_copy import sender_report

    yield [sender_report(2_208_988_800, 0, 7), b"\x81\xcb\x00\x01" + bytes(4)], parse_rtcp


@target("gnss", b"\xb5\x62", b"$GPGGA,", b"$@", b"*00\r\n")
def gnss(_: Path) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        protocols = ("auto", "ubx", "nmea", "sbf")
        reception = Reception(protocols[data[0] % 4] if data else "auto")
        for piece in in_pieces(data):
            exhaust(reception.feed(piece))
        exhaust(reception.finish())

    rng = random.Random(1)
    yield [stream(rng) for _ in range(40)], feed


@target("gpsd", b"1e999", b"Infinity", b"NaN", b"-1", b"null", b"[[", b'"time":"9999-01-01"')
def gpsd(_: Path) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        reception = GpsdReception()
        for piece in in_pieces(data):
            exhaust(reception.feed(piece))

    more = {"track": 10.5, "speed": 2, "climb": 0.1, "epx": 1.0, "leapseconds": 18, "status": 3}
    sky = b'{"class":"SKY","uSat":9}\n'
    yield [tpv() * 2, tpv(**more) + sky, tpv(velN=1.5, velE=2, velD=3, altHAE=5) + sky], feed


@target("xbus", b"\xfa\xff\x36\xff", b"\xfa\xff\x36\x06", b"\xfa\xfa\xff")
def xbus(_: Path) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        parser = XbusParser()
        for piece in in_pieces(data):
            for message in parser.feed(piece):
                decode_mtdata2(message.data)
        exhaust(parser.finish())

    messages = list(ImuPackets(SimulatedImu(1000.0), OUTPUTS).messages(0, 6))
    yield [*map(bytes, messages), encode_message(0x36, b"\x10\x20\x02\0\1")], feed


@target("capture", bytes(16), b"\xff" * 8)
def capture(_: Path) -> Iterator[Prepared]:
    yield captures(), lambda data: exhaust(read_datagrams(io.BytesIO(data)))


@target("can-logs", *can.PARTS)
def can_logs(folder: Path) -> Iterator[Prepared]:
    whole = can.logs(folder)
    suffixes = sorted(whole)

    def feed(data: bytes) -> None:
        """As each kind of log: what one refuses, another may read."""
        path = folder / f"a{suffixes[len(data) % len(suffixes)]}"
        path.write_bytes(data)
        exhaust(read_log(path))

    yield list(whole.values()), feed


@target("can-frames", b"\xff" * 8)
def can_frames(_: Path) -> Iterator[Prepared]:
    table, errors, no = SignalTable(DATABASE, ["*"]), BusErrors(), np.zeros(1, np.bool_)

    def feed(data: bytes) -> None:
        rows = np.zeros((1, 80), np.uint8)
        rows[0, : len(data[:80])] = np.frombuffer(data[:80], np.uint8)
        sizes = np.array([min(len(data), 80)], np.int64)
        found, _ = parse_frames(rows, sizes, np.zeros(1, np.int64), no, FD_BYTES)
        for message, some in table.split(found):
            message.decode(some)
        for number in found.id.tolist():
            errors.feed(number, data[: len(data) % 9])

    yield [pack_frame(Frame(0, 1, b"\1\2")), pack_frame(Frame(0, 9, bytes(64), FD))], feed


@target("dca1000", b"\x5a\xa5", b"\xaa\xee")
def dca1000(_: Path) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        with contextlib.suppress(ProtocolError):
            Answer.parse(data)
        parse_command(data)

    yield [b"\x5a\xa5\x0e\0\0\0\xaa\xee", b"\x5a\xa5\3\0\6\0\1\2\1\2\3\x1e\xaa\xee"], feed


@target("ti-cfg", b"nan ", b"inf ", b"1e999 ", b"-1 ", b"0 ", b"\n")
def ti_cfg(folder: Path) -> Iterator[Prepared]:
    path = folder / "a.cfg"

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        read_cfg(path, "AWR1843", "radar.cfg")

    yield [VISUALIZER.encode()], feed
