"""An emulated Velodyne: its web interface, and its packets over UDP, on loopback."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl

from drivers.kit.driver import SensorConfig
from drivers.kit.emulator import EmulatedSource, free_ports
from drivers.kit.lidar.controlled_emulator import Form, LidarEmulator, LidarServer
from drivers.velodyne.driver import VelodyneFamily
from drivers.velodyne.models import MODELS
from drivers.velodyne.packets import make_packet

_DEFAULT: Final = "VLP-16"
_SERIAL: Final = "EMULATED-VELODYNE"
_MODES: Final = {"strongest": 0x37, "last": 0x38, "dual": 0x39}
_BODY_LIMIT: Final = 1 << 16
_LM20: Final = 1200
"""Number of the temperature sensors of the diagnostics, about 34 deg C."""


class VelodyneServer(LidarServer):
    """Server of a Velodyne's web interface.

    Args:
        model: of the lidar.
        port: to which it sends at first.
        return_mode, rpm: as it is set at first.

    Attributes:
        pps: state of the GPS's pulse.
    """

    def __init__(self, model: str, port: int, return_mode: str, rpm: int) -> None:
        super().__init__(
            {
                "udp_dest": "",
                "lidar_port": port,
                "rpm": rpm,
                "return_mode": return_mode,
                "laser": True,
                "phase_lock": False,
                "phase_deg": 0.0,
            }
        )
        self._model, self.pps = model, "Absent"

    def show(self, name: str) -> Any:
        """Return what a path below ``/cgi/`` shows; None: there is no such path."""
        with self.lock:
            settings = self.settings
            switch = {True: "On", False: "Off"}
            motor = {
                "state": "On",
                "rpm": settings["rpm"] - 1,
                "lock": switch[settings["phase_lock"]],
                "phase": round(100 * settings["phase_deg"]),
            }
            board = {"lm20_temp": _LM20}
            return {
                "info.json": {
                    "model": self._model,
                    "serial": _SERIAL,
                    "mac_addr": "60-76-88-00-00-01",
                },
                "status.json": {
                    "gps": {"pps_state": self.pps, "position": ""},
                    "motor": motor,
                    "laser": {"state": switch[settings["laser"]]},
                },
                "diag.json": {"volt_temp": {"top": board, "bot": board}},
                "settings.json": {
                    "returns": settings["return_mode"].capitalize(),
                    "rpm": settings["rpm"],
                    "laser": switch[settings["laser"]],
                    "fov": {"start": 0, "end": 359},
                    "phaselock": {
                        "enabled": switch[settings["phase_lock"]],
                        "offset": round(100 * settings["phase_deg"]),
                    },
                    "host": {
                        "addr": settings["udp_dest"] or "0.0.0.0",
                        "dport": settings["lidar_port"],
                        "tport": 8308,
                    },
                },
            }.get(name)

    def take(self, place: str, form: dict[str, str]) -> bool:
        """Change settings; what is wrong changes nothing.  Return whether there is such a path."""
        with self.lock:
            wanted: dict[str, Any] = {}
            try:
                if place == "setting":
                    if "rpm" in form:
                        wanted["rpm"] = _check_rpm(int(form["rpm"]))
                    if form.get("returns", "").lower() in _MODES:
                        wanted["return_mode"] = form["returns"].lower()
                    if "laser" in form:
                        wanted["laser"] = form["laser"].lower() == "on"
                elif place == "setting/host":
                    if "addr" in form:
                        wanted["udp_dest"] = form["addr"]
                    if "dport" in form:
                        wanted["lidar_port"] = int(form["dport"])
                elif place == "setting/phaselock":
                    if "enabled" in form:
                        wanted["phase_lock"] = form["enabled"].lower() == "on"
                    if "offset" in form:
                        wanted["phase_deg"] = int(form["offset"]) / 100
                else:
                    return False
            except ValueError:
                return True
            kept = self.refused | self.ignored
            self.settings |= {k: v for k, v in wanted.items() if k not in kept}
            return True

    def _listen(self, address: tuple[str, int]) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(address, type("Handler", (_Handler,), {"lidar": self}))
        server.daemon_threads = True
        return server


def _check_rpm(rpm: int) -> int:
    if not 300 <= rpm <= 1200 or rpm % 60:
        raise ValueError("no such speed")
    return rpm


class _Handler(BaseHTTPRequestHandler):
    lidar: VelodyneServer
    protocol_version = "HTTP/1.1"
    timeout = 5.0

    def do_GET(self) -> None:
        shown = self.lidar.show(self.path.removeprefix("/cgi/"))
        self._answer(404 if shown is None else 200, "" if shown is None else json.dumps(shown))

    def do_POST(self) -> None:
        size = self.headers.get("Content-Length") or "0"
        if not size.isdecimal() or int(size) > _BODY_LIMIT:
            self._answer(413, "")
            return
        form = dict(parse_qsl(self.rfile.read(int(size)).decode("ascii", "replace")))
        found = self.lidar.take(self.path.removeprefix("/cgi/"), form)
        self._answer(200 if found else 404, "")

    def _answer(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class VelodyneEmulator(LidarEmulator):
    """An emulated Velodyne, see `LidarEmulator`; ``sim:`` is a VLP-16 by default."""

    server: VelodyneServer
    default_model = _DEFAULT
    default_mode = "strongest"
    modes = _MODES

    def _make_family(self, sensor: SensorConfig) -> VelodyneFamily:
        return VelodyneFamily(sensor)

    def _make_server(self, return_mode: str) -> VelodyneServer:
        return VelodyneServer(self.model, free_ports()[0], return_mode, self.first_form.rpm)

    def _make_packet(self, form: Form) -> bytes:
        return make_packet(MODELS[self.model], form.mode)

    def _source(self) -> EmulatedSource:
        return EmulatedSource(f"velodyne://127.0.0.1:{self.server.port}", {"model": self.model})
