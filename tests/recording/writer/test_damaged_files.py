"""Files of a killed session cut at any byte, and its journal with any bit flipped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recorder.common.errors import SessionError
from recorder.common.files import PosixDisk
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.journal.frames import decode_frames
from recorder.session.journal.journal import read_journal, walk_journal
from recorder.session.layout import SessionPlan
from recorder.session.validation import validate
from tests.campaigns import Selector
from tests.faults.numbers import message, stored, stream
from tests.manual_clock import ManualClock
from tests.support.events import events

A = stream("a", 100.0, ("raw", "lzmaf"))
B = stream("b", 30.0, ("mjpg",))
COMMITTED = {"a": 4, "b": 3}
WRITTEN = {"a": 5, "b": 4}
DIGESTED = {"a": (0, 2, 4, 5), "b": (0, 3, 4)}
"""Samples up to which there are digests."""
OTHER_BOOT = "00000000-0000-0000-0000-000000000000"


BOOTS = pytest.mark.parametrize("boot", [None, OTHER_BOOT], ids=["same boot", "other boot"])
FILES = ("a/packed", "a/packed_i", "a/seq", "b/video.avi", "b/ts", "_recorder/events.jsonl")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session whose writer was killed: a few samples committed, one of each stream not."""
    root = tmp_path_factory.mktemp("killed")
    clock = ManualClock(5_000_000_000)
    writer = SessionWriter.create(
        PosixDisk(),
        SessionPlan(str(root), "s", True, "version: 1\n", record_format=["a", "b"]),
        clock,
    )
    for spec in (A, B):
        writer.declare(spec)
    numbers = {"a": 0, "b": 0}

    def append(name: str) -> None:
        clock.advance(0.01)
        item = message(A if name == "a" else B, [numbers[name]], clock.monotonic_ns())
        item.epoch, item.number, item.seq = 7, numbers[name], numbers[name]
        numbers[name] += 1
        writer.append(item)

    for turn in range(2):
        append("a")
        append("a")
        append("b")
        if turn:
            append("b")
        writer.event("mark", cause=f"turn {turn}")
        clock.advance(1.1)
        writer.commit()
    append("a")
    append("b")
    for file in writer._files():
        file.flush()
    writer.abandon()
    assert read_journal(writer.path / "_recorder/commits").positions["a"]["samples"] == 4
    return writer.path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def fresh(killed: Path, tmp_path: Path) -> Path:
    path = tmp_path / "s"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(killed, path)
    return path


def recover_here(path: Path, boot: str | None) -> dict[str, list[int]]:
    recover(path, PosixDisk(), ManualClock(9_000_000_000), boot=boot)
    return {name: stored(path, name) for name in ("a", "b")}


def told_lost(path: Path, name: str) -> int:
    """Samples that the session itself counts as damaged."""
    return sum(e["count"] for e in events(path, type="lost", stream=name, cause="damaged"))


@pytest.mark.parametrize("file", FILES)
@BOOTS
def test_cut_at_bytes(
    killed: Path, tmp_path: Path, file: str, boot: str | None, select: Selector
) -> None:
    size = (killed / file).stat().st_size
    name, _, base = file.partition("/")
    # The AVI's header is 32 kB of empty index; its frames and the fields before it are cut at all.
    header = range(401, size - 4000) if base == "video.avi" else range(0)
    lengths = [at for at in range(size) if at not in header or not at % 997]
    for at in select(lengths[:: 7 if header else 1], 5):
        path = fresh(killed, tmp_path)
        with (path / file).open("r+b") as damaged:
            damaged.truncate(at)
        kept = recover_here(path, boot)
        where = f"{file} cut at {at} of {size}"
        for other, most in WRITTEN.items():
            numbers = kept[other]
            assert numbers == list(range(len(numbers))), where
            assert len(numbers) <= most, where
            if other != name:
                assert len(numbers) == most, where
            missing = max(0, COMMITTED[other] - len(numbers))
            assert told_lost(path, other) == missing, where
        if base in ("seq", "ts"):  # what is cut inside of a range of one digest goes with it
            assert len(kept[name]) <= at // 8, where
            assert len(kept[name]) >= max(n for n in DIGESTED[name] if n <= at // 8), where
        checked = validate(path, deep=True)
        assert checked.sound, (where, checked.problems)


def longest_prefix(killed: Path, at: int) -> int:
    """Bytes of the journal's whole records before the byte `at`."""
    ends = [frame.end for frame, _, _ in walk_journal(killed / "_recorder/commits")]
    return max([0, *(end for end in ends if end <= at)])


def commits_of(path: Path, length: int) -> dict[str, int]:
    """Samples that the last commit in so many bytes of the journal vouches for."""
    samples = {"a": 0, "b": 0}
    for frame, content, _ in walk_journal(path / "_recorder/commits"):
        if frame.kind == "commit" and frame.end <= length:
            samples |= {n: p["samples"] for n, p in content["streams"].items()}
    return samples


def damage_journal(killed: Path, tmp_path: Path, boot: str | None, text: bytes, whole: int) -> None:
    """Recover with another journal, whose first `whole` bytes are good."""
    path = fresh(killed, tmp_path)
    (path / "_recorder/commits").write_bytes(text)
    before = contents(path)
    try:
        kept = recover_here(path, boot)
    except SessionError as error:
        assert "commits" in str(error)
        assert whole == 0 or "nothing was changed" in str(error)
        after = contents(path)
        after.pop("_recorder/lock", None)
        before.pop("_recorder/lock", None)
        assert after == before
        return
    for name, least in commits_of(killed, whole).items():
        assert kept[name] == list(range(len(kept[name])))
        assert len(kept[name]) >= least, (name, whole)
    after = contents(path)
    for file, data in before.items():  # what is cut lies in salvage
        if file.startswith(("a/raw", "a/packed", "a/seq")) and file in after:
            cut = data[len(after[file]) :]
            assert not cut or any(cut in value for key, value in after.items() if "salvage" in key)
    again = contents(path)
    recover(path, PosixDisk(), ManualClock(9_500_000_000), boot=boot)
    assert contents(path) == again


@BOOTS
def test_the_journal_cut_at_bytes(
    killed: Path, tmp_path: Path, boot: str | None, select: Selector
) -> None:
    text = (killed / "_recorder/commits").read_bytes()
    for at in select(range(0, len(text), 7), 15):
        damage_journal(killed, tmp_path, boot, text[:at], longest_prefix(killed, at))


@BOOTS
def test_bits_flipped_in_the_journal(
    killed: Path, tmp_path: Path, boot: str | None, select: Selector
) -> None:
    text = (killed / "_recorder/commits").read_bytes()
    for bit in select(range(0, 8 * len(text), 37), 20):
        damaged = bytearray(text)
        damaged[bit // 8] ^= 1 << bit % 8
        damage_journal(killed, tmp_path, boot, bytes(damaged), longest_prefix(killed, bit // 8))


def test_no_bit_flipped_in_the_journal_reads_as_another_record(
    killed: Path, tmp_path: Path, select: Selector
) -> None:
    """What is read is what was written, but for the record that it hits."""
    text = (killed / "_recorder/commits").read_bytes()
    file = tmp_path / "commits"
    frames = list(decode_frames(text))
    for bit in select(range(0, 8 * len(text), 7), 500):
        damaged = bytearray(text)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        try:
            state = read_journal(file)
        except SessionError as error:
            assert "nothing was changed" in str(error)
            continue
        hit = next(frame for frame in frames if bit // 8 < frame.end)
        assert state.length == (len(text) if hit is not frames[-1] else hit.start)
        known = {frame.own for frame in frames}
        assert {frame.own for frame in decode_frames(bytes(damaged))} == known - {hit.own}


def test_a_flipped_bit_in_a_closed_sessions_journal_changes_nothing(
    killed: Path, tmp_path: Path
) -> None:
    path = fresh(killed, tmp_path)
    recover_here(path, None)
    journal = path / "_recorder/commits"
    text = bytearray(journal.read_bytes())
    text[len(text) // 2] ^= 4
    journal.write_bytes(text)
    before = contents(path)
    assert recover(path, PosixDisk(), ManualClock(9_000_000_000)).action == "none"
    assert contents(path) == before
