"""How long a session's commits take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CommitTimes:
    """Count and durations of the commits so far.

    Attributes:
        count: of commits.
        total_ns, last_ns, max_ns: duration of all, of the last, of the longest.
    """

    count: int = 0
    total_ns: int = 0
    last_ns: int = 0
    max_ns: int = 0

    def add(self, took_ns: int) -> None:
        """Count a commit."""
        self.count += 1
        self.total_ns += took_ns
        self.last_ns = took_ns
        self.max_ns = max(self.max_ns, took_ns)
