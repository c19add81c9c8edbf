"""Recording of a camera's unchanged H.264 from RTSP: CPU of the driver and of the writer.

A separate process serves 1080p at 30 Hz and 8 Mbit/s (x264, constant bit rate, a keyframe a second)
over RTSP, as the emulated camera of the drivers.  ``recorder run`` records it with
``codec: copy``, and in turns decodes it and encodes it as JPEG.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.harness import Figure, Option, Run, run_emulator, spawn
from benchmarks.recording import Recording, record_measured
from drivers.camera.driver import CameraDriver
from drivers.camera.rtsp.emulator import RtspCameraEmulator
from recorder.config.options import check_options
from recorder.config.settings import SensorEntry

OPTIONS = {
    "seconds": Option("float", 20.0, "length of a long run", minimum=4.0),
    "rounds": Option("int", 3, "repetitions", minimum=1),
    "mbit": Option("float", 8.0, "bit rate of the camera, Mbit/s", minimum=0.1),
}
QUICK = {"seconds": 6.0, "rounds": 1}
_SIZE: Final = (1920, 1080)
_FPS: Final = 30
_SPARE_S: Final = 20  # which the recorder takes to end
_LOOP: Final = 3 * _FPS  # pictures of the video, which repeats


def measure(run: Run) -> Iterator[Figure]:
    """Record with and without copying, in turns."""
    seconds = run.options["seconds"]
    video = run.folder / "camera.h264"
    mbit = make_video(video, run.options["mbit"], round(seconds) + _SPARE_S)
    run.data["camera"] = f"1080p at {_FPS} Hz, {mbit:.2f} Mbit/s of H.264"
    ways = {codec: partial(_record, run, video, codec, seconds) for codec in ("copy", "jpeg")}
    with run.scratch() as folder:
        _record(run, video, "copy", 2.0, folder)  # fills caches
    done = run.take_turns(ways)
    yield Figure("driver", [r.cpu["camera"] / seconds for r in done["copy"]], "s/s")
    yield Figure("writer", [r.cpu["writer"] / seconds for r in done["copy"]], "s/s")
    yield Figure("decoding driver", [r.cpu["camera"] / seconds for r in done["jpeg"]], "s/s")
    lost = [
        sum(sum(r.streams["camera"]["lost"].values()) for r in pair)
        for pair in zip(*done.values(), strict=False)
    ]
    yield Figure("pictures lost", lost, "")


def _record(run: Run, video: Path, codec: str, seconds: float, folder: Path) -> Recording:
    """Record a session of an emulated camera that sends the video."""
    options = check_options(CameraDriver.options, {"fps": float(_FPS), "transport": "tcp"})
    entry = SensorEntry("camera", "camera", "file", str(video), options)
    with spawn(run_emulator, RtspCameraEmulator, entry) as camera:
        source, _, _ = camera.recv()
        sensor = {"driver": "camera", "source": source, "codec": codec, "transport": "tcp"}
        made = record_measured(folder, {"camera": sensor}, seconds, ("--no-finalize",))
    count = made.streams["camera"]["samples"]
    if count < 0.9 * _FPS * (seconds - 1):
        run.note(f"{codec}: {count} pictures in {seconds:g} s")
    return made


def make_video(path: Path, mbit: float, seconds: int) -> float:
    """Write a video that repeats a few seconds of H.264; return its bit rate, Mbit/s."""
    import av

    kbit = round(mbit * 1000)
    rate = f"bitrate={kbit}:vbv-maxrate={kbit}:vbv-bufsize={kbit // 4}:nal-hrd=cbr"
    x264 = f"{rate}:keyint={_FPS}:min-keyint={_FPS}:scenecut=0:bframes=0:log-level=none"
    options = {"preset": "ultrafast", "tune": "zerolatency", "x264-params": x264}
    with av.open(str(path), "w", format="h264") as container:
        stream: Any = container.add_stream("libx264", rate=_FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = *_SIZE, "yuv420p"
        coarse = np.random.default_rng(1).integers(0, 256, (270, 480, 3)).astype(np.uint8)
        image = coarse.repeat(4, axis=0).repeat(4, axis=1)
        for index in range(_LOOP):
            rolled = np.ascontiguousarray(np.roll(image, 3 * index, axis=1))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(rolled, format="rgb24")))
        container.mux(stream.encode())
    once = path.read_bytes()
    path.write_bytes(once * -(-seconds * _FPS // _LOOP))
    return len(once) * 8 * _FPS / _LOOP / 1e6
