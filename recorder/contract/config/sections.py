"""Check sections of a config file by their option tables; collect all faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recorder.contract.config.options import OptionTable, check_options
from recorder.contract.config.yaml_lines import Document
from recorder.contract.errors import ConfigError


def read_section(
    table: OptionTable,
    values: Mapping[str, Any],
    document: Document,
    key: str,
    faults: list[ConfigError],
) -> dict[str, Any] | None:
    """`check_options`, but a key without a value is not None.

    An empty mapping or list may be written as nothing; a number or text that has a default may
    not, since ``fps:`` alone is an unfinished line.

    Args:
        table, values, document, key: the section.
        faults: takes everything that is wrong; what is wrong counts as not written.

    Returns:
        The values; None if a key is missing that has no default.
    """
    while True:
        try:
            kept = _without_empty(table, values, document, key)
            return check_options(table, kept, key, document.fail)
        except ConfigError as error:
            path = error.key.removeprefix(f"{key}." if key else "")
            values, dropped = _drop(values, path)
            meant = f"did you mean {path.rpartition('.')[2]!r}"
            if dropped or not any(f.key == error.key or meant in str(f) for f in faults):
                faults.append(error)
            if not dropped:
                return None


def _drop(values: Mapping[str, Any], path: str) -> tuple[dict[str, Any], bool]:
    """A mapping without the value at a key path, and whether there was one."""
    kept = dict(values)
    for name in kept:
        rest = path.removeprefix(name)
        if path.startswith(name) and (not rest or rest[0] in ".["):
            if rest.startswith(".") and isinstance(kept[name], Mapping):
                kept[name], dropped = _drop(kept[name], rest[1:])
                if dropped:
                    return kept, True
                break
            del kept[name]
            return kept, True
    return kept, False


def _without_empty(
    table: OptionTable, values: Mapping[str, Any], document: Document, key: str
) -> dict[str, Any]:
    kept = {}
    for name, value in values.items():
        path = f"{key}.{name}" if key else name
        option = table.get(name)
        if option is not None and value is None and option.default is not None:
            if option.type not in ("map", "list"):
                raise document.fail(
                    path, f"has no value; leave the key out for its default, {option.default!r}"
                )
            continue
        if option is not None and option.keys is not None and isinstance(value, Mapping):
            value = _without_empty(option.keys, value, document, path)
        kept[name] = value
    return kept
