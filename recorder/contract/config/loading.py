"""The config file: strict, and each error names file, line and key path (DESIGN section 5).

Usage::

    config = load_config(Path("rig.yaml"), schema_of)    # ConfigError says what is wrong where
    for entry in config.sensors:
        start_driver(entry.driver, json.dumps(entry.for_driver()))

What the sections hold is in `recorder.contract.config.settings`; how YAML's oddities are read is in
`recorder.contract.config.yaml_lines`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from recorder.contract.config.section_checks import SectionChecker
from recorder.contract.config.sensor_checks import SchemaOf, SensorChecker
from recorder.contract.config.settings import VERSION, Sections, SensorEntry
from recorder.contract.config.yaml_lines import Document, read_yaml
from recorder.contract.errors import ConfigError, ConfigFaultsError

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


class Config(Sections, frozen=True, kw_only=True):
    """A config that was checked as far as can be without opening a source.

    Attributes:
        path: the file, absolute.
        document: the file's text and lines.
    """

    path: Path
    document: Document

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
    checker = SectionChecker(document, path.parent, [])
    values = checker.plain_sections()
    if values is None:
        raise ConfigFaultsError(checker.faults)
    entries = SensorChecker(document, path.parent, checker.faults)
    sensors = entries.sensors(values["sensors"], schema_of, prefetch)
    sections = checker.sections(values, sensors)
    if checker.faults:
        raise ConfigFaultsError(checker.faults)
    return Config(path=path, document=document, **structs.asdict(sections))


def _is_on(values: Any, key: str) -> bool:
    """Whether the file sets a key to something that asks for more than the default does."""
    for name in key.split("."):
        if not isinstance(values, Mapping) or name not in values:
            return False
        values = values[name]
    return bool(values)
