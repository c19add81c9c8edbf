"""Option tables: what keys a mapping in the config may hold, of what type, and with what default.

A driver declares its options as a table (`python -m drivers.NAME schema` prints it), the recorder
checks a config against it without importing the driver, and the driver checks again what it is
handed.  The tables of the config's own sections are written the same way.

>>> table = {"fps": Option("float", 30.0, "frames per second", minimum=0.1)}
>>> check_options(table, {"fps": 25})
{'fps': 25.0}
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from recorder.contract.errors import ConfigError

TYPES = ("int", "float", "str", "bool", "path", "list", "map")

Fail = Callable[[str, str], Exception]
"""Makes the exception to raise from (key path, message)."""


class Option(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One key.

    Attributes:
        type: one of `TYPES`.  ``path`` is a string, taken relative to the config file.
        default: value where the key is absent; None also means "not set".
        description: one line for people, with the unit.
        minimum, maximum: bounds of a number, both included.
        choices: the values allowed; any where empty.
        required: the key must be there.
        keys: table of a ``map``; a map without one is free in form.
        items: type of a ``list``'s items; any where empty.
        words: texts that may stand in place of a value of `type`.
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

    def to_wire(self) -> dict[str, Any]:
        """A plain mapping for JSON, without what is at its default."""
        wire: dict[str, Any] = {"type": self.type, "default": self.default}
        wire |= msgspec.to_builtins(self)
        if self.keys is not None:
            wire["keys"] = table_to_wire(self.keys)
        return wire


OptionTable = Mapping[str, Option]


def table_to_wire(table: OptionTable) -> dict[str, Any]:
    """A table as a plain mapping for JSON."""
    return {name: option.to_wire() for name, option in table.items()}


def suggest(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'fps'?)`` where a known word is near, else nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _default_fail(key: str, message: str) -> Exception:
    return ConfigError(message, key=key)


def check_options(
    table: OptionTable, values: Any, key: str = "", fail: Fail = _default_fail
) -> dict[str, Any]:
    """The values with defaults filled in, each of its table's type.

    Args:
        table: the keys allowed.
        values: what the user wrote; None counts as an empty mapping.
        key: key path of the mapping, for messages.
        fail: makes the exception; `ConfigError` without a file unless given.

    Raises:
        ConfigError: (or what `fail` makes) for an unknown or missing key, a wrong type or value.
    """
    if values is None:
        values = {}
    if not isinstance(values, Mapping):
        raise fail(key, f"needs a mapping, not {_kind(values)}")
    for name in values:
        if name not in table:
            raise fail(_join(key, str(name)), "unknown key" + suggest(str(name), table))
    checked = {}
    for name, option in table.items():
        path = _join(key, name)
        if name not in values:
            if option.required:
                raise fail(path, "missing; this key is required")
            value = option.default
        else:
            value = values[name]
        if value is None and not option.required and not option.keys:
            checked[name] = option.default if name not in values else None
            continue
        checked[name] = _check_value(option, value, path, fail)
    return checked


def _check_value(option: Option, value: Any, key: str, fail: Fail) -> Any:
    written = value
    if option.words and isinstance(value, str):
        if value not in option.words:
            known = " or ".join((_TYPE_NAMES[option.type], *option.words))
            raise fail(key, f"{value!r} is not {known}{suggest(value, option.words)}")
        return value
    match option.type:
        case "map":
            if option.keys is not None:
                return check_options(option.keys, value, key, fail)
            good = isinstance(value, Mapping)
        case "int":
            good = isinstance(value, int) and not isinstance(value, bool)
        case "float":
            good = isinstance(value, (int, float)) and not isinstance(value, bool)
            if good:
                value = float(value)
                good = value - value == 0.0
        case "bool":
            good = isinstance(value, bool)
        case "list":
            good = isinstance(value, list)
            if good and option.items:
                item = Option(option.items)
                return [_check_value(item, v, f"{key}[{i}]", fail) for i, v in enumerate(value)]
        case _:
            good = isinstance(value, str)
    if not good:
        raise fail(key, f"needs {_TYPE_NAMES[option.type]}, not {_kind(value)}")
    if option.choices and value not in option.choices:
        known = ", ".join(map(str, option.choices))
        near = suggest(str(value), map(str, option.choices))
        raise fail(key, f"{value!r} is not one of {known}{near}")
    if option.minimum is not None and value < option.minimum:
        raise fail(key, f"{written} is below the minimum of {option.minimum:g}")
    if option.maximum is not None and value > option.maximum:
        raise fail(key, f"{written} is above the maximum of {option.maximum:g}")
    return value


_TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "path": "a path",
    "bool": "true or false",
    "list": "a list",
    "map": "a mapping",
}


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", type(None): "nothing", bool: "true or false"}
    return f"{names.get(type(value), type(value).__name__)} ({value!r:.60})"


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
