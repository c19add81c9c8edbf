"""Requests to RTSP cameras, logins, and cameras that refuse."""

from __future__ import annotations

import base64

import pytest

from drivers.camera.rtsp.messages import Media, parse_sdp
from recorder.common.errors import DeviceError, ProtocolError, SourceError
from tests.drivers.camera.rtsp_script import (
    GATE,
    SDP,
    Decoder,
    Script,
    answers,
    record,
    reply,
    stream,
    values,
)

FIRST_NS = 5_000_000_000


def test_packets_before_the_answer_to_play_count() -> None:
    says = answers(PLAY="")
    first, *rest = stream("kpp")
    script = Script(first, reply(cseq="4").encode(), *rest, says=says)
    shots, _ = record(script.camera(decoding=Decoder()))
    assert values(shots) == [0, 1, 2]
    assert [shot.t_ns - FIRST_NS for shot in shots] == [1_000_000, 3_000_000, 4_000_000]


def test_requests_and_goodbye() -> None:
    sets = [base64.b64encode(data).decode() for data in (b"\x67sps", b"\x68pps")]
    sdp = SDP.replace("mode=1", f"mode=1;sprop-parameter-sets={','.join(sets)}")
    script = Script(*stream("k"), GATE, says=answers(sdp))
    seen: list[Media] = []

    def decoding(media: Media) -> Decoder:
        seen.append(media)
        return Decoder()

    camera = script.camera("//[::1]:8554/live?a=b", decoding=decoding)
    camera.open()
    camera.close()
    lines = [request.split("\r\n")[0] for request in script.requests]
    assert lines == [
        "OPTIONS rtsp://[::1]:8554/live?a=b RTSP/1.0",
        "DESCRIBE rtsp://[::1]:8554/live?a=b RTSP/1.0",
        "SETUP rtsp://cam/live/trackID=1 RTSP/1.0",
        "PLAY rtsp://cam/live/ RTSP/1.0",
        "TEARDOWN rtsp://cam/live/ RTSP/1.0",
    ]
    assert "\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n" in script.requests[2]
    assert all("\r\nSession: 12ab\r\n" in request for request in script.requests[3:])
    assert seen[0].parameter_sets == b"\0\0\0\1\x67sps\0\0\0\1\x68pps"


def test_keep_alive_and_requests_of_the_camera() -> None:
    asks = b"OPTIONS rtsp://a RTSP/1.0\r\nCSeq: 77\r\n\r\n"
    script = Script(*stream("k"), asks, *stream("ppp", first=1), every_ns=16_000_000_000)
    shots, _ = record(script.camera(decoding=Decoder(), timeout_s=60.0))
    assert values(shots) == [0, 1, 2, 3]
    methods = [request.split(" ")[0] for request in script.requests]
    assert methods.count("GET_PARAMETER") == 2  # 30 s after PLAY, and 30 s later
    assert "RTSP/1.0 501 Not Implemented\r\nCSeq: 77\r\n\r\n" in script.requests


def test_a_login_that_expires() -> None:
    digest = 'WWW-Authenticate: Digest realm="r", nonce="{}"'
    no = "401 Unauthorized"
    says = answers()
    says["OPTIONS"].insert(0, reply(no, digest.format("one")))
    says["GET_PARAMETER"].insert(0, reply(no, digest.format("two")))
    script = Script(*stream("kppp"), says=says, every_ns=16_000_000_000)
    shots, _ = record(script.camera("//user:secret@cam/live", decoding=Decoder(), timeout_s=60.0))
    assert values(shots) == [0, 1, 2, 3]
    nonces = [r.partition('nonce="')[2][:3] for r in script.requests]
    assert nonces[:5] == ["", "one", "one", "one", "one"]
    assert "two" in nonces
    assert not any("secret" in request for request in script.requests)


@pytest.mark.parametrize(
    ("says", "error", "text"),
    [
        ({"DESCRIBE": reply("404 Not Found")}, DeviceError, "answers 404 Not Found to DESCRIBE"),
        ({"DESCRIBE": reply("401 No")}, DeviceError, r"wants a user and password \(rtsp://USER"),
        (
            {"DESCRIBE": reply("302 Moved", "Location: rtsp://u:pw@other/x")},
            SourceError, r"refers to rtsp://u:\*\*\*@other/x: put that into the config",
        ),
        ({"SETUP": reply("461 Unsupported")}, DeviceError, "no RTP over TCP"),
        (
            {"SETUP": reply("200 OK", "Transport: RTP/AVP;unicast;client_port=5-6")},
            DeviceError, "no RTP over TCP, but 'RTP/AVP;unicast",
        ),
        ({"DESCRIBE": reply(body="m=audio 0 RTP/AVP 0\r\n")}, DeviceError, "but audio"),
        ({"PLAY": ""}, DeviceError, "closed the connection"),
        ({"OPTIONS": ""}, DeviceError, "no answer to OPTIONS in time"),
        ({"OPTIONS": "HTTP/1.1 400 Bad Request\r\n\r\n"}, DeviceError, "no RTSP message"),
        (
            {"DESCRIBE": reply("200 OK", "Content-Length: 99999999")},
            DeviceError, "body of '99999999' bytes",
        ),
    ],
)  # fmt: skip
def test_cameras_that_refuse(says: dict[str, str], error: type[Exception], text: str) -> None:
    script = Script(says=answers(**says))
    with pytest.raises(error, match=f"^front: rtsp://cam/live: .*{text}"):
        script.camera(decoding=Decoder()).open()
    assert script.open == 0


def test_logins_that_are_refused() -> None:
    for challenge, text in (
        ('Digest realm="r", nonce="n"', "refuses this user and password"),
        ("Bearer", "neither Basic nor Digest"),
    ):
        said = reply("401 No", f"WWW-Authenticate: {challenge}")
        script = Script(says=answers(OPTIONS=said))
        with pytest.raises(DeviceError, match=rf"front: rtsp://user:\*\*\*@cam/live: .*{text}"):
            script.camera("//user:secret@cam/live", decoding=Decoder()).open()
        assert script.open == 0


def test_a_camera_without_usable_video_is_told_what_it_offers() -> None:
    sdp = (
        b"v=0\r\nm=audio 0 RTP/AVP 0\r\nm=video 0 RTP/AVP 96 97 33 34\r\n"
        b"a=rtpmap:96 MP4V-ES/90000\r\na=rtpmap:97 H264/90000\r\n"
        b"a=fmtp:97 packetization-mode=2\r\nm=application 0 RTP/AVP 107\r\n"
    )
    with pytest.raises(ProtocolError) as raised:
        parse_sdp(sdp, "rtsp://camera/")
    assert str(raised.value) == (
        "offers no video in H.264, H.265 or JPEG, but audio, MP4V-ES, H264 interleaved, 33, 34, "
        "application"
    )
    with pytest.raises(ProtocolError, match=r"but nothing$"):
        parse_sdp(b"v=0\r\n", "rtsp://camera/")
