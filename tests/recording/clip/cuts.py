"""What the tests of clips say and see of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recorder.session.part import Moment, Part
from recorder.session.reader import Session
from recorder.session.validation import validate
from recorder.session.validation_report import Report


def part(begin: float | None = None, end: float | None = None, *streams: str) -> Part:
    moments = [None if t is None else Moment.parse(f"{t:g}") for t in (begin, end)]
    return Part(moments[0], moments[1], streams or None)


def sound(session: Path) -> Report:
    report = validate(session, deep=True)
    assert [str(p.message) for p in report.problems] == []
    return report


def samples(session: Path, stream: str, begin_ns: int | None, end_ns: int | None) -> list[Any]:
    """What is stored of each sample: times, number, payloads as they lie in the files."""
    with Session(session) as opened:
        found = opened.streams[stream]
        inside = found.between(begin_ns, end_ns)
        times = [n for n in ("ts", "t_mono", "seq", "t_dev") if n in found.meta]
        columns = [found.channels[n].read(inside.start, inside.stop).tolist() for n in times]
        payloads = [
            [found.channels[n].encoded(k) for k in inside]
            if found.meta[n]["format"] not in ("raw", "lzma")
            else [v.tobytes() for v in found.channels[n].read(inside.start, inside.stop)]
            for n in found.data_channels
        ]
        return list(zip(*columns, *payloads, strict=True))
