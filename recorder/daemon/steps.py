"""What is still to be done with a session after its recording, told from its folder alone.

In order: it is recovered where its writer died, gets what its simulation knows, its checksums, and
the archives that its own config asks for.  How each went stands in ``_recorder/finalize.json``, so
that a daemon which comes up after a reboot goes on where the last one was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.contract.errors import RecorderError
from recorder.contract.yaml_lines import read_yaml
from recorder.formats.disk import PosixDisk
from recorder.session.layout import (
    CLEAN,
    LOCK,
    RECOVERED,
    private,
    read_session_json,
)
from recorder.session.lock import lock_is_held

FILE = "finalize.json"
RECOVER, TRUTH, CHECKSUMS = "recover", "truth", "checksums"
MOST_TRIES = 3
_ARCHIVES = "_archives"
_CHECKSUMS = "checksums.csv"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: its name, which is the archive's for archives, and the archive's options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def command(self, session: Path) -> list[str]:
        """Module and arguments of the process that does it."""
        match self.name:
            case "recover":
                return ["recorder", "recover", str(session)]
            case "truth":
                return ["drivers.sim", "annotate", str(session)]
            case "checksums":
                return ["recorder.session.checksums", str(session)]
            case archive:
                command = ["recorder", "finalize", str(session), "--to", archive]
                for key, value in self.options.items():
                    command += ["--option", f"{archive}.{key}={json.dumps(value)}"]
                return [*command, "--format", "json"]


@dataclass(frozen=True, slots=True)
class Due:
    """What is due of a session.

    Attributes:
        steps: still to be done, in order.
        failed: by step, why it is not tried again.
    """

    steps: tuple[Step, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def unfinished(self) -> bool:
        """Whether something that should be there is not."""
        return bool(self.steps or self.failed)


def due_of(session: Path, available: frozenset[str]) -> Due | None:
    """What is due of a session; None while somebody writes it.

    Args:
        session: its folder.
        available: archives that this installation can pack; others are not waited for.
    """
    try:
        values = read_session_json(session)
    except RecorderError:
        return Due()  # no session of the recorder, or one that somebody has to look at
    if lock_is_held(private(session, LOCK)):
        return None
    told = read_told(session)
    if told.get("skip"):  # `recorder run --no-finalize`
        archives: list[Step] = []
    else:
        archives = configured(session, available)
    wanted = [] if values["state"] in (CLEAN, RECOVERED) else [Step(RECOVER)]
    sensors = (values.get("sensors") or {}).values()
    if not told.get("skip") and any(s.get("source") == "sim" for s in sensors):
        wanted.append(Step(TRUTH))
    if not private(session, _CHECKSUMS).exists():
        wanted.append(Step(CHECKSUMS))
    wanted += [a for a in archives if not _is_packed(session, a.name)]
    steps = told.get("steps") or {}
    due, failed = [], {}
    for step in wanted:
        entry = steps.get(step.name) or {}
        if entry.get("tries", 0) >= MOST_TRIES:
            failed[step.name] = str(entry.get("error"))
            if step.name == RECOVER:
                break  # the rest needs a session that is whole
        elif not entry.get("done") or step.name == RECOVER:
            due.append(step)
    return Due(tuple(due), failed)


def configured(session: Path, available: frozenset[str]) -> list[Step]:
    """The archives that a session's own config asks for."""
    try:
        items = read_yaml(session / "config.yaml").values.get("finalize")
    except RecorderError:
        return []
    steps = []
    for item in items if isinstance(items, list) else ():
        name, options = item, None
        if isinstance(item, Mapping) and len(item) == 1:
            ((name, options),) = item.items()
        if isinstance(name, str) and name in available:
            steps.append(Step(name, dict(options) if isinstance(options, Mapping) else {}))
    return steps


def read_told(session: Path) -> dict[str, Any]:
    """``_recorder/finalize.json``; empty where there is none that can be read."""
    try:
        values = json.loads(private(session, FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def tell(session: Path, step: str, error: str | None) -> None:
    """Put down durably how a step went.

    Args:
        session: the session's folder.
        step: the step's name.
        error: why it failed; None where it did not.

    Raises:
        OSError: it cannot be written.
    """
    told = read_told(session)
    steps = dict(told.get("steps") or {})
    entry = dict(steps.get(step) or {})
    if error is None:
        entry = {"done": True}
    else:
        entry = {"done": False, "tries": int(entry.get("tries", 0)) + 1, "error": error}
    steps[step] = entry
    _write(session, told | {"version": 1, "steps": steps})


def skip(session: Path) -> None:
    """Put down that nobody wants this session's archives.

    Raises:
        OSError: it cannot be written.
    """
    _write(session, read_told(session) | {"version": 1, "skip": True})


def _write(session: Path, values: Mapping[str, Any]) -> None:
    PosixDisk().write_file(private(session, FILE), json.dumps(values, indent=1).encode())


def _is_packed(session: Path, archive: str) -> bool:
    """Whether the archive is in place: it gets its name when it is complete."""
    folder = session / _ARCHIVES / archive
    try:
        return any(not path.name.startswith(".") for path in folder.iterdir())
    except OSError:
        return False
