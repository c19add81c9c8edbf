"""The status of a daemon, for `status`, metrics, and one line (docs/daemon.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import recorder
from recorder.contract.redaction import mask_passwords
from recorder.daemon.host.clocks import brief
from recorder.daemon.postprocessing.retention import is_kept
from recorder.daemon.processes.children import Child
from recorder.daemon.processes.sensors import Sensor
from recorder.daemon.processes.supervisor import Supervisor
from recorder.daemon.processes.writer_client import account
from recorder.daemon.recording.state_machine import State
from recorder.session.layout import free_bytes

if TYPE_CHECKING:
    from recorder.daemon.daemon import Daemon

SIMULATED = "sim"
"""Scheme of sources that the drivers simulate."""
_MAY_START = (State.IDLE, State.FAULT)
_OF_COMMITS = ("commits", "commit_s", "commit_last_s", "commit_max_s")


def describe(daemon: Daemon) -> dict[str, Any]:
    """The daemon's status; see docs/daemon.md for each key."""
    machine, supervisor = daemon.sessions.machine, daemon.supervisor
    now_ns = daemon.clock.monotonic_ns()
    faults = faults_of(daemon)
    session = None
    if machine.session is not None:
        session = describe_session(
            supervisor,
            machine.session,
            _since(now_ns, daemon.sessions.part_started_ns),
            part=machine.desired.part,
            splitting=machine.splitting,
        )
    return {
        "state": str(machine.state),
        "since_s": _since(now_ns, daemon.sessions.state_since_ns),
        "healthy": not faults,
        "ready": daemon.ready,
        "faults": faults,
        "start_refused": daemon.start_checks.refused() if machine.state in _MAY_START else None,
        "wish": {key: getattr(machine.desired, key) for key in ("wanted", "by", "name", "part")},
        "session": session,
        "last": daemon.sessions.last,
        "finalizing": daemon.finalizing.status(),
        "keeping": daemon.keeper.status(),
        "live": None if daemon.live is None else daemon.live.status(),
        **({} if daemon.triggers is None else {"triggers": daemon.triggers.status()}),
        "uptime_s": _since(now_ns, daemon.started_ns),
        **describe_processes(supervisor, daemon.config.session.root, session is not None),
    }


def describe_processes(supervisor: Supervisor, root: Path, recording: bool) -> dict[str, Any]:
    """The part of a status that is the supervisor's.

    Args:
        supervisor: of the writer and the drivers.
        root: folder of sessions.
        recording: there is an open session.
    """
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
        "taps": supervisor.taps,
        "config": str(supervisor.config.path),
        "version": recorder.__version__,
        "pid": os.getpid(),
    }


def faults_of(daemon: Daemon) -> list[dict[str, str]]:
    """What is wrong now: ``{about, kind, message}``, the gravest first."""
    machine = daemon.sessions.machine
    faults = []
    if daemon.root_problem is not None:
        faults.append(_fault("disk", "root", daemon.root_problem))
    if machine.reason is not None:
        faults.append(_fault("recording", "fault", machine.reason))
    if daemon.sessions.desired_state_problem is not None:
        faults.append(_fault("recording", "wish", daemon.sessions.desired_state_problem))
    faults += process_faults(daemon.supervisor, machine.reason)
    for name, failed in daemon.finalizing.status()["failed"].items():
        text = "; ".join(f"{step}: {why}" for step, why in failed.items())
        faults.append(_fault(name, "finalize", text))
    return faults


def process_faults(supervisor: Supervisor, known: str | None = None) -> list[dict[str, str]]:
    """The part of the faults that is the supervisor's, but for the writer's if it is `known`."""
    faults: list[dict[str, str]] = []

    def add(about: str, kind: str, message: str) -> None:
        faults.append(_fault(about, kind, message))

    if supervisor.writer.failed is not None and supervisor.writer.failed != known:
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
    for stream in supervisor.progress.rates.broken:
        rate = supervisor.progress.rates.rate(stream)
        add(stream, "rate", f"{0.0 if rate is None else rate:.3g} Hz is too slow")
    return faults


def _fault(about: str, kind: str, message: str) -> dict[str, str]:
    return {"about": about, "kind": kind, "message": mask_passwords(message)}


def line(daemon: Daemon) -> str:
    """The state in one line, without what changes all the time."""
    machine = daemon.sessions.machine
    text = str(machine.state)
    if machine.session is not None:
        text += f" {Path(machine.session).name}"
    faults = faults_of(daemon)
    if faults:
        text += f"; {len(faults)} fault{'s' if len(faults) > 1 else ''}: " + ", ".join(
            dict.fromkeys(f"{fault['about']} {fault['kind']}" for fault in faults)
        )
    return text


def describe_session(
    supervisor: Supervisor, path: str, elapsed_s: float, *, part: int, splitting: bool = False
) -> dict[str, Any]:
    """The open session, or its part; see docs/daemon.md."""
    streams = supervisor.streams
    lost: dict[str, int] = {}
    incomplete: dict[str, dict[str, int]] = {}
    for stream in streams.values():
        for cause, count in (stream.get("lost") or {}).items():
            lost[cause] = lost.get(cause, 0) + count
        for cause, counts in (stream.get("incomplete") or {}).items():
            known = incomplete.setdefault(cause, dict.fromkeys(counts, 0))
            incomplete[cause] = {key: known[key] + count for key, count in counts.items()}
    return {
        "name": Path(path).name,
        "path": path,
        "start_ns": supervisor.start_ns,
        "offset_ns": supervisor.offset_ns,
        "elapsed_s": elapsed_s,
        "bytes": sum(stream.get("bytes") or 0 for stream in streams.values()),
        "lost": lost,
        "unknown_losses": sum(s.get("unknown_losses") or 0 for s in streams.values()),
        "incomplete": incomplete,
        "outages": sorted(supervisor.outages()),
        "part": part,
        "splitting": splitting,
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
        "streams": streams,
    }


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
    if free is not None and per_s:  # the writer keeps the bytes of a minute free, too
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
