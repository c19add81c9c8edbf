"""A driver whose samples are running numbers, and which writes down what it was promised.

Into ``LOG/SENSOR.PID``, one `os.write` a line, so that a SIGKILL takes nothing of it back:
``o EPOCH NUMBER COUNT TAKEN`` before a sample may leave the process, ``a EPOCH SEQ`` after
everything before that ``seq`` was acknowledged, ``e EPOCH`` after all of an ended epoch was.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drivers.kit import session_seam
from drivers.kit.driver import Driver, Sample
from drivers.kit.runner import main
from drivers.kit.send_ring import SendRing
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option
from tests.faults.numbers import encoded, stream


class CountingDriver(Driver):
    """Running numbers at a steady rate; a driver that comes back goes on where time is."""

    schemes = {"sim": "numbers"}
    options = {
        "rate": Option("float", 100.0, "samples per second"),
        "batch": Option("int", 1, "samples per message"),
        "format": Option("str", "lzmaf", "of the second channel; empty: there is none"),
        "log": Option("str", "", "folder of what was promised"),
    }

    def open(self) -> Sequence[StreamSpec]:
        options = self.sensor.options
        self._next = 0
        self._formats = ("raw", *filter(None, [str(options["format"])]))
        self._spec = stream(self.sensor.name, options["rate"], self._formats)
        Promises.file = Path(options["log"]) / f"{self.sensor.name}.{os.getpid()}"
        return [self._spec]

    def read(self) -> Sample:
        numbers = range(self._next, self._next + self.sensor.options["batch"])
        self._next = numbers.stop
        data: dict[str, Any] = {}
        for channel in self._spec.channels:
            frames = [encoded(number, channel.format) for number in numbers]
            data[channel.name] = frames
            if channel.format == "raw":
                shape = (len(frames), *channel.shape)
                data[channel.name] = np.frombuffer(b"".join(frames), "<u8").reshape(shape)
        period_ns = 1e9 / self.sensor.options["rate"]
        times = np.array([round(n * period_ns) for n in numbers], np.int64)
        return Sample(self.sensor.name, times, data)

    def close(self) -> None:
        pass


class Promises(SendRing):
    """Writes down what was offered and what was acknowledged."""

    file: Path

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC
        self._fd = os.open(self.file, flags, 0o600)

    def offer(self, message: Message) -> bool:
        taken = super().offer(message)
        if message.kind is Kind.DATA:  # the link holds its lock: nothing of it can be sent yet
            number = int(np.frombuffer(message.frames[0], "<u8", 1)[0]) // 1000
            self._write(f"o {self.epoch} {number} {message.count} {int(taken)}")
        return taken

    def acknowledge(self, *args: Any, **more: Any) -> None:
        super().acknowledge(*args, **more)
        (one,) = self._streams.values()
        durable = one.ring[0].seq if one.ring else one.seq
        self._write(f"a {self.epoch} {durable}")
        if self.ended and self.empty:
            self._write(f"e {self.epoch}")

    def _write(self, line: str) -> None:
        os.write(self._fd, line.encode() + b"\n")


if __name__ == "__main__":
    session_seam.SendRing = Promises  # type: ignore[attr-defined]
    main(CountingDriver)
