"""The HTTP API of an emulated Ouster: the requests of ouster-sdk 1.0 and of the driver.

Source: Ouster's HTTP API Reference Guide (``/api/v1``).  Settings are staged, and active after a
reinitialization, which the emulator carries out: until it starts, the sensor answers as before.
Stored settings are those after a power cycle.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote_plus, urlsplit

_BODY_LIMIT: Final = 1 << 20
_SECTIONS: Final = (
    "beam_intrinsics",
    "calibration_status",
    "imu_data_format",
    "imu_intrinsics",
    "lidar_data_format",
    "lidar_intrinsics",
)
_POLL_S: Final = 0.02


class _Refusal(Exception):  # noqa: N818  an answer, not a failure
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class OusterApi:
    """The state that requests read and change, and the server that answers them.

    Args:
        metadata: the sensor's metadata; ``sensor_info`` and ``config_params`` are updated.
        settings: the initial settings.
        accept: checks new settings; returns their fault, or None.

    Attributes:
        lock: held while any other attribute is read or changed.
        metadata, settings: the present ones.
        stored: the settings after a power cycle; at first the initial ones.
        delay_s: how long each answer takes.
        failures: HTTP codes that the next requests are answered with.
        status: of the sensor, such as ``RUNNING``.
        reinitialize: the staged settings once a reinitialization is requested; None before.
        served: how often the metadata have been fetched.
        alerts: the active alerts.
        port: the server's TCP port; constant over `stop` and `start`.
    """

    def __init__(
        self,
        metadata: Mapping[str, Any],
        settings: Mapping[str, Any],
        accept: Callable[[Mapping[str, Any]], str | None],
    ) -> None:
        self.lock = threading.RLock()
        self.metadata, self.settings = dict(metadata), dict(settings)
        self.stored = dict(settings)
        self.delay_s, self.failures = 0.0, deque[int]()
        self.status = "INITIALIZING"
        self.reinitialize: dict[str, Any] | None = None
        self.served = 0
        self.alerts: list[dict[str, Any]] = []
        self._staged = dict(settings)
        self._accept = accept
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    def start(self) -> None:
        """Listen on loopback."""
        if self._server is not None:
            return
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        server.daemon_threads = True
        self.port = int(server.server_address[1])
        name = f"ouster-http-{self.port}"
        self._thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), name=name)
        self._thread.start()

    def stop(self) -> None:
        """Close the port, as if the sensor were absent; may be called twice."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    def run(self, init_id: int, metadata: Mapping[str, Any] | None = None) -> None:
        """Set the sensor running with the active settings."""
        with self.lock:
            if metadata is not None:
                self.metadata = dict(metadata)
            info = dict(self.metadata["sensor_info"])
            info |= {"initialization_id": init_id, "status": "RUNNING"}
            self.metadata["sensor_info"] = info
            self.metadata["config_params"] = dict(self.settings)
            self.status = "RUNNING"

    def power_cycle(self) -> None:
        """Lose all settings that are not stored, and a requested reinitialization."""
        with self.lock:
            self.settings, self._staged = dict(self.stored), dict(self.stored)
            self.reinitialize, self.status = None, "INITIALIZING"

    def answer(self, method: str, path: str, body: str, client: str) -> Any:
        """Answer a request: a JSON value, or a str that is sent unchanged."""
        parts = urlsplit(path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        place = parts.path.removeprefix("/api/v1/").strip("/")
        with self.lock:
            if self.failures:
                raise _Refusal(self.failures.popleft(), "temporarily not possible")
            if place == "sensor/config":
                return self._config(method, query, body, client)
            if method != "GET":
                raise _Refusal(405, "method not allowed")
            if place.startswith("sensor/cmd/"):
                return self._command(place.removeprefix("sensor/cmd/"), parts.query, client)
            if place.startswith("sensor/metadata"):
                return self._metadata(place.removeprefix("sensor/metadata").strip("/"))
            answers: dict[str, Any] = {
                "system/firmware": {"fw": self.metadata["sensor_info"]["image_rev"]},
                "system/network": {"hostname": "os-emulated", "carrier": True},
                "sensor/alerts": {"active": self.alerts, "log": [], "next_cursor": 0},
                "user/data": "",
                "time": self._time(),
            }
            answers |= {f"time/{name}": value for name, value in answers["time"].items()}
            if place not in answers:
                raise _Refusal(404, "not found")
            return answers[place]

    def _metadata(self, section: str) -> Any:
        if section == "sensor_info":
            return self.metadata["sensor_info"] | {"status": self.status}
        if self.status != "RUNNING":
            raise _Refusal(404, f"the sensor is {self.status}")
        if not section:
            self.served += 1
            return self.metadata
        if section in _SECTIONS and section in self.metadata:
            return self.metadata[section]
        raise _Refusal(404, "not found")

    def _time(self) -> dict[str, Any]:
        mode = self.settings.get("timestamp_mode")
        slave = mode == "TIME_FROM_PTP_1588"
        nmea = {"locked": 0, "leap_seconds": self.settings.get("nmea_leap_seconds", 0)}
        io_mode = self.settings.get("multipurpose_io_mode")
        return {
            "sensor": {
                "timestamp": {"mode": mode, "time": 0},
                "multipurpose_io": {"mode": io_mode, "nmea": nmea},
                "sync_pulse_in": {"locked": 0},
            },
            "ptp": {
                "current_data_set": {"offset_from_master": 224 if slave else 0},
                "port_data_set": {"port_state": "SLAVE" if slave else "LISTENING"},
                "time_properties_data_set": {
                    "current_utc_offset": 37,
                    "current_utc_offset_valid": int(slave),
                    "ptp_timescale": 1,
                },
            },
            "system": {"monotonic": 0, "realtime": 0},
        }

    def _config(self, method: str, query: Mapping[str, str], body: str, client: str) -> Any:
        staging = query.get("staging", "false").lower() == "true"
        if method == "GET":
            return self._staged if staging else self.settings
        if method != "POST":
            raise _Refusal(405, "method not allowed")
        try:
            values = json.loads(body or "{}")
        except ValueError:
            raise _Refusal(400, "the body is no JSON") from None
        if not isinstance(values, dict):
            raise _Refusal(400, "the body is no object")
        self._stage(values, client)
        if query.get("reinit", "true").lower() == "true":
            self.reinitialize = dict(self._staged)
        if query.get("persist", "false").lower() == "true":
            self.stored = dict(self.settings)
        return {}

    def _command(self, command: str, query: str, client: str) -> Any:
        argument = query.partition("args=")[2]
        match command:
            case "get_config_param":
                return self._staged if argument == "staged" else self.settings
            case "set_config_param":
                name, _, value = argument.partition("+")
                try:
                    parsed = json.loads(unquote_plus(value))
                except ValueError:
                    parsed = unquote_plus(value)
                values = parsed if name == "." else {name: parsed}
                if not isinstance(values, dict):
                    raise _Refusal(400, "no object of settings")
                self._stage(values, client)
                return command
            case "set_udp_dest_auto":
                self._stage({"udp_dest": "@auto"}, client)
            case "reinitialize":
                self.reinitialize = dict(self._staged)
            case "save_config_params":
                self.stored = dict(self.settings)
            case _:
                raise _Refusal(404, "no such command")
        return {}

    def _stage(self, values: dict[str, Any], client: str) -> None:
        if unknown := sorted(set(values) - set(self.settings)):
            raise _Refusal(400, f"unknown setting {unknown[0]}")
        if values.get("udp_dest") == "@auto":
            values["udp_dest"] = client
        staged = self._staged | values
        if (fault := self._accept(staged)) is not None:
            raise _Refusal(400, fault)
        self._staged = staged


class _Handler(BaseHTTPRequestHandler):
    api: OusterApi
    protocol_version = "HTTP/1.1"
    timeout = 5.0

    def do_GET(self) -> None:
        code = 200
        try:
            size = int(self.headers.get("Content-Length") or 0)
            if not 0 <= size <= _BODY_LIMIT:
                raise _Refusal(413, "too long")
            body = self.rfile.read(size).decode("utf-8", "replace")
            time.sleep(self.api.delay_s)
            value = self.api.answer(self.command, self.path, body, str(self.client_address[0]))
        except _Refusal as refusal:
            code, value = refusal.code, {"error": str(refusal)}
        except ValueError:
            code, value = 400, {"error": "bad request"}
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  names of http.server

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""
