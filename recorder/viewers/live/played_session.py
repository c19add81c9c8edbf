"""Session that a player plays: its readable streams and its time range."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, SessionError
from recorder.common.files import Closeable
from recorder.session.reader import Session
from recorder.session.replay import playable_spec
from recorder.session.stream import Stream
from recorder.viewers.live.cursor import missing_samples

_FIRST_NS = 1_000_000_000  # streams that begin within this time are shown at the beginning


class PlayedSession(Closeable):
    """An open session in any state; used by one thread.

    Attributes:
        name: the session's name.
        streams: streams that can be played, with their declarations for viewers.
        sensors: the sensor of each stream.
        problems: read errors by stream.
        start_ns, end_ns: first and last moment, epoch ns; the end moves while the session is
            recorded.
        begin_ns: first moment at which all streams that begin soon after the first one have a
            sample.
        recording: the session is being recorded.
        gone: the session was deleted; open files can still be read.

    Raises:
        SessionError: there is no such session, or it has no sample that can be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.gone = False
        self.streams: dict[str, tuple[Stream, StreamSpec]] = {}
        self.sensors: dict[str, str] = {}
        self.problems: dict[str, str] = {}
        session = Session(path, partial=True)
        self.name = session.name
        self.recording = session.live
        ends = self._open(session)
        if not ends:
            self.close()
            faults = "; ".join(f"{name}: {text}" for name, text in self.problems.items())
            raise SessionError(f"{path}: has no sample to play{': ' if faults else ''}{faults}")
        header = session.header or {}
        first_ns = min(first for first, _ in ends)
        self.start_ns = min(first_ns, int(header.get("start_ns", first_ns)))
        self.begin_ns = max(first for first, _ in ends if first <= first_ns + _FIRST_NS)
        self.end_ns = max([int(header.get("end_ns") or 0), *(last for _, last in ends)])

    def look_again(self) -> Set[str]:
        """Update the extent of a session that is being recorded; return new streams' names."""
        known = set(self.streams)
        try:
            with Session(self._path, partial=True) as session:
                self.recording = session.live
                ends = self._open(session)
        except SessionError as error:
            self.recording, self.gone = False, True
            self.problems["session"] = str(error)
        else:
            self.end_ns = max([self.end_ns, *(last for _, last in ends)])
        return self.streams.keys() - known

    def fail(self, stream: str, error: Exception) -> bool:
        """Record that a stream cannot be read; return False if that is known."""
        new = stream not in self.problems
        self.problems.setdefault(stream, str(error))
        return new

    def close(self) -> None:
        """Close all files."""
        for stream, _ in self.streams.values():
            stream.close()

    def _open(self, session: Session) -> list[tuple[int, int]]:
        """Add new streams; return the first and last stamps of all streams."""
        ends = []
        for sensor, owned in session.sensors().items():
            self.sensors |= dict.fromkeys(owned, sensor)
        for name, error in session.broken.items():
            self.fail(name, error)
        for name, stream in session.streams.items():
            if name in self.problems and name not in self.streams:
                continue
            try:
                ends.append(_ends(stream, growing=self.recording))
                if name in self.streams:
                    continue
                self.streams[name] = stream, playable_spec(stream)
                if not self.recording and (missing := missing_samples(stream)):
                    self.problems[name] = missing
            except IndexError:  # no sample, or none yet
                stream.close()
            except (FormatError, SessionError, OSError) as error:
                self.fail(name, error)
                stream.close()
        return ends


def _ends(stream: Stream, *, growing: bool) -> tuple[int, int]:
    """Return first and last stamp, epoch ns; the last is approximate for a growing stream.

    Raises:
        IndexError: the stream has no sample.
        SessionError: its samples have no times.
    """
    if not stream.has_times:
        raise SessionError("its samples have no times")
    if not growing:
        return int(stream.times(0, 1)[0]), int(stream.times(len(stream) - 1, len(stream))[0])
    stamps = stream.channels["t_mono"]  # the other channels may be slow to open
    offset_ns = stream.offset_ns or 0
    return int(stamps[0]) + offset_ns, int(stamps[-1]) + offset_ns
