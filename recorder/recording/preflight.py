"""Checks of the disk, the kernel and the user's permissions before a recording."""

from __future__ import annotations

import errno
import grp
import importlib.util
import os
import shutil
import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.codecs.streams import StreamSpec
from recorder.common.clock import Clock
from recorder.common.errors import need_extra
from recorder.common.secret_masking import mask_passwords
from recorder.config.loading import Config
from recorder.config.settings import (
    LiveSettings,
    RingSettings,
    SensorEntry,
    StorageSettings,
    is_loopback,
)
from recorder.recording.host.disk import (
    DiskSpeed,
    FileSystem,
    file_system,
    nearest,
)
from recorder.recording.host.disk_encryption import find_unencrypted

if TYPE_CHECKING:
    from recorder.recording.supervisor.supervisor import Supervisor

START_S = 120.0
"""Recording time for which a disk must have room above its minimum when a recording begins, s."""
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
_HEADROOM = 2.0
"""Recommended ratio of the disk's write rate to the rig's expected data rate."""

LIVE_MODULES = ("foxglove", "starlette", "uvicorn", "websockets")
"""Modules that the extra ``live`` installs."""


@dataclass(frozen=True, slots=True)
class RootReport:
    """State of the folder in which sessions are created.

    Attributes:
        exists: whether the folder exists; without a problem, a missing folder can be created.
        free_bytes: free space of its file system, for this user; None if unknown.
        problem: why nothing can be recorded there, one line; None if recording is possible.
    """

    exists: bool
    free_bytes: int | None
    problem: str | None = None


def check_root(root: Path, storage: StorageSettings) -> RootReport:
    """Check that a session can be recorded below `root`; leave no file behind.

    A missing folder is accepted if it can be created: its nearest existing parent takes a file.
    """
    floor = storage.min_free_bytes
    exists, free = False, None

    def report(problem: str | None) -> RootReport:
        return RootReport(exists, free, problem)

    try:
        exists = root.exists()
        place = nearest(root)
        if not place.is_dir():
            return report(f"{place} is not a folder")
        if (problem := mount_problem(root, storage)) is not None:
            return report(problem)
        free = shutil.disk_usage(place).free
        # Asking for permissions is not enough: only writing shows a read-only mount to root.
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"\0")
            file.flush()
    except OSError as error:
        return report(f"{root} cannot be written to: {error.strerror}")
    if free < floor:
        return report(
            f"{root} has {free / 1e9:.1f} GB free, less than storage.min_free_gb ({floor / 1e9:g})"
        )
    return report(None)


def room_problem(root: Path, storage: StorageSettings, bytes_per_s: float) -> str | None:
    """Return why a disk is too full to begin a recording; None if it is not.

    A recording ends with room for a minute above ``storage.min_free_gb``.  A recording that began
    with only that room would end at once, and so would the next one.

    Args:
        root: folder of sessions.
        storage: storage settings of the config.
        bytes_per_s: data rate of the sensors.

    Raises:
        OSError: the free space cannot be read.
    """
    free = shutil.disk_usage(nearest(root)).free
    needed = storage.min_free_bytes + bytes_per_s * START_S
    if free >= needed:
        return None
    return (
        f"{root} has {free / 1e9:.2f} GB free; a recording begins with "
        f"{needed / 1e9:.2f} GB: storage.min_free_gb, and {START_S / 60:g} minutes of "
        f"{bytes_per_s / 1e6:.1f} MB/s; delete or move sessions, or set retention.gb"
    )


def mount_problem(root: Path, storage: StorageSettings) -> str | None:
    """Return why a root's disk does not meet the ``storage`` settings; None if it does.

    With ``require_mount`` the root must be on a mounted disk of its own: without a mount, a path
    lies on the system disk, or in memory as below /run.  With ``require_encrypted`` the disk must
    be encrypted.

    Raises:
        OSError: the path cannot be read.
    """
    if not storage.require_mount:
        return encryption_problem(root, storage)
    place = nearest(root)
    system = file_system(place)
    in_memory = system is not None and system.kind in _IN_MEMORY
    place = place.resolve()
    mount_point = next(folder for folder in (place, *place.parents) if folder.is_mount())
    if mount_point != Path("/") and not in_memory:
        return encryption_problem(root, storage)
    return f"{root} is on no mounted volume, and storage.require_mount is set"


def encryption_problem(folder: Path, storage: StorageSettings) -> str | None:
    """Return why a folder violates ``storage.require_encrypted``; None if it does not.

    Raises:
        OSError: the folder cannot be read.
    """
    if not storage.require_encrypted or (why := find_unencrypted(folder)) is None:
        return None
    return f"{folder} {why}, and storage.require_encrypted is set"


def ring_problem(ring: RingSettings | None, storage: StorageSettings) -> str | None:
    """Return why a ring in memory may reach a disk unencrypted; None if it cannot."""
    if ring is None or ring.ram_folder is None:
        return None
    try:
        return encryption_problem(ring.ram_folder, storage)
    except OSError as error:
        return f"{ring.ram_folder} cannot be read: {error.strerror}"


def disk_findings(
    system: FileSystem | None, speed: DiskSpeed | None, storage: StorageSettings, rate: float
) -> tuple[list[str], list[str]]:
    """Return the problems and warnings of a disk, for a rig with `rate` bytes per second."""
    problems, warnings = [], []
    if system is not None and system.warning is not None:
        warnings.append(f"{system.mount_point} is {system.kind}, {system.warning}")
    if speed is not None and rate > 0:
        shown = f"the disk takes {speed.bytes_per_second / 1e6:.0f} MB/s"
        if speed.bytes_per_second < rate:
            problems.append(f"{shown}, the sensors give {rate / 1e6:.0f}")
        elif speed.bytes_per_second < _HEADROOM * rate:
            warnings.append(f"{shown}, less than twice what the sensors give ({rate / 1e6:.0f})")
        waiting = rate * (speed.sync_p99_s + 2 * storage.sync_interval_ms / 1e3)
        if waiting > storage.buffer_bytes:
            warnings.append(
                f"syncs take up to {speed.sync_p99_s:.2f} s: {waiting / 1e6:.0f} MB would "
                f"wait, storage.buffer_mb is {storage.buffer_mb:g}"
            )
    return problems, warnings


def sensor_findings(entry: SensorEntry, streams: tuple[StreamSpec, ...]) -> list[tuple[str, str]]:
    """Return problems of a sensor's entry that opening its source does not show: (key, text)."""
    found = []
    if (problem := device_problem(entry.scheme, entry.address)) is not None:
        found.append(("source", problem))
    rates = [spec.rate_hz for spec in streams if spec.name == entry.name and spec.rate_hz]
    if entry.min_rate is not None and rates and entry.min_rate > rates[0]:
        found.append(
            ("min_rate", f"{entry.min_rate:g} Hz, but the source gives {rates[0]:g} Hz at best")
        )
    return found


def extra_problem() -> str | None:
    """Return which modules of the extra ``live`` are missing; None if all are installed."""
    missing = [name for name in LIVE_MODULES if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    return f"{need_extra('live')}: no {', '.join(missing)}"


@dataclass(frozen=True, slots=True)
class LiveReport:
    """State of the extra, the port and the certificate of the live process.

    Attributes:
        installed: whether all modules of the extra are installed.
        port_free: whether the live process can listen.
        certificate: why the TLS files cannot be loaded; None if they can, or none are configured.
        warnings: conditions that keep viewers out or are unsafe; none affects the recording.
    """

    installed: bool
    port_free: bool
    certificate: str | None
    warnings: list[str]


def examine_live(live: LiveSettings) -> LiveReport:
    """Check the extra, the port and the certificate of the live process."""
    missing, taken = extra_problem(), _port_problem(live)
    warnings = [] if missing is None else [f"live: {missing}"]
    warnings += [] if taken is None else [f"live.port: {taken}"]
    if live.certificate is None and not is_loopback(live.bind):
        warnings.append("live.bind: without live.certificate the token is not encrypted")
    return LiveReport(missing is None, taken is None, _certificate_problem(live), warnings)


def _port_problem(live: LiveSettings) -> str | None:
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            live.bind, live.port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        used = " (by a daemon that runs?)" if error.errno == errno.EADDRINUSE else ""
        return f"cannot listen on {live.bind} port {live.port}: {error.strerror}{used}"
    return None


def _certificate_problem(live: LiveSettings) -> str | None:
    if live.certificate is None or live.key is None:
        return None
    import ssl  # imported late: the daemon does not need it

    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(live.certificate, live.key, password="")  # no prompt
    except OSError as error:
        return f"cannot be loaded with live.key: {error.strerror or error}"
    return None


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


_CACHED_S = 2.0


class StartChecks:
    """Checks of one daemon before it starts a recording.

    Args:
        config: the daemon's config.
        clock: injectable.
        supervisor: source of the streams' data rates.
    """

    def __init__(self, config: Config, clock: Clock, supervisor: Supervisor) -> None:
        self._config, self._clock, self._supervisor = config, clock, supervisor
        self._known: str | None = None
        self._until_ns = 0

    def find_root_problem(self) -> str | None:
        """Return why the root cannot be recorded into at all; None if it can."""
        storage = self._config.storage
        problem = check_root(self._config.session.root, storage).problem
        return problem or ring_problem(self._config.ring, storage)

    def find_room_problem(self) -> str | None:
        """Return why the disk is too full for a recording to begin; None if it is not."""
        if self._config.ring is not None:  # a ring deletes its oldest parts while it records
            return None
        root, supervisor = self._config.session.root, self._supervisor
        rate = supervisor.progress.volumes.rate
        bytes_per_s = sum(
            rate(name) or spec.bytes_per_second
            for sensor in supervisor.sensors.values()
            for name, spec in sensor.specs.items()
            if not spec.finite  # a file may be shorter than a minute
        )
        try:
            return room_problem(root, self._config.storage, bytes_per_s)
        except OSError as error:
            return f"{root} cannot be read: {error.strerror}"

    def find_refusal(self) -> str | None:
        """Return the first problem of root and room, cached for two seconds: status asks often."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._until_ns:
            self._until_ns = now_ns + round(_CACHED_S * 1e9)
            problem = self.find_root_problem() or self.find_room_problem()
            self._known = None if problem is None else mask_passwords(problem)
        return self._known
