"""What viewers cost: ``python -m benchmarks.live [--seconds 10] [--rounds 3] [--json FILE]``.

The rig load (`benchmarks.rig`) is recorded by ``recorder serve`` in four ways, in turn: without a
live process, with one that nobody looks at, with one viewer of everything, and with five clients,
one of which takes nothing and one of which sends garbage.  Viewers are plain WebSocket clients in
this process that report each sample as drawn at once; their CPU time does not count.  See
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from benchmarks.frames import RECORDINGS, SENSORS, make_frames
from benchmarks.measure import Memory, ProcessTree
from benchmarks.rig import ROOT, BenchmarkError, machine
from recorder.contract.control.client import Client
from recorder.contract.errors import RecorderError

WAYS: Final = ("no live section", "no viewer", "one viewer", "five clients")
IDLE_SHARE, VIEWER_CPU, LIVE_MB, LATENCY_MS = 0.02, 0.25, 150.0, 100.0
SHOWN_HZ: Final = {"picture": 10.0, "sweep": 5.0, "range_doppler": 5.0, "range_azimuth": 5.0}
_OPTIONS: Final = {"picture": {"width": 960}, "sweep": {"points": 32_768}}
_MAX_HZ: Final = {"picture": 11, "sweep": 6, "range_doppler": 6, "range_azimuth": 6, "series": 6}
_PATIENCE_S = 60.0
_SETTLE_S = 2.0  # after the session's start or the last viewer's


@dataclass(slots=True)
class Shown:
    """What a viewer was sent: samples and ages on arrival by view, ms; bytes."""

    ages_ms: dict[str, list[float]] = field(default_factory=dict)
    nbytes: int = 0
    since_s: float = field(default_factory=time.monotonic)

    def reset(self) -> None:
        """Begin to count."""
        self.ages_ms, self.nbytes, self.since_s = {}, 0, time.monotonic()


async def look(url: str, shown: Shown) -> None:
    """Watch every view of every stream, as the dashboard does, until cancelled."""
    async with connect(url, max_size=None, compression=None) as socket:
        watched: set[tuple[str, str]] = set()
        async for message in socket:
            if isinstance(message, bytes):
                header = json.loads(message[4 : 4 + int.from_bytes(message[:4], "little")])
                drawn = {"op": "drawn", "id": header["id"], "number": header["number"]}
                shown.nbytes += len(message)
                if not header["static"]:
                    await socket.send(json.dumps(drawn))
                    age_ms = (time.time_ns() - int(header["t_ns"])) / 1e6
                    shown.ages_ms.setdefault(header["view"], []).append(age_ms)
                continue
            note = json.loads(message)
            if note["type"] == "error":
                raise BenchmarkError(note["text"])
            for stream, about in note["streams"].items() if note["type"] == "streams" else ():
                for view in about["views"]:
                    if (stream, view) not in watched:
                        watched.add((stream, view))
                        watch = {"op": "watch", "id": len(watched), "stream": stream, "view": view}
                        more = {"options": _OPTIONS.get(view, {}), "max_hz": _MAX_HZ[view]}
                        await socket.send(json.dumps(watch | more))


async def stall(url: str) -> None:
    """Watch all pictures at full rate, and then take nothing."""
    async with connect(url, max_size=None, compression=None, max_queue=1) as socket:
        for number in range(8):
            watch = {"op": "watch", "id": number, "stream": "camera", "view": "picture"}
            await socket.send(json.dumps(watch | {"options": {"width": 0}, "max_hz": 30}))
        await asyncio.sleep(1e6)


async def send_garbage(url: str) -> None:
    """Send what is no request, again and again; connect again when it is thrown out."""
    rng = np.random.default_rng(1)
    while True:
        with contextlib.suppress(OSError, ConnectionClosed):
            async with connect(url, max_size=None) as socket:
                await _garbage(socket, rng)
        await asyncio.sleep(0.2)


async def _garbage(socket: ClientConnection, rng: np.random.Generator) -> None:
    for size in rng.integers(1, 60_000, 1000).tolist():
        await socket.send(rng.bytes(size))
        await socket.send('{"op":"watch","id":' + "[" * (size % 5000))
        await socket.send(json.dumps({"op": "watch", "id": size, "stream": "x" * 500}))
        await asyncio.sleep(0.01)


class Viewers:
    """Clients in a thread of their own; `close` raises the error of the first that failed."""

    def __init__(self, url: str, clients: Sequence[Callable[[str], Any]]) -> None:
        self._address = url.replace("http", "ws", 1) + "live"
        self._clients = clients
        self._errors: list[BaseException] = []
        self._loop, self._over = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="viewers")
        self._thread.start()

    def close(self) -> None:
        """Disconnect all."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        if self._errors:
            raise BenchmarkError(f"a viewer failed: {self._errors[0]!r}") from self._errors[0]

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        tasks = [asyncio.create_task(client(self._address)) for client in self._clients]
        await self._over.wait()
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        self._errors += [e for e in ended if isinstance(e, Exception)]


def clients_of(way: str, shown: Shown) -> Sequence[Callable[[str], Any]]:
    """The clients of a way to record."""

    def counted(url: str) -> Any:
        return look(url, shown)

    def other(url: str) -> Any:
        return look(url, Shown())

    many = [counted, other, other, stall, send_garbage]
    return {"one viewer": [counted], "five clients": many}.get(way, [])


@contextlib.contextmanager
def served(frames: Path, root: Path, *, live: bool) -> Iterator[tuple[int, Client]]:
    """A daemon of the rig load: its pid, and a client of it."""
    config, socket = root / "rig.yaml", root / "control.sock"
    lines = ["version: 1", f"session: {{root: {root}/sessions}}", "storage: {min_free_gb: 1}"]
    lines += ["live: {port: 0}"] if live else []
    lines += ["sensors:"]
    lines += [
        f"  {n}: {{driver: benchmarks.rig_drivers.{n}, source: 'file:{frames}', loop: true}}"
        for n in SENSORS
    ]
    config.write_text("\n".join(lines) + "\n")
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "recorder", "serve", str(config), "--socket", str(socket)],
            cwd=ROOT,
            stderr=log,
            env={**os.environ, "STATE_DIRECTORY": str(root / "state")},
        )
    try:
        with _client(process, socket, root) as client:
            wait_until(lambda: client.status().status["ready"], "the drivers are not ready")
            yield process.pid, client
    finally:
        process.terminate()
        process.wait()


def _client(process: subprocess.Popen[bytes], socket: Path, root: Path) -> Client:
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s and process.poll() is None:
        with contextlib.suppress(RecorderError):
            return Client(str(socket))
        time.sleep(0.05)
    raise BenchmarkError("recorder serve did not begin:\n" + (root / "log").read_text())


def wait_until(ready: Callable[[], Any], why: str) -> Any:
    """What `ready` returns as soon as it is true; BenchmarkError with `why` where it never is."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not (value := ready()):
        if time.monotonic() > deadline_s:
            raise BenchmarkError(why)
        time.sleep(0.1)
    return value


def run(way: str, frames: Path, root: Path, seconds: float) -> dict[str, Any]:
    """Record in one way; the figures of `seconds` in the middle of the session."""
    shown, memory = Shown(), Memory()
    with served(frames, root, live=way != WAYS[0]) as (pid, client):
        url = None
        if way != WAYS[0]:
            url = wait_until(lambda: client.status().status["live"]["url"], "no live process")
        client.start()
        viewers = Viewers(url, clients_of(way, shown)) if url is not None else None
        try:
            time.sleep(_SETTLE_S)
            tree = ProcessTree(pid)
            shown.reset()
            before, begin_s = tree.cpu_seconds(), time.monotonic()
            while (elapsed_s := time.monotonic() - begin_s) < seconds:
                memory.add(elapsed_s, tree.rss_bytes("live") or 0)
                time.sleep(0.25)
            after = tree.cpu_seconds()
            shown_s = time.monotonic() - shown.since_s
            ages = {view: list(times) for view, times in shown.ages_ms.items()}
        finally:
            if viewers is not None:
                viewers.close()
        closed = client.request("stop").values["closed"]
    streams = closed["streams"]
    all_ages = [age for times in ages.values() for age in times]
    return {
        "cpu": {k: (after[k] - before.get(k, 0.0)) / elapsed_s for k in after if k != "other"},
        "lost": {n: s["lost"] for n, s in streams.items() if s["lost"] or s["unknown_losses"]},
        "live_mb": memory.max_mb,
        "shown_hz": {view: len(times) / shown_s for view, times in sorted(ages.items())},
        "mb_s": shown.nbytes / shown_s / 1e6,
        "latency_ms": np.percentile(all_ages, [50, 99]).tolist() if all_ages else None,
    }


def measure(frames: Path, root: Path, seconds: float, rounds: int) -> dict[str, Any]:
    """All ways, in turn, so many times."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for turn in range(rounds):
        for way in WAYS[turn % 4 :] + WAYS[: turn % 4]:
            print(f"round {turn + 1}: {way} ...", file=sys.stderr, flush=True)
            folder = Path(tempfile.mkdtemp(dir=root))
            runs[way].append(run(way, frames, folder, seconds))
            shutil.rmtree(folder)
    return {"seconds": seconds, "runs": runs, "holds": holds(runs)}


def total(run: dict[str, Any]) -> float:
    """CPU seconds a second of all processes, without checksums of closed sessions."""
    return float(sum(value for name, value in run["cpu"].items() if name != "checksums"))


def more(runs: dict[str, list[dict[str, Any]]], way: str) -> list[float]:
    """CPU seconds a second that a way costs beside no live section, round by round."""
    return [total(a) - total(b) for a, b in zip(runs[way], runs[WAYS[0]], strict=True)]


def holds(runs: dict[str, list[dict[str, Any]]]) -> dict[str, bool]:
    """The targets, judged by medians."""
    median = statistics.median
    rig_cpu = median(map(total, runs[WAYS[0]]))
    idle, one = median(more(runs, "no viewer")), median(more(runs, "one viewer"))
    viewed = runs["one viewer"]
    shown = {v: median(r["shown_hz"].get(v, 0.0) for r in viewed) for v in SHOWN_HZ}
    enough = all(hz >= 0.98 * SHOWN_HZ[view] for view, hz in shown.items())
    latency = median(r["latency_ms"][1] if r["latency_ms"] else 1e9 for r in viewed)
    most_mb = max(r["live_mb"] for r in runs["five clients"])
    return {
        f"no viewer: at most {IDLE_SHARE:.0%} more": idle <= IDLE_SHARE * rig_cpu,
        f"one viewer: at most {VIEWER_CPU} CPU s/s more": one <= VIEWER_CPU,
        "one viewer: 10 pictures, 5 sweeps, 5 maps a second": enough,
        f"one viewer: p99 to the socket below {LATENCY_MS:g} ms": latency < LATENCY_MS,
        f"five clients: live below {LIVE_MB:g} MB": most_mb < LIVE_MB,
        "nothing lost": not any(r["lost"] for each in runs.values() for r in each),
    }


def text_report(result: dict[str, Any]) -> str:
    """Medians and spreads for people."""
    runs = result["runs"]

    def cell(values: list[float], digits: int = 3) -> str:
        low, middle, high = (
            f"{x:.{digits}f}" for x in (min(values), statistics.median(values), max(values))
        )
        return f"{middle} ({low}-{high})"

    def row(name: str, values: Callable[[str], list[float]], digits: int = 3) -> str:
        return f"{name:14}" + "".join(f"{cell(values(way), digits):>24}" for way in WAYS)

    names = sorted({name for each in runs.values() for r in each for name in r["cpu"]})
    lines = ["CPU seconds per second", f"{'':14}" + "".join(f"{way:>24}" for way in WAYS)]
    lines += [row(n, lambda way, n=n: [r["cpu"].get(n, 0.0) for r in runs[way]]) for n in names]  # type: ignore[misc]
    lines.append(row("all", lambda way: [*map(total, runs[way])]))
    lines.append(row("more", lambda way: more(runs, way)))
    lines.append(row("live, MB", lambda way: [r["live_mb"] for r in runs[way]], 0))
    for way in WAYS[2:]:
        views = sorted({view for r in runs[way] for view in r["shown_hz"]})
        shown = {v: [r["shown_hz"].get(v, 0.0) for r in runs[way]] for v in views}
        rates = ", ".join(f"{view} {cell(hz, 1)}" for view, hz in shown.items())
        lines.append(f"{way}: a second {rates}; {cell([r['mb_s'] for r in runs[way]], 1)} MB/s")
        p50, p99 = (
            cell([r["latency_ms"][i] for r in runs[way] if r["latency_ms"]] or [np.nan], 0)
            for i in (0, 1)
        )
        lines.append(f"{way}: capture to socket, ms: p50 {p50}, p99 {p99}")
    lost = [r["lost"] for each in runs.values() for r in each if r["lost"]]
    lines.append(f"lost: {lost or 'nothing'}")
    lines += [f"{'holds' if ok else 'MISSED':8} {what}" for what, ok in result["holds"].items()]
    return "\n".join(lines)


def main() -> int:
    """0, or 1 where a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a run (10)")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="live-"))
    try:
        (frames := root / "frames").mkdir()
        origins = make_frames(frames, RECORDINGS)
        result = {"machine": machine(), "frames": origins}
        result |= measure(frames, root, args.seconds, args.rounds)
    finally:
        shutil.rmtree(root)
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    print(text_report(result))
    return 0 if all(result["holds"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
