"""Lines, numbers and texts of labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.common.errors import FormatError
from recorder.perception.labels import (
    LabelFile,
    box_files,
    cloud_folders,
    cuboid_files,
    mask_files,
    number_rows,
    numbers,
    texts,
)


def test_numbers_are_whole_or_not() -> None:
    label = json.loads('{"at": [1, -2.5, 1e300, 0]}')
    assert numbers(label, "at", 4, "here") == (1.0, -2.5, 1e300, 0.0)


NO_NUMBERS = pytest.mark.parametrize(
    "text",
    [
        "[1, 2]",
        "[1, 2, 3, 4]",
        "[1, 2, true]",
        "[1, 2, null]",
        '[1, 2, "3"]',
        "[1, 2, [3]]",
        "[1, 2, NaN]",
        "[1, 2, -Infinity]",
        f"[1, 2, 1{'0' * 400}]",
        '{"0": 1, "1": 2, "2": 3}',
        '"abc"',
        "null",
    ],
)


@NO_NUMBERS
def test_what_is_no_list_of_finite_numbers_is_refused(text: str) -> None:
    label = json.loads(f'{{"at": {text}}}')
    with pytest.raises(FormatError, match=r"file:3: at: needs 3 numbers, not "):
        numbers(label, "at", 3, "file:3")


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(FormatError, match="at: needs 3 numbers, not None"):
        numbers({}, "at", 3, "file:3")


def test_numbers_of_many_labels() -> None:
    lines = [("f:2", {"at": [1, -2.5, 3]}), ("f:3", {"at": [4.0, 5, 1e300]})]
    assert number_rows(lines, "at", 3).tolist() == [[1, -2.5, 3], [4, 5, 1e300]]
    assert number_rows(lines[:1], "at", 3).shape == (1, 3)


@NO_NUMBERS
def test_the_label_without_numbers_is_named(text: str) -> None:
    good = {"at": [1, 2, 3]}
    lines = [("file:2", good), ("file:3", json.loads(f'{{"at": {text}}}')), ("file:4", good)]
    with pytest.raises(FormatError, match=r"file:3: at: needs 3 numbers, not "):
        number_rows(lines, "at", 3)


def test_lists_of_other_lengths_do_not_make_up_for_each_other() -> None:
    lines = [("file:2", {"at": [1, 2]}), ("file:3", {"at": [3, 4, 5, 6]})]
    with pytest.raises(FormatError, match="file:2: at: needs 3 numbers"):
        number_rows(lines, "at", 3)


def test_texts_of_many_labels() -> None:
    lines = [("file:2", {"class": "car"}), ("file:3", {"class": "tree"})]
    assert texts(lines, "class") == ["car", "tree"]
    for value in ("", None, 3, ["car"], "c\ud800r"):
        with pytest.raises(FormatError, match="file:4: class: needs a text, not "):
            texts([*lines, ("file:4", {"class": value})], "class")


def lines_of(path: Path, text: bytes) -> list[tuple[str, dict[str, object]]]:
    path.write_bytes(b"header\n" + text)
    return list(LabelFile(path, {}).lines())


def test_lines_however_they_are_set(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    text = '{"t_ns": 1, "class": "Bär"}\n\n \t{ "t_ns": 2 } \r\n{"t_ns": 3}'
    assert lines_of(path, text.encode()) == [
        (f"{path}:2", {"t_ns": 1, "class": "Bär"}),
        (f"{path}:4", {"t_ns": 2}),
        (f"{path}:5", {"t_ns": 3}),
    ]
    (marked,) = lines_of(path, b"\xef\xbb\xbf" + b'{"t_ns": 4}\n')  # as some editors save it
    assert marked == (f"{path}:2", {"t_ns": 4})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"t_ns": 1', "not JSON"),
        (b'{"t_ns": 1} {"t_ns": 2}', "not JSON: Extra data"),
        (b'{"t_ns": 1, "class": "\xff"}', "not JSON"),
        (b"[" * 200_000, "not JSON: maximum recursion"),
        (b"[1]", "a list, not a mapping"),
        (b'{"t_ns": true}', "t_ns: needs a whole number of nanoseconds"),
        (b'{"t_ns": 1.5}', "t_ns: needs a whole number of nanoseconds"),
        (b"{}", "t_ns: needs a whole number of nanoseconds"),
    ],
)
def test_the_line_that_is_no_label_is_named(tmp_path: Path, line: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=rf"a\.jsonl:3: {words}"):
        lines_of(tmp_path / "a.jsonl", b'{"t_ns": 1}\n' + line + b"\n")


CUBOID_HEADER = {"format": "recorder-cuboids", "version": 1}
BOX_HEADER = {"format": "recorder-boxes", "version": 1}
CLOUD_HEADER = {"format": "recorder-point-clouds", "version": 1, "frame": "rig"}


def write(path: Path, *lines: dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ({"occulded": 0.5}, r"occulded: unknown key \(did you mean 'occluded'\?\)"),
        ({"colour": "red"}, "colour: unknown key; 'metadata' may hold anything"),
        ({"box_px": [0, 0, 1, 1]}, "box_px: unknown key"),  # of the other format
        ({"score": 1.5}, "score: needs a number from 0 to 1, not 1.5"),
        ({"score": True}, "score: needs a number from 0 to 1, not True"),
        ({"truncated": "half"}, "truncated: needs a number from 0 to 1, not 'half'"),
        ({"occluded": None}, "occluded: needs a number from 0 to 1, not None"),
        ({"status": ""}, "status: needs a text, not ''"),
        ({"degradation": "fog"}, "degradation: needs one of none, low, medium, high, not 'fog'"),
        ({"metadata": [1]}, r"metadata: needs a mapping, not \[1\]"),
    ],
)
def test_a_key_that_is_not_understood_is_an_error(
    tmp_path: Path, label: dict[str, object], words: str
) -> None:
    """It was dropped in silence."""
    good = {"t_ns": 1, "track": "a", "class": "car"}
    write(tmp_path / "_cuboids/a.jsonl", CUBOID_HEADER, good, good | label)
    (file,) = cuboid_files(tmp_path)
    with pytest.raises(FormatError, match=rf"_cuboids/a\.jsonl:3: {words}"):
        list(file.lines())


def test_what_a_label_may_have_besides(tmp_path: Path) -> None:
    label = {"t_ns": 1, "score": 0, "truncated": 1, "occluded": 0.25, "status": "verified",
             "degradation": "none", "metadata": {"colour": "red"}}  # fmt: skip
    write(tmp_path / "_cuboids/a.jsonl", CUBOID_HEADER | {"threshold": 0.3}, label)
    write(tmp_path / "_labels/front.jsonl", BOX_HEADER, label)
    files = [*cuboid_files(tmp_path), *box_files(tmp_path)]
    assert [found for file in files for _, found in file.lines()] == [label, label]
    assert files[0].header["threshold"] == 0.3  # headers are kept whole


def test_sets_of_a_cameras_labels(tmp_path: Path) -> None:
    for name in ("front", "front@net", "rear@human_verified"):
        write(tmp_path / f"_labels/{name}.jsonl", BOX_HEADER)
    files = box_files(tmp_path)
    found = {file.name: (file.camera, file.set_name) for file in files}
    assert found == {
        "front": ("front", ""),
        "front@net": ("front", "net"),
        "rear@human_verified": ("rear", "human_verified"),
    }
    write(tmp_path / "_labels/other@net.jsonl", BOX_HEADER | {"camera": "front"})
    with pytest.raises(FormatError, match=r"other@net\.jsonl:1: .*front has labels in .*front@net"):
        box_files(tmp_path)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"units": "UNITLESS"}, r"units: unknown key \(did you mean 'unit'\?\)"),
        ({"unit": "feet"}, "unit: needs one of meters, unitless, not 'feet'"),
        ({"unit": 1}, "unit: needs one of meters, unitless, not 1"),
        ({"attributes": ["normal"]}, "attributes: needs a mapping"),
        ({"attributes": {"normal": "direction"}}, r"attributes\.normal: needs a mapping"),
        (
            {"attributes": {"normal": {"transform": "turn"}}},
            r"attributes\.normal\.transform: needs one of invariant, direction, point, not 'turn'",
        ),
        (
            {"attributes": {"normal": {"transfrom": "direction"}}},
            r"attributes\.normal: transfrom: unknown key \(did you mean 'transform'\?\)",
        ),
        ({"data": "bounds"}, "data: needs a list of names of arrays, not 'bounds'"),
        ({"data": [1]}, r"data: needs a list of names of arrays, not \[1\]"),
        ({"data": ["xyz"]}, "data: xyz has values of points"),
        ({"data": ["normal"], "attributes": {"normal": {}}}, "data: normal has values of points"),
    ],
)
def test_what_a_clouds_header_cannot_say(
    tmp_path: Path, header: dict[str, object], words: str
) -> None:
    write(tmp_path / "_point_clouds/map/index.jsonl", CLOUD_HEADER | header)
    with pytest.raises(FormatError, match=rf"map/index\.jsonl:1: {words}"):
        cloud_folders(tmp_path)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"label": np.zeros(3)}, r"0\.npz: has no array normal, which the header describes"),
        ({"normal": np.zeros(2)}, r"0\.npz: normal has 2 rows, xyz 3"),
        ({"normal": np.float32(1)}, r"0\.npz: normal has no rows, xyz 3"),
    ],
)
def test_clouds_that_are_not_as_their_header_says(
    tmp_path: Path, attributes: dict[str, Any], words: str
) -> None:
    described = {"attributes": {"normal": {"transform": "DIRECTION"}}}
    line = {"t_ns": 1, "file": "0.npz"}
    index = write(tmp_path / "_point_clouds/map/index.jsonl", CLOUD_HEADER | described, line)
    np.savez(index.with_name("0.npz"), xyz=np.zeros((3, 3)), **attributes)
    (folder,) = cloud_folders(tmp_path)
    with pytest.raises(FormatError, match=words):
        list(folder.clouds())


def test_a_clouds_own_data_are_no_values_of_points(tmp_path: Path) -> None:
    line = {"t_ns": 1, "file": "0.npz", "metadata": {"a": 1}}
    header = CLOUD_HEADER | {"data": ["bounds"]}
    index = write(tmp_path / "_point_clouds/map/index.jsonl", header, line)
    np.savez(index.with_name("0.npz"), xyz=np.zeros((3, 3)), bounds=np.arange(2), label=np.ones(3))
    (folder,) = cloud_folders(tmp_path)
    (cloud,) = folder.clouds()
    assert (list(cloud.attributes), cloud.metadata) == (["label"], {"a": 1})
    assert {name: values.tolist() for name, values in cloud.data.items()} == {"bounds": [0, 1]}
    np.savez(index.with_name("0.npz"), xyz=np.zeros((3, 3)))
    with pytest.raises(FormatError, match=r"0\.npz: has no array bounds, which the header desc"):
        list(folder.clouds())


def test_labels_in_the_making_are_none(tmp_path: Path) -> None:
    """What begins with a dot is being written, or was when its writer died."""
    for name in ("front/ego.png", "front/.ego.png", "front/lane.png", "rear/ego.png", "ego.png"):
        path = tmp_path / "_masks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    masks = tmp_path / "_masks"
    assert mask_files(tmp_path) == {
        "front": {"ego": masks / "front/ego.png", "lane": masks / "front/lane.png"},
        "rear": {"ego": masks / "rear/ego.png"},
    }
    header = {"format": "recorder-cuboids", "version": 1}
    (tmp_path / "_cuboids").mkdir()
    for name in ("truth", ".truth", "hand", ".hand.jsonl.part"):
        (tmp_path / "_cuboids" / f"{name}.jsonl").write_text(json.dumps(header) + "\n")
    assert [file.name for file in cuboid_files(tmp_path)] == ["hand", "truth"]
