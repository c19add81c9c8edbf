"""Plan of the import of a bag: what each topic becomes, and what is lost.

`plan_bag` opens the topics with their drivers, as the import itself does, and writes nothing but
a config in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recorder.cli.import_kinds import ImportPlan, load_config
from recorder.common.errors import FormatError, SourceError, UsageError
from recorder.common.text_format import clean

if TYPE_CHECKING:
    from recorder.config.loading import Config
    from recorder.config.settings import SensorEntry
    from recorder.formats.bags.bag import Bag
    from recorder.perception.import_map import ImportMap
    from recorder.perception.recorded_calibration import RecordedCalibration
    from recorder.perception.recorded_poses import Trajectory
    from recorder.perception.recordings import Findings
    from recorder.recording.foreground import Outcome
    from recorder.recording.supervisor.driver_registry import CheckResult

_LIDAR_FRAME: Final = "os_sensor"  # of Ouster's ROS driver
_FRAME: Final = "mcap_frame"
DROPS: Final = (
    "messages that the recorder of the file did not receive or write are in no recording: their "
    "number is unknown"
)


@dataclass(slots=True)
class Plan(ImportPlan):
    """Plan of the import of a bag.

    Attributes:
        bag: the recording.
        found: topics of the recording.
        config: config of the session.
        start_ns: start of the recording, epoch ns.
        frames: frame of the messages, by sensor.
        calibration: the recording's calibration.
        poses: the rig's poses; None: none are known.
        notes: remarks on the calibration, the poses and the recording.
    """

    bag: Bag
    found: Findings
    config: Config
    start_ns: int
    calibration: RecordedCalibration
    frames: dict[str, str]
    poses: Trajectory | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def drops(self) -> str:
        """``recorded`` if the recording counts its missing messages, else ``unknown``."""
        return "recorded" if self.found.counts_losses else "unknown"

    @property
    def duration_s(self) -> float:
        return self.bag.duration_s

    def describe(self) -> dict[str, Any]:
        return describe_plan(self)

    def format(self) -> str:
        return format_plan(self)

    def draft(self) -> str:
        return draft_map(self)

    def describe_origin(self) -> dict[str, Any]:
        return {
            "from": str(self.bag.path.absolute()),
            "profile": self.bag.profile,
            "topics": {s.name: s.topic or list(s.topics) for s in self.found.sensors},
            "left_out": dict(self.found.left_out),
            "poses": self._describe_poses(),
            "drops": self.drops,
        }

    def describe_result(self) -> dict[str, Any]:
        return {
            "topics": {
                topic: {
                    "sensor": sensor.name,
                    "driver": sensor.driver,
                    "messages": self.bag.topics[topic].count,
                }
                for sensor in self.found.sensors
                for topic in sensor.topics
            },
            "left_out": self.found.left_out,
            "calibrated": self.calibration.text is not None,
            "poses": self._describe_poses(),
            "notes": self.notes,
            "drops": self.drops,
        }

    def format_result(self, outcome: Outcome) -> list[str]:
        lines = [f"{t} -> {sensor.name}" for sensor in self.found.sensors for t in sensor.topics]
        lines += [] if self.poses is None else [self.poses.describe()]
        lines += [f"left out: {topic}: {why}" for topic, why in self.found.left_out.items()]
        lines += self.notes
        lines += [f"fault: {fault}" for fault in outcome.faults]
        if not self.found.counts_losses:
            lines.append(f"note: {DROPS}")
        return lines

    def complete(self, session: Path) -> None:
        from recorder.perception.recorded_poses import write_poses

        if self.poses is not None:
            write_poses(session, self.poses)

    def _describe_poses(self) -> str | None:
        return None if self.poses is None else self.poses.describe()


def plan_bag(args: argparse.Namespace, folder: Path) -> Plan:
    """Read the recording, and write the config of its session into a folder.

    Raises:
        ConfigError: the file of choices is invalid.
        UsageError, SourceError: the file or a selected topic cannot be imported.
    """
    from recorder.formats.bags.bag import Bag
    from recorder.perception.import_map import ImportMap, read_import_map

    wanted = None if args.topics is None else _parse_topics(args.topics)
    choices = ImportMap() if args.map is None else read_import_map(args.map)
    try:
        with Bag(args.file) as bag:
            return _plan(args, bag, wanted, choices, folder)
    except OSError as error:
        raise SourceError(f"{args.file}: {error.strerror or error}") from None
    except FormatError as error:
        raise SourceError(str(error)) from None


def _plan(
    args: argparse.Namespace,
    bag: Bag,
    wanted: Mapping[str, str | None] | None,
    choices: ImportMap,
    folder: Path,
) -> Plan:
    from recorder.formats.bags.contents import origin_ns
    from recorder.perception.recordings import ANY, played_topics, sensors_of
    from recorder.recording.supervisor.driver_registry import available_drivers

    for topic in choices.topics:
        if topic not in bag.topics:
            known = ", ".join(sorted(bag.topics))
            raise UsageError(f"{args.map}: topics.{topic}: {bag.path} has only {known:.500}")
    unread: dict[str, str] = {}
    drivers = set(available_drivers())
    opened: dict[str, tuple[SensorEntry, CheckResult]] = {}
    results: dict[str, CheckResult] | None = None
    while results is None:
        found = sensors_of(bag, wanted, unread, drivers, choices)
        if not found.sensors:
            why = _explain_empty(bag, found)
            raise SourceError(f"{args.file}: has no topic to import: {why}")
        config = _write_config(args, bag, found, choices, folder)
        chosen = {*(wanted or ()), *(t for t, c in choices.topics.items() if c.driver)}
        results = _open_topics(config, found, chosen, unread, opened)
        if any(
            sensor.driver == ANY and set(sensor.topics) & unread.keys() for sensor in found.sensors
        ):
            drivers.discard(ANY)
    start_ns = origin_ns(bag, played_topics(bag, found))
    made, frames = _calibrate(bag, found, results, choices)
    plan = Plan(bag, found, config, start_ns, made, frames)
    cuts = [f"the recording is not whole: {cut.reason}" for cut in bag.cuts]
    plan.notes = [*cuts, *bag.conflicts, *made.notes]
    plan.poses = _find_poses(plan, choices)
    plan.config = _write_config(args, bag, found, choices, folder, made.text)
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
    choices: ImportMap,
    folder: Path,
    calibration: str | None = None,
) -> Config:
    """Write and load the config of the session, which plays the recording as any config can."""
    sensors: dict[str, Any] = {}
    for sensor in found.sensors:
        source = f"bag:{bag.path.absolute()}" + (f"#{sensor.topic}" if sensor.topic else "")
        entry: dict[str, Any] = {"driver": sensor.driver, "source": source, "pace": "max"}
        if not sensor.topic:
            entry["topics"] = list(sensor.topics)
        if sensor.driver == "ouster" and args.metadata is not None:
            entry["metadata"] = str(args.metadata.absolute())
        sensors[sensor.name] = entry | dict(choices.of(sensor.topic).options)
    return load_config(folder, sensors, calibration)


def _explain_empty(bag: Bag, found: Findings) -> str:
    """Explain why a recording has nothing to import."""
    reasons = [f"{topic}: {why}" for topic, why in found.left_out.items()]
    reasons += [cut.reason for cut in bag.cuts]
    return "; ".join((*reasons, *bag.conflicts)) or "it has no topic"


def _open_topics(
    config: Config,
    found: Findings,
    chosen: set[str],
    unread: dict[str, str],
    opened: dict[str, tuple[SensorEntry, CheckResult]],
) -> dict[str, CheckResult] | None:
    """Open the topics with their drivers.

    Args:
        config: config of the session.
        found: sensors of the session.
        chosen: topics that the user selected, or whose driver the user selected.
        unread: receives the topics that a driver cannot play, with the reason.
        opened: receives each sensor with its driver's result; has those of earlier calls, which
            are not opened again.

    Returns:
        Results of the drivers; None if `unread` received topics.

    Raises:
        SourceError: a topic that the user selected cannot be played.
    """
    from recorder.recording.supervisor.driver_registry import check_sources

    new = [entry for entry in config.sensors if opened.get(entry.name, (None,))[0] != entry]
    opened |= {
        entry.name: (entry, result) for entry, result in zip(new, check_sources(new), strict=True)
    }
    results = {entry.name: opened[entry.name][1] for entry in config.sensors}
    problems: dict[str, str] = {}
    for sensor in found.sensors:
        if (problem := results[sensor.name].problem) is not None:
            problems |= dict.fromkeys(sensor.topics, problem)
    for topic in problems.keys() & chosen:
        raise SourceError(f"topic {topic}: {problems[topic]}")
    unread |= problems
    return None if problems else results


def _calibrate(
    bag: Bag, found: Findings, results: Mapping[str, CheckResult], choices: ImportMap
) -> tuple[RecordedCalibration, dict[str, str]]:
    """Return the recording's calibration, and the frames of its sensors."""
    from recorder.perception.recorded_calibration import recorded_calibration
    from recorder.perception.recordings import ANY

    frames: dict[str, str] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for sensor in found.sensors:
        if sensor.driver == ANY:
            continue
        spec = results[sensor.name].streams[0]
        default = _LIDAR_FRAME if sensor.driver == "ouster" else ""
        frame = choices.of(sensor.topic).frame
        frames[sensor.name] = str(spec.settings.get(_FRAME, default)) if frame is None else frame
        if sensor.driver == "camera":
            height, width = spec.channels[0].shape[:2]
            sizes[sensor.name] = width, height
    topics = found.for_calibration
    return recorded_calibration(bag, topics, found.sensors, frames, sizes, choices), frames


def _find_poses(plan: Plan, choices: ImportMap) -> Trajectory | None:
    """Find the rig's poses; note why there are none, or where others are left out.

    Raises:
        UsageError: the poses that the file of choices names cannot be read.
    """
    from recorder.perception.recorded_poses import choose_trajectory

    bag, made = plan.bag, plan.calibration
    try:
        found, notes = choose_trajectory(
            bag, plan.found.for_calibration, made.tree, made.rig, choices
        )
    except FormatError as error:
        raise UsageError(f"poses: {error}") from None
    plan.notes += notes
    if found is not None and found.left_out:
        plan.notes.append(f"poses: {found.left_out} are not finite, or no rotation: left out")
    return found


def describe_plan(plan: Plan) -> dict[str, Any]:
    """Return a plan for ``--format json``."""
    bag, sensors = plan.bag, plan.found.sensors
    of_topic = {topic: sensor for sensor in sensors for topic in sensor.topics}
    topics: dict[str, dict[str, Any]] = {}
    for name, topic in sorted(bag.topics.items()):
        known: dict[str, Any] = {"type": topic.schema_name, "messages": topic.count}
        if (sensor := of_topic.get(name)) is not None:
            known |= {"sensor": sensor.name, "driver": sensor.driver}
        if (use := plan.found.uses.get(name)) is not None:
            known["becomes"] = use
        if (reason := plan.found.left_out.get(name)) is not None:
            known["left_out"] = reason
        topics[name] = known
    lost = {name: topics[name]["messages"] for name in plan.found.left_out if name in topics}
    return {
        "from": str(bag.path.absolute()),
        "start_ns": plan.start_ns,
        "duration_s": bag.duration_s,
        "topics": topics,
        "not_imported": {"topics": len(lost), "messages": sum(lost.values())},
        "unreadable": [cut.reason for cut in bag.cuts],
        "mounts": sorted(n for n, e in plan.calibration.sensors.items() if "T_sensor_rig" in e),
        "models": sorted(n for n, e in plan.calibration.sensors.items() if "model" in e),
        "poses": None if plan.poses is None else plan.poses.describe(),
        "drops": plan.drops,
        "notes": plan.notes,
    }


def format_plan(plan: Plan) -> str:
    """Return a plan as text: a line for each topic, then mounts, poses, notes and the losses."""
    told = describe_plan(plan)
    lines = [f"{plan.bag.path}: {plan.bag.duration_s:.1f} s"]
    for name, topic in told["topics"].items():
        becomes = [f"sensor {topic['sensor']} ({topic['driver']})"] if "sensor" in topic else []
        becomes += [topic["becomes"]] if "becomes" in topic else []
        becomes += [f"left out: {topic['left_out']}"] if "left_out" in topic else []
        lines.append(
            f"{name}  {topic['type'] or '-'}  {topic['messages']}  -> {', '.join(becomes)}"
        )
    for what in ("mounts", "models"):
        lines.append(f"{what}: {', '.join(told[what]) or 'none'}")
    lines.append(f"poses: {told['poses'] or 'none'}")
    lines += [f"note: {each}" for each in plan.notes]
    lost = told["not_imported"]
    lines.append(f"lost: {lost['messages']} messages of {lost['topics']} topics are not imported")
    if plan.drops == "unknown":
        lines.append(f"note: {DROPS}")
    return "\n".join(map(clean, lines))


def draft_map(plan: Plan) -> str:
    """Draft the file for ``--map``: what the recording says, and comments where it says nothing."""
    made = plan.calibration
    rig, world = made.rig, plan.poses.world if plan.poses is not None else ""
    source = plan.poses.sources[0] if plan.poses is not None else "none"
    lines = [
        f"# Choices for `recorder import {plan.bag.path.name} --map FILE`; delete what fits.",
        f"rig: {_quote(rig or 'base_link')}" + ("" if rig else "  # no transforms name the rig"),
        f"world: {_quote(world)}" if world else "# world: map",
        f"poses: {_quote(source)}" + ("" if plan.poses else "  # the recording has no poses"),
        "topics:",
    ]
    for sensor in plan.found.sensors:
        for topic in sensor.topics:
            frame = plan.frames.get(sensor.name)
            entry = {"sensor": sensor.name} if sensor.topic else {}
            entry |= {"driver": sensor.driver} | ({"frame": frame} if frame else {})
            lines.append(f"  {_quote(topic)}: {_flow(entry)}")
            if frame == "":
                lines[-1] += "  # its messages name no frame"
    for topic, reason in plan.found.left_out.items():
        if topic in plan.bag.topics:
            lines.append(f"  # {_quote(topic)}: {{skip: true}}  # left out: {clean(reason):.200}")
    missing = {name: f for name, f in plan.frames.items() if name not in _list_mounts(plan)}
    lines.append("mounts: {}")
    zero = {"translation_m": [0.0, 0.0, 0.0], "quaternion_xyzw": [0.0, 0.0, 0.0, 1.0]}
    for name, frame in missing.items():
        mount = _flow({frame or name: {"parent": rig or "base_link", **zero}})
        lines.append(f"#  {mount[1:-1]}  # {name}: the recording does not say where it is")
    return "\n".join(lines) + "\n"


def _list_mounts(plan: Plan) -> set[str]:
    """Return the sensors whose place in the rig is known."""
    return {name for name, entry in plan.calibration.sensors.items() if "T_sensor_rig" in entry}


def _flow(values: Mapping[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(
        dict(values), default_flow_style=True, sort_keys=False, width=1 << 20
    )
    return text.strip()


def _quote(text: str) -> str:
    """Return a text as a YAML scalar of one line."""
    return text if re.fullmatch(r"/[\w/.-]+", text, re.ASCII) else json.dumps(text)
