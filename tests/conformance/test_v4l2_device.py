"""The driver's own system calls on a capture device in user space (`v4l2_device.c`).

The device is built from the kernel's header, so that what the driver passes in its structures is
read as the kernel would read it; calls, mapping and polling are the real ones.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.drivers.camera.rig import jpeg

pytestmark = pytest.mark.conformance

HERE = Path(__file__).resolve().parent
DEVICE = "/dev/video77"
JPEGS = [jpeg(k, (64, 48)) for k in range(8)]
SEQUENCES = [0, 1, 2, 5, 6, 7, 8, 10]
PROGRAM = """
import hashlib, json, sys
from drivers.kit.driver import Lost, Sample, SensorConfig, State
from drivers.camera.driver import CameraDriver
from recorder.common.errors import RecorderError
from recorder.config.options import check_options

options = check_options(CameraDriver.options, json.loads(sys.argv[2]))
camera = CameraDriver(SensorConfig("front", "v4l2", sys.argv[1], options))
found = {"samples": [], "exposures": [], "times": [], "lost": [], "states": []}
try:
    (spec,) = camera.open()
    found["spec"] = spec.to_wire()
    while True:
        item = camera.read()
        if isinstance(item, Sample):
            (data,) = item.data["video.avi"]
            found["samples"].append(bytes(data).hex())
            found["exposures"].extend(map(int, item.data.get("exposure", [])))
            found["times"].append(int(item.t_ns[0]))
        elif isinstance(item, Lost):
            found["lost"].append([item.cause, item.count, len(found["samples"])])
        elif isinstance(item, State):
            found["states"].append(item.values)
except RecorderError as error:
    found["end"] = f"{type(error).__name__}: {error}"
camera.close()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not Path("/usr/include/linux/videodev2.h").exists():
        pytest.skip("no C compiler, or no header of V4L2: its calls are not tested")
    library = tmp_path_factory.mktemp("shim") / "v4l2_device.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror",
         "-o", str(library), str(HERE / "v4l2_device.c")],
        check=True,
    )  # fmt: skip
    return library


def run(shim: Path, folder: Path, pictures: Sequence[bytes] = (), **options: Any) -> dict[str, Any]:
    """What the driver records of JPEGs, or of `pictures` of a multi-planar device."""
    frames = folder / "frames"
    padded = list(pictures) or [data + bytes(13 * k) for k, data in enumerate(JPEGS)]
    frames.write_bytes(
        b"".join(
            struct.pack("=II", sequence, len(data)) + data
            for sequence, data in zip(SEQUENCES, padded, strict=True)
        )
    )
    more = {"LD_PRELOAD": str(shim), "V4L2_PATH": DEVICE, "V4L2_FRAMES": str(frames)}
    if pictures:
        more["V4L2_PLANES"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, DEVICE, json.dumps(options)],
        env={**os.environ, **more},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_recording_from_open_to_unplugging(shim: Path, tmp_path: Path) -> None:
    wanted = {"exposure_time_absolute": 80, "auto_exposure": "manual mode"}
    found = run(shim, tmp_path, width=64, height=48, fps=20, controls=wanted)
    assert found["end"] == f"DeviceError: front: v4l2:{DEVICE}: no such device"
    assert [bytes.fromhex(data) for data in found["samples"]] == JPEGS
    assert found["lost"] == [["device", 2, 3], ["device", 1, 7]]
    steps = [b - a for a, b in zip(found["times"], found["times"][1:], strict=False)]
    # The kernel's stamps, in whole microseconds, not when this busy machine came to look.
    assert all(abs(step - 10_000_000) <= 1000 for step in steps)
    assert found["exposures"] == [8000] * 8
    assert found["spec"]["rate_hz"] == 20.0
    assert found["spec"]["channels"][0]["shape"] == [48, 64, 3]
    (state,) = found["states"]
    assert state["controls"] == {"auto_exposure": "Manual Mode", "exposure_time_absolute": 80}
    assert state["card"] == "Camera in user space"
    assert state["stamps"] == "kernel, start of exposure"
    assert state["stamps_added_ms"] == {"exposure": "channel exposure"}
    assert "controls_differ" not in state


def test_a_multi_planar_device(shim: Path, tmp_path: Path) -> None:
    """NV12M: grey of 8 values, in rows of 64 bytes and 16 bytes of padding."""
    row = 64 + 16
    pictures = [bytes([40 + 20 * k]) * (48 * row) + b"\x80" * (24 * row) for k in range(8)]
    found = run(shim, tmp_path, pictures)
    assert found["end"] == f"DeviceError: front: v4l2:{DEVICE}: no such device"
    assert found["lost"] == [["device", 2, 3], ["device", 1, 7]]
    (state,) = found["states"]
    assert state["pixel_format"] == "NM12"
    values = [np.frombuffer(bytes.fromhex(data), np.uint8) for data in found["samples"]]
    assert [len(value) for value in values] == [48 * 64 * 3] * 8
    for k, value in enumerate(values):
        assert np.abs(value.astype(float) - (24 + 20 * k) * 255 / 219).max() <= 2


def test_what_the_device_refuses(shim: Path, tmp_path: Path) -> None:
    found = run(shim, tmp_path, width=800, height=600)
    assert "gives MJPG 640x480 instead of the requested MJPG 800x600" in found["end"]
    found = run(shim, tmp_path, width=64, controls={"exposure_time_absolute": 80})
    assert "rejects 80 (Permission denied)" in found["end"]
    found = run(shim, tmp_path, pixel_format="YUYV")
    assert "is in use by another program" in found["end"]
