"""HTTP cameras against servers that behave oddly, byte by byte on a made-up clock."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from drivers._devices.http_camera import HttpCamera, Url, connect, parse_url
from drivers._devices.pictures import Missing, Note, Shot
from drivers._kit.driver import Sample
from drivers.camera import CameraDriver
from recorder.contract.errors import DeviceError, SourceError, StreamChangedError
from tests.drivers.camera_rig import driver, jpeg
from tests.drivers.http_rig import jpegs, lost, notes

OK = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=b\r\n"
JPEGS = [jpeg(k, (64, 48)) for k in range(8)]


def part(data: bytes, *headers: str, length: bool = True) -> bytes:
    lines = ["--b", *headers, *([f"Content-Length: {len(data)}"] if length else [])]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data + b"\r\n"


def numbered(k: int, data: bytes | None = None) -> bytes:
    return part(JPEGS[k % 8] if data is None else data, f"X-Frame-Number: {k}")


class Script:
    """A server that sends these pieces, each so many ms after the one before; then it is silent.

    An exception in the place of a piece is raised.
    """

    def __init__(self, *answers: Sequence[bytes | Exception], every_ms: float = 10.0) -> None:
        self.now_ns = 5_000_000_000
        self.answers = [list(answer) for answer in answers]
        self.requests: list[bytes] = []
        self.open = 0
        self._step_ns = round(every_ms * 1e6)
        self._pieces: list[bytes | Exception] = []
        self._timeout_ns = 0

    def camera(self, address: str = "//cam/stream", **more: Any) -> HttpCamera:
        return HttpCamera(
            "front", "http", address, connecting=self.connect, clock=lambda: self.now_ns, **more
        )

    def connect(self, url: Url) -> Script:
        self._pieces = self.answers.pop(0)
        self.open += 1
        return self

    def settimeout(self, value: float) -> None:
        self._timeout_ns = round(value * 1e9)

    def sendall(self, data: bytes) -> None:
        self.requests.append(data)

    def recv(self, size: int) -> bytes:
        if not self._pieces:
            self.now_ns += self._timeout_ns
            raise TimeoutError
        self.now_ns += self._step_ns
        piece = self._pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        assert len(piece) <= size
        return piece

    def close(self) -> None:
        self.open -= 1


def watch(script: Script, **more: Any) -> list[Shot | Note]:
    """All that comes before the silence."""
    camera = script.camera(**more)
    camera.open()
    events: list[Shot | Note] = []
    try:
        while came := camera.read(0.2):
            events += came
    finally:
        camera.close()
        assert script.open == 0
    return events


def stream(*parts: bytes | Exception, head: bytes = OK) -> list[bytes | Exception]:
    return [head + b"\r\n", *parts]


# What comes


def test_stamps_are_the_arrival_of_the_last_byte() -> None:
    head, tail = numbered(0)[:-300], numbered(0)[-300:]
    script = Script(stream(head, tail, numbered(1), numbered(2) + numbered(3)))
    events = watch(script)
    assert jpegs(events) == JPEGS[:4]
    assert [event.t_ns / 1e6 for event in events] == [5030, 5040, 5050, 5050.000002]


def test_without_lengths_a_stamp_is_not_that_of_the_next_pictures_delimiter() -> None:
    parts = [part(data, length=False) for data in JPEGS[:4]]
    script = Script(stream(*parts), every_ms=100)
    events = watch(script)
    assert jpegs(events) == JPEGS[:3]  # the fourth has not ended yet
    assert [event.t_ns / 1e6 for event in events] == [5200, 5300, 5400]


def test_what_is_padded_behind_a_jpeg_is_trimmed() -> None:
    script = Script(stream(*(part(data + bytes(100)) for data in JPEGS)))
    assert jpegs(watch(script)) == JPEGS


def test_chunks_that_cut_anywhere() -> None:
    body = b"".join(numbered(k) for k in range(8))
    coded = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in (body[:777], body[777:9000]))
    coded += b"%x\r\n%s\r\n" % (len(body) - 9000, body[9000:])
    head = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    whole = head + coded
    script = Script([whole[at : at + 331] for at in range(0, len(whole), 331)])
    assert jpegs(watch(script)) == JPEGS


def test_gaps_in_the_numbers_are_counted_where_they_are() -> None:
    script = Script(stream(*(numbered(k) for k in (5, 6, 9, 10, 20))))
    events = watch(script)
    assert [e.picture.count if isinstance(e.picture, Missing) else 0
            for e in events if isinstance(e, Shot)] == [0, 0, 2, 0, 0, 9, 0]  # fmt: skip
    assert lost(events, "device") == 11
    assert notes(events) == []


def test_numbers_that_start_again_are_noted_and_not_counted() -> None:
    script = Script(stream(*(numbered(k) for k in (5, 6, 0, 1, 3, 10**12))))
    events = watch(script)
    assert lost(events, "device") == 1
    assert notes(events) == [
        {"numbers_restarted": {"from": 6, "to": 0}},
        {"numbers_restarted": {"from": 3, "to": 10**12}},
    ]


def test_the_numbers_header_is_an_option() -> None:
    parts = [part(JPEGS[k], f"X-Seq: {3 * k}") for k in range(4)]
    assert lost(watch(Script(stream(*parts))), "device") == 0
    assert lost(watch(Script(stream(*parts)), number_header="x-seq"), "device") == 6


DAMAGED = [
    JPEGS[1][:400],  # cut
    b"",
    b"no picture at all",
    JPEGS[1][2:],
]


@pytest.mark.parametrize("data", DAMAGED)
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("length", ["true", "none", "of the whole"])
def test_a_damaged_picture_is_one_counted_loss(data: bytes, counted: bool, length: str) -> None:
    def one(k: int, given: bytes) -> bytes:
        headers = [f"X-Frame-Number: {k}"] if counted else []
        if length == "of the whole" and given == data:
            return part(given, *headers, f"Content-Length: {len(JPEGS[k])}", length=False)
        return part(given, *headers, length=length == "true")

    body = b"".join(one(k, data if k in (1, 4) else JPEGS[k]) for k in range(6))
    for size in (100, 100_000):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        events = watch(Script(stream(*pieces, b"--b\r\n"), every_ms=0.1))
        assert jpegs(events) == [JPEGS[k] for k in (0, 2, 3, 5)]
        kinds = [isinstance(e, Shot) and isinstance(e.picture, Missing) for e in events]
        assert kinds == [False, True, False, False, True, False]
        assert lost(events, "corrupt") == 2


def test_damaged_pictures_before_the_first_whole_one_are_no_loss() -> None:
    events = watch(Script(stream(numbered(0, b"x"), numbered(1, b"y"), numbered(2))))
    assert jpegs(events) == [JPEGS[2]]
    assert lost(events, "corrupt") == lost(events, "device") == 0


def test_a_size_that_changes_ends_the_stream() -> None:
    other = jpeg(3, (80, 48))
    script = Script(stream(numbered(0), numbered(1) + part(other) + numbered(3)))
    camera = script.camera()
    camera.open()
    events = camera.read(0.2) + camera.read(0.2)
    assert jpegs(events) == JPEGS[:2]  # what came before it is not lost
    with pytest.raises(StreamChangedError, match=r"front: http://cam/.* 80 x 48 .* 64 x 48"):
        camera.read(0.2)
    camera.close()


def test_parts_that_are_no_pictures_are_no_loss() -> None:
    sound = part(b"sound", "Content-Type: audio/basic")
    parts = [part(data, "Content-Type: Image/JPEG") for data in JPEGS[:3]]
    events = watch(Script(stream(sound, parts[0], sound, parts[1], parts[2], sound)))
    assert jpegs(events) == JPEGS[:3]
    assert len(events) == 3


def test_the_cameras_own_time() -> None:
    times = ["12.5", "12.75", "1732000000.123456789", "nonsense"]
    parts = [part(JPEGS[k], f"X-Timestamp: {text}") for k, text in enumerate(times)]
    script = Script(stream(*parts, part(JPEGS[4])))
    camera = script.camera()
    camera.open()
    assert camera.device_clock
    events = [event for _ in range(5) for event in camera.read(0.2)]
    assert [e.t_device_ns for e in events if isinstance(e, Shot)] == [
        12_500_000_000, 12_750_000_000, 1_732_000_000_123_456_789, 0, 0,
    ]  # fmt: skip
    camera.close()
    plain = Script(stream(part(JPEGS[0]))).camera()
    plain.open()
    assert not plain.device_clock
    assert plain.read(0.2)[0].t_device_ns is None  # type: ignore[union-attr]


# What ends


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (b"", "the camera closed the connection"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (OSError(113, "No route to host"), "No route to host"),
        (b"--b--\r\n", "the camera ended the stream"),
    ],
)
def test_the_end_of_a_connection_comes_after_all_pictures(
    end: bytes | Exception, reason: str
) -> None:
    script = Script(stream(numbered(0) + numbered(1), end))
    camera = script.camera()
    camera.open()
    assert jpegs(camera.read(0.2)) == JPEGS[:2]
    with pytest.raises(DeviceError, match=f"front: http://cam/stream: {reason}"):
        camera.read(0.2)
    camera.close()
    assert script.open == 0


def test_silence_is_waited_for_in_short_turns_and_then_is_an_end() -> None:
    script = Script(stream(numbered(0)))
    camera = script.camera(timeout_s=1.0)
    camera.open()
    camera.read(0.2)
    start_ns, turns = script.now_ns, 0
    with pytest.raises(DeviceError, match="no picture for 1 s"):
        while True:
            before_ns = script.now_ns
            assert camera.read(0.2) == []
            assert script.now_ns - before_ns <= 200_000_000
            turns += 1
    assert turns >= 4
    assert script.now_ns - start_ns < 1_500_000_000


def test_a_trickle_is_no_life() -> None:
    drops: list[bytes | Exception] = [b"x"] * 10_000
    script = Script(stream(numbered(0), *drops))
    camera = script.camera(timeout_s=2.0)
    camera.open()
    camera.read(0.2)
    with pytest.raises(DeviceError, match="no picture for 2 s"):
        while True:
            camera.read(0.2)


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        ([b"HTTP/1.0 404 Not Found\r\n\r\n"], DeviceError, "answers 404 Not Found"),
        ([b"HTTP/1.0 503 \r\n\r\n"], DeviceError, "answers 503"),
        ([b"HTTP/1.0 401 Unauthorized\r\n\r\n"], DeviceError, "wants a user and password"),
        ([b"HTTP/1.0 302 Found\r\nLocation: http://u:pw@other/\r\n\r\n"], SourceError,
         r"refers to http://u:\*\*\*@other/"),
        ([b"HTTP/1.0 200 OK\r\nContent-Type: image/jpeg\r\n\r\n"], SourceError,
         "no stream of JPEGs: content type 'image/jpeg'"),
        ([b"220 ftp ready\r\n"], DeviceError, "no HTTP answer"),
        ([b"", b""], DeviceError, "closed the connection"),
        ([], DeviceError, "no picture within"),
        (stream(), DeviceError, "no picture within"),
        (stream(numbered(0, b"x"), b""), DeviceError, "closed the connection"),
        ([ConnectionRefusedError(111, "Connection refused")], DeviceError, "refused"),
    ],
)  # fmt: skip
def test_cameras_that_cannot_be_opened(
    answer: Sequence[bytes | Exception], error: type[Exception], reason: str
) -> None:
    script = Script(answer)
    camera = script.camera()
    start_ns = script.now_ns
    with pytest.raises(error, match=reason):
        camera.open()
    assert script.open == 0
    assert script.now_ns - start_ns < 5_000_000_000


def test_open_again_goes_on() -> None:
    script = Script(stream(numbered(7), b""), stream(numbered(0), numbered(2)))
    camera = script.camera()
    camera.open()
    assert jpegs(camera.read(0.2)) == [JPEGS[7]]
    with pytest.raises(DeviceError):
        camera.read(0.2)
    camera.close()
    camera.open()
    events = camera.read(0.2) + camera.read(0.2)
    assert jpegs(events) == [JPEGS[0], JPEGS[2]]
    assert lost(events, "device") == 1  # of the new connection only
    camera.close()
    assert script.open == 0


# Addresses and passwords


def login(challenge: str) -> Script:
    refusal = f"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: {challenge}\r\n\r\n".encode()
    return Script([refusal], stream(numbered(0)), every_ms=1)


def test_the_password_is_sent_only_when_asked_for_and_never_shown() -> None:
    script = login('Basic realm="cam"')
    camera = script.camera("//user:s%40cret@cam:8080/video?x=1")
    camera.open()
    first, second = script.requests
    assert first.startswith(b"GET /video?x=1 HTTP/1.1\r\nHost: cam:8080\r\n")
    assert b"Authorization" not in first
    assert b"Authorization: Basic dXNlcjpzQGNyZXQ=\r\n" in second  # user:s@cret
    assert "cret" not in camera.where
    assert "user:***@cam:8080" in camera.where
    camera.close()


def test_digest() -> None:
    script = login('Digest realm="cam", nonce="abc", qop="auth"')
    camera = script.camera("//user:secret@cam/video")
    camera.open()
    answer = script.requests[1]
    for text in (b'Authorization: Digest username="user"', b'uri="/video"', b"qop=auth"):
        assert text in answer
    assert b"secret" not in answer
    camera.close()


def test_a_password_that_is_refused() -> None:
    refusal = b'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="x"\r\n\r\n'
    with pytest.raises(DeviceError, match="refuses this user and password") as caught:
        Script([refusal], [refusal]).camera("//user:secret@cam/").open()
    assert "secret" not in str(caught.value)
    odd = b"HTTP/1.1 401 No\r\nWWW-Authenticate: Negotiate\r\n\r\n"
    with pytest.raises(DeviceError, match="neither Basic nor Digest"):
        Script([odd]).camera("//user:secret@cam/").open()


def test_addresses() -> None:
    url = parse_url("w", "http", "//[::1]:81/a?b=c")
    assert (url.host, url.port, url.target, url.user) == ("::1", 81, "/a?b=c", None)
    assert parse_url("w", "https", "//cam").port == 443
    assert parse_url("w", "http", "//u:p@w/x@cam").host == "w"
    for bad in ("cam/x", "//", "//:80/", "//cam:99999/", "//cam/a b", "///x"):
        with pytest.raises(SourceError, match=r"^w: "):
            parse_url("w", "http", bad)


@pytest.mark.parametrize(
    ("scheme", "options", "message"),
    [
        ("http", {"controls": {"gain": 1}}, "controls: only a v4l2"),
        ("rtsp", {"pixel_format": "YUYV"}, "pixel_format: only a v4l2"),
        ("sim", {"controls": {"gain": 1}}, "controls: only a v4l2"),
        ("v4l2", {"gain": 4.0}, "gain: only the simulated camera.*controls: {gain"),
        ("http", {"exposure_ms": 4.0}, "exposure_ms: only the simulated camera"),
    ],
)
def test_options_of_another_source_are_refused(
    scheme: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        driver("//cam/x", scheme, **options).open()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_nobody_there(scheme: str) -> None:
    camera = driver(f"//u:secret@127.0.0.1:{free_port()}/x", scheme, name="rear")
    assert camera.sensor.scheme in CameraDriver.live_schemes
    for _ in range(2):  # may be tried again
        with pytest.raises(DeviceError, match=f"rear: {scheme}://u:.* refused") as caught:
            camera.open()
        assert "secret" not in str(caught.value)
        camera.close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A server's certificate with its key, made for one test."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("needs the program openssl")
    path = tmp_path / "camera.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-keyout", str(path), "-out", str(tmp_path / "camera.crt")]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + (tmp_path / "camera.crt").read_bytes())
    return path


def test_over_tls_a_camera_is_named_and_its_certificate_is_its_own(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    names: list[str | None] = []
    context.sni_callback = lambda wire, name, context: names.append(name)
    request = b""

    def serve() -> None:
        nonlocal request
        with listener.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as wire:
            request = wire.recv(100)
            wire.sendall(b"answer")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            url = parse_url("w", "https", f"//localhost:{listener.getsockname()[1]}/x")
            connection = connect(url)
            connection.settimeout(20)
            connection.sendall(b"question")
            assert connection.recv(100) == b"answer"
            connection.close()
        finally:
            thread.join()
    assert request == b"question" and names == ["localhost"]


def test_a_name_that_is_none() -> None:
    def no_name(_: Url) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    camera = HttpCamera("front", "http", "//nowhere/", connecting=no_name)
    with pytest.raises(DeviceError, match="Name or service not known"):
        camera.open()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], None]:
    """Lets the driver's next cameras talk to a script."""

    def use(script: Script) -> None:
        _redirect(script, monkeypatch)

    return use


def _redirect(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str, scheme: str, address: str, **more: Any) -> HttpCamera:
        return HttpCamera(
            name, scheme, address, connecting=script.connect, clock=lambda: script.now_ns, **more
        )

    monkeypatch.setattr("drivers.camera.HttpCamera", made)


@pytest.mark.parametrize("first", [True, False])
def test_the_channels_stay_when_a_camera_comes_back_otherwise(
    scripted: Callable[[Script], None], first: bool
) -> None:
    """Only the size ends a stream; a camera's time that goes or comes with a reboot does not."""
    timed, plain = part(JPEGS[0], "X-Timestamp: 7.5"), part(JPEGS[1])
    before, after = (timed, plain) if first else (plain, timed)
    scripted(Script(stream(before, b""), stream(after)))
    camera = driver("//cam/x", "http")
    found = []
    for _ in range(2):
        (spec,) = camera.open()
        assert spec.device_clock is first
        item = camera.read()
        assert isinstance(item, Sample)
        found.append(None if item.t_dev_ns is None else item.t_dev_ns.tolist())
        camera.close()
    assert found == ([[7_500_000_000], [0]] if first else [None, None])


def test_resizing_a_live_stream(scripted: Callable[[Script], None]) -> None:
    scripted(Script(stream(numbered(0), numbered(1), numbered(3))))
    camera = driver("//cam/x", "http", width=32)
    (spec,) = camera.open()
    assert spec.channel("video.avi").shape == (24, 32, 3)
    assert spec.settings["passed_through"] is False
    assert spec.rate_hz is None
    items = [camera.read() for _ in range(5)]
    shapes = [getattr(item, "data", {}).get("video.avi") for item in items]
    assert [getattr(values, "shape", None) for values in shapes] == [
        (1, 24, 32, 3), (1, 24, 32, 3), None, (1, 24, 32, 3), None,
    ]  # fmt: skip
    assert items[4] is None
    camera.close()
