"""The emulated CAN bus, and what the driver records of it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.can.frames import FD
from drivers.can.simulated import DATABASE, SimulatedBus
from drivers.kit.driver import Lost, Sample
from drivers.kit.emulator_faults import Fault
from recorder.common.errors import DeviceError
from tests.drivers.can.rig import (
    column,
    driver_for,
    frames,
    kernel_with_can,
    message,
    read_frames,
    times,
    write_log,
)
from tests.drivers.reading import receiving, steps_of
from tests.drivers.test_datagram_devices import KINDS
from tests.support.devices import opened

S = 1_000_000_000
CAN = KINDS["can"]


def test_one_channel_is_chosen(tmp_path: Path) -> None:
    sent = [message(k, channel=k % 2, data=bytes([k])) for k in range(6)]
    path = write_log(tmp_path / "a.asc", sent)
    emulator = CAN.emulator("file", str(path), channel="2")
    with receiving(emulator) as made:
        assert [data for _, data in steps_of(emulator, made, 3000)] == [
            CAN.datagram(k) for k in (1, 3, 5)
        ]


def test_a_machine_without_can_is_named() -> None:
    try:
        socket.socket(socket.AF_CAN, socket.SOCK_RAW, socket.CAN_RAW).close()
    except OSError:
        with pytest.raises(DeviceError, match=r"no CAN socket: .*this kernel has no CAN"):
            CAN.emulator("sim", "", to="vcan0").start()
    else:
        pytest.skip("this kernel has CAN")


def test_an_interface_is_sent_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in of AF_CAN; an interface makes its error messages itself."""
    path = tmp_path / "a.log"
    path.write_text("(1.0) can0 100#05\n(1.1) can0 20000040#0000000000000000\n(1.2) can0 100#06\n")
    folder = tmp_path / "net"
    folder.mkdir()
    with kernel_with_can(folder, monkeypatch) as kernel:
        emulator = CAN.emulator("file", str(path), to="can0")
        assert emulator.start().source == "can:can0"
        sent: list[bytes] = []
        monkeypatch.setattr(emulator, "_put", sent.append)
        for k in range(4):
            emulator.step(k * S)
        emulator.stop()
        assert kernel.bound == ["can0"] and (101, 5, 1) in kernel.options
    assert sent == [CAN.datagram(5), CAN.datagram(6)]


def test_the_driver_records_what_is_sent() -> None:
    emulator = CAN.emulator("sim", "", fd=True, signals=["VehicleMotion.*"])
    started = emulator.start()
    assert started.options["rate"] == 360.0 and started.options["dbc"] == str(DATABASE)
    address = started.source.removeprefix("can:")
    try:
        driver = driver_for("can", address, timeout_s=0, **started.options)
        with opened(driver):
            emulator.step(0)
            emulator.step(S)
            items = read_frames(driver, 170)
            while (item := driver.read()) is not None:
                items.append(item)
    finally:
        emulator.stop()
    bus = SimulatedBus({"rate": None, "fd": True, "seed": 0, "scene": "drive"})
    want = bus.frames(0, S // 2 + 1)
    got = frames(items)
    assert [row[0] for row in got] == want.id.tolist()[: len(got)]
    assert [row[3] for row in got] == [row.tobytes() for row in want.data][: len(got)]
    assert {row[2] for row in got} == {0, FD | 1}
    assert len(column(items, "speed", "bus_vehicle_motion")) >= 40
    assert (np.diff(times(items)) >= 0).all()


def test_a_sender_of_the_simulated_bus_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [{"kind": "silence", "from_s": 0.1, "to_s": 0.2, "amount": 210}]
    sent: dict[bool, list[bytes]] = {}
    for silent in (False, True):
        emulator = CAN.emulator("sim", "", faults=faults if silent else [])
        emulator.start()
        packets = sent[silent] = []
        monkeypatch.setattr(emulator, "_put", packets.append)
        emulator.step(0)
        emulator.step(S)
        emulator.stop()
    assert len(sent[False]) - len(sent[True]) == 10
    others = [[packet for packet in sent[silent] if packet[0] != 210] for silent in (False, True)]
    assert others[0] == others[1]


def test_it_sends_also_while_nobody_listens() -> None:
    """Loopback refuses the next frame after one to a port at which nobody listens."""
    emulator = CAN.emulator("sim", "", rate=2000)
    emulator.start()
    for k in range(4):
        emulator.step(k * S // 2)
    emulator.stop()


def test_damaged_structures_are_counted() -> None:
    """As many are recorded and lost as were sent."""
    emulator = CAN.emulator("sim", "", Fault("corrupt", rate=0.2), rate=2000)
    address = emulator.start().source.removeprefix("can:")
    items: list[Any] = []
    with opened(driver_for("can", address, timeout_s=0)) as driver:
        emulator.step(0)
        emulator.step(S)
        emulator.stop()
        quiet = 0
        while quiet < 2:  # at most 0.2 s each
            item = driver.read()
            quiet = quiet + 1 if item is None else 0
            items += [] if item is None else [item]
    lost = sum(i.count or 0 for i in items if isinstance(i, Lost))
    sent = int(
        np.count_nonzero(
            SimulatedBus({"rate": 2000, "fd": False, "seed": 0, "scene": "drive"}).times(
                0, S // 2 + 1
            )[0]
            >= 0
        )
    )
    recorded = sum(i.count for i in items if isinstance(i, Sample))
    assert emulator.injected["corrupt"] > 100
    assert recorded + lost == sent
