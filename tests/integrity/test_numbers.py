"""The numbers of signatures: damaged counters and sessions, and who may count a deletion."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from recorder.common.clock import SystemClock
from recorder.common.errors import StorageError, UsageError
from recorder.common.files import PosixDisk
from recorder.integrity.deferred_compression import repack
from recorder.integrity.proof import Trust
from recorder.integrity.vehicle_key import VehicleKey, make_key
from recorder.integrity.verify import verify
from recorder.recording.postprocessing.retention import delete
from recorder.recording.writer.recovery import recover
from recorder.session.journal.journal import walk_journal
from tests.integrity.forging import append, rewrite, without
from tests.integrity.vehicle import Vehicle, faults, journal, signatures


def test_a_missing_number_of_a_damaged_session_is_no_missing_session(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    vehicle.record("next", 2)
    os.truncate(journal(session), 10)
    proof = verify(vehicle.root, Trust([vehicle.public]))
    assert proof.faults == [] and not proof.sound
    assert "signature 1: cannot be read in drive" in proof.unproven


def deleted(vehicle: Vehicle) -> Any:
    """What the vehicle's next signature says."""
    vehicle.record("later", 9)
    return signatures(vehicle.root / "later")[0].values["deleted"]


@pytest.mark.parametrize("how", ["of another session", "of another key", "forged"])
def test_a_deletion_counts_the_vehicles_own_signatures_only(
    vehicle: Vehicle, tmp_path: Path, how: str
) -> None:
    """Who can write to a session could else have the vehicle sign that others were deleted."""
    first, second = vehicle.record("a"), vehicle.record("b", 2)
    (signed,) = signatures(first)
    if how == "of another key":
        signed = VehicleKey(make_key(tmp_path / "other")).sign({"session": "b", "counter": 1})
    elif how == "forged":
        signed = replace(signed, statement='{"session":"b","counter":1}')
    append(second, "sign", **signed.to_record())
    delete(second)
    assert not second.exists() and deleted(vehicle) == [[2, 2]]


def test_the_register_has_the_digests_of_what_was_deleted(vehicle: Vehicle) -> None:
    assert vehicle.key is not None
    session = vehicle.record("drive")
    (signed,) = signatures(session)
    first = next(frame for frame, _, _ in walk_journal(journal(session)))
    delete(session)
    register = VehicleKey(vehicle.key).register
    with register.open_entries() as entries:
        kinds = [(entry.kind, entry.content) for entry in entries.of(first.own.hex())]
        link = entries.link
    assert [kind for kind, _ in kinds] == ["open", "sign", "delete"]
    assert kinds[0][1] == {"folder": str(session)}
    assert kinds[2][1] == {"numbers": [1], "digests": [signed.digest]}
    other, clock = vehicle.begin("other", 2)
    with register.open_entries() as entries:
        assert entries.link != link
        link = entries.link
    assert signatures(vehicle.end(other, clock))[0].values["register"] == link


def test_a_session_that_was_moved_counts(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    (vehicle.root / "moved").mkdir()
    delete(session.rename(vehicle.root / "moved/drive"))
    assert deleted(vehicle) == [[1, 1]]
    assert faults(vehicle) == []


def reopened(session: Path) -> None:
    """Make a session one that was never closed, with other data and a journal made anew."""
    data = bytes((session / "imu/acc").stat().st_size)
    (session / "imu/acc").write_bytes(data)
    rewrite(session, without(("close", "sign")), {"imu/acc": data})
    header = session / "_recorder/session.json"
    values = json.loads(header.read_text())
    header.write_text(json.dumps(values | {"state": "recording", "end_ns": None}))


@pytest.mark.parametrize("how", ["recovery", "packing"])
def test_what_was_closed_is_not_signed_with_other_records(
    vehicle: Vehicle, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    """It is still closed: only its last records were made anew, without the signature."""
    session = vehicle.record("tour")
    data = bytes((session / "imu/acc").stat().st_size)
    (session / "imu/acc").write_bytes(data)
    rewrite(session, lambda kind, content: None if kind == "sign" else content, {"imu/acc": data})
    repack(session) if how == "packing" else recover(session, PosixDisk(), SystemClock())
    text = "its journal is not the one that was closed with signature 1"
    assert text in capfd.readouterr().err
    assert signatures(session) == [] and faults(vehicle, session)


@pytest.mark.parametrize("content", [b"", b"{", bytes(8192)])
def test_a_damaged_register_leaves_a_session_unsigned(
    vehicle: Vehicle, capfd: pytest.CaptureFixture[str], content: bytes
) -> None:
    assert vehicle.key is not None
    vehicle.key.with_suffix(".register").write_bytes(content)
    session = vehicle.record("drive")
    assert "vehicle.register: " in capfd.readouterr().err
    assert faults(vehicle, session) == [f"{journal(session)}: has no signature"]


def test_a_flipped_bit_of_the_register_is_never_another_entry(vehicle: Vehicle) -> None:
    assert vehicle.key is not None
    session = vehicle.record("drive")
    path, key = vehicle.key.with_suffix(".register"), VehicleKey(vehicle.key)
    first = next(frame for frame, _, _ in walk_journal(journal(session))).own.hex()
    before, signed = path.read_bytes(), key.last_signature()
    with key.register.open_entries() as entries:
        known = entries.of(first)
    places = [i for i, byte in enumerate(before) if byte]
    for at in places[::5]:
        path.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
        try:
            with key.register.open_entries() as entries:
                assert key.last_signature() == signed, at
                assert all(entry in known for entry in entries.of(first)), at
        except (UsageError, StorageError) as error:
            assert "vehicle.register: " in str(error)
