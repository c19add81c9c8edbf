"""Search for the stores of a packed sequence before it is packed again.

`SequenceWriter.extend` writes new components into separate stores, ``NAME.ncore4-GROUP.zarr`` or
``.itar``.  They are found by their names, because the JSON file that names them may be missing:
a run that is killed between two renames leaves no JSON file.  Stores of groups that the packer made
itself have `GROUP` in the metadata of their components.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from recorder.archives.ncore.format.manifest import (
    Manifest,
    StoreEntry,
    describe_store,
    read_manifest,
    store_md5,
)
from recorder.common.errors import ArchiveError, FormatError

GROUP = "component_group"
"""Key of a component's generic metadata: name of its group, and the group's components."""
_ENDING = re.compile(r"\.ncore4(?:-(?P<group>[^/]+))?\.zarr(\.itar)?\Z")
_ENDINGS = (".zarr", ".zarr.itar")


def store_names(name: str, groups: Collection[str]) -> list[str]:
    """Return all names that the stores of a sequence's groups may have; "" is the main store."""
    return [
        f"{name}.ncore4{'-' if group else ''}{group}{ending}"
        for group in groups
        for ending in _ENDINGS
    ]


def find_group(store: str) -> str:
    """Return the group of a store by its name; "" for the main store."""
    match = _ENDING.search(store)
    return (match and match["group"]) or ""


def read_packed(folder: Path, name: str) -> Manifest | None:
    """Read a packed sequence from its JSON file; without a sound one, from its stores, without MD5.

    Returns:
        the sequence; None if there is neither.

    Raises:
        FormatError: a store is invalid; ArchiveError: the stores do not belong together.
    """
    if (path := folder / f"{name}.json").is_file():
        with suppress(FormatError):
            return read_manifest(path)
    there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    main = [store for store in store_names(name, [""]) if store in there]
    parts = [describe_store(folder / store, "")[0] for store in (*main, *_find_added(name, there))]
    for part in parts:
        if problems := find_differences(part, parts[0]):
            path = folder / part.stores[0].path
            raise ArchiveError(f"{path}: belongs to another sequence than the rest: {problems}")
        if part is not parts[0]:
            parts[0].stores += part.stores
    return parts[0] if parts else None


def find_own_groups(sequence: Manifest | None) -> dict[str, list[str]]:
    """Return the groups that the packer made, with their components."""
    found: dict[str, list[str]] = {}
    for entry in sequence.stores if sequence is not None else ():
        for instances in entry.components.values():
            for about in instances.values():
                known: Any = about["generic_meta_data"].get(GROUP)
                if isinstance(known, Mapping) and known.get("name") == find_group(entry.path):
                    found[known["name"]] = list(known["components"])
    return found


def find_extra_stores(
    folder: Path,
    name: str,
    sequence: Manifest,
    note: Callable[[str, str], None],
    groups: Collection[str] = ("",),
) -> list[StoreEntry]:
    """Return the existing extra stores of a sequence, with their MD5, for the new JSON file.

    Args:
        folder: the folder in which the sequence lies, or will lie.
        name: name of the sequence.
        sequence: the new sequence; an extra store must match it, or the loader cannot open both.
        note: called with a sentence about an irregularity, and the name of the file.
        groups: groups whose stores are packed again, and are no extra stores.

    Raises:
        ArchiveError: a store belongs to a sequence with another id, interval or metadata, or does
            not match the older JSON file; the message names the store and a remedy.
        StorageError: a store cannot be read.
    """
    named = _read_known_md5(folder, name, note)
    entries = []
    for path in _find_stores(folder, name, named, store_names(name, groups)):
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


def _find_stores(
    folder: Path, name: str, named: Collection[str], own: Collection[str]
) -> Iterator[Path]:
    """Yield stores of component groups, found by name; those in the older JSON file first."""
    there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    for store in dict.fromkeys([*named, *_find_added(name, there)]):
        if store not in own:
            yield folder / store


def _find_added(name: str, there: Collection[str]) -> list[str]:
    return sorted(n for n in there if n.startswith(f"{name}.ncore4-") and _ENDING.search(n))


def _check(path: Path, own: Manifest, sequence: Manifest) -> None:
    """Check that a store's root matches the sequence, as the loader requires."""
    if problems := find_differences(own, sequence):
        raise ArchiveError(
            f"{path}: was added to an older sequence and does not match the new one: "
            f"{problems}; move it away, pack again, and add its components again"
        )


def find_differences(own: Manifest, sequence: Manifest) -> str:
    """Describe what keeps a loader from reading two sequences as one; empty if nothing does."""
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
    return "; ".join(problems)
