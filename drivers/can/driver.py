"""CAN buses: frames of an interface (SocketCAN), of logs, of the simulated vehicle; signals by DBC.

The stream with the sensor's name has every frame as it came.  A sample is a frame: ``id`` (with
the flags of linux/can.h), ``len``, ``flags``, ``data`` (u1[8], or u1[64] with CAN FD).  The chosen
signals of a message are the stream ``NAME_MESSAGE``, with a channel for each signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from drivers.can.simulated import DATABASE, SIM_CAN_OPTIONS, SimulatedSource
from drivers.can.stream import Decoding
from drivers.kit.driver import SensorConfig
from drivers.kit.recorded_source import LATE_NS
from drivers.kit.source_driver import SourceDriver
from drivers.kit.topics.connect import TOPIC_FORMS, TOPIC_OPTIONS, TOPIC_SCHEMES
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option, OptionTable


class CanDriver(SourceDriver):
    """Records the frames of a CAN bus, and signals by a database (DBC).

    ``can:INTERFACE`` receives from an interface that is up.  The stamp of a frame is the kernel's.
    Frames that the kernel dropped because the socket's buffer was full are `Lost`, cause
    ``overflow``; frames that the controller dropped are `Lost`, cause ``device``, without a count.
    The interface's error messages are recorded as frames, counted in a `State` once a second, and
    followed: the lasting state ``bus`` is ``error-active``, ``error-warning``, ``error-passive`` or
    ``bus-off``.  ``can:HOST:PORT`` receives the same from a stand-in (`drivers.can.connection`).

    ``file:PATH`` plays a log with its stamps.  A damaged log gives its complete frames and then
    raises SourceError.

    >>> options = check_options(CanDriver.options, {"dbc": "/a.dbc", "signals": ["Motion.Speed"]})
    >>> driver = CanDriver(SensorConfig("can", "can", "can0", options))
    >>> frames, motion = driver.open()  # DeviceError: no frame arrives
    >>> sample = driver.read()
    >>> sample.data["id"]               # u4[n], an identifier for each frame
    >>> driver.close()
    """

    options: ClassVar[OptionTable] = {
        "dbc": Option(
            "path",
            None,
            "database of the bus (DBC; also ARXML, KCD, SYM) for the signals; sim: its own",
        ),
        "signals": Option(
            "list",
            [],
            "signals to decode: MESSAGE.SIGNAL, MESSAGE.*, SIGNAL where one message has it, or *",
            items="str",
        ),
        "fd": Option(
            "bool",
            None,
            "record frames of CAN FD (default: as the interface or the log has them; sim: no)",
        ),
        "channel": Option(
            "str", None, "file: channel or interface of the log (default: the only one)"
        ),
        "socket_buffer_mb": Option(
            "float", 8.0, "can: receive buffer of the socket [MB]", minimum=0.1, maximum=2000
        ),
        "timeout_s": Option(
            "float",
            5.0,
            "can: silence after which the bus is lost [s]; 0: a silent bus is not lost",
            minimum=0,
            maximum=86400,
        ),
        "rate": Option(
            "float",
            None,
            "frames per second: of sim (default: 310, without filler); of other sources, the "
            "bus's nominal rate",
            minimum=0.001,
            maximum=100_000,
        ),
        "to": Option(
            "str",
            None,
            "emulate: interface, or HOST:PORT of a stand-in, to which `recorder emulate` sends the "
            "frames (default: a free port of this machine)",
        ),
        **SIM_CAN_OPTIONS,
        **TOPIC_OPTIONS,
    }
    recorded_kind = "can"
    schemes: ClassVar[dict[str, str]] = {
        "bag": "PATH[#TOPIC]: frames in a ROS 2 bag (MCAP, SQLite)",
        "mcap": "as bag",
        "can": "INTERFACE, such as can0; or HOST:PORT of a stand-in",
        "file": "a log: .asc, .blf, or .log of candump",
        "sim": "the bus of the simulated vehicle, endless",
        **TOPIC_FORMS,
    }
    live_schemes: ClassVar[frozenset[str]] = frozenset({"can", *TOPIC_SCHEMES})
    sim_origin_ns = 0  # start of the simulated bus

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._decoding: Decoding | None = None

    def open(self) -> Sequence[StreamSpec]:
        """Open the source.

        Raises:
            ConfigError: the database cannot be read, or a signal is not in it.
            SourceError: the address has a wrong form; the file is missing, is no log, or has no
                frame to record.
            DeviceError: the interface is missing or down, or no frame arrives.
        """
        self.close()
        self.late_ns = LATE_NS if self.sensor.scheme == "file" else 0
        # A device may be opened many times; its database is read once.
        decoding = self._decoding = self._decoding or self._read_database()
        match self.sensor.scheme:
            case "sim":
                return self.begin(SimulatedSource(self.sensor, decoding))
            case "can":
                from drivers.can.live import LiveSource

                live = LiveSource(self.sensor, decoding)
                return self.begin(live, live.warnings)
            case _:
                from drivers.can.played import LogSource

                return self.begin(LogSource(self.sensor, decoding))

    def _read_database(self) -> Decoding:
        options = self.sensor.options
        database = None if options["dbc"] is None else Path(options["dbc"])
        if database is None and self.sensor.scheme == "sim" and options["signals"]:
            database = DATABASE
        return Decoding(self.sensor, database, options["signals"])
