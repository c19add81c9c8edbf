"""Control of a Hesai lidar by PTC: settings, inventory, calibration and state."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from drivers.hesai import ptc_messages as ptc
from drivers.kit.driver import SensorConfig
from drivers.kit.lidar.control import Control, Device, choose_destination, parse_ipv4
from recorder.common.errors import DeviceError, SourceError

_CONNECT_S: Final = 1.0
_ANSWER_S: Final = 1.5
_BRING_UP_S: Final = 4.0
_MOST_BYTES: Final = 1 << 20
_TRIES: Final = 3
_PAUSE_S: Final = 0.1
_NEW: Final = ("QT128", "OT128", "AT128")
"""Models whose PTP settings have a reserved byte."""


class PtcClient:
    """Requests to one lidar over one connection.

    >>> with PtcClient("192.168.1.201") as client:
    ...     inventory = client.ask(ptc.INVENTORY)

    Args:
        host: name or address, with ``:PORT`` where the port is not 9347.

    Attributes:
        here, there: addresses of this machine and of the lidar.

    Raises:
        DeviceError: there is no answer; any request: the lidar refuses it, by a name.
        SourceError: the host is invalid.
    """

    def __init__(self, host: str) -> None:
        name, _, port = host.partition(":")
        if not name or (port and not port.isdecimal()):
            raise SourceError(f"{host!r} is not of the form HOST or HOST:PORT")
        try:
            made = socket.create_connection((name, int(port or ptc.PORT)), _CONNECT_S)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise DeviceError(f"PTC: {reason}") from None
        try:
            self.here, self.there = made.getsockname()[0], made.getpeername()[0]
        except OSError as error:  # the lidar has closed the connection already
            made.close()
            raise DeviceError(f"PTC: {error.strerror}") from None
        self._socket = made

    def __enter__(self) -> PtcClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, command: int, payload: bytes = b"") -> bytes:
        """Send a request and return the answer's payload."""
        name, until_s = ptc.NAMES[command], time.monotonic() + _ANSWER_S
        try:
            self._socket.sendall(ptc.build_request(command, payload))
            head = self._read(ptc.HEAD.size, until_s)
            mark, answered, code, size = ptc.HEAD.unpack(head)
            if mark != ptc.MARK or answered != command or size > _MOST_BYTES:
                raise DeviceError(f"PTC, {name}: {head.hex(' ')} is no answer to it")
            answer = self._read(size, until_s)
        except TimeoutError:
            raise DeviceError(f"PTC, {name}: no answer in {_ANSWER_S:.1f} s") from None
        except OSError as error:
            raise DeviceError(f"PTC, {name}: {error.strerror or error}") from None
        if code:
            raise DeviceError(
                f"PTC, {name}: the lidar refuses it: {ptc.REFUSALS.get(code, f'code {code}')}"
            )
        return answer

    def _read(self, size: int, until_s: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._socket.settimeout(max(1e-3, until_s - time.monotonic()))
            part = self._socket.recv(min(size - len(data), 1 << 16))
            if not part:
                raise DeviceError("PTC: the lidar has closed the connection")
            data += part
        return bytes(data)


class HesaiControl(Control):
    """Control of one Hesai lidar.

    Args:
        sensor: the sensor's entry, ``hesai://HOST[:PORT]``.

    Raises:
        SourceError: an invalid option.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        self._options = sensor.options
        if fault := ptc.check_ptp(self._options["ptp"]):
            raise SourceError(f"{sensor.name}: ptp: {fault}")
        self._host = sensor.address.removeprefix("//").rstrip("/")

    def bring_up(self) -> Device:
        until_s = time.monotonic() + _BRING_UP_S
        with PtcClient(self._host) as client:
            identity = ptc.parse_inventory(client.ask(ptc.INVENTORY))
            model, wanted_model = identity["model"], self._options["model"]
            if None not in (model, wanted_model) and model != wanted_model:
                raise SourceError(f"the lidar is a {model}, not a {wanted_model}")
            for _ in range(_TRIES):
                settings = self._read_settings(client)
                left = self._find_changes(settings, client.here)
                if not left or time.monotonic() > until_s:
                    break
                self._apply(client, left, settings, str(model))
                time.sleep(_PAUSE_S)
            else:
                settings = self._read_settings(client)
                left = self._find_changes(settings, client.here)
            if left:
                names = ", ".join(f"{n}: {v!r} (has {settings.get(n)!r})" for n, v in left.items())
                raise DeviceError(f"PTC: the lidar does not take on its settings: {names}")
            try:
                angles = client.ask(ptc.CALIBRATION)
            except DeviceError as error:
                angles, identity = None, {**identity, "calibration": str(error)}
            return Device(
                *(client.there, client.here, settings["udp_dest"], settings["lidar_port"]),
                identity=identity,
                settings=settings,
                angles=angles,
            )

    def poll(self) -> dict[str, Any]:
        with PtcClient(self._host) as client:
            state = ptc.parse_status(client.ask(ptc.STATUS))
            settings = self._read_settings(client)
            if settings["clock_source"] == "ptp":
                state |= ptc.parse_ptp_state(client.ask(ptc.PTP_STATE, b"\1"))
            return state | {"settings": settings}

    def _read_settings(self, client: PtcClient) -> dict[str, Any]:
        settings = ptc.parse_config(client.ask(ptc.CONFIG))
        if settings["clock_source"] == "ptp" or self._options["ptp"]:
            settings["ptp"] = ptc.parse_ptp(client.ask(ptc.PTP))
        return settings

    def _find_changes(self, settings: Mapping[str, Any], here: str) -> dict[str, Any]:
        """Return the settings that differ from the wanted ones."""
        options = self._options
        wanted = {
            "udp_dest": choose_destination(options["udp_dest"], settings["udp_dest"], here),
            "standby": False,
        }
        for name in ("lidar_port", "rpm", "sync_angle", "return_mode", "clock_source"):
            if options[name] is not None:
                wanted[name] = options[name]
        if options["ptp"]:
            wanted["ptp"] = {**settings.get("ptp", {}), **options["ptp"]}
        return {name: value for name, value in wanted.items() if settings.get(name) != value}

    @staticmethod
    def _apply(
        client: PtcClient, changes: Mapping[str, Any], settings: Mapping[str, Any], model: str
    ) -> None:
        whole = {**settings, **changes}
        if "clock_source" in changes:
            number = ptc.CLOCK_SOURCES.index(whole["clock_source"])
            client.ask(ptc.SET_CLOCK_SOURCE, bytes((number,)))
        if "ptp" in changes:
            client.ask(ptc.SET_PTP, ptc.build_ptp(whole["ptp"], model in _NEW))
        if "return_mode" in changes:
            number = ptc.RETURN_MODES.index(whole["return_mode"])
            client.ask(ptc.SET_RETURN_MODE, bytes((number,)))
        if "rpm" in changes:
            client.ask(ptc.SET_RPM, whole["rpm"].to_bytes(2, "big"))
        if "sync_angle" in changes:
            client.ask(ptc.SET_SYNC_ANGLE, b"\1" + whole["sync_angle"].to_bytes(2, "big"))
        if "standby" in changes:
            client.ask(ptc.SET_STANDBY, b"\0")
        if changes.keys() & {"udp_dest", "lidar_port"}:
            address = parse_ipv4(whole["udp_dest"], "udp_dest")
            client.ask(
                ptc.SET_DESTINATION,
                ptc.build_destination(address, whole["lidar_port"], whole["gps_port"]),
            )
