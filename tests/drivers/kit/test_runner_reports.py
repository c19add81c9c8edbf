"""A driver process's reports to its parent."""

from __future__ import annotations

import os
import threading

import pytest

from drivers.kit import runner as runner_module


def test_reports_of_two_threads_never_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[str] = []
    blocked: list[bool] = []

    def of_another_thread() -> None:
        runner_module.report("two")

    class Stdout:
        def write(self, line: str) -> None:
            entered.append(line)
            if len(entered) == 1:
                other.start()
                other.join(0.2)  # it comes no further than the lock
                blocked.append(len(entered) == 1)

        def flush(self) -> None:
            pass

    other = threading.Thread(target=of_another_thread)
    monkeypatch.setattr("sys.stdout", Stdout())
    runner_module.report("one")
    other.join()
    assert entered == ['{"event":"one"}\n', '{"event":"two"}\n']
    assert blocked == [True]


def test_a_parent_that_is_gone_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a driver hands over what it has, rather than die of that."""
    reading, writing = os.pipe()
    os.close(reading)
    out = os.fdopen(writing, "w")
    monkeypatch.setattr("sys.stdout", out)
    runner_module.report("stats", samples=1)
    with pytest.raises(BrokenPipeError):
        out.close()  # it was tried
