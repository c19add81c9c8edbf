"""A simulated sensor's clock that is off: the stamps are wrong, the measurements are not.

A simulated driver measures the world at true times.  `SkewedDriver` moves the stamps, the device's
own times, and the times of columns by the same amount.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Driver, Item, NewStream, Sample
from drivers.kit.sample_batches import DeferredData, keep_samples
from drivers.world.noise import noise_seed
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option

CLOCK_OPTION: Final = Option(
    "map",
    description="sim: error of the sensor's clock; what is measured at t has the stamp t + error",
    keys={
        "offset_ms": Option(
            "float",
            0.0,
            "error at the start; positive: the stamps are late [ms]",
            minimum=-3_600_000,
            maximum=3_600_000,
        ),
        "drift_ppm": Option(
            "float", 0.0, "growth of the error [us per s]", minimum=-1000, maximum=1000
        ),
        "jitter_us": Option(
            "float",
            0.0,
            "standard deviation of a stamp's own error, by the seed [us]",
            minimum=0,
            maximum=1_000_000,
        ),
    },
)
"""The option ``clock`` of every simulated sensor."""

Times = npt.NDArray[np.int64]

_WEYL: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class ClockError:
    """The error of a simulated sensor's clock.

    >>> ClockError(offset_ns=5_000_000).stamps(np.array([0, 1_000_000_000]))
    array([   5000000, 1005000000])

    Attributes:
        offset_ns: at time 0.
        drift: growth of the error, s per s.
        jitter_ns: standard deviation of each stamp's own error.
        seed: of the jitter.
    """

    offset_ns: float = 0.0
    drift: float = 0.0
    jitter_ns: float = 0.0
    seed: int = 0

    @classmethod
    def of(cls, name: str, option: Mapping[str, Any], seed: int) -> ClockError:
        """Return the error that a sensor's option ``clock`` describes.

        Args:
            name: the sensor's name, so that each sensor has its own jitter.
            option: the option, checked; empty: no error.
            seed: the option ``seed``.
        """
        values = (float(option.get(key) or 0.0) for key in CLOCK_OPTION.keys or ())
        offset_ms, drift_ppm, jitter_us = values
        return cls(offset_ms * 1e6, drift_ppm * 1e-6, jitter_us * 1e3, noise_seed(seed, name, ""))

    def __bool__(self) -> bool:
        return bool(self.offset_ns or self.drift or self.jitter_ns)

    def stamps(self, t_ns: Times) -> Times:
        """Return the stamps of measurements at true times [n] since the start, ns."""
        error = self.offset_ns + self.drift * t_ns
        if self.jitter_ns:
            error = error + self.jitter_ns * self._draw_normal(t_ns)
        return np.asarray(t_ns + np.rint(error).astype(np.int64))

    def true_times(self, stamps: Times) -> Times:
        """Return the true times of stamps [n], ns; the jitter is not known afterwards."""
        exact = (stamps - self.offset_ns) / (1.0 + self.drift)
        return np.asarray(np.rint(exact), np.int64)

    def _draw_normal(self, t_ns: Times) -> npt.NDArray[np.float64]:
        """Return a standard normal number for each time, the same whatever else is asked for."""
        seed = (self.seed * _WEYL + (self.seed >> 64)) & _MASK
        key = t_ns.astype(np.uint64) * np.uint64(2) + np.uint64(seed)
        first, second = (_mix(key + np.uint64(k)) for k in range(2))
        return np.asarray(np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * np.pi * second))


def _mix(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return numbers in the open interval (0, 1), one for each key (SplitMix64)."""
    z = keys * np.uint64(_WEYL)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


class SkewedDriver(Driver):
    """A simulated driver with the clock of its option ``clock``.

    Stamps of a stream increase: a stamp that its jitter moves before its predecessor is 1 ns after
    it.  What would be stamped before the source's start is left out.  The error is in the
    streams' settings, under ``clock``.

    >>> driver = SkewedDriver(ImuDriver(sensor), ClockError(offset_ns=5_000_000))
    >>> driver.open()[0].settings["clock"]["offset_ms"]
    5.0

    Args:
        driver: of the source ``sim:``, not yet opened.
        error: its clock's.
    """

    def __init__(self, driver: Driver, error: ClockError) -> None:
        super().__init__(driver.sensor)
        self._driver, self._error = driver, error
        self._ahead: deque[Item | NewStream | None] = deque()
        self._specs: dict[str, StreamSpec] = {}
        self._last_ns: dict[str, int] = {}

    def open(self) -> Sequence[StreamSpec]:
        specs = self._driver.open()
        self.warnings, self.late_ns = self._driver.warnings, self._driver.late_ns
        self._last_ns = {}
        self._ahead.clear()
        self._origin_ns = self._driver.origin_ns
        while self._origin_ns is None:  # the true time of the first item, not its stamp
            item = self._driver.read()
            self._ahead.append(item)
            if item is not None and not isinstance(item, NewStream):
                self._origin_ns = int(np.min(item.t_ns))
        return [self._declare(spec) for spec in specs]

    def read(self) -> Item | NewStream | None:
        item = self._ahead.popleft() if self._ahead else self._driver.read()
        if item is None:
            return None
        if isinstance(item, NewStream):
            return NewStream(self._declare(item.spec))
        origin_ns = self._origin_ns or 0
        if not isinstance(item, Sample):
            item.t_ns = int(self._stamps(np.array([item.t_ns]))[0])
            return item if item.t_ns >= origin_ns else None
        return self._move(item, origin_ns)

    def close(self) -> None:
        self._driver.close()

    def _declare(self, spec: StreamSpec) -> StreamSpec:
        self._specs[spec.name] = spec
        error = self._error
        values = (error.offset_ns / 1e6, error.drift * 1e6, error.jitter_ns / 1e3)
        clock = dict(zip(CLOCK_OPTION.keys or (), values, strict=True))
        return replace(spec, settings={**spec.settings, "clock": clock})

    def _stamps(self, t_ns: Times) -> Times:
        origin_ns = self._origin_ns or 0
        return self._error.stamps(np.asarray(t_ns, np.int64) - origin_ns) + origin_ns

    def _move(self, sample: Sample, origin_ns: int) -> Sample | None:
        true_ns = np.asarray(sample.t_ns, np.int64)
        order = np.arange(len(true_ns))
        stamps = np.maximum.accumulate(self._stamps(true_ns) - order) + order
        if (last_ns := self._last_ns.get(sample.stream)) is not None:
            stamps = np.maximum(stamps, last_ns + 1 + order)
        if len(stamps):
            self._last_ns[sample.stream] = int(stamps[-1])
        moved = stamps - true_ns
        sample.t_ns = stamps
        if sample.t_dev_ns is not None:
            sample.t_dev_ns = sample.t_dev_ns + moved
        columns = [c for c in self._specs[sample.stream].channels if c.device_time]
        if columns:
            data = sample.data

            def move_columns() -> Mapping[str, Any]:
                made = dict(data.items())
                for channel in columns:
                    values = np.asarray(made[channel.name])
                    by = moved.reshape(-1, *(1,) * (values.ndim - 1)).astype(values.dtype)
                    # 0 is "not measured".
                    made[channel.name] = np.where(values != 0, values + by, values)
                return made

            sample.data = DeferredData(move_columns)
        kept = stamps >= origin_ns
        if not kept.any():
            return None
        keep_samples(sample, kept)
        return sample
