"""A RoboSense lidar at an address: only its packets are taken.

RoboSense documents no commands: the lidar is set on its web page.
"""

from __future__ import annotations

import socket
from typing import Any

from drivers.kit.driver import SensorConfig
from drivers.kit.lidar.control import Control, Device
from recorder.common.errors import DeviceError, SourceError


class RobosenseControl(Control):
    """Finder of one lidar's address.

    Args:
        sensor: the sensor's entry, ``robosense://HOST``.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        self._host = sensor.address.removeprefix("//").rstrip("/")
        self._port = sensor.options["lidar_port"]

    def bring_up(self) -> Device:
        if not self._host or ":" in self._host:
            raise SourceError(f"{self._host!r} is not of the form HOST")
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((self._host, self._port))  # sends nothing
                here, there = probe.getsockname()[0], probe.getpeername()[0]
        except OSError as error:
            raise DeviceError(error.strerror or str(error)) from None
        return Device(there, here, destination="", port=self._port)

    def poll(self) -> dict[str, Any]:
        return {}
