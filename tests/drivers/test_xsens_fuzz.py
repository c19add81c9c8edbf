"""Mutated bytes at the parser, at the driver's port and in a device's answers."""

from __future__ import annotations

import contextlib
import os
import pty
import random
import threading
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivers._devices import xsens as device
from drivers._devices.xsens import Mti
from drivers._kit.driver import Item, Sample
from drivers._protocols.mti_clock import SampleClock
from drivers._protocols.mti_stream import Batch, Facts, MtiAssembler
from drivers._protocols.serial_time import MinDelayClock
from drivers._protocols.xbus import MAX_MESSAGE, XbusParser
from drivers._protocols.xbus_commands import bytes_per_second, wanted_outputs
from drivers.sim.imu import SimulatedImu
from drivers.sim.mti_device import MtiDevice, MtiState
from drivers.sim.mti_packets import ImuPackets, taken_outputs
from recorder.contract.errors import DeviceError
from tests.drivers.xsens_rig import MtiRig
from tests.support.devices import losses, samples
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.campaign(weight=10)

COUNT = 100_000
OUTPUTS = wanted_outputs(1000, ["euler_angles", "magnetic_field"])
GROWTH = 8 << 20


def mutated(count: int, seed: int) -> Iterator[bytes]:
    """Messages of a device, every one changed in one of many ways."""
    rng = random.Random(seed)
    packets = ImuPackets(SimulatedImu(1000.0), OUTPUTS)
    for first in range(0, count, 500):
        for message in packets.messages(first, min(500, count - first)):
            yield mutation(rng, bytearray(message))


def mutation(rng: random.Random, message: bytearray) -> bytes:
    kind, at = rng.randrange(6), rng.randrange(len(message))
    if kind == 0:
        message[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del message[at:]
    elif kind == 2:
        message[at:at] = rng.randbytes(rng.randrange(1, 40))
    elif kind == 3:
        message[at : at + 4] = rng.choice(
            [b"\xfa\xff\x36\xff", b"\xfa\xff\x36\x06", b"\xfa\xfa\xff"]
        )
    elif kind == 4:
        message[:] = message[: at // 2] + rng.randbytes(300)
    elif len(message) > 9:  # wrong, but with a checksum that is right: it reaches what decodes it
        message[rng.randrange(4, len(message) - 1)] = rng.randrange(256)
        message[-1] = -sum(message[1:-1]) & 0xFF
    return bytes(message)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_parser_and_assembler() -> None:
    facts = Facts.of_outputs(OUTPUTS, {})
    assert facts is not None
    parser, rng = XbusParser(), random.Random(1)
    assembler = MtiAssembler(facts, 10, SampleClock(1e6, strict=True), "imu", MinDelayClock())
    pending, taken, last_ns, now_ns, before = b"", 0, -1, 0, 0
    for k, message in enumerate(mutated(COUNT, seed=2)):
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
        good = ImuPackets(SimulatedImu(1000.0), wanted_outputs(1000, ["euler_angles"]))

        def write() -> None:
            gathered = b""
            for message in mutated(COUNT, seed=3):
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


def test_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a device answers, it is taken, refused or given up within its time."""
    monkeypatch.setattr(device, "_ANSWER_S", 0.01)
    monkeypatch.setattr(device, "OPEN_S", 0.02)
    master, slave = pty.openpty()
    tty.setraw(slave)
    os.set_blocking(master, False)
    rng, stop = random.Random(4), threading.Event()
    reported: list[str] = []

    def answer() -> None:
        mti = MtiDevice(115_200, wanted_outputs(100, []), taken_outputs)
        while not stop.wait(0.0005):
            with contextlib.suppress(BlockingIOError):
                request = os.read(master, 4096)
                reply = mti.receive(request, 0)
                if rng.random() < 0.3:
                    reply = mutation(rng, bytearray(reply or b"\0"))
                os.write(master, reply)
                if mti.state is MtiState.BOOTING:
                    mti = MtiDevice(115_200, wanted_outputs(100, []), taken_outputs)

    thread = threading.Thread(target=answer)
    thread.start()
    good = 0
    try:
        for _ in range(300):
            began = time.monotonic()
            mti = Mti(os.ttyname(slave), "imu")
            try:
                mti.find([115_200])
                mti.identify()
                bytes_per_second(mti.configure(wanted_outputs(100, ["quaternion"])))
                mti.measure()
                good += 1
            except DeviceError as error:
                reported.append(str(error))
            finally:
                mti.close()
            assert time.monotonic() - began < PATIENCE_S
    finally:
        stop.set()
        thread.join()
        os.close(master)
        os.close(slave)
    assert good > 20 and len(reported) > 20
    assert all(text.startswith("imu: ") for text in reported)
