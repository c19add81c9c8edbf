"""What is planned for a cluster, and what a worker does with a job."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.common.errors import RecorderError, StorageError, UsageError
from recorder.fleet import packing_worker
from recorder.fleet.dask_cluster import make_task_key
from recorder.fleet.packing_jobs import Job, Plan, plan_jobs
from recorder.fleet.packing_worker import pack_job
from recorder.fleet.store import open_store
from recorder.fleet.store.base import ObjectExistsError
from recorder.fleet.store.manifest import Manifest
from recorder.fleet.uploading import upload_session
from tests.fleet.sessions import content_of, make_session

L5KIT, VRS = ArchiveRequest("l5kit"), ArchiveRequest("vrs")


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    """URL of a store with two sessions."""
    url = f"file://{tmp_path}/in"
    for name in ("a", "b"):
        upload_session(make_session(tmp_path / "root" / name, seed=ord(name)), open_store(url))
    return url


def out(tmp_path: Path) -> str:
    return f"file://{tmp_path}/out"


def do(plan: Plan, tmp_path: Path) -> None:
    for job in plan.jobs:
        pack_job(job, str(tmp_path / "scratch"))


def test_a_job_is_one_session_and_one_archive(fleet: str, tmp_path: Path) -> None:
    plan = plan_jobs([fleet], [VRS, L5KIT], out(tmp_path))
    assert [job.title for job in plan.jobs] == ["a: vrs", "a: l5kit", "b: vrs", "b: l5kit"]
    assert plan.finished == () and plan.refused == {}
    assert len({job.identity for job in plan.jobs}) == 4
    files = content_of(tmp_path / "in/a")
    needed = {path for path in files if not path.startswith("_archives/")} - {"report.html"}
    assert len(needed) == len(files) - 2  # its own archive and report are not fetched
    assert plan.jobs[0].size == sum(len(files[path]) for path in needed)
    do(plan, tmp_path)
    again = plan_jobs([fleet], [VRS, L5KIT], out(tmp_path))
    assert again.jobs == () and again.finished == plan.jobs
    assert not (tmp_path / "scratch").exists() or not list((tmp_path / "scratch").iterdir())


def test_the_archives_are_those_of_one_machine(fleet: str, tmp_path: Path) -> None:
    do(plan_jobs([fleet], [VRS, L5KIT], out(tmp_path)), tmp_path)
    for name in ("a", "b"):
        list(finalize(tmp_path / "root" / name, [VRS, L5KIT], out=tmp_path / "alone" / name))
        there, alone = content_of(tmp_path / "out" / name), content_of(tmp_path / "alone" / name)
        for archive in ("vrs", "l5kit"):
            alone.pop(f"{archive}.{name}.json")  # when it was packed, and the like
        assert there and there == alone
        manifest = Manifest.decode((tmp_path / f"out/_manifests/{name}/vrs.json").read_bytes(), "")
        assert [e.path for e in manifest.files] == [f"{name}.vrs"]
        assert manifest.about["archive"] == "vrs" and manifest.about["software"] == "0.1.0"


def test_a_session_has_one_identity_wherever_it_is(fleet: str, tmp_path: Path) -> None:
    stored = plan_jobs([fleet], [VRS], out(tmp_path))
    local = plan_jobs([str(tmp_path / "root")], [VRS], out(tmp_path))
    one = plan_jobs([str(tmp_path / "root/a")], [VRS], out(tmp_path))
    assert [j.identity for j in stored.jobs] == [j.identity for j in local.jobs]
    assert one.jobs == local.jobs[:1] and local.jobs[0].source == str(tmp_path / "root/a")
    do(local, tmp_path)
    assert len(plan_jobs([fleet], [VRS], out(tmp_path)).finished) == 2


def test_the_identity_is_of_data_options_calibration_and_version(
    fleet: str, tmp_path: Path
) -> None:
    (job, _) = plan_jobs([fleet], [VRS], out(tmp_path)).jobs
    changes: list[dict[str, Any]] = [
        {"inputs": "0"}, {"archive": "l5kit"}, {"options": {"x": 1}}, {"calibration": b""},
        {"version": "9"},
    ]  # fmt: skip
    others = {msgspec.structs.replace(job, **change).identity for change in changes}
    assert len(others | {job.identity}) == 6
    same = msgspec.structs.replace(job, source="elsewhere", out="elsewhere", size=1, name="x")
    assert same.identity == job.identity
    data = tmp_path / "root/a/_recorder/commits"
    data.write_bytes(data.read_bytes() + b"\n")
    assert plan_jobs([str(tmp_path / "root/a")], [VRS], out(tmp_path)).jobs[0].inputs != job.inputs


def test_another_result_is_left_as_it_is(fleet: str, tmp_path: Path) -> None:
    do(plan_jobs([fleet], [VRS], out(tmp_path)), tmp_path)
    before = content_of(tmp_path / "out")
    plan = plan_jobs([fleet], [ArchiveRequest("vrs", {"compression": "lz4"})], out(tmp_path))
    assert plan.jobs == () and list(plan.refused) == ["a: vrs", "b: vrs"]
    assert "_manifests/a/vrs.json: was packed from other data, with other options" in str(
        plan.refused["a: vrs"]
    )
    (job, *_) = plan_jobs([fleet], [VRS], f"{out(tmp_path)}2").jobs
    other = msgspec.structs.replace(job, out=out(tmp_path), options={"compression": "lz4"})
    with pytest.raises(StorageError, match="give another --out"):
        pack_job(other, str(tmp_path / "scratch"))
    assert content_of(tmp_path / "out") == before


def test_a_job_that_is_done_twice_has_one_result(
    fleet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers do it at the same time: each looks before the other has brought its manifest."""
    (job, _) = plan_jobs([fleet], [L5KIT], out(tmp_path)).jobs
    real, others = packing_worker._pack, list[Any]()

    def pack(*args: Any) -> Any:
        if not others:
            others.append(None)
            others.append(pack_job(job, str(tmp_path / "other")))
        return real(*args)

    monkeypatch.setattr(packing_worker, "_pack", pack)
    mine = pack_job(job, str(tmp_path / "scratch"))
    assert others[1] is not None and not mine.found and not others[1].found
    assert (mine.files, mine.bytes) == (others[1].files, others[1].bytes)
    assert pack_job(job, str(tmp_path / "scratch")).found


def test_a_cut_off_job_is_done_again(
    fleet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job, _) = plan_jobs([fleet], [L5KIT], out(tmp_path)).jobs
    pack_job(job, str(tmp_path / "scratch"))
    whole = content_of(tmp_path / "out")
    for keep in range(len(whole) - 1):
        shutil.rmtree(tmp_path / "out")
        for name in sorted(n for n in whole if not n.startswith("_"))[:keep]:
            path = tmp_path / "out" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(whole[name])
        pack_job(job, str(tmp_path / "scratch"))
        assert content_of(tmp_path / "out") == whole


def test_what_someone_else_put_there_stays(fleet: str, tmp_path: Path) -> None:
    (job, _) = plan_jobs([fleet], [VRS], out(tmp_path)).jobs
    open_store(out(tmp_path)).put_new("a/vrs/a.vrs", b"of someone else")
    with pytest.raises(ObjectExistsError, match=r"a/vrs/a.vrs: is there already"):
        pack_job(job, str(tmp_path / "scratch"))
    assert content_of(tmp_path / "out") == {"a/vrs/a.vrs": b"of someone else"}


def test_what_cannot_be_packed_stops_nothing(fleet: str, tmp_path: Path) -> None:
    (tmp_path / "in/_manifests/broken.json").write_bytes(b"{")
    manifest = (tmp_path / "in/_manifests/a.json").read_text()
    hostile = manifest.replace('"name": "a"', '"name": "../../etc"')
    (tmp_path / "in/_manifests/hostile.json").write_text(hostile)
    open_recording = make_session(tmp_path / "more/open", seed=5)
    header = open_recording / "_recorder/session.json"
    header.write_text(header.read_text().replace('"clean"', '"recording"'))
    make_session(tmp_path / "more/a", seed=6)
    (tmp_path / "empty").mkdir()
    sources = [fleet, str(tmp_path / "more"), str(tmp_path / "empty"), f"file://{tmp_path}/none"]
    plan = plan_jobs(sources, [VRS], out(tmp_path))
    assert [job.title for job in plan.jobs] == ["a: vrs", "b: vrs"]
    told = "\n".join(f"{what}: {why}" for what, why in plan.refused.items())
    for text in (
        f"{tmp_path}/in/_manifests/broken.json: is no manifest",
        "/in/_manifests/hostile.json: is no manifest: session name '../../etc': is a path",
        f"{tmp_path}/more/open: was not closed; run `recorder recover",
        f"{tmp_path}/more/a: a: another session of this name is in file://{tmp_path}/in",
        f"{tmp_path}/empty: has no sessions",
        f"{tmp_path}/none: has no uploaded sessions",
    ):
        assert text in told
    assert len(plan.refused) == 6


def test_what_a_worker_says_when_it_cannot(
    fleet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job, _) = plan_jobs([fleet], [VRS], out(tmp_path)).jobs
    scratch = str(tmp_path / "scratch")
    with pytest.raises(RecorderError, match=r"worker .* has recorder 0.1.0, this is 9.9"):
        pack_job(msgspec.structs.replace(job, version="9.9"), scratch)
    huge = msgspec.structs.replace(job, size=10**18)
    with pytest.raises(StorageError, match=r"GB are free, a needs 2000000000.0 GB"):
        pack_job(huge, scratch)
    free = shutil.disk_usage(tmp_path).free
    redacted = msgspec.structs.replace(job, size=int(free / 2.5), redact=({},))
    with pytest.raises(StorageError, match=r"GB are free, a needs "):
        pack_job(redacted, scratch)  # pictures are there twice while they are redacted
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Not a directory"):
        pack_job(job, str(tmp_path / "file/scratch"))
    with (tmp_path / "in/a/imu/acc").open("r+b") as file:
        file.write(b"\xff")
    with pytest.raises(StorageError, match=r"a/imu/acc: is not what was uploaded"):
        pack_job(job, scratch)
    (tmp_path / "in/a/imu/acc").unlink()
    with pytest.raises(StorageError, match=r"in/a/imu/acc: No such file"):
        pack_job(job, scratch)
    assert not (tmp_path / "out").exists()


def test_a_calibration_goes_to_the_workers(fleet: str, tmp_path: Path) -> None:
    path = tmp_path / "calibration.yaml"
    for text in (None, "sensors: [", "sensors: {imu: {T_sensor_rig: {translation_m: [1, 2]}}}"):
        if text is not None:
            path.write_text(text)
        with pytest.raises(UsageError, match=r"calibration.yaml"):
            plan_jobs([fleet], [VRS], out(tmp_path), path)
    pose = "{translation_m: [1, 2, 3], quaternion_xyzw: [0, 0, 0, 1]}"
    path.write_text(f"sensors: {{imu: {{T_sensor_rig: {pose}}}}}\n")
    (job, _) = plan_jobs([fleet], [VRS], out(tmp_path), path).jobs
    assert job.calibration == path.read_bytes()
    pack_job(job, str(tmp_path / "scratch"))
    list(finalize(tmp_path / "root/a", [VRS], out=tmp_path / "alone", calibration=path))
    archive = (tmp_path / "out/a/vrs/a.vrs").read_bytes()
    assert archive == (tmp_path / "alone/vrs/a.vrs").read_bytes() and b"quaternion" in archive


def test_jobs_cross_to_other_processes() -> None:
    import pickle

    job = Job(
        name="a", source="s3://x", stored=True, inputs="0", size=1, archive="vrs",
        options={"a": [1]}, calibration=b"x", out="s3://y",
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(job)) == job


def test_dask_hands_out_jobs_as_workers_become_free(fleet: str, tmp_path: Path) -> None:
    """Those of one group, as Dask names it by their keys; it divides single tasks at once."""
    key_split = pytest.importorskip("dask.utils", reason="needs the extra cluster").key_split
    plan = plan_jobs(
        [fleet], [ArchiveRequest("vrs"), ArchiveRequest("l5kit")], f"file://{tmp_path}/out"
    )
    keys = [make_task_key(job) for job in plan.jobs]
    assert len(set(keys)) == len(plan.jobs) > 2
    assert len({key_split(key) for key in keys}) == 1
