"""What the config's checks share: faults that are gathered, sections that are made, paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

from recorder.contract.config.settings import ProcessSettings, section_of
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

    def settings(self, kind: type, values: Mapping[str, Any], key: str) -> dict[str, Any]:
        """The fields of a section from its checked values: sections made, paths absolute."""
        made: dict[str, Any] = {}
        hints = get_type_hints(kind)
        for name, value in values.items():
            hint, path = hints[name], f"{key}.{name}"
            if (section := section_of(hint)) is not None:
                made[name] = section(**self.settings(section, value, path))
            elif value is not None and Path in (hint, *get_args(hint)):
                made[name] = self.attempt(self.path, path, value)
            else:
                made[name] = tuple(value) if isinstance(value, list) else value
        if kind is ProcessSettings:
            self.attempt(self._check_cpus, values["cpus"], f"{key}.cpus")
        return made

    def _check_cpus(self, cpus: Iterable[Any], key: str) -> None:
        for index, cpu in enumerate(cpus):
            if not isinstance(cpu, int) or isinstance(cpu, bool) or cpu < 0:
                raise self.document.fail(f"{key}[{index}]", "needs a CPU's number, from 0")

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
