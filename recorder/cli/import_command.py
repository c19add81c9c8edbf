"""``recorder import FILE``: make a session of a foreign recording, with the recording's times.

The drivers play the recording as fast as the disk permits, through the writer, like any other
source.  An imported session is checked, repaired and packed like a recorded one.
"""

from __future__ import annotations

import argparse
import re
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recorder.cli.control import format_streams
from recorder.cli.info import format_verdict
from recorder.cli.output import ShowShare, add_format, emit, handle_signals, note, share_progress
from recorder.common.errors import (
    ConfigFaultsError,
    FormatError,
    SourceError,
    StorageError,
    UsageError,
)
from recorder.common.text_format import clean

if TYPE_CHECKING:
    from recorder.config.loading import Config
    from recorder.formats.bags.bag import Bag
    from recorder.perception.recordings import Findings
    from recorder.recording.foreground import Foreground, Outcome
    from recorder.recording.supervisor.driver_registry import CheckResult
    from recorder.recording.supervisor.sensors import Status

_LIDAR_FRAME: Final = "os_sensor"  # of Ouster's ROS driver
_DROPS: Final = (
    "messages that the recorder of the file did not receive or write are in no recording: their "
    "number is unknown"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="import this MCAP file, or folder of a ROS 2 bag"
    )
    parser.add_argument(
        "--root", type=Path, default=Path("sessions"), metavar="DIR",
        help="make the session in DIR (default: sessions)",
    )  # fmt: skip
    parser.add_argument(
        "--name", help="give the session this name, which must be new (default: the file's)"
    )
    parser.add_argument(
        "--topics", metavar="[NAME=]TOPIC,...",
        help="import only these topics; NAME names the sensor (default: derived from the topic)",
    )  # fmt: skip
    parser.add_argument(
        "--metadata", type=Path, metavar="FILE",
        help="use this metadata of the Ouster lidar if the recording has none",
    )  # fmt: skip
    add_format(parser)


@dataclass(slots=True)
class _Plan:
    """Plan of an import.

    Attributes:
        bag: the recording.
        found: topics of the recording.
        config: config of the session.
        calibration: text of ``calibration.yaml``, or None.
        notes: remarks on the calibration and the recording.
        start_ns: start of the recording, epoch ns.
    """

    bag: Bag
    found: Findings
    config: Config
    start_ns: int
    calibration: str | None = None
    notes: list[str] = field(default_factory=list)


def run(args: argparse.Namespace) -> int:
    """Import; return 0, 3 if messages were unreadable, 1 if the disk failed, 2 for a wrong file."""
    from recorder.common.clock import SystemClock
    from recorder.config.names import check_name
    from recorder.recording.foreground import Foreground
    from recorder.recording.preflight import check_root
    from recorder.recording.sessions.session_plan import plan_session

    name = check_name(args.name) if args.name is not None else _derive_name(args.file)
    if args.name is not None and (args.root / name).exists():
        raise UsageError(f"{args.root / name}: a session of that name exists")
    with tempfile.TemporaryDirectory(prefix="recorder-import-") as folder:
        made = _plan_import(args, Path(folder))
        plan = plan_session(made.config, name, exact_name=args.name is not None)
        plan.root = str(args.root.absolute())
        plan.source_start_ns = made.start_ns
        plan.metadata = {"imported": _describe_origin(made)}
        root = check_root(Path(plan.root), made.config.storage)
        if root.problem is not None:
            raise StorageError(root.problem)
        foreground = Foreground(made.config, SystemClock(), note)
        with (
            foreground,
            handle_signals(lambda number: foreground.stop(signal.Signals(number).name)),
            share_progress(f"importing {args.file.name}") as show,
        ):
            foreground.arm()
            foreground.start(plan)
            outcome = foreground.record(partial(_follow, foreground, show, made.bag.duration_s))
    return _finish(args, made, outcome, foreground.stopping)


def _plan_import(args: argparse.Namespace, folder: Path) -> _Plan:
    """Read the recording, and write the config of its session.

    Raises:
        UsageError, SourceError: the file or a selected topic cannot be imported.
    """
    from recorder.formats.bags.bag import Bag
    from recorder.formats.bags.contents import origin_ns
    from recorder.perception.recordings import played_topics, sensors_of

    wanted = None if args.topics is None else _parse_topics(args.topics)
    if not str(args.file.absolute()).isprintable():
        text = "a source cannot name the file: rename the file or folder with control characters"
        raise UsageError(f"{args.file}: {text}")
    try:
        with Bag(args.file) as bag:
            unread: dict[str, str] = {}
            results: dict[str, CheckResult] | None = None
            while results is None:
                found = sensors_of(bag, wanted, unread)
                if not found.sensors:
                    raise SourceError(
                        f"{args.file}: has no topic to import: {_explain_empty(bag, found)}"
                    )
                made = _write_config(args, bag, found, folder)
                results = _open_topics(made, found, wanted is not None, unread)
            plan = _Plan(bag, found, made, origin_ns(bag, played_topics(bag, found)))
            _calibrate(plan, results)
    except OSError as error:
        raise SourceError(f"{args.file}: {error.strerror or error}") from None
    except FormatError as error:
        raise SourceError(str(error)) from None
    plan.config = _write_config(args, bag, found, folder, plan.calibration)
    return plan


def _parse_topics(text: str) -> dict[str, str | None]:
    """Parse the topics of ``--topics`` with their sensors' names."""
    wanted: dict[str, str | None] = {}
    for part in text.split(","):
        name, equals, topic = part.strip().rpartition("=")
        if not topic or (equals and not name):
            raise UsageError(f"--topics: {part!r:.100} is not of the form TOPIC or NAME=TOPIC")
        wanted[topic] = name or None
    return wanted


def _write_config(
    args: argparse.Namespace,
    bag: Bag,
    found: Findings,
    folder: Path,
    calibration: str | None = None,
) -> Config:
    """Write and load the config of the session, which plays the recording as any config can."""
    import yaml

    from recorder.recording.supervisor.driver_registry import load

    sensors: dict[str, Any] = {}
    for sensor in found.sensors:
        source = f"bag:{bag.path.absolute()}#{sensor.topic}"
        sensors[sensor.name] = {"driver": sensor.driver, "source": source, "pace": "max"}
        if sensor.driver == "ouster" and args.metadata is not None:
            sensors[sensor.name]["metadata"] = str(args.metadata.absolute())
    values: dict[str, Any] = {"version": 1, "sensors": sensors}
    if calibration is not None:
        values["calibration"] = "calibration.yaml"
        (folder / "calibration.yaml").write_text(calibration)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
    try:
        return load(path)
    except ConfigFaultsError as error:
        faults = (f"{each.key.removeprefix('sensors.')}: {each.problem}" for each in error.errors)
        raise UsageError("; ".join(faults)) from None


def _explain_empty(bag: Bag, found: Findings) -> str:
    """Explain why a recording has nothing to import."""
    reasons = [f"{topic}: {why}" for topic, why in found.left_out.items()]
    reasons += [cut.reason for cut in bag.cuts]
    return "; ".join((*reasons, *bag.conflicts)) or "it has no topic"


def _open_topics(
    config: Config, found: Findings, selected: bool, unread: dict[str, str]
) -> dict[str, CheckResult] | None:
    """Open the topics with their drivers.

    Args:
        config: config of the session.
        found: sensors of the session.
        selected: the user selected the topics.
        unread: receives the topics that a driver cannot play, with the reason.

    Returns:
        Results of the drivers; None if `unread` received topics.

    Raises:
        SourceError: a topic that the user selected cannot be played.
    """
    from recorder.recording.supervisor.driver_registry import check_sources

    results = {result.sensor: result for result in check_sources(config.sensors)}
    problems = {s.topic: p for s in found.sensors if (p := results[s.name].problem) is not None}
    for topic, problem in problems.items():
        if selected:
            raise SourceError(f"topic {topic}: {problem}")
    unread |= problems
    return None if problems else results


def _calibrate(plan: _Plan, results: Mapping[str, CheckResult]) -> None:
    from recorder.perception.recorded_calibration import recorded_calibration

    frames: dict[str, str] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for sensor in plan.found.sensors:
        spec = results[sensor.name].streams[0]
        frames[sensor.name] = str(spec.settings.get("mcap_frame", _LIDAR_FRAME))
        if sensor.driver == "camera":
            height, width = spec.channels[0].shape[:2]
            sizes[sensor.name] = width, height
    topics = plan.found.for_calibration
    made = recorded_calibration(plan.bag, topics, plan.found.sensors, frames, sizes)
    cuts = [f"the recording is not whole: {cut.reason}" for cut in plan.bag.cuts]
    plan.calibration, plan.notes = made.text, [*cuts, *plan.bag.conflicts, *made.notes]


def _derive_name(file: Path) -> str:
    """Derive a session's name from the file's name; replace invalid characters by ``_``."""
    stem = file.resolve().stem if file.is_file() else file.resolve().name
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", stem).lstrip("._-")[:80]
    return name or "imported"


def _describe_origin(plan: _Plan) -> dict[str, Any]:
    """Return the origin of the session, for its metadata."""
    return {
        "from": str(plan.bag.path.absolute()),
        "profile": plan.bag.profile,
        "topics": {sensor.name: sensor.topic for sensor in plan.found.sensors},
        "left_out": dict(plan.found.left_out),
        "drops": _describe_drops(plan.found),
    }


def _describe_drops(found: Findings) -> str:
    """Return ``recorded`` if the recording counts its missing messages, else ``unknown``."""
    return "recorded" if found.counts_losses else "unknown"


def _follow(foreground: Foreground, show: ShowShare, duration_s: float, status: Status) -> None:
    """Move the bar to the least time of the sensors that still play."""
    start_ns = foreground.status.start_mono_ns
    if isinstance(start_ns, int) and duration_s:
        streams = status.streams.values()
        reached = [stream["last_ns"] or 0 for stream in streams if not stream["ended"]]
        show((min(reached, default=start_ns) - start_ns) / 1e9 / duration_s)


def _finish(args: argparse.Namespace, plan: _Plan, outcome: Outcome, stopped: bool) -> int:
    from recorder.cli.post_session import Completion
    from recorder.cli.run import judge_session

    if outcome.sealed is None:
        with Completion(outcome.session, simulated=False) as completion:
            completion.finish()
    if why := outcome.sealed or outcome.full:
        note(f"recorder import: {why}")
    if stopped:
        note("recorder import: stopped; the session holds a part of the recording")
    exit_code = outcome.exit_code or int(stopped)
    happened = judge_session(outcome.session)
    result = {
        "session": outcome.session,
        "exit_code": exit_code,
        "start_ns": plan.start_ns,
        "topics": {
            sensor.topic: {
                "sensor": sensor.name,
                "driver": sensor.driver,
                "messages": sensor.messages,
            }
            for sensor in plan.found.sensors
        },
        "left_out": plan.found.left_out,
        "streams": {
            name: {key: s[key] for key in ("samples", "lost", "unknown_losses", "incomplete")}
            for name, s in outcome.streams.items()
        },
        "calibrated": plan.calibration is not None,
        "notes": plan.notes,
        "faults": outcome.faults,
        "drops": _describe_drops(plan.found),
        **{key: happened[key] for key in ("state", "verdict", "reasons", "remarks")},
    }
    emit(result, args, lambda _: _format_text(plan, outcome, happened))
    return exit_code


def _format_text(plan: _Plan, outcome: Outcome, happened: dict[str, Any]) -> str:
    lines = [f"{sensor.topic} -> {sensor.name}" for sensor in plan.found.sensors]
    lines += [f"left out: {topic}: {why}" for topic, why in plan.found.left_out.items()]
    lines += plan.notes
    lines += [f"fault: {fault}" for fault in outcome.faults]
    if not plan.found.counts_losses:
        lines.append(f"note: {_DROPS}")
    lines += [f"state     {happened['state'] or 'unreadable'}", *format_verdict(happened)]
    lines.append(f"session {outcome.session}")
    return "\n".join([format_streams(outcome.streams, "ended"), *map(clean, lines)])
