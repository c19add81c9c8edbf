"""Strict reader of the config file, with file, line and key path in each error.

Usage::

    config = load_config(Path("rig.yaml"), schema_of)    # ConfigError names each fault and its
    place for entry in config.sensors:
        start_driver(entry.driver, json.dumps(entry.for_driver()))

`recorder.config.settings` declares the sections, `recorder.config.yaml_lines`
reads the YAML.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from msgspec import structs

from recorder.common.errors import ConfigError, ConfigFaultsError, UsageError
from recorder.common.files import find_numbered_files
from recorder.common.secret_masking import mask_value
from recorder.config.driver_schema import DATASET_SCHEMES, SESSION_SCHEMES, DriverSchema
from recorder.config.expressions import compile_expression
from recorder.config.names import STREAM_NAME, check_template
from recorder.config.options import OptionReader, OptionTable, suggest
from recorder.config.settings import (
    ALL_CAMERAS,
    ARCHIVES,
    SECTIONS,
    SENSOR_KEYS,
    VERSION,
    FinalizeStep,
    RedactSettings,
    RingSettings,
    Sections,
    SensorEntry,
    SplitSettings,
    TriggerSettings,
    UploadSettings,
    option_table,
    read_settings,
)
from recorder.config.yaml_lines import Document, read_yaml

P = ParamSpec("P")
T = TypeVar("T")

SchemaOf = Callable[[str], DriverSchema]
"""Function from a driver's name to its schema; raises ConfigError for an unknown driver."""

RECORDING_SCHEMES = frozenset({"vrs", "mcap", "bag", *DATASET_SCHEMES})
"""Schemes whose address may name a part of the recording after a ``#``."""
FILE_SCHEMES = frozenset({"file", "pcap", "osf", *RECORDING_SCHEMES, *SESSION_SCHEMES})
"""Schemes whose address is a path, relative to the config, that must exist."""

_DRIVER = re.compile(r"[a-z][a-z0-9_]*|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
_SOURCE = re.compile(r"([a-z][a-z0-9+.-]*):(.*)")
_EXISTING = {"control.curve_keys": False} | dict.fromkeys(
    ("calibration", "live.certificate", "live.key", "upload.credentials", "custody.key"), True
)
"""Paths that must exist, and whether they must be files."""
_STORE = re.compile(r"s3://[^/@?#]+(/[^?#]*)?|file:///.+")
_RECIPIENT = re.compile(r"age1[0-9a-z]+|ssh-(ed25519|rsa) [A-Za-z0-9+/=]+( [^\n]*)?")
_OF_DAEMON = (
    "session.autostart",
    "session.split.minutes",
    "session.split.gb",
    "retention.gb",
    "retention.days",
    "control.tcp",
    "ring",
    "triggers",
    "metrics.port",
)
"""Settings that only the daemon uses."""
SECTION = "redact"
KEEP = "keep"


class Config(Sections, frozen=True, kw_only=True):
    """Checked config; sources are not opened.

    Attributes:
        path: the file, absolute.
        document: the file's text and lines.
    """

    path: Path
    document: Document

    def sensor(self, name: str) -> SensorEntry:
        """Return the sensor with this name; raise KeyError for an unknown name."""
        for entry in self.sensors:
            if entry.name == name:
                return entry
        raise KeyError(name)

    def error(self, key: str, message: str) -> ConfigError:
        """Make an error with file and line for a key, for faults found after loading."""
        return self.document.fail(key, message)

    def find_daemon_settings(self) -> list[str]:
        """Return one sentence for each setting in the file that only the daemon uses."""
        return [
            f"{key}: only `recorder serve` acts on this key"
            for key in _OF_DAEMON
            if _is_on(self.document.values, key)
        ]


def load_config(
    path: Path,
    schema_of: SchemaOf,
    prefetch: Callable[[Iterable[str]], None] | None = None,
) -> Config:
    """Read a config file and check all of it.

    Args:
        path: the file.
        schema_of: returns a driver's schema by name.
        prefetch: called once with the names of all drivers before `schema_of`, so that it can load
            their schemas in parallel.

    Raises:
        ConfigFaultsError: all that is wrong with the sections and sensors, each with file, line and
            key path.
        ConfigError: what is wrong with the file as a whole, or with the settings together.
    """
    document = read_yaml(path)
    path = path.absolute()
    version = document.values.get("version", VERSION)
    if isinstance(version, int) and not isinstance(version, bool) and version != VERSION:
        raise document.fail("version", f"{version} is not supported; this recorder reads {VERSION}")
    reader = _ConfigReader(document, path.parent, [])
    sections = reader.read_all(schema_of, prefetch)
    if sections is None or reader.faults:
        raise ConfigFaultsError(reader.faults)
    return Config(path=path, document=document, **structs.asdict(sections))


def load_redact(path: Path) -> tuple[RedactSettings, ...]:
    """Read the section ``redact`` of a file, which may have other sections or none.

    Raises:
        ConfigFaultsError, ConfigError: the file, or an entry, is wrong, or there is no section.
    """
    reader = _ConfigReader(read_yaml(path), path.absolute().parent, [])
    cameras = reader.redact()
    if reader.faults:
        raise ConfigFaultsError(reader.faults)
    if not cameras:
        raise ConfigError(f"has no section {SECTION!r} with a camera", file=path, key=SECTION)
    return cameras


def asks_for_redaction(config: Path) -> bool:
    """Return whether a session's config asks for redaction; if damaged, whether it has the word."""
    try:
        return bool(read_yaml(config).values.get(SECTION))
    except ConfigError:
        try:
            return SECTION.encode() in config.read_bytes()
        except OSError:
            return False


def _is_on(values: Any, key: str) -> bool:
    """Return whether the file sets a key to a value that is not false, zero or empty."""
    for name in key.split("."):
        if not isinstance(values, Mapping) or name not in values:
            return False
        values = values[name]
    return bool(values)


@dataclass(frozen=True)
class _ConfigReader:
    """Reader of a config file, with the checks that option tables cannot express.

    Attributes:
        document: the file's text and lines.
        base: the file's folder: paths in the file are relative to it.
        faults: list to which all errors are added.
    """

    document: Document
    base: Path
    faults: list[ConfigError]

    def attempt(self, check: Callable[P, T], *args: P.args, **more: P.kwargs) -> T | None:
        """Run a check; return its result, or None and add its error to `faults`."""
        try:
            return check(*args, **more)
        except ConfigFaultsError as several:
            self.faults.extend(several.errors)
        except ConfigError as error:
            self.faults.append(error)
        return None

    def attempt_at(
        self, key: str, check: Callable[P, T], *args: P.args, **more: P.kwargs
    ) -> T | None:
        """Run a check as `attempt` does, and report its error at a key of the file."""
        try:
            return check(*args, **more)
        except UsageError as error:
            self.fault(key, str(error))
        return None

    def fault(self, key: str, message: str) -> None:
        """Add a fault at a key of the file."""
        self.faults.append(self.document.fail(key, message))

    def read(
        self,
        table: OptionTable,
        values: Mapping[str, Any],
        key: str,
        find: Callable[[str, str], Any] | None = None,
    ) -> dict[str, Any] | None:
        """Read a mapping of the file by its table; see `OptionReader`."""
        reader = OptionReader(self.document.fail, self.faults, find, null_is_absent=True)
        return reader.read(table, values, key)

    def check_cpus(self, process: dict[str, Any], key: str) -> None:
        """Add a fault, and empty the list, if a value in ``process.cpus`` is no CPU number."""
        for index, cpu in enumerate(process["cpus"]):
            if not isinstance(cpu, int) or isinstance(cpu, bool) or cpu < 0:
                self.fault(f"{key}.cpus[{index}]", "needs a CPU's number, from 0")
                process["cpus"] = []
                return

    def path(self, key: str, text: str) -> Path:
        """Resolve a path relative to the config file."""
        if not text:
            raise self.document.fail(key, "needs a path; it is empty")
        try:
            return (self.base / text).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL; a loop of links
            raise self.document.fail(key, f"{text!r:.100} is not a path: {error}") from None

    def existing(self, key: str, text: str, *, file: bool = False) -> Path:
        """Resolve a path that must exist and, with `file`, be a file."""
        path = self.path(key, text)
        try:
            found = path.exists()
        except OSError as error:  # too long a name, a folder that may not be entered
            raise self.document.fail(key, f"{path}: {error.strerror}") from None
        if not found:
            raise self.document.fail(key, f"no such file: {path}")
        if file and not path.is_file():
            raise self.document.fail(key, f"is not a file: {path}")
        return path

    def _find(self, key: str, text: str) -> Path:
        if key in _EXISTING:
            return self.existing(key, text, file=_EXISTING[key])
        return self.path(key, text)

    def read_all(
        self, schema_of: SchemaOf, prefetch: Callable[[Iterable[str]], None] | None
    ) -> Sections | None:
        """Read all sections; return None if a required key is missing."""
        written = self.document.values
        values = self.read(SECTIONS, written, "", self._find)
        if values is None:
            return None
        names = list(values["sensors"])
        values["sensors"] = self._sensors(values["sensors"], schema_of, prefetch)
        self.check_cpus(values["storage"]["process"], "storage.process")
        session = values["session"]
        self.attempt_at("session.name", check_template, session["name"], session["metadata"])
        values["finalize"] = self.attempt(self._finalize, values["finalize"]) or ()
        values["redact"] = self.attempt(self.redact, names) or ()
        values["triggers"] = tuple(self._triggers(values["triggers"]))
        self.attempt(self._check_streams, values["record_format"], names)
        values |= {name: None for name in ("live", "ring") if written.get(name) is None}
        sections = read_settings(values, Sections, self.base)
        for key, text in () if sections.live is None else sections.live.faults():
            self.fault(f"live.{key}", text)
        if sections.ring is not None:
            self._check_ring(sections.ring, sections)
        self.attempt(self._check_upload, sections.upload)
        return sections

    def _check_streams(self, values: dict[str, Any], names: list[str]) -> None:
        written = self.document.values.get("record_format")
        if not isinstance(written, Mapping) or written.get("streams") is None:
            # The default streams are for rigs that have such sensors.
            values["streams"] = [name for name in values["streams"] if name in names]
            return
        for index, stream in enumerate(values["streams"] if names else ()):
            if not _is_recorded(stream, names):
                raise self.document.fail(
                    f"record_format.streams[{index}]",
                    f"no sensor records a stream {stream!r}{suggest(stream, names)}",
                )

    def _check_upload(self, upload: UploadSettings) -> None:
        if upload.url is not None and not _STORE.fullmatch(upload.url):
            text = "needs s3://BUCKET/PREFIX or file:///FOLDER, without keys"
            raise self.document.fail("upload.url", text)
        if upload.when not in ("idle", "always") and upload.hours is None:
            text = f"needs idle, always, or hours such as 22:00-06:00, not {upload.when!r}"
            raise self.document.fail("upload.when", text)
        for index, text in enumerate(upload.recipients):
            if not _RECIPIENT.fullmatch(text):  # it is not shown: it may be a secret key
                where = f"upload.recipients[{index}]"
                raise self.document.fail(where, "needs a public key of age, such as age1...")

    def _check_ring(self, ring: RingSettings, sections: Sections) -> None:
        if sections.session.split != SplitSettings():
            self.fault("ring", "a ring has parts of its own length: session.split must not be set")
        if ring.ram_folder is not None and ring.ram_folder == sections.session.root:
            text = "is session.root, too: a ring in RAM needs a folder of its own"
            self.fault("ring.folder", text)
        for trigger in sections.triggers:
            if trigger.before > ring.seconds:
                text = f"{trigger.before:g} s is longer than the ring (ring.seconds)"
                self.fault(f"triggers.{trigger.name}.before", text)

    def _finalize(self, items: Iterable[Any]) -> tuple[FinalizeStep, ...]:
        steps: list[FinalizeStep] = []
        for index, item in enumerate(items):
            key = f"finalize[{index}]"
            name, options = item, None
            if isinstance(item, Mapping) and len(item) == 1:
                [(name, options)] = item.items()
            if not isinstance(name, str):
                raise self.document.fail(key, "needs an archive's name, or {name: {option: value}}")
            if name not in ARCHIVES:
                known = ", ".join(ARCHIVES)
                raise self.document.fail(
                    key, f"no archive {name!r}{suggest(name, ARCHIVES)}; known archives: {known}"
                )
            if options is not None and not isinstance(options, Mapping):
                raise self.document.fail(f"{key}.{name}", "needs a mapping of options")
            if any(step.archive == name for step in steps):
                raise self.document.fail(key, f"duplicate archive {name!r}")
            steps.append(FinalizeStep(name, options or {}))
        return tuple(steps)

    def _triggers(self, entries: Mapping[str, Any]) -> Iterator[TriggerSettings]:
        for name, entry in entries.items():
            key = f"triggers.{name}"
            if not STREAM_NAME.fullmatch(name):
                self.fault(key, "a trigger's name has only a-z, 0-9 and _")
            elif not isinstance(entry, Mapping):
                self.fault(key, "needs a mapping with the key 'when'")
            elif values := self.read(option_table(TriggerSettings), entry, key):
                trigger = TriggerSettings(name, **values)
                for part in ("when", "until"):
                    if (text := values[part]) is not None:
                        self.attempt_at(f"{key}.{part}", compile_expression, text)
                yield trigger

    def redact(self, sensors: Iterable[str] | None = None) -> tuple[RedactSettings, ...]:
        """Read the entries of ``redact``.

        Args:
            sensors: names of the config's sensors; None: the file names none.

        Raises:
            ConfigError: the section is no mapping.
        """
        entries = self.document.values.get(SECTION)
        if entries is None or any(fault.key == SECTION for fault in self.faults):
            return ()
        if not isinstance(entries, dict):
            text = f"needs {{CAMERA: {{command: [PROGRAM]}}}}, or CAMERA: {KEEP}"
            raise self.document.fail(SECTION, text)
        chosen = []
        for camera, entry in entries.items():
            key = f"{SECTION}.{camera}"
            known = sensors is None or camera == ALL_CAMERAS or _is_recorded(camera, sensors)
            if not known:
                near = suggest(camera, sensors or ())
                self.fault(key, f"no sensor records a stream {camera!r}{near}")
            elif entry == KEEP:
                chosen.append(RedactSettings(camera, self.base))
            elif not isinstance(entry, dict):
                self.fault(key, f"needs a mapping with the key 'command', or {KEEP}")
            elif values := self.read(option_table(RedactSettings), entry, key):
                if (program := values["command"][:1]) in ([], [""]) or "\0" in program[0]:
                    self.fault(f"{key}.command", "needs a program")
                else:
                    found = {"camera": camera, "folder": self.base}
                    chosen.append(read_settings(values | found, RedactSettings))
        return tuple(chosen)

    def _sensors(
        self,
        entries: Mapping[str, Any],
        schema_of: SchemaOf,
        prefetch: Callable[[Iterable[str]], None] | None,
    ) -> tuple[SensorEntry, ...]:
        """Read the sensors in their order, without those that have a fault."""
        if not entries:
            self.fault("sensors", "no sensor is configured; nothing would be recorded")
        drivers: dict[str, str] = {}
        for name, written in entries.items():
            if (driver := self.attempt(self._driver, name, written)) is not None:
                drivers[name] = driver
        if prefetch is not None:
            prefetch(dict.fromkeys(drivers.values()))
        sensors: list[SensorEntry] = []
        streams: dict[str, str] = {}
        for name, driver in drivers.items():
            schema = self.attempt_at(f"sensors.{name}.driver", schema_of, driver)
            if schema is None:
                continue
            sensor = self.attempt(self._sensor, name, driver, entries[name], schema)
            if sensor is not None:
                sensors.append(sensor)
            for suffix in schema.stream_suffixes:
                streams[name + suffix] = name
        for name in entries:
            if name in streams:
                text = f"the sensor {streams[name]!r} records a stream of that name beside its own"
                self.fault(f"sensors.{name}", f"{text}; rename one of them")
        return tuple(sensors)

    def _driver(self, name: str, written: Any) -> str:
        """Return the driver of an entry; check the sensor's name and the entry's type."""
        fail, key = self.document.fail, f"sensors.{name}"
        if not STREAM_NAME.fullmatch(name):
            raise fail(
                key,
                "not a valid sensor name: use a lower-case letter, then up to 63 lower-case "
                "letters, digits and '_'",
            )
        if not isinstance(written, Mapping):
            raise fail(key, "needs a mapping with a driver and a source")
        if "driver" not in written:
            for other in written:
                if suggest(other, ["driver"]):
                    raise fail(f"{key}.{other}", "unknown key (did you mean 'driver'?)")
            raise fail(f"{key}.driver", "missing; this key is required")
        driver = written["driver"]
        if not isinstance(driver, str) or not _DRIVER.fullmatch(driver):
            raise fail(
                f"{key}.driver",
                f"{driver!r:.60} is not a valid driver name: use one word in lower case, or a "
                "dotted module name",
            )
        return driver

    def _sensor(
        self, name: str, driver: str, written: Mapping[str, Any], schema: DriverSchema
    ) -> SensorEntry:
        document, key = self.document, f"sensors.{name}"
        if taken := sorted(set(schema.options) & set(SENSOR_KEYS)):
            raise document.fail(
                f"{key}.driver", f"{driver!r} has an option {taken[0]!r}, as every sensor has"
            )
        checker = _ConfigReader(document, self.base, [])
        for other in written:
            if other not in schema.options and other not in SENSOR_KEYS:
                near = suggest(other, [*SENSOR_KEYS, *schema.options])
                checker.fault(f"{key}.{other}", f"unknown key for driver {driver!r}{near}")
        known = {k: v for k, v in written.items() if k in SENSOR_KEYS}
        common = checker.read(SENSOR_KEYS, known, key) or {}
        source = None
        if common:
            checker.check_cpus(common["process"], f"{key}.process")
            source = checker.attempt(
                checker._source, f"{key}.source", common["source"], driver, schema
            )
        own = {k: v for k, v in written.items() if k in schema.options}
        options = checker.read(
            schema.options, own, key, lambda path, text: str(self.existing(path, text))
        )
        if checker.faults or source is None:
            raise ConfigFaultsError(checker.faults)
        scheme, address = source
        live = scheme in schema.live_schemes
        found = {"name": name, "scheme": scheme, "address": address, "live": live}
        return read_settings(common | found | {"options": options}, SensorEntry)

    def _source(self, key: str, source: str, driver: str, schema: DriverSchema) -> tuple[str, str]:
        fail = self.document.fail
        takes = f"driver {driver!r} takes " + ", ".join(f"{s}:" for s in schema.schemes)
        match = _SOURCE.fullmatch(source)
        if match is None or not source.isprintable():
            hint = _suggest_scheme(source, schema)
            text = f"{mask_value(source)!r:.100} is not of the form SCHEME:ADDRESS{hint}; {takes}"
            raise fail(key, text)
        scheme, address = match.groups()
        if scheme not in schema.schemes:
            near = suggest(scheme, schema.schemes)
            raise fail(key, f"unknown kind of source {scheme + ':'!r}{near}; {takes}")
        if scheme not in FILE_SCHEMES:
            return scheme, address
        path, hash_mark, sensor = address, "", ""
        if scheme in RECORDING_SCHEMES and "#" in address:
            whole = self.path(key, address)  # may be longer than a file's name: then no file
            if not os.path.exists(whole):  # noqa: PTH110
                path, hash_mark, sensor = address.rpartition("#")
        if scheme in SESSION_SCHEMES and "#" in address:
            path, hash_mark, sensor = address.rpartition("#")
            if not STREAM_NAME.fullmatch(sensor):
                raise fail(key, f"the part after '#' is not a valid sensor name: {sensor!r}")
        if not path:
            raise fail(key, f"{scheme}: needs a path after the colon")
        if scheme == "file" and find_numbered_files(whole := self.path(key, path)):
            return scheme, str(whole)
        return scheme, f"{self.existing(key, path)}{hash_mark}{sensor}"


def _is_recorded(stream: str, sensors: Iterable[str]) -> bool:
    """Return whether a stream has the name of a sensor, or that name and a suffix."""
    return any(stream == name or stream.startswith(f"{name}_") for name in sensors)


def _suggest_scheme(source: str, schema: DriverSchema) -> str:
    """Suggest a scheme for a source without one: `` (did you mean 'file:drive.mp4'?)``."""
    suffix = os.path.splitext(source)[1].lower()  # noqa: PTH122
    named = {".pcapng": "pcap", ".pcap": "pcap", ".mcap": "mcap", ".vrs": "vrs", ".osf": "osf"}
    named |= {".db3": "bag"}
    guesses = ["file"] if re.search(r"[./]", source) else ["can"]
    if suffix in named:
        guesses.insert(0, named[suffix])
    if source.startswith("/dev/"):
        guesses = ["v4l2" if source.startswith(("/dev/video", "/dev/v4l/")) else "serial"]
    if source in schema.schemes:
        return f" (did you mean '{source}:'?)"
    scheme = next((guess for guess in guesses if guess in schema.schemes), None)
    return "" if scheme is None else f" (did you mean '{scheme}:{mask_value(source):.100}'?)"
