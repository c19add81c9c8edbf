"""Conversion of calibrations to NCore's models of cameras and lidars."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from recorder.archives.ncore.format.models import (
    BivariateWindshield,
    CameraModel,
    FTheta,
    OpenCvFisheye,
    OpenCvPinhole,
    RowOffsetSpinning,
    Shutter,
)
from recorder.common.errors import ArchiveError
from recorder.config.options import Option, OptionTable, check_options
from recorder.perception.calibration import Calibration
from recorder.perception.lidar.lidar import OusterOptics

_HALF_PIXEL = 0.5
"""Offset of pixel coordinates.  In calibrations the centre of the first pixel is (0, 0), as in
OpenCV.  NCore's pinhole and fisheye models put it at (0.5, 0.5), its F-theta model at (0, 0)."""

ROLLING = "rolling-top-to-bottom"
_SHUTTERS: Mapping[str, Shutter] = {
    "global": "GLOBAL",
    ROLLING: "ROLLING_TOP_TO_BOTTOM",
    "rolling-bottom-to-top": "ROLLING_BOTTOM_TO_TOP",
    "rolling-left-to-right": "ROLLING_LEFT_TO_RIGHT",
    "rolling-right-to-left": "ROLLING_RIGHT_TO_LEFT",
}
_WINDSHIELD: OptionTable = {
    **{
        name: Option("list", None, "polynomial", items="float", required=True)
        for name in ("horizontal", "vertical", "horizontal_inverse", "vertical_inverse")
    },
    "reference": Option("str", "FORWARD", "exact direction", choices=("FORWARD", "BACKWARD")),
}
_COMMON: OptionTable = {
    "shutter": Option("str", None, "order of exposure", choices=tuple(_SHUTTERS)),
    "windshield": Option("map", None, "distortion outside of the camera"),
}
_LENS = {name: Option("float", None, "pixels", required=True) for name in ("fx", "fy", "cx", "cy")}


def _terms(*names: str) -> dict[str, Option]:
    return {name: Option("float", 0.0, "distortion") for name in names}


_PINHOLE_TERMS = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6", "s1", "s2", "s3", "s4")
_FISHEYE_TERMS = ("k1", "k2", "k3", "k4")
_TABLES: Mapping[str, OptionTable] = {
    "opencv-pinhole": {**_LENS, **_terms(*_PINHOLE_TERMS), **_COMMON},
    "opencv-fisheye": {
        **_LENS,
        **_terms(*_FISHEYE_TERMS),
        "max_angle": Option("float", None, "rad"),
        **_COMMON,
    },
    "ftheta": {
        "cx": _LENS["cx"],
        "cy": _LENS["cy"],
        "pixel_to_angle": Option("list", [], "polynomial, degree 0 first", items="float"),
        "angle_to_pixel": Option("list", [], "polynomial, degree 0 first", items="float"),
        "reference": Option(
            "str",
            "pixel_to_angle",
            "exact polynomial",
            choices=("pixel_to_angle", "angle_to_pixel"),
        ),
        "max_angle": Option("float", None, "rad", required=True),
        "linear_cde": Option("list", [1.0, 0.0, 0.0], "matrix [c, d; e, 1]", items="float"),
        **_COMMON,
    },
}


def find_shutter(
    calibration: Calibration, name: str, readout_ns: int
) -> tuple[Shutter, str | None]:
    """Return a camera's shutter, and a sentence if calibration and recording contradict each other.

    The calibration decides.  Where it does not state the shutter, a readout is a rolling one, whose
    rows are read from top to bottom.

    Args:
        calibration: the session's calibration.
        name: name of the camera.
        readout_ns: time from the first row to the last row, which the camera's driver knows; 0 if
            all rows are exposed at once, or the time is not known.
    """
    stated = calibration.of(name).parameters.get("shutter")
    if not isinstance(stated, str) or stated not in _SHUTTERS:
        # The calibration does not state it, or wrongly: then `camera_model` rejects it.
        return _SHUTTERS[ROLLING if readout_ns else "global"], None
    note = None
    if stated == "global" and readout_ns:
        note = f"readout_ms is {readout_ns / 1e6:g}, but the calibration has shutter: global"
    elif stated != "global" and not readout_ns:
        note = f"the calibration has shutter: {stated}, but the recording has no readout_ms"
    return _SHUTTERS[stated], note


def camera_model(calibration: Calibration, name: str, shutter: Shutter) -> CameraModel | None:
    """Return the model of a camera; None if the calibration has no model.

    Args:
        calibration: the session's calibration.
        name: name of the camera.
        shutter: the camera's shutter, as `find_shutter` finds it.

    Raises:
        ConfigError: a parameter is missing, unknown or wrong; the message names file and key.
    """
    sensor = calibration.of(name)
    if sensor.model is None:
        return None
    key = f"sensors.{name}.parameters"
    fail = calibration.error
    values = check_options(_TABLES[sensor.model], sensor.parameters, key, fail)
    outside = None
    if values["windshield"] is not None:
        outside = BivariateWindshield(
            **check_options(_WINDSHIELD, values["windshield"], f"{key}.windshield", fail)
        )
    try:
        assert sensor.resolution is not None
        model = _MAKERS[sensor.model]((sensor.resolution, shutter, outside), values)
        model.attributes()
    except ArchiveError as error:
        raise fail(key, str(error)) from None
    return model


Common = tuple[tuple[int, int], Shutter, BivariateWindshield | None]
"""Parameters that all models share: resolution, shutter, and external distortion."""


def _lens(values: Mapping[str, Any]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return focal lengths and principal point, in pixels."""
    center = values["cx"] + _HALF_PIXEL, values["cy"] + _HALF_PIXEL
    return (values["fx"], values["fy"]), center


def _pinhole(common: Common, values: Mapping[str, Any]) -> CameraModel:
    k = [values[name] for name in _PINHOLE_TERMS]
    return OpenCvPinhole(*common, *_lens(values), (*k[:2], *k[4:8]), k[2:4], k[8:])


def _fisheye(common: Common, values: Mapping[str, Any]) -> CameraModel:
    radial = tuple(values[name] for name in _FISHEYE_TERMS)
    return OpenCvFisheye(*common, *_lens(values), radial, values["max_angle"])


def _ftheta(common: Common, values: Mapping[str, Any]) -> CameraModel:
    to_angle = values["reference"] == "pixel_to_angle"
    return FTheta(
        *common,
        (values["cx"], values["cy"]),
        values["pixel_to_angle"],
        values["angle_to_pixel"],
        "PIXELDIST_TO_ANGLE" if to_angle else "ANGLE_TO_PIXELDIST",
        values["max_angle"],
        values["linear_cde"],
    )


_MAKERS: Mapping[str, Callable[..., CameraModel]] = {
    "opencv-pinhole": _pinhole,
    "opencv-fisheye": _fisheye,
    "ftheta": _ftheta,
}


def from_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a camera's model as entries of a calibration, the inverse of `camera_model`.

    Raises:
        ArchiveError: the calibration has no such model, or a parameter is missing.
    """
    kind = str(attributes.get("camera_model_type"))
    given = attributes.get("camera_model_parameters") or {}
    try:
        values = _READERS[kind](given)
        shutters = {ncore: ours for ours, ncore in _SHUTTERS.items()}
        values["shutter"] = shutters[given["shutter_type"]]
        outside = given.get("external_distortion_parameters")
        if outside:
            windshield = {name: outside[f"{name}_poly"] for name in ("horizontal", "vertical")}
            for name in ("horizontal", "vertical"):
                windshield[f"{name}_inverse"] = outside[f"{name}_poly_inverse"]
            values["windshield"] = windshield | {"reference": outside["reference_poly"]}
        resolution = [int(size) for size in given["resolution"]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ArchiveError(f"the model {kind!r:.60} is not known or damaged: {error!r}") from None
    model = "opencv-pinhole" if kind == "ideal-pinhole" else kind
    return {"model": model, "parameters": values, "resolution": resolution}


def _read_lens(given: Mapping[str, Any]) -> dict[str, Any]:
    (fx, fy), (cx, cy) = given["focal_length"], given["principal_point"]
    return {"fx": fx, "fy": fy, "cx": cx - _HALF_PIXEL, "cy": cy - _HALF_PIXEL}


def _read_pinhole(given: Mapping[str, Any]) -> dict[str, Any]:
    k, p = given["radial_coeffs"], given["tangential_coeffs"]
    terms = [k[0], k[1], p[0], p[1], *k[2:6], *given["thin_prism_coeffs"]]
    return _read_lens(given) | dict(zip(_PINHOLE_TERMS, terms, strict=True))


def _read_fisheye(given: Mapping[str, Any]) -> dict[str, Any]:
    terms = dict(zip(_FISHEYE_TERMS, given["radial_coeffs"], strict=True))
    return _read_lens(given) | terms | {"max_angle": given["max_angle"]}


def _read_ftheta(given: Mapping[str, Any]) -> dict[str, Any]:
    cx, cy = given["principal_point"]
    to_angle = given["reference_poly"] == "PIXELDIST_TO_ANGLE"
    return {
        "cx": cx,
        "cy": cy,
        "pixel_to_angle": given["pixeldist_to_angle_poly"],
        "angle_to_pixel": given["angle_to_pixeldist_poly"],
        "reference": "pixel_to_angle" if to_angle else "angle_to_pixel",
        "max_angle": given["max_angle"],
        "linear_cde": given.get("linear_cde", [1.0, 0.0, 0.0]),
    }


_READERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "ideal-pinhole": _read_lens,
    "opencv-pinhole": _read_pinhole,
    "opencv-fisheye": _read_fisheye,
    "ftheta": _read_ftheta,
}


def lidar_model(optics: OusterOptics, frequency_hz: float) -> RowOffsetSpinning | None:
    """Return the spinning model of a lidar; None if its beams do not fit that model."""
    model = optics.model()
    if model is None:
        return None
    return RowOffsetSpinning(
        frequency_hz,
        model.direction,
        model.row_elevations_rad,
        model.column_azimuths_rad,
        model.row_azimuth_offsets_rad,
    )
