"""Passwords in addresses, masked before anything is shown or stored.

Everything that prints a source address, and the copy of the config that goes into a session,
passes through `mask_passwords`.
"""

from __future__ import annotations

import re

MASK = "***"
SECRET_KEYS = frozenset({"token"})
"""Keys of the config whose whole value is a password."""

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{0,30}://|\b(?i:rtsps?|https?|rtmp|ftp|srt|tcp|udp):"
# An address up to a space or quote, with an "@" in it; the bounds keep odd texts from taking long.
_ADDRESS = re.compile(rf"({_SCHEME})([^\s\"'<>]{{0,1000}}@[^\s\"'<>]*)")
_VALUE = re.compile(rf"({_SCHEME})(.*@.*)", re.DOTALL)


def _parameter(end: str) -> re.Pattern[str]:
    """A parameter of a query, a path or a cookie that is named like a password.

    What is behind a ";" or "," belongs to its value unless the next parameter begins there.

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
_QUERY = _parameter(r"\s\"'<>")
_QUERY_OF_VALUE = _parameter("")
_HEADER = re.compile(
    r"\b((?:proxy-)?authorization|(?:set-)?cookie|x-(?:api-key|auth-token))"
    r"([\"']?:\s*[\"']?)[^\s\"'][^\r\n]*",
    re.IGNORECASE,
)
_COMMENT = re.compile(rf"(#.*?\b(?:{'|'.join(SECRET_KEYS)})[\"']?:\s*)[^\s,}}]+")


def mask_passwords(text: str) -> str:
    """The text with ``***`` for each password in an address.

    The mask replaces the part between ``:`` and ``@`` before an address's host, even if the
    password holds characters that should have been escaped (``/``, ``@``), the values of
    parameters named like a password, and the rest of a line after a header that carries a
    password (``Authorization:``, ``Cookie:``).

    >>> mask_passwords("rtsp://user:pw@10.0.0.5/stream")
    'rtsp://user:***@10.0.0.5/stream'
    """
    text = _HEADER.sub(rf"\g<1>\g<2>{MASK}", text)
    return _QUERY.sub(rf"\g<1>{MASK}", _ADDRESS.sub(_mask_address, text))


def mask_comment(text: str) -> str:
    """`mask_passwords` of YAML outside of its values, where secret keys may be commented out.

    >>> mask_comment("} # live: {token: abc}")
    '} # live: {token: ***}'
    """
    return _COMMENT.sub(rf"\g<1>{MASK}", mask_passwords(text))


def mask_value(value: str) -> str:
    """`mask_passwords` of a text known to be one value: an address may hold quotes and spaces.

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
