"""A device that fails as it is told to, through the kit's own ways of saying so."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from drivers.kit.driver import Driver, Item, Lost, Sample
from drivers.kit.runner import main
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.options import Option

PERIOD_NS = 10_000_000
PACKETS = 7
"""Samples that a network loses."""


class FailingDriver(Driver):
    """Counts at 100 Hz."""

    options = {
        "fault": Option("str", "none", "what goes wrong: hangs, jumps, loses"),
        "when": Option("path", None, "it fails once, when this file is not empty"),
        "maker": Option("str", "", "what the device says of itself"),
    }
    schemes = {"live": "a device"}
    live_schemes = frozenset({"live"})

    def open(self) -> Sequence[StreamSpec]:
        """There is nothing that could be missing."""
        self._number, self._failed = 0, False
        value = ChannelSpec("value", "raw", "u4", (1,), self.sensor.options["maker"], "1")
        settings = {"maker": self.sensor.options["maker"]}
        return [StreamSpec(self.sensor.name, (value,), rate_hz=100.0, settings=settings)]

    def read(self) -> Item | None:
        """The next number, or what goes wrong with it."""
        fault, number = self.sensor.options["fault"], self._number
        self._number += 1
        time.sleep(PERIOD_NS / 1e9)
        t_ns = time.monotonic_ns()
        if not self._failed and self._is_time():
            self._failed = True
            if fault == "hangs":
                while True:
                    signal.pause()
            if fault == "jumps":
                t_ns += 3_600_000_000_000
            if fault == "loses":
                self._number += PACKETS
                return Lost(self.sensor.name, t_ns, "network", PACKETS)
        data = {"value": np.full((1, 1), number, np.uint32)}
        return Sample(self.sensor.name, np.array([t_ns]), data)

    def _is_time(self) -> bool:
        when = self.sensor.options["when"]
        return when is not None and Path(when).stat().st_size > 0

    def close(self) -> None:
        """Nothing is held."""


if __name__ == "__main__":
    main(FailingDriver)
