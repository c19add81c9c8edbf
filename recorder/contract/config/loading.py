"""The config file: strict, and each error names file, line and key path (DESIGN section 5).

Usage::

    config = load_config(Path("rig.yaml"), schema_of)    # ConfigError says what is wrong where
    for entry in config.sensors:
        start_driver(entry.driver, json.dumps(entry.for_driver()))

What the sections hold is in `recorder.contract.config.settings`; how YAML's oddities are read is in
`recorder.contract.config.yaml_lines`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

from recorder.contract.config.driver_schema import SESSION_SCHEME, DriverSchema
from recorder.contract.config.live_checks import live_faults
from recorder.contract.config.options import Option, OptionTable, suggest
from recorder.contract.config.redact import read_redact
from recorder.contract.config.sections import read_section
from recorder.contract.config.settings import (
    ARCHIVES,
    SECTIONS,
    SENSOR_KEYS,
    VERSION,
    FinalizeStep,
    LiveSettings,
    ProcessSettings,
    RecordFormatSettings,
    RingSettings,
    Sections,
    SensorEntry,
    SessionSettings,
    SplitSettings,
    TriggerSettings,
    UploadSettings,
    option_table,
    section_of,
)
from recorder.contract.config.yaml_lines import Document, read_yaml
from recorder.contract.errors import ConfigError, ConfigFaultsError, UsageError
from recorder.contract.expressions import ExpressionError, compile_expression
from recorder.contract.redaction import mask_value
from recorder.contract.session_names import check_template
from recorder.contract.streams import STREAM_NAME

__all__ = ["FILE_SCHEMES", "Config", "DriverSchema", "SchemaOf", "SensorEntry", "load_config"]

P = ParamSpec("P")
T = TypeVar("T")

SchemaOf = Callable[[str], DriverSchema]
"""Gives the schema of a driver by its name; ConfigError where there is no such driver."""

RECORDING_SCHEMES = frozenset({"vrs", "mcap"})
"""Schemes whose address may name a part of the recording after a ``#``."""
FILE_SCHEMES = frozenset({"file", "pcap", "osf", *RECORDING_SCHEMES, SESSION_SCHEME})
"""Schemes whose address is a path, relative to the config, that must exist."""

_DRIVER = re.compile(r"[a-z][a-z0-9_]*|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
_SOURCE = re.compile(r"([a-z][a-z0-9+.-]*):(.*)")

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
"""Settings that concern the daemon alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Sections):
    """A config that was checked as far as can be without opening a source.

    Attributes:
        path: the file, absolute.
        document: the file's text and lines.
    """

    path: Path
    document: Document = field(repr=False)

    def sensor(self, name: str) -> SensorEntry:
        """The sensor of that name; KeyError without such a sensor."""
        for entry in self.sensors:
            if entry.name == name:
                return entry
        raise KeyError(name)

    def error(self, key: str, message: str) -> ConfigError:
        """An error about a key of this file, for what shows only later; names file and line."""
        return self.document.fail(key, message)

    def of_daemon(self) -> list[str]:
        """One sentence for each setting in the file that only the daemon acts on."""
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
        schema_of: gives a driver's schema by name.
        prefetch: called once with the names of all drivers before `schema_of` is, so that it
            can ask them at the same time.

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
    faults: list[ConfigError] = []
    values = read_section(SECTIONS, document.values, document, "", faults)
    reader = _Reader(document, path.parent, faults)
    sensors: tuple[SensorEntry, ...] = ()
    if values is not None and values["sensors"] is not None:
        sensors = reader.sensors(values["sensors"], schema_of, prefetch)
    if values is None:
        raise ConfigFaultsError(faults)
    sections = reader.other_sections(values)
    if faults:
        raise ConfigFaultsError(faults)
    return Config(path=path, document=document, sensors=sensors, **sections)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Checks what option tables cannot say; `faults` takes everything that is wrong."""

    document: Document
    base: Path
    faults: list[ConfigError]

    def sensors(
        self,
        entries: Mapping[str, Any],
        schema_of: SchemaOf,
        prefetch: Callable[[Iterable[str]], None] | None,
    ) -> tuple[SensorEntry, ...]:
        fail = self.document.fail
        if not entries:
            self.faults.append(
                fail("sensors", "no sensor is configured; nothing would be recorded")
            )
        drivers: dict[str, str] = {}
        for name, written in entries.items():
            if (driver := self._try(self._driver, name, written)) is not None:
                drivers[name] = driver
        if prefetch is not None:
            prefetch(dict.fromkeys(drivers.values()))
        sensors: list[SensorEntry] = []
        streams: dict[str, str] = {}
        for name, driver in drivers.items():
            try:
                schema = schema_of(driver)
            except ConfigError as error:
                self.faults.append(fail(f"sensors.{name}.driver", str(error)))
                continue
            sensor = self._try(self._sensor, name, driver, entries[name], schema)
            if sensor is not None:
                sensors.append(sensor)
            for suffix in schema.stream_suffixes:
                streams[name + suffix] = name
        for name in entries:
            if name in streams:
                text = f"the sensor {streams[name]!r} records a stream of that name beside its own"
                self.faults.append(fail(f"sensors.{name}", f"{text}; rename one of them"))
        return tuple(sensors)

    def _driver(self, name: str, written: Any) -> str:
        """The entry's driver, after a look at the sensor's name and the entry's form."""
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
        faults: list[ConfigError] = []
        for other in written:
            if other not in schema.options and other not in SENSOR_KEYS:
                near = suggest(other, [*SENSOR_KEYS, *schema.options])
                text = f"unknown key for driver {driver!r}{near}"
                faults.append(document.fail(f"{key}.{other}", text))
        known = {k: v for k, v in written.items() if k in SENSOR_KEYS}
        common = read_section(SENSOR_KEYS, known, document, key, faults)
        scheme = address = ""
        if common is not None and common["source"] is not None:
            try:
                scheme, address = self._source(f"{key}.source", common["source"], driver, schema)
            except ConfigError as error:
                faults.append(error)
        own = {k: v for k, v in written.items() if k in schema.options}
        options = read_section(schema.options, own, document, key, faults)
        if options is not None:
            self._find_paths(schema.options, own, options, key, faults)
        if faults or common is None or options is None:
            raise ConfigFaultsError(faults)
        del common["driver"], common["source"]
        return SensorEntry(
            name=name,
            driver=driver,
            scheme=scheme,
            address=address,
            options=options,
            live=scheme in schema.live_schemes,
            **self._settings(SensorEntry, common, key),
        )

    def _source(self, key: str, source: str, driver: str, schema: DriverSchema) -> tuple[str, str]:
        fail = self.document.fail
        takes = f"driver {driver!r} takes " + ", ".join(f"{s}:" for s in schema.schemes)
        match = _SOURCE.fullmatch(source)
        if match is None or not source.isprintable():
            raise fail(
                key, f"{mask_value(source)!r:.100} is not of the form SCHEME:ADDRESS; {takes}"
            )
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
        if scheme == SESSION_SCHEME and "#" in address:
            path, hash_mark, sensor = address.rpartition("#")
            if not STREAM_NAME.fullmatch(sensor):
                raise fail(key, f"the part after '#' is not a valid sensor name: {sensor!r}")
        if not path:
            raise fail(key, f"{scheme}: needs a path after the colon")
        return scheme, f"{self.existing(key, path)}{hash_mark}{sensor}"

    def _find_paths(
        self,
        table: OptionTable,
        written: Mapping[str, Any],
        checked: dict[str, Any],
        key: str,
        faults: list[ConfigError],
    ) -> None:
        """Make the paths that were written absolute, but for options that are at fault already."""
        wrong = [fault.key for fault in faults]
        for name, value in written.items():
            path = f"{key}.{name}"
            if any(re.match(rf"{re.escape(path)}(?![^.\[])", fault) for fault in wrong):
                continue
            try:
                checked[name] = self._with_path(table[name], value, checked[name], path)
            except ConfigError as error:
                faults.append(error)

    def _with_path(self, option: Option, written: Any, checked: Any, key: str) -> Any:
        """A checked value with the paths that were written made absolute."""
        if written is None:
            return checked
        if option.type == "path":
            return str(self.existing(key, checked))
        if option.type == "list" and option.items == "path":
            return [str(self.existing(f"{key}[{i}]", item)) for i, item in enumerate(checked)]
        if option.keys is not None:
            for name, value in written.items():
                own, path = option.keys[name], f"{key}.{name}"
                checked[name] = self._with_path(own, value, checked[name], path)
        return checked

    def other_sections(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All sections but ``sensors``; appends to `faults` what is wrong with them."""
        made = {
            name: kind(**self._settings(kind, values[name], name))
            for name, hint in get_type_hints(Sections).items()
            if (kind := section_of(hint)) is not None
        }
        made["live"] = self._live(made["live"])
        self._try(self._check_template, values["session"])
        made["finalize"] = self._try(self._finalize, values["finalize"])
        made["redact"] = self._try(
            read_redact, self.document, self.base, self.faults, list(values["sensors"] or ())
        )
        made["report"] = values["report"]
        made["triggers"] = tuple(self._triggers(values["triggers"] or {}))
        made["ring"] = self._ring(made["ring"], made["session"], made["triggers"])
        if names := list(values["sensors"] or ()):
            made["record_format"] = self._try(self._record_format, values["record_format"], names)
        made["calibration"] = values["calibration"]
        if made["calibration"] is not None:
            made["calibration"] = self._try(
                self.existing, "calibration", values["calibration"], file=True
            )
        self._try(self._check_upload, made["upload"])
        if (file := made["custody"].key) is not None:
            self._try(self.existing, "custody.key", str(file), file=True)
        if (keys := values["control"]["curve_keys"]) is not None:
            self._try(self.existing, "control.curve_keys", keys)
        return made

    def _settings(self, kind: type, values: Mapping[str, Any], key: str) -> dict[str, Any]:
        """The fields of a section from its checked values: sections made, paths absolute."""
        made: dict[str, Any] = {}
        hints = get_type_hints(kind)
        for name, value in values.items():
            hint, path = hints[name], f"{key}.{name}"
            if (section := section_of(hint)) is not None:
                made[name] = section(**self._settings(section, value, path))
            elif value is not None and Path in (hint, *get_args(hint)):
                made[name] = self._try(self.path, path, value)
            else:
                made[name] = tuple(value) if isinstance(value, list) else value
        if kind is ProcessSettings:
            self._try(self._check_cpus, values["cpus"], f"{key}.cpus")
        return made

    def _try(self, check: Callable[P, T], *args: P.args, **more: P.kwargs) -> T | None:
        """What a check returns; None if it raised: `faults` has the error."""
        try:
            return check(*args, **more)
        except ConfigFaultsError as several:
            self.faults.extend(several.errors)
        except ConfigError as error:
            self.faults.append(error)
        return None

    def _check_cpus(self, cpus: Iterable[Any], key: str) -> None:
        for index, cpu in enumerate(cpus):
            if not isinstance(cpu, int) or isinstance(cpu, bool) or cpu < 0:
                raise self.document.fail(f"{key}[{index}]", "needs a CPU's number, from 0")

    def _check_template(self, session: Mapping[str, Any]) -> None:
        try:
            check_template(session["name"], session["metadata"])
        except UsageError as error:
            raise self.document.fail("session.name", str(error)) from None

    def _record_format(self, values: Mapping[str, Any], names: list[str]) -> RecordFormatSettings:
        written = self.document.values.get("record_format")
        if not isinstance(written, Mapping) or written.get("streams") is None:
            # The default streams are for rigs that have such sensors.
            streams = tuple(name for name in values["streams"] if name in names)
            return RecordFormatSettings(values["enabled"], streams)
        for index, stream in enumerate(values["streams"]):
            if not any(stream == name or stream.startswith(name + "_") for name in names):
                raise self.document.fail(
                    f"record_format.streams[{index}]",
                    f"no sensor records a stream {stream!r}{suggest(stream, names)}",
                )
        return RecordFormatSettings(values["enabled"], tuple(values["streams"]))

    def _live(self, live: LiveSettings) -> LiveSettings | None:
        if self.document.values.get("live") is None:
            return None
        self.faults.extend(self.document.fail(f"live.{k}", text) for k, text in live_faults(live))
        for name in ("certificate", "key"):
            if (path := getattr(live, name)) is not None:
                self._try(self.existing, f"live.{name}", str(path), file=True)
        return live

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
        if upload.credentials is not None:
            self.existing("upload.credentials", str(upload.credentials), file=True)

    def _ring(
        self, ring: RingSettings, session: SessionSettings, triggers: Iterable[TriggerSettings]
    ) -> RingSettings | None:
        if self.document.values.get("ring") is None:
            return None
        if session.split != SplitSettings():
            text = "a ring has parts of its own length: session.split must not be set"
            self.faults.append(self.document.fail("ring", text))
        for trigger in triggers:
            if trigger.before > ring.seconds:
                text = f"{trigger.before:g} s is longer than the ring (ring.seconds)"
                key = f"triggers.{trigger.name}.before"
                self.faults.append(self.document.fail(key, text))
        return ring

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
            if not isinstance(name, str) or not STREAM_NAME.fullmatch(name):
                self.faults.append(
                    self.document.fail(key, "a trigger's name has only a-z, 0-9 and _")
                )
                continue
            if not isinstance(entry, Mapping):
                self.faults.append(self.document.fail(key, "needs a mapping with the key 'when'"))
                continue
            values = read_section(
                option_table(TriggerSettings), entry, self.document, key, self.faults
            )
            if values is None:
                continue
            trigger = TriggerSettings(name, **values)
            for part in ("when", "until"):
                if (text := getattr(trigger, part)) is not None:
                    self._try(self._check_expression, f"{key}.{part}", text)
            yield trigger

    def _check_expression(self, key: str, text: str) -> None:
        try:
            compile_expression(text)
        except ExpressionError as error:
            raise self.document.fail(key, str(error)) from None

    def path(self, key: str, text: str) -> Path:
        """The path, taken relative to the config file."""
        if not text:
            raise self.document.fail(key, "needs a path; it is empty")
        try:
            return (self.base / text).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL; a loop of links
            raise self.document.fail(key, f"{text!r:.100} is not a path: {error}") from None

    def existing(self, key: str, text: str, *, file: bool = False) -> Path:
        """The path, which must be there (and, with `file`, be a file)."""
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


def _is_on(values: Any, key: str) -> bool:
    """Whether the file sets a key to something that asks for more than the default does."""
    for name in key.split("."):
        if not isinstance(values, Mapping) or name not in values:
            return False
        values = values[name]
    return bool(values)
