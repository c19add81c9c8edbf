"""Search for stores that were added to a packed sequence before it is packed again.

`SequenceWriter.extend` writes new components into separate stores, ``NAME.ncore4-GROUP.zarr`` or
``.itar``.  They are found by their names, because the JSON file that names them may be missing:
a run that is killed between two renames leaves no JSON file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from recorder.archives.ncore.format.manifest import (
    Manifest,
    StoreEntry,
    describe_store,
    read_manifest,
    store_md5,
)
from recorder.common.errors import ArchiveError, FormatError

_ENDING = re.compile(r"\.ncore4(-[^/]+)?\.zarr(\.itar)?\Z")


def find_extra_stores(
    folder: Path, name: str, sequence: Manifest, note: Callable[[str, str], None]
) -> list[StoreEntry]:
    """Return the existing extra stores of a sequence, with their MD5, for the new JSON file.

    Args:
        folder: the folder in which the sequence lies, or will lie.
        name: name of the sequence.
        sequence: the new sequence; an extra store must match it, or the loader cannot open both.
        note: called with a sentence about an irregularity, and the name of the file.

    Raises:
        ArchiveError: a store belongs to a sequence with another id, interval or metadata, or does
            not match the older JSON file; the message names the store and a remedy.
        StorageError: a store cannot be read.
    """
    named = _read_known_md5(folder, name, note)
    entries = []
    for path in _find_stores(folder, name, named):
        if not path.exists():
            note("is named by the older JSON file, and gone: not named by the new one", path.name)
            continue
        md5 = store_md5(path)
        if path.name in named and named[path.name] != md5:
            raise ArchiveError(
                f"{path}: has MD5 {md5}, not {named[path.name]} as in {name}.json: the store was "
                "changed; move it away, or restore it"
            )
        try:
            own, _ = describe_store(path, md5)
        except FormatError as error:
            if path.name in named:
                raise ArchiveError(f"{path}: is an added store of the sequence: {error}") from None
            note(f"is no store that could be named: {error}", path.name)
            continue
        _check(path, own, sequence)
        entries += own.stores
    return entries


def _read_known_md5(folder: Path, name: str, note: Callable[[str, str], None]) -> dict[str, str]:
    """Return the MD5 by store name, from the older JSON file."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return {}
    try:
        return {entry.path: entry.md5 for entry in read_manifest(path).stores}
    except FormatError as error:
        note(f"is no JSON file of a sequence, and replaced: {error}", path.name)
        return {}


def _find_stores(folder: Path, name: str, named: dict[str, str]) -> Iterator[Path]:
    """Yield stores of component groups, found by name; those in the older JSON file first."""
    own = {f"{name}.ncore4.zarr", f"{name}.ncore4.zarr.itar"}
    there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    beside = [n for n in there if n.startswith(f"{name}.ncore4-") and _ENDING.search(n)]
    yield from (folder / n for n in dict.fromkeys([*named, *sorted(beside)]) if n not in own)


def _check(path: Path, own: Manifest, sequence: Manifest) -> None:
    """Check that a store's root matches the sequence, as the loader requires."""
    problems = []
    if own.sequence_id != sequence.sequence_id:
        problems.append(f"sequence {own.sequence_id!r}, not {sequence.sequence_id!r}")
    if own.interval != sequence.interval:
        problems.append(f"interval {own.interval}, not {sequence.interval}")
    keys = own.metadata.keys() | sequence.metadata.keys()
    missing = object()
    differ = sorted(
        k for k in keys if own.metadata.get(k, missing) != sequence.metadata.get(k, missing)
    )
    if differ:
        problems.append(f"other metadata ({', '.join(differ)})")
    if problems:
        raise ArchiveError(
            f"{path}: was added to an older sequence and does not match the new one: "
            f"{'; '.join(problems)}; move it away, pack again, and add its components again"
        )
