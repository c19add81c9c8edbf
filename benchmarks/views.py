"""Cost of drawing each live view.

CPU time of one thread and bytes, medians over the samples of the rig load (1080p, 128x1024 sweeps,
radar frames of 786 kB, 20 IMU samples), from the encoded message to the drawing.  Pictures and
sweeps are real if there are recordings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as for every process of the daemon

import cv2

from benchmarks.frames import SENSORS, make_rig
from benchmarks.harness import Figure, Option, Run
from benchmarks.rig_drivers._player import make_player
from drivers.kit.encode import Encoder
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.viewers.live.views import Drawing, make_view

SAMPLES = 12
OPTIONS = {"rounds": Option("int", 5, "drawings of each sample", minimum=1)}
QUICK = {"rounds": 2}
VIEWS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("camera", "picture", {}),
    ("camera", "picture", {"width": 960}),
    ("camera", "picture", {"width": 480}),
    ("lidar", "sweep", {}),
    ("lidar", "sweep", {"points": 32_768}),
    ("lidar", "sweep", {"points": 32_768, "intensity": "near_ir"}),
    ("radar", "range_doppler", {}),
    ("radar", "range_doppler", {"detections": 0}),
    ("radar", "range_azimuth", {}),
    ("radar", "range_azimuth", {"detections": 0}),
    ("imu", "series", {}),
)


def messages(frames: Path, sensor: str) -> tuple[StreamSpec, list[Message]]:
    """Return the stream of a sensor of the rig load, and its first messages."""
    driver = make_player(frames, sensor)
    if sensor == "imu":
        vars(driver)["batch"] = 20  # as every 200 ms
    (spec,) = driver.open()
    encoder, made = Encoder(spec), []
    for _ in range(SAMPLES):
        item = driver.read()
        parts, sizes = encoder.encode(item)
        made.append(
            Message(
                Kind.DATA, sensor, count=item.count, t_mono_ns=item.t_ns,
                t_dev_ns=item.t_dev_ns, sizes=sizes, frames=parts,
            )
        )  # fmt: skip
    driver.close()
    return spec, made


def costs_ms(action: Callable[[Message], object], given: list[Message]) -> list[float]:
    """Return the CPU time of an action on each message, in ms."""
    times = []
    for message in given:
        started_s = time.thread_time()
        action(message)
        times.append(1e3 * (time.thread_time() - started_s))
    return times


def size(drawing: Drawing | None) -> int:
    """Return the bytes of a drawing's arrays."""
    arrays: list[Any] = [] if drawing is None else [data for _, data in drawing.arrays]
    return sum(data.nbytes if hasattr(data, "nbytes") else len(data) for data in arrays)


def measure(run: Run) -> Iterator[Figure]:
    """Measure a drawing of every view of each sensor."""
    cv2.setNumThreads(1)
    frames = make_rig(run)
    loaded = {sensor: messages(frames, sensor) for sensor in SENSORS}
    for sensor, name, options in VIEWS:
        spec, given = loaded[sensor]
        view = make_view(spec, name, options)
        label = ", ".join([f"{sensor}, {name}", *(f"{k} {v}" for k, v in options.items())])
        times = costs_ms(lambda message, v=view: v.draw([message]), given * run.options["rounds"])  # type: ignore[misc]
        yield Figure(label, times, "ms")
        kilobytes = [size(view.draw([message])) / 1e3 for message in given]
        yield Figure(f"{label}, size", kilobytes, "kB")
