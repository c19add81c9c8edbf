"""The config as values: frozen dataclasses, and the option tables that check their sections.

Names and meaning are those of DESIGN section 5.  `recorder.contract.config.loading` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.contract.config.options import Option

VERSION = 1
ARCHIVES = ("ncore", "edgefirst", "l5kit", "vrs")
PACES = ("realtime", "max")
DEFAULT_NAME = "{hostname}_{utc:%Y_%m_%d_%H_%M_%S}"

PROCESS_KEYS: Mapping[str, Option] = {
    "cpus": Option("list", [], "CPUs that the process may run on; all where empty"),
    "nice": Option("int", 0, "its niceness", minimum=-20, maximum=19),
    "policy": Option(
        "str", None, "scheduling policy", choices=("other", "batch", "idle", "fifo", "rr")
    ),
    "priority": Option("int", 1, "of fifo and rr", minimum=1, maximum=99),
    "io_class": Option("str", None, "I/O class", choices=("realtime", "best-effort", "idle")),
    "io_level": Option("int", 4, "within its I/O class, 0 first", minimum=0, maximum=7),
}
"""How a driver's process, or the writer's, is run."""

SECTIONS: Mapping[str, Option] = {
    "version": Option("int", VERSION, "version of this file's format", required=True),
    "session": Option(
        "map",
        keys={
            "root": Option("path", "sessions", "folder in which sessions are made"),
            "name": Option("str", DEFAULT_NAME, "template of a session's name"),
            "metadata": Option("map", {}, "free-form; goes into each session"),
            "autostart": Option("bool", False, "the daemon starts a session by itself"),
            "split": Option(
                "map",
                keys={
                    "minutes": Option("float", None, "begin a new part after [min]", minimum=0.1),
                    "gb": Option("float", None, "begin a new part at [GB, 1e9]", minimum=0.01),
                },
            ),
        },
    ),
    "sensors": Option("map", None, "one entry per sensor, by its name", required=True),
    "storage": Option(
        "map",
        keys={
            "sync_interval_ms": Option("int", 200, "time between syncs [ms]", minimum=1),
            "min_free_gb": Option("float", 5.0, "space to leave free [GB, 1e9]", minimum=0),
            "buffer_mb": Option("float", 256.0, "buffers of all drivers [MB, 1e6]", minimum=1),
            "require_mount": Option("bool", False, "root must be on a mounted volume"),
            "process": Option("map", keys=PROCESS_KEYS),
        },
    ),
    "retention": Option(
        "map",
        keys={
            "gb": Option("float", None, "most that sessions may take [GB, 1e9]", minimum=0),
            "days": Option("float", None, "age at which sessions are deleted", minimum=0),
        },
    ),
    "record_format": Option(
        "map",
        keys={
            "enabled": Option("bool", True, "write session.vrs"),
            "streams": Option("list", ["imu"], "streams whose data goes into it", items="str"),
        },
    ),
    "calibration": Option("path", None, "calibration file, copied into each session"),
    "finalize": Option("list", [], "archives to pack: a name, or {name: {option: value}}"),
    "control": Option(
        "map",
        keys={
            "socket": Option("path", None, "control socket"),
            "tcp": Option("str", None, "address to listen on besides"),
            "curve_keys": Option("path", None, "folder of CURVE keys for tcp"),
        },
    ),
    "metrics": Option(
        "map", keys={"port": Option("int", None, "HTTP port", minimum=1, maximum=65535)}
    ),
}
"""Every key but those of the sensors' entries."""

SENSOR_KEYS: Mapping[str, Option] = {
    "driver": Option("str", None, "module of drivers, or a dotted module name", required=True),
    "source": Option("str", None, "SCHEME:ADDRESS", required=True),
    "pace": Option("str", "realtime", "how fast a played source plays", choices=PACES),
    "loop": Option("bool", False, "a played source starts again at its end"),
    "required": Option("bool", True, "without this sensor a session is not healthy"),
    "min_rate": Option("float", None, "rate below which it is unhealthy [Hz]", minimum=0),
    "process": Option("map", keys=PROCESS_KEYS),
}
"""The keys of a sensor's entry that are not its driver's options."""


@dataclass(frozen=True, slots=True)
class SplitSettings:
    """When a session goes on in a new part; None: never for that reason."""

    minutes: float | None
    gb: float | None


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Where sessions are made, and what they are called; `root` is absolute."""

    root: Path
    name: str
    metadata: Mapping[str, Any]
    autostart: bool
    split: SplitSettings


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """How a driver's process, or the writer's, is run; the defaults ask for nothing.

    Attributes:
        cpus: CPUs that it may run on; all where empty.
        nice: its niceness.
        policy: its scheduling policy; None: as it is inherited.
        priority: of the policies fifo and rr.
        io_class: its I/O class; None: follows the niceness.
        io_level: 0 (first) to 7 within its I/O class.
    """

    cpus: tuple[int, ...] = ()
    nice: int = 0
    policy: str | None = None
    priority: int = 1
    io_class: str | None = None
    io_level: int = 4


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """How samples reach the disk; MB and GB are 1e6 and 1e9 bytes."""

    sync_interval_ms: int
    min_free_gb: float
    buffer_mb: float
    require_mount: bool
    process: ProcessSettings = field(default_factory=ProcessSettings)

    @property
    def min_free_bytes(self) -> int:
        return round(self.min_free_gb * 1e9)

    @property
    def buffer_bytes(self) -> int:
        return round(self.buffer_mb * 1e6)


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long sessions are kept; None: for ever."""

    gb: float | None
    days: float | None


@dataclass(frozen=True, slots=True)
class RecordFormatSettings:
    """Which streams' data goes into session.vrs."""

    enabled: bool
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FinalizeStep:
    """One archive to pack after a session: its name and options."""

    archive: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Where the daemon listens; paths are absolute."""

    socket: Path | None
    tcp: str | None
    curve_keys: Path | None


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where the daemon serves metrics; None: nowhere."""

    port: int | None


@dataclass(frozen=True, slots=True)
class SensorEntry:
    """One entry of ``sensors``.

    Attributes:
        name: the sensor's name.
        driver: module of ``drivers``, or a dotted module name.
        scheme, address: the source, split at its first colon; the address of a file-like source
            is an absolute path (``session`` may have ``#SENSOR`` behind it).
        options: the driver's options, checked, with defaults; paths absolute.
        pace: ``realtime`` or ``max``.
        loop: a played source starts again at its end.
        live: the source is a device; all others are played.
        required: without it a session is not healthy (true unless set).
        min_rate: rate below which it is unhealthy, in Hz; None: no such limit.
        process: how its process is run.
    """

    name: str
    driver: str
    scheme: str
    address: str
    options: Mapping[str, Any]
    pace: str = "realtime"
    loop: bool = False
    live: bool = False
    required: bool = True
    min_rate: float | None = None
    process: ProcessSettings = field(default_factory=ProcessSettings)

    @property
    def source(self) -> str:
        """The source with its path resolved; show it only through `mask_passwords`."""
        return f"{self.scheme}:{self.address}"

    def for_driver(self) -> dict[str, Any]:
        """The mapping that a driver's process reads as JSON from its standard input."""
        return {
            "name": self.name,
            "scheme": self.scheme,
            "address": self.address,
            "options": dict(self.options),
            "pace": self.pace,
            "loop": self.loop,
        }
