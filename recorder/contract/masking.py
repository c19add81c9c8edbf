"""Passwords in addresses, masked before anything is shown or stored.

Everything that prints a source address, and the copy of the config that goes into a session,
passes through `mask_passwords`.
"""

from __future__ import annotations

import re

MASK = "***"

# An address up to a space or quote, with an "@" in it; the bounds keep odd texts from taking long.
_ADDRESS = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]{0,30}://|\b(?:rtsps?|https?|rtmp|ftp|srt|tcp|udp):)"
    r"([^\s\"'<>]{0,1000}@[^\s\"'<>]*)"
)
_VALUE = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]{0,30}://|(?:rtsps?|https?|rtmp|ftp|srt|tcp|udp):)(.*@.*)", re.DOTALL
)
_QUERY = re.compile(
    r"([?&;](?:pass|passwd|password|pwd|token|secret|api_?key)=)[^&;#\s\"'<>]+", re.IGNORECASE
)


def mask_passwords(text: str) -> str:
    """The text with ``***`` for each password in an address.

    Masked are the part between ``:`` and ``@`` before an address's host, even where the
    password holds characters that should have been escaped (``/``, ``@``), and the values of
    query parameters named like a password.

    >>> mask_passwords("rtsp://user:pw@10.0.0.5/stream")
    'rtsp://user:***@10.0.0.5/stream'
    """
    return _QUERY.sub(rf"\g<1>{MASK}", _ADDRESS.sub(_mask_address, text))


def mask_value(value: str) -> str:
    """`mask_passwords` of a text known to be one value: an address may hold quotes and spaces.

    >>> mask_value("rtsp://user:it's@10.0.0.5/stream")
    'rtsp://user:***@10.0.0.5/stream'
    """
    if match := _VALUE.fullmatch(value):
        value = _mask_address(match)
    return mask_passwords(value)


def _mask_address(match: re.Match[str]) -> str:
    scheme, rest = match.groups()
    host_end = re.search(r"[/?#]", rest)
    authority = rest[: host_end.start()] if host_end else rest
    if "@" in authority:
        user_info, at, tail = authority.rpartition("@")
        tail += rest[len(authority) :]
    else:
        # An "@" further back: part of a path, unless what stands before the first "/" cannot
        # be HOST:PORT.  Then an unescaped "/" stands in a password, and masking too much is right.
        port = authority.partition(":")[2]
        if not port or port.isdigit():
            return scheme + authority + mask_passwords(rest[len(authority) :])
        user_info, at, tail = rest.rpartition("@")
    user, colon, password = user_info.partition(":")
    return f"{scheme}{user}{colon}{MASK if password else ''}{at}{tail}"
