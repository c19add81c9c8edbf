"""Packing on a real Dask cluster, from and to a real S3 server, with everything killed in turn."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recorder.archives.finalize import ArchiveRequest
from recorder.cli import main
from recorder.fleet.packing_jobs import plan_jobs
from recorder.fleet.packing_worker import pack_job
from recorder.fleet.store import open_store
from recorder.fleet.uploading import upload_session
from tests.campaigns import seeded
from tests.fleet.dask_processes import DaskProcesses
from tests.fleet.servers import S3Server
from tests.fleet.sessions import make_session
from tests.fleet.test_uploading import stored
from tests.support.waiting import wait_until

on_moto = pytest.mark.parametrize("server", ["moto"], indirect=True)
SESSIONS = 6


@pytest.fixture
def dask(server: S3Server, tmp_path: Path) -> Iterator[DaskProcesses]:
    processes = DaskProcesses(tmp_path / "dask", server.environment)
    try:
        processes.start_scheduler()
        for _ in range(2):
            processes.start_worker()
        yield processes
    finally:
        processes.close()


def uploaded(url: str, tmp_path: Path, count: int = SESSIONS) -> str:
    """URL of a store with sessions."""
    source = f"{url}/in"
    for k in range(count):
        upload_session(make_session(tmp_path / f"root/s{k}", seed=k), open_store(source))
    return source


def command(source: str, dask: DaskProcesses, out: str) -> list[str]:
    return [
        *(sys.executable, "-m", "recorder", "finalize", source, "--on", dask.address),
        *("--to", "vrs,l5kit", "--out", out, "--format", "json"),
    ]


def finish(words: list[str]) -> dict[str, Any]:
    """Run the command to its end, which is good."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def reference(source: str, tmp_path: Path) -> dict[str, bytes]:
    """What the jobs make, one after the other, in this process."""
    url = f"file://{tmp_path}/reference"
    for job in plan_jobs([source], [ArchiveRequest("vrs"), ArchiveRequest("l5kit")], url).jobs:
        pack_job(job, str(tmp_path / "scratch"))
    return stored(open_store(url))


@on_moto
@pytest.mark.campaign(weight=20)
def test_a_fleet_is_packed_once(url: str, dask: DaskProcesses, tmp_path: Path) -> None:
    source, out = uploaded(url, tmp_path, 2), f"{url}/out"
    values = finish(command(source, dask, out))
    assert [(e["session"], e["archive"]) for e in values["archives"]] == [
        ("s0", "l5kit"), ("s0", "vrs"), ("s1", "l5kit"), ("s1", "vrs"),
    ]  # fmt: skip
    assert values["failed"] == [] and values["refused"] == {} and values["finished"] == []
    assert stored(open_store(out)) == reference(source, tmp_path)
    values = finish(command(source, dask, out))
    assert values["archives"] == [] and len(values["finished"]) == 4


@on_moto
@seeded(0, weight=60, least=3)
def test_whatever_is_killed_the_result_is_the_same(
    url: str, dask: DaskProcesses, tmp_path: Path, seed: int
) -> None:
    """Workers, the scheduler and the command are killed at random until all is packed."""
    dice = random.Random(seed)
    tmp_path, url = tmp_path / str(seed), f"{url}/{seed}"
    source, out = uploaded(url, tmp_path), f"{url}/out"
    there = open_store(out)
    kills: list[str] = []

    def manifests() -> int:
        return sum(1 for _ in there.list("_manifests/"))

    victims = dice.sample(["worker", "worker", "scheduler", "command"], 3)
    for victim in victims:
        process = subprocess.Popen(
            command(source, dask, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        at = min(manifests() + dice.randrange(1, 4), 2 * SESSIONS)
        while manifests() < at and process.poll() is None:
            time.sleep(0.05)
        time.sleep(dice.random() * 0.2)
        kills.append(victim)
        if victim == "worker":
            dask.kill_worker(len(dask.workers) - 1 - dice.randrange(2))
            process.wait()
        elif victim == "scheduler":
            dask.kill_scheduler()
            process.wait()
            dask.close()
            dask.start_scheduler()
            for _ in range(2):
                dask.start_worker()
        else:
            process.kill()
            process.wait()
    finish(command(source, dask, out))
    assert stored(there) == reference(source, tmp_path), kills


@on_moto
@pytest.mark.campaign(weight=6)
def test_failed_sessions_are_reported_and_stop_nothing(
    url: str, server: S3Server, dask: DaskProcesses, tmp_path: Path
) -> None:
    source, out = uploaded(url, tmp_path, 3), f"{url}/out"
    key = f"{source.removeprefix('s3://fleet/')}/s1/imu/acc"
    server.client().put_object(Bucket="fleet", Key=key, Body=b"damaged")
    done = subprocess.run(command(source, dask, out), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    values = json.loads(done.stdout)
    assert sorted(values["failed"]) == ["s1: l5kit", "s1: vrs"] and len(values["archives"]) == 4
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and all("/s1/imu/acc: is not what was uploaded" in x for x in lines)


@on_moto
@pytest.mark.campaign(weight=8)
def test_a_scheduler_that_dies_is_one_message(
    url: str, dask: DaskProcesses, tmp_path: Path
) -> None:
    source, out = uploaded(url, tmp_path), f"{url}/out"
    process = subprocess.Popen(
        command(source, dask, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    there = open_store(out)
    wait_until("progress", lambda: list(there.list("_manifests/")) or process.poll() is not None)
    dask.kill_scheduler()
    _, said = process.communicate()
    assert process.returncode in (0, 1)
    if process.returncode:  # it was not quicker
        assert "the scheduler is gone; run the command again, what is finished is skipped" in said
        assert "Traceback" not in said


@on_moto
@pytest.mark.campaign(weight=4)
def test_wrong_keys_on_the_workers_are_their_message(
    url: str, server: S3Server, tmp_path: Path
) -> None:
    source, out = uploaded(url, tmp_path, 1), f"{url}/out"
    wrong = {**server.environment, "AWS_SECRET_ACCESS_KEY": "wrong"}
    processes = DaskProcesses(tmp_path / "dask", wrong)
    try:
        processes.start_scheduler()
        processes.start_worker()
        done = subprocess.run(
            command(source, processes, out), capture_output=True, text=True, check=False
        )
    finally:
        processes.close()
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "the server refuses these credentials" in done.stderr or (
        "the secret key is wrong" in done.stderr
    )


@pytest.mark.campaign(weight=6)
def test_processes_of_this_machine(tmp_path: Path) -> None:
    root = make_session(tmp_path / "root/a").parent
    done = subprocess.run(
        [
            *(sys.executable, "-m", "recorder", "finalize", str(root)),
            *("--on", "local:1", "--to", "l5kit", "--out", str(tmp_path / "out")),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 archives in " in done.stdout and "0 were there, 0 failed" in done.stdout
    assert (tmp_path / "out/a/l5kit/a.zarr/.zgroup").exists()


@pytest.mark.campaign(weight=8)
def test_an_interrupt_while_workers_start_is_one_message(tmp_path: Path) -> None:
    """Ctrl-C reaches the whole group of processes."""
    root = make_session(tmp_path / "root/a").parent
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "recorder", "finalize", str(root)),
            *("--on", "local:2", "--to", "l5kit", "--out", str(tmp_path / "out")),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def started() -> bool:
        return any(child.read_text().split() for child in children.parent.parent.glob("*/children"))

    wait_until("workers", lambda: process.poll() is not None or started())
    os.killpg(process.pid, signal.SIGINT)
    out, said = process.communicate()
    assert (process.returncode, out) == (1, "")
    assert said == "recorder finalize: interrupted\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--on", "local:0", "--out", "o"], 2, "--on: 'local:0' is neither local[:N] nor dask:"),
        (["--on", "dask://host", "--out", "o"], 2, "--on: 'dask://host' is neither"),
        (["--on", "local"], 2, "--on: needs --out"),
        (["--on", "local", "--out", "s3:///x"], 2, "s3:///x: is no store"),
        (["--on", "local", "--out", "o", "--until", "3"], 2, "--on: packs whole sessions"),
        (["--out", "s3://bucket/x"], 2, "s3://bucket/x: is no folder; a store needs --on"),
    ],
)
def test_wrong_words(
    words: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    make_session(tmp_path / "a")
    assert main(["finalize", "a", "--to", "vrs", *words]) == code
    assert message in capsys.readouterr().err


@pytest.mark.campaign(weight=3)
def test_a_scheduler_that_is_not_there(tmp_path: Path) -> None:
    make_session(tmp_path / "a")
    program = (
        "import sys; from recorder.fleet import dask_cluster as d; d._CONNECT_S = 1.0\n"
        "from recorder.cli import main\n"
        f"sys.exit(main(['finalize', {str(tmp_path / 'a')!r}, '--to', 'vrs', "
        f"'--on', 'dask://127.0.0.1:9', '--out', {str(tmp_path / 'o')!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "dask://127.0.0.1:9: the scheduler cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
