"""Errors of the public API."""

from __future__ import annotations

from collections.abc import Iterable

from recorder.common.errors import SessionError
from recorder.config.options import suggest


class UnknownNameError(SessionError, KeyError):
    """A name of a stream, a channel or a sensor that is not there; the text suggests another.

    Scenarios: ``session["camra"]``, ``session["imu"][0]["acceleration"]``.
    """

    def __str__(self) -> str:
        return str(self.args[0])


def describe_unknown(where: object, kind: str, name: str, known: Iterable[str]) -> str:
    """Write the text of an error about an unknown name.

    Args:
        where: what should have the name.
        kind: ``stream``, ``channel``.
        name: the unknown name.
        known: the names that exist.
    """
    names = list(known)
    there = ", ".join(names) or "none"
    return f"{where}: has no {kind} {name!r}{suggest(name, names)}; its {kind}s: {there}"
