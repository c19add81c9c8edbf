"""Cost of drawing each live view.

CPU time of one thread and bytes, medians over the samples of the rig load (1080p, 128x1024 sweeps,
radar frames of 786 kB, 20 IMU samples), from the encoded message to the drawing.  Pictures and
sweeps are real if there are recordings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as for every process of the daemon

import cv2

from benchmarks.frames import HEIGHT, PCAP, VIDEO, WIDTH
from benchmarks.harness import Figure, Option, Run
from drivers.camera.driver import CameraDriver
from drivers.kit.driver import Driver, EndOfSource, Sample, SensorConfig
from drivers.kit.encode import Encoder
from drivers.mmwave.driver import MmwaveDriver
from drivers.ouster.driver import OusterDriver
from drivers.xsens.driver import XsensDriver
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.config.options import check_options
from recorder.viewers.live.views import Drawing, make_view

SAMPLES = 12
OPTIONS = {"rounds": Option("int", 5, "drawings of each sample", minimum=1)}
QUICK = {"rounds": 2}
_METADATA = "ouster/OS-1-128_v2.3.0_1024x10.json"
_SOURCES: dict[str, tuple[type[Driver], str, str, dict[str, Any]]] = {
    "camera": (CameraDriver, "file", VIDEO, {"width": WIDTH, "height": HEIGHT}),
    "lidar": (OusterDriver, "pcap", PCAP, {}),
    "radar": (MmwaveDriver, "", "", {}),
    "imu": (XsensDriver, "", "", {"batch_ms": 200.0}),
}
"""Driver, scheme and path of the recording (if there is one), and options."""
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


def messages(sensor: str, recordings: Path | None) -> Iterator[tuple[StreamSpec, Message]]:
    """Yield the first messages of a sensor of the rig load."""
    kind, scheme, address, options = _SOURCES[sensor]
    source = str(recordings / address) if recordings is not None and scheme else ""
    if recordings is not None and sensor == "lidar":
        options = {"metadata": str(recordings / _METADATA)}
    config = SensorConfig(
        sensor,
        scheme if source else "sim",
        source,
        check_options(kind.options, options),
    )
    driver: Driver = kind(config)
    specs = {spec.name: spec for spec in driver.open()}
    encoder = Encoder(specs[sensor])
    try:
        while True:
            item = driver.read()
            if isinstance(item, Sample) and item.stream == sensor:
                frames, sizes = encoder.encode(item)
                yield (
                    specs[sensor],
                    Message(
                        Kind.DATA, sensor, count=item.count, t_mono_ns=item.t_ns,
                        t_dev_ns=item.t_dev_ns, sizes=sizes, frames=frames,
                    ),
                )  # fmt: skip
    except EndOfSource:
        pass
    finally:
        driver.close()


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
    loaded: dict[str, tuple[StreamSpec, list[Message]]] = {}
    for sensor, name, options in VIEWS:
        if sensor not in loaded:
            made = list(islice(messages(sensor, run.recordings), SAMPLES))
            loaded[sensor] = made[0][0], [message for _, message in made]
            real = bool(_SOURCES[sensor][1]) and run.recordings is not None
            run.data[sensor] = f"{len(made)} {'real' if real else 'simulated'} samples"
        spec, given = loaded[sensor]
        view = make_view(spec, name, options)
        label = ", ".join([f"{sensor}, {name}", *(f"{k} {v}" for k, v in options.items())])
        times = costs_ms(lambda message, v=view: v.draw([message]), given * run.options["rounds"])  # type: ignore[misc]
        yield Figure(label, times, "ms")
        kilobytes = [size(view.draw([message])) / 1e3 for message in given]
        yield Figure(f"{label}, size", kilobytes, "kB")
