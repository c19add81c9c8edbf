"""Control of a Livox lidar by the commands of Livox's second SDK."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from drivers.kit.driver import SensorConfig
from drivers.kit.lidar.control import Control, Device, choose_destination, parse_ipv4
from drivers.livox import commands as c
from drivers.livox.packets import CARTESIAN, CARTESIAN_CM, SPHERICAL
from recorder.common.errors import DeviceError, FormatError, SourceError

DATA_TYPES: Final = {
    "cartesian": CARTESIAN,
    "cartesian_cm": CARTESIAN_CM,
    "spherical": SPHERICAL,
}
_ANSWER_S: Final = 0.5
_TRIES: Final = 3
_MOST_BYTES: Final = 1500
_STATE: Final = (
    *(c.SERIAL, c.PRODUCT, c.APP_VERSION, c.WORK_STATE, c.CORE_TEMPERATURE),
    *(c.TIME_OFFSET, c.SYNC_TYPE, c.HMS_CODE),
)
_SETTINGS: Final = (c.POINT_TYPE, c.POINT_HOST, c.IMU_HOST, c.STATE_HOST, c.WORK_MODE, c.IMU_SEND)


@dataclass(frozen=True, slots=True)
class Ports:
    """UDP ports of a model: of the lidar, and where this machine receives by default."""

    points: int
    imu: int
    state: int
    points_here: int
    imu_here: int
    state_here: int


PORTS: Final = {
    "Mid-360": Ports(56300, 56400, 56200, 56301, 56401, 56201),
    "HAP": Ports(57000, 58000, 56000, 57000, 58000, 56001),
}


class LivoxClient:
    """Requests to one lidar.

    Args:
        host: name or address, with ``:PORT`` where it is not found at port 56000.

    Raises:
        DeviceError: any request: there is no answer, or the lidar refuses it.
        SourceError: the host is invalid.
    """

    def __init__(self, host: str) -> None:
        name, _, port = host.partition(":")
        if not name or (port and not port.isdecimal()):
            raise SourceError(f"{host!r} is not of the form HOST or HOST:PORT")
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.connect((name, int(port or c.DISCOVERY_PORT)))
            self.here, self.there = self._socket.getsockname()[0], self._socket.getpeername()[0]
        except (OSError, OverflowError) as error:
            self._socket.close()
            raise DeviceError(getattr(error, "strerror", None) or str(error)) from None
        self._number = 0

    def __enter__(self) -> LivoxClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def search(self) -> tuple[str, str]:
        """Return model and serial number; commands go to the port that the answer tells."""
        try:
            kind, serial, _, port = c.decode_device(self._ask(c.SEARCH, b"", "search"))
        except FormatError as error:
            raise DeviceError(str(error)) from None
        if kind not in c.DEVICES:
            raise SourceError(f"the lidar is of the unknown device type {kind}")
        self._socket.connect((self.there, port))
        return c.DEVICES[kind], serial

    def set(self, values: Mapping[int, bytes]) -> None:
        """Set parameters."""
        answer = self._ask(c.SET, c.encode_values(values), "set")
        if len(answer) < 3:
            raise DeviceError(f"set: an answer of {len(answer)} bytes")
        code, key = struct.unpack_from("<BH", answer)
        if code:
            raise DeviceError(
                f"set: the lidar refuses {c.NAMES.get(key, f'key {key:#06x}')}: {code}"
            )

    def get(self, keys: tuple[int, ...]) -> dict[int, bytes]:
        """Return the present values of parameters."""
        answer = self._ask(c.GET, struct.pack(f"<HH{len(keys)}H", len(keys), 0, *keys), "get")
        if len(answer) < 3 or answer[0]:
            raise DeviceError(f"get: the lidar refuses it: {answer[:1].hex()}")
        (count,) = struct.unpack_from("<H", answer, 1)
        try:
            return c.decode_values(struct.pack("<HH", count, 0) + answer[3:])
        except FormatError as error:
            raise DeviceError(f"get: {error}") from None

    def _ask(self, command: int, data: bytes, name: str) -> bytes:
        for _ in range(_TRIES):
            self._number += 1
            request = c.Command(command, self._number, False, False, data)
            try:
                self._socket.send(request.encode())
                until_s = time.monotonic() + _ANSWER_S
                while (left_s := until_s - time.monotonic()) > 0:
                    self._socket.settimeout(left_s)
                    try:
                        answer = c.decode_command(self._socket.recv(_MOST_BYTES))
                    except FormatError:
                        continue
                    if (answer.id, answer.number, answer.is_answer) == (
                        command,
                        self._number,
                        True,
                    ):
                        return answer.data
            except TimeoutError:
                continue
            except OSError as error:
                raise DeviceError(f"{name}: {error.strerror or error}") from None
        raise DeviceError(f"{name}: no answer in {_TRIES * _ANSWER_S:g} s")


class LivoxControl(Control):
    """Control of one Livox lidar.

    Args:
        sensor: the sensor's entry, ``livox://HOST[:PORT]``.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        self._options = sensor.options
        self._host = sensor.address.removeprefix("//").rstrip("/")

    def bring_up(self) -> Device:
        options = self._options
        with LivoxClient(self._host) as client:
            model, serial = client.search()
            if model != options["model"]:
                raise SourceError(f"the lidar is a {model}, not a {options['model']}")
            present, ports = client.get(_SETTINGS), PORTS[model]
            host = present.get(c.POINT_HOST, b"")
            before = socket.inet_ntoa(host[:4]) if len(host) == 8 else ""
            destination = choose_destination(options["udp_dest"], before, client.here)
            parse_ipv4(destination, "udp_dest")
            port = options["lidar_port"] or ports.points_here
            wanted = {
                c.POINT_TYPE: bytes([DATA_TYPES[options["data_type"]]]),
                c.POINT_HOST: c.encode_host(destination, port, ports.points),
                c.IMU_HOST: c.encode_host(
                    destination, options["imu_port"] or ports.imu_here, ports.imu
                ),
                c.STATE_HOST: c.encode_host(
                    destination, options["state_port"] or ports.state_here, ports.state
                ),
                c.WORK_MODE: bytes([c.NORMAL]),
                c.IMU_SEND: bytes([options["imu"]]),
            }
            changes = {key: value for key, value in wanted.items() if present.get(key) != value}
            if changes:
                client.set(changes)
                present = client.get(_SETTINGS)
            if left := [key for key, value in wanted.items() if present.get(key) != value]:
                names = ", ".join(c.NAMES[key] for key in left)
                raise DeviceError(f"the lidar does not take on its settings: {names}")
            told = c.read_state(client.get(_STATE))
            return Device(
                *(client.there, client.here, destination, port),
                identity={"model": model, "serial": serial} | told,
                settings={
                    "udp_dest": destination,
                    "lidar_port": port,
                    "data_type": options["data_type"],
                    "changed": sorted(c.NAMES[key] for key in changes),
                },
            )

    def poll(self) -> dict[str, Any]:
        with LivoxClient(self._host) as client:
            client.search()
            return c.read_state(client.get(_STATE))
