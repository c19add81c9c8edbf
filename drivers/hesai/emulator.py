"""An emulated Hesai lidar: PTC over TCP, and its packets over UDP, on loopback."""

from __future__ import annotations

import csv
import io
import socketserver
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from drivers.hesai import ptc_messages as ptc
from drivers.hesai.driver import HesaiFamily
from drivers.hesai.models import MODELS
from drivers.hesai.packets import make_packet
from drivers.kit.driver import SensorConfig
from drivers.kit.emulator import EmulatedSource, free_ports
from drivers.kit.lidar.calibration import read_default
from drivers.kit.lidar.controlled_emulator import Form, LidarEmulator, LidarServer

_DEFAULT: Final = "PandarXT32"
_SERIAL: Final = "EMULATED-HESAI"
_GPS_PORT: Final = 10110
_MODES: Final = {
    "last": 0x38,
    "strongest": 0x37,
    "dual": 0x39,
    "first": 0x33,
    "last_first": 0x3B,
    "first_strongest": 0x3C,
}
_INVALID, _UNSUPPORTED = 1, 5
_PTP: Final = {
    "profile": "1588v2", "domain": 0, "transport": "udp", "log_intervals": [1, 1, 0],
}  # fmt: skip


class HesaiServer(LidarServer):
    """Server of PTC.

    Args:
        model: of the lidar.
        angles: its file of angles.
        port: to which it sends at first.
        return_mode, rpm: as it is set at first.

    Attributes:
        temperature_c, ptp_offset_ns: what it measures.
    """

    def __init__(self, model: str, angles: bytes, port: int, return_mode: str, rpm: int) -> None:
        super().__init__(
            {
                "udp_dest": "",
                "lidar_port": port,
                "rpm": rpm,
                "return_mode": return_mode,
                "sync_angle": None,
                "clock_source": "gps",
                "standby": False,
                "ptp": _PTP,
            }
        )
        self._model, self._angles = model, angles
        self.temperature_c, self.ptp_offset_ns = 41, 250
        self._answers: dict[int, Callable[[bytes], bytes]] = {
            ptc.INVENTORY: lambda _: ptc.build_inventory(_SERIAL, self._model),
            ptc.CALIBRATION: lambda _: self._angles,
            ptc.CONFIG: lambda _: self._config(),
            ptc.STATUS: lambda _: ptc.build_status(
                self.settings["rpm"], self.temperature_c, self._lock()
            ),
            ptc.PTP_STATE: lambda _: ptc.build_ptp_state(self.ptp_offset_ns, 9),
            ptc.PTP: lambda _: b"\1" + ptc.build_ptp(self.settings["ptp"], False),
            ptc.SET_RPM: lambda data: self._set("rpm", int.from_bytes(data, "big")),
            ptc.SET_RETURN_MODE: lambda data: self._set("return_mode", ptc.RETURN_MODES[data[0]]),
            ptc.SET_CLOCK_SOURCE: lambda data: self._set(
                "clock_source", ptc.CLOCK_SOURCES[data[0]]
            ),
            ptc.SET_SYNC_ANGLE: lambda data: self._set(
                "sync_angle", int.from_bytes(data[1:3], "big") if data[0] else None
            ),
            ptc.SET_STANDBY: lambda data: self._set("standby", bool(data[0])),
            ptc.SET_DESTINATION: self._send_to,
            ptc.SET_PTP: lambda data: self._set("ptp", _parse_ptp(data)),
        }

    def answer(self, command: int, payload: bytes) -> tuple[int, bytes]:
        """Return the code and the payload of the answer to a request."""
        with self.lock:
            if command not in self._answers:
                return _UNSUPPORTED, b""
            if ptc.NAMES[command] in self.refused:
                return _INVALID, b""
            try:
                return 0, self._answers[command](payload)
            except (IndexError, ValueError):
                return _INVALID, b""

    def _listen(self, address: tuple[str, int]) -> socketserver.TCPServer:
        handler = type("Handler", (_Handler,), {"lidar": self})
        socketserver.ThreadingTCPServer.allow_reuse_address = True
        server = socketserver.ThreadingTCPServer(address, handler)
        server.daemon_threads = True
        return server

    def _config(self) -> bytes:
        shown = {**self.settings, "udp_dest": self.settings["udp_dest"] or "0.0.0.0"}
        return ptc.build_config(shown, b"\x7f\0\0\1", _GPS_PORT)

    def _set(self, name: str, value: Any) -> bytes:
        if name == "rpm" and (not 300 <= value <= 1200 or value % 60):
            raise ValueError("no such speed")
        if name not in self.ignored:
            self.settings[name] = value
        return b""

    def _send_to(self, payload: bytes) -> bytes:
        self.settings["udp_dest"] = ".".join(map(str, payload[:4]))
        return self._set("lidar_port", int.from_bytes(payload[4:6], "big"))

    def _lock(self) -> str:
        return "locked" if self.settings["clock_source"] == "ptp" else "free run"


def _parse_ptp(payload: bytes) -> dict[str, Any]:
    found = ptc.parse_ptp(b"\1" + payload)
    return {name: value for name, value in found.items() if name != "enabled"}


class _Handler(socketserver.BaseRequestHandler):
    lidar: HesaiServer

    def handle(self) -> None:
        while head := self._read(ptc.HEAD.size):
            mark, command, _, size = ptc.HEAD.unpack(head)
            payload = self._read(size)
            if mark != ptc.MARK or payload is None:
                return
            code, answer = self.lidar.answer(command, payload)
            reply = ptc.HEAD.pack(ptc.MARK, command, code, len(answer)) + answer
            try:
                self.request.sendall(reply)
            except OSError:
                return

    def _read(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                part = self.request.recv(size - len(data))
            except OSError:
                return None
            if not part:
                return None
            data += part
        return data


class HesaiEmulator(LidarEmulator):
    """An emulated Hesai lidar, see `LidarEmulator`; ``sim:`` is a PandarXT32 by default."""

    server: HesaiServer
    default_model = _DEFAULT
    default_mode = "dual"
    modes = _MODES

    def _make_family(self, sensor: SensorConfig) -> HesaiFamily:
        return HesaiFamily(sensor)

    def _make_server(self, return_mode: str) -> HesaiServer:
        angles = read_default(HesaiFamily.table, self.model)
        text = io.StringIO()
        rows = zip(angles.elevation_deg, angles.azimuth_deg, strict=True)
        csv.writer(text).writerow(("Laser id", "Elevation", "Azimuth"))
        csv.writer(text).writerows((k, *row) for k, row in enumerate(rows, 1))
        path = self.sensor.options["calibration"]
        data = Path(path).read_bytes() if path else text.getvalue().encode()
        return HesaiServer(self.model, data, free_ports()[0], return_mode, self.first_form.rpm)

    def _make_packet(self, form: Form) -> bytes:
        return make_packet(MODELS[self.model], form.mode, form.rpm)

    def _source(self) -> EmulatedSource:
        return EmulatedSource(f"hesai://127.0.0.1:{self.server.port}", {"model": self.model})
