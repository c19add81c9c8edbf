"""Summary of every stream for the page, and the verdict in one word.

The input is the daemon's status and the newest stamps of the taps; the module does no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SPARK = 60
"""Number of values in a sparkline, one a second."""
GOOD, WARN, BAD, IDLE = "good", "warn", "bad", "idle"
_ORDER = {BAD: 0, WARN: 1, IDLE: 2, GOOD: 3}

_MISSING = ("failed", "lost", "absent", "changed", "restarting")
_RECENT_S = 1.5  # the writer counts losses twice a second
_RESTARTED_S = 3.0  # a driver may be back before the next status
_SILENT_S = 2.0
_LATE_S, _LATE_PERIODS, _REPORTS_S = 0.6, 1.5, 0.35  # reports and statuses come 4 times a second
_USUAL_S = 60.0
_RATE_S = 3.0
_RING_FULL = 0.5
_DISK_BAD_H, _DISK_WARN_H = 10 / 60, 1.0
_LEFT_OUT = ("events", "taps", "config", "live")  # of the status: paths, other notes

Status = Mapping[str, Any]
"""A daemon's status (docs/daemon.md)."""


@dataclass(slots=True)
class _Usual:
    """Smallest age of arriving samples in the last one or two minutes: the sensor's usual delay."""

    since_s: float = 0.0
    least: float = float("inf")
    before: float = float("inf")

    def take(self, now_s: float, age_s: float) -> None:
        if now_s - self.since_s >= _USUAL_S:
            self.since_s, self.before, self.least = now_s, self.least, float("inf")
        self.least = min(self.least, age_s)

    @property
    def age_s(self) -> float:
        least = min(self.least, self.before)
        return least if least < float("inf") else 0.0


@dataclass(slots=True)
class _Track:
    """History of one stream; times are seconds of CLOCK_MONOTONIC."""

    spark: deque[float] = field(default_factory=lambda: deque(maxlen=SPARK))
    spark_s: float = 0.0
    counted: tuple[int, int] | None = None  # samples, and the stamp of the last: of the spark
    grew_s: float = 0.0  # when the samples of the spark became more
    recent: deque[tuple[float, int, int]] = field(default_factory=deque)  # when, `counted`
    newest_ns: int | None = None
    came_s: float = 0.0  # when the newest sample was new
    usual: _Usual = field(default_factory=_Usual)
    lost: tuple[int, float] = (0, -1e9)  # samples and intervals, and when they became more
    starts: tuple[int, float] = (0, -1e9)  # of its driver, and when they became more than one


class Summary:
    """Builder of the message ``status``; `note` takes each status of the daemon."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}
        self._session: str | None = None
        self._since_ns = 0  # of the session, or of its end

    def note(
        self,
        status: Status | None,
        newest_ns: Mapping[str, int | None],
        now_ns: int,
        problem: str = "",
    ) -> dict[str, Any]:
        """Return the message ``status``.

        Args:
            status: the daemon's status; None while the daemon does not answer.
            newest_ns: CLOCK_MONOTONIC of the newest sample of each stream's tap.
            now_ns: the current CLOCK_MONOTONIC.
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
                track.counted, track.lost = None, (0, -1e9)
        streams = {}
        for sensor, stream, values in _streams(status):
            track = self._tracks.setdefault(stream, _Track())
            seen_ns = newest_ns.get(stream)
            row = _row(track, sensor, values, seen_ns, session, now_ns, self._since_ns)
            level, word = judge(row)
            streams[stream] = {"sensor": sensor[0], **row, "level": level, "word": word}
        for gone in self._tracks.keys() - streams.keys():
            del self._tracks[gone]
        left_s = status["disk"].get("seconds_left")
        hours = None if left_s is None else left_s / 3600
        now_s = now_ns / 1e9
        fresh = [s for s, track in self._tracks.items() if now_s - track.lost[1] < _RECENT_S]
        fresh += [name for name, row in streams.items() if row["outage"] and name not in fresh]
        return {
            "type": "status",
            "status": {key: status[key] for key in status if key not in _LEFT_OUT},
            "streams": dict(sorted(streams.items(), key=lambda item: _ORDER[item[1]["level"]])),
            "verdict": judge_rig(status, streams, hours, fresh),
            "disk_hours": None if hours is None else round(hours, 2),
            "session": name,
            "elapsed_s": session and session["elapsed_s"],
            "clock": _clock(status),
        }


def judge(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return a stream's level and word; the worst wins, and good needs fresh samples."""
    state = row["state"]
    if state in _MISSING or (state == "starting" and row["samples"]):
        return BAD, state  # its driver had given samples to this session
    for word in ("outage", "restarted", "silent", "frozen", "slow"):
        if row[word]:
            return BAD, word
    if state in ("starting", "ended"):
        return WARN, state
    if row["ended"] and not row["fresh"]:
        return WARN, "ended"
    if not row["declared"]:
        return WARN, "undeclared"
    if row["late"]:
        return WARN, "late"
    if row["lost"] or row["unknown_losses"]:
        return WARN, "loss"
    if row["incomplete"]:
        return WARN, "incomplete"
    if (row["ring"] or 0.0) > _RING_FULL:
        return WARN, "queue"
    if not row["fresh"]:
        return IDLE, "idle"
    return GOOD, "simulated" if row["simulated"] else "ok"


def judge_rig(
    status: Status,
    streams: Mapping[str, Mapping[str, Any]],
    disk_hours: float | None,
    losing: Collection[str] = (),
) -> dict[str, str]:
    """Return one word for the whole rig, its level, and the reason.

    Args:
        status: the daemon's status.
        streams: the row of each stream, with ``level`` and ``word``.
        disk_hours: hours until the disk is full; None if unknown.
        losing: streams that lost samples in the last second.
    """

    def verdict(level: str, word: str, why: str) -> dict[str, str]:
        return {"word": word, "level": level, "why": why}

    faults = status["faults"]
    if faults:
        return verdict(BAD, "FAULT", "; ".join(_fault_text(f) for f in faults[:3]))
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
    idle = sorted(name for name, row in streams.items() if row["level"] == IDLE)
    if status["state"] == "recording":
        why = f"nothing is lost; no data yet: {', '.join(idle)}" if idle else ""
        return verdict(GOOD, "RECORDING", why or "all sensors are there, nothing is lost")
    if status["state"] == "idle" and status["ready"]:
        return verdict(GOOD, "READY", "all sensors are there")
    return verdict(
        WARN, status["state"].upper() if status["ready"] else "STARTING", "not ready yet"
    )


def _fault_text(fault: Mapping[str, str]) -> str:
    about, message = fault["about"], fault["message"]
    return message if message.startswith(f"{about}: ") else f"{about}: {message}"


def _streams(status: Status) -> Iterator[tuple[tuple[str, Status], str, Mapping[str, Any]]]:
    """Yield every stream with its sensor; a sensor without declared streams counts as one."""
    for name, sensor in status["sensors"].items():
        streams: Iterable[tuple[str, Mapping[str, Any]]] = sensor["streams"].items() or [(name, {})]
        for stream, values in streams:
            yield (name, sensor), stream, values


def _row(
    track: _Track,
    sensor: tuple[str, Status],
    values: Mapping[str, Any],
    seen_ns: int | None,
    session: Mapping[str, Any] | None,
    now_ns: int,
    since_ns: int,
) -> dict[str, Any]:
    state, now_s = sensor[1], now_ns / 1e9
    missing = state["state"] in _MISSING
    recording = session is not None
    samples = values.get("samples") if recording else None
    rate_hz, bytes_s = values.get("rate_hz"), values.get("bytes_per_s")
    expected_hz = values.get("expected_hz")
    rate_hz = _rate_hz(track, samples, values.get("samples_ns"), expected_hz, rate_hz, now_s)
    if missing:
        rate_hz, bytes_s = 0.0, 0
    stamps = (values.get("last_ns"), values.get("samples_ns"), seen_ns)
    age_s = _age_s(track, [stamp for stamp in stamps if stamp is not None], now_s)
    behind_s = None if age_s is None else age_s - track.usual.age_s
    _add_to_spark(track, samples, values.get("samples_ns"), expected_hz, rate_hz, now_s)
    gave = track.newest_ns is not None and track.newest_ns > since_ns
    # A played source gives nothing before its session: then silence is no fault.
    due = session["elapsed_s"] > _SILENT_S if session else gave and not state.get("played")
    due = due and not missing and bool(expected_hz) and not values.get("ended")
    periods_s = _LATE_PERIODS / expected_hz if expected_hz else 0.0
    late_s = max(_LATE_S, periods_s + _REPORTS_S) if expected_hz else _SILENT_S
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
        "simulated": bool(state.get("simulated")),
        "declared": bool(state["streams"]),
        "rate_hz": rate_hz,
        "expected_hz": expected_hz,
        "slow": bool(values.get("slow")),
        "restarted": now_s - track.starts[1] < _RESTARTED_S,
        "silent": due and (behind_s is None or behind_s > _SILENT_S + periods_s),
        "late": due and gave and behind_s is not None and behind_s > late_s,
        "fresh": not missing and behind_s is not None and behind_s <= late_s,
        "frozen": bool(values.get("frozen")),
        "ended": values.get("ended"),
        "outage": values.get("outage", state.get("outage")) if recording else None,
        "mb_s": None if bytes_s is None else bytes_s / 1e6,
        "age_s": None if age_s is None else round(age_s, 2),
        "ring": round(held / ring, 4) if recording and ring else None,
        "lost": lost,
        "unknown_losses": unknown,
        "incomplete": values.get("incomplete") or {} if recording else {},
        "samples": samples,
        "bytes": values.get("bytes") if recording else None,
        "spark": [round(value, 2) for value in track.spark],
    }


def _age_s(track: _Track, stamps: Collection[int], now_s: float) -> float | None:
    """Return the age of the newest sample; None before the first.

    For a stamp in the future (a source that plays fast), return the time since the arrival.
    """
    if not stamps:
        return None
    newest_ns = max(stamps)
    by_stamp_s = now_s - newest_ns / 1e9
    if newest_ns != track.newest_ns:
        if track.newest_ns is not None:  # the first may have come long before
            track.usual.take(now_s, max(0.0, by_stamp_s))
        track.newest_ns, track.came_s = newest_ns, now_s
    return max(by_stamp_s, now_s - track.came_s, 0.0)


def _rate_hz(
    track: _Track,
    samples: int | None,
    samples_ns: int | None,
    expected_hz: float | None,
    counted_hz: float | None,
    now_s: float,
) -> float | None:
    """Return the recent rate by the samples' stamps; by their counts where there are no stamps."""
    recent = track.recent
    if samples is None or samples_ns is None or (recent and samples < recent[-1][1]):
        recent.clear()
    if samples is not None and samples_ns is not None:
        if not recent or samples > recent[-1][1]:
            recent.append((now_s, samples, samples_ns))
        while len(recent) > 2 and now_s - recent[0][0] > _RATE_S:
            recent.popleft()
        (since_s, first, first_ns), (until_s, last, last_ns) = recent[0], recent[-1]
        seconds = (last_ns - first_ns) / 1e9
        pauses = now_s - until_s > max(1.0, 2 / expected_hz if expected_hz else 0.0)
        if 0.0 < seconds < 3 * (until_s - since_s) and not pauses:
            return round((last - first) / seconds, 3)
    return counted_hz


def _add_to_spark(
    track: _Track,
    samples: int | None,
    samples_ns: int | None,
    expected_hz: float | None,
    rate_hz: float | None,
    now_s: float,
) -> None:
    """Add the rate of the last second to the sparkline.

    The rate is the number of samples over the time between their stamps: the number of samples
    between two statuses depends on when they were counted.
    """
    passed_s = now_s - track.spark_s
    if passed_s < 0.95:
        return
    before, track.spark_s = track.counted, now_s
    track.counted = None if samples is None or samples_ns is None else (samples, samples_ns)
    if samples is None:
        if rate_hz is not None:
            track.spark.append(rate_hz)
        return
    if before is None or track.counted is None or samples < before[0] or passed_s > 10:
        return
    stamped_s = (track.counted[1] - before[1]) / 1e9
    if samples > before[0]:
        own = 0.0 < stamped_s < 3 * (now_s - track.grew_s)  # else it plays at another pace
        track.spark.append((samples - before[0]) / (stamped_s if own else passed_s))
        track.grew_s = now_s
    elif expected_hz and now_s - track.came_s < 2 / expected_hz:
        track.counted = before  # the next sample is not due
        if track.spark:
            track.spark.append(track.spark[-1])
    else:
        track.spark.append(0.0)


def _clock(status: Status) -> dict[str, str] | None:
    synchronized = status.get("clock", {}).get("synchronized")
    if synchronized is None:
        return None
    if synchronized:
        return {"word": "synchronized", "level": GOOD}
    return {"word": "not synchronized", "level": WARN}
