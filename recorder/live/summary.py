"""What the page shows of every stream, and the verdict in one word.

All of it follows from the daemon's status and from what the taps gave; nothing here waits or reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SPARK = 60
"""Values of a sparkline, one a second."""
GOOD, WARN, BAD = "good", "warn", "bad"
_ORDER = {BAD: 0, WARN: 1, GOOD: 2}

_MISSING = ("failed", "lost", "absent", "changed", "restarting")
_RECENT_S = 10.0
_RESTARTED_S = 3.0  # a driver may be back before the next status
_SILENT_S = 2.0
_RING_FULL = 0.5
_DISK_BAD_H, _DISK_WARN_H = 10 / 60, 1.0
_LEFT_OUT = ("events", "taps", "config", "live")  # of the status: paths, and what notes tell

Status = Mapping[str, Any]
"""A daemon's status (docs/daemon.md)."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What the taps gave of a stream.

    Attributes:
        last_ns: epoch ns of the newest sample; None before the first.
        frozen: fresh stamps carried the same payload.
    """

    last_ns: int | None = None
    frozen: bool = False


@dataclass(slots=True)
class _Track:
    """One stream over time; times are seconds of a monotonic clock."""

    spark: deque[float] = field(default_factory=lambda: deque(maxlen=SPARK))
    spark_s: float = 0.0
    samples: int | None = None  # of the session, where the spark's second began
    grown: tuple[int, float] | None = None  # samples of the session, and since when
    lost: tuple[int, float] = (0, -1e9)  # samples and intervals, and when they became more
    starts: tuple[int, float] = (0, -1e9)  # of its driver, and when they became more than one


class Summary:
    """Takes each status; `note` is the message ``status`` of the protocol."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}
        self._session: str | None = None
        self._since_ns = 0  # of the session, or of its end

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
            now_ns: epoch ns.
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
            for track in self._tracks.values():
                track.samples, track.grown, track.lost = None, None, (0, -1e9)
        streams = {}
        for sensor, stream, values in _streams(status):
            track = self._tracks.setdefault(stream, _Track())
            seen = observed.get(stream, Observed())
            row = _row(track, sensor, values, seen, session, now_s, now_ns, self._since_ns)
            level, word = judge(row)
            streams[stream] = {"sensor": sensor[0], **row, "level": level, "word": word}
        for gone in self._tracks.keys() - streams.keys():
            del self._tracks[gone]
        left_s = status["disk"].get("seconds_left")
        hours = None if left_s is None else left_s / 3600
        fresh = [s for s, track in self._tracks.items() if now_s - track.lost[1] < _RECENT_S]
        return {
            "type": "status",
            "status": {key: status[key] for key in status if key not in _LEFT_OUT},
            "streams": dict(sorted(streams.items(), key=lambda item: _ORDER[item[1]["level"]])),
            "verdict": verdict_of(status, streams, hours, fresh),
            "disk_hours": None if hours is None else round(hours, 2),
            "session": name,
            "elapsed_s": session and session["elapsed_s"],
            "clock": _clock(status),
        }


def judge(row: Mapping[str, Any]) -> tuple[str, str]:
    """A stream's level and its word, worst first."""
    state = row["state"]
    if state in _MISSING or (state == "starting" and row["samples"]):
        return BAD, state  # its driver had given samples to this session
    if row["restarted"]:
        return BAD, "restarted"
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
    if refused := status.get("start_refused"):
        return verdict(BAD, "NO START", refused)
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
    session: Mapping[str, Any] | None,
    now_s: float,
    now_ns: int,
    since_ns: int,
) -> dict[str, Any]:
    state = sensor[1]
    missing = state["state"] in _MISSING
    recording = session is not None
    samples = values.get("samples") if recording else None
    rate_hz, bytes_s = values.get("rate_hz"), values.get("bytes_per_s")
    if missing:
        rate_hz, bytes_s = 0.0, 0
    _spark(track, samples, rate_hz, now_s)
    ages = []
    if samples and (track.grown is None or samples != track.grown[0]):
        track.grown = samples, now_s
    if values.get("age_s") is not None:
        ages.append(values["age_s"])
    if seen.last_ns is not None:
        ages.append((now_ns - seen.last_ns) / 1e9)
    if not ages and samples and track.grown is not None:
        ages.append(now_s - track.grown[1])
    age_s = max(0.0, min(ages)) if ages else None
    # A played source gives nothing before its session: then silence is no fault.
    gave = age_s is not None and now_ns - round(age_s * 1e9) > since_ns
    due = gave if session is None else session["elapsed_s"] > _SILENT_S
    silent = due and not rate_hz and (age_s is None or age_s > _SILENT_S)
    lost = values.get("lost") or {} if recording else {}
    unknown = values.get("unknown_losses") or 0 if recording else 0
    count = sum(lost.values()) + unknown
    if count > track.lost[0]:
        track.lost = count, now_s
    if state["starts"] > track.starts[0]:
        track.starts = state["starts"], now_s if track.starts[0] else -1e9
    held, ring = state["ring_held_bytes"], state["ring_size_bytes"]
    return {
        "state": state["state"],
        "fault": state["fault"],
        "required": state["required"],
        "rate_hz": rate_hz,
        "expected_hz": values.get("expected_hz"),
        "slow": bool(values.get("slow")),
        "restarted": now_s - track.starts[1] < _RESTARTED_S,
        "silent": silent and not missing and rate_hz is not None and not values.get("ended"),
        "frozen": seen.frozen,
        "mb_s": None if bytes_s is None else bytes_s / 1e6,
        "age_s": None if age_s is None else round(age_s, 2),
        "ring": round(held / ring, 4) if recording and ring else None,
        "lost": lost,
        "unknown_losses": unknown,
        "samples": samples,
        "bytes": values.get("bytes") if recording else None,
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
    synchronized = status.get("clock", {}).get("synchronized")
    if synchronized is None:
        return None
    if synchronized:
        return {"word": "synchronized", "level": GOOD}
    return {"word": "not synchronized", "level": WARN}
