"""What a forger without a key can do: write a session's journal anew, with all of its digests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from recorder.common.files import PosixDisk
from recorder.session.journal.digests import RunningDigest, digest
from recorder.session.journal.frames import FIRST, Frame, decode_frames, encode_frame
from recorder.session.journal.journal import JournalWriter, read_journal
from recorder.session.journal.state import JournalState

Change = Callable[[str, Any], Any]
"""Gives the content of a record, by its kind and its content; None leaves the record out."""


def without(kinds: Collection[str]) -> Change:
    """Leaves out records of some kinds."""
    return lambda kind, content: None if kind in kinds else content


_WITHOUT_SIGNATURES = without(("sign",))


def rewrite(
    session: Path, change: Change = _WITHOUT_SIGNATURES, data: Mapping[str, bytes] | None = None
) -> None:
    """Write a session's journal anew: every digest is right, and the chain is whole.

    Args:
        session: its folder, with the changed files.
        change: of its records: by default, signatures are left out, since none would fit; the
            record ``close`` gets the digest of ``session.json``.
        data: by path, the files that were changed, of the same length.
    """
    path = session / "_recorder/commits"
    old, state, out, link = JournalState(), JournalState(), b"", FIRST
    for frame in decode_frames(path.read_bytes()):
        content = old.take(frame)
        content = change(frame.kind, state.snapshot() if frame.kind == "snapshot" else content)
        if content is None:
            continue
        if frame.kind == "commit":
            content = state.compact(_digested(content, data or {}, old))
        if frame.kind == "close":
            header = (session / "_recorder/session.json").read_bytes()
            content = {**content, "session": digest(header), "root": state.tree.root}
        encoded = encode_frame(frame.kind, content, link)
        start, previous, link = len(out), link, digest(encoded)
        out += encoded
        state.take(Frame(start, len(out), frame.kind, content, previous, link))
    path.write_bytes(out)


def append(session: Path, kind: str, **content: Any) -> None:
    """Append a record to a session's journal."""
    path = session / "_recorder/commits"
    state = read_journal(path)
    writer = JournalWriter(PosixDisk().reopen(path, state.length), state)
    writer.append(kind, **content)
    writer.close()


def _digested(content: Any, data: Mapping[str, bytes], state: JournalState) -> Any:
    """A commit with the digests of the changed files."""
    leaves = []
    for path, leaf in content.get("leaves", ()):
        if path in data:
            running = RunningDigest(leaf.start, state.patchable.get(path, []))
            running.update(data[path][leaf.start : leaf.end])
            leaf = running.leaf()
        leaves.append((path, leaf))
    changed = {key: value for key, value in content.items() if key != "digest"}
    return changed | ({"leaves": leaves} if leaves else {})
