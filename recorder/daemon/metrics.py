"""The daemon's state in the text format of Prometheus, on a local port.

Off unless ``metrics.port`` is set; served on 127.0.0.1 alone, at ``/metrics``.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from recorder.contract.closing import Closing
from recorder.contract.errors import StorageError

STATES = ("idle", "starting", "recording", "stopping", "fault")
_HOST = "127.0.0.1"
_MOST_CLIENTS = 16

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


def render(status: Mapping[str, Any]) -> str:
    """The metrics of a daemon's status (docs/daemon.md).

    Names end in their unit; counters within a session end in ``_total`` and start at zero
    with each session, as Prometheus expects of counters.
    """
    lines: list[str] = []

    def metric(name: str, kind: str, text: str, samples: Iterable[Sample]) -> None:
        known = list(samples)
        if not known:
            return
        lines.append(f"# HELP recorder_{name} {text}")
        lines.append(f"# TYPE recorder_{name} {kind}")
        lines.extend(f"recorder_{name}{_labels(labels)} {_number(v)}" for labels, v in known)

    streams = [
        ({"sensor": sensor, "stream": name}, stream)
        for sensor, values in status["sensors"].items()
        for name, stream in values["streams"].items()
    ]
    metric("info", "gauge", "Version.", [({"version": status["version"]}, 1)])
    metric("uptime_seconds", "gauge", "Age of the daemon.", [({}, status["uptime_s"])])
    metric(
        "state",
        "gauge",
        "1 for the state that the daemon is in.",
        [({"state": state}, state == status["state"]) for state in STATES],
    )
    metric("healthy", "gauge", "1 if there is no fault.", [({}, status["healthy"])])
    metric("faults", "gauge", "Faults at present.", [({}, len(status["faults"]))])
    metric(
        "sensor_up",
        "gauge",
        "1 if a sensor's driver is armed.",
        [({"sensor": n}, v["state"] == "armed") for n, v in status["sensors"].items()],
    )
    for key, name, kind, text in (
        ("starts", "driver_starts_total", "counter", "Starts of a sensor's driver."),
        (
            "ring_held_bytes",
            "ring_held_bytes",
            "gauge",
            "What a driver holds that is not durable yet.",
        ),
        ("ring_size_bytes", "ring_size_bytes", "gauge", "What a driver may hold."),
    ):
        metric(name, kind, text, [({"sensor": n}, v[key]) for n, v in status["sensors"].items()])
    for key, name, kind, text in (
        ("rate_hz", "stream_rate_hertz", "gauge", "Samples a second, lately."),
        ("expected_hz", "stream_expected_rate_hertz", "gauge", "As declared."),
        ("samples", "stream_samples_total", "counter", "Samples of the session."),
        ("bytes", "stream_bytes_total", "counter", "Bytes of the session."),
        (
            "unknown_losses",
            "stream_uncounted_losses_total",
            "counter",
            "Intervals of loss that nobody can count.",
        ),
    ):
        metric(name, kind, text, [(at, s[key]) for at, s in streams if s.get(key) is not None])
    metric(
        "stream_lost_total",
        "counter",
        "Samples lost in the session, by cause.",
        [
            ({**at, "cause": cause}, count)
            for at, stream in streams
            for cause, count in sorted((stream.get("lost") or {}).items())
        ],
    )
    values = status["writer"] | status["disk"]
    for key, name, kind, text in (
        ("restarts", "writer_restarts_total", "counter", "Writers started after the first."),
        ("oldest_uncommitted_s", "uncommitted_seconds", "gauge", "Age of what is not durable."),
        ("commits", "commits_total", "counter", "Commits of the session."),
        ("commit_s", "commit_seconds_total", "counter", "Time that they took."),
        ("commit_last_s", "commit_last_seconds", "gauge", "Time that the last one took."),
        ("commit_max_s", "commit_max_seconds", "gauge", "Time that the slowest one took."),
        ("free_bytes", "disk_free_bytes", "gauge", "Free where sessions are made."),
        ("floor_bytes", "disk_floor_bytes", "gauge", "At which a session ends."),
    ):
        if values.get(key) is not None:
            metric(name, kind, text, [({}, values[key])])
    if (session := status["session"]) is not None:
        metric("session_seconds", "gauge", "Age of the session.", [({}, session["elapsed_s"])])
        metric("session_bytes", "gauge", "Size of the session.", [({}, session["bytes"])])
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float | bool) -> str:
    return f"{float(value):.12g}"


class MetricsServer(Closing):
    """Serves what `text` gives, until it is closed.

    Args:
        port: on 127.0.0.1; 0 for any that is free.
        text: the metrics; called in another thread.

    Attributes:
        port: that it listens on.

    Raises:
        StorageError: the port is taken.
    """

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            server_version = "recorder"
            sys_version = ""
            timeout = 5  # seconds that a slow client has

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
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(http.server.ThreadingHTTPServer):
    """A server of at most `_MOST_CLIENTS` clients at a time, since each takes a thread."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any) -> None:
        self._free = threading.BoundedSemaphore(_MOST_CLIENTS)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no event."""
