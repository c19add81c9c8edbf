"""Baseline: capture of the rig load as red-rover's collector does it (RadarML/red-rover).

Each sensor has one process, ``python -m benchmarks.baseline SENSOR FRAMES OUT SECONDS``.  Its loop
takes frames and puts each channel's part into an unbounded queue of that channel.  A thread behind
each queue writes:

- camera: a colour swap, then OpenCV's VideoWriter, MJPG, at the camera's rate;
- lidar: rng, rfl, nir, each frame as xz of preset 0; twelve frames are a batch, whose frames are
  compressed by twelve threads of a new pool, behind a prefetching thread; a file of u8 offsets is
  written beside the data;
- radar, IMU, and every sensor's ``ts``: unchanged arrays, into a buffered file.

Nothing is synced, and losses are not counted.  The code is our own: it does the work that costs
time in red-rover, and omits red-rover's statistics and log lines.

The process prints ``ready`` when its frames are in memory, and reads the CLOCK_MONOTONIC time at
which to begin.  It prints its counts as JSON when all files are written and closed, and ends when
it reads another line, so that its CPU time can be read from outside at both moments.
"""

from __future__ import annotations

import json
import lzma
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from queue import Queue
from typing import Any, TypeVar

import cv2
import numpy as np
import numpy.typing as npt

from benchmarks.frames import HEIGHT, SENSORS, WIDTH, load_frames

T = TypeVar("T")
Array = npt.NDArray[Any]
Consumer = Callable[[Path, Iterable[Array]], None]

_BATCH = 12
_PREFETCH = 64


class ChannelThread:
    """Queue of a channel, and the thread that writes its items; None ends the thread."""

    def __init__(self, path: Path, consume: Consumer) -> None:
        self._queue: Queue[Array | None] = Queue()
        self._thread = threading.Thread(target=consume, args=(path, drain(self._queue)))
        self._thread.start()

    def put(self, frame: Array) -> None:
        """Queue a frame; never wait."""
        self._queue.put(frame)

    def close(self) -> None:
        """Wait until everything is written."""
        self._queue.put(None)
        self._thread.join()


def drain(queue: Queue[T | None]) -> Iterator[T]:
    """Yield the items of a queue, up to the None that ends it."""
    while (item := queue.get()) is not None:
        yield item


def write_raw(path: Path, frames: Iterable[Array]) -> None:
    """Write arrays one after another, with Python's default buffering."""
    with path.open("wb") as file:
        for frame in frames:
            file.write(frame.data)


def write_video(path: Path, frames: Iterable[Array]) -> None:
    """Write an MJPG file with OpenCV's VideoWriter."""
    fourcc = cv2.VideoWriter.fourcc(*"MJPG")
    writer = cv2.VideoWriter(str(path), fourcc, SENSORS["camera"].rate_hz, (WIDTH, HEIGHT))
    for frame in frames:
        writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
    writer.release()


def write_lzma(path: Path, frames: Iterable[Array]) -> None:
    """Compress and write frames in batches of twelve, with their offsets in a second file."""
    ready: Queue[list[bytes] | None] = Queue(_PREFETCH)

    def compress_all() -> None:
        for batch in _batches(frames):
            with ThreadPool(len(batch)) as pool:
                ready.put(pool.map(lambda f: lzma.compress(f.data, preset=0), batch))
        ready.put(None)

    prefetch = threading.Thread(target=compress_all)
    prefetch.start()
    offset = 0
    with path.open("wb") as data, path.with_name(path.name + "_i").open("wb") as index:
        index.write(np.array(0, np.uint64).tobytes())
        for batch in drain(ready):
            for frame in batch:
                data.write(frame)
                offset += len(frame)
                index.write(np.array(offset, np.uint64).tobytes())
    prefetch.join()


def _batches(frames: Iterable[Array]) -> Iterator[list[Array]]:
    batch: list[Array] = []
    for frame in frames:
        batch.append(frame)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def lidar_parts(frames: dict[str, Array], at: int) -> dict[str, Array]:
    """Convert a sweep to red-rover's types; ranges saturate at u2."""
    return {
        "rfl": frames["REFLECTIVITY"][at].astype(np.uint8),
        "nir": frames["NEAR_IR"][at].astype(np.uint16),
        "rng": np.minimum(65535, frames["RANGE"][at]).astype(np.uint16),
    }


def radar_parts(frames: dict[str, Array], at: int) -> dict[str, Array]:
    """Return a frame, and whether it is complete."""
    return {"iq": frames["iq"][at], "valid": np.array(True, np.uint8)}


_CHANNELS: dict[str, dict[str, Consumer]] = {
    "camera": {"video.avi": write_video},
    "lidar": dict.fromkeys(("rfl", "nir", "rng"), write_lzma),
    "radar": {"iq": write_raw, "valid": write_raw},
    "imu": dict.fromkeys(("rot", "acc", "avel"), write_raw),
}
_PARTS: dict[str, Callable[[dict[str, Array], int], dict[str, Array]]] = {
    "camera": lambda frames, at: {"video.avi": frames["image"][at]},
    "lidar": lidar_parts,
    "radar": radar_parts,
    "imu": lambda frames, at: {name: frames[name][at] for name in ("rot", "acc", "avel")},
}


def capture(sensor: str, frames: dict[str, Array], out: Path, start_ns: int, seconds: float) -> int:
    """Capture for `seconds` from a start time; return the number of frames when all are written."""
    rig, parts = SENSORS[sensor], _PARTS[sensor]
    loaded = min(map(len, frames.values()))
    ts = ChannelThread(out / "ts", write_raw)
    channels = {
        name: ChannelThread(out / name, consume) for name, consume in _CHANNELS[sensor].items()
    }
    count = round(seconds * rig.rate_hz)
    for k in range(count):
        due_ns = start_ns + round(k * 1e9 / rig.rate_hz)
        if (wait_ns := due_ns - time.monotonic_ns()) > 0:
            time.sleep(wait_ns / 1e9)
        ts.put(np.array(time.time(), np.float64))
        for name, part in parts(frames, k % loaded).items():
            channels[name].put(part)
    for channel in (ts, *channels.values()):
        channel.close()
    return count


def _end_visibly(args: threading.ExceptHookArgs) -> None:
    traceback.print_exception(args.exc_type, args.exc_value, args.exc_traceback)
    sys.stderr.flush()
    os._exit(1)


def main() -> None:
    threading.excepthook = _end_visibly
    sensor, folder, out, seconds = sys.argv[1:]
    frames = load_frames(Path(folder), sensor)
    path = Path(out) / sensor
    path.mkdir(parents=True)
    print("ready", flush=True)
    start_ns = int(sys.stdin.readline())
    count = capture(sensor, frames, path, start_ns, float(seconds))
    written = sum(p.stat().st_size for p in path.iterdir())
    done = {"samples": count, "bytes": written, "opencv_threads": cv2.getNumThreads()}
    print(json.dumps(done), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
