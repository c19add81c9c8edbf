"""The status of a daemon, for `status`, metrics, and one line (docs/daemon.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import recorder
from recorder.contract.redaction import mask_passwords
from recorder.daemon.postprocessing.retention import is_kept
from recorder.daemon.processes.children import Child
from recorder.daemon.processes.rates import floor_of
from recorder.daemon.processes.sensors import Sensor
from recorder.daemon.processes.writer_client import account
from recorder.session.layout import free_bytes

if TYPE_CHECKING:
    from recorder.daemon.daemon import Daemon

_OF_COMMITS = ("commits", "commit_s", "commit_last_s", "commit_max_s")


def describe(daemon: Daemon) -> dict[str, Any]:
    """The daemon's status; see docs/daemon.md for each key."""
    machine, supervisor = daemon.sessions.machine, daemon.supervisor
    now_ns = daemon.clock.monotonic_ns()
    faults = faults_of(daemon)
    commits = supervisor.status.to_wire()
    sensors = {name: _sensor(daemon, s) for name, s in supervisor.sensors.items()}
    return {
        "state": str(machine.state),
        "since_s": _since(now_ns, daemon.sessions.state_since_ns),
        "healthy": not faults,
        "ready": daemon.ready,
        "faults": faults,
        "warnings": list(supervisor.warnings),
        "wish": {key: getattr(machine.desired, key) for key in ("wanted", "by", "name", "part")},
        "session": _session(daemon, now_ns),
        "last": daemon.sessions.last,
        "sensors": sensors,
        "writer": {
            "pid": _pid(supervisor.writer.running),
            "restarts": supervisor.writer.restarts,
            "silent_s": round(supervisor.silent_s, 3),
            "oldest_uncommitted_s": round(supervisor.uncommitted_s, 3),
            "failed": supervisor.writer.failed,
            **{key: commits.get(key) for key in _OF_COMMITS},
        },
        "disk": _disk(daemon),
        "finalizing": daemon.finalizing.status(),
        "taps": supervisor.taps,
        "live": None if daemon.live is None else daemon.live.status(),
        "config": str(daemon.config.path),
        "version": recorder.__version__,
        "pid": os.getpid(),
        "uptime_s": _since(now_ns, daemon.started_ns),
    }


def faults_of(daemon: Daemon) -> list[dict[str, str]]:
    """What is wrong now: ``{about, kind, message}``, the gravest first."""
    machine, supervisor = daemon.sessions.machine, daemon.supervisor
    faults: list[dict[str, str]] = []

    def add(about: str, kind: str, message: str) -> None:
        faults.append({"about": about, "kind": kind, "message": mask_passwords(message)})

    if daemon.root_problem is not None:
        add("disk", "root", daemon.root_problem)
    if machine.reason is not None:
        add("recording", "fault", machine.reason)
    if daemon.sessions.desired_state_problem is not None:
        add("recording", "wish", daemon.sessions.desired_state_problem)
    if supervisor.writer.failed is not None and supervisor.writer.failed != machine.reason:
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
        rate = supervisor.progress.rates.rate_hz(stream)
        add(stream, "rate", f"{0.0 if rate is None else rate:.3g} Hz is too slow")
    for name, failed in daemon.finalizing.status()["failed"].items():
        add(name, "finalize", "; ".join(f"{step}: {why}" for step, why in failed.items()))
    return faults


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


def _session(daemon: Daemon, now_ns: int) -> dict[str, Any] | None:
    machine, supervisor = daemon.sessions.machine, daemon.supervisor
    if machine.session is None:
        return None
    streams = supervisor.streams
    lost: dict[str, int] = {}
    for stream in streams.values():
        for cause, count in (stream.get("lost") or {}).items():
            lost[cause] = lost.get(cause, 0) + count
    return {
        "name": Path(machine.session).name,
        "path": machine.session,
        "elapsed_s": _since(now_ns, daemon.sessions.part_started_ns),
        "bytes": sum(stream.get("bytes") or 0 for stream in streams.values()),
        "lost": lost,
        "unknown_losses": sum(s.get("unknown_losses") or 0 for s in streams.values()),
        "part": machine.desired.part,
        "splitting": machine.splitting,
        "kept": is_kept(Path(machine.session)),
        "faults": list(supervisor.faults),
    }


def _sensor(daemon: Daemon, sensor: Sensor) -> dict[str, Any]:
    supervisor = daemon.supervisor
    known = supervisor.streams if daemon.sessions.machine.session is not None else {}
    streams = {}
    for name, spec in sensor.specs.items():
        floor = floor_of(sensor.entry, spec)
        rate = supervisor.progress.rates.rate_hz(name)
        streams[name] = {
            "rate_hz": None if rate is None else round(rate, 3),
            "expected_hz": spec.rate_hz or None,
            "floor_hz": None if floor is None else floor.floor_hz,
            "slow": name in supervisor.progress.rates.broken,
            **account(known.get(name, {})),
        }
    return {
        "state": sensor.state,
        "driver": sensor.entry.driver,
        "required": sensor.entry.required,
        "fault": None if sensor.fault is None else mask_passwords(sensor.fault),
        "pid": _pid(sensor.child if sensor.alive else None),
        "starts": sensor.starts,
        "ring_held_bytes": sensor.ring_held,
        "ring_size_bytes": sensor.ring_size,
        "streams": streams,
    }


def _pid(child: Child | None) -> int | None:
    return None if child is None else child.process.pid


def _disk(daemon: Daemon) -> dict[str, Any]:
    root = daemon.config.session.root
    try:
        free: int | None = free_bytes(root)
    except OSError:
        free = None
    floor = daemon.config.storage.min_free_bytes
    return {"root": str(root), "free_bytes": free, "floor_bytes": floor}


def _since(now_ns: int, then_ns: int) -> float:
    return round(max(0, now_ns - then_ns) / 1e9, 3)
