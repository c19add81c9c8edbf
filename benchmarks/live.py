"""Cost of viewers: the rig load with no live process, no viewer, one viewer and five clients.

``recorder serve`` records the rig load (`benchmarks.rig`) in four ways, in turn: without a live
process, with a live process without viewers, with one viewer of everything, and with five clients,
one of which reads nothing and one of which sends garbage.  Viewers are plain WebSocket clients in
this process that report each sample as drawn immediately; their CPU time does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from benchmarks.frames import make_rig
from benchmarks.harness import BenchmarkError, Figure, Option, Run
from benchmarks.measure import watch_processes
from benchmarks.recording import run_daemon, wait_until

WAYS: Final = ("no live section", "no viewer", "one viewer", "five clients")
OPTIONS = {
    "seconds": Option("float", 10.0, "of each run", minimum=1),
    "rounds": Option("int", 3, "repetitions of all four ways", minimum=1),
}
QUICK = {"seconds": 3.0, "rounds": 1}
_OPTIONS: Final = {"picture": {"width": 960}, "sweep": {"points": 32_768}}
_MAX_HZ: Final = {"picture": 11, "sweep": 6, "range_doppler": 6, "range_azimuth": 6, "series": 6}
_SETTLE_S = 2.0  # after the session's start or the last viewer's


@dataclass(slots=True)
class ViewerCounts:
    """Data that a viewer received: samples and ages on arrival (ms) by view; bytes."""

    ages_ms: dict[str, list[float]] = field(default_factory=dict)
    nbytes: int = 0
    since_s: float = field(default_factory=time.monotonic)

    def reset(self) -> None:
        """Reset the counts."""
        self.ages_ms, self.nbytes, self.since_s = {}, 0, time.monotonic()


async def look(url: str, shown: ViewerCounts) -> None:
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
    """Watch all pictures at full rate, but read nothing."""
    async with connect(url, max_size=None, compression=None, max_queue=1) as socket:
        for number in range(8):
            watch = {"op": "watch", "id": number, "stream": "camera", "view": "picture"}
            await socket.send(json.dumps(watch | {"options": {"width": 0}, "max_hz": 30}))
        await asyncio.sleep(1e6)


async def send_garbage(url: str) -> None:
    """Send invalid requests repeatedly; connect again after a disconnect."""
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
    """Clients in a separate thread; `close` raises the error of the first that failed."""

    def __init__(self, url: str, clients: Sequence[Callable[[str], Any]]) -> None:
        self._address = url.replace("http", "ws", 1) + "live"
        self._clients = clients
        self._errors: list[BaseException] = []
        self._loop, self._over = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="viewers")
        self._thread.start()

    def close(self) -> None:
        """Disconnect all clients.

        Raises:
            BenchmarkError: a client failed.
        """
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


def make_clients(way: str, shown: ViewerCounts) -> Sequence[Callable[[str], Any]]:
    """Return the clients of a way to record."""

    def look_counted(url: str) -> Any:
        return look(url, shown)

    def look_uncounted(url: str) -> Any:
        return look(url, ViewerCounts())

    many = [look_counted, look_uncounted, look_uncounted, stall, send_garbage]
    return {"one viewer": [look_counted], "five clients": many}.get(way, [])


def record(way: str, frames: Path, root: Path, seconds: float) -> dict[str, Any]:
    """Record in one way; return the figures of `seconds` in the middle of the session."""
    shown = ViewerCounts()
    with run_daemon(frames, root, {} if way == WAYS[0] else {"live": {"port": 0}}) as (pid, client):
        url = None
        if way != WAYS[0]:
            url = wait_until(lambda: client.status().status["live"]["url"], "no live process")
        client.start()
        viewers = Viewers(url, make_clients(way, shown)) if url is not None else None
        try:
            time.sleep(_SETTLE_S)
            shown.reset()
            cpu, memory = watch_processes(pid, "live", seconds)
            shown_s = time.monotonic() - shown.since_s
            ages = {view: list(times) for view, times in shown.ages_ms.items()}
        finally:
            if viewers is not None:
                viewers.close()
        closed = client.request("stop").values["closed"]
    streams = closed["streams"]
    all_ages = [age for times in ages.values() for age in times]
    return {
        "cpu": cpu,
        "lost": {n: s["lost"] for n, s in streams.items() if s["lost"] or s["unknown_losses"]},
        "live_mb": memory.max_mb,
        "shown_hz": {view: len(times) / shown_s for view, times in sorted(ages.items())},
        "mb_s": shown.nbytes / shown_s / 1e6,
        "latency_ms": np.percentile(all_ages, [50, 99]).tolist() if all_ages else None,
    }


def measure(run: Run) -> Iterator[Figure]:
    """Measure all ways in turns; each round begins with another way."""
    frames = make_rig(run)
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for turn in run.rounds():
        for way in WAYS[turn % 4 :] + WAYS[: turn % 4]:
            with run.scratch() as folder:
                runs[way].append(record(way, frames, folder, run.options["seconds"]))
    plain = runs[WAYS[0]]
    shares = [more / total(base) for more, base in zip(extra(runs, WAYS[1]), plain, strict=True)]
    yield Figure("no viewer, share", shares)
    for way in WAYS[1:]:
        yield Figure(f"{way}, more CPU", extra(runs, way), "CPU s / s")
        yield Figure(f"{way}, memory", [r["live_mb"] for r in runs[way]], "MB")
    for way, each in runs.items():
        for name in sorted({name for r in each for name in r["cpu"]}):
            values = [r["cpu"].get(name, 0.0) for r in each]
            yield Figure(f"{way}, {name}", values, "CPU s / s")
        yield Figure(f"{way}, streams with loss", [float(len(r["lost"])) for r in each], "streams")
    for way in WAYS[2:]:
        for view in sorted(set.intersection(*(set(r["shown_hz"]) for r in runs[way]))):
            yield Figure(f"{way}, {view}", [r["shown_hz"][view] for r in runs[way]], "1 / s")
        yield Figure(f"{way}, sent", [r["mb_s"] for r in runs[way]], "MB/s")
        for place, name in enumerate(("p50", "p99")):
            ages = [r["latency_ms"][place] for r in runs[way] if r["latency_ms"]]
            if ages:
                yield Figure(f"{way}, {name}", ages, "ms")


def total(figures: dict[str, Any]) -> float:
    """Return CPU seconds a second of all processes, without checksums of closed sessions."""
    return float(sum(value for name, value in figures["cpu"].items() if name != "checksums"))


def extra(runs: dict[str, list[dict[str, Any]]], way: str) -> list[float]:
    """Return the CPU seconds a second that a way adds to recording without live, by round."""
    return [total(a) - total(b) for a, b in zip(runs[way], runs[WAYS[0]], strict=True)]
