"""The base class of drivers: three methods; the process owns the loop, the signals and the bus.

`drivers.kit.runner` is that process.  docs/drivers.md shows a complete driver.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from recorder.codecs.streams import StreamSpec
from recorder.common.errors import SourceError
from recorder.config.options import OptionTable

INCOMPLETE = "incomplete"
"""Key of a `State` that counts samples which lack parts."""

Encoded = Sequence[bytes]
"""Encoded samples, one bytes object each (camera JPEGs, replayed xz frames)."""


class EndOfSource(Exception):  # noqa: N818  not an error, like StopIteration
    """Normal end of the source; `read` raises it instead of returning an item."""


@dataclass(slots=True)
class Sample:
    """One sample or a batch of consecutive samples of one stream.

    Attributes:
        stream: name of the stream, as declared.
        t_ns: int64 [n], ends of the measurements.  Played source: the source's own stamps in ns,
            on any time base that all streams of the driver share.  Device: host CLOCK_MONOTONIC.
        data: for every channel an array [n, *shape] of the declared dtype; or `Encoded` frames
            where the channel's format is ``lzmaf`` or ``mjpg``; or one complete xz stream where
            the format is ``lzma``.  The kit takes ownership of the arrays: a driver must not write
            to them afterwards.
        t_dev_ns: int64 [n], the device's own times; required where the stream has a device clock.
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
    """A change of the device or driver that is recorded: temperatures, settings, clock state.

    Attributes:
        stream: name of the stream.
        t_ns: on the time base of `Sample.t_ns`.
        values: the content, in JSON types.  The key ``incomplete`` counts samples before it that
            lack parts (`incomplete`).
        lasting: the values are valid until a later state replaces them; for a device, the kit
            repeats them at the start of every session.
    """

    stream: str
    t_ns: int
    values: dict[str, Any]
    lasting: bool = False


@dataclass(slots=True)
class Lost:
    """Samples that the device or source lost before the driver received them.

    Attributes:
        stream: name of the stream.
        t_ns: time of detection, on the time base of `Sample.t_ns`.
        cause: a short word for the loss counts: ``device``, ``corrupt``, ...
        count: number of samples; None where it is unknown; `estimate` may then be set.
        detail: details for people and for later analysis.
    """

    stream: str
    t_ns: int
    cause: str
    count: int | None
    estimate: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)


def incomplete(cause: str, parts: int, samples: int = 1) -> dict[str, Any]:
    """Return the part of a `State` that counts stored samples which lack parts.

    The state follows its samples, with the stamp of the last one.  The session counts them apart
    from lost samples::

        yield Sample(...)
        yield State(name, t_ns, {"frame": 17, **incomplete("network", packets_missing)})

    Args:
        cause: a short word, as of a `Lost`.  Each sample is counted under one cause.
        parts: number of columns, packets or other parts that the samples lack together.
        samples: number of samples.
    """
    return {INCOMPLETE: {cause: {"samples": samples, "parts": parts}}}


Item = Sample | State | Lost


@dataclass(frozen=True, slots=True)
class NewStream:
    """Declaration of a stream that `Driver.open` did not know.

    The stream's items follow it.  A restarted driver declares such streams in `open`, or again when
    it finds them.  A source that plays in a loop may declare them again.

    Attributes:
        spec: the stream.
    """

    spec: StreamSpec


@dataclass(frozen=True, slots=True)
class SensorConfig:
    """One entry of the config's ``sensors``, as passed to a driver.

    Attributes:
        name: the sensor's name.
        scheme: the source's scheme, without the colon (``file``, ``sim``).
        address: the source after the colon; an absolute path for file-like schemes; a path with an
            optional ``#SENSOR`` for ``session``.
        options: the driver's options, checked, with defaults and absolute paths.
        pace: ``realtime`` or ``max``: the speed of a played source.
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
        """A file-like source's address as a path; SourceError if the file does not exist."""
        path = Path(self.address)
        if not path.exists():
            raise SourceError(f"{self.name}: {self.scheme}:{self.address}: no such file")
        return path

    def path_and_part(self) -> tuple[Path, str | None]:
        """Return the path and the text after its ``#``; a path that exists may contain a ``#``."""
        path, mark, part = self.address.rpartition("#")
        whole = Path(self.address)
        # A topic may be longer than a file's name: that is no error here, but no file.
        is_file = os.path.exists(whole)  # noqa: PTH110
        return (Path(path), part) if mark and not is_file else (whole, None)

    def fault(self, reason: str | Exception) -> SourceError:
        """Return an error of a file-like source.

        Args:
            reason: a text, or the error whose text is used.  A path at the beginning of
                the text is removed.
        """
        text = getattr(reason, "strerror", None) or str(reason)
        text = text.removeprefix(f"{self.address.partition('#')[0]}: ")  # the address names it
        return SourceError(f"{self.name}: {self.scheme}:{self.address}: {text}")


class Driver(ABC):
    """Base of all drivers.

    Subclasses declare options and sources in class attributes and implement `open`, `read`,
    `close`.  Heavy libraries, and the modules of single sources, are imported in `open`, so that
    ``schema`` starts quickly.  The loop around a driver, in short::

        driver = MyDriver(sensor)
        specs = driver.open()            # declares the streams; may be called again after close()
        try:
            while True:
                item = driver.read()     # Sample, State, Lost, or None: no item yet
        except EndOfSource:
            ...                          # with loop: true: close() and open() again
        finally:
            driver.close()

    Attributes:
        options: table of the driver's own config keys.
        schemes: supported source schemes, with a one-line description each.
        live_schemes: schemes of devices.  Sources of all other schemes are played: the kit paces
            them on the session's timeline.
        recorded_kind: kind of stream that the kit plays for the driver from recordings in VRS and
            bags, see `drivers.kit.vrs_source` and `mcap_source`; "": the kit plays none.
        stream_suffixes: suffixes of further streams after the sensor's name (``_imu``).
        kept_bytes: freed memory that the driver's process keeps for its next arrays.
        sim_origin_ns: of ``sim:``, the source stamp at the session's start; None: the first item's.
        receives: addresses and UDP ports of this machine at which no other driver may receive, once
            the source is open; the address "" means all.
        warnings: possible causes of data loss although the source opens; `open` sets them,
            ``check`` shows them.
        late_ns: of a played source: how far a sample may lie before its predecessor; the kit sorts
            such samples by their stamps.
        ordered: a played source whose samples are in the order of their stamps, whose stamps are
            free of the clock's steps, and whose gaps are real: the kit does not check the stamps.
        clock_steps: of such a source: the steps that its stamps are free of, in ns, with a sentence
            about each.  Sources of one recording give the same sentences; each is reported once.
        stream_steps: of such a source: further steps, of the stamps of one stream: the stream, the
            step in ns, and a sentence.  The kit takes them out and reports them.
        replaced_stamps: of such a source, at its end: number of samples whose own stamps cannot be
            true, and that have the times of the log.
    """

    options: ClassVar[OptionTable] = {}
    schemes: ClassVar[Mapping[str, str]] = {}
    live_schemes: ClassVar[frozenset[str]] = frozenset()
    recorded_kind: ClassVar[str] = ""
    stream_suffixes: ClassVar[tuple[str, ...]] = ()
    kept_bytes: ClassVar[int] = 0
    sim_origin_ns: ClassVar[int | None] = None
    late_ns: int = 0
    ordered: bool = False

    def __init__(self, sensor: SensorConfig) -> None:
        self.sensor = sensor
        self.receives: Sequence[tuple[str, int]] = ()
        self._origin_ns = self.sim_origin_ns if sensor.scheme == "sim" else None
        self.warnings: list[str] = []
        self.clock_steps: Sequence[tuple[int, str]] = ()
        self.stream_steps: list[tuple[str, int, str]] = []
        self.replaced_stamps = 0

    @property
    def played(self) -> bool:
        """True if the kit maps `Sample.t_ns` onto the session's timeline."""
        return self.sensor.scheme not in self.live_schemes

    @property
    def origin_ns(self) -> int | None:
        """Source stamp that is played at the session's start; None: the first item's stamp."""
        return self._origin_ns

    @abstractmethod
    def open(self) -> Sequence[StreamSpec]:
        """Open the source and declare every stream that it is known to give.

        An `open` that fails must release its resources: `close` is only called after success.
        Opening a device takes at most about five seconds.

        Raises:
            SourceError: a played source is missing or invalid.
            DeviceError: a device does not answer; the kit retries later.
        """

    @abstractmethod
    def read(self) -> Item | NewStream | None:
        """Return the next item in order of time; None after a short wait without an item.

        A stream that appears after `open` is declared by a `NewStream` before its first item.

        Raises:
            EndOfSource: a played source has ended.
            SourceError: the rest of the source cannot be read.
            DeviceError: the device is lost; the kit closes the device, reopens it until it is back,
                and records the interval of loss.
        """

    def repeat(self, t_ns: int) -> Sequence[Sample]:  # noqa: ARG002  most devices have none
        """Return a device's samples that are valid until others replace them, to be recorded again.

        The kit asks at the start of every session, as it repeats lasting states.

        Args:
            t_ns: CLOCK_MONOTONIC of the start: the stamp of the samples, which are older.
        """
        return ()

    @abstractmethod
    def close(self) -> None:
        """Release the source.  Called once per successful `open`, also after errors."""
