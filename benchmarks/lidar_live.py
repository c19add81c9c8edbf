"""Recording of a lidar of 128 channels at 20 Hz with two returns: CPU of the driver and the writer.

A separate process sends the packets of a QT128 on loopback: 1800 columns a turn, a packet each,
36,000 a second, as the driver's encoder makes them, with ranges of walls and noise, and second
returns of which four of five repeat the first.  ``recorder run`` records them, in turns without and
with the packets.  Columns that are not in the sweeps between the first and the last are missing.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Figure, Option, Run, find_port, spawn
from benchmarks.recording import record_measured
from drivers.hesai.models import MODELS
from drivers.hesai.packets import HesaiDecoder, make_packet
from drivers.kit.lidar.columns import Columns
from recorder.session.reader import Session

OPTIONS = {
    "seconds": Option("float", 20.0, "length of a run", minimum=3.0),
    "rounds": Option("int", 3, "repetitions", minimum=1),
    "hz": Option("float", 20.0, "turns a second", minimum=5.0, maximum=20.0),
}
QUICK = {"seconds": 4.0, "rounds": 1}
_COLUMNS: Final = 1800
_DUAL: Final = 0x39
_TURNS: Final = 8  # distinct ones, which come again with other numbers and times
_STEP_S: Final = 0.001
_NUMBER: Final = 1087  # place of the number and of the time's microseconds in a packet
_MICROS: Final = 1082
_DATE: Final = 1076


def measure(run: Run) -> Iterator[Figure]:
    """Record with and without the packets, in turns."""
    hz, seconds = run.options["hz"], run.options["seconds"]
    run.data["lidar"] = f"a QT128 at {hz:g} Hz with two returns, {hz * _COLUMNS:g} packets a second"
    ways = {
        name: partial(_record, run, hz, seconds, keep)
        for name, keep in (("sweeps", False), ("sweeps and packets", True))
    }
    done = run.take_turns(ways)
    for name, runs in done.items():
        both = [r["driver"] + r["writer"] for r in runs]
        yield Figure(f"{name}, CPU of driver and writer", both, "s/s")
        yield Figure(f"{name}, CPU of the driver", [r["driver"] for r in runs], "s/s")
        yield Figure(f"{name}, CPU of the writer", [r["writer"] for r in runs], "s/s")
        yield Figure(f"{name}, stored", [r["mb"] for r in runs], "MB/s")
    yield Figure("columns lost or missing", [r["missing"] for rs in done.values() for r in rs], "")


def _record(run: Run, hz: float, seconds: float, keep: bool, folder: Path) -> dict[str, float]:
    port = find_port()
    with spawn(send, port, hz) as sending:
        sending.recv()
        source = f"udp://127.0.0.1:{port}"
        entry = {"driver": "hesai", "source": source, "packets": keep, "socket_buffer_mb": 64.0}
        words = ("--no-finalize", "--name", "s")
        done = record_measured(folder, {"lidar": entry}, seconds, words)
    if done.exit_code:
        run.note(f"exit code {done.exit_code}")
    with Session(next(folder.rglob("s/lidar")).parent) as session:
        t_col = session.streams["lidar"].read(0, len(session.streams["lidar"]), ["t_col"])["t_col"]
    columns = np.count_nonzero(t_col[1:-1], axis=1)
    lost = sum(done.streams["lidar"]["lost"].values())
    return {
        "driver": done.cpu["lidar"] / seconds,
        "writer": done.cpu["writer"] / seconds,
        "mb": done.bytes / seconds / 1e6,
        "missing": float((_COLUMNS - columns).sum()) + _COLUMNS * lost,
    }


def make_turns(decoder: HesaiDecoder, hz: float) -> npt.NDArray[np.uint8]:
    """Return the packets of some turns, u1 [packets, size]."""
    dice = np.random.default_rng(1)
    azimuth = np.arange(_COLUMNS * _TURNS) % _COLUMNS
    around = 2 * np.pi * azimuth / _COLUMNS
    walls = 6 / np.maximum(np.abs(np.cos(around)), 0.15)[:, None]
    down = np.linspace(0.9, 0.02, decoder.channels)[None, :]
    range_m = np.minimum(walls * (1 + down / 3), 2.5 / down)
    first = range_m / 0.004 + dice.normal(0, 1.5, range_m.shape)
    first[np.sin(5 * around) > 0.9] = 0  # a tenth sees the sky
    other = np.repeat(dice.random((len(first) // 8, decoder.channels)) < 0.2, 8, axis=0)
    second = np.where(other, first * 1.3 + dice.normal(0, 1.5, first.shape), first)
    ranges = np.clip(np.stack([first, second]), 0, 65_535).astype("<u2")
    bright = 30 + 20 * np.sin(7 * around)[:, None] + dice.normal(0, 2, first.shape)
    reflectivity = np.broadcast_to(np.clip(bright, 0, 255).astype("u1"), ranges.shape)
    number = np.arange(len(azimuth))
    t_ns = 1_700_000_000_000_000_000 + (number * 1e9 / (_COLUMNS * hz)).astype(np.int64)
    state = (number % 2).astype(np.uint8)
    columns = Columns(
        (azimuth * (36_000 // _COLUMNS)).astype("<u4"), t_ns, ranges, reflectivity,
        np.zeros(ranges.shape, "u1"), state,
    )  # fmt: skip
    return decoder.encode(columns)


def send(port: int, hz: float, control: Connection) -> None:
    """Send packets until `control` has a message; runs in a separate process."""
    decoder = HesaiDecoder(MODELS["QT128"], make_packet(MODELS["QT128"], _DUAL, round(60 * hz)))
    packets = make_turns(decoder, hz)
    rate = _COLUMNS * hz
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.connect(("127.0.0.1", port))
        control.send("ready")
        begin_s, sent = time.monotonic(), 0
        while not control.poll():
            due = int((time.monotonic() - begin_s) * rate)
            for first in range(sent, due, len(packets)):
                _send_some(made, packets, first, min(due, first + len(packets)), rate)
            sent = due
            time.sleep(_STEP_S)


def _send_some(made: socket.socket, packets: Any, begin: int, end: int, rate: float) -> None:
    number = np.arange(begin, end)
    some = packets[number % len(packets)]
    some[:, _NUMBER : _NUMBER + 4] = number.astype("<u4")[:, None].view(np.uint8)
    micros = (number * (1e6 / rate)).astype(np.int64)
    some[:, _MICROS : _MICROS + 4] = (micros % 1_000_000).astype("<u4")[:, None].view(np.uint8)
    seconds = micros // 1_000_000
    some[:, _DATE + 4], some[:, _DATE + 5] = seconds // 60 % 60, seconds % 60
    for packet in some:
        try:
            made.send(packet)
        except ConnectionRefusedError:  # the driver does not listen yet
            return
