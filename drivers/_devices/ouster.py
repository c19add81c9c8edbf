"""An Ouster's HTTP API: its settings, its metadata, its clock.

ouster-sdk 1.0 has its own client, but its requests have two faults.  Each request holds Python's
global lock until the sensor answers or the request times out, which stops the whole process.  The
client also sleeps and retries without any report.  The API is documented (HTTP API Reference Guide,
``/api/v1``) and small.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import queue
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from recorder.contract.errors import DeviceError, SourceError

_ANSWER_LIMIT: Final = 1 << 24  # bytes
_STAGING_VERSION: Final = (3, 1)  # from this firmware on, settings are set with /sensor/config
_STARTING: Final = ("INITIALIZING", "WARMUP", "UPDATING", "RESTARTING")
_POLL_S: Final = 0.2
_CLOCK_S: Final = 10.0


class OusterHttp:
    """Requests to one sensor, each on its own connection.

    Args:
        host: name or address, with ``:PORT`` where the port is not 80.
        timeout_s: of a request.

    Attributes:
        local_address: this machine's address in the sensor's network; "" before the first request.
        until_s: time.monotonic() that limits all requests; None: no limit.

    Raises:
        DeviceError: any request: no answer, or an unreadable answer.
        SourceError: the sensor rejects the request (HTTP 400 and similar).
    """

    def __init__(self, host: str, timeout_s: float = 2.0) -> None:
        self._host, self._timeout_s = host, timeout_s
        self.local_address = ""
        self.until_s: float | None = None

    def sensor_info(self) -> dict[str, Any]:
        """Return serial number, firmware, status, initialization id."""
        return self._mapping("sensor/metadata/sensor_info")

    def metadata(self) -> str:
        """Return the sensor's metadata as JSON."""
        return self._ask("GET", "sensor/metadata")

    def settings(self, version: tuple[int, ...]) -> dict[str, Any]:
        """Return the active settings."""
        if version >= _STAGING_VERSION:
            return self._mapping("sensor/config")
        return self._mapping("sensor/cmd/get_config_param?args=active")

    def configure(self, settings: Mapping[str, Any], version: tuple[int, ...]) -> None:
        """Set all settings and reinitialize the sensor to activate them."""
        text = json.dumps(settings)
        if version >= _STAGING_VERSION:
            self._ask("POST", "sensor/config?staging=true&reinit=false&persist=false", text)
            self._ask("POST", "sensor/config?staging=true&reinit=true&persist=false", "{}")
            return
        quoted = urllib.parse.quote(text, safe="")
        self._ask("GET", f"sensor/cmd/set_config_param?args=.+{quoted}")
        self._ask("GET", "sensor/cmd/reinitialize")

    def clock(self) -> dict[str, Any]:
        """Return the clock's synchronization, without values that change all the time."""
        return clock_state(self._mapping("time"))

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
        name, timeout_s = path.partition("?")[0], self._timeout_s
        if self.until_s is not None:
            timeout_s = min(timeout_s, max(0.05, self.until_s - time.monotonic()))
        try:
            connection = http.client.HTTPConnection(self._host, timeout=timeout_s)
        except http.client.InvalidURL as error:
            raise SourceError(f"{self._host!r} is not a host: {error}") from None
        try:
            connection.connect()
            self.local_address = str(connection.sock.getsockname()[0])
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, "/api/v1/" + path, body, headers)
            with connection.getresponse() as answer:  # holds the socket once it is to be closed
                data = _read(answer, timeout_s)
        except TimeoutError:
            raise DeviceError(f"HTTP API, {name}: no answer in {timeout_s:.1f} s") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise DeviceError(f"HTTP API, {name}: {reason}") from None
        finally:
            connection.close()
        text = data.decode("utf-8", "replace")
        if 200 <= answer.status < 300:
            return text
        reported = f"HTTP API, {name}: {answer.status} {' '.join(text.split())[:200]}"
        # 404: not available while the sensor starts; 5xx: temporarily not possible.
        raise (SourceError if answer.status in (400, 403, 405, 422) else DeviceError)(reported)


def _read(answer: http.client.HTTPResponse, timeout_s: float) -> bytes:
    deadline, data = time.monotonic() + timeout_s, b""
    while part := answer.read1(1 << 16):
        data += part
        if time.monotonic() > deadline:
            raise TimeoutError
        if len(data) > _ANSWER_LIMIT:
            raise http.client.HTTPException("the answer is too long")
    return data


def firmware_version(info: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the firmware's major and minor number, (0, 0) if they are unknown."""
    text = str(info.get("image_rev") or info.get("build_rev") or "")
    match = re.search(r"v?(\d+)\.(\d+)(?:\.\d+)?", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def clock_state(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the clock's source and its locks from the answer of ``/api/v1/time``."""

    def at(*keys: str) -> Any:
        value: Any = answer
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    found = {
        "timestamp_mode": at("sensor", "timestamp", "mode"),
        "sync_pulse_in_locked": at("sensor", "sync_pulse_in", "locked"),
        "multipurpose_io_mode": at("sensor", "multipurpose_io", "mode"),
        "nmea_locked": at("sensor", "nmea", "locked"),
        "ptp_port_state": at("ptp", "port_data_set", "port_state"),
        "ptp_grandmaster": at("ptp", "parent_data_set", "grandmaster_identity"),
    }
    return {name: value for name, value in found.items() if isinstance(value, str | int | bool)}


@dataclass(slots=True)
class Wanted:
    """The wanted settings of a sensor.

    Attributes:
        settings: by Ouster's names; other settings are not changed.
        udp_dest: destination of the packets; None: this machine, unless the present destination is
            a multicast group.
        refused: settings that the sensor did not accept, with the sensor's own values.
    """

    settings: Mapping[str, Any]
    udp_dest: str | None = None
    refused: dict[str, Any] = field(default_factory=dict)

    def changes(self, active: Mapping[str, Any], here: str) -> dict[str, Any]:
        """Return the settings to change; `here` is this machine's address."""
        wanted = dict(self.settings)
        destination = str(active.get("udp_dest") or "")
        if self.udp_dest is not None:
            wanted["udp_dest"] = self.udp_dest
        elif destination != here and not is_multicast(destination):
            wanted["udp_dest"] = here
        if "operating_mode" in active:
            wanted.setdefault("operating_mode", "NORMAL")
        if "auto_start_flag" in active:
            wanted.setdefault("auto_start_flag", 1)
        if "udp_ip" in active and "udp_dest" in wanted:  # the name in older firmware
            wanted["udp_ip"] = wanted["udp_dest"]
        if active.get("udp_dest_zm") and "udp_dest" in wanted:
            wanted.setdefault("udp_dest_zm", wanted["udp_dest"])
        return {name: value for name, value in wanted.items() if active.get(name) != value}


def is_multicast(address: str) -> bool:
    """Whether an address is a multicast group."""
    try:
        return ipaddress.ip_address(address).is_multicast
    except ValueError:
        return False


def bring_up(
    sensor: OusterHttp, wanted: Wanted, deadline_s: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configure the sensor and wait until it runs; return its settings and sensor_info.

    The sensor is reinitialized only where its settings differ.  A setting that it does not accept
    is stored in ``wanted.refused`` and not set again.

    Args:
        deadline_s: time.monotonic() until which to wait for the sensor to run.

    Raises:
        DeviceError: the sensor does not answer or is not running yet; it continues to start.
        SourceError: the sensor rejects the settings.
    """
    info = _running(sensor, deadline_s, ("STANDBY", "UNCONFIGURED"))
    version = firmware_version(info)
    active = sensor.settings(version)
    changes = wanted.changes(active, sensor.local_address)
    changes = {n: v for n, v in changes.items() if wanted.refused.get(n, _NEVER) != active.get(n)}
    if changes:
        sensor.configure({**active, **changes}, version)
        info = _running(sensor, deadline_s, ())
        active = sensor.settings(version)
        left = wanted.changes(active, sensor.local_address)
        wanted.refused.update({name: active.get(name) for name in left if name in changes})
    if info.get("status") != "RUNNING":
        raise DeviceError(f"the sensor reports the status {info.get('status')!r}")
    return active, info


_NEVER: Final = object()


def _running(sensor: OusterHttp, deadline_s: float, others: tuple[str, ...]) -> dict[str, Any]:
    """Return sensor_info once the sensor runs or has one of the statuses `others`."""
    while True:
        info = sensor.sensor_info()
        status = str(info.get("status"))
        if status == "RUNNING" or status in others:
            return info
        if status not in _STARTING:
            raise DeviceError(f"the sensor reports the status {status!r}")
        if time.monotonic() + _POLL_S > deadline_s:
            raise DeviceError(f"the sensor is starting ({status})")
        time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class News:
    """An answer for the `Watch`: `kind` is ``metadata`` (a str), ``clock`` or ``alerts``."""

    kind: str
    value: Any


class Watch:
    """Sends requests to the sensor in its own thread, so that no packet waits for an answer.

    >>> watch = Watch(sensor)
    >>> watch.ask("metadata")                # repeated until there is an answer
    >>> for news in watch.news(): ...        # the answers since the last call
    >>> watch.close()

    The clock's state is requested every ten seconds and reported when it has changed.
    """

    def __init__(self, sensor: OusterHttp) -> None:
        self._sensor = sensor
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
        clock: Any = None
        questions = {"metadata": self._metadata, "alerts": self._sensor.alerts}
        open_questions: dict[str, Callable[[], Any]] = {}
        next_clock_s = 0.0
        while not self._stop.is_set():
            while not self._asked.empty():
                kind = self._asked.get()
                open_questions[kind] = questions[kind]
            if time.monotonic() >= next_clock_s:
                next_clock_s = time.monotonic() + _CLOCK_S
                state = self._try(self._sensor.clock)
                if state and state != clock:
                    clock = state
                    self._news.put(News("clock", state))
            for kind in tuple(open_questions):
                value = self._try(open_questions[kind])
                if value is not None:
                    self._news.put(News(kind, value))
                if value is not None or kind != "metadata":
                    del open_questions[kind]
            wait_s = 0.5 if open_questions else max(0.0, next_clock_s - time.monotonic())
            self._wake.wait(wait_s)
            self._wake.clear()

    def _metadata(self) -> str | None:
        status = self._sensor.sensor_info().get("status")
        return self._sensor.metadata() if status == "RUNNING" else None

    @staticmethod
    def _try(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (DeviceError, SourceError):
            return None
