"""Runs the tests of the live views that are coroutines."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any

import pytest
from hypothesis import is_hypothesis_test

from tests.support.waiting import PATIENCE_S


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own, in bounded time."""
    test: Any = pyfuncitem.obj
    if is_hypothesis_test(test):
        test.hypothesis.inner_test = _in_loop(test.hypothesis.inner_test)
        return None
    if not inspect.iscoroutinefunction(test):
        return None
    names = inspect.signature(test).parameters
    _in_loop(test)(**{name: pyfuncitem.funcargs[name] for name in names})
    return True


def _in_loop(test: Any) -> Any:
    @functools.wraps(test)
    def run(*args: Any, **values: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **values), PATIENCE_S))

    return run if inspect.iscoroutinefunction(test) else test
