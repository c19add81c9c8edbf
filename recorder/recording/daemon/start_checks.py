"""Checks that a recording can begin: the root exists, is writable, and has room."""

from __future__ import annotations

from recorder.common.clock import Clock
from recorder.common.errors import StorageError
from recorder.common.secret_masking import mask_passwords
from recorder.config.loading import Config
from recorder.recording.preflight import check_root, ring_problem, room_problem
from recorder.recording.supervisor.supervisor import Supervisor

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

    def check_room(self) -> None:
        """Raise StorageError if `find_room_problem` returns a reason."""
        if (problem := self.find_room_problem()) is not None:
            raise StorageError(problem)

    def find_refusal(self) -> str | None:
        """Return the first problem of root and room, cached for two seconds: status asks often."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._until_ns:
            self._until_ns = now_ns + round(_CACHED_S * 1e9)
            problem = self.find_root_problem() or self.find_room_problem()
            self._known = None if problem is None else mask_passwords(problem)
        return self._known
