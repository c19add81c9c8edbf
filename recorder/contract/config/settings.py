"""The config as values: frozen dataclasses, each of whose fields is a key of its section.

A field's `key` describes what the file may hold; type and default are the field's own.  A new key
is a new field here.  `recorder.contract.config.loading` makes the values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import to_builtins
from msgspec.structs import replace

from recorder.contract.config.options import Option, OptionTable

VERSION = 1
ARCHIVES = ("ncore", "edgefirst", "l5kit", "vrs", "mcap")
ALL_CAMERAS = "*"
"""The entry of ``redact`` for cameras without one of their own."""
PACES = ("realtime", "max")
MAX_INCOMPLETE = 0.01
"""Default of `SensorEntry.max_incomplete`."""
UPLOAD_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")
DEFAULT_NAME = "{hostname}_{utc:%Y_%m_%d_%H_%M_%S}"


def key(description: str, type: str = "", **more: Any) -> Option:
    """An option whose default, and whose type unless given, are those of the field it annotates.

    Args:
        description, more: as for `Option`.
        type: one of `recorder.contract.config.options.TYPES`.
    """
    return Option(type, None, description, **more)


@dataclass(frozen=True, slots=True)
class SplitSettings:
    """When a session continues in a new part; None: never for that reason."""

    minutes: Annotated[float | None, key("begin a new part after [min]", minimum=0.1)] = None
    gb: Annotated[float | None, key("begin a new part at [GB, 1e9]", minimum=0.01)] = None


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Where sessions are made, and what they are called; `root` is absolute once it is loaded."""

    root: Annotated[Path, key("folder in which sessions are made")] = Path("sessions")
    name: Annotated[str, key("template of a session's name")] = DEFAULT_NAME
    metadata: Annotated[Mapping[str, Any], key("free-form; goes into each session")] = field(
        default_factory=dict
    )
    autostart: Annotated[bool, key("the daemon starts a session by itself")] = False
    split: SplitSettings = SplitSettings()


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """How a driver's process, or the writer's, is run; the defaults ask for nothing.

    A `policy` of None is inherited, an `io_class` of None follows the niceness.
    """

    cpus: Annotated[tuple[int, ...], key("CPUs that the process may run on; all where empty")] = ()
    nice: Annotated[int, key("its niceness", minimum=-20, maximum=19)] = 0
    policy: Annotated[
        str | None, key("scheduling policy", choices=("other", "batch", "idle", "fifo", "rr"))
    ] = None
    priority: Annotated[int, key("of fifo and rr", minimum=1, maximum=99)] = 1
    io_class: Annotated[
        str | None, key("I/O class", choices=("realtime", "best-effort", "idle"))
    ] = None
    io_level: Annotated[int, key("within its I/O class, 0 first", minimum=0, maximum=7)] = 4


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """How samples reach the disk; MB and GB are 1e6 and 1e9 bytes."""

    sync_interval_ms: Annotated[int, key("time between syncs [ms]", minimum=1)] = 200
    min_free_gb: Annotated[float, key("space to leave free [GB, 1e9]", minimum=0)] = 5.0
    buffer_mb: Annotated[float, key("buffers of all drivers [MB, 1e6]", minimum=1)] = 256.0
    require_mount: Annotated[bool, key("root must be on a mounted volume")] = False
    require_encrypted: Annotated[bool, key("root must be encrypted on its disk")] = False
    process: ProcessSettings = ProcessSettings()

    @property
    def min_free_bytes(self) -> int:
        return round(self.min_free_gb * 1e9)

    @property
    def buffer_bytes(self) -> int:
        return round(self.buffer_mb * 1e6)


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long sessions are kept; None: for ever."""

    gb: Annotated[float | None, key("most that sessions may take [GB, 1e9]", minimum=0)] = None
    days: Annotated[float | None, key("age at which sessions are deleted", minimum=0)] = None


@dataclass(frozen=True, slots=True)
class RecordFormatSettings:
    """Which streams' data goes into session.vrs."""

    enabled: Annotated[bool, key("write session.vrs")] = True
    streams: Annotated[tuple[str, ...], key("streams whose data goes into it", items="str")] = (
        "imu",
    )


@dataclass(frozen=True, slots=True)
class FinalizeStep:
    """One archive to pack after a session: its name and options."""

    archive: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Where the daemon listens; paths are absolute."""

    socket: Annotated[Path | None, key("control socket")] = None
    tcp: Annotated[str | None, key("address to listen on besides")] = None
    curve_keys: Annotated[Path | None, key("folder of CURVE keys for tcp")] = None


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where the daemon serves metrics; None: nowhere."""

    port: Annotated[int | None, key("HTTP port", minimum=1, maximum=65535)] = None


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """Where the live process serves the dashboard, and to whom; paths are absolute."""

    port: Annotated[int, key("port; 0: one that is free", minimum=0, maximum=65535)] = 8377
    bind: Annotated[str, key("address to listen on")] = "127.0.0.1"
    token: Annotated[str | None, key("password of viewers")] = field(default=None, repr=False)
    origins: Annotated[tuple[str, ...], key("sites that may connect", items="str")] = ()
    certificate: Annotated[Path | None, key("file of the TLS certificate")] = None
    key: Annotated[Path | None, key("file of its private key")] = None
    clients: Annotated[int, key("most viewers at a time", minimum=1, maximum=1000)] = 8

    def for_process(self) -> dict[str, Any]:
        """The mapping that the live process reads as JSON from its standard input."""
        wire: dict[str, Any] = to_builtins(asdict(self), enc_hook=str)
        return wire


@dataclass(frozen=True, slots=True)
class RedactSettings:
    """One entry of ``redact``: the program that finds what archives must not show of a camera.

    Attributes:
        camera: name of the stream, or `ALL_CAMERAS`.
        folder: working directory of the command: the folder of the config file.
        command: empty for a camera whose pictures are packed as they were recorded.
    """

    camera: str
    folder: Path
    command: Annotated[
        tuple[str, ...], key("program and arguments", items="str", required=True)
    ] = ()
    quality: Annotated[
        int | None,
        key("quality of the JPEGs; null: the camera's setting", minimum=1, maximum=100),
    ] = None
    timeout_s: Annotated[float, key("most time for a picture [s]", minimum=0.1)] = 60.0
    start_timeout_s: Annotated[float, key("most time for the first picture [s]", minimum=0.1)] = (
        300.0
    )


@dataclass(frozen=True, slots=True)
class TriggerSettings:
    """One entry of ``triggers``: a condition, and what is kept when it comes true.

    `when` and `until` are expressions (`recorder.contract.expressions`).
    """

    name: str
    when: Annotated[str, key("condition, such as imu.acc[0] < -4.0", required=True)]
    until: Annotated[str | None, key("what lets it fire again; None: that `when` ends")] = None
    duration: Annotated[float, key("the condition must have held for [s]", minimum=0)] = 0.0
    before: Annotated[float, key("keep before the moment [s]", minimum=0, maximum=86400)] = 10.0
    after: Annotated[float, key("keep after the moment [s]", minimum=0, maximum=86400)] = 10.0
    cooldown: Annotated[float, key("do not fire again within [s]", minimum=0)] = 0.0


@dataclass(frozen=True, slots=True)
class RingSettings:
    """Record all the time, and keep only what events ask for."""

    seconds: Annotated[float, key("length of the ring [s]", minimum=1)] = 300.0
    gb: Annotated[float, key("most that its parts may take [GB, 1e9]", minimum=0.01)] = 50.0
    medium: Annotated[str, key("where it is", choices=("disk", "ram"))] = "disk"
    part: Annotated[
        float | None,
        key("length of its parts [s]; None: 45 on disk, 10 in RAM", minimum=5, maximum=3600),
    ] = None
    folder: Annotated[Path, key("of ram: where a tmpfs is mounted")] = Path("/run/recorder_ring")

    @property
    def part_seconds(self) -> float:
        return self.part or (10.0 if self.medium == "ram" else 45.0)

    @property
    def ram_folder(self) -> Path | None:
        """Where parts are in RAM; None for a ring on disk."""
        return self.folder if self.medium == "ram" else None


@dataclass(frozen=True, slots=True)
class UploadSettings:
    """Where finished sessions are brought, and when."""

    url: Annotated[str | None, key("s3://BUCKET/PREFIX or file:///FOLDER; null: nowhere")] = None
    when: Annotated[str, key("idle, always, or hours of the day such as 22:00-06:00")] = "idle"
    mbit: Annotated[float | None, key("most to send on average [Mbit/s]", minimum=0.01)] = None
    metered: Annotated[bool, key("use links that cost by volume")] = False
    credentials: Annotated[
        Path | None, key("file of keys; null: the environment, or ~/.aws/credentials")
    ] = None

    recipients: Annotated[
        tuple[str, ...], key("encrypt for these public keys of age (age1...)", items="str")
    ] = ()

    @property
    def hours(self) -> tuple[int, int] | None:
        """Begin and end of the hours in `when`, in minutes of the local day; None without."""
        if (found := UPLOAD_HOURS.fullmatch(self.when)) is None:
            return None
        begin, begin_minute, end, end_minute = map(int, found.groups())
        return begin * 60 + begin_minute, end * 60 + end_minute


@dataclass(frozen=True, slots=True)
class CustodySettings:
    """What signs the sessions; None: they are not signed."""

    key: Annotated[Path | None, key("file of the vehicle's key; null: nothing is signed")] = None


@dataclass(frozen=True, slots=True)
class SensorEntry:
    """One entry of ``sensors``.

    Attributes:
        name: the sensor's name.
        scheme, address: the source, split at its first colon; the address of a file-like source
            is an absolute path (``session`` may have ``#SENSOR`` behind it).
        options: the driver's options, checked, with defaults; paths absolute.
        live: the source is a device; all others are played.
    """

    name: str
    driver: Annotated[str, key("module of drivers, or a dotted module name", required=True)]
    scheme: str
    address: str
    options: Mapping[str, Any]
    pace: Annotated[str, key("how fast a played source plays", choices=PACES)] = "realtime"
    loop: Annotated[bool, key("a played source starts again at its end")] = False
    live: bool = False
    required: Annotated[bool, key("without this sensor a session is not healthy")] = True
    min_rate: Annotated[float | None, key("rate below which it is unhealthy [Hz]", minimum=0)] = (
        None
    )
    max_incomplete: Annotated[
        float, key("share of a stream's samples that may lack parts", minimum=0, maximum=1)
    ] = MAX_INCOMPLETE
    process: ProcessSettings = ProcessSettings()

    @property
    def source(self) -> str:
        """The source with its path resolved; show it only through `mask_passwords`."""
        return f"{self.scheme}:{self.address}"

    def for_driver(self) -> dict[str, Any]:
        """The mapping that a driver's process reads as JSON from its standard input."""
        keys = ("name", "scheme", "address", "options", "pace", "loop")
        return {key: getattr(self, key) for key in keys}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """The config's sections."""

    session: SessionSettings
    sensors: Annotated[
        tuple[SensorEntry, ...], key("one entry per sensor, by its name", "map", required=True)
    ]
    storage: StorageSettings
    retention: RetentionSettings
    record_format: RecordFormatSettings
    calibration: Annotated[Path | None, key("calibration file, copied into each session")]
    finalize: Annotated[
        tuple[FinalizeStep, ...], key("archives to pack: a name, or {name: {option: value}}")
    ] = ()
    redact: Annotated[
        tuple[RedactSettings, ...],
        key("what archives do not show, by camera: {command: [PROGRAM]}, or keep", "map"),
    ] = ()
    report: Annotated[bool, key("write report.html after each session")] = False
    control: ControlSettings
    metrics: MetricsSettings
    live: LiveSettings | None
    ring: RingSettings | None
    upload: UploadSettings
    custody: CustodySettings
    triggers: Annotated[
        tuple[TriggerSettings, ...], key("conditions by name: what is worth keeping", "map")
    ] = ()


_TYPES = {int: "int", float: "float", str: "str", bool: "bool", Path: "path"}
_TYPES |= {tuple: "list", Mapping: "map"}


def section_of(hint: Any) -> Any:
    """Return the section in a field's type, such as ``LiveSettings | None``; None without one."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return next((kind for kind in kinds if is_dataclass(kind)), None)


def option_table(settings: Any) -> dict[str, Option]:
    """The keys of a section: its fields that are sections themselves or have a `key`."""
    hints = get_type_hints(settings, include_extras=True)
    table = {}
    for each in fields(settings):
        hint = hints[each.name]
        if (section := section_of(hint)) is not None:
            table[each.name] = Option("map", keys=option_table(section))
        elif get_origin(hint) is Annotated:
            kind, option = get_args(hint)
            kind = get_args(kind)[0] if isinstance(kind, UnionType) else kind  # of T | None
            default: Any = None if each.default is MISSING else each.default
            if each.default_factory is not MISSING:
                default = each.default_factory()
            elif isinstance(default, tuple):
                default = {} if option.type == "map" else list(default)
            elif isinstance(default, Path):
                default = str(default)
            type_name = option.type or _TYPES[get_origin(kind) or kind]
            table[each.name] = replace(option, type=type_name, default=default)
    return table


_VERSION = Option("int", VERSION, "version of this file's format", required=True)
SECTIONS: OptionTable = {"version": _VERSION, **option_table(Sections)}
"""Every key but those of the sensors' entries."""

_ENTRY = option_table(SensorEntry)
_SOURCE = Option("str", None, "SCHEME:ADDRESS", required=True)
SENSOR_KEYS: OptionTable = {"driver": _ENTRY["driver"], "source": _SOURCE, **_ENTRY}
"""The keys of a sensor's entry that are not its driver's options."""
