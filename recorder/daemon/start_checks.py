"""Whether a recording can begin: the root is there, may be written to, and has room."""

from __future__ import annotations

from recorder.contract.clock import Clock
from recorder.contract.config.loading import Config
from recorder.contract.errors import StorageError
from recorder.contract.redaction import mask_passwords
from recorder.daemon.preflight import check_root, ring_problem, room_problem
from recorder.daemon.processes.supervisor import Supervisor

_ANEW_S = 2.0


class StartChecks:
    """The checks of one daemon.

    Args:
        config: what to record.
        clock: injectable.
        supervisor: knows what the sensors give.
    """

    def __init__(self, config: Config, clock: Clock, supervisor: Supervisor) -> None:
        self._config, self._clock, self._supervisor = config, clock, supervisor
        self._known: str | None = None
        self._until_ns = 0

    def place(self) -> str | None:
        """Why nothing can be recorded into the root at all; None if it can."""
        storage = self._config.storage
        problem = check_root(self._config.session.root, storage).problem
        return problem or ring_problem(self._config.ring, storage)

    def room(self) -> str | None:
        """Why the disk is too full for a recording to begin; None if it is not."""
        if self._config.ring is not None:  # which deletes its oldest parts as it records
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
        """Raise where `room` gives a reason: StorageError."""
        if (problem := self.room()) is not None:
            raise StorageError(problem)

    def refused(self) -> str | None:
        """`place` or `room`, at most two seconds old: a status is asked for often."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._until_ns:
            self._until_ns = now_ns + round(_ANEW_S * 1e9)
            problem = self.place() or self.room()
            self._known = None if problem is None else mask_passwords(problem)
        return self._known
