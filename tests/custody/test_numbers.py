"""The numbers of signatures: damaged counters and sessions, and who may count a deletion."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from recorder.contract.errors import UsageError
from recorder.custody.proof import Trust
from recorder.custody.verifying import verify
from recorder.daemon.postprocessing.retention import delete
from recorder.formats.disk import PosixDisk
from recorder.session.journal import JournalWriter, read_journal
from recorder.session.vehicle_key import VehicleKey, make_key
from tests.custody.vehicle import Vehicle, faults, journal, signatures


def test_a_missing_number_of_a_damaged_session_is_no_missing_session(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    vehicle.record("next", 2)
    os.truncate(journal(session), 10)
    proof = verify(vehicle.root, Trust([vehicle.public]))
    assert proof.faults == [] and not proof.sound
    assert "signature 1: cannot be read in drive" in proof.unproven


@pytest.mark.parametrize("how", ["of another session", "of another key", "forged"])
def test_a_deletion_counts_the_vehicles_own_signatures_only(
    vehicle: Vehicle, tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    """Who can write to a session could else have the vehicle sign that others were deleted."""
    assert vehicle.key is not None
    first, second = vehicle.record("a"), vehicle.record("b", 2)
    (signed,) = signatures(first)
    if how == "of another key":
        signed = VehicleKey(make_key(tmp_path / "other")).signed({"session": "b", "counter": 1})
    elif how == "forged":
        signed = replace(signed, statement='{"session":"b","counter":1}')
    state = read_journal(journal(second))
    writer = JournalWriter(PosixDisk().reopen(journal(second), state.length), state)
    writer.append("sign", **signed.to_record())
    writer.close()
    delete(second)
    assert not second.exists() and "its deletion is not counted" in capfd.readouterr().err
    assert VehicleKey(vehicle.key).counter().deleted == ()


@pytest.mark.parametrize("content", [b"", b"{", b'{"last": "\xf2"}', b'{"\xf2": 1}'])
def test_a_damaged_counter_leaves_a_session_unsigned(
    vehicle: Vehicle, capfd: pytest.CaptureFixture[str], content: bytes
) -> None:
    assert vehicle.key is not None
    vehicle.key.with_suffix(".counter").write_bytes(content)
    session = vehicle.record("drive")
    text = "vehicle.counter: is damaged; make a new key: docs/custody.md"
    assert text in capfd.readouterr().err
    assert faults(vehicle, session) == [f"{journal(session)}: has no signature"]


def test_a_flipped_bit_of_the_counter_is_never_a_lower_number(vehicle: Vehicle) -> None:
    assert vehicle.key is not None
    vehicle.record("drive")
    path, key = vehicle.key.with_suffix(".counter"), VehicleKey(vehicle.key)
    before, counter = path.read_bytes(), key.counter()
    for at in range(len(before)):
        path.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
        try:
            assert key.counter().last == counter.last, at
        except UsageError as error:
            assert "is damaged" in str(error)
