"""Components of lidars and radars: bundles of rays with one or several returns each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Required, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from recorder.archives.ncore.format.component import (
    Arrays,
    ComponentChecker,
    Interval,
    Metadata,
    check_name,
    put_arrays,
    to_us,
)
from recorder.archives.ncore.format.frames import FrameWriter
from recorder.formats.zarr2 import ArraySpec, EncodedArray

UNIT_TOLERANCE = 1e-4
"""Tolerance of the squared length of a direction around 1."""
_KEPT_CONSTANTS = 16
_LARGEST = float(np.finfo(np.float32).max)

Float32 = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Values = npt.NDArray[Any] | EncodedArray


class RayArrays(TypedDict, total=False):
    """Arrays of a frame of N rays with R returns each.

    Attributes:
        direction: f4 [N, 3], unit vectors in the sensor's frame, as measured (no motion
            compensation).  Rays begin in the sensor's origin.  N may be 0.
        t_ns: i8 [N], measurement time of each ray.
        distance_m: f4 [R, N], from the origin; NaN where there is no return.
        intensity: f4 [R, N] in 0 to 1; NaN where there is no return.  A lidar needs it, a radar
            has none.
        returns: further values per return, f4 [R, N, ...], such as ``radial_velocity_m_s`` and
            ``power_db``; NaN exactly where `distance_m` is NaN.
        data: generic data of the frame.
    """

    direction: Required[Values]
    t_ns: Required[npt.NDArray[np.int64]]
    distance_m: Required[Values]
    intensity: Values | None
    returns: Mapping[str, Values] | None
    data: Arrays | None


@dataclass(frozen=True)
class EncodedRays:
    """A checked and encoded frame.

    Attributes:
        frame_ns: start and end for which the frame was encoded.
        rays, returns: N and R.
        direction, timestamp_us, per_return, valid, generic: the encoded arrays.
    """

    frame_ns: tuple[int, int]
    rays: int
    returns: int
    direction: EncodedArray
    timestamp_us: EncodedArray
    per_return: dict[str, EncodedArray]
    valid: EncodedArray
    generic: dict[str, EncodedArray]

    def without_values(self) -> EncodedRays:
        """Return the frame with its encoded bytes only, for storage by another process."""
        return replace(
            self,
            direction=self.direction.without_values(),
            timestamp_us=self.timestamp_us.without_values(),
            per_return={name: array.without_values() for name, array in self.per_return.items()},
            valid=self.valid.without_values(),
            generic={name: array.without_values() for name, array in self.generic.items()},
        )


class RayEncoder(ComponentChecker):
    """Checker and encoder of the frames of a lidar or radar, for `RayWriter.put`.

    Args:
        kind: the writer's class.
        instance: name of the sensor.
        interval: the sequence's interval.
    """

    def __init__(self, kind: type[RayWriter], instance: str, interval: Interval) -> None:
        super().__init__(kind.COMPONENT, instance, interval)
        self._limits = kind.LIMITS
        self._checked: dict[int, EncodedArray] = {}

    def encode(self, t_start_ns: int, t_end_ns: int, **arrays: Unpack[RayArrays]) -> EncodedRays:
        """Check and encode a frame that `RayWriter.put` stores, maybe in another process.

        The arguments are those of `RayWriter.frame`.

        Raises:
            ArchiveError: a value is invalid; the message names value and frame.
        """
        t_us = self._time_us(t_end_ns, "the end")
        direction, distance_m = arrays["direction"], arrays["distance_m"]
        given: dict[str, Values] = {"distance_m": distance_m}
        if (intensity := arrays.get("intensity")) is not None:
            given["intensity"] = intensity
        given |= arrays.get("returns") or {}
        length = self._check_directions(direction, t_us)
        stamps = self.ray_times(arrays["t_ns"], length, (t_start_ns, t_end_ns), t_us)
        if (intensity is None) == ("intensity" in self._limits):
            self._refuse("a lidar's frame needs an intensity, a radar's has none", t_us)
        absent = self._check_returns(given, length, t_us)
        for name, high in self._limits.items():
            self._check_range(name, given[name], absent, high, t_us)
        per_return = {
            check_name(name, f"return data of {self.full_name}"): self._encode(
                name, values, t_us, _return_spec(_values(values).shape)
            )
            for name, values in given.items()
        }
        return EncodedRays(
            (t_start_ns, t_end_ns),
            length,
            len(absent),
            self._encode("direction", direction, t_us),
            self._encode("timestamp_us", stamps, t_us),
            per_return,
            self._encode("valid mask", np.packbits(~absent), t_us),
            self._encode_generic(arrays.get("data"), t_us),
        )

    def _check_once(self, values: Values) -> bool:
        """Return whether values must be checked; values of `constant` are checked once."""
        if not isinstance(values, EncodedArray) or not values.constant:
            return True
        if self._checked.get(id(values)) is values:
            return False
        if len(self._checked) >= _KEPT_CONSTANTS:
            self._checked.clear()
        self._checked[id(values)] = values
        return True

    def _check_directions(self, direction: Values, t_us: int) -> int:
        """Check that the directions are unit vectors; return the number of rays."""
        values = _values(direction)
        self._check_array("direction", values, "f4", (None, 3), t_us)
        if self._check_once(direction) and not _are_unit(values):
            off = np.abs(np.sum(values * values, axis=1) - 1) < UNIT_TOLERANCE
            ray = int(np.argmin(off))
            self._checked.pop(id(direction), None)
            self._refuse(f"direction of ray {ray} does not have length 1: {values[ray]}", t_us)
        return len(values)

    def ray_times(
        self, t_ns: npt.NDArray[np.int64], rays: int, frame_ns: tuple[int, int], t_us: int
    ) -> npt.NDArray[np.uint64]:
        """Check the rays' times, and convert them to microseconds."""
        self._check_array("t_ns", t_ns, "i8", (rays,), t_us)
        if rays and not frame_ns[0] <= t_ns.min() <= t_ns.max() <= frame_ns[1]:
            early = t_ns.min() < frame_ns[0]
            worst = t_ns.min() if early else t_ns.max()
            beyond = "before the frame's start" if early else "after the frame's end"
            self._refuse(f"a ray is measured at {worst} ns, {beyond}", t_us)
        return to_us(np.ascontiguousarray(t_ns))

    def _check_returns(self, returns: Mapping[str, Values], rays: int, t_us: int) -> Mask:
        """Check the returns; return which are absent (NaN, the same in all arrays)."""
        absent: Mask | None = None
        for name, array in returns.items():
            values = _values(array)
            if values.dtype != np.float32 or values.ndim < 2:
                self._refuse(f"{name} is {values.dtype} {values.shape}, not float32 [R, N]", t_us)
            count = len(values) if absent is None else len(absent)
            self._check_array(name, values, "f4", (count, rays, *values.shape[2:]), t_us)
            missing = self._missing(name, values, t_us)
            if absent is not None and not np.array_equal(absent, missing):
                where = np.argwhere(absent != missing)[0].tolist()
                self._refuse(f"{name} and distance_m are NaN in different returns: {where}", t_us)
            absent = missing
        assert absent is not None
        return absent

    def _missing(self, name: str, values: Float32, t_us: int) -> Mask:
        missing: Mask = np.isnan(values)
        if values.ndim > 2:
            parts = missing.reshape(*missing.shape[:2], -1)
            some, missing = parts.any(2), np.asarray(parts.all(2))
            if not np.array_equal(some, missing):
                where = np.argwhere(some != missing)[0].tolist()
                self._refuse(f"{name} is NaN in a part of return {where}", t_us)
        return missing

    def _check_range(self, name: str, values: Values, absent: Mask, high: float, t_us: int) -> None:
        """Check that every value is at least 0 and at most `high`; NaN is skipped."""
        array = _values(values)
        low = np.fmin.reduce(array, axis=None, initial=high)  # fmin and fmax skip NaN
        top = np.fmax.reduce(array, axis=None, initial=0)
        if low >= 0 and top <= high:
            return
        inside = (array >= 0) & (array <= high)
        inside |= absent
        where = np.unravel_index(np.argmin(inside), inside.shape)
        place = [int(i) for i in where]
        self._refuse(f"{name} of return {place} is {array[where]}, outside [0, {high}]", t_us)


class RayWriter(FrameWriter):
    """Base class of the lidar and radar writers.

    An array that is the same in many frames can be encoded once, by `constant`.  The writer then
    stores the array without compressing or checking it again.

    Attributes:
        LIMITS: maximum by name of a value per return; the minimum is 0.
    """

    LIMITS: ClassVar[Mapping[str, float]] = {"distance_m": _LARGEST}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._encoder = RayEncoder(type(self), self.instance, self._interval)

    @staticmethod
    def constant(values: npt.NDArray[Any]) -> EncodedArray:
        """Encode an array per ray (directions, model elements) for use in many frames."""
        return EncodedArray.encode(values.copy(), constant=True)

    @staticmethod
    def constant_return(values: Float32) -> EncodedArray:
        """Encode an array per return [R, N, ...] for use in many frames."""
        return EncodedArray.encode(values.copy(), _return_spec(values.shape), constant=True)

    def frame(
        self,
        t_start_ns: int,
        t_end_ns: int,
        *,
        model_element: Values | None = None,
        metadata: Metadata | None = None,
        **arrays: Unpack[RayArrays],
    ) -> None:
        """Store a frame of N rays with R returns each: a lidar's sweep, or a radar's detections.

        Args:
            t_start_ns: time of the first ray or chirp; strictly increasing from frame to frame.
            t_end_ns: time of the last one; strictly increasing; names the frame.
            model_element: u2 [N, 2], row and column of each ray in the lidar model.
            metadata: metadata of the frame.
            arrays: see `RayArrays`.

        Raises:
            ArchiveError: a value is invalid; the message names value and frame.
        """
        times = self._frame_times(t_start_ns, t_end_ns)
        encoded = self._encoder.encode(t_start_ns, t_end_ns, **arrays)
        self._put(times, encoded, encoded.timestamp_us, model_element, metadata)

    def put(
        self,
        encoded: EncodedRays,
        t_start_ns: int,
        t_end_ns: int,
        *,
        t_ns: Callable[[], npt.NDArray[np.int64]],
        model_element: Values | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """Store a frame from `RayEncoder.encode`.

        Args:
            encoded: the frame.
            t_start_ns, t_end_ns: as of `frame`.
            t_ns: function that returns the rays' times; called if the frame was encoded for another
                start or end.
            model_element, metadata: as of `frame`.

        Raises:
            ArchiveError: a value is invalid; the message names value and frame.
        """
        times = self._frame_times(t_start_ns, t_end_ns)
        stamps = encoded.timestamp_us
        if encoded.frame_ns != (t_start_ns, t_end_ns):
            moved = self._encoder.ray_times(t_ns(), encoded.rays, (t_start_ns, t_end_ns), times[1])
            stamps = self._encode("timestamp_us", moved, times[1])
        self._put(times, encoded, stamps, model_element, metadata)

    def _put(
        self,
        times: tuple[int, int],
        encoded: EncodedRays,
        stamps: EncodedArray,
        model_element: Values | None,
        metadata: Metadata | None,
    ) -> None:
        t_us, length = times[1], encoded.rays
        rays = {"direction": encoded.direction, "timestamp_us": stamps}
        if model_element is not None:
            self._check_array("model_element", _values(model_element), "u2", (length, 2), t_us)
            rays["model_element"] = self._encode("model_element", model_element, t_us)
        self._check_metadata(metadata, t_us)
        frame = self._begin_frame(times, encoded.generic, metadata)
        put_arrays(frame.group("ray_bundle", {"n_rays": length}), rays)
        counts = {"n_returns": encoded.returns}
        put_arrays(frame.group("ray_bundle_returns", counts), encoded.per_return)
        mask_name = "ray_bundle_returns_valid_mask_packed"
        frame.array(mask_name, encoded.valid, attributes=counts | {"n_rays": length})


def _are_unit(directions: Float32) -> bool:
    """Return whether all vectors [n, 3] have length 1; False for NaN."""
    if not len(directions):
        return True
    squares = directions * directions  # not by BLAS, whose threads spin after a product
    lengths = squares[:, 0] + squares[:, 1]
    lengths += squares[:, 2]
    return bool(abs(lengths.min() - 1) < UNIT_TOLERANCE > abs(lengths.max() - 1))


def _values(array: Values) -> npt.NDArray[Any]:
    return array.values if isinstance(array, EncodedArray) else array


def _return_spec(shape: tuple[int, ...]) -> ArraySpec:
    """Return a spec of one chunk per return, so that a return can be read without the others."""
    return ArraySpec(chunks=(1, *(max(1, size) for size in shape[1:])))


class LidarWriter(RayWriter):
    """Writer of a lidar's sweeps (component ``lidars``)."""

    COMPONENT = "lidars"
    LIMITS = {**RayWriter.LIMITS, "intensity": 1.0}


class RadarWriter(RayWriter):
    """Writer of a radar's detections (component ``radars``)."""

    COMPONENT = "radars"
