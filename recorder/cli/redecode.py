"""``recorder redecode SESSION``: make a lidar's sweeps again from its recorded packets.

The new session has the times of the old one, and the samples of its other sensors as they are.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.control import format_streams
from recorder.cli.import_command import show_played
from recorder.cli.info import format_verdict
from recorder.cli.output import add_format, emit, handle_signals, note, share_progress
from recorder.common.errors import StorageError, UsageError

if TYPE_CHECKING:
    from recorder.config.loading import Config
    from recorder.recording.foreground import Outcome
    from recorder.session.reader import Session

_KIT_KEYS = ("source", "pace", "loop", "process", "required", "min_rate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "session", type=Path, metavar="SESSION",
        help="decode the packets of this session, recorded with `packets: true`",
    )  # fmt: skip
    parser.add_argument(
        "--root", type=Path, metavar="DIR",
        help="make the session in DIR (default: the folder of the session)",
    )  # fmt: skip
    parser.add_argument(
        "--name", help="give the session this name, which must be new (default: NAME_redecoded)"
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="SENSOR.KEY=V",
        help="use this value of a driver's option, such as lidar.calibration=FILE",
    )  # fmt: skip
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Decode; return 0, 3 if sweeps were lost, 1 if the disk failed, 2 for a wrong option."""
    from recorder.common.clock import SystemClock
    from recorder.config.names import check_name
    from recorder.recording.foreground import Foreground
    from recorder.recording.preflight import check_root
    from recorder.recording.sessions.session_plan import plan_session
    from recorder.session.reader import Session

    source = args.session.resolve()
    root = source.parent if args.root is None else args.root.absolute()
    name = check_name(args.name or f"{source.name}_redecoded")
    if args.name is not None and (root / name).exists():
        raise UsageError(f"{root / name}: a session of that name exists")
    with tempfile.TemporaryDirectory(prefix="recorder-redecode-") as folder:
        with Session(source) as session:
            config = _make_config(session, _parse_options(args.option), Path(folder))
            start_ns, duration_s = session.first_ns, _find_duration_s(session)
        plan = plan_session(config, name, exact_name=args.name is not None)
        plan.root = str(root)
        plan.source_start_ns = start_ns
        plan.metadata = {"redecoded": {"from": str(source), "options": args.option}}
        found = check_root(root, config.storage)
        if found.problem is not None:
            raise StorageError(found.problem)
        foreground = Foreground(config, SystemClock(), note)
        with (
            foreground,
            handle_signals(lambda number: foreground.stop(signal.Signals(number).name)),
            share_progress(f"decoding {source.name}") as show,
        ):
            foreground.arm()
            foreground.start(plan)
            outcome = foreground.record(partial(show_played, foreground, show, duration_s))
    return _finish(args, outcome, foreground.stopping)


def _find_duration_s(session: Session) -> float:
    first_ns, end_ns = session.first_ns, session.end_ns
    return 0.0 if first_ns is None or end_ns is None else (end_ns - first_ns) / 1e9


def _parse_options(texts: list[str]) -> dict[str, dict[str, Any]]:
    """Parse ``SENSOR.KEY=VALUE``; values are YAML."""
    import yaml

    options: dict[str, dict[str, Any]] = {}
    for text in texts:
        place, equals, value = text.partition("=")
        sensor, dot, key = place.partition(".")
        if not (equals and dot and sensor and key) or key in _KIT_KEYS:
            raise UsageError(f"--option: {text!r:.100} is not of the form SENSOR.KEY=VALUE")
        parsed = yaml.safe_load(value)
        if key == "calibration" and isinstance(parsed, str):
            parsed = str(Path(parsed).absolute())
        options.setdefault(sensor, {})[key] = parsed
    return options


def _make_config(session: Session, options: dict[str, dict[str, Any]], folder: Path) -> Config:
    """Write and load a config that plays the session's sensors, those with packets from these."""
    import yaml

    from recorder.codecs.beams import PACKETS
    from recorder.recording.supervisor.driver_registry import load

    recorded = yaml.safe_load((session.path / "config.yaml").read_text("utf-8"))
    entries: dict[str, Any] = (recorded or {}).get("sensors") or {}
    sensors: dict[str, Any] = {}
    decoded = []
    for name, streams in session.sensors().items():
        entry = dict(entries.get(name) or {})
        driver = entry.get("driver")
        if driver is None or not any(stream in session.streams for stream in streams):
            continue
        stream = session.streams.get(name)
        if stream is None or PACKETS not in stream.meta:
            sensors[name] = {"driver": driver, "source": f"session:{session.path}#{name}"}
        else:
            decoded.append(name)
            kept = {key: entry[key] for key in entry if key not in (*_KIT_KEYS, "calibration")}
            sensors[name] = kept | options.get(name, {})
            sensors[name]["source"] = f"packets:{session.path}#{name}"
        sensors[name]["pace"] = "max"
    if not decoded:
        raise UsageError(f"{session.path}: no sensor was recorded with `packets: true`")
    for name in options:
        if name not in decoded:
            known = ", ".join(decoded)
            raise UsageError(f"--option: {name}: has no packets; the sensors with packets: {known}")
    values: dict[str, Any] = {"version": 1, "sensors": sensors}
    calibration = session.path / "calibration.yaml"
    if calibration.is_file():
        values["calibration"] = str(calibration)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
    return load(path)


def _finish(args: argparse.Namespace, outcome: Outcome, stopped: bool) -> int:
    from recorder.cli.post_session import complete_played
    from recorder.cli.run import judge_session

    exit_code = complete_played("redecode", outcome, stopped, "the sweeps")
    happened = judge_session(outcome.session)
    result = {
        "session": outcome.session,
        "exit_code": exit_code,
        "streams": {
            name: {key: s[key] for key in ("samples", "lost", "unknown_losses", "incomplete")}
            for name, s in outcome.streams.items()
        },
        "faults": outcome.faults,
        **{key: happened[key] for key in ("state", "verdict", "reasons", "remarks")},
    }

    def format_text(_: Any) -> str:
        lines = [format_streams(outcome.streams, "ended")]
        lines += [f"fault: {fault}" for fault in outcome.faults]
        lines += [f"state     {happened['state'] or 'unreadable'}", *format_verdict(happened)]
        return "\n".join([*lines, f"session {outcome.session}"])

    emit(result, args, format_text)
    return exit_code
