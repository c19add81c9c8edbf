"""RTSP cameras: stamps, losses and the backlog, on a camera that answers from a script."""

from __future__ import annotations

import builtins
import socket
import threading
import time
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
import pytest

from drivers.camera.pictures import Missing, Shot
from drivers.camera.rtsp import camera as rtsp_camera
from drivers.camera.rtsp.camera import RtspCamera
from drivers.camera.rtsp.rtp import AccessUnit
from drivers.kit.driver import Lost, Sample
from recorder.common.errors import DeviceError, SourceError, StreamChangedError
from tests.drivers.camera.http_rig import lost
from tests.drivers.camera.model_numbers import read_frame_number
from tests.drivers.camera.rig import driver
from tests.drivers.camera.rtp_packets import encode, packets, rtp
from tests.drivers.camera.rtsp_script import (
    GATE,
    SDP,
    Decoder,
    Script,
    answers,
    interleaved,
    pieces,
    record,
    stream,
    values,
    watch,
)
from tests.support.devices import free_port, opened, streaming
from tests.support.waiting import wait_until

FIRST_NS = 5_000_000_000


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_every_picture_has_the_arrival_of_its_first_packet(codec: str) -> None:
    encoded = packets(encode(codec, 25))
    sdp = SDP.replace("H264", codec.upper())
    script = Script(*pieces(encoded), says=answers(sdp))
    with opened(script.camera()) as camera:
        assert (camera.size, camera.fps, camera.jpegs) == ((160, 120), 20.0, False)
        assert camera.settings == {"codec": codec, "stamps": "arrival of the first packet"}
        shots, end = watch(camera)
    assert str(end) == "front: rtsp://cam/live: the camera closed the connection"
    assert [read_frame_number(np.asarray(shot.picture)) for shot in shots] == list(range(25))
    ends = [k for k, data in enumerate(encoded) if data[1] & 0x80]
    firsts = [0, *(k + 1 for k in ends[:-1])]
    assert [shot.t_ns for shot in shots] == [script.sent_ns[k] for k in firsts]
    assert script.open == 0


def test_jpegs_are_passed_through() -> None:
    encoded = packets(encode("jpeg", 4))
    sdp = SDP.replace("96", "26").replace("a=rtpmap:26 H264/90000\r\n", "a=framerate:25\r\n")
    script = Script(*pieces(encoded), says=answers(sdp))
    camera = script.camera()
    camera.open()
    assert (camera.size, camera.fps, camera.jpegs) == ((160, 120), 25.0, True)
    shots, _ = watch(camera)
    for k, shot in enumerate(shots):
        assert isinstance(shot.picture, bytes)
        image = cv2.imdecode(np.frombuffer(shot.picture, np.uint8), cv2.IMREAD_COLOR)
        assert read_frame_number(np.asarray(image, np.uint8)) == k
    assert len(shots) == 4


def test_a_slow_decoder_drops_counts_and_resumes_at_a_key() -> None:
    decoder = Decoder(permits=1)
    flood = stream("p" * 39, "k", "p" * 39, "k", "p" * 19, first=1)
    late = stream("p" * 5, "k", "p" * 4, first=100)
    script = Script(*stream("k"), GATE, *flood, GATE, *late, every_ns=40_000_000)
    with opened(script.camera(decoding=decoder)) as camera:
        player = camera._player
        assert player is not None
        wait_until(
            "the player", lambda: player._backlog._units == 0
        )  # the first picture is decoded
        script.gate.release()
        wait_until(
            "the player", lambda: script.at_gate == 1
        )  # 99 pictures arrived, none of them is decoded
        assert player._backlog._units == rtsp_camera._UNITS == 32
        assert len(player._backlog._items) == 33
        decoder.permits.release(1000)
        shots: list[Shot] = []
        while len(shots) < 34:
            shots += [event for event in camera.read(0.2) if isinstance(event, Shot)]
        assert values(shots) == [*range(33), -67]
        wait_until("the player", lambda: player._backlog._units == 0)
        script.gate.release()
        more, end = watch(camera)
    assert values(more) == [-5, 105, 106, 107, 108, 109]
    assert "closed the connection" in str(end)
    assert lost(shots + more, "overrun") == 72
    for shot, value in zip(shots + more, values(shots + more), strict=True):
        if value >= 0:  # 40 ms for each picture before it, however late it was decoded
            assert shot.t_ns == FIRST_NS + 40_000_000 * (value + 1)
    assert all(b.t_ns > a.t_ns for a, b in pairwise(shots + more))
    assert decoder.drained == [33, 33, 38]


def test_the_backlog_is_bounded_in_bytes() -> None:
    decoder = Decoder(permits=1)
    big = [b"\x7c\x85", *[b"\x7c\x05"] * 170, b"\x7c\x45"]
    flood = [
        rtp(1 + 172 * k + j, 3600 * (k + 1), data + bytes(60_000), marker=j == 171)
        for k in range(6)
        for j, data in enumerate(big)
    ]
    script = Script(*stream("k"), GATE, *pieces(flood), GATE)
    camera = script.camera(decoding=decoder)
    camera.open()
    player = camera._player
    assert player is not None
    wait_until("the player", lambda: player._backlog._units == 0)
    script.gate.release()
    wait_until("the player", lambda: script.at_gate == 1)
    assert player._backlog._units == 3
    assert 30_000_000 < player._backlog._bytes <= rtsp_camera._BYTES
    decoder.permits.release(10)
    script.gate.release()
    shots, _ = watch(camera)
    assert lost(shots, "overrun") == 3
    camera.close()


def test_a_reader_that_does_not_read_stops_the_decoder() -> None:
    decoder = Decoder()
    script = Script(*stream("k" * 60), GATE)
    camera = script.camera(decoding=decoder)
    camera.open()
    wait_until("the player", lambda: script.at_gate == 0)
    player = camera._player
    assert player is not None
    wait_until("the player", lambda: player.shots.qsize() == 4)
    assert player._backlog._units <= 32
    script.gate.release()
    shots, _ = watch(camera)
    pictures = [value for value in values(shots) if value >= 0]
    assert len(pictures) + lost(shots, "overrun") == 60
    assert pictures == sorted(pictures)


def test_losses_are_counted_and_recording_resumes_at_a_key() -> None:
    decoder = Decoder()
    whole = stream("kpppppkppkp")
    # Picture 2 is missing; packets between 7 and 8 are missing, without a picture.
    sent = [*whole[:2], *whole[3:8], *stream("pk", first=9)]
    renumbered = sent[7:]
    sent[7:] = [
        data.replace((3600 * (9 + k)).to_bytes(4, "big"), (3600 * (8 + k)).to_bytes(4, "big"), 1)
        for k, data in enumerate(renumbered)
    ]
    script = Script(*sent, GATE)
    camera = script.camera(decoding=decoder)
    camera.open()
    script.gate.release()
    shots, _ = watch(camera)
    assert lost(shots, "device") == 2  # one and one
    assert lost(shots, "corrupt") == 4  # 3, 4, 5 and 9 refer to lost pictures
    assert [value for value in values(shots) if value >= 0] == [0, 1, 6, 7, 10]
    assert all(b.t_ns > a.t_ns for a, b in pairwise(shots))


def test_a_damaged_picture_names_its_fault() -> None:
    broken = interleaved(rtp(1, 3600, b"\x7c\x05ab", marker=True))
    script = Script(*stream("k"), broken, *stream("k", first=2))
    shots, _ = record(script.camera(decoding=Decoder()))
    assert values(shots) == [0, -1, 2]
    assert isinstance(shots[1].picture, Missing)
    assert shots[1].picture.reason == "a fragmented NAL unit without its start"


def test_the_stream_begins_with_a_key() -> None:
    script = Script(*stream("pppkp"))
    with opened(script.camera(decoding=Decoder(), fps=10.0)) as camera:
        assert camera.fps == 10.0
        shots, _ = watch(camera)
    assert values(shots) == [3, 4]


def test_a_stream_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtsp_camera, "_OPEN_S", 0.05)
    script = Script(*stream("ppp"), GATE)
    with pytest.raises(DeviceError, match=r"decodable without earlier ones within 0\.05 s"):
        script.camera(decoding=Decoder()).open()
    wait_until("the player", lambda: script.open == 0)


def test_a_size_that_changes_ends_the_stream() -> None:
    class Growing(Decoder):
        def decode(self, unit: AccessUnit) -> list[Shot]:
            height = 48 if unit.data[-1] < 2 else 50
            return [Shot(unit.t_ns, np.zeros((height, 64, 3), np.uint8))]

    script = Script(*stream("kppp"))
    shots, end = record(script.camera(decoding=Growing()))
    assert len(shots) == 2
    assert isinstance(end, StreamChangedError)
    assert "64 x 50" in str(end)


def test_a_damaged_jpeg_is_lost_alone() -> None:
    encoded = packets(encode("jpeg", 3))
    ends = [k for k, data in enumerate(encoded) if data[1] & 0x80]
    del encoded[ends[0] + 3]
    sdp = SDP.replace("96", "26").replace("H264", "JPEG")
    script = Script(*pieces(encoded), says=answers(sdp))
    shots, _ = record(script.camera())
    assert [isinstance(shot.picture, Missing) for shot in shots] == [False, True, False]
    assert lost(shots, "corrupt") == 1


def test_a_stream_that_falls_silent() -> None:
    sender_report = interleaved(bytes.fromhex("80c80006") + bytes(24), channel=1)
    script = Script(*stream("kp"), *[sender_report] * 60, every_ns=100_000_000)
    shots, end = record(script.camera(decoding=Decoder(), timeout_s=4.0))
    assert values(shots) == [0, 1]
    assert str(end) == "front: rtsp://cam/live: no picture for 4 s"


def test_garbage_and_goodbyes_come_after_the_pictures_before_them() -> None:
    bye = bytes.fromhex("80c80006") + bytes(24) + bytes.fromhex("81cb000100000005")
    for last, text in (
        (b"garbage, which is not RTSP at all", "no RTSP message: b'garbage"),
        (interleaved(b"no packet of RTP"), "no RTP packet"),
        (interleaved(bye, channel=1), "the camera ended the stream"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
    ):
        *before, end = stream("kpp")
        tail = [end + last] if isinstance(last, bytes) else [end, last]
        script = Script(*before, *tail, GATE)
        camera = script.camera(decoding=Decoder())
        shots, error = record(camera)
        assert values(shots) == [0, 1, 2]
        assert isinstance(error, DeviceError) and text in str(error)
        with pytest.raises(DeviceError, match="before open"):
            camera.read(0.1)


def test_a_decoder_that_fails_ends_the_stream() -> None:
    class Failing(Decoder):
        def decode(self, unit: AccessUnit) -> list[Shot]:
            if unit.data[-1] == 2:
                raise MemoryError("no memory")
            return super().decode(unit)

    script = Script(*stream("kppp"), GATE)
    shots, error = record(script.camera(decoding=Failing()))
    assert values(shots) == [0, 1]
    assert isinstance(error, DeviceError) and "no memory" in str(error)


def test_without_pyav_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name == "av":
            raise ImportError("No module named 'av'")
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    camera = driver("//127.0.0.1:9/live", "rtsp", name="rear")
    with pytest.raises(SourceError, match=r"rear: rtsp:.*needs the extra rtsp \("):
        camera.open()


def test_addresses() -> None:
    for bad in ("cam/live", "//", "//:554/x", "//cam:99999/", "//cam:0/"):
        with pytest.raises(SourceError, match="front: rtsp:"):
            RtspCamera("front", bad)
    with pytest.raises(DeviceError, match="before open"):
        RtspCamera("front", "//cam/").read(0.1)


def test_nobody_there() -> None:
    port = free_port(socket.SOCK_STREAM)
    camera = driver(f"//u:secret@127.0.0.1:{port}/live", "rtsp", name="rear")
    with pytest.raises(DeviceError, match=r"rear: rtsp://u:.*: Connection refused") as caught:
        camera.open()
    assert "secret" not in str(caught.value)


def test_the_driver_records_a_stream_from_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's socket, real time, and the driver around it."""
    encoded = packets(encode("h264", 25))
    script = Script(*pieces(encoded[:40]), *pieces(encoded[42:]))
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        its, _ = listener.accept()
        with its:
            its.settimeout(60)
            while not script._playing:
                script.sendall(its.recv(4096))
                its.sendall(script.recv(9))
            while data := script.recv(9):
                its.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    monkeypatch.setattr(rtsp_camera, "_OPEN_S", 40.0)
    before_ns = time.monotonic_ns()
    with streaming(
        driver(f"//127.0.0.1:{listener.getsockname()[1]}/live", "rtsp", timeout_s=30.0)
    ) as (camera, spec):
        assert spec.settings["passed_through"] is False
        assert spec.channel("video.avi").shape == (120, 160, 3)
        items: list[Any] = []
        with pytest.raises(DeviceError, match="closed the connection"):
            while True:
                items.append(camera.read())
    thread.join(60)
    listener.close()
    found = [item for item in items if isinstance(item, Sample)]
    times = [int(item.t_ns[0]) for item in found]
    assert before_ns < times[0] and times == sorted(set(times))
    counted = sum(item.count or 0 for item in items if isinstance(item, Lost))
    assert len(found) + counted == 25
    assert 0 < counted < 10
