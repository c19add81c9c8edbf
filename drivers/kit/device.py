"""Opening of a device, and reopening after its loss.

The absence of a device is reported and never ends its driver: the driver retries with increasing
pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drivers.kit.driver import Driver
from recorder.codecs.streams import StreamSpec
from recorder.common.clock import Clock, SignalEvent
from recorder.common.errors import DeviceError

BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0)

Report = Callable[..., None]


class Device:
    """A driver's device, opened with retries.

    Args:
        driver: of a live source.
        clock: injectable.
        stop: set when the process is to end.
        report: reports to the parent: ``device`` with ``state`` (absent, lost, present) and
            ``message``.

    Attributes:
        absent: the driver is not open.
        absent_since_ns: CLOCK_MONOTONIC of the first failed opening; None: no opening has failed.
    """

    def __init__(self, driver: Driver, clock: Clock, stop: SignalEvent, report: Report) -> None:
        self._driver = driver
        self._clock = clock
        self._stop = stop
        self._report = report
        self.absent = not driver.played
        self.absent_since_ns: int | None = None

    def find(self, lost: str = "") -> Sequence[StreamSpec] | None:
        """Open the device.  Returns when it is open, or None when the process is to end.

        Args:
            lost: why the device was lost; empty at the driver's start.

        Raises:
            SourceError, ConfigError: errors that no device causes; they are not retried.
        """
        self.absent = True
        reported, tries = lost, 0
        if lost:
            self._report("device", state="lost", message=lost)
        while not self._stop.is_set():
            try:
                specs = self._driver.open()
            except DeviceError as error:
                if self.absent_since_ns is None:
                    self.absent_since_ns = self._clock.monotonic_ns()
                if str(error) != reported and not lost:
                    reported = str(error)
                    self._report("device", state="absent", message=reported)
                wait_s = BACKOFF_S[min(tries, len(BACKOFF_S) - 1)]
                self._clock.wait(self._stop, wait_s)
                tries += 1
                continue
            self.absent = False
            if reported:
                self._report("device", state="present", message="")
            return specs
        return None
