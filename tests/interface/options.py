"""``python -m tests.interface.options``: every option as a line of text, for ``options.txt``.

A line has the option's place, its type, default, bounds and choices; no description.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator

from recorder.archives.base import available, load_packer
from recorder.cli import build_parser
from recorder.config.options import OptionTable
from recorder.config.settings import SECTIONS, SENSOR_KEYS

DRIVERS = {
    "camera": "CameraDriver",
    "can": "CanDriver",
    "gnss": "GnssDriver",
    "mmwave": "MmwaveDriver",
    "ouster": "OusterDriver",
    "udp": "UdpDriver",
    "xsens": "XsensDriver",
}


def lines() -> list[str]:
    """All options, sorted by their places."""
    found = [*_table("config", SECTIONS), *_table("config.sensors.NAME", SENSOR_KEYS)]
    for driver, name in DRIVERS.items():
        kind = getattr(importlib.import_module(f"drivers.{driver}.driver"), name)
        found += _table(f"driver.{driver}", kind.options)
    for archive in available():
        found += _table(f"archive.{archive}", load_packer(archive).options)
    found += _arguments("recorder", build_parser())
    return sorted(found)


def _table(place: str, table: OptionTable) -> Iterator[str]:
    for name, option in table.items():
        words = [f"{place}.{name}:", option.type, f"default {option.default!r}"]
        if option.minimum is not None or option.maximum is not None:
            words.append(f"from {option.minimum} to {option.maximum}")
        words += [f"one of {option.choices}"] if option.choices else []
        words += [f"or {option.words}"] if option.words else []
        words += [f"of {option.items}"] if option.items else []
        words += ["required"] if option.required else []
        yield " ".join(words)
        if option.keys is not None:
            yield from _table(f"{place}.{name}", option.keys)


def _arguments(place: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, verb in action.choices.items():
                yield from _arguments(f"{place} {name}", verb)
            continue
        words = [f"{place} {'/'.join(action.option_strings) or action.dest}:"]
        words.append(type(action).__name__.strip("_"))
        if action.type is not None:
            words.append(f"of {getattr(action.type, '__name__', action.type)}")
        for key in ("nargs", "default", "choices", "metavar"):
            if (value := getattr(action, key)) is not None:
                words.append(f"{key} {value!r}")
        words += ["required"] if action.required else []
        yield " ".join(words)


if __name__ == "__main__":
    print("\n".join(lines()))
