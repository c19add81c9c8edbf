"""Mutated bytes at the parser and at the driver's port."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator

import pytest

from drivers.kit.driver import Item, Sample
from drivers.kit.serial_time import MinDelayClock
from drivers.world.imu import SimulatedImu
from drivers.xsens.commands import make_outputs
from drivers.xsens.model import ImuPackets
from drivers.xsens.packets import MAX_MESSAGE, XbusParser
from drivers.xsens.sample_clock import SampleClock
from drivers.xsens.samples import Batch, Facts, MtiAssembler
from tests.drivers.fuzzing import COUNT, GROWTH, mutated, resident
from tests.drivers.xsens.rig import MtiRig
from tests.support.devices import losses, samples

pytestmark = pytest.mark.campaign(weight=10)

STARTS = (b"\xfa\xff\x36\xff", b"\xfa\xff\x36\x06", b"\xfa\xfa\xff")
OUTPUTS = make_outputs(1000, ["euler_angles", "magnetic_field"])


def damaged(count: int, seed: int) -> Iterator[bytes]:
    """Messages of a device, most of them changed in one of many ways."""
    rng = random.Random(seed)
    packets = ImuPackets(SimulatedImu(1000.0), OUTPUTS)
    for first in range(0, count, 500):
        for message in packets.messages(first, min(500, count - first)):
            data = bytearray(message)
            if rng.random() < 0.2 and len(data) > 9:  # its checksum is right: it is decoded
                data[rng.randrange(4, len(data) - 1)] = rng.randrange(256)
                yield bytes(data[:-1]) + bytes([-sum(data[1:-1]) & 0xFF])
            else:
                yield mutated(rng, bytes(data), STARTS)


def test_parser_and_assembler() -> None:
    facts = Facts.from_outputs(OUTPUTS, {})
    assert facts is not None
    parser, rng = XbusParser(), random.Random(1)
    assembler = MtiAssembler(facts, 10, SampleClock(1e6, strict=True), "imu", MinDelayClock())
    pending, taken, last_ns, now_ns, before = b"", 0, -1, 0, 0
    for k, message in enumerate(damaged(COUNT, seed=2)):
        pending += message
        now_ns += 1_000_000
        if rng.random() < 0.5:
            continue
        for found in parser.feed(pending):
            assembler.add(found, now_ns)
        pending = b""
        assembler.flush()
        assert parser.buffered < MAX_MESSAGE and assembler.held < 10
        for event in assembler.take():
            if isinstance(event, Batch):
                assert int(event.t_ns[0]) > last_ns
                last_ns = int(event.t_ns[-1])
                taken += len(event.t_ns)
        if k < COUNT // 4:
            before = resident()
    assert taken > COUNT // 30  # those with a good checksum, that still are samples
    assert resident() - before < GROWTH


def test_the_drivers_port() -> None:
    """The driver goes on through all of it, and records what comes whole behind it."""
    with MtiRig(rate=1000.0, driver={"timeout_s": 60}, outputs=["euler_angles"]) as rig:
        rig.driver.open()
        rig.read(10)
        rig.hold()
        assert rig.emulator._port.ends is not None
        master = rig.emulator._port.ends[0]
        os.set_blocking(master, True)
        good = ImuPackets(SimulatedImu(1000.0), make_outputs(1000, ["euler_angles"]))

        def write() -> None:
            gathered = b""
            for message in damaged(COUNT, seed=3):
                gathered += message
                if len(gathered) > 2000:
                    os.write(master, gathered)
                    gathered = b""
            os.write(master, gathered + bytes(MAX_MESSAGE))
            for message in good.messages(200_000, 500):
                os.write(master, message)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        last_ns, received, before, reads = 0, 0, 0, 0
        deadline = time.monotonic() + 120
        items: list[Item | None] = []
        while thread.is_alive() or items[-1] is not None:
            assert time.monotonic() < deadline
            item = rig.driver.read()
            items = [*items[-600:], item]
            reads += 1
            if isinstance(item, Sample):
                assert int(item.t_ns[0]) > last_ns
                last_ns = int(item.t_ns[-1])
                received += item.count
            if received < COUNT // 40:
                before = resident()
        thread.join()
        kept = [item for item in items if item is not None]
    assert received > COUNT // 20
    assert sum(item.count for item in samples(kept)[-50:]) >= 490
    assert not losses(kept[-40:])
    assert resident() - before < GROWTH
