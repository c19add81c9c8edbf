"""The finalizer with packers of its own: what is packed, put into place, replaced and removed."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import json
import os
import platform
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives import base, staging
from recorder.archives.base import PackedFiles, Packer
from recorder.archives.context import PackingContext
from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.archives.finalize.sessions import LockedSession
from recorder.common import syscalls
from recorder.common.errors import ArchiveError, ConfigError, SessionError, StorageError, UsageError
from recorder.common.files import PosixDisk
from recorder.config.options import Option
from recorder.session.layout import ARCHIVES
from recorder.session.outputs import read_records
from recorder.session.part import Moment, Part
from recorder.session.validation import validate
from tests.acceptance.command import contents
from tests.session.build import Builder, build_session, camera_spec, imu_spec


@dataclass
class FakePacker(Packer):
    """Writes a file and a folder, or fails as it is told."""

    content: bytes = b"one"
    fail: Exception | None = None
    seen: list[Mapping[str, Any]] = field(default_factory=list)
    name = "fake"
    options = {"speed": Option("int", 3, "of packing", minimum=1)}

    def ticks(self, context: PackingContext) -> float:
        return len(context.session.streams["camera"])

    def pack(self, context: PackingContext) -> PackedFiles:
        self.seen.append(context.options)
        assert list(context.folder.iterdir()) == []
        name = context.session.name
        (context.folder / f"{name}.bin").write_bytes(self.content)
        (context.folder / f"{name}.d").mkdir()
        (context.folder / f"{name}.d" / "part").write_bytes(self.content)
        for index in range(len(context.session.streams["camera"])):
            with context.locate_errors("camera", index):
                context.advance(1)
                if self.fail is not None and index == 2:
                    raise self.fail
        context.notes.add("is odd", "camera")
        context.notes.add("is odd", "camera")
        return PackedFiles(
            (f"{name}.d", f"{name}.bin"), (f"{name}.older",), {"frames": {"camera": 6}}
        )


@pytest.fixture
def packer(monkeypatch: pytest.MonkeyPatch) -> FakePacker:
    fake = FakePacker()
    monkeypatch.setattr("recorder.archives.base.load_packer", lambda name: fake)
    return fake


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return build_session(tmp_path / "drive", camera_spec(), seconds=0.2).path


def in_place(session: Path) -> dict[str, bytes]:
    folder = session / ARCHIVES / "fake"
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_an_archive_comes_into_place(packer: FakePacker, session: Path) -> None:
    before = contents(session)
    shown: list[tuple[str, float, float]] = []
    (result,) = finalize(
        session, [ArchiveRequest("fake")], progress=lambda *reported: shown.append(reported)
    )
    assert in_place(session) == {"drive.bin": b"one", "drive.d/part": b"one"}
    assert [path.name for path in result.files] == ["drive.d", "drive.bin"]
    assert (result.bytes, result.notes) == (6, ("camera: is odd",))
    assert [shown[0], shown[-1]] == [("fake", 0.0, 6.0), ("fake", 6.0, 6.0)]
    assert packer.seen == [{"speed": 3}]
    after = contents(session)
    assert {k: v for k, v in after.items() if not k.startswith(ARCHIVES)} == before


def test_what_was_packed_is_kept_with_its_notes(packer: FakePacker, session: Path) -> None:
    (result,) = finalize(session, [ArchiveRequest("fake", {"speed": 5})])
    record = read_records(session)["fake"]
    assert record.pop("packed_ns") > 1_600_000_000_000_000_000
    assert set(record.pop("custody")) == {"statement", "signature", "public_key"}
    assert record == {
        "options": {"speed": 5},
        "files": ["drive.d", "drive.bin"],
        "bytes": 6,
        "seconds": result.seconds,
        "summary": {"frames": {"camera": 6}},
        "notes": ["camera: is odd"],
    }
    packer.fail = ArchiveError("bad")
    with pytest.raises(ArchiveError):
        list(finalize(session, [ArchiveRequest("fake")]))
    assert read_records(session)["fake"]["options"] == {"speed": 5}


def test_the_record_of_a_part_is_the_parts(packer: FakePacker, session: Path) -> None:
    list(finalize(session, [ArchiveRequest("fake")], part=Part(end=Moment.parse("0.1"))))
    ((name, record),) = read_records(session).items()
    assert name == "fake, until_0.1" and "packed in part: until 0.1 s" in record["notes"][0]


def test_archives_elsewhere_leave_their_record_beside_them(
    packer: FakePacker, session: Path, tmp_path: Path
) -> None:
    (result,) = finalize(session, [ArchiveRequest("fake")], out=tmp_path / "out")
    assert result.files[-1] == tmp_path / "out/fake/drive.bin"
    assert read_records(session) == {} and not (session / ARCHIVES).exists()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"fake", "fake.drive.json"}


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_a_record_that_cannot_be_read_is_empty(
    packer: FakePacker, session: Path, text: str
) -> None:
    list(finalize(session, [ArchiveRequest("fake")]))
    (session / ARCHIVES / "fake.json").write_bytes(text.encode("latin-1"))
    assert read_records(session) == {"fake": {}}


def test_an_older_archive_is_replaced(packer: FakePacker, session: Path) -> None:
    list(finalize(session, [ArchiveRequest("fake")]))
    folder = session / ARCHIVES / "fake"
    (folder / "drive.older").write_bytes(b"of another kind")
    (folder / "labels.bin").write_bytes(b"somebody's own")
    packer.content = b"two"
    list(finalize(session, [ArchiveRequest("fake")]))
    assert in_place(session) == {
        "drive.bin": b"two",
        "drive.d/part": b"two",
        "labels.bin": b"somebody's own",
    }


def test_what_an_interrupted_run_left_is_removed(packer: FakePacker, session: Path) -> None:
    left = session / ARCHIVES / "fake" / ".drive.part"
    (left / "drive.d").mkdir(parents=True)
    (left / "half").write_bytes(b"half")
    list(finalize(session, [ArchiveRequest("fake")]))
    assert in_place(session) == {"drive.bin": b"one", "drive.d/part": b"one"}
    assert not left.exists()


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ArchiveError("bad frame"), ArchiveError, "drive: fake: camera, sample 2: bad frame"),
        (OSError(errno.ENOSPC, "full"), StorageError, "drive: fake: camera, sample 2: full"),
    ],
)
def test_a_failure_says_where_and_leaves_the_old_one(
    packer: FakePacker, session: Path, error: Exception, kind: type[Exception], words: str
) -> None:
    list(finalize(session, [ArchiveRequest("fake")]))
    packer.content, packer.fail = b"two", error
    with pytest.raises(kind, match=words):
        list(finalize(session, [ArchiveRequest("fake")]))
    assert in_place(session) == {"drive.bin": b"one", "drive.d/part": b"one"}
    assert not (session / ARCHIVES / "fake/.drive.part").exists()


def test_an_interrupt_leaves_nothing(packer: FakePacker, session: Path) -> None:
    packer.fail = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        list(finalize(session, [ArchiveRequest("fake")]))
    assert in_place(session) == {}


def fail_renames(
    monkeypatch: pytest.MonkeyPatch, at: int, *, dead: bool = False, behind: bool = False
) -> None:
    """Fail at one of the steps by which archives come into place.

    Args:
        monkeypatch: replaces the calls.
        at: number of the step.
        dead: nothing after it is done, either.
        behind: the step is done, and then interrupted.
    """
    numbers = itertools.count(1)

    def failed(real: Callable[[Path, Path], object]) -> Callable[[Path, Path], None]:
        def call(one: Path, other: Path) -> None:
            number = next(numbers)
            if not behind and (number == at or (dead and number > at)):
                raise OSError(errno.EIO, "Input/output error", str(other))
            real(one, other)
            if behind and number == at:
                raise KeyboardInterrupt

        return call

    monkeypatch.setattr(staging, "exchange", failed(staging.exchange))
    monkeypatch.setattr(Path, "rename", failed(Path.rename))


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("failing", [1, 2, 3])
def test_renames_that_fail_are_taken_back(
    packer: FakePacker, session: Path, monkeypatch: pytest.MonkeyPatch, failing: int, behind: bool
) -> None:
    list(finalize(session, [ArchiveRequest("fake")]))
    packer.content = b"two"
    fail_renames(monkeypatch, failing, behind=behind)
    text = None if behind else r"fake: .*Input/output error"
    with pytest.raises(KeyboardInterrupt if behind else StorageError, match=text):
        list(finalize(session, [ArchiveRequest("fake")]))
    assert in_place(session) == {"drive.bin": b"one", "drive.d/part": b"one"}


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_kill_between_renames_leaves_no_mixture(
    packer: FakePacker, session: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The file that names the others never stands beside some that are not its own."""
    list(finalize(session, [ArchiveRequest("fake")]))
    packer.content = b"two"
    fail_renames(monkeypatch, failing, dead=True)  # nothing is taken back, as after a kill
    with pytest.raises(StorageError):
        list(finalize(session, [ArchiveRequest("fake")]))
    left = in_place(session)
    assert "drive.bin" not in left or set(left.values()) == {b"one"}
    monkeypatch.undo()
    monkeypatch.setattr("recorder.archives.base.load_packer", lambda name: packer)
    list(finalize(session, [ArchiveRequest("fake")]))
    assert in_place(session) == {"drive.bin": b"two", "drive.d/part": b"two"}


@pytest.mark.parametrize(
    ("state", "why"), [("recording", "was not closed"), ("sealed", "was sealed when its disk")]
)
def test_unclosed_sessions_are_refused(
    tmp_path: Path, state: str, why: str, packer: FakePacker
) -> None:
    builder = Builder(tmp_path / "open")
    builder.add(imu_spec(), 0.1)
    with pytest.raises(SessionError, match=f"{why}.*; run `recorder recover"):
        list(finalize(builder.close(state), [ArchiveRequest("fake")]))
    assert not packer.seen


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ("_recorder/lock", "is being recorded or recovered"),
        (f"{ARCHIVES}/fake/.drive.part", "another process packs"),
    ],
)
def test_what_another_process_holds_is_refused(
    packer: FakePacker, session: Path, held: str, text: str
) -> None:
    if held.endswith(".part"):
        (session / held).mkdir(parents=True)
    fd = os.open(session / held, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(SessionError, match=text):
            list(finalize(session, [ArchiveRequest("fake")]))
    finally:
        os.close(fd)


def test_damaged_sessions_are_refused(packer: FakePacker, session: Path) -> None:
    with (session / "camera/video.avi").open("r+b") as file:
        file.truncate(4000)
    with pytest.raises(SessionError, match=r"is damaged, not packed: .*video.avi") as raised:
        list(finalize(session, [ArchiveRequest("fake")]))
    errors = [p for p in validate(session, digests=False).problems if p.severity == "error"]
    rest = f" (and {len(errors) - 1} more; see `recorder validate`)" if len(errors) > 1 else ""
    assert str(raised.value).endswith(f"{errors[0].message}{rest}")


def test_a_staging_folder_that_was_just_removed_is_made_anew(
    packer: FakePacker, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock is worth nothing any more: the next process makes a folder of its own."""
    folder = session / ARCHIVES / "fake" / ".drive.part"
    real, removed = fcntl.flock, False

    def flock(fd: int, how: int) -> None:
        nonlocal removed
        real(fd, how)
        if not removed and folder.is_dir():
            removed = True
            folder.rmdir()

    monkeypatch.setattr(fcntl, "flock", flock)
    list(finalize(session, [ArchiveRequest("fake")]))
    assert removed
    assert in_place(session) == {"drive.bin": b"one", "drive.d/part": b"one"}


def test_a_staging_folder_that_cannot_be_locked_or_emptied(
    packer: FakePacker, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("recorder.archives.staging.empty", fail)
        with pytest.raises(StorageError, match=r"drive.part: cannot be made: Input/output"):
            list(finalize(session, [ArchiveRequest("fake")]))
    list(finalize(session, [ArchiveRequest("fake")]))


def test_new_folders_are_durable(
    packer: FakePacker, session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    real = PosixDisk.sync_folder

    def sync_folder(disk: PosixDisk, path: Path) -> None:
        synced.append(path)
        real(disk, path)

    monkeypatch.setattr(PosixDisk, "sync_folder", sync_folder)
    out = tmp_path / "far" / "away"
    list(finalize(session, [ArchiveRequest("fake")], out=out))
    assert {tmp_path, tmp_path / "far", out, out / "fake"} <= set(synced)


@pytest.mark.parametrize("name", [".", "..", "../../drive", "/drive", ""])
def test_names_that_lead_elsewhere_are_refused(
    packer: FakePacker, session: Path, name: str
) -> None:
    header = session / "_recorder/session.json"
    header.write_text(header.read_text().replace('"drive"', json.dumps(name), 1))
    with pytest.raises(SessionError, match="no archive can have the name"):
        list(finalize(session, [ArchiveRequest("fake")]))
    assert not packer.seen


def test_a_calibration_that_is_wrong(packer: FakePacker, session: Path) -> None:
    """That of the session is the session's fault; the one that is given is wrong usage."""
    own = session / "calibration.yaml"
    own.write_text("sensors: [")
    with pytest.raises(SessionError, match=r"calibration\.yaml:1: bad YAML"):
        list(finalize(session, [ArchiveRequest("fake")]))
    with pytest.raises(ConfigError, match=r"calibration\.yaml:1: bad YAML"):
        list(finalize(session, [ArchiveRequest("fake")], calibration=own))


def test_archives_behind_one_that_fails(packer: FakePacker, session: Path) -> None:
    bad = FakePacker(fail=ArchiveError("bad frame"))
    packers = {"bad": bad, "fake": packer}
    reported: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recorder.archives.base.load_packer", packers.__getitem__)
        steps = [ArchiveRequest("bad"), ArchiveRequest("fake")]
        (result,) = finalize(session, steps, failed=lambda error: reported.append(str(error)))
    assert result.archive == "fake"
    assert reported == [f"{session}: fake: camera, sample 2: bad frame"]


def test_damage_beside_the_sensors_is_no_hindrance(packer: FakePacker, session: Path) -> None:
    """Labels and poses can be made again; what was recorded cannot."""
    folder = session / "_pose"
    folder.mkdir()
    entry = {"format": "raw", "type": "f8", "shape": [3], "desc": ""}
    (folder / "meta.json").write_text(json.dumps({"pos": entry}))
    (folder / "pos").write_bytes(b"13 bytes long")
    (result,) = finalize(session, [ArchiveRequest("fake")])
    assert [note for note in result.notes if note.startswith("_pose: ")]


def test_packing_gives_way() -> None:
    """Niceness and disk priority are a thread's own (nice(2), ioprio_set(2)), and inherited."""
    found: list[int] = []

    def idle() -> None:
        syscalls.be_idle()
        found.append(os.getpriority(os.PRIO_PROCESS, 0))
        number = {"x86_64": 252, "aarch64": 31}.get(platform.machine())
        found.append(ctypes.CDLL(None).syscall(number, 1, 0) if number else 3 << 13)

    thread = threading.Thread(target=idle)
    thread.start()
    thread.join()
    assert found[0] == 19
    assert found[1] >> 13 == 3  # the idle class


def test_no_such_session(packer: FakePacker, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="no such session folder"):
        list(finalize(tmp_path / "none", [ArchiveRequest("fake")]))


def test_archives_are_found_by_name() -> None:
    folder = Path(base.__file__).parent
    packages = sorted(path.parent.name for path in folder.glob("[!_]*/packer.py"))
    assert base.available() == packages
    assert [base.load_packer(name).name for name in packages] == packages
    with pytest.raises(UsageError, match=r"no archive 'ncor' \(did you mean 'ncore'\?\)"):
        base.load_packer("ncor")


@pytest.mark.parametrize("options", [{"sped": 3}, {"speed": "fast"}, {"speed": 0}])
def test_options_are_checked_first(
    packer: FakePacker, session: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"fake\.spee?d"):
        list(finalize(session, [ArchiveRequest("fake", options)]))


def test_verify_lets_odd_times_of_plain_traces_pass(tmp_path: Path) -> None:
    path = build_session(tmp_path / "plain", imu_spec(), seconds=0.1, plain=True).path
    ts = np.fromfile(path / "imu/ts")
    ts[1] = ts[0]
    ts.tofile(path / "imu/ts")
    (odd,) = LockedSession.verify(path).warnings
    assert odd.startswith("imu: ")
    assert "sample 1:" in odd
    assert "and more" not in odd
    ts[1::2] = ts[::2]
    ts.tofile(path / "imu/ts")
    (odd,) = LockedSession.verify(path).warnings
    assert "sample 1:" in odd
    assert odd.endswith("(and more; see `recorder validate`)")


def test_a_link_out_of_its_folder_is_refused_and_one_within_is_followed(
    packer: FakePacker, session: Path, tmp_path: Path
) -> None:
    root = tmp_path / "other"
    root.mkdir()
    link = root / "borrowed"
    link.symlink_to(session, target_is_directory=True)
    before = contents(session)
    with pytest.raises(SessionError) as caught:
        list(finalize(link, [ArchiveRequest("fake")]))
    assert str(caught.value) == (
        f"{link}: is a symbolic link to {session}, outside of {root}; "
        "not packed: name that folder instead"
    )
    assert contents(session) == before and packer.seen == []
    latest = session.parent / "latest"
    latest.symlink_to(session.name)
    (result,) = finalize(latest, [ArchiveRequest("fake")])
    assert result.files[0].exists()


def test_labels_without_a_place_are_noted(
    packer: FakePacker, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_labels/camera/depth.z/index.jsonl", "_point_clouds/map/index.jsonl",
                 "_calibrations/factory.yaml", "_labels/camera/.new/index.jsonl",
                 "_labels/camera.jsonl"):  # fmt: skip
        (session / name).parent.mkdir(parents=True, exist_ok=True)
        (session / name).touch()
    (result,) = finalize(session, [ArchiveRequest("fake")])
    assert sorted(result.notes) == [
        "_calibrations/factory.yaml: left out: the archive has no place for it",
        "_labels/camera/depth.z: left out: the archive has no place for it",
        "_point_clouds/map: left out: the archive has no place for it",
        "camera: is odd",
    ]
    monkeypatch.setattr(FakePacker, "has_all_labels", True)
    (result,) = finalize(session, [ArchiveRequest("fake")])
    assert result.notes == ("camera: is odd",)
