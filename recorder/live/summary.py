"""What the page shows of every stream, and the verdict in one word.

All of it follows from the daemon's status and from what the taps gave; nothing here waits or reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from recorder.live.hub import NOTHING, Tally

SPARK = 60
"""Values of a sparkline, one a second."""
GOOD, WARN, BAD = "good", "warn", "bad"
_ORDER = {BAD: 0, WARN: 1, GOOD: 2}

_MISSING = ("failed", "lost", "absent", "changed", "restarting")
_RECENT_S = 10.0
_RING_FULL = 0.5
_DISK_BAD_H, _DISK_WARN_H = 10 / 60, 1.0
_DISK_WINDOW_S = 30.0

Status = Mapping[str, Any]
"""A daemon's status (docs/daemon.md)."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What the taps gave of a stream.

    Attributes:
        tally: of what came while it was watched.
        silent: nothing came when it was looked at last.
        frozen: fresh stamps carried the same payload.
    """

    tally: Tally = NOTHING
    silent: bool = False
    frozen: bool = False


@dataclass(slots=True)
class _Track:
    """One stream over time; times are seconds of a monotonic clock."""

    spark: deque[float] = field(default_factory=lambda: deque(maxlen=SPARK))
    spark_s: float = 0.0
    samples: int | None = None  # of the session, where the spark's second began
    bytes: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=8))
    grown: tuple[int, float] | None = None  # samples of the session, and since when
    lost: tuple[int, float] = (0, -1e9)  # samples and intervals, and when they became more


class Summary:
    """Takes each status; `note` is the message ``status`` of the protocol."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}
        self._session: str | None = None
        self._since_ns = 0  # of the session, or of its end
        self._written: deque[tuple[float, int]] = deque()

    def note(
        self,
        status: Status | None,
        observed: Mapping[str, Observed],
        now_s: float,
        now_ns: int,
        problem: str = "",
    ) -> dict[str, Any]:
        """The message ``status``.

        Args:
            status: the daemon's; None while it cannot be asked.
            observed: by stream.
            now_s: of a monotonic clock.
            now_ns: epoch ns, the clock of `Tally.last_ns`.
            problem: why there is no status.
        """
        if status is None:
            verdict = {"word": "OFFLINE", "level": BAD, "why": problem}
            return {"type": "status", "status": None, "streams": {}, "verdict": verdict} | {
                "disk_hours": None
            }
        session = status.get("session")
        if (name := session and session["name"]) != self._session:
            self._session, self._since_ns = name, now_ns
            self._written.clear()
            for track in self._tracks.values():
                track.samples, track.grown, track.lost = None, None, (0, -1e9)
                track.bytes.clear()
        streams = {}
        for sensor, stream, values in _streams(status):
            track = self._tracks.setdefault(stream, _Track())
            seen = observed.get(stream, Observed())
            if seen.silent and (seen.tally.last_ns or 0) < self._since_ns:
                seen = replace(seen, silent=False)  # a played source waits for the session
            row = _row(track, sensor, values, seen, session is not None, now_s, now_ns)
            level, word = judge(row)
            streams[stream] = {"sensor": sensor[0], **row, "level": level, "word": word}
        for gone in self._tracks.keys() - streams.keys():
            del self._tracks[gone]
        hours = self._disk_hours(status, streams, now_s)
        fresh = [s for s, track in self._tracks.items() if now_s - track.lost[1] < _RECENT_S]
        return {
            "type": "status",
            "status": status,
            "streams": dict(sorted(streams.items(), key=lambda item: _ORDER[item[1]["level"]])),
            "verdict": verdict_of(status, streams, hours, fresh),
            "disk_hours": None if hours is None else round(hours, 2),
            "session": name,
            "elapsed_s": session and session["elapsed_s"],
            "clock": _clock(status),
        }

    def _disk_hours(
        self, status: Status, streams: Mapping[str, Mapping[str, Any]], now_s: float
    ) -> float | None:
        """Hours until the disk is full at this rate; by the taps while nothing is recorded."""
        disk, session = status["disk"], status.get("session")
        if disk["free_bytes"] is None:
            return None
        rate = sum(row["mb_s"] or 0.0 for row in streams.values()) * 1e6
        if session is not None:
            written = self._written
            if not written or now_s - written[-1][0] >= 1.0:
                written.append((now_s, session["bytes"]))
            while now_s - written[0][0] > _DISK_WINDOW_S:
                written.popleft()
            (then_s, then), (last_s, last) = written[0], written[-1]
            if last_s - then_s >= 2.0 and last >= then:
                rate = (last - then) / (last_s - then_s)
        if rate <= 0:
            return None
        left: int = disk["free_bytes"] - (disk["floor_bytes"] or 0)
        return max(0.0, left / rate / 3600)


def judge(row: Mapping[str, Any]) -> tuple[str, str]:
    """A stream's level and its word, worst first."""
    state = row["state"]
    if state in _MISSING:
        return BAD, state
    if row["silent"]:
        return BAD, "silent"
    if row["frozen"]:
        return BAD, "frozen"
    if row["slow"]:
        return BAD, "slow"
    if state in ("starting", "ended"):
        return WARN, state
    if row["lost"] or row["unknown_losses"]:
        return WARN, "loss"
    if (row["ring"] or 0.0) > _RING_FULL:
        return WARN, "queue"
    return GOOD, "ok"


def verdict_of(
    status: Status,
    streams: Mapping[str, Mapping[str, Any]],
    disk_hours: float | None,
    losing: Collection[str] = (),
) -> dict[str, str]:
    """One word for the whole rig, its level, and the reason.

    Args:
        status: of the daemon.
        streams: by stream its row, with ``level`` and ``word``.
        disk_hours: until the disk is full; None if unknown.
        losing: streams that lost samples in the last seconds.
    """

    def verdict(level: str, word: str, why: str) -> dict[str, str]:
        return {"word": word, "level": level, "why": why}

    faults = status["faults"]
    if faults:
        return verdict(BAD, "FAULT", "; ".join(f"{f['about']}: {f['message']}" for f in faults[:3]))
    if disk_hours is not None and disk_hours < _DISK_BAD_H:
        return verdict(BAD, "DISK", f"full in {disk_hours * 60:.0f} minutes at this rate")
    if losing:
        return verdict(BAD, "LOSS", f"samples are lost now: {', '.join(sorted(losing))}")
    for level in (BAD, WARN):
        rows = {name: row for name, row in streams.items() if row["level"] == level}
        if rows:
            words = sorted({row["word"] for row in rows.values()})
            why = "; ".join(f"{name}: {row['word']}" for name, row in sorted(rows.items())[:4])
            return verdict(level, words[0].upper() if len(words) == 1 else "CHECK", why)
    if disk_hours is not None and disk_hours < _DISK_WARN_H:
        return verdict(WARN, "DISK", f"full in {disk_hours * 60:.0f} minutes at this rate")
    if status["state"] == "recording":
        return verdict(GOOD, "RECORDING", "all sensors are there, nothing is lost")
    if status["state"] == "idle" and status["ready"]:
        return verdict(GOOD, "READY", "all sensors are there")
    return verdict(
        WARN, status["state"].upper() if status["ready"] else "STARTING", "not ready yet"
    )


def _streams(status: Status) -> Iterator[tuple[tuple[str, Status], str, Mapping[str, Any]]]:
    """Every stream with its sensor; a sensor that declared none stands for itself."""
    for name, sensor in status["sensors"].items():
        streams: Iterable[tuple[str, Mapping[str, Any]]] = sensor["streams"].items() or [(name, {})]
        for stream, values in streams:
            yield (name, sensor), stream, values


def _row(
    track: _Track,
    sensor: tuple[str, Status],
    values: Mapping[str, Any],
    seen: Observed,
    recording: bool,
    now_s: float,
    now_ns: int,
) -> dict[str, Any]:
    state = sensor[1]
    tally = seen.tally
    samples, size = (values.get("samples"), values.get("bytes")) if recording else (None, None)
    missing = state["state"] in _MISSING
    rate_hz = 0.0 if missing or seen.silent else tally.rate_hz
    mb_s = (
        None if tally.bytes_s is None else (0.0 if missing or seen.silent else tally.bytes_s / 1e6)
    )
    if samples is not None:
        if track.grown is None or samples != track.grown[0]:
            track.grown = samples, now_s
        if values.get("rate_hz") is not None:
            rate_hz = values["rate_hz"]
        if size is not None:
            if not track.bytes or now_s - track.bytes[-1][0] >= 0.4:
                track.bytes.append((now_s, size))
            (then_s, then), (last_s, last) = track.bytes[0], track.bytes[-1]
            mb_s = (last - then) / (last_s - then_s) / 1e6 if last_s > then_s else mb_s
    _spark(track, samples, rate_hz, now_s)
    ages = []
    if samples and track.grown is not None:
        ages.append(now_s - track.grown[1])
    if tally.last_ns is not None:
        ages.append((now_ns - tally.last_ns) / 1e9)
    lost = values.get("lost") or {} if recording else {}
    unknown = values.get("unknown_losses") or 0 if recording else 0
    count = sum(lost.values()) + unknown
    if count > track.lost[0]:
        track.lost = count, now_s
    held, ring = state["ring_held_bytes"], state["ring_size_bytes"]
    return {
        "state": state["state"],
        "fault": state["fault"],
        "required": state["required"],
        "rate_hz": None if rate_hz is None else round(rate_hz, 3),
        "expected_hz": values.get("expected_hz"),
        "slow": bool(values.get("slow")),
        "silent": seen.silent and not missing,
        "frozen": seen.frozen,
        "mb_s": None if mb_s is None else round(mb_s, 4),
        "age_s": round(max(0.0, min(ages)), 2) if ages else None,
        "ring": round(held / ring, 4) if recording and ring else None,
        "lost": lost,
        "unknown_losses": unknown,
        "samples": samples,
        "bytes": size,
        "spark": [round(value, 2) for value in track.spark],
    }


def _spark(track: _Track, samples: int | None, rate_hz: float | None, now_s: float) -> None:
    """Add the rate of the second that has passed."""
    passed_s = now_s - track.spark_s
    if passed_s < 0.95:
        return
    before = track.samples
    counted = samples is not None and before is not None and samples >= before and passed_s < 10
    if counted and samples is not None and before is not None:
        track.spark.append((samples - before) / passed_s)
    elif rate_hz is not None:
        track.spark.append(rate_hz)
    track.samples, track.spark_s = samples, now_s


def _clock(status: Status) -> dict[str, str] | None:
    clock = status.get("clock")
    if clock is None:
        return None
    if clock.get("synchronized"):
        return {"word": "synchronized", "level": GOOD}
    return {"word": "not synchronized", "level": WARN}
