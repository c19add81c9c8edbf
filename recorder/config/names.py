"""Session names: allowed characters, and the template that makes names.

A session's name is a folder's name and a part of archive names and URLs, so it has only ASCII
letters, digits, dot, underscore and hyphen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from recorder.common.errors import UsageError

STREAM_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""Names of streams and sensors."""

MAX_NAME = 100
"""Longest name of a session."""
MAX_RENDERED = 90
"""Longest name that a template makes: it leaves room for suffixes such as ``_2`` and ``_p001``."""

PART = re.compile(r"_p(\d{3,6})")
"""Suffix of a part's name, after the recording's name: the part's number."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_BAD = re.compile(r"[^A-Za-z0-9._-]")
_TOKEN = re.compile(r"\{([^{}]*)\}")
_METADATA = re.compile(r"metadata\.([A-Za-z0-9_-]+)")
_STRFTIME = re.compile(r"(?:%-?[A-Za-z]|[A-Za-z0-9._-])+")
_DEFAULT_TIME = "%Y_%m_%d_%H_%M_%S"
_SAMPLE_TIME = datetime(2024, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
_ALLOWED = "a name takes the letters A-Z and a-z, digits, '.', '_' and '-'"


def check_name(name: str) -> str:
    """Check a session's name; return it.

    Raises:
        UsageError: the name is empty, too long, would leave its folder, or has a character that is
            not allowed; the message names the fault.
    """
    if _NAME.fullmatch(name):
        return name
    shown = repr(name if len(name) <= 40 else name[:37] + "...")
    if not name:
        raise UsageError(f"session name {shown}: is empty")
    if "/" in name or "\\" in name or name in (".", ".."):
        raise UsageError(
            f"session name {shown}: is a path; a session is one folder right below its root"
        )
    if bad := _BAD.search(name):
        raise UsageError(f"session name {shown}: holds {bad.group()!r}; {_ALLOWED}")
    if len(name) > MAX_NAME:
        raise UsageError(
            f"session name {shown}: is {len(name)} characters long, {MAX_NAME} is the most"
        )
    raise UsageError(f"session name {shown}: starts with {name[0]!r}, not a letter or digit")


def split_part_name(name: str) -> tuple[str, int]:
    """Return the recording that a session is a part of, and the part's number, 0 for no part.

    >>> recording_of("drive_p002"), recording_of("drive")
    (('drive', 2), ('drive', 0))
    """
    recording, mark, digits = name.rpartition("_p")
    part = PART.fullmatch(mark + digits) if recording else None
    return (name, 0) if part is None else (recording, int(part[1]))


def check_template(template: str, metadata: Mapping[str, Any] | None = None) -> None:
    """Check a ``session.name`` template.

    Args:
        template: text with ``{hostname}``, ``{utc:STRFTIME}`` (``{utc}`` alone takes
            ``%Y_%m_%d_%H_%M_%S``) and ``{metadata.KEY}`` in it.
        metadata: the keys that ``{metadata.KEY}`` may name.

    Raises:
        UsageError: an unknown placeholder, a stray brace, a character that is not allowed, or a
            name that would always be too long.
    """
    metadata = metadata or {}
    for token in _TOKEN.findall(template):
        kind, _, argument = token.partition(":")
        key = _METADATA.fullmatch(token)
        if key:
            if key[1] not in metadata:
                raise UsageError(f"{{{token}}} names a key that session.metadata does not have")
        elif kind == "utc":
            if ":" in token and not _STRFTIME.fullmatch(argument):
                raise UsageError(
                    f"{{{token}}}: a time format is made of strftime's directives such as %Y; "
                    f"apart from them, {_ALLOWED}"
                )
            example = _SAMPLE_TIME.strftime(argument or _DEFAULT_TIME)
            if bad := _BAD.search(example):
                raise UsageError(f"{{{token}}} gives {example!r}, with {bad.group()!r}; {_ALLOWED}")
        elif token != "hostname":
            raise UsageError(
                f"unknown placeholder {{{token}}}; there are {{hostname}}, {{utc:FORMAT}} and "
                "{metadata.KEY}"
            )
    literal = _TOKEN.sub("", template)
    if "{" in literal or "}" in literal:
        raise UsageError("unmatched brace; write a placeholder as in {hostname}")
    check_name("x" + literal)
    shortest = _fill(template, "h", _SAMPLE_TIME, metadata)
    if not shortest:
        raise UsageError("is empty")
    if len(shortest) > MAX_RENDERED:
        raise UsageError(
            f"gives names of {len(shortest)} characters at least; {MAX_RENDERED} is the most"
        )


def render_name(
    template: str,
    hostname: str,
    utc: datetime,
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """Make a session's name from a template.

    This never fails on the host name or the metadata, because a vehicle with an unusual host name
    must still record. Characters that are not allowed become ``-``, and the name is cut to
    `MAX_RENDERED` characters.

    Args:
        template: a template that `check_template` passed.
        hostname: the machine's name.
        utc: the time of the session's start; an aware time of another zone is converted.
        metadata: the session's metadata, for ``{metadata.KEY}``.
    """
    if utc.tzinfo is not None:
        utc = utc.astimezone(UTC)
    text = _fill(template, hostname, utc, metadata or {})
    return _BAD.sub("-", text).lstrip("._-")[:MAX_RENDERED] or "session"


def _fill(template: str, hostname: str, utc: datetime, metadata: Mapping[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        kind, _, argument = match[1].partition(":")
        if kind == "utc":
            return utc.strftime(argument or _DEFAULT_TIME)
        if key := _METADATA.fullmatch(match[1]):
            return str(metadata.get(key[1], ""))
        return hostname

    return _TOKEN.sub(value, template)
