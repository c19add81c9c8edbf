"""Tables of others as Arrow and as Parquet: read, checked and extended."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from recorder.archives.edgefirst.table import Annotation, Sample, Table
from recorder.archives.edgefirst.table_files import ExistingTable, TableFile, find_table
from recorder.archives.validation import find_archives, validate_archive
from recorder.common.errors import ArchiveError
from tests.archives.edgefirst.rig import BASE, pack_all
from tests.session.build import build_session, camera_spec

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
ipc: Any = pytest.importorskip("pyarrow.ipc")
parquet: Any = pytest.importorskip("pyarrow.parquet")

POLYGON = [[0.0, 0.25, 0.5, 0.25, 0.5, 0.75], [0.5, 0.5, 1.0, 0.5, 1.0, 1.0]]
CAR = Annotation(
    "s/car_1", "car", polygon=POLYGON, box2d=(0.5, 0.25, 0.125, 0.5), box3d=(1, 2, 3, 4, 5, 6),
    mask=b"png", mask_score=0.5, status="valid", degradation="low", ignore=False, occlusion=1,
)  # fmt: skip
SAMPLE = Sample(
    "s", 7, "train", (640, 480), (52.5, -13.25), (90.0, 1.5, -2.5),
    timing={"load": 1, "decode": 2}, absent=["tree"], incomplete=["car"],
)  # fmt: skip


def write_both(folder: Path, kind: str) -> tuple[Path, Path]:
    """The same table as Arrow and as Parquet, with a row without anything."""
    arrow = folder / "a.arrow"
    with Table(folder, kind) as table:
        table.add_categories({"car": {"id": 3, "frequency": "f"}}, "here")
        table.add(SAMPLE, [CAR])
        table.add(Sample("t", 8, "val"), [])
        table.finish(arrow, {"own": "entry"})
    read = ipc.open_file(str(arrow)).read_all()
    batch = read.combine_chunks().to_batches()[0]
    columns, fields = [], []
    for field, column in zip(read.schema, batch.columns, strict=True):
        if pa.types.is_dictionary(field.type):  # pyarrow writes none of string views
            words = column.dictionary.cast(pa.string())
            column = pa.DictionaryArray.from_arrays(column.indices, words, ordered=True)
        columns.append(column)
        fields.append(field.with_type(column.type))
    schema = pa.schema(fields, read.schema.metadata)
    parquet.write_table(pa.Table.from_arrays(columns, schema=schema), folder / "a.parquet")
    return arrow, folder / "a.parquet"


@pytest.mark.parametrize("kind", ["2026.10", "mission"])
def test_parquet_is_read_as_arrow_is(tmp_path: Path, kind: str) -> None:
    """Schema, metadata and rows, and what a dataset becomes that is extended with it."""
    found, tables = [], []
    for path in write_both(tmp_path, kind):
        old = ExistingTable.read(path)
        found.append((old.schema, old.metadata, old.columns, old.sequences, old.foreign))
        with Table(tmp_path, kind) as table:
            table.keep(old, {"t"})
            table.add(Sample("v", 1), [Annotation(label="car"), Annotation(label="bee")])
            table.finish(new := tmp_path / f"{path.suffix}.arrow", {})
        tables.append(ipc.open_file(str(new)).read_all())
    assert found[0] == found[1]
    assert tables[0].schema.equals(tables[1].schema, check_metadata=True)
    rows, other = (str(table.to_pylist()) for table in tables)  # NaN is not equal to itself
    assert rows == other
    first, car, bee = tables[0].to_pylist()
    assert (first["neg_label_indices"], first["not_exhaustive_label_indices"]) == ([4], [3])
    assert (first["status"], first["category_frequency"]) == ("valid", "f")
    assert (car["label_index"], car["category_frequency"], bee["label_index"]) == (3, "f", 5)


def test_metadata_of_parquet_are_the_files(tmp_path: Path) -> None:
    """As polars and the client write them: not in the Arrow schema that is stored beside."""
    table = pa.table({"name": ["a"], "frame": pa.array([1], pa.uint32())})
    with parquet.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"schema_version": "2026.10", "own": "entry"})
    found = ExistingTable.read(tmp_path / "a.parquet").metadata
    assert found == {"schema_version": "2026.10", "own": "entry"}


def test_an_index_that_only_rows_have_is_kept(tmp_path: Path) -> None:
    root = tmp_path / "out/edgefirst/out"
    foreign_dataset(root, ".parquet")
    path = build_session(tmp_path / "s", camera_spec(), count=1).path
    (path / "_labels").mkdir()
    header = {"format": "recorder-boxes", "version": 1, "categories": {"car": {"id": 4}}}
    (path / "_labels/camera.jsonl").write_text(json.dumps(header) + "\n")
    with pytest.raises(ArchiveError, match=r"categories\.car\.id: 4, but the dataset has 3"):
        pack_all([path], tmp_path / "out")


def test_a_large_parquet_file_is_read_in_parts(tmp_path: Path) -> None:
    """However its rows are grouped."""
    table = pa.table({"name": ["a"] * 10_000, "frame": pa.array(range(10_000), pa.uint32())})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=10_000)
    with TableFile(tmp_path / "a.parquet") as file:
        assert [batch.num_rows for batch in file.batches()] == [4096, 4096, 1808]
        assert [batch.schema.names for batch in file.batches(["name"])] == [["name"]] * 3


def foreign_dataset(root: Path, ending: str) -> Path:
    """A dataset of another program: a sequence, and a picture alone, in a ZIP."""
    root.mkdir(parents=True)
    table = pa.table(
        {
            "name": ["theirs", "alone"],
            "frame": pa.array([4, None], pa.uint32()),
            "label": pa.array(["car", None]).dictionary_encode(),
            "label_index": pa.array([3, None], pa.uint64()),
            "iscrowd": pa.array([True, None]),
            "iou": pa.array([0.5, None], pa.float32()),
        }
    ).replace_schema_metadata({"schema_version": "2026.04", "own": "entry"})
    path = root / f"{root.name}{ending}"
    if ending == ".parquet":
        parquet.write_table(table, path)
    else:
        with ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    with zipfile.ZipFile(root / f"{root.name}.zip", "w") as file:
        for name in ("theirs/theirs_4.camera.jpeg", "alone.jpg"):
            file.writestr(name, b"somebody's own")
    return path


@pytest.mark.parametrize("ending", [".arrow", ".parquet"])
def test_datasets_of_others_are_sound_and_extended(tmp_path: Path, ending: str) -> None:
    """The extended table is Arrow; columns and files of others stay."""
    root = tmp_path / "out/edgefirst/out"
    path = foreign_dataset(root, ending)
    assert find_table(root) == path
    assert find_archives(path) == find_archives(tmp_path) == [root]
    report = validate_archive(root)
    assert report.problems == []
    assert f"{path}: columns that others added: iou" in report.remarks
    data = pack_all([build_session(tmp_path / "s", camera_spec(), count=1).path], tmp_path / "out")
    assert sorted(place.name for place in root.iterdir()) == ["out.arrow", "out.zip"]
    assert set(data.files) == {
        "theirs/theirs_4.camera.jpeg", "alone.jpg", f"{BASE}/{BASE}_000.camera.jpeg",
    }  # fmt: skip
    theirs, alone, ours = data.rows
    assert (theirs["label"], theirs["label_index"], theirs["iou"]) == ("car", 3, 0.5)
    assert (theirs["ignore"], theirs["iscrowd"]) == (True, True)  # as edgefirst-client migrates
    assert (alone["name"], alone["frame"], ours["name"]) == ("alone", None, BASE)
    assert data.table.schema.metadata[b"schema_version"] == b"2026.10"
    assert data.table.schema.metadata[b"own"] == b"entry"
    assert validate_archive(root).problems == []


@pytest.mark.parametrize("cut", [0, 3, 40, -60, -3])
def test_damaged_parquet_is_named(tmp_path: Path, cut: int) -> None:
    """Wherever it ends; the dataset stays as it is."""
    root = tmp_path / "out/edgefirst/out"
    path = foreign_dataset(root, ".parquet")
    path.write_bytes(path.read_bytes()[:cut])
    before = path.read_bytes()
    assert validate_archive(root).problems
    with pytest.raises(ArchiveError, match=r"out\.parquet: is no table: "):
        pack_all([build_session(tmp_path / "s", camera_spec(), count=1).path], tmp_path / "out")
    assert path.read_bytes() == before


def test_damaged_pages_of_parquet_are_named(tmp_path: Path) -> None:
    root = tmp_path / "out/edgefirst/out"
    path = foreign_dataset(root, ".parquet")
    data = bytearray(path.read_bytes())
    data[4:40] = bytes(36)
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match=r"out\.parquet: is (no table|damaged): "):
        pack_all([build_session(tmp_path / "s", camera_spec(), count=1).path], tmp_path / "out")
    assert path.read_bytes() == data


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    root = tmp_path / "out/edgefirst/out"
    foreign_dataset(root, ".parquet").unlink()
    assert find_archives(tmp_path) == []
    with pytest.raises(ArchiveError, match=r"out\.arrow: is no table: "):
        pack_all([build_session(tmp_path / "s", camera_spec(), count=1).path], tmp_path / "out")
