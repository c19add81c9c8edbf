"""Mutated packets, commands and answers: no crash, no hang, no growing memory."""

from __future__ import annotations

import contextlib
import os
import pty
import random
import socket
import threading
import tty
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from drivers._kit.driver import Sample
from drivers._protocols.dca1000 import (
    PACKET_BYTES,
    PAYLOAD_BYTES,
    SYSTEM_ERROR,
    Answer,
    make_packets,
    parse_command,
)
from drivers._protocols.dca1000_frames import AssembledFrame, FrameAssembler, MissedFrames
from drivers.sim.emulators.radar_firmware import BOOT_NS, DemoFirmware
from recorder.contract.errors import DeviceError, ProtocolError
from tests.drivers.mmwave_rig import Rig, recording, valid
from tests.support.devices import samples

pytestmark = pytest.mark.campaign(weight=6)

_MANY = 100_000
_GROWTH = 24_000_000  # bytes; a leak of a packet each would be six times that


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def mutated(rng: random.Random, packet: bytes) -> bytes:
    """The packet with something wrong, or not wrong at all."""
    kind = rng.randrange(8)
    raw = bytearray(packet)
    if kind == 0:
        return bytes(raw[: rng.randrange(len(raw) + 1)])
    if kind == 1:
        return bytes(raw) + rng.randbytes(rng.randrange(1, 80))
    if kind == 2:
        return rng.randbytes(rng.randrange(1500))
    if kind < 7:
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(min(len(raw), 16)) if rng.random() < 0.8 else rng.randrange(len(raw))
            raw[at] = rng.choice([0, 0xFF, rng.randrange(256), raw[at] ^ 1 << rng.randrange(8)])
    return bytes(raw)


def forged(rng: random.Random, number: int) -> bytes:
    """A packet that is right in itself, anywhere."""
    far = rng.choice([1, 3, 200, 5000, 10**6, 10**9])
    first = max(0, number + rng.randrange(-far, far + 1))
    return make_packets(np.zeros(PAYLOAD_BYTES, np.uint8), first).tobytes()


@pytest.mark.parametrize("size", [1000, 32_768, 786_432])
def test_mutated_packets_at_the_assembler(size: int) -> None:
    rng = random.Random(size)
    stream = make_packets(np.ones(PAYLOAD_BYTES * 4096, np.uint8), 0)
    assembler, number, refused, frames = FrameAssembler(size), 0, 0, 0
    rows = np.zeros((256, 1536), np.uint8)
    fed, before, given = 0, 0, 0
    while fed < _MANY:
        count = rng.randrange(1, 257)
        sizes = np.zeros(count, np.int64)
        for k in range(count):
            raw = stream[number % 4096].tobytes()
            number += 1
            draw = rng.random()
            if draw < 0.05:
                raw = mutated(rng, raw)
            elif draw < 0.052:
                raw = forged(rng, number)
            elif draw < 0.06:
                number += rng.choice([-3, 1, 40])
            sizes[k] = len(raw)
            raw = raw[:1536]
            rows[k, : len(raw)] = np.frombuffer(raw, np.uint8)
        fed += count
        try:
            for out in assembler.take(rows[:count], sizes, np.full(count, fed, np.int64)):
                assert out.index >= given
                given = out.index + (out.count if isinstance(out, MissedFrames) else 1)
                frames += isinstance(out, AssembledFrame)
        except ProtocolError:
            refused += 1
        if refused or number >= 4096:
            assembler, number, given, refused = FrameAssembler(size), 0, 0, 0
        if fed > _MANY // 4:
            before = before or resident()
    assert frames and resident() - before < _GROWTH


def test_mutated_packets_at_the_drivers_socket(tmp_path: Path) -> None:
    """They come between the radar's own; the driver may start anew, and goes on."""
    path, _ = recording(tmp_path, 50)
    rng = random.Random(3)
    packet = make_packets(np.ones(PAYLOAD_BYTES, np.uint8), 7).tobytes()
    with (
        Rig("file", path) as rig,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        rig.driver.open()
        before, sent = 0, 0
        while sent < _MANY:
            for _ in range(100):
                raw = mutated(rng, packet) if rng.random() < 0.9 else forged(rng, 1000)
                stranger.sendto(raw, ("127.0.0.1", rig.ports["data_port"]))
            sent += 100
            try:
                rig.driver.read()
            except DeviceError:
                rig.driver.close()
                rig.driver.open()
            if sent > _MANY // 4:
                before = before or resident()
        assert resident() - before < _GROWTH
        with contextlib.suppress(DeviceError):  # that of the last mutants
            rig.frames(3)
        rig.driver.close()
        rig.driver.open()
        assert [valid(sample) for sample in samples(rig.frames(5))] == [1] * 5


def commands() -> Iterator[bytes]:
    for code in range(16):
        for size in (0, 6, 18):
            body = code.to_bytes(2, "little") + size.to_bytes(2, "little") + bytes(size)
            yield b"\x5a\xa5" + body + b"\xaa\xee"


def test_mutated_commands_and_answers() -> None:
    rng = random.Random(5)
    right = list(commands())
    understood = answers = 0
    for k in range(_MANY):
        with contextlib.suppress(ProtocolError):
            understood += bool(parse_command(mutated(rng, right[k % len(right)])))
        with contextlib.suppress(ProtocolError):
            raw = mutated(rng, Answer(k % 16, k % 3).to_bytes())
            answers += Answer.parse(raw).to_bytes() == raw
    assert understood > 1000 and answers > 1000


def test_mutated_commands_at_the_emulated_card(tmp_path: Path) -> None:
    path, _ = recording(tmp_path, 10)
    rng = random.Random(6)
    right = list(commands())
    with (
        Rig("file", path) as rig,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        stranger.setblocking(False)
        for k in range(_MANY):
            raw = mutated(rng, right[k % len(right)])
            stranger.sendto(raw, ("127.0.0.2", rig.ports["config_port"]))
            with contextlib.suppress(BlockingIOError):
                stranger.recv(2048)
        rig.driver.open()
        assert len(samples(rig.frames(3))) == 3


def test_mutated_notices_at_the_driver(tmp_path: Path) -> None:
    path, _ = recording(tmp_path, 10)
    rng = random.Random(7)
    with (
        Rig("file", path) as rig,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card,
    ):
        rig.driver.open()
        for k in range(_MANY):
            raw = mutated(rng, Answer(SYSTEM_ERROR, k % 4096).to_bytes())
            card.sendto(raw, ("127.0.0.1", rig.ports["config_port"]))
            if k % 500 == 0:
                rig.driver.read()
        assert isinstance(rig.frames(3)[-1], Sample)


def test_mutated_lines_at_the_emulated_firmware() -> None:
    rng = random.Random(8)
    lines = [
        b"sensorStop\n", b"flushCfg\n", b"dfeDataOutputMode 1\n", b"adcCfg 2 1\n",
        b"adcbufCfg -1 0 1 1 1\n", b"channelCfg 15 7 0\n", b"chirpCfg 0 0 0 0.0 0.0 0.0 0.0 1\n",
        b"profileCfg 0 77.0 6.0 5.7 34.0 0 0 67.012 1.0 256 10000 0 0 30\n",
        b"frameCfg 0 2 64 0 50.0 1 0.0\n", b"lvdsStreamCfg -1 0 1 0\n", b"sensorStart\n",
    ]  # fmt: skip
    firmware = DemoFirmware("AWR1843")
    firmware.power_on(0)
    firmware.step(b"", BOOT_NS)
    for k in range(_MANY):
        answer = firmware.step(mutated(rng, lines[k % len(lines)])[:200], BOOT_NS)
        assert len(answer) < 60_000
        if k % 1000 == 0:
            firmware.chirp() if firmware.running else None
    firmware.power_on(BOOT_NS)
    firmware.step(b"", 2 * BOOT_NS)
    assert b"Done" in firmware.step(b"flushCfg\n", 2 * BOOT_NS)


@pytest.mark.parametrize("talk", ["noise", "mutants", "silence"])
def test_a_serial_line_that_is_no_radar(tmp_path: Path, talk: str) -> None:
    """Whatever is said there, `open` ends in time with one clear error."""
    rng = random.Random(9)
    master, slave = pty.openpty()
    tty.setraw(slave)
    os.set_blocking(master, False)
    stop = threading.Event()

    def speak() -> None:
        while not stop.wait(0.001):
            with contextlib.suppress(BlockingIOError):
                asked = os.read(master, 4096)
                if talk == "mutants":
                    os.write(master, mutated(rng, asked + b"\nDone\n\n\rmmwDemo:/>"))
            if talk == "noise":
                with contextlib.suppress(BlockingIOError):
                    os.write(master, rng.randbytes(1000))

    speaker = threading.Thread(target=speak)
    changes = {("radar", "port"): os.ttyname(slave)}
    with Rig("sim", changes=changes, patience_s=2.0) as rig:
        speaker.start()
        try:
            for _ in range(3):
                with pytest.raises(DeviceError, match="radar: dca1000://"):
                    rig.driver.open()
        finally:
            stop.set()
            speaker.join()
            os.close(master)
            os.close(slave)


assert PACKET_BYTES == 1466
