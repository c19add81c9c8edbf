"""Row of a session in the catalog, made from its files and valid until they change.

::

    row = read_row(Path("/data/sessions/drive"))
    row.hours, row.streams[0].samples
    row.stamp == stamp_of(row_folder)             # False once the session has changed
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from recorder.common.errors import FormatError, SessionError
from recorder.common.struct_codec import prepare_type
from recorder.config.names import split_part_name
from recorder.config.settings import ARCHIVES as ARCHIVE_NAMES
from recorder.perception.earth import is_position, position_channel
from recorder.recording.postprocessing.steps import is_packed
from recorder.session import layout
from recorder.session.accounts import sum_incomplete
from recorder.session.reader import Session, read_header
from recorder.session.summary import folder_bytes, summarize
from recorder.session.verdict import FAIL, Reason

_WINDOW = 100_000  # positions that are read at once
_STAMPED = (
    "",
    layout.PRIVATE,
    layout.ARCHIVES,
    f"{layout.PRIVATE}/{layout.SESSION_JSON}",
    f"{layout.PRIVATE}/{layout.JOURNAL}",
    f"{layout.PRIVATE}/{layout.EVENTS}",
    f"{layout.PRIVATE}/{layout.KEEP}",
)
_IN_LINE = (
    *("state", "live", "start_ns", "duration_s", "bytes", "streams", "lost", "lost_intervals"),
    *("incomplete", "verdict", "reasons", "problem"),
)
_FINISHED = (layout.CLEAN, layout.RECOVERED)


class StreamRow(msgspec.Struct, frozen=True):
    """A stream of a session.

    Attributes:
        name: its name.
        samples: number of stored samples.
        rate_hz: mean rate; None below two samples.
        seconds: time from the first sample to the last.
        bytes: size of its files.
        lost: samples that are counted as lost.
        lost_intervals: number of losses without a count.
        incomplete, incomplete_parts: samples that lack parts, and the parts.
    """

    name: str
    samples: int | None
    rate_hz: float | None
    seconds: float
    bytes: int
    lost: int
    lost_intervals: int
    incomplete: int = 0
    incomplete_parts: int = 0


class Mark(msgspec.Struct, frozen=True):
    """A mark: its time in epoch ns, and its text."""

    t_ns: int | None
    text: str


class Event(msgspec.Struct, frozen=True):
    """A kept event: id, time in epoch ns, text, trigger, and its state."""

    id: str
    t_ns: int
    text: str
    trigger: str | None
    state: str


class Place(msgspec.Struct, frozen=True):
    """Bounds of a session's positions, in degrees; west > east: across the 180th meridian."""

    south: float
    west: float
    north: float
    east: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A session.

    Attributes:
        session, location: its name, and its folder or URL.
        recording, part: the recording that it is a part of, and the number (0: the whole).
        state: as ``session.json`` has it; None if it cannot be read.
        live: a writer holds the session.
        start_ns, end_ns, duration_s: epoch ns; None if unknown.
        vehicle, host: the key ``vehicle`` of its metadata; host name of the recording computer.
        software: version of the recorder.
        metadata: the free-form metadata, as texts.
        bytes: size of its folder.
        streams, marks, events: contents of the session.
        lost, lost_intervals, incomplete: sums over all streams.
        verdict, reasons: ``PASS`` or ``FAIL``, and the reasons, one line each
            (`recorder.session.verdict`); None if the session cannot be read.
        faults: number of faults.
        ended: reason why the session ended; None if unknown.
        place: bounds of its positions; None without positions.
        archives: names of the packed archives.
        problem: read errors; None if there are none.
        stamp: `compute_stamp` its folder; empty while the session may change.
    """

    session: str
    location: str
    recording: str
    part: int
    state: str | None = None
    live: bool = False
    start_ns: int | None = None
    end_ns: int | None = None
    duration_s: float | None = None
    vehicle: str | None = None
    host: str | None = None
    software: str | None = None
    metadata: dict[str, str] = {}
    bytes: int = 0
    streams: tuple[StreamRow, ...] = ()
    marks: tuple[Mark, ...] = ()
    events: tuple[Event, ...] = ()
    lost: int = 0
    lost_intervals: int = 0
    incomplete: int = 0
    verdict: str | None = None
    reasons: tuple[str, ...] = ()
    faults: int = 0
    ended: str | None = None
    place: Place | None = None
    archives: tuple[str, ...] = ()
    problem: str | None = None
    stamp: str = ""

    def public(self) -> Row:
        """Return the values that all readers of a store with encrypted sessions may see.

        The result has no free text, no messages, and no place, vehicle or host.
        """
        return msgspec.structs.replace(
            self,
            vehicle=None,
            host=None,
            metadata={},
            marks=(),
            events=(),
            place=None,
            problem=None,
            reasons=(),
        )

    def line(self) -> dict[str, Any]:
        """Return the row in the form of `recorder.session.summary.brief`."""
        values = {"name": self.session, "path": self.location}
        values |= {key: getattr(self, key) for key in _IN_LINE}
        streams = [stream.name for stream in self.streams]
        return values | {"streams": streams, "reasons": list(self.reasons)}


def compute_stamp(folder: Path) -> str:
    """Return a digest of names, sizes and times of the files that change with a session.

    The function reads no file.  The digest is empty if the session is inaccessible.
    """
    text = []
    for name in _STAMPED:
        try:
            found = (folder / name).stat()
        except FileNotFoundError:
            continue
        except OSError:
            return ""
        text.append(f"{name} {found.st_ino} {found.st_size} {found.st_mtime_ns}")
    return hashlib.blake2b("\n".join(text).encode(), digest_size=12).hexdigest()


def read_row(folder: Path) -> Row:
    """Read the row of a session; on failure the row has only its name, size and the problem."""
    stamp = compute_stamp(folder)
    recording, part = split_part_name(folder.name)
    empty = Row(session=folder.name, location=str(folder), recording=recording, part=part)
    try:
        header = read_header(folder) or {}
        with Session(folder) as session:
            summary, place = summarize(session), _find_place(session)
    except (SessionError, FormatError, OSError) as error:
        size = folder_bytes(folder)
        return msgspec.structs.replace(empty, problem=str(error), bytes=size, verdict=FAIL)
    streams = tuple(_make_stream_row(name, entry) for name, entry in summary["streams"].items())
    ended = summary["ended"] or {}
    finished = summary["state"] in _FINISHED and not summary["live"]
    metadata = {str(k): str(v) for k, v in summary["metadata"].items() if v not in (None, "")}
    return Row(
        session=summary["name"],
        location=str(folder),
        recording=recording,
        part=part,
        **{key: summary[key] for key in ("state", "live", "start_ns", "end_ns", "duration_s")},
        vehicle=metadata.get("vehicle"),
        host=_format_value(header.get("hostname")),
        software=_format_value(header.get("recorder_version")),
        metadata=metadata,
        bytes=summary["bytes"],
        streams=streams,
        marks=tuple(Mark(mark["t_ns"], mark["text"]) for mark in summary["marks"]),
        events=msgspec.convert(summary["events"], prepare_type(tuple[Event, ...])),
        lost=sum(stream.lost for stream in streams),
        lost_intervals=sum(stream.lost_intervals for stream in streams),
        incomplete=sum(stream.incomplete for stream in streams),
        verdict=summary["verdict"],
        reasons=tuple(Reason(**reason).text for reason in summary["reasons"]),
        faults=len(summary["faults"]),
        ended=_format_value(ended.get("cause")),
        place=place,
        archives=list_archives(folder),
        problem="; ".join(summary["problems"]) or None,
        stamp=stamp if finished else "",
    )


def list_archives(folder: Path) -> tuple[str, ...]:
    """Return the names of complete archives; unfinished files are hidden."""
    return tuple(name for name in ARCHIVE_NAMES if is_packed(folder, name))


def _make_stream_row(name: str, entry: Mapping[str, Any]) -> StreamRow:
    first, last = entry["first_ns"], entry["last_ns"]
    incomplete, parts = sum_incomplete(entry["incomplete"])
    return StreamRow(
        name=name,
        **{key: entry[key] for key in ("samples", "rate_hz", "bytes")},
        seconds=0.0 if first is None or last is None else (last - first) / 1e9,
        lost=sum(entry["lost"].values()),
        lost_intervals=len(entry["lost_intervals"]),
        incomplete=incomplete,
        incomplete_parts=parts,
    )


def _find_place(session: Session) -> Place | None:
    """Return the bounds of the positions of all streams."""
    latitudes, longitudes = [], []
    for name, stream in session.streams.items():
        channel = position_channel(stream)
        if name.startswith("_") or channel is None:
            continue
        for batch in stream.iterate(_WINDOW, [channel]):
            positions = batch.data[channel].astype(np.float64)
            positions = positions[is_position(positions)]
            latitudes += _find_ends(positions[:, 0])
            longitudes += _find_ends(positions[:, 1])
    if not latitudes:
        return None
    west, east = min(longitudes), max(longitudes)
    if east - west > 180:  # over the date line
        west = min(value for value in longitudes if value > 0)
        east = max(value for value in longitudes if value < 0)
    return Place(min(latitudes), west, max(latitudes), east)


def _find_ends(values: Iterable[float]) -> list[float]:
    found = np.asarray(values)
    if not len(found):
        return []
    ends = [found.min(), found.max()]
    for side in (found[found > 0], found[found < 0]):  # the nearest to zero, for the date line
        if len(side):
            ends.append(side[np.abs(side).argmin()])
    return [float(value) for value in ends]


def _format_value(value: object) -> str | None:
    return None if value in (None, "") else str(value)
