"""Every single change of a session, a clip or an archive is found, with its place."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.integrity.deferred_compression import repack
from recorder.integrity.proof import Proof, Trust
from recorder.integrity.verify import verify
from recorder.recording.clip.writing import write_clip
from recorder.session.part import Moment, Part
from tests.campaigns import seeded
from tests.integrity.mutations import mutated
from tests.integrity.vehicle import Vehicle

FREE = {"lock", "checksums.csv"}  # not committed
IN_A_SEED = 100


@dataclass
class Target:
    """What is changed, and what is verified then."""

    path: Path
    files: Sequence[Path]
    journal: Path | None = None

    @classmethod
    def session(cls, path: Path) -> Target:
        files = [p for p in sorted(path.rglob("*")) if p.is_file() and p.name not in FREE]
        files = [p for p in files if "_archives" not in p.parts]
        return cls(path, files, path / "_recorder/commits")


@dataclass
class Rig:
    trust: Trust
    targets: Sequence[Target]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    vehicle = Vehicle.make(tmp_path_factory.mktemp("vehicle"))
    drive = vehicle.record("drive")
    repack(drive)
    plain = vehicle.record("plain", 2)
    half = Part(Moment.parse("1"), None)
    clip = write_clip([plain], half, vehicle.root, "clip").session
    signed = write_clip([plain], half, vehicle.root, "own", signing_key=vehicle.key).session
    list(finalize(plain, [ArchiveRequest("vrs"), ArchiveRequest("mcap")]))
    archives = plain / "_archives"
    made = [p for p in archives.rglob("*") if p.is_file() and p.suffix in (".vrs", ".mcap")]
    sessions = [Target.session(path) for path in (drive, drive, plain, clip, signed)]
    packed = [Target(plain, [p, archives / f"{p.parent.name}.json"]) for p in made]
    rig = Rig(Trust([vehicle.public]), [*sessions, *packed])
    assert len(packed) == 2
    for target in rig.targets:
        assert verify(target.path, rig.trust).first_fault is None
    return rig


def faults_of(proof: Proof) -> list[str]:
    return [*proof.faults, *(fault for part in proof.parts for fault in faults_of(part))]


def check(rig: Rig, seed: int, count: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        target = rng.choice(rig.targets)
        with mutated(rng, target.path, target.files, target.journal) as (change, places):
            proof = verify(target.path, rig.trust)
            assert not proof.sound, change
            found = faults_of(proof)
            named = any(str(place) in fault for place in places for fault in found)
            assert named, (change, found)


@seeded(1, weight=120, least=70)  # 7,000 mutations; tests/fleet/test_stored_mutations.py has 3,000
def test_a_change_is_found(rig: Rig, seed: int) -> None:
    check(rig, seed, 15 if seed < 3 else IN_A_SEED)


def test_all_is_as_before(rig: Rig) -> None:
    check(rig, 0, 5)
    for target in rig.targets:
        assert verify(target.path, rig.trust).sound
