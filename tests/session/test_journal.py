"""Whatever happens to a journal's bytes, it reads as a beginning of what was written."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.contract.errors import SessionError
from recorder.contract.streams import ChannelSpec, StreamSpec
from recorder.formats.disk import PosixDisk
from recorder.session.journal import (
    JournalWriter,
    decode_line,
    encode_record,
    read_journal,
    read_lines,
)

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
    for kind, values in RECORDS[:count]:
        if kind == "commit":
            writer.commit(**values)
        else:
            writer.append(kind, **values)
    writer.sync()
    writer.close()
    return path.read_bytes()


def records(path: Path) -> list[dict[str, Any]]:
    return [record for _, record in read_lines(path)]


def test_a_whole_journal(tmp_path: Path) -> None:
    data = write(tmp_path / "commits")
    state = read_journal(tmp_path / "commits")
    assert state.length == len(data) and state.commits == 3
    assert (state.boot_id, state.start_mono_ns) == ("b-1", 5)
    assert state.specs == {"imu": IMU}
    assert state.epochs == {"imu": [(17, 0)]} and state.ends == {"imu": {17: (20, "eof")}}
    assert state.files == {"imu/ts": 160, "imu/acc": 240}
    assert state.positions == {"imu": position(17, 6)}
    assert (state.events, state.closed) == ([], "clean")
    assert [r.get("n") for r in records(tmp_path / "commits") if r["k"] == "commit"] == [0, 1, 2]


def test_every_truncation_reads_as_the_records_that_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    data = write(path)
    whole = records(path)
    ends = [offset for offset, _ in read_lines(path)]
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        count = sum(end <= length for end in ends)
        assert records(path) == whole[:count]
        if not count:
            with pytest.raises(SessionError, match="not one whole record"):
                read_journal(path)
            continue
        state = read_journal(path)
        assert state.length == ends[count - 1]
        commits = [r for r in whole[:count] if r["k"] == "commit"]
        assert state.commits == len(commits)
        assert state.files == (commits[-1]["files"] if commits else {})
        assert state.closed == ("clean" if count == len(whole) else None)


def test_every_flipped_bit_ends_the_journal_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    data = write(path)
    whole = records(path)
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            got = []
            for line in bytes(damaged).splitlines(keepends=True):
                record = decode_line(line)
                if record is None:
                    break
                got.append(record)
            assert got == whole[: len(got)], f"byte {at}, bit {bit}"
    for at in range(0, len(data), 7):  # and through the whole reader
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        assert records(path) == whole[: len(records(path))]
        try:
            assert read_journal(path).length <= len(data)
        except SessionError as error:
            assert str(path) in str(error)


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
        | st.sampled_from([b"00000000 \n", b"00000000 \n" * 3, b"\n\n", b"0 {}\n"])
    )
    path.write_bytes(whole + tail)
    state = read_journal(path)
    assert state.length == len(whole)
    assert len(records(path)) == count


@given(st.binary(max_size=80))
def test_arbitrary_lines_are_no_records(line: bytes) -> None:
    assert decode_line(line) is None


def test_what_comes_after_a_damaged_record_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    lines = write(path).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], lines[4][:-5] + b"\n", *lines[5:]]))
    state = read_journal(path)
    assert (state.commits, state.closed, state.files) == (1, None, {})
    assert state.length == sum(map(len, lines[:4]))


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
    path.write_bytes(write(tmp_path / "first", 1) + encode_record(*record))
    with pytest.raises(SessionError, match="commits"):
        read_journal(path)


def test_records_of_kinds_not_known_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    path.write_bytes(write(tmp_path / "first", 5) + encode_record("mark", {"text": "ü"}))
    state = read_journal(path)
    assert state.length == path.stat().st_size and state.commits == 2


def test_no_journal_at_all(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(SessionError, match="cannot be read"):
            read_journal(path)
    (tmp_path / "empty").touch()
    with pytest.raises(SessionError, match="not one whole record"):
        read_journal(tmp_path / "empty")


def test_a_record_is_one_line_of_checksum_and_json() -> None:
    line = encode_record("close", {"state": "a\nb"})
    crc, text = line.rstrip(b"\n").split(b" ", 1)
    assert line.count(b"\n") == 1
    assert int(crc, 16) == zlib.crc32(text) and json.loads(text) == {"k": "close", "state": "a\nb"}


def test_numbers_of_commits_go_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "commits"
    length = len(write(path, 5))
    state = read_journal(path)
    writer = JournalWriter(PosixDisk().reopen(path, length), state.commits)
    writer.commit(t_ns=9, files={}, streams={}, events=[])
    writer.close()
    assert [r["n"] for r in records(path) if r["k"] == "commit"] == [0, 1, 2]
