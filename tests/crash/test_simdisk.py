"""The simulated disk does what the real one does, and loses what a real one may lose."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from recorder.common.files import Disk, PosixDisk
from tests.crash.model import Model
from tests.crash.simdisk import Op, SimulatedDisk, Tree


def use(disk: Disk, folder: Path) -> None:
    """Every operation of a disk once."""
    disk.make_folder(folder / "a")
    file = disk.create(folder / "a/data")
    file.append(b"0123456789")
    file.append(memoryview(b"abc"))
    file.flush()
    file.patch(2, b"xy")
    file.sync()
    file.append(b"tail")
    file.close()
    file = disk.reopen(folder / "a/data", 12)
    assert file.dirty
    file.sync()
    file.close()
    disk.write_file(folder / "a/meta", b"one")
    disk.write_file(folder / "a/meta", b"two")
    disk.make_folder(folder / "b")
    disk.rename(folder / "a", folder / "b/c")
    disk.rename(folder / "b/c/data", folder / "b/c/else")
    disk.sync_folder(folder)


def test_operations_are_those_of_the_real_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "simulated").mkdir()
    (tmp_path / "real").mkdir()
    simulated = SimulatedDisk(tmp_path / "simulated")
    use(simulated, tmp_path / "simulated")
    kinds = {"write": "write", "cut": "cut", "mkdir": "mkdir", "move": "move", "link": "link"}
    expected = [kinds.get(op.kind, "sync") for op in simulated.ops]

    calls: list[str] = []

    def watch(name: str, kind: str) -> None:
        real: Callable[..., Any] = getattr(os, name)

        def watched(*args: Any, **more: Any) -> Any:
            result = real(*args, **more)
            # Opening makes a name where it may create.
            if name != "open" or args[1] & os.O_CREAT:
                calls.append(kind)
            return result

        monkeypatch.setattr(os, name, watched)

    for name in ("write", "writev", "pwrite"):
        watch(name, "write")
    for name in ("fsync", "fdatasync"):
        watch(name, "sync")
    for name in ("rename", "replace"):
        watch(name, "move")
    watch("ftruncate", "cut")
    watch("mkdir", "mkdir")
    watch("open", "link")
    use(PosixDisk(), tmp_path / "real")
    monkeypatch.undo()
    assert calls == expected
    real, made = Tree.of(tmp_path / "real"), Tree.of(tmp_path / "simulated")
    assert real.digest() == made.digest()


def test_the_model_ends_where_the_files_are(tmp_path: Path) -> None:
    base = Tree.of(tmp_path)
    disk = SimulatedDisk(tmp_path, base=base)
    use(disk, tmp_path)
    model = Model(base)
    for op in disk.ops:
        model.apply(op)
    assert model.visible().digest() == Tree.of(tmp_path).digest()


def test_what_is_synced_stays_and_what_is_not_may_go() -> None:
    model = Model(Tree())
    model.apply(Op("link", 1, parent=0, name="file"))
    model.apply(Op("write", 1, 0, b"a" * 600))
    model.apply(Op("sync", 1))
    model.apply(Op("folder", 0))
    assert model.visible().digest() == model.power_cut(Random(0)).digest()
    model.apply(Op("write", 1, 600, b"b" * 9000))
    model.apply(Op("write", 1, 10, b"patch"))
    model.apply(Op("link", 2, parent=0, name="other"))
    random = Random(1)
    found = [dict(model.power_cut(random).walk()) for _ in range(3000)]
    files = [state["file"] or b"" for state in found]
    assert all(f[15:600] == b"a" * 585 and len(f) >= 600 for f in files)
    assert {f[10:15] for f in files} >= {b"aaaaa", b"patch"}
    lengths = {len(f) for f in files}
    assert {600, 1024, 4096, 8192, 9600} <= lengths
    assert {"other" in state for state in found} == {True, False}
    whole = [f for f in files if len(f) == 9600]
    assert any(set(f[600:]) == {0} for f in whole), "length without data: zeros"
    assert any(len(set(f[600:])) > 100 for f in whole), "length without data: garbage"
    assert any(b"b" * 512 in f and b"\0" * 512 in f for f in whole), "pages out of order"


def test_a_name_is_lost_with_its_folder_unsynced() -> None:
    model = Model(Tree())
    for op in (
        Op("mkdir", 1, parent=0, name="folder"),
        Op("link", 2, parent=1, name="file"),
        Op("write", 2, 0, b"data"),
        Op("sync", 2),
        Op("folder", 1),
    ):
        model.apply(op)
    random = Random(2)
    seen = {tuple(path for path, _ in model.power_cut(random).walk()) for _ in range(100)}
    assert seen == {(), ("folder", "folder/file")}
    model.apply(Op("folder", 0))
    seen = {tuple(path for path, _ in model.power_cut(random).walk()) for _ in range(100)}
    assert seen == {("folder", "folder/file")}
