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
import multiprocessing
import os
import pty
import resource
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
import tty
from collections.abc import Iterator
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.harness import Figure, Option, Run, info
from benchmarks.recording import write_config
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
    """Send at an even rate, in a separate process; send packet count and CPU seconds to `done`."""
    total = round(rate * seconds) // _AT_ONCE * _AT_ONCE
    wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    wire.connect(("127.0.0.1", port))
    wire.setsockopt(socket.IPPROTO_UDP, _SEGMENT, PACKET_BYTES)
    rng = np.random.default_rng(0)
    payload = rng.integers(0, 256, _AT_ONCE * PAYLOAD_BYTES).astype(np.uint8)
    packets = make_packets(payload, 0)
    heads = np.empty((total, 10), np.uint8)
    few = np.zeros(PAYLOAD_BYTES * 4096, np.uint8)
    for first in range(0, total, 4096):
        part = make_packets(few, first)[: total - first, :10]
        heads[first : first + len(part)] = part
    begin, cpu = time.monotonic(), time.process_time()
    for first in range(0, total, _AT_ONCE):
        packets[:, :10] = heads[first : first + _AT_ONCE]
        wait = begin + first / rate - time.monotonic()
        if wait > 0.0002:
            time.sleep(wait)
        wire.send(packets.data)
    done.send({"sent": total, "seconds": time.monotonic() - begin,
               "cpu": time.process_time() - cpu})  # fmt: skip


def receive_ours(buffer_bytes: int, ready: Connection) -> None:
    """Receive and assemble with the driver's parts until a second without data."""
    receiver = CardReceiver("127.0.0.1", 0, buffer_bytes, force=False)
    assembler = FrameAssembler(_FRAME_BYTES)
    ready.send((receiver.port, receiver.granted_bytes))
    batch, cpu = receiver.receive(10.0), time.process_time()
    whole = lost = calls = 0
    while len(batch):
        calls += 1
        for frame in assembler.take(batch.data, batch.sizes, batch.t_ns):
            lost += frame.packets_lost
            whole += not isinstance(frame, MissedFrames) and not frame.bytes_missing
        batch = receiver.receive(1.0)
    ready.send({"cpu": time.process_time() - cpu, "whole": whole, "lost": lost, "calls": calls})


def receive_xwr(buffer_bytes: int, ready: Connection) -> None:
    """Receive with xwr, which does not count packets, but marks the complete frames."""
    from xwr.capture import DCA1000EVM

    card = DCA1000EVM(
        sys_ip="127.0.0.1", fpga_ip="127.0.0.1", data_port=0, config_port=0,
        socket_buffer=buffer_bytes, timeout=10.0,
    )  # fmt: skip
    granted = card.data_socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    ready.send((card.data_socket.getsockname()[1], granted))
    select.select([card.data_socket], [], [], 10.0)
    card.timeout, cpu, whole, partial = 1.0, time.process_time(), 0, 0
    for frame in card.stream(list(SIM_CHIRP.shape)):
        whole += frame.complete
        partial += not frame.complete
    ready.send({"cpu": time.process_time() - cpu, "whole": whole, "lost": None,
                "partial": partial})  # fmt: skip


def measure_once(receiver: str, rate: float, seconds: float, buffer_bytes: int) -> dict[str, Any]:
    """Make one measurement: rates in packets a second, CPU in seconds a second."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    target = {"ours": receive_ours, "xwr": receive_xwr}[receiver]
    reading = context.Process(target=target, args=(buffer_bytes, there))
    reading.start()
    port, granted = here.recv()
    sender_here, sender_there = context.Pipe()
    sending = context.Process(target=send, args=(port, rate, seconds, sender_there))
    sending.start()
    sent, got = sender_here.recv(), here.recv()
    sending.join()
    reading.join()
    due = sent["sent"] * PAYLOAD_BYTES // _FRAME_BYTES
    return {
        "receiver": receiver,
        "rate": sent["sent"] / sent["seconds"],
        "mb_per_s": sent["sent"] * PAYLOAD_BYTES / sent["seconds"] / 1e6,
        "frames_due": due,
        "frames_whole": got["whole"],
        "packets_lost": got["lost"],
        "cpu": got["cpu"] / sent["seconds"],
        "sender_cpu": sent["cpu"] / sent["seconds"],
        "us_per_packet": got["cpu"] / sent["sent"] * 1e6,
        "packets_per_call": None if "calls" not in got else sent["sent"] / got["calls"],
        "buffer_mb": granted / 1e6,
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
        self._wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._wire.connect((HOST, self.card.data_port))
        self._wire.setsockopt(socket.IPPROTO_UDP, _SEGMENT, PACKET_BYTES)
        rng = np.random.default_rng(0)
        self._payload = rng.integers(0, 256, _AT_ONCE * PAYLOAD_BYTES).astype(np.uint8)
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


def record(rate: float, seconds: float, buffer_bytes: int) -> dict[str, Any]:
    """Record one session with the whole recorder; return the CPU of all its processes."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    card = context.Process(target=emulate, args=(rate, there))
    card.start()
    config_port, data_port, port = here.recv()
    chirp = replace(SIM_CHIRP, frame_period=_FRAME_BYTES / PAYLOAD_BYTES / rate * 1e3)
    capture = {"sys_ip": HOST, "fpga_ip": CARD, "config_port": config_port,
               "data_port": data_port, "socket_buffer": buffer_bytes}  # fmt: skip
    sensor = {"driver": "mmwave", "source": "dca1000:", "capture": capture,
              "radar": {**asdict(chirp), "port": port}}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(Path(folder) / "config.yaml", {"radar": sensor})
        command = [sys.executable, "-m", "recorder", "run", str(config), "--name", "s",
                   "--root", folder, "--duration", str(seconds)]  # fmt: skip
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=False, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        stream = info(Path(folder) / "s")["streams"]["radar"]
    here.send("end")
    card.join()
    return {
        "receiver": "recorder",
        "rate": rate,
        "mb_per_s": stream["bytes"] / seconds / 1e6,
        "frames_due": round(seconds * 1e3 / chirp.frame_period),
        "frames_whole": stream["samples"] - sum(stream.get("incomplete", {}).values()),
        "cpu": (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) / seconds,
    }


def measure(run: Run) -> Iterator[Figure]:
    """Measure each rate with each receiver, in turns."""
    run.data["frames"] = "random IQ, 786432 bytes a frame, on loopback"
    options = run.options
    buffer_bytes = round(options["buffer_mb"] * (1 << 20))
    rates = [float(word) for word in options["rates"].split(",")]
    receivers = options["receivers"].split(",")
    done: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for _ in run.rounds():
        for rate in rates:
            for who in receivers:
                measured = (
                    record(rate, options["seconds"], buffer_bytes)
                    if who == "recorder"
                    else measure_once(who, rate, options["seconds"], buffer_bytes)
                )
                done.setdefault((who, rate), []).append(measured)
    for (who, rate), runs in done.items():
        case = f"{who} at {rate:g}/s"
        yield Figure(f"{case}, CPU", [r["cpu"] for r in runs], "CPU s / s")
        yield Figure(f"{case}, rate", [r["mb_per_s"] for r in runs], "MB/s")
        missing = [r["frames_due"] - r["frames_whole"] for r in runs]
        yield Figure(f"{case}, frames not whole", missing, "frames")


assert struct.calcsize("P") == 8  # UDP_SEGMENT and recvmmsg are used as on 64-bit Linux
