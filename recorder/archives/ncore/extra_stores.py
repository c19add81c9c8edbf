"""Stores that were added to a packed sequence, and are there when it is packed again.

`SequenceWriter.extend` puts new components into stores of their own, ``NAME.ncore4-GROUP.zarr``
or ``.itar``.  They are found by their names: between two renames of a run that was killed there
may be no JSON file to name them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from recorder.archives import ArchiveError
from recorder.archives.ncore.manifest import (
    Manifest,
    StoreEntry,
    describe_store,
    read_manifest,
    store_md5,
)
from recorder.contract.errors import FormatError

_ENDING = re.compile(r"\.ncore4(-[^/]+)?\.zarr(\.itar)?\Z")


def find_extra_stores(
    folder: Path, name: str, sequence: Manifest, say: Callable[[str, str], None]
) -> list[StoreEntry]:
    """The stores beside a sequence that is packed again, with their MD5, for its new JSON file.

    Args:
        folder: where the sequence lies, or is going to lie.
        name: of the sequence.
        sequence: the new one; an added store is of the same, or it cannot be opened with it.
        say: is told what is odd: the sentence, and the file that it is about.

    Raises:
        ArchiveError: a store is of a sequence with another id, interval or metadata, or is not
            what the older JSON file says; names it, and what to do.
        StorageError: it cannot be read.
    """
    named = _named(folder, name, say)
    entries = []
    for path in _found(folder, name, named):
        if not path.exists():
            say("is named by the older JSON file, and gone: not named by the new one", path.name)
            continue
        md5 = store_md5(path)
        if path.name in named and named[path.name] != md5:
            raise ArchiveError(
                f"{path}: has MD5 {md5}, not {named[path.name]}, which {name}.json says of it: it "
                "was changed; move it away, or put it right"
            )
        try:
            own, _ = describe_store(path, md5)
        except FormatError as error:
            if path.name in named:
                raise ArchiveError(f"{path}: was added to the sequence: {error}") from None
            say(f"is no store that could be named: {error}", path.name)
            continue
        _check(path, own, sequence)
        entries += own.stores
    return entries


def _named(folder: Path, name: str, say: Callable[[str, str], None]) -> dict[str, str]:
    """MD5 by name, of the older JSON file."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return {}
    try:
        return {entry.path: entry.md5 for entry in read_manifest(path).stores}
    except FormatError as error:
        say(f"is no JSON file of a sequence, and replaced: {error}", path.name)
        return {}


def _found(folder: Path, name: str, named: dict[str, str]) -> Iterator[Path]:
    """Stores of component groups by their names, those of the older JSON file first."""
    own = {f"{name}.ncore4.zarr", f"{name}.ncore4.zarr.itar"}
    there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    beside = [n for n in there if n.startswith(f"{name}.ncore4-") and _ENDING.search(n)]
    yield from (folder / n for n in dict.fromkeys([*named, *sorted(beside)]) if n not in own)


def _check(path: Path, own: Manifest, sequence: Manifest) -> None:
    """The loader wants the same in the root of every store."""
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
            f"{path}: was added to an older sequence, and does not fit the new one: "
            f"{'; '.join(problems)}; move it away, pack again, and add its components anew"
        )
