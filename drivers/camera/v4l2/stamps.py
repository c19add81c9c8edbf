"""Conversion of a V4L2 buffer's kernel stamp to the end of the picture's exposure.

The kernel flags a stamp as the start of the exposure or as the end of the frame's arrival (buffer
flags, section "Buffers" of the V4L2 documentation).  Linux' USB video driver (``uvcvideo``) sets
the first flag always, but it stamps the frame's first packet, unless its parameter
``hwtimestamps`` is set and the camera reports its own times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from drivers.camera.v4l2 import abi
from drivers.camera.v4l2.buffers import FilledBuffer

EXPOSURE_START: Final = "kernel, start of exposure"
TRANSFER_START: Final = "kernel, start of transfer"
FRAME_END: Final = "kernel, end of frame"
ARRIVAL: Final = "arrival"

_HARDWARE_STAMPS: Final = "/sys/module/uvcvideo/parameters/hwtimestamps"
_SLACK_NS: Final = 10_000_000_000  # a stamp on CLOCK_MONOTONIC is never older


@dataclass(frozen=True, slots=True)
class Timing:
    """A camera's times that the config states.

    Attributes:
        exposure_ms: exposure time of every picture; None if unknown, or if the device reports it.
        readout_ms: from the first row to the last row of a rolling shutter.
        latency_ms: from the end of the exposure to the stamp; without effect on stamps of the
            exposure's start.
    """

    exposure_ms: float | None = None
    readout_ms: float = 0.0
    latency_ms: float = 0.0

    @property
    def exposure_us(self) -> int | None:
        """The exposure time in us; None if unknown."""
        return None if self.exposure_ms is None else round(self.exposure_ms * 1000)


class Stamps:
    """Exposure ends of one opened device's pictures, in rising order.

    Args:
        timing: the camera's times.
        flagged: the meaning of stamps with the flag for the start of the exposure.

    Attributes:
        source: the meaning of the last stamp: one of the constants of this module.
    """

    def __init__(self, timing: Timing, flagged: str = EXPOSURE_START) -> None:
        self._timing, self._flagged = timing, flagged
        self._latency_ns = round(timing.latency_ms * 1e6)
        self._readout_ns = round(timing.readout_ms * 1e6)
        self._last_ns = -2
        self.source = ARRIVAL

    def exposure_end_ns(self, filled: FilledBuffer, exposure_us: int | None) -> int:
        """Return the end of the exposure, CLOCK_MONOTONIC ns, later than that of the last picture.

        The end is at the latest the time of dequeuing.
        """
        now_ns = filled.taken_ns
        self.source = self._source(filled, now_ns)
        if self.source == EXPOSURE_START:
            t_ns = filled.stamp_ns + (exposure_us or 0) * 1000 + self._readout_ns
        else:
            t_ns = (now_ns if self.source == ARRIVAL else filled.stamp_ns) - self._latency_ns
        # 2 ns leave a stamp for a gap in between.
        self._last_ns = max(min(t_ns, now_ns), self._last_ns + 2)
        return self._last_ns

    def _source(self, filled: FilledBuffer, now_ns: int) -> str:
        monotonic = filled.flags & abi.BUF_STAMP_MASK == abi.BUF_STAMP_MONOTONIC
        if not monotonic or not 0 <= now_ns - filled.stamp_ns < _SLACK_NS:
            return ARRIVAL
        early = filled.flags & abi.BUF_SOURCE_MASK == abi.BUF_SOURCE_EXPOSURE
        return self._flagged if early else FRAME_END

    def state(self, exposure: float | str | None) -> dict[str, Any]:
        """Describe the last stamp: its meaning, and the terms in ms that were added to it.

        Args:
            exposure: the exposure time in ms, or where it is recorded; None if unknown.
        """
        timing, added = self._timing, {}
        if self.source == EXPOSURE_START:
            added = {"exposure": exposure, "readout": timing.readout_ms}
        else:
            added = {"latency": -timing.latency_ms}
        added = {name: value for name, value in added.items() if value}
        return {"stamps": self.source} | ({"stamps_added_ms": added} if added else {})


def describe_flagged(kernel: abi.Kernel, driver: str) -> str:
    """Return the meaning of stamps that a kernel driver flags as the start of the exposure."""
    if driver != "uvcvideo":
        return EXPOSURE_START
    try:
        measured = kernel.read_text(_HARDWARE_STAMPS).strip() not in ("", "0")
    except OSError:
        measured = False
    return EXPOSURE_START if measured else TRANSFER_START
