"""The calibration file: poses of sensors, and models of cameras.

::

    sensors:
      camera:
        T_sensor_rig: {translation_m: [1.7, 0.0, 1.45], quaternion_xyzw: [-0.5, 0.5, -0.5, 0.5]}
        model: opencv-pinhole
        parameters: {fx: 960.0, fy: 960.0, cx: 639.5, cy: 359.5, k1: -0.12}
        resolution: [1280, 720]
        calibrated_at: "2026-01-01"
      radar:
        antennas:
          device: AWR1843
          range_bias_m: 0.03
          coefficients: [[[1.0, 0.0], [0.9, 0.1], ...], ...]  # [tx][rx][re, im]
          residual_deg: 3.0
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from recorder.common.errors import ConfigError, SessionError
from recorder.config.options import Option, check_options
from recorder.config.yaml_lines import Document, read_yaml
from recorder.perception.geometry import Floats, rotation_of_quaternion, transform

MODELS = ("opencv-pinhole", "opencv-fisheye", "ftheta")

_SENSOR = {
    "T_sensor_rig": Option(
        "map",
        keys={
            "translation_m": Option("list", None, "x, y, z in the rig", items="float"),
            "quaternion_xyzw": Option("list", None, "sensor to rig", items="float"),
        },
    ),
    "model": Option("str", None, "camera model", choices=MODELS),
    "parameters": Option("map", {}, "parameters of the model"),
    "resolution": Option("list", None, "width, height in pixels", items="int"),
    "calibrated_at": Option("str", None, "date of the calibration"),
    "antennas": Option("map", None, "calibration of a radar's antennas"),
}


@dataclass(frozen=True)
class SensorCalibration:
    """Calibration of a sensor.

    Attributes:
        pose: ``T_sensor_rig``, f8 [4, 4]; None where the file has none.
        model: camera model, one of `MODELS`; None where the file has none.
        parameters: parameters of the model, as in the file.
        resolution: width and height in pixels for which the model is valid.
        calibrated_at: date of the calibration.
        antennas: calibration of a radar's antennas, as in the file; see `PhaseCalibration`.
    """

    pose: Floats | None = None
    model: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    resolution: tuple[int, int] | None = None
    calibrated_at: str | None = None
    antennas: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Calibration:
    """A calibration file.

    Attributes:
        path: the file; None without a calibration.
        sha256: digest of the file's bytes.
        sensors: calibrations by sensor name.
    """

    path: Path | None = None
    sha256: str | None = None
    sensors: Mapping[str, SensorCalibration] = field(default_factory=dict)
    document: Document | None = None

    def of(self, name: str) -> SensorCalibration:
        """Return a sensor's calibration; an empty one where the file has none."""
        return self.sensors.get(name) or SensorCalibration()

    def error(self, key: str, message: str) -> Exception:
        """Return a `ConfigError` about a key of the file."""
        assert self.document is not None
        return self.document.fail(key, message)


def read_calibration(path: Path) -> Calibration:
    """Read a calibration file.

    Raises:
        ConfigError: a value is invalid; the message names file, line and key path.
    """
    document = read_yaml(path)
    values = document.values
    for key in values:
        if key != "sensors":
            raise document.fail(str(key), "unknown key; a calibration has 'sensors'")
    entries = values.get("sensors")
    if not isinstance(entries, Mapping):
        raise document.fail("sensors", "needs a mapping of sensors")
    sensors = {
        str(name): _parse_sensor(document, str(name), entry) for name, entry in entries.items()
    }
    sha256 = hashlib.sha256(document.text.encode()).hexdigest()
    return Calibration(path, sha256, sensors, document)


def session_calibration(session: Path) -> Calibration:
    """Read a session's own ``calibration.yaml``; an empty calibration where there is none.

    Raises:
        SessionError: a value is invalid; the message names file, line and key path.
    """
    path = session / "calibration.yaml"
    try:
        return read_calibration(path) if path.is_file() else Calibration()
    except ConfigError as error:  # the session's fault, not that of who calls
        raise SessionError(str(error)) from None


CALIBRATIONS = "_calibrations"
"""Folder of a session's further calibrations, ``SET.yaml``."""
_OWN = "default"


def calibration_files(session: Path) -> list[Path]:
    """Return ``_calibrations/SET.yaml``, sorted.

    Raises:
        SessionError: a file there has another ending, or is named as the session's own calibration
            is in archives.
    """
    paths = sorted((session / CALIBRATIONS).glob("[!.]*"))
    for path in paths:
        if path.suffix != ".yaml":
            raise SessionError(f"{path}: is no calibration: its name does not end in .yaml")
        if path.stem == _OWN:
            raise SessionError(f"{path}: {_OWN} is the calibration.yaml; choose another name")
    return paths


def read_calibration_sets(session: Path, base: Calibration) -> dict[str, Calibration]:
    """Read ``_calibrations/SET.yaml`` by SET; what a file does not have is as in `base`.

    Poses and models are taken apart: a file may have a model for a camera, and no pose.

    Raises:
        SessionError: see `calibration_files`, or a value is invalid; names file, line and key path.
    """
    sets = {}
    for path in calibration_files(session):
        try:
            own = read_calibration(path)
        except ConfigError as error:
            raise SessionError(str(error)) from None
        sensors = {
            name: _complete(own.of(name), base.of(name)) for name in {**base.sensors, **own.sensors}
        }
        sets[path.stem] = replace(own, sensors=sensors)
    return sets


def _complete(own: SensorCalibration, base: SensorCalibration) -> SensorCalibration:
    """Return a sensor's calibration with what it lacks from another one."""
    model = base if own.model is None else own
    return SensorCalibration(
        base.pose if own.pose is None else own.pose,
        model.model,
        model.parameters,
        model.resolution,
        own.calibrated_at or base.calibrated_at,
        base.antennas if own.antennas is None else own.antennas,
    )


def _parse_sensor(document: Document, name: str, entry: Any) -> SensorCalibration:
    key = f"sensors.{name}"
    if isinstance(entry, Mapping) and "calibrated_at" in entry:
        entry = {**entry, "calibrated_at": str(entry["calibrated_at"])}  # YAML parses it as a date
    values = check_options(_SENSOR, entry, key, document.fail)
    resolution = values["resolution"]
    if resolution is not None and (len(resolution) != 2 or min(resolution) < 1):
        raise document.fail(f"{key}.resolution", "needs width and height in pixels")
    if values["model"] is not None and resolution is None:
        raise document.fail(f"{key}.resolution", "missing; a camera model is for one resolution")
    pose = None
    if "T_sensor_rig" in (entry or {}):
        pose = parse_pose(document, f"{key}.T_sensor_rig", values["T_sensor_rig"])
    return SensorCalibration(
        pose,
        values["model"],
        values["parameters"],
        None if resolution is None else (resolution[0], resolution[1]),
        values["calibrated_at"],
        values["antennas"],
    )


def parse_pose(document: Document, key: str, values: Mapping[str, Any]) -> Floats:
    """Return the pose f8 [4, 4] of ``translation_m`` and ``quaternion_xyzw``.

    Raises:
        ConfigError: a value is missing or invalid; names file, line and key.
    """
    parts = []
    for name, length in (("translation_m", 3), ("quaternion_xyzw", 4)):
        if values[name] is None or len(values[name]) != length:
            raise document.fail(f"{key}.{name}", f"needs {length} numbers")
        parts.append(np.array(values[name], np.float64))
    if abs(float(np.linalg.norm(parts[1])) - 1) > 1e-3:
        raise document.fail(f"{key}.quaternion_xyzw", "does not have length 1")
    return transform(rotation_of_quaternion(parts[1]), parts[0])
