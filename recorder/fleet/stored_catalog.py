"""Catalog of a store: manifests hold the rows, and known manifests are not read again."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from recorder.common.errors import RecorderError
from recorder.common.struct_codec import prepare_type
from recorder.fleet.catalog.catalog import KnownRows, Update
from recorder.fleet.catalog.rows import Row
from recorder.fleet.catalog.table import write_table
from recorder.fleet.encryption import Identity
from recorder.fleet.store.base import Store
from recorder.fleet.store.manifest import Manifest, list_manifests, session_manifest

_READERS: Final = 16  # manifests that are read at a time


def catalog_store(store: Store, out: Path, identity: Identity | None = None) -> Update:
    """Write the catalog of all sessions in a store.

    A session's archives are its own archives and those that a cluster packed into the same store.

    Args:
        store: the store.
        out: the file.
        identity: decrypts the rows of encrypted sessions; None: only their public values.

    Raises:
        UsageError: pyarrow is not installed.
        StorageError: the store cannot be read, or the file cannot be written.
    """
    known = KnownRows.read(out).rows
    sizes: dict[str, int] = {}
    archives: dict[str, list[str]] = defaultdict(list)
    for name, archive, size in list_manifests(store):
        if archive:
            archives[name].append(archive)
        else:
            sizes[name] = size
    rows, new = [], []
    for name in sorted(sizes):
        opened = "" if identity is None else " opened"  # a decrypted row has more values
        text = f"{sizes[name]} {' '.join(sorted(archives[name]))}{opened}"
        stamp = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
        row = known.get(f"{store.url}/{name}")
        if row is not None and row.stamp == stamp:
            rows.append(row)
        else:
            new.append((name, stamp))
    with ThreadPoolExecutor(_READERS) as pool:
        rows += pool.map(partial(_read_row, store, archives, identity), new)
    rows.sort(key=lambda row: row.location)
    write_table(out, rows)
    gone = len(known.keys() - {row.location for row in rows})
    return Update(out, tuple(rows), len(new), len(rows) - len(new), gone)


def _read_row(
    store: Store,
    archives: dict[str, list[str]],
    identity: Identity | None,
    new: tuple[str, str],
) -> Row:
    name, stamp = new
    location, key = f"{store.url}/{name}", session_manifest(name)
    try:
        manifest = Manifest.read(store, key)
        if identity is not None and manifest.sealed:
            plain = identity.decrypt_bytes(manifest.sealed, f"{store.url}/{key}")
            row = msgspec.json.decode(plain, type=prepare_type(Row))
        else:
            row = msgspec.convert(manifest.about, prepare_type(Row))
    except (RecorderError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Row(session=name, location=location, recording=name, part=0, problem=str(error))
    made = dict.fromkeys([*row.archives, *sorted(archives[name])])
    return msgspec.structs.replace(row, location=location, stamp=stamp, archives=tuple(made))
