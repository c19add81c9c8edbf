"""Every single change of a store is found, with its place: plain, encrypted, by whom it may be."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from recorder.fleet.encryption import Identity, Recipients
from recorder.fleet.store import open_store
from recorder.fleet.uploading import upload_session
from recorder.fleet.verified import verify_store
from recorder.integrity.proof import Proof, Trust
from recorder.session.checksums import CHECKSUMS
from tests.campaigns import seeded
from tests.fleet.test_verified import fill
from tests.integrity.mutations import mutated
from tests.integrity.test_mutations import faults_of

pyrage = pytest.importorskip("pyrage")
IN_A_SEED = 50


@dataclass
class Stored:
    """A store in a folder, and how it is verified."""

    folder: Path
    files: Sequence[Path]
    verify: Callable[[], Proof]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Stored]:
    """A store with archives; an encrypted one, for who can decrypt it and for who cannot."""
    folder = tmp_path_factory.mktemp("stores")
    plain, sealed = folder / "store", folder / "sealed"
    vehicle = fill(plain.as_uri(), folder)
    key = pyrage.x25519.Identity.generate()
    secret = folder / "identity.txt"
    secret.touch(0o600)
    secret.write_text(str(key))
    for name in ("a", "b"):
        recipients = Recipients([str(key.to_public())])
        upload_session(vehicle.root / name, open_store(sealed.as_uri()), recipients=recipients)
    trust = Trust([vehicle.public])

    def stored(folder: Path, identity: Identity | None) -> Stored:
        store = open_store(folder.as_uri())
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return Stored(folder, files, lambda: verify_store(store, trust, identity=identity))

    made = [stored(plain, None), stored(sealed, Identity(secret)), stored(sealed, None)]
    assert all(each.verify().sound for each in made)
    assert any(path.name == CHECKSUMS for path in made[0].files)  # free in a session, not here
    return made


@seeded(1, weight=120, least=60)
def test_a_change_is_found(stores: Sequence[Stored], seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(6 if seed < 1 else IN_A_SEED):
        store = rng.choice(stores)
        with mutated(rng, store.folder, store.files, None) as (change, places):
            proof = store.verify()
            assert not proof.sound, change
            keys = [place.relative_to(store.folder).as_posix() for place in places]
            found = faults_of(proof)
            assert any(key in fault for key in keys for fault in found), (change, found)
    assert all(each.verify().sound for each in stores)
