"""What the config's checks share: faults that are gathered, and paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from recorder.contract.config.options import OptionReader, OptionTable
from recorder.contract.config.yaml_lines import Document
from recorder.contract.errors import ConfigError, ConfigFaultsError

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Checker:
    """Checks what option tables cannot say.

    Attributes:
        document: the file's text and lines.
        base: the file's folder: paths in the file are relative to it.
        faults: takes everything that is wrong.
    """

    document: Document
    base: Path
    faults: list[ConfigError]

    def attempt(self, check: Callable[P, T], *args: P.args, **more: P.kwargs) -> T | None:
        """What a check returns; None if it raised: `faults` has the error."""
        try:
            return check(*args, **more)
        except ConfigFaultsError as several:
            self.faults.extend(several.errors)
        except ConfigError as error:
            self.faults.append(error)
        return None

    def fault(self, key: str, message: str) -> None:
        """Add a fault at a key of the file."""
        self.faults.append(self.document.fail(key, message))

    def read(
        self,
        table: OptionTable,
        values: Mapping[str, Any],
        key: str,
        find: Callable[[str, str], Any] | None = None,
    ) -> dict[str, Any] | None:
        """A mapping of the file by its table; see `OptionReader`."""
        reader = OptionReader(self.document.fail, self.faults, find, null_is_absent=True)
        return reader.read(table, values, key)

    def check_cpus(self, process: dict[str, Any], key: str) -> None:
        """Add a fault, and empty the list, if a value in ``process.cpus`` is no CPU's number."""
        for index, cpu in enumerate(process["cpus"]):
            if not isinstance(cpu, int) or isinstance(cpu, bool) or cpu < 0:
                self.fault(f"{key}.cpus[{index}]", "needs a CPU's number, from 0")
                process["cpus"] = []
                return

    def path(self, key: str, text: str) -> Path:
        """The path, taken relative to the config file."""
        if not text:
            raise self.document.fail(key, "needs a path; it is empty")
        try:
            return (self.base / text).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL; a loop of links
            raise self.document.fail(key, f"{text!r:.100} is not a path: {error}") from None

    def existing(self, key: str, text: str, *, file: bool = False) -> Path:
        """The path, which must be there (and, with `file`, be a file)."""
        path = self.path(key, text)
        try:
            found = path.exists()
        except OSError as error:  # too long a name, a folder that may not be entered
            raise self.document.fail(key, f"{path}: {error.strerror}") from None
        if not found:
            raise self.document.fail(key, f"no such file: {path}")
        if file and not path.is_file():
            raise self.document.fail(key, f"is not a file: {path}")
        return path
