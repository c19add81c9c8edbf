"""Catalog as a Parquet file, which DuckDB, pandas, polars and Spark read.

Times are ``timestamp[us, UTC]``; streams, marks and events are lists of structs, so that

    SELECT session, s.name, s.samples FROM 'catalog.parquet', UNNEST(streams) AS t(s)

works as it stands.  The extra ``archives`` brings pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from recorder.common.errors import FormatError, StorageError, UsageError, need_extra
from recorder.common.files import PosixDisk
from recorder.common.struct_codec import prepare_type
from recorder.fleet.catalog.rows import Row

CATALOG: Final = "catalog.parquet"
"""Name of the catalog file in its root."""
VERSION: Final = "2"

_VERSION_KEY: Final = b"recorder.catalog"
_TIMES: Final = {"start_ns": "start", "end_ns": "end"}
_US: Final = 1000


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows; the file replaces an older one when it is complete.

    Raises:
        UsageError: pyarrow is not installed.
        StorageError: the file cannot be written.
    """
    pa = _arrow()
    from pyarrow import parquet

    table = pa.Table.from_pylist([_to_record(row) for row in rows], schema=_schema(pa))
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd", write_page_checksum=True)
    try:
        PosixDisk().write_file(path, sink.getvalue())
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error


def read_table(path: Path) -> list[Row]:
    """Read the rows of a catalog.

    Raises:
        UsageError: pyarrow is not installed.
        FormatError: the file is not a catalog of this version, or is damaged.
    """
    pa = _arrow()
    from pyarrow import parquet

    try:
        table = parquet.read_table(path, page_checksum_verification=True)
        version = (table.schema.metadata or {}).get(_VERSION_KEY)
        if version != VERSION.encode():
            raise FormatError(f"{path}: is no catalog of this version")
        plain = pa.schema([pa.field(f.name, _strip_time_type(pa, f.type)) for f in table.schema])
        return [_to_row(record) for record in table.cast(plain).to_pylist()]
    except (pa.ArrowException, msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        text = str(error).partition("\n")[0]
        raise FormatError(f"{path}: is no catalog: {text}") from None
    except OSError as error:  # of Arrow, also for a damaged page
        text = (error.strerror or str(error)).partition("\n")[0]
        raise FormatError(f"{path}: cannot be read: {text}") from None


def _arrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UsageError(f"the catalog {need_extra('archives')}: {error}") from None
    return pa


def _schema(pa: Any) -> Any:
    text, count, time = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")
    stream = pa.struct(
        [
            *(("name", text), ("samples", count), ("rate_hz", pa.float64())),
            *(("seconds", pa.float64()), ("bytes", count), ("lost", count)),
            *(("lost_intervals", count), ("incomplete", count), ("incomplete_parts", count)),
        ]
    )
    event = [("id", text), ("time", time), ("text", text), ("trigger", text), ("state", text)]
    place = [(side, pa.float64()) for side in ("south", "west", "north", "east")]
    fields = [
        *(("session", text), ("location", text), ("recording", text), ("part", pa.int32())),
        *(("state", text), ("live", pa.bool_()), ("start", time), ("end", time)),
        *(("duration_s", pa.float64()), ("vehicle", text), ("host", text), ("software", text)),
        *(("metadata", pa.map_(text, text)), ("bytes", count), ("streams", pa.list_(stream))),
        ("marks", pa.list_(pa.struct([("time", time), ("text", text)]))),
        *(("events", pa.list_(pa.struct(event))), ("lost", count), ("lost_intervals", count)),
        *(("incomplete", count), ("verdict", text), ("reasons", pa.list_(text))),
        *(("faults", count), ("ended", text), ("place", pa.struct(place))),
        *(("archives", pa.list_(text)), ("problem", text), ("stamp", text)),
    ]
    return pa.schema(fields, metadata={_VERSION_KEY: VERSION.encode()})


def _to_record(row: Row) -> dict[str, Any]:
    """Convert a row to the names and types of the table."""
    values: dict[str, Any] = msgspec.to_builtins(row)
    for ours, theirs in _TIMES.items():
        values[theirs] = _to_us(values.pop(ours))
    for name in ("marks", "events"):
        values[name] = [{**each, "time": _to_us(each["t_ns"])} for each in values[name]]
    values["metadata"] = list(row.metadata.items())
    return values


def _to_row(record: dict[str, Any]) -> Row:
    """Convert a record of the table to a row."""
    for ours, theirs in _TIMES.items():
        record[ours] = _to_ns(record.pop(theirs))
    for name in ("marks", "events"):
        record[name] = [{**each, "t_ns": _to_ns(each["time"])} for each in record[name]]
    record["metadata"] = dict(record["metadata"])
    return msgspec.convert(record, prepare_type(Row))


def _to_us(t_ns: int | None) -> int | None:
    return None if t_ns is None else t_ns // _US


def _to_ns(t_us: int | None) -> int | None:
    return None if t_us is None else t_us * _US


def _strip_time_type(pa: Any, kind: Any) -> Any:
    """Return a type in which times are integers, epoch us."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(_strip_time_type(pa, kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _strip_time_type(pa, f.type)) for f in kind])
    return kind
