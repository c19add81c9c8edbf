"""The files of a session's folder, and the creation of the folder.

The folder is created under a temporary name and renamed before the first sample, so that every
session has its configuration.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import UNSET

import recorder
from recorder.bus.messages import SessionPlan as SessionPlan
from recorder.common.clock import Clock, read_clocks
from recorder.common.errors import SessionError, StorageError, UsageError
from recorder.common.files import Disk
from recorder.config.names import check_name

PRIVATE = "_recorder"
SESSION_JSON = "session.json"
JOURNAL = "commits"
EVENTS = "events.jsonl"
LOG = "log.jsonl"
LOCK = "lock"
KEEP = "keep"
"""In ``_recorder`` of a session that is never deleted; see `recorder.session.event_clips`."""
ROOT_PRIVATE = ".recorder"
"""The recorder's own folder in a root of sessions."""
SALVAGE = "salvage"
REPACK = "repack"
"""Folder of channels that are being packed after the session; see
`recorder.integrity.deferred_compression`."""
VRS = "session.vrs"
ARCHIVES = "_archives"
REPORT = "report.html"
"""The report of a session in its folder; it can be rebuilt at any time, and belongs to no data."""
POSTPROCESSING = "finalize.json"
"""In ``_recorder``: the steps of the daemon after the recording."""
INDEX = "index.html"
"""The index of the reports, in the root of the sessions."""
TAILS = ("tail.0", "tail.1")
"""Digests of uncommitted bytes, in ``_recorder`` until the session is closed."""
RECOVERY_TAILS = KEPT_TAIL, NEW_TAIL = ("tail.kept", "tail.new")
"""Digests of the bytes that a recovery keeps and adds, in ``_recorder`` until its end."""
VRS_INDEX = "session.vrs.index"
"""Entries of the index of ``session.vrs``, in ``_recorder`` until it is closed."""

_PLANNED = (
    *("metadata", "sync_interval_ms", "min_free_gb", "duration_s", "sensors", "previous"),
    *("play_start_mono_ns", "source_start_ns"),
)

_IF_SET = ("previous_folder", "ring", "origin", "signing_key")

_TRIES, _PAUSE_S = 3000, 0.01

RECORDING, CLEAN, SEALED, RECOVERED = "recording", "clean", "sealed", "recovered"


def private(session: Path, name: str = "") -> Path:
    """Return a path in the session's ``_recorder`` folder."""
    return session / PRIVATE / name if name else session / PRIVATE


def read_session_json(session: Path) -> dict[str, Any]:
    """Return the content of the session's ``session.json``.

    Raises:
        SessionError: the file is missing or not valid.
    """
    path = private(session, SESSION_JSON)
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise SessionError(f"{session}: not a session of the recorder (no {path.name})") from None
    except (OSError, ValueError) as error:
        raise SessionError(f"{path}: cannot be read: {error}") from None
    if not isinstance(values, dict) or values.get("version") != 1:
        raise SessionError(f"{path}: not a session description of version 1")
    return values


def create_session_json(plan: SessionPlan, clock: Clock, boot_id: str) -> dict[str, Any]:
    """Return the ``session.json`` of a session that begins now, without its name."""
    mono_ns, realtime_ns, _ = read_clocks(clock)
    start_ns = plan.source_start_ns
    if start_ns is None:
        start_ns = realtime_ns if plan.offset_ns is UNSET else mono_ns + plan.offset_ns
    return {
        "version": 1,
        "name": "",
        "state": RECORDING,
        "start_ns": start_ns,
        "end_ns": None,
        "start_mono_ns": mono_ns,
        "boot_id": boot_id,
        "hostname": platform.node(),
        "recorder_version": recorder.__version__,
        **{key: getattr(plan, key) for key in _PLANNED},
        "record_format": _describe_record_format(plan),
        "streams": {},
        **{key: value for key in _IF_SET if (value := getattr(plan, key)) is not UNSET},
    }


def _describe_record_format(plan: SessionPlan) -> dict[str, Any] | None:
    if plan.record_format is None:
        return None
    compression = plan.record_compression
    own = {} if compression is UNSET else {"compression": compression}
    return {"streams": list(plan.record_format), **own}


def write_session_json(disk: Disk, session: Path, values: Mapping[str, Any]) -> None:
    """Replace ``session.json``, durably and atomically."""
    disk.write_file(private(session, SESSION_JSON), json.dumps(values, indent=1).encode())


def free_bytes(folder: Path) -> int:
    """Return the free bytes for this user on the folder's file system (or its nearest parent's)."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def create_session(
    disk: Disk, plan: SessionPlan, values: dict[str, Any], begin: Callable[[Path], None]
) -> Path:
    """Create a session's folder with everything that it holds before the first sample.

    Args:
        disk: for writing.
        plan: of the session.
        values: for ``session.json``; ``name`` is set to a free name.
        begin: called with the folder before it is renamed, to add the files that every session
            must have, durably.

    Raises:
        UsageError: the exact name is taken, or the name is not valid.
        StorageError: the root cannot be made or written to, or has too little space.
    """
    check_name(plan.name)
    root = Path(plan.root)
    try:
        for folder in reversed([root, *root.parents]):
            if not folder.exists():
                try:
                    disk.make_folder(folder)
                except FileExistsError:  # another process was faster
                    disk.sync_folder(folder.parent)
        free = free_bytes(root)
        if free < plan.min_free_gb * 1e9:
            raise StorageError(
                f"{root}: {free / 1e9:.2f} GB free, storage.min_free_gb asks for "
                f"{plan.min_free_gb:g}"
            )
        with _lock_root(root):
            return _create(disk, root, plan, values, begin)
    except OSError as error:
        raise StorageError(f"{root}: {_describe_error(error)}") from None


@contextmanager
def _lock_root(root: Path) -> Iterator[None]:
    """Lock a root, so that one session is created at a time: equal names share a temporary folder.

    Raises:
        StorageError: another process creates one all the time.
    """
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(_TRIES):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_PAUSE_S)
            except OSError:
                break  # a network's file system that cannot lock folders
        else:
            raise StorageError(
                f"{root}: another process has been creating a session there for "
                f"{_TRIES * _PAUSE_S:g} s; try again"
            )
        yield
    finally:
        os.close(fd)


def _create(
    disk: Disk,
    root: Path,
    plan: SessionPlan,
    values: dict[str, Any],
    begin: Callable[[Path], None],
) -> Path:
    temporary = root / f".{plan.name}.tmp"
    if temporary.exists():  # an earlier start that was interrupted; it has no sample
        shutil.rmtree(temporary)
    name = _find_free_name(root, plan)
    try:
        disk.make_folder(temporary)
        disk.make_folder(private(temporary))
        disk.make_folder(private(temporary, SALVAGE))
        disk.write_file(temporary / "config.yaml", plan.config_text.encode())
        if plan.calibration_text is not None:
            text = plan.calibration_text.encode()
            disk.write_file(temporary / "calibration.yaml", text)
            values["calibration_sha256"] = hashlib.sha256(text).hexdigest()
        values["name"] = name
        write_session_json(disk, temporary, values)
        begin(temporary)
        disk.rename(temporary, root / name)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return root / name


def _find_free_name(root: Path, plan: SessionPlan) -> str:
    if not (root / plan.name).exists():
        return plan.name
    if plan.exact_name:
        raise UsageError(f"{root / plan.name}: a session of that name exists")
    for number in range(2, 100_000):
        name = f"{plan.name[:94]}_{number}"
        if not (root / name).exists():
            return name
    raise StorageError(f"{root}: no free name beside {plan.name!r}")


def _describe_error(error: OSError) -> str:
    match error.errno:
        case errno.EROFS:
            return "is on a read-only file system"
        case errno.EACCES | errno.EPERM:
            return "may not be written to by this user"
        case errno.ENOSPC | errno.EDQUOT:
            return "is full"
        case errno.ENOTDIR | errno.EEXIST:
            return "is not a folder"
        case _:
            return error.strerror or str(error)
