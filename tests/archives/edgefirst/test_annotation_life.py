"""What labels state beside their geometry: status, quality, timing, classes, further columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.common.errors import ArchiveError
from tests.archives.edgefirst.rig import Dataset, pack, pack_all
from tests.session.build import Builder, camera_spec

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")

Lines = Sequence[Mapping[str, Any]]
BOX = {"frame": 0, "track": "a", "class": "car", "box_px": [1, 2, 3, 4]}
CUBOID = {"track": "a", "class": "car", "frame": "rig", "center_m": [9, 1, 1],
          "size_m": [4, 2, 1.5], "quaternion_xyzw": [0, 0, 0, 1]}  # fmt: skip
RING = [[[0, 0], [9, 0], [9, 9]]]


def session(
    path: Path,
    files: Mapping[str, Lines],
    headers: Mapping[str, Mapping[str, Any]] | None = None,
    pictures: int = 3,
) -> Path:
    """A session of pictures with files of labels; a line's ``frame`` gives its time."""
    builder = Builder(path)
    times = builder.add(camera_spec(), count=pictures).t_ns.tolist()
    for name, lines in files.items():
        kind = "cuboids" if name.startswith("_cuboids") else "boxes"
        kind = "pictures" if name.endswith("pictures.jsonl") else kind
        header = {"format": f"recorder-{kind}", "version": 1, **(headers or {}).get(name, {})}
        timed = [
            {"t_ns": times[min(frame, pictures - 1) if isinstance(frame, int) else 0], **line}
            for line in lines
            for frame in [line.get("frame")]
        ]
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(line) + "\n" for line in (header, *timed))
        (path / name).write_text(text)
    return builder.close()


def category_metadata(data: Dataset) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data.table.schema.metadata[b"category_metadata"])
    return found


def enum_values(data: Dataset, name: str) -> str:
    encoded: bytes = data.table.schema.field(name).metadata[b"_PL_ENUM_VALUES2"]
    return encoded.decode()


LIFE: Mapping[str, Lines] = {
    "_cuboids/hand.jsonl": [CUBOID],
    "_labels/camera.jsonl": [
        BOX | {"polygon_px": RING},
        BOX | {"track": "b", "degradation": "high"},
        BOX | {"track": "c", "status": "reviewed"},
        BOX | {"frame": 1},
        BOX | {"frame": 2, "polygon_px": RING},
    ],
    "_labels/camera/pictures.jsonl": [
        {"frame": 0, "degradation": "low"},
        {"frame": 1, "degradation": "none", "timing": {"load": 7, "inference": 2**40}},
        {"frame": 2, "timing": {"decode": 0}},
    ],
}


def test_the_missions_schema_is_the_documents(tmp_path: Path) -> None:
    """Its columns in its order, ``valid`` with all three geometries, further columns after them."""
    data = pack(session(tmp_path / "s", LIFE), schema="mission")
    document = ["name", "frame", "group", "label", "mask", "box2d", "box3d", "degradation"]
    names = data.table.schema.names
    assert names[:9] == [*document, "status"]
    assert enum_values(data, "degradation") == "3;low6;medium4;high"
    assert enum_values(data, "status") == "5;valid4;edit8;reviewed"
    tracks = {(row["frame"], row["object_id"].split("/")[1]): row for row in data.rows}
    assert {key: row["status"] for key, row in tracks.items()} == {
        (0, "a"): "valid", (0, "b"): "edit", (0, "c"): "reviewed",
        (1, "a"): "edit", (2, "a"): "edit",
    }  # fmt: skip
    assert {key: row["degradation"] for key, row in tracks.items()} == {
        (0, "a"): "low", (0, "b"): "high", (0, "c"): "low", (1, "a"): None, (2, "a"): None,
    }  # fmt: skip


def test_facts_about_pictures_are_of_all_their_rows(tmp_path: Path) -> None:
    data = pack(session(tmp_path / "s", LIFE))
    assert str(data.table.schema.field("timing").type) == (
        "struct<load: int64, preprocess: int64, inference: int64, decode: int64>"
    )
    assert [row["degradation"] for row in data.rows] == ["low", "high", "low", "none", None]
    nothing = dict.fromkeys(("load", "preprocess", "inference", "decode"))
    timed = nothing | {"load": 7, "inference": 2**40}
    assert [row["timing"] for row in data.rows] == [None] * 3 + [timed, nothing | {"decode": 0}]
    assert {row["status"] for row in data.rows} == {None, "reviewed"}  # none is derived
    derived = pack(tmp_path / "s", status="derived")
    assert [row["status"] for row in derived.rows] == ["valid", "edit", "reviewed", "edit", "edit"]
    stated = pack(tmp_path / "s", status="stated", schema="mission")
    assert [row["status"] for row in stated.rows] == [None, None, "reviewed", None, None]


def test_facts_belong_to_a_set_of_labels(tmp_path: Path) -> None:
    """To that of the folder, also where the camera has no boxes."""
    facts = "_labels/camera{}/pictures.jsonl"
    files: dict[str, Lines] = {
        "_labels/camera.jsonl": [BOX],
        facts.format(""): [{"frame": 0, "degradation": "low"}],
        facts.format("@net"): [{"frame": 0, "degradation": "high"}, {"frame": 9}],
    }
    path = session(tmp_path / "s", files)
    left_out = "_labels/camera{}/pictures.jsonl: left out: of no camera or set"
    data = pack(path)
    assert [row.get("degradation") for row in data.rows] == ["low", None, None]
    assert data.noted(left_out.format("@net")) == data.noted("left out") == 1
    for name in ("_labels/camera.jsonl", "_labels/camera@net.jsonl"):
        if name in files:  # without labels, the option names the set, else the file does
            (path / name).rename(path / "_labels/camera@net.jsonl")
            other = pack(path)
        else:
            (path / name).unlink()
            other = pack(path, labels="net")
        assert [row.get("degradation") for row in other.rows] == ["high", None, None]
        assert other.noted(left_out.format("")) == 1
        assert other.noted("camera: 1 lines of facts are of no picture of it: left out") == 1
    (vrs,) = finalize(path, [ArchiveRequest("vrs", {})])
    words = "pictures.jsonl: facts about whole pictures: left out: the format has none"
    assert sum(words in note for note in vrs.notes) == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"degradation": "bad"}, "degradation: needs one of none, low, medium, high"),
        ({"timing": {"lod": 1}}, r"timing.lod: unknown stage \(did you mean 'load'"),
        ({"timing": {"load": 1.5}}, "timing.load: needs a whole number of nanoseconds, not 1.5"),
        ({"timing": {"load": -1}}, "timing.load: needs a whole number"),
        ({"timing": 3}, "timing: needs a mapping, not 3"),
        ({"absent": "car"}, "absent: needs a list of texts, not 'car'"),
        ({"incomplete": [""]}, "incomplete: needs a text"),
        ({"absent": ["a", "b"], "incomplete": ["b"]}, "absent: 'b' is incomplete, too"),
        ({"box_px": [1, 2, 3, 4]}, "box_px: unknown key"),
        ({"frame": 0}, "is the second line of its picture"),
    ],
)
def test_facts_that_are_none_are_named(tmp_path: Path, line: dict[str, Any], words: str) -> None:
    lines = [{"frame": 0}, {"frame": 1} | line]
    path = session(tmp_path / "s", {"_labels/camera/pictures.jsonl": lines})
    with pytest.raises(ArchiveError, match=rf"pictures\.jsonl:3: {words}"):
        pack(path)


CATEGORIES = {
    "car": {"id": 3, "supercategory": "vehicle", "synset": "car.n.01", "synonyms": ["auto"],
            "definition": "a motor vehicle", "frequency": "f"},
    "ufo": {"id": 90, "frequency": "r"},
    "tree": {"supercategory": "plant"},
}  # fmt: skip
BOXES = "_labels/camera.jsonl"
CLASSES: Mapping[str, Lines] = {
    BOXES: [BOX, BOX | {"class": "tree", "track": "t"}, BOX | {"class": "bee", "track": "b"}],
    "_labels/camera/pictures.jsonl": [
        {"frame": 0, "absent": ["ufo", "bee"], "incomplete": ["car"]},
        {"frame": 2, "absent": [], "incomplete": ["ant"]},
    ],
}


def test_categories_keep_their_ids_and_entries(tmp_path: Path) -> None:
    path = session(tmp_path / "s", CLASSES, {BOXES: {"categories": CATEGORIES}})
    data = pack(path)
    expected = {"car": 3, "ufo": 90, "ant": 91, "bee": 92, "tree": 93}
    about = category_metadata(data)
    assert {name: entry["id"] for name, entry in about.items()} == expected
    assert about["car"] == CATEGORIES["car"]
    assert about["tree"] == {"id": 93, "supercategory": "plant"}
    assert json.loads(data.table.schema.metadata[b"labels"]) == list(expected)
    assert [row["label_index"] for row in data.rows] == [3, 93, 92, None, None]
    assert [row["category_frequency"] for row in data.rows] == ["f", None, None, None, None]
    assert [row["neg_label_indices"] for row in data.rows] == [[90, 92]] * 3 + [None, []]
    incomplete = [row["not_exhaustive_label_indices"] for row in data.rows]
    assert incomplete == [[3]] * 3 + [None, [91]]
    mission = pack(path, schema="mission")
    assert [row["label_index"] for row in mission.rows] == [3, 93, 92, None, None]
    assert [row["neg_label_indices"] for row in mission.rows] == [[90, 92]] * 3 + [None, []]
    assert category_metadata(mission).keys() == CATEGORIES.keys()


def test_categories_are_the_same_in_all_of_a_dataset(tmp_path: Path) -> None:
    """What an older table states stays, and what was kept of it is not written anew."""
    first = session(tmp_path / "a", CLASSES, {BOXES: {"categories": CATEGORIES}})
    out = tmp_path / "out"
    before = pack_all([first], out)
    other = session(tmp_path / "b", {BOXES: [BOX, BOX | {"class": "zoo", "track": "z"}]})
    after = pack_all([other], out)
    assert after.rows[:5] == [
        row | dict.fromkeys(after.rows[0].keys() - row.keys()) for row in before.rows
    ]
    assert [row["label_index"] for row in after.rows[5:]] == [3, 94, None, None]
    assert [row["category_frequency"] for row in after.rows[5:]] == ["f", None, None, None]
    assert category_metadata(after) == category_metadata(before) | {"zoo": {"id": 94}}
    for entries, words in (
        ({"car": {"id": 4}}, r"categories.car.id: 4, but the dataset has 3"),
        ({"zoo": {"id": 4}}, r"categories.zoo.id: 4, but the dataset has 94"),
        ({"ape": {"id": 90}}, r"categories.ape.id: 90 is the index of 'ufo'"),
        ({"ufo": {"frequency": "c"}}, r"categories.ufo.frequency: 'c', but the dataset has 'r'"),
        ({"car": {"colour": "red"}}, r"categories.car.colour: unknown entry; there are id"),
        ({"car": {"id": True}}, r"categories.car.id: needs a whole number from 0"),
        ({"car": {"frequency": "x"}}, r"categories.car.frequency: needs one of f, c, r"),
        ({"car": {"synonyms": [1]}}, r"categories.car: synonyms: needs a text, not 1"),
        ({"car": 3}, r"categories.car: needs a mapping, not 3"),
        ({"\ud800": {}}, r"categories: needs a text, not"),
        ([], r"categories: needs a mapping"),
    ):
        path = session(
            tmp_path / words[:20] / str(len(list(tmp_path.iterdir()))),
            {BOXES: [BOX]},
            {BOXES: {"categories": entries}},
        )
        with pytest.raises(ArchiveError, match=rf"camera\.jsonl:1: {words}"):
            pack_all([path], out)


def test_an_index_that_a_list_cannot_hold_is_refused(tmp_path: Path) -> None:
    files = {BOXES: [], "_labels/camera/pictures.jsonl": [{"frame": 0, "absent": ["ufo"]}]}
    largest = {BOXES: {"categories": {"tram": {"id": 2**32 - 1}}}}
    path = session(tmp_path / "s", files, largest)
    with pytest.raises(ArchiveError, match="a label has an index above 4294967295, which the"):
        pack(path)


def test_two_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    cuboids = "_cuboids/hand.jsonl"
    headers = {BOXES: {"categories": {"car": {"id": 3}}}}
    headers[cuboids] = {"categories": {"car": {"id": 4}}}
    path = session(tmp_path / "s", {BOXES: [BOX], cuboids: [CUBOID]}, headers)
    with pytest.raises(ArchiveError, match=r"camera\.jsonl:1: categories\.car\.id: 3, but .* 4"):
        pack(path)


COLUMNS = {"weather": "text", "lux": "integer", "angle": "number", "night": "bool"}


def test_entries_of_metadata_become_columns(tmp_path: Path) -> None:
    """A label's own come before its picture's, and a picture's before nothing."""
    rich = {"weather": "rain", "lux": 2**40, "angle": 1, "night": False, "more": 1}
    files: dict[str, Lines] = {
        "_cuboids/hand.jsonl": [CUBOID | {"metadata": {"weather": "snow", "angle": 0.5}}],
        BOXES: [BOX | {"metadata": {"weather": "sun"}}, BOX | {"track": "b", "metadata": rich}],
        "_labels/camera/pictures.jsonl": [
            {"frame": 0, "metadata": {"lux": 5, "weather": None}},
            {"frame": 1, "metadata": {"night": True}},
        ],
    }
    path = session(tmp_path / "s", files)
    data = pack(path, columns=COLUMNS)
    kinds = {name: str(data.table.schema.field(name).type) for name in COLUMNS}
    assert list(kinds.values()) == ["string_view", "int64", "double", "bool"]
    assert [tuple(row[name] for name in COLUMNS) for row in data.rows] == [
        ("sun", 5, 0.5, None), ("rain", 2**40, 1.0, False), ("snow", None, 0.5, True), (None,) * 4,
    ]  # fmt: skip
    assert data.noted("_labels/camera.jsonl: metadata of 1 lines left out") == 1
    assert data.noted("left out") == 1
    mission = pack(path, columns=COLUMNS, schema="mission")
    assert [row["weather"] for row in mission.rows] == ["sun", "rain", "snow", None]
    none = pack(path, columns={"unknown": "text"})
    assert "unknown" not in none.table.schema.names
    for columns, words in (
        ({"lux": "text"}, "metadata.lux: the column has the type text, not 5"),
        ({"weather": "number"}, "metadata.weather: the column has the type number, not 'snow'"),
        ({"angle": "integer"}, "metadata.angle: the column has the type integer, not 0.5"),
        ({"night": "integer"}, "metadata.night: the column has the type integer, not False"),
    ):
        with pytest.raises(ArchiveError, match=words):
            pack(path, columns=columns)


def test_further_columns_of_an_older_table_keep_their_type(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name, metadata in (("a", {"lux": 5}), ("b", {"lux": 7, "dry": True})):
        path = session(tmp_path / name, {BOXES: [BOX | {"metadata": metadata}]}, pictures=1)
        kind = {"lux": "integer"} if name == "a" else {"lux": "number", "dry": "bool"}
        data = pack_all([path], out, columns=kind)
    assert [(row["lux"], row["dry"]) for row in data.rows] == [(5, None), (7, True)]
    assert str(data.table.schema.field("lux").type) == "int64"
    path = session(tmp_path / "c", {BOXES: [BOX | {"metadata": {"lux": "much"}}]})
    with pytest.raises(ArchiveError, match="column lux: is of type int64 in the dataset"):
        pack_all([path], out, columns={"lux": "text"})
    kept = pack_all([path], out)
    assert [row["lux"] for row in kept.rows] == [5, 7, None, None, None]


def test_a_text_that_is_no_unicode_is_refused(tmp_path: Path) -> None:
    lone = {"weather": "\ud800"}
    path = session(tmp_path / "s", {BOXES: [BOX | {"metadata": lone}]})
    with pytest.raises(ArchiveError, match=r"camera\.jsonl:2: metadata.weather"):
        pack(path, columns={"weather": "text"})


def test_floats_of_a_score_are_not_rounded_twice(tmp_path: Path) -> None:
    lines = [BOX | {"score": 0.1 * k, "track": str(k)} for k in range(11)]
    data = pack(session(tmp_path / "s", {BOXES: lines}))
    scores = [row["box2d_score"] for row in data.rows[:11]]
    assert scores == [float(np.float32(0.1 * k)) for k in range(11)]
