"""Masking of passwords in addresses before they are shown or stored.

Every printed source address, and the copy of the config in a session, passes through
`mask_passwords`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MASK = "***"
SECRET_KEYS = frozenset({"token"})
"""Keys of the config whose whole value is a password."""

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{0,30}://|\b(?i:rtsps?|https?|rtmp|ftp|srt|tcp|udp):"
# An address up to a space or quote, with an "@" in it; the bounds limit the time for any text.
_ADDRESS = re.compile(rf"({_SCHEME})([^\s\"'<>]{{0,1000}}@[^\s\"'<>]*)")
_VALUE = re.compile(rf"({_SCHEME})(.*@.*)", re.DOTALL)


def _compile_parameter(end: str) -> re.Pattern[str]:
    """Make the pattern of a query, path or cookie parameter that is named like a password.

    Text after a ";" or "," belongs to the value unless the next parameter begins there.

    Args:
        end: characters that end an address.
    """
    return re.compile(
        r"([?&;,]\s?[\w.-]{0,40}?"
        r"(?:pass|passwd|password|passphrase|pwd|token|secret|auth|api[_-]?key)=)"
        rf"(?:[^&;,#{end}]|[;,](?!\s?[\w.-]{{0,60}}=|[#{end}]|$))+",
        re.IGNORECASE,
    )


_BRACKETS = re.compile(r"\[[^\]]*\]")  # around an IPv6 address
_QUERY = _compile_parameter(r"\s\"'<>")
_QUERY_OF_VALUE = _compile_parameter("")
_HEADER = re.compile(
    r"\b((?:proxy-)?authorization|(?:set-)?cookie|x-(?:api-key|auth-token))"
    r"([\"']?:\s*[\"']?)[^\s\"'][^\r\n]*",
    re.IGNORECASE,
)
_COMMENT = re.compile(rf"(#.*?\b(?:{'|'.join(SECRET_KEYS)})[\"']?:\s*)[^\s,}}]+")


_SECRET_WORDS = frozenset(
    {"pass", "pw", "pwd", "pin", "psk", "key", "keys", "auth", "bearer", "cookie", "private"}
)
_SECRET_PARTS = re.compile(
    r"password|passwd|passphrase|passwort|kennwort|secret|token|credential|(?:api|access|private)key"
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def is_secret_key(name: str) -> bool:
    """Return whether a key of free-form metadata is named like a secret.

    >>> is_secret_key("wifi_password"), is_secret_key("apiKey"), is_secret_key("passengers")
    (True, True, False)
    """
    words = {word.lower() for word in _WORD.findall(name)}
    joined = re.sub(r"[\W_]", "", name).lower()
    return not words.isdisjoint(_SECRET_WORDS) or _SECRET_PARTS.search(joined) is not None


def mask_secrets(value: Any, *, secret: bool = False) -> Any:
    """Replace values under keys named like secrets in free-form metadata by ``***``.

    Passwords in addresses are masked, too.

    >>> mask_secrets({"vehicle": 7, "wifi": {"password": "x", "cells": [1]}})
    {'vehicle': 7, 'wifi': {'password': '***', 'cells': [1]}}
    """
    if isinstance(value, Mapping):
        return {
            name: mask_secrets(each, secret=secret or is_secret_key(str(name)))
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [mask_secrets(each, secret=secret) for each in value]
    if secret:
        return value if value in (None, "") else MASK
    return mask_value(value) if isinstance(value, str) else value


def find_secret_keys(metadata: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield paths of the keys whose value `mask_secrets` masks, such as ``wifi.password``."""
    for name, value in metadata.items():
        if isinstance(value, Mapping) and not is_secret_key(str(name)):
            yield from find_secret_keys(value, f"{prefix}{name}.")
        elif mask_secrets({name: value}) != {name: value}:
            yield f"{prefix}{name}"


def mask_passwords(text: str) -> str:
    """Replace each password in an address by ``***``.

    The mask replaces the part between ``:`` and ``@`` before an address's host, even if the
    password has characters that should have been escaped (``/``, ``@``). It also replaces the
    values of parameters named like a password, and the rest of a line after a header that carries a
    password (``Authorization:``, ``Cookie:``).

    >>> mask_passwords("rtsp://user:pw@10.0.0.5/stream")
    'rtsp://user:***@10.0.0.5/stream'
    """
    text = _HEADER.sub(rf"\g<1>\g<2>{MASK}", text)
    return _QUERY.sub(rf"\g<1>{MASK}", _ADDRESS.sub(_mask_address, text))


def mask_comment(text: str) -> str:
    """Mask passwords in YAML outside of its values, where secret keys may be commented out.

    >>> mask_comment("} # live: {token: abc}")
    '} # live: {token: ***}'
    """
    return _COMMENT.sub(rf"\g<1>{MASK}", mask_passwords(text))


def mask_value(value: str) -> str:
    """Mask passwords in a single value, whose address may have quotes and spaces.

    >>> mask_value("rtsp://user:it's@10.0.0.5/stream")
    'rtsp://user:***@10.0.0.5/stream'
    """
    if match := _VALUE.fullmatch(value):
        value = _mask_address(match)
    if re.match(_SCHEME, value):
        value = _QUERY_OF_VALUE.sub(rf"\g<1>{MASK}", value)
    return mask_passwords(value)


def _mask_address(match: re.Match[str]) -> str:
    scheme, rest = match.groups()
    host_end = re.search(r"[/?#]", rest)
    authority = rest[: host_end.start()] if host_end else rest
    user_info, at, host = authority.rpartition("@")
    tail = host + rest[len(authority) :]
    # An "@" further back is part of a path, unless what stands before the first "/" cannot be
    # HOST:PORT.  A password may hold an unescaped "/": masking too much is right.
    _, colon, port = _BRACKETS.sub("", host).partition(":")
    if "@" in tail and colon and not port.isdigit():
        user_info, at, tail = rest.rpartition("@")
    elif not at:
        return scheme + authority + mask_passwords(rest[len(authority) :])
    user, colon, password = user_info.partition(":")
    return f"{scheme}{user}{colon}{MASK if password else ''}{at}{tail}"
