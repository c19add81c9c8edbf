"""Server of the daemon's metrics in the text format of Prometheus.

It is off unless ``metrics.port`` is set, and listens on 127.0.0.1 only, at ``/metrics``.
"""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from recorder.common.errors import StorageError
from recorder.common.files import Closeable
from recorder.common.process_setup import start_thread

STATES = ("idle", "starting", "recording", "stopping", "fault")
_HOST = "127.0.0.1"
_MOST_CLIENTS = 16

Labels = Mapping[str, str]
Samples = list[tuple[Labels, Mapping[str, Any]]]
_METRICS = (
    ("version", "version", "info", "Version."),
    ("daemon", "uptime_s", "uptime_seconds", "Age of the daemon."),
    ("state", "is", "state", "1 for the state that the daemon is in."),
    ("daemon", "healthy", "healthy", "1 if there is no fault."),
    ("daemon", "faults", "faults", "Faults at present."),
    ("sensor", "up", "sensor_up", "1 if a sensor's driver is armed."),
    ("sensor", "starts", "driver_starts_total", "Starts of a sensor's driver."),
    (
        "sensor",
        "ring_held_bytes",
        "ring_held_bytes",
        "Bytes in a driver's ring that are not durable yet.",
    ),
    ("sensor", "ring_size_bytes", "ring_size_bytes", "Size of a driver's ring."),
    ("stream", "rate_hz", "stream_rate_hertz", "Recent samples per second."),
    ("stream", "expected_hz", "stream_expected_rate_hertz", "Declared samples per second."),
    ("stream", "samples", "stream_samples_total", "Samples of the session."),
    ("stream", "bytes", "stream_bytes_total", "Bytes of the session."),
    (
        "stream",
        "unknown_losses",
        "stream_uncounted_losses_total",
        "Intervals of loss without a count, including an ongoing outage.",
    ),
    ("outage", "seconds", "stream_outage_seconds", "Age of the ongoing outage."),
    ("outage", "estimated", "stream_outage_samples", "Estimated samples lost in it so far."),
    ("loss", "count", "stream_lost_total", "Samples lost in the session, by cause."),
    ("hole", "samples", "stream_incomplete_total", "Stored samples that lack parts, by cause."),
    ("hole", "parts", "stream_missing_parts_total", "Missing parts of stored samples, by cause."),
    ("writer", "restarts", "writer_restarts_total", "Writers started after the first."),
    (
        "writer",
        "oldest_uncommitted_s",
        "uncommitted_seconds",
        "Age of the oldest uncommitted data.",
    ),
    ("writer", "commits", "commits_total", "Commits of the session."),
    ("writer", "commit_s", "commit_seconds_total", "Total duration of the session's commits."),
    ("writer", "commit_last_s", "commit_last_seconds", "Duration of the last commit."),
    ("writer", "commit_max_s", "commit_max_seconds", "Duration of the slowest commit."),
    ("disk", "free_bytes", "disk_free_bytes", "Free bytes on the disk of the sessions."),
    ("disk", "floor_bytes", "disk_floor_bytes", "Free bytes at which a session ends."),
    ("session", "elapsed_s", "session_seconds", "Age of the session."),
    ("session", "bytes", "session_bytes", "Size of the session."),
)
"""Metrics: (group of the values, key in the values, name, help)."""


def render(status: Mapping[str, Any]) -> str:
    """Render the metrics of a daemon's status (docs/daemon.md).

    Names end in their unit; counters within a session end in ``_total`` and start at zero
    with each session, as Prometheus expects of counters.
    """
    sensors: Samples = [
        ({"sensor": n}, v | {"up": v["state"] == "armed"}) for n, v in status["sensors"].items()
    ]
    streams: Samples = [
        ({**at, "stream": name}, _with_outage(stream))
        for at, sensor in sensors
        for name, stream in (sensor["streams"] or _stand_in(at["sensor"], sensor)).items()
    ]
    groups: dict[str, Samples] = {
        "version": [({"version": status["version"]}, {"version": 1})],
        "daemon": [({}, {**status, "faults": len(status["faults"])})],
        "state": [({"state": state}, {"is": state == status["state"]}) for state in STATES],
        "sensor": sensors,
        "stream": streams,
        "loss": [
            ({**at, "cause": cause}, {"count": count})
            for at, stream in streams
            for cause, count in sorted((stream.get("lost") or {}).items())
        ],
        "hole": [
            ({**at, "cause": cause}, counts)
            for at, stream in streams
            for cause, counts in sorted((stream.get("incomplete") or {}).items())
        ],
        "outage": [
            (at, {**outage, "seconds": max(0.0, (time.time_ns() - outage["since_ns"]) / 1e9)})
            for at, stream in streams
            if (outage := stream.get("outage")) is not None
        ],
        "writer": [({}, status["writer"])],
        "disk": [({}, status["disk"])],
        "session": [({}, status["session"] or {})],
    }
    lines: list[str] = []
    for group, key, name, text in _METRICS:
        known = [
            (labels, values[key]) for labels, values in groups[group] if values.get(key) is not None
        ]
        if known:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP recorder_{name} {text}", f"# TYPE recorder_{name} {kind}"]
            lines += [f"recorder_{name}{_labels(labels)} {float(v):.12g}" for labels, v in known]
    return "\n".join(lines) + "\n"


def _stand_in(name: str, sensor: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return a stream for the outage of a missing sensor that has declared no stream."""
    outage = sensor.get("outage")
    return {} if outage is None else {name: {"outage": outage}}


def _with_outage(stream: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a stream's values, with an ongoing outage counted as one more loss."""
    if stream.get("outage") is None:
        return stream
    return {**stream, "unknown_losses": (stream.get("unknown_losses") or 0) + 1}


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsServer(Closeable):
    """HTTP server of the text that `text` returns.

    Args:
        port: port on 127.0.0.1; 0 for any free one.
        text: returns the metrics; called in another thread.

    Attributes:
        port: the port that the server listens on.

    Raises:
        StorageError: the port is in use.
    """

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            server_version = "recorder"
            sys_version = ""
            timeout = 5  # seconds that a slow client may take

            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404)
                    return
                body = text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        try:
            self._server = _Server((_HOST, port), Handler)
        except OSError as error:
            raise StorageError(f"metrics.port: {port}: {error.strerror}") from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", args=(0.2,), daemon=True
        )
        start_thread(self._thread)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(http.server.ThreadingHTTPServer):
    """HTTP server for at most `_MOST_CLIENTS` clients at a time: each needs a thread."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any) -> None:
        self._free = threading.BoundedSemaphore(_MOST_CLIENTS)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # no memory for its thread
                self._free.release()
                self.shutdown_request(request)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnects."""
