"""A device that loses what it was given, and no reboot after it: what a session is worth then.

The page cache shows what was lost until it is dropped or the disk is mounted again; from then on
there are zeros.  A recovery may trust neither.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from recorder.session.journal.journal import read_journal, walk_journal
from tests.acceptance.command import RECORDER
from tests.faults.doomed_writer import PLAIN, STREAMS, DoomedWriter, assert_as_sent
from tests.faults.loop_device import LoopDevice

BLOCK = 4096
JOURNAL = "_recorder/commits"
MOST_TRIES = 20
COMMITTED, SENT = 100, 140  # samples: those beyond the commit fill a block of more than one file


class Disk:
    """Sessions on a device that can fail, and the commands on them."""

    def __init__(self, device: LoopDevice) -> None:
        self.device = device
        self.root = device.here / "root"

    def writer(self, resume: str = "") -> DoomedWriter:
        return DoomedWriter(self.device.words, self.device.root / "root", resume)

    def command(self, verb: str, *options: str) -> tuple[int, Any, str]:
        """A command on the session: its exit code, what it prints as JSON, and its stderr."""
        path = self.device.root / "root/s"
        done = subprocess.run(
            [*self.device.words, RECORDER, verb, path, *options, "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout or "null"), done.stderr

    def recover(self) -> None:
        """Recover; the kernel may report errors that nobody had seen yet, each of them once."""
        tries: list[tuple[int, Any, str]] = []
        while len(tries) < MOST_TRIES and (not tries or tries[-1][0] == 1):
            tries.append(self.command("recover"))
        assert tries[-1][0] == 3, tries

    def contents(self) -> dict[str, bytes]:
        """The plain files of stream ``a``, as this kernel shows them."""
        return {name: (self.root / "s/a" / name).read_bytes() for name in PLAIN}

    def size(self, name: str) -> int:
        return (self.root / "s" / name).stat().st_size

    def assert_kept_what_was_sent(self, least: int) -> None:
        """After one more mount nothing is there that was not sent, and what was promised is."""
        self.device.remount()
        for spec in STREAMS:
            assert_as_sent(self.root / "s", spec.name, least)
        code, result, _ = self.command("validate", "--deep")
        assert (code, result["problems"]) == (0, [])

    def assert_salvaged(self, before: dict[str, bytes]) -> None:
        """What was cut off a file lies in the salvage folder, byte by byte."""
        salvage = self.root / "s/_recorder/salvage/a"
        for name, data in before.items():
            kept = self.size(f"a/{name}")
            assert data[:kept] == (self.root / "s/a" / name).read_bytes(), name
            if kept < len(data):
                assert (salvage / f"{name}@{kept}").read_bytes() == data[kept:], name


@pytest.fixture
def disk(device: LoopDevice) -> Disk:
    return Disk(device)


def fail(disk: Disk, writer: DoomedWriter) -> None:
    """Record and commit, break the device, and record what the next commit cannot store."""
    writer.ask(f"append {COMMITTED}")
    assert writer.ask("commit")["durable"] == dict.fromkeys("abc", COMMITTED)
    disk.device.break_device()
    writer.ask(f"append {SENT - COMMITTED}")


def lose(disk: Disk, how: str) -> None:
    """A session whose tail the device has lost; the device works again."""
    with disk.writer() as writer:
        fail(disk, writer)
        if how == "nobody saw it":
            writer.ask("stall")
        else:
            answer = writer.ask("commit")
            assert answer["error"] is not None
            assert answer["durable"] == dict.fromkeys("abc", COMMITTED)
        if how == "sealed":
            writer.ask("seal")
    disk.device.write_back()
    disk.device.heal()


WAYS = ("killed", "sealed", "nobody saw it")


@pytest.mark.campaign
@pytest.mark.parametrize("how", WAYS)
def test_a_tail_of_zeros_after_a_remount_is_no_sample(disk: Disk, how: str) -> None:
    lose(disk, how)
    disk.device.remount()
    before = disk.contents()
    disk.recover()
    disk.assert_salvaged(before)
    disk.assert_kept_what_was_sent(COMMITTED)


@pytest.mark.campaign
@pytest.mark.parametrize("how", WAYS)
def test_a_tail_that_only_the_cache_holds_reaches_the_device(disk: Disk, how: str) -> None:
    """What was cached and is proven is written anew, once the device takes it again."""
    lose(disk, how)
    before = disk.contents()
    assert before["raw"].rstrip(b"\0")[COMMITTED * 256 :], "the cache shows what was sent"
    disk.recover()
    disk.assert_salvaged(before)
    disk.assert_kept_what_was_sent(SENT)
    disk.assert_salvaged(before)


@pytest.mark.campaign
def test_a_tail_that_the_device_holds_is_kept(disk: Disk) -> None:
    """A SIGKILL alone costs nothing that the kernel had, also on a device that works."""
    with disk.writer() as writer:
        writer.ask(f"append {COMMITTED}")
        writer.ask("commit")
        writer.ask(f"append {SENT - COMMITTED}")
        writer.ask("stall")
    disk.recover()
    disk.assert_kept_what_was_sent(SENT)


@pytest.mark.campaign
def test_a_sync_that_failed_is_not_tried_again(disk: Disk) -> None:
    """The kernel would say that all is well the second time."""
    with disk.writer() as writer:
        fail(disk, writer)
        for _ in range(3):
            answer = writer.ask("commit")
            assert answer["error"] is not None
            assert answer["durable"] == dict.fromkeys("abc", COMMITTED)
            if disk.device.is_broken:
                disk.device.heal()


@pytest.mark.campaign
@pytest.mark.parametrize("how", ["killed", "nobody saw it"])
def test_a_writer_that_resumes_loses_nothing_more(disk: Disk, how: str) -> None:
    lose(disk, how)
    promised = COMMITTED
    with disk.writer(resume="s") as writer:
        writer.ask(f"append {SENT}")
        for _ in range(2):
            promised = writer.ask("commit")["durable"].get("a", promised)
    disk.device.remount()
    disk.recover()
    disk.assert_kept_what_was_sent(promised)


@pytest.mark.campaign
def test_where_nothing_can_be_salvaged_nothing_is_cut(disk: Disk) -> None:
    with disk.writer() as writer:
        fail(disk, writer)
        assert writer.ask("commit")["error"] is not None
    before = disk.contents()
    code, _, stderr = disk.command("recover")
    assert code == 1 and "No space left on device" in stderr
    assert disk.contents() == before
    disk.device.heal()
    disk.device.remount()
    assert {name: len(data) for name, data in disk.contents().items()} == {
        name: len(data) for name, data in before.items()
    }


# The journal


def lose_journal(disk: Disk, writer: DoomedWriter) -> int:
    """A commit of which the device has all but its record; returns how many were promised."""
    promised = 0
    while not promised or min(rooms(disk).values()) < MOST:
        writer.ask("append 1")
        promised = writer.ask("commit")["durable"].get("a", 0)
    journal = disk.root / "s" / JOURNAL
    while (left := rooms(disk)[JOURNAL]) > LEAST:
        writer.ask(f"pad {left - LEAST}")
    size = journal.stat().st_size
    disk.device.break_device()
    writer.ask("append 1")
    answer = writer.ask("commit")
    assert answer["error"] is not None and answer["durable"]["a"] == promised
    cached = journal.read_bytes()
    assert b"commit" in cached[size:], "the cache has the record"
    assert len(cached) // BLOCK > size // BLOCK, "in a block that the device has not"
    return promised


MOST, LEAST = 2000, 200  # bytes: more than a sample takes in any file, less than a commit's record


def rooms(disk: Disk) -> dict[str, int]:
    """What is left of the last block of each file of the session that has one."""
    files = [path for path in (disk.root / "s").rglob("*") if path.is_file()]
    sizes = {str(path.relative_to(disk.root / "s")): path.stat().st_size for path in files}
    return {name: -size % BLOCK for name, size in sizes.items() if size}


@pytest.mark.campaign
def test_a_journal_is_not_continued_behind_what_the_device_lost(disk: Disk) -> None:
    """What was acknowledged has its commit on the device."""
    with disk.writer() as writer:
        lose_journal(disk, writer)
    disk.device.heal()
    with disk.writer(resume="s") as writer:
        writer.ask("append 10")
        answer = writer.ask("commit")
        promised = answer["durable"]["a"]
    disk.device.remount()
    assert read_journal(disk.root / "s" / JOURNAL).positions["a"]["samples"] >= promised
    disk.recover()
    disk.assert_kept_what_was_sent(promised)


@pytest.mark.campaign
def test_recovery_does_not_close_a_journal_that_the_device_lost(disk: Disk) -> None:
    with disk.writer() as writer:
        promised = lose_journal(disk, writer)
    disk.device.heal()
    disk.recover()
    disk.assert_kept_what_was_sent(promised)
    *_, (_, _, state) = walk_journal(disk.root / "s" / JOURNAL)
    assert state.closed == "recovered" and state.damage == []
