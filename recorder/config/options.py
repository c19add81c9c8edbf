"""Option tables: keys of a mapping in the config, with their types, bounds and defaults.

A driver declares its options as a table (`python -m drivers.NAME schema` prints it), the recorder
checks a config against it without importing the driver, and the driver checks the options that it
gets again. The config's own sections have such tables, too.

>>> table = {"fps": Option("float", 30.0, "frames per second", minimum=0.1)}
>>> check_options(table, {"fps": 25})
{'fps': 25.0}
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from recorder.common.errors import ConfigError

_TYPES: Mapping[str, tuple[Any, str]] = {
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "str": (str, "a text"),
    "bool": (bool, "true or false"),
    "path": (str, "a path"),
    "list": (list, "a list"),
    "map": (Mapping, "a mapping"),
}
TYPES = tuple(_TYPES)


class Option(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Declaration of one key.

    Attributes:
        type: one of `TYPES`.  ``path`` is a string, taken relative to the config file.
        default: value if the key is absent; None also means "not set".
        description: one line for users, with the unit.
        minimum, maximum: bounds of a number, both included.
        choices: the values allowed; empty: any.
        required: whether the key must be present.
        keys: table of a ``map``, or of each item of a list of maps; without a table, any keys.
        items: type of a ``list``'s items; empty: any.
        words: texts allowed instead of a value of `type`.
    """

    type: str
    default: Any = None
    description: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    required: bool = False
    keys: OptionTable | None = None
    items: str = ""
    words: tuple[str, ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether a value is a mapping with known keys."""
        return self.type == "map" and self.keys is not None

    def to_wire(self) -> dict[str, Any]:
        """Convert the option to a plain mapping for JSON, without attributes at their default."""
        wire: dict[str, Any] = {"type": self.type, "default": self.default}
        wire |= msgspec.to_builtins(self)
        if self.keys is not None:
            wire["keys"] = table_to_wire(self.keys)
        return wire


OptionTable = Mapping[str, Option]


def table_to_wire(table: OptionTable) -> dict[str, Any]:
    """Convert a table to a plain mapping for JSON."""
    return {name: option.to_wire() for name, option in table.items()}


def suggest(word: str, known: Iterable[str]) -> str:
    """Suggest the nearest known word, as `` (did you mean 'fps'?)``; return "" if none is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def check_options(
    table: OptionTable,
    values: Any,
    key: str = "",
    fail: Callable[[str, str], Exception] | None = None,
) -> dict[str, Any]:
    """Check values by a table, and fill in defaults.

    Args:
        table: the keys allowed.
        values: what the user wrote; None counts as an empty mapping.
        key: key path of the mapping, for messages.
        fail: makes the exception from (key path, message); default: `ConfigError` without a file.

    Raises:
        ConfigError: (or what `fail` makes) for the first unknown or missing key, wrong type or
            value.
    """
    reader = OptionReader(_fault)
    checked = reader.read(table, values, key)
    if checked is None or reader.faults:
        first = reader.faults[0]
        raise first if fail is None else fail(first.key, first.problem)
    return checked


def _fault(key: str, message: str) -> ConfigError:
    return ConfigError(message, key=key)


class _MissingKeyError(Exception):
    """End of a check because a required key is missing."""


@dataclass(frozen=True, slots=True)
class OptionReader:
    """Reader of mappings by their tables, which collects all faults in one pass.

    A wrong value is reported, then treated as absent.

    Attributes:
        fail: makes the error from (key path, message).
        faults: list to which all errors are added.
        find: returns the value of an option of type ``path`` from (key path, text), or raises
            ConfigError.  None: the value is the text.
        null_is_absent: in a config file an empty mapping or list may be written as nothing; a
            number or text that has a default may not, since ``fps:`` alone is an unfinished line.
    """

    fail: Callable[[str, str], ConfigError]
    faults: list[ConfigError] = field(default_factory=list)
    find: Callable[[str, str], Any] | None = None
    null_is_absent: bool = False

    def read(self, table: OptionTable, values: Any, key: str) -> dict[str, Any] | None:
        """Check values by a table, fill in defaults; return None if a required key is missing."""
        try:
            return self._mapping(table, values, key)
        except _MissingKeyError:
            return None
        except ConfigError as error:
            self.faults.append(error)
            return None

    def _mapping(self, table: OptionTable, values: Any, key: str) -> dict[str, Any]:
        if values is None:
            values = {}
        if not isinstance(values, Mapping):
            raise self.fail(key, f"needs a mapping, not {_describe_kind(values)}")
        for name in values:
            if name not in table:
                text = "unknown key" + suggest(str(name), table)
                self.faults.append(self.fail(_join(key, str(name)), text))
        return {
            name: self._option(name, option, values, _join(key, name))
            for name, option in table.items()
        }

    def _option(self, name: str, option: Option, values: Mapping[str, Any], path: str) -> Any:
        if name in values and not self._is_absent(option, value := values[name], path):
            if value is None and not (option.is_table or option.required):
                return None
            try:
                return self._value(option, value, path)
            except ConfigError as error:
                self.faults.append(error)
                if option.type == "path":
                    return ""  # it was written, so nothing else is missing
        if option.required:
            suggested = f"did you mean {name!r}"
            if not any(f.key == path or suggested in f.problem for f in self.faults):
                self.faults.append(self.fail(path, "missing; this key is required"))
            raise _MissingKeyError
        if option.type == "path" or (option.default is None and not option.is_table):
            return option.default
        return self._value(option, option.default, path)

    def _is_absent(self, option: Option, value: Any, path: str) -> bool:
        if not self.null_is_absent or value is not None or option.default is None:
            return False
        if option.type not in ("map", "list"):
            text = f"has no value; leave the key out for its default, {option.default!r}"
            self.faults.append(self.fail(path, text))
        return True

    def _value(self, option: Option, value: Any, key: str) -> Any:
        written = value
        if option.words and isinstance(value, str):
            if value not in option.words:
                known = " or ".join((_TYPES[option.type][1], *option.words))
                raise self.fail(key, f"{value!r} is not {known}{suggest(value, option.words)}")
            return value
        if option.is_table:
            return self._mapping(option.keys or {}, value, key)
        kinds, name = _TYPES[option.type]
        good = isinstance(value, kinds) and isinstance(value, bool) == (kinds is bool)
        if good and option.type == "float":
            value = float(value)
            good = math.isfinite(value)
        if not good:
            raise self.fail(key, f"needs {name}, not {_describe_kind(value)}")
        if option.items:
            item = Option(option.items, keys=option.keys)
            return [self._value(item, v, f"{key}[{i}]") for i, v in enumerate(value)]
        if option.choices and value not in option.choices:
            known = ", ".join(map(str, option.choices))
            near = suggest(str(value), map(str, option.choices))
            raise self.fail(key, f"{value!r} is not one of {known}{near}")
        if option.minimum is not None and value < option.minimum:
            raise self.fail(key, f"{written} is below the minimum of {option.minimum:g}")
        if option.maximum is not None and value > option.maximum:
            raise self.fail(key, f"{written} is above the maximum of {option.maximum:g}")
        return self.find(key, value) if self.find and option.type == "path" else value


def _describe_kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", type(None): "nothing", bool: "true or false"}
    return f"{names.get(type(value), type(value).__name__)} ({value!r:.60})"


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
