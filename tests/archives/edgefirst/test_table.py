"""Tables, splits, thinning, poses and places at samples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.archives.edgefirst import table as table_module
from recorder.archives.edgefirst.samples import (
    BLOCK_NS,
    Places,
    PoseWalk,
    Split,
    choose_pictures,
    find_places,
    nearest_all,
)
from recorder.archives.edgefirst.table import ROWS, Annotation, Sample, Table
from recorder.archives.edgefirst.table_files import ExistingTable
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import ArchiveError
from recorder.perception.geometry import rotation_of_rpy, transform
from recorder.perception.poses import Block
from recorder.session.reader import Session
from recorder.session.stream import Stream
from tests.session.build import START_MONO_NS, START_NS, Builder, build_session, camera_spec

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
ipc: Any = pytest.importorskip("pyarrow.ipc")

POLYGON = [[0.0, 0.25, 0.5, 0.25, 0.5, 0.75], [0.5, 0.5, 1.0, 0.5, 1.0, 1.0]]
CAR = Annotation(
    "s/car_1", "car", polygon=POLYGON, box2d=(0.5, 0.25, 0.125, 0.5), box3d=(1, 2, 3, 4, 5, 6),
    ignore=False, occlusion=1,
)  # fmt: skip
SAMPLE = Sample("s", 7, "train", (640, 480), (52.5, -13.25), (90.0, 1.5, -2.5))
FULL = SAMPLE, [CAR]
Given = tuple[Sample, Sequence[Annotation]]


def write(
    path: Path, kind: str, *rows: Given, old: Path | None = None, drop: frozenset[str] = frozenset()
) -> Any:
    with Table(path.parent, kind) as table:
        if old is not None:
            table.keep(ExistingTable.read(old), drop)
        for sample, annotations in rows:
            table.add(sample, annotations)
        table.finish(path, {"recorder": "{}"})
    assert not (path.parent / ".rows").exists()
    return ipc.open_file(str(path)).read_all()


def test_the_clients_schema(tmp_path: Path) -> None:
    table = write(tmp_path / "a.arrow", "2026.10", FULL, (Sample("s", 8, "val"), []))
    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds == {
        "name": "string_view",
        "frame": "uint32",
        "object_id": "string_view",
        "label": "dictionary<values=string_view, indices=uint16, ordered=0>",
        "label_index": "uint64",
        "group": "dictionary<values=string_view, indices=uint8, ordered=0>",
        "polygon": "large_list<item: large_list<item: float>>",
        "box2d": "fixed_size_list<item: float>[4]",
        "box3d": "fixed_size_list<item: float>[6]",
        "size": "fixed_size_list<item: uint32>[2]",
        "location": "fixed_size_list<item: float>[2]",
        "pose": "fixed_size_list<item: float>[3]",
        "ignore": "bool",
        "iscrowd": "bool",
        "occlusion": "uint32",
    }
    one, other = table.to_pylist()
    assert (one["polygon"], one["pose"], one["location"]) == (
        POLYGON,
        [90.0, 1.5, -2.5],
        [52.5, -13.25],
    )
    assert (one["label"], one["label_index"], one["iscrowd"]) == ("car", 0, False)
    assert {key: value for key, value in other.items() if value is not None} == {
        "name": "s",
        "frame": 8,
        "group": "val",
    }
    metadata = table.schema.metadata
    assert metadata[b"schema_version"] == b"2026.10"
    assert json.loads(metadata[b"labels"]) == ["car"]
    assert json.loads(metadata[b"category_metadata"]) == {"car": {"id": 0}}
    label = table.schema.field("label").metadata
    assert label == {b"_PL_CATEGORICAL2": b"6;labels6;labelsu16;"}


def test_the_missions_schema(tmp_path: Path) -> None:
    table = write(tmp_path / "a.arrow", "mission", FULL, (Sample("s", 8, "val"), []))
    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds["name"] == "dictionary<values=string_view, indices=uint32, ordered=0>"
    assert kinds["frame"] == "uint64"
    assert kinds["mask"] == "large_list<item: float>"
    assert kinds["location"] == "fixed_size_list<item: double>[2]"
    assert kinds["pose"] == "fixed_size_list<item: double>[3]"
    assert "polygon" not in kinds
    assert table.schema.field("group").metadata == {b"_PL_ENUM_VALUES2": b"5;train3;val"}
    row = table.to_pylist()[0]
    assert row["location"] == [-13.25, 52.5]  # longitude first
    assert row["pose"] == [-2.5, 1.5, 90.0]  # roll, pitch, yaw
    flat = row["mask"]
    assert np.isnan(flat[6])
    assert [flat[:6], flat[7:]] == POLYGON
    assert b"schema_version" not in (table.schema.metadata or {})


def test_columns_without_a_value_are_left_out(tmp_path: Path) -> None:
    table = write(tmp_path / "a.arrow", "2026.10", (Sample("s", 0), []), (Sample("s", 1), []))
    assert table.schema.names == ["name", "frame"]
    assert b"labels" not in table.schema.metadata


@pytest.mark.parametrize("kind", ["2026.10", "mission"])
def test_rows_are_taken_over_without_loss(tmp_path: Path, kind: str) -> None:
    zebra = Sample("t", 1, "val"), [Annotation(label="zebra")]
    rows = [FULL, zebra, (Sample("u", 2, "train"), [Annotation(label="ant")])]
    before = write(tmp_path / "a.arrow", kind, *rows).to_pylist()
    after = write(
        tmp_path / "b.arrow", kind, (Sample("v", 1, "test"), [Annotation(label="bee")]),
        old=tmp_path / "a.arrow", drop=frozenset("t"),
    )  # fmt: skip
    kept = after.to_pylist()[:2]
    assert str(kept[0]) == str(before[0])  # NaN is not equal to itself
    assert kept[1] == before[2]
    assert after.to_pylist()[2]["label_index"] == 3  # those that were there keep theirs
    again = write(tmp_path / "c.arrow", kind, zebra, old=tmp_path / "b.arrow").to_pylist()
    assert again[3]["label_index"] == before[1]["label_index"]
    assert after["group"].unique().to_pylist() == ["train", "test"]


def test_many_batches_share_their_labels(tmp_path: Path) -> None:
    count = 2 * ROWS + 5
    labels = [f"label {k % 300}" for k in range(count)]
    rows = [(Sample("s", k), [Annotation(label=label)]) for k, label in enumerate(labels)]
    table = write(tmp_path / "a.arrow", "2026.10", *rows)
    assert table.num_rows == count
    assert table["label"].to_pylist() == labels
    indices = table["label_index"].to_pylist()
    assert len(set(zip(table["label"].to_pylist(), indices, strict=True))) == 300


def test_samples_share_annotations_across_batches(tmp_path: Path) -> None:
    """As many rows as each sample has annotations, in order, and a batch is never longer."""
    shared = [Annotation(f"s/{k}", box3d=(k, 0, 0, 1, 1, 1)) for k in range(ROWS - 3)]
    own = Annotation("s/own")
    several: list[Given] = [(Sample("s", 0), shared), (Sample("s", 1, pose=(1, 2, 3)), shared)]
    several += [(Sample("s", 2), []), (Sample("s", 3), [own, *shared[:2], own])]
    with Table(tmp_path, "2026.10") as table:
        for sample, annotations in several:
            table.add(sample, annotations)
            assert table.count % ROWS == 0
        table.finish(tmp_path / "a.arrow", {})
        assert table.count == 2 * len(shared) + 5
    with ipc.open_file(str(tmp_path / "a.arrow")) as reader:
        assert [len(reader.get_batch(n)) for n in range(2)] == [ROWS, ROWS - 6 + 5]
        rows = reader.read_all().to_pylist()
    expected = [(s, a) for s, many in several for a in many or [Annotation()]]
    assert [(row["frame"], row["object_id"]) for row in rows] == [
        (sample.frame, annotation.object_id) for sample, annotation in expected
    ]
    for row, (sample, annotation) in zip(rows, expected, strict=True):
        assert row["pose"] == (None if sample.pose is None else [1, 2, 3])
        wanted = annotation.box3d
        assert row["box3d"] == (None if wanted is None else list(wanted))


def test_a_sample_may_have_more_annotations_than_a_batch_rows(tmp_path: Path) -> None:
    many = [Annotation(f"s/{k}") for k in range(2 * ROWS + 1)]
    table = write(tmp_path / "a.arrow", "2026.10", (SAMPLE, many))
    assert table["object_id"].to_pylist() == [one.object_id for one in many]
    assert [len(chunk) for chunk in table["frame"].chunks] == [ROWS, ROWS, 1]


def test_what_cannot_be_added_to(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(b"nothing")
    with pytest.raises(ArchiveError, match=r"a\.arrow: is no table"):
        ExistingTable.read(path)
    for columns, words in (
        ({"x": [1]}, "no column name"),
        ({"name": ["a"], "mask": [[1.0]]}, "its schema is 2025.10"),
    ):
        table = pa.table(columns)
        with ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
        with pytest.raises(ArchiveError, match=words):
            ExistingTable.read(path)
    with pytest.raises(ArchiveError, match=r"its schema is 2025\.10"):
        write(tmp_path / "b.arrow", "2026.10", old=path)
    assert ExistingTable.inspect(path).schema == "2025.10"  # but it is sound


FOREIGN = {
    "iou": pa.array([0.5, None, 1.0], pa.float32()),
    "reviewer": pa.array(["ann", "bob", None], pa.string_view()),
    "shift": pa.array(["day", "night", "day"]).dictionary_encode(),
    "tags": pa.array([["a"], [], None], pa.large_list(pa.string_view())),
    "timing": pa.array([{"load": 1, "track": 2}, None, {"load": 3, "track": 4}]),
}


@pytest.mark.parametrize("kind", ["2026.10", "mission"])
def test_columns_that_others_added_are_kept(tmp_path: Path, kind: str) -> None:
    """Also those of the other schema: a mission's table may have scores."""
    path = tmp_path / "a.arrow"
    rows = [(Sample(name, 1), [Annotation(label="car")]) for name in ("a", "b", "c")]
    old = write(path, kind, *rows)
    scores = pa.array([0.25, 0.5, 0.75], pa.float32())
    added = FOREIGN | {"box2d_score": scores}
    for name, values in added.items():
        old = old.append_column(name, values)
    with ipc.new_file(str(path), old.schema) as writer:
        writer.write_table(old)
    assert [field.name for field in ExistingTable.read(path).foreign] == list(FOREIGN)
    with Table(tmp_path, kind) as table:
        table.keep(ExistingTable.read(path), {"b"})
        table.add(Sample("d", 1), [Annotation(label="car")])
        table.finish(tmp_path / "b.arrow", {})
    with ipc.open_file(str(tmp_path / "b.arrow")) as reader:
        new = reader.read_all()
    assert new["name"].to_pylist() == ["a", "c", "d"]
    for name, values in added.items():
        expected = [values[0].as_py(), values[2].as_py(), None]
        assert new[name].to_pylist() == expected, name
        is_category = pa.types.is_dictionary(values.type)
        assert new.schema.field(name).type == (pa.string() if is_category else values.type)


def test_the_split_is_the_documented_one() -> None:
    """Shares worked out by hand with sha256sum."""
    split = Split("sequence", val=0.2, test=0.1)
    known = {"rig_2024_05_01_12_00_00": 0.66, "rig_2024_05_02_12_00_00": 0.54}
    import hashlib

    for name in known:
        share = int(hashlib.sha256(f":{name}".encode()).hexdigest()[:16], 16) / 2**64
        expected = "test" if share < 0.1 else "val" if share < 0.3 else "train"
        assert split.group(name, 0) == split.group(name, 10**15) == expected
    groups = [split.group(f"s{n}", 0) for n in range(4000)]
    assert 700 < groups.count("val") < 900
    assert 320 < groups.count("test") < 480


def test_a_split_by_blocks_changes_only_between_them() -> None:
    split = Split("block", val=0.5)
    edges = (0, 1, BLOCK_NS // 2, BLOCK_NS - 1)
    blocks = [{split.group("s", BLOCK_NS * b + k) for k in edges} for b in range(50)]
    assert all(len(block) == 1 for block in blocks)
    assert set.union(*blocks) == {"train", "val"}
    assert Split("none").group("s", 0) is None


@pytest.fixture
def camera(tmp_path: Path) -> Iterator[Stream]:
    with Session(build_session(tmp_path / "s", camera_spec(), seconds=2.0).path) as session:
        yield session.streams["camera"]


def test_thinning_by_number(camera: Stream) -> None:
    assert [index for index, _ in choose_pictures(camera, 7)] == list(range(0, 60, 7))
    assert [t for _, t in choose_pictures(camera)] == camera.t_ns.tolist()


@pytest.mark.parametrize(
    ("rate", "expected"), [(10.0, 20), (15.0, 30), (20.0, 40), (12.0, 24), (30.0, 60), (1.0, 2)]
)
def test_thinning_by_rate(camera: Stream, rate: float, expected: int) -> None:
    """Stamps that are a little off their places do not count."""
    chosen = [t for _, t in choose_pictures(camera, 1, rate)]
    assert len(chosen) == expected
    assert abs(np.diff(chosen).mean() * rate / 1e9 - 1) < 0.02


class Stamped:
    """As much of a stream as its stamps, every 33.3 ms."""

    path = Path("stamped")

    def __init__(self, count: int = 60) -> None:
        self.t_ns = START_NS + np.arange(count, dtype=np.int64) * 33_333_334

    def __len__(self) -> int:
        return len(self.t_ns)


class Known:
    """Poses of a rig that turns by a radian a second, in blocks of three."""

    name = "known"

    def __init__(self, times_s: list[float]) -> None:
        self._times = np.array(times_s)

    def blocks(self) -> Iterator[Block]:
        for at in range(0, len(self._times), 3):
            t_s = self._times[at : at + 3]
            rpy = np.stack([np.zeros(len(t_s)), np.zeros(len(t_s)), t_s], axis=1)
            yield (t_s * 1e9).astype(np.int64), transform(rotation_of_rpy(rpy), np.zeros(3))

    def describe(self) -> dict[str, Any]:
        return {}


WANTED = {-0.2: None, -0.05: 0.0, 0.05: 0.05, 0.31: 0.31, 0.6: 0.6, 1.0: None, 1.95: 1.95,
          2.08: 2.0, 2.2: None}  # fmt: skip


@pytest.mark.parametrize("together", [1, 2, 4, 9])
def test_poses_at_samples(together: int) -> None:
    """Whichever samples are asked for at once, and wherever the blocks end."""
    walk = PoseWalk(Known([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1.9, 2.0]))
    t_ns = np.array([round(t_s * 1e9) for t_s in WANTED])
    found: list[float | None] = []
    for at in range(0, len(t_ns), together):
        poses, known = walk.at(t_ns[at : at + together])
        yaw = np.arctan2(poses[:, 1, 0], poses[:, 0, 0])
        found += [one if is_known else None for one, is_known in zip(yaw, known, strict=True)]
    expected = [None if yaw is None else pytest.approx(yaw, abs=1e-9) for yaw in WANTED.values()]
    assert found == expected
    assert walk.unknown == 3


def test_a_trajectory_of_one_pose_and_of_none() -> None:
    t_ns = np.array([-200_000_000, 50_000_000, 300_000_000])
    walk = PoseWalk(Known([0.0]))
    poses, known = walk.at(t_ns)
    assert known.tolist() == [False, True, False]
    assert np.allclose(poses[1], np.eye(4))
    nothing = PoseWalk(Known([]))
    assert not nothing.at(t_ns)[1].any()
    assert (walk.unknown, nothing.unknown) == (2, 3)


@given(st.lists(st.integers(-60_000_000, 2_100_000_000), max_size=40), st.integers(0, 40_000_000))
def test_the_nearest_of_all_are_those_one_by_one(offsets_ns: list[int], tolerance_ns: int) -> None:
    stream = cast(Stream, Stamped())
    t_ns = np.array([START_NS + offset for offset in offsets_ns], np.int64)
    expected = []
    for one in t_ns.tolist():
        index = int(np.argmin(np.abs(stream.t_ns - one)))  # the earlier of two equally near
        near = abs(int(stream.t_ns[index]) - one) <= tolerance_ns
        expected.append(index if near else -1)
    assert nearest_all(stream, t_ns, tolerance_ns).tolist() == expected


def test_of_two_equally_near_the_earlier_is_taken() -> None:
    stream = cast(Stream, Stamped())
    first, second = stream.t_ns[:2].tolist()
    middle = (first + second) // 2
    assert nearest_all(stream, np.array([middle, middle + 1]), 10**9).tolist() == [0, 1]
    empty = cast(Stream, Stamped(0))
    assert nearest_all(empty, np.array([first]), 10**9).tolist() == [-1]


def gnss(name: str = "gnss", text: str = "latitude, longitude, height") -> StreamSpec:
    channel = ChannelSpec("pos", "raw", "f8", (3,), text, "deg, m")
    return StreamSpec(name, (channel,), rate_hz=1.0)


FIXES = [(52.0, 13.0, 30.0), (52.5, 13.5, 40.0), (np.nan, 0, 0), (53, 14, 0)]


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """A fix a second, the third one none."""
    builder = Builder(tmp_path / "s")
    builder.add(gnss(), count=len(FIXES))
    folder = builder.path / "gnss"
    np.array(FIXES, "<f8").tofile(folder / "pos")
    t_mono = START_MONO_NS + np.arange(len(FIXES), dtype=np.int64) * 10**9
    t_mono.astype("<u8").tofile(folder / "t_mono")
    with Session(builder.close()) as session:
        found = find_places(list(session.streams.values()))
        assert found is not None
        yield found


def test_places_at_samples(places: Places) -> None:
    assert places.name == "gnss"
    assert places.at(START_NS + 500_000_000) == pytest.approx((52.25, 13.25, 35.0))
    assert places.at(START_NS) == pytest.approx((52.0, 13.0, 30.0))
    assert places.at(START_NS + 1_500_000_000) is None  # no fix
    assert places.at(START_NS + 9_000_000_000) is None  # long ago


def test_an_only_fix_is_the_place_of_the_samples_near_it(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(gnss(), count=1)
    np.array(FIXES[:1], "<f8").tofile(builder.path / "gnss/pos")
    with Session(builder.close()) as session:
        found = find_places(list(session.streams.values()))
        assert found is not None
        t_ns = int(session.streams["gnss"].t_ns[0])
        assert found.at(t_ns + 100_000_000) == pytest.approx(FIXES[0])
        assert found.at(t_ns + 9_000_000_000) is None


def test_a_fix_without_a_height_is_one(places: Places, tmp_path: Path) -> None:
    flat = np.array(FIXES, "<f8")
    flat[:, 2] = np.nan
    flat.tofile(tmp_path / "s/gnss/pos")
    assert places.at(START_NS + 500_000_000) == (52.25, 13.25, None)


def test_places_far_from_any_fix(tmp_path: Path) -> None:
    """In time; and a line between fixes is not drawn around the earth."""
    builder = Builder(tmp_path / "s")
    builder.add(gnss(), count=4)
    folder = builder.path / "gnss"
    fixes = [(10, 179.9, 0), (10, -179.9, 0), (10, -179.7, 0), (10, -179.5, 0)]
    np.array(fixes, "<f8").tofile(folder / "pos")
    t_mono = START_MONO_NS + np.array([0, 1, 2, 5], np.int64) * 10**9
    t_mono.astype("<u8").tofile(folder / "t_mono")
    with Session(builder.close()) as session:
        places = find_places(list(session.streams.values()))
        assert places is not None
        at = {s: places.at(START_NS + round(s * 1e9)) for s in (-2.5, -1.5, 0.2, 0.8, 1.5, 3, 5)}
    longitudes = {s: None if place is None else round(place[1], 3) for s, place in at.items()}
    assert longitudes == {
        -2.5: None, -1.5: 179.9, 0.2: 179.9, 0.8: -179.9, 1.5: -179.8, 3: None, 5: None,
    }  # fmt: skip


def test_streams_that_tell_no_place(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.add(gnss("odometer", "x, y, z"), count=3)
    builder.add(camera_spec(), 0.1)
    with Session(builder.close()) as session:
        assert find_places(list(session.streams.values())) is None


@pytest.mark.parametrize(("limit", "words"), [("MOST_LABELS", "labels"), ("MOST_GROUPS", "groups")])
def test_a_table_may_have_as_many_as_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, words: str
) -> None:
    rows = [(Sample("s", k, f"g{k}"), [Annotation(label=f"l{k}")]) for k in range(3)]
    monkeypatch.setattr(table_module, limit, 3)
    write(tmp_path / "a.arrow", "2026.10", *rows)
    monkeypatch.setattr(table_module, limit, 2)
    with pytest.raises(ArchiveError, match=f"3 {words} are too many for the format"):
        write(tmp_path / "b.arrow", "2026.10", *rows)
