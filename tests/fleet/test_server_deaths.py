"""A server that is killed and comes back with what it had: SeaweedFS."""

from __future__ import annotations

import random
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recorder.common.errors import StorageError
from recorder.fleet.store import open_store
from recorder.fleet.store.base import PART_BYTES, StoreRefusedError
from recorder.fleet.store.manifest import Manifest
from recorder.fleet.uploading import check_objects, upload_session
from tests.fleet.conftest import use
from tests.fleet.dask_processes import DaskProcesses
from tests.fleet.servers import S3Server, SeaweedFS, running
from tests.fleet.sessions import make_session
from tests.fleet.test_cluster import command, finish, reference, uploaded
from tests.fleet.test_uploading import stored

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("seed", range(2))
def test_uploads_survive_the_servers_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = random.Random(seed)
    session = make_session(tmp_path / "root/drive", large=2 * PART_BYTES + 99, seed=seed)
    (tmp_path / "weed").mkdir()
    with running(SeaweedFS, tmp_path / "weed") as server:
        use(server, monkeypatch, tmp_path)
        store, deaths, total = open_store("s3://fleet/v"), 0, 0
        while True:
            at, sent = dice.randrange(1, 3 * PART_BYTES), 0

            def pace(size: int, at: int = at) -> None:
                nonlocal sent, deaths
                sent += size
                if sent >= at and deaths < 3:
                    deaths, sent = deaths + 1, -(10**12)
                    server.close()

            try:
                done = upload_session(session, store, pace=pace)
                break
            except StorageError as error:
                assert str(error).startswith("s3://fleet/v")
                assert not manifests_after_start(server, monkeypatch, tmp_path)
                total += 1
                assert total < 10, error
        assert deaths >= 1
        there = stored(store)
        manifest = Manifest.decode(there["_manifests/drive.json"], "")
        check_objects(store, manifest)
        assert done.files == len(manifest.files) == len(there) - 1
        assert server.unfinished("s3://fleet/v") == {}


def manifests_after_start(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[str]:
    """The manifests that the server has when it is back."""
    server.start()
    use(server, monkeypatch, tmp_path)
    return [found.key for found in open_store("s3://fleet/v").list("_manifests/")]


def test_packing_survives_the_servers_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers find it gone while they fetch or store; the command is run until all is packed."""
    pytest.importorskip("distributed", reason="needs the extra cluster")
    dice = random.Random(3)
    (tmp_path / "weed").mkdir()
    with running(SeaweedFS, tmp_path / "weed") as server:
        use(server, monkeypatch, tmp_path)
        url = "s3://fleet/v"
        source, out = uploaded(url, tmp_path, 4), open_store(f"{url}/out")
        dask = DaskProcesses(tmp_path / "dask", server.environment)
        try:
            dask.start_scheduler()
            dask.start_worker()
            words = command(source, dask, out.url)
            for deaths in range(1, 3):
                process = subprocess.Popen(
                    words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
                )
                while (
                    sum(1 for _ in out.list("_manifests/")) < 2 * deaths and process.poll() is None
                ):
                    time.sleep(0.05)
                time.sleep(dice.random() * 0.3)
                server.close()
                said = process.communicate()[1]
                assert "Traceback" not in said
                server.start()
            finish(words)
        finally:
            dask.close()
        assert stored(out) == reference(source, tmp_path)
        assert server.unfinished(url) == {}


def test_a_wrong_clock_is_its_message(
    seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import botocore.auth

    use(seaweedfs, monkeypatch, tmp_path)
    real = botocore.auth.get_current_datetime

    def late(remove_tzinfo: bool = True) -> datetime:
        now: datetime = real(remove_tzinfo)
        return now - timedelta(hours=3)

    assert late(False).tzinfo is UTC
    monkeypatch.setattr(botocore.auth, "get_current_datetime", late)
    with pytest.raises(StorageError, match="the clock of this machine is wrong; the server"):
        open_store("s3://fleet/v").put_new("x", b"x")
    with pytest.raises(StoreRefusedError, match="the clock of this machine is wrong; the server"):
        open_store("s3://fleet/v").stat("x")
