"""Steps that a session still needs after its recording, found from its folder alone.

The order is: recovery if its writer died, the simulation's ground truth, checksums, the archives of
the session's own config, the report, and the compression of rows that were stored uncompressed.
Compression comes last, since decoding takes longer afterwards.  ``_recorder/finalize.json`` has the
result of each step, so that a daemon continues after a reboot.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.codecs import STORED
from recorder.common.errors import RecorderError
from recorder.common.files import PosixDisk
from recorder.config.yaml_lines import read_yaml
from recorder.recording.postprocessing.retention import is_unclaimed
from recorder.recording.supervisor import process_table
from recorder.session import layout
from recorder.session.checksums import CHECKSUMS as CHECKSUMS_FILE
from recorder.session.lock import lock_is_held
from recorder.session.outputs import read_summary

FILE = layout.POSTPROCESSING
RECOVER, TRUTH = process_table.RECOVER.name, process_table.TRUTH.name
CHECKSUMS, REPORTED = process_table.CHECKSUMS.name, process_table.REPORT.name
REPACKED = process_table.ROWS.name
MOST_TRIES = 3
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PROCESSES = {spec.name: spec for spec in process_table.PROCESSES}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the work after a recording.

    Attributes:
        name: name of the step; for archives their names, as in ``ncore,mcap``.
        archives: options by archive; empty for other steps.
    """

    name: str
    archives: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def packing(cls, archives: Mapping[str, Mapping[str, Any]]) -> Step:
        """Create the step that packs archives together, so that each sample is decoded once."""
        return cls(",".join(archives), archives)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names under which the result is recorded."""
        return tuple(self.archives) or (self.name,)

    def command(self, session: Path, redact: Path | None = None) -> list[str]:
        """Return the module and arguments of the step's process.

        Args:
            session: the session's folder.
            redact: the config whose programs redact the pictures of archives.
        """
        spec = _PROCESSES.get(self.name, process_table.ARCHIVES)
        words = spec.words(str(session))
        if spec is process_table.REPORT:
            words.append("--index")
        if spec is process_table.ARCHIVES:
            words += ["--to", self.name]
            words += option_arguments(self.archives)
            if redact is not None:
                words += ["--redact", str(redact)]
            words += ["--format", "json"]
        return words


def option_arguments(archives: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Format the options of archives as arguments of `recorder finalize`."""
    return [
        argument
        for archive, options in archives.items()
        for key, value in options.items()
        for argument in ("--option", f"{archive}.{key}={json.dumps(value)}")
    ]


@dataclass(frozen=True, slots=True)
class Due:
    """Due steps of a session.

    Attributes:
        steps: the remaining steps, in order.
        failed: by step, why it is not tried (again).
    """

    steps: tuple[Step, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def unfinished(self) -> bool:
        """Whether steps remain or have failed."""
        return bool(self.steps or self.failed)

    @property
    def deletable(self) -> bool:
        """Whether at most the report and the compression of rows are due."""
        due = {*(step.name for step in self.steps), *self.failed}
        return not due - {REPORTED, REPACKED}


def find_due(session: Path, available: frozenset[str]) -> Due | None:
    """Find the due steps of a session; None while a process writes it.

    Args:
        session: the session's folder.
        available: archives that this installation can pack; the others count as failed.
    """
    try:
        values = layout.read_session_json(session)
    except (RecorderError, RecursionError):
        return Due()  # no session of the recorder, or a damaged one
    if lock_is_held(layout.private(session, layout.LOCK)):
        return None
    reported = read_progress(session)
    archives: dict[str, Mapping[str, Any]] = {}
    failed: dict[str, str] = {}
    report = False
    if not reported.get("skip"):  # `recorder run --no-finalize`
        archives, failed, report = read_requests(session, available)
    wanted = [] if values.get("state") in (layout.CLEAN, layout.RECOVERED) else [Step(RECOVER)]
    sensors = _mapping(values.get("sensors")).values()
    if not reported.get("skip") and any(_mapping(s).get("source") == "sim" for s in sensors):
        wanted.append(Step(TRUTH))
    if is_unclaimed(session, values):  # it will be kept, or deleted with the ring
        return Due(tuple(step for step in wanted if step.name == RECOVER))
    if not os.path.lexists(layout.private(session, CHECKSUMS_FILE)):
        wanted.append(Step(CHECKSUMS))
    missing = [Step.packing({a: o}) for a, o in archives.items() if not is_packed(session, a)]
    wanted += missing
    if report and (missing or not _is_reported(session)):  # the report shows the archives
        wanted.append(Step(REPORTED))
    streams = _mapping(values.get("streams")).values()
    if any(_mapping(_mapping(spec).get("settings")).get(STORED) for spec in streams):
        wanted.append(Step(REPACKED))  # compresses the rows
    failed = {name: why for name, why in failed.items() if not is_packed(session, name)}
    due = []
    for step in wanted:
        entry = _entry(reported, step.name)
        if _tries(entry) >= MOST_TRIES:
            failed[step.name] = str(entry.get("error"))
            if step.name == RECOVER:
                break  # the other steps need a closed session
        elif not entry.get("done") or step.name == RECOVER:
            due.append(step)
    return Due(tuple(_together(due, reported)), failed)


def _together(due: Sequence[Step], reported: Mapping[str, Any]) -> Iterator[Step]:
    """Yield the steps, with all untried archives in one step."""
    new = {s.name: s.archives[s.name] for s in due if s.archives and not _entry(reported, s.name)}
    for step in due:
        if step.name not in new:
            yield step
        elif step.name == next(iter(new)):
            yield Step.packing(new)


def read_requests(
    session: Path, available: frozenset[str]
) -> tuple[dict[str, Mapping[str, Any]], dict[str, str], bool]:
    """Read the archives and the report that a session's own config requests.

    Returns:
        Options of the archives that can be packed; by name, why an archive cannot be packed (for
        an unreadable config, ``config``); and whether a report is requested.
    """
    try:
        values = read_yaml(session / "config.yaml").values
    except RecorderError as error:
        return {}, {"config": str(error)}, False
    items = values.get("finalize")
    archives: dict[str, Mapping[str, Any]] = {}
    unknown = {}
    for item in items if isinstance(items, list) else ():
        name, options = item, None
        if isinstance(item, Mapping) and len(item) == 1:
            ((name, options),) = item.items()
        if isinstance(name, str) and name in available:
            archives[name] = dict(options) if isinstance(options, Mapping) else {}
        elif isinstance(name, str) and _NAME.fullmatch(name):
            unknown[name] = "there is no such archive in this installation"
    return archives, unknown, values.get("report") is True


def read_progress(session: Path) -> dict[str, Any]:
    """Read ``_recorder/finalize.json``; empty if it cannot be read."""
    try:
        values = json.loads(layout.private(session, FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def record_result(session: Path, step: str | Step, error: str | None) -> None:
    """Record the result of a step durably.

    If archives fail together, the missing ones count as untried.  Each is then packed alone, so
    that its own error is found.

    Args:
        session: the session's folder.
        step: the step, or its name.
        error: why the step failed; None if it succeeded.

    Raises:
        OSError: the result cannot be written.
    """
    reported = read_progress(session)
    steps = dict(_mapping(reported.get("steps")))
    names = (step,) if isinstance(step, str) else step.parts
    for name in names:
        if error is None or (len(names) > 1 and is_packed(session, name)):
            steps[name] = {"done": True}
        else:
            tries = _tries(_entry(reported, name)) + (len(names) == 1)
            steps[name] = {"done": False, "tries": tries, "error": error}
    _write(session, reported | {"version": 1, "steps": steps})


def skip(session: Path) -> None:
    """Record that this session's archives and report are not wanted.

    Raises:
        OSError: the file cannot be written.
    """
    _write(session, read_progress(session) | {"version": 1, "skip": True})


def _write(session: Path, values: Mapping[str, Any]) -> None:
    PosixDisk().write_file(layout.private(session, FILE), json.dumps(values, indent=1).encode())


def _entry(reported: Mapping[str, Any], step: str) -> Mapping[str, Any]:
    """Return the recorded result of a step; empty if it is damaged."""
    return _mapping(_mapping(reported.get("steps")).get(step))


def _tries(entry: Mapping[str, Any]) -> int:
    tries = entry.get("tries")
    return tries if isinstance(tries, int) else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def is_packed(session: Path, archive: str) -> bool:
    """Return whether the archive is complete: it gets its name only then."""
    folder = session / layout.ARCHIVES / archive
    try:
        return any(not path.name.startswith(".") for path in folder.iterdir())
    except OSError:
        return False


def _is_reported(session: Path) -> bool:
    """Return whether there is a report of the closed session; an open session's is out of date."""
    summary = read_summary(session / layout.REPORT)
    return summary is not None and summary.state in (layout.CLEAN, layout.RECOVERED)
