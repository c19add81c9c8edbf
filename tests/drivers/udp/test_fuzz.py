"""Mutated captures: no crash, no hang, no growing memory; the normal run has few of them."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from drivers.kit.driver import Lost, State
from recorder.common.errors import FormatError, SourceError
from recorder.formats.pcap.datagrams import Datagram, read_datagrams
from tests.drivers.fuzzing import GROWTH, mutated, resident
from tests.drivers.udp.rig import driver_for, payloads
from tests.formats.pcap.test_datagrams import ethernet, ipv4, ipv6, pcap, pcapng, udp
from tests.support.devices import opened, play_out, read_all


def captures() -> list[bytes]:
    whole = udp(bytes(range(200)))
    frames = [
        ethernet(ipv4(udp(b"", 2368))),
        ethernet(ipv4(udp(bytes(64), 8308)), tags=1),
        ethernet(ipv4(whole[:96], at=0, more=True)),
        ethernet(ipv4(whole[96:], at=96)),
        ethernet(ipv6(udp(b"six", 2368))),
    ]
    return [
        pcap(frames),
        pcap(frames, order=">", nano=True),
        pcapng(frames),
        pcapng(frames, order=">", tsresol=None),
    ]


def check(path: Path, data: bytes, port: int | None) -> int:
    """Play a capture; the number of datagrams, which the parser alone finds too."""
    path.write_bytes(data)
    found: list[Datagram] = []
    try:
        found += [d for d in read_datagrams(io.BytesIO(data)) if port in (None, d.port)]
        fault = False
    except FormatError:
        fault = True
    items, refused = play_out(driver_for("file", str(path), "max", port=port))
    if refused is None:
        assert not fault
    else:
        assert isinstance(refused, SourceError)
        assert str(refused).startswith(f"lidar: file:{path}: ")
        assert fault or not items
    for item in items:
        assert isinstance(item, Lost | State) or 0 < item.count <= 256
    if refused and not fault:
        assert not any(d.t_ns for d in found), "only a capture without any stamp is refused"
    elif not fault:
        assert payloads(items) == [d.payload for d in found]
    return len(payloads(items))


def run(folder: Path, count: int, seed: int) -> None:
    rng, right = random.Random(seed), captures()
    whole = 0
    for k in range(count):
        data = mutated(rng, right[k % len(right)], (bytes(16), b"\xff" * 8, b"\n\r\r\n"))
        whole += check(folder / "a.pcap", data, (None, 2368)[k & 1]) > 0
    assert whole > count // 10  # most of a mutated capture is read all the same


def test_mutated_captures(tmp_path: Path) -> None:
    run(tmp_path, 300, seed=1)


@pytest.mark.campaign(weight=40)
def test_many_mutated_captures(tmp_path: Path, mutations: int) -> None:
    run(tmp_path, 2000, seed=2)
    before = resident()
    run(tmp_path, mutations, seed=3)
    assert resident() - before < GROWTH


def test_the_captures_themselves_are_whole(tmp_path: Path) -> None:
    for data in captures():
        (tmp_path / "a.pcap").write_bytes(data)
        with opened(driver_for("file", str(tmp_path / "a.pcap"), "max")) as driver:
            assert payloads(read_all(driver)) == [b"", bytes(64), bytes(range(200)), b"six"]
