"""Missing intervals of an event's window, found from the parts that cover it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recorder.common.errors import SessionError
from recorder.recording.ring.retention_policy import SLACK_NS
from recorder.session.event_clips import KeptEvent, Shortfall
from recorder.session.incidents import incidents
from recorder.session.layout import CLEAN, RECOVERED
from recorder.session.loss_accounts import loss_intervals
from recorder.session.missing_sensors import ABSENT, collect_losses
from recorder.session.reader import Session

SPLIT = "ring"
"""Ending of a part that another part continues: a missing next part was deleted by the ring."""
_ENDINGS = {"killed": "power", "sealed": "disk", "floor": "disk", "split": SPLIT}
"""By a part's end reason, the cause of missing data after it; otherwise it was stopped."""
_OF_SENSOR = (ABSENT, "device")
_TORN = ("power", "disk", SPLIT)
"""Endings that may also lose samples taken before the end."""
MOST = 1000
"""Limit of the listed loss intervals of one stream."""


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """Samples and losses of a stream in a part, epoch ns.

    Attributes:
        last_ns: stamp of the last sample; None without one.
        losses: ``(start, end, cause of the shortfall)``, by start; None for an unknown time.
    """

    last_ns: int | None = None
    losses: tuple[tuple[int | None, int | None, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PartFacts:
    """Content of a closed part, epoch ns.

    Attributes:
        name: name of the session.
        start_ns, end_ns: start and end of the recording.
        previous: the part that this one continues without a gap; None without one.
        ending: cause of data that is missing after the part.
        streams: by name, the content of each stream.
    """

    name: str
    start_ns: int
    end_ns: int
    previous: str | None = None
    ending: str = "stop"
    streams: Mapping[str, StreamFacts] = field(default_factory=dict)


def read_facts(path: Path) -> PartFacts:
    """Read the content of a closed session from its stamps, numbers and events alone.

    Raises:
        RecorderError: the session cannot be read.
    """
    with Session(path) as session:
        if session.state not in (CLEAN, RECOVERED):
            raise SessionError(f"{path}: is not closed")
        header = session.header or {}
        lost = collect_losses(session)
        ended = (incidents(session)["ended"] or {}).get("cause")
        streams = {}
        for name in {*session.streams, *session.declared, *lost}:
            stream = session.streams.get(name)
            losses = []
            for one in loss_intervals(stream, lost.get(name, ())):
                cause = "sensor" if one.cause in _OF_SENSOR else "lost"
                losses.append((one.start_ns, one.end_ns, cause))
            last_ns = None
            if stream is not None and len(stream):
                last_ns = int(stream.times(len(stream) - 1, len(stream))[0])
            streams[name] = StreamFacts(last_ns, tuple(losses))
        for name in session.broken:
            streams[name] = StreamFacts(None, ((None, None, "damaged"),))
        start_ns = int(header["start_ns"])
        return PartFacts(
            name=path.name,
            start_ns=start_ns,
            end_ns=session.end_ns or start_ns,
            previous=header.get("previous"),
            ending=_ENDINGS.get(str(ended), "stop"),
            streams=streams,
        )


def needs_following(event: KeptEvent, last: PartFacts) -> bool:
    """Return whether the part after an event's last one may report a loss in the event's window.

    A driver reports a loss with the next sample.
    """
    return last.ending == SPLIT and any(
        stream.last_ns is None or stream.last_ns < event.until_ns
        for stream in last.streams.values()
    )


def shortfalls(
    event: KeptEvent,
    parts: Sequence[PartFacts],
    damaged: Iterable[tuple[int, int]] = (),
    otherwise: str = "ring",
    gone: str = SPLIT,
) -> tuple[Shortfall, ...]:
    """Return the missing intervals of an event's window, by time.

    Args:
        event: the event with the window.
        parts: all parts that touch the window, by time; and the next one if `needs_following`.
        damaged: starts and ends of parts that cannot be read.
        otherwise: cause of an interval without any part.
        gone: cause of a missing part that the next one continues.
    """
    found: list[Shortfall] = []

    def add(start_ns: int, end_ns: int, stream: str | None, cause: str) -> None:
        cause = gone if cause == SPLIT else cause
        start_ns, end_ns = max(start_ns, event.from_ns), min(end_ns, event.until_ns)
        if start_ns < end_ns:
            found.append(Shortfall(start_ns, end_ns, stream, cause))

    for start_ns, end_ns in damaged:
        add(start_ns, end_ns, None, "damaged")
    reach_ns, ending, before = event.from_ns, otherwise, None
    reached: dict[str, int] = {}  # by stream, its last sample since the recording was interrupted
    began_ns = 0
    for index, part in enumerate(parts):
        following = parts[index + 1] if index + 1 < len(parts) else None
        if before is None:
            ending = "start" if part.previous is None else SPLIT
        if before is None or part.previous != before.name:
            add(reach_ns, part.start_ns, None, ending)
            reached, began_ns = {}, part.start_ns
        torn = part.ending in _TORN and (following is None or following.previous != part.name)
        for name, stream in part.streams.items():
            # A loss without a sample before it may have begun in an earlier part.
            begin_ns = reached.get(name, began_ns)
            for low, high, cause in stream.losses[:MOST]:
                low_ns = begin_ns if low is None else low
                high_ns = part.end_ns + SLACK_NS if high is None else high
                add(low_ns, max(high_ns, low_ns + 1), name, cause)
            if len(stream.losses) > MOST:
                low = stream.losses[MOST][0]
                add(begin_ns if low is None else low, part.end_ns, name, "lost")
            if stream.last_ns is not None:
                reached[name] = stream.last_ns
        if torn:  # samples in transit at the end are lost
            for name in {*reached, *part.streams}:
                add(reached.get(name, began_ns), part.end_ns, name, part.ending)
        reach_ns, ending, before = max(reach_ns, part.end_ns), part.ending, part
    add(reach_ns, event.until_ns, None, ending)
    return tuple(sorted(set(found), key=lambda s: (s.from_ns, s.stream or "", s.until_ns)))
