"""What is in a store is proven from the vehicle's signature to the archives of a cluster."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.cli import main
from recorder.contract.errors import StorageError
from recorder.custody.proof import Proof, Trust
from recorder.finalizer import Step
from recorder.fleet.packing_jobs import plan_jobs
from recorder.fleet.packing_worker import pack_job
from recorder.fleet.store import open_store
from recorder.fleet.uploading import upload_session
from recorder.fleet.verified import verify_store
from tests.custody.vehicle import Vehicle
from tests.fleet.conftest import CAMPAIGN


def fill(url: str, folder: Path) -> Vehicle:
    """Two signed sessions in a store, and an archive of each beside them."""
    vehicle = Vehicle.make(folder)
    store = open_store(url)
    for seed, name in enumerate(("a", "b")):
        upload_session(vehicle.record(name, seed), store)
    for job in plan_jobs([url], [Step("l5kit")], url).jobs:
        pack_job(job, str(folder / "scratch"))
    return vehicle


@pytest.mark.parametrize("server", CAMPAIGN, indirect=True)
def test_the_chain_goes_from_the_key_to_the_archives(url: str, tmp_path: Path) -> None:
    vehicle = fill(url, tmp_path)
    proof = verify_store(open_store(url), Trust([vehicle.public]))
    assert proof.sound and proof.unproven == []
    assert [(part.kind, str(part.path)) for part in proof.parts] == [
        ("session", f"{url}/a"), ("session", f"{url}/b"),
        ("archive", f"{url}/a/l5kit"), ("archive", f"{url}/b/l5kit"),
    ]  # fmt: skip
    session, archive = proof.parts[1], proof.parts[3]
    assert session.proven[0].startswith("every byte of ")
    assert "signed (cause close, signature 2) by the trusted key" in session.proven[1]
    assert archive.proven[0].startswith("every byte of ")
    assert archive.proven[1].startswith("made from b, which was signed by the trusted key")
    assert archive.proven[2] == f"its source {url}/b is unchanged since"
    assert archive.unproven == ["_manifests/b/l5kit.json is not signed: a cluster packed it"]
    other = Vehicle.make(tmp_path / "other")
    assert not verify_store(open_store(url), Trust([other.public])).sound


Change = Callable[[Path, random.Random], str]


def flip(path: Path, dice: random.Random) -> str:
    data = bytearray(path.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    return path.name


def cut(path: Path, dice: random.Random) -> str:
    path.write_bytes(path.read_bytes()[:-1])
    return path.name


def remove(path: Path, dice: random.Random) -> str:
    path.unlink()
    return path.name


@pytest.mark.parametrize("change", [flip, cut, remove])
@pytest.mark.parametrize("seed", range(3))
def test_any_change_of_an_object_is_found_with_its_place(
    tmp_path: Path, change: Change, seed: int
) -> None:
    dice = random.Random(f"{change.__name__} {seed}")
    vehicle = fill(f"file://{tmp_path}/store", tmp_path)
    files = [p for p in sorted((tmp_path / "store").rglob("*")) if p.is_file() and p.stat().st_size]
    path = dice.choice([p for p in files if "_manifests" not in p.parts])
    name = change(path, dice)
    proof = verify_store(open_store(f"file://{tmp_path}/store"), Trust([vehicle.public]))
    assert not proof.sound and name in str(proof.first_fault)
    place = path.relative_to(tmp_path / "store").as_posix()
    assert f"file://{tmp_path}/store/{place}" in everything(proof) or str(path) in everything(proof)


def everything(proof: Proof) -> str:
    return json.dumps(proof.to_wire())


def test_a_manifest_that_was_made_to_fit_does_not_help(tmp_path: Path) -> None:
    """Whoever changes an object and its manifest cannot sign the journal."""
    import hashlib

    vehicle = fill(f"file://{tmp_path}/store", tmp_path)
    path = tmp_path / "store/a/imu/acc"
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)
    manifest = tmp_path / "store/_manifests/a.json"
    values: dict[str, Any] = json.loads(manifest.read_text())
    for entry in values["files"]:
        if entry["path"] == "imu/acc":
            entry["sha256"] = hashlib.sha256(data).hexdigest()
    manifest.write_text(json.dumps(values))
    store = open_store(f"file://{tmp_path}/store")
    proof = verify_store(store, Trust([vehicle.public]))
    assert not proof.sound and "a/imu/acc" in str(proof.first_fault)
    values["files"] = [entry for entry in values["files"] if entry["path"] != "imu/seq"]
    manifest.write_text(json.dumps(values))
    assert not verify_store(store, Trust([vehicle.public])).sound


def test_what_has_no_manifest_is_named(tmp_path: Path) -> None:
    vehicle = fill(f"file://{tmp_path}/store", tmp_path)
    (tmp_path / "store/a/imu/more").write_bytes(b"x")
    (tmp_path / "store/_manifests/c.json").write_bytes(b"{")
    proof = verify_store(open_store(f"file://{tmp_path}/store"), Trust([vehicle.public]))
    assert proof.unproven == [f"file://{tmp_path}/store/a/imu/more: belongs to no manifest"]
    assert len(proof.faults) == 1 and "_manifests/c.json: is no manifest" in proof.faults[0]
    with pytest.raises(StorageError, match="has no manifest; nothing was uploaded there"):
        verify_store(open_store(f"file://{tmp_path}/empty"), Trust())


def test_the_command_takes_a_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"file://{tmp_path}/store"
    vehicle = fill(url, tmp_path)
    assert main(["verify", url, "--public-key", vehicle.public]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == f"{url}: store: proven" and said.err == ""
    (tmp_path / "store/b/imu/acc").unlink()
    assert main(["verify", url, "--public-key", vehicle.public]) == 1
    assert f"{url}: store: not proven; first: " in capsys.readouterr().out
