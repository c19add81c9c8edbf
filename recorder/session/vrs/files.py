"""The file ``session.vrs`` of a session on disk: its streams, and its check."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recorder.common.errors import FormatError
from recorder.formats.vrs import RecordType, StreamId, VrsReader
from recorder.session.layout import CLEAN, RECOVERED, VRS
from recorder.session.reader import Session
from recorder.session.validation_report import Report

STREAM_TAG = "recorder_stream"
"""Tag of a VRS stream: name of the session's stream; empty for the session's own records."""


def map_vrs_streams(tags: Mapping[StreamId, Mapping[str, str]]) -> dict[str, StreamId]:
    """Return a file's streams by their names in the session; `tags` are each stream's free tags."""
    return {own[STREAM_TAG]: stream for stream, own in tags.items() if STREAM_TAG in own}


def open_vrs(session: Path) -> VrsReader:
    """Open the session's ``session.vrs``; FormatError without one."""
    path = session / VRS
    try:
        return VrsReader(path)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None


def describe_vrs(session: Session) -> dict[str, Any] | None:
    """Return the content of ``session.vrs``, for ``recorder info``; None if the session has none.

    Returns:
        ``{bytes, records, indexed, streams: {NAME: {id, flavor, configuration, state, data}}}``,
        the last three being numbers of records.

    Raises:
        FormatError: it is missing or not a VRS file.
    """
    if not _has_vrs(session):
        return None
    with open_vrs(session.path) as vrs:
        counts = vrs.counts()
        streams = {}
        for name, stream in map_vrs_streams({s: v.tags for s, v in vrs.streams.items()}).items():
            kinds = (RecordType.CONFIGURATION, RecordType.STATE, RecordType.DATA)
            numbers = {kind.name.lower(): counts.get((stream, kind), 0) for kind in kinds}
            reported = {"id": str(stream), "flavor": vrs.streams[stream].flavor}
            streams[name or "(session)"] = reported | numbers
        size = (session.path / VRS).stat().st_size
        return {
            "bytes": size,
            "records": len(vrs),
            "indexed": vrs.indexed,
            "streams": streams,
        }


def check_vrs(session: Session, report: Report, deep: bool) -> None:
    """Check ``session.vrs``: whole records, an index, a data record for every sample.

    In an open session only the whole records are checked.  `deep` decodes every record.
    """
    if not _has_vrs(session):
        return
    path = session.path / VRS
    try:
        with open_vrs(session.path) as vrs:
            if session.state in (CLEAN, RECOVERED):
                _check_closed(session, vrs, report)
            if deep:
                for record in vrs.records(file_order=True):
                    record.blocks()
            report.checked.append(f"{VRS}: {len(vrs)} records of {len(vrs.streams)} streams")
    except (FormatError, OSError) as error:
        report.error(str(error) if str(path) in str(error) else f"{path}: {error}")


def _check_closed(session: Session, vrs: VrsReader, report: Report) -> None:
    if vrs.tail is not None:
        report.error(f"{vrs.path}: after its last whole record, at byte {vrs.end}: {vrs.tail}")
    if not vrs.indexed:
        report.warning(f"{vrs.path}: has no index: readers have to walk through all of it")
    counts = vrs.counts()
    known = map_vrs_streams({s: v.tags for s, v in vrs.streams.items()})
    damaged = {e.get("stream") for e in session.events() if e.get("cause") == "damaged"}
    for name in (session.header or {})["record_format"].get("streams", ()):
        stream = session.streams.get(name)
        if stream is None or name in session.broken:
            continue
        count = counts.get((known[name], RecordType.DATA), 0) if name in known else 0
        try:
            samples = len(stream)
        except FormatError:
            continue  # reported by the stream's own rules
        # If the stream's own files lost committed samples, this file may still have them.
        if count < samples or (count > samples and name not in damaged):
            text = f"{vrs.path}: {count} data records of stream {name}, which has {samples} samples"
            report.error(text, name)


def _has_vrs(session: Session) -> bool:
    return bool(session.recorded and (session.header or {}).get("record_format"))
