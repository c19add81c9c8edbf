"""Display of `recorder run` while it records: a live table at a terminal, else log lines."""

from __future__ import annotations

import sys
import time
from typing import Any

from recorder.cli.output import Screen, format_table, note
from recorder.common.secret_masking import mask_passwords
from recorder.common.text_format import format_bytes, format_seconds
from recorder.recording.supervisor.sensors import Status

_LOG_S = 5.0
_WINDOW = 16  # states that a rate is taken over: about four seconds

HEADERS = ("stream", "rate", "expected", "samples", "MB/s", "lost", "incomplete", "queue")


class LiveView:
    """Display of the recording's states; use it as ``watch`` of `Supervisor.record`."""

    def __init__(self) -> None:
        self._screen = Screen(sys.stderr) if sys.stderr.isatty() else None
        self._history: list[tuple[float, dict[str, dict[str, Any]]]] = []
        self._logged_s = time.monotonic()

    def __call__(self, status: Status) -> None:
        self._history.append((status.elapsed_s, status.streams))
        del self._history[:-_WINDOW]
        if self._screen is not None:
            self._screen.draw(self._table(status))
        elif time.monotonic() - self._logged_s >= _LOG_S:
            self._logged_s = time.monotonic()
            self._log(status)

    def say(self, line: str, /, *_: Any, **__: Any) -> None:
        """Print a line for users with masked passwords; at a terminal above the table."""
        if self._screen is not None:
            self._screen.clear()
        note(mask_passwords(line))

    def rows(self, status: Status) -> list[list[str]]:
        """Return a row for each stream in the order of the config, or for a sensor without any."""
        before_s, before = self._history[0]
        seconds = status.elapsed_s - before_s
        rows = []
        for sensor in status.sensors.values():
            queue = f"{sensor.ring_held / sensor.ring_size:.0%}" if sensor.ring_size else "-"
            if not sensor.specs:
                reported = status.streams.get(sensor.name)
                lost = _format_lost(reported) if reported else "0+?"
                rows.append([sensor.name, sensor.state, "-", "0", "-", lost, "0", "-"])
            for name, spec in sensor.specs.items():
                now, old = status.streams.get(name), before.get(name)
                rate, volume = sensor.state if sensor.missing else "-", "-"
                if now and old and seconds > 0:
                    if not sensor.missing:
                        rate = f"{(now['samples'] - old['samples']) / seconds:.1f} Hz"
                    volume = f"{(now['bytes'] - old['bytes']) / seconds / 1e6:.2f}"
                rows.append(
                    [
                        name,
                        _format_end(now) or rate,
                        f"{spec.rate_hz:g} Hz" if spec.rate_hz else "-",
                        str(now["samples"] if now else 0),
                        volume,
                        _format_lost(now, name in status.outages),
                        _count_incomplete(now),
                        queue,
                    ]
                )
        return rows

    def _table(self, status: Status) -> str:
        total = sum(s["bytes"] for s in status.streams.values())
        head = f"{status.session.name}  {format_seconds(status.elapsed_s)}  {format_bytes(total)}"
        table = format_table(HEADERS, self.rows(status), right=range(1, len(HEADERS)))
        return f"{head}\n{table}"

    def _log(self, status: Status) -> None:
        parts = [
            f"{name} {samples} ({rate}, lost {lost}"
            + (f", {incomplete} incomplete)" if incomplete != "0" else ")")
            for name, rate, _, samples, _, lost, incomplete, _ in self.rows(status)
        ]
        note(f"{format_seconds(status.elapsed_s)}: " + ", ".join(parts))


def _format_end(stream: dict[str, Any] | None) -> str | None:
    return f"ended: {stream['ended']}" if stream and stream["ended"] else None


def _format_lost(stream: dict[str, Any] | None, outage: bool = False) -> str:
    """Format the lost samples, with ``+?`` if there are uncounted or ongoing losses."""
    count = sum(stream["lost"].values()) if stream else 0
    return f"{count}+?" if outage or (stream and stream["unknown_losses"]) else str(count)


def _count_incomplete(stream: dict[str, Any] | None) -> str:
    counts = (stream or {}).get("incomplete") or {}
    return str(sum(each["samples"] for each in counts.values()))
