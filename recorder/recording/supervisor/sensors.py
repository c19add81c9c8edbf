"""State of a sensor in the supervisor: its driver's process, its reports, and its outages.

The writer counts a loss when it is over.  Until then, the last sample and the sensor's state show
when the outage began, and why::

    outage = find_outage(sensor, spec, account, start_ns, now_ns)
    outage.cause, outage.since_ns, outage.estimated        # device, ..., 120
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ConfigError, RecorderError
from recorder.config.settings import SensorEntry
from recorder.recording.supervisor.children import Child
from recorder.recording.supervisor.process_table import DRIVER_RESTART, STEADY_S
from recorder.session.events import SILENT, floor_hz, window_ns

HUNG_NS = 60_000_000_000
"""Silence after which a driver counts as hung, since it reports every second of a session, ns."""
_LATE_NS = 2_500_000_000  # after a report; four come a second
_FAILING = 3  # deaths in a row after which sessions do not wait for the sensor

PRESENT, ABSENT, LOST = "present", "absent", "lost"


@dataclass(slots=True)
class Sensor:
    """State of a sensor in the supervisor.

    Attributes:
        entry: the sensor's entry in the config.
        child: its driver's process; None before the first.
        armed: whether the driver has declared its streams to the writer.
        ended: whether its source has ended in this session.
        fault: description of the fault, one sentence; None without one.
        given_up: whether its driver is no longer restarted automatically.
        misconfigured: whether its driver cannot open the source because of the config; `fault_key`
            is the driver's name of the option, or empty.
        changed: whether its samples changed their shape; the sensor then waits for a new part.
        changed_ns: CLOCK_MONOTONIC of that change.
        device: ``present``, ``absent`` or ``lost``, as the driver of a device reports.
        starts: count of its driver's starts.
        restart_at_ns: CLOCK_MONOTONIC of its next start; None without one.
        specs: its streams by name.
        ring_held, ring_size: bytes in its driver's ring, and the ring's size.
        refused: samples that its ring refused, by stream.
        given: samples and encoded bytes since its driver's start, by stream.
        given_ns: CLOCK_MONOTONIC of that report.
        last_ns: `t_mono` of the newest sample, by stream; kept when the driver is restarted.
        reported_ns: CLOCK_MONOTONIC of its last report; None: no report is expected.
        stalled: whether its driver returns no data; `hung_in` is the call that has not returned for
            too long, or empty.
        stepped: report that the device's stamps do not follow the host's clock; it is recorded in
            each session.
        frozen: by stream, the report that it repeats one sample; also recorded in each session.
    """

    entry: SensorEntry
    child: Child | None = None
    armed: bool = False
    ended: bool = False
    fault: str | None = None
    given_up: bool = False
    misconfigured: bool = False
    fault_key: str = ""
    changed: bool = False
    changed_ns: int = 0
    device: str = PRESENT
    starts: int = 0
    restart_at_ns: int | None = None
    specs: dict[str, StreamSpec] = field(default_factory=dict)
    ring_held: int = 0
    ring_size: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    given: dict[str, tuple[int, int]] = field(default_factory=dict)
    given_ns: int = 0
    last_ns: dict[str, int] = field(default_factory=dict)
    reported_ns: int | None = None
    stalled: bool = False
    hung_in: str = ""
    stepped: dict[str, Any] | None = None
    frozen: dict[str, dict[str, Any]] = field(default_factory=dict)
    started_ns: int = 0
    quick_deaths: int = 0
    deaths: deque[int] = field(default_factory=deque)

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def header(self) -> dict[str, Any]:
        """The sensor's entry in ``session.json``."""
        entry, streams = self.entry, sorted(self.specs)
        header = {"driver": entry.driver, "source": entry.scheme, "streams": streams}
        limits = {"min_rate": entry.min_rate, "max_incomplete": entry.max_incomplete}
        return header | {"live": entry.live} | limits

    def floor_hz(self, spec: StreamSpec) -> float | None:
        """Return the minimum rate of one of its streams, Hz; None without one."""
        return floor_hz(self.name, {"min_rate": self.entry.min_rate}, spec)

    @property
    def missing(self) -> bool:
        """Whether its device is known to be absent."""
        return self.device != PRESENT

    @property
    def settled(self) -> bool:
        """Whether the sensor is ready, or known to be unavailable."""
        failing = self.quick_deaths >= _FAILING
        return self.armed or self.missing or self.given_up or self.changed or failing

    @property
    def alive(self) -> bool:
        return self.child is not None and self.child.alive

    @property
    def state(self) -> str:
        """One of: starting, armed, ended, absent, lost, restarting, changed, failed."""
        if self.given_up:
            return "failed"
        if self.changed:
            return "changed"
        if self.missing:
            return self.device
        if self.restart_at_ns is not None:
            return "restarting"
        if not self.armed:
            return "starting"
        return "ended" if self.ended else "armed"

    def begin_start(self, now_ns: int) -> None:
        """Reset the state for a start of the driver."""
        self.restart_at_ns, self.started_ns = None, now_ns
        self.starts += 1
        self.armed, self.device, self.reported_ns = False, PRESENT, None
        self.stalled, self.hung_in, self.stepped = False, "", None
        self.frozen.clear()

    def take(self, report: dict[str, Any], now_ns: int) -> None:
        """Take a report of its driver."""
        match report["event"]:
            case "armed":
                specs = [StreamSpec.from_wire(s) for s in report["streams"]]
                self.specs = {spec.name: spec for spec in specs}
                self.armed, self.fault, self.device = True, None, PRESENT
            case "streams":  # found after the driver was armed
                specs = [StreamSpec.from_wire(s) for s in report["streams"]]
                self.specs |= {spec.name: spec for spec in specs}
            case "stats":
                self.ring_held, self.ring_size = report["held"], report["buffer"]
                self.refused = report.get("refused") or {}
                self.reported_ns = self.given_ns = now_ns
                self.given = {}
                for name, (samples, nbytes, last_ns) in report.get("given", {}).items():
                    self.given[name] = int(samples), int(nbytes)
                    if last_ns is not None:
                        self.last_ns[name] = int(last_ns)
            case "fault":
                self.fault, self.fault_key = report["message"], str(report.get("key") or "")
                wrong = report["exit_code"] == ConfigError.exit_code
                self.misconfigured = self.misconfigured or (wrong and not self.armed)
            case "stall":
                self.stalled, self.hung_in = bool(report["stalled"]), str(report["hung_in"])

    def reports(self, now_ns: int) -> bool:
        """Return whether its driver's counts are up to date."""
        return self.alive and now_ns - self.given_ns < _LATE_NS

    def age_s(self, stream: str, now_ns: int) -> float | None:
        """Return the age of a stream's newest sample, in seconds; None before the first.

        Between two reports of the driver, the age is that of the last report.
        """
        if (last_ns := self.last_ns.get(stream)) is None:
            return None
        until_ns = self.given_ns if self.reports(now_ns) else now_ns
        return max(0, until_ns - last_ns) / 1e9

    def hangs(self, now_ns: int) -> str | None:
        """Return why its driver hangs; None if it does not.  A silent device is no hang."""
        if not (self.alive and self.armed and not self.ended):
            return None
        if self.hung_in:
            return f"its {self.hung_in}() does not return"
        if self.reported_ns is not None and now_ns - self.reported_ns > HUNG_NS:
            return f"its process has been silent for {HUNG_NS / 1e9:g} s"
        return None

    def get_reported_fault(self, code: int | str) -> str | None:
        """Return the reason that the driver reported before its exit with a code, or None."""
        failed = code == RecorderError.exit_code and self.device == PRESENT
        return self.fault if failed else None

    def schedule_restart(self, now_ns: int) -> float | None:
        """Schedule the restart of a dead driver; return the wait in s, or None if given up."""
        steady = now_ns - self.started_ns >= STEADY_S * 1e9
        self.quick_deaths = 0 if steady else self.quick_deaths + 1
        self.deaths.append(now_ns)
        while now_ns - self.deaths[0] > DRIVER_RESTART.within_s * 1e9:
            self.deaths.popleft()
        if len(self.deaths) >= DRIVER_RESTART.most:
            self.given_up = True
            return None
        wait_s = DRIVER_RESTART.pause_s(self.quick_deaths)
        self.restart_at_ns = now_ns + round(wait_s * 1e9)
        return wait_s

    def forgive(self) -> None:
        """Allow restarts again after the sensor was given up."""
        self.given_up, self.fault = False, None
        self.quick_deaths = 0
        self.deaths.clear()


@dataclass(slots=True)
class Status:
    """State of a recording, for watchers.

    Attributes:
        elapsed_s: seconds since the session's start.
        session: folder of the session.
        streams: by stream, the writer's account (samples, bytes, lost, ended, ...).
        sensors: by name, the state of each sensor.
        outages: by stream, the ongoing outage (`Outage.to_wire`).
    """

    elapsed_s: float
    session: Path
    streams: dict[str, dict[str, Any]]
    sensors: dict[str, Sensor]
    outages: dict[str, dict[str, Any]] = field(default_factory=dict)


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
