"""Rows of the table of an EdgeFirst dataset of any writer, Arrow or Parquet.

::

    table = ImportedTable(root)
    for row in table.rows({"seq"}):
        row["frame"], row["box2d"]
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from recorder.archives.edgefirst.schema import ipc, pa, require_packages, split_polygon
from recorder.common.errors import FormatError
from recorder.formats.edgefirst.files import find_table

_ROWS: Final = 4096
_INDEX: Final = "recorder"
Row = Mapping[str, Any]


class ImportedTable:
    """Reader of a table.

    Args:
        root: folder of the dataset.

    Attributes:
        metadata: texts of the file.
        columns: names of the columns.

    Raises:
        FormatError: the file is no table.
        UsageError: pyarrow is not installed.
    """

    def __init__(self, root: Path) -> None:
        require_packages()
        path = find_table(root)
        assert path is not None
        self.path = path
        try:
            schema, more = self._read_schema()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise FormatError(f"{path}: is no table: {error}") from None
        stored = dict(schema.metadata or {}) | dict(more or {})
        self.metadata = {
            key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for key, value in stored.items()
        }
        self.columns: Sequence[str] = schema.names
        if "name" not in self.columns:
            raise FormatError(f"{path}: has no column name")
        self._mission = pa.types.is_dictionary(schema.field("name").type)

    def _read_schema(self) -> tuple[Any, Any]:
        if self.path.suffix == ".parquet":
            file = self._open_parquet()
            return file.schema_arrow, file.metadata.metadata
        with pa.OSFile(str(self.path)) as source:
            return ipc.open_file(source).schema, None

    def _open_parquet(self) -> Any:
        return importlib.import_module("pyarrow.parquet").ParquetFile(self.path)

    def _batches(self) -> Iterator[Any]:
        if self.path.suffix == ".parquet":
            yield from self._open_parquet().iter_batches(_ROWS)
            return
        with pa.OSFile(str(self.path)) as source:
            reader = ipc.open_file(source)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                batch.validate(full=True)
                for at in range(0, batch.num_rows, _ROWS):
                    yield batch.slice(at, _ROWS)

    def rows(self, sequences: Mapping[str, Any]) -> Iterator[Row]:
        """Yield the rows of some sequences, in one form whatever the schema.

        ``polygon``: rings of x, y; ``mask``: an image's bytes; ``pose``: yaw, pitch, roll.

        Raises:
            FormatError: the table is damaged.
        """
        try:
            for batch in self._batches():
                for row in batch.to_pylist():
                    if row["name"] in sequences:
                        yield self._convert(row)
        except (OSError, ValueError, TypeError, pa.ArrowException) as error:
            raise FormatError(f"{self.path}: is damaged: {error}") from None

    def _convert(self, row: dict[str, Any]) -> Row:
        if isinstance(row.get("mask"), list):  # of the mission's schema and older ones
            row["polygon"] = split_polygon(row.pop("mask"))
        if self._mission and row.get("pose") is not None:
            row["pose"] = row["pose"][::-1]
        return row

    def recordings(self) -> list[dict[str, Any]]:
        """Return what this recorder's packer says of its sessions."""
        try:
            entries = json.loads(self.metadata.get(_INDEX) or "{}").get("sessions", [])
            return [
                entry
                for entry in entries
                if isinstance(entry["base"], str) and isinstance(entry["sequences"], dict)
            ]
        except (ValueError, AttributeError, KeyError, TypeError):
            return []
