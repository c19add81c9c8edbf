"""``recorder serve`` whose writer is the soak's (`tests.soak.writer`)."""

from __future__ import annotations

import sys
from pathlib import Path

from recorder.cli import main
from recorder.common.module_launcher import driver_module_command
from recorder.recording.supervisor import supervisor
from recorder.recording.supervisor.children import writer_command


def _command(run_folder: Path, buffer_mb: float, resume: str | None) -> list[str]:
    command = writer_command(run_folder, buffer_mb, resume)
    arguments = command[command.index("recorder.recording.writer") + 1 :]
    return driver_module_command("tests.soak.writer", *arguments)


if __name__ == "__main__":
    supervisor.writer_command = _command  # type: ignore[attr-defined]
    sys.exit(main(["serve", *sys.argv[1:]]))
