"""Progress of a recording: rates of the streams, losses, and commits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from recorder.recording.supervisor.log_levels import ERROR, INFO, WARNING, LogLine, ReportEvent
from recorder.recording.supervisor.sensors import Sensor
from recorder.session.minimum_rate import WINDOW_NS, window_ns

_STEP_NS = 200_000_000


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a stream to below its minimum rate, or back above it."""

    stream: str
    broken: bool
    rate_hz: float
    floor_hz: float


@dataclass(slots=True)
class _Track:
    history: deque[tuple[int, int]] = field(default_factory=deque)
    broken: bool = False
    below_ns: int = 0  # last time below its minimum
    rate_hz: float | None = None


class RateWatch:
    """Monitor of sample counts against minimum rates, by the host's clock.

    A stream is below its minimum rate (`recorder.session.minimum_rate`) if the last seconds lack
    more than one sample, until no sample was missing for the same time.  So a stream near its
    minimum is reported once::

        watch = RateWatch()
        for change in watch.update(now_ns, {"imu": 1200}, {"imu": 95.0}):
            change.stream, change.rate_hz, change.broken

    The writer counts losses by the samples' own times, when an interval is over.
    """

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}

    @property
    def broken(self) -> list[str]:
        """Streams that are below their minimum rate now."""
        return [name for name, track in self._tracks.items() if track.broken]

    def rate(self, stream: str) -> float | None:
        """Return the stream's count per second over the last seconds; None before it is known."""
        track = self._tracks.get(stream)
        return None if track is None else track.rate_hz

    def reset(self) -> None:
        """Discard all counts, at the start or end of a session."""
        self._tracks.clear()

    def update(
        self, now_ns: int, samples: Mapping[str, int], floors: Mapping[str, float | None]
    ) -> list[Change]:
        """Take the sample counts of all streams; return the changes.

        Args:
            now_ns: CLOCK_MONOTONIC.
            samples: samples so far by stream; a smaller count than before (a new part) restarts.
            floors: minimum rates in Hz of the streams to judge; all others are discarded.
        """
        for name in self._tracks.keys() - floors.keys():
            del self._tracks[name]
        changes = []
        for name, floor_hz in floors.items():
            change = self.count(now_ns, name, samples.get(name, 0), floor_hz)
            if change is not None:
                changes.append(change)
        return changes

    def count(
        self, now_ns: int, name: str, count: int, floor_hz: float | None = None
    ) -> Change | None:
        """Take the count of one stream; return its change, or None.  See `update`."""
        track = self._tracks.setdefault(name, _Track())
        history = track.history
        if history and count < history[-1][1]:
            history.clear()
        if not history or now_ns - history[-1][0] >= _STEP_NS:
            history.append((now_ns, count))
        length_ns = WINDOW_NS if floor_hz is None else window_ns(floor_hz)
        while len(history) > 1 and now_ns - history[1][0] >= length_ns:
            history.popleft()
        since_ns, before = history[0]
        seconds = (now_ns - since_ns) / 1e9
        if seconds > 0.5:
            track.rate_hz = (count - before) / seconds
        if floor_hz is None or now_ns - since_ns < length_ns:
            return None
        below = (count - before + 1) / seconds < floor_hz
        if below:
            track.below_ns = now_ns
        broken = below or (track.broken and now_ns - track.below_ns < length_ns)
        if broken == track.broken:
            return None
        track.broken = broken
        return Change(name, broken, (count - before) / seconds, floor_hz)


_DECLARED_S = 10.0
"""Weight of a stream's declared rate, as seconds of measurement."""
_MEMORY_S = 60.0


@dataclass(slots=True)
class _Mean:
    per_s: float
    weight_s: float = _DECLARED_S
    counted: tuple[int, int] | None = None  # time in ns, and bytes


class VolumeForecast:
    """Mean bytes per second over about a minute, kept from one session to the next.

    The forecast shows how long a disk lasts.  It begins with a stream's declared rate and
    approaches the measured one.  So it does not jump at the start or end of a session, nor at
    each keyframe::

        forecast = VolumeForecast()
        forecast.count(now_ns, "camera", 1_200_000, declared=900_000.0)
        forecast.rate("camera", declared=900_000.0)
    """

    def __init__(self) -> None:
        self._means: dict[str, _Mean] = {}

    def count(self, now_ns: int, stream: str, nbytes: int, declared: float) -> None:
        """Take the byte count of a stream; a smaller count than before (a new part) restarts.

        Args:
            now_ns: CLOCK_MONOTONIC.
            stream: name of the stream.
            nbytes: bytes so far.
            declared: bytes per second that the stream declares.
        """
        mean = self._means.setdefault(stream, _Mean(declared))
        before, mean.counted = mean.counted, (now_ns, nbytes)
        if before is None or nbytes < before[1] or now_ns <= before[0]:
            return
        seconds = (now_ns - before[0]) / 1e9
        mean.weight_s = min(mean.weight_s + seconds, _MEMORY_S)
        share = min(1.0, seconds / mean.weight_s)
        mean.per_s += share * ((nbytes - before[1]) / seconds - mean.per_s)

    def pause(self) -> None:
        """Discard the counts and keep the means, at the start or end of a session."""
        for mean in self._means.values():
            mean.counted = None

    def rate(self, stream: str, declared: float) -> float:
        """Return the mean bytes per second; `declared` if nothing was measured."""
        mean = self._means.get(stream)
        return declared if mean is None else mean.per_s


PAUSE_NS = 10_000_000_000
"""Interval between two reports of a stream that keeps losing samples."""

_Key = tuple[str, str]
_LOST, _UNCOUNTED, _INCOMPLETE = "sample", "interval of unknown count", "incomplete sample"
"""Counted things: the first part of a key; the second is the cause."""


class LossWatch:
    """Monitor of the writer's loss accounts, which finds the unreported losses.

    ::

        watch = LossWatch()
        for stream, sentence in watch.update(now_ns, {"imu": {"lost": {"refused": 7}}}):
            say(f"{stream}: {sentence}")            # lost 7 samples (refused)
    """

    def __init__(self) -> None:
        self._reported: dict[str, tuple[dict[_Key, int], int]] = {}  # losses, and when

    def reset(self) -> None:
        """Discard all accounts, at the start or end of a session."""
        self._reported.clear()

    def update(
        self, now_ns: int, streams: Mapping[str, Mapping[str, Any]]
    ) -> list[tuple[str, str]]:
        """Take the accounts; return (stream, sentence) for each loss to report now.

        Args:
            now_ns: CLOCK_MONOTONIC.
            streams: by stream ``lost``, samples by cause, ``unknown_losses``, intervals of unknown
                count, and ``incomplete``, samples that lack parts by cause.
        """
        reported = []
        for name, stream in streams.items():
            before, before_ns = self._reported.get(name, ({}, now_ns - PAUSE_NS))
            lost = {(_LOST, cause): n for cause, n in (stream.get("lost") or {}).items()}
            if intervals := stream.get("unknown_losses"):
                lost[_UNCOUNTED, ""] = intervals
            for cause, counts in (stream.get("incomplete") or {}).items():
                lost[_INCOMPLETE, cause] = counts["samples"]
            news = {cause: n - before.get(cause, 0) for cause, n in lost.items()}
            if any(n < 0 for n in news.values()) or before.keys() - lost.keys():
                news = lost  # a new part: its account starts at zero
            if now_ns - before_ns < PAUSE_NS or not any(news.values()):
                continue
            self._reported[name] = lost, now_ns
            reported.append((name, _sentence({cause: n for cause, n in news.items() if n})))
        return reported


def _sentence(news: Mapping[_Key, int]) -> str:
    lost: list[str] = []
    incomplete: list[str] = []
    for (what, cause), count in news.items():
        plural = what.replace("sample", "samples").replace("interval", "intervals")
        text = f"{count} {what if count == 1 else plural}" + (f" ({cause})" if cause else "")
        (incomplete if what == _INCOMPLETE else lost).append(text)
    return ", ".join([*(["lost " + ", ".join(lost)] if lost else []), *incomplete])


STALLED_S = 5.0
"""Age of the oldest sample that is not durable at which a disk counts as stalled."""


class Show(Protocol):
    """Function that shows an event in the status."""

    def __call__(self, kind: str, stream: str = "", cause: str = "", **more: Any) -> None:
        """Show a current event."""


class Progress:
    """Monitor of a session: logs losses; logs and records low rates and a stalled disk.

    Args:
        say: logs one line for users.
        report: logs an event, and puts it into the session.
        show: shows an event that the writer itself puts into the session.

    Attributes:
        rates: samples per second of the streams, and the streams below their minimum.
        volumes: bytes per second of the streams over the last seconds.
        forecast: expected bytes per second.
        stalled: whether received samples do not become durable.
    """

    def __init__(self, say: LogLine, report: ReportEvent, show: Show) -> None:
        self.rates, self.volumes = RateWatch(), RateWatch()
        self.forecast = VolumeForecast()
        self.stalled = False
        self._losses = LossWatch()
        self._say = say
        self._report = report
        self._show = show

    def reset(self) -> None:
        """Discard the counts, at the start or end of a session."""
        self.rates.reset()
        self.volumes.reset()
        self.forecast.pause()
        self._losses.reset()
        self.stalled = False

    def update(
        self,
        now_ns: int,
        sensors: Iterable[Sensor],
        streams: Mapping[str, Mapping[str, Any]],
        uncommitted_s: float,
    ) -> None:
        """Take the session's accounts.

        Args:
            now_ns: CLOCK_MONOTONIC.
            sensors: all sensors; missing sensors and sources that play at full pace are not judged.
            streams: the writer's account by stream.
            uncommitted_s: age of the oldest received sample that is not durable.
        """
        judged = {
            name: (sensor, spec)
            for sensor in sensors
            if not sensor.missing
            for name, spec in sensor.specs.items()
            if not streams.get(name, {}).get("ended")
        }
        floors = {
            name: sensor.floor_hz(spec) if sensor.entry.pace == "realtime" else None
            for name, (sensor, spec) in judged.items()
        }
        samples = {name: stream["samples"] for name, stream in streams.items()}
        for change in self.rates.update(now_ns, samples, floors):
            sensor, spec = judged[change.stream]
            self._report(
                WARNING if change.broken else INFO,
                "rate",
                change.stream,
                "low" if change.broken else "restored",
                rate_hz=round(change.rate_hz, 3),
                floor_hz=change.floor_hz,
                expected_hz=spec.rate_hz or None,
                agreed=spec.name == sensor.name and sensor.entry.min_rate is not None,
            )
        for name, account in streams.items():
            self.volumes.count(now_ns, name, account["bytes"])
        for name in streams.keys() & judged.keys():
            declared = judged[name][1].bytes_per_second
            self.forecast.count(now_ns, name, streams[name]["bytes"], declared)
        for stream, sentence in self._losses.update(now_ns, streams):
            self._say(f"{stream}: {sentence}", WARNING, stream=stream)
            self._show("lost", stream, text=sentence)
        self._on_commits(uncommitted_s)

    def update_idle(self, sensor: Sensor) -> None:
        """Take the counts of a sensor's driver while no session is open."""
        for name, (samples, nbytes) in sensor.given.items():
            self.rates.count(sensor.given_ns, name, samples)
            self.volumes.count(sensor.given_ns, name, nbytes)
            spec = sensor.specs.get(name)  # None until the writer has armed the driver
            if spec and self.volumes.rate(name):  # a silent stream keeps its forecast
                self.forecast.count(sensor.given_ns, name, nbytes, spec.bytes_per_second)

    def _on_commits(self, uncommitted_s: float) -> None:
        stalled = uncommitted_s > STALLED_S
        if stalled == self.stalled:
            return
        self.stalled = stalled
        if stalled:
            text = f"nothing was committed for {uncommitted_s:.0f} s, though samples wait"
            self._report(ERROR, "disk", cause="stalled", detail=text)
        else:
            self._report(INFO, "disk", cause="restored")
