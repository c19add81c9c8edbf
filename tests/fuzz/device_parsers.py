"""The parsers of what devices send, and what emulated devices make of requests."""

from __future__ import annotations

import contextlib
import io
import json
import random
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from drivers.camera.files.video_index import read_video_index
from drivers.camera.http.multipart import MultipartParser
from drivers.camera.http.response import ResponseParser, authorization
from drivers.camera.model_output import BOUNDARY, encode_part
from drivers.camera.pictures import parse_jpeg
from drivers.camera.rtsp.messages import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    Message,
    MessageParser,
    Reply,
    Requests,
    parse_channels,
    parse_sdp,
    parse_session,
)
from drivers.camera.rtsp.rtp import (
    MAX_UNIT_BYTES,
    Assembler,
    Depacketizer,
    NalAssembler,
    PacketOrder,
    parse_rtcp,
)
from drivers.camera.rtsp.rtp_jpeg import JpegAssembler
from drivers.can.errors import BusErrors
from drivers.can.frames import FD, FD_BYTES, Frame, pack_frame, parse_frames
from drivers.can.logs import read_log
from drivers.can.signals import SignalTable
from drivers.can.simulated import DATABASE
from drivers.gnss.gpsd import GpsdReception
from drivers.gnss.packets import FrameParser
from drivers.gnss.stream import Reception
from drivers.kit.serial_time import MinDelayClock
from drivers.mmwave.emulator_card import CaptureCard
from drivers.mmwave.packets import Answer, parse_command
from drivers.mmwave.ti_cfg import read_cfg
from drivers.ouster.emulator_http import OusterApi, _Handler
from drivers.ouster.http_api import OusterHttp
from drivers.world.imu import SimulatedImu
from drivers.xsens.model import ImuPackets
from drivers.xsens.mtdata2 import decode_mtdata2
from drivers.xsens.packets import (
    MAX_MESSAGE,
    MID_MTDATA2,
    XbusMessage,
    XbusParser,
    encode_message,
)
from drivers.xsens.sample_clock import SampleClock
from drivers.xsens.samples import Batch, Facts, MtiAssembler
from recorder.codecs.jpeg import jpeg_size
from recorder.common.errors import FormatError, ProtocolError
from recorder.formats.bags.messages import (
    decode_foxglove_position,
    decode_json_position,
    decode_ros2_position,
)
from recorder.formats.pcap.datagrams import read_datagrams
from tests.drivers.camera import test_counts as counts
from tests.drivers.camera import test_fuzz as camera
from tests.drivers.camera.rtp_packets import encode, packets, rtp
from tests.drivers.camera.rtsp_script import SDP, interleaved, reply
from tests.drivers.can import test_fuzz as can
from tests.drivers.gnss.test_packets import CHANNELS, stream, tpv
from tests.drivers.kit import test_mcap_positions as positions
from tests.drivers.mmwave.test_ti_cfg import VISUALIZER
from tests.drivers.ouster import test_fuzz as ouster
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


def _read_rtsp(pieces: Iterable[bytes]) -> list[Message | None]:
    """The messages, and None where the bytes are none; the buffer has a bound."""
    parser, found = MessageParser(), list[Message | None]()
    try:
        for piece in pieces:
            found += parser.feed(piece)
            assert len(parser._buffer) <= MAX_HEAD_BYTES + MAX_BODY_BYTES + len(piece)
    except ProtocolError:
        found.append(None)
    return found


def _describe_rtsp(text: bytes) -> None:
    """What a description names is asked for in one request of four lines."""
    media = parse_sdp(text, "rtsp://cam/live/")
    assert media.clock_hz > 0 and 0 <= media.payload_type < 1000
    request = Requests(None, "").build("SETUP", media.control, nonce="n").decode("latin-1")
    assert request.count("\r\n") == 4 and request.split("\r\n")[0].count(" ") == 2


@target(
    "rtsp", b"\r\n\r\n", b"$\0\xff\xff", b"Content-Length: 99999\r\n", b"RTSP/1.0 200 OK",
    b";timeout=1e9", b"a=control:rtsp://b/\r\n", b"m=video 0 x 96\r\n",
)  # fmt: skip
def rtsp(_: Path) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        found = _read_rtsp(in_pieces(data))
        assert found == _read_rtsp([data])
        for message in found:
            if isinstance(message, Reply):
                name, timeout_s = parse_session(message.head.headers.get("session", ""))
                assert name == name.strip() and 1 <= timeout_s < 1e6
                with contextlib.suppress(ProtocolError):
                    transport = message.head.headers.get("transport", "")
                    assert all(0 <= channel <= 1000 for channel in parse_channels(transport))
                with contextlib.suppress(ProtocolError):
                    _describe_rtsp(message.body)
        try:
            _describe_rtsp(data)
        except ProtocolError as error:
            assert len(str(error)) < 400

    sets = "a=fmtp:96 sprop-parameter-sets=Z0IAKeKQFAe2,aM48gA==;x\r\na=framerate:25\r\n"
    request = b"OPTIONS rtsp://a RTSP/1.0\r\nCSeq: 5\r\n\r\n"
    heads = "Session: 1;timeout=9", "Transport: RTP/AVP/TCP;unicast;interleaved=0-1"
    answer = reply("200 OK", *heads, body=SDP, cseq="1").encode()
    whole = answer + interleaved(b"abc") + request
    yield [whole, answer * 2, request + interleaved(b"", 1), (SDP + sets).encode()], feed


def joined(sent: Iterable[bytes]) -> bytes:
    return b"".join(len(data).to_bytes(2, "big") + data for data in sent)


def _rtp(codec: str) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        """A packet that is damaged or missing costs pictures that are named."""
        assembler: Assembler = JpegAssembler() if codec == "jpeg" else NalAssembler(codec)
        tested = Depacketizer(assembler, 26 if codec == "jpeg" else 96, 90_000)
        order, at, t_ns = PacketOrder(), 0, 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 2], "big")
            packet = data[at + 2 : at + 2 + size]
            order.feed(packet, t_ns)
            assert len(order._held) <= 65
            with contextlib.suppress(ProtocolError):
                for unit in tested.feed(packet, t_ns):
                    assert 0 <= unit.t_ns <= t_ns and unit.missed >= 0
                    assert bool(unit.data) != bool(unit.fault)
                    assert not (unit.fault and unit.key and codec != "jpeg")
                    assert len(unit.data) <= MAX_UNIT_BYTES
            at, t_ns = at + 2 + size, t_ns + 1000

    sent = packets(encode(codec, 6))
    short = [rtp(k, k // 3 * 3600, bytes(range(k)), marker=k % 3 == 2) for k in range(30)]
    yield [joined(sent), joined(sent[::2]), joined(sent[:5]), joined(short)], feed


for _codec in ("h264", "h265", "jpeg"):
    target(f"rtp-{_codec}", b"\x7c\x85", b"\0\0", b"\xff\xff")(
        lambda _, codec=_codec: _rtp(codec)  # type: ignore[misc]
    )


@target("rtcp", b"\x81\xcb\x00\x01")
def rtcp(_: Path) -> Iterator[Prepared]:
    from tests.drivers.camera.test_copy import sender_report

    def feed(data: bytes) -> None:
        assert all(report.time_ns >= 0 for report in parse_rtcp(data)[0])

    bye = b"\x81\xcb\x00\x01" + bytes(4)
    yield [sender_report(2_208_988_800, 0, 7), sender_report(5, 6, 7) + bye, bye], feed


@target("gnss", b"\xb5\x62", b"$GPGGA,", b"$@", b"*00\r\n")
def gnss(_: Path) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        """Any bytes give rows or none; every byte is in a frame or was skipped."""
        protocols = ("auto", "ubx", "nmea", "sbf")
        reception = Reception(protocols[data[0] % 4] if data else "auto")
        found = [row for piece in in_pieces(data) for row in reception.feed(piece)]
        assert all(set(row.data) == CHANNELS for row in [*found, *reception.finish()])
        parser = FrameParser()
        frames = [*parser.feed(data), *parser.finish()]
        assert sum(frame.size for frame in frames) + parser.skipped == len(data)
        assert b"".join(frame.data for frame in frames) in data or parser.skipped

    rng = random.Random(1)
    yield [stream(rng) for _ in range(40)], feed


@target(
    "gpsd", b"1e999", b"Infinity", b"NaN", b"-1", b"null", b"[[", b'"time":"9999-01-01"', b"9" * 400
)
def gpsd(_: Path) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        reception = GpsdReception()
        found = [row for piece in in_pieces(data) for row in reception.feed(piece)]
        assert all(set(row.data) == CHANNELS for row in found)
        (*_, row) = reception.feed(b"\n" + tpv(time="2099-12-31T00:00:00Z", lat=47.0))
        assert row.data["pos"][0, 0] == 47.0, "it goes on"

    more = {"track": 10.5, "speed": 2, "climb": 0.1, "epx": 1.0, "leapseconds": 18, "status": 3}
    sky = b'{"class":"SKY","uSat":9,"satellites":[{"PRN":1}]}\n'
    yield [tpv() * 2, tpv(**more) + sky, tpv(velN=1.5, velE=2, velD=3, altHAE=5) + sky], feed


@target("xbus", b"\xfa\xff\x36\xff", b"\xfa\xff\x36\x06", b"\xfa\xfa\xff")
def xbus(_: Path) -> Iterator[Prepared]:
    facts = Facts.from_outputs(OUTPUTS, {})
    assert facts is not None

    def feed(data: bytes) -> None:
        """As bytes of the line, then as the content of a message whose checksum is right."""
        parser, clock = XbusParser(), SampleClock(1e6, strict=True)
        assembler, last_ns = MtiAssembler(facts, 10, clock, "imu", MinDelayClock()), -1
        for now_ns, piece in enumerate(in_pieces(data)):
            for message in [*parser.feed(piece), XbusMessage(MID_MTDATA2, piece)]:
                assembler.add(message, now_ns * 1_000_000)
            assembler.flush()
            assert parser.buffered < MAX_MESSAGE and assembler.held < 10
            for event in assembler.take():
                if isinstance(event, Batch):
                    assert int(event.t_ns[0]) > last_ns
                    last_ns = int(event.t_ns[-1])
        exhaust(parser.finish())
        decode_mtdata2(data)

    messages = [bytes(m) for m in ImuPackets(SimulatedImu(1000.0), OUTPUTS).messages(0, 40)]
    content = b"\x10\x20\x02\0\1"
    yield [*messages[:6], b"".join(messages), content, encode_message(0x36, content)], feed


@target("positions", b"null", b"1e999", b'"cov":', b"\xff" * 8)
def position_messages(_: Path) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        for decode in (decode_ros2_position, decode_foxglove_position, decode_json_position):
            with contextlib.suppress(FormatError):
                found = decode(data)
                assert len(found.pos) == 3 and 0 <= found.fix <= 255
                assert found.cov is None or len(found.cov) == 9

    more = positions.foxglove_values()
    sent = [positions.ros_fix("/f", 5), positions.fox_fix("/f", 5, **more)]
    yield [each.data for each in [*sent, positions.json_fix("/f", 5)]], feed


@target(
    "ouster-answers", b"HTTP/1.1 200 OK\r\n", b"Content-Length: ", b"\r\n\r\n", b"{", b"NaN", b'"'
)
def ouster_answers(_: Path) -> Iterator[Prepared]:
    """Answers of a sensor to one request each: read, or refused."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        mock.patch("drivers.ouster.http_api._ATTEMPTS", 1),
    ):
        http = OusterHttp(f"127.0.0.1:{server.getsockname()[1]}", timeout_s=1.0)

        def feed(data: bytes) -> None:
            thread = threading.Thread(target=ouster.answer_with, args=(data, server))
            thread.start()
            try:
                json.dumps(http.sensor_info())
            finally:
                thread.join()

        yield ouster.ANSWERS, feed


_REQUESTS = [
    b"GET /api/v1/sensor/metadata/sensor_info HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /api/v1/sensor/config?staging=true HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /api/v1/sensor/config?staging=true&reinit=false HTTP/1.1\r\nHost: a\r\n"
    b'Content-Length: 21\r\n\r\n{"udp_dest": "1.2.3"}',
    b"POST /api/v1/sensor/config?reinit=true HTTP/1.1\r\nHost: a\r\n"
    b'Content-Length: 24\r\n\r\n{"udp_port_lidar": 7502}',
    b"GET /api/v1/sensor/cmd/get_config_param?args=active HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /api/v1/sensor/cmd/set_config_param?args=.+%7B%7D HTTP/1.0\r\n\r\n",
    b"GET /api/v1/sensor/cmd/reinitialize HTTP/1.0\r\n\r\n",
    b"GET /api/v1/time HTTP/1.1\r\n\r\n",
]


@target("emulated-lidar", b"\r\n\r\n", b"%00", b"{")
def emulated_lidar(_: Path) -> Iterator[Prepared]:
    """Requests to the HTTP API; what is right behind them is answered."""
    settings = {"udp_dest": "", "udp_port_lidar": 7502, "timestamp_mode": "X"}
    metadata = {"sensor_info": {"image_rev": "v3.1.0"}, "config_params": {}}
    api, server = OusterApi(metadata, settings, lambda _: None), None
    handler: Any = type("Handler", (_Handler,), {"api": api})

    def ask(data: bytes) -> bytes:
        ours, its = socket.socketpair()
        with ours, its:
            ours.sendall(data)
            ours.shutdown(socket.SHUT_WR)
            handler(its, ("127.0.0.1", 1), server)
            its.close()
            return ours.recv(1 << 16)

    def feed(data: bytes) -> None:
        ask(data[:100_000])
        assert b" 200 OK" in ask(_REQUESTS[0])[:20]

    api.run(7)
    yield _REQUESTS, feed


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
        found, kept = parse_frames(rows, sizes, np.zeros(1, np.int64), no, FD_BYTES)
        assert len(found) == len(kept) and set(sizes[kept].tolist()) <= {16, 72}
        assert (found.length <= 64).all()
        for message, part in table.split(found):
            some, columns, short = message.decode(part)
            assert len(next(iter(columns.values()))) == some.sum() and 0 <= short <= len(part)
        for number in found.id.tolist():
            errors.feed(number, data[: len(data) % 9])

    yield [pack_frame(Frame(0, 1, b"\1\2")), pack_frame(Frame(0, 9, bytes(64), FD))], feed


@target("can-database", b" SG_ ", b"|", b"9" * 20)
def can_database(folder: Path) -> Iterator[Prepared]:
    path = folder / "a.dbc"

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        SignalTable(path, ["*"])

    yield [DATABASE.read_bytes()], feed


@target("dca1000", b"\x5a\xa5", b"\xaa\xee")
def dca1000(_: Path) -> Iterator[Prepared]:
    def feed(data: bytes) -> None:
        with contextlib.suppress(ProtocolError):
            Answer.parse(data)
        command = parse_command(data)
        assert 0 <= card._obey(command, 0) < 1 << 16

    card = CaptureCard("radar")
    yield [b"\x5a\xa5\x0e\0\0\0\xaa\xee", b"\x5a\xa5\3\0\6\0\1\2\1\2\3\x1e\xaa\xee"], feed


@target("ti-cfg", b"nan ", b"inf ", b"1e999 ", b"-1 ", b"0 ", b"\n")
def ti_cfg(folder: Path) -> Iterator[Prepared]:
    path = folder / "a.cfg"

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        read_cfg(path, "AWR1843", "radar.cfg")

    yield [VISUALIZER.encode()], feed


@target("video-index", b"moof", b"mdat", b"\x1a\x45\xdf\xa3", b"\xff" * 8)
def video_index(folder: Path) -> Iterator[Prepared]:
    whole = [counts.write(folder / name, options) for name, options, _ in counts.WHOLE]
    samples = [path.read_bytes() for path in whole]
    yield samples, lambda data: read_video_index(io.BytesIO(data))
