"""Commands of the simulation: ``annotate SESSION``, ``calibration`` and ``emulate``.

``python -m drivers.sim COMMAND`` runs a command; ``emulate`` implements `recorder emulate`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from drivers.kit.emulator_faults import Fault, parse_fault
from drivers.sim.annotate import annotate
from drivers.sim.calibration import calibration_text
from drivers.sim.emulated_rig import EmulatedRig
from recorder.common.clock import SignalEvent
from recorder.common.errors import RecorderError, UsageError
from recorder.common.process_setup import die_with_parent
from recorder.config.settings import SensorEntry

_TURN_S = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m drivers.sim", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    labels = commands.add_parser(
        "annotate", help="write the truth into a finished session of simulated sensors"
    )
    labels.add_argument("session", type=Path, help="the session's folder")
    commands.add_parser("calibration", help="print the calibration of the simulated rig")
    emulate = commands.add_parser("emulate", help="start the devices described on stdin")
    emulate.add_argument("--parent", type=int, required=True, help="parent process to exit with")
    chosen = parser.parse_args(arguments)
    if chosen.command == "emulate":
        return _emulate(chosen.parent)
    if chosen.command == "calibration":
        sys.stdout.write(calibration_text())
        return 0
    try:
        written = annotate(chosen.session)
    except RecorderError as error:
        print(f"annotate: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        place = error.filename or chosen.session
        print(f"annotate: {place}: {error.strerror or error}", file=sys.stderr)
        return 1
    for name, count in written.items():
        print(f"{chosen.session / name}: {count}")
    return 0


def _emulate(parent: int) -> int:
    """Run emulated devices until SIGTERM or until all their sources have ended."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the parent decides
    stop = SignalEvent()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    wanted = json.load(sys.stdin)
    try:
        sensors = [SensorEntry(**entry) for entry in wanted["sensors"]]
        faults: dict[str, list[Fault]] = {sensor.name: [] for sensor in sensors}
        for text in wanted["faults"]:
            name, fault = parse_fault(text)
            if name not in faults:
                raise UsageError(f"--fault: {text!r}: the config has no sensor {name!r}")
            faults[name].append(fault)
        with EmulatedRig(sensors, faults, wanted["seed"]) as rig:
            sources = {name: vars(source) for name, source in rig.sources.items()}
            print(json.dumps({"sources": sources}), flush=True)
            while not stop.is_set() and not rig.wait(_TURN_S):
                pass
            print(json.dumps({"injected": rig.injected}), flush=True)
    except RecorderError as error:  # the parent prints the message
        print(json.dumps({"failed": str(error)}), flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
