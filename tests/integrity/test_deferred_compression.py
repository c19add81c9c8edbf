"""Packing after the session: the content and its proof stay, whatever interrupts it."""

from __future__ import annotations

import csv
import errno
import fcntl
import hashlib
import lzma
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.kit.driver import Sample
from drivers.kit.encode import Encoder
from recorder.bus.wire import Kind, Message
from recorder.codecs import STORED
from recorder.codecs.storage import channel as channels
from recorder.codecs.storage import indexed
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.codecs.xz import stored_bytes, stored_stream
from recorder.common import syscalls
from recorder.common.errors import SessionError, StorageError
from recorder.common.files import PosixDisk
from recorder.integrity import deferred_compression
from recorder.integrity.deferred_compression import main, repack
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.checksums import write_checksums
from recorder.session.journal.journal import read_journal
from recorder.session.layout import SessionPlan
from recorder.session.lock import lock_session
from recorder.session.reader import Session
from recorder.session.validation import validate
from tests.campaigns import Selector
from tests.manual_clock import ManualClock

SHAPE = (16, 256)
CHANNELS = (
    ChannelSpec("near", "lzmaf", "u2", SHAPE, delta=True),
    ChannelSpec("far", "lzmaf", "u4", SHAPE),
    ChannelSpec("refl", "lzmaf", "u1", SHAPE),
    ChannelSpec("t_col", "raw", "u8", (SHAPE[1],)),
)
SPEC = StreamSpec("scan", CHANNELS, rate_hz=10.0, settings={STORED: ["near", "refl"]})
COUNT = 5


def sweep(number: int) -> dict[str, np.ndarray[Any, Any]]:
    """One sample of every channel, [1, ...]."""
    rng = np.random.default_rng(number)
    steps = np.cumsum(rng.integers(0, 3, SHAPE), axis=1)
    data = {c.name: (steps + number).astype(c.np_dtype)[None] for c in CHANNELS[:3]}
    return data | {"t_col": np.arange(SHAPE[1], dtype="<u8")[None]}


def record(root: Path, live: tuple[int, ...] = (), close: bool = True) -> Path:
    """A session of `COUNT` sweeps; those of `live` were packed at once."""
    clock = ManualClock(5_000_000_000)
    plan = SessionPlan(str(root), "drive", True, "version: 1\n", min_free_gb=0.001)
    writer = SessionWriter.create(PosixDisk(), plan, clock)
    writer.declare(SPEC)
    at_once = StreamSpec(SPEC.name, CHANNELS, rate_hz=10.0)
    for number in range(COUNT):
        clock.advance(0.7)
        encoder = Encoder(at_once if number in live else SPEC)
        t_ns = np.array([clock.monotonic_ns()], np.int64)
        frames, sizes = encoder.encode(Sample("scan", t_ns, sweep(number)))
        encoder.close()
        item = Message(Kind.DATA, stream="scan", count=1, t_mono_ns=t_ns, sizes=sizes)
        item.frames, item.epoch, item.number, item.seq = frames, 7, number, number
        writer.append(item)
        writer.commit()
    if not close:
        writer.commit()
        writer.abandon()
        return root / "drive"
    end = Message(Kind.END, "scan", 7, COUNT, COUNT)
    end.t_mono_ns, end.values = clock.monotonic_ns(), {"reason": "stopped"}
    writer.append(end)
    writer.close("clean")
    write_checksums(root / "drive")
    return root / "drive"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("root"))


@pytest.fixture
def session(recorded: Path, tmp_path: Path) -> Path:
    return shutil.copytree(recorded, tmp_path / "drive")


def read_as_roverd(session: Path) -> None:
    """As roverd's reader does: offsets from the index, ``lzma.decompress`` of each sample."""
    for channel in CHANNELS[:3]:
        data = (session / "scan" / channel.name).read_bytes()
        ends = np.fromfile(session / "scan" / f"{channel.name}_i", "<u8").tolist()
        assert len(ends) == COUNT + 1 and ends[-1] == len(data)
        for number in range(COUNT):
            values = lzma.decompress(data[ends[number] : ends[number + 1]])
            assert values == sweep(number)[channel.name].tobytes()


def faults(session: Path) -> list[str]:
    return [p.message for p in validate(session, deep=True).problems if p.severity == "error"]


def is_packed(session: Path, channel: str) -> bool:
    spec = SPEC.channel(channel)
    size = (session / "scan" / channel).stat().st_size
    return size < COUNT * stored_bytes(spec.sample_bytes)


def assert_packed(session: Path) -> None:
    read_as_roverd(session)
    assert is_packed(session, "near") and is_packed(session, "refl")
    assert validate(session, deep=True).problems == []
    assert not (session / "_recorder/repack").exists()
    with (session / "_recorder/checksums.csv").open(newline="") as file:
        listed = dict(csv.reader(file))
    for name in ("scan/near", "scan/near_i", "scan/refl", "scan/refl_i"):
        assert listed[name] == hashlib.md5((session / name).read_bytes()).hexdigest()


@given(st.binary(min_size=1, max_size=200_000))
def test_stored_streams_are_xz_of_known_length(data: bytes) -> None:
    stream = stored_stream(np.frombuffer(data, np.uint8))
    assert lzma.decompress(stream, lzma.FORMAT_XZ) == data
    assert len(stream) == stored_bytes(len(data))


def test_packing_keeps_content_and_proof(session: Path) -> None:
    other = {
        path.name: path.read_bytes()
        for path in (session / "scan").iterdir()
        if path.name.split("_")[0] not in ("near", "refl")
    }
    assert "far_i" in other
    journal = (session / "_recorder/commits").read_bytes()
    done = repack(session)
    assert done.channels == ["scan/near", "scan/refl"] and done.left == {}
    assert done.after < 0.6 * done.before
    assert_packed(session)
    assert other == {name: (session / "scan" / name).read_bytes() for name in other}
    assert (session / "_recorder/commits").read_bytes().startswith(journal)
    again = repack(session)
    assert again.channels == [] and again.left == {}
    assert_packed(session)


def test_any_preset_may_be_chosen(session: Path) -> None:
    repack(session, preset=6)
    assert_packed(session)


def test_samples_that_were_packed_at_once_stay(tmp_path: Path) -> None:
    session = record(tmp_path, live=(1, 2, 4))
    with (session / "scan/near").open("rb") as file:
        recorded = file.read()
    ends = np.fromfile(session / "scan/near_i", "<u8").tolist()
    repack(session)
    packed = read_journal(session / "_recorder/commits").packed["scan/near"]
    assert packed.kept == ((1, 3), (4, 5))
    assert recorded[ends[1] : ends[3]] in (session / "scan/near").read_bytes()
    read_as_roverd(session)
    assert validate(session, deep=True).problems == []


@pytest.mark.parametrize("name", ["near", "near_i", "refl"])
def test_every_bit_of_packed_files_is_proven(session: Path, name: str) -> None:
    repack(session)
    path = session / "scan" / name
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), max(1, len(data) // 7)):
        data[at] ^= 4
        path.write_bytes(data)
        report = validate(session)
        data[at] ^= 4
        assert any(f"{path}" in p.message for p in report.problems), at
    path.write_bytes(data)
    assert validate(session).problems == []


def test_other_content_with_right_digests_is_found(session: Path) -> None:
    """Whoever packs other values, and names their digests in the journal, is found all the same."""
    changed = shutil.copytree(session, session.with_name("changed"))
    data = bytearray((changed / "scan/near").read_bytes())
    values = sweep(0)["near"].copy()
    values[0, 0, 0] += 1
    forged = stored_stream(values)
    data[: len(forged)] = forged
    (changed / "scan/near").write_bytes(data)
    with pytest.raises(SessionError, match=r"near: bytes 0 to .* are not as they were recorded"):
        repack(changed)
    assert bytes(data) == (changed / "scan/near").read_bytes(), "nothing was changed"


class KilledError(BaseException):
    """A kill: nothing catches it."""


_CALLS = (
    *("open", "pwrite", "write", "writev", "ftruncate", "fsync", "fdatasync", "link", "mkdir"),
    *("unlink", "rmdir", "rename", "replace"),
)


class Kills:
    """Ends the step before its call number `at`; a write may have written half."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, torn: bool, error: int = 0) -> None:
        self.count = 0
        self.dead = False
        self._at, self._torn, self._error = at, torn, error
        for name in _CALLS:
            patch.setattr(os, name, self._wrap(name, getattr(os, name)))
        patch.setattr(
            deferred_compression, "exchange_names", self._wrap("exchange", syscalls.exchange_names)
        )

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            self.count += 1
            if self.dead or self.count == self._at:
                if self._error:
                    if name in ("pwrite", "write", "writev", "link", "mkdir", "fsync"):
                        raise OSError(self._error, os.strerror(self._error))
                    return real(*args, **more)
                if not self.dead and self._torn and name in ("pwrite", "writev"):
                    data = b"".join(args[1]) if name == "writev" else bytes(args[1])
                    half = data[: len(data) // 2]
                    real(args[0], [half]) if name == "writev" else real(args[0], half, args[2])
                self.dead = True
                raise KilledError
            return real(*args, **more)

        return call


def calls(session: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        kills = Kills(patch, 0, torn=False)
        repack(session)
    return kills.count


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.campaign(weight=16))])
def test_a_kill_at_any_call_leaves_a_sound_session(
    recorded: Path, tmp_path: Path, every: int
) -> None:
    last = calls(shutil.copytree(recorded, tmp_path / "count"))
    assert last > 50
    states = set()
    for at in range(1, last + 1, every):
        session = shutil.copytree(recorded, tmp_path / f"at{at}")
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
            Kills(patch, at, torn=at // every % 2 == 0)
            repack(session)
        read_as_roverd(session)
        assert faults(session) == [], at
        states.add((is_packed(session, "near"), is_packed(session, "refl")))
        repack(session)
        assert_packed(session)
        shutil.rmtree(session)
    assert states == {(False, False), (True, False), (True, True)}


def test_a_full_disk_changes_nothing(recorded: Path, tmp_path: Path, select: Selector) -> None:
    failed = 0
    last = calls(shutil.copytree(recorded, tmp_path / "count"))
    for at in select(range(1, last + 1, 9), 8):
        session = shutil.copytree(recorded, tmp_path / f"at{at}")
        with pytest.MonkeyPatch.context() as patch:
            Kills(patch, at, torn=False, error=errno.ENOSPC)
            try:
                repack(session)
            except StorageError as error:
                assert str(session) in str(error)
                failed += 1
        read_as_roverd(session)
        assert faults(session) == []
        repack(session)
        assert_packed(session)
        shutil.rmtree(session)
    assert failed > 1


def test_packed_samples_are_not_packed_again(session: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(
            deferred_compression, "check_staged", lambda *_: (_ for _ in ()).throw(KilledError)
        )
        repack(session)
    encoded = []
    with pytest.MonkeyPatch.context() as patch:
        real = deferred_compression._create_encoder

        def counting(channel: ChannelSpec, preset: int | None) -> Callable[[Any], bytes]:
            encode = real(channel, preset)
            return lambda values: encoded.append(channel.name) or encode(values)  # type: ignore[func-returns-value]

        patch.setattr(deferred_compression, "_create_encoder", counting)
        repack(session)
    assert encoded == ["refl"] * COUNT
    assert_packed(session)


@pytest.mark.parametrize("garbage", [b"", b"\0" * 999, b"\xfd7zXZ\0" * 100])
def test_what_a_power_cut_left_of_an_interrupted_run_is_not_trusted(
    session: Path, garbage: bytes
) -> None:
    parts = session / "_recorder/repack/parts"
    parts.mkdir(parents=True)
    (parts / "near").write_bytes(garbage)
    (parts / "near_i").write_bytes(np.array([0, 100, 90, 2**60, 2**60 + 9], "<u8").tobytes() + b"x")
    repack(session)
    assert_packed(session)


def test_all_is_durable_before_the_files_change_places(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = syscalls.exchange_names, list[list[str]]()
    synced: list[tuple[int, int, int]] = []  # inode, its size, its time of change for folders

    def state(path: str | int) -> tuple[int, int, int]:
        status = os.stat(path)  # noqa: PTH116  a descriptor, too
        return status.st_ino, status.st_size, status.st_mtime_ns

    def syncing(sync: Callable[[int], None]) -> Callable[[int], None]:
        def call(fd: int) -> None:
            sync(fd)
            synced.append(state(fd))

        return call

    def exchange(one: Path, other: Path) -> bool:
        if one.name != "scan":
            return real(one, other)
        own = {"near", "near_i"} if not seen else {"refl", "refl_i"}
        journal = session / "_recorder/commits"
        due = [*(other / name for name in own), other, other.parent, journal]
        assert [path.name for path in due if state(str(path)) not in synced] == []
        assert synced[-1] == state(str(journal)), "the record comes last"
        seen.append(sorted(read_journal(journal).packed))
        names = {path.name for path in one.iterdir()}
        assert names == {path.name for path in other.iterdir()}
        done = real(one, other)
        synced.clear()
        return done

    real_rmtree = shutil.rmtree

    def rmtree(path: Path, **more: Any) -> None:
        if path.name == "scan":
            assert {state(str(session)), state(str(path.parent))} <= {*synced}
        real_rmtree(path, **more)

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, syncing(getattr(os, name)))
    monkeypatch.setattr(deferred_compression, "exchange_names", exchange)
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    repack(session)
    assert seen == [["scan/near"], ["scan/near", "scan/refl"]]


@pytest.mark.parametrize("what", ["exchange", "link", "this folder"])
def test_a_file_system_that_cannot_leaves_the_session_as_recorded(
    session: Path, monkeypatch: pytest.MonkeyPatch, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if what == "link":
        monkeypatch.setattr(os, "link", refuse)
    elif what == "this folder":
        real = syscalls.exchange_names
        monkeypatch.setattr(
            deferred_compression,
            "exchange_names",
            lambda one, two: one.name != "scan" and real(one, two),
        )
    else:
        monkeypatch.setattr(deferred_compression, "exchange_names", lambda *_: False)
    monkeypatch.setattr(deferred_compression, "be_idle", lambda: None)
    monkeypatch.setattr(sys, "argv", ["repacking", str(session)])
    before = (session / "scan/near").read_bytes()
    assert main() == 0
    assert "scan/near: stays as it was recorded: the file system" in capsys.readouterr().err
    assert (session / "scan/near").read_bytes() == before
    assert validate(session, deep=True).problems == []
    assert not (session / "_recorder/repack").exists()


def test_open_and_unrecovered_sessions_are_refused(tmp_path: Path) -> None:
    session = record(tmp_path, close=False)
    with pytest.raises(SessionError, match="was not closed; run `recorder recover"):
        repack(session)
    recover(session, PosixDisk(), ManualClock(9_000_000_000))
    write_checksums(session)
    repack(session)
    read_as_roverd(session)
    assert is_packed(session, "near") and faults(session) == []


def test_a_session_that_is_written_is_refused(session: Path) -> None:
    held = lock_session(session)
    try:
        with pytest.raises(SessionError, match="in use by another process"):
            repack(session)
    finally:
        os.close(held)


def test_files_change_places_only_while_nobody_packs_archives(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferred_compression, "_LOCK_TRIES", 2)
    fd = os.open(session / "_recorder/lock", os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        with pytest.raises(SessionError, match="in use by another process"):
            repack(session)
        assert not is_packed(session, "near")
    finally:
        os.close(fd)
    repack(session)
    assert_packed(session)


def test_a_reader_that_opens_meanwhile_gets_files_of_one_state(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, packs = channels.ReadFile, [True]

    def opening(path: Path) -> Any:
        if path.name == "near_i" and packs and packs.pop():
            repack(session)
        return real(path)

    with Session(session) as opened:
        monkeypatch.setattr(indexed, "ReadFile", opening)
        values = opened.streams["scan"].read(0, COUNT, ["near"])["near"]
    assert not packs and is_packed(session, "near")
    for number in range(COUNT):
        assert (values[number] == sweep(number)["near"][0]).all()


def test_little_free_space_ends_it(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PosixDisk, "free_bytes", lambda *_: 10**5)
    with pytest.raises(StorageError, match=r"0\.00 GB free, storage.min_free_gb asks for 0.001"):
        repack(session)
    read_as_roverd(session)
    assert faults(session) == [] and not (session / "_recorder/repack/parts").exists()
