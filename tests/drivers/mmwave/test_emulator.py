"""The emulated radar and capture card, stepped by hand at times that are made up."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit.emulator_faults import Fault
from drivers.mmwave import packets as dca1000
from drivers.mmwave.driver import MmwaveDriver
from drivers.mmwave.emulator import MmwaveEmulator
from drivers.mmwave.emulator_firmware import BOOT_NS, PROMPT, DemoFirmware
from drivers.mmwave.packets import PACKET_BYTES, Answer
from recorder.common.errors import ConfigError, SourceError, UsageError
from tests.drivers.mmwave.rig import QUICK, Frames, recording
from tests.support.devices import make_entry

MS = 1_000_000

SETUP = """flushCfg
dfeDataOutputMode 1
adcCfg 2 1
adcbufCfg -1 0 1 1 1
profileCfg 0 77.0 10.0 5.0 40.0 0 0 60.0 1.0 64 5000 0 0 30
channelCfg 15 3 0
chirpCfg 0 0 0 0.0 0.0 0.0 0.0 1
chirpCfg 1 1 0 0.0 0.0 0.0 0.0 2
frameCfg 0 1 16 0 10.0 1 0.0
lvdsStreamCfg -1 0 1 0
sensorStart
"""


class Bench:
    """An emulator, and the host's side of its sockets and its serial line."""

    def __init__(self, path: Path, truth: Frames, faults: tuple[Fault, ...]) -> None:
        self.truth = truth
        entry = make_entry(MmwaveDriver, "radar", "mmwave", "file", path, radar=QUICK)
        self.emulator = MmwaveEmulator(entry, faults, seed=4)
        source = self.emulator.start()
        capture = source.options["capture"]
        self.commands = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.commands.bind(("127.0.0.1", capture["config_port"]))
        self.commands.setblocking(False)
        self.card = capture["fpga_ip"], capture["config_port"]
        self.data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.data.bind(("127.0.0.1", capture["data_port"]))
        self.data.setblocking(False)
        self.serial = os.open(
            source.options["radar"]["port"], os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK
        )
        self.now_ns = 0

    def ask(self, code: int, data: bytes = b"") -> int | None:
        body = code.to_bytes(2, "little") + len(data).to_bytes(2, "little") + data
        self.commands.sendto(b"\x5a\xa5" + body + b"\xaa\xee", self.card)
        self.emulator.step(self.now_ns)
        try:
            answer = Answer.parse(self.commands.recv(100))
        except BlockingIOError:
            return None
        assert answer.code == code
        return answer.status

    def type(self, text: str) -> str:
        os.write(self.serial, text.encode())
        return self.listen()

    def listen(self) -> str:
        self.emulator.step(self.now_ns)
        with contextlib.suppress(BlockingIOError):
            return os.read(self.serial, 65536).decode()
        return ""

    def start(self) -> None:
        """As xwr does it."""
        assert self.ask(dca1000.CONFIG_FPGA, bytes(6)) == 0
        self.now_ns += 30 * MS
        assert self.ask(dca1000.CONFIG_RECORD, b"\xbe\x05\x71\x02\x00\x00") == 0
        assert self.ask(dca1000.RESET_AR_DEVICE) == 0
        self.now_ns += BOOT_NS
        self.listen()
        assert self.ask(dca1000.START_RECORD) == 0
        assert self.type(SETUP).count("Done") == SETUP.count("\n")

    def until(self, end_ns: int) -> list[bytes]:
        """Step where the emulator wants it; all packets till then."""
        packets = []
        while self.now_ns <= end_ns:
            due_ns = self.emulator.step(self.now_ns)
            assert due_ns >= self.now_ns
            with contextlib.suppress(BlockingIOError):
                while True:
                    packets.append(self.data.recv(2048))
            self.now_ns = max(due_ns, self.now_ns + 1)
        return packets

    def close(self) -> None:
        self.emulator.stop()
        self.emulator.stop()
        os.close(self.serial)
        self.commands.close()
        self.data.close()


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Makes benches of a recording, whose frames are their `truth`."""
    made: list[Bench] = []

    def make(*faults: Fault, count: int = 30, started: bool = True) -> Bench:
        made.append(Bench(*recording(tmp_path, count), faults))
        if started:
            made[-1].start()
        return made[-1]

    yield make
    for bench in made:
        bench.close()


def test_the_card_sends_what_the_radar_measures(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    packets = bench.until(bench.now_ns + 105 * MS)
    assert {len(packet) for packet in packets} == {PACKET_BYTES}
    stream = b"".join(packet[10:] for packet in packets)
    assert (
        stream == bench.truth.tobytes()[: len(stream)] and len(stream) > 10 * bench.truth[0].nbytes
    )
    counts = [int.from_bytes(packet[4:10], "little") for packet in packets]
    assert counts == [k * 1456 for k in range(len(packets))]


def test_packets_leave_as_their_chirps_end(make_bench: Callable[..., Bench]) -> None:
    """A frame of 10 ms has chirps for 1.6 ms; nothing more comes until the next."""
    bench = make_bench()
    begin_ns = bench.now_ns
    early = len(bench.until(begin_ns + MS // 2))
    assert early < 11
    assert len(bench.until(begin_ns + 9 * MS)) + early == 22
    assert len(bench.until(begin_ns + 19 * MS)) == 23  # 22.5 packets a frame


def test_the_same_times_and_seed_give_the_same_packets(make_bench: Callable[..., Bench]) -> None:
    faults = (Fault("loss", rate=0.1), Fault("corrupt", rate=0.1), Fault("reorder", rate=0.1),
              Fault("duplicate", count=3, at_s=0.05))  # fmt: skip
    runs = []
    for _ in range(2):
        bench = make_bench(*faults)
        runs.append((bench.until(bench.now_ns + 200 * MS), bench.emulator.injected))
        assert bench.emulator.injected["duplicate"] == 3
    assert runs[0] == runs[1]
    assert len({packet[:10] for packet in runs[0][0]}) > 300


def test_a_recording_is_sent_whole_and_then_zeros(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(count=6)
    packets: list[bytes] = []
    while not bench.emulator.finished:
        packets += bench.until(bench.now_ns + MS)
        assert bench.now_ns < 10_000 * MS
    stream = b"".join(packet[10:] for packet in packets)
    assert stream[: bench.truth.nbytes] == bench.truth.tobytes()
    assert not any(stream[bench.truth.nbytes :])


def test_nothing_is_sent_but_in_a_capture(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(started=False)
    assert bench.ask(dca1000.START_RECORD) == 1  # not configured
    bench.start()
    assert bench.ask(dca1000.START_RECORD) == 1  # runs
    assert bench.until(bench.now_ns + 30 * MS)
    assert bench.type("sensorStop\n").endswith(f"Done\n\r{PROMPT}")
    bench.until(bench.now_ns + 10 * MS)
    assert not bench.until(bench.now_ns + 50 * MS)
    bench.type("sensorStart\n")
    assert bench.until(bench.now_ns + 30 * MS)
    assert bench.ask(dca1000.STOP_RECORD) == 0
    assert not bench.until(bench.now_ns + 50 * MS)
    # A new capture counts anew.
    assert bench.ask(dca1000.START_RECORD) == 0
    assert bench.until(bench.now_ns + 50 * MS)[0][:10] == b"\x01" + bytes(9)


def test_the_card_is_deaf_for_a_moment_after_it_was_configured(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(count=1, started=False)
    assert bench.ask(dca1000.SYSTEM_ALIVENESS) == 0
    assert bench.ask(dca1000.READ_FPGA_VERSION) == 2 | 9 << 7
    assert bench.ask(dca1000.CONFIG_FPGA, bytes(5)) == 1
    assert bench.ask(dca1000.CONFIG_FPGA, bytes(6)) == 0
    assert bench.ask(dca1000.SYSTEM_ALIVENESS) is None
    bench.now_ns += 30 * MS
    assert bench.ask(dca1000.SYSTEM_ALIVENESS) == 0


@pytest.mark.parametrize("kind", ["reboot", "unplug"])
def test_a_device_that_is_gone_is_silent_and_then_as_new(
    make_bench: Callable[..., Bench], kind: str
) -> None:
    bench = make_bench(Fault(kind, at_s=0.05, duration_s=0.2))
    begin_ns = bench.now_ns
    assert 100 < len(bench.until(begin_ns + 60 * MS)) < 120
    assert bench.ask(dca1000.SYSTEM_ALIVENESS) is None
    assert not bench.until(begin_ns + 190 * MS)
    bench.until(begin_ns + 300 * MS)
    assert bench.ask(dca1000.SYSTEM_ALIVENESS) == 0
    assert bench.ask(dca1000.START_RECORD) == 1  # it has forgotten its configuration
    assert bench.emulator.injected[kind] == 1


def test_the_firmware_answers_as_the_demo_does() -> None:
    firmware = DemoFirmware("AWR1642")
    assert firmware.step(b"sensorStop\n", 0) == b""
    firmware.power_on(0)
    assert firmware.step(b"lost before it has booted\n", BOOT_NS - 1) == b""
    assert firmware.step(b"", BOOT_NS).decode().endswith(PROMPT)

    def say(text: str) -> str:
        return firmware.step(text.encode(), BOOT_NS).decode()

    def answer(text: str) -> str:
        said = say(text + "\n")
        assert said.startswith(text + "\n") and said.endswith(f"\n\r{PROMPT}")
        return said[len(text) + 1 : -len(PROMPT) - 2]

    assert say("sensor") == "" and say("Stop\n").startswith("sensorStop\nIgnored")
    assert answer("") == ""
    assert answer("hello") == "'hello' is not recognized as a CLI command"
    assert "missing before sensor start" in answer("sensorStart")
    assert answer("frameCfg 0 1").startswith("Error: Invalid usage")
    assert answer("frameCfg 0 1 a 0 10 1 0").startswith("Error: Invalid usage")
    assert answer("channelCfg 15 7 0").startswith("Error")
    for line in SETUP.splitlines():
        assert answer(line) == "Done", line
    assert firmware.running and firmware.starts == 1
    assert answer("sensorStart").startswith("Ignored")
    assert answer("flushCfg").startswith("Error")
    counted = firmware.chirp()
    assert counted is not None
    assert {k: getattr(counted[0], k) for k in QUICK} == QUICK and counted[1] == "qqii"


def test_what_cannot_be_emulated(tmp_path: Path) -> None:
    def made(faults: tuple[Fault, ...] = (), scheme: str = "sim", **radar: Any) -> MmwaveEmulator:
        given: dict[str, Any] = {"radar": {**QUICK, **radar}}
        path = tmp_path / "none.bin"
        entry = make_entry(MmwaveDriver, "front", "mmwave", scheme, path, **given)
        return MmwaveEmulator(entry, faults)

    with pytest.raises(ConfigError, match=r"front\.radar\.device: AWR2944 is not emulated"):
        made(device="AWR2944")
    with pytest.raises(UsageError, match="front: a radar has no clock"):
        made((Fault("clock_jump", value=1.0),))
    with pytest.raises(SourceError, match=r"front: file:.*none\.bin: no such file"):
        made(scheme="file").start()


def test_two_radars_are_emulated_beside_each_other(make_bench: Callable[..., Bench]) -> None:
    for bench in [make_bench(), make_bench()]:
        first = bench.until(bench.now_ns + 20 * MS)[0]
        np.testing.assert_array_equal(
            np.frombuffer(first[10:], "<i2"), bench.truth.reshape(-1)[:728]
        )
