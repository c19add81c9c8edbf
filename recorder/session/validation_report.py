"""The result of validation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.session.loss_accounts import EpochAccount

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """A violation of a rule.

    Attributes:
        severity: ``error``: readers would fail or read wrong data; ``warning``: harmless.
        message: the problem, with the path.
        stream, channel, sample: its place, if it has one.
    """

    severity: str
    message: str
    stream: str | None = None
    channel: str | None = None
    sample: int | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return a plain mapping for JSON."""
        keys = ("severity", "stream", "channel", "sample", "message")
        return {key: getattr(self, key) for key in keys}


@dataclass(slots=True)
class Report:
    """The checked rules, and the problems found.

    Attributes:
        path: the session's folder.
        name, state: of the session; state is None if it cannot be opened.
        deep: every payload was decoded.
        checked: one line per check.
        accounts: per stream and epoch, whether stored and counted samples sum up to those sent.
        problems: in the order of detection.
    """

    path: Path
    name: str
    state: str | None = None
    deep: bool = False
    checked: list[str] = field(default_factory=list)
    accounts: list[EpochAccount] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """True if there is no error; warnings are allowed."""
        return all(problem.severity != ERROR for problem in self.problems)

    def error(self, message: str, stream: str | None = None, **where: Any) -> None:
        self.problems.append(Problem(ERROR, message, stream, **where))

    def warning(self, message: str, stream: str | None = None, **where: Any) -> None:
        self.problems.append(Problem(WARNING, message, stream, **where))

    def to_wire(self) -> dict[str, Any]:
        """Return a plain mapping for JSON."""
        plain = {key: getattr(self, key) for key in ("name", "state", "deep", "sound", "checked")}
        found = {key: [e.to_wire() for e in getattr(self, key)] for key in ("accounts", "problems")}
        return {"path": str(self.path), **plain, **found}
