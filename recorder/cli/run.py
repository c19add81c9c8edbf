"""``recorder run CONFIG``: record one session in the foreground."""

from __future__ import annotations

import argparse
import os
import signal
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from recorder.cli.control import format_streams
from recorder.cli.info import format_incidents, format_verdict
from recorder.cli.output import add_format, defer_interrupt, emit, handle_signals, note
from recorder.cli.post_session import Completion, write_missing_labels
from recorder.common.errors import RecorderError, StorageError, UsageError
from recorder.common.text_format import clean

if TYPE_CHECKING:
    from recorder.config.loading import Config
    from recorder.recording.foreground import Outcome
    from recorder.session.layout import SessionPlan


_OF_STREAM = ("samples", "lost", "unknown_losses", "incomplete", "ended")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help="record with this config")
    parser.add_argument("--duration", type=seconds, metavar="S", help="stop after S seconds")
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="record into DIR instead of session.root"
    )
    parser.add_argument("--name", help="give the session this name, which must be new")
    parser.add_argument(
        "--no-finalize",
        action="store_true",
        help="pack no archives and make no report after the recording",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="show the streams in a browser, at the address in the config's section live",
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Record; return 0, 3 with losses or a full disk, 1 after a disk failure, 2 without a start."""
    from recorder.config.names import check_name
    from recorder.recording.supervisor.driver_registry import load

    timer = PhaseTimer()
    if args.name is not None:
        check_name(args.name)
    # While the drivers' processes import their modules.
    imports = Thread(target=import_module, args=("recorder.recording.foreground",), daemon=True)
    imports.start()
    config = load(args.config)
    imports.join()

    from recorder.cli.finalize import configured_steps, finalize_session
    from recorder.cli.report import report_session
    from recorder.common.clock import SystemClock
    from recorder.recording.postprocessing.steps import skip
    from recorder.recording.preflight import check_root, extra_problem
    from recorder.recording.sessions.session_plan import plan_session, render_config_name

    for sentence in config.find_daemon_settings():
        note(sentence)
    if args.live and (problem := extra_problem()) is not None:
        raise UsageError(f"--live {problem}")
    if config.live is not None and not args.live:
        note("live: only `recorder serve` and `recorder run --live` act on this section")
    steps = [] if args.no_finalize else configured_steps(config)
    clock, metadata = SystemClock(), config.session.metadata
    name = args.name or render_config_name(config, clock.realtime_ns(), metadata)
    plan = plan_session(config, name, exact_name=args.name is not None)
    plan.root = str((args.root or config.session.root).absolute())
    plan.duration_s = args.duration
    root = check_root(Path(plan.root), config.storage)
    if root.problem is not None:
        raise StorageError(root.problem)
    _recover_all(Path(plan.root))
    timer.end("config")
    outcome, interrupted = _record(args, config, plan, timer)
    if outcome.sealed is None and args.no_finalize and (config.finalize or config.report):
        skip(outcome.session)
    if why := outcome.sealed or outcome.full:
        note(f"recorder run: {why}")
    packed = reported = None
    wants_report = config.report and not args.no_finalize and outcome.sealed is None
    try:
        if interrupted and (steps or wants_report):
            raise KeyboardInterrupt
        if steps and outcome.sealed is None:
            redact = config.path if config.redact else None
            packed = finalize_session(outcome.session, steps, redact)
        if wants_report:
            reported = report_session(outcome.session)
    except KeyboardInterrupt:
        note(
            f"recorder run: interrupted; {outcome.session} is recorded and closed; pack it with "
            f"`recorder finalize {outcome.session}`"
        )
    happened = judge_session(outcome.session)
    timer.end("archives")
    made = {"archives": packed or [], "report": reported, "seconds": timer.seconds}
    lines = [_format_text(outcome, happened)]
    lines += [f"archive {a['archive']}: {a['files'][-1]}" for a in packed or []]
    lines += [f"report {reported}"] if reported else []
    emit(_make_result(outcome, happened) | made, args, lambda _: "\n".join(lines))
    failed = (steps and packed is None) or (wants_report and reported is None)
    return 1 if failed and not outcome.exit_code else outcome.exit_code


def _record(
    args: argparse.Namespace,
    config: Config,
    plan: SessionPlan,
    timer: PhaseTimer,
) -> tuple[Outcome, bool]:
    """Record a session, and complete it while its drivers end.

    Returns:
        The outcome, and True if a signal came after the end of the recording.
    """
    from recorder.cli.live_table import LiveView
    from recorder.common.clock import SystemClock
    from recorder.config.settings import LiveSettings
    from recorder.recording.foreground import Foreground
    from recorder.recording.foreground_control import serve_viewers

    clock, view, completion = SystemClock(), LiveView(), None
    with ExitStack() as after:
        with ExitStack() as stack:
            supervisor = stack.enter_context(Foreground(config, clock, view.say))
            control = None
            if args.live:
                settings = config.live or LiveSettings()
                viewers = serve_viewers(supervisor, plan, clock, settings, view.say)
                control = stack.enter_context(viewers)
            interrupt = after.enter_context(defer_interrupt("the session is being completed"))
            ending = handle_signals(lambda number: supervisor.stop(signal.Signals(number).name))
            stack.enter_context(ending)
            supervisor.arm()
            timer.end("drivers")
            path = supervisor.start(plan)
            timer.end("session")
            note(f"recording {path}; live views: {supervisor.run_folder}/tap-SENSOR")
            outcome = supervisor.record(view, args.duration)
            timer.end("recording")
            if outcome.sealed is None:
                simulated = any(sensor.scheme == "sim" for sensor in config.sensors)
                completion = after.enter_context(Completion(outcome.session, simulated=simulated))
            if control is not None:
                control.closed(outcome)
        timer.end("processes")
        if completion is not None:
            completion.finish()
        timer.end("completion")
    return outcome, interrupt.is_set()


def _recover_all(root: Path) -> None:
    """Recover sessions that an earlier run left open; errors do not stop the new recording."""
    from recorder.common.clock import SystemClock
    from recorder.common.files import PosixDisk
    from recorder.recording.root_lock import is_held
    from recorder.recording.writer.recovery import recover
    from recorder.session.discovery import describe_outside_link, find_sessions
    from recorder.session.layout import CLEAN, RECOVERED, private, read_session_json

    if is_held(root):  # a daemon's own sessions are its own to recover
        return
    for path in find_sessions(root) if root.is_dir() else []:
        try:
            if describe_outside_link(path) is not None or not private(path).is_dir():
                continue
            if read_session_json(path)["state"] in (CLEAN, RECOVERED):
                continue
            report = recover(path, PosixDisk(), SystemClock())
            kept = sum(stream.kept for stream in report.streams.values())
            note(f"recovered {path}: {kept} samples kept ({report.cause})")
            write_missing_labels(path)
        except (RecorderError, OSError) as error:
            note(f"not recovered: {error}")


def judge_session(session: Path) -> dict[str, Any]:
    """Read the session's end, marks, length, state and verdict from its own accounts."""
    from recorder.session.accounts import read_accounts
    from recorder.session.reader import Session
    from recorder.session.verdict import judge_unreadable_session, verdict

    happened: dict[str, Any] = {"ended": None, "marks": [], "start_ns": None, "duration_s": None}
    happened |= {"state": None, **judge_unreadable_session("").to_wire()}
    try:
        with Session(session) as opened:
            found = read_accounts(opened)
            happened |= {"state": opened.state, "start_ns": opened.start_ns, **found.happened}
            happened |= verdict(found).to_wire()
            if opened.end_ns is not None and opened.start_ns is not None:
                happened["duration_s"] = (opened.end_ns - opened.start_ns) / 1e9
    except RecorderError as error:  # the disk that failed, most likely
        happened |= judge_unreadable_session(str(error)).to_wire()
        note(f"recorder run: {error}")
    return happened


def _make_result(outcome: Outcome, happened: dict[str, Any]) -> dict[str, Any]:
    return {
        "session": outcome.session,
        "exit_code": outcome.exit_code,
        "ended": happened["ended"] or {"cause": outcome.why, "detail": None},
        **{key: happened[key] for key in ("duration_s", "marks")},
        "streams": {
            name: {key: s[key] for key in _OF_STREAM} for name, s in outcome.streams.items()
        },
        **{key: happened[key] for key in ("state", "verdict", "reasons", "remarks")},
        **{key: getattr(outcome, key) for key in ("faults", "sealed", "full")},
    }


def _format_text(outcome: Outcome, happened: dict[str, Any]) -> str:
    reported = {"ended": happened["ended"], "marks": happened["marks"], "faults": []}
    lines = format_incidents(reported, happened["start_ns"])
    lines += [f"fault: {fault}" for fault in outcome.faults]
    lines += [f"state     {happened['state'] or 'unreadable'}", *format_verdict(happened)]
    lines.append(f"sealed: {outcome.sealed}" if outcome.sealed else f"session {outcome.session}")
    return "\n".join([format_streams(outcome.streams, "ended"), *map(clean, lines)])


def seconds(text: str) -> float:
    """Parse the argument of ``--duration``, a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e8:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


_START_FIELD = 19  # proc(5): starttime, the field 22; counted from the third


class PhaseTimer:
    """Seconds by phase; the first phase includes the start of Python::

    timer = PhaseTimer()
    config = load(path)
    timer.end("config")
    timer.seconds               # {"config": 0.31}
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began_s = time.monotonic() - _age_s()

    def end(self, name: str) -> None:
        """End a phase, and begin the next one."""
        now_s = time.monotonic()
        self.seconds[name] = round(now_s - self._began_s, 3)
        self._began_s = now_s


def _age_s() -> float:
    """Return the age of this process, to the kernel's tick (10 ms)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
