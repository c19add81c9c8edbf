"""Table of all processes that a recorder starts: module, restart rule and priority.

::

    command = LIVE.command()                    # runs at background priority
    pause_s = VIEW_RESTART.pause_s(deaths)      # pause before the next start
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from recorder.common.module_launcher import module_command
from recorder.config.settings import ProcessSettings

BACKGROUND = ProcessSettings(nice=19, policy="batch", io_class="idle")
"""Priority of processes that get processor and disk only after all others."""
STEADY_S = 60.0
"""Lifetime after which a process's back-off begins again, s."""


@dataclass(frozen=True, slots=True)
class RestartRule:
    """Rule for the restarts of a process that has ended.

    Attributes:
        backoff_s: pauses before a start, in s; the last one repeats.
        at_once: number of starts without a pause before the first of `backoff_s`.
        most: number of deaths after which it is given up, until the next session begins.
        within_s: time within which that many deaths are too many, in s.  For the writer, all deaths
            since its last answer count.
    """

    backoff_s: tuple[float, ...]
    at_once: int = 0
    most: float = math.inf
    within_s: float = math.inf

    def pause_s(self, deaths: int) -> float:
        """Return the seconds before the next start, after so many deaths in a row."""
        number = max(0, deaths - 1) - self.at_once
        return 0.0 if number < 0 else self.backoff_s[min(number, len(self.backoff_s) - 1)]


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One kind of process.

    Attributes:
        name: its name in the log and the status; a driver has its sensor's name.
        module: module that ``python -m`` runs; for a driver ``drivers.NAME``, or the module that
            the config names.
        arguments: first words of its command line.
        restart: restart rule; None: it runs once, and its starter handles a failure.
        background: whether it has the priority `BACKGROUND` and is killed first if memory runs out.
            Writer and drivers have the priorities of ``storage.process`` and
            ``sensors.NAME.process``.
        runs: when it runs, a text for users.
    """

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    restart: RestartRule | None = None
    background: bool = True
    runs: str = "once, after a session"

    def words(self, *arguments: str) -> list[str]:
        """Return the module, and its command line with further arguments."""
        return [self.module, *self.arguments, *arguments]

    def command(self, *arguments: str) -> list[str]:
        """Return the command that runs it with further arguments."""
        words = self.words(*arguments)
        return background_command(words) if self.background else module_command(*words)


_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
WRITER_RESTART = RestartRule(_BACKOFF_S, at_once=4, most=20)
DRIVER_RESTART = RestartRule(_BACKOFF_S, most=20, within_s=600.0)
VIEW_RESTART = RestartRule((0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0))

WRITER = ProcessSpec(
    "writer",
    "recorder.recording.writer",
    restart=WRITER_RESTART,
    background=False,
    runs="always",
)
DRIVER = ProcessSpec(
    "driver",
    "drivers.NAME",
    ("run",),
    DRIVER_RESTART,
    background=False,
    runs="always, one for each sensor",
)
LIVE = ProcessSpec(
    "live", "recorder.viewers.live", restart=VIEW_RESTART, runs="with the section `live`"
)
TRIGGERS = ProcessSpec(
    "triggers",
    "recorder.recording.triggers",
    restart=VIEW_RESTART,
    runs="with the section `triggers`",
)
RECOVER = ProcessSpec("recover", "recorder", ("recover",))
TRUTH = ProcessSpec("truth", "drivers.sim", ("annotate",))
CHECKSUMS = ProcessSpec("checksums", "recorder.session.checksums")
ARCHIVES = ProcessSpec("archives", "recorder", ("finalize",))
REPORT = ProcessSpec("report", "recorder", ("report",))
ROWS = ProcessSpec("rows", "recorder.integrity.deferred_compression")
INDEX = ProcessSpec("index", "recorder", ("report",), runs="once, after sessions were deleted")

PROCESSES = (
    WRITER,
    DRIVER,
    LIVE,
    TRIGGERS,
    RECOVER,
    TRUTH,
    CHECKSUMS,
    ARCHIVES,
    REPORT,
    ROWS,
    INDEX,
)
"""All processes; docs/daemon.md shows the table.  Uploads are a separate service."""


def background_command(words: Sequence[str]) -> list[str]:
    """Return the command that runs a module and its arguments with the priority `BACKGROUND`."""
    return module_command(
        "recorder.recording.supervisor.background_process", str(os.getpid()), *words
    )
