"""Faults of simulated sensors: what is wrong with a measurement, from when to when, how much.

Each family of sensors has its kinds; the sensor's model applies them, so that the emulated devices
have them, too.  All follow from the seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.world.noise import bits, normal, uniform
from drivers.world.raycast import NEAREST_M, Image
from recorder.common.errors import ConfigError
from recorder.config.options import Option


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        amount: default.
        most: largest amount.
        parts: of a combination: the faults' amounts by kind, from its own amount.
    """

    amount: float | None = None
    most: float = math.inf
    parts: Callable[[float], Mapping[str, float]] | None = None


Kinds = Mapping[str, Kind]

CAMERA_FAULTS: Final[Kinds] = {
    "blur": Kind(3.0, 100.0),
    "gain": Kind(2.0, 100.0),
    "flicker": Kind(0.5, 1.0),
    "frozen": Kind(),
    "torn": Kind(0.5, 1.0),
    "dirt": Kind(0.1, 1.0),
    "noise": Kind(10.0, 100.0),
    "rain": Kind(1.0, 5.0, lambda a: {"blur": 1.2 * a, "dirt": 0.08 * a, "noise": 3.0 * a}),
    "night": Kind(0.15, 1.0, lambda a: {"gain": a, "noise": 6.0 * (1.0 - a)}),
}
LIDAR_FAULTS: Final[Kinds] = {
    "sector": Kind(0.1, 1.0),
    "beam": Kind(1.0),
    "noise": Kind(0.1, 10.0),
    "drop": Kind(0.3, 1.0),
    "rain": Kind(1.0, 4.0, lambda a: {"drop": 0.25 * a, "noise": 0.03 * a}),
}
IMU_FAULTS: Final[Kinds] = {"stick": Kind(5.0, 5.0), "clip": Kind(0.1)}
GNSS_FAULTS: Final[Kinds] = {"jump": Kind(25.0, 1e6)}
CAN_FAULTS: Final[Kinds] = {"silence": Kind(None, 0x1FFFFFFF)}
RADAR_FAULTS: Final[Kinds] = {"noise": Kind(10.0, 1000.0)}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one kind that is no combination.

    Attributes:
        kind: its name.
        from_s, to_s: world times of its begin and end.
        amount: see docs/configuration.md; None: the kind has none.
        number: its place in the option, for its random numbers.
    """

    kind: str
    from_s: float = 0.0
    to_s: float = math.inf
    amount: float | None = None
    number: int = 0

    def active(self, t_s: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return at which times [n] the fault is active."""
        return (t_s >= self.from_s) & (t_s < self.to_s)

    def is_active(self, t_s: float) -> bool:
        """Return whether the fault is active at a time."""
        return self.from_s <= t_s < self.to_s

    @property
    def size(self) -> float:
        """The amount of a kind that has one."""
        return self.amount or 0.0


def fault_option(kinds: Kinds) -> Option:
    """Return the option ``faults`` of a sensor that has these kinds."""
    known = ", ".join(kinds)
    return Option(
        "list",
        [],
        f"sim: faults of the measurement: {known}",
        items="map",
        keys={
            "kind": Option("str", description="kind", choices=tuple(kinds), required=True),
            "from_s": Option("float", 0.0, "begin, from the start [s]", minimum=0),
            "to_s": Option("float", None, "end, from the start [s] (default: none)", minimum=0),
            "amount": Option("float", None, "how much (default: of the kind)", minimum=0),
        },
    )


def read_faults(name: str, options: Mapping[str, Any], kinds: Kinds) -> tuple[Fault, ...]:
    """Return the faults that a sensor's checked options describe, combinations as their parts.

    Args:
        name: the sensor's name, for messages.
        options: the sensor's; ``faults`` may be absent.
        kinds: of the sensor.

    Raises:
        ConfigError: a fault ends before it begins, or its amount is too large; names the key.
    """
    found: list[Fault] = []
    for place, entry in enumerate(options.get("faults") or ()):
        where, kind = f"{name}.faults[{place}]", kinds[entry["kind"]]
        from_s = entry["from_s"]
        to_s = math.inf if entry["to_s"] is None else entry["to_s"]
        if to_s <= from_s:
            raise ConfigError(f"{to_s:g} is not after from_s, {from_s:g}", key=f"{where}.to_s")
        amount = kind.amount if entry["amount"] is None else entry["amount"]
        if amount is not None and amount > kind.most:
            text = f"{amount:g} is above the maximum of {entry['kind']}, {kind.most:g}"
            raise ConfigError(text, key=f"{where}.amount")
        if kind.parts is None:
            found.append(Fault(entry["kind"], from_s, to_s, amount, place))
        else:
            parts = kind.parts(amount or 0.0)
            found += (Fault(part, from_s, to_s, size, place) for part, size in parts.items())
    return tuple(found)


def active_at(faults: Sequence[Fault], t_s: float) -> list[Fault]:
    """Return the faults that are active at a time."""
    return [fault for fault in faults if fault.is_active(t_s)]


class LidarFaults:
    """The faults of one lidar's sweeps.

    Args:
        faults: of the kinds ``sector`` (share of the columns, side by side, without returns),
            ``beam`` (number of beams without returns), ``noise`` (standard deviation in m of what
            is added to a distance) and ``drop`` (share of the returns).
        seed: of their choices.
        azimuth_rad: f8 [w], of the columns.
        rows: number of beams.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        seed: int,
        azimuth_rad: npt.NDArray[np.float64],
        rows: int,
    ) -> None:
        self._faults, self._seed, self._rows = faults, seed, rows
        self._order = np.argsort(azimuth_rad, kind="stable")

    def apply(self, distances: Iterable[Image], t_s: float) -> None:
        """Change distances f4 [h, w] m of a sweep that begins at a world time, in place."""
        faults = active_at(self._faults, t_s)
        if not faults:
            return
        for distance in distances:
            for fault in faults:
                self._change(distance, fault, round(t_s * 1e6))

    def _change(self, distance: Image, fault: Fault, sweep: int) -> None:
        width, seed = len(self._order), self._seed
        if fault.kind == "sector":
            begin = int(bits(seed, "sector", fault.number, 1)[0]) % width
            covered = (begin + np.arange(round(fault.size * width))) % width
            distance[:, self._order[covered]] = np.inf
        elif fault.kind == "beam":
            order = np.argsort(uniform(seed, "beam", fault.number, self._rows), kind="stable")
            distance[order[: round(fault.size)]] = np.inf
        elif fault.kind == "drop":
            drawn = uniform(seed + fault.number, "drop", sweep, distance.size)
            distance[drawn.reshape(distance.shape) < fault.size] = np.inf
        else:
            drawn = normal(seed + fault.number, "scatter", sweep, distance.size)
            noise = (drawn * fault.size).astype(np.float32).reshape(distance.shape)
            np.maximum(distance + noise, np.float32(NEAREST_M), out=distance)
