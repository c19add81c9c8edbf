"""Status of a daemon, for `status`, metrics and the service manager (docs/daemon.md)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import recorder
from recorder.bus.messages import FROZEN
from recorder.bus.sockets import tap_address
from recorder.common.secret_masking import mask_passwords
from recorder.recording.host.clocks import brief
from recorder.recording.postprocessing.retention import is_kept
from recorder.recording.sessions.state_machine import DesiredState
from recorder.recording.supervisor.children import Child
from recorder.recording.supervisor.sensors import Sensor
from recorder.recording.supervisor.supervisor import Supervisor
from recorder.recording.supervisor.writer_client import account
from recorder.session.layout import free_bytes
from recorder.session.missing_sensors import ABSENT, find_owner

SIMULATED = "sim"
"""Scheme of sources that the drivers simulate."""
_OF_COMMITS = ("commits", "commit_s", "commit_last_s", "commit_max_s")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a daemon, or of a run in the foreground, at one moment.

    Attributes:
        now_ns, started_ns: CLOCK_MONOTONIC now and at the daemon's start.
        state, state_since_ns: one word, and CLOCK_MONOTONIC at the start of that state.
        ready: whether every driver is armed or known to be missing.
        desired: the wanted recording.
        session: folder of the open session's part; None without an open session.
        session_since_ns: CLOCK_MONOTONIC of that part's start.
        splitting: whether the next part is being created.
        start_refused: why no session can begin now; None if one can, or one is open.
        root_problem: why the folder of sessions cannot be used; None if it can.
        reason: why the daemon is in the state ``fault``; None in other states.
        wish_problem: why the desired state cannot be saved; None if it can.
        last: the latest session that ended; None before the first.
        finalizing, keeping: states of the work after recording and of the kept events.
        live, triggers: states of these processes; None without the process.
    """

    now_ns: int
    started_ns: int
    state: str
    state_since_ns: int
    ready: bool
    desired: DesiredState
    session: str | None = None
    session_since_ns: int = 0
    splitting: bool = False
    start_refused: str | None = None
    root_problem: str | None = None
    reason: str | None = None
    wish_problem: str | None = None
    last: Mapping[str, Any] | None = None
    finalizing: Mapping[str, Any] = field(
        default_factory=lambda: {"current": None, "queue": [], "failed": {}}
    )
    keeping: Mapping[str, Any] = field(default_factory=lambda: {"open": [], "ring": None})
    live: Mapping[str, Any] | None = None
    triggers: Mapping[str, Any] | None = None


def describe(snapshot: Snapshot, supervisor: Supervisor, root: Path) -> dict[str, Any]:
    """Return the status as values that JSON can hold; see docs/daemon.md for each key."""
    now_ns = snapshot.now_ns
    faults = _faults(snapshot, supervisor)
    session = None
    if snapshot.session is not None:
        session = _session(snapshot, supervisor, snapshot.session)
    return {
        "state": snapshot.state,
        "since_s": _since(now_ns, snapshot.state_since_ns),
        "healthy": not faults,
        "ready": snapshot.ready,
        "faults": faults,
        "start_refused": snapshot.start_refused,
        "wish": {key: getattr(snapshot.desired, key) for key in ("wanted", "by", "name", "part")},
        "session": session,
        "last": snapshot.last,
        "finalizing": snapshot.finalizing,
        "keeping": snapshot.keeping,
        "live": snapshot.live,
        **({} if snapshot.triggers is None else {"triggers": snapshot.triggers}),
        "uptime_s": _since(now_ns, snapshot.started_ns),
        **_processes(supervisor, root, session is not None),
    }


def render_line(status: Mapping[str, Any]) -> str:
    """Return a status in one line, without values that change permanently."""
    text = str(status["state"])
    if status["session"] is not None:
        text += f" {status['session']['name']}"
    if faults := status["faults"]:
        text += f"; {len(faults)} fault{'s' if len(faults) > 1 else ''}: " + ", ".join(
            dict.fromkeys(f"{fault['about']} {fault['kind']}" for fault in faults)
        )
    return text


def _processes(supervisor: Supervisor, root: Path, recording: bool) -> dict[str, Any]:
    commits = supervisor.status.to_wire()
    known = supervisor.streams if recording else {}
    outages = supervisor.outages() if recording else {}
    sensors = {
        name: _sensor(supervisor, sensor, known, outages)
        for name, sensor in supervisor.sensors.items()
    }
    return {
        "warnings": list(supervisor.warnings),
        "sensors": sensors,
        "writer": {
            "pid": _pid(supervisor.writer.running),
            "restarts": supervisor.writer.restarts,
            "silent_s": round(supervisor.silent_s, 3),
            "oldest_uncommitted_s": round(supervisor.uncommitted_s, 3),
            "failed": supervisor.writer.failed,
            **{key: commits.get(key) for key in _OF_COMMITS},
        },
        "disk": _disk(supervisor, root),
        "clock": brief(supervisor.clock_state),
        "events": supervisor.events.list(),
        "taps": {name: tap_address(supervisor.run_folder, name) for name in supervisor.sensors},
        "config": str(supervisor.config.path),
        "version": recorder.__version__,
        "pid": os.getpid(),
    }


def _faults(snapshot: Snapshot, supervisor: Supervisor) -> list[dict[str, str]]:
    """Return the current faults as ``{about, kind, message}``, the gravest first."""
    faults: list[dict[str, str]] = []

    def add(about: str, kind: str, message: str) -> None:
        faults.append({"about": about, "kind": kind, "message": mask_passwords(message)})

    if snapshot.root_problem is not None:
        add("disk", "root", snapshot.root_problem)
    if snapshot.reason is not None:
        add("recording", "fault", snapshot.reason)
    if snapshot.wish_problem is not None:
        add("recording", "wish", snapshot.wish_problem)
    if supervisor.writer.failed is not None and supervisor.writer.failed != snapshot.reason:
        add("writer", "failed", supervisor.writer.failed)
    if supervisor.silent_s > 5.0:
        add("writer", "silent", f"no answer for {supervisor.silent_s:.0f} s")
    if supervisor.progress.stalled:
        add("disk", "stalled", f"nothing committed for {supervisor.uncommitted_s:.0f} s")
    for name, sensor in supervisor.sensors.items():
        if sensor.state in ("absent", "lost", "failed", "changed", "restarting"):
            if sensor.entry.required:
                add(name, sensor.state, sensor.fault or sensor.state)
        elif sensor.fault is not None and not sensor.armed:
            add(name, sensor.state, sensor.fault)
        for stream in _find_absent(supervisor, sensor) if snapshot.session is not None else ():
            add(stream, ABSENT, f"{name} does not have it")
        for stream, report in sensor.frozen.items():
            add(stream, FROZEN, report["detail"])
    for stream in supervisor.progress.rates.broken:
        rate = supervisor.progress.rates.rate(stream)
        add(stream, "rate", f"{0.0 if rate is None else rate:.3g} Hz is too slow")
    for name, failed in snapshot.finalizing["failed"].items():
        add(name, "finalize", "; ".join(f"{step}: {why}" for step, why in failed.items()))
    return faults


def _session(snapshot: Snapshot, supervisor: Supervisor, path: str) -> dict[str, Any]:
    streams = supervisor.streams
    lost: Counter[str] = Counter()
    incomplete: dict[str, dict[str, int]] = {}
    for stream in streams.values():
        lost.update(stream.get("lost") or {})
        for cause, counts in (stream.get("incomplete") or {}).items():
            known = incomplete.setdefault(cause, dict.fromkeys(counts, 0))
            incomplete[cause] = {key: known[key] + count for key, count in counts.items()}
    return {
        "name": Path(path).name,
        "path": path,
        "start_ns": supervisor.start_ns,
        "offset_ns": supervisor.offset_ns,
        "elapsed_s": _since(snapshot.now_ns, snapshot.session_since_ns),
        "bytes": sum(stream.get("bytes") or 0 for stream in streams.values()),
        "lost": dict(lost),
        "unknown_losses": sum(s.get("unknown_losses") or 0 for s in streams.values()),
        "incomplete": incomplete,
        "outages": sorted(supervisor.outages()),
        "part": snapshot.desired.part,
        "splitting": snapshot.splitting,
        "kept": is_kept(Path(path)),
        "faults": list(supervisor.faults),
    }


def _sensor(
    supervisor: Supervisor,
    sensor: Sensor,
    known: Mapping[str, dict[str, Any]],
    outages: Mapping[str, dict[str, Any]],
) -> dict[str, Any]:
    progress, now_ns = supervisor.progress, supervisor.clock.monotonic_ns()
    counted = supervisor.session is not None or sensor.reports(now_ns)
    streams = {}
    for name, spec in sensor.specs.items():
        rate = progress.rates.rate(name) if counted else None
        volume = progress.volumes.rate(name) if counted else None
        streams[name] = {
            "rate_hz": None if rate is None else round(rate, 3),
            "expected_hz": spec.rate_hz or None,
            "floor_hz": sensor.floor_hz(spec),
            "slow": name in progress.rates.broken,
            "frozen": name in sensor.frozen,
            "bytes_per_s": None if volume is None else round(volume),
            "last_ns": sensor.last_ns.get(name),
            "age_s": sensor.age_s(name, now_ns),
            **account(received := known.get(name, {})),
            "samples_ns": received.get("last_ns") if received.get("samples") else None,
            "outage": outages.get(name),
        }
    return {
        "state": sensor.state,
        "driver": sensor.entry.driver,
        "played": not sensor.entry.live,
        "simulated": sensor.entry.scheme == SIMULATED,
        "required": sensor.entry.required,
        "fault": None if sensor.fault is None else mask_passwords(sensor.fault),
        "pid": _pid(sensor.child if sensor.alive else None),
        "starts": sensor.starts,
        "ring_held_bytes": sensor.ring_held,
        "ring_size_bytes": sensor.ring_size,
        "outage": None if sensor.specs else outages.get(sensor.name),
        "absent_streams": _find_absent(supervisor, sensor) if known else [],
        "streams": streams,
    }


def _find_absent(supervisor: Supervisor, sensor: Sensor) -> list[str]:
    """Return the streams that a sensor's driver reports as absent in the open session."""
    owners = {name: sorted(each.specs) for name, each in supervisor.sensors.items()}
    absent = [name for name, each in supervisor.streams.items() if each.get("ended") == ABSENT]
    return sorted(
        name
        for name in absent
        if name not in (*sensor.specs, sensor.name) and find_owner(owners, name) == sensor.name
    )


def _pid(child: Child | None) -> int | None:
    return None if child is None else child.process.pid


def _disk(supervisor: Supervisor, root: Path) -> dict[str, Any]:
    per_s = sum(
        supervisor.progress.forecast.rate(name, spec.bytes_per_second)
        for sensor in supervisor.sensors.values()
        for name, spec in sensor.specs.items()
        if supervisor.session is None or not supervisor.streams.get(name, {}).get("ended")
    )
    try:
        free: int | None = free_bytes(root)
    except OSError:
        free = None
    floor = supervisor.config.storage.min_free_bytes
    left = None
    if free is not None and per_s:  # the writer also keeps a minute's bytes free
        left = round(max(0.0, (free - floor) / per_s - 60.0))
    return {
        "root": str(root),
        "free_bytes": free,
        "floor_bytes": floor,
        "bytes_per_s": round(per_s),
        "seconds_left": left,
    }


def _since(now_ns: int, then_ns: int) -> float:
    return round(max(0, now_ns - then_ns) / 1e9, 3)
