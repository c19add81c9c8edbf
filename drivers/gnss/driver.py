"""Satellite receivers (GNSS/INS): UBX, NMEA 0183 and Septentrio's SBF, gpsd, logs, simulated.

One sample is one epoch: position, velocity, covariance and fix at one GPS time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from drivers.gnss.gpsd import GpsdReception
from drivers.gnss.live import BAUDRATES, DeviceSource
from drivers.gnss.packets import PROTOCOLS
from drivers.gnss.played import LogSource
from drivers.gnss.simulated import SimulatedSource
from drivers.kit.driver import SensorConfig
from drivers.kit.simulated_clock import CLOCK_OPTION
from drivers.kit.source_driver import ReadDriver
from drivers.kit.topics.connect import TOPIC_FORMS, TOPIC_OPTIONS, TOPIC_SCHEMES
from drivers.world import WORLD_OPTIONS, mounts
from drivers.world.faults import GNSS_FAULTS, fault_option
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option, OptionTable


class GnssDriver(ReadDriver):
    """Records satellite receivers (GNSS/INS).

    ``t_dev`` is GPS time, in ns since 1980-01-06.  Epochs before the receiver knows the time are
    left out, and a state says so.  A device's stamps are GPS time on the host's clock: by the
    kernel's stamps of pulses where `pps` is given, else by the messages that came with the least
    delay, minus `latency_ms`.  Missing epochs are `Lost`, cause ``corrupt`` where bytes of no
    frame came, else ``device``.  Epochs for a time that has another position already are `Lost`,
    cause ``time``.
    """

    options: ClassVar[OptionTable] = {
        "protocol": Option(
            "str", "auto", "protocol to read; auto: the best received", choices=("auto", *PROTOCOLS)
        ),
        "talker": Option(
            "str", None, "nmea: talker whose sentences are used, as GN (default: all)"
        ),
        "device": Option(
            "str", None,
            "gpsd: device whose positions are used, as /dev/ttyACM0 (default: the first that "
            "reports one)",
        ),
        "rate": Option(
            "float", None, "epochs a second (default: that of the first ones; sim: 10)",
            minimum=0.1, maximum=100.0,
        ),
        "baudrate": Option(
            "int",
            None,
            f"serial: the port's baud rate (default: tries {', '.join(map(str, BAUDRATES))})",
            minimum=1200,
            maximum=4_000_000,
        ),
        "latency_ms": Option(
            "float", 0.0, "least time from an epoch to the first byte of its messages",
            minimum=0.0, maximum=1000.0,
        ),
        "pps": Option("str", None, "device of the receiver's pulses, as /dev/pps0"),
        "timeout_s": Option(
            "float", 5.0, "time without a byte after which the device is lost, in s",
            minimum=1.0, maximum=60.0,
        ),
        **WORLD_OPTIONS,
        "clock": CLOCK_OPTION,
        "faults": fault_option(GNSS_FAULTS),
        "seed": Option("int", 0, "sim: same seed, same data", minimum=0, maximum=2**63 - 1),
        "noise": Option("float", 1.0, "sim: scale of the errors", minimum=0.0, maximum=1000.0),
        "mount": mounts.MOUNT_OPTION,
        "origin": Option(
            "list",
            [48.2, 11.5, 480.0],
            "sim: latitude and longitude [deg], height [m] of the world's origin",
            items="float",
        ),
        **TOPIC_OPTIONS,
    }  # fmt: skip
    recorded_kind = "position"
    schemes: ClassVar[dict[str, str]] = {
        "bag": "PATH[#TOPIC]: positions in a ROS 2 bag (MCAP, SQLite)",
        "mcap": "as bag",
        "file": "a log of a receiver's bytes",
        "sim": "a receiver on the vehicle of the simulated world, endless",
        "serial": "a receiver at a serial port, such as /dev/ttyACM0",
        "tcp": "HOST:PORT of a receiver or of a serial server",
        "gpsd": "HOST:PORT of gpsd, usually localhost:2947",
        **TOPIC_FORMS,
    }
    live_schemes: ClassVar[frozenset[str]] = frozenset({"serial", "tcp", "gpsd", *TOPIC_SCHEMES})

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._baudrate: int | None = None
        self._gpsd: GpsdReception | None = None

    def open(self) -> Sequence[StreamSpec]:
        self.close()
        match self.sensor.scheme:
            case "sim":
                source: SimulatedSource | LogSource | DeviceSource = SimulatedSource(self.sensor)
            case "file":
                source = LogSource(self.sensor)
            case _:
                device = DeviceSource(self.sensor, self._baudrate, self._gpsd)
                self._baudrate, self._gpsd = device.baudrate or None, device.gpsd
                source = device
        self.source = source
        return [source.spec]
