"""Frames of the rig load: made once, stored in files, the same for all recorders.

The frames come from real recordings if their folder exists, and are simulated otherwise; frames of
the radar and the IMU are always simulated.  A player loads all frames of a sensor into memory
before a capture begins, so that a frame costs nothing during the capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from benchmarks.harness import Run
from drivers.camera.driver import CameraDriver
from drivers.kit.driver import Driver, EndOfSource, Sample, SensorConfig
from drivers.mmwave.driver import SIM_CHIRP
from drivers.mmwave.model import SimulatedRadar
from drivers.ouster.driver import OusterDriver
from drivers.world.imu import SimulatedImu
from recorder.config.options import check_options

Array = npt.NDArray[Any]

VIDEO: Final = "camera/solidWhiteRight.mp4"
PCAP: Final = "ouster/OS-1-128_v2.3.0_1024x10_lb_n3.pcap"

LIDAR_JSON: Final = "lidar.json"
"""Name of the sensor's metadata beside its frames, as in the files of its stream."""

WIDTH, HEIGHT = 1920, 1080
BEAMS, COLUMNS = 128, 1024

_PICTURES = 24  # 6.2 MB each
_SIM_SWEEPS = 6
_RADAR_FRAMES = 16
_IMU_SAMPLES = 1000


@dataclass(frozen=True, slots=True)
class RigSensor:
    """Sensor of the rig load, with its rate."""

    name: str
    rate_hz: int

    @property
    def period_ns(self) -> int:
        return 1_000_000_000 // self.rate_hz


SENSORS: Final = {
    rig.name: rig
    for rig in (
        RigSensor("camera", 30),
        RigSensor("lidar", 10),
        RigSensor("radar", 20),
        RigSensor("imu", 100),
    )
}


def make_frames(folder: Path, recordings: Path | None) -> dict[str, str]:
    """Make the frames of all sensors, one ``SENSOR.npz`` each.

    Args:
        folder: folder of the files; it must exist.
        recordings: the folder of the real recordings; None: simulate all.

    Returns:
        the origin of each sensor's frames, for people.
    """
    origins = {}
    video = recordings and recordings / VIDEO
    if video is not None and video.is_file():
        step = 221 // _PICTURES  # over all of the drive, not its first second
        pictures = [image for k, image in enumerate(_pictures("file", video)) if k % step == 0]
        origins["camera"] = f"real video ({video.name}), scaled to {WIDTH}x{HEIGHT}"
    else:
        pictures = list(_pictures("sim", None))
        origins["camera"] = f"simulated picture, {WIDTH}x{HEIGHT}"
    np.savez(folder / "camera.npz", image=np.stack(pictures[:_PICTURES]))
    pcap = recordings and recordings / PCAP
    if pcap is not None and pcap.is_file():
        sweeps = list(_sweeps("pcap", pcap, folder))
        origins["lidar"] = f"{len(sweeps)} real sweeps ({pcap.name})"
    else:
        sweeps = list(_sweeps("sim", None, folder))
        origins["lidar"] = f"{len(sweeps)} simulated sweeps, {BEAMS}x{COLUMNS}"
    arrays: dict[str, Any] = {k: np.stack([s[k] for s in sweeps]) for k in sweeps[0]}
    np.savez(folder / "lidar.npz", **arrays)
    radar = SimulatedRadar(SIM_CHIRP, "qqii")
    np.savez(folder / "radar.npz", iq=np.stack([radar.frame(k) for k in range(_RADAR_FRAMES)]))
    origins["radar"] = f"simulated IQ, {SIM_CHIRP.frame_bytes} bytes a frame"
    imu = SimulatedImu(SENSORS["imu"].rate_hz).samples(0, _IMU_SAMPLES)
    np.savez(folder / "imu.npz", acc=imu.acc, avel=imu.avel, rot=imu.rot)
    origins["imu"] = "simulated motion"
    return origins


def make_rig(run: Run) -> Path:
    """Make the frames of all sensors in the run's folder, once; return their folder."""
    folder = run.folder / "frames"
    if not folder.exists():
        folder.mkdir()
        run.data |= make_frames(folder, run.recordings)
    return folder


def load_frames(folder: Path, sensor: str) -> dict[str, Array]:
    """Load a sensor's frames into memory, by channel, arrays [frames, ...].

    camera ``image`` u1 [n, 1080, 1920, 3] (BGR); lidar as ouster-sdk decodes it ``RANGE`` u4 mm,
    ``REFLECTIVITY`` u1, ``NEAR_IR`` u2, each [n, 128, 1024], and ``t_col`` u8 ns [n, 1024]; radar
    ``iq`` i2 [n, chirps, tx, rx, values]; imu ``acc``, ``avel``, ``rot`` f4 [n, 3].
    """
    with np.load(folder / f"{sensor}.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


def _read_samples(driver: Driver, count: int) -> Iterator[Sample]:
    """Yield the first samples of an open driver, and close it."""
    try:
        for _ in range(count):
            if isinstance(item := driver.read(), Sample):
                yield item
    except EndOfSource:
        pass
    finally:
        driver.close()


def _pictures(scheme: str, path: Path | None) -> Iterator[Array]:
    options = check_options(CameraDriver.options, {"width": WIDTH, "height": HEIGHT})
    driver = CameraDriver(SensorConfig("camera", scheme, str(path or ""), options))
    driver.open()
    for sample in _read_samples(driver, _PICTURES if path is None else 100_000):
        values = sample.data["video.avi"]
        if isinstance(values, np.ndarray):
            yield values[0]
        else:
            image = cv2.imdecode(np.frombuffer(values[0], np.uint8), cv2.IMREAD_COLOR)
            assert image is not None
            yield image


def _sweeps(scheme: str, path: Path | None, folder: Path) -> Iterator[dict[str, Array]]:
    given: dict[str, Any] = {"imu": False, "compression": "raw"}
    if path is not None:
        given["metadata"] = str(path.parent / "OS-1-128_v2.3.0_1024x10.json")
    options = check_options(OusterDriver.options, given)
    driver = OusterDriver(SensorConfig("lidar", scheme, str(path or ""), options))
    (folder / LIDAR_JSON).write_text(driver.open()[0].files[LIDAR_JSON])
    for sample in _read_samples(driver, _SIM_SWEEPS):
        data = {k: v[0] for k, v in sample.data.items() if isinstance(v, np.ndarray)}
        yield {
            "RANGE": data["rng"] + data["rng_far"],
            "REFLECTIVITY": data["rfl"],
            "NEAR_IR": data["nir"],
            "t_col": data["t_col"],
        }
