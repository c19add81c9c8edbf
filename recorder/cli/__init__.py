"""Command ``recorder``: its verbs, listed in one table, `GROUPS`.

A verb is a module, or an object in one, with ``add_arguments(parser)``, which is cheap, and
``run(args) -> int``, which returns the exit code.  ``run`` raises `RecorderError` with a message
for the user, prints results with `recorder.cli.output.emit`, and everything else to stderr.  Only
the module of the requested verb is imported.

Exit codes: 0 done; 1 failed; 2 wrong usage or config; 3 done, but data was lost.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import pkgutil
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from recorder import __version__
from recorder.cli.output import complain
from recorder.common.errors import RecorderError, UsageError
from recorder.config.options import suggest

GROUPS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "Record": (
        ("demo", "recorder.cli.demo", "record simulated sensors, pack them and show the report"),
        ("run", "recorder.cli.run", "record one session in the foreground"),
        ("serve", "recorder.cli.serve", "run the daemon, which records on request"),
        ("import", "recorder.cli.import_command", "make a session of a recording of others"),
    ),
    "Control a daemon": (
        ("start", "recorder.cli.control:start", "start recording"),
        ("stop", "recorder.cli.control:stop", "stop recording"),
        ("mark", "recorder.cli.control:mark", "add a mark to the session that is being recorded"),
        ("status", "recorder.cli.control:status", "show the daemon's status"),
    ),
    "Look at sessions": (
        ("list", "recorder.cli.list_command", "list the sessions in a folder"),
        ("info", "recorder.cli.info", "show the contents of a session"),
        ("validate", "recorder.cli.validate", "check a session, or packed archives"),
        ("verify", "recorder.cli.verify", "prove that a recording is unchanged"),
        (
            "events",
            "recorder.cli.events",
            "list kept events, or evaluate triggers in recorded sessions",
        ),
        ("export", "recorder.cli.export", "export a stream as a table, arrays, pictures or points"),
        ("catalog", "recorder.cli.catalog", "write a table of all sessions, in Parquet"),
        ("report", "recorder.cli.report", "report a session, or list a folder's reports, in HTML"),
        (
            "view",
            "recorder.cli.view",
            "play a session or an archive in the dashboard of the live view",
        ),
        ("replay", "recorder.cli.replay", "publish the streams of a session as live views"),
    ),
    "Repair, pack and keep sessions": (
        ("recover", "recorder.cli.recover", "repair sessions left open by a crash"),
        ("finalize", "recorder.cli.finalize", "pack finished sessions as archives"),
        ("clip", "recorder.cli.clip", "cut sessions, or merge parts, into a new session"),
        ("redecode", "recorder.cli.redecode", "make lidars' sweeps again from recorded packets"),
        ("keep", "recorder.cli.control:keep", "protect a session from deletion"),
        ("upload", "recorder.cli.upload", "upload sessions into an S3 bucket or a folder"),
        ("download", "recorder.cli.download", "download a session from a store"),
    ),
    "Set up": (
        ("check", "recorder.cli.check", "check a config, its sources and the disk"),
        ("drivers", "recorder.cli.drivers", "list the drivers, or the options of one"),
        ("keys", "recorder.cli.keys", "make or show the key that signs sessions"),
        ("emulate", "recorder.cli.emulate", "emulate sensors on this machine"),
        ("calibrate-radar", "recorder.cli.calibrate_radar", "calibrate a radar's antennas"),
        ("completion", "recorder.cli.completion", "print a completion script for the shell"),
    ),
}
"""Verbs by use: (verb, MODULE or MODULE:OBJECT, one line), in the order of the help."""
VERBS = tuple(verb for group in GROUPS.values() for verb in group)


class Verb(Protocol):
    """Interface of a verb."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments; import nothing slow."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the verb and return its exit code."""


class _Parser(argparse.ArgumentParser):
    """Parser of the whole command; its help lists the verbs in their groups."""

    def format_help(self) -> str:
        lines = [self.format_usage(), f"{self.description}"]
        for title, verbs in GROUPS.items():
            lines += ["", f"{title}:", *(f"    {name:<10}  {text}" for name, _, text in verbs)]
        options = ((", ".join(a.option_strings), a.help) for a in self._get_optional_actions())
        lines += ["", "Options:", *(f"    {name:<10}  {text}" for name, text in options)]
        return "\n".join([*lines, "", f"{self.epilog}", ""])


def load_verb(verb: str) -> Verb:
    """Import a verb; raise KeyError if there is no such verb."""
    found: Any = pkgutil.resolve_name({name: place for name, place, _ in VERBS}[verb])
    return found  # type: ignore[no-any-return]


def build_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """Build the parser of the whole command.

    Args:
        verb: the only verb whose arguments are declared; None: all verbs.
    """
    parser = _Parser(
        "recorder",
        description="Record the sensors of a vehicle into crash-safe sessions.",
        epilog="'recorder VERB --help' explains a verb.\n"
        "Exit codes: 0 done; 1 failed; 2 wrong usage or config; 3 done with data loss.",
        allow_abbrev=False,
    )
    version, text = f"recorder {__version__}", "show the version and exit"
    parser.add_argument("--version", action="version", version=version, help=text)
    verbs = parser.add_subparsers(
        dest="verb", metavar="VERB", required=True, parser_class=argparse.ArgumentParser
    )
    for name, _, text in VERBS:
        sentence = f"{text[:1].upper()}{text[1:]}."
        verb_parser = verbs.add_parser(name, help=text, description=sentence, allow_abbrev=False)
        if verb in (None, name):
            load_verb(name).add_arguments(verb_parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        argv: the arguments without the program's name; None: those of `sys.argv`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    asked = next((a for a in arguments if not a.startswith("-")), "")
    prefix = "recorder"
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names that are not UTF-8 are printed escaped instead of ending the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if not arguments:
            print(build_parser(asked).format_help(), end="", file=sys.stderr)
            return 2
        if asked and asked not in (name for name, _, _ in VERBS):
            raise UsageError(_explain_unknown_verb(asked))
        args = build_parser(asked).parse_args(arguments)
        prefix = f"recorder {args.verb}"
        code = load_verb(args.verb).run(args)
        sys.stdout.flush()
    except SystemExit as error:  # argparse: --help, --version, wrong usage
        return error.code if isinstance(error.code, int) else 2
    except RecorderError as error:
        complain(prefix, error)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{prefix}: interrupted", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone (`recorder list | head`).  What is still buffered must
        # go somewhere at exit, or Python complains there.
        _discard_stdout()
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        complain(prefix, error, f"{place}{error.strerror or error}")
        return 1
    except MemoryError as error:
        complain(prefix, error, "no memory is left")
        return 1
    except RecursionError as error:  # of a library, too: few of them say what they were reading
        what = shlex.join(a for a in arguments if a != asked)
        complain(prefix, error, f"{what}: folders or values lie too deep in each other to be read")
        return 1
    except RuntimeError as error:  # of a library's thread
        if "can't start new thread" not in str(error):
            raise
        complain(prefix, error, f"{error}: no memory is left, or too many processes run")
        return 1
    return code


def _explain_unknown_verb(word: str) -> str:
    """Explain that a word is not a verb, and suggest the verb that was probably meant."""
    hint = suggest(word, (name for name, _, _ in VERBS))
    if Path(word).suffix in (".yaml", ".yml"):
        hint = f" (did you mean 'recorder run {word}'?)"
    elif Path(word).suffix in (".mcap", ".db3") or word.endswith((".mcap.zstd", ".db3.zstd")):
        hint = f" (did you mean 'recorder import {word}'?)"
    elif Path(word).is_dir():
        hint = f" (did you mean 'recorder info {word}' or 'recorder list {word}'?)"
    return f"{word!r} is not a verb{hint}; 'recorder --help' lists the verbs"


def _discard_stdout() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):  # no descriptor, as under a test's capture
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
