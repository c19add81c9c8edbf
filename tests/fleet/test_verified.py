"""What is in a store is proven from the vehicle's signature to the archives of a cluster."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from recorder.archives.finalize import ArchiveRequest
from recorder.cli import main
from recorder.common.errors import StorageError
from recorder.fleet.packing_jobs import plan_jobs
from recorder.fleet.packing_worker import pack_job
from recorder.fleet.store import open_store
from recorder.fleet.store.manifest import Manifest
from recorder.fleet.uploading import upload_session
from recorder.fleet.verified import verify_store
from recorder.integrity.proof import Proof, Trust
from recorder.integrity.vehicle_key import read_anchor
from tests.fleet.conftest import CAMPAIGN
from tests.integrity.vehicle import Vehicle
from tests.support.changes import flip


def fill(url: str, folder: Path) -> Vehicle:
    """Two signed sessions in a store, and an archive of each beside them."""
    vehicle = Vehicle.make(folder)
    store = open_store(url)
    for seed, name in enumerate(("a", "b")):
        upload_session(vehicle.record(name, seed), store)
    for job in plan_jobs([url], [ArchiveRequest("l5kit")], url).jobs:
        pack_job(job, str(folder / "scratch"))
    return vehicle


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Vehicle, Path]:
    """A vehicle and the store that it filled, which tests change: `filled` puts it back."""
    folder = tmp_path_factory.mktemp("made")
    vehicle = fill(f"file://{folder}/store", folder)
    shutil.copytree(folder / "store", folder / "kept")
    return vehicle, folder / "store"


@pytest.fixture
def filled(made: tuple[Vehicle, Path]) -> tuple[Vehicle, Path]:
    store = made[1]
    shutil.rmtree(store)
    shutil.copytree(store.with_name("kept"), store)
    return made


def verify(vehicle: Vehicle, store: Path) -> Proof:
    return verify_store(open_store(f"file://{store}"), Trust([vehicle.public]))


@pytest.mark.parametrize("server", CAMPAIGN, indirect=True)
def test_the_chain_goes_from_the_key_to_the_archives(url: str, tmp_path: Path) -> None:
    vehicle = fill(url, tmp_path)
    proof = verify_store(open_store(url), Trust([vehicle.public]))
    assert proof.sound and ["signature 2 is the last" in line for line in proof.unproven] == [True]
    assert proof.proven == [
        f"signatures 1 to 2 of the key {read_anchor(vehicle.public)[:16]} follow each other"
    ]
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


def rewrite(path: Path, **changes: Any) -> None:
    """Change a manifest as somebody does who knows its form."""
    manifest = Manifest.decode(path.read_bytes(), str(path))
    path.write_bytes(structs.replace(manifest, **changes).with_digest().encode())


def test_a_manifest_that_was_made_to_fit_does_not_help(filled: tuple[Vehicle, Path]) -> None:
    """Whoever changes an object and its manifest cannot sign the journal."""
    vehicle, folder = filled
    path = folder / "a/imu/acc"
    flip(path, 7)
    place = folder / "_manifests/a.json"
    files = Manifest.decode(place.read_bytes(), "").files
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    files = tuple(
        structs.replace(each, sha256=sha256) if each.path == "imu/acc" else each for each in files
    )
    rewrite(place, files=files)
    proof = verify(vehicle, folder)
    assert proof.faults == [] and "a/imu/acc" in str(proof.first_fault)
    rewrite(place, files=tuple(each for each in files if each.path != "imu/seq"))
    assert not verify(vehicle, folder).sound


def edited(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def swap(one: Path, other: Path) -> None:
    data = one.read_bytes(), other.read_bytes()
    other.write_bytes(data[0])
    one.write_bytes(data[1])


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda m: pipe(m.parent / "a/imu/acc"), "a/imu/acc: is no file"),
        (lambda m: edited(m / "a.json", b'"lost": 0', b'"lost": 1'), "its digest is another one"),
        (lambda m: edited(m / "a.json", b"{", b"{ "), "is not as it was written"),
        (lambda m: edited(m / "a.json", b'"kind": "', b'"kind": "\xf2'), "a.json: is no manifest"),
        (lambda m: edited(m / "a.json", b"about", b"\xf2bout"), "is not as it was written"),
        (lambda m: edited(m / "a.json", b"{", b"[" * 10**5), "a.json: is no manifest"),
        (lambda m: edited(m / "a.json", b'"files"', b'"evil": 1, "files"'), "not as it was"),
        (lambda m: swap(m / "a.json", m / "b.json"), "is the manifest of the session b"),
        (lambda m: swap(m / "a/l5kit.json", m / "b/l5kit.json"), "whose files are below b/l5kit"),
        (lambda m: shutil.copy(m / "a.json", m / "c.json"), "c.json: is the manifest of the"),
        (lambda m: rewrite(m / "a.json", kind="archive"), "is the manifest of the archive a"),
        (lambda m: rewrite(m / "a.json", folder="b"), "whose files are below b"),
        (lambda m: (m / "c.json").write_bytes(b"{"), "_manifests/c.json: is no manifest"),
        (lambda m: (m / "b.json").unlink(), "/b.json: is missing, but 2"),
        (lambda m: (m / "b/l5kit.json").unlink(), "_manifests/b/l5kit.json: is missing"),
        (lambda m: (m.parent / "a/imu/more").write_bytes(b""), "imu/more: was added: it belongs"),
        (lambda m: (m.parent / "more").write_bytes(b""), "store/more: was added"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_manifests_is_found(
    filled: tuple[Vehicle, Path], change: Callable[[Path], object], fault: str
) -> None:
    """Also what leaves every session whole: the catalog is made of manifests."""
    vehicle, folder = filled
    change(folder / "_manifests")
    proof = verify(vehicle, folder)
    assert fault in str(proof.first_fault)


def test_a_session_that_left_the_store_shows(filled: tuple[Vehicle, Path]) -> None:
    """It may be on the vehicle still: uploads have an order of their own."""
    vehicle, folder = filled
    shutil.rmtree(folder / "a")
    shutil.rmtree(folder / "_manifests/a")
    (folder / "_manifests/a.json").unlink()
    proof = verify(vehicle, folder)
    assert "signature 1 of the session a is missing" in proof.unproven[0] and proof.sound


def test_a_manifest_of_an_earlier_version_has_no_digest(filled: tuple[Vehicle, Path]) -> None:
    vehicle, folder = filled
    path = folder / "_manifests/a.json"
    manifest = Manifest.decode(path.read_bytes(), "")
    assert (
        hashlib.sha256(structs.replace(manifest, digest="").encode()).hexdigest() == manifest.digest
    )
    path.write_bytes(structs.replace(manifest, digest="").encode())
    assert b"digest" not in path.read_bytes()
    assert verify(vehicle, folder).sound


def test_a_store_without_a_manifest(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="has no manifest; nothing was uploaded there"):
        verify_store(open_store(f"file://{tmp_path}/empty"), Trust())


def test_the_command_takes_a_url(
    filled: tuple[Vehicle, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    vehicle, folder = filled
    url = f"file://{folder}"
    assert main(["verify", url, "--public-key", vehicle.public]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == f"{url}: store: proven" and said.err == ""
    (folder / "b/imu/acc").unlink()
    assert main(["verify", url, "--public-key", vehicle.public]) == 1
    assert f"{url}: store: not proven; first: " in capsys.readouterr().out
