"""Launcher of a module at background priority that ends with its parent process.

``python -m recorder.recording.supervisor.background_process PARENT MODULE ARGS...``
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from pathlib import Path

from recorder.common.process_setup import die_with_parent
from recorder.recording.supervisor.priority import apply
from recorder.recording.supervisor.process_table import BACKGROUND

_FIRST_TO_GO = "500"  # oom_score_adj(5): the daemon's own is far below


def give_way() -> None:
    """Set the lowest priority for processor and disk, and a high rank for the OOM killer."""
    apply(BACKGROUND, os.getpid())
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)


def main() -> None:
    """Run the module as ``python -m MODULE ARGS`` does."""
    parent, module, *arguments = sys.argv[1:]
    die_with_parent(int(parent))
    give_way()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
