"""An emulated MTi with a thread that steps it, and a driver at its port."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from drivers.kit.driver import Item
from drivers.kit.emulator_faults import Fault
from drivers.xsens import connection
from drivers.xsens.driver import XsensDriver
from drivers.xsens.emulator import XsensEmulator
from recorder.common.files import Closeable
from recorder.config.settings import SensorEntry
from tests.support.devices import make_driver, make_entry, read_until, samples, stepped


def entry(log: Path | None = None, **options: Any) -> SensorEntry:
    return make_entry(XsensDriver, "imu", "xsens", "file" if log else "sim", log or "", **options)


class MtiRig(Closeable):
    """The device runs until it is closed; `driver` is the driver that records from it.

    Args:
        faults, log, seed: of the emulated device.
        driver: options of the driver alone.
        answer_s: the longest wait for an answer; the driver's own is too short on a busy machine.
        options: of both.
    """

    def __init__(
        self,
        faults: Sequence[Fault] = (),
        log: Path | None = None,
        seed: int = 1,
        driver: dict[str, Any] | None = None,
        *,
        answer_s: float = 60.0,
        **options: Any,
    ) -> None:
        self.emulator = XsensEmulator(entry(log, **options), faults, seed)
        self.source = self.emulator.start()
        scheme, _, self.address = self.source.source.partition(":")
        table = {"timeout_s": 60.0, **options, **self.source.options, **(driver or {})}
        self.driver = make_driver(XsensDriver, "imu", scheme, self.address, **table)
        self._running = contextlib.ExitStack()
        self._running.enter_context(
            mock.patch.multiple(connection, _ANSWER_S=answer_s, OPEN_S=14 * answer_s)
        )
        self._running.callback(self.emulator.stop)
        self._stepping = self._running.enter_context(contextlib.ExitStack())
        self._stepping.enter_context(stepped(self.emulator))

    def close(self) -> None:
        self.driver.close()
        self._running.close()

    def hold(self) -> None:
        """Step the device no more; the test does what it would do."""
        self._stepping.close()

    def read_until(self, done: Callable[[list[Item]], bool]) -> list[Item]:
        """Items of the opened driver until they are enough."""
        return read_until(self.driver, done)

    def read(self, count: int) -> list[Item]:
        """Items up to `count` samples or more."""
        return self.read_until(lambda items: sum(s.count for s in samples(items)) >= count)
