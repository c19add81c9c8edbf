"""Packets of a radar's capture card: rate that is received without loss, and its cost.

A separate process sends frames of an AWR1843 (64 x 3 x 4 x 512 int16, 540 packets and a part) on
loopback at an even rate.  A second process receives and assembles them: ours, or xwr's
``DCA1000EVM.stream`` with its C extension, both with the same socket buffer.  10.8 thousand packets
a second are a usual radar on a DCA1000 (15.7 MB/s); 60.6 thousand are the maximum of the card
(5 us between packets).  Higher rates show the reserve.

With the receiver ``recorder`` the whole recorder replaces the second process: ``recorder run`` sets
up an emulated card and radar, and records their frames.
"""

from __future__ import annotations

import contextlib
import os
import pty
import select
import socket
import struct
import time
import tty
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Figure, Option, Run, spawn
from benchmarks.recording import record_measured
from drivers.mmwave.connection import CardReceiver
from drivers.mmwave.emulator_card import CARD, HOST, CaptureCard
from drivers.mmwave.emulator_firmware import DemoFirmware
from drivers.mmwave.frames import FrameAssembler, MissedFrames
from drivers.mmwave.model import SIM_CHIRP
from drivers.mmwave.packets import PACKET_BYTES, PAYLOAD_BYTES, RESET_AR_DEVICE, make_packets

_FRAME_BYTES: Final = SIM_CHIRP.frame_bytes
_RATES: Final = (10_800, 30_000, 60_600, 100_000, 150_000, 200_000, 250_000, 300_000, 400_000)
OPTIONS = {
    "seconds": Option("float", 3.0, "of sending, each rate", minimum=0.5),
    "rounds": Option("int", 3, "repetitions", minimum=1),
    "rates": Option("str", ",".join(map(str, _RATES)), "packets a second"),
    "receivers": Option("str", "ours,xwr", "who receives: ours, xwr, recorder"),
    "buffer_mb": Option("float", 4.0, "receive buffer of the socket, MiB", minimum=0.1),
}
QUICK = {"seconds": 1.0, "rounds": 1, "rates": "60600,100000"}
_SEGMENT: Final = 103  # UDP_SEGMENT: many packets with one call
_AT_ONCE: Final = 44  # packets of one call: below 64 KiB


def send(port: int, rate: float, seconds: float, done: Connection) -> None:
    """Send at an even rate, in a separate process; send packet count and seconds to `done`."""
    total = round(rate * seconds) // _AT_ONCE * _AT_ONCE
    wire, payload = _connect("127.0.0.1", port)
    packets = make_packets(payload, 0)
    heads = np.empty((total, 10), np.uint8)
    few = np.zeros(PAYLOAD_BYTES * 4096, np.uint8)
    for first in range(0, total, 4096):
        part = make_packets(few, first)[: total - first, :10]
        heads[first : first + len(part)] = part
    begin = time.monotonic()
    for first in range(0, total, _AT_ONCE):
        packets[:, :10] = heads[first : first + _AT_ONCE]
        wait = begin + first / rate - time.monotonic()
        if wait > 0.0002:
            time.sleep(wait)
        wire.send(packets.data)
    done.send((total, time.monotonic() - begin))


def _connect(host: str, port: int) -> tuple[socket.socket, npt.NDArray[np.uint8]]:
    """Return a socket that splits what it sends into packets, and the payload of one call."""
    wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    wire.connect((host, port))
    wire.setsockopt(socket.IPPROTO_UDP, _SEGMENT, PACKET_BYTES)
    rng = np.random.default_rng(0)
    return wire, rng.integers(0, 256, _AT_ONCE * PAYLOAD_BYTES).astype(np.uint8)


def receive_ours(buffer_bytes: int, ready: Connection) -> None:
    """Receive and assemble with the driver's parts until a second without data."""
    receiver = CardReceiver("127.0.0.1", 0, buffer_bytes, force=False)
    assembler = FrameAssembler(_FRAME_BYTES)
    ready.send(receiver.port)
    batch, cpu = receiver.receive(10.0), time.process_time()
    whole = 0
    while len(batch):
        for frame in assembler.take(batch.data, batch.sizes, batch.t_ns):
            whole += not isinstance(frame, MissedFrames) and not frame.bytes_missing
        batch = receiver.receive(1.0)
    ready.send((time.process_time() - cpu, whole))


def receive_xwr(buffer_bytes: int, ready: Connection) -> None:
    """Receive with xwr, which does not count packets, but marks the complete frames."""
    from xwr.capture import DCA1000EVM

    card = DCA1000EVM(
        sys_ip="127.0.0.1", fpga_ip="127.0.0.1", data_port=0, config_port=0,
        socket_buffer=buffer_bytes, timeout=10.0,
    )  # fmt: skip
    ready.send(card.data_socket.getsockname()[1])
    select.select([card.data_socket], [], [], 10.0)
    card.timeout, cpu = 1.0, time.process_time()
    whole = sum(frame.complete for frame in card.stream(list(SIM_CHIRP.shape)))
    ready.send((time.process_time() - cpu, whole))


def measure_once(receiver: str, rate: float, seconds: float, buffer_bytes: int) -> dict[str, float]:
    """Measure one receiver: MB/s, CPU in seconds a second, and frames that are not whole."""
    target = {"ours": receive_ours, "xwr": receive_xwr}[receiver]
    with spawn(target, buffer_bytes) as receiving:
        port = receiving.recv()
        with spawn(send, port, rate, seconds) as sending:
            (sent, sent_s), (cpu_s, whole) = sending.recv(), receiving.recv()
    return {
        "mb_per_s": sent * PAYLOAD_BYTES / sent_s / 1e6,
        "cpu": cpu_s / sent_s,
        "missing": sent * PAYLOAD_BYTES // _FRAME_BYTES - whole,
    }


class FastCard:
    """Emulated capture card and radar that send at any rate.

    Args:
        rate: packets a second.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self.card = CaptureCard("radar")
        self.card.open()
        self._firmware = DemoFirmware(SIM_CHIRP.device)
        self._firmware.power_on(0)
        self._master, slave = pty.openpty()
        tty.setraw(slave)
        os.set_blocking(self._master, False)
        self.port = os.ttyname(slave)
        self._wire, self._payload = _connect(HOST, self.card.data_port)
        self._begin, self._sent = 0.0, 0

    def step(self) -> None:
        """Answer requests, and send the packets that are due."""
        now_ns = time.monotonic_ns()
        if RESET_AR_DEVICE in self.card.answer(now_ns):
            self._firmware.power_on(now_ns)
        received = b""
        with contextlib.suppress(BlockingIOError):
            received = os.read(self._master, 4096)
        if answer := self._firmware.step(received, now_ns):
            os.write(self._master, answer)
        if not (self._firmware.running and self.card.recording):
            self._begin, self._sent = time.monotonic(), 0
            time.sleep(0.001)
            return
        due = (time.monotonic() - self._begin) * self._rate
        end = time.monotonic() + 0.005
        while self._sent < due and time.monotonic() < end:
            with contextlib.suppress(ConnectionRefusedError):
                self._wire.send(make_packets(self._payload, self._sent).data)
            self._sent += _AT_ONCE
        time.sleep(0.0005)


def emulate(rate: float, reported: Connection) -> None:
    """Run a fast card until `reported` has a message; runs in a separate process."""
    fast = FastCard(rate)
    reported.send((fast.card.config_port, fast.card.data_port, fast.port))
    while not reported.poll():
        fast.step()


def record(rate: float, seconds: float, buffer_bytes: int, folder: Path) -> dict[str, float]:
    """Record a session with the whole recorder; measure it as `measure_once` does."""
    with spawn(emulate, rate) as card:
        config_port, data_port, port = card.recv()
        chirp = replace(SIM_CHIRP, frame_period=_FRAME_BYTES / PAYLOAD_BYTES / rate * 1e3)
        keys = {key: value for key, value in asdict(chirp).items() if key != "transmitters"}
        capture = {"sys_ip": HOST, "fpga_ip": CARD, "config_port": config_port,
                   "data_port": data_port, "socket_buffer": buffer_bytes}  # fmt: skip
        sensor = {"driver": "mmwave", "source": "dca1000:", "capture": capture,
                  "radar": {**keys, "port": port}}  # fmt: skip
        done = record_measured(folder, {"radar": sensor}, seconds, ("--no-finalize",))
    stream = done.streams["radar"]
    whole = stream["samples"] - sum(stream.get("incomplete", {}).values())
    return {
        "mb_per_s": stream["bytes"] / seconds / 1e6,
        "cpu": done.cpu_per_s,
        "missing": round(seconds * 1e3 / chirp.frame_period) - whole,
    }


def measure(run: Run) -> Iterator[Figure]:
    """Measure each rate with each receiver, in turns."""
    run.data["frames"] = "random IQ, 786432 bytes a frame, on loopback"
    options = run.options
    buffer_bytes = round(options["buffer_mb"] * (1 << 20))
    rates = [float(word) for word in options["rates"].split(",")]
    receivers = options["receivers"].split(",")

    def measure_receiver(who: str, rate: float, folder: Path) -> dict[str, float]:
        if who == "recorder":
            return record(rate, options["seconds"], buffer_bytes, folder)
        return measure_once(who, rate, options["seconds"], buffer_bytes)

    cases = [(who, rate) for rate in rates for who in receivers]
    done = run.take_turns({case: partial(measure_receiver, *case) for case in cases})
    for (who, rate), runs in done.items():
        case = f"{who} at {rate:g}/s"
        yield Figure(f"{case}, CPU", [r["cpu"] for r in runs], "CPU s / s")
        yield Figure(f"{case}, rate", [r["mb_per_s"] for r in runs], "MB/s")
        yield Figure(f"{case}, frames not whole", [r["missing"] for r in runs], "frames")


assert struct.calcsize("P") == 8  # UDP_SEGMENT and recvmmsg are used as on 64-bit Linux
