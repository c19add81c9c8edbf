"""Sensors without a sample in a session: the device was absent, or the driver did not start.

The writer logs the loss of such a sensor when it closes the session.  For a session that is still
open, or has no such event, the loss follows from ``session.json``, which names every configured
sensor.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from recorder.session.events import make_event
from recorder.session.layout import RECORDING
from recorder.session.loss_accounts import group_lost_events
from recorder.session.reader import Session
from recorder.session.stream import Stream

ABSENT = "absent"
"""Cause of the loss, and reason of the end, of a stream whose sensor was absent."""


def find_absent_streams(
    sensors: Mapping[str, Sequence[str]], known: Collection[str]
) -> dict[str, list[str]]:
    """Return the streams of sensors without any known stream, by sensor.

    A sensor whose driver never declared a stream counts as one stream of the sensor's name.

    >>> find_absent_streams({"cam": [], "imu": ["imu"], "lidar": []}, ["imu", "lidar_imu"])
    {'cam': ['cam']}

    Args:
        sensors: the streams that each configured sensor declared.
        known: streams that have data or events in the session.
    """
    owners = {find_owner(sensors, stream) for stream in known}
    return {
        sensor: list(streams) or [sensor]
        for sensor, streams in sensors.items()
        if sensor not in owners
    }


def collect_losses(
    session: Session, events: Iterable[Mapping[str, Any]] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return the ``lost`` events by stream, with an interval for every absent sensor.

    In a session that was not closed, a device that is lost, and has not come back, is an interval
    from its last sample to now (to the latest sample of any stream, if its writer died).

    Args:
        session: the session.
        events: its events, if they have been read; None: they are read.

    Raises:
        FormatError: the event log cannot be read.
    """
    read = list(session.events() if events is None else events)
    lost = group_lost_events(read)
    header = session.header or {}
    if not session.recorded:
        return lost
    known = {*session.streams, *session.declared, *session.broken, *lost}
    known.update(header.get("epochs") or ())
    missing = find_absent_streams(session.sensors(), known)
    if session.state == RECORDING:
        _add_outages(session, read, lost, missing)
    end_ns = session.end_ns
    for sensor, streams in missing.items():
        if session.state == RECORDING and session.sensors()[sensor]:
            continue  # declared: its first samples may follow
        duration_ns = None if end_ns is None else end_ns - int(header["start_ns"])
        t_ns = header["start_ns"] if end_ns is None else end_ns
        for stream in streams:
            event = make_event("lost", t_ns, stream, ABSENT, duration_ns=duration_ns)
            lost.setdefault(stream, []).append(event)
    return lost


def _add_outages(
    session: Session,
    events: Iterable[Mapping[str, Any]],
    lost: dict[str, list[dict[str, Any]]],
    absent: Collection[str],
) -> None:
    """Add the outages that have not ended; the writer counts an outage only at its end."""
    gone: dict[str, int] = {}
    for event in events:
        if event.get("type") == "device" and isinstance(event.get("t_ns"), int):
            sensor = str(event.get("stream"))
            if event.get("cause") in (ABSENT, "lost"):
                gone.setdefault(sensor, event["t_ns"])
            else:
                gone.pop(sensor, None)
    now_ns = _read_now_ns(session)
    for sensor, t_ns in gone.items():
        names = session.sensors().get(sensor) or [sensor]
        if sensor in absent and not session.sensors().get(sensor):
            continue  # it has declared nothing: it is absent in any case
        for name in names:
            stream = session.streams.get(name)
            since_ns = (session.start_ns or t_ns) if stream is None else _read_last_ns(stream, t_ns)
            spec = session.declared.get(name)
            rate_hz = None if spec is None else spec.rate_hz
            gap_ns = max(0, now_ns - since_ns)
            estimate = round(gap_ns * rate_hz / 1e9) if rate_hz else None
            cause = ABSENT if stream is None else "device"
            event = make_event("lost", now_ns, name, cause, duration_ns=gap_ns)
            lost.setdefault(name, []).append(event | {"estimate": estimate})


def _read_now_ns(session: Session) -> int:
    """Return now on the clock of a live session; of a dead one its latest sample. Epoch ns."""
    header = session.header or {}
    if session.live and isinstance(header.get("start_mono_ns"), int):
        return int(header["start_ns"]) - int(header["start_mono_ns"]) + time.monotonic_ns()
    latest = (_read_last_ns(stream, 0) for stream in session.streams.values())
    return max(latest, default=int(header.get("start_ns") or 0))


def _read_last_ns(stream: Stream, default: int) -> int:
    """Return the stamp of a stream's last sample, epoch ns, by ``ts``."""
    stamps = stream.channels["ts"] if stream.has_times else ()
    if not len(stamps):
        return default
    return round(float(stamps[len(stamps) - 1]) * 1e9)


def find_owner(sensors: Mapping[str, Sequence[str]], stream: str) -> str | None:
    """Return the sensor of a stream; a driver may add ``_suffix`` to its sensor's name."""
    for sensor, streams in sensors.items():
        if stream in streams:
            return sensor
    owners = [s for s in sensors if stream == s or stream.startswith(s + "_")]
    return max(owners, key=len, default=None)
