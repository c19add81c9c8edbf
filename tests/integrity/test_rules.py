"""The rules of docs/security.md, one by one: what breaks a rule is not proven."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from recorder.archives.finalize import ArchiveRequest, collect, finalize
from recorder.common.clock import SystemClock
from recorder.common.errors import SessionError
from recorder.common.files import PosixDisk
from recorder.integrity.proof import Trust
from recorder.integrity.vehicle_key import VehicleKey, make_key
from recorder.integrity.verify import verify
from recorder.recording.clip.writing import write_clip
from recorder.recording.postprocessing.retention import delete
from recorder.recording.writer.recovery import recover
from recorder.session.journal.frames import decode_frames
from recorder.session.journal.journal import digest_first_record, read_journal
from recorder.session.outputs import encode_record
from recorder.session.part import Part
from tests.acceptance.command import contents
from tests.campaigns import Selector
from tests.integrity.forging import append, rewrite, without
from tests.integrity.test_clip_seams import cut, second, stated
from tests.integrity.test_numbers import reopened
from tests.integrity.vehicle import Vehicle, faults, journal, signatures
from tests.support.changes import flip

DOCUMENT = Path(__file__).parents[2] / "docs/security.md"
_RULE = re.compile(r"^(\d+)\. \*\*([^*]+)\*\*:", re.MULTILINE)


def test_each_rule_of_the_document_has_its_test() -> None:
    rules = _RULE.findall(DOCUMENT.read_text())
    documented = [f"test_rule_{int(n):02}_{name.lower().replace(' ', '_')}" for n, name in rules]
    assert [int(n) for n, _ in rules] == list(range(1, len(rules) + 1))
    module = sys.modules[__name__]
    tested = [name for name in vars(module) if name.startswith("test_rule_")]
    assert tested == documented


@pytest.fixture
def drive(vehicle: Vehicle) -> Path:
    """A session that is proven."""
    session = vehicle.record("drive")
    assert faults(vehicle, session) == []
    return session


@pytest.fixture
def clip(vehicle: Vehicle) -> Path:
    """A clip that is proven by the proofs that it carries."""
    made = cut(vehicle, [vehicle.record("drive")], Part(second(1.0), second(2.2)))
    clip = made.rename(vehicle.root.parent / "clip")
    assert faults(vehicle, clip) == []
    return clip


@pytest.fixture
def archives(vehicle: Vehicle, drive: Path) -> Path:
    """A session's archives, which are proven."""
    list(finalize(drive, [ArchiveRequest("vrs")]))
    assert faults(vehicle, drive) == []
    return drive / "_archives"


def describe(session: Path, **values: Any) -> None:
    """Change values of a session's ``session.json``; None removes one."""
    path = session / "_recorder/session.json"
    made = json.loads(path.read_text()) | values
    removed = {key for key, value in values.items() if value is None}
    path.write_text(json.dumps({k: v for k, v in made.items() if k not in removed}))


def found(vehicle: Vehicle, path: Path, text: str) -> bool:
    return any(text in fault for fault in faults(vehicle, path))


# Of a session


def test_rule_01_chain(vehicle: Vehicle, drive: Path, select: Selector) -> None:
    """Records that are missing, doubled or swapped: lengths may be negative in another place."""
    data = journal(drive).read_bytes()
    frames = list(decode_frames(data))
    records = [data[frame.start : frame.end] for frame in frames]
    orders = [[*records[:k], *records[k + 1 :]] for k in range(len(records))]
    orders += [[*records[: k + 1], *records[k:]] for k in range(len(records))]
    for one, other in combinations(range(len(records)), 2):
        swapped = list(records)
        swapped[one], swapped[other] = records[other], records[one]
        orders.append(swapped)
    orders += [[data[:at], b"\0", data[at:]] for at in (0, frames[3].start, len(data))]
    for order in select(orders, 40):
        journal(drive).write_bytes(b"".join(order))
        assert found(vehicle, drive, str(journal(drive)))
    journal(drive).write_bytes(data)
    assert faults(vehicle, drive) == []


def test_rule_02_bytes(vehicle: Vehicle, drive: Path, select: Selector) -> None:
    for name in select(read_journal(journal(drive)).files, 10):
        path = drive / name
        data = path.read_bytes()
        for other in (data + b"\0", data[:-1], data[:-1] + bytes([data[-1] ^ 1])) if data else ():
            path.write_bytes(other)
            assert found(vehicle, drive, str(path)), name
        path.write_bytes(data)
    assert faults(vehicle, drive) == []


def test_rule_03_metadata(vehicle: Vehicle, drive: Path) -> None:
    names = ["config.yaml", "calibration.yaml", "imu/meta.json", "_recorder/session.json"]
    for name in names:
        path = drive / name
        data = path.read_bytes()
        path.write_bytes(data + b"\n")
        assert found(vehicle, drive, f"{path}: is not as it was recorded"), name
        path.write_bytes(data)


def test_rule_04_files(vehicle: Vehicle, drive: Path) -> None:
    makers: list[Callable[[Path], object]] = [
        Path.touch, Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/etc/hostname"),
    ]  # fmt: skip
    for make in makers:
        path = drive / "imu/more"
        make(path)
        assert found(vehicle, drive, str(path))
        path.rmdir() if path.is_dir() else path.unlink()
    (drive / "imu/acc").unlink()
    assert faults(vehicle, drive)


def test_rule_05_name(vehicle: Vehicle, drive: Path) -> None:
    other = drive.rename(drive.with_name("Drive"))
    assert found(vehicle, other, "is the session drive, under another name")


def test_rule_06_signature(vehicle: Vehicle, drive: Path, tmp_path: Path) -> None:
    forger = VehicleKey(make_key(tmp_path / "forger"))
    (genuine,) = signatures(drive)
    other = vehicle.record("other", 2)
    for signed, fault in (
        (forger.sign(genuine.values), "which is not trusted"),
        (signatures(other)[0], "is of another session"),
        (VehicleKey(Path(str(vehicle.key))).sign(genuine.values | {"kind": "archive"}), ""),
    ):
        rewrite(drive)
        append(drive, "sign", **signed.to_record())
        (said,) = (text for text in faults(vehicle, drive) if "the signature at byte" in text)
        assert fault in said


def test_rule_07_last(vehicle: Vehicle, drive: Path) -> None:
    at = journal(drive).stat().st_size
    text = f"the record `resume` at byte {at}, and what follows, is not signed"
    append(drive, "resume")
    assert faults(vehicle, drive) == [f"{journal(drive)}: {text}"]


def test_rule_08_unsigned(vehicle: Vehicle, drive: Path) -> None:
    whole = {"kind": "clip", "from_ns": None, "until_ns": None, "streams": None}
    claims: list[Any] = [None, {}, [], whole, whole | {"sessions": []}, [whole], "x", 1]
    for origin in claims:
        describe(drive, signing_key=None, origin=origin)
        rewrite(drive)
        assert faults(vehicle, drive), origin


# Of a folder of sessions


def test_rule_09_numbers(vehicle: Vehicle) -> None:
    sessions = [vehicle.record(name, seed) for seed, name in enumerate("abc", 1)]
    assert faults(vehicle) == []
    shutil.copytree(sessions[0], vehicle.root / "copies/a")
    assert found(vehicle, vehicle.root, "is a copy of")
    shutil.rmtree(vehicle.root / "copies")
    shutil.rmtree(sessions[1])
    assert found(vehicle, vehicle.root, "signature 2 of the session b is missing")
    shutil.rmtree(sessions[0])
    assert found(vehicle, vehicle.root, "signature 1 is missing")


def test_rule_10_row(vehicle: Vehicle) -> None:
    assert vehicle.key is not None
    register = vehicle.key.with_suffix(".register")
    vehicle.record("a")
    before = register.read_bytes()
    vehicle.record("b", 2)
    register.write_bytes(before)
    shutil.rmtree(vehicle.root / "b")
    vehicle.record("other", 3)
    vehicle.record("c", 4)
    assert faults(vehicle) == []
    shutil.rmtree(vehicle.root / "other")
    register.write_bytes(before)
    vehicle.record("b", 5)  # takes the number of the one that was removed
    assert found(vehicle, vehicle.root, "signature 3 does not follow signature 2")


def test_rule_11_deleted(vehicle: Vehicle) -> None:
    for seed, name in enumerate("abc", 1):
        vehicle.record(name, seed)
    assert delete(vehicle.root / "a")
    assert found(vehicle, vehicle.root, "signature 1 of the session a is missing")
    vehicle.record("d", 4)
    proof = verify(vehicle.root, Trust([vehicle.public]))
    assert proof.sound
    assert "; 1 of them are of sessions that the recorder deleted" in proof.proven[0]
    (last,) = (line for line in proof.unproven if "is the last one" in line)
    assert last.startswith("nothing here proves that signature 4")
    assert "`recorder keys show`" in last
    shutil.rmtree(vehicle.root / "b")
    vehicle.record("b", 5)
    assert found(vehicle, vehicle.root, "signature 2 of the session b is missing")


# Of a clip


def of_origin(clip: Path, **values: Any) -> None:
    """Change what a clip states of its source."""
    origin = json.loads((clip / "_recorder/session.json").read_text())["origin"]
    origin["sessions"][0].update(values)
    describe(clip, origin=origin)
    rewrite(clip)


def test_rule_12_origin(vehicle: Vehicle, clip: Path, tmp_path: Path) -> None:
    header = clip / "_recorder/session.json"
    before = header.read_bytes(), journal(clip).read_bytes()
    (origin,) = json.loads(before[0])["origin"]["sessions"]
    forger = VehicleKey(make_key(tmp_path / "forger"))
    statement = json.loads(origin["signed"]["statement"])
    for values in (
        {"signed": None},
        {"name": "other"},
        {"root": "00" * 32},
        {"signed": forger.sign(statement).to_record()},
        {"signed": origin["signed"] | {"statement": origin["signed"]["statement"] + " "}},
        {"signed": None, "name": None, "root": None, "head": None},
    ):
        of_origin(clip, **values)
        assert faults(vehicle, clip), values
        if values == {"signed": None}:
            assert found(vehicle, clip, "made from drive, which has no signature: nothing proves")
        header.write_bytes(before[0])
        journal(clip).write_bytes(before[1])
    assert faults(vehicle, clip) == []


def test_rule_13_itself(vehicle: Vehicle) -> None:
    """Two sessions that name each other, with a genuine signature, and one that names itself."""
    one, other = vehicle.record("a"), vehicle.record("b", 2)
    signed = {path.name: signatures(path)[0] for path in (one, other)}
    for path, name in ((one, "b"), (other, "a")):
        data = bytes((path / "imu/acc").stat().st_size)
        (path / "imu/acc").write_bytes(data)
        for source, genuine in ((name, signed[name]), (path.name, signed[path.name])):
            root = genuine.values["root"]
            head = digest_first_record(journal(vehicle.root / source)).hex()
            origin = {"name": source, "head": head, "root": root, "signed": genuine.to_record()}
            whole = {"kind": "clip", "from_ns": None, "until_ns": None, "streams": None}
            describe(path, origin=whole | {"sessions": [origin]})
            rewrite(path, data={"imu/acc": data})
            assert faults(vehicle, path) and faults(vehicle)


def test_rule_14_source(vehicle: Vehicle) -> None:
    session = vehicle.record("drive")
    clip = cut(vehicle, [session], Part(second(1.0), None))
    assert faults(vehicle, clip) == []
    data = bytes((session / "imu/acc").stat().st_size)
    (session / "imu/acc").write_bytes(data)
    assert found(vehicle, clip, "its source")
    rewrite(session, data={"imu/acc": data})  # without a signature, and all digests right
    assert found(vehicle, clip, "was made from another drive")


def test_rule_15_samples(vehicle: Vehicle, clip: Path) -> None:
    for name in ("imu/acc", "imu/seq", "imu/ts", "imu/t_mono", "camera/video.avi", "scan/t_col"):
        path = clip / name
        data = path.read_bytes()
        at = data.index(b"\xff\xd8") + 9 if name.endswith(".avi") else 2
        other = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        path.write_bytes(other)
        rewrite(clip, data={name: other})
        assert faults(vehicle, clip), name
        path.write_bytes(data)
        rewrite(clip, data={name: data})
        assert faults(vehicle, clip) == []


def test_rule_16_interval(vehicle: Vehicle, clip: Path) -> None:
    shift = 6 * 10**8
    early = stated(
        clip, from_ns=lambda t: t - shift, start_ns=lambda t: t - shift,
        start_mono_ns=lambda t: t - shift,
    )  # fmt: skip
    assert found(vehicle, early, "lacks the samples before sample 1 of drive")


def test_rule_17_seams(vehicle: Vehicle) -> None:
    parts = vehicle.record_parts("drive_p001", "drive_p002", "drive_p003")
    assert faults(vehicle, cut(vehicle, parts)) == []
    shutil.rmtree(vehicle.root / "clip")
    clip = cut(vehicle, [parts[0], parts[2]])
    assert found(vehicle, clip, "drive_p001 is continued by drive_p002, which is left out")


def test_rule_18_streams(vehicle: Vehicle) -> None:
    clip = cut(vehicle, [vehicle.record("drive")], Part(streams=("camera", "imu")))
    assert faults(vehicle, clip) == []
    assert found(vehicle, stated(clip, streams=None), "lacks the streams scan of drive")
    assert found(vehicle, stated(clip, streams=["imu"]), "has other streams than it states")


def test_rule_19_description(vehicle: Vehicle, clip: Path) -> None:
    before = {path: path.read_bytes() for path in clip.rglob("*") if path.is_file()}
    later = stated(clip, start_ns=lambda t: t + 10**9, end_ns=lambda t: t + 10**9)
    assert found(vehicle, later, "its clock is not that of drive: times are shifted")
    describe(clip, metadata={"vehicle": "another"})
    assert found(vehicle, clip, "its metadata are not those of drive")
    for name in ("config.yaml", "imu/meta.json"):
        for path, data in before.items():
            path.write_bytes(data)
        assert faults(vehicle, clip) == []
        (clip / name).write_bytes((clip / name).read_bytes() + b"\n")
        assert found(vehicle, clip, f"{clip / name}: is not that of its sources")


# Of an archive


def test_rule_20_content(vehicle: Vehicle, archives: Path) -> None:
    flip(archives / "vrs/drive.vrs", 100)
    assert found(vehicle, archives, "vrs/drive.vrs: is not as it was packed")
    flip(archives / "vrs/drive.vrs", 100)
    (archives / "vrs/more").touch()
    assert found(vehicle, archives, "vrs/more: was added")


def test_rule_21_record(vehicle: Vehicle, archives: Path, tmp_path: Path) -> None:
    record = archives / "vrs.json"
    values = json.loads(record.read_text())
    statement = json.loads(values["custody"]["statement"])
    forger = VehicleKey(make_key(tmp_path / "forger"))
    unsigned = {**values["custody"], "signature": "", "public_key": ""}
    (drive,) = signatures(archives.parent)
    for more in (
        *({"notes": ["all is well"]}, {"bytes": 1}, {"more": 1}),
        {"custody": unsigned},
        {"custody": forger.sign(statement).to_record()},
        {"custody": drive.to_record()},
    ):
        record.write_bytes(encode_record(values | more))
        assert faults(vehicle, archives), more
        assert faults(vehicle, archives.parent), more


def test_rule_22_made_from(vehicle: Vehicle, archives: Path, tmp_path: Path) -> None:
    assert vehicle.key is not None
    record = archives / "vrs.json"
    values = json.loads(record.read_text())
    statement = json.loads(values["custody"]["statement"])
    statement["sources"][0]["signed"] = None
    values["custody"] = VehicleKey(vehicle.key).sign(statement).to_record()
    record.write_bytes(encode_record(values))
    apart = Path(shutil.copytree(archives, tmp_path / "apart"))
    assert found(vehicle, apart, "made from drive, which has no signature: nothing proves it")


def test_rule_23_place(vehicle: Vehicle, archives: Path) -> None:
    other = vehicle.record("other", 2)
    record = shutil.copytree(archives, other / "_archives") / "vrs.json"
    text = f"{record}: does not identify the archive's sources: is of drive, in the session other"
    for path in (other, record, vehicle.root):
        assert faults(vehicle, path) == [text]


# Of the vehicle, which signs


def test_rule_24_begun(vehicle: Vehicle, tmp_path: Path) -> None:
    """A session of somebody else, who put it into the root, names the vehicle's key."""
    session = Vehicle(vehicle.root, make_key(tmp_path / "other")).record("drive")
    for state, kinds in (("clean", {"sign"}), ("recording", {"sign", "close"})):
        describe(session, signing_key=str(vehicle.key), state=state)
        rewrite(session, without(kinds))
        recover(session, PosixDisk(), SystemClock())
        assert signatures(session) == [] and faults(vehicle, session)


def test_rule_25_closed(vehicle: Vehicle, drive: Path) -> None:
    reopened(drive)
    before = contents(drive)
    for dry_run in (True, False):
        with pytest.raises(SessionError, match="was closed and has signature 1, but is open now"):
            recover(drive, PosixDisk(), SystemClock(), dry_run=dry_run)
    assert before == contents(drive)
    assert found(vehicle, vehicle.root, "drive: was not closed")


def test_rule_26_packed(vehicle: Vehicle, drive: Path, tmp_path: Path) -> None:
    flip(drive / "imu/acc", 0)
    list(finalize(drive, [ArchiveRequest("vrs")]))
    list(collect([drive], [ArchiveRequest("edgefirst")], tmp_path / "summer"))
    for record in (drive / "_archives/vrs.json", tmp_path / "summer/edgefirst.summer.json"):
        assert json.loads(record.read_text())["custody"]["signature"] == ""


def test_rule_27_counted(vehicle: Vehicle, drive: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A copy does not, be it under another name or in another folder."""
    for copy in ("backup", "other/drive"):
        assert delete(Path(shutil.copytree(drive, vehicle.root / copy)))
        assert "its deletion is not counted: it is a copy of" in capfd.readouterr().err
    assert signatures(vehicle.record("later", 2))[0].values["deleted"] == []
    shutil.rmtree(drive)
    assert found(vehicle, vehicle.root, "signature 1 of the session drive is missing")


def test_rule_28_register(vehicle: Vehicle, drive: Path) -> None:
    assert vehicle.key is not None
    register = VehicleKey(vehicle.key).register
    with sqlite3.connect(register.path) as connection:
        for text in ("DELETE FROM entries", "UPDATE entries SET content = ''"):
            with pytest.raises(sqlite3.IntegrityError, match="entries are only appended"):
                connection.execute(text)
    connection.close()
    writer, clock = vehicle.begin("later", 2)
    with register.open_entries() as entries:
        link = entries.link
    (signed,) = signatures(vehicle.end(writer, clock))
    assert signed.values["register"] == link


def test_a_clip_that_its_own_key_signs_needs_no_source(vehicle: Vehicle, tmp_path: Path) -> None:
    """Rule 8 has no other exception than a signature: that of the clip, or of its sources."""
    session = Vehicle(tmp_path / "plain", None).record("drive")
    clip = write_clip([session], Part(), vehicle.root, "clip", signing_key=vehicle.key).session
    proof = verify(clip, Trust([vehicle.public]))
    assert proof.sound and "made from drive, which has no signature" in proof.unproven
