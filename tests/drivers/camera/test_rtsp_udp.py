"""RTSP cameras that send RTP over UDP: order, gaps, and a camera on this machine's loopback."""

from __future__ import annotations

import itertools
import re
import socket
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from drivers.camera.live import LiveSource
from drivers.camera.pictures import CodedPicture, Shot
from drivers.camera.rtsp.camera import RtspCamera
from drivers.camera.rtsp.rtp import PacketOrder
from drivers.camera.rtsp.udp_ports import check_transport, find_sender
from recorder.codecs.h264 import nal_units
from recorder.common.errors import DeviceError, ProtocolError
from tests.drivers.camera.http_rig import lost
from tests.drivers.camera.rig import driver
from tests.drivers.camera.rtp_packets import encode, packets, rtp
from tests.drivers.camera.rtsp_script import SDP, Script, answers, reply

MS = 1_000_000


def order_of(numbers: Sequence[int], every_ns: int = MS) -> list[int]:
    """Sequence numbers as they leave."""
    order, made = PacketOrder(), []
    for k, number in enumerate(numbers):
        for t_ns, packet in order.feed(rtp(number, 0, b"x"), k * every_ns):
            made.append(int.from_bytes(packet[2:4], "big"))
            assert t_ns <= k * every_ns
    return made


class TestOrder:
    @pytest.mark.parametrize(
        ("numbers", "made"),
        [
            ([1, 2, 3], [1, 2, 3]),
            ([1, 3, 2, 4], [1, 2, 3, 4]),
            ([1, 1, 2, 2], [1, 2]),
            ([65534, 0, 65535, 1], [65534, 65535, 0, 1]),
            ([5, 6, 4, 7], [5, 6, 7]),  # a packet from before the first one
            ([1, 2, 40_000, 40_001], [1, 2, 40_000, 40_001]),  # a new sequence
            ([1, 3, 40_000], [1, 3, 40_000]),
        ],
    )
    def test_packets_leave_in_order(self, numbers: list[int], made: list[int]) -> None:
        assert order_of(numbers) == made

    def test_a_gap_is_given_up_after_many_packets_or_some_time(self) -> None:
        held = [1, *range(3, 3 + 65)]
        assert order_of(held, every_ns=0)[-1] == 67
        assert order_of(held[:-1], every_ns=0) == [1]
        assert order_of([1, 3, 4], every_ns=60 * MS) == [1]
        assert order_of([1, 3, 4], every_ns=101 * MS) == [1, 3, 4]
        assert order_of([1, 3, 2], every_ns=0) == [1, 2, 3]

    def test_any_order_within_a_window_is_restored(self) -> None:
        rng = np.random.default_rng(3)
        for _ in range(40):
            first = int(rng.integers(65536))
            numbers = [(first + k) % 65536 for k in range(200)]
            places = np.arange(200) + rng.uniform(0, 30, 200)
            places[0] = -1
            kept = rng.random(200) > 0.05
            kept[0] = True
            sent = [numbers[k] for k in np.argsort(places) if kept[k]]
            made = order_of([*sent, *((first + k) % 65536 for k in range(200, 300))], every_ns=0)
            wanted = [numbers[k] for k in range(200) if kept[k]]
            assert made[: len(wanted)] == wanted


class Camera:
    """A camera that sends RTP over UDP to whom its SETUP names; one client."""

    def __init__(self, sent: Sequence[bytes], reports: Sequence[bytes] = ()) -> None:
        self._sent, self._reports = sent, reports
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.setup = ""
        self.finish = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._listening.accept()
        data = b""
        with client, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
            wire.bind(("127.0.0.1", 0))
            while True:
                while b"\r\n\r\n" not in data:
                    if not (more := client.recv(4096)):
                        return
                    data += more
                head, _, data = data.partition(b"\r\n\r\n")
                text = head.decode()
                method, cseq = text.split(" ")[0], re.findall(r"CSeq: (\d+)", text)[0]
                says = answers()[method][0]
                if method == "SETUP":
                    self.setup = re.findall(r"Transport: (.*)", text)[0].strip()
                    answer = f"Transport: {self.setup};server_port=6970-6971"
                    says = reply("200 OK", "Session: 1;timeout=60", answer)
                client.sendall(says.replace("{cseq}", cseq).encode())
                if method == "PLAY":
                    break
            first, second = map(int, re.findall(r"client_port=(\d+)-(\d+)", self.setup)[0])
            for report in self._reports:
                wire.sendto(report, ("127.0.0.1", second))
            for packet in self._sent:
                wire.sendto(packet, ("127.0.0.1", first))
            self.finish.wait(60)

    def close(self) -> None:
        self.finish.set()
        self._thread.join()
        self._listening.close()


def record(
    sent: Sequence[bytes], reports: Sequence[bytes] = (), codec: str = "copy", wanted: int = 10**9
) -> tuple[list[Shot], Camera, str]:
    """What the driver's camera gives of the packets, until it hangs up or gave so many shots."""
    camera = Camera(sent, reports)
    options = {"codec": codec, "transport": "udp", "timeout_s": 2.0}
    made = driver(f"//127.0.0.1:{camera.port}/live", "rtsp", "front", **options)
    assert isinstance(made._camera, LiveSource)
    opened = made._camera.make()
    assert isinstance(opened, RtspCamera)
    shots: list[Shot] = []
    end = ""
    try:
        opened.open()
        while len(shots) < wanted:
            shots += [event for event in opened.read(0.2) if isinstance(event, Shot)]
    except DeviceError as error:
        end = str(error)
    finally:
        opened.close()
        camera.close()
    return shots, camera, end


def coded(shots: list[Shot]) -> list[list[bytes]]:
    return [
        list(nal_units(shot.picture.data))
        for shot in shots
        if isinstance(shot.picture, CodedPicture)
    ]


def test_access_units_are_those_of_the_encoder() -> None:
    encoded = encode("h264", 40)
    shots, camera, _end = record(packets(encoded), wanted=40)
    assert coded(shots) == [list(nal_units(unit.data)) for unit in encoded.units]
    assert re.fullmatch(r"RTP/AVP;unicast;client_port=\d+-\d+", camera.setup)
    first, second = map(int, re.findall(r"\d+", camera.setup.partition("client_port")[2]))
    assert (first % 2, second) == (0, first + 1)
    assert all(b.t_ns > a.t_ns for a, b in itertools.pairwise(shots))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(k, marks=pytest.mark.campaign) for k in (1, 2, 3))]
)
def test_dropped_and_exchanged_packets(seed: int) -> None:
    """Exchanged packets cost nothing; dropped ones cost the pictures up to the next keyframe."""
    encoded = encode("h264", 60)
    sent = packets(encoded)
    rng = np.random.default_rng(seed)
    places = np.arange(len(sent)) + rng.uniform(0, 4, len(sent))
    places[:3] = -np.arange(3, 0, -1)
    tail = next(k for k, data in enumerate(sent) if data[4:8] == sent[-1][4:8]) - 80
    dropped = {int(k) for k in rng.choice(np.arange(12, tail), 4, replace=False)}
    order = [int(k) for k in np.argsort(places) if int(k) not in dropped]
    shots, _, end = record([sent[k] for k in order])
    assert "no picture for 2 s" in end
    whole = [list(nal_units(unit.data)) for unit in encoded.units]
    numbers = [whole.index(unit) for unit in coded(shots)]
    assert numbers == sorted(set(numbers))
    counted = lost(shots, "corrupt") + lost(shots, "device")
    assert counted > 0
    assert len(numbers) + counted == 60
    jumps = [b for a, b in itertools.pairwise(numbers) if b != a + 1]
    assert jumps and all(k % 10 == 0 for k in jumps), "recording goes on at keyframes"


def test_pictures_may_be_decoded_too() -> None:
    shots, _, _ = record(packets(encode("h264", 20)), codec="jpeg", wanted=15)
    assert all(isinstance(shot.picture, np.ndarray) for shot in shots)


@pytest.mark.campaign
def test_reports_and_a_bye_come_at_the_second_port() -> None:
    from tests.drivers.camera.test_copy import sender_report

    encoded = packets(encode("h264", 20))
    first = int.from_bytes(encoded[0][4:8], "big")
    bye = b"\x81\xcb\x00\x01" + bytes(4)
    report = sender_report(2_208_988_800 + 1000, 0, first)
    shots, _, end = record(encoded, [report])
    assert [shot.t_device_ns for shot in shots[1:3]] == [1_000_050_000_000, 1_000_100_000_000]
    _, _, end = record(encoded, [report, bye])
    assert "the camera ended the stream" in end


class FakePorts:
    transport = "RTP/AVP;unicast;client_port=5000-5001"
    closed = 0

    def listen_to(self, address: str) -> None:
        assert address == "127.0.0.1"

    def receive(self, timeout_s: float) -> Any:
        return [], []

    def close(self) -> None:
        FakePorts.closed += 1


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers.camera.rtsp.camera.RtpPorts", lambda ipv6: FakePorts())
    FakePorts.closed = 0


@pytest.mark.parametrize(
    ("says", "fault"),
    [
        (reply("461 Unsupported Transport"), r"no RTP over UDP \(461\); set transport: tcp"),
        (
            reply("200 OK", "Session: 1", "Transport: RTP/AVP/TCP;interleaved=0-1"),
            "offers no RTP over UDP, but 'RTP/AVP/TCP",
        ),
        (
            reply("200 OK", "Session: 1", "Transport: RTP/AVP;multicast;port=7000-7001"),
            "offers no RTP over UDP, but 'RTP/AVP;multicast",
        ),
    ],
)
def test_a_camera_that_has_no_udp(ports: None, says: str, fault: str) -> None:
    script = Script(says=answers(SDP, SETUP=says))
    with pytest.raises(DeviceError, match=fault):
        script.camera(over_udp=True, copying=True).open()
    assert FakePorts.closed == 1


def test_a_connection_that_closes_is_the_end(ports: None) -> None:
    setup = reply("200 OK", "Session: 1", f"Transport: {FakePorts.transport}")
    with pytest.raises(DeviceError, match="closed the connection"):
        Script(says=answers(SDP, SETUP=setup)).camera(over_udp=True, copying=True).open()
    assert FakePorts.closed >= 1


def test_transports() -> None:
    check_transport("RTP/AVP;unicast;client_port=5000-5001;server_port=1-2")
    check_transport("RTP/AVP/UDP;unicast")
    assert find_sender("RTP/AVP;unicast;source=10.0.0.7;server_port=1-2", "10.0.0.1") == "10.0.0.7"
    assert find_sender('RTP/AVP;source="fe80::7"', "10.0.0.1") == "fe80::7"
    for named in ("", ";source=cam.local", ";source=1.2.3.400"):
        assert find_sender(f"RTP/AVP;unicast{named}", "10.0.0.1") == "10.0.0.1"
    for wrong in ("", "RTP/SAVP;unicast", "RTP/AVP;interleaved=0-1"):
        with pytest.raises(ProtocolError, match="no RTP over UDP"):
            check_transport(wrong)
