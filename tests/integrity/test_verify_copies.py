"""What `verify` proves of clips, archives and datasets, and of the sessions behind them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from recorder.archives.finalize import ArchiveRequest, collect, finalize
from recorder.integrity.deferred_compression import repack
from recorder.integrity.proof import Trust
from recorder.integrity.verify import verify
from recorder.recording.clip import sources
from recorder.recording.clip.sources import describe_origin
from recorder.recording.clip.writing import write_clip
from recorder.session.part import Moment, Part
from recorder.session.reader import Session
from tests.integrity.vehicle import Vehicle, faults
from tests.support.changes import flip


def test_a_clip_and_its_source_are_proven(vehicle: Vehicle, tmp_path: Path) -> None:
    session = vehicle.record("drive")
    clip = write_clip([session], Part(Moment.parse("1"), None), vehicle.root, "clip").session
    trust = Trust([vehicle.public])
    proof = verify(clip, trust)
    assert proof.sound and proof.kind == "clip"
    assert proof.proven[-1] == "its 9 samples are those of its sources, byte for byte"
    apart = Path(shutil.copytree(clip, tmp_path / "apart/clip"))
    assert faults(vehicle, apart) == []  # by the proofs that it carries
    assert verify(apart, trust, [vehicle.root]).sound
    alone = verify(apart, Trust())
    assert alone.sound and any("drive, which is not here" in line for line in alone.unproven)
    flip(session / "imu/rot", 0)
    assert any(str(session / "imu/rot") in fault for fault in faults(vehicle, clip))


@pytest.mark.parametrize(
    ("name", "at", "fault"),
    [
        ("imu/acc", 40, "{clip}/imu: sample 3 is not that of {session}/imu"),
        ("scan/t_col", 0, "{clip}/scan: sample 0 is not that of {session}/scan"),
        ("imu/t_mono", 24, "{clip}/imu: sample 3 is in none of its sources"),
        ("calibration.yaml", 9, "{clip}/calibration.yaml: is not that of its sources"),
    ],
)
def test_a_clip_with_other_samples_is_found(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch, name: str, at: int, fault: str
) -> None:
    """The clip is consistent by itself, and has its source's signature."""
    session = vehicle.record("drive")
    other = Vehicle(vehicle.root.parent / "other", None).record("drive", 1)
    values = bytearray((other / name).read_bytes())
    values[at] = 32 if name == "calibration.yaml" else values[at] ^ 1
    (other / name).write_bytes(values)
    with Session(session) as opened:
        origin = describe_origin(opened)
    monkeypatch.setattr(sources, "describe_origin", lambda _: origin)
    clip = write_clip([other], Part(), vehicle.root, "clip").session
    assert faults(vehicle, clip) == [fault.format(clip=clip, session=session)]


@pytest.mark.parametrize(
    "origin", ["x", [1], {"sessions": "ab"}, {"sessions": {"a": 1}}, {"sessions": [{"head": 1}]}]
)
def test_garbage_for_an_origin_is_a_fault(vehicle: Vehicle, origin: Any) -> None:
    session = vehicle.record("drive")
    clip = write_clip([session], Part(), vehicle.root, "clip").session
    path = clip / "_recorder/session.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"origin": origin}))
    assert f"{path}: is not as it was recorded" in faults(vehicle, clip)


def test_a_clip_that_left_out_a_sample_is_found(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sample that it has is one of the source."""
    session = vehicle.record("drive")
    other = Vehicle(vehicle.root.parent / "other", None).record("drive", left_out=2)
    with Session(session) as opened:
        origin = describe_origin(opened)
    monkeypatch.setattr(sources, "describe_origin", lambda _: origin)
    clip = write_clip([other], Part(), vehicle.root, "clip").session
    text = "sample 2 does not follow the one before it: in"
    (fault,) = faults(vehicle, clip)
    assert f"{text} {session}/" in fault and fault.endswith("these are samples 1 and 3")


def test_an_archive_and_its_source_are_proven(vehicle: Vehicle, tmp_path: Path) -> None:
    session = vehicle.record("drive")
    (made,) = finalize(session, [ArchiveRequest("vrs")])
    trust = Trust([vehicle.public])
    record = session / "_archives/vrs.json"
    for path in (made.files[0], record, session / "_archives/vrs", session / "_archives"):
        proof = verify(path, trust)
        assert proof.sound and proof.kind == "archive", path
        assert proof.proven[1].startswith("packed on the vehicle: signed by the trusted key")
        assert proof.proven[-1] == f"its source {session} is unchanged since"
    statement = json.loads(json.loads(record.read_text())["custody"]["statement"])
    sums = subprocess.run(["sha256sum", *made.files], capture_output=True, text=True, check=True)
    assert statement["files"]["drive.vrs"]["sha256"] == sums.stdout.split()[0]
    repack(session)  # after the archive: it is still the same recording
    assert verify(record, trust).sound
    apart = tmp_path / "apart"
    shutil.copytree(session / "_archives", apart)
    alone = verify(apart, trust)
    assert alone.sound and "made from drive, which is not here" in alone.unproven[0]


def test_archives_elsewhere_have_a_record_of_their_own(vehicle: Vehicle, tmp_path: Path) -> None:
    sessions = [vehicle.record(name, seed) for seed, name in enumerate(("a", "b"))]
    for session in sessions:
        list(finalize(session, [ArchiveRequest("vrs")], out=tmp_path / "out"))
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"vrs", "vrs.a.json", "vrs.b.json"}
    trust = Trust([vehicle.public])
    assert len(verify(tmp_path / "out", trust, [vehicle.root]).parts) == 2
    records = [tmp_path / f"out/vrs.{name}.json" for name in "ab"]
    one, other = (record.read_bytes() for record in records)
    records[0].write_bytes(other)
    records[1].write_bytes(one)
    swapped = faults(vehicle, tmp_path / "out")
    assert ["is of another archive" in fault for fault in swapped] == [True, True]
    records[0].write_bytes(one)
    records[1].write_bytes(other)
    assert faults(vehicle, tmp_path / "out") == []
    (tmp_path / "out/vrs/a.vrs").rename(tmp_path / "out/vrs/c.vrs")
    (tmp_path / "out/vrs/b.vrs").rename(tmp_path / "out/vrs/a.vrs")
    found = faults(vehicle, tmp_path / "out")
    assert sorted(fault.partition("/out/vrs/")[2] for fault in found)[0].startswith("a.vrs: is not")
    assert any("c.vrs: was added" in fault for fault in found)
    for name in ("f.vrs", "d.vrs", "g.vrs", "e.vrs"):
        (tmp_path / "out/vrs" / name).touch()
    listed = [fault.split("/")[-1] for fault in faults(vehicle, tmp_path / "out")]
    added = [fault.partition(": was added")[0] for fault in listed if "was added" in fault]
    of_one = added[: len(added) // 2]  # of each of the two records the same
    assert of_one == ["c.vrs", "d.vrs", "e.vrs", "f.vrs", "g.vrs"], "in the order of their names"


def test_a_dataset_names_all_its_sessions(vehicle: Vehicle, tmp_path: Path) -> None:
    first, second = (vehicle.record(name, seed) for seed, name in enumerate(("a", "b")))
    out = tmp_path / "summer"
    for session in (first, second):  # one after the other
        list(collect([session], [ArchiveRequest("edgefirst")], out))
    proof = verify(out, Trust([vehicle.public]), [vehicle.root])
    assert proof.sound
    assert [line for line in proof.proven if "unchanged since" in line] == [
        f"its source {session} is unchanged since" for session in (first, second)
    ]
