"""Where the control socket lies (DESIGN, section 4)."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from recorder.contract.errors import UsageError

SYSTEM = Path("/run/recorder/control.sock")
NAMED = "RECORDER_SOCKET"
"""The environment variable that names the socket, for the daemon and its clients."""


def named_socket(given: Path | None) -> Path | None:
    """The socket as given, else as the environment names it."""
    if given is None and (named := os.environ.get(NAMED)):
        return Path(named)
    return given


def user_socket() -> Path | None:
    """The socket of a daemon that runs for a user; None without ``$XDG_RUNTIME_DIR``."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return Path(folder) / "recorder" / "control.sock" if folder else None


def socket_to_serve(given: Path | None, system: Path = SYSTEM) -> Path:
    """Where a daemon listens.

    Args:
        given: what the user or the config says.
        system: the machine's own place, taken where it can be written to.

    Raises:
        UsageError: there is no place for it.
    """
    if (path := named_socket(given)) is not None:
        return path
    folder = system.parent if system.parent.is_dir() else system.parent.parent
    if os.access(folder, os.W_OK | os.X_OK):
        return system
    if (own := user_socket()) is not None:
        return own
    raise UsageError(
        f"{system.parent} cannot be written to and XDG_RUNTIME_DIR is not set: "
        f"choose a control socket with --socket or {NAMED}"
    )


def socket_to_ask(given: Path | None, system: Path = SYSTEM) -> Path:
    """Where a client finds the daemon: as given, else the first place where there is a socket."""
    if (path := named_socket(given)) is not None:
        return path
    own = user_socket()
    for path in (system, own):
        if path is not None and path.exists():
            return path
    return system if own is None else own


def socket_warning(given: Path | None, system: Path = SYSTEM) -> str | None:
    """Why a daemon could not be controlled by this user, or not serve; None if it could."""
    path = socket_to_ask(given, system)
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
        path = socket_to_serve(given, system)
    except UsageError as error:
        return str(error)
    place = next(folder for folder in path.parents if folder.is_dir())
    if os.access(place, os.W_OK | os.X_OK):
        return None
    return f"control socket: {place} cannot be written to by this user"
