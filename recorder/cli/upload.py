"""``recorder upload SESSION_OR_ROOT URL``: upload sessions into a store."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.output import add_format, emit, end_on_sigterm, note, prefix_error, progress
from recorder.common.errors import RecorderError, SessionError, UsageError
from recorder.common.text_format import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from recorder.fleet.uploading import Uploaded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sessions, the store, and the options of the upload."""
    parser.add_argument(
        "source", type=Path, nargs="?", metavar="SESSION_OR_ROOT",
        help="upload this session, or the sessions in this folder",
    )  # fmt: skip
    parser.add_argument(
        "url", nargs="?", metavar="URL", help="upload into s3://BUCKET/PREFIX, or file:///FOLDER"
    )
    parser.add_argument(
        "--pending",
        type=Path,
        metavar="CONFIG",
        help="upload the finished sessions in this config's root, as its section 'upload' says",
    )
    parser.add_argument(
        "--mbit",
        type=float,
        metavar="N",
        help="send at most N Mbit/s on average (default: no limit)",
    )
    parser.add_argument(
        "--credentials",
        type=Path,
        metavar="FILE",
        help="take the keys from this file, in the format of ~/.aws/credentials (default: from the "
        "environment, or from that file)",
    )
    parser.add_argument(
        "--recipient",
        action="append",
        default=[],
        metavar="KEY",
        help="encrypt for the owner of this public key (age1..., from age-keygen); may be "
        "repeated, and each owner can decrypt",
    )
    parser.add_argument(
        "--read-back",
        action="store_true",
        help="read all objects back and compare them with the sent bytes",
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Upload; return 0, or 1 if a session could not be uploaded (the others are uploaded)."""
    if args.pending is not None:
        if (
            args.source is not None
            or args.mbit
            or args.credentials
            or args.read_back
            or args.recipient
        ):
            raise UsageError("--pending: takes nothing else; the config says what, where and how")
    elif args.url is None:
        raise UsageError("needs SESSION_OR_ROOT and URL, or --pending")
    if args.mbit is not None and args.mbit <= 0:
        raise UsageError(f"--mbit: {args.mbit:g} is no rate")
    failed: list[Path] = []

    def report(session: Path, error: RecorderError) -> None:
        failed.append(session)
        note(f"recorder upload: {prefix_error(str(session), error)}")

    with end_on_sigterm():
        done = (_upload_given if args.pending is None else _upload_pending)(args, report)
    emit(
        {"uploads": done, "failed": failed},
        args,
        lambda _: "\n".join(_format_text(each) for each in done),
    )
    return 1 if failed else 0


def _upload_given(args: argparse.Namespace, failed: Callable[[Path, Any], None]) -> list[Uploaded]:
    from recorder.fleet.encryption import Recipients
    from recorder.fleet.store import open_store
    from recorder.fleet.store.base import StoreRefusedError, StoreUnreachableError
    from recorder.fleet.uploading import Limit, sort_by_urgency, upload_session
    from recorder.session.discovery import find_sessions_below

    recipients = Recipients(args.recipient) if args.recipient else None
    store = open_store(args.url, credentials=args.credentials)
    sessions = sort_by_urgency(
        find_sessions_below(args.source, lambda text: failed(args.source, SessionError(text)))
    )
    if not sessions:
        raise SessionError(f"{args.source}: no sessions here")
    pace = None if args.mbit is None else Limit(args.mbit)
    done = []
    for session in sessions:
        try:
            with ExitStack() as stack:
                done.append(
                    upload_session(
                        session, store, pace=pace, progress=_bar(stack, session),
                        read_back=args.read_back, recipients=recipients,
                    )
                )  # fmt: skip
        except (StoreRefusedError, StoreUnreachableError):
            raise  # it is so for the others, too
        except RecorderError as error:
            failed(session, error)
    return done


def _upload_pending(
    args: argparse.Namespace, failed: Callable[[Path, Any], None]
) -> list[Uploaded]:
    from recorder.fleet.pending_uploads import NotNowError, find_due_uploads, upload_pending
    from recorder.recording.supervisor.driver_registry import load

    config = load(args.pending)
    if config.upload.url is None:
        raise config.error("upload.url", "names no store; there is nowhere to upload to")
    done: list[Uploaded] = []
    with ExitStack() as stack:
        try:
            for each in upload_pending(config, failed, lambda path: _bar(stack, path)):
                done.append(each)
                stack.close()
        except NotNowError as error:
            note(f"recorder upload: not now: {error}")
    for session, why in find_due_uploads(config)[1].items():
        note(f"recorder upload: {session}: {why}")
    return done


def _bar(stack: ExitStack, session: Path) -> Callable[[int], None]:
    from recorder.fleet.uploading import list_files

    total = sum((session / path).stat().st_size for path in list_files(session))
    advance = stack.enter_context(progress(f"uploading {session.name}", total=float(total)))
    return lambda size: advance(size)


def _format_text(done: Uploaded) -> str:
    what = f"{done.files} files, {format_bytes(done.bytes)}"
    if done.sent:
        what += f", {format_bytes(done.sent)} sent in {format_seconds(done.seconds)}"
    else:
        what += ", all there already"
    lines = [f"{done.session}: {what}{', read back' if done.read_back else ''}"]
    lines.append(f"  {done.url}/{done.manifest}")
    if done.changed:
        more = f" and {len(done.changed) - 5} more" if len(done.changed) > 5 else ""
        changed = ", ".join(done.changed[:5]) + more
        lines.append(f"  note: new or changed since, and not in the upload: {changed}")
    return "\n".join(lines)
