"""The channel format ``points``: the contract suite, the packed sweeps, and its index."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zstandard

from recorder.codecs import CHANNEL_FORMATS, channel_files, indexed_channels
from recorder.codecs.points import (
    Column,
    pack_points,
    points_dtype,
    unpack_points,
)
from recorder.codecs.shuffling import find_frame_end
from recorder.codecs.storage import measure, open_channel
from recorder.codecs.storage.points import PointsReader
from recorder.codecs.streams import ChannelSpec, StreamSpec, points_channel
from recorder.common.errors import FormatError, ProtocolError, StorageError
from recorder.session.stream import read_channels
from tests.codecs.storage_contract import ChannelContract, Message

MOST = 40
COLUMNS = (
    Column("xyz", "f4", (3,), "m"),
    Column("ring", "u2"),
    Column("t_offset", "u4", unit="ns"),
)
DTYPE = points_dtype(COLUMNS)


def unpack_by_the_document(frame: bytes, point_bytes: int) -> bytes:
    """The records of a sweep, without any code of ours."""
    content = zstandard.ZstdDecompressor().decompress(frame)
    points = len(content) // point_bytes
    return bytes(content[k * points + n] for n in range(points) for k in range(point_bytes))


def padded(sweeps: list[npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
    values = np.zeros((len(sweeps), MOST, DTYPE.itemsize), np.uint8)
    for value, sweep in zip(values, sweeps, strict=True):
        value[: len(sweep)] = sweep.view(np.uint8).reshape(-1, DTYPE.itemsize)
    return values


class TestPoints(ChannelContract):
    spec = ChannelSpec("points.bin", "points", "u1", (MOST, DTYPE.itemsize), columns=COLUMNS)

    def sweeps(self, count: int, rng: np.random.Generator) -> list[npt.NDArray[Any]]:
        sizes = rng.choice([0, 1, 7, MOST], count)
        return [
            np.frombuffer(rng.integers(1, 256, n * DTYPE.itemsize).astype(np.uint8), DTYPE)
            for n in sizes.tolist()
        ]

    def message(self, count: int, rng: np.random.Generator) -> Message:
        sweeps = self.sweeps(count, rng)
        encoded = [pack_points(sweep) for sweep in sweeps]
        sizes = np.array([len(e) for e in encoded], np.uint32)
        return Message(b"".join(encoded), sizes, padded(sweeps), encoded)

    def oracle(self, folder: Path) -> npt.NDArray[Any]:
        data = (folder / "points.bin").read_bytes()
        rows = np.fromfile(folder / "points_i", "<u8").reshape(-1, 2).tolist()
        ends = [*(at for at, _ in rows[1:]), len(data)]
        sweeps = []
        for (at, points), end in zip(rows, ends, strict=True):
            records = unpack_by_the_document(data[at:end], DTYPE.itemsize)
            sweeps.append(np.frombuffer(records, DTYPE, points))
        return padded(sweeps)

    def whole_samples(self, file: str, cut: int, messages: list[Message]) -> int | None:
        if file == "points_i":
            return cut // 16
        ends = np.cumsum([len(e) for m in messages for e in m.encoded])
        return int((ends <= cut).sum())


def write(folder: Path) -> TestPoints:
    suite = TestPoints()
    suite.write(folder, suite.messages())
    return suite


def open_points(folder: Path) -> PointsReader:
    reader = open_channel(folder, "points.bin", TestPoints.spec.meta())
    assert isinstance(reader, PointsReader)
    return reader


def test_a_sweep_is_read_as_its_columns(tmp_path: Path) -> None:
    suite = TestPoints()
    sweeps = suite.sweeps(9, np.random.default_rng(1))
    encoded = [pack_points(sweep) for sweep in sweeps]
    sizes = np.array([len(e) for e in encoded], np.uint32)
    suite.write(tmp_path, [Message(b"".join(encoded), sizes, padded(sweeps), encoded)])
    with open_points(tmp_path) as channel:
        assert channel.counts.tolist() == [len(sweep) for sweep in sweeps]
        for at, sweep in enumerate(sweeps):
            points = channel.sweep(at)
            assert points.dtype == DTYPE
            assert points["xyz"].shape == (len(sweep), 3)
            assert points.tobytes() == sweep.tobytes()
            points["ring"] = 0  # the caller's own
        with pytest.raises(IndexError, match=r"points\.bin"):
            channel.sweep(9)


def test_the_bytes_are_those_of_the_document() -> None:
    points = np.zeros(3, DTYPE)
    points["xyz"] = [[1, 2, 3], [4, 5, 6], [7, 8, np.nan]]
    points["ring"] = [1, 258, 3]
    points["t_offset"] = [0, 1, 4_000_000_000]
    frame = pack_points(points)
    assert unpack_by_the_document(frame, 18) == points.tobytes()
    parameters = zstandard.get_frame_parameters(frame)
    assert parameters.content_size == 54
    assert parameters.has_checksum


@pytest.mark.parametrize(("row", "values"), [(0, (1, 3)), (4, (0, 7)), (3, (0, MOST + 1))])
def test_a_wrong_index_is_named(tmp_path: Path, row: int, values: tuple[int, int]) -> None:
    suite = write(tmp_path)
    rows = np.fromfile(tmp_path / "points_i", "<u8").reshape(-1, 2)
    rows[row] = values
    rows.tofile(tmp_path / "points_i")
    with pytest.raises(FormatError, match=rf"points_i: row {row} is \[{values[0]}, {values[1]}\]"):
        suite.open(tmp_path)
    assert measure(tmp_path, suite.spec, 0).samples == row


def test_wrong_points_of_the_index_are_named(tmp_path: Path) -> None:
    suite = write(tmp_path)
    rows = np.fromfile(tmp_path / "points_i", "<u8").reshape(-1, 2)
    rows[2, 1] += 1
    rows.tofile(tmp_path / "points_i")
    with open_points(tmp_path) as channel:
        for read in (channel.sweep, channel.check, channel.__getitem__):
            with pytest.raises(FormatError, match=r"points\.bin: sample 2: has .* its index says"):
                read(2)
    assert measure(tmp_path, suite.spec, 0).samples == 2
    assert measure(tmp_path, suite.spec, 3).samples == len(rows)  # committed: trusted


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "points.bin"
    whole = path.read_bytes()
    with open_points(tmp_path) as channel:
        start, stop = channel.units(1, 2)[0, 2:].tolist()
    for at in range(start, start + stop):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        with open_points(tmp_path) as channel, pytest.raises(FormatError, match="sample 1"):
            channel.check(1)


@pytest.mark.parametrize("left", [0, 1, "inside", 2**63 - 1, 2**64 - 1])
@pytest.mark.parametrize("committed", [0, 3, 6])
def test_what_a_crash_leaves_of_later_rows_costs_no_sweep(
    tmp_path: Path, left: int | str, committed: int
) -> None:
    suite = write(tmp_path)
    rows = np.fromfile(tmp_path / "points_i", "<u8").reshape(-1, 2)
    rows[6:] = rows[5, 0] + 3 if left == "inside" else left
    rows.tofile(tmp_path / "points_i")
    extent = measure(tmp_path, suite.spec, committed)
    assert extent.samples == 6
    for name, length in extent.cut(6)[1].items():
        os.truncate(tmp_path / name, length)
    with open_points(tmp_path) as channel:
        assert len(channel) == 6


def test_the_end_of_a_frame_is_found_by_its_blocks() -> None:
    data = os.urandom(300_000) + bytes(300_000)  # stored blocks, and blocks of one byte
    frames = [
        zstandard.ZstdCompressor(level=1, write_checksum=checksum).compress(content)
        for content in (data, b"", b"x", bytes(1 << 20))
        for checksum in (True, False)
    ]
    joined = b"".join(frames)
    at = 0
    for frame in frames:
        end = find_frame_end(lambda offset, size: joined[offset : offset + size], at)
        assert end == at + len(frame)
        at = end
    assert find_frame_end(lambda offset, size: joined[offset : offset + size], at) is None
    assert find_frame_end(lambda offset, size: b"no frame at all here"[:size], 0) is None


def test_frames_of_other_points_are_refused() -> None:
    frame = pack_points(np.zeros(5, DTYPE))
    for wrong, text in (
        (frame[:-1], "here: "),
        (frame + b"x", "here: "),
        (frame + frame, "here: "),
        (zstandard.ZstdCompressor().compress(bytes(19)), "no points of 18 bytes"),
        (zstandard.ZstdCompressor(write_content_size=False).compress(b"abc"), "no points"),
        (b"no frame", "is no packed sweep"),
    ):
        with pytest.raises(FormatError, match=text):
            unpack_points(wrong, DTYPE, "here")


def test_a_driver_cannot_send_what_it_did_not_declare() -> None:
    found = CHANNEL_FORMATS["points"]
    shape = (4, DTYPE.itemsize)
    assert found.shape_fault(pack_points(np.zeros(4, DTYPE)), shape) is None
    assert found.shape_fault(pack_points(np.zeros(5, DTYPE)), shape) == (
        "5 points where at most 4 are declared"
    )
    assert "no points of 18" in str(found.shape_fault(pack_points(np.zeros(1, "<u4")), shape))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Column("Xyz", "f4"), "not a name"),
        (lambda: Column("xyz", "f3"), "type 'f3' is unknown"),
        (lambda: Column("xyz", "f4", (0,)), "needs whole sizes"),
        (lambda: points_channel((), "no columns"), "at least one"),
        (lambda: points_channel((COLUMNS[0], COLUMNS[0]), "twice"), "different names"),
        (lambda: ChannelSpec("p", "points", "u1", (9, 17), columns=COLUMNS), "18 bytes, not 17"),
        (lambda: ChannelSpec("p", "points", "u2", (9, 18), columns=COLUMNS), "points holds u1"),
        (lambda: ChannelSpec("acc", "raw", "f4", (3,), columns=COLUMNS), "raw has no columns"),
    ],
)
def test_columns_that_cannot_be(make: Any, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        make()


def test_a_declaration_comes_back_from_the_wire_and_from_the_files(tmp_path: Path) -> None:
    spec = StreamSpec("lidar", (points_channel(COLUMNS, "points of a sweep"),))
    assert StreamSpec.from_wire(json.loads(json.dumps(spec.to_wire()))) == spec
    files = spec.meta_files()
    assert list(files) == ["meta.json", "points.bin.json"]
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert read_channels(tmp_path)["points.bin"] == spec.channels[0].meta()
    assert "points_i" not in read_channels(tmp_path)
    assert files["meta.json"]["points_i"]["shape"] == [2]
    bad = spec.to_wire()
    bad["channels"][0]["columns"][0]["type"] = "text"
    with pytest.raises(ProtocolError, match="'text' is unknown"):
        StreamSpec.from_wire(bad)


def test_columns_in_meta_json_are_checked(tmp_path: Path) -> None:
    write(tmp_path)
    meta = TestPoints.spec.meta()
    for columns, text in (
        (meta["columns"][:2], "14 bytes, not 18"),
        ([{"name": "x"}], "columns: not a column's declaration"),
        (7, "columns"),
        ([], "at least one"),
    ):
        with pytest.raises(FormatError, match=text):
            open_channel(tmp_path, "points.bin", meta | {"columns": columns})


def test_the_index_of_points_has_a_name_without_the_suffix() -> None:
    assert channel_files("points.bin", "points") == ("points.bin", "points_i")
    assert indexed_channels("points_i") == ("points", "points.bin")
    assert indexed_channels("points.bin") == ()


def test_lengths_of_different_sweeps_cannot_be_resumed(tmp_path: Path) -> None:
    suite = write(tmp_path)
    sizes = [len(e) for m in suite.messages() for e in m.encoded]
    lengths = {"points.bin": sum(sizes[:2]), "points_i": 32}
    for wrong in ({"points.bin": sizes[0]}, {"points_i": 16}, {"points_i": 31}, {"points_i": 0}):
        with pytest.raises(StorageError, match=r"points.* do not belong to one sweep"):
            suite.resume(tmp_path, lengths | wrong)
    suite.close(suite.resume(tmp_path, lengths))
    with open_points(tmp_path) as channel:
        assert len(channel) == 2


@pytest.mark.parametrize("points", [0, 1, 2, 31, 1000])
@pytest.mark.parametrize("columns", [(Column("a", "u1"),), COLUMNS, (Column("a", "f8", (7, 3)),)])
def test_any_number_of_points_of_any_size(points: int, columns: tuple[Column, ...]) -> None:
    dtype = points_dtype(columns)
    data = np.random.default_rng(points).integers(0, 256, points * dtype.itemsize).astype(np.uint8)
    sweep = data.view(dtype)
    frame = pack_points(sweep)
    assert unpack_by_the_document(frame, dtype.itemsize) == sweep.tobytes()
    assert unpack_points(frame, dtype, "here").tobytes() == sweep.tobytes()
