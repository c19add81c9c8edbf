"""How many examples a property is tried with."""

from __future__ import annotations

from hypothesis import settings


def examples(factor: float) -> settings:
    """So many times the examples of the profile: of `make test`, or of campaigns.

    Use as a decorator beside ``given``; the profiles are those of tests/conftest.py.
    """
    return settings(max_examples=round(factor * settings().max_examples))
