"""An emulated MTi with a thread that steps it, and a driver at its port."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from drivers._devices import xsens
from drivers._kit.driver import Item, Lost, Sample, SensorConfig, State
from drivers.sim.emulators.faults import Fault
from drivers.sim.emulators.xsens import XsensEmulator
from drivers.xsens import XsensDriver
from recorder.contract.closing import Closing
from recorder.contract.config.options import check_options
from recorder.contract.config.settings import SensorEntry

PATIENCE_S = 60.0  # an upper bound; nothing waits for it


def entry(log: Path | None = None, **options: Any) -> SensorEntry:
    checked = check_options(XsensDriver.options, options)
    return SensorEntry("imu", "xsens", "file" if log else "sim", str(log or ""), checked)


class MtiRig(Closing):
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
        answer_s: float = PATIENCE_S,
        **options: Any,
    ) -> None:
        self._patience = mock.patch.multiple(xsens, _ANSWER_S=answer_s, OPEN_S=14 * answer_s)
        self.emulator = XsensEmulator(entry(log, **options), faults, seed)
        self.source = self.emulator.start()
        scheme, _, self.address = self.source.source.partition(":")
        table = {"timeout_s": PATIENCE_S, **options, **self.source.options, **(driver or {})}
        checked = check_options(XsensDriver.options, table)
        self.driver = XsensDriver(SensorConfig("imu", scheme, self.address, checked))
        self._stop = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._patience.start()
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                due_ns = self.emulator.step(time.monotonic_ns())
                if (wait_s := (due_ns - time.monotonic_ns()) / 1e9) > 0:
                    self._stop.wait(wait_s)
        except BaseException as error:  # noqa: BLE001  looked at in close()
            self.failure = error

    def close(self) -> None:
        self.driver.close()
        self._stop.set()
        self._thread.join()
        self.emulator.stop()
        self._patience.stop()
        if self.failure is not None:
            raise self.failure

    def read_until(self, done: Callable[[list[Item]], bool]) -> list[Item]:
        """Items of the opened driver until they are enough."""
        items: list[Item] = []
        deadline = time.monotonic() + PATIENCE_S
        while not done(items):
            assert time.monotonic() < deadline, items[-5:]
            item = self.driver.read()
            if item is not None:
                items.append(item)
        return items

    def read(self, count: int) -> list[Item]:
        """Items up to `count` samples or more."""
        return self.read_until(lambda items: sum(s.count for s in samples(items)) >= count)


def samples(items: Sequence[Item]) -> list[Sample]:
    return [item for item in items if isinstance(item, Sample)]


def losses(items: Sequence[Item]) -> list[Lost]:
    return [item for item in items if isinstance(item, Lost)]


def states(items: Sequence[Item]) -> list[dict[str, Any]]:
    return [item.values for item in items if isinstance(item, State)]
