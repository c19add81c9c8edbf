"""A driver is three methods; the process around it owns the loop, the signals and the bus.

See `drivers._kit.runner` for that process, and docs/writing-a-driver.md for a whole driver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from recorder.contract.config.options import OptionTable
from recorder.contract.errors import SourceError
from recorder.contract.streams import StreamSpec

Encoded = Sequence[bytes]
"""Samples that are encoded already, one bytes object each (camera JPEGs, replayed xz frames)."""


class EndOfSource(Exception):  # noqa: N818  not an error, like StopIteration
    """The source has ended as it should; `read` raises it instead of returning."""


@dataclass(slots=True)
class Sample:
    """One sample, or a batch of consecutive ones, of one stream.

    Attributes:
        stream: name of the stream, as declared.
        t_ns: int64 [n], ends of the measurements.  Of a played source: the source's own stamps
            in ns, on any time base that is one for all streams of the driver.  Of a device:
            host CLOCK_MONOTONIC.
        data: for every channel an array [n, *shape] of the declared dtype, or `Encoded` frames
            where the channel's format is ``lzmaf`` or ``mjpg``, or one whole xz stream where it
            is ``lzma``.  The kit takes the arrays over: a driver must not write to them again.
        t_dev_ns: int64 [n], the device's own times; needed where the stream has a device clock.
    """

    stream: str
    t_ns: npt.NDArray[np.int64]
    data: Mapping[str, npt.NDArray[Any] | Encoded]
    t_dev_ns: npt.NDArray[np.int64] | None = None

    @property
    def count(self) -> int:
        return len(self.t_ns)


@dataclass(slots=True)
class State:
    """A change of the device or driver worth a record: temperatures, settings, clock state.

    Attributes:
        stream: name of the stream.
        t_ns: on the time base of `Sample.t_ns`.
        values: what there is to say, as JSON can hold it.
        lasting: it holds until it is said anew; of a device, the kit says it again at the start
            of every session.
    """

    stream: str
    t_ns: int
    values: dict[str, Any]
    lasting: bool = False


@dataclass(slots=True)
class Lost:
    """Samples that the device or source lost before the driver could have them.

    Attributes:
        stream: name of the stream.
        t_ns: when it was noticed, on the time base of `Sample.t_ns`.
        cause: a short word for the accounts: ``device``, ``corrupt``, ...
        count: number of samples; None where nobody can count, and then `estimate` may help.
        detail: what exactly, for people and for later analysis.
    """

    stream: str
    t_ns: int
    cause: str
    count: int | None
    estimate: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)


Item = Sample | State | Lost


@dataclass(frozen=True, slots=True)
class SensorConfig:
    """One entry of the config's ``sensors``, as a driver is handed it.

    Attributes:
        name: the sensor's name.
        scheme: the source's scheme, without the colon (``file``, ``sim``).
        address: the source after the colon; of a file-like scheme an absolute path, of
            ``session`` that path and perhaps ``#SENSOR``.
        options: the driver's options, checked, defaults filled in, paths absolute.
        pace: ``realtime`` or ``max``; how fast a played source plays.
        loop: a played source starts again at its end.
    """

    name: str
    scheme: str
    address: str
    options: Mapping[str, Any]
    pace: str = "realtime"
    loop: bool = False

    @property
    def path(self) -> Path:
        """The address of a file-like source as a path; SourceError where there is no file."""
        path = Path(self.address)
        if not path.exists():
            raise SourceError(f"{self.name}: {self.scheme}:{self.address}: no such file")
        return path


class Driver(ABC):
    """Base of all drivers.

    Subclasses say what they offer in class attributes and implement `open`, `read`, `close`.
    Heavy libraries are imported in `open`, so that ``schema`` stays instant.  The loop around a
    driver, in short::

        driver = MyDriver(sensor)
        specs = driver.open()            # declares its streams; may be called again after close()
        try:
            while True:
                item = driver.read()     # Sample, State, Lost, or None: not ready yet
        except EndOfSource:
            ...                          # with loop: true, close() and open() again
        finally:
            driver.close()

    Attributes:
        options: table of the driver's own config keys.
        schemes: source schemes that it takes, with one line each for people.
        live_schemes: those of devices; all others are played: paced by the kit on the session's
            timeline.
        vrs_kind: what a source ``vrs:`` may be for it (see `drivers._kit.vrs_source`); "" for none.
        stream_suffixes: what further streams add to the sensor's name (``_imu``).
    """

    options: ClassVar[OptionTable] = {}
    schemes: ClassVar[Mapping[str, str]] = {}
    live_schemes: ClassVar[frozenset[str]] = frozenset()
    vrs_kind: ClassVar[str] = ""
    stream_suffixes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, sensor: SensorConfig) -> None:
        self.sensor = sensor

    @property
    def played(self) -> bool:
        """Whether the kit maps `Sample.t_ns` onto the session's timeline."""
        return self.sensor.scheme not in self.live_schemes

    @property
    def origin_ns(self) -> int | None:
        """The source stamp that plays at the session's start; None: that of the first item."""
        return None

    @abstractmethod
    def open(self) -> Sequence[StreamSpec]:
        """Open the source and declare its streams; every stream that it may ever give.

        What fails here has released what it held: `close` is called after success alone.  Of a
        device it takes no longer than about five seconds.

        Raises:
            SourceError: a played source is missing or is not what it should be.
            DeviceError: a device does not answer; it is tried again later.
        """

    @abstractmethod
    def read(self) -> Item | None:
        """The next item in order of time; None where there is none yet (after a short wait).

        Raises:
            EndOfSource: a played source has ended.
            SourceError: the source broke in the middle.
            DeviceError: the device has gone: it is closed and opened again until it is back, and
                the kit puts down the interval of loss.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the source.  Called once per `open` that succeeded, also after errors."""
