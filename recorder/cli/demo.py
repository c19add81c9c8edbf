"""``recorder demo``: record simulated sensors, check and pack the session, and open its report.

Each step is a command of the recorder, which is printed before it runs, for repetition.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.cli.finalize import check_steps
from recorder.cli.output import handle_signals, note, open_in_browser
from recorder.cli.run import seconds

if TYPE_CHECKING:
    from recorder.config.loading import Config

CONFIG = Path(__file__).resolve().parents[1] / "configs/demo.yaml"
"""Config of the demo; in a clone, ``recorder/configs`` is a link to ``configs``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the folder and the duration of the recording."""
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("demo"),
        metavar="FOLDER",
        help="record below this folder (default: demo)",
    )
    parser.add_argument(
        "--duration", type=seconds, default=5.0, metavar="S", help="record S seconds (default: 5)"
    )
    parser.add_argument("--no-browser", action="store_true", help="do not open the report")


def run(args: argparse.Namespace) -> int:
    """Run the steps; return 0, or the exit code of the first step that failed."""
    from recorder.common.clock import SystemClock
    from recorder.recording.sessions.session_plan import render_config_name
    from recorder.recording.supervisor.driver_registry import load
    from recorder.session.layout import REPORT

    config = load(CONFIG)
    names = _find_packable(config)
    name = render_config_name(config, SystemClock().realtime_ns(), config.session.metadata)
    session = args.folder / name
    recording = ["--root", args.folder, "--name", name, "--duration", f"{args.duration:g}"]
    steps: list[list[object]] = [
        ["run", CONFIG, *recording, "--no-finalize"],
        ["validate", "--deep", session],
        ["finalize", session, "--to", ",".join(names)],
        ["report", session],
        ["info", session],
        ["list", args.folder],
    ]
    for step in steps:
        if code := _run_step(list(map(str, step))):
            return code
    open_in_browser((session / REPORT).absolute().as_uri(), unless=args.no_browser)
    return 0


def _find_packable(config: Config) -> list[str]:
    """Return the archives of the config whose packages are installed."""
    names = []
    for request, problem in check_steps(config):
        if problem is None:
            names.append(request.archive)
        else:
            note(f"recorder demo: {request.archive} is not packed: {problem}")
    return names


def _run_step(arguments: list[str]) -> int:
    """Print a command of the recorder, run it, and return its exit code."""
    from recorder.common.module_launcher import module_command

    print(f"\n$ recorder {shlex.join(arguments)}", flush=True)
    # Ctrl-C is the command's: it ends the recording, and the demo goes on.
    with handle_signals(lambda _: None, signal.SIGINT):
        return subprocess.run(module_command("recorder", *arguments), check=False).returncode
