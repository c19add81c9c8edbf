"""Paths of the control socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from recorder.common.errors import UsageError

SYSTEM = Path("/run/recorder/control.sock")
NAMED = "RECORDER_SOCKET"
"""Environment variable that names the socket, for the daemon and its clients."""


def resolve_socket(given: Path | None) -> Path | None:
    """Return the socket as given, else as the environment names it."""
    if given is None and (named := os.environ.get(NAMED)):
        return Path(named)
    return given


def find_user_socket() -> Path | None:
    """Return the socket of a user's own daemon; None without ``$XDG_RUNTIME_DIR``."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return Path(folder) / "recorder" / "control.sock" if folder else None


def choose_server_socket(given: Path | None, system: Path = SYSTEM) -> Path:
    """Choose the socket on which a daemon listens.

    Args:
        given: the user's or the config's socket.
        system: the machine's own path, used if it can be written to.

    Raises:
        UsageError: no folder for the socket can be written to.
    """
    if (path := resolve_socket(given)) is not None:
        return path
    folder = system.parent if system.parent.is_dir() else system.parent.parent
    if os.access(folder, os.W_OK | os.X_OK):
        return system
    if (own := find_user_socket()) is not None:
        return own
    raise UsageError(
        f"{system.parent} cannot be written to and XDG_RUNTIME_DIR is not set: "
        f"choose a control socket with --socket or {NAMED}"
    )


def choose_client_socket(given: Path | None, system: Path = SYSTEM) -> Path:
    """Choose the socket of the daemon for a client: as given, else the first that exists.

    Without any, return the path where a daemon of this user would listen.
    """
    if (path := resolve_socket(given)) is not None:
        return path
    own = find_user_socket()
    for path in (system, own):
        if path is not None and path.exists():
            return path
    return system if own is None else own


def check_socket(given: Path | None, system: Path = SYSTEM) -> str | None:
    """Return why this user cannot control or run a daemon; None if that is possible."""
    path = choose_client_socket(given, system)
    try:
        if path.exists():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(1.0)
                probe.connect(str(path))
            return None
    except PermissionError:
        return f"{path} may not be used by this user: root and the group recorder may"
    except OSError:  # a dead daemon's: it is replaced
        pass
    try:
        path = choose_server_socket(given, system)
    except UsageError as error:
        return str(error)
    place = next(folder for folder in path.parents if folder.is_dir())
    if os.access(place, os.W_OK | os.X_OK):
        return None
    return f"control socket: {place} cannot be written to by this user"
