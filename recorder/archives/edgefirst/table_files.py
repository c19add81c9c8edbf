"""Tables that exist: files of Arrow IPC, and of Parquet, which DuckDB and other tools read.

::

    table = ExistingTable.read(find_table(root))
    for batch in table.batches():     # in the schema of the spool
        ...
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from recorder.archives.edgefirst.schema import (
    CURRENT,
    MISSION,
    find_foreign,
    ipc,
    pa,
    to_spool,
)
from recorder.common.errors import ArchiveError
from recorder.common.files import Closeable

ARROW, PARQUET = ".arrow", ".parquet"
LABELS = "label_indices"
"""Entry of a mission file's metadata: index by label; other files use ``category_metadata``."""
Entries = TypeVar("Entries", dict[str, Any], list[Any])
_ROWS = 4096
"""Number of rows that are read at once from a Parquet file, whose groups may be large."""
_ARROW_SCHEMA = "ARROW:schema"
"""Entry of a Parquet file's metadata that is not the user's."""


def find_table(root: Path) -> Path:
    """Return the place of a dataset's table: ``NAME.parquet`` if that is the only one there."""
    places = [root / f"{root.name}{ending}" for ending in (ARROW, PARQUET)]
    return next((place for place in places if place.is_file()), places[0])


class TableFile(Closeable):
    """Reader of a table's file.

    Opening and reading raise OSError, ValueError or pyarrow's ArrowException where it is damaged.

    Attributes:
        schema: the schema, as pyarrow's.
        metadata: metadata of the file.
    """

    def __init__(self, path: Path) -> None:
        self._stack = ExitStack()
        with ExitStack() as stack:
            source = stack.enter_context(pa.OSFile(str(path)))
            self._parquet = path.suffix == PARQUET
            if self._parquet:  # imported only here: it holds 7 MB
                self._reader = importlib.import_module("pyarrow.parquet").ParquetFile(source)
                self.schema = self._reader.schema_arrow
                stored = self._reader.metadata.metadata
            else:
                self._reader = ipc.open_file(source)
                self.schema, stored = self._reader.schema, None
            stored = (self.schema.metadata or {}) | (stored or {})
            entries = {key.decode(): value.decode() for key, value in stored.items()}
            entries.pop(_ARROW_SCHEMA, None)
            self.metadata: dict[str, str] = entries
            self._stack = stack.pop_all()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the rows; of a Parquet file, only the named columns are read."""
        if self._parquet:
            yield from self._reader.iter_batches(_ROWS, columns=columns)
            return
        for number in range(self._reader.num_record_batches):
            yield self._reader.get_batch(number)

    def close(self) -> None:
        self._stack.close()


@dataclass(frozen=True)
class ExistingTable:
    """Metadata of an older table.

    Attributes:
        schema: `CURRENT` or `MISSION`.
        metadata: metadata of the file.
        columns: names of the columns.
        path: path of the file.
        sequences: names of all samples' sequences.
        foreign: the fields that others added, which are kept.
        obstacle: the reason why the table cannot be extended; None if it can.
    """

    schema: str
    metadata: dict[str, str]
    columns: tuple[str, ...]
    path: Path
    sequences: frozenset[str] = frozenset()
    foreign: tuple[Any, ...] = ()
    obstacle: str | None = None

    @classmethod
    def read(cls, path: Path) -> ExistingTable:
        """Read the metadata of a table that is to be extended.

        Raises:
            ArchiveError: it is no table, or cannot be extended.
        """
        table = cls.inspect(path)
        if table.obstacle is not None:
            raise ArchiveError(table.obstacle)
        return table

    @classmethod
    def inspect(cls, path: Path) -> ExistingTable:
        """Read the metadata of any table; raise an ArchiveError if the file is no table."""
        try:
            with TableFile(path) as file:
                found, metadata = file.schema, file.metadata
                names = frozenset(_names(file)) if "name" in found.names else frozenset()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ArchiveError(f"{path}: is no table: {error}") from None
        if "name" not in found.names:
            raise ArchiveError(f"{path}: has no column name")
        kind = found.field("name").type
        if not all(isinstance(name, str) for name in names):
            raise ArchiveError(f"{path}: its names are of type {kind}")
        known = metadata, tuple(found.names), path, names, tuple(find_foreign(found))
        if pa.types.is_dictionary(kind):
            return cls(MISSION, *known)
        version = metadata.get("schema_version") or _guess_version(found)
        obstacle = None
        if version < "2026.04":
            obstacle = (
                f"{path}: cannot be extended: its schema is {version}; "
                "edgefirst-client migrate converts it"
            )
        return cls(CURRENT if obstacle is None else version, *known, obstacle)

    def entry(self, key: str, kind: type[Entries]) -> Entries:
        """Return a JSON entry of the metadata; an empty value if the entry is missing.

        Raises:
            ArchiveError: the entry is not JSON, or of another type; the message names the file.
        """
        try:
            value = json.loads(self.metadata.get(key) or "null")
        except ValueError as error:
            raise ArchiveError(f"{self.path}: metadata {key}: not JSON: {error}") from None
        if value is None:
            return kind()
        if not isinstance(value, kind):
            raise ArchiveError(
                f"{self.path}: metadata {key}: a {type(value).__name__}, not a {kind.__name__}"
            )
        return value

    def label_indices(self) -> dict[str, int | None]:
        """Return the index by label; raise an ArchiveError for an invalid index."""
        indices: dict[str, Any] = {}
        for label, about in self.entry("category_metadata", dict).items():
            if not isinstance(about, dict):
                raise ArchiveError(
                    f"{self.path}: metadata category_metadata: {label!r}: not a mapping"
                )
            indices[label] = about.get("id")
        indices |= self.entry(LABELS, dict)
        for label, index in indices.items():
            if index is not None and (type(index) is not int or index < 0):
                raise ArchiveError(f"{self.path}: metadata: label {label!r} has index {index!r}")
        return indices

    def read_batches(self) -> Iterator[Any]:
        """Yield the rows as they are stored; raise an ArchiveError if they are damaged."""
        with TableFile(self.path) as file:
            batches = file.batches()
            while True:
                try:
                    batch = next(batches, None)
                    if batch is None:
                        return
                    batch.validate(full=True)
                except (OSError, ValueError, pa.ArrowException) as error:
                    raise ArchiveError(f"{self.path}: is damaged: {error}") from None
                yield batch

    def batches(self, further: Sequence[Any] | None = None) -> Iterator[Any]:
        """Yield the rows in `extend_spool` of further fields, by default the foreign ones.

        Raises:
            ArchiveError: the rows are damaged, or a column is of another type than the schema's.
        """
        for batch in self.read_batches():
            try:
                yield to_spool(batch, self.foreign if further is None else further)
            except (ValueError, TypeError, pa.ArrowException) as error:
                raise ArchiveError(f"{self.path}: cannot be extended: {error}") from None


def _guess_version(schema: Any) -> str:
    """Return the schema's version where the metadata have none, as the client reads such tables.

    The client's ``generate-arrow`` writes no version.
    """
    mask = schema.field("mask").type if "mask" in schema.names else None
    is_binary = mask is None or mask in (pa.binary(), pa.large_binary(), pa.binary_view())
    return "2026.04" if is_binary else "2025.10"


def _names(file: TableFile) -> Iterator[str]:
    """Yield values of the column ``name``; a value may repeat."""
    for batch in file.batches(["name"]):
        column = batch.column("name")
        if pa.types.is_dictionary(column.type):
            column = column.dictionary
        yield from set(column.to_pylist()) - {None}
