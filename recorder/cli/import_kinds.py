"""The kinds of files that ``recorder import`` takes, and the interface of their plans.

::

    plan = plan_import(args, folder)         # reads the file; writes into a temporary folder only
    plan.format(), plan.describe()           # for --plan
    plan.prepare()                           # reads the labels, too: the last error of a bad file
    ...                                      # the drivers play `plan.config`
    plan.complete(session)
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recorder.common.errors import (
    ConfigFaultsError,
    FormatError,
    SourceError,
    StorageError,
    UsageError,
)

if TYPE_CHECKING:
    from recorder.archives.importing import Contents
    from recorder.config.loading import Config
    from recorder.recording.foreground import Outcome


class ImportPlan(ABC):
    """Plan of an import.

    Attributes:
        config: config of the session.
        start_ns: start of the recording, epoch ns.
    """

    config: Config
    start_ns: int

    @property
    @abstractmethod
    def duration_s(self) -> float:
        """Duration of the recording, 0 if it is unknown."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the plan for ``--format json``."""

    @abstractmethod
    def format(self) -> str:
        """Return the plan as text: what becomes what, and what is lost."""

    @abstractmethod
    def describe_origin(self) -> dict[str, Any]:
        """Return the origin of the session, for its metadata."""

    @abstractmethod
    def describe_result(self) -> dict[str, Any]:
        """Return what was made of the file, for the verb's result."""

    @abstractmethod
    def format_result(self, outcome: Outcome) -> list[str]:
        """Return what was made of the file, as lines."""

    def draft(self) -> str:
        """Return a draft of the file for ``--map``; only kinds with the argument ``guess``."""
        raise NotImplementedError

    def prepare(self) -> None:  # noqa: B027  a bag has nothing to prepare
        """Read what is no driver's, such as labels, before the session is made."""

    @abstractmethod
    def complete(self, session: Path) -> None:
        """Write what is no driver's into the session, at its end."""


@dataclass(frozen=True)
class ImportKind:
    """A kind of files whose reader returns its `Contents`.

    Attributes:
        name: what such a file is, for people.
        module: module with `fits` and `read_contents`, which is imported when it is asked for.
        options: arguments of the verb that `read_contents` takes, too, such as ``sequence``.
    """

    name: str
    module: str
    options: frozenset[str] = frozenset()

    def fits(self, path: Path) -> bool:
        """Return whether a file or folder is of this kind; reads little of it."""
        fits: Callable[[Path], bool] = import_module(self.module).fits
        return fits(path)

    def read(self, args: argparse.Namespace) -> Contents:
        """Return what the file becomes; raise a SourceError that names what is wrong."""
        path: Path = args.file
        read: Callable[..., Contents] = import_module(self.module).read_contents
        try:
            return read(path, **{name: getattr(args, name) for name in self.options})
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror or error}") from None
        except (FormatError, StorageError) as error:
            raise SourceError(str(error)) from None


KINDS: Final[tuple[ImportKind, ...]] = (
    ImportKind("a VRS file", "recorder.archives.vrs.importing"),
    ImportKind("an NCore sequence", "recorder.archives.ncore.importing"),
    ImportKind(
        "an EdgeFirst dataset", "recorder.archives.edgefirst.importing", frozenset({"sequence"})
    ),
)
"""Kinds that are known by their contents; all else is taken for a bag, whose reader says why."""
_OF_BAGS: Final = frozenset({"topics", "metadata", "map", "guess"})
_OF_KINDS: Final = frozenset[str]().union(*(kind.options for kind in KINDS))


def plan_import(args: argparse.Namespace, folder: Path) -> ImportPlan:
    """Plan the import of a file; write a config into a temporary folder.

    Raises:
        ConfigError: the file of choices is invalid.
        UsageError, SourceError: the file cannot be imported.
    """
    check_source_name(args.file)
    kind = next((kind for kind in KINDS if kind.fits(args.file)), None)
    if kind is None:
        _refuse_options(args, _OF_KINDS, "a bag")
        from recorder.cli.import_plan import plan_bag

        return plan_bag(args, folder)
    _refuse_options(args, _OF_BAGS | _OF_KINDS - kind.options, kind.name)
    from recorder.cli.import_contents import plan_contents

    return plan_contents(args, folder, kind.read(args))


def _refuse_options(args: argparse.Namespace, names: Collection[str], kind: str) -> None:
    for name in sorted(names):
        if getattr(args, name):
            raise UsageError(f"--{name}: is not of {kind}, as {args.file} is")


def check_source_name(path: Path) -> None:
    """Raise a UsageError if no source of a config can name the file."""
    if not str(path.absolute()).isprintable():
        text = "a source cannot name the file: rename the file or folder with control characters"
        raise UsageError(f"{path}: {text}")


def load_config(folder: Path, sensors: Mapping[str, Any], calibration: str | None) -> Config:
    """Write and load the config of the session, which plays the file as any config can.

    Args:
        folder: an existing folder for the config and its calibration.
        sensors: entries of ``sensors``.
        calibration: text of the calibration; None: none is known.

    Raises:
        UsageError: a sensor's entry is invalid.
    """
    import yaml

    from recorder.recording.supervisor.driver_registry import load

    values: dict[str, Any] = {"version": 1, "sensors": dict(sensors)}
    if calibration is not None:
        values["calibration"] = "calibration.yaml"
        (folder / "calibration.yaml").write_text(calibration)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
    try:
        return load(path)
    except ConfigFaultsError as error:
        faults = (f"{each.key.removeprefix('sensors.')}: {each.problem}" for each in error.errors)
        raise UsageError("; ".join(faults)) from None
