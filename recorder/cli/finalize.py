"""``recorder finalize SESSION... --to ncore,...``: pack archives again or later.

With ``--out DIR``, archives that can hold several sessions become one dataset in it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.output import (
    add_format,
    emit,
    end_on_sigterm,
    handle_signals,
    note,
    share_progress,
)
from recorder.cli.post_session import complete_session
from recorder.common.errors import RecorderError, UsageError
from recorder.common.text_format import format_bytes, format_seconds

if TYPE_CHECKING:
    from recorder.archives.finalize import ArchiveRequest, PackedArchive, Redact
    from recorder.config.loading import Config
    from recorder.session.part import Moment, Part


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sessions, the archives, and their options."""
    parser.add_argument(
        "sessions",
        nargs="*",
        metavar="SESSION",
        help="pack these finished sessions; with --on also folders of sessions, and stores of "
        "uploaded sessions (s3://BUCKET/PREFIX)",
    )
    parser.add_argument(
        "--to",
        metavar="NAMES",
        action="append",
        help="pack these archives, as in ncore,l5kit; may be repeated (default: the archives in "
        "the session's config)",
    )
    parser.add_argument(
        "--pending",
        type=Path,
        metavar="CONFIG",
        help="do what is pending for all sessions in this config's root, as the daemon would: "
        "repair, checksums, archives, deferred compression",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="pack into DIR instead of each session's _archives; archives that can hold several "
        "sessions become one dataset; with --on each session has its own, and DIR may be a store",
    )
    parser.add_argument(
        "--on",
        metavar="CLUSTER",
        help="pack on a Dask cluster, dask://HOST:PORT, or in processes of this machine, local[:N]",
    )
    parser.add_argument(
        "--identity",
        metavar="FILE",
        help="decrypt sessions of stores with the secret keys in this file, on each worker of --on",
    )
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="use this calibration instead of the session's",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME.KEY=V",
        help="set an option of an archive, as in ncore.store=folder; may be repeated",
    )
    parser.add_argument(
        "--only",
        metavar="A,B",
        help="pack only these groups or components of an archive again, as in labels,poses, beside "
        "its other stores, which stay as they are (ncore)",
    )
    add_interval(parser, "pack")
    parser.add_argument("--streams", metavar="A,B", help="pack only these streams")
    parser.add_argument(
        "--redact",
        type=Path,
        metavar="FILE",
        help="redact pictures with the programs in the section redact of this config or file",
    )
    parser.add_argument(
        "--originals",
        action="store_true",
        help="pack pictures as they were recorded, even if the session's config asks for redaction",
    )
    add_format(parser)


def add_interval(parser: argparse.ArgumentParser, verb: str, origin: str = "session") -> None:
    """Declare ``--from`` and ``--until``, for `parse_interval`.

    Args:
        parser: the verb's parser.
        verb: what the command does with the interval, for the help.
        origin: the session from whose start seconds count.
    """
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="T",
        help=f"{verb} from this time on: seconds since the start of the {origin} (12.5), or UTC "
        "(2026-01-01T12:00:30Z)",
    )
    parser.add_argument("--until", metavar="T", help=f"{verb} up to, and without, this time")


def run(args: argparse.Namespace) -> int:
    """Pack; return 0, or 1 if a session or an archive failed (the others are packed)."""
    # Packers have threads of their own; those of a matrix library only get in their way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from recorder.archives.finalize import dataset_name, prepare
    from recorder.common.syscalls import be_idle
    from recorder.session.part import Part

    interval = parse_interval(args.begin, args.until)
    part = Part(*interval, parse_names("--streams", args.streams))
    if args.pending is not None:
        if args.sessions or args.to is not None or args.on is not None or args.identity:
            raise UsageError("--pending: takes neither sessions nor --to nor --on; see the config")
        if args.only is not None:
            raise UsageError("--pending: packs whole archives, without --only")
        if not part.is_whole:
            raise UsageError("--pending: packs whole sessions, without --from, --until, --streams")
        if args.redact is not None or args.originals:
            raise UsageError("--pending: takes no --redact and no --originals; see the config")
        return _finalize_pending(args)
    if not args.sessions:
        raise UsageError("needs sessions, or --pending CONFIG")
    only, configured = parse_names("--only", args.only), args.to is None
    if configured:
        args.to, options = _read_configured(args.sessions)
        args.option = [*options, *args.option]
    steps = parse_steps(",".join(args.to), args.option)
    if only is not None:
        steps = _choose_only(steps, only, configured)
    args.redact = _read_redact(args)
    try:
        all_prepared = prepare(steps)
    except UsageError as error:
        raise UsageError(_quote_option(str(error), args.option)) from None
    if args.identity is not None and args.on is None:
        raise UsageError("--identity: needs --on; get the session with `recorder download` first")
    if args.on is not None:
        from recorder.cli import finalize_on_cluster

        if not part.is_whole:
            raise UsageError("--on: packs whole sessions, without --from, --until, --streams")
        if only is not None:
            raise UsageError("--on: packs whole archives, without --only")
        return finalize_on_cluster.run(args, steps)
    args.sessions = [_parse_folder(text) for text in args.sessions]
    args.out = None if args.out is None else _parse_folder(args.out)
    together = [
        step
        for step, prepared in zip(steps, all_prepared, strict=True)
        if args.out is not None and prepared.packer.collects
    ]
    if together:
        dataset_name(args.out)
    if len(args.sessions) == 1:
        together = []  # its archives are packed at the same time
    apart = [step for step in steps if step not in together]
    if args.out is not None and apart and len(args.sessions) > 1 and _share_a_name(args.sessions):
        raise UsageError("--out: two of the sessions have the same name")
    be_idle()
    results: list[PackedArchive] = []
    failed: set[Path] = set()
    lacking = False
    try:
        with end_on_sigterm():
            for path in args.sessions:
                complete_session(path)
            if apart:
                lacking = _pack_apart(args, part, apart, results, failed)
            if together:
                _pack_together(args, part, together, results, failed)
    except KeyboardInterrupt:
        lacking = True
        note(
            "recorder finalize: interrupted; complete archives are kept, the unfinished one was "
            "removed; run the same command again to pack the rest"
        )
    emit({"archives": results}, args, lambda _: _format_text(results))
    return 1 if failed or lacking else 0


def _read_configured(sessions: list[str]) -> tuple[list[str], list[str]]:
    """Read the archives that the sessions' configs name.

    Returns:
        Values of ``--to`` and of ``--option``.

    Raises:
        UsageError: the configs name no archives, or different ones.
    """
    from recorder.archives.base import available
    from recorder.recording.postprocessing.steps import option_arguments, read_requests

    known = frozenset(available())
    asked = [read_requests(Path(session), known) for session in sessions]
    archives, unknown, _ = asked[0]
    for session, each in zip(sessions, asked, strict=True):
        if each[:2] != (archives, unknown):
            raise UsageError(
                f"{session}: its config asks for other archives than that of {sessions[0]}; "
                "choose with --to"
            )
    for name, why in unknown.items():
        note(f"recorder finalize: {name} is not packed: {why}")
    if not archives:
        names = ", ".join(sorted(known))
        raise UsageError(f"{sessions[0]}: its config names no archive; choose with --to: {names}")
    return list(archives), option_arguments(archives)[1::2]


def _choose_only(
    steps: list[ArchiveRequest], only: tuple[str, ...], configured: bool
) -> list[ArchiveRequest]:
    """Return the requests with ``--only``; configured archives without groups are left alone.

    Raises:
        UsageError: an archive that ``--to`` names cannot be packed in part, or none is configured.
    """
    from recorder.archives.base import ONLY, load_packer
    from recorder.archives.finalize import ArchiveRequest

    chosen = []
    for step in steps:
        if ONLY in load_packer(step.archive).options:
            chosen.append(ArchiveRequest(step.archive, {**step.options, ONLY: list(only)}))
        elif not configured:
            raise UsageError(f"--only: {step.archive} is packed as a whole")
    if not chosen:
        raise UsageError("--only: the config names no archive with groups; choose with --to ncore")
    return chosen


def _read_redact(args: argparse.Namespace) -> Redact:
    """Read ``--redact`` and ``--originals``."""
    from recorder.archives.finalize import AS_CONFIGURED, ORIGINALS
    from recorder.config.loading import load_redact

    if args.redact is not None and args.originals:
        raise UsageError("--originals: packs what --redact must not show; give one of them")
    if args.redact is not None:
        return load_redact(args.redact)
    return ORIGINALS if args.originals else AS_CONFIGURED


def _parse_folder(text: str) -> Path:
    if "://" in text:
        raise UsageError(f"{text}: is no folder; a store needs --on")
    return Path(text)


def parse_names(option: str, text: str | None) -> tuple[str, ...] | None:
    """Parse the names of an option such as ``--streams A,B``; None without the option.

    Raises:
        UsageError: a name is empty.
    """
    names = None if text is None else tuple(dict.fromkeys(text.split(",")))
    if names is not None and "" in names:
        raise UsageError(f"{option}: {text!r} has an empty name")
    return names


def parse_interval(begin: str | None, end: str | None) -> tuple[Moment | None, Moment | None]:
    """Parse the moments of ``--from`` and ``--until``.

    Raises:
        UsageError: a text is not a time, or the interval ends before it begins.
    """
    from recorder.session.part import Moment

    moments = []
    for option, text in (("--from", begin), ("--until", end)):
        try:
            moments.append(None if text is None else Moment.parse(text))
        except UsageError as error:
            raise UsageError(f"{option}: {error}") from None
    first, last = moments
    if first and last and first.since_epoch == last.since_epoch and first.ns >= last.ns:
        raise UsageError(f"--until {last.text}: needs a time after --from {first.text}")
    return first, last


def _quote_option(message: str, options: list[str]) -> str:
    """Rewrite a message about an archive's option to show the text that the user typed."""
    for option in options:
        key = option.partition("=")[0]
        if message.startswith(f"{key}: "):
            return f"--option {option}: {message.removeprefix(f'{key}: ')}"
    return message


def _share_a_name(paths: list[Path]) -> bool:
    return len({_read_name(path) for path in paths}) < len(paths)


def _read_name(path: Path) -> str:
    """Return the name of a session's archives: the session's name, not that of its folder."""
    from recorder.session.reader import Session

    try:
        with Session(path) as session:
            return session.name
    except RecorderError:  # packing says what is wrong
        return path.resolve().name


def _get_options(args: argparse.Namespace, part: Part, show: Any) -> dict[str, Any]:
    """Return the arguments that `finalize` and `collect` share."""
    how = {"calibration": args.calibration, "redact": args.redact}
    return how | {"part": part, "progress": show}


def _pack_apart(
    args: argparse.Namespace,
    part: Part,
    steps: list[ArchiveRequest],
    results: list[PackedArchive],
    failed: set[Path],
) -> bool:
    """Pack each session separately; report and skip sessions that cannot be packed.

    Returns:
        True if anything was left out; `failed` then holds the sessions that failed as a whole.
    """
    from recorder.archives.finalize import finalize

    only = len(args.sessions) == len(steps) == 1
    lacking = False

    def report_failure(error: RecorderError) -> None:
        nonlocal lacking
        lacking = True
        note(f"recorder finalize: {error}")

    for path in args.sessions:
        try:
            with _bar(path, len(steps) + bool(args.redact)) as show:
                how = _get_options(args, part, show)
                how |= {"out": args.out, "datasets": args.out is not None}
                how["failed"] = None if only else report_failure
                results.extend(finalize(path, steps, **how))
        except UsageError:
            raise
        except RecorderError as error:
            if len(args.sessions) == 1:
                raise
            report_failure(error)
            failed.add(path)
    return lacking


def _pack_together(
    args: argparse.Namespace,
    part: Part,
    steps: list[ArchiveRequest],
    results: list[PackedArchive],
    failed: set[Path],
) -> None:
    """Pack all sessions that have not failed into one dataset for each archive."""
    from recorder.archives.finalize import collect

    def refused(path: Path, error: RecorderError) -> None:
        note(f"recorder finalize: {error}")
        failed.add(path)

    paths = [path for path in args.sessions if path not in failed]
    if not paths:
        return
    try:
        with _bar(args.out, len(steps) + bool(args.redact)) as show:
            how = _get_options(args, part, show) | {"refused": refused if len(paths) > 1 else None}
            results.extend(collect(paths, steps, args.out, **how))
    except UsageError:
        raise
    except RecorderError as error:
        if not results:
            raise
        refused(args.out, error)  # the other archives are reported all the same


def _finalize_pending(args: argparse.Namespace) -> int:
    """Do the pending steps (recovery, checksums, archives) of all sessions in a config's root."""
    from recorder.common.clock import SignalEvent, SystemClock
    from recorder.recording.postprocessing.finalizing import finalize_pending
    from recorder.recording.supervisor.driver_registry import load

    stop = SignalEvent()
    with handle_signals(lambda _: stop.set()):
        done = finalize_pending(load(args.pending), SystemClock(), note, stop)
    lines = [f"{done['finished']} steps done"]
    lines += [
        f"failed {session}: {step}: {why}"
        for session, steps in done["failed"].items()
        for step, why in steps.items()
    ]
    emit(done, args, lambda _: "\n".join(lines))
    return 1 if done["failed"] else 0


def parse_steps(names: str, options: list[str]) -> list[ArchiveRequest]:
    """Parse the archives to pack, from ``--to`` and ``--option``.

    Raises:
        UsageError: a name is empty or a duplicate, or an option is not of the form NAME.KEY=V.
    """
    import yaml

    from recorder.archives.finalize import ArchiveRequest

    chosen: dict[str, dict[str, Any]] = {}
    for name in names.split(","):
        if not name.strip() or name.strip() in chosen:
            raise UsageError(f"--to: {names!r} has an empty or duplicate name")
        chosen[name.strip()] = {}
    for option in options:
        path, equals, value = option.partition("=")
        name, dot, key = path.partition(".")
        if not (equals and dot and key):
            raise UsageError(f"--option: {option!r} is not of the form NAME.KEY=V")
        if name not in chosen:
            raise UsageError(f"--option: {option!r} is about an archive that --to does not name")
        try:
            chosen[name][key] = json.loads(value)  # 1e-05, as JSON writes it, is a text in YAML
            continue
        except ValueError:
            pass
        try:
            chosen[name][key] = yaml.safe_load(value)
        except yaml.YAMLError:
            chosen[name][key] = value
    return [ArchiveRequest(name, values) for name, values in chosen.items()]


@contextmanager
def _bar(path: Path, archives: int) -> Iterator[Callable[[str, float, float], None]]:
    """Show a progress bar for all archives of a session, each an equal part of it."""
    with share_progress(f"verifying {path.name}") as move:
        shares: dict[str, float] = {}

        def show(archive: str, done: float, total: float) -> None:
            known, text = len(shares), None
            shares[archive] = min(1.0, done / total) if total else 1.0
            if len(shares) > known:
                under_way = [name for name, share in shares.items() if share < 1 or name == archive]
                text = f"packing {path.name}: {', '.join(under_way)}"
            move(sum(shares.values()) / archives, text)

        yield show


def configured_steps(config: Config) -> list[ArchiveRequest]:
    """Read and check the archives that a config names, before anything is recorded.

    Raises:
        ConfigError: an option is wrong, or a package is not installed.
    """
    steps = []
    for number, (request, problem) in enumerate(check_steps(config)):
        if problem is not None:
            raise config.error(f"finalize[{number}]", problem)
        steps.append(request)
    return steps


def check_steps(config: Config) -> Iterator[tuple[ArchiveRequest, str | None]]:
    """Yield the archives that a config names, each with the reason why it cannot be packed."""
    from recorder.archives.finalize import ArchiveRequest, prepare

    for step in config.finalize:
        request, problem = ArchiveRequest(step.archive, step.options), None
        try:
            prepare([request])
        except UsageError as error:
            problem = str(error)
        yield request, problem


def finalize_session(
    session: Path, steps: list[ArchiveRequest], redact: Path | None = None
) -> list[dict[str, Any]] | None:
    """Pack a session that has just been recorded, in a separate process of low priority.

    Args:
        session: the session's folder.
        steps: the archives.
        redact: the config, if it has programs that redact pictures.

    Returns:
        The ``archives`` of ``--format json``; None if one failed (the process prints the reason).
    """
    from recorder.common.module_launcher import module_command
    from recorder.recording.postprocessing.steps import Step

    step = Step.packing({step.archive: step.options for step in steps})
    command = module_command(*step.command(session, redact))
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        note(f"{session}: recorded, but not all archives could be packed; see `recorder finalize`")
        return None
    archives: list[dict[str, Any]] = json.loads(done.stdout)["archives"]
    for archive in archives:
        for text in archive["notes"]:
            note(f"{archive['archive']}: {text}")
    return archives


def _format_text(results: list[PackedArchive]) -> str:
    lines = []
    for result in results:
        size, seconds = format_bytes(result.bytes), format_seconds(result.seconds)
        what = ", ".join(str(path) for path in result.sessions)
        lines.append(f"{what}: {result.archive}: {size} in {seconds}")
        lines += [f"  {path}" for path in result.files]
        frames = result.summary.get("frames")
        if frames:
            lines.append("  " + ", ".join(f"{name} {count}" for name, count in frames.items()))
        lines += [f"  note: {text}" for text in result.notes]
    return "\n".join(lines)
