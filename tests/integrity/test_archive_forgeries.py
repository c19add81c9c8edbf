"""Archives that are not what the vehicle packed of a session that it signed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.archives.finalize import ArchiveRequest, collect, finalize
from recorder.integrity.archives import digest_files
from recorder.integrity.proof import Trust
from recorder.integrity.vehicle_key import VehicleKey
from recorder.integrity.verify import verify
from recorder.session.outputs import encode_record
from tests.integrity.forging import rewrite
from tests.integrity.vehicle import Vehicle, faults, journal


def pack(session: Path, *kinds: str) -> Path:
    list(finalize(session, [ArchiveRequest(kind) for kind in kinds or ("vrs",)]))
    return session / "_archives"


def statement_of(record: Path) -> Any:
    return json.loads(json.loads(record.read_text())["custody"]["statement"])


def is_signed(record: Path) -> bool:
    return bool(json.loads(record.read_text())["custody"]["signature"])


def test_an_archive_without_a_signature_is_not_proven(vehicle: Vehicle, tmp_path: Path) -> None:
    """Whoever can write to it can make its record anew."""
    archives = pack(vehicle.record("drive"))
    record, archive = archives / "vrs.json", archives / "vrs/drive.vrs"
    archive.write_bytes(archive.read_bytes() + b"x")
    values = json.loads(record.read_text())
    statement = statement_of(record) | {"files": digest_files([archive])}
    values["custody"] = {"statement": json.dumps(statement), "signature": "", "public_key": ""}
    record.write_bytes(encode_record(values))
    apart = Path(shutil.copytree(archives, tmp_path / "apart"))
    for path in (archives, apart):
        assert ["vrs.json is not signed" in f for f in faults(vehicle, path)] == [True]
        assert verify(path, Trust()).sound


@pytest.mark.parametrize("how", ["other data", "other data and journal", "no signature"])
def test_the_vehicle_signs_no_archive_of_what_is_not_proven(
    vehicle: Vehicle, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    session = vehicle.record("drive")
    data = bytes((session / "imu/acc").stat().st_size)
    if how != "no signature":
        (session / "imu/acc").write_bytes(data)
    if how != "other data":
        rewrite(session, data={} if how == "no signature" else {"imu/acc": data})
    record = pack(session) / "vrs.json"
    assert not is_signed(record)
    assert f"{session}: its archives will not be signed: {session}/" in capfd.readouterr().err


def test_what_is_added_to_an_archive_that_was_changed_is_not_signed(
    vehicle: Vehicle, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sessions = [vehicle.record(name, seed) for seed, name in enumerate("abc", 1)]
    out = tmp_path / "summer"
    record = out / "edgefirst.summer.json"
    for session in sessions[:2]:
        list(collect([session], [ArchiveRequest("edgefirst")], out))
        assert is_signed(record)
    values = json.loads(record.read_text())
    values["custody"] |= {"signature": "", "public_key": ""}
    record.write_bytes(encode_record(values))
    list(collect([sessions[2]], [ArchiveRequest("edgefirst")], out))
    assert not is_signed(record)
    assert "will not be signed: what is added to is not proven" in capfd.readouterr().err


def killed_while_it_writes(archives: Path) -> None:
    (archives / "mcap/.drive.part").mkdir(parents=True)
    (archives / "mcap/.drive.part/drive.mcap").write_bytes(b"half")


def killed_while_it_redacts(archives: Path) -> None:
    (archives / ".drive.redacted.part/camera").mkdir(parents=True)
    (archives / ".drive.redacted.part/camera/video.avi").write_bytes(b"half")


def killed_while_it_notes(archives: Path) -> None:
    (archives / "vrs.json.tmp").write_bytes(b"half")


def killed_before_it_writes(archives: Path) -> None:
    (archives / "parts/from_1/vrs/.drive.part").mkdir(parents=True)


@pytest.mark.parametrize(
    "killed",
    [killed_while_it_writes, killed_while_it_redacts, killed_while_it_notes,
     killed_before_it_writes],
)  # fmt: skip
def test_what_a_killed_packing_left_is_no_fault(
    vehicle: Vehicle, killed: Callable[[Path], None]
) -> None:
    session = vehicle.record("drive")
    killed(pack(session))
    proof = verify(session, Trust([vehicle.public]))
    assert proof.sound, proof.first_fault
    assert sum("left by packing that was cut off" in line for line in proof.unproven) == 1
    assert faults(vehicle, session / "_archives") == []


def test_a_packing_that_is_killed_leaves_only_that(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each step until the archive is in place."""
    session = vehicle.record("drive")

    class Killed(BaseException):
        pass

    def kill(*_: Any, **__: Any) -> Any:
        kept = Path(shutil.copytree(session, vehicle.root.parent / "kept/drive"))
        raise Killed(kept)

    for step in ("digest_files", "publish"):
        monkeypatch.setattr(f"recorder.archives.finalize.packing.{step}", kill)
        with pytest.raises(Killed):
            pack(session)
        monkeypatch.undo()
        assert faults(vehicle, vehicle.root.parent / "kept/drive") == []
        shutil.rmtree(vehicle.root.parent / "kept")


def test_a_link_or_a_file_beside_what_was_left_is_found(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    archives = pack(session)
    killed_while_it_writes(archives)
    for name, make in (
        ("mcap/.drive.part/link", lambda path: path.symlink_to("/etc/passwd")),
        ("mcap/drive.mcap", Path.touch),
        ("vrs/pipe", os.mkfifo),
        ("vrs/.hidden", Path.touch),
    ):
        make(archives / name)
        assert any(str(archives / name) in fault for fault in faults(vehicle, session)), name
        (archives / name).unlink()
    assert faults(vehicle, session) == []


@pytest.mark.parametrize("name", ["../../imu/acc", "/etc/hostname", "a/../../../imu/acc"])
def test_a_record_that_names_files_elsewhere_is_found(vehicle: Vehicle, name: str) -> None:
    """Signed by the key: no record of ours does."""
    assert vehicle.key is not None
    record = pack(vehicle.record("drive")) / "vrs.json"
    values = json.loads(record.read_text())
    statement = statement_of(record)
    statement["files"][name] = {"bytes": 1, "sha256": ""}
    values["custody"] = VehicleKey(vehicle.key).sign(statement).to_record()
    record.write_bytes(encode_record(values))
    assert f"names a file that is elsewhere: {name}" in faults(vehicle, record)[0]


def test_a_session_with_an_archive_is_signed_once(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    before = journal(session).read_bytes()
    assert is_signed(pack(session) / "vrs.json")
    assert journal(session).read_bytes() == before


def test_what_is_packed_beside_a_store_that_was_changed_is_not_signed(
    vehicle: Vehicle, capfd: pytest.CaptureFixture[str]
) -> None:
    session = vehicle.record("drive")
    record = session / "_archives/ncore.json"
    for options in ({"groups": "standard"}, {"only": ["poses"]}):
        list(finalize(session, [ArchiveRequest("ncore", options)]))
        assert is_signed(record)
        assert not faults(vehicle, session / "_archives")
    (kept,) = (session / "_archives/ncore").glob("*-labels.zarr.itar")
    kept.write_bytes(kept.read_bytes() + b"x")
    list(finalize(session, [ArchiveRequest("ncore", {"only": ["poses"]})]))
    assert not is_signed(record)
    assert "what is added to is not proven" in capfd.readouterr().err
    assert faults(vehicle, session / "_archives")
