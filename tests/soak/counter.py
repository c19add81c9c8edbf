"""A device that counts: what it gave, and what is missing, shows in the numbers themselves.

Every sample holds the life of its driver (the start of the process) and a number, gap-free within
that life.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from drivers.kit.driver import Driver, Item, Sample
from drivers.kit.runner import main
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.options import Option


class CounterDriver(Driver):
    """Counts at a rate, with so many bytes beside every number."""

    options = {
        "rate": Option("float", 100.0, "Hz", minimum=0.1, maximum=10_000),
        "size": Option("int", 0, "bytes of every sample besides", minimum=0),
        "batch": Option("int", 1, "samples at a time", minimum=1),
    }
    schemes = {"count": "numbers"}
    live_schemes = frozenset({"count"})

    def open(self) -> Sequence[StreamSpec]:
        """There is nothing that could be missing."""
        options = self.sensor.options
        self._life = time.monotonic_ns()
        self._next = 0
        self._period_ns = round(1e9 / options["rate"])
        self._batch: int = options["batch"]
        self._blob = np.frombuffer(np.random.default_rng(1).bytes(options["size"]), "u1")
        channels = [ChannelSpec("life", "raw", "u8"), ChannelSpec("number", "raw", "u8")]
        if options["size"]:
            channels.append(ChannelSpec("blob", "raw", "u1", (options["size"],)))
        rate = float(options["rate"])
        return [StreamSpec(self.sensor.name, tuple(channels), rate_hz=rate)]

    def read(self) -> Item | None:
        """The next batch, when its last sample is due."""
        last_ns = self._life + (self._next + self._batch) * self._period_ns
        wait_s = (last_ns - time.monotonic_ns()) / 1e9
        if wait_s > 0:
            time.sleep(min(wait_s, 0.1))
            if wait_s > 0.1:
                return None
        numbers = np.arange(self._next, self._next + self._batch, dtype="<u8")
        self._next += self._batch
        data = {"life": np.full(self._batch, self._life, "<u8"), "number": numbers}
        if len(self._blob):
            data["blob"] = np.repeat(self._blob[None], self._batch, axis=0)
        times = self._life + (numbers.astype(np.int64) + 1) * self._period_ns
        return Sample(self.sensor.name, times, data)

    def close(self) -> None:
        """Nothing is held."""


if __name__ == "__main__":
    main(CounterDriver)
