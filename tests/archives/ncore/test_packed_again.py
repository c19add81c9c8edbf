"""A packed sequence that new components were added to, and that is packed again."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives import staging
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.archives.ncore import SequenceWriter
from recorder.archives.ncore.format.manifest import read_manifest, store_md5
from recorder.archives.ncore.format.sequence import StoreKind
from recorder.common.errors import ArchiveError, StorageError
from tests.archives.ncore import build
from tests.archives.ncore.packer_rig import CALIBRATION
from tests.session.build import START_NS, build_session, camera_spec

MAIN = {"itar": "drive.ncore4.zarr.itar", "folder": "drive.ncore4.zarr"}
LABELS = {"itar": "drive.ncore4-labels.zarr.itar", "folder": "drive.ncore4-labels.zarr"}


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return build_session(tmp_path / "drive", camera_spec(), seconds=0.5).path


def pack(session: Path, **options: Any) -> tuple[Path, list[str]]:
    """The JSON file and the notes."""
    (result,) = finalize(session, [ArchiveRequest("ncore", options)])
    return result.files[-1], list(result.notes)


def label(meta: Path, store: StoreKind = "itar", group: str = "labels") -> None:
    with SequenceWriter.extend(meta, store=store) as later:
        later.cuboids(group, group=group).add(build.CUBOIDS[:0])
        writer = later.camera_labels(build.CLASSES, f"{group}@camera", group=group)
        writer.label(START_NS + 100_000_000, build.jpeg(1))


def stores(meta: Path) -> dict[str, str]:
    """MD5 by name; each is that of the store as it lies there."""
    found = {entry.path: entry.md5 for entry in read_manifest(meta).stores}
    assert all(store_md5(meta.parent / path) == md5 for path, md5 in found.items())
    return found


@pytest.mark.parametrize("store", ["itar", "folder"])
@pytest.mark.parametrize("kind", ["itar", "folder"])
def test_added_stores_stay_named(session: Path, store: StoreKind, kind: StoreKind) -> None:
    meta, _ = pack(session, store=store)
    label(meta, kind)
    added = stores(meta)[LABELS[kind]]
    (session / "calibration.yaml").write_text(CALIBRATION)  # a better one
    again, _ = pack(session, store=store)
    assert list(stores(again)) == [MAIN[store], LABELS[kind]]
    assert stores(again)[LABELS[kind]] == added
    components = read_manifest(again).stores[1].components
    assert components.keys() == {"cuboids", "camera_labels"}
    label(again, kind, "more")  # and it can be added to once more
    assert len(stores(again)) == 3
    pack(session, store="folder" if store == "itar" else "itar")
    assert len(stores(again)) == 3
    assert not (session / "_archives/ncore" / MAIN[store]).exists()


def test_what_calibration_and_options_were_stands_in_the_poses(session: Path) -> None:
    (session / "calibration.yaml").write_text(CALIBRATION)
    meta, _ = pack(session, poses="identity")
    (entry,) = read_manifest(meta).stores
    packing = entry.components["poses"]["default"]["generic_meta_data"]["packing"]
    assert packing["options"]["poses"] == "identity"
    assert len(packing["calibration_sha256"]) == 64


class Killed(BaseException):
    """Stands in for SIGKILL."""


class Death:
    """After so many changes of the archive's folder nothing is done any more, not even undone."""

    def __init__(self, place: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self.dead, self.place = after, False, place
        for owner, name in (
            (Path, "rename"), (Path, "unlink"), (Path, "rmdir"),
            (staging, "exchange"), (shutil, "rmtree"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if self.dead:
                raise OSError(errno.EIO, "dead")
            if len(args) == 2 and self.place in (Path(a).parent for a in args):
                if not self.left:
                    self.dead = True
                    raise Killed
                self.left -= 1
            return real(*args, **options)

        return call


@pytest.mark.parametrize("renames", range(4))
@pytest.mark.parametrize("store", ["itar", "folder"])
def test_killed_between_two_renames(session: Path, store: StoreKind, renames: int) -> None:
    """Whatever JSON file is there names what lies there, and the next run names everything."""
    meta, _ = pack(session, store=store)
    label(meta)
    (session / "calibration.yaml").write_text(CALIBRATION)
    with pytest.MonkeyPatch.context() as patched:
        death = Death(meta.parent, renames, patched)
        try:
            pack(session, store=store)
        except (Killed, OSError, StorageError):
            assert death.dead
        assert death.dead == (renames < 3)
    if meta.exists():
        assert list(stores(meta)) == [MAIN[store], LABELS["itar"]]
    assert (meta.parent / LABELS["itar"]).is_file()
    pack(session, store=store)
    assert list(stores(meta)) == [MAIN[store], LABELS["itar"]]
    assert {path.name for path in meta.parent.iterdir()} == {meta.name, *stores(meta)}


def test_a_store_that_no_json_file_names_is_found(session: Path) -> None:
    meta, _ = pack(session)
    label(meta)
    meta.unlink()  # extending was killed before it, or somebody lost it
    pack(session)
    assert list(stores(meta)) == [MAIN["itar"], LABELS["itar"]]


def test_a_store_that_is_gone_is_said(session: Path) -> None:
    meta, _ = pack(session)
    label(meta)
    (meta.parent / LABELS["itar"]).unlink()
    _, notes = pack(session)
    assert sum(LABELS["itar"] in note and "gone" in note for note in notes) == 1
    assert list(stores(meta)) == [MAIN["itar"]]


def test_a_store_that_was_changed_is_refused(session: Path) -> None:
    meta, _ = pack(session)
    label(meta)
    before = (meta.parent / MAIN["itar"]).read_bytes(), meta.read_bytes()
    path = meta.parent / LABELS["itar"]
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ArchiveError, match=r"drive: ncore: .*labels\.zarr\.itar: has MD5 .* not"):
        pack(session)
    assert ((meta.parent / MAIN["itar"]).read_bytes(), meta.read_bytes()) == before


def test_a_store_of_another_sequence_is_refused(session: Path) -> None:
    meta, _ = pack(session)
    label(meta)
    document = json.loads(meta.read_text())
    interval = document["sequence_timestamp_interval_us"]
    with SequenceWriter(
        meta.parent, "drive", metadata={"vehicle": "another"},
        interval_ns=(interval["start"] * 1000, (interval["stop"] + 5) * 1000),
    ) as other:  # fmt: skip
        other.poses(group="other").static_pose("rig", "world", np.eye(4))
        for shared in (other.masks, other.intrinsics, other.cuboids):
            shared(group="other")
    words = (
        r"drive.ncore4-other.zarr.itar: .* does not match .*interval .*other metadata \(end_ns, "
    )
    with pytest.raises(ArchiveError, match=words):
        pack(session)


def test_what_is_no_store_is_said(session: Path) -> None:
    pack(session)
    (session / "_archives/ncore/drive.ncore4-x.zarr.itar").write_bytes(b"cut")
    meta, notes = pack(session)
    assert sum("drive.ncore4-x.zarr.itar: is no store" in note for note in notes) == 1
    assert list(stores(meta)) == [MAIN["itar"]]


def test_what_would_be_there_twice_is_refused(session: Path) -> None:
    meta, _ = pack(session)
    with SequenceWriter.extend(meta) as later:
        writer = later.camera_labels(build.CLASSES, "segmentation.semantic@camera", group="labels")
        writer.label(START_NS + 100_000_000, build.jpeg(1))
    folder = session / "_camera"
    folder.mkdir()
    np.zeros((15, 24, 32), np.uint8).tofile(folder / "segment")
    entry = {"format": "raw", "type": "u1", "shape": [24, 32], "desc": ""}
    (folder / "meta.json").write_text(json.dumps({"segment": entry}))
    with pytest.raises(ArchiveError, match=r"has this instance already, in .*-labels\.zarr\.itar"):
        pack(session)
