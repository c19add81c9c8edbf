"""An Ouster's HTTP API: its settings, its metadata, its clock.

ouster-sdk 1.0 has its own client, but its requests have two faults.  Each request holds Python's
global lock until the sensor answers or the request times out, which stops the whole process.  The
client also sleeps and retries without any report.  The API is documented (HTTP API Reference Guide,
``/api/v1``) and small.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drivers.kit.http_request import HttpRequest
from recorder.common.errors import DeviceError, SourceError

_STAGING_VERSION: Final = (3, 1)  # from this firmware on, settings are set with /sensor/config
_ANSWER_S: Final = 40.0  # ouster-sdk's limit: a sensor that stores or applies settings takes long
_ATTEMPTS: Final = 3  # while the sensor answers 5xx, as ouster-sdk
_RETRY_S: Final = 0.5
_AUTO: Final = "@auto"
_POLL_S: Final = 10.0


class OusterHttp:
    """Requests to one sensor, each on its own connection.

    A request may take 40 s, so it must not run in the thread that receives packets.  The loss of
    a sensor during a request is detected after about 10 s.

    Args:
        host: name or address, with ``:PORT`` where the port is not 80; an IPv6 address in brackets,
            a link-local one with its link (``[fe80::1%eth0]``).
        timeout_s: of a whole answer, however slowly it comes.

    Attributes:
        local_address: this machine's address in the sensor's network, with its link if it is
            link-local; "" before the first request.
        version: the firmware's, see `firmware_version`; known after `sensor_info`.

    Raises:
        DeviceError: any request: no answer, an unreadable answer, or a rejection.
        SourceError: the host is invalid.
    """

    def __init__(self, host: str, timeout_s: float = _ANSWER_S) -> None:
        self._host, self._timeout_s = host, timeout_s
        self.local_address = ""
        self.version: tuple[int, ...] = (0, 0)

    def sensor_info(self) -> dict[str, Any]:
        """Return serial number, firmware, status, initialization id."""
        info = self._mapping("sensor/metadata/sensor_info")
        self.version = firmware_version(info)
        return info

    def metadata(self) -> str:
        """Return the sensor's metadata as JSON."""
        return self._ask("GET", "sensor/metadata")

    def settings(self, staged: bool = False) -> dict[str, Any]:
        """Return the active settings, or those of the next reinitialization."""
        if self.version >= _STAGING_VERSION:
            return self._mapping("sensor/config" + ("?staging=true" if staged else ""))
        kind = "staged" if staged else "active"
        return self._mapping(f"sensor/cmd/get_config_param?args={kind}")

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Set all settings and request a reinitialization to activate them.

        The sensor inserts its own view of this machine's address for ``@auto``.
        """
        values = dict(settings)
        if values.get("udp_dest") == _AUTO:
            self._stage({"udp_dest": _AUTO})
            found = self.settings(staged=True).get("udp_dest")
            values = {name: found if value == _AUTO else value for name, value in values.items()}
        self._stage(values)
        if self.version >= _STAGING_VERSION:
            self._ask("POST", "sensor/config?staging=true&reinit=true&persist=false", "{}")
        else:
            self._ask("GET", "sensor/cmd/reinitialize")

    def _stage(self, values: Mapping[str, Any]) -> None:
        text = json.dumps(values)
        if self.version >= _STAGING_VERSION:
            self._ask("POST", "sensor/config?staging=true&reinit=false&persist=false", text)
        elif values == {"udp_dest": _AUTO}:
            self._ask("GET", "sensor/cmd/set_udp_dest_auto")
        else:
            quoted = urllib.parse.quote(text, safe="")
            self._ask("GET", f"sensor/cmd/set_config_param?args=.+{quoted}")

    def save(self) -> None:
        """Store the active settings, so that the sensor has them after a power cycle."""
        if self.version >= _STAGING_VERSION:
            self._ask("POST", "sensor/config?persist=true&reinit=false", "{}")
        else:
            self._ask("GET", "sensor/cmd/save_config_params")

    def clock(self) -> dict[str, Any]:
        """Return the state of the sensor's clocks; see `clock_state`, `clock_offset`."""
        return self._mapping("time")

    def alerts(self) -> list[Any]:
        """Return the active alerts."""
        active = self._mapping("sensor/alerts").get("active")
        return active if isinstance(active, list) else []

    def _mapping(self, path: str) -> dict[str, Any]:
        text = self._ask("GET", path)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise DeviceError(f"HTTP API, {path}: the answer is not an object: {text[:60]!r}")
        return value

    def _ask(self, method: str, path: str, body: str | None = None) -> str:
        for attempt in range(_ATTEMPTS):
            status, text = self._request(method, path, body)
            if 200 <= status < 300:
                return text
            if status < 500 or attempt == _ATTEMPTS - 1:
                break
            time.sleep(_RETRY_S)
        # 404: not available while the sensor starts; 5xx: temporarily not possible.
        reason = " ".join(text.split())[:200]
        raise DeviceError(f"HTTP API, {path.partition('?')[0]}: {status} {reason}")

    def _request(self, method: str, path: str, body: str | None) -> tuple[int, str]:
        name, kind = path.partition("?")[0], "application/json" if body is not None else ""
        request = HttpRequest(method, "/api/v1/" + path, body, kind, f"HTTP API, {name}")
        answer = request.send(self._host, self._timeout_s)
        self.local_address = answer.local_address
        return answer.status, answer.text


def firmware_version(info: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the firmware's major and minor number, (0, 0) if they are unknown."""
    text = str(info.get("image_rev") or info.get("build_rev") or "")
    match = re.search(r"v?(\d+)\.(\d+)(?:\.\d+)?", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def clock_state(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the clock's source, locks and scale from the answer of ``/api/v1/time``.

    ``nmea`` is a part of ``multipurpose_io``; some firmware has it beside that.
    """
    nmea = _at(answer, "sensor", "multipurpose_io", "nmea") or _at(answer, "sensor", "nmea")
    scale = _at(answer, "ptp", "time_properties_data_set")
    found = {
        "timestamp_mode": _at(answer, "sensor", "timestamp", "mode"),
        "sync_pulse_in_locked": _at(answer, "sensor", "sync_pulse_in", "locked"),
        "multipurpose_io_mode": _at(answer, "sensor", "multipurpose_io", "mode"),
        "nmea_locked": _at(nmea, "locked"),
        "nmea_leap_seconds": _at(nmea, "leap_seconds"),
        "ptp_port_state": _at(answer, "ptp", "port_data_set", "port_state"),
        "ptp_grandmaster": _at(answer, "ptp", "parent_data_set", "grandmaster_identity"),
        "ptp_timescale": _at(scale, "ptp_timescale"),
        "ptp_utc_offset_s": _at(scale, "current_utc_offset"),
        "ptp_utc_offset_valid": _at(scale, "current_utc_offset_valid"),
    }
    return {name: value for name, value in found.items() if isinstance(value, str | int | bool)}


def clock_offset(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return PTP's ``ptp_offset_from_master_ns`` from the answer of ``/api/v1/time``, or {}."""
    offset_ns = _at(answer, "ptp", "current_data_set", "offset_from_master")
    known = isinstance(offset_ns, int | float) and not isinstance(offset_ns, bool)
    return {"ptp_offset_from_master_ns": offset_ns} if known else {}


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


@dataclass(frozen=True, slots=True)
class News:
    """An answer to a request of the `Watch`.

    `kind` is ``metadata`` (a str), ``clock``, ``clock_offset``, ``settings`` or ``alerts``.
    """

    kind: str
    value: Any


class Watch:
    """Thread that sends requests to the sensor, so that no packet waits for an answer.

    >>> watch = Watch(sensor, settings)
    >>> watch.ask("metadata")                # repeated until there is an answer
    >>> for news in watch.news(): ...        # the answers since the last call
    >>> watch.close()

    The clock's state and the settings are requested every ten seconds and reported when they have
    changed.

    Args:
        settings: the known settings; None: they are not requested.
    """

    def __init__(self, sensor: OusterHttp, settings: dict[str, Any] | None = None) -> None:
        self._sensor = sensor
        self._known: dict[str, Any] = {} if settings is None else {"settings": settings}
        self._asked: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ouster-http", daemon=True)
        self._thread.start()

    def ask(self, kind: str) -> None:
        """Request ``metadata`` or ``alerts``."""
        self._asked.put(kind)
        self._wake.set()

    def news(self) -> list[News]:
        """Return the answers since the last call."""
        found = []
        while not self._news.empty():
            found.append(self._news.get())
        return found

    def close(self) -> None:
        """End the thread; a request that hangs ends at its timeout."""
        self._stop.set()
        self._wake.set()
        self._thread.join(0.1)

    def _run(self) -> None:
        questions = {"metadata": self._metadata, "alerts": self._sensor.alerts}
        open_questions: dict[str, Callable[[], Any]] = {}
        next_poll_s = 0.0
        while not self._stop.is_set():
            while not self._asked.empty():
                kind = self._asked.get()
                open_questions[kind] = questions[kind]
            if time.monotonic() >= next_poll_s:
                next_poll_s = time.monotonic() + _POLL_S
                self._poll()
            for kind in tuple(open_questions):
                value = self._try(open_questions[kind])
                if value is not None:
                    self._news.put(News(kind, value))
                if value is not None or kind != "metadata":
                    del open_questions[kind]
            wait_s = 0.5 if open_questions else max(0.0, next_poll_s - time.monotonic())
            self._wake.wait(wait_s)
            self._wake.clear()

    def _poll(self) -> None:
        answer = self._try(self._sensor.clock) or {}
        self._compare("clock", clock_state(answer))
        self._compare("clock_offset", clock_offset(answer))
        if "settings" in self._known:
            self._compare("settings", self._try(self._sensor.settings))

    def _compare(self, kind: str, value: Any) -> None:
        if value and value != self._known.get(kind):
            self._known[kind] = value
            self._news.put(News(kind, value))

    def _metadata(self) -> str | None:
        status = self._sensor.sensor_info().get("status")
        return self._sensor.metadata() if status == "RUNNING" else None

    @staticmethod
    def _try(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (DeviceError, SourceError):
            return None
