"""Camera and lidar models in the form in which the intrinsics component stores them.

Definition: NVIDIA/ncore, docs/data/sensor_models.rst.  Numbers are stored as float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from recorder.common.errors import ArchiveError

Shutter = Literal[
    "ROLLING_TOP_TO_BOTTOM",
    "ROLLING_LEFT_TO_RIGHT",
    "ROLLING_BOTTOM_TO_TOP",
    "ROLLING_RIGHT_TO_LEFT",
    "GLOBAL",
]
Numbers = Sequence[float] | npt.NDArray[Any]
_FTHETA_TERMS = 6


def _floats(model: str, name: str, values: Numbers, length: int | None = None) -> list[float]:
    """Return float32 values as a list; raise an ArchiveError for a wrong count or value."""
    try:
        array = np.asarray(values, np.float32)
    except (TypeError, ValueError):
        raise ArchiveError(f"{model}: {name} {values!r} are not numbers") from None
    if array.ndim != 1 or not len(array) or (length is not None and len(array) != length):
        wanted = "a list of numbers" if length is None else f"{length} numbers"
        raise ArchiveError(f"{model}: {name} has shape {array.shape}, not {wanted}")
    if not np.isfinite(array).all():
        raise ArchiveError(f"{model}: {name} {array.tolist()} is not finite")
    listed: list[float] = array.tolist()
    return listed


def _positive(model: str, name: str, values: Sequence[float]) -> None:
    if min(values) <= 0:
        raise ArchiveError(f"{model}: {name} {list(values)} must be greater than 0")


@dataclass(frozen=True)
class BivariateWindshield:
    """External distortion by a windshield: polynomials in the two angles of a ray.

    Attributes:
        reference: the exact direction; the other direction is its approximate inverse.
        horizontal, vertical: polynomials from the world to the sensor; a polynomial of order N has
            (N+1)(N+2)/2 terms.
        horizontal_inverse, vertical_inverse: polynomials from the sensor to the world.
    """

    TYPE: ClassVar[str] = "bivariate-windshield"

    horizontal: Numbers
    vertical: Numbers
    horizontal_inverse: Numbers
    vertical_inverse: Numbers
    reference: Literal["FORWARD", "BACKWARD"] = "FORWARD"

    def parameters(self) -> dict[str, Any]:
        """Return the parameters in their stored form."""
        if self.reference not in ("FORWARD", "BACKWARD"):
            raise ArchiveError(f"{self.TYPE}: reference {self.reference!r} is unknown")
        document: dict[str, Any] = {"reference_poly": self.reference}
        for key, values in (
            ("horizontal_poly", self.horizontal),
            ("vertical_poly", self.vertical),
            ("horizontal_poly_inverse", self.horizontal_inverse),
            ("vertical_poly_inverse", self.vertical_inverse),
        ):
            terms = _floats(self.TYPE, key, values)
            order = int((8 * len(terms) + 1) ** 0.5)
            if order * order != 8 * len(terms) + 1:
                raise ArchiveError(f"{self.TYPE}: {key}: {len(terms)} terms match no whole order")
            document[key] = terms
        return document | {"external_distortion_type": self.TYPE}


@dataclass(frozen=True)
class CameraModel:
    """Base class of the camera models.

    Attributes:
        resolution: width and height in pixels.
        shutter: order in which the rows or columns are exposed.
        external_distortion: distortion outside of the camera.
    """

    TYPE: ClassVar[str] = ""

    resolution: tuple[int, int]
    shutter: Shutter = "GLOBAL"
    external_distortion: BivariateWindshield | None = None

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the camera's group.

        Raises:
            ArchiveError: a parameter is invalid; the message names it.
        """
        if len(self.resolution) != 2:
            raise ArchiveError(f"{self.TYPE}: resolution {self.resolution} is not width and height")
        _positive(self.TYPE, "resolution", self.resolution)
        if self.shutter not in get_args(Shutter):
            raise ArchiveError(f"{self.TYPE}: shutter {self.shutter!r} is unknown")
        outside = self.external_distortion
        document: dict[str, Any] = {
            "camera_model_type": self.TYPE,
            "camera_model_parameters": {
                "resolution": [int(size) for size in self.resolution],
                "shutter_type": self.shutter,
                "external_distortion_parameters": outside and outside.parameters(),
                **self._own_parameters(),
            },
        }
        if outside is not None:  # a second time, because older readers look for it here
            document["external_distortion_type"] = outside.TYPE
        return document

    def _own_parameters(self) -> dict[str, Any]:
        raise NotImplementedError

    def _floats(self, name: str, values: Numbers, length: int | None = None) -> list[float]:
        return _floats(self.TYPE, name, values, length)


@dataclass(frozen=True)
class IdealPinhole(CameraModel):
    """Pinhole model without distortion.

    Attributes:
        focal_length_px: focal lengths in u and v.
        principal_point_px: u and v; the first pixel's centre is (0.5, 0.5).
    """

    TYPE: ClassVar[str] = "ideal-pinhole"

    focal_length_px: Numbers = ()
    principal_point_px: Numbers = ()

    def _own_parameters(self) -> dict[str, Any]:
        focal = self._floats("focal_length", self.focal_length_px, 2)
        _positive(self.TYPE, "focal_length", focal)
        return {
            "principal_point": self._floats("principal_point", self.principal_point_px, 2),
            "focal_length": focal,
        }


@dataclass(frozen=True)
class OpenCvPinhole(IdealPinhole):
    """OpenCV's pinhole model (calib3d) with rational, tangential and thin prism distortion.

    Attributes:
        radial: k1 to k6.
        tangential: p1 and p2.
        thin_prism: s1 to s4.
    """

    TYPE: ClassVar[str] = "opencv-pinhole"

    radial: Numbers = (0.0,) * 6
    tangential: Numbers = (0.0,) * 2
    thin_prism: Numbers = (0.0,) * 4

    def _own_parameters(self) -> dict[str, Any]:
        return super()._own_parameters() | {
            "radial_coeffs": self._floats("radial_coeffs", self.radial, 6),
            "tangential_coeffs": self._floats("tangential_coeffs", self.tangential, 2),
            "thin_prism_coeffs": self._floats("thin_prism_coeffs", self.thin_prism, 4),
        }

    @classmethod
    def of_distortion(
        cls,
        resolution: tuple[int, int],
        focal_length_px: Numbers,
        principal_point_px: Numbers,
        distortion: Numbers,
        shutter: Shutter = "GLOBAL",
    ) -> OpenCvPinhole:
        """Make a model from OpenCV's vector k1, k2, p1, p2[, k3[, k4, k5, k6[, s1, ..., s4]]]."""
        k = [float(value) for value in distortion]
        if len(k) not in (0, 4, 5, 8, 12):
            raise ArchiveError(f"{cls.TYPE}: OpenCV has no distortion of {len(k)} coefficients")
        k += [0.0] * (12 - len(k))
        radial, tangential, prism = (k[0], k[1], *k[4:8]), k[2:4], k[8:12]
        return cls(
            resolution,
            shutter,
            None,
            focal_length_px,
            principal_point_px,
            radial,
            tangential,
            prism,
        )


@dataclass(frozen=True)
class OpenCvFisheye(IdealPinhole):
    """OpenCV's fisheye model.

    Attributes:
        radial: k1 to k4.
        max_angle_rad: largest angle between a ray and the optical axis.  None: the angle that
            reaches the farthest corner, or the angle at which the model stops rising, if smaller.
    """

    TYPE: ClassVar[str] = "opencv-fisheye"

    radial: Numbers = (0.0,) * 4
    max_angle_rad: float | None = None

    def _own_parameters(self) -> dict[str, Any]:
        document = super()._own_parameters()
        document["radial_coeffs"] = self._floats("radial_coeffs", self.radial, 4)
        angle = self._reach_rad() if self.max_angle_rad is None else float(self.max_angle_rad)
        _positive(self.TYPE, "max_angle", [angle])
        return document | {"max_angle": angle}

    def _reach_rad(self) -> float:
        """Return the angle of the farthest corner, interpolated where the model still rises."""
        size = np.asarray(self.resolution, float)
        corners = np.array([[u, v] for u in (0, size[0]) for v in (0, size[1])])
        focal, centre = np.asarray(self.focal_length_px), np.asarray(self.principal_point_px)
        radius = float(np.linalg.norm((corners - centre) / focal, axis=1).max())
        k1, k2, k3, k4 = (float(k) for k in self.radial)
        angles = np.linspace(0.0, np.pi, 100_001)
        squared = angles * angles
        image = angles * (1 + squared * (k1 + squared * (k2 + squared * (k3 + squared * k4))))
        turned = np.flatnonzero(np.diff(image) <= 0)
        end = int(turned[0]) if len(turned) else len(angles) - 1
        return float(np.interp(radius, image[: end + 1], angles[: end + 1]))


@dataclass(frozen=True)
class FTheta(CameraModel):
    """NVIDIA's F-theta model: polynomials between pixel distance and ray angle.

    Attributes:
        principal_point_px: u and v; here the first pixel's centre is (0, 0).
        pixel_distance_to_angle, angle_to_pixel_distance: up to six coefficients, degree 0 first.
        reference: the exact polynomial; the other one is its approximate inverse.
        max_angle_rad: largest angle between a ray and the optical axis.
        linear_cde: matrix [c, d; e, 1] from sensor to image coordinates.
    """

    TYPE: ClassVar[str] = "ftheta"

    principal_point_px: Numbers = ()
    pixel_distance_to_angle: Numbers = ()
    angle_to_pixel_distance: Numbers = ()
    reference: Literal["PIXELDIST_TO_ANGLE", "ANGLE_TO_PIXELDIST"] = "PIXELDIST_TO_ANGLE"
    max_angle_rad: float = 0.0
    linear_cde: Numbers = (1.0, 0.0, 0.0)

    def _own_parameters(self) -> dict[str, Any]:
        if self.reference not in ("PIXELDIST_TO_ANGLE", "ANGLE_TO_PIXELDIST"):
            raise ArchiveError(f"{self.TYPE}: reference {self.reference!r} is unknown")
        _positive(self.TYPE, "max_angle", [float(self.max_angle_rad)])
        return {
            "principal_point": self._floats("principal_point", self.principal_point_px, 2),
            "reference_poly": self.reference,
            "pixeldist_to_angle_poly": self._polynomial(self.pixel_distance_to_angle),
            "angle_to_pixeldist_poly": self._polynomial(self.angle_to_pixel_distance),
            "max_angle": float(self.max_angle_rad),
            "linear_cde": self._floats("linear_cde", self.linear_cde, 3),
        }

    def _polynomial(self, values: Numbers) -> list[float]:
        terms = self._floats("polynomial", values)
        if len(terms) > _FTHETA_TERMS:
            raise ArchiveError(f"{self.TYPE}: a polynomial has {len(terms)} terms, more than 6")
        return terms + [0.0] * (_FTHETA_TERMS - len(terms))


@dataclass(frozen=True)
class RowOffsetSpinning:
    """Model of a spinning lidar in which each row has an azimuth offset.

    Attributes:
        frequency_hz: spins per second.
        direction: spin direction around z, ``cw`` or ``ccw`` seen from above.
        row_elevations_rad: [rows], descending.
        column_azimuths_rad: [columns], from x, along the spin.
        row_azimuth_offsets_rad: [rows], added to the column's azimuth.
    """

    TYPE: ClassVar[str] = "row-offset-spinning"

    frequency_hz: float
    direction: Literal["cw", "ccw"]
    row_elevations_rad: Numbers
    column_azimuths_rad: Numbers
    row_azimuth_offsets_rad: Numbers

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the lidar's group.

        Raises:
            ArchiveError: a parameter is invalid; the message names it.
        """
        if self.direction not in ("cw", "ccw"):
            raise ArchiveError(f"{self.TYPE}: direction {self.direction!r} is neither cw nor ccw")
        _positive(self.TYPE, "spinning_frequency_hz", [float(self.frequency_hz)])
        elevations = _floats(self.TYPE, "row_elevations_rad", self.row_elevations_rad)
        azimuths = _floats(self.TYPE, "column_azimuths_rad", self.column_azimuths_rad)
        offsets = self.row_azimuth_offsets_rad
        rising = np.flatnonzero(np.diff(elevations) >= 0)
        if len(rising):
            raise ArchiveError(
                f"{self.TYPE}: row_elevations_rad does not fall after element {rising[0]}"
            )
        self._check_turning("column_azimuths_rad", azimuths)
        return {
            "lidar_model_type": self.TYPE,
            "lidar_model_parameters": {
                "spinning_frequency_hz": float(self.frequency_hz),
                "spinning_direction": self.direction,
                "n_rows": len(elevations),
                "n_columns": len(azimuths),
                "row_elevations_rad": elevations,
                "column_azimuths_rad": azimuths,
                "row_azimuth_offsets_rad": _floats(
                    self.TYPE, "row_azimuth_offsets_rad", offsets, len(elevations)
                ),
            },
        }

    def _check_turning(self, name: str, listed: list[float]) -> None:
        """Check that angles turn one way, within one turn, in float32 as the loader does."""
        angles = np.asarray(listed, np.float32)
        turned = angles - angles[0] if self.direction == "ccw" else angles[0] - angles
        steps = np.diff(turned % np.float32(2 * np.pi))
        if len(steps) and steps.min() <= 0:
            at = int(np.argmin(steps))
            raise ArchiveError(
                f"{self.TYPE}: {name} does not turn {self.direction} after element {at}"
            )
