"""What the section ``live`` may ask for: nobody beyond this machine looks without a token."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from recorder.contract.config.settings import LiveSettings

LEAST_TOKEN = 16
_HOST = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_NAME = re.compile(rf"{_HOST}(?:\.{_HOST})*\.?")
_TOKEN = re.compile(r"[!-~]+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]*|\[[0-9a-f:.]+\])(?::\d{1,5})?")
"""As browsers send it (RFC 6454, section 6.2); the desktop apps of Foxglove send ``file://``."""


def live_faults(live: LiveSettings) -> Iterator[tuple[str, str]]:
    """What is wrong with the section: (key in it, message)."""
    if not (_is_address(live.bind) or _is_name(live.bind)):
        yield "bind", f"{live.bind!r:.60} is neither an address nor a host's name"
    elif not is_loopback(live.bind) and live.token is None:
        yield "bind", f"{live.bind} is reached from other machines, which needs live.token"
    if live.token is not None:
        if len(live.token) < LEAST_TOKEN:
            yield "token", f"needs {LEAST_TOKEN} characters or more, this one has {len(live.token)}"
        elif not _TOKEN.fullmatch(live.token):
            yield "token", "needs letters, digits and signs of ASCII, and no spaces"
    for index, origin in enumerate(live.origins):
        if not _ORIGIN.fullmatch(origin):
            wanted = "SCHEME://HOST or SCHEME://HOST:PORT in lower case, without a path"
            yield f"origins[{index}]", f"{origin!r:.100} is not of the form {wanted}"
    if live.key is None and live.certificate is not None:
        yield "certificate", "needs live.key as well: the certificate's private key"
    if live.certificate is None and live.key is not None:
        yield "key", "needs live.certificate as well"


def is_loopback(bind: str) -> bool:
    """Whether only this machine reaches an address."""
    return bind == "localhost" or (_is_address(bind) and ipaddress.ip_address(bind).is_loopback)


def _is_address(bind: str) -> bool:
    try:
        ipaddress.ip_address(bind)
    except ValueError:
        return False
    return True


def _is_name(bind: str) -> bool:
    last = bind.rstrip(".").rpartition(".")[2]
    return _NAME.fullmatch(bind) is not None and not last.isdigit()
