"""Control of a Velodyne by its web interface: settings, identity and state.

Source: manuals of the VLP-16 and VLP-32C, chapter "Sensor Communication".  The server answers wrong
requests with 200 too, so that settings count only once they are read back.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from drivers.kit.driver import SensorConfig
from drivers.kit.http_request import HttpRequest
from drivers.kit.lidar.control import Control, Device, choose_destination
from drivers.velodyne.models import MODELS
from recorder.common.errors import DeviceError, SourceError

_ANSWER_S: Final = 1.5
_BRING_UP_S: Final = 4.0
_TRIES: Final = 3
_PAUSE_S: Final = 0.1
_FORM: Final = "application/x-www-form-urlencoded"
_VOLTS: Final = 5.0 / 4096
"""Of a step of the diagnostics' numbers."""

_RETURNS: Final = {"strongest": "Strongest", "last": "Last", "dual": "Dual"}
_PLACES: Final = {
    "rpm": ("setting", "rpm"),
    "return_mode": ("setting", "returns"),
    "laser": ("setting", "laser"),
    "udp_dest": ("setting/host", "addr"),
    "lidar_port": ("setting/host", "dport"),
    "phase_lock": ("setting/phaselock", "enabled"),
    "phase_deg": ("setting/phaselock", "offset"),
}
"""Where and by which name the server takes a setting."""


class VelodyneControl(Control):
    """Control of one Velodyne.

    Args:
        sensor: the sensor's entry, ``velodyne://HOST[:PORT]``.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        self._options = sensor.options
        self._host = sensor.address.removeprefix("//").rstrip("/")
        self._here = ""

    def bring_up(self) -> Device:
        until_s = time.monotonic() + _BRING_UP_S
        info = self._get("info.json")
        identity: dict[str, Any]
        identity = {name: info[name] for name in ("model", "serial", "mac_addr") if name in info}
        model, wanted_model = find_model_name(str(info.get("model"))), self._options["model"]
        if None not in (model, wanted_model) and model != wanted_model:
            raise SourceError(f"the lidar is a {model}, not a {wanted_model}")
        for _ in range(_TRIES):
            settings = self._read_settings()
            left = self._find_changes(settings)
            if not left or time.monotonic() > until_s:
                break
            self._apply(left)
            time.sleep(_PAUSE_S)
        else:
            settings = self._read_settings()
            left = self._find_changes(settings)
        if left:
            names = ", ".join(f"{n}: {v!r} (has {settings.get(n)!r})" for n, v in left.items())
            raise DeviceError(f"HTTP: the lidar does not take on its settings: {names}")
        name = self._host.rpartition(":")[0] or self._host
        try:
            address = socket.gethostbyname(name)
        except OSError as error:
            raise DeviceError(f"HTTP: {name}: {error.strerror}") from None
        return Device(
            *(address, self._here, settings["udp_dest"], settings["lidar_port"]),
            identity=identity,
            settings=settings,
        )

    def poll(self) -> dict[str, Any]:
        status, diagnostics = self._get("status.json"), self._get("diag.json")
        state: dict[str, Any] = {}
        for name, place in (
            ("gps_pps", ("gps", "pps_state")),
            ("gps_position", ("gps", "position")),
            ("motor", ("motor", "state")),
            ("motor_lock", ("motor", "lock")),
            ("laser", ("laser", "state")),
        ):
            value = _find(status, place)
            if isinstance(value, str):
                state[name] = value
        rpm = _find(status, ("motor", "rpm"))
        if isinstance(rpm, int | float):
            state["motor_rpm_measured"] = round(rpm / 10) * 10
        for board in ("top", "bot"):
            raw = _find(diagnostics, ("volt_temp", board, "lm20_temp"))
            if isinstance(raw, int | float):
                state[f"temperature_{board}_c"] = round(to_celsius(raw))
        return state | {"settings": self._read_settings()}

    def _read_settings(self) -> dict[str, Any]:
        """Return the settings by the options' names, and the others as they are."""
        found = self._get("settings.json")
        settings: dict[str, Any]
        settings = {k: v for k, v in found.items() if isinstance(v, str | int | float | bool)}
        returns = {name: mode for mode, name in _RETURNS.items()}
        settings["return_mode"] = returns.get(str(settings.pop("returns", "")))
        settings["laser"] = str(found.get("laser", "")).lower() == "on"
        settings["udp_dest"] = str(_find(found, ("host", "addr")) or "")
        settings["lidar_port"] = _find(found, ("host", "dport"))
        settings["phase_lock"] = str(_find(found, ("phaselock", "enabled"))).lower() == "on"
        offset = _find(found, ("phaselock", "offset"))
        settings["phase_deg"] = offset / 100 if isinstance(offset, int | float) else None
        settings["fov"] = _find(found, ("fov",))
        if not isinstance(settings["lidar_port"], int) or not 0 < settings["lidar_port"] < 65536:
            raise DeviceError(f"HTTP: the settings name {settings['lidar_port']!r:.40} as a port")
        return settings

    def _find_changes(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that differ from the wanted ones."""
        options = self._options
        here = self._here
        wanted: dict[str, Any] = {
            "udp_dest": choose_destination(options["udp_dest"], settings["udp_dest"], here),
            "laser": True,
        }
        for name in ("lidar_port", "rpm", "return_mode"):
            if options[name] is not None:
                wanted[name] = options[name]
        if options["phase_deg"] is not None:
            wanted |= {"phase_lock": True, "phase_deg": options["phase_deg"]}
        return {name: value for name, value in wanted.items() if settings.get(name) != value}

    def _apply(self, changes: Mapping[str, Any]) -> None:
        forms: dict[str, dict[str, Any]] = {}
        for name, value in changes.items():
            place, key = _PLACES[name]
            if isinstance(value, bool):
                value = "on" if value else "off"
            elif name == "return_mode":
                value = _RETURNS[value]
            elif name == "phase_deg":
                value = round(100 * value)
            forms.setdefault(place, {})[key] = value
        for place, form in forms.items():
            answer = self._send(HttpRequest("POST", f"/cgi/{place}", urlencode(form), _FORM))
            if not 200 <= answer[0] < 300:
                names = ", ".join(name for name in changes if _PLACES[name][0] == place)
                raise DeviceError(f"HTTP: the lidar refuses {names}: {answer[0]} {answer[1]:.100}")

    def _get(self, name: str) -> dict[str, Any]:
        status, text = self._send(HttpRequest("GET", f"/cgi/{name}"))
        if not 200 <= status < 300:
            raise DeviceError(f"HTTP, {name}: {status} {text:.100}")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise DeviceError(f"HTTP, {name}: the answer is not an object: {text[:60]!r}")
        return found

    def _send(self, request: HttpRequest) -> tuple[int, str]:
        answer = request.send(self._host, _ANSWER_S)
        self._here = answer.local_address
        return answer.status, " ".join(answer.text.split())


def find_model_name(told: str) -> str | None:
    """Return the name in `MODELS` of a model as a Velodyne tells it; None where it has none."""

    def strip(name: str) -> str:
        return "".join(c for c in name.lower() if c.isalnum())

    return next((name for name in MODELS if strip(name) == strip(told)), None)


def to_celsius(raw: float) -> float:
    """Return the temperature of a sensor LM20 by its number (manual, conversion formulas)."""
    inside = 2.1962e6 + (1.8639 - raw * _VOLTS) / 3.88e-6
    return float(-1481.96 + max(0.0, inside) ** 0.5)


def _find(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
