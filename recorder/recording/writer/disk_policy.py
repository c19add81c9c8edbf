"""Policy of the writer for a disk that fills up or fails.

A disk that fills up ends the session before the disk is full.  Every commit compares the free
space with the *floor*: ``storage.min_free_gb`` plus the growth of the session in the last minute.
A disk that fails seals the session.  The writer then records the losses in the session, as far as
the disk still allows, through new descriptors.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from recorder.bus.messages import Ending
from recorder.common.clock import Clock
from recorder.common.errors import RecorderError, StorageError
from recorder.common.files import Disk
from recorder.recording.writer.stream_state import StreamState, uncounted_loss
from recorder.session import layout
from recorder.session.events import make_event
from recorder.session.journal.journal import read_journal

DISK = "disk"
"""Type of this module's events, and cause of losses by a failed disk."""

CLOSING_BYTES = 1 << 20
"""Bytes reserved for closing a session: indexes, descriptions, the last commit."""

_MINUTE_NS = 60_000_000_000
_STEP_NS = 1_000_000_000


class Floor:
    """Minimum of free space, at which a session must end.

    >>> floor = Floor(disk, session, 5_000_000_000, clock, writer.bytes)  # doctest: +SKIP
    >>> while floor.check(writer.bytes) is None:  # doctest: +SKIP
    ...     writer.commit()

    For a session younger than a minute, the growth so far counts.  So a file that is played fast
    and fits on the disk is not ended by the growth of a whole minute.
    """

    def __init__(
        self, disk: Disk, session: Path, reserve_bytes: int, clock: Clock, session_bytes: int
    ) -> None:
        self._disk = disk
        self._session = session
        self._reserve_bytes = reserve_bytes
        self._clock = clock
        self._grown = deque([(clock.monotonic_ns(), session_bytes)])  # one entry per second

    def check(self, session_bytes: int) -> str | None:
        """Return why the session must end, in one sentence; None if it need not end.

        Args:
            session_bytes: size of all files of the session.

        Raises:
            OSError: the free space cannot be read.
        """
        free = self._disk.free_bytes(self._session)
        growth = self._growth(session_bytes)
        floor = self._reserve_bytes + max(growth, CLOSING_BYTES)
        if free >= floor:
            return None
        return (
            f"{self._session}: ended, since its disk is nearly full: {_size(free)} are free, and "
            f"storage.min_free_gb with a minute of recording is {_size(floor)}; delete or move "
            "sessions, or set retention.gb"
        )

    def _growth(self, session_bytes: int) -> int:
        now_ns = self._clock.monotonic_ns()
        grown = self._grown
        if now_ns - grown[-1][0] >= _STEP_NS:
            grown.append((now_ns, session_bytes))
        while len(grown) > 1 and now_ns - grown[1][0] >= _MINUTE_NS:
            grown.popleft()
        return session_bytes - grown[0][1]


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


class Fuse:
    """Guard that refuses an operation after its first error.

    >>> with fuse:  # doctest: +SKIP
    ...     append()  # after an error here, StorageError from now on
    """

    def __init__(self, session: Path) -> None:
        self._session = session
        self._blown = False

    def __enter__(self) -> None:
        if self._blown:
            raise StorageError(f"{self._session}: an earlier error has ended its recording")

    def __exit__(self, kind: object, *_: object) -> None:
        self._blown = kind is not None


def describe_error(error: Exception) -> str:
    """Return the reason in an exception, for a sentence."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def make_seal_events(
    progress_by_stream: Mapping[str, StreamState],
    committed: Mapping[str, Any],
    reason: str,
    t_ns: int,
    now_mono_ns: int,
    start_mono_ns: int,
) -> list[dict[str, Any]]:
    """Return the events of a sealed session: the seal, and the loss of every stream.

    Samples after the last commit cannot be counted, whether in the writer, in the driver's ring or
    in the sensor.  The loss is an interval from the last durable sample to now; for a stream
    without a durable sample, from the session's start.

    Args:
        progress_by_stream: progress by stream; the uncounted loss is added to each.
        committed: content of the last commit.
        reason: why the session is sealed.
        t_ns: the time, epoch ns.
        now_mono_ns: the time, CLOCK_MONOTONIC.
        start_mono_ns: CLOCK_MONOTONIC of the session's start.
    """
    events = [make_event(DISK, t_ns, cause="sealed", detail=reason)]
    for name, progress in list(progress_by_stream.items()):
        position = committed["streams"].get(name, {})
        is_new_epoch = position.get("epoch", 0) != progress.epoch
        if position.get("ended") and not (is_new_epoch or progress.held):
            continue
        last_ns = position.get("last_ns", -1)
        gap_ns = max(0, now_mono_ns - (last_ns if last_ns >= 0 else start_mono_ns))
        first_seq = 0 if is_new_epoch else position.get("seq", 0)
        where: dict[str, Any] = {"first_seq": first_seq, "epoch": progress.epoch or None}
        events.append(uncounted_loss(progress, t_ns, DISK, gap_ns, **where))
    return events


def append_events(
    disk: Disk, session: Path, committed: Mapping[str, Any], events: Iterable[dict[str, Any]]
) -> None:
    """Write events after the committed length of the event log, durably.

    The old descriptor of the log may have failed, so a new one is used.  If that fails, too, no
    error is raised: the command reports the failure, and recovery uses the journal.
    """
    path = layout.private(session, layout.EVENTS)
    with contextlib.suppress(OSError, ValueError):
        file = disk.reopen(path, committed["files"].get(f"{layout.PRIVATE}/{layout.EVENTS}", 0))
        try:
            for event in events:
                file.append(json.dumps(event, separators=(",", ":")).encode() + b"\n")
            file.flush()
            file.sync()
        finally:
            file.close()


def read_ending(path: Path) -> Ending | None:
    """Read how a session ended; None if it is still recorded or cannot be read."""
    try:
        values = layout.read_session_json(path)
        journal = read_journal(layout.private(path, layout.JOURNAL))
    except RecorderError:
        return None
    if values["state"] == layout.RECORDING and journal.closed is None:
        return None
    for name, position in journal.positions.items():
        files = (n for file, n in journal.files.items() if file.partition("/")[0] == name)
        position |= {"bytes": sum(files), "adjusted": 0}
    full = next((e["detail"] for e in _events(path) if e.get("cause") == "floor"), None)
    return Ending(str(path), journal.positions, values.get("sealed"), full)


def split_ending(streams: Mapping[str, Any]) -> tuple[dict[str, str | None], dict[str, int]]:
    """Return the end reasons and the last ``t_mono`` of a closed session, by stream.

    Args:
        streams: the session's positions from `read_ending`.
    """
    ends = {name: state["ended"] for name, state in streams.items()}
    return ends, {n: state["last_ns"] for n, state in streams.items() if state["samples"]}


def find_next_session(path: Path) -> Path | None:
    """Return the session that continues another; None without one, or if it cannot be read.

    The journal names the next session before that session exists.  If the writer died in between,
    the next session is missing.
    """
    try:
        following = read_journal(layout.private(path, layout.JOURNAL)).find_next_session(path)
        if following is None:
            return None
        return following if layout.read_session_json(following)["previous"] == path.name else None
    except (RecorderError, KeyError):
        return None


def _events(session: Path) -> Iterator[dict[str, Any]]:
    path = layout.private(session, layout.EVENTS)
    with contextlib.suppress(OSError, ValueError):
        yield from map(json.loads, path.read_bytes().splitlines())
