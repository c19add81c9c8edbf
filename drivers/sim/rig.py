"""Options of simulated cameras and IMUs, and their construction; for drivers and labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from drivers.sim.camera import SimulatedCamera
from drivers.sim.imu import SimulatedImu
from drivers.sim.lens import DISTORTION, Lens
from drivers.sim.mti_models import MODEL_OPTION
from drivers.sim.world import SCENE_OPTION, World, mounts
from drivers.sim.world.noise import noise_seed
from recorder.contract.config.options import Option, OptionTable
from recorder.contract.errors import SourceError

SIM_SIZE: Final = 1280, 720
SIM_FPS: Final = 30.0

_SEED: Final = Option("int", 0, "sim: same seed, same data", minimum=0, maximum=2**63 - 1)

SIM_CAMERA_OPTIONS: Final[OptionTable] = {
    "scene": SCENE_OPTION,
    "seed": _SEED,
    "noise": Option("float", 0.0, "sim: scale of the pixels' noise", minimum=0.0, maximum=20.0),
    "mount": mounts.MOUNT_OPTION,
    "focal_px": Option(
        "float", None, "sim: focal length in pixels (default: 0.75 of the longer side)", minimum=1.0
    ),
    "distortion": Option("list", None, "sim: k1, k2, p1, p2, k3 as in OpenCV", items="float"),
    "readout_ms": Option(
        "float",
        0.0,
        "sim, live: readout of the rolling shutter, from first to last row [ms]",
        minimum=0.0,
        maximum=100.0,
    ),
    "exposure_ms": Option(
        "float",
        0.0,
        "exposure time [ms]; sim: blurs motion; live: if the device does not report it",
        minimum=0.0,
        maximum=1000.0,
    ),
    "gain": Option("float", 1.0, "sim: brightness", minimum=0.0, maximum=16.0),
}

SIM_IMU_OPTIONS: Final[OptionTable] = {
    "scene": SCENE_OPTION,
    "seed": _SEED,
    "noise": Option("float", 1.0, "sim: scale of bias and noise", minimum=0.0, maximum=1000.0),
    "model": MODEL_OPTION,
    "mount": mounts.MOUNT_OPTION,
}


def simulated_camera(
    name: str,
    options: Mapping[str, Any],
    size: tuple[int, int],
    fps: float,
    world: World | None = None,
    *,
    prepared: bool = True,
) -> SimulatedCamera:
    """Make the camera that a sensor's checked options describe.

    Args:
        name: the sensor's name, for messages.
        options: see `SIM_CAMERA_OPTIONS`.
        size: (width, height) in pixels.
        fps: pictures per second.
        world: the world, if it already exists.
        prepared: see `SimulatedCamera`.

    Raises:
        SourceError: an invalid mount or distortion; the message names sensor and option.
    """
    lens = lens_of(name, options, size)
    try:
        return SimulatedCamera(
            world or World(options["scene"], options["seed"]),
            lens,
            mounts.mount_of(name, options["mount"], mounts.CAMERA),
            fps=fps,
            readout_s=options["readout_ms"] / 1e3,
            exposure_s=options["exposure_ms"] / 1e3,
            gain=options["gain"],
            noise=options["noise"],
            seed=noise_seed(options["seed"], name, "camera"),
            prepared=prepared,
        )
    except ValueError as error:
        raise SourceError(f"{name}: distortion: {error}") from None


def lens_of(name: str, options: Mapping[str, Any], size: tuple[int, int]) -> Lens:
    """Make the lens of a sensor's options; SourceError for a wrong number of terms."""
    terms = options["distortion"]
    if terms is None:
        return Lens.default(*size, options["focal_px"])
    if len(terms) != len(DISTORTION):
        raise SourceError(f"{name}: distortion: {len(terms)} numbers instead of {len(DISTORTION)}")
    k1, k2, p1, p2, k3 = (float(term) for term in terms)
    return Lens.default(*size, options["focal_px"], (k1, k2, p1, p2, k3))


def simulated_imu(name: str, options: Mapping[str, Any], rate_hz: float) -> SimulatedImu:
    """Make the IMU that a sensor's checked options describe.

    Raises:
        SourceError: an invalid mount; the message names sensor and option.
    """
    return SimulatedImu(
        rate_hz,
        World(options["scene"], options["seed"]),
        mounts.mount_of(name, options["mount"], mounts.IMU),
        options["noise"],
        noise_seed(options["seed"], name, "imu"),
    )
