"""A hundred thousand mutated commands and answers at each serial line, the emulators' own too.

What carries data is fuzzed beside each sensor's tests.  Nothing may crash, hang or grow, and what
is right behind it must be answered.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import time
from collections import deque
from typing import Any

import pytest

from drivers.mmwave.connection import RadarCapture, _convert_rejections
from drivers.mmwave.emulator_firmware import BOOT_NS, DemoFirmware
from drivers.xsens import connection as xsens_device
from drivers.xsens.commands import Mid, bytes_per_second, encode_outputs, make_outputs
from drivers.xsens.connection import Mti
from drivers.xsens.emulator import _SPEEDS, XsensEmulator
from drivers.xsens.emulator_commands import MtiDevice, MtiState
from drivers.xsens.model import accept_outputs
from drivers.xsens.packets import encode_message
from recorder.common.errors import DeviceError
from tests.drivers.fuzzing import GROWTH, mutated, refitted, resident
from tests.drivers.mmwave.rig import QUICK, Rig
from tests.drivers.xsens.rig import entry as imu_entry
from tests.support.devices import terminal

pytestmark = pytest.mark.campaign(weight=8)


# The radar's command line


PROMPT = b"mmwDemo:/>"
SAID = [
    b"flushCfg\nDone\n\n\r" + PROMPT,
    b"flushCfg\nIgnored: Sensor is already stopped\nDone\n\n\r" + PROMPT,
    b"flushCfg\nError: Invalid usage of the CLI command\nError -1\n\r" + PROMPT,
    b"'x' is not recognized as a CLI command\n\r" + PROMPT,
    b"\n" + b"*" * 42 + b"\nxWR MMW Demo 03.06.00.00\n\n\r" + PROMPT,
]


class Talk:
    """A radar's serial port: whatever is asked, one mutated answer after the other comes."""

    def __init__(self, master: int, seed: int) -> None:
        self.sent = 0
        self._rng = random.Random(seed)
        self._master = master
        self._waiting = b""
        os.set_blocking(master, False)

    def step(self) -> None:
        """Hear what was said, and say the next."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._master, 1 << 16)
        if not self._waiting:
            answer = SAID[self.sent % len(SAID)]
            self._waiting = mutated(self._rng, answer, (PROMPT, b"Done", b"\r")) or b"\r"
            self.sent += 1
        with contextlib.suppress(BlockingIOError):
            self._waiting = self._waiting[os.write(self._master, self._waiting) :]


def test_answers_at_the_radars_serial_line(mutations: int) -> None:
    with terminal() as (master, path):
        talk = Talk(master, 1)
        capture = RadarCapture.__new__(RadarCapture)
        capture._where, capture.warnings, capture._closers = "radar: dca1000://", [], []
        capture._boot_s, capture._deadline = 10.0, time.monotonic() + 120
        radar: Any = capture._open_radar("AWR1843", path)
        read = radar.port.read
        asked = good = 0
        before = 0

        def read_on(size: int) -> bytes:
            talk.step()
            return bytes(read(size))

        radar.port.read = read_on
        while talk.sent < mutations:
            asked += 1
            talk.step()
            try:
                with _convert_rejections(radar):
                    radar.send("flushCfg")
                good += 1
            except DeviceError as error:
                assert "flushCfg" in str(error) or "command line" in str(error)
            capture.warnings.clear()
            if talk.sent < mutations // 4:
                before = resident()
        assert min(good, asked - good) > mutations // 1000
        # Behind it all, a boot is understood again.
        radar.port.read = read
        radar.port.reset_input_buffer()
        os.write(master, SAID[4])
        capture._await_boot(radar)
        capture.close()
    assert resident() - before < GROWTH


LINES = [
    b"sensorStop\n", b"flushCfg\n", b"dfeDataOutputMode 1\n", b"adcCfg 2 1\n",
    b"adcbufCfg -1 0 1 1 1\n", b"channelCfg 15 7 0\n", b"chirpCfg 0 0 0 0.0 0.0 0.0 0.0 1\n",
    b"chirpCfg 1 1 0 0.0 0.0 0.0 0.0 2\n", b"chirpCfg 2 2 0 0.0 0.0 0.0 0.0 4\n",
    b"profileCfg 0 77.0 6.0 5.7 34.0 0 0 67.012 1.0 256 10000 0 0 30\n",
    b"frameCfg 0 2 64 0 50.0 1 0.0\n", b"lvdsStreamCfg -1 0 1 0\n", b"sensorStart\n",
]  # fmt: skip
NUMBERS = (b"nan ", b"inf ", b"-inf ", b"1e999 ", b"-1 ", b"0 ", b"1e9 ", b"3 ", b"77 ")


def test_lines_at_the_emulated_radars_port(mutations: int) -> None:
    """Whatever it is told, it goes on; chirps that cannot be are refused and never begun."""
    rng = random.Random(2)
    with Rig("sim", options={"radar": QUICK | {"device": "AWR1843"}}) as rig:
        rig.hold()
        emulator = rig.emulator
        emulator._frame = emulator._silence
        emulator._source = lambda *_: emulator._silence  # type: ignore[method-assign]
        port = os.open(str(rig.options["radar"]["port"]), os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        now_ns, started, before = BOOT_NS * 2, 0, 0
        emulator.step(now_ns)
        for k in range(mutations):
            raw = mutated(rng, LINES[k % len(LINES)], NUMBERS)[:200]
            if k % 50 == 0:
                raw = b"\n" + b"".join(LINES)  # all as it should be
            with contextlib.suppress(BlockingIOError):
                os.write(port, raw)
            emulator._serve_serial(now_ns)
            emulator._follow_sensor(now_ns)
            started += emulator._chirping is not None
            with contextlib.suppress(BlockingIOError):
                os.read(port, 1 << 16)
            if k == mutations // 4:
                before = resident()
        os.write(port, b"\nflushCfg\n")
        emulator._serve_serial(now_ns)
        assert b"Done" in os.read(port, 1 << 16) or emulator._firmware.running
        os.close(port)
    assert started > mutations // 100
    assert resident() - before < GROWTH


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "1e999", "1e12", "-5", "0", "3.5"])
def test_a_radar_that_is_told_what_cannot_be(word: str) -> None:
    firmware = DemoFirmware("AWR1843")
    firmware.power_on(0)
    firmware.step(b"", BOOT_NS)
    for line in LINES:
        words = line.decode().split()
        for place in range(1, len(words)):
            changed = " ".join([*words[:place], word, *words[place + 1 :]]) + "\n"
            for each in (*LINES[:-1], changed.encode(), LINES[-1]):
                firmware.step(each, BOOT_NS)
            if firmware.running and (reported := firmware.chirp()) is not None:
                assert 0 < reported[0].frame_bytes < 1 << 30
                assert reported[0].frame_period >= reported[0].frame_time > 0
            firmware.step(b"sensorStop\n", BOOT_NS)


# The IMU's port


class MtiLine:
    """Stands for the serial port of an `Mti`: its own time passes, and answers are damaged."""

    def __init__(self, seed: int) -> None:
        self.answers = 0
        self.now = 10**9
        self.rng = random.Random(seed)
        self._waiting: deque[bytes] = deque()
        self.device = self._new()

    @staticmethod
    def _new() -> MtiDevice:
        return MtiDevice(115_200, make_outputs(100, []), accept_outputs)

    def now_ns(self) -> int:
        self.now += 50_000
        return self.now

    def poll(self, timeout_ms: float) -> bool:
        if not self._waiting:
            self.now += round(timeout_ms * 1e6)
        return bool(self._waiting)

    def read(self, _fd: int, size: int) -> bytes:
        return self._waiting.popleft()[:size]

    def write(self, data: bytes) -> None:
        if self.device.state in (MtiState.BOOTING, MtiState.WAKING):
            self.device = self._new()
        answer = self.device.receive(data, self.now) or b"\xfa\xff\x42\x01\x04\xba"
        self.answers += 1
        damaged = refitted(
            self.rng, mutated(self.rng, answer, (b"\xfa\xff", b"\xfa\xff\x42\x01\x04\xba"))
        )
        if damaged:
            self._waiting.append(damaged)

    def reset(self) -> None:
        self._waiting.clear()


def test_answers_at_the_imus_port(monkeypatch: pytest.MonkeyPatch, mutations: int) -> None:
    line = MtiLine(3)
    monkeypatch.setattr(xsens_device, "read_bytes", line.read)
    good, reported, before = 0, set(), 0
    with terminal() as (_, path):
        while line.answers < mutations:
            mti: Any = Mti(path, "imu", now_ns=line.now_ns)
            mti._poll, mti._port.write, mti._port.reset_input_buffer = line, line.write, line.reset
            try:
                mti.find([115_200])
                mti.identify()
                wanted = make_outputs(line.rng.choice((50, 100)), ["quaternion"])
                bytes_per_second(mti.configure(wanted))
                mti.measure()
                good += 1
            except DeviceError as error:
                reported.add(str(error))
            finally:
                mti.close()
            if line.answers < mutations // 4:
                before = resident()
    assert good and len(reported) > 10
    assert all(text.startswith("imu: ") for text in reported)
    assert resident() - before < GROWTH


def commands() -> list[bytes]:
    return [
        encode_message(Mid.GOTO_CONFIG, b""),
        encode_message(Mid.REQ_DID, b""),
        encode_message(Mid.REQ_PRODUCT_CODE, b""),
        encode_message(Mid.REQ_FW_REV, b""),
        encode_message(Mid.SET_OUTPUT_CONFIGURATION, b""),
        encode_message(
            Mid.SET_OUTPUT_CONFIGURATION, encode_outputs(make_outputs(100, ["euler_angles"]))
        ),
        encode_message(Mid.GOTO_MEASUREMENT, b""),
        encode_message(Mid.RESET, b""),
        encode_message(Mid.SET_BAUDRATE, b""),
    ]


def test_commands_at_the_emulated_imus_port(mutations: int) -> None:
    rng, reported = random.Random(4), commands()
    emulator = XsensEmulator(imu_entry(rate=100.0), (), 1)
    path = emulator.start().source.partition(":")[2]
    now_ns = before = 0
    answered = 0
    port = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        listen_at(port, emulator._device.baudrate)
        for k in range(mutations):
            raw = refitted(
                rng, mutated(rng, reported[k % len(reported)], (b"\xfa\xff", reported[-2]))
            )
            with contextlib.suppress(BlockingIOError):
                os.write(port, raw)
            now_ns += rng.choice((1_000, 1_000_000, 20_000_000))
            emulator.step(now_ns)
            with contextlib.suppress(BlockingIOError):
                answered += bool(os.read(port, 1 << 16))
            if k % 100 == 0:
                listen_at(port, emulator._device.baudrate)
            if k == mutations // 4:
                before = resident()
        listen_at(port, emulator._device.baudrate)
        os.write(port, bytes(3000))  # ends whatever has begun
        for _ in range(5):
            now_ns += 500_000_000
            emulator.step(now_ns)
        os.write(port, reported[0] + reported[1])
        emulator.step(now_ns)
        time_limit = time.monotonic() + 10
        said = b""
        while encode_message(Mid.REQ_DID + 1, b"")[:3] not in said:
            assert time.monotonic() < time_limit
            select.select([port], [], [], 0.1)
            with contextlib.suppress(BlockingIOError):
                said += os.read(port, 1 << 16)
            emulator.step(now_ns)
    finally:
        os.close(port)
        emulator.stop()
    assert answered > mutations // 10
    assert resident() - before < GROWTH


def listen_at(port: int, baudrate: int) -> None:
    import termios

    speed = next(value for value, rate in _SPEEDS.items() if rate == baudrate)
    attributes = termios.tcgetattr(port)
    attributes[4] = attributes[5] = speed
    termios.tcsetattr(port, termios.TCSANOW, attributes)
