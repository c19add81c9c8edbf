"""The catalog of a store, from the manifests alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recorder.archives.finalize import ArchiveRequest
from recorder.cli import main
from recorder.fleet.catalog.rows import read_row
from recorder.fleet.catalog.table import read_table
from recorder.fleet.packing_jobs import plan_jobs
from recorder.fleet.packing_worker import pack_job
from recorder.fleet.store import open_store
from recorder.fleet.store.base import Store
from recorder.fleet.stored_catalog import catalog_store
from recorder.fleet.uploading import upload_session
from tests.fleet.conftest import CAMPAIGN
from tests.fleet.sessions import make_session

pytest.importorskip("pyarrow")


@pytest.mark.parametrize("server", CAMPAIGN, indirect=True)
def test_a_stores_sessions_are_in_its_catalog(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "fleet.parquet"
    for name in ("b", "a"):
        upload_session(make_session(tmp_path / name), store)
    update = catalog_store(store, out)
    assert (update.read, update.unchanged, update.gone) == (2, 0, 0)
    rows = read_table(out)
    assert [row.location for row in rows] == [f"{store.url}/a", f"{store.url}/b"]
    local = read_row(tmp_path / "a")
    assert rows[0].streams == local.streams and rows[0].start_ns and local.start_ns
    assert rows[0].start_ns // 1000 == local.start_ns // 1000  # the table has microseconds
    assert rows[0].archives == ("l5kit",) and rows[0].bytes > 0
    upload_session(make_session(tmp_path / "c"), store)
    update = catalog_store(store, out)
    assert (update.read, update.unchanged, update.gone) == (1, 2, 0)
    for job in plan_jobs([store.url], [ArchiveRequest("vrs")], store.url).jobs[:1]:
        pack_job(job, str(tmp_path / "scratch"))
    update = catalog_store(store, out)
    assert (update.read, update.unchanged) == (1, 2)
    assert [row.archives for row in read_table(out)] == [("l5kit", "vrs"), ("l5kit",), ("l5kit",)]
    other = catalog_store(open_store(f"file://{tmp_path}/empty"), out)
    assert (other.read, other.gone) == (0, 3) and read_table(out) == []


def test_known_manifests_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out = open_store(f"file://{tmp_path}/store"), tmp_path / "fleet.parquet"
    upload_session(make_session(tmp_path / "a"), store)
    catalog_store(store, out)
    monkeypatch.setattr(store, "read", lambda key: pytest.fail(f"reads {key}"))
    assert catalog_store(store, out).unchanged == 1


def test_the_command_takes_a_url(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"file://{tmp_path}/store"
    upload_session(make_session(tmp_path / "a"), open_store(url))
    (tmp_path / "store/_manifests/b.json").write_text("{")
    assert main(["catalog", url, "--format", "json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["sessions"] == 2
    assert f"{url}/b: " in said.err and "is no manifest" in said.err
    assert main(["list", "catalog.parquet"]) == 1  # it lists the one that cannot be read, too
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("a        clean") and lines[2].startswith("b        unreadable")
