"""The emulated sensor that sends datagrams, and what the driver records of it."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import pytest

from drivers.kit.driver import Sample
from drivers.kit.emulator_faults import Fault
from drivers.udp.simulated import HEAD
from recorder.common.errors import SourceError
from tests.drivers.reading import receiving, steps_of
from tests.drivers.test_datagram_devices import KINDS
from tests.drivers.udp.rig import driver_for, payloads, read_payloads, write_capture
from tests.support.devices import opened

S = 1_000_000_000


def test_one_port_is_chosen_and_another_machine_can_be_sent_to(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.pcap", [(1, b"a"), (2, b""), (1, b"c")])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.2", 0))
        to = f"127.0.0.2:{there.getsockname()[1]}"
        emulator = KINDS["udp"].emulator("file", str(path), port=1, to=to)
        assert emulator.start().source == f"udp:{to}"
        run_all = [emulator.step(k * S) for k in range(3)]
        emulator.stop()
        there.settimeout(60)
        assert [there.recv(100), there.recv(100)] == [b"a", b"c"]
    assert run_all[0] == S // 2


def test_a_datagram_without_bytes_has_none_to_corrupt(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.pcap", [(1, b""), (1, b"x")])
    emulator = KINDS["udp"].emulator("file", path, Fault("corrupt", rate=1.0))
    with receiving(emulator) as made:
        (_, empty), (_, damaged) = steps_of(emulator, made, 3000)
    assert empty == b"" and len(damaged) == 1 and damaged != b"x"
    assert emulator.injected == {"corrupt": 1}


def test_a_capture_without_datagrams_is_named(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.pcap", [(1, b"a")])
    with pytest.raises(SourceError, match="has no datagram to send"):
        KINDS["udp"].emulator("file", str(path), port=2).start()


def test_the_driver_records_what_is_sent() -> None:
    emulator = KINDS["udp"].emulator("sim", "", rate=1000, size=9000)
    host, port = emulator.start().source.removeprefix("udp:").split(":")
    try:
        with opened(driver_for("udp", f"{host}:{port}", timeout_s=0)) as driver:
            emulator.step(0)
            emulator.step(S)
            items = read_payloads(driver, 500)
    finally:
        emulator.stop()
    heads = [HEAD.unpack_from(data) for data in payloads(items)]
    assert [head[0] for head in heads] == list(range(500))
    times = np.concatenate([i.t_ns for i in items if isinstance(i, Sample)])
    assert (np.diff(times) >= 0).all()
