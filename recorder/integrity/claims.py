"""The statement of a clip about itself: its interval, its streams and its source sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from recorder.common.errors import FormatError
from recorder.common.text_format import human_time
from recorder.integrity.signatures import digest_metadata
from recorder.integrity.vehicle_key import Signed
from recorder.session.journal.digests import digest
from recorder.session.reader import Session

_CALIBRATION: Final = "calibration.yaml"
NOT_COMPARED: Final = "events, log, session.vrs and what else session.json has: nothing proves them"


@dataclass(frozen=True)
class SourceSpan:
    """The samples of one stream of a source that are in a clip.

    Attributes:
        source: names the stream.
        span: the samples in the source; an empty range at their place if there are none.
        count: all samples of the source's stream.
        stamp: returns the epoch ns of a sample of the source; FormatError.
    """

    source: Path | str
    span: range
    count: int
    stamp: Callable[[int], int]


@dataclass(frozen=True)
class Claim:
    """The statement of a clip about itself, before any part of it is checked.

    Attributes:
        clip: the clip.
        origins: entries of its sources by time, as in ``session.json``.
        statements: the signed statements of the sources; None for a source without a signature.
        interval_ns: half-open, epoch ns; None: from the beginning of the first source, to the end
            of the last one.
        streams: names of its streams; None: all that its sources have.
        lead_in: by stream, samples from before the interval.
    """

    clip: Session
    origins: Sequence[Mapping[str, Any]]
    statements: Sequence[Mapping[str, Any] | None]
    interval_ns: tuple[int | None, int | None]
    streams: frozenset[str] | None
    lead_in: Mapping[str, int]

    @classmethod
    def read(cls, clip: Session) -> Claim:
        """Read the claim of a clip.

        Raises:
            FormatError, LookupError, TypeError, ValueError: the clip has no valid claim.
        """
        origin = (clip.header or {})["origin"]
        origins = list(origin["sessions"])
        if not origins:
            raise FormatError("it names no session that it was made from")
        signed = [origin["signed"] for origin in origins]
        statements = [s and Signed.from_record(s).values for s in signed]
        begin_ns, end_ns = (
            None if origin[key] is None else int(origin[key]) for key in ("from_ns", "until_ns")
        )
        streams = origin["streams"]
        lead_in = {str(name): int(count) for name, count in origin.get("lead_in", {}).items()}
        chosen = None if streams is None else frozenset(streams)
        return cls(clip, origins, statements, (begin_ns, end_ns), chosen, lead_in)

    def describe(self) -> str:
        """Describe the interval and the streams for people."""
        begin_ns, end_ns = self.interval_ns
        words = ["from the beginning" if begin_ns is None else f"from {human_time(begin_ns)}"]
        words.append("to the end" if end_ns is None else f"until {human_time(end_ns)}")
        if self.streams is not None:
            words.append(f"of the streams {', '.join(sorted(self.streams))}; others are not in it")
        return " ".join(words)

    def find_faults(self) -> Iterator[str]:
        """Yield contradictions between the clip and the statements that the signatures cover."""
        path, own = self.clip.path, {n for n, s in self.clip.streams.items() if len(s)}
        if not own:
            yield f"{path}: has no sample"
        if self.streams is not None and own != self.streams:
            different = ", ".join(sorted(own ^ self.streams))
            yield f"{path}: has other streams than it states: {different}"
        roots = [origin["root"] for origin in self.origins]
        for origin in self.origins:
            if roots.count(origin["root"]) > 1:
                yield f"{path}: names the session {origin['name']} twice"
                return
        for statement, origin in zip(self.statements, self.origins, strict=True):
            theirs = set() if statement is None else set(statement["samples"])
            if self.streams is None and (lost := theirs - own):
                text = f"lacks the streams {', '.join(sorted(lost))} of {origin['name']}"
                yield f"{path}: {text}, and states that it has all"
        for one, other in pairwise(range(len(self.origins))):
            statement, after = self.statements[one], self.statements[other]
            if statement is None or after is None or statement["next"] is None:
                continue
            following = {"session": self.origins[other]["name"], "first": after["first"]}
            if statement["next"] != following:
                text = f"{self.origins[one]['name']} is continued by {statement['next']['session']}"
                yield f"{path}: {text}, which is left out"
        if all(self.statements):
            yield from self._check_files([s for s in self.statements if s is not None])
            yield from self._check_times([s for s in self.statements if s is not None])

    def _check_files(self, statements: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        path = self.clip.path
        names = {"config.yaml", _CALIBRATION}
        names |= {f"{n}/{p.name}" for n in self.clip.streams for p in (path / n).glob("*.json")}
        for name in sorted(names):
            theirs = [s["files"][name] for s in statements if name in s["files"]]
            if not (path / name).is_file():
                if theirs:
                    yield f"{path / name}: is missing; its sources have it"
            elif not theirs and name == _CALIBRATION:
                continue  # added to the source after its recording; `find_gaps` reports it
            elif digest((path / name).read_bytes()).hex() not in theirs:
                yield f"{path / name}: is not that of its sources"
        if digest_metadata(self.clip.header or {}) != statements[0]["metadata"]:
            yield f"{path}: its metadata are not those of {self.origins[0]['name']}"

    def _check_times(self, statements: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        header, (begin_ns, end_ns) = self.clip.header or {}, self.interval_ns
        path, name = self.clip.path, self.origins[0]["name"]
        if header["start_ns"] - header["start_mono_ns"] != statements[0]["clock_ns"]:
            yield f"{path}: its clock is not that of {name}: times are shifted"
        start_ns = min(statement["start_ns"] for statement in statements)
        last_ns = max(statement["end_ns"] for statement in statements)
        if (begin_ns is not None and begin_ns < start_ns) or (
            end_ns is not None and end_ns > last_ns
        ):
            yield f"{path}: states an interval that reaches beyond its sources"
        start_ns = start_ns if begin_ns is None else max(begin_ns, start_ns)
        last_ns = last_ns if end_ns is None else min(end_ns, last_ns)
        if (header["start_ns"], header["end_ns"]) != (start_ns, last_ns):
            yield f"{path}: begins or ends at another time than the interval that it states"

    def find_gaps(self) -> Iterator[str]:
        """Yield a line for each fact that the sources' signatures do not prove."""
        signed = [statement for statement in self.statements if statement is not None]
        if (self.clip.path / _CALIBRATION).exists() and not any(
            _CALIBRATION in statement["files"] for statement in signed
        ):
            yield f"{_CALIBRATION}: its sources had none when they were recorded"
        for one, other in pairwise(range(len(self.origins))):
            statement = self.statements[one]
            if statement is None or statement["next"] is None:
                before, after = (self.origins[k]["name"] for k in (one, other))
                text = f"{after} does not continue {before}: what was recorded between them"
                yield f"{text} is not in the clip"

    def check_span(self, place: Path, taken: SourceSpan) -> None:
        """Check that a clip has all samples of a source's stream that lie in its interval.

        Args:
            place: the clip's stream.
            taken: the source's samples that the clip has.

        Raises:
            FormatError: one is missing, or lies outside.
        """
        (begin_ns, end_ns), span = self.interval_ns, taken.span
        lead_in = self.lead_in.get(place.name, 0)
        if span.start > 0 and (begin_ns is None or taken.stamp(span.start - 1) >= begin_ns):
            self._fail(place, f"lacks the samples before sample {span.start} of {taken.source}")
        if span.stop < taken.count and (end_ns is None or taken.stamp(span.stop) < end_ns):
            self._fail(place, f"lacks the samples from sample {span.stop} of {taken.source} on")
        if not span:
            return
        inside = min(span.start + lead_in, span.stop - 1)
        early = begin_ns is not None and taken.stamp(inside) < begin_ns
        if early or (end_ns is not None and taken.stamp(span.stop - 1) >= end_ns):
            self._fail(place, f"has samples of {taken.source} from outside of it")

    def _fail(self, place: Path, text: str) -> None:
        raise FormatError(f"{place}: {text}; it states that it is whole {self.describe()}")
