"""The sensors of the config file: their names, drivers, sources and options."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from recorder.contract.config.checker import Checker
from recorder.contract.config.driver_schema import SESSION_SCHEME, DriverSchema
from recorder.contract.config.options import suggest
from recorder.contract.config.settings import SENSOR_KEYS, SensorEntry, read_settings
from recorder.contract.errors import ConfigError, ConfigFaultsError
from recorder.contract.numbered_files import numbered_files
from recorder.contract.redaction import mask_value
from recorder.contract.streams import STREAM_NAME

SchemaOf = Callable[[str], DriverSchema]
"""Gives the schema of a driver by its name; ConfigError where there is no such driver."""

RECORDING_SCHEMES = frozenset({"vrs", "mcap"})
"""Schemes whose address may name a part of the recording after a ``#``."""
FILE_SCHEMES = frozenset({"file", "pcap", "osf", *RECORDING_SCHEMES, SESSION_SCHEME})
"""Schemes whose address is a path, relative to the config, that must exist."""

_DRIVER = re.compile(r"[a-z][a-z0-9_]*|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
_SOURCE = re.compile(r"([a-z][a-z0-9+.-]*):(.*)")


def _suggest_scheme(source: str, schema: DriverSchema) -> str:
    """`` (did you mean 'file:drive.mp4'?)`` for a source that was written without its scheme."""
    suffix = os.path.splitext(source)[1].lower()  # noqa: PTH122
    named = {".pcapng": "pcap", ".pcap": "pcap", ".mcap": "mcap", ".vrs": "vrs", ".osf": "osf"}
    guesses = ["file"] if re.search(r"[./]", source) else ["can"]
    if suffix in named:
        guesses.insert(0, named[suffix])
    if source.startswith("/dev/"):
        guesses = ["v4l2" if source.startswith(("/dev/video", "/dev/v4l/")) else "serial"]
    if source in schema.schemes:
        return f" (did you mean '{source}:'?)"
    scheme = next((guess for guess in guesses if guess in schema.schemes), None)
    return "" if scheme is None else f" (did you mean '{scheme}:{mask_value(source):.100}'?)"


class SensorChecker(Checker):
    """Makes the entries of ``sensors``."""

    def sensors(
        self,
        entries: Mapping[str, Any],
        schema_of: SchemaOf,
        prefetch: Callable[[Iterable[str]], None] | None,
    ) -> tuple[SensorEntry, ...]:
        """The sensors without a fault, in their order; arguments as of `load_config`."""
        fail = self.document.fail
        if not entries:
            self.faults.append(
                fail("sensors", "no sensor is configured; nothing would be recorded")
            )
        drivers: dict[str, str] = {}
        for name, written in entries.items():
            if (driver := self.attempt(self._driver, name, written)) is not None:
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
            sensor = self.attempt(self._sensor, name, driver, entries[name], schema)
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
        checker = SensorChecker(document, self.base, [])
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
        if scheme == SESSION_SCHEME and "#" in address:
            path, hash_mark, sensor = address.rpartition("#")
            if not STREAM_NAME.fullmatch(sensor):
                raise fail(key, f"the part after '#' is not a valid sensor name: {sensor!r}")
        if not path:
            raise fail(key, f"{scheme}: needs a path after the colon")
        if scheme == "file" and numbered_files(whole := self.path(key, path)):
            return scheme, str(whole)
        return scheme, f"{self.existing(key, path)}{hash_mark}{sensor}"
