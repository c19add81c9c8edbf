"""Limits of the kernel and permissions of the user that affect a recording."""

from __future__ import annotations

import grp
import os
import stat
from pathlib import Path

RMEM_MAX = Path("/proc/sys/net/core/rmem_max")
WANTED_RMEM = 32 << 20
"""Receive buffer that the sockets of lidars and radars request, bytes: at least two sweeps."""

NETWORK_SCHEMES = frozenset(("udp", "ouster", "dca1000"))
DEVICE_SCHEMES = frozenset(("serial", "v4l2"))


def receive_buffer_warning(
    schemes: set[str], wanted: int = WANTED_RMEM, limit: Path = RMEM_MAX
) -> str | None:
    """Return why bursts of packets may be lost; None if they fit, or no source is a socket."""
    if not schemes & NETWORK_SCHEMES:
        return None
    try:
        granted = int(limit.read_text())
    except (OSError, ValueError):
        return None
    if granted >= wanted:
        return None
    return (
        f"net.core.rmem_max is {granted}, the sockets want {wanted}: packets are lost when this "
        f"machine is busy; set it with `sysctl -w net.core.rmem_max={wanted}` "
        "(systemd/60-recorder.conf does so at every boot)"
    )


def device_problem(scheme: str, address: str) -> str | None:
    """Return why this user may not open a serial port or a camera; None if permitted or missing.

    This checks permissions only; opening the device reports a missing one.
    """
    if scheme not in DEVICE_SCHEMES:
        return None
    path = Path(address)
    try:
        mode = path.stat()
    except OSError:
        return None
    if not stat.S_ISCHR(mode.st_mode) or os.access(path, os.R_OK | os.W_OK):
        return None
    try:
        group = grp.getgrgid(mode.st_gid).gr_name
    except KeyError:
        group = str(mode.st_gid)
    return (
        f"{path} may not be opened by this user, but by the group {group}: "
        f"`sudo usermod -aG {group} USER`, or systemd/60-recorder.rules"
    )
