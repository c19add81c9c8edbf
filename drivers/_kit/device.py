"""The life of a device: absent, there, gone, back.

An absent device is a state that is reported, never the end of its driver: the driver opens the
device again and again, each time a little later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from drivers._kit.driver import Driver
from recorder.contract.clock import Clock, SignalEvent
from recorder.contract.errors import DeviceError
from recorder.contract.streams import StreamSpec

BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0)

Report = Callable[..., None]


class Device:
    """Opens a driver's device, as often as it takes.

    Args:
        driver: of a live source.
        clock: injectable.
        stop: set when the process is to end.
        report: tells the parent: ``device`` with ``state`` (absent, lost, present) and
            ``message``.

    Attributes:
        absent: the driver is not open.
        absent_since_ns: when it was first found absent, CLOCK_MONOTONIC; None where it was not.
    """

    def __init__(self, driver: Driver, clock: Clock, stop: SignalEvent, report: Report) -> None:
        self._driver = driver
        self._clock = clock
        self._stop = stop
        self._report = report
        self.absent = not driver.played
        self.absent_since_ns: int | None = None

    def find(self, lost: str = "") -> Sequence[StreamSpec] | None:
        """Open the device; returns when it is there, or None when the process is to end.

        Args:
            lost: why it has gone; empty at the driver's start.

        Raises:
            SourceError, ConfigError: no device can be at fault for that.
        """
        self.absent = True
        reported, tries = lost, 0
        if lost:
            self._say("lost", lost)
        while not self._stop.is_set():
            try:
                specs = self._driver.open()
            except DeviceError as error:
                if self.absent_since_ns is None:
                    self.absent_since_ns = self._clock.monotonic_ns()
                if str(error) != reported and not lost:
                    reported = str(error)
                    self._say("absent", reported)
                wait_s = BACKOFF_S[min(tries, len(BACKOFF_S) - 1)]
                self._clock.wait(self._stop, wait_s)
                tries += 1
                continue
            self.absent = False
            if reported:
                self._say("present", "")
            return specs
        return None

    def _say(self, state: str, message: str) -> None:
        values: dict[str, Any] = {"state": state, "message": message}
        self._report("device", **values)
