"""Progress of a recording: rates of the streams, losses, and commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from recorder.daemon.processes.losses import LossWatch
from recorder.daemon.processes.rates import RateWatch
from recorder.daemon.processes.sensors import Sensor
from recorder.daemon.processes.volume_forecast import VolumeForecast
from recorder.daemon.service_notifier import ERROR, INFO, WARNING, ReportEvent, Say

STALLED_S = 5.0
"""Age of the oldest sample that is not durable at which a disk counts as stalled."""


class Show(Protocol):
    """Shows an event in the status."""

    def __call__(self, kind: str, stream: str = "", cause: str = "", **more: Any) -> None:
        """An event of now."""


class Progress:
    """Watches a session: logs losses, logs and records low rates and a stalled disk.

    Args:
        say: takes one line for people.
        report: logs an event, and puts it into the session.
        show: shows an event that the writer puts into the session itself.

    Attributes:
        rates: samples per second of the streams, and the streams below their floor.
        volumes: bytes per second of the streams, of the last seconds.
        forecast: bytes per second that are to be expected.
        stalled: received samples do not become durable.
    """

    def __init__(self, say: Say, report: ReportEvent, show: Show) -> None:
        self.rates, self.volumes = RateWatch(), RateWatch()
        self.forecast = VolumeForecast()
        self.stalled = False
        self._losses = LossWatch()
        self._say = say
        self._report = report
        self._show = show

    def reset(self) -> None:
        """A session begins or ends."""
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
            sensors: all of them; the rates of missing sensors, and of sources that play at full
                pace, are not judged.
            streams: the writer's account by stream.
            uncommitted_s: age of the oldest sample that is received and not durable.
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
        """Take the counts of a sensor's driver; no session is open."""
        for name, (samples, nbytes) in sensor.given.items():
            self.rates.count(sensor.given_ns, name, samples)
            self.volumes.count(sensor.given_ns, name, nbytes)
            if self.volumes.rate(name):  # what gives nothing now gives as before in a session
                declared = sensor.specs[name].bytes_per_second
                self.forecast.count(sensor.given_ns, name, nbytes, declared)

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
