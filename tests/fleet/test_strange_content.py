"""Content of others in a store, at our keys and beside them; sessions that no store can hold."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.archives.finalize import ArchiveRequest
from recorder.cli import main
from recorder.common.errors import FormatError, RecorderError, SessionError, StorageError
from recorder.fleet.fetching import download_session
from recorder.fleet.packing_jobs import plan_jobs
from recorder.fleet.packing_worker import pack_job
from recorder.fleet.store import open_store
from recorder.fleet.store.base import Store
from recorder.fleet.stored_catalog import catalog_store
from recorder.fleet.uploading import upload_session
from recorder.fleet.verified import verify_store
from recorder.integrity.proof import Trust
from tests.fleet.sessions import content_of, make_session

VRS = ArchiveRequest("vrs")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """With the sessions a and b."""
    made = open_store(f"file://{tmp_path}/store")
    for name in ("a", "b"):
        upload_session(make_session(tmp_path / "root" / name), made)
    return made


def manifest_of(tmp_path: Path, key: str) -> Path:
    return tmp_path / f"store/_manifests/{key}.json"


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found | {"folder": "b"},
        lambda found: found | {"name": "b"},
        lambda found: found | {"name": "b", "folder": "b"},
        lambda found: found | {"kind": "archive"},
        lambda found: found | {"kind": "archive", "folder": "a/vrs"},
        lambda found: found | {"files": found["files"] * 2},
    ],
)
def test_a_manifest_that_is_not_of_its_key_is_none(
    store: Store, tmp_path: Path, change: Callable[[Any], Any]
) -> None:
    path = manifest_of(tmp_path, "a")
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    before = content_of(tmp_path / "store")
    with pytest.raises(FormatError, match=r"_manifests/a\.json: is no manifest: "):
        upload_session(tmp_path / "root/a", store)
    with pytest.raises(FormatError, match=r"_manifests/a\.json: is no manifest: "):
        download_session(store, "a", tmp_path / "back")
    plan = plan_jobs([store.url], [VRS], f"file://{tmp_path}/out")
    assert [job.title for job in plan.jobs] == ["b: vrs"]
    assert list(plan.refused) == [f"{store.url}/_manifests/a.json"]
    rows = catalog_store(store, tmp_path / "catalog.parquet").rows
    assert [row.problem is None for row in rows] == [False, True]
    faults = verify_store(store, Trust()).faults
    assert any(text.startswith(f"{store.url}/_manifests/a.json: ") for text in faults)
    assert content_of(tmp_path / "store") == before


def test_garbage_beside_the_results_stops_no_other_session(store: Store, tmp_path: Path) -> None:
    out = f"file://{tmp_path}/store"
    for job in plan_jobs([store.url], [VRS], out).jobs:
        pack_job(job, str(tmp_path / "scratch"))
    manifest_of(tmp_path, "a/vrs").write_bytes(b"garbage")
    plan = plan_jobs([store.url], [VRS], out)
    assert [job.title for job in plan.finished] == ["b: vrs"]
    assert "a/vrs.json: is no manifest" in plan.refused["a: vrs"]
    (job,) = plan_jobs([store.url], [VRS], f"file://{tmp_path}/x").jobs[:1]
    with pytest.raises(RecorderError, match=r"a/vrs.json: is no manifest"):
        pack_job(type(job)(**{f: getattr(job, f) for f in job.__struct_fields__} | {"out": out}))
    assert manifest_of(tmp_path, "a/vrs").read_bytes() == b"garbage"


def test_what_lies_beside_manifests_is_not_ours(store: Store, tmp_path: Path) -> None:
    for name in ("README.txt", ".DS_Store", "._a.json", "a b.json", "a/vrs.json.bak"):
        manifest_of(tmp_path, "a").with_name("a").mkdir(exist_ok=True)
        (tmp_path / "store/_manifests" / name).write_text("theirs")
    plan = plan_jobs([store.url], [VRS], store.url)
    assert [job.name for job in plan.jobs] == ["a", "b"] and plan.refused == {}
    rows = catalog_store(store, tmp_path / "catalog.parquet").rows
    assert [(row.session, row.problem) for row in rows] == [("a", None), ("b", None)]
    added = verify_store(store, Trust()).faults  # verify reports every added object
    assert len(added) == 5
    assert f"{store.url}/_manifests/README.txt: was added: it belongs to no manifest" in added


@pytest.mark.parametrize("where", ["imu", "imu/acc", "_recorder/events.jsonl"])
def test_data_behind_a_link_would_be_missing_in_the_store(
    tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    session, store = make_session(tmp_path / "drive"), open_store(f"file://{tmp_path}/store")
    (session / where).rename(tmp_path / "moved")
    (session / where).symlink_to(tmp_path / "moved")
    with pytest.raises(SessionError, match=f"drive/{where}: is a link; not uploaded"):
        upload_session(session, store)
    assert list(store.list()) == []
    assert main(["upload", str(session), store.url]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_name_that_no_store_can_have_is_one_message(tmp_path: Path) -> None:
    session, store = make_session(tmp_path / "drive"), open_store(f"file://{tmp_path}/store")
    (session / os.fsdecode(b"caf\xe9")).write_text("")
    with pytest.raises(StorageError, match=r"'drive/caf\\udce9': can be no key of a store"):
        upload_session(session, store)
    assert list(store.list()) == []


def test_one_upload_of_a_session_at_a_time(tmp_path: Path) -> None:
    """Both would share what is known of the parts."""
    session, store = make_session(tmp_path / "drive"), open_store(f"file://{tmp_path}/store")
    refused: list[str] = []

    def second(_: int) -> None:
        with pytest.raises(StorageError) as error:
            upload_session(session, open_store(f"file://{tmp_path}/other"))
        refused.append(str(error.value))

    assert upload_session(session, store, pace=second).changed == ()
    assert set(refused) == {f"{session}: is being uploaded by another process"}
    assert not (tmp_path / "other").exists()
    assert upload_session(session, open_store(f"file://{tmp_path}/other")).sent > 0
