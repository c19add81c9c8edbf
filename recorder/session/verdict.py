"""The verdict on a session, the same for every verb, the reports and the dashboard.

::

    judged = verdict(read_accounts(session))
    judged.word                                    # PASS or FAIL
    for reason in judged.reasons:
        reason.what, reason.where, reason.how_much

A session passes if it was closed properly (or is still being recorded), every sample of every
configured sensor is in it and complete, its minimum rates were kept, no fault occurred, and all
that was recorded can be read.  Remarks do not fail a session.  docs/report.md explains the verdict
to users.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from recorder.common.text_format import clean, format_seconds
from recorder.config.settings import MAX_INCOMPLETE
from recorder.session.accounts import Accounts, format_incomplete, sum_incomplete
from recorder.session.events import SILENT, SLOW, floor_hz, window_ns
from recorder.session.layout import RECORDING, RECOVERED, SEALED
from recorder.session.loss_accounts import get_event_interval_ns
from recorder.session.missing_sensors import ABSENT
from recorder.session.validation_report import ERROR, WARNING, Report

PASS, FAIL = "PASS", "FAIL"
_RATE_S = 3.0
"""Least duration of a stream, in seconds, for a judgement of its mean rate."""
_EARLY_SHARE = 0.05
"""Share of the recording by which a source may end before the others by itself."""

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
"""Meaning of the causes of losses (docs/durability.md, docs/drivers.md)."""

_UNCOUNTED = {ABSENT: "sensor absent", SILENT: "sensor silent", SLOW: "below the minimum rate"}


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason of a verdict, or a remark: its kind, its place, and its amount, each as a text."""

    what: str
    where: str
    how_much: str

    @property
    def text(self) -> str:
        """One line: ``samples lost (imu): 3 of 100``."""
        place = f" ({self.where})" if self.where else ""
        amount = f": {self.how_much}" if self.how_much else ""
        return clean(self.what + place + amount)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a session.

    Attributes:
        open: a writer holds the session, so that more may follow.
        reasons: why the session fails, the worst first; empty if it passes.
        remarks: notable facts that do not fail the session.
    """

    open: bool
    reasons: Sequence[Reason]
    remarks: Sequence[Reason] = ()

    @property
    def passed(self) -> bool:
        """True if there is no reason to fail (so far, in an open session)."""
        return not self.reasons

    @property
    def word(self) -> str:
        """`PASS` or `FAIL`; of an open session, so far."""
        return FAIL if self.reasons else PASS

    @property
    def text(self) -> str:
        """One line: ``FAIL: samples lost (imu), clock step``."""
        whats = [f"{r.what} ({r.where})" if r.where else r.what for r in self.reasons]
        more = f", and {len(whats) - 3} more" if len(whats) > 3 else ""
        return f"{self.word}: {', '.join(whats[:3])}{more}" if whats else self.word

    def to_wire(self) -> dict[str, Any]:
        """Return a mapping for JSON: ``{verdict, reasons: [{what, where, how_much}], remarks}``."""
        return {
            "verdict": self.word,
            "reasons": [asdict(reason) for reason in self.reasons],
            "remarks": [asdict(remark) for remark in self.remarks],
        }


def judge_unreadable_session(fault: str) -> Verdict:
    """Return the verdict on a session that cannot be opened."""
    return Verdict(False, [Reason("session unreadable", "", fault)])


def verdict(
    found: Accounts,
    *,
    unexplained: Mapping[str, int] | None = None,
    checked: Report | None = None,
    unreadable: Iterable[Reason] = (),
) -> Verdict:
    """Judge a session.

    Args:
        found: its accounts.
        unexplained: by stream, samples that are missing without an event, where that was counted.
        checked: the report of the check of its files, if they were checked.
        unreadable: further things that could not be read, such as pictures.
    """
    reasons: list[Reason] = list(_judge_state(found))
    remarks: list[Reason] = []
    for name, stream in found.streams.items():
        unknown = (unexplained or {}).get(name, 0)
        reasons += _judge_losses(found, name, stream, {"unknown": unknown} if unknown else {})
        _judge_incomplete(found, name, stream, reasons, remarks)
    reasons += _judge_rates(found)
    reasons += _judge_tails(found)
    reasons += _judge_faults(found.happened["faults"], found.start_ns)
    problems = checked.problems if checked is not None else ()
    reasons += _judge_problems(found, problems)
    known = {reason.how_much for reason in reasons}
    reasons += [reason for reason in unreadable if reason.how_much not in known]
    for step, entry in found.steps.items():
        if step != "report" and not entry.get("done") and entry.get("error"):
            reasons.append(Reason("postprocessing failed", step, str(entry["error"])))
    for problem in problems:
        if problem.severity == WARNING:
            remarks.append(Reason("validation warning", problem.stream or "", problem.message))
    return Verdict(found.live, reasons, remarks)


def _judge_state(found: Accounts) -> Iterator[Reason]:
    ended = found.happened["ended"] or {}
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


def _judge_losses(
    found: Accounts, name: str, stream: Mapping[str, Any], unknown: Mapping[str, int]
) -> Iterator[Reason]:
    stored = stream["samples"] or 0
    counted = {**stream["lost"], **unknown}
    total = stored + sum(counted.values())
    for cause, count in counted.items():
        if count:
            share = f" of {total} ({100 * count / total:.3g} %)" if total else ""
            yield Reason("samples lost", name, f"{count}{share}; {_explain(cause)}")
    uncounted: dict[str, list[Mapping[str, Any]]] = {}
    for interval in stream["lost_intervals"]:
        uncounted.setdefault(str(interval.get("cause")), []).append(interval)
    for cause, intervals in uncounted.items():
        what = _UNCOUNTED.get(cause, "uncounted loss")
        why = f"; {_explain(cause)}" if cause in CAUSES and what == "uncounted loss" else ""
        yield Reason(what, name, format_intervals(intervals) + why)
    quiet = any(name in entry.get("quiet", ()) for entry in found.sensors.values())
    silent = stream["samples"] == 0 and not counted and not uncounted and not quiet
    if silent and found.recorded and not found.live:
        yield Reason("no samples", name, "declared, but without a sample and without a loss")


def _explain(cause: str) -> str:
    why = CAUSES.get(cause, "")
    return f"{cause}: {why}" if why else cause


def _judge_incomplete(
    found: Accounts,
    name: str,
    stream: Mapping[str, Any],
    reasons: list[Reason],
    remarks: list[Reason],
) -> None:
    """Add a reason, or a remark if no more samples lack parts than the config allows."""
    count, _ = sum_incomplete(stream["incomplete"])
    if not count:
        return
    allowed = MAX_INCOMPLETE
    for entry in found.sensors.values():
        if name in (entry.get("streams") or ()):
            share = entry.get("max_incomplete")
            allowed = float(share) if isinstance(share, int | float) else allowed
    stored = max(count, stream["samples"] or 0)
    text = f"{format_incomplete(stream['incomplete'])}: {100 * count / stored:.3g} % of {stored}"
    limit = f"max_incomplete allows {100 * allowed:.3g} %"
    causes = "; ".join(_explain(cause) for cause in stream["incomplete"])
    if count > allowed * stored:
        reasons.append(Reason("incomplete samples", name, f"{text}, {limit}; {causes}"))
    else:
        remarks.append(Reason("incomplete samples", name, f"{text}; {limit}; {causes}"))


def format_intervals(intervals: Sequence[Mapping[str, Any]]) -> str:
    """Format uncounted losses: ``2 intervals, 3.1 s, about 310 samples``."""
    plural = "s" if len(intervals) > 1 else ""
    text = f"{len(intervals)} interval{plural}"
    durations = [i["duration_ns"] for i in intervals if isinstance(i.get("duration_ns"), int)]
    if durations:
        text += f", {format_seconds(sum(durations) / 1e9)}"
    estimates = [i["estimate"] for i in intervals if isinstance(i.get("estimate"), int)]
    if estimates:
        text += f", about {sum(estimates)} samples"
    return text


def _iterate_minimum_rates(found: Accounts) -> Iterator[tuple[Mapping[str, Any], str, float]]:
    """Yield each stream with a minimum rate: its sensor's entry, its name, and the rate in Hz."""
    for sensor, entry in found.sensors.items():
        for name in entry.get("streams") or ():
            spec = found.declared.get(name)
            if spec is None or name not in found.streams:
                continue
            try:
                least = floor_hz(sensor, entry, spec)
            except (TypeError, ValueError):  # no rate at all
                continue
            if least is not None:
                yield entry, name, least


def _judge_rates(found: Accounts) -> Iterator[Reason]:
    """Yield streams that were below their minimum rate, where no loss reports it.

    A played source that plays slower than real time is below the minimum by the clock, not by its
    stamps.
    """
    for entry, name, least in _iterate_minimum_rates(found):
        stream = found.streams[name]
        if {SLOW, SILENT} & {str(i.get("cause")) for i in stream["lost_intervals"]}:
            continue
        slow = found.slow.get(name, ())
        if slow and not entry.get("live"):
            rates = [e["rate_hz"] for e in slow if isinstance(e.get("rate_hz"), int | float)]
            lowest = f" down to {min(rates):.4g} Hz;" if rates else ""
            times = f"{len(slow)} time{'s' if len(slow) > 1 else ''}{_format_since(found, slow[0])}"
            yield Reason(_UNCOUNTED[SLOW], name, f"{times}:{lowest} the minimum is {least:.4g} Hz")
            continue
        if not stream["rate_hz"]:
            continue
        seconds = (stream["last_ns"] - stream["first_ns"]) / 1e9
        counted = sum(stream["lost"].values())
        rate_hz = stream["rate_hz"] + (counted / seconds if seconds else 0.0)
        if seconds >= _RATE_S and rate_hz < least:
            text = f"{stream['rate_hz']:.4g} Hz on average; the minimum is {least:.4g} Hz"
            yield Reason(_UNCOUNTED[SLOW], name, text)


def _format_since(found: Accounts, event: Mapping[str, Any]) -> str:
    t_ns = event.get("t_ns")
    if not isinstance(t_ns, int) or found.start_ns is None:
        return ""
    return f", first at {(t_ns - found.start_ns) / 1e9:.1f} s"


def _judge_tails(found: Accounts) -> Iterator[Reason]:
    """Yield streams that end much earlier than the others, or than the recording's duration.

    Where a device was silent at the end, the writer has counted that as a loss.
    """
    if found.end_ns is None or found.start_ns is None or found.last_ns is None:
        return
    latest_ns, wanted_s = found.last_ns, found.header.get("duration_s")
    for entry, name, least in _iterate_minimum_rates(found):
        last_ns, spec = found.streams[name]["last_ns"], found.declared[name]
        if last_ns is None or spec.sporadic or "live" not in entry:
            continue  # a clip has no `live`: its accounts are those of its sources
        epochs = (found.header.get("epochs") or {}).get(name) or [{}]
        by_itself = epochs[-1].get("ended") == "eof"
        until_ns, limit_ns = latest_ns, window_ns(least)
        # A file that was played may be a little shorter than the others.
        if by_itself:
            limit_ns = max(limit_ns, round(_EARLY_SHARE * (until_ns - found.start_ns)))
        elif wanted_s is not None and (found.happened["ended"] or {}).get("cause") in _IN_TIME:
            until_ns = max(until_ns, found.start_ns + round(float(wanted_s) * 1e9))
        known = [get_event_interval_ns(event) for event in found.lost.get(name, ())]
        accounted_ns = max([last_ns, *(interval[1] for interval in known if interval is not None)])
        if until_ns - accounted_ns > limit_ns:
            last_s, until_s = ((t - found.start_ns) / 1e9 for t in (last_ns, until_ns))
            how = "its source ended" if by_itself else "it did not play to the end"
            yield Reason("ends early", name, f"at {last_s:.1f} of {until_s:.1f} s; {how}")


_IN_TIME = ("duration", "overtime")
"""Causes of an end after the whole duration."""


def _judge_faults(faults: Sequence[Mapping[str, Any]], start_ns: int | None) -> Iterator[Reason]:
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


def _judge_problems(found: Accounts, checked: Iterable[Any]) -> Iterator[Reason]:
    """Yield errors of the check and of the accounts, each once."""
    reported = set()
    expected = {"was not closed", "was sealed"}  # the state says so
    for problem in checked:
        if problem.severity == ERROR and not any(text in problem.message for text in expected):
            reported.add(problem.message)
            yield Reason("damaged", problem.stream or "session", problem.message)
    for message in found.problems:
        if message not in reported:
            reported.add(message)
            yield Reason("unreadable", "", message)
