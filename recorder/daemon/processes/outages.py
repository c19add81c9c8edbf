"""Outages that go on: what is lost now, before anything can count it.

The writer counts a loss when it is over.  Until then the last sample, and what is known of the
sensor, say since when nothing comes, and why::

    outage = outage_of(sensor, spec, account, start_ns, now_ns)
    outage.cause, outage.since_ns, outage.estimated        # device, ..., 120
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recorder.contract.streams import StreamSpec
from recorder.daemon.processes.sensors import ABSENT, Sensor
from recorder.session.minimum_rate import SILENT, window_ns

DEVICE, DRIVER, HUNG = "device", "driver", "hung"
_NORMAL_ENDS = ("eof", "stopped", "duration", "split")


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage of a stream that goes on.

    Attributes:
        cause: as the loss will have it: ``device``, ``absent``, ``driver``, ``hung``, ``silent``.
        since_ns: CLOCK_MONOTONIC of the last sample, at the earliest of the session's start.
        estimated: samples that are missing up to now; None without an expected rate.
    """

    cause: str
    since_ns: int
    estimated: int | None

    def to_wire(self, offset_ns: int) -> dict[str, Any]:
        """A plain mapping; ``since_ns`` is epoch ns, by the offset of the session's clock."""
        since_ns = self.since_ns + offset_ns
        return {"cause": self.cause, "since_ns": since_ns, "estimated": self.estimated}


def outage_of(
    sensor: Sensor, spec: StreamSpec | None, account: Mapping[str, Any], start_ns: int, now_ns: int
) -> Outage | None:
    """The outage of a stream in an open session; None if its samples come, or it has ended.

    Args:
        sensor: the stream's sensor.
        spec: the stream; None: the sensor has declared none yet.
        account: the writer's, empty before the first message.
        start_ns, now_ns: CLOCK_MONOTONIC of the session's start, and of now.
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
