"""The truth about sessions of simulated sensors, written after their end (docs/labels.md)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from recorder.cli.output import note

_LAST = "_pose/meta.json"
"""The file that is written last."""


def succeeds(module: str, *arguments: str) -> bool:
    """Run a module in a process of its own, which Ctrl-C does not reach."""
    from recorder.contract.launch import module_command

    command = module_command(module, *arguments)
    nowhere = subprocess.DEVNULL
    return subprocess.run(command, check=False, stdout=nowhere, process_group=0).returncode == 0


def add_truth(session: Path) -> None:
    """Write what the simulated world knows beside what its sensors saw."""
    if not succeeds("drivers.sim", "annotate", str(session)):
        note(f"{session}: the simulation's labels could not be written")


def add_missing_truth(session: Path) -> None:
    """Write the truth of a recovered session, or of one whose recorder was killed after its end."""
    from recorder.contract.errors import RecorderError
    from recorder.session.layout import CLEAN, RECOVERED
    from recorder.session.reader import read_header

    if (session / _LAST).exists():
        return
    try:
        header = read_header(session) or {}
    except RecorderError as error:
        note(str(error))
        return
    sensors = (header.get("sensors") or {}).values()
    simulated = any(sensor.get("source") == "sim" for sensor in sensors)
    if simulated and header.get("state") in (CLEAN, RECOVERED):
        add_truth(session)
