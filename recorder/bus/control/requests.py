"""Control requests: one JSON object a line, checked before the daemon acts on it.

``{"op": "start", "name": "drive", "meta": {"driver": "ada"}}``; see docs/daemon.md. Each request is
one class here, listed in `Request`, and one case in `Daemon`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from recorder.common.errors import UsageError
from recorder.config.names import check_name

MOST_BYTES = 64 * 1024
"""Longest request, with its line end."""
MOST_KEYS = 64
MOST_VALUE = 4096
MOST_TEXT = 1000
MOST_AGE_S = 600.0
MOST_KEEP_S = 86400.0

_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TRIGGER = re.compile(r"[a-z][a-z0-9_]{0,63}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that texts must not have: control characters, other line ends, lone surrogates."""


def parse_request(line: bytes) -> Request:
    """Parse a request from its line.

    Raises:
        UsageError: the line is not a valid request; says why.
    """
    if len(line) > MOST_BYTES:
        raise UsageError(f"the request is longer than {MOST_BYTES} bytes")
    try:
        values = json.loads(
            line.decode("utf-8"),
            parse_constant=_refuse_constant,
            object_pairs_hook=_refuse_duplicates,
        )
    except (ValueError, RecursionError):
        raise UsageError("the request is not a JSON object in UTF-8 on one line") from None
    if not isinstance(values, dict) or not isinstance(values.get("op"), str):
        raise UsageError('the request is not an object with an "op"')
    return make_request(values.pop("op"), values)


def make_request(op: str, values: Mapping[str, Any]) -> Request:
    """Make a request from its arguments.

    Raises:
        UsageError: there is no such op or argument, or a value is wrong.
    """
    if op not in OPS:
        raise UsageError(f"there is no op {op[:40]!r}; there are {', '.join(OPS)}")
    checks = {argument.name: argument.metadata["check"] for argument in fields(OPS[op])}
    for key in values:
        if key not in checks:
            known = ", ".join(checks) or "nothing else"
            raise UsageError(f"{op} takes {known}, not {key[:40]!r}")
    return OPS[op](**{key: checks[key](value) for key, value in values.items()})


def check_metadata(values: Any) -> dict[str, str]:
    """Check that every file format can hold a session's metadata; return the metadata.

    Raises:
        UsageError: a key or a value is not allowed.
    """
    if not isinstance(values, dict):
        raise UsageError("metadata is not an object")
    if len(values) > MOST_KEYS:
        raise UsageError(f"metadata has {len(values)} keys, {MOST_KEYS} is the most")
    for key, value in values.items():
        if not _KEY.fullmatch(key):
            raise UsageError(
                f"metadata key {key[:40]!r}: is 1 to 64 letters A-Z and a-z, digits, '_' and '-'"
            )
        if not isinstance(value, str):
            raise UsageError(f"metadata {key}: is not a text")
        if len(value) > MOST_VALUE:
            raise UsageError(f"metadata {key}: is longer than {MOST_VALUE} characters")
        if bad := _CONTROL.search(value):
            raise UsageError(f"metadata {key}: holds {bad.group()!r}")
    return values


def _mark_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError("a mark needs a text")
    if len(value) > MOST_TEXT:
        raise UsageError(f"a mark is longer than {MOST_TEXT} characters")
    if bad := _CONTROL.search(value):
        raise UsageError(f"a mark holds {bad.group()!r}")
    return value


def _age(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= MOST_AGE_S:
        raise UsageError(f"mark: age_s is not a number of seconds from 0 to {MOST_AGE_S:g}")
    return float(value)


def _keep(value: Any) -> tuple[float, float]:
    """Parse ``BEFORE:AFTER`` or a pair; return seconds before and after."""
    seconds = value.split(":") if isinstance(value, str) else value
    try:
        before, after = map(float, seconds)
    except (TypeError, ValueError):
        before = after = -1.0
    if not (0 <= before <= MOST_KEEP_S and 0 <= after <= MOST_KEEP_S):
        raise UsageError(
            f"mark: keep is not BEFORE:AFTER, two numbers of seconds from 0 to {MOST_KEEP_S:g}"
        )
    return before, after


def _t_ns(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise UsageError("mark: t_ns is not a time in ns since 1970")
    return value


def _trigger(value: Any) -> str:
    if not isinstance(value, str) or not _TRIGGER.fullmatch(value):
        raise UsageError("mark: trigger is not the name of a trigger")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError("a session's name is a text")
    return check_name(value)


def _release(value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError("keep: release is neither true nor false")
    return value


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a duplicate key")
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _declare_argument(check: Callable[[Any], Any], *words: str, **cli: Any) -> Any:
    """Declare a request's argument; None unless given.

    Args:
        check: raises UsageError.
        words, cli: declare the argument of the command's verb (`ArgumentParser.add_argument`);
            without words the command has none.
    """
    return field(default=None, metadata={"check": check, "words": words, "cli": cli})


@dataclass(frozen=True, slots=True)
class _Request:
    @property
    def op(self) -> str:
        return type(self).__name__.lower()

    @property
    def values(self) -> dict[str, Any]:
        """Arguments that are given."""
        given = {argument.name: getattr(self, argument.name) for argument in fields(self)}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Start(_Request):
    """Request to begin a session; answered when the session is open."""

    name: str | None = _declare_argument(
        _name, "--name", help="give the session this name, which must be new"
    )
    meta: Mapping[str, str] | None = _declare_argument(
        check_metadata,
        "--meta",
        action="append",
        metavar="K=V",
        help="add metadata to the config's; may be repeated",
    )


class Stop(_Request):
    """Request to end the session; answered when the session is closed."""


class Status(_Request):
    """Request for the daemon's status."""


@dataclass(frozen=True, slots=True)
class Mark(_Request):
    """Request to put a mark into the session that is being recorded."""

    text: str | None = _declare_argument(
        _mark_text, "text", metavar="TEXT", help="mark with this text"
    )
    age_s: float | None = _declare_argument(
        _age,
        "--age",
        dest="age_s",
        type=float,
        metavar="S",
        help="mark the moment S seconds ago (default: now)",
    )
    keep: tuple[float, float] | None = _declare_argument(
        _keep,
        "--keep",
        metavar="BEFORE:AFTER",
        help="keep this many seconds before and after the moment, as an event",
    )
    t_ns: int | None = _declare_argument(_t_ns)
    trigger: str | None = _declare_argument(_trigger)


@dataclass(frozen=True, slots=True)
class Keep(_Request):
    """Request to protect a session from deletion, or to release it.

    Without a name, the session is the one being recorded.
    """

    session: str | None = _declare_argument(
        _name,
        "session",
        metavar="SESSION",
        help="keep the session in this folder, or of this name in a daemon's root",
    )
    release: bool | None = _declare_argument(
        _release, "--release", action="store_true", help="permit its deletion again"
    )


Request = Start | Stop | Status | Mark | Keep
OPS: Mapping[str, type[Request]] = {kind.__name__.lower(): kind for kind in get_args(Request)}
"""All requests by their ``op``."""
