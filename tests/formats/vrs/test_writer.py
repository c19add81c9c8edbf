"""What the writer puts on disk, and how it goes on after a death."""

from __future__ import annotations

import math
import mmap
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from recorder.common.errors import FormatError, StorageError
from recorder.common.files import PosixDisk
from recorder.formats.vrs import (
    Compression,
    Compressor,
    CustomContent,
    RecordLayout,
    RecordType,
    StreamId,
    StreamSpec,
    VrsReader,
    VrsWriter,
    whole_records_end,
)
from recorder.formats.vrs.headers import RECORD_HEADER, RecordHeader
from tests.campaigns import Selector
from tests.formats.vrs import kit

RAW = StreamSpec(
    240,
    "test/raw",
    {
        (RecordType.DATA, 1): RecordLayout(CustomContent()),
        (RecordType.DATA, 7): RecordLayout(CustomContent(size=4)),
    },
    {"a": "b"},
)
RAW_ID = StreamId(240, 1)


def test_bytes_of_a_file(tmp_path: Path) -> None:
    writer = VrsWriter.create(tmp_path / "a.vrs", PosixDisk(), [RAW], {"t": "u"}, creation_id=5)
    writer.streams[RAW_ID].write(RecordType.DATA, 1.5, b"abc")
    writer.streams[RAW_ID].write(RecordType.DATA, 1.25, b"defg", version=7)
    writer.finish()
    kit.close(writer)

    def text(value: str) -> bytes:
        return struct.pack("<I", len(value)) + value.encode()

    own = {
        "RF:Data:1": "custom",
        "RF:Data:7": "custom/size=4",
        "VRS_Original_Recordable_Name": "Sensor Data Class",
        "VRS_Recordable_Flavor": "test/raw",
    }
    data = struct.pack("<IiHI", 1, 240, 1, 1) + text("a") + text("b")
    data += struct.pack("<I", 4) + b"".join(text(k) + text(v) for k, v in own.items())
    data += struct.pack("<I", 1) + text("t") + text("u")
    size = 32 + len(data)
    records_at = 80 + size
    most = 1.7976931348623157e308
    expected = struct.pack(
        "<4s4sQIIqqqQQQ4s4s",
        *(b"Visi", b"onRe", 5, 80, 32, records_at + 71, 80, 0, 0, 0, 0, b"cord", b"VRS1"),
    )
    expected += RECORD_HEADER.pack(size, 0, 2, 2, most, 0, 3, 0, 0) + data
    expected += RECORD_HEADER.pack(35, size, 240, 1, 1.5, 1, 3, 0, 0) + b"abc"
    expected += RECORD_HEADER.pack(36, 35, 240, 7, 1.25, 1, 3, 0, 0) + b"defg"
    expected += RECORD_HEADER.pack(32 + 14 + 38, 36, 1, 2, most, 0, 3, 0, 0)
    expected += struct.pack("<IiHI", 1, 240, 1, 2)
    expected += struct.pack("<dIBiH", 1.5, 35, 3, 240, 1) + struct.pack(
        "<dIBiH", 1.25, 36, 3, 240, 1
    )
    assert (tmp_path / "a.vrs").read_bytes() == expected


def test_a_late_stream_has_its_tags_in_a_record(tmp_path: Path) -> None:
    writer = VrsWriter.create(tmp_path / "a.vrs", PosixDisk())
    first = writer.add_stream(RAW)
    second = writer.add_stream(RAW)
    assert (first.id, second.id) == (RAW_ID, StreamId(240, 2))
    second.write(RecordType.DATA, 2.0, b"x")
    writer.finish()
    kit.close(writer)
    with VrsReader(tmp_path / "a.vrs") as reader:
        assert len(reader) == 1 and list(reader.streams) == [first.id, second.id]
        assert reader.streams[second.id].tags == {"a": "b"}
        assert reader.streams[second.id].flavor == "test/raw"
        assert reader.header.index_offset and reader.indexed
    header = RecordHeader.unpack((tmp_path / "a.vrs").read_bytes(), 80 + 32 + 8)
    assert header[2:8] == (240, 1, -1.7976931348623157e308, 1, 4, 0)


@pytest.mark.parametrize("kind", [Compression.LZ4, Compression.ZSTD])
def test_compression_only_where_it_pays(tmp_path: Path, kind: Compression) -> None:
    writer = VrsWriter.create(tmp_path / "a.vrs", PosixDisk(), [RAW])
    noise = bytes(i * i * 31 % 251 for i in range(250))
    compressor = Compressor(kind)
    for t, data in enumerate((bytes(1000), bytes(249), noise)):
        writer.streams[RAW_ID].write(RecordType.DATA, t, data, compressor=compressor)
    kit.close(writer)
    with VrsReader(tmp_path / "a.vrs") as reader:
        headers = [record.header() for record in reader]
        assert (headers[0].compression, headers[0].uncompressed_size) == (kind, 1000)
        assert headers[0].size < 200
        assert headers[1].compression == headers[1].uncompressed_size == 0
        assert [r.payload() for r in reader] == [bytes(1000), bytes(249), noise]


def test_what_is_refused_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    writer = kit.create(tmp_path / "a.vrs")
    kit.begin(writer)
    lengths = kit.flush(writer)
    camera, imu = writer.streams[kit.CAMERA_ID], writer.streams[kit.IMU_ID]
    attempts: dict[str, Callable[[], None]] = {
        "no Data records of version 3": lambda: camera.write(RecordType.DATA, 1, version=3),
        "1 blocks where 'data_layout": lambda: camera.write(RecordType.DATA, 1, kit.CameraData()),
        "block 0 of its Data records is": lambda: imu.write(RecordType.DATA, 1, kit.Pose()),
        "block 0 is a layout, not bytes": lambda: imu.write(RecordType.DATA, 1, b"abc"),
        "'sequence': wants": lambda: imu.write(RecordType.DATA, 1, kit.ImuData(sequence=-1)),
        "nan is no timestamp": lambda: imu.write(RecordType.DATA, math.nan, kit.ImuData()),
        "inf is no timestamp": lambda: imu.write(RecordType.DATA, math.inf, kit.ImuData()),
        "block 1 of its Data records is image": lambda: camera.write(
            RecordType.DATA, 1, kit.CameraData(), kit.CameraData()
        ),
    }
    for message, write in attempts.items():
        with pytest.raises(FormatError, match=message):
            write()
    raw = writer.add_stream(RAW)
    lengths = kit.flush(writer)
    with pytest.raises(FormatError, match="3 bytes for 'custom/size=4'"):
        raw.write(RecordType.DATA, 1, b"abc", version=7)
    assert kit.close(writer) == lengths


def test_a_record_beyond_4_gib(tmp_path: Path) -> None:
    writer = VrsWriter.create(tmp_path / "a.vrs", PosixDisk(), [RAW])
    block = memoryview(mmap.mmap(-1, 1 << 30))  # never touched, so no memory
    with pytest.raises(StorageError, match="4 GiB"):
        writer.put(RAW_ID, RecordType.DATA, 1, 1.0, [block] * 4)
    assert writer.count == 0
    kit.close(writer)


def test_ids_of_streams(tmp_path: Path) -> None:
    twice = StreamSpec(240, "x", {}, instance=3)
    with pytest.raises(FormatError, match="two streams 240-3"):
        VrsWriter.create(tmp_path / "a.vrs", PosixDisk(), [twice, twice])
    assert not (tmp_path / "a.vrs").exists()
    for wrong in (StreamSpec(0, "x", {}), StreamSpec(65535, "x", {})):
        with pytest.raises(FormatError, match="cannot be"):
            VrsWriter.create(tmp_path / "a.vrs", PosixDisk(), [wrong])


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    path = kit.write_file(tmp_path / "a.vrs")
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        kit.create(path)
    assert path.read_bytes() == before


def test_an_index_that_another_file_left(tmp_path: Path) -> None:
    kit.write_file(tmp_path / "a.vrs")
    expected = kit.write_file(tmp_path / "b.vrs", 3).read_bytes()
    (tmp_path / "a.vrs").unlink()
    assert kit.write_file(tmp_path / "a.vrs", 3).read_bytes() == expected


def test_nothing_after_finish(tmp_path: Path) -> None:
    writer = kit.create(tmp_path / "a.vrs")
    writer.finish()
    lengths = kit.flush(writer)
    writer.finish()
    assert kit.flush(writer) == lengths
    with pytest.raises(ValueError, match="finished"):
        kit.begin(writer)
    kit.close(writer)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    writer = VrsWriter.create(tmp_path / "a.vrs", PosixDisk(), [kit.IMU])
    stream = writer.streams[kit.IMU_ID]
    used: list[int] = []
    tracemalloc.start()
    try:
        for step in range(8000):
            stream.write(RecordType.DATA, step * 0.01, kit.imu_data(step))
            if step % 2000 == 1999:
                kit.flush(writer)
                used.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        writer.finish()
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    kit.close(writer)
    assert max(used) - min(used) < 8000  # one byte a record would be more
    assert peak < 2 << 20


STEPS = 5


def expected(folder: Path) -> tuple[bytes, bytes]:
    """The file that one undisturbed writer makes, and the one beside it."""
    path = kit.write_file(folder / "whole.vrs", STEPS)
    return path.read_bytes(), (folder / "whole.vrs.index").read_bytes()


@pytest.mark.parametrize("lost", ["nothing", "index file", "index length", "index tail", "more"])
def test_resume_at_every_step_equals_uninterrupted(tmp_path: Path, lost: str) -> None:
    whole = expected(tmp_path)
    for at in range(STEPS + 1):
        for beyond in range(at, STEPS + 1):  # written, but not committed
            path = tmp_path / f"{at}_{beyond}.vrs"
            index = tmp_path / f"{at}_{beyond}.vrs.index"
            writer = kit.create(path)
            kit.begin(writer)
            for step in range(at):
                kit.write_step(writer, step)
            length, index_length = kit.flush(writer)
            for step in range(at, beyond):
                kit.write_step(writer, step)
            kit.close(writer)
            committed: int | None = index_length
            if lost == "index file":
                index.unlink()
            elif lost == "index length":
                committed = None
            elif lost == "index tail":  # zeros of the right length, as a power cut leaves them
                index.write_bytes(index.read_bytes()[: index_length - 19] + bytes(19))
            elif lost == "more":  # the file was committed later than the index
                committed = index_length // 19 // 2 * 19
            for _ in range(2):  # killed again before its first commit
                writer = VrsWriter.resume(path, PosixDisk(), length, index_length=committed)
                assert kit.flush(writer) == (length, index_length)
                kit.close(writer)
            writer = VrsWriter.resume(path, PosixDisk(), length, index_length=committed)
            for step in range(at, STEPS):
                kit.write_step(writer, step)
            writer.finish()
            kit.close(writer)
            assert (path.read_bytes(), index.read_bytes()) == whole, (at, beyond)


def test_resume_after_finish_equals_uninterrupted(tmp_path: Path) -> None:
    whole = expected(tmp_path)
    for at in range(STEPS + 1):
        path = tmp_path / f"{at}.vrs"
        kit.write_file(path, at)
        length, index_length = path.stat().st_size, Path(f"{path}.index").stat().st_size
        for committed in (index_length, None):
            writer = VrsWriter.resume(path, PosixDisk(), length, index_length=committed)
            kit.close(writer)
            with VrsReader(path) as reader:
                assert not reader.indexed and reader.tail is None
            length = path.stat().st_size
        writer = VrsWriter.resume(path, PosixDisk(), length, index_length=index_length)
        for step in range(at, STEPS):
            kit.write_step(writer, step)
        writer.finish()
        kit.close(writer)
        assert path.read_bytes() == whole[0], at


def test_resume_puts_back_a_header_that_knew_of_a_lost_index(tmp_path: Path) -> None:
    path = kit.write_file(tmp_path / "a.vrs", STEPS, finish=False)
    length = path.stat().st_size
    with path.open("r+b") as file:  # the header was on disk, the index was not
        file.seek(24)
        file.write(struct.pack("<q", length))
    with VrsReader(path) as reader:
        assert len(reader) == STEPS * kit.RECORDS_PER_STEP + 2
    writer = VrsWriter.resume(path, PosixDisk(), length)
    kit.close(writer)
    assert path.read_bytes()[24:32] == bytes(8)


def test_resume_refuses_lengths_that_cannot_be(tmp_path: Path) -> None:
    path = kit.write_file(tmp_path / "a.vrs", 2, finish=False)
    before = path.read_bytes()
    ends = kit.record_ends(path)
    for length in [*range(0, ends[0], 17), *range(ends[0] - 1, len(before) + 3)]:
        if length in ends:
            continue
        for index_length in (None, 19 * 3) if length % 5 == 0 else (None,):
            with pytest.raises((StorageError, FormatError), match=r"a\.vrs"):
                VrsWriter.resume(path, PosixDisk(), length, index_length=index_length)
    assert path.read_bytes() == before


def test_resume_refuses_a_file_of_another_writer(tmp_path: Path) -> None:
    path = kit.write_file(tmp_path / "a.vrs", 1)
    data = bytearray(path.read_bytes())
    data[76:80] = b"VRS2"
    path.write_bytes(data)
    with pytest.raises(FormatError, match="another writer"):
        VrsWriter.resume(path, PosixDisk(), len(data))
    path.write_bytes(b"no VRS file" * 20)
    with pytest.raises(FormatError, match="no VRS file"):
        VrsWriter.resume(path, PosixDisk(), 220)


def test_whole_records_after_a_commit(tmp_path: Path, select: Selector) -> None:
    writer = kit.create(tmp_path / "a.vrs")
    kit.begin(writer)
    kit.write_step(writer, 0)
    start, _ = kit.flush(writer)
    previous = writer.last_size
    kit.write_step(writer, 1)
    kit.write_step(writer, 2)
    kit.close(writer)
    path = tmp_path / "a.vrs"
    whole = path.read_bytes()
    ends = kit.record_ends(path)
    for cut in select(range(len(whole), start - 1, -1), 200):
        os.truncate(path, cut)
        end, size, fault = whole_records_end(path, start, previous)
        assert end == max(e for e in ends if e <= cut)
        assert (fault is None) == (cut in ends)
        last = RecordHeader.unpack(whole, end - size)
        assert last.size == size


def test_whole_records_end_before_an_index(tmp_path: Path) -> None:
    writer = kit.create(tmp_path / "a.vrs")
    kit.begin(writer)
    start, previous = kit.flush(writer)[0], writer.last_size
    kit.write_step(writer, 0)
    end, size = kit.flush(writer)[0], writer.last_size
    writer.finish()
    kit.close(writer)
    assert whole_records_end(tmp_path / "a.vrs", start, previous) == (end, size, None)


def test_the_streams_of_a_resumed_writer_are_checked_too(tmp_path: Path) -> None:
    path = kit.write_file(tmp_path / "a.vrs", 2, finish=False)
    writer = VrsWriter.resume(path, PosixDisk(), path.stat().st_size)
    assert writer.streams.keys() == {kit.CAMERA_ID, kit.IMU_ID, kit.AUDIO_ID, kit.LIDAR_ID}
    assert writer.streams[kit.LIDAR_ID].tags.vrs["VRS_Serial_Number"] == "lidar-1"
    with pytest.raises(FormatError, match="block 0 of its Data records is"):
        writer.streams[kit.IMU_ID].write(RecordType.DATA, 9.0, kit.Pose())
    kit.close(writer)
