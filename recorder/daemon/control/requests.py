"""What a control request may be: one JSON object a line, checked before anything acts on it.

``{"op": "start", "name": "drive", "meta": {"driver": "ada"}}``; see docs/daemon.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recorder.contract.errors import UsageError
from recorder.contract.session_names import check_name

MOST_BYTES = 64 * 1024
"""Longest request, with its line end."""
MOST_KEYS = 64
MOST_VALUE = 4096
MOST_TEXT = 1000

_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that no text here needs: those of control, other line ends, halves of pairs."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was checked: what is asked, and with which arguments."""

    op: str
    values: Mapping[str, Any] = field(default_factory=dict)


def parse_request(line: bytes) -> Request:
    """A request from its line.

    Raises:
        UsageError: it is none, or not one that can be carried out; says why.
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
    op = values.pop("op")
    checks = OPS.get(op)
    if checks is None:
        raise UsageError(f"there is no op {op[:40]!r}; there are {', '.join(OPS)}")
    for key in values:
        if key not in checks:
            known = ", ".join(checks) or "nothing else"
            raise UsageError(f"{op} takes {known}, not {key[:40]!r}")
    return Request(op, {key: checks[key](value) for key, value in values.items()})


def check_metadata(values: Any) -> dict[str, str]:
    """Metadata for a session, as it may stand in the files that it goes into.

    Raises:
        UsageError: a key or a value cannot.
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


def check_text(value: Any) -> str:
    """The text of a mark.

    Raises:
        UsageError: it is none, empty, too long, or holds control characters.
    """
    if not isinstance(value, str) or not value.strip():
        raise UsageError("a mark needs a text")
    if len(value) > MOST_TEXT:
        raise UsageError(f"a mark is longer than {MOST_TEXT} characters")
    if bad := _CONTROL.search(value):
        raise UsageError(f"a mark holds {bad.group()!r}")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError("a session's name is a text")
    return check_name(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError("is neither true nor false")
    return value


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands twice")
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


OPS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "start": {"name": _name, "meta": check_metadata},
    "stop": {},
    "status": {},
    "mark": {"text": check_text},
    "keep": {"session": _name, "release": _flag},
}
"""What may be asked, and what checks each argument."""
