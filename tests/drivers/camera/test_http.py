"""HTTP cameras against servers that behave oddly, byte by byte on a made-up clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from drivers.camera.http.camera import HttpCamera
from drivers.camera.pictures import Missing, Shot
from drivers.kit.driver import Sample
from recorder.common.errors import DeviceError, SourceError, StreamChangedError
from tests.drivers.camera.http_rig import jpegs, lost, notes
from tests.drivers.camera.http_script import JPEGS, OK, Script, numbered, part, stream, watch
from tests.drivers.camera.rig import driver, jpeg
from tests.support.devices import opened, streaming

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


def test_the_rest_of_a_part_whose_length_is_too_short_is_no_second_loss() -> None:
    short = part(JPEGS[1], f"Content-Length: {len(JPEGS[1]) - 100}", length=False)
    body = part(JPEGS[0]) + short + part(JPEGS[2])
    events = watch(Script(stream(body, b"--b\r\n")))
    assert jpegs(events) == [JPEGS[0], JPEGS[2]]
    assert lost(events, "corrupt") == 1


def test_damaged_pictures_before_the_first_whole_one_are_no_loss() -> None:
    events = watch(Script(stream(numbered(0, b"x"), numbered(1, b"y"), numbered(2))))
    assert jpegs(events) == [JPEGS[2]]
    assert lost(events, "corrupt") == lost(events, "device") == 0


def test_a_size_that_changes_ends_the_stream() -> None:
    other = jpeg(3, (80, 48))
    script = Script(stream(numbered(0), numbered(1) + part(other) + numbered(3)))
    with opened(script.camera()) as camera:
        events = camera.read(0.2) + camera.read(0.2)
        assert jpegs(events) == JPEGS[:2]  # what came before it is not lost
        with pytest.raises(StreamChangedError, match=r"front: http://cam/.* 80 x 48 .* 64 x 48"):
            camera.read(0.2)


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
    with opened(Script(stream(part(JPEGS[0]))).camera()) as plain:
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
    with opened(script.camera(timeout_s=1.0)) as camera:
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
    with opened(script.camera(timeout_s=2.0)) as camera:
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


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], None]:
    """Lets the driver's next cameras talk to a script."""

    def use(script: Script) -> None:
        def made(name: str, scheme: str, address: str, **more: Any) -> HttpCamera:
            clocked: dict[str, Any] = {"connecting": script.connect, "clock": lambda: script.now_ns}
            return HttpCamera(name, scheme, address, **clocked, **more)

        monkeypatch.setattr("drivers.camera.http.camera.HttpCamera", made)

    return use


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
    with streaming(driver("//cam/x", "http", width=32)) as (camera, spec):
        assert spec.channel("video.avi").shape == (24, 32, 3)
        assert spec.settings["passed_through"] is False
        assert spec.rate_hz is None
        items = [camera.read() for _ in range(5)]
        shapes = [getattr(item, "data", {}).get("video.avi") for item in items]
        assert [getattr(values, "shape", None) for values in shapes] == [
            (1, 24, 32, 3), (1, 24, 32, 3), None, (1, 24, 32, 3), None,
        ]  # fmt: skip
        assert items[4] is None


def test_pictures_that_wait_at_the_close_do_not_come_after_the_next_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a driver that is opened again, as after a camera's error."""
    scripts = [Script(stream(numbered(0), numbered(1))), Script(stream(numbered(2)))]
    cameras = [script.camera() for script in scripts]
    read = cameras[0].read
    monkeypatch.setattr(cameras[0], "read", lambda wait_s: read(wait_s) + read(wait_s))
    tested = driver("//cam/stream", "http", "front")
    monkeypatch.setattr("drivers.camera.http.camera.HttpCamera", lambda *_, **__: cameras.pop(0))
    tested.open()
    first = tested.read()
    tested.close()
    tested.open()
    second = tested.read()
    tested.close()
    shown = [list(item.data["video.avi"]) for item in (first, second) if isinstance(item, Sample)]
    assert shown == [[JPEGS[0]], [JPEGS[2]]]
