"""Reading of sessions: random access, iteration in bounded memory, times in ns.

`Session` reads sessions of this recorder and plain roverd traces, finished or still growing::

    with Session("sessions/rig-1_2025_06_01_10_00_00") as session:
        lidar = session.streams["lidar"]
        sweep = lidar.sample(lidar.at(session.start_ns + 5_000_000_000))
        for batch in session.streams["imu"].iterate(channels=["acc"]):
            batch.t_ns, batch.data["acc"]        # int64 [n], float32 [n, 3]
        for item in session.iterate():           # all streams, merged in order of time
            item.stream, item.t_ns, item.data

`docs/reading.md` has longer examples.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, ProtocolError, SessionError
from recorder.common.files import Closeable
from recorder.common.secret_masking import mask_secrets
from recorder.session import layout
from recorder.session.discovery import find_sessions
from recorder.session.event_clips import KeptEvent, parse_origin_events, read_events
from recorder.session.lock import lock_is_held
from recorder.session.part import WHOLE
from recorder.session.stream import Stream

HEADER_VERSION = 1
STATES = (layout.RECORDING, layout.CLEAN, layout.SEALED, layout.RECOVERED)


@dataclass(frozen=True, slots=True)
class Item:
    """One sample of a merged iteration.

    Attributes:
        stream: name of its stream.
        index: its index in the stream.
        t_ns: end of the measurement, epoch ns.
        data: per channel an array of the channel's shape and dtype.
    """

    stream: str
    index: int
    t_ns: int
    data: Mapping[str, npt.NDArray[Any]]


class Session(Closeable):
    """A session folder, opened for reading: a snapshot of its whole samples.

    In a session that is being recorded, each stream's length is read at its first use and stays;
    `refresh` reads it again.

    Attributes:
        path: the session's folder.
        part: the part of the recorded session that this is; `WHOLE` unless it is a `SessionPart`.
        interval_ns: half-open interval of that part in epoch ns; None: open.
        redacted: folder with redacted pictures; None: the recorded ones are read.
        name: its name.
        state: ``recording``, ``clean``, ``sealed`` or ``recovered``; ``clean`` for a plain roverd
            trace.
        metadata: the free-form metadata of the config, with what looks like a secret masked; as it
            was recorded it is in `header`.
        streams: its streams by name, sorted.
        declared: the streams that drivers declared; streams without samples have no folder.
        broken: by name, the error of a stream whose ``meta.json`` cannot be read; the other
            streams can be read.

    Raises:
        SessionError: there is no such folder, it is no session, or ``session.json`` is damaged.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        virtual: bool = False,
        partial: bool = False,
        redacted: Path | None = None,
    ) -> None:
        """Open the session at `path`.

        Args:
            path: the session's folder.
            virtual: with processed sensors (``_NAME``).
            partial: read what damaged files of a closed session hold, too: files that end in the
                middle of a sample.
            redacted: folder with redacted pictures, a folder for each camera that has some, which
                are read in place of the recorded ones (`recorder.perception.redaction`).
        """
        self.path, self.redacted = Path(path), redacted
        self.part = WHOLE
        self.interval_ns: tuple[int | None, int | None] = (None, None)
        if not self.path.is_dir():
            raise SessionError(f"{path}: no such session folder")
        self.header = read_header(self.path)
        folders = sensor_folders(self.path, virtual=virtual)
        if self.header is None and not folders and not (self.path / "config.yaml").is_file():
            raise SessionError(f"{path}: is no session: {_explain_no_session(self.path)}")
        header = self.header or {}
        self.name: str = header.get("name", self.path.resolve().name)
        self.state: str = header.get("state", layout.CLEAN)
        self.metadata: Mapping[str, Any] = mask_secrets(header.get("metadata") or {})
        self.declared: dict[str, StreamSpec] = {}
        for name, wire in (header.get("streams") or {}).items():
            try:
                self.declared[name] = StreamSpec.from_wire(wire)
            except ProtocolError as error:
                raise SessionError(f"{_header_path(self.path)}: streams.{name}: {error}") from None
        offset_ns = None
        if self.header is not None and header.get("start_mono_ns") is not None:
            offset_ns = header["start_ns"] - header["start_mono_ns"]
        epochs = header.get("epochs") or {}
        # The files of a killed or a running writer may end in the middle of a sample.
        partial = partial or self.state in (layout.RECORDING, layout.SEALED)
        streams = {}
        self.broken: dict[str, FormatError] = {}
        for folder in folders:
            name = folder.name
            try:
                streams[name] = Stream(
                    folder,
                    spec=self.declared.get(name),
                    offset_ns=offset_ns,
                    epochs=epochs.get(name),
                    partial=partial,
                    redacted=_find_redacted(name, redacted),
                )
                if (spec := streams[name].spec) is not None:
                    self.declared[name] = spec
            except FormatError as error:
                self.broken[name] = error
        self.streams: Mapping[str, Stream] = streams

    def chooses(self, stream: str) -> bool:
        """Return whether the part has a stream of the session."""
        return self.part.streams is None or stream in self.part.streams

    @property
    def recorded(self) -> bool:
        """True if this recorder wrote the session; False for a plain roverd trace."""
        return self.header is not None

    @property
    def live(self) -> bool:
        """True while a writer holds the session."""
        return self.recorded and lock_is_held(layout.private(self.path, layout.LOCK))

    @property
    def whole(self) -> Session:
        """The session itself; the recorded session of a part (`recorder.session.session_part`)."""
        return self

    @property
    def start_ns(self) -> int | None:
        """Start in epoch ns; of a plain trace its first sample, None without samples."""
        if self.header is not None:
            return int(self.header["start_ns"])
        return self.first_ns

    @property
    def first_ns(self) -> int | None:
        """The earliest stamp of any stream, epoch ns; None without samples."""
        return min((int(s.times(0, 1)[0]) for s in self._select_timed()), default=None)

    @property
    def end_ns(self) -> int | None:
        """End in epoch ns; None if the session was not closed, or a plain trace has no sample."""
        if self.header is not None:
            end = self.header.get("end_ns")
            return None if end is None else int(end)
        return max(
            (int(s.times(len(s) - 1, len(s))[0]) for s in self._select_timed()), default=None
        )

    def _select_timed(self) -> Iterator[Stream]:
        return (s for s in self.streams.values() if s.has_times and len(s))

    def kept_events(self) -> list[KeptEvent]:
        """Return the events that the session holds some of, by time.

        A clip has those of the sessions that it was cut from.  See `recorder.session.event_clips`.

        Raises:
            FormatError: their file cannot be read.
        """
        where = layout.private(self.path, layout.SESSION_JSON)
        return read_events(self.path) or parse_origin_events(self.header or {}, where)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the session's events in the order of the file.

        Each is ``{t_ns, type, stream, cause, first_seq, last_seq, count, duration_ns, ...}``.  An
        incomplete last line is left out: it is being written, or was during a power cut.

        Raises:
            FormatError: another line is not a JSON mapping; names file and line.
        """
        path = layout.private(self.path, layout.EVENTS)
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return
        except OSError as error:
            raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
        with file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    event = json.loads(line)
                except ValueError as error:
                    raise FormatError(f"{path}:{number}: not JSON: {error}") from None
                if not isinstance(event, dict):
                    raise FormatError(f"{path}:{number}: a {type(event).__name__}, not a mapping")
                yield event

    def sensors(self) -> dict[str, list[str]]:
        """Return streams by sensor, from the session's header.

        In a plain trace every stream is its own sensor, except an Ouster's ``NAME_imu`` beside
        ``NAME``.
        """
        reported = (self.header or {}).get("sensors")
        if isinstance(reported, dict):
            return {name: list(entry.get("streams") or []) for name, entry in reported.items()}
        names = [name for name in self.streams if not name.startswith("_")]
        own = [n for n in names if not n.endswith("_imu") or n.removesuffix("_imu") not in names]
        return {n: [m for m in (n, n + "_imu") if m in names] for n in own}

    def iterate(
        self,
        streams: Sequence[str] | None = None,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
    ) -> Iterator[Item]:
        """Yield samples of several streams, merged in order of time, in bounded memory.

        Args:
            streams: their names; None: all readable streams.
            start_ns, end_ns: half-open interval of epoch ns; None: open.

        Raises:
            SessionError: there is no stream of that name.
            FormatError: a channel's bytes do not fit its format.
        """
        chosen = [self.stream(name) for name in (self.streams if streams is None else streams)]
        feeds = (_iterate_items(stream, start_ns, end_ns) for stream in chosen)
        return heapq.merge(*feeds, key=attrgetter("t_ns"))

    def stream(self, name: str) -> Stream:
        """Return the stream of that name.

        Raises:
            SessionError: no such stream; the message names the existing streams.
            FormatError: its ``meta.json`` cannot be read.
        """
        if name in self.broken:
            raise self.broken[name]
        try:
            return self.streams[name]
        except KeyError:
            known = ", ".join(self.streams) or "none"
            raise SessionError(
                f"{self.path}: has no stream {name!r}; its streams: {known}"
            ) from None

    def refresh(self) -> None:
        """Read the lengths of all streams again: newly recorded samples become visible."""
        for stream in self.streams.values():
            stream.refresh()

    def close(self) -> None:
        """Close all files."""
        for stream in self.streams.values():
            stream.close()

    def __repr__(self) -> str:
        return f"Session({str(self.path)!r}: {self.state}, {', '.join(self.streams)})"


def _find_redacted(stream: str, redacted: Path | None) -> Path | None:
    """Return the folder with a stream's redacted pictures; None if it has none."""
    return redacted / stream if redacted is not None and (redacted / stream).is_dir() else None


def _iterate_items(stream: Stream, start_ns: int | None, end_ns: int | None) -> Iterator[Item]:
    inside = range(len(stream))
    if start_ns is not None or end_ns is not None:
        inside = stream.between(start_ns, end_ns)
    for batch in stream.iterate(start=inside.start, stop=inside.stop):
        for k, t_ns in enumerate(batch.t_ns.tolist()):
            data = {name: values[k, ...] for name, values in batch.data.items()}
            yield Item(stream.name, batch.start + k, t_ns, data)


def lidar_range_mm(stream: Stream, index: int, return_: int = 1) -> npt.NDArray[np.uint32]:
    """Return ranges of one sweep in mm, uint32 [beams, columns], staggered (as measured).

    A pixel without a return is 0.  ``rng`` alone ends at 65535 mm; ``rng_far`` holds the rest
    (FORMATS, roverd).

    Args:
        stream: a lidar's stream.
        index: index of the sweep.
        return_: 1 for the first (strongest), 2 for the second returns.

    Raises:
        SessionError: the stream has no such ranges.
    """
    name = "rng" if return_ == 1 else f"rng{return_}"
    if name not in stream.meta:
        raise SessionError(f"{stream.path}: has no channel {name!r}, so no ranges of that return")
    far = f"{name}_far"
    data = stream.sample(index, [name, far] if far in stream.meta else [name])
    ranges: npt.NDArray[np.uint32] = data[name].astype(np.uint32)
    if far in data:
        ranges += data[far]
    return ranges


def _explain_no_session(path: Path) -> str:
    """Describe what is missing from a folder, and which sessions it holds if it is a root."""
    if sessions := find_sessions(path):
        more = f"{len(sessions)} sessions" if len(sessions) > 1 else "one session"
        return f"it holds {more}, such as {sessions[-1]}; `recorder list {path}` lists them"
    return "no config.yaml, no sensor with a meta.json"


def sensor_folders(path: Path, *, virtual: bool = False) -> list[Path]:
    """Return the folders of a session with a ``meta.json``, sorted; ``_NAME`` only if `virtual`."""
    try:
        folders = [p for p in path.iterdir() if (p / "meta.json").is_file()]
    except OSError as error:
        raise SessionError(f"{path}: cannot be read: {error.strerror}") from None
    skip = (".",) if virtual else (".", "_")
    return sorted(p for p in folders if not p.name.startswith(skip))


def read_header(path: Path) -> dict[str, Any] | None:
    """Read ``_recorder/session.json`` and check its keys; return None without the file.

    Raises:
        SessionError: it cannot be read or is not valid; names file and key.
    """
    file = _header_path(path)
    try:
        header = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SessionError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SessionError(f"{file}: is damaged: not JSON: {error}") from None
    if not isinstance(header, dict):
        raise SessionError(f"{file}: is damaged: a {type(header).__name__}, not a mapping")
    if header.get("version") != HEADER_VERSION:
        raise SessionError(
            f"{file}: version {header.get('version')!r}; this recorder reads {HEADER_VERSION}"
        )
    for key, (kinds, text) in _HEADER_KEYS.items():
        value = header.get(key)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise SessionError(f"{file}: {key}: needs {text}, not {value!r:.40}")
    if header["state"] not in STATES:
        raise SessionError(f"{file}: state: {header['state']!r} is none of {', '.join(STATES)}")
    for key in ("streams", "epochs", "sensors"):
        for name, entry in (header.get(key) or {}).items():
            if not isinstance(entry, list if key == "epochs" else dict):
                raise SessionError(f"{file}: {key}.{name}: a {type(entry).__name__}")
    return header


_NONE = type(None)
_HEADER_KEYS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "name": ((str,), "a text"),
    "state": ((str,), "a text"),
    "start_ns": ((int,), "a whole number"),
    "start_mono_ns": ((int, _NONE), "a whole number"),
    "end_ns": ((int, _NONE), "a whole number or null"),
    "metadata": ((dict, _NONE), "a mapping"),
    "streams": ((dict, _NONE), "a mapping"),
    "epochs": ((dict, _NONE), "a mapping"),
    "sensors": ((dict, _NONE), "a mapping"),
}


def _header_path(path: Path) -> Path:
    return layout.private(path, layout.SESSION_JSON)
