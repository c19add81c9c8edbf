"""`recorder validate ARCHIVE` by our own readers; tests/conformance has the formats' software."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.archives.validation import (
    ArchiveCheck,
    ArchiveReport,
    find_archives,
    validate_archive,
)
from recorder.cli import main
from recorder.common.errors import UsageError
from tests.archives.ncore.packer_rig import lidar, still_imu
from tests.session.build import Builder, camera_spec

pytest.importorskip("numcodecs", reason="needs numcodecs (the extra `archives`)")
pyarrow: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `archives`)")
pytest.importorskip("pyarrow.ipc")

FIRST = {  # the software that is asked for first
    "edgefirst": "edgefirst_client",
    "l5kit": "zarr",
    "ncore": "ncore.impl.data.v4.components",
    "vrs": "pyvrs",
}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = Builder(tmp_path_factory.mktemp("validation") / "drive")
    for spec in (camera_spec(), lidar(), still_imu()):
        builder.add(spec, 0.3)
    path = builder.close()
    list(finalize(path, [ArchiveRequest(name) for name in FIRST]))
    return path / "_archives"


@pytest.fixture(autouse=True)
def no_software(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FIRST.values():
        monkeypatch.setitem(sys.modules, name, None)


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def test_all_are_found_and_sound(archives: Path) -> None:
    found = find_archives(archives)
    assert [path.relative_to(archives).as_posix() for path in found] == [
        "edgefirst/drive",
        "l5kit/drive.zarr",
        "ncore/drive.json",
        "vrs/drive.vrs",
    ]
    for path, name in zip(found, FIRST, strict=True):
        report = validate_archive(path)
        assert (report.archive, report.problems) == (name, [])
        assert report.checked
        (unchecked,) = report.unchecked
        assert "whether" in unchecked
        assert "is not installed" in unchecked


@pytest.mark.parametrize(
    ("inner", "archive"),
    [
        ("ncore/drive.ncore4.zarr.itar", "ncore/drive.json"),
        ("edgefirst/drive/drive.arrow", "edgefirst/drive"),
        ("edgefirst/drive/drive.zip", "edgefirst/drive"),
        ("edgefirst", "edgefirst/drive"),
    ],
)
def test_a_file_of_an_archive_names_it(archives: Path, inner: str, archive: str) -> None:
    assert find_archives(archives / inner) == [archives / archive]


def flip(path: Path, share: float) -> bytes:
    before = path.read_bytes()
    data = bytearray(before)
    data[int(len(data) * share)] ^= 0xFF
    path.write_bytes(data)
    return before


@pytest.mark.parametrize(
    ("pattern", "share", "archive", "words"),
    [
        ("ncore/*.itar", 0.3, "ncore/drive.json", "has MD5"),
        ("vrs/*.vrs", 0.99, "vrs/drive.vrs", "drive.vrs"),
        ("l5kit/*/frames/0", 0.5, "l5kit/drive.zarr", "frames"),
        ("edgefirst/*/*.zip", 0.2, "edgefirst/drive", "damaged"),
    ],
)
def test_damage_is_found(
    archives: Path, pattern: str, share: float, archive: str, words: str
) -> None:
    path = only(archives, pattern)
    before = flip(path, share)
    try:
        report = validate_archive(archives / archive)
    finally:
        path.write_bytes(before)
    assert not report.sound
    assert words in report.problems[0]
    assert "it is damaged" in report.unchecked[0]


def test_a_missing_picture_and_a_missing_store(archives: Path, tmp_path: Path) -> None:
    root = tmp_path / "drive"
    root.mkdir()
    (root / "drive.arrow").write_bytes((archives / "edgefirst/drive/drive.arrow").read_bytes())
    with (
        zipfile.ZipFile(archives / "edgefirst/drive/drive.zip") as old,
        zipfile.ZipFile(root / "drive.zip", "w") as new,
    ):
        for name in old.namelist():
            if not name.endswith("_003.camera.jpeg"):
                new.writestr(name, old.read(name))
    (problem,) = validate_archive(root).problems
    assert "sample 3 of" in problem
    assert "has no picture" in problem
    lone = tmp_path / "drive.json"
    lone.write_bytes((archives / "ncore/drive.json").read_bytes())
    (problem,) = validate_archive(lone).problems
    assert "drive.ncore4.zarr.itar: is missing; drive.json names it" in problem


def test_a_sequence_without_its_json_is_sound(archives: Path, tmp_path: Path) -> None:
    """NVIDIA's writer writes stores alone."""
    store = tmp_path / "drive.ncore4.zarr.itar"
    store.write_bytes((archives / "ncore/drive.ncore4.zarr.itar").read_bytes())
    assert find_archives(tmp_path) == [store]
    report = validate_archive(store)
    assert (report.problems, report.remarks) == (
        [],
        [f"{store}: no JSON file names it and its MD5"],
    )
    (tmp_path / "drive.ncore4-other.zarr.itar").write_bytes(b"nothing")
    assert find_archives(tmp_path) == [store]
    report = validate_archive(store)
    assert not report.sound
    assert "drive.ncore4-other.zarr.itar" in report.problems[0]


def test_a_dataset_that_lists_no_sessions_is_sound(archives: Path, tmp_path: Path) -> None:
    """Packing cannot add to it, which is another question."""
    path = shutil.copytree(archives / "l5kit/drive.zarr", tmp_path / "drive.zarr")
    attributes = json.loads((path / ".zattrs").read_bytes())
    del attributes["recorder"]
    (path / ".zattrs").write_text(json.dumps(attributes))
    report = validate_archive(path)
    assert report.problems == []
    (remark,) = report.remarks
    assert "cannot be extended: it does not list its sessions" in remark


PICTURE = ("seq/seq_001.camera.jpeg",)


@pytest.mark.parametrize(
    ("columns", "version", "files", "remark"),
    [
        ({"status": ["verified"]}, "2026.10", PICTURE, None),
        ({"box2d_score": [0.5], "iou": [0.5]}, "2026.10", PICTURE, "others added: iou"),
        ({"mask": [[0.5, 0.5]]}, "2025.10", PICTURE, "cannot be extended: its schema is 2025.10"),
        ({"mask": [[0.5, 0.5]]}, None, PICTURE, "cannot be extended: its schema is 2025.10"),
        ({}, None, ("seq_001.JPG",), None),
        ({"frame": [None]}, None, ("deep/seq.png",), None),
        ({"frame": [None]}, None, ("seq.camera.jpg",), None),
    ],
)
def test_tables_of_others_are_sound(
    tmp_path: Path,
    columns: dict[str, list[Any]],
    version: str | None,
    files: Sequence[str],
    remark: str | None,
) -> None:
    root = tmp_path / "others"
    for name in files:
        (root / "others" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "others" / name).write_bytes(b"picture")
    table = pyarrow.table({"name": ["seq"], "frame": pyarrow.array([1], "u4")} | columns)
    if version is not None:
        table = table.replace_schema_metadata({"schema_version": version})
    with pyarrow.ipc.new_file(str(root / "others.arrow"), table.schema) as writer:
        writer.write_table(table)
    report = validate_archive(root)
    assert report.problems == []
    assert [remark is not None and remark in line for line in report.remarks] == [True] * (
        remark is not None
    )
    (root / "others" / files[0]).rename(root / "others/elsewhere.jpeg")
    assert "has no picture" in validate_archive(root).problems[0]


def test_software_that_refuses_is_a_problem(
    archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refuses:
        @staticmethod
        def SyncVRSReader(path: str) -> Any:  # noqa: N802
            raise ValueError("not to my taste")

    monkeypatch.setitem(sys.modules, "pyvrs", Refuses)
    report = validate_archive(archives / "vrs/drive.vrs")
    assert report.problems == [f"{archives}/vrs/drive.vrs: pyvrs: ValueError: not to my taste"]


def test_progress_rises_over_both_readers(archives: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Halves(ArchiveCheck):
        software, left = "other software", "the rest"

        def find(self, path: Path) -> Path | None:
            return path

        def read(self, path: Path, report: ArchiveReport) -> Iterator[float]:
            yield from (0.5, 1.0)

        def read_with_software(self, path: Path, report: ArchiveReport) -> Iterator[float]:
            yield from (0.5, 1.0)

    monkeypatch.setattr("recorder.archives.validation._check", lambda name: Halves())
    told: list[tuple[str, float]] = []
    validate_archive(archives / "vrs/drive.vrs", lambda *what: told.append(what))
    assert told == [
        ("own reader", 0.25), ("own reader", 0.5), ("other software", 0.75), ("other software", 1.0)
    ]  # fmt: skip


def test_the_command(archives: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(archives / "vrs/drive.vrs")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("checked      ")
    assert lines[1].startswith("not checked  whether other readers of VRS read it: pyvrs is not")
    assert lines[2].endswith("drive.vrs: vrs: sound as far as it was checked")
    assert main(["validate", str(archives), "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["sound"]
    assert [one["archive"] for one in result["archives"]] == list(FIRST)
    path = only(archives, "vrs/*.vrs")
    before = flip(path, 0.99)
    try:
        assert main(["validate", str(archives)]) == 1
    finally:
        path.write_bytes(before)
    assert "vrs: not sound" in capsys.readouterr().out


def test_no_archive(tmp_path: Path) -> None:
    assert find_archives(tmp_path) == []
    with pytest.raises(UsageError, match="is no archive"):
        validate_archive(tmp_path)
