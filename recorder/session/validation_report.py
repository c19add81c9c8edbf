"""What validation found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.session.loss_accounts import EpochAccount

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be.

    Attributes:
        severity: ``error``: readers would fail or be misled; ``warning``: untidy, harmless.
        message: what, with the path.
        stream, channel, sample: where, as far as it has such a place.
    """

    severity: str
    message: str
    stream: str | None = None
    channel: str | None = None
    sample: int | None = None

    def to_wire(self) -> dict[str, Any]:
        """A plain mapping for JSON."""
        keys = ("severity", "stream", "channel", "sample", "message")
        return {key: getattr(self, key) for key in keys}


@dataclass(slots=True)
class Report:
    """What was checked, and what was found.

    Attributes:
        path: the session's folder.
        name, state: as the session says; state is None where it cannot be opened.
        deep: every payload was decoded.
        checked: one line per thing that was checked.
        accounts: per stream and epoch, whether stored and counted make up what was sent.
        problems: in the order of finding.
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
        """Whether there is no error; warnings do not count."""
        return all(problem.severity != ERROR for problem in self.problems)

    def error(self, message: str, stream: str | None = None, **where: Any) -> None:
        self.problems.append(Problem(ERROR, message, stream, **where))

    def warning(self, message: str, stream: str | None = None, **where: Any) -> None:
        self.problems.append(Problem(WARNING, message, stream, **where))

    def to_wire(self) -> dict[str, Any]:
        """A plain mapping for JSON."""
        return {
            "path": str(self.path),
            "name": self.name,
            "state": self.state,
            "deep": self.deep,
            "sound": self.sound,
            "checked": list(self.checked),
            "accounts": [account.to_wire() for account in self.accounts],
            "problems": [problem.to_wire() for problem in self.problems],
        }
