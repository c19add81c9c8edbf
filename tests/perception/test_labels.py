"""Lines, numbers and texts of labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recorder.common.errors import FormatError
from recorder.perception.labels import (
    LabelFile,
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
