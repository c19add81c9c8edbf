"""Crash states recover, and those of versions that are broken on purpose do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest

from recorder.common.files import AppendFile
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.salvage import Salvage
from recorder.recording.writer.session_vrs import SessionVrs
from recorder.recording.writer.session_writer import SessionWriter
from recorder.recording.writer.verified_lengths import _File
from recorder.session.journal import frames
from recorder.session.journal.journal import JournalWriter
from tests.campaigns import Campaign
from tests.crash import campaign as crashes
from tests.crash.model import Model
from tests.crash.oracle import CrashError
from tests.crash.scenario import SESSION, record, small_videos
from tests.crash.simdisk import Op, SimulatedDisk
from tests.manual_clock import ManualClock

SEEDS = range(12)
"""Scenarios among which a broken version must be found out."""


def test_a_few_hundred_crash_states_recover() -> None:
    # As many sessions as it takes: which states of one are drawn goes by every byte it writes.
    tally = crashes.run(200, seed=0, per_op=1, every=4, steps=20)
    assert tally.states >= 200
    assert {"killed", "power", "power, recovering, power"} <= tally.kinds.keys()


@pytest.mark.campaign
def test_the_same_seed_gives_the_same_states() -> None:
    one, other = (crashes.run_seed(5, per_op=1, every=12, steps=12) for _ in range(2))
    assert one == other


def test_a_session_that_was_recovered_keeps_its_name() -> None:
    """The writer dies between the rename and the sync of the folder above; then power is cut."""
    with crashes.scratch() as folder, small_videos():
        recording = record(folder / "live", 0)
        kernel = Model(recording.base)
        for op in recording.ops:
            kernel.apply(op)
            if op.kind == "move" and op.name == Path(SESSION).name:
                break
        tree = kernel.visible()
        tree.write(folder / "killed")
        disk = SimulatedDisk(folder / "killed", base=tree)
        recover(folder / "killed" / SESSION, disk, ManualClock(monotonic_ns=90_000_000_000))
        for op in disk.ops:
            kernel.apply(op)
        for seed in range(20):
            assert kernel.power_cut(Random(seed)).find(SESSION) is not None


@pytest.mark.campaign(weight=240)
def test_ten_thousand_distinct_crash_states_recover(campaign: Campaign) -> None:
    tally, least = crashes.Tally(), campaign.part_of(10_000)
    for seed in campaign.seeds(lambda: tally.states >= least):
        tally.add(crashes.run_seed(seed, every=4))
        if tally.states >= least:  # more: python -m tests.crash.campaign
            break
    print(tally)
    assert tally.states >= least
    assert tally.kinds["killed"] > least / 10
    assert tally.kinds["power"] > least * 0.4


class CommitsBeforeSync(SessionWriter):
    """Writes the commit record before the data is synced."""

    def commit(self, final: bool = False) -> None:
        kept: list[AppendFile] = []
        flush = self._flush

        def later() -> tuple[dict[str, AppendFile], list[AppendFile]]:
            files, dirty = flush()
            kept.extend(dirty)
            return files, []

        with mock.patch.object(self, "_flush", later):
            super().commit(final)
        for file in kept:
            file.sync()


class AcknowledgesBeforeCommit(SessionWriter):
    """Publishes what is durable before the journal's record is."""

    def commit(self, final: bool = False) -> None:
        self.durable = {n: (p["epoch"], p["number"]) for n, p in self.positions().items()}
        super().commit(final)


class NeverSyncsData(SessionWriter):
    """Forgets to sync one file in a commit: the sample numbers."""

    def _flush(self) -> tuple[dict[str, AppendFile], list[AppendFile]]:
        lengths, dirty = super()._flush()
        return lengths, [file for file in dirty if file.path.name != "seq"]


class NeverSyncsVrs(SessionWriter):
    """Forgets to sync ``session.vrs`` in a commit."""

    def _flush(self) -> tuple[dict[str, AppendFile], list[AppendFile]]:
        lengths, dirty = super()._flush()
        return lengths, [file for file in dirty if file.path.name != "session.vrs"]


class AcknowledgesTheWindow(SessionWriter):
    """Commits while records still wait to be put in order."""

    def commit(self, final: bool = False) -> None:
        with mock.patch.object(SessionVrs, "drain", lambda self: None):
            super().commit(final)


class NoFolderSync(SimulatedDisk):
    """Never syncs a folder."""

    def sync_folder(self, path: Path) -> None:
        pass


class NoSyncAfterRename(SimulatedDisk):
    """Does not sync the folder that something was renamed into."""

    def rename(self, source: Path, target: Path) -> None:
        self._move(source, target)


class NoSyncAfterCreate(SimulatedDisk):
    """Does not sync a folder after files were made in it, only after renames and folders."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._mine = 0

    def sync_folder(self, path: Path) -> None:
        if self._mine:
            super().sync_folder(path)

    def make_folder(self, path: Path) -> None:
        self._mine += 1
        super().make_folder(path)
        self._mine -= 1

    def rename(self, source: Path, target: Path) -> None:
        self._mine += 1
        super().rename(source, target)
        self._mine -= 1


class NoSyncOfSmallFiles(SimulatedDisk):
    """Renames small files into place before their bytes are durable."""

    def record(self, op: Op) -> None:
        if op.kind == "move" and self.ops[-1].kind == "sync":
            self.ops.pop()
        super().record(op)


@contextmanager
def unsynced_journal() -> Iterator[None]:
    """The journal is written, and not synced."""
    with mock.patch.object(JournalWriter, "sync", lambda self: None):
        yield


@contextmanager
def no_checksum() -> Iterator[None]:
    """The journal's checksums are not looked at."""

    with mock.patch.object(frames, "_is_intact", lambda data, at, end: True):
        yield


@contextmanager
def tails_believed() -> Iterator[None]:
    """Recovery takes the length of a file for a proof of its bytes."""

    def believe(self: _File, whole: bool) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    with mock.patch.object(_File, "proven", believe):
        yield


@contextmanager
def nothing_salvaged() -> Iterator[None]:
    """Recovery cuts without keeping what it cuts."""
    with mock.patch.object(Salvage, "tail", lambda *args: None):
        yield


@contextmanager
def kept_unsynced() -> Iterator[None]:
    """Whoever goes on with a dead writer's files takes them for durable."""
    reopen = SimulatedDisk.reopen

    def clean(self: SimulatedDisk, path: Path, length: int) -> AppendFile:
        file = reopen(self, path, length)
        file.dirty = False
        return file

    with mock.patch.object(SimulatedDisk, "reopen", clean):
        yield


def _found_out(**broken: Any) -> str:
    """The message of the first failure among the seeds; an empty text where there is none."""
    for seed in SEEDS:
        try:
            crashes.run_seed(seed, every=3, **broken)
        except CrashError as error:
            return str(error)
    return ""


@pytest.mark.campaign
@pytest.mark.parametrize(
    "writer_class",
    [
        CommitsBeforeSync,
        AcknowledgesBeforeCommit,
        NeverSyncsData,
        NeverSyncsVrs,
        AcknowledgesTheWindow,
    ],
)
def test_a_broken_writer_is_found_out(writer_class: type[SessionWriter]) -> None:
    assert _found_out(writer_class=writer_class)


@pytest.mark.campaign
@pytest.mark.parametrize(
    "disk_class", [NoFolderSync, NoSyncAfterRename, NoSyncAfterCreate, NoSyncOfSmallFiles]
)
def test_a_broken_disk_is_found_out(disk_class: type[SimulatedDisk]) -> None:
    assert _found_out(disk_class=disk_class)


@pytest.mark.campaign
@pytest.mark.parametrize(
    "broken",
    [unsynced_journal, no_checksum, tails_believed, nothing_salvaged, kept_unsynced],
)
def test_a_broken_journal_or_recovery_is_found_out(broken: Any) -> None:
    with broken():
        assert _found_out()
