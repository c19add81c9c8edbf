"""The helpers of the tests fail where what they wait for or run fails."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support import waiting
from tests.support.devices import stepped


def test_what_never_comes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waiting.wait_until("it", iter([0, None, 7]).__next__) == 7
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    with pytest.raises(AssertionError, match="never: a part, after 3"):
        waiting.wait_until(lambda: f"a part, after {1 + 2}", lambda: False)
    with pytest.raises(TimeoutError):
        asyncio.run(waiting.turn_until(lambda: None))


def test_a_device_that_fails_in_its_thread_fails_the_test() -> None:
    called = threading.Event()

    class Broken:
        def step(self, now_ns: int) -> int:
            called.set()
            raise ZeroDivisionError("a defect")

    with pytest.raises(ZeroDivisionError, match="a defect"), stepped(Broken()):
        assert called.wait(waiting.PATIENCE_S)
