"""What CAN buses and sensors that send datagrams have in common, at their emulators and drivers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.can.driver import CanDriver
from drivers.can.frames import Frame, pack_frame
from drivers.kit.driver import Driver, Lost, Sample, State
from drivers.kit.emulator_faults import Fault
from drivers.kit.udp_socket import Batch
from drivers.sim.emulated_rig import make_emulator
from drivers.udp.driver import UdpDriver
from recorder.common.errors import DeviceError, SourceError
from tests.drivers.can.rig import message, write_log
from tests.drivers.reading import receiving, steps_of
from tests.drivers.udp.rig import write_capture
from tests.formats.pcap.test_datagrams import ethernet, ipv4, udp
from tests.support.devices import free_port, make_driver, make_entry, opened, times


@dataclass(frozen=True)
class Kind:
    """A driver whose device sends datagrams, and recordings of such a device.

    Attributes:
        driver: its class.
        scheme: of a device on the network, before HOST:PORT.
        suffix: of recordings.
        write: writes a recording with datagram k at each time in ms.
        datagram: the bytes of datagram k.
        channel: whose first byte is k.
        texts: of errors, by what is wrong.
    """

    driver: type[Driver]
    scheme: str
    suffix: str
    write: Callable[[Path, Sequence[int]], Path]
    datagram: Callable[[int], bytes]
    channel: str
    texts: dict[str, str]

    def emulator(self, scheme: str, address: object, *faults: Fault, **more: Any) -> Any:
        entry = make_entry(self.driver, "device", self.scheme, scheme, address, **more)
        return make_emulator(entry, faults, seed=3)

    def live(self, port: int, **options: Any) -> Driver:
        given = {"timeout_s": 0, **options}
        return make_driver(self.driver, "device", self.scheme, f"127.0.0.1:{port}", **given)

    def batch(self, numbers: list[int], dropped: list[int]) -> Batch:
        """Datagrams whose time in us is their number, and the kernel's counts of what it lost."""
        rows = [self.datagram(k) for k in numbers]
        data = np.zeros((len(rows), 80), np.uint8)
        for row, content in zip(data, rows, strict=True):
            row[: len(content)] = np.frombuffer(content, np.uint8)
        addresses = np.zeros((len(rows), 28), np.uint8)
        addresses[:, :2] = np.frombuffer(struct.pack("=H", socket.AF_INET), np.uint8)
        addresses[:, 4:8] = 127, 0, 0, 1
        sizes = np.array([len(content) for content in rows], np.int64)
        t_ns = np.array(numbers, np.int64) * 1000
        flags = np.zeros(len(rows), np.int32)
        return Batch(data, sizes, t_ns, addresses, np.array(dropped, np.int64), False, flags)


def write_can(path: Path, steps_ms: Sequence[int]) -> Path:
    sent = [
        message(0, timestamp=1000 + ms / 1000, data=bytes([k])) for k, ms in enumerate(steps_ms)
    ]
    return write_log(path, sent)


def write_udp(path: Path, steps_ms: Sequence[int]) -> Path:
    write_capture(path, [])
    with path.open("ab") as file:
        for k, ms in enumerate(steps_ms):
            frame = ethernet(ipv4(udp(bytes([k]), 2368)))
            at = 1000 + ms // 1000, ms % 1000 * 1000
            file.write(struct.pack("<IIII", *at, len(frame), len(frame)) + frame)
    return path


KINDS = {
    "can": Kind(
        CanDriver, "can", ".log", write_can, lambda k: pack_frame(Frame(0, 0x100, bytes([k]))),
        "data", {"file": "is no log of a kind that is read", "to": "can:INTERFACE"},
    ),
    "udp": Kind(
        UdpDriver, "udp", ".pcap", write_udp, lambda k: bytes([k]),
        "payload", {"file": "is not a pcap or pcapng file", "to": "HOST:PORT"},
    ),
}  # fmt: skip


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def test_a_recording_is_sent_with_its_timing(kind: Kind, tmp_path: Path) -> None:
    path = kind.write(tmp_path / f"a{kind.suffix}", [0, 3, 3, 250, 1000])
    emulator = kind.emulator("file", path)
    with receiving(emulator) as made:
        got = steps_of(emulator, made, 3000)
    sent = enumerate([0, 3, 3, 250, 1000])
    assert got == [(500 + ms, kind.datagram(k)) for k, ms in sent]
    assert emulator.finished


def test_a_loop_sends_again(kind: Kind, tmp_path: Path) -> None:
    path = kind.write(tmp_path / f"a{kind.suffix}", [0, 50, 20])  # the last stamp steps back
    emulator = kind.emulator("file", path, loop=True)
    with receiving(emulator) as made:
        got = steps_of(emulator, made, 850)
    sent = enumerate((500, 550, 550, 650, 700, 700, 800, 850, 850))
    assert got == [(ms, kind.datagram(k % 3)) for k, ms in sent]
    assert not emulator.finished


def test_faults_of_packets_and_of_the_device(kind: Kind, tmp_path: Path) -> None:
    path = kind.write(tmp_path / f"a{kind.suffix}", range(0, 1000, 10))
    faults = Fault("loss", 0.1, count=5), Fault("duplicate", 0.2, count=3), Fault("stall", 0.5, 0.2)
    emulator = kind.emulator("file", path, *faults)
    numbers = {kind.datagram(k): k for k in range(100)}
    with receiving(emulator) as made:
        got = [numbers[data] for _, data in steps_of(emulator, made, 3000)]
    assert emulator.injected == {"loss": 5, "duplicate": 3, "stall": 20}
    expected = [k for k in range(100) if not 10 <= k < 15 and not 50 <= k < 70]
    assert sorted(set(got)) == expected and len(got) == len(expected) + 3


@pytest.mark.parametrize("wrong", ["missing", "file", "session", "to"])
def test_what_cannot_be_sent_is_named(kind: Kind, wrong: str) -> None:
    scheme, address, text = {
        "missing": ("file", f"gone{kind.suffix}", f"gone{kind.suffix}: No such file"),
        "file": ("file", __file__, kind.texts["file"]),
        "session": ("session", "x", "is no source that can be emulated"),
        "to": ("sim", "", f"to: 'no where' is not of the form {kind.texts['to']}"),
    }[wrong]
    with pytest.raises(SourceError, match=text):
        kind.emulator(scheme, address, **({"to": "no where"} if wrong == "to" else {})).start()


def feed(driver: Any, *batches: Batch) -> list[Any]:
    """What a driver gives of these batches of its socket."""
    waiting, empty = list(batches), KINDS["udp"].batch([], [])
    driver._source._receiver.receive = lambda: waiting.pop(0) if waiting else empty
    return [driver.read() for _ in range(20)]


def story(items: Sequence[Any], channel: str) -> list[Any]:
    """First values of datagrams, and losses as (cause, count, time)."""
    told: list[Any] = []
    for item in items:
        if isinstance(item, Sample):
            told += [int(value[0]) for value in item.data[channel]]
        elif isinstance(item, Lost):
            told.append((item.cause, item.count, item.t_ns))
    return told


def test_what_the_kernel_dropped_is_lost_before_the_next_datagram(kind: Kind) -> None:
    batches = ([1, 2, 6, 7], [0, 0, 3, 3]), ([9, 12], [4, 6]), ([13], [6])
    with opened(kind.live(free_port())) as driver:
        items = feed(driver, *(kind.batch(*each) for each in batches))
    assert story(items, kind.channel) == [
        1, 2, ("overflow", 3, 6000), 6, 7,
        ("overflow", 1, 9000), 9, ("overflow", 2, 12000), 12, 13,
    ]  # fmt: skip


def test_stamps_never_step_back(kind: Kind) -> None:
    """Cards with several queues stamp datagrams in another order than they deliver them."""
    with opened(kind.live(free_port())) as driver:
        items = feed(driver, kind.batch([5, 4, 6], [0] * 3), kind.batch([3, 9], [0, 0]))
    assert times(items).tolist() == [5000, 5000, 6000, 6000, 9000]


def test_a_small_buffer_is_told_once(
    kind: Kind, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("drivers.kit.udp_socket._enlarge", lambda *_: 1000)
    driver: Any = kind.live(free_port(), socket_buffer_mb=4)
    for _ in range(2):
        with opened(driver):
            (warning,) = driver.warnings
            state = driver.read()
    assert isinstance(state, State)
    assert state.values["socket_buffer_bytes"] == 1000
    assert state.values["socket_buffer_bytes_asked"] == 4_000_000
    assert capsys.readouterr().err == warning + "\n"
    assert "net.core.rmem_max=4000000" in warning


def test_a_port_that_is_taken_is_named(kind: Kind) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        text = rf"device: {kind.scheme}:127\.0\.0\.1:{port}: .*cannot be bound: Address already"
        with pytest.raises(DeviceError, match=text):
            kind.live(port).open()
