"""Settings as a frozen struct for each section of the config, with a field for each key.

The structs are the schema: a field has the key's type and default, its `key` description and
bounds.  A new key is a new field here.  `recorder.config.loading` reads the file.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, convert, inspect, structs, to_builtins

from recorder.common.struct_codec import prepare_type
from recorder.config.options import Option, OptionTable

T = TypeVar("T")

VERSION = 1
ARCHIVES = ("ncore", "edgefirst", "l5kit", "vrs", "mcap")
ALL_CAMERAS = "*"
"""Key in ``redact`` for cameras without an entry of their own."""
PACES = ("realtime", "max")
MAX_INCOMPLETE = 0.01
"""Default of `SensorEntry.max_incomplete`."""
UPLOAD_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")
LEAST_TOKEN = 16
_HOST = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_NAME = re.compile(rf"{_HOST}(?:\.{_HOST})*\.?")
_TOKEN = re.compile(r"[!-~]+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]*|\[[0-9a-f:.]+\])(?::\d{1,5})?")
"""Pattern of an origin as browsers send it (RFC 6454, 6.2); Foxglove's apps send ``file://``."""
DEFAULT_NAME = "{hostname}_{utc:%Y_%m_%d_%H_%M_%S}"


def key(description: str, *, ge: float | None = None, le: float | None = None, **more: Any) -> Meta:
    """Describe a key of the file; its type and default are those of the field.

    Args:
        description: as for `Option`.
        ge, le: bounds of a number, both included.
        more: further attributes of the `Option`.
    """
    return Meta(description=description, ge=ge, le=le, extra=more)


class SplitSettings(Struct, frozen=True):
    """Conditions for a new part of a session; None: no such condition."""

    minutes: Annotated[float, key("begin a new part after [min]", ge=0.1)] | None = None
    gb: Annotated[float, key("begin a new part at [GB, 1e9]", ge=0.01)] | None = None


class SessionSettings(Struct, frozen=True):
    """Location and names of sessions; `root` is absolute once it is loaded."""

    root: Annotated[Path, key("folder in which sessions are made")] = Path("sessions")
    name: Annotated[str, key("template of a session's name")] = DEFAULT_NAME
    metadata: Annotated[Mapping[str, Any], key("free-form; goes into each session")] = {}
    autostart: Annotated[bool, key("the daemon starts a session by itself")] = False
    split: SplitSettings = SplitSettings()


class ProcessSettings(Struct, frozen=True):
    """Scheduling of a driver's process or the writer's; the defaults change nothing.

    A `policy` of None is inherited, an `io_class` of None follows the niceness.
    """

    cpus: Annotated[
        tuple[Annotated[int, Meta(ge=0)], ...],
        key("CPUs that the process may run on; all where empty"),
    ] = ()
    nice: Annotated[int, key("its niceness", ge=-20, le=19)] = 0
    policy: Annotated[
        str | None, key("scheduling policy", choices=("other", "batch", "idle", "fifo", "rr"))
    ] = None
    priority: Annotated[int, key("of fifo and rr", ge=1, le=99)] = 1
    io_class: Annotated[
        str | None, key("I/O class", choices=("realtime", "best-effort", "idle"))
    ] = None
    io_level: Annotated[int, key("within its I/O class, 0 first", ge=0, le=7)] = 4


class StorageSettings(Struct, frozen=True):
    """Durability and buffers of samples; MB and GB are 1e6 and 1e9 bytes."""

    sync_interval_ms: Annotated[int, key("time between syncs [ms]", ge=1)] = 200
    min_free_gb: Annotated[float, key("space to leave free [GB, 1e9]", ge=0)] = 5.0
    buffer_mb: Annotated[float, key("buffers of all drivers [MB, 1e6]", ge=1)] = 256.0
    require_mount: Annotated[bool, key("root must be on a mounted volume")] = False
    require_encrypted: Annotated[bool, key("root must be encrypted on its disk")] = False
    process: ProcessSettings = ProcessSettings()

    @property
    def min_free_bytes(self) -> int:
        return round(self.min_free_gb * 1e9)

    @property
    def buffer_bytes(self) -> int:
        return round(self.buffer_mb * 1e6)


class RetentionSettings(Struct, frozen=True):
    """Limits on kept sessions; None: no limit."""

    gb: Annotated[float, key("most that sessions may take [GB, 1e9]", ge=0)] | None = None
    days: Annotated[float, key("age at which sessions are deleted", ge=0)] | None = None


class RecordFormatSettings(Struct, frozen=True):
    """Selection of streams whose data goes into session.vrs."""

    enabled: Annotated[bool, key("write session.vrs")] = True
    streams: Annotated[tuple[str, ...], key("streams whose data goes into it")] = ("imu",)
    compression: Annotated[
        str, key("compression of its records", choices=("none", "lz4", "zstd"))
    ] = "none"


class FinalizeStep(Struct, frozen=True):
    """One archive to pack after a session: its name and options."""

    archive: str
    options: Mapping[str, Any]


class ControlSettings(Struct, frozen=True):
    """Addresses at which the daemon listens; paths are absolute."""

    socket: Annotated[Path | None, key("control socket")] = None
    tcp: Annotated[str | None, key("address to listen on besides")] = None
    curve_keys: Annotated[Path | None, key("folder of CURVE keys for tcp")] = None


class MetricsSettings(Struct, frozen=True):
    """Address at which the daemon serves metrics; None: it serves none."""

    port: Annotated[int, key("HTTP port", ge=1, le=65535)] | None = None


class LiveSettings(Struct, frozen=True):
    """Address and access rules of the dashboard; paths are absolute."""

    port: Annotated[int, key("port; 0: one that is free", ge=0, le=65535)] = 8377
    bind: Annotated[str, key("address to listen on")] = "127.0.0.1"
    token: Annotated[str | None, key("password of viewers")] = None
    origins: Annotated[tuple[str, ...], key("sites that may connect")] = ()
    certificate: Annotated[Path | None, key("file of the TLS certificate")] = None
    key: Annotated[Path | None, key("file of its private key")] = None
    clients: Annotated[int, key("most viewers at a time", ge=1, le=1000)] = 8

    def __repr__(self) -> str:
        return f"LiveSettings({self.bind}:{self.port})"  # without the token

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield (key in the section, message) for each fault."""
        if not (_is_address(self.bind) or _is_name(self.bind)):
            yield "bind", f"{self.bind!r:.60} is neither an address nor a host's name"
        elif not is_loopback(self.bind) and self.token is None:
            yield "bind", f"{self.bind} is reached from other machines, which needs live.token"
        if self.token is not None:
            if len(self.token) < LEAST_TOKEN:
                text = f"needs {LEAST_TOKEN} characters or more, this one has {len(self.token)}"
                yield "token", text
            elif not _TOKEN.fullmatch(self.token):
                yield "token", "needs letters, digits and signs of ASCII, and no spaces"
        for index, origin in enumerate(self.origins):
            if not _ORIGIN.fullmatch(origin):
                wanted = "SCHEME://HOST or SCHEME://HOST:PORT in lower case, without a path"
                yield f"origins[{index}]", f"{origin!r:.100} is not of the form {wanted}"
        if self.key is None and self.certificate is not None:
            yield "certificate", "needs live.key as well: the certificate's private key"
        if self.certificate is None and self.key is not None:
            yield "key", "needs live.certificate as well"


class RedactSettings(Struct, frozen=True):
    """One entry of ``redact``: the program that finds what archives must not show.

    Attributes:
        camera: name of the stream, or `ALL_CAMERAS`.
        folder: working directory of the command: the folder of the config file.
        command: empty if the camera's pictures are packed as they were recorded.
    """

    camera: str
    folder: Path
    command: Annotated[tuple[str, ...], key("program and arguments", required=True)] = ()
    quality: (
        Annotated[int, key("quality of the JPEGs; null: the camera's setting", ge=1, le=100)] | None
    ) = None
    timeout_s: Annotated[float, key("most time for a picture [s]", ge=0.1)] = 60.0
    start_timeout_s: Annotated[float, key("most time for the first picture [s]", ge=0.1)] = 300.0


class TriggerSettings(Struct, frozen=True):
    """One entry of ``triggers``: a condition, and the interval to keep when it becomes true.

    `when` and `until` are expressions (`recorder.config.expressions`).
    """

    name: str
    when: Annotated[str, key("condition, such as imu.acc[0] < -4.0")]
    until: Annotated[str | None, key("what lets it fire again; None: that `when` ends")] = None
    duration: Annotated[float, key("the condition must have held for [s]", ge=0)] = 0.0
    before: Annotated[float, key("keep before the moment [s]", ge=0, le=86400)] = 10.0
    after: Annotated[float, key("keep after the moment [s]", ge=0, le=86400)] = 10.0
    cooldown: Annotated[float, key("do not fire again within [s]", ge=0)] = 0.0


class RingSettings(Struct, frozen=True):
    """Settings of a ring: it records all the time and keeps only what events select."""

    seconds: Annotated[float, key("length of the ring [s]", ge=1)] = 300.0
    gb: Annotated[float, key("most that its parts may take [GB, 1e9]", ge=0.01)] = 50.0
    medium: Annotated[str, key("where it is", choices=("disk", "ram"))] = "disk"
    part: (
        Annotated[float, key("length of its parts [s]; None: 45 on disk, 10 in RAM", ge=5, le=3600)]
        | None
    ) = None
    folder: Annotated[Path, key("of ram: where a tmpfs is mounted")] = Path("/run/recorder_ring")

    @property
    def part_seconds(self) -> float:
        return self.part or (10.0 if self.medium == "ram" else 45.0)

    @property
    def ram_folder(self) -> Path | None:
        """Folder of parts in RAM; None for a ring on disk."""
        return self.folder if self.medium == "ram" else None


class UploadSettings(Struct, frozen=True):
    """Destination and schedule of uploads of finished sessions."""

    url: Annotated[str | None, key("s3://BUCKET/PREFIX or file:///FOLDER; null: nowhere")] = None
    when: Annotated[str, key("idle, always, or hours of the day such as 22:00-06:00")] = "idle"
    mbit: Annotated[float, key("most to send on average [Mbit/s]", ge=0.01)] | None = None
    metered: Annotated[bool, key("use links that cost by volume")] = False
    credentials: Annotated[
        Path | None, key("file of keys; null: the environment, or ~/.aws/credentials")
    ] = None

    recipients: Annotated[
        tuple[str, ...], key("encrypt for these public keys of age (age1...)")
    ] = ()

    @property
    def hours(self) -> tuple[int, int] | None:
        """Begin and end of the hours in `when`, in minutes of the local day; None without hours."""
        if (found := UPLOAD_HOURS.fullmatch(self.when)) is None:
            return None
        begin, begin_minute, end, end_minute = map(int, found.groups())
        return begin * 60 + begin_minute, end * 60 + end_minute


class CustodySettings(Struct, frozen=True):
    """Key that signs the sessions; None: sessions are not signed."""

    key: Annotated[Path | None, key("file of the vehicle's key; null: nothing is signed")] = None


class SensorEntry(Struct, frozen=True):
    """One entry of ``sensors``.

    Attributes:
        name: the sensor's name.
        scheme, address: the source, split at its first colon; the address of a file-like source
            is an absolute path (``session`` may have ``#SENSOR`` behind it).
        options: the driver's options, checked, with defaults; paths absolute.
        live: whether the source is a device; all others are played.
    """

    name: str
    driver: Annotated[str, key("module of drivers, or a dotted module name")]
    scheme: str
    address: str
    options: Mapping[str, Any]
    pace: Annotated[str, key("how fast a played source plays", choices=PACES)] = "realtime"
    loop: Annotated[bool, key("a played source starts again at its end")] = False
    live: bool = False
    required: Annotated[bool, key("without this sensor a session is not healthy")] = True
    min_rate: Annotated[float, key("rate below which it is unhealthy [Hz]", ge=0)] | None = None
    max_incomplete: Annotated[
        float, key("share of a stream's samples that may lack parts", ge=0, le=1)
    ] = MAX_INCOMPLETE
    process: ProcessSettings = ProcessSettings()

    @property
    def source(self) -> str:
        """Source with its path resolved; show it only through `mask_passwords`."""
        return f"{self.scheme}:{self.address}"

    def for_driver(self) -> dict[str, Any]:
        """Return the mapping that the driver's process reads as JSON from standard input."""
        keys = ("name", "scheme", "address", "options", "pace", "loop")
        return {key: getattr(self, key) for key in keys}


class Sections(Struct, frozen=True, kw_only=True):
    """All sections of the config."""

    session: SessionSettings
    sensors: Annotated[
        tuple[SensorEntry, ...], key("one entry per sensor, by its name", type="map")
    ]
    storage: StorageSettings
    retention: RetentionSettings
    record_format: RecordFormatSettings
    calibration: Annotated[Path | None, key("calibration file, copied into each session")] = None
    finalize: Annotated[
        tuple[FinalizeStep, ...], key("archives to pack: a name, or {name: {option: value}}")
    ] = ()
    redact: Annotated[
        tuple[RedactSettings, ...],
        key("what archives do not show, by camera: {command: [PROGRAM]}, or keep", type="map"),
    ] = ()
    report: Annotated[bool, key("write report.html after each session")] = False
    control: ControlSettings
    metrics: MetricsSettings
    live: LiveSettings | None
    ring: RingSettings | None
    upload: UploadSettings
    custody: CustodySettings
    triggers: Annotated[
        tuple[TriggerSettings, ...], key("conditions by name: what is worth keeping", type="map")
    ] = ()


_TYPES: Mapping[type[inspect.Type], str] = {
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.StrType: "str",
    inspect.BoolType: "bool",
    inspect.CustomType: "path",
    inspect.VarTupleType: "list",
    inspect.DictType: "map",
}


def option_table(settings: type[Struct]) -> dict[str, Option]:
    """Make the option table of a section from its fields that are sections or have a `key`.

    A field without a default is a key that is required.
    """
    table = {}
    for each in structs.fields(settings):
        more: dict[str, Any] = {}
        found = inspect.type_info(each.type)
        while isinstance(found, inspect.Metadata | inspect.UnionType):
            if isinstance(found, inspect.Metadata):
                more |= (found.extra_json_schema or {}) | (found.extra or {})
                found = found.type
            else:  # T | None
                found = found.types[0]
        if isinstance(found, inspect.StructType):
            table[each.name] = Option("map", keys=option_table(found.cls))
        elif more:
            kind = more.pop("type", _TYPES[type(found)])
            default = {} if kind == "map" else to_builtins(each.default, enc_hook=str)
            table[each.name] = Option(
                kind,
                None if each.required else list(default) if kind == "list" else default,
                required=more.pop("required", each.required),
                minimum=getattr(found, "ge", None),
                maximum=getattr(found, "le", None),
                items="str" if isinstance(getattr(found, "item_type", 0), inspect.StrType) else "",
                **more,
            )
    return table


def plain_settings(settings: Struct) -> dict[str, Any]:
    """Convert settings to plain values for JSON; `read_settings` is the inverse."""
    values: dict[str, Any] = to_builtins(settings, enc_hook=str)
    return values


def read_settings(values: Any, kind: type[T], base: Path | None = None) -> T:
    """Convert plain values to settings; with a base, resolve paths relative to it.

    Raises:
        ValidationError: a value is not of its field's type.
    """

    def path(_: type, text: Any) -> Path:
        return Path(text) if base is None else (base / text).resolve()

    return convert(values, prepare_type(kind), dec_hook=path)


def is_loopback(bind: str) -> bool:
    """Return whether an address is reachable from this machine only."""
    return bind == "localhost" or (_is_address(bind) and ipaddress.ip_address(bind).is_loopback)


def _is_address(bind: str) -> bool:
    try:
        ipaddress.ip_address(bind)
    except ValueError:
        return False
    return True


def _is_name(bind: str) -> bool:
    last = bind.rstrip(".").rpartition(".")[2]
    return _NAME.fullmatch(bind) is not None and not last.isdigit()


_VERSION = Option("int", VERSION, "version of this file's format", required=True)
SECTIONS: OptionTable = {"version": _VERSION, **option_table(Sections)}
"""All keys except those of the sensors' entries."""

_ENTRY = option_table(SensorEntry)
_SOURCE = Option("str", None, "SCHEME:ADDRESS", required=True)
SENSOR_KEYS: OptionTable = {"driver": _ENTRY["driver"], "source": _SOURCE, **_ENTRY}
"""Keys of a sensor's entry that are not its driver's options."""
