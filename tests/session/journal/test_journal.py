"""Whatever happens to a journal's bytes, it reads as what was written, or as less."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import SessionError
from recorder.common.files import PosixDisk
from recorder.session.journal.digests import Leaf, digest
from recorder.session.journal.frames import decode_frames, encode_frame
from recorder.session.journal.journal import (
    JournalFollower,
    JournalWriter,
    read_journal,
    walk_journal,
)
from recorder.session.journal.state import JournalState
from tests.campaigns import Selector
from tests.session.build import frames

IMU = StreamSpec("imu", (ChannelSpec("acc", "raw", "f4", (3,), "acceleration", "m/s²"),), 100.0)


def position(epoch: int, number: int) -> dict[str, Any]:
    return {"epoch": epoch, "number": number, "past": [], "samples": number, "last_ns": number}


RECORDS: list[tuple[str, dict[str, Any]]] = [
    ("open", {"boot_id": "b-1", "start_mono_ns": 5, "start_ns": 1_700_000_000_000_000_000}),
    ("commit", {"t_ns": 1, "files": {}, "streams": {}, "events": []}),
    ("stream", {"spec": IMU.to_wire()}),
    ("epoch", {"stream": "imu", "epoch": 17, "sample": 0}),
    (
        "commit",
        {
            "t_ns": 2,
            "files": {"imu/ts": 80, "imu/acc": 120},
            "streams": {"imu": position(17, 3)},
            "events": [{"type": "lost", "count": 4}],
        },
    ),
    ("end", {"stream": "imu", "epoch": 17, "sent": 20, "reason": "eof"}),
    (
        "commit",
        {
            "t_ns": 3,
            "files": {"imu/ts": 160, "imu/acc": 240},
            "streams": {"imu": position(17, 6)},
            "events": [],
        },
    ),
    ("close", {"state": "clean"}),
]


def write(path: Path, count: int = len(RECORDS)) -> bytes:
    writer = JournalWriter(PosixDisk().create(path))
    append(writer, RECORDS[:count])
    writer.close()
    return path.read_bytes()


def append(writer: JournalWriter, records: list[tuple[str, dict[str, Any]]]) -> None:
    for kind, values in records:
        if kind == "commit":
            writer.commit(**copy.deepcopy(values))
        else:
            writer.append(kind, **values)
    writer.sync()


def records(path: Path) -> list[tuple[str, Any]]:
    return [(frame.kind, frame.content) for frame in decode_frames(path.read_bytes())]


def said(state: JournalState) -> dict[str, Any]:
    """All that a state says of the session."""
    hidden = ("length", "damage", "unsure", "link", "tree", "_numbers")
    return {k: getattr(state, k) for k in state.__slots__ if k not in hidden}


def test_a_whole_journal(tmp_path: Path) -> None:
    data = write(tmp_path / "commits")
    state = read_journal(tmp_path / "commits")
    assert state.length == len(data) and state.commits == 3
    assert (state.boot_id, state.start_mono_ns) == ("b-1", 5)
    assert state.specs == {"imu": IMU}
    assert state.epochs == {"imu": [(17, 0)]} and state.ends == {"imu": {17: (20, "eof")}}
    assert state.files == {"imu/ts": 160, "imu/acc": 240}
    assert state.positions == {"imu": position(17, 6)}
    assert (state.events, state.closed, state.damage) == ([], "clean", [])
    commits = [c for f, c, _ in walk_journal(tmp_path / "commits") if f.kind == "commit"]
    assert [c["n"] for c in commits] == [0, 1, 2]
    assert [c["files"] for c in commits] == [v["files"] for k, v in RECORDS if k == "commit"]


FULL: dict[str, Any] = {
    "epoch": 1 << 59,
    "number": 900,
    "seq": 1007,
    "ended": None,
    "past": [],
    "lost": {},
    "unknown_losses": 0,
    "incomplete": {},
    "samples": 1000,
    "last_ns": 123,
}
FILES = {"imu/ts": 8000, "imu/seq": 8000, "imu/t_mono": 8000, "imu/acc": 12000, "events": 77}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"ended": "eof", "past": [3, 1 << 58], "lost": {"radar": 7}, "unknown_losses": 2},
        {"last_ns": -1, "samples": 0, "seq": 0, "number": 0},
        {"last_ns": 10**15, "number": 5},
        {"incomplete": {"network": {"samples": 22, "parts": 353}}},
    ],
)
def test_a_commit_reads_as_it_was_written(tmp_path: Path, changed: dict[str, Any]) -> None:
    where = {**FULL, **changed}
    files = FILES if where["samples"] else {"events": 77}
    values: dict[str, Any] = {
        "t_ns": 10**13,
        "took_us": 250,
        "files": files,
        "streams": {"imu": where},
        "events": [{"type": "lost", "count": None}],
    }
    writer = JournalWriter(PosixDisk().create(tmp_path / "j"))
    append(writer, RECORDS[:3])
    for more in (
        {"digest": digest(b"one")},
        {
            "leaves": [
                ("imu/ts", Leaf(0, files.get("imu/ts", 8), b"d" * 32)),
                ("events", Leaf(0, 70, b"e" * 32)),
                ("events", Leaf(70, 77, b"f" * 32)),
            ],
            "patchable": {"events": [(4, 4), (20, 8)]},
            "patched": {"events": b"p" * 32},
        },
        {"digest": digest(b"two")},
    ):
        writer.commit(**values, **more)
        *_, (_, content, state) = (w for w in walk_journal(tmp_path / "j") if w[0].kind == "commit")
        assert content == {"n": content["n"], **values, **more}
        assert state.digest == more.get("digest")
    assert state.leaves["events"] == Leaf(70, 77, b"f" * 32)
    assert state.patchable == {"events": [(4, 4), (20, 8)]} and state.tree.size == 3
    assert said(read_journal(tmp_path / "j")) == said(writer.state)
    writer.close()


def test_files_whose_length_samples_tell_cost_nothing(tmp_path: Path) -> None:
    writer = JournalWriter(PosixDisk().create(tmp_path / "j"))
    append(writer, RECORDS[:3])
    for _ in range(2):
        writer.commit(t_ns=0, files=FILES, streams={"imu": FULL}, events=[], digest=bytes(32))
    writer.close()
    assert len([f for f in frames(tmp_path / "j") if b"commit" in f][-1]) < 150


def test_every_truncation_reads_as_the_records_that_are_whole(
    tmp_path: Path, select: Selector
) -> None:
    path = tmp_path / "commits"
    data = write(path)
    whole, ends = records(path), [frame.end for frame, _, _ in walk_journal(path)]
    for length in select(range(len(data) + 1), 150):
        path.write_bytes(data[:length])
        count = sum(end <= length for end in ends)
        assert records(path) == whole[:count]
        if not count:
            with pytest.raises(SessionError, match="not one whole record"):
                read_journal(path)
            continue
        state = read_journal(path)
        assert state.length == ends[count - 1] and state.damage == []
        assert state.commits == sum(kind == "commit" for kind, _ in whole[:count])
        assert state.closed == ("clean" if count == len(whole) else None)


def test_a_flipped_bit_takes_at_most_its_own_record(tmp_path: Path, select: Selector) -> None:
    """What is behind it counts; or it is refused, since it cannot be understood."""
    path = tmp_path / "commits"
    data = write(path)
    whole = records(path)
    all_said = said(read_journal(path))
    starts = [frame.start for frame, _, _ in walk_journal(path)]
    refused = 0
    for at in select(range(len(data)), 150):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        hit = sum(start <= at for start in starts) - 1
        assert records(path) == whole[:hit] + whole[hit + 1 :], f"byte {at}"
        try:
            state = read_journal(path)
        except SessionError as error:
            assert str(path) in str(error) and "nothing was changed" in str(error)
            refused += 1
            continue
        if hit < len(whole) - 1:  # a snapshot follows all that is said once
            assert said(state) == all_said, f"byte {at} of {whole[hit][0]}"
            assert state.length == len(data)
        else:
            assert state.length == starts[-1] and state.closed is None
    assert refused == 0


def test_a_damaged_declaration_without_a_snapshot_behind_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    writer = JournalWriter(PosixDisk().create(path))
    append(writer, RECORDS[:3])
    writer.commit(t_ns=0, files=FILES, streams={"imu": FULL}, events=[])
    writer.close()
    parts = frames(path)
    assert b"snapshot" in parts[-1]
    del parts[-1]
    at = len(b"".join(parts[:-2])) + 60
    data = bytearray(b"".join(parts))
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(SessionError, match=r"bytes \d+ to \d+ are damaged; nothing was changed"):
        read_journal(path)


@given(st.data())
def test_a_tail_of_anything_adds_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("j") / "commits"
    count = data.draw(st.integers(1, len(RECORDS)))
    whole = write(path, count)
    tail = data.draw(
        st.binary(max_size=60)
        | st.integers(1, 5000).map(bytes)  # zeros of the right length, as after a power cut
        | st.integers(1, 90).map(lambda size: whole[:size])
    )
    before = records(path)
    path.write_bytes(whole + tail)
    state = read_journal(path)
    assert state.length == len(whole)
    assert records(path) == before


def test_a_reader_begins_at_the_last_snapshot(tmp_path: Path) -> None:
    """However long the journal, only its end is read, and says the same."""
    path = tmp_path / "j"
    writer = JournalWriter(PosixDisk().create(path))
    append(writer, RECORDS[:3])
    for n in range(9_000):
        where = {**FULL, "samples": 5 * n, "seq": 5 * n}
        files = {"imu/ts": 40 * n, "events": n}
        writer.commit(t_ns=n, files=files, streams={"imu": where}, events=[], digest=bytes(32))
    writer.close()
    size, read = path.stat().st_size, 0

    def some(file: Path, start: int, stop: int) -> bytes:
        nonlocal read
        read += stop - start
        with file.open("rb") as opened:
            opened.seek(start)
            return opened.read(stop - start)

    state = read_journal(path, some)
    assert read <= 1 << 20 < size
    assert said(state) == said(writer.state) and state.commits == 9_001
    *_, (_, _, walked) = walk_journal(path)
    walked.finish()
    assert said(walked) == said(state)


@pytest.mark.parametrize(
    "record",
    [
        ("stream", {"spec": {"name": "imu", "channels": []}}),
        ("stream", {"spec": 5}),
        ("stream", {}),
        ("open", {"boot_id": "x"}),
        ("epoch", {"stream": "imu"}),
        ("close", {}),
        ("commit", {"n": 0}),
    ],
)
def test_a_whole_record_of_another_kind_of_journal_is_one_clear_error(
    tmp_path: Path, record: tuple[str, dict[str, Any]]
) -> None:
    path = tmp_path / "commits"
    first = write(path, 1)
    path.write_bytes(first + encode_frame(*record, digest(first)))
    with pytest.raises(SessionError, match="commits"):
        read_journal(path)


def test_records_of_kinds_not_known_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    write(path, 5)
    state = read_journal(path)
    path.write_bytes(path.read_bytes() + encode_frame("mark", {"text": "ü"}, state.link))
    assert said(read_journal(path)) == said(state)
    assert read_journal(path).length == path.stat().st_size


def test_no_journal_at_all(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(SessionError, match="cannot be read"):
            read_journal(path)
    (tmp_path / "empty").touch()
    with pytest.raises(SessionError, match="not one whole record"):
        read_journal(tmp_path / "empty")


def test_numbers_of_commits_go_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    write(path, 5)
    state = read_journal(path)
    writer = JournalWriter(PosixDisk().reopen(path, state.length), state)
    writer.commit(t_ns=9, files={}, streams={}, events=[])
    writer.close()
    assert [c["n"] for f, c, _ in walk_journal(path) if f.kind == "commit"] == [0, 1, 2]


def test_each_record_names_the_one_before_it(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    write(path)
    found = list(decode_frames(path.read_bytes()))
    assert found[0].previous == bytes(32)
    for before, after in pairwise(found):
        assert after.previous == digest(path.read_bytes()[before.start : before.end])


def test_it_is_printed_as_json(tmp_path: Path) -> None:
    (tmp_path / "_recorder").mkdir()
    write(tmp_path / "_recorder/commits")
    done = subprocess.run(
        [sys.executable, "-m", "recorder.session.journal.journal", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [frame.kind for frame, _, _ in walk_journal(tmp_path / "_recorder/commits")]
    assert [line["k"] for line in lines] == kinds
    assert lines[-2]["k"] == "snapshot" and lines[-1]["state"] == "clean"


def test_a_session_can_tell_how_its_disk_did(tmp_path: Path) -> None:
    path = tmp_path / "j"
    writer = JournalWriter(PosixDisk().create(path))
    append(writer, RECORDS[:2])
    assert writer.state.durations() is None
    for took_us in [700] * 10 + [6_500] * 80 + [40_000] * 9 + [536_400]:
        writer.commit(t_ns=0, took_us=took_us, files={}, streams={}, events=[])
    writer.snapshot()
    writer.close()
    expected = {"count": 100, "half_ms": 8.0, "most_ms": 64.0, "longest_ms": 536.4}
    assert read_journal(path).durations() == expected == writer.state.durations()


def test_a_journal_that_grows_is_followed_record_by_record(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    journal = JournalWriter(PosixDisk().create(path))
    journal.append("open", boot_id="b", start_mono_ns=1, start_ns=2)
    for number in range(400):
        journal.commit(t_ns=number, files={"a": number}, streams={}, events=[])
    journal.close()
    whole = [(frame, content) for frame, content, _ in walk_journal(path)]
    data = path.read_bytes()
    growing = tmp_path / "growing"
    follower = JournalFollower(growing)
    followed: list[Any] = []
    for end in range(0, len(data) + 101, 101):
        growing.write_bytes(data[:end])
        followed += follower.read()
    assert followed == whole
    assert follower.state.commits == 400
    assert follower.state.files == {"a": 399}
