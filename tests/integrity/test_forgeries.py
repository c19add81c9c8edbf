"""No forgery of somebody without the key is proven (`tests.integrity.forgeries` has them)."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.integrity.proof import Trust
from recorder.integrity.vehicle_key import VehicleKey, make_key
from recorder.integrity.verify import verify
from recorder.recording.clip.writing import write_clip
from recorder.session.part import Part
from tests.campaigns import seeded
from tests.integrity.forgeries import OF_ARCHIVES, OF_CLIPS, OF_SESSIONS, ImpossibleError, Loot
from tests.integrity.test_clip_seams import second
from tests.integrity.vehicle import Vehicle

IN_A_SEED = 20
ALWAYS = 3


@dataclass
class Target:
    """What is forged, how, and whether its sources stay beside it."""

    path: Path
    forgeries: Mapping[str, Callable[[random.Random, Path, Loot], str]]
    beside: bool = False


@dataclass
class Rig:
    trust: Trust
    loot: Loot
    targets: Mapping[str, Target]
    folder: Path


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    folder = tmp_path_factory.mktemp("forgeries")
    vehicle = Vehicle.make(folder / "vehicle")
    assert vehicle.key is not None
    drive, plain = vehicle.record("drive"), vehicle.record("plain", 2)
    parts = vehicle.record_parts("drive_p001", "drive_p002")
    for session in (drive, plain):
        list(finalize(session, [ArchiveRequest("vrs"), ArchiveRequest("mcap")]))
    clips = folder / "clips"
    part = Part(second(0.5), second(2.5))
    clip = write_clip([drive], part, clips, "clip").session
    seam = write_clip(parts, Part(second(1.0), None), clips, "seam").session
    signed = write_clip([drive], part, clips, "signed", signing_key=vehicle.key).session
    forger = Vehicle(folder / "forged", make_key(folder / "forger"))
    assert forger.key is not None
    other = [forger.record(name, seed) for seed, name in enumerate(("drive", "plain", "clip"), 5)]
    loot = Loot([plain, parts[0]], other, VehicleKey(forger.key))
    targets = {
        "session": Target(drive, OF_SESSIONS),
        "part": Target(parts[1], OF_SESSIONS),
        "signed clip": Target(signed, OF_SESSIONS),
        "clip": Target(clip, OF_CLIPS),
        "clip beside its source": Target(clip, OF_CLIPS, beside=True),
        "clip over a seam": Target(seam, OF_CLIPS),
        "archive": Target(drive, OF_ARCHIVES),
    }
    rig = Rig(Trust([vehicle.public]), loot, targets, folder)
    for target in targets.values():
        assert verify(target.path, rig.trust).first_fault is None
    return rig


def forge(rig: Rig, kind: str, name: str, rng: random.Random) -> str | None:
    """Forge a copy and verify it; what was done, None if that was impossible."""
    target = rig.targets[kind]
    folder = rig.folder / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    path = folder / target.path.name
    shutil.copytree(target.path, path)
    if target.beside:
        shutil.copytree(rig.targets["session"].path, folder / "drive")
    try:
        done = target.forgeries[name](rng, path, rig.loot)
    except ImpossibleError:
        return None
    (path,) = (p for p in folder.iterdir() if p.name not in ("drive", "away") or p == path)
    proof = verify(path, rig.trust)
    assert not proof.sound, (kind, name, done, proof.proven, proof.unproven)
    assert proof.verdict.startswith("not proven"), (kind, name, done)
    return f"{kind}: {name}: {done}"


# 60 forgeries at all times, each of 51 at least once; 800 more in a campaign.
@seeded(ALWAYS, weight=60, least=40)
def test_no_forgery_is_proven(rig: Rig, seed: int) -> None:
    rng = random.Random(seed)
    names = [(kind, name) for kind, t in rig.targets.items() for name in t.forgeries]
    done = 0
    while done < IN_A_SEED:
        kind, name = names[(seed * IN_A_SEED + done) % len(names)]  # each in turn
        for _ in range(30):
            if (what := forge(rig, kind, name, rng)) is not None:
                print(what)  # shown where one is proven
                break
        else:
            names.remove((kind, name))
            continue
        done += 1
