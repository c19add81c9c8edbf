"""The window in which records are put in order of time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.files import PosixDisk
from recorder.formats.vrs import (
    CustomContent,
    RecordableType,
    RecordLayout,
    RecordType,
    StreamId,
    StreamSpec,
    VrsReader,
    VrsWriter,
    find_compressor,
)
from recorder.recording.writer import reorder
from recorder.recording.writer.reorder import Batch, ReorderWindow, Single

Written = list[tuple[StreamId, float, bytes]]


class Target:
    """Takes what a `VrsWriter` would."""

    def __init__(self) -> None:
        self.written: Written = []
        self.pieces = 0

    def put(
        self,
        stream: StreamId,
        kind: object,
        version: int,
        time_s: float,
        parts: object,
        compressor: object = None,
    ) -> None:
        self.pieces += 1
        self.written.append((stream, time_s, b"".join(parts)))  # type: ignore[arg-type]

    def put_many(
        self, stream: StreamId, kind: object, version: int, times: object, rows: object
    ) -> None:
        self.pieces += 1
        for time_s, row in zip(times, rows, strict=True):  # type: ignore[call-overload]
            self.written.append((stream, float(time_s), row.tobytes()))


def opened() -> tuple[Target, ReorderWindow]:
    target = Target()
    return target, ReorderWindow(target)  # type: ignore[arg-type]


def batch(stream: int, times: list[float], first: int = 0) -> Batch:
    rows = np.arange(first, first + len(times), dtype="<u2").view(np.uint8).reshape(-1, 2)
    return Batch(StreamId(stream, 1), RecordType.DATA, np.array(times), rows)


@given(
    st.lists(
        st.lists(st.integers(0, 40), min_size=1, max_size=9, unique=True).map(sorted),
        max_size=12,
    ),
    st.booleans(),
)
def test_everything_comes_out_once_and_in_order(runs: list[list[int]], single: bool) -> None:
    target, window = opened()
    expected: Written = []
    for stream, run in enumerate(runs):
        times = [t / 100 for t in run]  # within the window
        made = batch(stream, times)
        for at, time_s in enumerate(times):
            expected.append((made.stream, time_s, made.rows[at].tobytes()))
        if single:
            for at, time_s in enumerate(times):
                parts = [made.rows[at].tobytes()]
                window.add(Single(made.stream, RecordType.DATA, time_s, parts))
        else:
            window.add(made)
    assert not target.written
    window.drain()
    # Sorting is stable: of equal times the one that came first goes first.
    assert target.written == sorted(expected, key=lambda record: record[1])


def test_a_batch_that_nobody_interrupts_is_one_piece() -> None:
    target, window = opened()
    window.add(batch(1, [0.1, 0.2, 0.3]))
    window.add(batch(2, [0.31, 0.32]))
    window.drain()
    assert target.pieces == 2


def test_what_is_older_than_the_window_is_written_and_the_rest_waits() -> None:
    target, window = opened()
    window.add(batch(1, [0.0, 0.1, 0.2, 0.3]))
    window.add(batch(2, [0.15 + reorder.WINDOW_S]))
    assert [time_s for _, time_s, _ in target.written] == [0.0, 0.1]
    window.drain()
    assert [time_s for _, time_s, _ in target.written] == [0.0, 0.1, 0.2, 0.3, 0.65]


def test_the_window_is_bounded_in_bytes() -> None:
    target, window = opened()
    part = bytes(1 << 20)
    for at in range(12):
        window.add(Single(StreamId(1, 1), RecordType.DATA, at / 1000, [part]))
        held = at + 1 - len(target.written)
        assert held * len(part) <= reorder.WINDOW_BYTES


def test_a_batch_is_what_as_many_single_records_are(tmp_path: Path) -> None:
    """Also cut in pieces: previous sizes are exact, and so is the index."""
    files = []
    for name, pieces in (("one", 1), ("many", 4), ("batch", 0)):
        writer = VrsWriter.create(tmp_path / name, PosixDisk(), creation_id=7)
        made = batch(5, [0.1, 0.2, 0.3, 0.4])
        writer.put(StreamId(9, 1), RecordType.STATE, 1, 0.0, [b"before"])
        if pieces:
            for at in range(4):
                row = made.rows[at].tobytes()
                time_s = float(made.timestamps_s[at])
                writer.put(made.stream, RecordType.DATA, 1, time_s, [row])
        else:
            writer.put_many(made.stream, RecordType.DATA, 1, made.timestamps_s, made.rows)
        writer.put(StreamId(9, 1), RecordType.STATE, 1, 1.0, [b"after"])
        writer.finish()
        for file in writer.files:
            file.close()
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1] == files[2]
    with VrsReader(tmp_path / "batch") as vrs:
        assert vrs.tail is None and len(vrs) == 6


def test_records_of_a_batch_are_compressed_one_by_one(tmp_path: Path) -> None:
    sizes = {}
    for name in ("none", "zstd", "lz4"):
        path = tmp_path / f"{name}.vrs"
        spec = StreamSpec(
            RecordableType.SENSOR_DATA,
            "test/rows",
            {(RecordType.DATA, 1): RecordLayout(CustomContent())},
        )
        writer = VrsWriter.create(path, PosixDisk(), [spec])
        (stream,) = writer.streams
        window = ReorderWindow(writer, find_compressor(name))
        for size, at in ((20, 0.0), (400, 1.0)):  # smaller records are not compressed
            rows = np.tile(np.arange(3, dtype=np.uint8)[:, None], (1, size))
            window.add(Batch(stream, RecordType.DATA, at + np.arange(3) / 10, rows))
        window.drain()
        writer.finish()
        for file in writer.files:
            file.close()
        with VrsReader(path) as vrs:
            read = [(record.timestamp_s, record.payload()) for record in vrs]
            stored = [bool(record.header().uncompressed_size) for record in vrs]
        assert [data[:1] for _, data in read] == [b"\0", b"\1", b"\2"] * 2
        assert [len(data) for _, data in read] == [20] * 3 + [400] * 3
        assert stored == [False] * 3 + [name != "none"] * 3
        sizes[name] = path.stat().st_size
    assert max(sizes["zstd"], sizes["lz4"]) < sizes["none"] - 900
