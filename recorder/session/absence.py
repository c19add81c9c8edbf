"""Sensors without a sample in a session: the device was absent, or the driver did not start.

The writer logs the loss of such a sensor when it closes the session.  For a session that is still
open, or that an earlier version closed, the loss follows from ``session.json``, which names every
configured sensor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from recorder.session.events import make_event
from recorder.session.layout import RECORDING
from recorder.session.loss_accounts import lost_events
from recorder.session.reader import Session

ABSENT = "absent"
"""Cause of the loss, and reason of the end, of a stream whose sensor was absent."""


def absent_streams(
    sensors: Mapping[str, Sequence[str]], known: Collection[str]
) -> dict[str, list[str]]:
    """The streams of sensors without any known stream, by sensor.

    A sensor whose driver never declared a stream counts as one stream of the sensor's name.

    >>> absent_streams({"cam": [], "imu": ["imu"], "lidar": []}, ["imu", "lidar_imu"])
    {'cam': ['cam']}

    Args:
        sensors: the streams that each configured sensor declared.
        known: streams that have data or events in the session.
    """
    owners = {_owner(sensors, stream) for stream in known}
    return {
        sensor: list(streams) or [sensor]
        for sensor, streams in sensors.items()
        if sensor not in owners
    }


def reported_losses(
    session: Session, events: Iterable[Mapping[str, Any]] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """The ``lost`` events by stream, with an interval for every absent sensor.

    Args:
        session: the session.
        events: its events, if they have been read; None: they are read.

    Raises:
        FormatError: the event log cannot be read.
    """
    lost = lost_events(session.events() if events is None else events)
    header = session.header or {}
    if not session.recorded:
        return lost
    known = {*session.streams, *session.declared, *session.broken, *lost}
    known.update(header.get("epochs") or ())
    missing = absent_streams(session.sensors(), known)
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


def _owner(sensors: Mapping[str, Sequence[str]], stream: str) -> str | None:
    """The sensor that a stream belongs to; a driver may add ``_suffix`` to its sensor's name."""
    for sensor, streams in sensors.items():
        if stream in streams:
            return sensor
    owners = [s for s in sensors if stream == s or stream.startswith(s + "_")]
    return max(owners, key=len, default=None)
