"""Notifications to systemd: sd_notify(3) over a datagram socket, without its library."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping


class SystemdNotify:
    """Connection to the service manager that started this process, if there is one.

    >>> notify = SystemdNotify(os.environ)
    >>> notify.ready()
    >>> notify.watchdog_s         # None unless the unit has WatchdogSec=
    30.0

    Args:
        environment: has ``NOTIFY_SOCKET`` and, with a watchdog for this process,
            ``WATCHDOG_USEC`` and ``WATCHDOG_PID``.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # '@' is the zero byte of an abstract address.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s: float | None = None
        if environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            with contextlib.suppress(KeyError, ValueError):
                self.watchdog_s = int(environment["WATCHDOG_USEC"]) / 1e6

    def ready(self) -> None:
        """Report that every driver is armed or known to be missing."""
        self._send("READY=1")

    def watchdog(self) -> None:
        """Feed the watchdog; call this about once a second while the daemon is healthy."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Report the status in one line for users; call this when it changes."""
        self._send("STATUS=" + text.replace("\n", " "))

    def stopping(self) -> None:
        """Report that the daemon is ending."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        """Send a message; ignore errors, since recording must continue."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.setblocking(False)
            s.sendto(text.encode(), self._address)
