"""Upload of the sessions that are not in the config's store yet, when the conditions permit it.

`find_obstacle` returns the reason against an upload now: the daemon records (``when: idle``), it is
outside the hours (``when: 22:00-06:00``), or the link is metered.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from recorder.archives.base import available
from recorder.bus.control.addresses import choose_client_socket
from recorder.bus.control.client import Client, DaemonError
from recorder.common.errors import RecorderError
from recorder.config.loading import Config
from recorder.config.settings import UploadSettings
from recorder.fleet.encryption import Recipients
from recorder.fleet.store import open_store
from recorder.fleet.store.base import StoreRefusedError, StoreUnreachableError
from recorder.fleet.store.folder import FolderStore
from recorder.fleet.uploading import Limit, Progress, Uploaded, sort_by_urgency, upload_session
from recorder.recording.postprocessing.retention import is_unclaimed
from recorder.recording.postprocessing.steps import find_due
from recorder.session.discovery import find_sessions
from recorder.session.layout import read_session_json
from recorder.session.outputs import is_safe_at, read_uploaded

_LOOK_S = 5.0
_ROUTES = Path("/proc/net/route")


class NotNowError(RecorderError):
    """Upload that the conditions do not permit now; the next upload resumes it."""


def find_obstacle(
    settings: UploadSettings,
    recording: Callable[[], bool],
    minute_of_day: int,
    metered: Callable[[], bool],
) -> str | None:
    """Return the reason against an upload now; None if an upload may begin.

    Args:
        settings: settings of the config.
        recording: returns True while the daemon records.
        minute_of_day: local time, in minutes after midnight.
        metered: returns True if the link to the internet is metered.
    """
    hours = settings.hours
    if hours is not None:
        begin, end = hours
        inside = begin <= minute_of_day < end if begin <= end else not end <= minute_of_day < begin
        if not inside:
            return f"it is not between {settings.when.replace('-', ' and ')}"
    if settings.when == "idle" and recording():
        return "the daemon records"
    if not settings.metered and metered():
        return "the link is metered (upload.metered: true would use it)"
    return None


def is_metered() -> bool:
    """Return True if NetworkManager considers the device of the default route metered.

    Return False without NetworkManager: the state is unknown.
    """
    device = _default_device()
    if device is None or shutil.which("nmcli") is None:
        return False
    command = ["nmcli", "-g", "GENERAL.METERED", "device", "show", device]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.startswith("yes")
    return False


def _default_device() -> str | None:
    """Return the device of the IPv4 route to 0.0.0.0/0 with the lowest metric."""
    try:
        rows = [line.split() for line in _ROUTES.read_text().splitlines()[1:]]
    except OSError:
        return None
    routes = [(int(row[6]), row[0]) for row in rows if row[1] == row[7] == "00000000"]
    return min(routes)[1] if routes else None


def is_recording(config: Config) -> bool:
    """Return True if the config's daemon records; False if no daemon answers."""
    with suppress(DaemonError), Client(choose_client_socket(config.control.socket)) as client:
        return client.status().status["session"] is not None
    return False


class Gate:
    """A `Pace` that limits the rate, and stops an upload when the conditions no longer permit it.

    Raises:
        NotNowError: the conditions do not permit an upload; the message has the reason.
    """

    def __init__(self, config: Config, look: Callable[[], str | None] | None = None) -> None:
        self._config = config
        self._look = look or self._find_obstacle
        self._limit = None if config.upload.mbit is None else Limit(config.upload.mbit)
        self._again_s = 0.0

    def __call__(self, size: int) -> None:
        now_s = time.monotonic()
        if now_s >= self._again_s:
            self._again_s = now_s + _LOOK_S
            if (why := self._look()) is not None:
                raise NotNowError(why)
        if self._limit is not None:
            self._limit(size)

    def _find_obstacle(self) -> str | None:
        now = time.localtime()
        minute = now.tm_hour * 60 + now.tm_min
        return find_obstacle(
            self._config.upload, lambda: is_recording(self._config), minute, is_metered
        )


def find_due_uploads(config: Config) -> tuple[list[Path], dict[str, str]]:
    """Return the sessions to upload, and the reason by path for each that must wait.

    Raises:
        SessionError: the root cannot be listed.
    """
    url, reads_back = str(config.upload.url).rstrip("/"), _reads_back(config)
    archives, ready, waiting = frozenset(available()), [], dict[str, str]()
    for session in sort_by_urgency(find_sessions(config.session.root)):
        uploaded = read_uploaded(session)
        if uploaded is not None and uploaded.url == url and not reads_back:
            continue
        if is_safe_at(session, url):
            continue
        if uploaded is not None and uploaded.url == url and uploaded.read_back:
            waiting[str(session)] = (
                f"has changed since its upload into {url}; it is not deleted here"
            )
            continue
        due = find_due(session, archives)
        if _belongs_to_ring(session):
            continue  # it is kept for an event, or deleted with the ring
        if due is None:
            waiting[str(session)] = "is being recorded; uploaded later"
        elif due.steps:
            steps = ", ".join(step.name for step in due.steps)
            waiting[str(session)] = f"is not finished: {steps}; uploaded later"
        else:
            ready.append(session)
    return ready, waiting


def _belongs_to_ring(session: Path) -> bool:
    try:
        return is_unclaimed(session, read_session_json(session))
    except RecorderError:
        return False


def _reads_back(config: Config) -> bool:
    """Return True if retention deletes local sessions; then their uploads are read back."""
    return config.retention.gb is not None or config.retention.days is not None


def upload_pending(
    config: Config,
    failed: Callable[[Path, RecorderError], Any],
    progress: Callable[[Path], Progress] = lambda _: lambda _: None,
    look: Callable[[], str | None] | None = None,
) -> Iterator[Uploaded]:
    """Upload the sessions of `find_due_uploads`.

    Args:
        config: with `upload.url`.
        failed: called with each session that could not be uploaded, and its error; the other
            sessions are still uploaded.
        progress: returns the `Progress` of a session.
        look: replaces the machine's `find_obstacle`.

    Yields:
        Each session that is in the store.

    Raises:
        NotNowError: the conditions do not permit an upload, or the server cannot be reached.
        StoreRefusedError: the server refuses all requests.
        UsageError: the store's URL, its credentials or a recipient cannot be used.
        SessionError: the root cannot be listed.
    """
    upload = config.upload
    recipients = Recipients(upload.recipients) if upload.recipients else None
    gate = Gate(config, look)
    gate(0)
    store = open_store(str(upload.url), credentials=upload.credentials)
    if isinstance(store, FolderStore) and not store.folder.is_dir():
        raise NotNowError(f"{store.folder}: there is no such folder; is its disk mounted?")
    for session in find_due_uploads(config)[0]:
        try:
            yield upload_session(
                session,
                store,
                pace=gate,
                progress=progress(session),
                read_back=_reads_back(config),
                recipients=recipients,
            )
        except (NotNowError, StoreRefusedError):
            raise
        except StoreUnreachableError as error:
            raise NotNowError(str(error)) from None
        except RecorderError as error:
            failed(session, error)
