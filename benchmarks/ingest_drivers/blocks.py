"""Driver that sends blocks from memory on one or more streams, and times their acknowledgements.

Its source is a folder, in which ``times.json`` is written at the end.  The kit's real send ring
runs here, because its path of a sample is measured; it only records times in addition.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from drivers.kit import session_seam
from drivers.kit.driver import Driver, EndOfSource, Sample
from drivers.kit.runner import main
from drivers.kit.send_ring import SendRing
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.options import Option

BLOCK_BYTES = 1 << 20
BLOCKS = 256  # different ones: what a sensor sends is new, and in no processor's cache
_KEPT: dict[str, Any] = {}


def make_blocks(size: int = BLOCK_BYTES, batch: int = 1) -> npt.NDArray[np.uint8]:
    """Make the blocks, u1 [256, batch, size]."""
    return np.random.default_rng(1).integers(0, 256, (BLOCKS, batch, size), np.uint8)


def warm_memory(blocks: int, size: int = BLOCK_BYTES) -> None:
    """Touch as much free memory as `blocks` blocks take in the page cache, and free it.

    A virtual machine's host reclaims free memory within seconds.  The next process that touches
    this memory waits for the host: eight times the cost of a write here.  Neither side should
    include this cost.
    """
    np.ones((blocks + BLOCKS, size), np.uint8)


class TimedSendRing(SendRing):
    """Send ring that records when a message was first sent, and when it was acknowledged."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._sent_ns: dict[tuple[str, int], int] = {}
        _KEPT.update(ring=self, wait_ns=[], first_ns=0, last_ns=0)

    def mark_sent(self, message: Message) -> None:
        super().mark_sent(message)
        if message.kind is Kind.DATA:
            now_ns = time.monotonic_ns()
            _KEPT["first_ns"] = _KEPT["first_ns"] or now_ns
            self._sent_ns.setdefault((message.stream, message.number), now_ns)

    def acknowledge(self, positions: dict[str, tuple[int, int, int]]) -> None:
        now_ns = time.monotonic_ns()
        for name, (epoch, durable, _) in positions.items():
            stream = self._streams.get(name)
            if stream is None or epoch != self.epoch:
                continue
            for number in range(stream.base, durable):
                if (sent_ns := self._sent_ns.pop((name, number), None)) is not None:
                    _KEPT["wait_ns"].append(now_ns - sent_ns)
                    _KEPT["last_ns"] = now_ns
        super().acknowledge(positions)
        if self.ended and self.empty:
            _KEPT["write"]()


class BlocksDriver(Driver):
    """Driver of streams ``NAME_00``, ``NAME_01``, ...: messages of `batch` blocks u1 [`bytes`].

    >>> driver = BlocksDriver(SensorConfig("ingest", "file", "/tmp/x", {"streams": 1, "count": 9}))
    >>> (spec,) = driver.open()
    >>> sample = driver.read()
    """

    schemes: ClassVar[Mapping[str, str]] = {"file": "folder that takes the times"}
    options: ClassVar = {
        "streams": Option("int", 1, "streams to spread the blocks over", minimum=1),
        "count": Option("int", 256, "messages in all", minimum=2),
        "bytes": Option("int", BLOCK_BYTES, "of a block", minimum=1),
        "batch": Option("int", 1, "blocks in a message", minimum=1),
        "warm": Option("bool", True, "touch as much memory first as the page cache will take"),
        "rate": Option("float", 1000.0, "messages per second, over all streams", minimum=0.1),
    }

    def open(self) -> Sequence[StreamSpec]:
        options = self.sensor.options
        self._size, self._batch = options["bytes"], options["batch"]
        self._blocks = make_blocks(self._size, self._batch)
        self._streams, self._rate = options["streams"], options["rate"]
        self._index = 0
        vars(session_seam)["SendRing"] = TimedSendRing
        folder = self.sensor.path
        _KEPT["write"] = lambda: _write_times(folder)
        channel = ChannelSpec("block", "raw", "u1", (self._size,))
        rate_hz = self._rate * self._batch / self._streams
        return [
            StreamSpec(self._name(k), (channel,), rate_hz=rate_hz, finite=True)
            for k in range(self._streams)
        ]

    def read(self) -> Sample:
        k = self._index
        if k >= self.sensor.options["count"]:
            raise EndOfSource
        if k == 0 and self.sensor.options["warm"]:
            warm_memory(self.sensor.options["count"] * self._batch, self._size)
        self._index += 1
        ends = k * self._batch + np.arange(self._batch)
        t_ns = np.round(ends * (1e9 / self._rate / self._batch)).astype(np.int64)
        return Sample(self._name(k % self._streams), t_ns, {"block": self._blocks[k % BLOCKS]})

    def close(self) -> None:
        pass

    def _name(self, k: int) -> str:
        return f"{self.sensor.name}_{k:02}" if k else self.sensor.name


def _write_times(folder: Path) -> None:
    times = {key: _KEPT[key] for key in ("first_ns", "last_ns", "wait_ns")}
    (folder / "times.json").write_text(json.dumps(times))


if __name__ == "__main__":
    main(BlocksDriver)
