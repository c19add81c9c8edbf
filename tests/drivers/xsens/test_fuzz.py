"""Mutated bytes at the driver's port; the parser is in `tests.fuzz`."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator

import pytest

from drivers.kit.driver import Item, Sample
from drivers.world.imu import SimulatedImu
from drivers.xsens.commands import make_outputs
from drivers.xsens.model import ImuPackets
from drivers.xsens.packets import MAX_MESSAGE
from tests.drivers.fuzzing import GROWTH, mutated, resident
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


def test_the_drivers_port(mutations: int) -> None:
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
            for message in damaged(mutations, seed=3):
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
            if received < mutations // 40:
                before = resident()
        thread.join()
        kept = [item for item in items if item is not None]
    assert received > mutations // 20
    assert sum(item.count for item in samples(kept)[-50:]) >= 490
    assert not losses(kept[-40:])
    assert resident() - before < GROWTH
