"""Xsens MTi inertial measurement units: serial devices, logs of their bytes, simulated devices.

The stream has the sensor's name and roverd's three IMU channels ``acc``, ``avel`` and ``rot``.
``quat`` (the device's own quaternion, without the singularity of Euler angles) and ``mag`` are
added where the device sends them.  Positions of a GNSS/INS device are the stream ``NAME_gnss``
(`drivers.xsens.positions`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

from drivers.kit.driver import SensorConfig
from drivers.kit.source_driver import ReadDriver
from drivers.xsens.commands import BAUDRATES, OPTIONAL_OUTPUTS
from drivers.xsens.device_types import SIM_IMU_OPTIONS
from drivers.xsens.mtdata2 import Coordinates
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option, OptionTable


class XsensDriver(ReadDriver):
    """Records Xsens MTi inertial measurement units (MTData2).

    A sample is an MTData2 message with acceleration and rate of turn.  Where every such message of
    the source has an orientation, the sample must have one too; a `State` reports a message
    without an orientation, as a device sends just after its start.  Where only some messages have
    an orientation, or none, ``rot`` is NaN in samples without one.

    A sample of NAME_gnss is a position of the device's filter, with the latest data of its
    satellite receiver, or a position of the receiver where the filter sends none.

    ``t_dev`` is the unwrapped SampleTimeFine.  Without it, samples are spaced by `rate`, with gaps
    of the packet counter included.  A gap of the packet counter is `Lost`, cause ``corrupt`` where
    it contains broken bytes, else ``device``.  A log's stamps are ``t_dev``.  A device's stamps are
    ``t_dev`` on the host's clock, corrected for the delay of the serial port (see
    `drivers.kit.serial_time` for the method and the remaining error).

    The device is configured to send `rate`, `outputs` and `coordinates` unless it already does.
    """

    options: ClassVar[OptionTable] = {
        "rate": Option("float", 100.0, "nominal sample rate in Hz", minimum=1.0, maximum=2000.0),
        "batch_ms": Option(
            "float", 10.0, "stream time in one batch of samples, in ms", minimum=0.0, maximum=1000.0
        ),
        "outputs": Option(
            "list",
            ["euler_angles"],
            "serial, sim: outputs besides acceleration and rate of turn: "
            + ", ".join(OPTIONAL_OUTPUTS),
            items="str",
        ),
        "gnss": Option("bool", True, "record the positions of a GNSS/INS device as NAME_gnss"),
        "gnss_rate": Option(
            "int",
            10,
            "serial, sim: highest rate of positions in Hz; a divisor of `rate` is used",
            minimum=1,
            maximum=400,
        ),
        "coordinates": Option(
            "str",
            "ENU",
            "serial, sim: local frame of the orientation",
            choices=tuple(frame.name for frame in Coordinates),
        ),
        "configure": Option(
            "bool", True, "serial: false keeps the device's present output configuration"
        ),
        "baudrate": Option(
            "int",
            None,
            "serial: the device's baud rate (default: search for it)",
            choices=tuple(sorted(set(BAUDRATES.values()))),
        ),
        "low_latency": Option("bool", True, "serial: request that the port does not buffer bytes"),
        "latency_ms": Option(
            "float",
            0.0,
            "serial: delay from a measurement to the first byte of its message; it cannot be "
            "measured from outside; an MTi's is up to 2 ms",
            minimum=0.0,
            maximum=100.0,
        ),
        "timeout_s": Option(
            "float",
            5.0,
            "serial: time without a sample after which the device is lost, in s",
            minimum=1.0,
            maximum=60,
        ),
        **SIM_IMU_OPTIONS,
    }
    recorded_kind = "imu"
    stream_suffixes = ("_gnss",)
    schemes: ClassVar[dict[str, str]] = {
        "vrs": "PATH[#STREAM]: an IMU's stream in a VRS file",
        "bag": "PATH[#TOPIC]: an IMU's topic in a ROS 2 bag (MCAP, SQLite)",
        "mcap": "as bag",
        "file": "a log of an MTi's serial byte stream, with MTData2 messages",
        "sim": "an IMU on the vehicle of the simulated world, endless",
        "serial": "an MTi at a serial port, such as /dev/ttyUSB0",
    }
    live_schemes: ClassVar[frozenset[str]] = frozenset({"serial"})

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._reported: set[str] = set()
        self._baudrate: int | None = None

    def open(self) -> Sequence[StreamSpec]:
        self.close()
        match self.sensor.scheme:
            case "sim":
                from drivers.xsens.simulated import SimulatedSource

                simulated = self.source = SimulatedSource(self.sensor)
                return simulated.specs
            case "serial":
                from drivers.xsens.live import SerialSource

                device = self.source = SerialSource(self.sensor, self._baudrate, self._warn)
                self._baudrate = device.baudrate
                return device.specs
            case _:
                from drivers.xsens.played import LogSource

                log = self.source = LogSource(self.sensor)
                return log.specs

    def _warn(self, text: str) -> None:
        """Print a warning once, even if the device is opened again."""
        if text not in self._reported:
            self._reported.add(text)
            print(f"{self.sensor.name}: {text}", file=sys.stderr)
