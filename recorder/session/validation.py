"""The check of a session: every rule that readers rely on.

Sample numbers, stamps, accounts of losses and the journal are always checked in full.  Every
committed byte is checked by the journal's digests, unless the caller disables it.  A few payloads
of each channel are decoded; with ``deep`` all of them.  ``deep`` also compares every file with the
checksum from the end of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from recorder.codecs import channel_files
from recorder.common.errors import FormatError, SessionError
from recorder.session import layout
from recorder.session.journal.checks import (
    check_checksums,
    check_digests,
    check_journal,
    checksum_ticks,
    digest_ticks,
)
from recorder.session.loss_accounts import EpochAccount, balance, losses
from recorder.session.missing_sensors import collect_losses
from recorder.session.reader import Session
from recorder.session.stream import Stream
from recorder.session.stream_checks import StreamCheck
from recorder.session.validation_report import Report
from recorder.session.vrs.files import check_vrs

Progress = Callable[[int, int], None]
"""A callback that receives the number of checked samples and of all samples, from time to time."""


def validate(
    path: str | Path,
    deep: bool = False,
    progress: Progress | None = None,
    *,
    digests: bool = True,
) -> Report:
    """Check a session, or a plain roverd trace.

    In a session that is being recorded, or was never closed, the whole samples are checked; the
    latter is reported as a problem.  Damage does not raise; it is in the report.

    Args:
        path: the session's folder.
        deep: decode every payload, instead of the first, the last and some between.
        progress: called with the progress of the check.
        digests: read every file once and check its bytes.

    Raises:
        SessionError: there is no such folder, or it is no session of any kind.
    """
    path = Path(path)
    report = Report(path, path.resolve().name, deep=deep)
    try:
        session = Session(path, virtual=True)
    except SessionError as error:
        if not (path / layout.PRIVATE).is_dir():
            raise
        report.error(str(error))  # a session, but a damaged one
        return report
    with session:
        report.name, report.state = session.name, session.state
        for name, fault in session.broken.items():
            report.error(str(fault), name, channel="meta.json")
        _check_session(session, report)
        _check_streams(session, report, deep, digests, progress)
        _check_leftovers(session, report)
    return report


def _check_session(session: Session, report: Report) -> None:
    config = session.path / "config.yaml"
    try:
        if not isinstance(yaml.safe_load(config.read_bytes()), dict):
            report.warning(f"{config}: holds no mapping")
    except FileNotFoundError:
        report.error(f"{config}: is missing; roverd takes no folder without it for a trace")
    except OSError as error:
        report.error(f"{config}: cannot be read: {error.strerror}")
    except yaml.YAMLError as error:
        report.error(f"{config}: is no YAML: {' '.join(str(error).split())}")
    report.checked.append("config.yaml")
    if not session.recorded and layout.private(session.path, layout.JOURNAL).exists():
        path = layout.private(session.path, layout.SESSION_JSON)
        report.error(f"{path}: is missing, of a recorded session")
    if session.recorded:
        report.checked.append("_recorder/session.json")
        if session.state == layout.RECORDING and not session.live:
            report.error(f"{session.path}: was not closed; run `recorder recover`")
        elif session.state == layout.SEALED:
            report.error(f"{session.path}: was sealed when its disk failed; run `recorder recover`")
        for name in session.declared.keys() - session.streams.keys():
            if not (session.path / name).exists():
                report.checked.append(f"{name}: declared, no sample")


def _check_streams(
    session: Session, report: Report, deep: bool, digests: bool, progress: Progress | None
) -> None:
    try:
        lost = collect_losses(session)
    except FormatError as error:
        report.error(str(error))
        lost = None
    if session.recorded:
        report.checked.append("events.jsonl")
    closed = session.state in (layout.CLEAN, layout.RECOVERED)
    checks = [
        StreamCheck(
            stream,
            report,
            closed=closed,
            lost=None if lost is None or not (session.recorded and closed) else lost.get(name, []),
        )
        for name, stream in session.streams.items()
    ]
    closed_by_us = session.recorded and closed
    digests = digests and session.recorded
    total = digest_ticks(session) if digests and progress else 0
    if deep and progress:
        total += sum(check.to_decode() for check in checks)
        total += checksum_ticks(session) if closed_by_us else 0
    done = 0

    def advance(samples: int) -> None:
        nonlocal done
        done += samples
        if progress is not None and total:
            progress(done, total)

    for check in checks:
        check.run(deep, advance if deep else _ignore)
    if lost is not None and closed_by_us:
        _check_unwritten(session, report, lost)
    if lost is not None and session.recorded:
        _account_for_silence(session, report, lost)
    if session.recorded:
        if check_journal(session, report) and digests:
            check_digests(session, report, advance)
        check_vrs(session, report, deep)
    if closed_by_us:
        check_checksums(session, report, deep, advance)


def _ignore(_samples: int) -> None:
    """Ignore progress: spot checks do not count."""


def _check_unwritten(
    session: Session, report: Report, lost: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    """Report accounts of streams without a sample on disk: all sent samples are lost."""
    for name, epochs in ((session.header or {}).get("epochs") or {}).items():
        if name in session.streams or name in session.broken:
            continue
        for account in balance(name, epochs, 0, (), lost.get(name, ())):
            report.accounts.append(account)
            if account.fault is not None:
                report.error(f"{session.path}: {name}: {account.fault}", name)


def _account_for_silence(
    session: Session, report: Report, lost: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    """Report accounts of streams with losses only: no driver ever began one."""
    known = {*session.streams, *session.broken, *((session.header or {}).get("epochs") or {})}
    for name in sorted(lost.keys() - known):
        _, intervals = losses(lost[name])
        ended = str(intervals[0]["cause"]) if intervals else "gone"
        report.accounts.append(
            EpochAccount(name, 1, 1, 0, 0, {}, None, ended, intervals, fault=None)
        )


def _check_leftovers(session: Session, report: Report) -> None:
    for folder in (session.path, session.path / layout.PRIVATE):
        for path in sorted(folder.glob("*.tmp")):
            if not session.live:
                report.warning(f"{path}: left over from a write that was cut short")
    for name, stream in session.streams.items():
        known = _list_files(stream)
        for path in sorted(stream.path.iterdir()):
            if path.name not in known and path.suffix != ".json":
                report.warning(f"{path}: belongs to no channel of meta.json", name)
    report.checked.append("leftovers")


def _list_files(stream: Stream) -> set[str]:
    files = set() if stream.spec is None else set(stream.spec.files)
    for name, entry in stream.meta.items():
        files.update(channel_files(name, entry["format"]))
    return {"meta.json", *files}
