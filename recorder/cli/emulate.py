"""``recorder emulate CONFIG``: emulate devices on this machine, fed by a config's sources.

When the devices answer, the command prints the config that records from them, or writes it to
``--out``, complete or not at all.  The devices run until SIGINT or SIGTERM, or until every source
has ended.  The command then removes the file, since the next devices have other addresses, and
prints the injected faults on stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.output import add_format, handle_signals, note
from recorder.common.errors import ConfigError, RecorderError, UsageError

if TYPE_CHECKING:
    from recorder.config.loading import Config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the config, the faults and the seed."""
    parser.add_argument(
        "config",
        type=Path,
        metavar="CONFIG",
        help="feed the devices from the sources of this config",
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="SENSOR.KIND[=VALUE][@AT[+DURATION]]",
        help="inject a fault, as in lidar.loss=0.01, radar.loss=20x@5, imu.unplug@10+4 or "
        "lidar.clock_jump=-2.5@8; kinds: loss, reorder, duplicate, corrupt, stall, reboot, "
        "unplug, clock_jump; may be repeated",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="seed the choice of packets (default: 0)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the config to FILE instead of printing it; remove FILE at the end",
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write the injected faults to FILE as JSON at the end",
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Emulate until a signal or the sources' end; return 0, or the emulation's exit code."""
    from recorder.common.module_launcher import module_command
    from recorder.recording.supervisor.driver_registry import load

    config = load(args.config)
    for entry in config.sensors:
        if entry.scheme == "sim" and any((entry.options.get("clock") or {}).values()):
            text = "an emulated device has its own clock; use it with `recorder run`, or a fault "
            raise config.error(f"sensors.{entry.name}.clock", f"{text}clock_jump here")
    rig = {
        "sensors": [entry.for_driver() | {"driver": entry.driver} for entry in config.sensors],
        "faults": args.fault,
        "seed": args.seed,
    }
    if args.out is not None:
        args.out.unlink(missing_ok=True)  # of devices that are gone
    command = module_command("drivers.sim", "emulate", "--parent", str(os.getpid()))
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, process_group=0)
    assert process.stdin is not None and process.stdout is not None
    with handle_signals(lambda _: process.terminate()):
        try:
            json.dump(rig, process.stdin)
            process.stdin.close()
            first = json.loads(process.stdout.readline() or "{}")
            if "sources" in first:
                _hand_out(emulated_config(config, first["sources"]), args)
                note(
                    f"emulating {', '.join(entry.name for entry in config.sensors)}; Ctrl-C ends it"
                )
            last = first | json.loads(process.stdout.readline() or "{}")
            code = process.wait()
        except BrokenPipeError:
            code, last = process.wait(), {}
        finally:
            process.stdout.close()
            if args.out is not None:
                args.out.unlink(missing_ok=True)
    if code:
        text = str(last.get("failed", "the emulation failed"))
        sensor = text.partition(": ")[0]
        if code == ConfigError.exit_code and sensor in {entry.name for entry in config.sensors}:
            text = text.removeprefix(f"{sensor}: ")
            raise config.error(f"sensors.{sensor}.source", text)
        raise UsageError(text) if code == UsageError.exit_code else RecorderError(text)
    injected = last.get("injected", {})
    for sensor, kinds in injected.items():
        if kinds:
            note(f"{sensor}: injected " + ", ".join(f"{k} {n}" for k, n in sorted(kinds.items())))
    if args.report is not None:
        args.report.write_text(json.dumps(injected, indent=1) + "\n")
    return 0


def emulated_config(config: Config, sources: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Build the config that records the emulated devices of a config's sensors; paths are absolute.

    Args:
        config: config whose sources feed the devices.
        sources: ``source`` and ``options`` of each sensor's device.
    """
    from recorder.config.settings import SENSOR_KEYS

    values: dict[str, Any] = json.loads(json.dumps(config.document.values, default=str))
    values.setdefault("session", {})["root"] = str(config.session.root)
    if config.calibration is not None:
        values["calibration"] = str(config.calibration)
    for name, made in sources.items():
        general = {
            key: value
            for key, value in values["sensors"][name].items()
            if key in SENSOR_KEYS and key not in ("pace", "loop")
        }
        values["sensors"][name] = general | {"source": made["source"]} | made["options"]
    return values


def _hand_out(config: dict[str, Any], args: argparse.Namespace) -> None:
    import yaml

    if args.format == "json":
        text = json.dumps(config, indent=1) + "\n"
    else:
        text = yaml.safe_dump(config, sort_keys=False, default_flow_style=None, width=100)
    if args.out is None:
        print(text, end="", flush=True)  # a program that waits for the config reads it from a pipe
        return
    temporary = args.out.with_name(f".{args.out.name}.new")
    temporary.write_text(text)
    temporary.replace(args.out)
