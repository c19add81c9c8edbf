"""What the writer is told to begin: the plan of a recording's next part."""

from __future__ import annotations

import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from recorder.contract.config.loading import Config
from recorder.contract.errors import UsageError
from recorder.contract.session_names import check_name, render_name
from recorder.daemon.recording.parts import free_name, is_taken, next_part, part_name
from recorder.daemon.recording.state_machine import DesiredState
from recorder.session.layout import SessionPlan


class Planner:
    """Makes plans from a config.

    Args:
        config: what is recorded.
        realtime_ns: epoch ns of now, for names.
    """

    def __init__(self, config: Config, realtime_ns: Callable[[], int]) -> None:
        self._config = config
        self._realtime_ns = realtime_ns

    @property
    def root(self) -> Path:
        return self._config.session.root

    @property
    def splits(self) -> bool:
        """Whether sessions are split by time or size."""
        split = self._config.session.split
        return split.minutes is not None or split.gb is not None

    def check(self, name: str) -> None:
        """Whether a user may give a recording this name.

        Raises:
            UsageError: it is none, or there is one of that name.
        """
        check_name(name)
        if is_taken(name, self._taken()):
            raise UsageError(f"{self.root / name}: a session of that name exists")

    def plan(self, desired: DesiredState) -> tuple[str, SessionPlan]:
        """The recording's name and the plan of its next part.

        Raises:
            ConfigError: the calibration cannot be read.
            UsageError: the name that a user gave is taken.
        """
        config, session = self._config, self._config.session
        taken = self._taken()
        metadata = {**session.metadata, **desired.metadata}
        name = desired.name
        if name is None:
            now = datetime.fromtimestamp(self._realtime_ns() / 1e9, UTC)
            name = free_name(render_name(session.name, platform.node(), now, metadata), taken)
        elif desired.part == 0 and desired.exact and is_taken(name, taken):
            raise UsageError(f"{self.root / name}: a session of that name exists")
        folder = name
        if desired.part > 0 or (desired.name is not None and is_taken(name, taken)):
            folder = part_name(name, next_part(name, taken, max(1, desired.part)))
        elif self.splits:
            folder = part_name(name, 1)
        calibration = None
        if config.calibration is not None:
            try:
                calibration = config.calibration.read_text("utf-8")
            except (OSError, ValueError) as error:
                raise config.error("calibration", f"cannot be read: {error}") from None
        formats = config.record_format
        plan = SessionPlan(
            root=str(self.root),
            name=folder,
            exact_name=desired.exact and desired.part == 0,
            config_text=config.masked_text,
            calibration_text=calibration,
            metadata=metadata,
            sync_interval_ms=config.storage.sync_interval_ms,
            min_free_gb=config.storage.min_free_gb,
            record_format=list(formats.streams) if formats.enabled else None,
        )
        return name, plan

    def _taken(self) -> set[str]:
        try:
            return {path.name for path in self.root.iterdir()}
        except OSError:
            return set()
