"""Answers of drivers' processes that tests of a module share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from recorder.recording.supervisor import driver_registry


class SharedAnswers:
    """Answers by query: a driver is asked again only for another entry.

    For tests whose sources do not change.
    """

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str, str], Any] = {}
        self._query = driver_registry._query

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the registry answer from here."""
        monkeypatch.setattr(driver_registry, "_query", self.query)

    def query(self, verb: str, queries: Sequence[tuple[str, str]], timeout_s: float) -> list[Any]:
        """Ask the drivers what they were not asked."""
        new = [each for each in queries if (verb, *each) not in self._answers]
        for each, answer in zip(new, self._query(verb, new, timeout_s), strict=True):
            self._answers[verb, *each] = answer
        return [self._answers[verb, *each] for each in queries]
