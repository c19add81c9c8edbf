"""Command lines of the recorder's processes, which do not import from the user's folder.

``python -m MODULE`` looks for modules in the working directory first, so that a folder ``recorder``
or a file ``json.py`` there would replace the right module. `module_command` excludes the working
directory. The module that a config names as a driver may lie in the working directory: this module
runs it (`driver_module_command`), with that directory after everything that is installed, except
for the driver's own package, which is searched there first.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_OURS = frozenset({"recorder", "drivers"})


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs an installed module."""
    return [sys.executable, "-P", "-m", module, *arguments]


def driver_module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a driver's module, which may lie in the working directory."""
    if module.partition(".")[0] in _OURS:
        return module_command(module, *arguments)
    return module_command("recorder.common.module_launcher", module, *arguments)


class _BesideFinder:
    """Finder of modules in a folder: all, or those of one package."""

    def __init__(self, folder: str, package: str | None = None) -> None:
        self._folder = folder
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module as `importlib.abc.MetaPathFinder` does, except parts of packages."""
        if path is not None or self._package not in (None, name):
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self._folder], target)


def search_beside(module: str) -> None:
    """Let a driver's module be found in the working directory; see the module's text."""
    package = module.partition(".")[0]
    try:
        folder = os.getcwd()  # noqa: PTH109  a text, and no other import
    except OSError:  # it is gone
        folder = ""
    if folder:
        if package not in sys.stdlib_module_names:
            sys.meta_path.insert(0, _BesideFinder(folder, package))
        sys.meta_path.append(_BesideFinder(folder))


def run_driver_module(module: str, *arguments: str) -> None:
    """Run a driver's module in this process, as the command of `driver_module_command` does."""
    if module.partition(".")[0] not in _OURS:
        search_beside(module)
        _require(module)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _require(module: str) -> None:
    """Exit with a message unless there is a module of that name."""
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        found = False
    if not found:
        sys.exit(f"No module named {module}")


if __name__ == "__main__":
    run_driver_module(*sys.argv[1:])
