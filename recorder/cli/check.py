"""``recorder check CONFIG``: check the config, every source and the disk, without recording.

The command opens all sources and reports every fault, not only the first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.output import add_format, emit, format_table, note
from recorder.common.errors import StorageError, UsageError
from recorder.common.text_format import clean, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from recorder.config.loading import Config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the config or the source of a draft, and the format."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("config", type=Path, nargs="?", metavar="CONFIG", help="check this config")
    text = "list the topics of ros2:DOMAIN or zenoh:[LOCATOR/]DOMAIN as a config that records them"
    what.add_argument("--draft", metavar="SOURCE", help=text)
    add_format(parser)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem: its place (a key path), a message, and the exit code that it causes."""

    key: str
    message: str
    exit_code: int


def run(args: argparse.Namespace) -> int:
    """Check; return 0 without problems, 2 for config or source, 1 for a device or the disk."""
    if args.draft is not None:
        return _draft(args)
    from recorder.bus.control.addresses import check_socket
    from recorder.common.secret_masking import find_secret_keys, mask_passwords
    from recorder.recording.host.clocks import clock_state, summary
    from recorder.recording.host.disk import file_system, measure, nearest
    from recorder.recording.preflight import (
        check_root,
        disk_findings,
        examine_live,
        receive_buffer_warning,
        ring_problem,
        sensor_findings,
    )
    from recorder.recording.ring.capacity import ring_findings
    from recorder.recording.supervisor.driver_registry import (
        check_sources,
        find_port_clashes,
        find_stream_clashes,
        load,
    )
    from recorder.recording.triggers.evaluation import find_trigger_faults

    config = load(args.config)
    results = check_sources(config.sensors)
    root = check_root(config.session.root, config.storage)
    problems: list[Problem] = []

    def add(exit_code: int, found: Iterable[tuple[str, str | None]]) -> None:
        problems.extend(Problem(key, text, exit_code) for key, text in found if text is not None)

    for result in results:
        add(result.exit_code, [(f"sensors.{result.sensor}.source", result.problem)])
    for sensor, text in (*find_stream_clashes(results), *find_port_clashes(results)):
        add(2, [(f"sensors.{sensor}", text)])
    for entry, result in zip(config.sensors, results, strict=True):
        for key, text in sensor_findings(entry, result.streams):
            add(1, [(f"sensors.{entry.name}.{key}", text)])
    specs = {spec.name: spec for result in results for spec in result.streams}
    rate = sum(spec.bytes_per_second for r in results for spec in r.streams)
    swapped = ring_problem(config.ring, config.storage)
    add(1, [("session.root", root.problem), ("ring.folder", swapped)])
    place, floor_bytes = config.session.root, config.storage.min_free_bytes
    system, speed = file_system(place), None if root.problem else measure(nearest(place))
    slow, warnings = disk_findings(system, speed, config.storage, rate)
    add(1, (("session.root", text) for text in slow))
    if config.ring is not None:
        small, short = ring_findings(config.ring, config.triggers, rate)
        add(2, small)
        warnings += short
    if opened := all(result.problem is None for result in results):
        add(2, find_trigger_faults(config.triggers, specs))
    buffer = receive_buffer_warning({entry.scheme for entry in config.sensors})
    warnings += [] if buffer is None else [buffer]
    warnings += [f"sensors.{r.sensor}: {text}" for r in results for text in r.warnings]
    socket = check_socket(config.control.socket)
    warnings += [] if socket is None else [socket]
    if config.upload.url is not None and (keys := list(find_secret_keys(config.session.metadata))):
        warnings.append(
            f"session.metadata: {', '.join(keys)} looks like a secret: archives mask it, but "
            "`recorder upload` brings a session's files as they were recorded, with it; remove it"
        )
    add(2, [_check_keys(config)])
    live = None if config.live is None else examine_live(config.live)
    if live is not None:
        warnings += live.warnings
        add(2, [("live.certificate", live.certificate)])
    clocks = clock_state()
    if clocks["kernel"] is not None and not clocks["kernel"]["synchronized"]:
        warnings.append("the clock is not synchronized: the times in ts have its error")
    for i, name in enumerate(config.record_format.streams if opened else ()):
        if name not in specs:
            add(2, [(f"record_format.streams[{i}]", f"no sensor gives a stream {name!r}")])
    left = None
    if root.free_bytes is not None and rate > 0:
        left = max(0.0, (root.free_bytes - floor_bytes) / rate)
    report: dict[str, Any] = {
        "config": config.path,
        "ok": not problems,
        "sensors": [
            {
                "name": entry.name,
                "driver": entry.driver,
                "source": mask_passwords(entry.source),
                "streams": [_describe_stream(spec) for spec in result.streams],
                "problem": result.problem,
                "seconds": round(result.seconds, 3),
            }
            for entry, result in zip(config.sensors, results, strict=True)
        ],
        "bytes_per_second": rate,
        "root": {
            "path": place,
            "exists": root.exists,
            "free_bytes": root.free_bytes,
            "min_free_bytes": floor_bytes,
            "seconds_left": left,
            "file_system": getattr(system, "kind", None),
            "mount_point": getattr(system, "mount_point", None),
            "measured": speed,
        },
        "live": live and {"installed": live.installed, "port_free": live.port_free},
        "clocks": clocks | {"summary": summary(clocks)},
        "warnings": warnings,
        "problems": [
            {"key": p.key, "line": config.document.find_line(p.key)} | asdict(p) for p in problems
        ],
    }
    emit(report, args, _format_text)
    sys.stdout.flush()
    for problem in problems:
        note(f"recorder check: {config.error(problem.key, problem.message)}")
    return max((p.exit_code for p in problems), default=0)


def _check_keys(config: Config) -> tuple[str, str | None]:
    """Return the first problem of the keys for uploads, custody and TCP: its place and text."""
    from recorder.bus.control.keys import check_keys

    if config.upload.recipients:
        from recorder.fleet.encryption import Recipients

        try:
            Recipients(config.upload.recipients)
        except UsageError as error:
            return "upload.recipients", str(error)
    if config.custody.key is not None:
        from recorder.integrity.vehicle_key import VehicleKey

        try:
            VehicleKey(config.custody.key).last_signature()
        except (UsageError, StorageError) as error:
            return "custody.key", str(error)
    if config.control.tcp is None:
        return "", None
    if config.control.curve_keys is None:
        return "control.tcp", "needs control.curve_keys"
    try:
        check_keys(config.control.curve_keys)
    except UsageError as error:
        return "control.curve_keys", str(error)
    return "", None


def _describe_stream(spec: Any) -> dict[str, Any]:
    keys = ("name", "description", "rate_hz", "bytes_per_second", "finite")
    channels = [
        {"name": c.name, "format": c.format, "dtype": c.dtype, "shape": list(c.shape)}
        for c in spec.channels
    ]
    packing = spec.settings.get("packing")
    return {key: getattr(spec, key) for key in keys} | {"channels": channels, "packing": packing}


def _format_text(report: dict[str, Any]) -> str:
    rows: list[list[Any]] = []
    for sensor in report["sensors"]:
        if not sensor["streams"]:
            rows.append([sensor["name"], None, "does not open", None, None])
        for i, stream in enumerate(sensor["streams"]):
            channels = [
                f"{c['name']} {c['dtype']}{c['shape'] or ''} {c['format']}"
                for c in stream["channels"]
            ]
            rate_hz = stream["rate_hz"]
            rows.append(
                [
                    sensor["name"] if i == 0 else "",
                    stream["name"],
                    channels[0],
                    None if rate_hz is None else f"{rate_hz:g}",
                    format_rate(stream["bytes_per_second"]),
                ]
            )
            rows += [["", "", channel, "", ""] for channel in channels[1:]]
    table = format_table(["sensor", "stream", "channels", "Hz", "MB/s"], rows, right=(3, 4))
    root = report["root"]
    left = root["seconds_left"]
    lines = [
        "",
        f"together  {format_rate(report['bytes_per_second'])} MB/s expected",
        f"root      {root['path']}" + ("" if root["exists"] else " (not there yet)"),
        f"free      {format_bytes(root['free_bytes'])}, of which "
        f"{format_bytes(root['min_free_bytes'])} stay free"
        + ("" if left is None else f": room for {format_seconds(left)}"),
    ]
    if (speed := root["measured"]) is not None:
        lines.append(
            f"disk      {root['file_system']}, takes {format_rate(speed.bytes_per_second)} MB/s, "
            f"a sync {speed.sync_p99_s * 1e3:.0f} ms at the most"
        )
    lines += [
        f"packing   {stream['name']}: {stream['packing']}"
        for sensor in report["sensors"]
        for stream in sensor["streams"]
        if stream["packing"] is not None
    ]
    if (live := report["live"]) is not None:
        extra = "installed" if live["installed"] else "not installed"
        port = "can be listened on" if live["port_free"] else "cannot be listened on"
        lines.append(f"live      its extra is {extra}, its port {port}")
    lines.append(f"clock     {report['clocks']['summary']}")
    lines += [f"warning: {text}" for text in report["warnings"]]
    if report["ok"]:
        lines.append("all is well")
    return "\n".join([table, *map(clean, lines)])


def _draft(args: argparse.Namespace) -> int:
    """Print a config that records the topics of a middleware; return 0, or 1 without a topic."""
    from recorder.recording.supervisor.driver_registry import available_drivers
    from recorder.recording.topic_draft import list_topics, make_draft

    topics = list_topics(args.draft)
    if not topics:
        raise UsageError(f"--draft: {args.draft} has no topic")
    emit(topics, args, lambda found: make_draft(args.draft, found, available_drivers()))
    return 0
