"""``recorder serve`` whose writer is the soak's (`tests.soak.writer`)."""

from __future__ import annotations

import sys
from pathlib import Path

from recorder.cli import main
from recorder.daemon.processes import supervisor
from recorder.daemon.processes.children import writer_command


def _command(run_folder: Path, buffer_mb: float, resume: str | None) -> list[str]:
    command = writer_command(run_folder, buffer_mb, resume)
    return ["tests.soak.writer" if part == "recorder.writer" else part for part in command]


if __name__ == "__main__":
    supervisor.writer_command = _command  # type: ignore[attr-defined]
    sys.exit(main(["serve", *sys.argv[1:]]))
