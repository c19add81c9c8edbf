"""Mutated packets, and a serial line that is no radar; parsers are in `tests.fuzz`."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from drivers.mmwave.frames import AssembledFrame, FrameAssembler, MissedFrames
from drivers.mmwave.packets import PAYLOAD_BYTES, make_packets
from recorder.common.errors import DeviceError, ProtocolError
from tests.drivers.fuzzing import GROWTH, resident
from tests.drivers.mmwave.rig import Rig, recording, valid
from tests.support.devices import samples, terminal

pytestmark = pytest.mark.campaign(weight=6)


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
def test_mutated_packets_at_the_assembler(size: int, mutations: int) -> None:
    rng = random.Random(size)
    stream = make_packets(np.ones(PAYLOAD_BYTES * 4096, np.uint8), 0)
    assembler, number, refused, frames = FrameAssembler(size), 0, 0, 0
    rows = np.zeros((256, 1536), np.uint8)
    fed, before, given = 0, 0, 0
    while fed < mutations:
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
        if fed > mutations // 4:
            before = before or resident()
    assert frames and resident() - before < GROWTH


def test_mutated_packets_at_the_drivers_socket(tmp_path: Path, mutations: int) -> None:
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
        while sent < mutations:
            for _ in range(100):
                raw = mutated(rng, packet) if rng.random() < 0.9 else forged(rng, 1000)
                stranger.sendto(raw, ("127.0.0.1", rig.ports["data_port"]))
            sent += 100
            try:
                rig.driver.read()
            except DeviceError:
                rig.driver.close()
                rig.driver.open()
            if sent > mutations // 4:
                before = before or resident()
        assert resident() - before < GROWTH
        with contextlib.suppress(DeviceError):  # that of the last mutants
            rig.frames(3)
        rig.driver.close()
        rig.driver.open()
        assert [valid(sample) for sample in samples(rig.frames(5))] == [1] * 5


@pytest.mark.parametrize("talk", ["noise", "mutants", "silence"])
def test_a_serial_line_that_is_no_radar(tmp_path: Path, talk: str) -> None:
    """Whatever is said there, `open` ends in time with one clear error."""
    rng = random.Random(9)
    stop = threading.Event()

    def speak(master: int) -> None:
        while not stop.wait(0.001):
            with contextlib.suppress(BlockingIOError):
                asked = os.read(master, 4096)
                if talk == "mutants":
                    os.write(master, mutated(rng, asked + b"\nDone\n\n\rmmwDemo:/>"))
            if talk == "noise":
                with contextlib.suppress(BlockingIOError):
                    os.write(master, rng.randbytes(1000))

    with (
        terminal() as (master, port),
        Rig("sim", changes={("radar", "port"): port}, patience_s=2.0) as rig,
    ):
        os.set_blocking(master, False)
        speaker = threading.Thread(target=speak, args=[master])
        speaker.start()
        try:
            for _ in range(3):
                with pytest.raises(DeviceError, match="radar: dca1000://"):
                    rig.driver.open()
        finally:
            stop.set()
            speaker.join()
