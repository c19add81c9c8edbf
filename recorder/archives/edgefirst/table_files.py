"""Files of tables: Arrow IPC, and Parquet, which DuckDB and other tools read.

::

    with TableFile(find_table(root)) as file:
        file.schema, file.metadata
        for batch in file.batches():
            ...
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from recorder.archives.edgefirst.schema import ipc, pa
from recorder.common.files import Closeable

ARROW, PARQUET = ".arrow", ".parquet"
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
