"""Garbage from RTSP cameras: one clear error, and neither a hang nor memory without bounds."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.camera.pictures import Missing, Shot
from drivers.camera.rtsp.messages import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    Interleaved,
    Message,
    MessageParser,
    Reply,
    Requests,
    parse_channels,
    parse_sdp,
    parse_session,
)
from drivers.camera.rtsp.rtp import MAX_UNIT_BYTES, Depacketizer, NalAssembler
from drivers.camera.rtsp.rtp_jpeg import JpegAssembler
from recorder.common.errors import DeviceError, ProtocolError, RecorderError
from tests.drivers.camera.rtp_packets import encode, packets, rtp
from tests.drivers.camera.rtsp_script import SDP, Script, answers, interleaved, pieces, reply, watch
from tests.drivers.fuzzing import mutated
from tests.examples import examples

PARTS = (b"\r\n\r\n", b"$\0\xff\xff", b"Content-Length: 99999\r\n", b"\x7c\x85", b"RTSP/1.0 200 OK")
SEEDS = st.integers(0, 2**32)


@pytest.mark.parametrize("codec", ["h264", "h265", "jpeg"])
@examples(3)
@given(seed=SEEDS)
def test_damaged_packets(codec: str, seed: int) -> None:
    """Each damaged or missing packet costs pictures that are named; the rest is as it was sent."""
    rng = random.Random(seed)
    sent = packets(encode(codec, 12))
    assembler = JpegAssembler() if codec == "jpeg" else NalAssembler(codec)
    tested = Depacketizer(assembler, 26 if codec == "jpeg" else 96, 90_000)
    for k, data in enumerate(sent):
        if rng.random() < 0.1:
            data = mutated(rng, data, PARTS) if rng.random() < 0.8 else b""
        try:
            units = tested.feed(data, k)
        except ProtocolError as error:
            assert "RTP" in str(error)
            continue
        for unit in units:
            assert 0 <= unit.t_ns <= k
            assert bool(unit.data) != bool(unit.fault)
            assert unit.missed >= 0
            assert not (unit.fault and unit.key and codec != "jpeg")


@examples(3)
@given(
    payloads=st.lists(
        st.tuples(st.binary(max_size=40), st.booleans(), st.integers(0, 3)), max_size=40
    ),
    codec=st.sampled_from(["h264", "h265", "jpeg"]),
)
def test_any_payloads(payloads: list[tuple[bytes, bool, int]], codec: str) -> None:
    assembler = JpegAssembler() if codec == "jpeg" else NalAssembler(codec)
    tested = Depacketizer(assembler, 96, 90_000)
    for k, (payload, marker, skipped) in enumerate(payloads):
        for unit in tested.feed(rtp(k + skipped, k // 3 * 3600, payload, marker=marker), k):
            assert len(unit.data) <= MAX_UNIT_BYTES


@examples(3)
@given(seed=SEEDS, size=st.integers(1, 200))
def test_a_damaged_connection(seed: int, size: int) -> None:
    """Bytes in pieces of any size are messages, or one error; the buffer has a bound."""
    rng = random.Random(seed)
    whole = b"".join(
        (
            reply("200 OK", "Session: 1;timeout=9", body=SDP, cseq="1").encode(),
            interleaved(rtp(1, 2, b"abc")),
            b"OPTIONS rtsp://a RTSP/1.0\r\nCSeq: 5\r\n\r\n",
            interleaved(b"", 1),
        )
    )
    data = mutated(rng, whole * 3, PARTS)
    parser, alone = MessageParser(), MessageParser()
    found: list[Message | None] = []
    meant: list[Message | None] = []
    try:
        for at in range(0, len(data), size):
            for message in parser.feed(data[at : at + size]):
                found.append(message)
            assert len(parser._buffer) <= MAX_HEAD_BYTES + MAX_BODY_BYTES + size
    except ProtocolError:
        found.append(None)
    try:
        for message in alone.feed(data):
            meant.append(message)
    except ProtocolError:
        meant.append(None)
    assert found == meant
    for each in found:
        if isinstance(each, Reply):
            parse_session(each.head.headers.get("session", ""))
        elif isinstance(each, Interleaved):
            assert len(each.data) < 1 << 16


@examples(3)
@given(seed=SEEDS)
def test_damaged_descriptions(seed: int) -> None:
    rng = random.Random(seed)
    sets = "a=fmtp:96 sprop-parameter-sets=Z0IAKeKQFAe2,aM48gA==;x\r\na=framerate:25\r\n"
    sdp = mutated(rng, (SDP + sets).encode(), (b"a=control:rtsp://b/\r\n", b"m=video 0 x 96\r\n"))
    try:
        media = parse_sdp(sdp, "rtsp://cam/live/")
    except ProtocolError as error:
        assert len(str(error)) < 400
        return
    assert media.clock_hz > 0 and 0 <= media.payload_type < 1000
    request = Requests(None, "").build("SETUP", media.control, nonce="n").decode("latin-1")
    assert request.count("\r\n") == 4 and request.split("\r\n")[0].count(" ") == 2


@given(text=st.text(max_size=80))
def test_headers(text: str) -> None:
    name, timeout_s = parse_session(text)
    assert name == name.strip() and 1 <= timeout_s < 1e6
    with contextlib.suppress(ProtocolError):
        assert all(0 <= channel <= 1000 for channel in parse_channels(text))


@given(seed=SEEDS)
def test_a_camera_that_answers_and_streams_garbage(seed: int) -> None:
    """The whole client: pictures, counted losses, then one error that names the camera."""
    rng = random.Random(seed)
    says = answers()
    sent = pieces(packets(encode("h264", 12)))
    if rng.random() < 0.5:
        method = rng.choice(["OPTIONS", "DESCRIBE", "SETUP", "PLAY"])
        damaged = mutated(rng, says[method][0].encode("latin-1"), PARTS[:3])
        says[method] = [damaged.decode("latin-1")]
    else:
        at = rng.randrange(len(sent))
        sent[at] = mutated(rng, sent[at], PARTS)
    script = Script(*sent, says=says)
    camera = script.camera()
    try:
        camera.open()
    except RecorderError as error:
        assert str(error).startswith("front: rtsp://cam/live: ")
        return
    finally:
        if camera._player is None:
            assert script.open == 0
    shots, end = watch(camera)
    camera.close()
    assert str(end).startswith("front: rtsp://cam/live: ")
    assert isinstance(end, DeviceError) or "pixels" in str(end)
    assert sum(isinstance(s, Shot) and not isinstance(s.picture, Missing) for s in shots) <= 12
