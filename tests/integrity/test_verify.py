"""What `verify` proves of sessions and rows of sessions, and what it says."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from msgspec.structs import replace

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.cli import main
from recorder.cli.output import plain
from recorder.common.clock import SystemClock
from recorder.common.errors import UsageError
from recorder.common.files import PosixDisk
from recorder.integrity.deferred_compression import repack
from recorder.integrity.proof import Trust
from recorder.integrity.vehicle_key import SIGN, Entries, VehicleKey, make_key, read_anchor
from recorder.integrity.verify import verify
from recorder.recording.writer.recovery import recover
from recorder.session.journal.frames import encode_frame
from recorder.session.journal.journal import JournalWriter, walk_journal
from recorder.session.reader import Session
from recorder.session.validation_report import Report
from tests.integrity.forging import append
from tests.integrity.vehicle import Vehicle, faults, journal, signatures
from tests.support.changes import flip


def test_a_session_is_signed_when_it_is_closed(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    proof = verify(session, Trust([vehicle.public]))
    (signed,) = proof.signatures
    assert proof.sound and proof.proven[0] == "every byte of 28 committed files"
    values = signed.values
    frames = [frame for frame, _, _ in walk_journal(journal(session))]
    assert [frame.kind for frame in frames[-2:]] == ["close", "sign"]
    assert values["head"] == frames[-2].own.hex() == frames[-1].previous.hex()
    assert (values["session"], values["cause"], values["counter"]) == ("drive", "close", 1)
    assert values["previous"] is None and values["deleted"] == []


def test_other_software_checks_a_signature(vehicle: Vehicle, tmp_path: Path) -> None:
    (signed,) = signatures(vehicle.record("drive"))
    key = load_pem_public_key(Path(vehicle.public).read_bytes())
    assert isinstance(key, Ed25519PublicKey)
    key.verify(bytes.fromhex(signed.signature), signed.statement.encode())  # raises if it is not
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: only `cryptography` checked the signature")
    (tmp_path / "statement").write_text(signed.statement)
    (tmp_path / "signature").write_bytes(bytes.fromhex(signed.signature))

    def openssl(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["openssl", *arguments], cwd=tmp_path, capture_output=True)

    verify_it = ("pkeyutl", "-verify", "-pubin", "-inkey", vehicle.public, "-rawin")
    files = ("-in", "statement", "-sigfile", "signature")
    assert openssl(*verify_it, *files).returncode == 0
    der = openssl("pkey", "-pubin", "-in", vehicle.public, "-outform", "DER").stdout
    assert hashlib.sha256(der).hexdigest() == signed.fingerprint == read_anchor(vehicle.public)
    private = openssl("pkey", "-in", str(vehicle.key), "-pubout").stdout
    assert private == Path(vehicle.public).read_bytes()
    (tmp_path / "statement").write_text(signed.statement.replace("clean", "clear"))
    assert openssl(*verify_it, *files).returncode != 0


def test_recovery_signs_and_says_so(vehicle: Vehicle) -> None:
    writer, _ = vehicle.begin("drive")
    writer.abandon()
    assert "was not closed; run `recorder recover" in faults(vehicle, writer.path)[0]
    recover(writer.path, PosixDisk(), SystemClock())
    proof = verify(writer.path, Trust([vehicle.public]))
    assert proof.sound and proof.signatures[0].values["cause"] == "recovery"
    assert "signed after recovery (cause recovery, signature 1)" in proof.proven[1]


@pytest.mark.parametrize(("lost", "later"), [(1, False), (2, False), (1, True)])
def test_a_power_cut_at_the_close_loses_no_signature(
    vehicle: Vehicle, lost: int, later: bool
) -> None:
    """The counter is durable before the record; the session gets the same signature again."""
    session = vehicle.record("drive")
    before = journal(session).read_bytes()
    frames = [frame for frame, _, _ in walk_journal(journal(session))]
    if later:
        vehicle.record("next", 2)
    journal(session).write_bytes(before[: frames[-lost].start])
    assert faults(vehicle, session)
    recover(session, PosixDisk(), SystemClock())
    assert journal(session).read_bytes() == before
    vehicle.record("another", 3)
    assert faults(vehicle) == []


def test_a_session_that_is_written_is_not_proven(vehicle: Vehicle) -> None:
    writer, _ = vehicle.begin("drive")
    (fault,) = faults(vehicle, writer.path)
    assert fault == f"{writer.path}: is being recorded, recovered or deleted; verify it afterwards"
    writer.abandon()


def test_packing_later_is_signed(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    repack(session)
    assert [s.values["cause"] for s in signatures(session)] == ["close", "packing"]
    assert faults(vehicle) == []
    kinds = [frame.kind for frame, _, _ in walk_journal(journal(session))]
    assert kinds[-3:] == ["sign", "pack", "sign"]


def test_a_counter_that_was_set_back_is_found(vehicle: Vehicle) -> None:
    assert vehicle.key is not None
    register = vehicle.key.with_suffix(".register")
    before = register.read_bytes()
    vehicle.record("a")
    register.write_bytes(before)
    vehicle.record("b", 2)
    assert any("the key's counter was set back" in fault for fault in faults(vehicle))


def test_a_session_of_another_key_is_not_trusted(vehicle: Vehicle, tmp_path: Path) -> None:
    session = vehicle.record("drive")
    other = make_key(tmp_path / "other")
    proof = verify(session, Trust([str(other.with_suffix(".pub"))]))
    assert "which is not trusted" in proof.faults[0]
    both = Trust([str(other.with_suffix(".pub")), read_anchor(vehicle.public)])
    assert verify(session, both).sound
    on_its_word = verify(session, Trust())
    assert on_its_word.sound and "taken on its word: no --public-key" in on_its_word.proven[1]


@pytest.mark.parametrize(
    "garbage",
    [
        {},
        {"statement": 1, "signature": b"", "public_key": None},
        {"statement": "{", "signature": "zz", "public_key": ""},
        {"statement": "[]", "signature": "00" * 64, "public_key": "00" * 32},
        {"statement": "{}", "signature": "00", "public_key": "ff" * 32},
    ],
)
def test_garbage_for_a_signature_is_a_fault(
    vehicle: Vehicle, tmp_path: Path, garbage: dict[str, Any]
) -> None:
    session = Vehicle(tmp_path / "plain", None).record("drive")
    append(session, "sign", **garbage)
    for trust in (Trust(), Trust([vehicle.public])):
        proof = verify(session, trust)
        assert [str(journal(session)) in fault for fault in proof.faults] == [True], proof.faults
        json.dumps(plain(proof.to_wire()))


def test_a_session_without_a_signature(vehicle: Vehicle, tmp_path: Path) -> None:
    session = Vehicle(tmp_path / "plain", None).record("drive")
    proof = verify(session, Trust())
    assert proof.sound and proof.unproven[0].startswith("not signed")
    assert faults(vehicle, session) == [f"{journal(session)}: has no signature"]


def test_a_key_that_cannot_be_used_leaves_a_session_unsigned(
    vehicle: Vehicle, capfd: pytest.CaptureFixture[str]
) -> None:
    assert vehicle.key is not None
    writer, clock = vehicle.begin("drive")
    vehicle.key.chmod(0o640)
    session = vehicle.end(writer, clock)
    text = f"others can read it; run `chmod 600 {vehicle.key}`"
    assert f"{session}: is not signed: {vehicle.key}: {text}" in capfd.readouterr().err
    assert faults(vehicle, session) == [f"{journal(session)}: has no signature"]
    vehicle.key.chmod(0o600)
    recover(session, PosixDisk(), SystemClock())
    assert faults(vehicle) == []


def test_a_session_that_began_without_the_key_is_never_signed(
    vehicle: Vehicle, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else whoever can write to the root has a session of his own signed."""
    assert vehicle.key is not None
    vehicle.key.chmod(0o640)
    writer, clock = vehicle.begin("drive")
    assert f"{writer.path}: will not be signed: {vehicle.key}" in capfd.readouterr().err
    vehicle.key.chmod(0o600)
    session = vehicle.end(writer, clock)
    recover(session, PosixDisk(), SystemClock())
    told = capfd.readouterr().err
    assert told.count("vehicle.register: does not have its beginning") == 2
    assert faults(vehicle, session) == [f"{journal(session)}: has no signature"]


def test_the_key_is_in_no_session(vehicle: Vehicle, capfd: pytest.CaptureFixture[str]) -> None:
    assert vehicle.key is not None
    text = vehicle.key.read_text().splitlines()[1]
    seed = base64.b64decode(text)[-32:]
    session = vehicle.record("drive")
    assert main(["keys", "show", "--dir", str(vehicle.key.parent)]) == 0
    shown = "".join(capfd.readouterr())
    for data in (*(p.read_bytes() for p in session.rglob("*") if p.is_file()), shown.encode()):
        assert text.encode() not in data and seed not in data and seed.hex().encode() not in data


def test_lawful_changes_stay_proven(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    (session / "report.html").write_text("<html>")
    (session / "_recorder/keep").write_text("{}")
    (session / "_recorder/uploaded.json").write_text("{}")
    (session / "_pose").mkdir()
    (session / "_pose/ts").write_bytes(b"12345678")
    list(finalize(session, [ArchiveRequest("vrs")]))
    proof = verify(session, Trust([vehicle.public]))
    assert proof.sound
    assert proof.unproven == [
        "not committed, may change: _pose/ (1 files), _recorder/checksums.csv, _recorder/keep, "
        "_recorder/lock, _recorder/uploaded.json, report.html"
    ]


def test_a_fault_names_file_bytes_samples_and_time(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    path = session / "imu/acc"
    flip(path, 15, 4)
    (fault,) = faults(vehicle, session)
    place = f"{path}: bytes 0 to 24 are not as they were recorded (samples 0 to 1)"
    assert fault == f"{place}, from 2024-06-01 10:01:00.700 UTC on"


def test_a_fault_of_the_times_has_no_time(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    os.truncate(session / "imu/t_mono", 4)
    place = f"{session}/imu/t_mono: bytes 0 to 16 are not as they were recorded (samples 0 to 1)"
    assert place in faults(vehicle, session)


def test_a_journal_that_begins_late_is_found(vehicle: Vehicle) -> None:
    """Everything before a snapshot is cut off: what is left is read without an error."""
    session = vehicle.record("drive")
    frames = [frame for frame, _, _ in walk_journal(journal(session))]
    snapshot = next(frame for frame in frames if frame.kind == "snapshot")
    journal(session).write_bytes(journal(session).read_bytes()[snapshot.start :])
    text = "the record at byte 0 does not follow the one before it"
    assert f"{journal(session)}: {text}" in faults(vehicle, session)


def test_a_range_that_begins_before_its_file_is_an_error(vehicle: Vehicle) -> None:
    """As of a record that came to another place."""
    session = vehicle.record("drive")
    before = journal(session).read_bytes()
    frames = [frame for frame, _, _ in walk_journal(journal(session))]
    commit = next(f for f in frames if f.kind == "commit" and isinstance(f.content[6], list))
    body = list(commit.content)
    body[6] = [[number, 1 << 20, value] for number, *_, value in body[6]]
    wrong = encode_frame("commit", body, commit.previous)
    journal(session).write_bytes(before[: commit.start] + wrong)
    text = f"{journal(session)}: the record at byte {commit.start} is not of this version"
    assert faults(vehicle, session)[0].startswith(text)


def test_a_signature_has_one_form(vehicle: Vehicle) -> None:
    (signed,) = signatures(vehicle.record("drive"))
    signed.check()
    for name in ("signature", "public_key"):
        other = replace(signed, **{name: getattr(signed, name).upper()})
        with pytest.raises(UsageError, match="not of this statement"):
            other.check()


def test_a_new_key_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        sync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    path = make_key(tmp_path / "keys")
    for place in (path, path.with_suffix(".pub"), path.with_suffix(".register"), path.parent):
        assert place.stat().st_ino in synced, place


@pytest.mark.parametrize("disk", ["full", "well"])
def test_the_number_is_durable_before_the_record(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    """A counter that cannot be written gives no signature, and the session is closed."""
    assert vehicle.key is not None
    register, append = Entries.append, JournalWriter.append
    done: list[str] = []

    def registered(entries: Entries, kind: str, first: str, content: dict[str, Any]) -> None:
        if disk == "full" and kind == SIGN:
            raise sqlite3.OperationalError("database or disk is full")
        register(entries, kind, first, content)
        done.append(f"register {kind}")

    def appended(writer: JournalWriter, kind: str, **values: Any) -> None:
        append(writer, kind, **values)
        done.append(kind)

    monkeypatch.setattr(Entries, "append", registered)
    monkeypatch.setattr(JournalWriter, "append", appended)
    session = vehicle.record("drive")
    assert done[:2] == ["open", "register open"]
    assert done[-3:] == (["close", "register sign", "sign"] if disk == "well" else done[-3:])
    assert done[-1] == ("sign" if disk == "well" else "close")
    assert verify(session, Trust([vehicle.public])).sound == (disk == "well")
    monkeypatch.undo()
    recover(session, PosixDisk(), SystemClock())
    assert faults(vehicle) == []


def test_a_key_is_never_replaced(vehicle: Vehicle) -> None:
    assert vehicle.key is not None
    before = vehicle.key.read_bytes()
    with pytest.raises(UsageError, match="there is a key already"):
        make_key(vehicle.key.parent)
    assert vehicle.key.read_bytes() == before
    assert vehicle.key.stat().st_mode & 0o777 == 0o600
    public = Path(vehicle.public).read_bytes()
    vehicle.key.unlink()
    with pytest.raises(UsageError, match=r"vehicle\.pub: is of another key; use a new folder"):
        make_key(vehicle.key.parent)
    assert Path(vehicle.public).read_bytes() == public and not vehicle.key.exists()


def test_what_a_validation_finds_odd_is_no_fault_and_is_told(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = vehicle.record("drive")

    def odd(session: Session, report: Report, advance: object) -> None:
        report.warning("a writer went on")

    monkeypatch.setattr("recorder.integrity.sessions.check_digests", odd)
    proof = verify(session, Trust([vehicle.public]))
    assert proof.sound and "a writer went on" in proof.unproven


def test_a_key_that_is_none_shows_nothing_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "vehicle.key"
    path.write_text("secret")
    path.chmod(0o600)
    with pytest.raises(UsageError, match="holds no Ed25519 private key in PEM") as error:
        VehicleKey(path)
    assert "secret" not in str(error.value)


def test_the_command(vehicle: Vehicle, capsys: pytest.CaptureFixture[str]) -> None:
    session = vehicle.record("drive")
    assert main(["verify", str(session), "--public-key", vehicle.public]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "proven    every byte of 28 committed files"
    assert lines[-1] == f"{session}: session: proven"
    (session / "extra").touch()
    assert main(["verify", str(vehicle.root), "--format", "json"]) == 1
    wire = json.loads(capsys.readouterr().out)
    text = f"{session}/extra: was added: the journal does not have it"
    assert wire["first_fault"] == text and wire["parts"][0]["faults"] == [text]
    assert wire["parts"][0]["signatures"][0]["values"]["counter"] == 1
    assert main(["verify", str(vehicle.root / "none")]) == 2
    assert "there is no such file or folder" in capsys.readouterr().err
    assert main(["verify", str(session), "--public-key", "x"]) == 2
