"""The verdict on a session: PASS, or which contract broke, where, and how much.

::

    judged = verdict(look(path))
    judged.word                                    # PASS, FAIL, or OPEN
    for reason in judged.reasons:
        reason.what, reason.where, reason.how_much

A session passes if it was closed properly, every sample of every configured sensor is in it, its
minimum rates were kept, nothing was at fault, and all that was recorded can be read.  Remarks break
no contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recorder.contract.texts import human_seconds
from recorder.report.findings import Findings
from recorder.session.absence import ABSENT
from recorder.session.layout import RECORDING, RECOVERED, SEALED
from recorder.session.validation_report import ERROR, WARNING
from recorder.writer.rate_shortfall import SILENT, SLOW, floor_hz

PASS, FAIL, OPEN = "PASS", "FAIL", "OPEN"
_RATE_S = 3.0
"""Seconds of a stream from which on its mean rate is judged."""

CAUSES: Mapping[str, str] = {
    "device": "the sensor left samples out, or was lost",
    "network": "packets were lost on the way",
    "corrupt": "data were damaged",
    "truncated": "the played file ends inside a sample, or a file is missing",
    "snaplen": "the capture holds only the beginning of the datagrams",
    "fragments": "the capture lacks IP fragments of the datagrams",
    "changed": "the samples no longer had the form that the stream declares",
    "unread": "the rest of the played source cannot be read",
    "overrun": "pictures came faster than they could be decoded and encoded",
    "recorded": "the played session had lost them",
    "refused": "the driver's buffer was full",
    "buffer": "the driver's buffer was full",
    "time": "their stamps fit neither the stamp before nor the stamp after",
    "hung": "the driver hung",
    "silent": "the sensor gave no samples",
    "rate": "the stream was below its minimum rate",
    "late": "the source plays slower than real time",
    "driver": "the driver's process ended",
    "absent": "the sensor was missing",
    "killed": "the recorder was killed",
    "power": "the power was cut",
    "damaged": "the samples were damaged on the disk",
    "untold": "the writer died before it recorded the cause",
    "disk": "the disk failed",
    "unknown": "no event says why",
}
"""What the causes of losses mean (docs/durability.md, docs/drivers.md)."""

_UNCOUNTED = {ABSENT: "sensor absent", SILENT: "sensor silent", SLOW: "below the minimum rate"}


@dataclass(frozen=True, slots=True)
class Reason:
    """What broke (or is remarkable), its place, and its amount, each as a text."""

    what: str
    where: str
    how_much: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a session.

    Attributes:
        open: a writer holds the session: more may come.
        reasons: what broke, the worst first; empty if nothing did.
        remarks: what is odd and breaks no contract.
    """

    open: bool
    reasons: Sequence[Reason]
    remarks: Sequence[Reason]

    @property
    def passed(self) -> bool:
        """Whether no contract broke (so far, in an open session)."""
        return not self.reasons

    @property
    def word(self) -> str:
        """`PASS`, `FAIL`, or `OPEN`: nothing broke so far, and the session is not closed."""
        return FAIL if self.reasons else OPEN if self.open else PASS

    @property
    def text(self) -> str:
        """One line: ``FAIL: samples lost (imu), clock step``."""
        whats = [f"{r.what} ({r.where})" if r.where else r.what for r in self.reasons]
        more = f", and {len(whats) - 3} more" if len(whats) > 3 else ""
        return f"{self.word}: {', '.join(whats[:3])}{more}" if whats else self.word


def verdict(found: Findings, unreadable: Iterable[Reason] = ()) -> Verdict:
    """Judge a session.

    Args:
        found: what it holds.
        unreadable: further things that could not be read, such as pictures.
    """
    summary = found.summary
    reasons: list[Reason] = list(_state(found))
    remarks: list[Reason] = []
    if summary is not None:
        for name, stream in summary["streams"].items():
            reasons += _losses(found, name, stream)
            if incomplete := stream["incomplete"]:
                remarks.append(Reason("incomplete samples", name, incomplete_text(incomplete)))
        reasons += _rates(found)
        reasons += _faults(summary["faults"], summary["start_ns"])
    reasons += _problems(found)
    known = {reason.how_much for reason in reasons}
    reasons += [reason for reason in unreadable if reason.how_much not in known]
    steps, _ = found.postprocessing
    for step, entry in steps.items():
        if step != "report" and not entry.get("done") and entry.get("error"):
            reasons.append(Reason("postprocessing failed", step, str(entry["error"])))
    for problem in found.validation.problems if found.validation is not None else ():
        if problem.severity == WARNING:
            remarks.append(Reason("validation warning", problem.stream or "", problem.message))
    if found.validation_fault:
        remarks.append(Reason("not validated", "", found.validation_fault))
    return Verdict(found.live, reasons, remarks)


def _state(found: Findings) -> Iterator[Reason]:
    if found.fault:
        yield Reason("session unreadable", "", found.fault)
        return
    ended = (found.summary or {}).get("ended") or {}
    detail = str(ended.get("detail") or "")
    if found.state == RECORDING and not found.live:
        yield Reason("not closed", "session", "its writer died; run `recorder recover`")
    elif found.state == SEALED:
        yield Reason("sealed", "disk", f"{detail or 'the disk failed'}; run `recorder recover`")
    elif found.state == RECOVERED:
        text = detail if ended.get("cause") == "killed" else ""
        yield Reason(
            "recovered", "session", text or "its writer died; `recorder recover` closed it"
        )
    if ended.get("cause") == "floor" and found.state != RECORDING:
        yield Reason("ended early", "disk", detail or "the disk was nearly full")


def _losses(found: Findings, name: str, stream: Mapping[str, Any]) -> Iterator[Reason]:
    stored = stream["samples"] or 0
    counted = {**stream["lost"], **found.unexplained.get(name, {})}
    total = stored + sum(counted.values())
    for cause, count in counted.items():
        if count:
            share = f" of {total} ({100 * count / total:.3g} %)" if total else ""
            why = CAUSES.get(cause, "")
            why = f"{cause}: {why}" if why else cause
            yield Reason("samples lost", name, f"{count}{share}; {why}")
    uncounted: dict[str, list[Mapping[str, Any]]] = {}
    for interval in stream["lost_intervals"]:
        uncounted.setdefault(str(interval.get("cause")), []).append(interval)
    for cause, intervals in uncounted.items():
        what = _UNCOUNTED.get(cause, "uncounted loss")
        why = CAUSES.get(cause, "")
        why = f"; {cause}: {why}" if why and what == "uncounted loss" else ""
        yield Reason(what, name, interval_text(intervals) + why)
    silent = stream["samples"] == 0 and not counted and not uncounted
    if silent and found.recorded and not found.live:
        yield Reason("no samples", name, "declared, but without a sample and without a loss")


def interval_text(intervals: Sequence[Mapping[str, Any]]) -> str:
    """Uncounted losses: ``2 intervals, 3.1 s, about 310 samples``."""
    plural = "s" if len(intervals) > 1 else ""
    text = f"{len(intervals)} interval{plural}"
    durations = [i["duration_ns"] for i in intervals if isinstance(i.get("duration_ns"), int)]
    if durations:
        text += f", {human_seconds(sum(durations) / 1e9)}"
    estimates = [i["estimate"] for i in intervals if isinstance(i.get("estimate"), int)]
    if estimates:
        text += f", about {sum(estimates)} samples"
    return text


def incomplete_text(incomplete: Mapping[str, int]) -> str:
    """Samples of which a part is missing: ``3 (120 columns missing)``."""
    columns = incomplete.get("columns_missing")
    more = f" ({columns} columns missing)" if columns is not None else ""
    return f"{incomplete.get('samples', 0)}{more}"


def _rates(found: Findings) -> Iterator[Reason]:
    """Streams whose mean rate is below the minimum, where no event reports it."""
    assert found.summary is not None
    for sensor, entry in found.sensors.items():
        for name in entry.get("streams") or ():
            stream, spec = found.summary["streams"].get(name), found.declared.get(name)
            if stream is None or spec is None or not stream["rate_hz"]:
                continue
            if {SLOW, SILENT} & {str(i.get("cause")) for i in stream["lost_intervals"]}:
                continue
            seconds = (stream["last_ns"] - stream["first_ns"]) / 1e9
            try:
                least = floor_hz(sensor, entry, spec)
            except (TypeError, ValueError):  # no rate at all
                continue
            counted = sum(stream["lost"].values())
            rate_hz = stream["rate_hz"] + (counted / seconds if seconds else 0.0)
            if least is not None and seconds >= _RATE_S and rate_hz < least:
                text = f"{stream['rate_hz']:.4g} Hz on average; the minimum is {least:.4g} Hz"
                yield Reason(_UNCOUNTED[SLOW], name, text)


def _faults(faults: Sequence[Mapping[str, Any]], start_ns: int | None) -> Iterator[Reason]:
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for fault in faults:
        key = (str(fault["type"]), str(fault["cause"] or ""), str(fault["stream"] or ""))
        groups.setdefault(key, []).append(fault)
    for (kind, cause, stream), same in groups.items():
        what = "clock step" if (kind, cause) == ("clock", "step") else f"{kind}: {cause}"
        t_ns, detail = same[0]["t_ns"], same[0]["detail"]
        words = [f"{len(same)} times, first" if len(same) > 1 else ""]
        if isinstance(t_ns, int) and start_ns is not None:
            words.append(f"at {(t_ns - start_ns) / 1e9:.1f} s")
        text = " ".join(word for word in words if word)
        where = stream or {"clock": "host clock", "disk": "disk", "writer": "writer"}.get(kind, "")
        yield Reason(what, where, ": ".join(part for part in (text, detail) if part))


def _problems(found: Findings) -> Iterator[Reason]:
    """What validation and the summary could not read, each once."""
    told = set()
    expected = {"was not closed", "was sealed"}  # the state says so
    for problem in found.validation.problems if found.validation is not None else ():
        if problem.severity == ERROR and not any(text in problem.message for text in expected):
            told.add(problem.message)
            yield Reason("damaged", problem.stream or "session", problem.message)
    for message in (found.summary or {}).get("problems", ()):
        if message not in told:
            told.add(message)
            yield Reason("unreadable", "", message)
