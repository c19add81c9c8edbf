"""Component of camera labels: depth, segmentation, flow, masks, aligned with a camera's images."""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from recorder.archives.ncore.format.component import ComponentWriter, Metadata, Place, check_name
from recorder.archives.ncore.format.cuboids import LABEL_SOURCES, LabelSource
from recorder.common.errors import ArchiveError
from recorder.formats.zarr2 import ArraySpec, EncodedArray, Group

Category = Literal[
    "DEPTH", "FLOW", "SEGMENTATION", "MASK", "GEOMETRY", "MATERIAL", "FEATURE", "OTHER"
]
Unit = Literal["METERS", "PIXELS", "UNITLESS"]


@dataclass(frozen=True)
class LabelType:
    """Kind of a label.

    Attributes:
        category: family of the label.
        qualifier: kind within the family.  Any text is allowed, but the format defines ``z``,
            ``ray``, ``relative`` of DEPTH, ``optical_forward``, ``optical_backward``,
            ``scene_forward``, ``scene_backward`` of FLOW, ``semantic``, ``instance`` of
            SEGMENTATION, ``background``, ``dynamic`` of MASK, ``normal_camera``,
            ``normal_world``, ``ray_direction`` of GEOMETRY.
        unit: unit of the values.
    """

    category: Category
    qualifier: str
    unit: Unit | None = None


@dataclass(frozen=True)
class Quantization:
    """Quantization of values stored as integers: value = stored * scale + offset."""

    dtype: str
    scale: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Raw:
    """Encoding of labels as arrays [height, width, *shape] of `dtype`."""

    dtype: str
    shape: tuple[int, ...] = ()
    quantization: Quantization | None = None


@dataclass(frozen=True)
class ImageEncoded:
    """Encoding of labels as images; decoded, they are [height, width, *shape] of `dtype`."""

    dtype: str
    image_format: str = "png"
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class LabelDescriptor:
    """Description of the labels of an instance.

    Attributes:
        camera: the camera whose images the labels are aligned with.
        label: kind of the labels.
        encoding: how the labels are stored.
        source: origin of the labels.
    """

    camera: str
    label: LabelType
    encoding: Raw | ImageEncoded
    source: LabelSource

    @property
    def instance(self) -> str:
        """Usual name of the instance: ``depth.z@front``."""
        return f"{self.label.category.lower()}.{self.label.qualifier}@{self.camera}"

    def document(self) -> dict[str, Any]:
        """Return the descriptor in its stored form; an ArchiveError names an unknown value."""
        label, encoding = self.label, self.encoding
        if label.category not in get_args(Category):
            raise ArchiveError(f"label category {label.category!r} is unknown")
        if not label.qualifier:
            raise ArchiveError("a label needs a qualifier")
        if label.unit is not None and label.unit not in get_args(Unit):
            raise ArchiveError(f"label unit {label.unit!r} is unknown")
        if self.source not in LABEL_SOURCES:
            raise ArchiveError(f"label source {self.source!r} is not in {LABEL_SOURCES}")
        raw = isinstance(encoding, Raw)
        return {
            "camera_id": check_name(self.camera, "a camera"),
            "label_type": asdict(label),
            "label_schema": {
                "dtype": _dtype(encoding.dtype, "biufc"),
                "shape_suffix": list(encoding.shape),
                "encoding": "RAW" if raw else "IMAGE_ENCODED",
                "encoded_format": None if isinstance(encoding, Raw) else encoding.image_format,
                "quantization": _quantization(encoding),
            },
            "label_source": self.source,
        }


def _dtype(name: str, kinds: str) -> str:
    try:
        dtype = np.dtype(name)
    except TypeError:
        raise ArchiveError(f"label dtype {name!r} is unknown") from None
    if dtype.kind not in kinds:
        raise ArchiveError(f"label dtype {dtype} is not supported here")
    return str(dtype)


def _quantization(encoding: Raw | ImageEncoded) -> dict[str, Any] | None:
    if isinstance(encoding, ImageEncoded) or encoding.quantization is None:
        return None
    rule = encoding.quantization
    if not (np.isfinite(rule.scale) and np.isfinite(rule.offset)) or rule.scale == 0:
        raise ArchiveError(f"label quantization {rule} cannot be inverted")
    return {
        "quantized_dtype": _dtype(rule.dtype, "iu"),
        "scale": float(rule.scale),
        "offset": float(rule.offset),
    }


class CameraLabelsWriter(ComponentWriter):
    """Writer of labels of one kind for one camera (component ``camera_labels``)."""

    COMPONENT = "camera_labels"

    def __init__(
        self,
        place: Place,
        instance: str,
        metadata: Metadata | None = None,
        *,
        descriptor: LabelDescriptor,
    ) -> None:
        super().__init__(place, instance, metadata)
        self._descriptor = descriptor
        try:
            self._document = {"descriptor": descriptor.document()}
        except ArchiveError as error:
            self._refuse(str(error))
        self._times = array("Q")

    def label(
        self,
        t_ns: int,
        data: npt.NDArray[Any] | bytes,
        *,
        metadata: Metadata | None = None,
    ) -> None:
        """Store a label.

        Args:
            t_ns: end of the image's frame; strictly increasing.
            data: an array where the encoding is `Raw`, an image's bytes where it is
                `ImageEncoded`.
            metadata: generic metadata of the label.

        Raises:
            ArchiveError: the label is invalid; the message names the label's time.
        """
        t_us = self._time_us(t_ns, "the label")
        if self._times and t_us <= self._times[-1]:
            self._refuse(f"it is not after the previous label, {self._times[-1]} us", t_us)
        self._check_metadata(metadata, t_us)
        encoding = self._descriptor.encoding
        if isinstance(encoding, Raw):
            values = self._encode("label", self._raw(data, encoding, t_us), t_us)
            attributes = None
        else:
            values = self._image(data, t_us)
            attributes = {"format": encoding.image_format}
        group = self._labels.group(str(t_us), {"generic_meta_data": dict(metadata or {})})
        self._times.append(t_us)
        group.array("data", values, attributes=attributes)

    def _raw(self, data: npt.NDArray[Any] | bytes, encoding: Raw, t_us: int) -> npt.NDArray[Any]:
        if not isinstance(data, np.ndarray):
            self._refuse(f"the label is {type(data).__name__}, not an array", t_us)
        self._check_array("label", data, encoding.dtype, (None, None, *encoding.shape), t_us)
        if 0 in data.shape:
            self._refuse(f"the label has no pixels: {data.shape}", t_us)
        rule = encoding.quantization
        if rule is None:
            return data
        steps = np.round((data.astype(np.float64) - rule.offset) / rule.scale)
        limits = np.iinfo(rule.dtype)
        fits = (steps >= limits.min) & (steps <= limits.max)  # False for NaN
        if not fits.all():
            where = np.unravel_index(np.argmin(fits), fits.shape)
            self._refuse(
                f"value {data[where]} at {[int(i) for i in where]} does not fit {limits.dtype} with"
                f" scale {rule.scale} and offset {rule.offset}",
                t_us,
            )
        return steps.astype(rule.dtype)

    def _image(self, data: npt.NDArray[Any] | bytes, t_us: int) -> EncodedArray:
        if not isinstance(data, bytes) or not data:
            self._refuse("the label does not consist of an image's bytes", t_us)
        return EncodedArray.encode(np.frombuffer(data, np.uint8), ArraySpec(compressor=None))

    @cached_property
    def _labels(self) -> Group:
        return self.group.group("labels", self._document, distinct=True)

    def _write_rest(self) -> None:
        _ = self._labels  # required, even without a label
        self.group.array("timestamps_us", np.array(self._times, np.uint64))
