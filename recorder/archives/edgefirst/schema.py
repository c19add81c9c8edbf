"""Columns of an EdgeFirst table, in the client's current schema and in the mission's schema.

The client writes ``2026.10``: 2026.04 of DATASET_FORMAT.md with ``ignore``, ``exclude``,
``truncation`` and ``occlusion``, and ``iscrowd`` as a mirror of ``ignore``.  ``mission`` is the
schema of the older document, which leaves further columns open: scores and the like are added to
it.  Rows are spooled in `spool_schema` until all rows are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recorder.common.errors import UsageError, need_extra
from recorder.formats.zip import zlib
from recorder.perception.label_facts import STAGES

try:
    import pyarrow as pa
    from pyarrow import compute, ipc
except ImportError:
    pa = compute = ipc = None

__all__ = [
    "ABSENT",
    "CURRENT",
    "EXTRA_TYPES",
    "INCOMPLETE",
    "MISSION",
    "STATUSES",
    "LabelFacts",
    "compute",
    "extend_spool",
    "extra_fields",
    "final_schema",
    "find_foreign",
    "ipc",
    "pa",
    "require_packages",
    "spool_schema",
    "to_final",
    "to_spool",
    "use_system_memory",
]

CURRENT, MISSION = "2026.10", "mission"
ABSENT, INCOMPLETE = ".absent", ".incomplete"
"""Columns of the spool only: the classes whose indices are lists of labels in the table."""
_LISTS = {"neg_label_indices": ABSENT, "not_exhaustive_label_indices": INCOMPLETE}
EXTRA_TYPES = ("text", "integer", "number", "bool")
"""Types of further columns; see `extra_fields`."""
STATUSES = ("valid", "edit")
"""Values of the column ``status`` in the mission's document."""
_OPEN = (
    "box2d_score", "box3d_score", "mask_score", "truncation", "occlusion", "category_frequency",
    *_LISTS, "timing",
)  # fmt: skip
"""Columns of the client's schema that are added to the mission's, which leaves columns open."""


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
    degrees; ``box3d`` centre, then extents along x, y, z in m; ``timing`` in ns.
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
            ("category_frequency", text),
            *((name, pa.large_list(pa.uint32())) for name in _LISTS),
            *((name, pa.large_list(text)) for name in _LISTS.values()),
            ("timing", pa.struct([(stage, pa.int64()) for stage in STAGES])),
        ]
    )


def find_foreign(schema: Any) -> list[Any]:
    """Return the fields of a table that its schema does not have: others added them.

    They are kept as they are, but for categories, which become text.  A ``timing`` with further
    stages is such a field, too.
    """
    own = {field.name: field.type for field in spool_schema()}
    return [
        pa.field(field.name, field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
        if field.name not in own or _has_more(field.type, own[field.name])
    ]


def extra_fields(extra: Mapping[str, str]) -> list[Any]:
    """Return the fields of further columns, whose types are given by name, as `EXTRA_TYPES`."""
    kinds = pa.string_view(), pa.int64(), pa.float64(), pa.bool_()
    known = dict(zip(EXTRA_TYPES, kinds, strict=True))
    return [pa.field(name, known[kind]) for name, kind in extra.items()]


def _has_more(kind: Any, own: Any) -> bool:
    """Return whether a struct has fields that our struct does not have."""
    if not (pa.types.is_struct(kind) and pa.types.is_struct(own)):
        return False
    return not {field.name for field in kind} <= {field.name for field in own}


def extend_spool(foreign: Sequence[Any]) -> Any:
    """Return the `spool_schema` with fields of `find_foreign`: pyarrow cannot filter views."""
    names = {field.name for field in foreign}
    added = [pa.field(field.name, _without_views(field.type)) for field in foreign]
    return pa.schema([*(field for field in spool_schema() if field.name not in names), *added])


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
    foreign: Sequence[Any] = (),
) -> Any:
    """Return the schema of the finished table.

    Args:
        kind: `CURRENT` or `MISSION`.
        present: names of the columns that contain a value.
        categories: values of the columns with categories.
        kept: fields of an older table, of the spool's types, for columns that the schema lacks.
        foreign: further fields, which replace those of the schema.
    """
    fields = _current_fields() if kind == CURRENT else _mission_fields(categories)
    names, others = {field.name for field in fields}, {field.name for field in foreign}
    own = [field for field in fields if field.name in present and field.name not in others]
    return pa.schema([*own, *(field for field in kept if field.name not in names), *foreign])


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
        _categorical("category_frequency", pa.uint8(), "cat_freq", "u8"),
    ]
    own = {field.name: field for field in changed}
    spooled = (field for field in spool_schema() if field.name not in _LISTS.values())
    return [own.get(field.name, field) for field in spooled]


def _mission_fields(categories: Mapping[str, Sequence[str]]) -> list[Any]:
    f32, f64 = pa.float32(), pa.float64()
    current = {field.name: field for field in _current_fields()}
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
        _enum("degradation", categories["degradation"]),
        _enum("status", categories["status"]),
        pa.field("object_id", pa.string_view()),
        pa.field("label_index", pa.uint64()),
        pa.field("size", pa.list_(pa.uint32(), 2)),
        *(current[name] for name in _OPEN),
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


@dataclass(frozen=True)
class LabelFacts:
    """Facts about labels that are known at the end.

    Attributes:
        indices: ``label_index`` by label, for rows without an index.
        frequencies: ``category_frequency`` by label, for rows without one.
    """

    indices: Mapping[str, int]
    frequencies: Mapping[str, str]


def to_final(batch: Any, schema: Any, values: Mapping[str, Any], facts: LabelFacts) -> Any:
    """Convert a batch of the spool to a table's schema.

    Args:
        batch: in `spool_schema`.
        schema: from `final_schema`.
        values: arrays of the categories of dictionary columns, the same in every call.
        facts: about all labels.
    """
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, known, kind in (
        ("label_index", facts.indices, pa.uint64()),
        ("category_frequency", facts.frequencies, pa.large_string()),
    ):
        given[name] = _look_up(given[name], given["label"], known, kind)
    for name, words in _LISTS.items():
        if given[words].null_count < batch.num_rows:
            rows = given[words].to_pylist()
            found = [None if row is None else [facts.indices[one] for one in row] for row in rows]
            given[name] = compute.coalesce(given[name], pa.array(found, given[name].type))
    if schema.field("name").type != pa.string_view():
        _to_mission(given)
    columns = []
    for field in schema:
        column = given[field.name]
        if pa.types.is_dictionary(field.type):
            places = compute.index_in(column, values[field.name].cast(pa.large_string()))
            places = places.cast(field.type.index_type)
            column = pa.DictionaryArray.from_arrays(
                places, values[field.name], ordered=field.type.ordered
            )
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.record_batch(columns, schema=schema)


def _look_up(column: Any, labels: Any, known: Mapping[str, Any], kind: Any) -> Any:
    """Return the column, with the value of the row's label where the column has none."""
    if not known:
        return column
    place = compute.index_in(labels, pa.array(known, pa.large_string()))
    return compute.coalesce(column, pa.array(known.values(), kind).take(place))


def _to_mission(given: dict[str, Any]) -> None:
    """Convert columns of the spool to the mission's: outlines are ``mask``, angles turn round."""
    given["mask"] = pa.array([flatten_polygon(rings) for rings in given["polygon"].to_pylist()])
    given["mask_score"] = compute.coalesce(given["polygon_score"], given["mask_score"])
    given["pose"] = _reorder(given["pose"], (2, 1, 0))
    given["location"] = _reorder(given["location"], (1, 0))


def to_spool(batch: Any, foreign: Sequence[Any]) -> Any:
    """Convert a batch in a table's schema to the schema of the spool.

    Args:
        batch: rows of a table.
        foreign: further fields, as `find_foreign` returns them; null where the table has none.
    """
    schema = extend_spool(foreign)
    mission = pa.types.is_dictionary(batch.schema.field("name").type)
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    if mission:
        if "mask" in given:
            rings = [split_polygon(flat) for flat in given.pop("mask").to_pylist()]
            given["polygon"] = pa.array(rings, schema.field("polygon").type)
        if "mask_score" in given:
            given["polygon_score"] = given.pop("mask_score")
        if "pose" in given:
            given["pose"] = _reorder(given["pose"], (2, 1, 0))
        if "location" in given:
            given["location"] = _reorder(given["location"], (1, 0))
    if "ignore" not in given and "iscrowd" in given:  # before 2026.10
        given["ignore"] = given["iscrowd"]
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
