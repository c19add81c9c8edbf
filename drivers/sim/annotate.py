"""Labels from the truth for a finished session of simulated sensors (docs/labels.md).

Usage::

    written = annotate(Path("sessions/demo_2026_01_01_10_00_00"))
    written["_cuboids/truth.jsonl"]        # lines in it, without the header

The session's own config names the world; the stamps are the recorded ones.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from drivers.camera.model import SIM_CAMERA_OPTIONS, SIM_FPS, make_camera, make_lens
from drivers.kit.simulated_clock import ClockError
from drivers.sim import truth
from drivers.sim.calibration import OF_SESSION, Placed, calibration_text
from drivers.world import World, mounts, world_settings
from recorder.codecs.raw_pixels import raw_pixels
from recorder.common.errors import SessionError
from recorder.config.options import check_options
from recorder.config.yaml_lines import read_yaml

CUBOIDS: Final = "_cuboids/truth.jsonl"
POSE: Final = "_pose"
CALIBRATION: Final = "calibration.yaml"
POSE_PERIOD_NS: Final = 10_000_000

_VIDEO: Final = "video.avi"
_FRAMED: Final = ("rng", "iq")  # channels of other sensors that record frames
_MOUNTS: Final = {
    _VIDEO: mounts.CAMERA,
    "rng": mounts.LIDAR,
    "iq": mounts.RADAR,
    "acc": mounts.IMU,
}
"""Default mounts by a channel of the sensor."""

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SimulatedSensor:
    """A sensor of the session whose source is ``sim:``.

    Attributes:
        name: its name, which is also its folder's name.
        entry: its entry in the config.
        channels: the content of its folder's ``meta.json``.
        t_ns: int64 [n], true world times of its samples.
        stamps: int64 [n], the recorded times, which the error of its clock separates from `t_ns`.
    """

    name: str
    entry: Mapping[str, Any]
    channels: Mapping[str, Any]
    t_ns: Times
    stamps: Times

    @property
    def world(self) -> dict[str, Any]:
        """What describes its world."""
        return world_settings(self.entry)

    @property
    def pictures(self) -> str:
        """A camera's channel with pictures, JPEGs or raw; empty for other sensors."""
        found = (n for n, e in self.channels.items() if n == _VIDEO or raw_pixels(n, e))
        return next(found, "")


@dataclass(frozen=True, slots=True)
class SimulatedSession:
    """The properties of a session that labels need.

    Attributes:
        path: its folder.
        start_ns: epoch ns of world time 0.
        start_mono_ns: monotonic ns of world time 0.
        sensors: the sensors with a ``sim:`` source and samples, in the config's order.
    """

    path: Path
    start_ns: int
    start_mono_ns: int
    sensors: tuple[SimulatedSensor, ...]


def annotate(session: Path) -> dict[str, int]:
    """Write labels and the true trajectory into a session; repeated calls write the same.

    The files are ``_cuboids/truth.jsonl``; for each camera ``_labels/CAMERA.jsonl`` and
    ``_masks/CAMERA/ego.png``; for each camera, lidar and radar ``_NAME/pose.npz``; ``_pose/``; and
    ``calibration.yaml`` for a session without one.
    Each file is renamed into place when it is complete.

    Returns:
        By file, the number of labels (masks: 1, poses: samples) in it.

    Raises:
        SessionError: the folder is not a finished session, has no simulated sensor with samples,
            or its sensors recorded different worlds.
    """
    read = read_session(session)
    world = World(**_common_world(read))
    cameras = [sensor for sensor in read.sensors if sensor.pictures]
    lidars = [sensor for sensor in read.sensors if "rng" in sensor.channels]
    written: dict[str, int] = {}
    radars = [sensor for sensor in read.sensors if "iq" in sensor.channels]
    timed = (lidars or cameras or radars)[:1]
    if timed:
        t_ns = timed[0].t_ns
        header = {
            "format": "recorder-cuboids",
            "version": 1,
            "source": "simulated",
            "times_of": timed[0].name,
        }
        lines = truth.cuboids(world, t_ns, (timed[0].stamps + read.start_ns).tolist())
        written[CUBOIDS] = _write_lines(read.path / CUBOIDS, header, lines)
    for camera in cameras:
        _annotate_camera(read, world, camera, written)
    _write_calibration(read, written)
    for sensor in read.sensors:
        if sensor.pictures or not sensor.channels.keys().isdisjoint(_FRAMED):
            _write_sensor_poses(read, world, sensor, written)
    _write_poses(read, world, written)
    return written


def read_session(path: Path) -> SimulatedSession:
    """Read the simulated sensors of a finished session.

    Raises:
        SessionError: see `annotate`.
    """
    try:
        header = json.loads((path / "_recorder" / "session.json").read_bytes())
        state, start_ns = header["state"], int(header["start_ns"])
        start_mono_ns = int(header["start_mono_ns"])
    except FileNotFoundError:
        raise SessionError(f"{path}: not a session of the recorder (no session.json)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SessionError(f"{path}: session.json is unusable: {error!r}") from None
    if state == "recording":
        raise SessionError(f"{path}: is not finished (state {state}); try `recorder recover`")
    config = read_yaml(path / "config.yaml").values
    entries = config.get("sensors")
    sensors = []
    for name, entry in (entries if isinstance(entries, dict) else {}).items():
        if isinstance(entry, dict) and str(entry.get("source", "")).startswith("sim:"):
            try:
                channels = json.loads((path / name / "meta.json").read_bytes())
                t_mono = np.fromfile(path / name / "t_mono", "<u8").astype(np.int64)
            except OSError:
                continue  # the sensor recorded no sample
            except ValueError as error:
                raise SessionError(f"{path / name}: meta.json is unusable: {error}") from None
            if len(t_mono):
                stamps = t_mono - start_mono_ns
                clock = ClockError.of(name, entry.get("clock") or {}, 0)
                true_ns = clock.true_times(stamps) if clock else stamps
                sensors.append(SimulatedSensor(name, entry, channels, true_ns, stamps))
    if not sensors:
        raise SessionError(f"{path}: has no sensor with samples from a simulated source")
    return SimulatedSession(path, start_ns, start_mono_ns, tuple(sensors))


def _common_world(session: SimulatedSession) -> dict[str, Any]:
    worlds: dict[str, str] = {}
    for sensor in session.sensors:
        about = ", ".join(f"{key} {value}" for key, value in sensor.world.items())
        worlds.setdefault(about, sensor.name)
    if len(worlds) > 1:
        reported = ", ".join(f"{name}: {about}" for about, name in worlds.items())
        raise SessionError(f"{session.path}: its sensors recorded different worlds ({reported})")
    return session.sensors[0].world


def _annotate_camera(
    session: SimulatedSession, world: World, sensor: SimulatedSensor, written: dict[str, int]
) -> None:
    name = sensor.name
    options = _camera_options(sensor)
    width, height = _read_size(sensor)
    # Noise does not matter here, and the stamps contain the rate.
    options |= {"noise": 0.0}
    camera = make_camera(name, options, (width, height), SIM_FPS, world, prepared=False)
    shift_s = options["exposure_ms"] / 2e3
    lines = (
        truth.box_line(world, box, frame, stamp + session.start_ns)
        for frame, (t_ns, stamp) in enumerate(
            zip(sensor.t_ns.tolist(), sensor.stamps.tolist(), strict=True)
        )
        for box in truth.boxes(camera, t_ns / 1e9 - shift_s)
    )
    header = {
        "format": "recorder-boxes",
        "version": 1,
        "source": "simulated",
        "camera": name,
        "resolution": [width, height],
    }
    file = f"_labels/{name}.jsonl"
    written[file] = _write_lines(session.path / file, header, lines)
    mask = f"_masks/{name}/ego.png"
    _write(session.path / mask, _png(truth.ego_mask(camera)))
    written[mask] = 1


def _camera_options(sensor: SimulatedSensor) -> dict[str, Any]:
    chosen = {key: value for key, value in sensor.entry.items() if key in SIM_CAMERA_OPTIONS}
    return check_options(SIM_CAMERA_OPTIONS, chosen, f"sensors.{sensor.name}")


def _read_size(camera: SimulatedSensor) -> tuple[int, int]:
    """Return width and height of the recorded pictures."""
    height, width = camera.channels[camera.pictures]["shape"][:2]
    return width, height


def _write_calibration(session: SimulatedSession, written: dict[str, int]) -> None:
    """Write the mounts and lenses of the sensors, unless the session's config had a calibration."""
    path = session.path / CALIBRATION
    if path.exists() and not path.read_text("utf-8", "replace").startswith(OF_SESSION):
        return
    placed = []
    for sensor in session.sensors:
        channels = {*sensor.channels, _VIDEO} if sensor.pictures else {*sensor.channels}
        kinds = (mount for channel, mount in _MOUNTS.items() if channel in channels)
        if (default := next(kinds, None)) is None:
            continue
        lens, rolling = None, False
        if sensor.pictures:
            options = _camera_options(sensor)
            lens = make_lens(sensor.name, options, _read_size(sensor))
            rolling = options["readout_ms"] > 0
        mount = mounts.make_mount(sensor.name, sensor.entry.get("mount"), default)
        placed.append(Placed(sensor.name, mount, lens, rolling))
    _write(path, calibration_text(placed).encode())
    written[CALIBRATION] = len(placed)


def _write_poses(session: SimulatedSession, world: World, written: dict[str, int]) -> None:
    """Write the virtual sensor ``_pose``: 100 Hz, from the start until after the last sample."""
    last_ns = max(int(sensor.stamps[-1]) for sensor in session.sensors)
    t_ns = np.arange(max(last_ns, 0) // POSE_PERIOD_NS + 2, dtype=np.int64) * POSE_PERIOD_NS
    texts = {
        "ts": "time, epoch seconds",
        "t_mono": "time on the host's monotonic clock, ns",
        "pos": "position of the rig in the world, m",
        "rot": "rotation matrix, rig to world",
        "vel": "velocity of the rig in the world, m/s",
        "acc": "acceleration of the rig in the world, without gravity, m/s^2",
    }
    values: dict[str, npt.NDArray[Any]] = {
        "ts": ((t_ns + session.start_ns) / 1e9).astype("<f8"),
        "t_mono": (t_ns + session.start_mono_ns).astype("<u8"),
        **truth.poses(world, t_ns),
    }
    meta = {
        name: {
            "format": "raw",
            "type": array.dtype.str[1:],
            "shape": list(array.shape[1:]),
            "desc": texts[name],
        }
        for name, array in values.items()
    }
    folder = session.path / POSE
    for name, array in values.items():
        _write(folder / name, array.tobytes())
    # Written last: a folder with a meta.json is a sensor.
    _write(folder / "meta.json", json.dumps(meta, indent=2).encode())
    written[POSE] = len(t_ns)


def _write_sensor_poses(
    session: SimulatedSession, world: World, sensor: SimulatedSensor, written: dict[str, int]
) -> None:
    """Write ``_NAME/pose.npz``, the rig's pose at a sensor's samples, for roverd's Pose."""
    poses = truth.poses(world, sensor.t_ns)
    bundle = io.BytesIO()
    t_s = (sensor.stamps + session.start_ns) / 1e9
    np.savez(bundle, t=t_s, pos=poses["pos"], rot=poses["rot"], vel=poses["vel"], acc=poses["acc"])
    file = f"_{sensor.name}/pose.npz"
    _write(session.path / file, bundle.getvalue())
    written[file] = len(t_s)


def _png(image: npt.NDArray[np.uint8]) -> bytes:
    import cv2

    done, data = cv2.imencode(".png", image)
    if not done:
        raise SessionError("the mask cannot be encoded as PNG")
    return bytes(data.data)


def _write_lines(path: Path, header: Mapping[str, Any], lines: Iterable[str]) -> int:
    """Write a header and lines; return the number of lines."""
    count = 0
    with _replace_file(path) as file:
        file.write(json.dumps(header).encode("ascii") + b"\n")
        for line in lines:
            file.write(line.encode("ascii") + b"\n")
            count += 1
    return count


def _write(path: Path, data: bytes) -> None:
    with _replace_file(path) as file:
        file.write(data)


@contextlib.contextmanager
def _replace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that is durably renamed to `path` once it is complete; make its folders."""
    for folder in reversed([path.parent, *path.parent.parents]):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(0o750)
            _sync_folder(folder.parent)
    part = path.with_name(f".{path.name}.part")
    with open(part, "wb", opener=_open) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _open(path: str, flags: int) -> int:
    """Open with the mode of a session's files: not readable by others."""
    return os.open(path, flags, 0o640)
