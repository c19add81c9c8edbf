"""Base class of the component writers, and the interval of a sequence."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from recorder.common.errors import ArchiveError, FormatError
from recorder.formats.zarr2 import ArraySpec, EncodedArray, Group, RowsSpec, RowsWriter
from recorder.formats.zarr2.arrays import encode_dtype
from recorder.formats.zarr2.documents import dump_json

NS_PER_US = 1000
TimesUs = npt.NDArray[np.uint64]


class Interval(Struct, frozen=True, rename={"start_us": "start", "stop_us": "stop"}):
    """Half-open interval of a sequence, in whole microseconds."""

    start_us: int
    stop_us: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_us < self.stop_us:
            raise ArchiveError(f"a sequence from {self.start_us} us to {self.stop_us} us is empty")

    @classmethod
    def from_ns(cls, start_ns: int, stop_ns: int) -> Interval:
        """Return the shortest interval that contains [start_ns, stop_ns), rounded down."""
        return cls(start_ns // NS_PER_US, -(-stop_ns // NS_PER_US))

    @property
    def start_ns(self) -> int:
        """First time of the sequence, at which a trajectory begins."""
        return self.start_us * NS_PER_US

    @property
    def last_ns(self) -> int:
        """Last time of the sequence, at which a trajectory ends."""
        return (self.stop_us - 1) * NS_PER_US

    def holds(self, t_us: int) -> bool:
        """Return whether a time is inside the interval."""
        return self.start_us <= t_us < self.stop_us

    def __str__(self) -> str:
        return f"[{self.start_us}, {self.stop_us}) us"


def to_us(t_ns: npt.NDArray[Any]) -> TimesUs:
    """Convert non-negative int64 nanoseconds to whole microseconds, rounded down."""
    return t_ns.view(np.uint64) // np.uint64(NS_PER_US)


Metadata = Mapping[str, Any]
Arrays = Mapping[str, npt.NDArray[Any] | EncodedArray]
_NAME = re.compile(r"[^/\s\0]+\Z")
GENERIC_DATA = "generic_data"


@dataclass(frozen=True)
class Place:
    """Place in which an instance of a component is written.

    Attributes:
        interval: the sequence's interval.
        folder: the stores' folder; long data are spooled there, in unnamed files, until the end.
        make_group: function that makes the instance's group.
    """

    interval: Interval
    folder: Path
    make_group: Callable[[], Group]


def check_name(name: str, what: str) -> str:
    """Return a name that can be a part of a key; raise an ArchiveError if it cannot."""
    if not _NAME.match(name) or name.startswith(".z") or name in (".", ".."):
        raise ArchiveError(f"{name!r} cannot name {what}")
    return name


def put_arrays(group: Group, arrays: Mapping[str, EncodedArray]) -> None:
    """Write arrays into a group, by name."""
    for name, values in arrays.items():
        group.array(name, values)


class ComponentChecker:
    """Checker and encoder of the values of an instance of a component.

    Attributes:
        component: name of the component (``cameras``).
        instance: name of the instance (``front``).
    """

    def __init__(self, component: str, instance: str, interval: Interval) -> None:
        self.component, self.instance = component, instance
        self._interval = interval

    @property
    def full_name(self) -> str:
        """Component and instance, for error messages."""
        return f"{self.component}/{self.instance}"

    def _encode_generic(
        self, data: Arrays | None, t_us: int | None = None
    ) -> dict[str, EncodedArray]:
        what = f"generic data of {self.full_name}"
        return {
            check_name(name, what): self._encode(name, values, t_us)
            for name, values in (data or {}).items()
        }

    def _encode(
        self,
        name: str,
        values: npt.NDArray[Any] | EncodedArray,
        t_us: int | None = None,
        spec: ArraySpec = ArraySpec(),  # noqa: B008
    ) -> EncodedArray:
        if isinstance(values, EncodedArray):
            return values
        if not isinstance(values, np.ndarray):
            self._refuse(f"{name} is not an array but {type(values).__name__}", t_us)
        try:
            return EncodedArray.encode(values, spec)
        except FormatError as error:
            self._refuse(f"{name}: {error}", t_us)

    def _check_metadata(self, metadata: Metadata | None, t_us: int | None = None) -> None:
        try:
            dump_json(metadata or {})
        except FormatError as error:
            self._refuse(str(error), t_us)

    def _check_array(
        self,
        name: str,
        values: npt.NDArray[Any],
        dtype: str,
        shape: Sequence[int | None],
        t_us: int | None = None,
    ) -> None:
        """Check dtype and shape; None in `shape` accepts any length."""
        if not isinstance(values, np.ndarray) or values.dtype != np.dtype(dtype):
            found = getattr(values, "dtype", type(values).__name__)
            self._refuse(f"{name} is {found}, not {np.dtype(dtype)}", t_us)
        fits = values.ndim == len(shape) and all(
            size is None or size == found for size, found in zip(shape, values.shape, strict=True)
        )
        if not fits:
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            self._refuse(f"{name} has shape {values.shape}, not ({wanted})", t_us)

    def _time_us(self, t_ns: int, what: str, t_us: int | None = None) -> int:
        """Return a time in microseconds; raise an ArchiveError if it is outside the sequence."""
        if isinstance(t_ns, bool) or not isinstance(t_ns, int | np.integer):
            self._refuse(f"{what} {t_ns!r} is not a whole number of nanoseconds", t_us)
        time_us = int(t_ns) // NS_PER_US
        if not self._interval.holds(time_us):
            self._refuse(f"{what} {time_us} us is outside the sequence {self._interval}", t_us)
        return time_us

    def _refuse(self, problem: str, t_us: int | None = None) -> NoReturn:
        frame = "" if t_us is None else f", frame {t_us} us"
        raise ArchiveError(f"{self.full_name}{frame}: {problem}")


class ComponentWriter(ComponentChecker):
    """Writer of an instance of a component: one group in a store.

    `SequenceWriter` makes the writers.  The user of a custom component
    (`SequenceWriter.custom`) writes any arrays into `group`, and closes what it opened.

    Attributes:
        version: version of the component's layout.
        metadata: generic metadata; keys may be added until the sequence is finished.
    """

    COMPONENT: ClassVar[str] = ""
    VERSION: ClassVar[str] = "v1"

    def __init__(
        self,
        place: Place,
        instance: str,
        metadata: Metadata | None = None,
    ) -> None:
        super().__init__(self.COMPONENT, instance, place.interval)
        self.version = self.VERSION
        self.metadata: dict[str, Any] = dict(metadata or {})
        self._place = place
        self._streams: list[RowsWriter] = []
        self._check_metadata(self.metadata)

    @cached_property
    def group(self) -> Group:
        """Group of the instance, made at the first access."""
        return self._place.make_group()

    def set_generic_data(self, data: Arrays, metadata: Metadata | None = None) -> None:
        """Add arrays of any shape and dtype, and metadata, to the instance.

        Raises:
            ArchiveError: the name exists already, or the dtype cannot be stored.
        """
        self._check_metadata(metadata)
        self._put_generic(self._encode_generic(data))
        self.metadata.update(metadata or {})

    def _put_generic(self, encoded: Mapping[str, EncodedArray]) -> None:
        if encoded:
            put_arrays(self._generic, encoded)

    def generic_rows(
        self,
        name: str,
        dtype: npt.DTypeLike,
        row_shape: tuple[int, ...] = (),
        *,
        chunk_rows: int = 65_536,
    ) -> RowsWriter:
        """Add a long array of generic data to which rows are appended.

        The array is closed with the sequence.
        """
        self._check_started(name)
        check_name(name, f"generic data of {self.full_name}")
        spec = RowsSpec(np.dtype(dtype), row_shape, chunk_rows)
        encode_dtype(spec.dtype)
        rows = self._generic.rows(name, spec)
        self._streams.append(rows)
        return rows

    def _check_started(self, name: str) -> None:
        """Reject generic rows as long as the instance must not be written to the store."""

    @cached_property
    def _generic(self) -> Group:
        return self.group.group(GENERIC_DATA)

    def finish(self) -> None:
        """Write the spooled data and the attributes; only the sequence calls this."""
        self._write_rest()
        for rows in self._streams:
            rows.close()
        self._check_metadata(self.metadata)
        self.group.set_attributes(
            {
                "component_name": self.component,
                "component_instance_name": self.instance,
                "component_version": self.version,
                "generic_meta_data": self.metadata,
                **self._more_attributes(),
            }
        )

    def _write_rest(self) -> None:
        """Write the data that a component writes at its end."""

    def discard(self) -> None:
        """Discard the spooled data; only the sequence calls this."""

    def _more_attributes(self) -> dict[str, Any]:
        """Return the attributes of this component in addition to the common attributes."""
        return {}
