"""Table of a dataset: one row per sample and annotation, in bounded memory.

::

    with Table(folder, CURRENT) as table:
        table.keep(ExistingTable.read(old), dropped={"seq_to_replace"})
        table.add(sample, annotations)        # Sample, Sequence[Annotation]
        table.finish(folder / "name.arrow", {"recorder": "..."})

Rows are spooled in a separate file, because the labels and the columns with a value are known only
at the end.  A column without a value is left out.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from recorder.archives.edgefirst.samples import TRAIN, VAL
from recorder.archives.edgefirst.schema import (
    ABSENT,
    CURRENT,
    INCOMPLETE,
    MISSION,
    STATUSES,
    LabelFacts,
    compute,
    extend_spool,
    extra_fields,
    final_schema,
    ipc,
    pa,
    spool_schema,
    to_final,
)
from recorder.archives.edgefirst.table_files import LABELS, ExistingTable
from recorder.common.errors import ArchiveError
from recorder.common.files import Closeable, make_empty

ROWS = 4096
"""Largest number of rows of a batch."""
MASK_BYTES = 16 << 20
"""Bytes of masks after which a batch ends."""
MOST_LABELS, MOST_GROUPS = 0xFFFF, 0xFF
LARGEST_LISTED = 0xFFFFFFFF
_ALWAYS = ("name", "frame")


@dataclass(slots=True)
class Sample:
    """Values that all rows of a sample share; attributes are columns of `spool_schema`.

    Attributes:
        degradation: of rows that have none of their own.
        absent, incomplete: classes of which the picture has no object, or unlabelled objects.
        extra: values of further columns, by name; those of a row come first.
    """

    name: str
    frame: int
    group: str | None = None
    size: tuple[int, int] | None = None
    location: Sequence[float] | None = None
    pose: Sequence[float] | None = None
    degradation: str | None = None
    timing: Mapping[str, int] | None = None
    absent: Sequence[str] | None = None
    incomplete: Sequence[str] | None = None
    extra: Mapping[str, Any] | None = None


@dataclass(slots=True, eq=False)
class Annotation:
    """Values of one row; several samples may share an annotation.

    Attributes are columns of `spool_schema`; polygons and boxes of pictures are shares of the
    picture's size.  ``extra`` holds values of further columns, by name.
    """

    object_id: str | None = None
    label: str | None = None
    polygon: list[list[float]] | None = None
    box2d: Sequence[float] | None = None
    box3d: Sequence[float] | None = None
    mask: bytes | None = None
    polygon_score: float | None = None
    mask_score: float | None = None
    box2d_score: float | None = None
    box3d_score: float | None = None
    degradation: str | None = None
    status: str | None = None
    ignore: bool | None = None
    exclude: bool | None = None
    truncation: int | None = None
    occlusion: int | None = None
    extra: Mapping[str, Any] | None = None

    def add_box(self, box: Annotation) -> None:
        """Add the box in space of the same object; what the picture's label states stays."""
        self.box3d, self.box3d_score = box.box3d, box.box3d_score
        for name in ("degradation", "status", "truncation", "occlusion"):
            if getattr(self, name) is None:
                setattr(self, name, getattr(box, name))
        if box.extra is not None:
            self.extra = {**box.extra, **(self.extra or {})}


GEOMETRIES = ("polygon", "mask", "box2d", "box3d")
"""Columns with geometries; each may have a score, in ``NAME_score``."""
_SAMPLE = {one.name: one.name for one in fields(Sample)}
_SAMPLE |= {ABSENT: _SAMPLE.pop("absent"), INCOMPLETE: _SAMPLE.pop("incomplete")}
_ANNOTATION = {one.name: one.name for one in fields(Annotation)} | {"iscrowd": "ignore"}
"""Attribute by column; the column ``iscrowd`` is a deprecated mirror of ``ignore``."""
_NOTHING = (Annotation(),)
REGION = "ignore."
"""Prefix of the label of a region to ignore, in the mission's schema."""


class Table(Closeable):
    """Writer of the rows of a table.

    Args:
        folder: folder of the file in which rows are spooled.
        kind: the schema, `CURRENT` or `MISSION`.
        extra: types of further columns, by name: a key of `EXTRA_TYPES`.
    """

    def __init__(self, folder: Path, kind: str, extra: Mapping[str, str] | None = None) -> None:
        self._kind, self._extra = kind, dict(extra or {})
        self._path = folder / ".rows"
        self._set_schema(())
        self._samples: list[Sample] = []
        self._counts: list[int] = []  # number of rows of each sample
        self._annotations: list[Annotation] = []  # annotation of each row
        make_empty(self._path)
        self._writer: Any = None  # the schema is known when the first rows are written
        self._present = set(_ALWAYS)
        self._labels: dict[str, int | None] = {}
        self._categories: dict[str, dict[str, Any]] = {}
        self._groups: set[str] = set()
        self._statuses: set[str] = set()
        self._sequences: dict[str, None] = {}
        self._old: ExistingTable | None = None
        self._mask_bytes = 0  # bytes of masks in the rows not yet written
        self.count = 0

    def _set_schema(self, foreign: Sequence[Any]) -> None:
        """Choose the spool's schema: the columns of an older table keep their types."""
        known = {field.name for field in foreign}
        added = extra_fields(self._extra)
        self._foreign = [*foreign, *(field for field in added if field.name not in known)]
        self._schema = extend_spool(self._foreign)

    def keep(self, old: ExistingTable, dropped: Collection[str]) -> None:
        """Copy the rows of an older table, except those of some sequences; call before `add`.

        Columns that others added stay, with their values; new rows have none there.

        Raises:
            ArchiveError: the table is damaged, or cannot be extended.
        """
        self._old = old
        self._set_schema(self._old.foreign)
        self._labels |= self._old.label_indices()
        for label, about in self._old.entry("category_metadata", dict).items():
            self._categories[label] = dict(about)
        dropped_names = pa.array(sorted(dropped), pa.large_string())
        for batch in self._old.batches(self._foreign):
            kept = batch.filter(compute.invert(compute.is_in(batch["name"], dropped_names)))
            pairs = zip(kept["label"].to_pylist(), kept["label_index"].to_pylist(), strict=True)
            for label, index in dict.fromkeys(pairs):
                if label is not None and self._labels.get(label) is None:
                    self._labels[label] = index
            self._write(kept)

    def add_categories(self, categories: Mapping[str, Mapping[str, Any]], where: str) -> None:
        """Add what is known of classes: ``id``, which is the label's index, and other entries.

        Args:
            categories: entries by label, as the client's ``category_metadata``.
            where: the file that states them.

        Raises:
            ArchiveError: something else is known already, or an id is that of another label.
        """
        for label, about in categories.items():
            known = self._categories.setdefault(label, {})
            if (index := self._labels.get(label)) is not None:
                known.setdefault("id", index)
            for key, value in about.items():
                if (other := known.setdefault(key, value)) != value:
                    raise ArchiveError(
                        f"{where}: categories.{label}.{key}: {value!r}, but the dataset "
                        f"has {other!r}"
                    )
            index = self._labels[label] = known.get("id")
            for other, its in self._labels.items():
                if index is not None and its == index and other != label:
                    raise ArchiveError(
                        f"{where}: categories.{label}.id: {index} is the index of {other!r}"
                    )

    def add(self, sample: Sample, annotations: Sequence[Annotation]) -> None:
        """Add a sample: a row for each annotation, or one row without annotations.

        Annotations must not be changed afterwards.
        """
        rest = annotations or _NOTHING
        while rest:
            room = ROWS - len(self._annotations)
            now, rest = rest[:room], rest[room:]
            self._samples.append(sample)
            self._counts.append(len(now))
            self._annotations += now
            self._mask_bytes += sum(len(one.mask) for one in now if one.mask is not None)
            if len(self._annotations) == ROWS or self._mask_bytes >= MASK_BYTES:
                self._flush()

    def _flush(self) -> None:
        """Spool the waiting rows; each sample and each annotation is converted once."""
        if not self._annotations:
            return
        distinct = dict.fromkeys(self._annotations)
        place = {annotation: number for number, annotation in enumerate(distinct)}
        own = pa.array([place[one] for one in self._annotations])
        shared = pa.array(np.repeat(np.arange(len(self._samples)), self._counts))
        for annotation in place:
            if annotation.label is not None:
                self._labels.setdefault(annotation.label, None)
        for sample in self._samples:
            for label in (*(sample.absent or ()), *(sample.incomplete or ())):
                self._labels.setdefault(label, None)
        columns = []
        for field in self._schema:
            parts = []
            for rows, attributes, places in (
                (place, _ANNOTATION, own),
                (self._samples, _SAMPLE, shared),
            ):
                if field.name in self._extra:
                    parts.append(self._extra_column(rows, field).take(places))
                elif attribute := attributes.get(field.name):
                    parts.append(_column(rows, attribute, field.type).take(places))
            parts = parts or [pa.nulls(len(own), field.type)]
            columns.append(parts[0] if len(parts) == 1 else compute.coalesce(*parts))
        self._samples.clear()
        self._counts.clear()
        self._annotations.clear()
        self._mask_bytes = 0
        self._write(pa.record_batch(columns, schema=self._schema))

    def _write(self, batch: Any) -> None:
        if not batch.num_rows:
            return
        if self._writer is None:
            self._writer = ipc.new_file(str(self._path), self._schema)
        self.count += batch.num_rows
        for name, column in zip(self._schema.names, batch.columns, strict=True):
            if column.null_count < len(column):
                self._present.add(name)
        self._groups |= set(batch["group"].unique().to_pylist()) - {None}
        if self._kind == MISSION:
            self._statuses |= set(batch["status"].unique().to_pylist()) - {None}
        self._sequences |= dict.fromkeys(batch["name"].unique().to_pylist())
        self._writer.write_batch(batch)

    def _extra_column(self, rows: Collection[Any], field: Any) -> Any:
        """Return the values of a further column; ArchiveError if an older table's type differs."""
        values = [None if row.extra is None else row.extra.get(field.name) for row in rows]
        try:
            return pa.array(values, field.type)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ArchiveError(
                f"column {field.name}: is of type {field.type} in the dataset: {error}"
            ) from None

    def _label_indices(self) -> dict[str, int]:
        """Return the index by label: known labels keep theirs, new labels follow in order of name.

        Labels of regions come after those of objects.
        """
        indices = {label: index for label, index in self._labels.items() if index is not None}
        free = max(indices.values(), default=-1) + 1
        new = [label for label, index in self._labels.items() if index is None]
        new.sort(key=lambda label: (label.startswith(REGION), label))
        return indices | {label: free + number for number, label in enumerate(new)}

    def finish(self, path: Path, metadata: Mapping[str, str]) -> None:
        """Write the table.

        Args:
            path: path of the file.
            metadata: further text entries of the file's metadata.

        Raises:
            ArchiveError: the dataset has too many labels or groups for the format, or too large an
                index of a label.
        """
        self._flush()
        if self._writer is None:
            self._writer = ipc.new_file(str(self._path), self._schema)
        self._writer.close()
        indices = self._label_indices()
        for count, most, words in (
            (len(indices), MOST_LABELS, "labels"),
            (len(self._groups), MOST_GROUPS, "groups"),
            (len(self._statuses), MOST_LABELS, "values of status"),
        ):
            if count > most:
                raise ArchiveError(f"{count} {words} are too many for the format, which has {most}")
        if {ABSENT, INCOMPLETE} & self._present and max(
            indices.values(), default=0
        ) > LARGEST_LISTED:
            raise ArchiveError(
                f"a label has an index above {LARGEST_LISTED}, which the format's lists of absent "
                "and incomplete classes cannot hold"
            )
        frequencies = {
            label: about["frequency"]
            for label, about in self._categories.items()
            if about.get("frequency")
        }
        groups = sorted(self._groups)
        if self._kind == MISSION:
            groups = [TRAIN, VAL, *(group for group in groups if group not in (TRAIN, VAL))]
        labels = sorted(indices, key=lambda label: (indices[label], label))
        categories = {
            "name": list(self._sequences),
            "label": labels,
            "group": groups,
            "degradation": ["low", "medium", "high"],
            "status": [*STATUSES, *sorted(self._statuses - set(STATUSES))],
            "category_frequency": ["f", "c", "r"],
        }
        present = self._find_present(frequencies)
        foreign = [field for field in self._foreign if self._is_kept(field)]
        schema = final_schema(self._kind, sorted(present), categories, self._find_kept(), foreign)
        schema = schema.with_metadata(self._metadata(labels, indices) | dict(metadata))
        values = {name: pa.array(c, pa.string_view()) for name, c in categories.items()}
        facts = LabelFacts(indices, frequencies)
        make_empty(path)
        with (
            pa.OSFile(str(self._path)) as file,
            pa.OSFile(str(path), "wb") as out,
            ipc.new_file(out, schema) as writer,
        ):
            reader = ipc.open_file(file)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                writer.write_batch(to_final(batch, schema, values, facts))

    def _find_present(self, frequencies: Mapping[str, str]) -> set[str]:
        """Return the columns of the finished table that have a value."""
        present = set(self._present)
        for spooled, name in (
            (ABSENT, "neg_label_indices"),
            (INCOMPLETE, "not_exhaustive_label_indices"),
        ):
            present |= {name} if spooled in present else set()
        if self._kind == MISSION:
            present |= {"mask"} if "polygon" in present else set()
            present |= {"mask_score"} if "polygon_score" in present else set()
        present |= {"label_index"} if self._labels else set()
        return present | ({"category_frequency"} if frequencies else set())

    def _is_kept(self, field: Any) -> bool:
        """Return whether a further column is the older table's, or has a value."""
        old = () if self._old is None else self._old.columns
        return field.name in old or field.name in self._present

    def _find_kept(self) -> list[Any]:
        """Return the fields of the older table that are kept although the schema lacks them."""
        if self._old is None:
            return []
        return [
            field
            for field in spool_schema()
            if field.name in self._old.columns and field.name in self._present
        ]

    def _metadata(self, labels: list[str], indices: Mapping[str, int]) -> dict[str, str]:
        """Return metadata as the client writes them, with further entries of an older table."""
        own = ("schema_version", "labels", "category_metadata", "recorder", LABELS)
        old = {} if self._old is None else self._old.metadata
        entries = {key: value for key, value in old.items() if key not in own}
        about = {
            label: {"id": indices[label]} | self._categories.get(label, {}) for label in labels
        }
        if self._kind == MISSION:
            entries |= {LABELS: json.dumps(indices)} if indices else {}
            about = {label: known for label, known in about.items() if len(known) > 1}
        else:
            entries |= {"schema_version": CURRENT, "box3d_normalized": "false"}
            entries |= {"labels": json.dumps(labels, separators=(",", ":"))} if labels else {}
        if about:
            entries["category_metadata"] = json.dumps(about, separators=(",", ":"))
        return entries

    def close(self) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._path.unlink(missing_ok=True)


def _column(rows: Collection[Any], attribute: str, kind: Any) -> Any:
    return pa.array(map(attrgetter(attribute), rows), kind, size=len(rows))
