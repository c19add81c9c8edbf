"""Schemas of several drivers from one process: ``python -m drivers.kit.schemas NAME...``.

Most of a schema's time is the import of numpy and this kit, which one process does once.  The
output is a JSON object with each driver's schema by name.  A driver that fails is left out: its own
process, asked for its schema alone, gives the error.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
from typing import Any

import drivers.kit.runner  # noqa: F401  imported by every driver
from recorder.common.module_launcher import search_beside


def read_schema(name: str) -> Any:
    """Run a driver's module for its schema, as ``python -m drivers.NAME schema`` does.

    Raises:
        Exception: the driver failed, or printed something else.
    """
    module = name if "." in name else f"drivers.{name}"
    if "." in name:
        search_beside(module)
    sys.argv = [module, "schema"]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"{module}: exited with {end.code}") from end
    return json.loads(output.getvalue())


def main() -> None:
    """Print the schemas of the drivers on the command line."""
    schemas = {}
    for name in sys.argv[1:]:
        with contextlib.suppress(Exception):
            schemas[name] = read_schema(name)
    json.dump(schemas, sys.stdout)


if __name__ == "__main__":
    main()
