"""Columns of an EdgeFirst table, in the client's current schema and in the mission's schema.

The client writes ``2026.10``: 2026.04 of DATASET_FORMAT.md with ``ignore``, ``exclude``,
``truncation`` and ``occlusion``, and ``iscrowd`` as a mirror of ``ignore``.  ``mission`` is the
schema of the older document.  Rows are spooled in `spool_schema` until all rows are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recorder.common.errors import UsageError, need_extra
from recorder.formats.zip import zlib

try:
    import pyarrow as pa
    from pyarrow import compute, ipc
except ImportError:
    pa = compute = ipc = None

__all__ = [
    "CURRENT",
    "MISSION",
    "compute",
    "final_schema",
    "find_foreign",
    "ipc",
    "pa",
    "require_packages",
    "spool_fields",
    "spool_schema",
    "to_final",
    "to_spool",
    "use_system_memory",
]

CURRENT, MISSION = "2026.10", "mission"


def require_packages() -> None:
    """Raise a UsageError that names the extra if a package is not installed."""
    for package, name in ((pa, "pyarrow"), (zlib, "zlib-ng")):
        if package is None:
            raise UsageError(f"edgefirst: {need_extra('archives')}: no {name}")


def use_system_memory() -> None:
    """Make pyarrow take memory from the C library: its own pool keeps 60 MB of freed memory."""
    pa.set_memory_pool(pa.system_memory_pool())


def spool_schema() -> Any:
    """Return the schema of rows while they are spooled: all columns, categories as text.

    ``polygon``: rings of x, y; ``location`` latitude, longitude; ``pose`` yaw, pitch, roll in
    degrees; ``box3d`` centre, then extents along x, y, z in m.
    """
    text, f32, f64 = pa.large_string(), pa.float32(), pa.float64()
    return pa.schema(
        [
            ("name", text),
            ("frame", pa.uint32()),
            ("object_id", text),
            ("label", text),
            ("label_index", pa.uint64()),
            ("group", text),
            ("polygon", pa.large_list(pa.large_list(f32))),
            ("polygon_score", f32),
            ("box2d", pa.list_(f32, 4)),
            ("box2d_score", f32),
            ("box3d", pa.list_(f32, 6)),
            ("box3d_score", f32),
            ("mask", pa.large_binary()),
            ("mask_score", f32),
            ("size", pa.list_(pa.uint32(), 2)),
            ("location", pa.list_(f64, 2)),
            ("pose", pa.list_(f64, 3)),
            ("degradation", text),
            ("status", text),
            ("ignore", pa.bool_()),
            ("exclude", pa.bool_()),
            ("iscrowd", pa.bool_()),
            ("truncation", pa.uint32()),
            ("occlusion", pa.uint32()),
        ]
    )


def find_foreign(schema: Any) -> list[Any]:
    """Return the fields of a table that its schema does not have: others added them.

    They are kept as they are, but for categories, which become text.
    """
    own = {field.name for field in spool_schema()}
    return [
        pa.field(field.name, field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
        if field.name not in own
    ]


def spool_fields(foreign: Sequence[Any]) -> list[Any]:
    """Return the fields of `find_foreign` as they are spooled: pyarrow cannot filter views."""
    return [pa.field(field.name, _without_views(field.type)) for field in foreign]


def _without_views(kind: Any) -> Any:
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(_without_views(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_without_views(kind.value_type), kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_views(field.type)) for field in kind])
    return kind


def final_schema(
    kind: str,
    present: Sequence[str],
    categories: Mapping[str, Sequence[str]],
    kept: Sequence[Any] = (),
) -> Any:
    """Return the schema of the finished table.

    Args:
        kind: `CURRENT` or `MISSION`.
        present: names of the columns that contain a value.
        categories: values of ``label``, ``group`` and ``name``.
        kept: fields of an older table, which has them although its schema does not.
    """
    fields = _current_fields() if kind == CURRENT else _mission_fields(categories)
    own = [field for field in fields if field.name in present]
    names = {field.name for field in fields}
    return pa.schema([*own, *(field for field in kept if field.name not in names)])


def _current_fields() -> list[Any]:
    text, f32 = pa.string_view(), pa.float32()
    changed = [
        pa.field("name", text),
        pa.field("object_id", text),
        _categorical("label", pa.uint16(), "labels", "u16"),
        _categorical("group", pa.uint8(), "groups", "u8"),
        pa.field("mask", pa.binary_view()),
        pa.field("location", pa.list_(f32, 2)),
        pa.field("pose", pa.list_(f32, 3)),
        pa.field("degradation", text),
        pa.field("status", text),
    ]
    own = {field.name: field for field in changed}
    return [own.get(field.name, field) for field in spool_schema()]


def _mission_fields(categories: Mapping[str, Sequence[str]]) -> list[Any]:
    f32, f64 = pa.float32(), pa.float64()
    return [
        _categorical("name", pa.uint32(), "", "u32"),
        pa.field("frame", pa.uint64()),
        _enum("group", categories["group"]),
        _enum("label", categories["label"]),
        pa.field("mask", pa.large_list(f32)),
        pa.field("box2d", pa.list_(f32, 4)),
        pa.field("box3d", pa.list_(f32, 6)),
        pa.field("location", pa.list_(f64, 2)),
        pa.field("pose", pa.list_(f64, 3)),
        _enum("degradation", ("low", "medium", "high")),
        pa.field("status", pa.string_view()),
        pa.field("object_id", pa.string_view()),
        pa.field("label_index", pa.uint64()),
        pa.field("size", pa.list_(pa.uint32(), 2)),
    ]


def _categorical(name: str, index: Any, space: str, physical: str) -> Any:
    """Return a dictionary field that polars reads as a Categorical of that physical type."""
    encoded = "".join(f"{len(part)};{part}" for part in (space, space)) + f"{physical};"
    kind = pa.dictionary(index, pa.string_view())
    return pa.field(name, kind, metadata={"_PL_CATEGORICAL2": encoded})


def _enum(name: str, values: Sequence[str]) -> Any:
    """Return a dictionary field that polars reads as an Enum of these values."""
    index = pa.uint8() if len(values) < 256 else pa.uint16()
    encoded = "".join(f"{len(value.encode())};{value}" for value in values)
    kind = pa.dictionary(index, pa.string_view(), ordered=True)
    return pa.field(name, kind, metadata={"_PL_ENUM_VALUES2": encoded})


def to_final(batch: Any, schema: Any, values: Mapping[str, Any], indices: Any) -> Any:
    """Convert a batch of the spool to a table's schema.

    Args:
        batch: in `spool_schema`.
        schema: from `final_schema`.
        values: arrays of the categories of dictionary columns, the same in every call.
        indices: label to ``label_index``, for rows without an index.
    """
    mission = schema.field("name").type != pa.string_view()
    columns = []
    for field in schema:
        column = batch.column(field.name)
        if field.name == "label_index":
            column = _label_indices(batch, indices)
        elif mission and field.name == "mask":
            column = pa.array([flatten_polygon(rings) for rings in batch["polygon"].to_pylist()])
        elif mission and field.name == "pose":
            column = _reorder(column, (2, 1, 0))
        elif mission and field.name == "location":
            column = _reorder(column, (1, 0))
        if pa.types.is_dictionary(field.type):
            places = compute.index_in(column, values[field.name].cast(pa.large_string()))
            places = places.cast(field.type.index_type)
            column = pa.DictionaryArray.from_arrays(
                places, values[field.name], ordered=field.type.ordered
            )
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.record_batch(columns, schema=schema)


def to_spool(batch: Any, foreign: Sequence[Any]) -> Any:
    """Convert a batch in a table's schema to the schema of the spool.

    Args:
        batch: rows of a table.
        foreign: the table's further fields, as `find_foreign` returns them.
    """
    schema = pa.schema([*spool_schema(), *spool_fields(foreign)])
    mission = pa.types.is_dictionary(batch.schema.field("name").type)
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    if mission:
        if "mask" in given:
            rings = [split_polygon(flat) for flat in given.pop("mask").to_pylist()]
            given["polygon"] = pa.array(rings, schema.field("polygon").type)
        if "pose" in given:
            given["pose"] = _reorder(given["pose"], (2, 1, 0))
        if "location" in given:
            given["location"] = _reorder(given["location"], (1, 0))
    columns = []
    for field in schema:
        column = given.get(field.name)
        if column is None:
            column = pa.nulls(batch.num_rows, field.type)
        if pa.types.is_dictionary(column.type):
            words = column.dictionary.cast(field.type)  # few functions support string views
            column = pa.DictionaryArray.from_arrays(column.indices, words).dictionary_decode()
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.record_batch(columns, schema=schema)


def _label_indices(batch: Any, indices: Mapping[str, int]) -> Any:
    place = compute.index_in(batch["label"], pa.array(indices, pa.large_string()))
    known = pa.array(indices.values(), pa.uint64())
    return compute.coalesce(batch["label_index"], known.take(place))


def _reorder(column: Any, order: Sequence[int]) -> Any:
    rows = column.to_pylist()
    return pa.array([None if r is None else [r[i] for i in order] for r in rows], column.type)


def flatten_polygon(rings: Sequence[Sequence[float]] | None) -> list[float] | None:
    """Concatenate rings, separated by NaN."""
    if rings is None:
        return None
    flat: list[float] = []
    for ring in rings:
        flat += [float("nan"), *ring] if flat else ring
    return flat


def split_polygon(flat: Sequence[float] | None) -> list[list[float]] | None:
    """Split a polygon of `flatten_polygon` into its rings."""
    if flat is None:
        return None
    rings: list[list[float]] = [[]]
    for value in flat:
        if value != value:
            rings.append([])
        else:
            rings[-1].append(value)
    return [ring for ring in rings if ring]
