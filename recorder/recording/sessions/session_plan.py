"""Names and plans of sessions, made from a config for the writer.

A recording without splits is one session, ``NAME``.  Parts are ``NAME_p001``, ``NAME_p002``.  A
recording that continues after a crash begins its next part, so ``NAME`` and ``NAME_p002`` may exist
side by side.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import UNSET

from recorder.common.errors import UsageError
from recorder.config.loading import Config
from recorder.config.names import MAX_NAME, PART, check_name, render_name
from recorder.recording.sessions.state_machine import DesiredState
from recorder.session.layout import SessionPlan


def part_name(name: str, number: int) -> str:
    """Return the name of a recording's part; a long name is cut to fit the number."""
    suffix = f"_p{number:03d}"
    return name[: MAX_NAME - len(suffix)] + suffix


def is_taken(name: str, taken: Collection[str]) -> bool:
    """Return whether there is a session of that name, or a part of such a recording."""
    if name in taken:
        return True
    return any(
        PART.fullmatch(other.removeprefix(name)) for other in taken if other.startswith(name)
    )


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the first free name of ``NAME``, ``NAME_2``, ``NAME_3``, ...."""
    if not is_taken(name, taken):
        return name
    number = 2
    while is_taken(shown := f"{name[: MAX_NAME - 6]}_{number}", taken):
        number += 1
    return shown


def next_part(name: str, taken: Collection[str], after: int) -> int:
    """Return the number of the next part, above `after` and every existing part.

    Args:
        name: name of the recording.
        taken: names in the root.
        after: number of the latest known part.
    """
    highest = after
    for other in taken:
        match = PART.search(other, max(0, len(other) - 8))
        if match and match.end() == len(other):
            number = int(match[1])
            if other == part_name(name, number):
                highest = max(highest, number)
    return highest + 1


def render_config_name(config: Config, realtime_ns: int, metadata: Mapping[str, Any]) -> str:
    """Render the config's template to the name of a session that starts at an epoch time in ns."""
    now = datetime.fromtimestamp(realtime_ns / 1e9, UTC)
    return render_name(config.session.name, platform.node(), now, metadata)


def plan_session(config: Config, name: str, *, exact_name: bool) -> SessionPlan:
    """Plan a session with the config's root and metadata, and without a duration.

    Args:
        config: the config of the recording.
        name: name of the session.
        exact_name: whether the user asked for this name.

    Raises:
        ConfigError: the calibration cannot be read.
    """
    session, storage, formats = config.session, config.storage, config.record_format
    try:
        calibration = config.calibration.read_text("utf-8") if config.calibration else None
    except (OSError, ValueError) as error:
        raise config.error("calibration", f"cannot be read: {error}") from None
    return SessionPlan(
        root=str(session.root),
        name=name,
        exact_name=exact_name,
        config_text=config.document.masked_text,
        calibration_text=calibration,
        metadata=dict(session.metadata),
        sync_interval_ms=storage.sync_interval_ms,
        min_free_gb=storage.min_free_gb,
        record_format=list(formats.streams) if formats.enabled else None,
        record_compression=UNSET if formats.compression == "none" else formats.compression,
        signing_key=UNSET if config.custody.key is None else str(config.custody.key),
    )


class Planner:
    """Planner of the parts of a daemon's recordings.

    Args:
        config: the daemon's config.
        realtime_ns: returns the time for names, epoch ns.

    Attributes:
        to_disk: returns whether the next part of a ring in RAM goes to the disk.
    """

    def __init__(self, config: Config, realtime_ns: Callable[[], int]) -> None:
        self._config = config
        self._realtime_ns = realtime_ns
        self.to_disk: Callable[[], bool] = lambda: False

    @property
    def root(self) -> Path:
        return self._config.session.root

    @property
    def splits(self) -> bool:
        """Whether sessions are split by time or size."""
        split = self._config.session.split
        return self._config.ring is not None or split.minutes is not None or split.gb is not None

    def check(self, name: str) -> None:
        """Check that a user may give a recording this name.

        Raises:
            UsageError: the name is not valid, or exists.
        """
        check_name(name)
        if is_taken(name, self._list_names()):
            raise UsageError(f"{self.root / name}: a session of that name exists")

    def plan(self, desired: DesiredState) -> tuple[str, SessionPlan]:
        """Plan the next part of a recording; return the recording's name and the plan.

        Raises:
            ConfigError: the calibration cannot be read.
            UsageError: the user's name exists.
        """
        taken = self._list_names()
        metadata = {**self._config.session.metadata, **desired.metadata}
        name = desired.name
        if name is None:
            rendered = render_config_name(self._config, self._realtime_ns(), metadata)
            name = free_name(rendered, taken)
        elif desired.part == 0 and desired.exact and is_taken(name, taken):
            raise UsageError(f"{self.root / name}: a session of that name exists")
        folder = name
        if desired.part > 0 or (desired.name is not None and is_taken(name, taken)):
            folder = part_name(name, next_part(name, taken, max(1, desired.part)))
        elif self.splits:
            folder = part_name(name, 1)
        exact_name = desired.exact and desired.part == 0
        plan = plan_session(self._config, folder, exact_name=exact_name)
        plan.metadata = metadata
        if (ring := self._config.ring) is not None:
            plan.ring = True
            if ring.ram_folder is not None and not self.to_disk():
                plan.root, plan.min_free_gb = str(ring.ram_folder), 0.0
        return name, plan

    def _list_names(self) -> set[str]:
        ring = self._config.ring
        names: set[str] = set()
        for folder in (self.root, None if ring is None else ring.ram_folder):
            if folder is not None:
                with contextlib.suppress(OSError):
                    names.update(path.name for path in folder.iterdir())
        return names
