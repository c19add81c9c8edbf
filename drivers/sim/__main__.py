"""Commands of the simulation: ``python -m drivers.sim annotate SESSION`` and ``calibration``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from drivers.sim.annotate import annotate
from drivers.sim.calibration import calibration_text
from recorder.contract.errors import RecorderError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m drivers.sim", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    labels = commands.add_parser(
        "annotate", help="write the truth into a finished session of simulated sensors"
    )
    labels.add_argument("session", type=Path, help="the session's folder")
    commands.add_parser("calibration", help="print the calibration of the simulated rig")
    chosen = parser.parse_args(arguments)
    if chosen.command == "calibration":
        sys.stdout.write(calibration_text())
        return 0
    try:
        written = annotate(chosen.session)
    except RecorderError as error:
        print(f"annotate: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"annotate: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    for name, count in written.items():
        print(f"{chosen.session / name}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
