"""``recorder completion SHELL``: print a script that completes verbs and arguments."""

from __future__ import annotations

import argparse
from pathlib import Path

SHELLS = ("bash", "zsh", "fish", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the shell."""
    parser.add_argument(
        "shell", choices=SHELLS, metavar="SHELL", help=f"complete for {', '.join(SHELLS)}"
    )
    parser.epilog = (
        "bash: put 'source <(recorder completion bash)' into ~/.bashrc.  zsh: save the script as "
        "_recorder in a folder of $fpath.  fish: 'recorder completion fish | source'."
    )


def run(args: argparse.Namespace) -> int:
    """Print the script and return 0."""
    import shtab

    from recorder.cli import build_parser

    parser = build_parser()
    _complete_paths(parser, shtab.FILE)
    print(shtab.complete(parser, args.shell))
    return 0


def _complete_paths(parser: argparse.ArgumentParser, files: dict[str, str]) -> None:
    """Make every argument that is a path complete files and folders."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub_parser in action.choices.values():
                _complete_paths(sub_parser, files)
        elif action.type is Path:
            action.complete = files  # type: ignore[attr-defined]
