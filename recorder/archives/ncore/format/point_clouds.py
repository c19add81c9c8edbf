"""Component of point clouds that are not rays: maps, accumulated sweeps, network outputs."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from recorder.archives.ncore.format.component import (
    GENERIC_DATA,
    Arrays,
    ComponentWriter,
    Metadata,
    Place,
    check_name,
    put_arrays,
)
from recorder.formats.zarr2 import Group

CoordinateUnit = Literal["METERS", "UNITLESS"]
TransformType = Literal["INVARIANT", "DIRECTION", "POINT"]
_RESERVED = ("xyz", GENERIC_DATA)


@dataclass(frozen=True)
class Attribute:
    """Description of a value per point.

    Attributes:
        dtype: dtype of the value.
        shape: shape of the value; () is a single number.
        transform: how a rigid transformation changes the value: not at all, by its rotation only
            (normals), or like a point.
    """

    dtype: str
    shape: tuple[int, ...] = ()
    transform: TransformType = "INVARIANT"


class PointCloudsWriter(ComponentWriter):
    """Writer of point clouds of one kind (component ``point_clouds``)."""

    COMPONENT = "point_clouds"

    def __init__(
        self,
        place: Place,
        instance: str,
        metadata: Metadata | None = None,
        *,
        unit: CoordinateUnit = "METERS",
        attributes: Mapping[str, Attribute] | None = None,
    ) -> None:
        super().__init__(place, instance, metadata)
        if unit not in get_args(CoordinateUnit):
            self._refuse(f"unit {unit!r} is neither METERS nor UNITLESS")
        self._attributes = dict(attributes or {})
        self._schema: dict[str, Any] = {
            "coordinate_unit": unit,
            "attribute_schemas": {
                name: self._attribute_schema(name, attribute)
                for name, attribute in self._attributes.items()
            },
        }
        self._times = array("Q")

    @property
    def frame_count(self) -> int:
        """Number of stored clouds."""
        return len(self._times)

    def _attribute_schema(self, name: str, attribute: Attribute) -> dict[str, Any]:
        check_name(name, f"an attribute of {self.full_name}")
        if name in _RESERVED:
            self._refuse(f"an attribute cannot be named {name}")
        if attribute.transform not in get_args(TransformType):
            self._refuse(f"attribute {name}: transform {attribute.transform!r} is unknown")
        if attribute.transform != "INVARIANT" and attribute.shape != (3,):
            self._refuse(
                f"attribute {name} of shape {attribute.shape} is not a {attribute.transform}"
            )
        try:
            dtype = str(np.dtype(attribute.dtype))
        except TypeError:
            self._refuse(f"attribute {name}: dtype {attribute.dtype!r} is unknown")
        return {
            "transform_type": attribute.transform,
            "dtype": dtype,
            "shape_suffix": list(attribute.shape),
        }

    def cloud(
        self,
        t_ns: int,
        frame: str,
        xyz: npt.NDArray[np.float32],
        attributes: Mapping[str, npt.NDArray[Any]] | None = None,
        *,
        data: Arrays | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """Store a cloud of N points.

        Args:
            t_ns: time of the frame that the points are in.
            frame: name of that frame.
            xyz: f4 [N, 3].
            attributes: a value for each declared attribute, [N, *shape].
            data, metadata: generic data and metadata of the cloud.

        Raises:
            ArchiveError: a value is invalid; the message names the cloud's time.
        """
        t_us = self._time_us(t_ns, "the cloud")
        check_name(frame, f"a frame of {self.full_name}")
        self._check_array("xyz", xyz, "f4", (None, 3), t_us)
        given = attributes or {}
        if given.keys() != self._attributes.keys():
            self._refuse(f"it has attributes {sorted(given)}, not {sorted(self._attributes)}", t_us)
        for name, attribute in self._attributes.items():
            shape = (len(xyz), *attribute.shape)
            self._check_array(name, given[name], attribute.dtype, shape, t_us)
        self._check_metadata(metadata, t_us)
        generic = self._encode_generic(data, t_us)
        points = {name: self._encode(name, v, t_us) for name, v in {"xyz": xyz, **given}.items()}

        head = {"reference_frame_id": frame, "generic_meta_data": dict(metadata or {})}
        cloud = self._clouds.group(str(len(self._times)), head)
        self._times.append(t_us)
        put_arrays(cloud, points)
        put_arrays(cloud.group(GENERIC_DATA), generic)

    @cached_property
    def _clouds(self) -> Group:
        return self.group.group("pcs", self._schema, distinct=True)

    def _write_rest(self) -> None:
        _ = self._clouds  # required, even without a cloud
        self.group.array("pc_timestamps_us", np.array(self._times, np.uint64))

    def _more_attributes(self) -> dict[str, Any]:
        return self._schema  # the format's document also requires it here
