"""``recorder drivers [NAME]``: list the drivers, or the sources and options of one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recorder.cli.output import add_format, emit, format_table

if TYPE_CHECKING:
    from recorder.config.options import Option, OptionTable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the driver and the format."""
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="show this driver, or the dotted name of its module"
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the drivers, or one driver's sources and options; return 0."""
    from recorder.recording.supervisor.driver_registry import (
        available_drivers,
        driver_schema,
        prefetch,
    )

    if args.name is not None:
        schema = driver_schema(args.name)
        sources = ((f"{name}:", text) for name, text in schema.schemes.items())
        lines = [schema.description, "", format_table(["source", "address"], sources), ""]
        lines += _option_lines(schema.options)
        emit(schema.to_wire(), args, lambda _: "\n".join(lines))
        return 0
    names = available_drivers()
    prefetch(names)
    described = {name: driver_schema(name).description for name in names}
    emit(described, args, lambda d: format_table(["driver", "records"], d.items()))
    return 0


def _option_lines(table: OptionTable, prefix: str = "") -> Iterator[str]:
    """Yield two lines for each option; options of a nested table follow with dotted names."""
    for name, option in table.items():
        value = json.dumps(option.default, ensure_ascii=False)
        default = f", default {value}" if option.default is not None else ""
        facts = "" if option.is_table else f" ({_format_type(option)}{default})"
        yield f"{prefix}{name}{facts}{', required' if option.required else ''}"
        yield f"    {option.description}"
        yield from _option_lines(option.keys or {}, f"{prefix}{name}{'[]' * bool(option.items)}.")


def _format_type(option: Option) -> str:
    """Write the type with its choices or bounds: ``int 1..60``, ``jpeg|raw``."""
    if option.choices:
        return "|".join(map(str, option.choices))
    low, high = option.minimum, option.maximum
    bounds = "" if low is None and high is None else f" {_bound(low)}..{_bound(high)}"
    return "|".join([f"{option.type}{bounds}", *option.words])


def _bound(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
