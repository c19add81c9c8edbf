"""Schema of a driver, read without importing the driver.

``python -m drivers.NAME schema`` prints a `DriverSchema` as JSON; the config's entries for that
driver are checked against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import msgspec

from recorder.common.errors import ProtocolError
from recorder.common.struct_codec import decode_values
from recorder.config.options import TYPES, Option, OptionTable, table_to_wire

SESSION_SCHEME = "session"
"""Scheme that replays a recorded sensor; the kit implements it for every driver."""
SESSION_SCHEMES = (SESSION_SCHEME, "packets")
"""Schemes of sources that are a sensor of a session: DIR[#SENSOR]."""
DATASET_SCHEMES: Mapping[str, str] = {
    "ncore": "PATH#PART: a sensor of an NCore sequence (JSON, .zarr.itar, .zarr)",
    "edgefirst": "PATH#PART: a sensor of an EdgeFirst dataset",
}
"""Schemes of sources that are a sensor of a dataset; the kit implements them for every driver."""
_SESSION_HELP = "replay of a recorded sensor: DIR[#SENSOR], or FILE.vrs[#SENSOR] (packed)"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


class DescribesItself(Protocol):
    """Driver class with the attributes that `DriverSchema.of` reads."""

    options: ClassVar[OptionTable]
    schemes: ClassVar[Mapping[str, str]]
    live_schemes: ClassVar[frozenset[str]]


@dataclass(frozen=True, slots=True)
class DriverSchema:
    """Options and sources of a driver.

    Attributes:
        name: the driver's name in a config: a module of ``drivers`` or a dotted module name.
        description: one line for users.
        options: table of its own config keys.
        schemes: the source schemes that the driver takes, with one line each; ``session`` and
            those of datasets are always among them.
        live_schemes: those of devices; sources of all others are played.
        stream_suffixes: suffixes of the sensor's name in further streams (``_imu``), so that two
            sensors with the same stream are reported before anything starts.
    """

    name: str
    description: str = ""
    options: OptionTable = field(default_factory=dict)
    schemes: Mapping[str, str] = field(default_factory=dict)
    live_schemes: frozenset[str] = frozenset()
    stream_suffixes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if SESSION_SCHEME not in self.schemes:
            schemes = {**self.schemes, SESSION_SCHEME: _SESSION_HELP, **DATASET_SCHEMES}
            object.__setattr__(self, "schemes", schemes)
        for scheme in self.schemes:
            if not _SCHEME.fullmatch(scheme):
                raise ProtocolError(f"driver {self.name!r}: {scheme!r} is no scheme of a source")
        if unknown := set(self.live_schemes) - set(self.schemes):
            raise ProtocolError(f"driver {self.name!r}: live schemes {unknown} are not declared")
        _check_table(self.options, f"driver {self.name!r}: option ")

    @classmethod
    def of(cls, name: str, driver: type[DescribesItself]) -> DriverSchema:
        """Make the schema of a driver class from its class attributes and docstring."""
        lines = (driver.__doc__ or "").strip().splitlines()
        suffixes: Iterable[str] = getattr(driver, "stream_suffixes", ())
        return cls(
            name=name,
            description=lines[0] if lines else "",
            options=driver.options,
            schemes=driver.schemes,
            live_schemes=driver.live_schemes,
            stream_suffixes=tuple(suffixes),
        )

    def to_wire(self) -> dict[str, Any]:
        """Convert the schema to a plain mapping for JSON."""
        schemes, live = dict(self.schemes), sorted(self.live_schemes)
        own = {"options": table_to_wire(self.options), "schemes": schemes, "live_schemes": live}
        wire: dict[str, Any] = msgspec.to_builtins(self)
        return wire | own

    @classmethod
    def from_wire(cls, wire: Any) -> DriverSchema:
        """Convert a mapping of `to_wire` to a schema.

        Raises:
            ProtocolError: the mapping is not a schema.
        """
        return decode_values(wire, cls, "not a driver's schema")


def _check_table(table: OptionTable, where: str) -> None:
    for name, option in table.items():
        if not isinstance(option, Option) or option.type not in TYPES:
            types = ", ".join(TYPES)
            raise ProtocolError(f"{where}{name!r}: its type needs to be one of {types}")
        if option.items and option.items not in TYPES:
            raise ProtocolError(f"{where}{name!r}: items of type {option.items!r} are unknown")
        if option.keys is not None:
            _check_table(option.keys, f"{where}{name}.")
