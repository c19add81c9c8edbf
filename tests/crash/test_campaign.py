"""Crash states recover, and those of versions that are broken on purpose do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from recorder.formats.disk import AppendFile
from recorder.session import journal
from recorder.session.journal import JournalWriter
from recorder.writer.recovery import _Recovery
from recorder.writer.session_vrs import SessionVrs
from recorder.writer.session_writer import SessionWriter
from tests.crash import campaign
from tests.crash.oracle import CrashError
from tests.crash.simdisk import Op, SimulatedDisk

SEEDS = range(12)
"""Scenarios among which a broken version must be found out."""


def test_a_few_hundred_crash_states_recover() -> None:
    # As many sessions as it takes: which states of one are drawn goes by every byte it writes.
    tally = campaign.run(300, seed=0, per_op=1, every=4, steps=20)
    assert tally.states >= 300
    assert {"killed", "power", "power, recovering, power"} <= tally.kinds.keys()


def test_the_same_seed_gives_the_same_states() -> None:
    one, other = (campaign.run_seed(5, per_op=1, every=12, steps=12) for _ in range(2))
    assert one == other


@pytest.mark.campaign
def test_ten_thousand_distinct_crash_states_recover() -> None:
    tally = campaign.run(10_000, seed=100, every=4)
    print(tally)
    assert tally.states >= 10_000
    assert tally.kinds["killed"] > 1000
    assert tally.kinds["power"] > 5000


class CommitsBeforeSync(SessionWriter):
    """Writes the commit record before the data is synced."""

    def commit(self) -> None:
        kept: list[AppendFile] = []
        flush = self._flush

        def later() -> tuple[dict[str, int], list[AppendFile]]:
            lengths, dirty = flush()
            kept.extend(dirty)
            return lengths, []

        with mock.patch.object(self, "_flush", later):
            super().commit()
        for file in kept:
            file.sync()


class AcknowledgesBeforeCommit(SessionWriter):
    """Publishes what is durable before the journal's record is."""

    def commit(self) -> None:
        self.durable = {n: (p["epoch"], p["number"]) for n, p in self.positions().items()}
        super().commit()


class NeverSyncsData(SessionWriter):
    """Forgets to sync one file in a commit: the sample numbers."""

    def _flush(self) -> tuple[dict[str, int], list[AppendFile]]:
        lengths, dirty = super()._flush()
        return lengths, [file for file in dirty if file.path.name != "seq"]


class NeverSyncsVrs(SessionWriter):
    """Forgets to sync ``session.vrs`` in a commit."""

    def _flush(self) -> tuple[dict[str, int], list[AppendFile]]:
        lengths, dirty = super()._flush()
        return lengths, [file for file in dirty if file.path.name != "session.vrs"]


class AcknowledgesTheWindow(SessionWriter):
    """Commits while records still wait to be put in order."""

    def commit(self) -> None:
        with mock.patch.object(SessionVrs, "drain", lambda self: None):
            super().commit()


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

    def decode(line: bytes) -> dict[str, Any] | None:
        try:
            record = json.loads(line[9:-1])
        except ValueError:
            return None
        return record if isinstance(record, dict) else None

    with mock.patch.object(journal, "decode_line", decode):
        yield


@contextmanager
def tails_believed() -> Iterator[None]:
    """Recovery takes every power cut for a SIGKILL."""
    init = _Recovery.__init__

    def same_boot(self: _Recovery, *args: Any) -> None:
        init(self, args[0], args[1], args[2], args[3], None)

    with mock.patch.object(_Recovery, "__init__", same_boot):
        yield


@contextmanager
def nothing_salvaged() -> Iterator[None]:
    """Recovery cuts without keeping what it cuts."""
    with mock.patch.object(_Recovery, "_set_aside", lambda *args: None):
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
            campaign.run_seed(seed, every=3, **broken)
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
