"""Ongoing outages of streams: losses that the writer cannot count yet.

The writer counts a loss when it is over.  Until then, the last sample and the sensor's state show
when the outage began, and why::

    outage = find_outage(sensor, spec, account, start_ns, now_ns)
    outage.cause, outage.since_ns, outage.estimated        # device, ..., 120
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recorder.codecs.streams import StreamSpec
from recorder.recording.supervisor.sensors import ABSENT, Sensor
from recorder.session.events import SILENT, window_ns

DEVICE, DRIVER, HUNG = "device", "driver", "hung"
_NORMAL_ENDS = ("eof", "stopped", "duration", "split")


@dataclass(frozen=True, slots=True)
class Outage:
    """An ongoing outage of a stream.

    Attributes:
        cause: cause of the later loss: ``device``, ``absent``, ``driver``, ``hung``, ``silent``.
        since_ns: CLOCK_MONOTONIC of the last sample, but at least that of the session's start.
        estimated: estimated samples missing so far; None without an expected rate.
    """

    cause: str
    since_ns: int
    estimated: int | None

    def to_wire(self, offset_ns: int) -> dict[str, Any]:
        """Return a plain mapping, with ``since_ns`` as epoch ns by the session's clock offset."""
        since_ns = self.since_ns + offset_ns
        return {"cause": self.cause, "since_ns": since_ns, "estimated": self.estimated}


def find_outage(
    sensor: Sensor, spec: StreamSpec | None, account: Mapping[str, Any], start_ns: int, now_ns: int
) -> Outage | None:
    """Return the outage of a stream in an open session; None if samples arrive or it has ended.

    Args:
        sensor: the stream's sensor.
        spec: the stream; None: the sensor has declared none yet.
        account: the writer's account of the stream; empty before the first message.
        start_ns, now_ns: CLOCK_MONOTONIC of the session's start, and now.
    """
    if account.get("ended") in _NORMAL_ENDS:
        return None
    known = account.get("last_ns")
    last_ns = start_ns if known is None else max(start_ns, int(known))
    cause = _cause(sensor, spec, last_ns, now_ns)
    if cause is None:
        return None
    if not account.get("samples") and cause in (DEVICE, DRIVER):
        cause = ABSENT
    rate_hz = None if spec is None else spec.rate_hz
    estimated = round(max(0, now_ns - last_ns) * rate_hz / 1e9) if rate_hz else None
    return Outage(cause, last_ns, estimated)


def _cause(sensor: Sensor, spec: StreamSpec | None, last_ns: int, now_ns: int) -> str | None:
    if sensor.missing:
        return DEVICE
    if not sensor.armed or sensor.given_up or sensor.changed:
        return DRIVER
    if sensor.hung_in:
        return HUNG
    floor_hz = None if spec is None or not sensor.entry.live else sensor.floor_hz(spec)
    if floor_hz is not None and now_ns - last_ns > window_ns(floor_hz):
        return SILENT
    return None
