"""Recording of a busy CAN bus at 8000 frames a second: CPU of the driver and of the recorder.

A separate process sends the simulated vehicle's bus with filler, as structures of the kernel, to a
port on loopback, paced by the clock in steps of 1 ms.  ``recorder run`` records it, in turns
without and with decoding of all signals, and with frames of CAN FD.  Frames that were sent and
neither recorded nor counted as lost are missing.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Figure, Option, Run, find_port, spawn
from benchmarks.recording import record_measured
from drivers.can.frames import Frame, pack_frame
from drivers.can.simulated import DATABASE, SimulatedBus

OPTIONS = {
    "seconds": Option("float", 20.0, "length of a run", minimum=3.0),
    "rounds": Option("int", 3, "repetitions", minimum=1),
    "rate": Option("float", 8000.0, "frames a second", minimum=400.0),
}
QUICK = {"seconds": 4.0, "rounds": 1}
_ALL: Final = {"dbc": str(DATABASE), "signals": ["*"]}
CASES: Final[dict[str, dict[str, Any]]] = {
    "frames": {"fd": False},
    "frames and all signals": {"fd": False, **_ALL},
    "frames of CAN FD and all signals": {"fd": True, **_ALL},
}


def measure(run: Run) -> Iterator[Figure]:
    """Record each case, in turns."""
    rate, seconds = run.options["rate"], run.options["seconds"]
    run.data["bus"] = f"the simulated vehicle's with filler, {rate:g} frames a second, on loopback"
    ways = {case: partial(_record, run, rate, seconds, CASES[case]) for case in CASES}
    done = run.take_turns(ways)
    for case, runs in done.items():
        yield Figure(f"{case}, CPU of the driver", [r["driver"] for r in runs], "s/s")
        yield Figure(f"{case}, CPU of the recorder", [r["whole"] for r in runs], "s/s")
    missing = [r["missing"] for runs in done.values() for r in runs]
    yield Figure("frames lost or missing", missing, "")


def _record(
    run: Run, rate: float, seconds: float, options: dict[str, Any], folder: Path
) -> dict[str, float]:
    port = find_port()
    with spawn(send, port, rate, options["fd"]) as sending:
        sending.recv()
        entry = {"driver": "can", "source": f"can:127.0.0.1:{port}", "rate": rate, **options}
        words = ("--no-finalize", "--name", "s")
        done = record_measured(folder, {"bus": entry}, seconds, words)
    bus = done.streams["bus"]
    if done.exit_code:
        run.note(f"exit code {done.exit_code}")
    span_s = (bus["last_ns"] - bus["first_ns"]) / 1e9
    return {
        "driver": done.cpu["can"] / seconds,
        "whole": done.cpu_per_s,
        # The sender is late by some ms now and then.
        "missing": max(0, round((span_s - 0.1) * rate) - bus["samples"])
        + sum(bus["lost"].values()),
    }


def send(port: int, rate: float, fd: bool, control: Connection) -> None:
    """Send frames until `control` has a message; runs in a separate process."""
    options = {"rate": rate, "fd": fd, "seed": 0, "scene": "drive"}
    made = SimulatedBus(options).frames(0, 1_000_000_000)
    rows = zip(made.id.tolist(), made.length.tolist(), made.flags.tolist(), made.data, strict=True)
    packets = [
        pack_frame(Frame(0, number, data[:length].tobytes(), flags))
        for number, length, flags, data in rows
    ]
    times = made.t_ns.tolist()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made_socket:
        made_socket.connect(("127.0.0.1", port))
        control.send("ready")
        begin_ns, sent = time.monotonic_ns(), 0
        while not control.poll():
            now_ns = time.monotonic_ns() - begin_ns
            while True:
                second, k = divmod(sent, len(times))
                if second * 1_000_000_000 + times[k] > now_ns:
                    break
                with contextlib.suppress(ConnectionRefusedError):
                    made_socket.send(packets[k])
                sent += 1
            time.sleep(0.001)
