"""Access rules of the server: addresses, the token, origins, and response headers.

- Without a token the server listens on loopback only, and takes requests whose ``Host`` names
  loopback or one of `origins`: a foreign page cannot reach the server through a host name that
  resolves to 127.0.0.1.
- With a token every request needs it: as ``?token=`` of ``/`` (which is answered with a cookie), as
  ``?token=`` of a WebSocket, as ``Authorization: Bearer``, or as that cookie, which holds a keyed
  digest of a constant, not the token.
- A WebSocket, and any request other than GET and HEAD, that names an ``Origin`` needs one of the
  same host and port, or one of `origins`.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from recorder.common.errors import UsageError

Scope = Mapping[str, Any]
"""A request as ASGI describes it."""

HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; font-src 'self'; worker-src 'self'; manifest-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
"""Headers of every response."""

MOST_HEAD = 16 * 1024
"""Largest total size of a request's path, query and headers, in bytes."""
_LONGEST_TOKEN = 1024
_PART = r"[^\s/:;,'\"()\[\]{}]*"
_BEFORE = r"(?<![\w:/.~-])|(?<=:)(?=(?:~|\.{1,2})?/[^/])|(?<=://)"  # not of a URL's host
_PATH = re.compile(rf"(?:{_BEFORE})(?:~|\.{{1,2}})?/(?:{_PART}/)*({_PART})")


class Access:
    """Access rules of one server.

    Args:
        bind: the address that the server listens on.
        token: the token; None if the server has none.
        origins: further origins that may connect, such as ``https://lichtblick.example``.
        secure: the server speaks TLS.
        port: distinguishes the cookies of several servers on one host.

    Raises:
        UsageError: the address is not loopback, and there is no token.
    """

    def __init__(
        self,
        bind: str,
        token: str | None,
        origins: Sequence[str] = (),
        *,
        secure: bool = False,
        port: int = 0,
    ) -> None:
        self.loopback = is_loopback(bind)
        if not token and not self.loopback:
            raise UsageError(f"live.bind: {bind} can be reached from elsewhere: set live.token")
        self._token = token.encode() if token else None
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._hosts = frozenset(urlsplit(origin).hostname or "" for origin in self._origins)
        self._bind = bind.lower()
        self._secure = secure
        self._cookie = f"recorder_{port}"

    def find_refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the HTTP status and a sentence if a request is refused; else None."""
        size = sum(len(name) + len(text) for name, text in scope["headers"])
        if size + len(scope["query_string"]) + len(scope["path"]) > MOST_HEAD:
            return 431, "The request is too large."
        headers = parse_headers(scope)
        host = headers.get("host", "")
        if self.loopback and not self._is_here(host):
            return 421, "This address is not served here."
        origin = headers.get("origin")
        reads = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if not reads and origin is not None and not self._is_same(origin, host):
            return 403, "This origin is not permitted."
        if not self._is_known(scope, headers):
            return 401, "A token is needed."
        return None

    def shows_token(self, scope: Scope) -> bool:
        """Check that the URL holds the right token."""
        given = _query(scope).get("token", [""])[-1]
        return self._token is not None and self._matches(given)

    def cookie(self) -> str:
        """Return the value of ``Set-Cookie`` for a browser that showed the token."""
        secure = "; Secure" if self._secure else ""
        age_s = 30 * 24 * 3600
        return (
            f"{self._cookie}={self._digest()}; Path=/; Max-Age={age_s}; HttpOnly; "
            f"SameSite=Strict{secure}"
        )

    def _is_known(self, scope: Scope, headers: Mapping[str, str]) -> bool:
        if self._token is None or self.shows_token(scope):
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._matches(given.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(
            cookie.value.encode(), self._digest().encode()
        )

    def _matches(self, given: str) -> bool:
        if self._token is None or len(given) > _LONGEST_TOKEN:
            return False
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    def _digest(self) -> str:
        assert self._token is not None
        return hmac.digest(self._token, b"recorder live view", hashlib.sha256).hex()

    def _is_here(self, host: str) -> bool:
        name = _host_name(host)
        return name is not None and (
            name == self._bind or name in self._hosts or name == "localhost" or is_loopback(name)
        )

    def _is_same(self, origin: str, host: str) -> bool:
        origin = origin.strip().lower()
        if origin.rstrip("/") in self._origins:
            return True
        scheme, _, place = origin.partition("://")
        return scheme in ("http", "https") and bool(place) and place == host.strip().lower()


def is_loopback(address: str) -> bool:
    """Check that an address, or ``localhost``, is a loopback address."""
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def parse_headers(scope: Scope) -> dict[str, str]:
    """Return a request's headers by their lower-case names; the last of several wins."""
    return {
        name.decode("latin-1").lower(): text.decode("latin-1") for name, text in scope["headers"]
    }


def strip_paths(value: Any) -> Any:
    """Return a JSON value in which each file path is reduced to its last part.

    >>> strip_paths({"error": "/data/sessions/a: is full", "address": "rtsp://cam/1"})
    {'error': 'a: is full', 'address': 'rtsp://cam/1'}
    """
    if isinstance(value, str):
        return _PATH.sub(r"\1", value) if "/" in value else value
    if isinstance(value, dict):
        return {key: strip_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strip_paths(item) for item in value]
    return value


def _query(scope: Scope) -> dict[str, list[str]]:
    try:
        return parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=32)
    except ValueError:
        return {}


def _host_name(host: str) -> str | None:
    """Return the name in a ``Host`` header, without its port; None if it is malformed."""
    try:
        parts = urlsplit(f"//{host.strip()}")
        _ = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname
